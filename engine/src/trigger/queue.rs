//! The deferred work of a domain.
//! Lock order: the queue's lock is a leaf; work starts without it. Work of one counter starts in
//! the order of thresholds, of equal ones in the order in which it was queued.

use super::work::{Action, Half, Initiator, RoomWatch, Work, address};
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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Work with its number in the order of queuing.
#[derive(Debug)]
struct Queued {
    seq: u64,
    work: Work,
}

/// Work that waits for one counter, by threshold and order of queuing.
#[derive(Debug)]
struct Waiting {
    counter: Arc<dyn Tally>,
    work: BTreeMap<(u64, u64), Queued>,
}

/// Where work is that has not started.
#[derive(Clone, Copy, Debug)]
enum Spot {
    Stalled(Half, usize),
    Ready(usize),
    /// The counter's number, and the key in its work.
    Waiting(usize, (u64, u64)),
}

/// What the thread that starts work does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Starter {
    /// No thread starts work.
    #[default]
    Absent,
    /// It takes work, or works on a counter.
    Present,
    /// It calls this endpoint, without the lock.
    Calls(usize),
}

#[derive(Debug, Default)]
struct State {
    /// By the counters' numbers.
    waiting: HashMap<usize, Waiting>,
    /// Work whose condition holds.
    ready: VecDeque<Queued>,
    /// Work of endpoints that have too many operations outstanding, in order. No list is empty.
    stalled: BTreeMap<Half, VecDeque<Queued>>,
    /// Number of items queued so far.
    seq: u64,
    starter: Starter,
    /// An endpoint has had room since the thread last tried the stalled work.
    has_room: bool,
    /// Threads that wait until the starter has returned from an endpoint.
    leavers: usize,
}

