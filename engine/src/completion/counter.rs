//! Counter (fi_cntr(3)): counts operations that succeed and fail, whether or not they leave entries
//! in a queue. Reading it makes progress on the endpoints that are bound to it.

use super::threshold::{CounterWatch, Interest, Tally};
use crate::progress::set::{Pollable, ProgressSet, Watcher};
use crate::progress::wait::{Outcome, Sleep, Spin, Waiting, ringer, write};
use crate::transport::Flush;
use core::fmt;
use ofi_core::Errno;
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_sync::busy::Children;
use ofi_sync::doorbell::Doorbell;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Counts successful operations, whatever the lock kind of the counter.
pub trait Count: fmt::Debug + Send + Sync {
    /// Counts an operation that has succeeded and has moved `len` bytes of payload.
    fn count(&self, len: usize);
}

impl<K: LockKind> Count for Counter<K> {
    #[inline]
    fn count(&self, len: usize) {
        self.add(match self.unit {
            CounterUnit::Operations => 1,
            CounterUnit::Bytes => len as u64,
        });
    }
}

impl<K: LockKind> Tally for Counter<K> {
    fn id(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
    fn total(&self) -> u64 {
        // SeqCst: see `Interest::is_any`.
        self.successes.load(Ordering::SeqCst).saturating_add(self.errors.load(Ordering::SeqCst))
    }
    fn add(&self, count: u64) {
        self.add(count);
    }
    fn add_errors(&self, count: u64) {
        self.add_errors(count);
    }
    fn set(&self, value: u64) {
        self.set(value);
    }
    fn begin_watch(&self, watch: &Arc<dyn CounterWatch>) {
        self.interest.begin_watch(watch);
    }
    fn end_watch(&self) {
        self.interest.end_watch();
    }
}

/// What a counter counts of the operations that succeed; of those that fail it counts each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterUnit {
    /// Each operation (FI_CNTR_EVENTS_COMP).
    Operations,
    /// The bytes of their payload (FI_CNTR_EVENTS_BYTES).
    Bytes,
}

/// A counter.
pub struct Counter<K: LockKind> {
    successes: AtomicU64,
    errors: AtomicU64,
    /// Both as last reported to the application.
    reported: [AtomicU64; 2],
    unit: CounterUnit,
    interest: Interest,
    progress: ProgressSet<K>,
    bell: Arc<Doorbell>,
    how: Waiting,
    spin: Spin,
    /// The endpoints and poll sets that it is bound to.
    pub users: Children,
}

impl<K: LockKind> fmt::Debug for Counter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter")
            .field("successes", &self.successes)
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}

impl<K: LockKind> Counter<K> {
    /// A counter at zero. `how`: whether and how [`Self::wait`] waits.
    pub fn new(kind: K, unit: CounterUnit, wait_object: Arc<dyn WaitObject>, how: Waiting) -> Self {
        let bell = Arc::new(Doorbell::new());
        Self {
            successes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            reported: [AtomicU64::new(0), AtomicU64::new(0)],
            unit,
            interest: Interest::new(how != Waiting::Never),
            progress: ProgressSet::with_bell(kind, wait_object.clone(), ringer(&bell, wait_object)),
            bell,
            how,
            spin: Spin::default(),
            users: Children::new(),
        }
    }

    #[inline]
    fn changed(&self) {
        if self.interest.is_any() {
            self.tell();
        }
    }

    #[inline(never)]
    fn tell(&self) {
        if self.interest.is_waitable() {
            write(self.bell.ring(), self.progress.wait_object());
        }
        if let Some(watch) = self.interest.watch() {
            watch.handle_change(self.id(), self.total());
        }
    }

    /// Adds to the successes.
    #[inline]
    pub fn add(&self, count: u64) {
        // Release pairs with the Acquire in `value`: a reader of the count sees the operations'
        // effects. SeqCst: see `Interest::is_any`.
        self.successes.fetch_add(count, Ordering::SeqCst);
        self.changed();
    }

