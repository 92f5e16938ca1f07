//! The edge to C: objects as C sees them, pointers from C, and what a forked process inherits.

pub(crate) mod handle;
pub(crate) mod inherited;
pub(crate) mod ptr;
