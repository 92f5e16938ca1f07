//! Progress set: a pass polls only the active pollables, so its cost follows activity.
//! A pollable is active while it has traffic, output or something due. The wait object finds idle
//! pollables with events on their descriptors, in one system call whatever the number of pollables.
//! Lock order: progress set, then endpoint, then queue. The ready list is a leaf.

pub use super::pollable::{PollOutcome, Pollable};
use super::publish::{self, LastPublished};
pub use super::watchers::Watcher;
use super::watchers::Watchers;
use super::yield_pace::YieldPace;
use crate::hash::HashMap;
use crate::transport::Flush;
use ofi_core::Instant;
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_sync::lock::LockKind;
pub use ofi_sync::ready_list::ReadyFlag;
use ofi_sync::ready_list::{ReadyList, Waker};
use patience::Patience;
pub(crate) use rest::PollCount;
use rest::{Polled, Resting};
use slab::Slab;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod arming;
mod patience;
mod reporting;
mod rest;

/// [`Pollable::is_polled`] pollables stay active while there are no more active ones than this: an
/// armed descriptor costs the sender.
const FEW: usize = 8;
/// Polls without traffic after which a pollable whose polls are system calls becomes idle while
/// more than [`FEW`] are active: the wait object looks at all of them in one.
const IMPATIENCE: u16 = 2;
/// Passes over the active pollables between checks of the wait object; polls, if these are system
/// calls as the check is.
const LOOK_EVERY: u16 = 16;
/// Calls of [`ProgressSet::nudge`] between passes where polls are system calls, each as long as
/// some calls that read an entry.
const NUDGES: u16 = 4 * LOOK_EVERY;
/// Reads that find entries between looks whether it is time to publish reports.
const PUBLISH_EVERY: u16 = 4096;

struct Active {
    key: usize,
    /// Polls without traffic.
    idle: u16,
    pollable: Arc<dyn Pollable>,
}

struct Entry {
    pollable: Arc<dyn Pollable>,
    /// Its descriptor reports events: the pollable is idle, or a thread sleeps.
    armed: bool,
    /// How often it has joined, if it is shared; otherwise once.
    joined: usize,
    patience: Patience,
    /// What a progress thread knows of how often others poll it.
    polled: Polled,
}

struct State {
    pollables: Slab<Entry>,
    /// The keys of [`Pollable::shared_as`] pollables.
    shared: HashMap<usize, usize>,
    active: Vec<Active>,
    /// Number of pollables that are always active.
    standby: usize,
    /// Number of pollables that are not [`Pollable::is_polled`]: to poll them is a system call.
    costly: usize,
    /// Deadlines of idle pollables.
    due: Vec<(Instant, usize)>,
    /// Threads that sleep on the wait object, or are about to.
    sleepers: usize,
    /// Threads of the application, and reactors, that may sleep on the wait object's descriptor.
    watchers: Watchers,
    /// Pollables that a progress thread leaves to the application.
    resting: Resting,
    /// The number of active pollables at which a pass has nothing to do but poll them. A number
    /// that is never reached while there are watchers, or no pollables at all.
    all_active: usize,
    counts: Counts,
    news: Vec<u64>,
}

/// Counters; all but the first wrap.
#[derive(Default)]
struct Counts {
    /// Passes since the last look for events, or polls, if these are system calls.
    unlooked: usize,
    nudges: u16,
    /// How often all active pollables have been polled.
    polled: u32,
}

/// A thread that sleeps on the wait object, or is about to: pollables' descriptors stay armed.
pub struct Sleeper<'a, K: LockKind>(&'a ProgressSet<K>);

impl<K: LockKind> fmt::Debug for Sleeper<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sleeper")
    }
}

impl<K: LockKind> Drop for Sleeper<'_, K> {
    fn drop(&mut self) {
        let mut state = K::lock(&self.0.state);
        state.sleepers -= 1;
        state.note_awake();
    }
}

/// The endpoints and passive endpoints on which a queue makes progress.
pub struct ProgressSet<K: LockKind> {
    state: K::Cell<State>,
    ready_list: Arc<ReadyList>,
    wait_object: Arc<dyn WaitObject>,
    yields: YieldPace,
    published: LastPublished,
}

impl<K: LockKind> fmt::Debug for ProgressSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressSet").field("wait_object", &self.wait_object).finish_non_exhaustive()
    }
}

