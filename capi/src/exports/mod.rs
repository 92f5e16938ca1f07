//! The symbols that the library exports.

mod compat;
pub(crate) mod getinfo;
pub(crate) mod helper;
pub(crate) mod loaded;
pub(crate) mod logging;
pub(crate) mod param;
mod report;
mod symbols;
pub(crate) mod tostr;
