//! Progress in proportion to what is active: a queue's members, of which only the hot ones are visited.
//! A member is hot while it has traffic, output or something due. A cold one is found by the port when its descriptor
//! has news, which costs one system call whatever the number of members.
//! Lock order: group, then endpoint, then queue. The inbox is a leaf.

use crate::transport::Flush;
use ofi_core::Instant;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::Arc;
pub use ofi_sync::ready_list::ReadyFlag;
use ofi_sync::ready_list::{ReadyList, Waker};
use slab::Slab;
use std::fmt;
use std::time::Duration;

/// Visits without traffic after which a member cools down.
const PATIENCE: u16 = 128;
/// Members that are polled stay hot while there are no more hot ones than this: their descriptors cost the sender.
const FEW: usize = 8;
/// Passes over the hot members between looks at the port.
const LOOK_EVERY: u16 = 16;

/// What a member says after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollOutcome {
    /// Something happened.
    pub active: bool,
    /// It must be visited again even if its descriptor is silent.
    pub busy: bool,
}

/// What makes progress: an endpoint or a passive endpoint.
pub trait Pollable: Send + Sync {
    /// Moves everything on.
    fn poll(&self) -> PollOutcome;
    /// Sends what is being held back.
    fn flush(&self, how: Flush);
    /// The visitor is about to sleep on the descriptor: what would wake it and cannot be used is to be silent. True if there
    /// is something to do first.
    fn before_sleep(&self) -> bool {
        false
    }
    /// True if news may come of which the descriptor tells only while it is armed.
    fn is_polled(&self) -> bool {
        false
    }
    /// The descriptor is to tell of news until [`Pollable::disarm`] is called as often as this was with `first`. True if
    /// there are some already.
    fn arm(&self, _first: bool) -> bool {
        false
    }
    /// The descriptor need not tell any more, as far as this visitor is concerned.
    fn disarm(&self) {}
    /// When something is due.
    fn next_deadline(&self) -> Option<Instant>;
    /// What becomes readable when there is news.
    fn descriptor(&self) -> Option<Descriptor>;
    /// Where it announces that it became hot.
    fn ready_flag(&self) -> &ReadyFlag;
}

struct Active {
    key: usize,
    idle: u16,
    member: Arc<dyn Pollable>,
}

struct Entry {
    member: Arc<dyn Pollable>,
    /// Its descriptor tells of news: it is cold, or somebody sleeps.
    armed: bool,
}

struct State {
    members: Slab<Entry>,
    active: Vec<Active>,
    /// When cold members have something due.
    due: Vec<(Instant, usize)>,
    /// Who sleeps on the port, or is about to.
    sleepers: usize,
    /// Somebody may sleep on the port's descriptor without telling.
    watched: bool,
    passes: u16,
    nudges: u16,
    news: Vec<u64>,
}

/// Somebody who sleeps on the port, or is about to: members' descriptors stay armed meanwhile.
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
        if !state.is_slept_on() {
            state.members.iter().for_each(|(_, entry)| entry.member.ready_flag().remove_sleeper());
            state.disarm_active();
        }
    }
}

/// The members of a queue.
pub struct ProgressSet<K: LockKind> {
    state: K::Cell<State>,
    ready_list: Arc<ReadyList>,
    wait_object: Arc<dyn WaitObject>,
}

impl<K: LockKind> fmt::Debug for ProgressSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressSet").field("wait_object", &self.wait_object).finish_non_exhaustive()
    }
}

impl<K: LockKind> ProgressSet<K> {
    /// A group without members that looks for news at `port`.
    pub fn new(kind: K, port: Arc<dyn WaitObject>) -> Self {
        let state = State {
            members: Slab::new(),
            active: Vec::new(),
            due: Vec::new(),
            sleepers: 0,
            watched: false,
            passes: 0,
            nudges: 0,
            news: Vec::new(),
        };
        Self { state: kind.cell(state), ready_list: Arc::default(), wait_object: port }
    }

    /// The same for a reader that sleeps and is woken by `waker` when a member becomes hot.
    pub fn with_waker(kind: K, port: Arc<dyn WaitObject>, waker: Waker) -> Self {
        Self { ready_list: Arc::new(ReadyList::with_waker(waker)), ..Self::new(kind, port) }
    }

    /// The same for a reader that sleeps at times and is woken by `ring` when something is due earlier than it knows.
    pub fn with_bell(kind: K, port: Arc<dyn WaitObject>, ring: Waker) -> Self {
        Self { ready_list: Arc::new(ReadyList::with_bell(ring)), ..Self::new(kind, port) }
    }

