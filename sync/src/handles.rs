//! Handles whose objects may be removed, and which are given to other objects later: each has the
//! number of its insertion, and is valid while that is the latest of its handle. Most checks are
//! one load.

use crate::lock::{LockKind, Park};
use crate::park::{ParkCell, ParkGuard};
use crate::primitive::{AtomicU64, Ordering};
use core::fmt;
use core::hash::{BuildHasher, Hash};
use std::collections::HashMap;

/// Which handles are valid.
pub struct Handles<H: Send, S: Send> {
    /// The number of the latest insertion when a handle last lost its object: handles of later
    /// insertions are valid.
    removed: AtomicU64,
    known: ParkCell<Known<H, S>>,
}

/// The handles, under the lock.
#[derive(Debug)]
pub struct Known<H, S> {
    insertions: u64,
    /// By handle: the insertion that gave it its object, and how often that was inserted.
    by_handle: HashMap<H, (u64, usize), S>,
}

impl<H: Send, S: Send> fmt::Debug for Handles<H, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles").field("removed", &self.removed).finish_non_exhaustive()
    }
}

impl<H: Copy + Eq + Hash + Send, S: BuildHasher + Send> Handles<H, S> {
    /// No handles yet.
    pub fn new(kind: Park, hasher: S) -> Self {
        let known = Known { insertions: 0, by_handle: HashMap::with_hasher(hasher) };
        Self { removed: AtomicU64::new(0), known: kind.cell(known) }
    }

    /// Locks them, to insert or remove: the caller inserts and removes the objects meanwhile.
    pub fn lock(&self) -> ParkGuard<'_, Known<H, S>> {
        Park::lock(&self.known)
    }

    /// Whether a handle still has the object that this insertion gave it. A removal by another
    /// thread at the same time may come before or after.
    #[inline]
    pub fn has(&self, handle: H, insertion: u64) -> bool {
        // Relaxed: a removal that happens before this is seen, because values of one word are seen
        // in order; any other may come after.
        self.removed.load(Ordering::Relaxed) < insertion || self.is_known(handle, insertion)
    }

    #[cold]
    fn is_known(&self, handle: H, insertion: u64) -> bool {
        self.lock().insertion(handle) == Some(insertion)
    }

    /// Counts a removal of a handle's object. On true it has none any more: it was removed as often
    /// as it was inserted.
    pub fn removed(&self, known: &mut Known<H, S>, handle: H) -> bool {
        let Some((_, times)) = known.by_handle.get_mut(&handle) else { return false };
        *times -= 1;
        if *times > 0 {
            return false;
        }
        known.by_handle.remove(&handle);
        // Relaxed: see `has`.
        self.removed.store(known.insertions, Ordering::Relaxed);
        true
    }
}

impl<H: Eq + Hash, S: BuildHasher> Known<H, S> {
    /// Counts an insertion of a handle's object; returns the number of the one that gave it.
    pub fn inserted(&mut self, handle: H) -> u64 {
        let Self { insertions, by_handle } = self;
        let (insertion, times) = by_handle.entry(handle).or_insert_with(|| {
            *insertions += 1;
            (*insertions, 0)
        });
        *times += 1;
        *insertion
    }

    /// The insertion that gave a handle its object; `None` if it has none.
    pub fn insertion(&self, handle: H) -> Option<u64> {
        self.by_handle.get(&handle).map(|(insertion, _)| *insertion)
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;
    use std::hash::RandomState;

    #[test]
    fn a_handle_is_valid_until_its_object_was_removed_as_often_as_it_was_inserted() {
        let handles = Handles::new(Park::default(), RandomState::new());
        let insert = |handle| handles.lock().inserted(handle);
        let remove = |handle| handles.removed(&mut handles.lock(), handle);
        let (first, second) = (insert(0), insert(1));
        assert_eq!(insert(0), first, "the same object again");
        assert!(handles.has(0, first) && handles.has(1, second));
        assert!(!remove(0) && handles.has(0, first), "it was inserted twice");
        assert!(remove(0) && !handles.has(0, first) && handles.has(1, second));
        let third = insert(0);
        assert!(handles.has(0, third) && !handles.has(0, first), "another object has the handle");
        assert!(!remove(7), "unknown");
    }
}

#[cfg(all(test, ofi_loom))]
mod models {
    use super::*;
    use crate::primitive::{Arc, AtomicBool};
    use core::hash::BuildHasherDefault;
    use std::hash::DefaultHasher;

    type Tested = Handles<u8, BuildHasherDefault<DefaultHasher>>;

    /// One thread removes an object and inserts another one, which gets the handle. A thread that
    /// knows of it refuses the old handle, and takes the new one; one that does not may do either
    /// with the old one.
    #[test]
    fn a_handle_that_was_removed_is_refused_by_threads_that_know_of_it() {
        loom::model(|| {
            let all = Arc::new((Tested::new(Park::default(), BuildHasherDefault::default()), AtomicBool::new(false)));
            let old = all.0.lock().inserted(0);
            let other = {
                let all = all.clone();
                loom::thread::spawn(move || {
                    let (handles, removed) = &*all;
                    assert!(handles.removed(&mut handles.lock(), 0));
                    removed.store(true, Ordering::Release);
                    let new = handles.lock().inserted(0);
                    assert!(new != old && handles.has(0, new) && !handles.has(0, old));
                    new
                })
            };
            let (handles, removed) = &*all;
            if removed.load(Ordering::Acquire) {
                assert!(!handles.has(0, old));
            } else {
                let _either = handles.has(0, old);
            }
            let new = other.join().unwrap();
            assert!(handles.has(0, new) && !handles.has(0, old));
        });
    }
}
