//! Process-wide state, each part behind its own lock, which `fork.rs` holds across fork(2). Nothing
//! here depends on the calls that use it.

pub(crate) mod log;
pub(crate) mod objects;
pub(crate) mod open_objects;
pub(crate) mod params;
pub(crate) mod texts;
