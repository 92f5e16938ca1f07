//! What a progress thread leaves to the application: a pollable that other threads poll densely
//! rests. The set neither polls nor watches it, and looks at times whether they still do. So a
//! program that polls pays nothing for automatic progress, and one that computes has it.

use super::{Flush, ProgressSet, State};
use core::time::Duration;
use ofi_core::Instant;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicU32, Ordering};

/// This many polls by others in each [`SHORTEST`] are dense: a thread with many busy endpoints
/// polls each of them rarely.
const DENSE: u32 = 4;
/// How long a pollable first rests. Nothing is done for its peers for as long after the application
/// has stopped polling.
const SHORTEST: Duration = Duration::from_micros(250);
/// How long pollables rest when the application keeps polling, at most. In a virtual machine a look
/// takes the application's core for 50 microseconds and more, with the timer that wakes the thread.
const LONGEST: Duration = Duration::from_millis(8);
/// They rest for this part of the time for which the application has polled so far.
const PART: u32 = 8;

/// How often a pollable was polled; wraps.
#[derive(Debug, Default)]
pub(crate) struct PollCount(AtomicU32);

impl PollCount {
    /// Counts a poll. The caller holds the pollable's lock.
    pub(crate) fn add(&self) {
        // Relaxed, and no atomic increment: one thread at a time writes, and readers compare.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u32 {
        // Relaxed: a guess of which threads poll.
        self.0.load(Ordering::Relaxed)
    }
}

/// What a progress thread knows of the polls of a pollable.
#[derive(Debug, Default)]
pub(super) struct Polled {
    /// When it was first looked at, and the number of polls then.
    since: Option<(Instant, u32)>,
    /// How many of the polls since then the set has made itself.
    own: u32,
    /// The set's passes when its own polls were counted last.
    passes: u32,
    rests: bool,
}

impl Polled {
    pub(super) const fn rests(&self) -> bool {
        self.rests
    }

    /// From now on each pass of the set, which has made so many, polls it.
    pub(super) const fn activate(&mut self, passes: u32) {
        self.passes = passes;
    }

    /// Counts the polls of the set itself while it was active.
    pub(super) const fn count_own(&mut self, passes: u32) {
        self.own = self.own.saturating_add(passes.wrapping_sub(self.passes));
        self.passes = passes;
    }

    /// Counts one more poll of the set.
    pub(super) const fn count_one(&mut self) {
        self.own = self.own.saturating_add(1);
    }

    /// Whether others poll densely.
    fn is_dense(&mut self, now: Instant, polls: u32) -> bool {
        let Some((since, before)) = self.since else {
            self.restart(now, polls);
            return false;
        };
        let others = polls.wrapping_sub(before).saturating_sub(self.own);
        let passed = now.since(since);
        let spans = passed.as_nanos() / SHORTEST.as_nanos();
        let dense = others >= DENSE && u128::from(others) >= u128::from(DENSE) * spans;
        if dense || passed >= SHORTEST {
            self.restart(now, polls);
        }
        dense
    }

    const fn restart(&mut self, now: Instant, polls: u32) {
        self.since = Some((now, polls));
        self.own = 0;
    }
}

/// The pollables that rest.
#[derive(Debug)]
pub(super) struct Resting {
    keys: Vec<usize>,
    /// Those of them that others no longer poll, as the last look has shown.
    over: Vec<usize>,
    /// When to look at them again. `None` if there are none.
    until: Option<Instant>,
    /// Since when all of them have been polled.
    since: Instant,
    /// Some rest anew, and the thread has not been asleep since.
    rested_since_sleep: bool,
}

impl Default for Resting {
    fn default() -> Self {
        let since = Instant::default();
        Self { keys: Vec::new(), over: Vec::new(), until: None, since, rested_since_sleep: false }
    }
}

impl Resting {
    pub(super) fn remove(&mut self, key: usize) {
        self.keys.retain(|other| *other != key);
        self.over.retain(|other| *other != key);
        self.until = self.until.filter(|_| !self.keys.is_empty());
    }

    /// The first look comes soon.
    fn begin(&mut self, now: Instant) {
        self.since = now;
        self.look_again(now);
    }

    fn look_again(&mut self, now: Instant) {
        let span = (now.since(self.since) / PART).clamp(SHORTEST, LONGEST);
        self.until = (!self.keys.is_empty()).then(|| now + span);
    }
}