    /// The port.
    pub fn wait_object(&self) -> &dyn WaitObject {
        &*self.wait_object
    }

    /// Adds a member; the key removes it again.
    pub fn join(&self, member: Arc<dyn Pollable>) -> Result<usize> {
        let mut state = K::lock(&self.state);
        let entry = state.members.vacant_entry();
        let key = entry.key();
        let hot = Active { key, idle: 0, member: member.clone() };
        if let Some(fd) = member.descriptor() {
            self.wait_object.add(fd, key as u64)?;
        }
        member.ready_flag().attach(&self.ready_list, key);
        entry.insert(Entry { member, armed: false });
        state.active.push(hot);
        if state.is_slept_on() {
            state.members[key].member.ready_flag().add_sleeper();
            state.arm(key);
        }
        Ok(key)
    }

    /// Removes a member.
    pub fn leave(&self, key: usize) {
        let mut state = K::lock(&self.state);
        if let Some(Entry { member, armed }) = state.members.try_remove(key) {
            if armed {
                member.disarm();
            }
            if state.is_slept_on() {
                member.ready_flag().remove_sleeper();
            }
            if let Some(fd) = member.descriptor() {
                self.wait_object.remove(fd);
            }
            member.ready_flag().detach(&self.ready_list);
            state.active.retain(|hot| hot.key != key);
            state.due.retain(|(_, due)| *due != key);
        }
    }

    fn collect(&self, state: &mut State) {
        self.ready_list.take(|key| state.activate(key));
    }

    /// One pass: visits the hot members, and at times looks for news of the others. True if anything happened.
    #[inline(always)]
    pub fn progress(&self) -> bool {
        let mut state = K::lock(&self.state);
        // Where all are hot there is nobody of whom the port would tell.
        if self.ready_list.has_news() || state.active.len() != state.members.len() || state.active.is_empty() {
            return self.progress_all(&mut state);
        }
        state.poll_active()
    }

    /// The same for a caller that may not call again soon: sends what the pass deferred.
    pub fn look_in(&self) -> bool {
        let active = self.progress();
        if active {
            self.flush(Flush::All);
        }
        active
    }

    #[inline(never)]
    fn progress_all(&self, state: &mut State) -> bool {
        self.collect(state);
        state.passes = state.passes.wrapping_add(1);
        let all_hot = state.active.len() == state.members.len() && !state.active.is_empty();
        if !all_hot && (state.active.is_empty() || state.passes.is_multiple_of(LOOK_EVERY)) {
            self.look(state, Some(Duration::ZERO));
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

    /// Less than a pass, for a caller that has something to do already: what is held back leaves, by its rule or whole,
    /// and only every so often the members are visited.
    pub fn nudge(&self, how: Flush) {
        let mut state = K::lock(&self.state);
        state.nudges = state.nudges.wrapping_add(1);
        if state.nudges.is_multiple_of(LOOK_EVERY) {
            drop(state);
            self.progress();
            self.flush(how);
        } else {
            self.flush_members(&mut state, how);
        }
    }

    /// A pass before sleeping without which nobody would hear of what is posted meanwhile: announcements of the members
    /// that are hot are heard anew from now on. True if anything happened.
    pub fn last_look(&self) -> bool {
        let mut state = K::lock(&self.state);
        self.collect(&mut state);
        state.active.iter().for_each(|hot| hot.member.ready_flag().clear());
        self.look(&mut state, Some(Duration::ZERO));
        state.poll_active()
    }

    /// Sleeps until a member's descriptor has news or the timeout is over. Not under the lock: others may join meanwhile.
    pub fn sleep(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) {
        keys.clear();
        self.wait_object.ready(timeout, keys);
        let mut state = K::lock(&self.state);
        for key in keys.drain(..) {
            if let Ok(key) = usize::try_from(key) {
                state.activate(key);
            }
        }
    }

    fn look(&self, state: &mut State, timeout: Option<Duration>) {
        let mut news = core::mem::take(&mut state.news);
        self.wait_object.ready(timeout, &mut news);
        for key in news.drain(..) {
            if let Ok(key) = usize::try_from(key) {
                state.activate(key);
            }
        }
        state.news = news;
    }

    /// Sends what members hold back: what their rule says, or everything before the caller sleeps.
    pub fn flush(&self, how: Flush) {
        let mut state = K::lock(&self.state);
        self.flush_members(&mut state, how);
    }

    fn flush_members(&self, state: &mut State, how: Flush) {
        self.collect(state);
        state.active.iter().for_each(|hot| hot.member.flush(how));
    }

    /// Somebody is about to sleep.
    pub fn sleeper(&self) -> Sleeper<'_, K> {
        let mut state = K::lock(&self.state);
        state.note_sleeper();
        state.sleepers += 1;
        Sleeper(self)
    }

    /// Somebody may sleep on the port's descriptor from now on, whenever they like.
    pub fn watch(&self) {
        let mut state = K::lock(&self.state);
        state.note_sleeper();
        state.watched = true;
    }

    /// Tells the hot members that a caller, who is a [`Sleeper`] or watches, is about to sleep. True if one of them has
    /// news already.
    pub fn before_sleep(&self) -> bool {
        let mut state = K::lock(&self.state);
        debug_assert!(state.is_slept_on(), "the caller has said that it sleeps");
        self.collect(&mut state);
        let mut news = false;
        for at in 0..state.active.len() {
            news |= state.active[at].member.before_sleep();
            let key = state.active[at].key;
            news |= state.arm(key);
        }
        news
    }

    /// When the first member has something due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let mut state = K::lock(&self.state);
        self.collect(&mut state);
        let hot = state.active.iter().filter_map(|hot| hot.member.next_deadline());
        hot.chain(state.due.iter().map(|(when, _)| *when)).min()
    }

