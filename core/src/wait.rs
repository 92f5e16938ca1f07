//! What a queue needs from the system to find, without asking each, the endpoints with news, and to sleep.

use crate::error::Result;
use crate::time::Instant;
use core::time::Duration;

/// A file descriptor, borrowed.
pub type Descriptor = i32;

/// A set of descriptors with news, a bell and an alarm.
pub trait WaitObject: Send + Sync + core::fmt::Debug {
    /// Watches `fd` for input; `key` comes back from [`Self::ready`].
    fn add(&self, fd: Descriptor, key: u64) -> Result<()>;
    /// No longer watches `fd`.
    fn remove(&self, fd: Descriptor);
    /// Appends the keys of the descriptors with news; waits up to `timeout` for the first (`None`: without end).
    fn ready(&self, timeout: Option<Duration>, keys: &mut Vec<u64>);
    /// Makes the port's descriptor readable until [`Self::drain`].
    fn signal(&self);
    /// Takes back a [`Self::signal`] and an alarm that went off.
    fn drain(&self);
    /// Makes the port's descriptor readable at `when`.
    fn set_timer(&self, when: Option<Instant>);
    /// A port of its own over the same descriptors, for those who sleep while others watch the descriptor of this one. `None`
    /// if there is none, or the system has no room for one.
    fn apart(&self) -> Option<&dyn WaitObject> {
        None
    }
    /// The descriptor that is readable when there is news.
    fn descriptor(&self) -> Descriptor;
    /// The present.
    fn now(&self) -> Instant;
}
