//! Wait objects: a queue finds its ready endpoints without polling each of them, and sleeps.

use crate::error::Result;
use crate::time::Instant;
use core::time::Duration;

/// A file descriptor, borrowed.
pub type Descriptor = i32;

/// A descriptor over a set of watched descriptors, a signal and a timer.
pub trait WaitObject: Send + Sync + core::fmt::Debug {
    /// Watches `fd` for input; [`Self::ready`] returns its `key`.
    fn add(&self, fd: Descriptor, key: u64) -> Result<()>;
    /// Stops watching `fd`.
    fn remove(&self, fd: Descriptor);
    /// Appends the keys of the ready descriptors; waits up to `timeout` (`None`: forever) for one.
    /// True if a signal to the process has ended the wait (EINTR, signal(7)).
    fn ready(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) -> bool;
    /// Makes the wait object's descriptor readable until [`Self::drain`].
    fn signal(&self);
    /// Clears a [`Self::signal`]; [`Self::set_timer`] clears an expired timer.
    fn drain(&self);
    /// Makes the wait object's descriptor readable at `when`; `None` disarms the timer.
    fn set_timer(&self, when: Option<Instant>);
    /// A second wait object over the same descriptors, for threads that sleep while others watch
    /// this one's descriptor. `None` if there is none, or the system lacks resources for it.
    fn apart(&self) -> Option<&dyn WaitObject> {
        None
    }
    /// A thread of the application is about to sleep until the descriptor is readable, or until the
    /// library signals the condition variable that stands for it (FI_WAIT_MUTEX_COND).
    fn watched(&self) {}
    /// A thread that polls without finding anything offers its core to other threads. A thread of a
    /// simulated network does not: no other thread does what it waits for.
    fn give_turn(&self) {
        std::thread::yield_now();
    }
    /// The descriptor, readable while an event is pending.
    fn descriptor(&self) -> Descriptor;
    /// The current time.
    fn now(&self) -> Instant;
}
