//! The tasks that wait for counters.

use crate::pump::{OF_COUNTERS, Timed};
use crate::wakers::{Wakers, wake};
use core::task::Waker;
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_core::{Errno, Error, Instant};
use ofi_engine::Counter as Engine;
use ofi_engine::completion::threshold::CounterWatch;
use ofi_sync::lock::Park;
use ofi_sync::primitive::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a task waits for: so many successes, or more errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub(crate) threshold: u64,
    pub(crate) errors: u64,
}

impl Goal {
    pub(crate) fn outcome(self, counter: &Engine<Park>) -> Option<Result<()>> {
        let (successes, errors) = counter.peek();
        if successes >= self.threshold {
            return Some(Ok(()));
        }
        (errors != self.errors).then(|| Err(Error::new(Errno::EAVAIL, "wait for a counter: an operation failed")))
    }
}

/// A task that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) number: u64,
    pub(crate) counter: Arc<Engine<Park>>,
    pub(crate) goal: Goal,
    pub(crate) deadline: Option<Instant>,
    pub(crate) waker: Waker,
}

/// The tasks that wait for counters of a domain. A counter may change under an endpoint's lock,
/// where no task can be woken: the change makes the domain's descriptor readable, and the next turn
/// wakes the tasks.
#[derive(Debug)]
pub(crate) struct Counting {
    timed: Arc<Timed>,
    waiters: Mutex<Waiters>,
    /// How many there are.
    count: AtomicUsize,
    /// The next turn looks for tasks to wake.
    due: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiters {
    all: Vec<Waiter>,
    last: u64,
}

impl CounterWatch for Counting {
    fn handle_change(&self, _: usize, _: u64) {
        // SeqCst: see `add`.
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let met = self.waiters().all.iter().any(|waiter| waiter.goal.outcome(&waiter.counter).is_some());
        // SeqCst: see `signal_again`.
        if met && !self.due.swap(true, Ordering::SeqCst) {
            self.timed.signal();
        }
    }
}

impl Counting {
    pub(crate) fn new(timed: Arc<Timed>) -> Self {
        Self { timed, waiters: Mutex::default(), count: AtomicUsize::new(0), due: AtomicBool::new(false) }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new_wait(&self) -> u64 {
        let mut waiters = self.waiters();
        waiters.last += 1;
        waiters.last
    }

    /// Adds a waiter, or replaces what it was. The count is written before the caller looks at its
    /// counter, and a change writes the counter before it looks at the count: one sees the other.
    pub(crate) fn add(&self, waiter: Waiter) {
        let mut waiters = self.waiters();
        let known = waiters.all.iter_mut().find(|known| known.number == waiter.number);
        let replaced = match known {
            Some(known) => Some(core::mem::replace(known, waiter)),
            None => {
                waiters.all.push(waiter);
                None
            }
        };
        self.note(&waiters);
        drop(waiters);
        // Without the lock: its waker may be the last one of a task.
        drop(replaced);
    }

    pub(crate) fn remove(&self, number: u64) {
        let mut waiters = self.waiters();
        let at = waiters.all.iter().position(|waiter| waiter.number == number);
        let removed = at.map(|at| waiters.all.swap_remove(at));
        self.note(&waiters);
        drop(waiters);
        drop(removed);
    }

    fn note(&self, waiters: &Waiters) {
        self.count.store(waiters.all.len(), Ordering::SeqCst);
        let next = waiters.all.iter().filter_map(|waiter| waiter.deadline).min();
        self.timed.set(OF_COUNTERS, next);
    }

    /// Whether [`Self::wake`] has something to look at: a change, or a deadline.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        // Relaxed: see `handle_change`; a waiter's own thread sees its count.
        self.due.load(Ordering::Relaxed) || self.count.load(Ordering::Relaxed) > 0
    }

    /// The descriptor was drained since the last turn: if a change had made it readable, makes it
    /// so again, and returns true.
    pub(crate) fn signal_again(&self) -> bool {
        // SeqCst: a change that this does not see makes the descriptor readable after the drain.
        let due = self.due.load(Ordering::SeqCst);
        if due {
            self.timed.signal();
        }
        due
    }

    /// Wakes all tasks, which add themselves again.
    pub(crate) fn wake_all(&self) {
        let mut waiters = self.waiters();
        let wakers: Wakers = waiters.all.drain(..).map(|waiter| waiter.waker).collect();
        self.note(&waiters);
        drop(waiters);
        wake(wakers);
    }

    /// Wakes the tasks whose counters have got there, or whose deadline has passed.
    #[cold]
    pub(crate) fn wake(&self) {
        self.due.store(false, Ordering::SeqCst);
        let mut waiters = self.waiters();
        let deadlines = waiters.all.iter().any(|waiter| waiter.deadline.is_some());
        let now = deadlines.then(|| self.timed.now());
        let ends = |waiter: &mut Waiter| {
            let late = waiter.deadline.zip(now).is_some_and(|(deadline, now)| deadline <= now);
            late || waiter.goal.outcome(&waiter.counter).is_some()
        };
        let wakers: Wakers = waiters.all.extract_if(.., ends).map(|waiter| waiter.waker).collect();
        if !wakers.is_empty() {
            self.note(&waiters);
        }
        drop(waiters);
        wake(wakers);
    }

    /// How many tasks wait.
    #[cfg(all(test, feature = "shm"))]
    pub(crate) fn len(&self) -> usize {
        let waiters = self.waiters();
        assert_eq!(waiters.all.len(), self.count.load(Ordering::SeqCst));
        waiters.all.len()
    }
}