impl<K: LockKind> ProgressSet<K> {
    /// A set without pollables that finds idle pollables with events through `wait_object`.
    pub fn new(kind: K, wait_object: Arc<dyn WaitObject>) -> Self {
        let state = State {
            pollables: Slab::new(),
            shared: HashMap::default(),
            active: Vec::new(),
            standby: 0,
            costly: 0,
            due: Vec::new(),
            sleepers: 0,
            watchers: Watchers::default(),
            resting: Resting::default(),
            all_active: usize::MAX,
            counts: Counts::default(),
            news: Vec::new(),
        };
        let (ready_list, yields, published) = Default::default();
        Self { state: kind.cell(state), ready_list, wait_object, yields, published }
    }

    /// [`Self::new`] for a thread that may sleep: `ring` wakes it for work that no event on a
    /// descriptor announces, and when a deadline moves earlier.
    pub fn with_bell(kind: K, wait_object: Arc<dyn WaitObject>, ring: Waker) -> Self {
        Self { ready_list: Arc::new(ReadyList::with_bell(ring)), ..Self::new(kind, wait_object) }
    }

    /// The wait object.
    pub fn wait_object(&self) -> &dyn WaitObject {
        &*self.wait_object
    }

    /// Adds a pollable; the key removes it again.
    pub fn join(&self, pollable: Arc<dyn Pollable>) -> Result<usize> {
        let mut state = K::lock(&self.state);
        let shared = pollable.shared_as();
        if let Some(&key) = shared.and_then(|shared| state.shared.get(&shared)) {
            state.pollables[key].joined += 1;
            return Ok(key);
        }
        let mut polled = Polled::default();
        polled.activate(state.counts.polled);
        let entry = state.pollables.vacant_entry();
        let key = entry.key();
        let active = Active { key, idle: 0, pollable: pollable.clone() };
        if let Some(fd) = pollable.descriptor() {
            self.wait_object.add(fd, key as u64)?;
        }
        let (standby, costly) = (usize::from(pollable.is_standby()), usize::from(!pollable.is_polled()));
        pollable.ready_flag().attach(&self.ready_list, key);
        entry.insert(Entry { pollable, armed: false, joined: 1, patience: Patience::default(), polled });
        if let Some(shared) = shared {
            state.shared.insert(shared, key);
        }
        state.standby += standby;
        state.costly += costly;
        let joined = active.pollable.clone();
        state.active.push(active);
        state.count();
        if state.is_slept_on() {
            joined.ready_flag().add_sleeper();
            if state.arm(key) {
                drop(state);
                // The threads that sleep would not hear of what it has.
                joined.ready_flag().mark_ready();
                joined.ready_flag().wake();
            }
        }
        Ok(key)
    }

    /// Removes a pollable.
    pub fn leave(&self, key: usize) {
        let mut state = K::lock(&self.state);
        if let Some(entry) = state.pollables.get_mut(key).filter(|entry| entry.joined > 1) {
            entry.joined -= 1;
            return;
        }
        if let Some(Entry { pollable, armed, polled, .. }) = state.pollables.try_remove(key) {
            if let Some(shared) = pollable.shared_as() {
                state.shared.remove(&shared);
            }
            if armed {
                pollable.disarm();
            }
            if polled.rests() {
                state.resting.remove(key);
                pollable.leave_to_application(false);
            } else if state.is_slept_on() {
                pollable.ready_flag().remove_sleeper();
            }
            if let Some(reports) = publish::reports() {
                reports.forget(core::ptr::from_ref(pollable.ready_flag()).addr());
            }
            if let Some(fd) = pollable.descriptor() {
                self.wait_object.remove(fd);
            }
            state.standby -= usize::from(pollable.is_standby());
            state.costly -= usize::from(!pollable.is_polled());
            pollable.ready_flag().detach(&self.ready_list);
            state.active.retain(|active| active.key != key);
            state.due.retain(|(_, due)| *due != key);
            state.count();
        }
    }

    fn collect(&self, state: &mut State) {
        self.ready_list.take(|key| state.activate(key));
    }

    /// [`Self::pass`]; true if anything happened.
    pub fn progress(&self) -> bool {
        self.pass().is_active()
    }

    /// One pass: polls the active pollables, and at times checks the others for events.
    #[inline(always)]
    pub fn pass(&self) -> PollOutcome {
        let mut state = K::lock(&self.state);
        // With all pollables active the wait object has nothing to report.
        if self.ready_list.has_news() || state.active.len() != state.all_active {
            return self.progress_all(&mut state);
        }
        state.poll_active()
    }

    /// [`Self::progress`] for a caller that may not call again soon: sends what the pass deferred.
    pub fn look_in(&self) -> bool {
        let active = self.progress();
        if active {
            self.flush(Flush::All);
        }
        self.passed(active);
        active
    }

