//! Completion queues, counters, and other objects that a thread can wait on.

use crate::completion::counter::Count;
use crate::completion::threshold::Tally;
use crate::{CompletionQueue, Counter, EventQueue, Waiting};
use core::any::Any;
use core::fmt::Debug;
use ofi_core::error::Result;
use ofi_core::{Errno, Error};
use ofi_sync::busy::Children;
use ofi_sync::lock::LockKind;
use std::sync::Arc;
use std::time::Duration;

/// A queue or counter that can be a member of a wait set.
pub trait Waitable: Debug + Send + Sync {
    /// The descriptor that becomes readable when there is something to read; `None` if waiting does
    /// not sleep.
    fn descriptor(&self) -> Option<i32>;
    /// Whether a caller may sleep on the descriptor now (fi_trywait(3)): `AGAIN` if there is
    /// something to read.
    fn try_wait(&self) -> Result<(), Errno>;
    /// The objects that are bound to it, which keep it from being closed.
    fn users(&self) -> &Children;
}

/// Control calls of a completion queue.
pub trait QueueControl: Waitable + Any {
    /// Whether blocking reads wait, and how.
    fn waiting(&self) -> Waiting;
    /// Makes progress; true if there is something to read.
    fn check(&self) -> bool;
    /// Wakes the threads that wait (fi_cq_signal(3)).
    fn signal(&self) -> Result<(), Errno>;
}

/// Calls of a counter.
pub trait CounterControl: Waitable + Any + Count + Tally {
    /// Makes progress and returns the number of successes.
    fn read(&self) -> u64;
    /// Makes progress and returns the number of errors.
    fn read_errors(&self) -> u64;
    /// Makes progress; successes and errors, without recording that the application has read them.
    fn check(&self) -> (u64, u64);
    /// Sets the errors.
    fn set_errors(&self, value: u64);
    /// Waits for `threshold` successes (fi_cntr_wait(3)).
    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<(), Errno>;
}

/// The queue or counter that was opened with a certain lock kind.
pub(super) fn of_lock_kind<C: Any + Send + Sync>(object: Arc<dyn Any + Send + Sync>, what: &str) -> Result<Arc<C>> {
    object.downcast().map_err(|_| Error::new(Errno::EDOMAIN, format!("bind a {what} of another domain")))
}

impl Waitable for EventQueue {
    fn descriptor(&self) -> Option<i32> {
        Some(self.descriptor())
    }
    fn try_wait(&self) -> Result<(), Errno> {
        self.try_wait()
    }
    fn users(&self) -> &Children {
        &self.users
    }
}

impl<K: LockKind> Waitable for CompletionQueue<K> {
    fn descriptor(&self) -> Option<i32> {
        self.descriptor()
    }
    fn try_wait(&self) -> Result<(), Errno> {
        self.try_wait()
    }
    fn users(&self) -> &Children {
        &self.users
    }
}

impl<K: LockKind> QueueControl for CompletionQueue<K> {
    fn waiting(&self) -> Waiting {
        self.waiting()
    }
    fn check(&self) -> bool {
        self.check()
    }
    fn signal(&self) -> Result<(), Errno> {
        self.signal()
    }
}

impl<K: LockKind> Waitable for Counter<K> {
    fn descriptor(&self) -> Option<i32> {
        self.descriptor()
    }
    fn try_wait(&self) -> Result<(), Errno> {
        self.try_wait()
    }
    fn users(&self) -> &Children {
        &self.users
    }
}

impl<K: LockKind> CounterControl for Counter<K> {
    fn read(&self) -> u64 {
        self.read()
    }
    fn read_errors(&self) -> u64 {
        self.read_errors()
    }
    fn check(&self) -> (u64, u64) {
        self.check()
    }
    fn set_errors(&self, value: u64) {
        self.set_errors(value);
    }
    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<(), Errno> {
        self.wait(threshold, timeout)
    }
}
