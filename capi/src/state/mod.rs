//! The state of the whole process, each part behind its own lock. Every part can be held while the process forks
//! (`fork.rs`), and knows nothing of the calls that use it.

pub(crate) mod log;
pub(crate) mod objects;
pub(crate) mod open_objects;
pub(crate) mod params;
pub(crate) mod texts;