    /// A caller that polls has made a pass: at times, one that finds nothing has other threads run.
    #[inline(always)]
    pub fn passed(&self, active: bool) {
        if active {
            self.yields.interrupt();
        } else if self.yields.is_due() {
            self.give_turn();
        }
    }

    #[cold]
    fn give_turn(&self) {
        let nudges = K::lock(&self.state).counts.nudges;
        let now = self.yields.look(u32::from(nudges), || self.wait_object.now(), || self.wait_object.give_turn());
        self.publish_if_due(now);
    }

    #[inline(never)]
    fn progress_all(&self, state: &mut State) -> PollOutcome {
        // A thread that makes progress does not sleep.
        let wakes = state.watchers.remove(Watcher::ThisThread);
        if wakes {
            state.note_awake();
        }
        self.collect(state);
        let polls = if state.costly > 0 { state.active.len() } else { 1 };
        state.counts.unlooked = state.counts.unlooked.saturating_add(polls);
        let is_all_active = state.active.len() == state.pollables.len() && !state.active.is_empty();
        // A thread that slept on the wait object's descriptor knows only that there were events.
        if wakes
            || state.watchers.are_any()
            || !is_all_active
                && (state.active.len() == state.standby || state.counts.unlooked >= usize::from(LOOK_EVERY))
        {
            self.look_now(state);
            self.activate_due(state);
        }
        state.poll_active()
    }

    fn activate_due(&self, state: &mut State) {
        if state.due.is_empty() {
            return;
        }
        let now = self.wait_object.now();
        while let Some(at) = state.due.iter().position(|(when, _)| *when <= now) {
            let (_, key) = state.due.swap_remove(at);
            state.activate(key);
        }
    }

    /// Cheaper than a pass, for a caller that has entries to return already: flushes, and polls the
    /// pollables only once in `LOOK_EVERY` calls, or [`NUDGES`].
    pub fn nudge(&self, how: Flush) {
        let mut state = K::lock(&self.state);
        state.counts.nudges = state.counts.nudges.wrapping_add(1);
        if state.counts.nudges.is_multiple_of(if state.costly > 0 { NUDGES } else { LOOK_EVERY }) {
            let publishes = state.counts.nudges.is_multiple_of(PUBLISH_EVERY);
            drop(state);
            self.progress();
            self.flush(how);
            if publishes {
                self.publish_if_due(self.wait_object.now());
            }
        } else {
            self.flush_members(&mut state, how);
        }
    }

    /// The last pass before sleeping. Clears the ready flags of the active pollables first, so that
    /// operations posted from now on queue them again. True if anything happened.
    pub fn last_look(&self) -> bool {
        let mut state = K::lock(&self.state);
        self.collect(&mut state);
        state.active.iter().for_each(|active| active.pollable.ready_flag().clear());
        self.look_now(&mut state);
        self.activate_due(&mut state);
        state.poll_active().is_active()
    }

    /// Sleeps until an event on a pollable's descriptor or the timeout, without the lock: pollables
    /// may join meanwhile. Returns whether there were events.
    pub fn sleep(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) -> bool {
        keys.clear();
        self.wait_object.ready(timeout, keys);
        let any = !keys.is_empty();
        self.note_events(keys);
        any
    }

    /// The wait object has reported events of the pollables with these keys.
    pub fn note_events(&self, keys: &mut Vec<u64>) {
        K::lock(&self.state).note_events(keys);
    }

    /// Finds the pollables that have reported events, unless polling the active ones finds all.
    fn look_now(&self, state: &mut State) {
        state.counts.unlooked = 0;
        if state.active.len() == state.pollables.len() && state.costly == state.pollables.len() {
            return;
        }
        let mut news = core::mem::take(&mut state.news);
        self.wait_object.ready(Some(Duration::ZERO), &mut news);
        state.note_events(&mut news);
        state.news = news;
    }

    /// Sends the frames that active pollables hold back.
    pub fn flush(&self, how: Flush) {
        let mut state = K::lock(&self.state);
        self.flush_members(&mut state, how);
    }

    fn flush_members(&self, state: &mut State, how: Flush) {
        self.collect(state);
        state.active.iter().for_each(|active| active.pollable.flush(how));
    }

