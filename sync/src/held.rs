//! Held mark: an endpoint that holds something back for the application's next call says so, and a
//! thread that looks at the mark now and then finds out whether that call comes.
//!
//! The endpoint changes the mark under its lock. The thread takes no lock while calls come, so that
//! they keep their locks to themselves.

use crate::primitive::{AtomicBool, AtomicU32, Ordering};

/// The mark of an endpoint.
#[derive(Debug, Default)]
pub struct HeldMark {
    /// How often something began to be held, or was let go: odd while something is held. Wraps.
    changes: AtomicU32,
    /// How often calls came while something was held. Wraps.
    calls: AtomicU32,
    /// The thread looks at it.
    watched: AtomicBool,
}

impl HeldMark {
    /// Says whether something is held, under the endpoint's lock. True if the thread is to be told
    /// of the mark.
    #[inline]
    pub fn set(&self, holds: bool) -> bool {
        // Relaxed: only holders of the lock write it.
        let changes = self.changes.load(Ordering::Relaxed);
        if holds == is_odd(changes) {
            return false;
        }
        // Relaxed: the swap below publishes it where that matters.
        self.changes.store(changes.wrapping_add(1), Ordering::Relaxed);
        // AcqRel: of this swap and the one in `unwatch`, the later one knows of what came before
        // the earlier one.
        holds && !self.watched.swap(true, Ordering::AcqRel)
    }

    /// A call came while something is held. Under the endpoint's lock.
    #[inline]
    pub fn note_call(&self) {
        // Relaxed: only holders of the lock write it.
        self.calls.store(self.calls().wrapping_add(1), Ordering::Relaxed);
    }

    /// How often calls came while something was held.
    pub fn calls(&self) -> u32 {
        // Relaxed: as in `held`.
        self.calls.load(Ordering::Relaxed)
    }

    /// The thread was not told of the mark after all.
    pub fn reject(&self) {
        self.watched.store(false, Ordering::Release);
    }

    /// What identifies what is held; `None` if nothing is.
    pub fn held(&self) -> Option<u32> {
        // Relaxed: a stale value delays what the thread does until it looks again.
        let changes = self.changes.load(Ordering::Relaxed);
        is_odd(changes).then_some(changes)
    }

    /// The thread stops looking at the mark. False if something has begun to be held: it goes on,
    /// unless it is told of the mark anew.
    pub fn unwatch(&self) -> bool {
        // AcqRel: see `set`.
        self.watched.swap(false, Ordering::AcqRel);
        // If something is held and nobody has told of it, the thread goes on.
        self.held().is_none() || self.watched.swap(true, Ordering::AcqRel)
    }
}

const fn is_odd(changes: u32) -> bool {
    changes & 1 == 1
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_has_another_number_each_time() {
        let mark = HeldMark::default();
        assert_eq!(mark.held(), None);
        assert!(mark.set(true), "the thread is to be told");
        let first = mark.held().unwrap();
        assert!(!mark.set(true) && mark.held() == Some(first), "it is still the same");
        mark.note_call();
        assert!(mark.held() == Some(first) && mark.calls() == 1);
        assert!(!mark.set(false) && mark.held().is_none());
        assert!(!mark.set(true), "the thread looks at it already");
        assert_ne!(mark.held().unwrap(), first);
        assert!(!mark.unwatch(), "something is held");
        mark.set(false);
        assert!(mark.unwatch());
        assert!(mark.set(true), "the thread is to be told again");
        mark.reject();
        mark.set(false);
        assert!(mark.set(true), "it was not told");
    }
}

#[cfg(all(test, ofi_loom))]
mod models {
    use super::*;
    use crate::primitive::Arc;

    /// What begins to be held while the thread stops looking is found: the thread goes on, or is
    /// told.
    #[test]
    fn nothing_is_held_unseen() {
        loom::model(|| {
            let mark = Arc::new(HeldMark::default());
            assert!(mark.set(true));
            mark.set(false);
            let holder = mark.clone();
            let told = loom::thread::spawn(move || holder.set(true));
            let goes_on = !mark.unwatch();
            let told = told.join().unwrap();
            assert!(goes_on != told, "exactly one of them sees to it");
        });
    }
}
