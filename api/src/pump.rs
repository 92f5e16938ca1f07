//! Progress without a thread: a pump reads a queue, hands what it finds to the tasks that wait, and
//! says when a thread may sleep on the queue's descriptor. `parker.rs` and `reactor.rs` sleep.

use crate::drivers::Drivers;
use core::fmt;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Errno, Error, Instant};
use ofi_engine::Watcher;
use ofi_os::wait_fd::FdWaitObject;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A source of wake-ups that a thread or a reactor sleeps on.
pub(crate) trait Pump: Send + Sync + fmt::Debug {
    /// Makes progress, and wakes the tasks whose operations have ended.
    fn turn(&self);
    /// Prepares for this watcher's sleep on the descriptor; false if there is something to do
    /// first.
    fn prepare(&self, watcher: Watcher) -> bool;
    /// A reactor that was about to sleep is awake.
    fn unwatch(&self, watcher: Watcher);
    /// Wakes all tasks that wait.
    fn wake_all(&self);
    /// The descriptor that is readable when there is something to do.
    fn descriptor(&self) -> Descriptor;
    /// A descriptor of the same, for a reactor that outlives the pump.
    fn share(&self) -> Result<OwnedFd>;
    /// Whether the descriptor is readable now.
    fn is_readable(&self) -> bool;
    /// The reactors that drive it.
    fn drivers(&self) -> &Drivers;
    /// Whether a thread of the library turns it.
    fn is_automatic(&self) -> bool;
}

/// A wait object whose timer also goes off at the operations' deadlines.
#[derive(Debug)]
pub(crate) struct Timed {
    inner: Arc<dyn WaitObject>,
    /// The same if the system has it: it is not simulated.
    fd: Option<Arc<FdWaitObject>>,
    /// When the engine, the operations and the waits for counters want to wake up.
    timers: Mutex<[Option<Instant>; 3]>,
}

const OF_ENGINE: usize = 0;
pub(crate) const OF_OPERATIONS: usize = 1;
pub(crate) const OF_COUNTERS: usize = 2;

impl Timed {
    pub(crate) fn new() -> Result<Self> {
        let fd = Arc::new(FdWaitObject::new(true)?);
        Ok(Self { inner: fd.clone(), fd: Some(fd), timers: Mutex::default() })
    }

    /// One of a simulated network.
    #[cfg(feature = "sim")]
    pub(crate) fn simulated(inner: Arc<dyn WaitObject>) -> Self {
        Self { inner, fd: None, timers: Mutex::default() }
    }

    /// A second descriptor of the wait object.
    pub(crate) fn share(&self) -> Result<OwnedFd> {
        let fd = self.fd.as_ref();
        fd.ok_or_else(|| Error::new(Errno::ENOSYS, "await operations of a simulated network outside of it"))?.share()
    }

    pub(crate) const fn is_simulated(&self) -> bool {
        self.fd.is_none()
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.fd.as_ref().is_some_and(|fd| fd.is_readable())
    }

    pub(crate) fn set(&self, whose: usize, when: Option<Instant>) {
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        timers[whose] = when;
        self.inner.set_timer(timers.iter().flatten().min().copied());
    }
}

impl WaitObject for Timed {
    fn add(&self, fd: Descriptor, key: u64) -> Result<()> {
        self.inner.add(fd, key)
    }
    fn remove(&self, fd: Descriptor) {
        self.inner.remove(fd);
    }
    fn ready(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) -> bool {
        self.inner.ready(timeout, keys)
    }
    fn signal(&self) {
        self.inner.signal();
    }
    fn drain(&self) {
        self.inner.drain();
    }
    fn set_timer(&self, when: Option<Instant>) {
        self.set(OF_ENGINE, when);
    }
    fn apart(&self) -> Option<&dyn WaitObject> {
        self.inner.apart()
    }
    fn give_turn(&self) {
        self.inner.give_turn();
    }
    fn descriptor(&self) -> Descriptor {
        self.inner.descriptor()
    }
    fn now(&self) -> Instant {
        self.inner.now()
    }
}
