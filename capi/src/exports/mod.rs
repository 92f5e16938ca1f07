//! The symbols that the library exports.

pub(crate) mod compat;
pub(crate) mod logging;
pub(crate) mod param;
pub(crate) mod symbols;
pub(crate) mod tostr;
