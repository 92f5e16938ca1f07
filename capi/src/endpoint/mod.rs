//! Active and passive endpoints: objects, options, connection management, and message calls.

pub(crate) mod atomic;
pub(crate) mod cm;
pub(crate) mod collective;
pub(crate) mod data_path;
pub(crate) mod message;
pub(crate) mod object;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod passive;
pub(crate) mod rma;
pub(crate) mod trigger;
