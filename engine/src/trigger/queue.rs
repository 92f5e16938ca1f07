//! The deferred work of a domain.
//! Lock order: the queue's lock is a leaf; work starts without it. Work of one counter starts in
//! the order of thresholds, of equal ones in the order in which it was queued.

use super::work::{Action, Initiator, Work, address};
use super::{CounterWatch, Tally};
use crate::completion::counter::Counter;
use crate::completion::cq::CompletionQueue;
use crate::progress::set::{PollOutcome, Pollable, ReadyFlag};
use crate::transport::Flush;
use core::fmt;
use ofi_core::Instant;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Work that waits for one counter, by threshold and order of queuing.
#[derive(Debug)]
struct Waiting {
    counter: Arc<dyn Tally>,
    work: BTreeMap<(u64, u64), Work>,
}

#[derive(Debug, Default)]
struct State {
    /// By the counters' numbers.
    waiting: HashMap<usize, Waiting>,
    /// Work whose condition holds.
    ready: VecDeque<Work>,
    /// Work whose endpoint has too many operations outstanding.
    stalled: VecDeque<Work>,
    /// Number of items queued so far.
    seq: u64,
    /// A thread starts work.
    starting: bool,
}

/// The deferred work of a domain.
#[derive(Debug, Default)]
pub struct WorkQueue {
    state: Mutex<State>,
    /// Work is ready or stalled: spares polls the lock otherwise.
    has_work: AtomicBool,
    ready_flag: ReadyFlag,
}

/// The queue's membership in the progress set of a completion queue or counter.
pub struct Membership(Option<Box<dyn FnOnce() + Send + Sync>>);

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Membership")
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(leave) = self.0.take() {
            leave();
        }
    }
}

impl WorkQueue {
    /// Has reads of a completion queue start work.
    ///
    /// # Errors
    /// Those of joining its progress set.
    pub fn join_queue<K: LockKind>(self: &Arc<Self>, cq: &Arc<CompletionQueue<K>>) -> Result<Membership> {
        let (key, cq) = (cq.join(self.clone())?, cq.clone());
        Ok(Membership(Some(Box::new(move || cq.leave(key)))))
    }

    /// Has reads of a counter start work.
    ///
    /// # Errors
    /// As for [`Self::join_queue`].
    pub fn join_counter<K: LockKind>(self: &Arc<Self>, counter: &Arc<Counter<K>>) -> Result<Membership> {
        let (key, counter) = (counter.join(self.clone())?, counter.clone());
        Ok(Membership(Some(Box::new(move || counter.leave(key)))))
    }

    /// Queues work until `counter` has `threshold` successes and errors together. [`Self::run`]
    /// then starts it if it has them already.
    pub fn submit(self: &Arc<Self>, counter: &Arc<dyn Tally>, threshold: u64, work: Work) {
        let watch: Arc<dyn CounterWatch> = self.clone();
        let mut state = self.state();
        state.seq += 1;
        let place = (threshold, state.seq);
        let waiting = state.waiting.entry(counter.id());
        let waiting = waiting.or_insert_with(|| Waiting { counter: counter.clone(), work: BTreeMap::new() });
        waiting.work.insert(place, work);
        counter.begin_watch(&watch);
        // The counter may have changed before it was watched.
        self.take_ready(&mut state, counter.id(), counter.total());
    }

    /// Cancels deferred work that has not started; false if there is none with that id.
    pub fn cancel(&self, id: usize) -> bool {
        !self.withdraw(|work| work.id == id && id != 0, true).is_empty()
    }

    /// Cancels an endpoint's oldest triggered operation with that context. It completes with an
    /// error. False if none waits.
    pub fn cancel_triggered(&self, endpoint: &Arc<dyn Initiator>, context: usize) -> bool {
        let of = address(endpoint);
        let withdrawn = self.withdraw(|work| work.is_triggered(of, context), true);
        for work in &withdrawn {
            if let Action::Transfer(transfer) = &work.action {
                transfer.endpoint.cancel_deferred(&transfer.operation);
            }
        }
        !withdrawn.is_empty()
    }

    /// Cancels the deferred work that waits for a counter, or all that has not started.
    pub fn flush_work(&self, counter: Option<usize>) {
        let Some(counter) = counter else {
            self.withdraw(|work| work.id != 0, false);
            return;
        };
        let mut state = self.state();
        let Some(waiting) = state.waiting.get_mut(&counter) else { return };
        let (flushed, kept) = core::mem::take(&mut waiting.work).into_iter().partition(|(_, work)| work.id != 0);
        waiting.work = kept;
        state.end_watches();
        drop(state);
        drop::<BTreeMap<_, _>>(flushed);
    }

