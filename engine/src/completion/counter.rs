//! Counter (fi_cntr(3)): how many operations have succeeded and failed, whether or not they leave entries in a queue.
//! Reading it moves on the endpoints that are bound to it.

use crate::progress::set::{Pollable, ProgressSet};
use crate::progress::wait::{Sleep, Spin, Waiting, ringer, write};
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

/// A counter.
pub struct Counter<K: LockKind> {
    successes: AtomicU64,
    errors: AtomicU64,
    /// Both as they were last told to the application.
    told: [AtomicU64; 2],
    group: ProgressSet<K>,
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
    pub fn new(kind: K, port: Arc<dyn WaitObject>, how: Waiting) -> Self {
        let bell = Arc::new(Doorbell::new());
        Self {
            successes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            told: [AtomicU64::new(0), AtomicU64::new(0)],
            group: ProgressSet::with_bell(kind, port.clone(), ringer(&bell, port)),
            bell,
            how,
            spin: Spin::default(),
            users: Children::new(),
        }
    }

    #[inline]
    fn changed(&self) {
        if self.how != Waiting::Never {
            write(self.bell.ring(), self.group.wait_object());
        }
    }

    /// So many more operations have succeeded.
    #[inline]
    pub fn add(&self, count: u64) {
        // Release pairs with the Acquire in `value`: whoever sees the count sees what the operations did.
        self.successes.fetch_add(count, Ordering::Release);
        self.changed();
    }

    /// So many more operations have failed.
    #[cold]
    pub fn add_errors(&self, count: u64) {
        // Release pairs with the Acquire in `error_value`.
        self.errors.fetch_add(count, Ordering::Release);
        self.changed();
    }

    /// Sets the number of successes.
    pub fn set(&self, value: u64) {
        // Release pairs with the Acquire in `value`.
        self.successes.store(value, Ordering::Release);
        self.changed();
    }

    /// Sets the number of errors.
    pub fn set_errors(&self, value: u64) {
        // Release pairs with the Acquire in `error_value`.
        self.errors.store(value, Ordering::Release);
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

    /// The number of successes. Moves its endpoints on.
    #[inline]
    pub fn read(&self) -> u64 {
        self.group.look_in();
        let value = self.value();
        // Relaxed: compared by the thread that waits, with what it read itself or heard of.
        self.told[0].store(value, Ordering::Relaxed);
        value
    }

    /// The number of errors. Moves its endpoints on.
    pub fn read_errors(&self) -> u64 {
        self.group.look_in();
        let value = self.error_value();
        // Relaxed: as in `read`.
        self.told[1].store(value, Ordering::Relaxed);
        value
    }

    /// Moves its endpoints on; successes and errors as they stand then. The application is not told of them by this.
    pub fn check(&self) -> (u64, u64) {
        self.group.look_in();
        self.peek()
    }

    /// Successes and errors as they stand, without moving anything on.
    pub fn peek(&self) -> (u64, u64) {
        (self.value(), self.error_value())
    }

    /// Blocks until there are `threshold` successes. `EAVAIL` if an operation failed in the meantime, `ETIMEDOUT` if the
    /// timeout (`None`: without end) is over first.
    pub fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<(), Errno> {
        if self.how == Waiting::Never {
            return Err(Errno::ENOSYS);
        }
        let errors = self.error_value();
        let ready = || self.value() >= threshold || self.error_value() != errors;
        Sleep { group: &self.group, bell: &self.bell, spin: &self.spin, how: self.how }.until(ready, timeout);
        if self.value() >= threshold {
            Ok(())
        } else if self.error_value() != errors {
            Err(Errno::EAVAIL)
        } else {
            Err(Errno::ETIMEDOUT)
        }
    }

    /// Whether a caller may block on the descriptor now (fi_trywait(3)): `AGAIN` if something moved since the counter was
    /// read, or since this said so.
    pub fn try_wait(&self) -> Result<(), Errno> {
        // Relaxed: as in `read`.
        let told = || (self.told[0].load(Ordering::Relaxed), self.told[1].load(Ordering::Relaxed));
        let ready = || {
            let now = self.peek();
            let moved = now != told();
            if moved {
                self.told[0].store(now.0, Ordering::Relaxed);
                self.told[1].store(now.1, Ordering::Relaxed);
            }
            moved
        };
        Sleep { group: &self.group, bell: &self.bell, spin: &self.spin, how: self.how }.prepare(ready)
    }

    /// The descriptor that is readable when there is news, for a counter that can be waited on.
    pub fn descriptor(&self) -> Option<i32> {
        (self.how == Waiting::Sleeping).then(|| self.group.wait_object().descriptor())
    }

    /// Makes an endpoint progress whenever this counter is read.
    pub fn join(&self, member: Arc<dyn Pollable>) -> Result<usize> {
        self.group.join(member)
    }

    /// The endpoint no longer progresses with this counter.
    pub fn leave(&self, key: usize) {
        self.group.leave(key);
    }
}