    /// Registers a thread that is about to sleep.
    pub fn sleeper(&self) -> Sleeper<'_, K> {
        let mut state = K::lock(&self.state);
        state.note_sleeper();
        state.sleepers += 1;
        Sleeper(self)
    }

    /// From now on the watcher may sleep on the wait object's descriptor. The caller holds a
    /// [`Sleeper`], and has called [`Self::before_sleep`].
    pub fn watch(&self, watcher: Watcher) {
        let mut state = K::lock(&self.state);
        state.watchers.add(watcher);
        state.count();
    }

    /// The watcher is awake: it no longer sleeps on the descriptor.
    pub fn unwatch(&self, watcher: Watcher) {
        let mut state = K::lock(&self.state);
        if state.watchers.remove(watcher) {
            state.note_awake();
            // It knows only that there were events.
            self.look_now(&mut state);
        }
    }

    /// The earliest deadline of the pollables, if any.
    pub fn next_deadline(&self) -> Option<Instant> {
        let mut state = K::lock(&self.state);
        self.collect(&mut state);
        let active = state.active.iter().filter_map(|active| active.pollable.next_deadline());
        active.chain(state.due.iter().map(|(when, _)| *when)).min()
    }

    /// Calls `each` with every pollable.
    pub fn for_each(&self, mut each: impl FnMut(&dyn Pollable)) {
        let state = K::lock(&self.state);
        state.pollables.iter().for_each(|(_, entry)| each(&*entry.pollable));
    }
}

impl State {
    const fn is_slept_on(&self) -> bool {
        self.sleepers > 0 || !self.watchers.is_empty()
    }

    /// Updates `all_active`.
    fn count(&mut self) {
        let simple = self.watchers.is_empty() && !self.pollables.is_empty();
        self.all_active = if simple { self.pollables.len() } else { usize::MAX };
    }

    /// After a sleeper or watcher has left: if it was the last, no thread sleeps.
    #[cold]
    fn note_awake(&mut self) {
        self.count();
        if !self.is_slept_on() {
            self.awake().for_each(|pollable| pollable.ready_flag().remove_sleeper());
            self.disarm_active();
        }
    }

    /// Before the first sleeper: tells the pollables that a thread sleeps.
    fn note_sleeper(&self) {
        if !self.is_slept_on() {
            self.awake().for_each(|pollable| pollable.ready_flag().add_sleeper());
        }
    }

    /// The pollables that the set's threads care for.
    fn awake(&self) -> impl Iterator<Item = &Arc<dyn Pollable>> {
        self.pollables.iter().filter(|(_, entry)| !entry.polled.rests()).map(|(_, entry)| &entry.pollable)
    }

    /// The descriptors of these pollables have reported events.
    fn note_events(&mut self, keys: &mut Vec<u64>) {
        for key in keys.drain(..).filter_map(|key| usize::try_from(key).ok()) {
            self.activate(key);
            if let Some(entry) = self.pollables.get(key).filter(|entry| entry.pollable.is_polled()) {
                entry.pollable.note_events();
            }
        }
    }

    fn activate(&mut self, key: usize) {
        match self.active.iter_mut().find(|active| active.key == key) {
            Some(active) => active.idle = 0,
            None => {
                let Some(Entry { pollable, patience, polled, .. }) = self.pollables.get_mut(key) else { return };
                if polled.rests() {
                    return;
                }
                polled.activate(self.counts.polled);
                if pollable.is_polled() {
                    patience.resume(self.counts.polled);
                }
                self.active.push(Active { key, idle: 0, pollable: pollable.clone() });
                self.due.retain(|(_, due)| *due != key);
                if !self.is_slept_on() {
                    self.disarm(key);
                }
            }
        }
    }

    /// Whether an active pollable has had no traffic for so long that it should become idle.
    #[inline(never)]
    fn is_quiet(&self, at: usize) -> bool {
        let Active { key, idle, pollable } = &self.active[at];
        let is_crowded = self.costly > FEW && self.active.len() > FEW && !pollable.is_polled();
        is_crowded || *idle >= self.pollables[*key].patience.polls()
    }

    #[inline(always)]
    fn poll_active(&mut self) -> PollOutcome {
        self.counts.polled = self.counts.polled.wrapping_add(1);
        let mut any = PollOutcome::default();
        let mut at = 0;
        while let Some(active) = self.active.get_mut(at) {
            let outcome = active.pollable.poll();
            any.add(outcome);
            if outcome.is_active_or_busy() {
                active.idle = 0;
                at += 1;
                continue;
            }
            let idle = active.idle.saturating_add(1);
            active.idle = idle;
            if idle >= IMPATIENCE && self.is_quiet(at) {
                let (stays, active) = self.make_idle(at);
                any.add(PollOutcome::new(active, false));
                at += usize::from(stays);
            } else {
                at += 1;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests;
