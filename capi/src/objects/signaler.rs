//! Condition variables that events signal (FI_WAIT_MUTEX_COND, fi_poll(3)): a domain or a fabric
//! with such queues or wait sets has a thread that signals them. The application calls fi_trywait
//! while it holds the mutex, which arms the signal, and then waits.

use core::fmt;
use ofi_core::Instant;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_os::broadcaster::Broadcaster;
use ofi_os::mutex_cond::MutexCond;
use ofi_os::wait_fd::FdWaitObject;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Starts the thread that signals condition variables when the first one is needed.
#[derive(Default)]
pub(crate) struct Signaler(Mutex<Option<Arc<Broadcaster>>>);

impl Signaler {
    fn broadcaster(&self) -> Result<Arc<Broadcaster>> {
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broadcaster) = &*started {
            return Ok(broadcaster.clone());
        }
        let broadcaster = Arc::new(Broadcaster::start()?);
        *started = Some(broadcaster.clone());
        Ok(broadcaster)
    }

    /// A condition variable that the descriptor's events signal, from the named CPU if there is
    /// one. The descriptor outlives it.
    pub(crate) fn signal(&self, descriptor: Descriptor, cpu: Option<usize>) -> Result<Signaled> {
        let (broadcaster, cond) = (self.broadcaster()?, Arc::new(MutexCond::default()));
        let key = broadcaster.join(cond.clone(), descriptor, cpu)?;
        Ok(Signaled { broadcaster, key, cond })
    }
}

/// A condition variable that the thread of a [`Signaler`] broadcasts.
pub(crate) struct Signaled {
    broadcaster: Arc<Broadcaster>,
    key: usize,
    cond: Arc<MutexCond>,
}

impl Signaled {
    pub(crate) const fn cond(&self) -> &Arc<MutexCond> {
        &self.cond
    }

    /// The application is about to wait: the next event is to be broadcast.
    pub(crate) fn arm(&self) {
        self.broadcaster.arm(self.key);
    }
}

impl Drop for Signaled {
    fn drop(&mut self) {
        self.broadcaster.leave(self.key);
    }
}

/// A wait object whose events signal a condition variable.
pub(crate) struct CondWaitObject {
    /// Ends before the descriptor does.
    signaled: Signaled,
    inner: FdWaitObject,
}

impl CondWaitObject {
    pub(crate) const fn new(signaled: Signaled, inner: FdWaitObject) -> Self {
        Self { signaled, inner }
    }
}

impl fmt::Debug for CondWaitObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CondWaitObject").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl WaitObject for CondWaitObject {
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
        self.inner.set_timer(when);
    }
    fn apart(&self) -> Option<&dyn WaitObject> {
        self.inner.apart()
    }
    fn watched(&self) {
        self.signaled.arm();
    }
    fn descriptor(&self) -> Descriptor {
        self.inner.descriptor()
    }
    fn now(&self) -> Instant {
        self.inner.now()
    }
}