    /// Calls `each` with every member.
    pub fn for_each(&self, mut each: impl FnMut(&dyn Pollable)) {
        let state = K::lock(&self.state);
        state.members.iter().for_each(|(_, entry)| each(&*entry.member));
    }
}

impl State {
    const fn is_slept_on(&self) -> bool {
        self.sleepers > 0 || self.watched
    }

    /// Members learn that somebody sleeps, if they do not know.
    fn note_sleeper(&self) {
        if !self.is_slept_on() {
            self.members.iter().for_each(|(_, entry)| entry.member.ready_flag().add_sleeper());
        }
    }

    fn activate(&mut self, key: usize) {
        match self.active.iter_mut().find(|hot| hot.key == key) {
            Some(hot) => hot.idle = 0,
            None => {
                let Some(Entry { member, .. }) = self.members.get(key) else { return };
                self.active.push(Active { key, idle: 0, member: member.clone() });
                self.due.retain(|(_, due)| *due != key);
                if !self.is_slept_on() {
                    self.disarm(key);
                }
            }
        }
    }

    /// A member's descriptor is to tell of news. True if there are some already.
    fn arm(&mut self, key: usize) -> bool {
        let Some(entry) = self.members.get_mut(key).filter(|entry| entry.member.is_polled()) else { return false };
        let first = !core::mem::replace(&mut entry.armed, true);
        entry.member.arm(first)
    }

    fn disarm(&mut self, key: usize) {
        if let Some(entry) = self.members.get_mut(key)
            && core::mem::take(&mut entry.armed)
        {
            entry.member.disarm();
        }
    }

    /// Hot members are polled again.
    fn disarm_active(&mut self) {
        for at in 0..self.active.len() {
            self.disarm(self.active[at].key);
        }
    }

    fn poll_active(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while let Some(hot) = self.active.get_mut(at) {
            let visit = hot.member.poll();
            any |= visit.active;
            hot.idle = if visit.active || visit.busy { 0 } else { hot.idle.saturating_add(1) };
            if hot.idle >= PATIENCE {
                let (stays, active) = self.make_idle(at);
                any |= active;
                at += usize::from(stays);
            } else {
                at += 1;
            }
        }
        any
    }

    /// A member that had nothing for long is left to its descriptor. Whether it stays hot, and whether it had something
    /// after all.
    #[cold]
    fn make_idle(&mut self, at: usize) -> (bool, bool) {
        let Active { key, member, .. } = &self.active[at];
        let (key, member) = (*key, member.clone());
        if member.is_polled() && self.active.len() <= FEW {
            self.active[at].idle = 0;
            return (true, false);
        }
        member.ready_flag().clear();
        // What was announced before the flag was cleared is found by one more visit.
        let armed = self.arm(key);
        let last = member.poll();
        if armed || last.active || last.busy {
            self.active[at].idle = 0;
            member.ready_flag().mark_ready();
            if !self.is_slept_on() {
                self.disarm(key);
            }
            return (true, last.active);
        }
        if let Some(when) = member.next_deadline() {
            self.due.push((when, key));
        }
        self.active.swap_remove(at);
        (false, false)
    }
}