    /// Drops the work of an endpoint that is about to close.
    pub fn forget(&self, endpoint: &Arc<dyn Initiator>) {
        let of = address(endpoint);
        self.withdraw(|work| work.place().is_some_and(|(endpoint, _)| endpoint == of), false);
    }

    /// Starts the work that is ready, unless another thread does. Must not be called under an
    /// endpoint's lock. True if any has started.
    pub fn run(&self) -> bool {
        // Relaxed: the thread that sets it then wakes a poller, or polls itself.
        if !self.has_work.load(Ordering::Relaxed) {
            return false;
        }
        self.run_ready()
    }

    #[cold]
    fn run_ready(&self) -> bool {
        let mut state = self.state();
        if state.starting {
            // The thread that runs work checks again before it stops.
            return false;
        }
        state.starting = true;
        let mut stalled = core::mem::take(&mut state.stalled);
        stalled.append(&mut state.ready);
        state.ready = stalled;
        let (mut full, mut any) = (Vec::new(), false);
        while let Some(work) = state.ready.pop_front() {
            let place = work.place();
            if place.is_some_and(|place| full.contains(&place)) {
                // Operations of an endpoint start in order.
                state.stalled.push_back(work);
                continue;
            }
            drop(state);
            let started = work.start();
            state = self.state();
            match started {
                Ok(()) => any = true,
                Err(work) => {
                    full.extend(place);
                    state.stalled.push_back(work);
                }
            }
        }
        state.starting = false;
        // Relaxed: as in `run`; it is changed only under the lock.
        self.has_work.store(!state.stalled.is_empty(), Ordering::Relaxed);
        any
    }

    /// Moves the work whose threshold has been reached to the list of what is ready.
    fn take_ready(&self, state: &mut State, counter: usize, total: u64) {
        let Some(waiting) = state.waiting.get_mut(&counter) else { return };
        while let Some(first) = waiting.work.first_entry()
            && first.key().0 <= total
        {
            state.ready.push_back(first.remove());
        }
        if waiting.work.is_empty() {
            waiting.counter.end_watch();
            state.waiting.remove(&counter);
        }
        if !state.ready.is_empty() {
            // Relaxed: as in `run`.
            self.has_work.store(true, Ordering::Relaxed);
        }
    }

    /// Takes work that has not started off the queue: what is to go, or only the first of it.
    fn withdraw(&self, goes: impl Fn(&Work) -> bool, one: bool) -> Vec<Work> {
        let mut out = Vec::new();
        let mut state = self.state();
        let State { waiting, ready, stalled, .. } = &mut *state;
        let takes = |out: &Vec<Work>, work: &Work| (!one || out.is_empty()) && goes(work);
        for list in [stalled, ready] {
            for work in core::mem::take(list) {
                if takes(&out, &work) { out.push(work) } else { list.push_back(work) }
            }
        }
        for waiting in waiting.values_mut() {
            for (place, work) in core::mem::take(&mut waiting.work) {
                if takes(&out, &work) {
                    out.push(work);
                } else {
                    waiting.work.insert(place, work);
                }
            }
        }
        state.end_watches();
        // Without the lock: the last of an endpoint may go with its work.
        drop(state);
        out
    }

    fn has_fresh(&self) -> bool {
        // Relaxed: set under the lock, and a thread that sets it later wakes the caller.
        self.has_work.load(Ordering::Relaxed) && !self.state().ready.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets the counters for which nothing waits any more.
    fn end_watches(&mut self) {
        self.waiting.retain(|_, waiting| {
            let stays = !waiting.work.is_empty();
            if !stays {
                waiting.counter.end_watch();
            }
            stays
        });
    }
}

impl CounterWatch for WorkQueue {
    fn handle_change(&self, counter: usize, total: u64) {
        let mut state = self.state();
        self.take_ready(&mut state, counter, total);
        let ready = !state.ready.is_empty();
        drop(state);
        // A thread that falls asleep checks for ready work after it has announced its sleep.
        if ready && self.ready_flag.is_slept_on() {
            self.ready_flag.wake();
        }
    }
}

/// It has no descriptor, and stays active in every progress set, so that it never has to queue
/// itself: a counter's change may happen under locks under which that is not allowed.
impl Pollable for WorkQueue {
    fn poll(&self) -> PollOutcome {
        PollOutcome { active: self.run(), busy: true }
    }

    fn flush(&self, _how: Flush) {}

    fn before_sleep(&self) -> bool {
        self.has_fresh()
    }

    fn next_deadline(&self) -> Option<Instant> {
        // A thread asks for it after it has announced its sleep.
        self.has_fresh().then_some(Instant::from_nanos(1))
    }

    fn is_standby(&self) -> bool {
        true
    }

    fn descriptor(&self) -> Option<Descriptor> {
        None
    }

    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready_flag
    }
}

#[cfg(test)]
mod tests;
