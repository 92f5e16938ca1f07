//! Progress: sets of pollables, blocking waits on them, and the progress thread.

pub mod auto;
pub mod backstop;
pub mod pollable;
pub mod publish;
pub mod set;
pub(crate) mod wait;
mod watchers;
mod yield_pace;
