//! Threads that fi_trywait(3) has allowed to sleep on a descriptor. They do not report when they
//! wake, but one that makes progress is awake. The set does not know of threads that sleep because
//! another thread called fi_trywait.

use std::thread::{self, ThreadId};

/// Maximum number of threads that it distinguishes.
const MOST: usize = 64;

/// The threads that may sleep.
#[derive(Debug)]
pub(super) enum Watchers {
    /// These.
    Threads(Vec<ThreadId>),
    /// Any thread, for ever: there were more threads than it distinguishes.
    Any,
}

impl Default for Watchers {
    fn default() -> Self {
        Self::Threads(Vec::new())
    }
}

impl Watchers {
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self, Self::Threads(threads) if threads.is_empty())
    }

    /// The calling thread may sleep.
    pub(super) fn add_this_thread(&mut self) {
        self.add(thread::current().id());
    }

    fn add(&mut self, thread: ThreadId) {
        match self {
            Self::Threads(threads) if threads.contains(&thread) => {}
            Self::Threads(threads) if threads.len() < MOST => threads.push(thread),
            Self::Threads(_) => *self = Self::Any,
            Self::Any => {}
        }
    }

    /// The calling thread is awake. True if it was thought to sleep.
    #[inline]
    pub(super) fn remove_this_thread(&mut self) -> bool {
        !self.is_empty() && self.remove(thread::current().id())
    }

    #[cold]
    fn remove(&mut self, thread: ThreadId) -> bool {
        let Self::Threads(threads) = self else { return false };
        let before = threads.len();
        threads.retain(|other| *other != thread);
        threads.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other() -> ThreadId {
        thread::spawn(|| ()).join().map(|()| thread::spawn(|| ()).thread().id()).expect("a thread starts")
    }

    #[test]
    fn a_thread_that_is_awake_leaves_the_others() {
        let mut watchers = Watchers::default();
        assert!(watchers.is_empty() && !watchers.remove_this_thread());
        watchers.add_this_thread();
        watchers.add_this_thread();
        let other = other();
        watchers.add(other);
        assert!(watchers.remove_this_thread() && !watchers.remove_this_thread() && !watchers.is_empty());
        assert!(watchers.remove(other) && watchers.is_empty());
    }

    #[test]
    fn too_many_threads_are_watchers_for_ever() {
        let mut watchers = Watchers::default();
        watchers.add_this_thread();
        (0..MOST).for_each(|_| watchers.add(other()));
        assert!(matches!(watchers, Watchers::Any) && !watchers.is_empty());
        assert!(!watchers.remove_this_thread() && !watchers.is_empty());
    }
}
