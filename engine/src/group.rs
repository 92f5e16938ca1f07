//! Progress in proportion to what is active: a queue's members, of which only the hot ones are visited.
//! A member is hot while it has traffic, output or something due. A cold one is found by the port when its descriptor
//! has news, which costs one system call whatever the number of members.
//! Lock order: group, then endpoint, then queue. The inbox is a leaf.

use crate::transport::Flush;
use ofi_core::Instant;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, Port};
pub use ofi_sync::heat::Heat;
use ofi_sync::heat::{Inbox, Waker};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::Arc;
use slab::Slab;
use std::fmt;
use std::time::Duration;

/// Visits without traffic after which a member cools down.
const PATIENCE: u16 = 128;
/// Passes over the hot members between looks at the port.
const LOOK_EVERY: u16 = 16;

/// What a member says after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Something happened.
    pub active: bool,
    /// It must be visited again even if its descriptor is silent.
    pub busy: bool,
}

/// What makes progress: an endpoint or a passive endpoint.
pub trait Member: Send + Sync {
    /// Moves everything on.
    fn visit(&self) -> Visit;
    /// Sends what is being held back.
    fn flush(&self, how: Flush);
    /// The visitor is about to sleep on the descriptor: what would wake it and cannot be used is to be silent.
    fn before_sleep(&self) {}
    /// When something is due.
    fn next_deadline(&self) -> Option<Instant>;
    /// What becomes readable when there is news.
    fn descriptor(&self) -> Option<Descriptor>;
    /// Where it announces that it became hot.
    fn heat(&self) -> &Heat;
}

struct Hot {
    key: usize,
    idle: u16,
}

struct State {
    members: Slab<Arc<dyn Member>>,
    hot: Vec<Hot>,
    passes: u16,
    nudges: u16,
    news: Vec<u64>,
}

/// The members of a queue.
pub struct Group<K: LockKind> {
    state: K::Cell<State>,
    inbox: Arc<Inbox>,
    port: Arc<dyn Port>,
}

impl<K: LockKind> fmt::Debug for Group<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("port", &self.port).finish_non_exhaustive()
    }
}

impl<K: LockKind> Group<K> {
    /// A group without members that looks for news at `port`.
    pub fn new(kind: K, port: Arc<dyn Port>) -> Self {
        let state = State { members: Slab::new(), hot: Vec::new(), passes: 0, nudges: 0, news: Vec::new() };
        Self { state: kind.cell(state), inbox: Arc::default(), port }
    }

    /// The same for a reader that sleeps and is woken by `waker` when a member becomes hot.
    pub fn with_waker(kind: K, port: Arc<dyn Port>, waker: Waker) -> Self {
        Self { inbox: Arc::new(Inbox::with_waker(waker)), ..Self::new(kind, port) }
    }

    /// The port.
    pub fn port(&self) -> &dyn Port {
        &*self.port
    }

    /// Adds a member; the key removes it again.
    pub fn join(&self, member: Arc<dyn Member>) -> Result<usize> {
        let mut state = K::lock(&self.state);
        let entry = state.members.vacant_entry();
        let key = entry.key();
        if let Some(fd) = member.descriptor() {
            self.port.add(fd, key as u64)?;
        }
        member.heat().attach(&self.inbox, key);
        entry.insert(member);
        state.hot.push(Hot { key, idle: 0 });
        Ok(key)
    }

    /// Removes a member.
    pub fn leave(&self, key: usize) {
        let mut state = K::lock(&self.state);
        if let Some(member) = state.members.try_remove(key) {
            if let Some(fd) = member.descriptor() {
                self.port.remove(fd);
            }
            member.heat().detach(&self.inbox);
            state.hot.retain(|hot| hot.key != key);
        }
    }

    fn collect(&self, state: &mut State) {
        self.inbox.take(|key| state.warm(key));
    }

    /// One pass: visits the hot members, and at times looks for news of the others. True if anything happened.
    pub fn progress(&self) -> bool {
        let mut state = K::lock(&self.state);
        self.collect(&mut state);
        state.passes = state.passes.wrapping_add(1);
        // Where all are hot there is nobody of whom the port would tell.
        let all_hot = state.hot.len() == state.members.len() && !state.hot.is_empty();
        if !all_hot && (state.hot.is_empty() || state.passes.is_multiple_of(LOOK_EVERY)) {
            self.look(&mut state, Some(Duration::ZERO));
        }
        state.visit_hot()
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
        let State { members, hot, .. } = &mut *state;
        for hot in hot.iter() {
            if let Some(member) = members.get(hot.key) {
                member.heat().forget();
            }
        }
        self.look(&mut state, Some(Duration::ZERO));
        state.visit_hot()
    }

    /// Sleeps until a member's descriptor has news or the timeout is over. Not under the lock: others may join meanwhile.
    pub fn sleep(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) {
        keys.clear();
        self.port.ready(timeout, keys);
        let mut state = K::lock(&self.state);
        for key in keys.drain(..) {
            if let Ok(key) = usize::try_from(key) {
                state.warm(key);
            }
        }
    }

    fn look(&self, state: &mut State, timeout: Option<Duration>) {
        let mut news = core::mem::take(&mut state.news);
        self.port.ready(timeout, &mut news);
        for key in news.drain(..) {
            if let Ok(key) = usize::try_from(key) {
                state.warm(key);
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
        let State { members, hot, .. } = state;
        for hot in hot.iter() {
            if let Some(member) = members.get(hot.key) {
                member.flush(how);
            }
        }
    }

    /// Tells the hot members that the caller is about to sleep.
    pub fn before_sleep(&self) {
        let state = K::lock(&self.state);
        state.hot.iter().filter_map(|hot| state.members.get(hot.key)).for_each(|member| member.before_sleep());
    }

    /// When the first member has something due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let mut state = K::lock(&self.state);
        self.collect(&mut state);
        state.hot.iter().filter_map(|hot| state.members.get(hot.key)?.next_deadline()).min()
    }

    /// Calls `each` with every member.
    pub fn for_each(&self, mut each: impl FnMut(&dyn Member)) {
        let state = K::lock(&self.state);
        state.members.iter().for_each(|(_, member)| each(&**member));
    }
}

impl State {
    fn warm(&mut self, key: usize) {
        match self.hot.iter_mut().find(|hot| hot.key == key) {
            Some(hot) => hot.idle = 0,
            None if self.members.contains(key) => self.hot.push(Hot { key, idle: 0 }),
            None => {}
        }
    }

    fn visit_hot(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while let Some(hot) = self.hot.get_mut(at) {
            let Some(member) = self.members.get(hot.key) else {
                self.hot.swap_remove(at);
                continue;
            };
            let visit = member.visit();
            any |= visit.active;
            hot.idle = if visit.active || visit.busy { 0 } else { hot.idle + 1 };
            if hot.idle >= PATIENCE {
                member.heat().forget();
                // What was announced before the flag was cleared is found by one more visit.
                let last = member.visit();
                if last.active || last.busy {
                    hot.idle = 0;
                    member.heat().announce();
                    any |= last.active;
                } else {
                    self.hot.swap_remove(at);
                    continue;
                }
            }
            at += 1;
        }
        any
    }
}
