//! The interface between counters and deferred work (fi_trigger(3)): work starts when a counter
//! reaches a threshold, and changes counters when it completes.

use core::fmt::Debug;
use ofi_sync::primitive::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A counter of any lock kind.
pub trait Tally: Debug + Send + Sync {
    /// A number that no other open counter has.
    fn id(&self) -> usize;
    /// Successes and errors together.
    fn total(&self) -> u64;
    /// Adds to the successes.
    fn add(&self, count: u64);
    /// Adds to the errors.
    fn add_errors(&self, count: u64);
    /// Sets the successes.
    fn set(&self, value: u64);
    /// Calls `watch` after each change from now on; a counter has at most one watch.
    fn begin_watch(&self, watch: &Arc<dyn CounterWatch>);
    /// Stops calling the watch.
    fn end_watch(&self);
}

/// Observer of a counter's changes.
pub trait CounterWatch: Debug + Send + Sync {
    /// The counter with that number now has `total` successes and errors. The caller may hold an
    /// endpoint's lock.
    fn handle_change(&self, counter: usize, total: u64);
}

/// Threads may wait for the counter.
const WAITABLE: u32 = 1;
/// Deferred work waits for the counter.
const WATCHED: u32 = 2;

/// Which observers a counter has: sleeping threads, deferred work. Without any, a change costs one
/// load.
#[derive(Debug)]
pub(crate) struct Interest {
    bits: AtomicU32,
    watch: OnceLock<Arc<dyn CounterWatch>>,
}

impl Interest {
    pub(crate) fn new(waitable: bool) -> Self {
        Self { bits: AtomicU32::new(if waitable { WAITABLE } else { 0 }), watch: OnceLock::new() }
    }

    /// Whether there is an observer.
    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        // SeqCst pairs with `begin_watch`: the watch sets the bit and then reads the counter, a
        // change writes the counter and then reads the bit, so one of the two sees the other.
        self.bits.load(Ordering::SeqCst) != 0
    }

    /// Whether threads may wait for the counter.
    #[inline(always)]
    pub(crate) fn is_waitable(&self) -> bool {
        // Relaxed: this bit never changes.
        self.bits.load(Ordering::Relaxed) & WAITABLE != 0
    }

    pub(crate) fn begin_watch(&self, watch: &Arc<dyn CounterWatch>) {
        self.watch.get_or_init(|| watch.clone());
        // SeqCst pairs with `is_any`.
        self.bits.fetch_or(WATCHED, Ordering::SeqCst);
    }

    pub(crate) fn end_watch(&self) {
        // Relaxed: a change that still sees the bit finds no work.
        self.bits.fetch_and(!WATCHED, Ordering::Relaxed);
    }

    /// The watch, if it has to be called.
    pub(crate) fn watch(&self) -> Option<&Arc<dyn CounterWatch>> {
        // Relaxed: `is_any` has ordered it.
        (self.bits.load(Ordering::Relaxed) & WATCHED != 0).then(|| self.watch.get()).flatten()
    }
}
