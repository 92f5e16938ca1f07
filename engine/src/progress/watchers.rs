//! Threads that fi_trywait(3) has allowed to sleep on a descriptor. They do not report when they
//! wake, but one that makes progress is awake. The set does not know of threads that sleep because
//! another thread called fi_trywait. A reactor sleeps on behalf of tasks, in whichever thread:
//! progress that a thread makes says nothing about it, so it reports itself when it wakes.

use std::thread::{self, ThreadId};

/// Maximum number of threads and reactors that it distinguishes.
const MOST: usize = 64;

/// What sleeps on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// The calling thread, until it makes progress.
    ThisThread,
    /// The reactor with this number, until it says that it is awake.
    Reactor(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Thread(ThreadId),
    Reactor(u64),
}

impl From<Watcher> for Entry {
    fn from(watcher: Watcher) -> Self {
        match watcher {
            Watcher::ThisThread => Self::Thread(thread::current().id()),
            Watcher::Reactor(number) => Self::Reactor(number),
        }
    }
}

/// The threads and reactors that may sleep.
#[derive(Debug)]
pub(super) enum Watchers {
    /// These.
    Known(Vec<Entry>),
    /// Any, for ever: there were more than it distinguishes.
    Any,
}

impl Default for Watchers {
    fn default() -> Self {
        Self::Known(Vec::new())
    }
}

impl Watchers {
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self, Self::Known(known) if known.is_empty())
    }

    /// Whether threads are no longer distinguished: any may have slept.
    pub(super) const fn are_any(&self) -> bool {
        matches!(self, Self::Any)
    }

    /// The watcher may sleep.
    pub(super) fn add(&mut self, watcher: Watcher) {
        self.insert(watcher.into());
    }

    fn insert(&mut self, entry: Entry) {
        match self {
            Self::Known(known) if known.contains(&entry) => {}
            Self::Known(known) if known.len() < MOST => known.push(entry),
            Self::Known(_) => *self = Self::Any,
            Self::Any => {}
        }
    }

    /// The watcher is awake. True if it was thought to sleep.
    #[inline]
    pub(super) fn remove(&mut self, watcher: Watcher) -> bool {
        !self.is_empty() && self.take_out(watcher.into())
    }

    #[cold]
    fn take_out(&mut self, entry: Entry) -> bool {
        let Self::Known(known) = self else { return false };
        let before = known.len();
        known.retain(|other| *other != entry);
        known.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIS: Watcher = Watcher::ThisThread;

    fn other() -> Entry {
        let id = thread::spawn(|| ()).join().map(|()| thread::spawn(|| ()).thread().id()).expect("a thread starts");
        Entry::Thread(id)
    }

    #[test]
    fn a_thread_that_is_awake_leaves_the_others() {
        let mut watchers = Watchers::default();
        assert!(watchers.is_empty() && !watchers.remove(THIS));
        watchers.add(THIS);
        watchers.add(THIS);
        let other = other();
        watchers.insert(other);
        assert!(watchers.remove(THIS) && !watchers.remove(THIS) && !watchers.is_empty());
        assert!(watchers.take_out(other) && watchers.is_empty());
    }

    #[test]
    fn a_reactor_sleeps_until_it_says_otherwise() {
        let mut watchers = Watchers::default();
        watchers.add(Watcher::Reactor(1));
        assert!(!watchers.remove(THIS) && !watchers.remove(Watcher::Reactor(2)) && !watchers.is_empty());
        assert!(watchers.remove(Watcher::Reactor(1)) && watchers.is_empty());
    }

    #[test]
    fn too_many_threads_are_watchers_for_ever() {
        let mut watchers = Watchers::default();
        watchers.add(THIS);
        (0..MOST).for_each(|_| watchers.insert(other()));
        assert!(matches!(watchers, Watchers::Any) && !watchers.is_empty());
        assert!(!watchers.remove(THIS) && !watchers.is_empty());
    }
}
