//! Endpoints, active and passive: the objects, connections, and the message calls.

pub(crate) mod cm;
pub(crate) mod message;
pub(crate) mod object;
pub(crate) mod open;
mod options;
pub(crate) mod passive;
