//! Who makes progress and when: progress sets of pollables, waiting on them, and the thread of automatic progress.

pub mod auto;
pub mod set;
pub(crate) mod wait;