/// The deferred work of a domain.
#[derive(Debug, Default)]
pub struct WorkQueue {
    state: Mutex<State>,
    /// The starter has returned from an endpoint.
    returned: Condvar,
    /// Work is ready or stalled: spares polls the lock otherwise.
    has_work: AtomicBool,
    ready_flag: ReadyFlag,
    /// The queue itself, for endpoints that will have room later.
    me: OnceLock<Weak<dyn RoomWatch>>,
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
        self.me.get_or_init(|| {
            let me: Weak<Self> = Arc::downgrade(self);
            me
        });
        let mut state = self.state();
        state.seq += 1;
        let seq = state.seq;
        let waiting = state.waiting.entry(counter.id());
        let waiting = waiting.or_insert_with(|| Waiting { counter: counter.clone(), work: BTreeMap::new() });
        waiting.work.insert((threshold, seq), Queued { seq, work });
        counter.begin_watch(&watch);
        // The counter may have changed before it was watched.
        self.take_ready(&mut state, counter.id(), counter.total());
    }

    /// Cancels deferred work that has not started; false if there is none with that id.
    pub fn cancel(&self, id: usize) -> bool {
        id != 0 && self.withdraw_oldest(|work| work.id == id).is_some()
    }

    /// Cancels an endpoint's oldest triggered operation with that context. It completes with an
    /// error. False if none waits.
    pub fn cancel_triggered(&self, endpoint: &Arc<dyn Initiator>, context: usize) -> bool {
        let of = address(endpoint);
        let withdrawn = self.withdraw_oldest(|work| work.is_triggered(of, context));
        if let Some(Work { action: Action::Transfer(transfer), .. }) = &withdrawn {
            transfer.endpoint.cancel_deferred(&transfer.operation);
        }
        withdrawn.is_some()
    }

    /// Cancels the deferred work that waits for a counter, or all that has not started.
    pub fn flush_work(&self, counter: Option<usize>) {
        let mut state = self.state();
        let flushed = match counter {
            None => state.withdraw(|work| work.id != 0),
            Some(counter) => {
                let Some(waiting) = state.waiting.get_mut(&counter) else { return };
                let flushed = waiting.withdraw(&|work| work.id != 0);
                state.end_watches();
                flushed
            }
        };
        // Without the lock: the last of an endpoint may go with its work.
        drop(state);
        drop(flushed);
    }

    /// Drops the work of an endpoint that is about to close. No thread starts work of it any more
    /// when this returns.
    pub fn forget(&self, endpoint: &Arc<dyn Initiator>) {
        let of = address(endpoint);
        let is_its = |work: &Work| work.half().is_some_and(|half| half.endpoint == of);
        let mut state = self.state();
        let mut forgotten = state.withdraw(is_its);
        state.leavers += 1;
        while state.starter == Starter::Calls(of) {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.leavers -= 1;
        // What the endpoint gave back.
        forgotten.extend(state.withdraw(is_its));
        drop(state);
        drop(forgotten);
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
        if state.starter != Starter::Absent {
            // The thread that runs work checks again before it stops.
            return false;
        }
        state.starter = Starter::Present;
        state.has_room = false;
        let (mut full, mut any) = (Vec::new(), false);
        loop {
            let Some(Queued { seq, work }) = state.next(&full) else {
                if !core::mem::take(&mut state.has_room) {
                    break;
                }
                full.clear();
                continue;
            };
            let half = work.half();
            state.starter = half.map_or(Starter::Present, |half| Starter::Calls(half.endpoint));
            drop(state);
            let started = work.start(self.me.get());
            state = self.state();
            state.starter = Starter::Present;
            if state.leavers > 0 {
                self.returned.notify_all();
            }
            match (started, half) {
                (Err(work), Some(half)) => {
                    full.push(half);
                    state.stalled.entry(half).or_default().push_front(Queued { seq, work });
                }
                // Work on counters always starts.
                (Ok(()) | Err(_), _) => any = true,
            }
        }
        state.starter = Starter::Absent;
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

    /// Takes the oldest work that `goes` selects off the queue.
    fn withdraw_oldest(&self, goes: impl Fn(&Work) -> bool) -> Option<Work> {
        let mut state = self.state();
        let spot = state.oldest(goes)?;
        state.remove(spot)
    }

    /// Whether there is work to try: work that is ready, or stalled work whose endpoint may have
    /// room.
    fn has_fresh(&self) -> bool {
        // Under the lock: the caller has announced its sleep, and a thread that makes work ready
        // under the lock later sees that.
        let state = self.state();
        !state.ready.is_empty() || state.has_room
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Takes the work that `goes` selects.
    fn withdraw(&mut self, goes: &impl Fn(&Work) -> bool) -> Vec<Queued> {
        self.work.extract_if(.., |_, queued| goes(&queued.work)).map(|(_, queued)| queued).collect()
    }
}

impl State {
    /// The next work to start, if any: none of a half that is full, because operations
    /// of an endpoint start in order.
    fn next(&mut self, full: &[Half]) -> Option<Queued> {
        if let Some((half, list)) = self.stalled.iter_mut().find(|(half, _)| !full.contains(half)) {
            let (half, first) = (*half, list.pop_front());
            if list.is_empty() {
                self.stalled.remove(&half);
            }
            return first;
        }
        while let Some(queued) = self.ready.pop_front() {
            match queued.work.half().and_then(|half| self.stalled.get_mut(&half)) {
                Some(stalled) => stalled.push_back(queued),
                None => return Some(queued),
            }
        }
        None
    }

    /// Where the oldest work is that `goes` selects.
    fn oldest(&self, goes: impl Fn(&Work) -> bool) -> Option<Spot> {
        let stalled = self
            .stalled
            .iter()
            .flat_map(|(half, list)| list.iter().enumerate().map(|(at, queued)| (queued, Spot::Stalled(*half, at))));
        let ready = self.ready.iter().enumerate().map(|(at, queued)| (queued, Spot::Ready(at)));
        let waiting = self.waiting.iter().flat_map(|(counter, waiting)| {
            waiting.work.iter().map(|(key, queued)| (queued, Spot::Waiting(*counter, *key)))
        });
        let all = stalled.chain(ready).chain(waiting).filter(|(queued, _)| goes(&queued.work));
        all.min_by_key(|(queued, _)| queued.seq).map(|(_, spot)| spot)
    }

    fn remove(&mut self, spot: Spot) -> Option<Work> {
        let removed = match spot {
            Spot::Stalled(half, at) => {
                let list = self.stalled.get_mut(&half)?;
                let removed = list.remove(at);
                if list.is_empty() {
                    self.stalled.remove(&half);
                }
                removed
            }
            Spot::Ready(at) => self.ready.remove(at),
            Spot::Waiting(counter, key) => {
                let waiting = self.waiting.get_mut(&counter)?;
                let removed = waiting.work.remove(&key);
                if waiting.work.is_empty() {
                    waiting.counter.end_watch();
                    self.waiting.remove(&counter);
                }
                removed
            }
        };
        removed.map(|queued| queued.work)
    }

    /// Takes all work that has not started and that `goes` selects.
    fn withdraw(&mut self, goes: impl Fn(&Work) -> bool) -> Vec<Queued> {
        let mut gone = Vec::new();
        for list in self.stalled.values_mut().chain([&mut self.ready]) {
            let (out, kept): (Vec<_>, Vec<_>) =
                core::mem::take(list).into_iter().partition(|queued| goes(&queued.work));
            *list = kept.into();
            gone.extend(out);
        }
        self.stalled.retain(|_, list| !list.is_empty());
        for waiting in self.waiting.values_mut() {
            gone.extend(waiting.withdraw(&goes));
        }
        self.end_watches();
        gone
    }

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

impl RoomWatch for WorkQueue {
    fn handle_room(&self) {
        let mut state = self.state();
        if state.stalled.is_empty() && state.starter == Starter::Absent {
            return;
        }
        state.has_room = true;
        drop(state);
        // As in `handle_change`.
        if self.ready_flag.is_slept_on() {
            self.ready_flag.wake();
        }
    }
}

/// It has no descriptor, and stays active in every progress set, so that it never has to queue
/// itself: a counter's change may happen under locks under which that is not allowed.
impl Pollable for WorkQueue {
    fn poll(&self) -> PollOutcome {
        PollOutcome::new(self.run(), true)
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
