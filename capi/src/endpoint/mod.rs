//! Active and passive endpoints: objects, options, connection management, and message calls.

pub(crate) mod cm;
pub(crate) mod message;
pub(crate) mod object;
pub(crate) mod open;
mod options;
pub(crate) mod passive;