    /// Counts `count` operations that have failed.
    #[cold]
    pub fn add_errors(&self, count: u64) {
        // As in `add`.
        self.errors.fetch_add(count, Ordering::SeqCst);
        self.changed();
    }

    /// Sets the number of successes.
    pub fn set(&self, value: u64) {
        // As in `add`.
        self.successes.store(value, Ordering::SeqCst);
        self.changed();
    }

    /// Sets the number of errors.
    pub fn set_errors(&self, value: u64) {
        // As in `add`.
        self.errors.store(value, Ordering::SeqCst);
        self.changed();
    }

    fn value(&self) -> u64 {
        // Acquire pairs with the Release in `add`.
        self.successes.load(Ordering::Acquire)
    }

    fn error_value(&self) -> u64 {
        // Acquire pairs with the Release in `add_errors`.
        self.errors.load(Ordering::Acquire)
    }

    /// Makes progress and returns the number of successes.
    #[inline]
    pub fn read(&self) -> u64 {
        self.progress.look_in();
        let value = self.value();
        // Relaxed: the waiting thread compares it with values that it read or synchronized with.
        self.reported[0].store(value, Ordering::Relaxed);
        value
    }

    /// Makes progress and returns the number of errors.
    pub fn read_errors(&self) -> u64 {
        self.progress.look_in();
        let value = self.error_value();
        // Relaxed: as in `read`.
        self.reported[1].store(value, Ordering::Relaxed);
        value
    }

    /// Makes progress and returns successes and errors. They do not count as reported.
    pub fn check(&self) -> (u64, u64) {
        self.progress.look_in();
        self.peek()
    }

    /// Returns successes and errors without making progress.
    pub fn peek(&self) -> (u64, u64) {
        (self.value(), self.error_value())
    }

    /// Blocks until there are `threshold` successes; without a wait object by polling. `EAVAIL` if
    /// an operation failed in the meantime, `ETIMEDOUT` on timeout (`None`: never), `EINTR` if a
    /// signal to the process has ended the sleep.
    pub fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<(), Errno> {
        let how = if self.how == Waiting::Never { Waiting::Yielding } else { self.how };
        let errors = self.error_value();
        let ready = || self.value() >= threshold || self.error_value() != errors;
        let sleep = Sleep { progress: &self.progress, bell: &self.bell, spin: &self.spin, how };
        let outcome = sleep.until(ready, timeout);
        // A peer may wait for the acknowledgment of what was counted.
        self.progress.flush(Flush::All);
        if self.value() >= threshold {
            Ok(())
        } else if self.error_value() != errors {
            Err(Errno::EAVAIL)
        } else if outcome == Outcome::Interrupted {
            Err(Errno::EINTR)
        } else {
            Err(Errno::ETIMEDOUT)
        }
    }

    /// Whether a caller may block on the descriptor now (fi_trywait(3)): `AGAIN` if the counter
    /// changed since it was last read, or since the last `AGAIN`.
    pub fn try_wait(&self) -> Result<(), Errno> {
        // Relaxed: as in `read`.
        let reported = || (self.reported[0].load(Ordering::Relaxed), self.reported[1].load(Ordering::Relaxed));
        let ready = || {
            let now = self.peek();
            let moved = now != reported();
            if moved {
                self.reported[0].store(now.0, Ordering::Relaxed);
                self.reported[1].store(now.1, Ordering::Relaxed);
            }
            moved
        };
        Sleep { progress: &self.progress, bell: &self.bell, spin: &self.spin, how: self.how }
            .prepare(Watcher::ThisThread, ready)
    }

    /// The wait object's descriptor, if the counter has one.
    pub fn descriptor(&self) -> Option<i32> {
        (self.how == Waiting::Sleeping).then(|| self.progress.wait_object().descriptor())
    }

    /// Makes an endpoint progress whenever this counter is read.
    pub fn join(&self, pollable: Arc<dyn Pollable>) -> Result<usize> {
        self.progress.join(pollable)
    }

    /// The endpoint no longer progresses with this counter.
    pub fn leave(&self, key: usize) {
        self.progress.leave(key);
    }
}
