//! Triggered operations and deferred work (fi_trigger(3)): operations that start when a counter has
//! reached a threshold.
//! A counter's change only moves work to the list of what is ready, because it may happen under an
//! endpoint's lock; the queue starts it when it is polled, as a member of the progress sets of the
//! domain's queues and counters, or when the application's call that caused it ends.

mod queue;
mod work;

pub use crate::completion::deferred::Notice;
pub use crate::completion::threshold::{CounterWatch, Tally};
pub use queue::{Membership, WorkQueue};
pub use work::{Action, Initiator, NotStarted, Operation, RoomWatch, Transfer, Work};