impl<K: LockKind> ProgressSet<K> {
    /// When to look at the resting pollables, if there are any.
    pub(in crate::progress) fn next_look(&self) -> Option<Instant> {
        K::lock(&self.state).resting.until
    }

    /// The thread goes to sleep. If it kept the application from the core since it left pollables
    /// to it, few polls would prove nothing: they count from now.
    pub(in crate::progress) fn fall_asleep(&self, now: Instant) {
        let State { pollables, resting, .. } = &mut *K::lock(&self.state);
        if !core::mem::take(&mut resting.rested_since_sleep) {
            return;
        }
        for key in &resting.keys {
            let entry = &mut pollables[*key];
            if let Some(polls) = entry.pollable.polls() {
                entry.polled.restart(now, polls);
            }
        }
        resting.begin(now);
    }

    /// Looks at the resting pollables, if it is time; the thread still counts as asleep. False if
    /// others no longer poll one of them: then the thread has to wake up, and call [`Self::rest`].
    pub(in crate::progress) fn may_sleep_on(&self, now: Instant) -> bool {
        let state = &mut *K::lock(&self.state);
        state.look_at_resting(now);
        state.resting.over.is_empty()
    }

    /// Lets the active pollables rest that others poll densely, and wakes those that others no
    /// longer poll. No thread sleeps on the set.
    pub(in crate::progress) fn rest(&self, now: Instant) {
        let state = &mut *K::lock(&self.state);
        debug_assert!(!state.is_slept_on(), "the progress thread is awake");
        state.look_at_resting(now);
        let woken = self.wake_unpolled(state);
        let left = self.leave_polled(state, now);
        if woken || left {
            state.resting.rested_since_sleep = true;
            state.resting.begin(now);
        }
    }

    fn leave_polled(&self, state: &mut State, now: Instant) -> bool {
        let mut any = false;
        let mut at = 0;
        while let Some(active) = state.active.get(at) {
            let key = active.key;
            let entry = &mut state.pollables[key];
            entry.polled.count_own(state.counts.polled);
            let dense = entry.pollable.polls().is_some_and(|polls| entry.polled.is_dense(now, polls));
            if !dense {
                at += 1;
                continue;
            }
            any = true;
            state.active.swap_remove(at);
            entry.polled.rests = true;
            // In this order: what becomes ready meanwhile is found by the threads that poll.
            entry.pollable.ready_flag().detach(&self.ready_list);
            if let Some(fd) = entry.pollable.descriptor() {
                self.wait_object.remove(fd);
            }
            entry.pollable.flush(Flush::All);
            entry.pollable.leave_to_application(true);
            state.disarm(key);
            state.resting.keys.push(key);
        }
        any
    }

    fn wake_unpolled(&self, state: &mut State) -> bool {
        let mut any = false;
        for key in core::mem::take(&mut state.resting.over) {
            let entry = &mut state.pollables[key];
            if let Some(fd) = entry.pollable.descriptor()
                && self.wait_object.add(fd, key as u64).is_err()
            {
                // Without memory to watch it again, it is polled at each look until there is some.
                entry.pollable.poll();
                entry.pollable.flush(Flush::All);
                continue;
            }
            any = true;
            entry.polled.rests = false;
            // In this order: what is posted between them is sent by the call.
            entry.pollable.leave_to_application(false);
            entry.pollable.flush(Flush::All);
            state.resting.remove(key);
            // The next pass polls it, and finds what became ready before this.
            entry.pollable.ready_flag().attach(&self.ready_list, key);
            state.activate(key);
        }
        any
    }
}

impl State {
    /// Notes which resting pollables others no longer poll, if it is time to look.
    fn look_at_resting(&mut self, now: Instant) {
        let Self { pollables, resting, .. } = self;
        if resting.until.is_none_or(|until| until > now) {
            return;
        }
        resting.over.clear();
        for key in &resting.keys {
            let entry = &mut pollables[*key];
            let dense = entry.pollable.polls().is_some_and(|polls| entry.polled.is_dense(now, polls));
            if !dense {
                resting.over.push(*key);
            }
        }
        if !resting.over.is_empty() {
            resting.since = now;
        }
        resting.look_again(now);
    }
}

#[cfg(test)]
mod tests;
