//! How whoever has something to do gets onto a list of those to be visited, once, for the price of a load if it is there
//! already.
//!
//! Whoever has work makes it under a lock, releases the lock, then announces. The visitor that finds no work forgets the
//! announcement and then looks once more under that lock: work that was made before the look is found by it, work that
//! is made after it sees the announcement forgotten and announces anew.

use crate::primitive::{Arc, AtomicBool, AtomicU32, Mutex, Ordering};
use core::fmt;

/// A member's temperature, and the lists that want to know when it rises.
#[derive(Debug, Default)]
pub struct ReadyFlag {
    ready: AtomicBool,
    /// Visitors who sleep, or may at any time.
    sleepers: AtomicU32,
    lists: Mutex<Vec<(Arc<ReadyList>, usize)>>,
}

/// Wakes whoever looks at a list.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// Members that became hot since the list was last looked at.
#[derive(Default)]
pub struct ReadyList {
    full: AtomicBool,
    keys: Mutex<Vec<usize>>,
    waker: Option<Waker>,
    ring: Option<Waker>,
}

impl fmt::Debug for ReadyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyList").field("full", &self.full).field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// A lock whose holder cannot have left the value half made: a poisoned one is as good.
macro_rules! locked {
    ($mutex:expr) => {
        $mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    };
}

impl ReadyFlag {
    /// Announcements go to that list too, under that key.
    pub fn attach(&self, list: &Arc<ReadyList>, key: usize) {
        locked!(self.lists).push((list.clone(), key));
    }

    /// That list is told nothing any more.
    pub fn detach(&self, list: &Arc<ReadyList>) {
        locked!(self.lists).retain(|(other, _)| !Arc::ptr_eq(other, list));
    }

    /// There is something to do: to be called after the lock under which it was made has been released.
    #[inline]
    pub fn mark_ready(&self) {
        // Relaxed: the lock of the work orders this load after the visitor's `clear`, if its last look missed the work.
        if !self.ready.load(Ordering::Relaxed) {
            self.mark_ready_now();
        }
    }

    #[cold]
    fn mark_ready_now(&self) {
        self.ready.store(true, Ordering::Relaxed);
        for (list, key) in locked!(self.lists).iter() {
            let mut keys = locked!(list.keys);
            // A list that nobody looks at does not grow.
            if !keys.contains(key) {
                keys.push(*key);
            }
            drop(keys);
            // Release pairs with the Acquire in `ReadyList::take`.
            list.full.store(true, Ordering::Release);
            if let Some(wake) = &list.waker {
                wake();
            }
        }
    }

    /// One more visitor sleeps, or may at any time.
    pub fn add_sleeper(&self) {
        // Relaxed: the visitor then takes the lock of the list and that of the work, and whoever has work looks after both.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    /// One visitor less sleeps.
    pub fn remove_sleeper(&self) {
        // Relaxed: whoever still sees it wakes somebody in vain.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// True if a visitor sleeps, or may at any time: to be asked after [`Self::mark_ready`].
    #[inline]
    pub fn is_slept_on(&self) -> bool {
        // Relaxed: see `add_sleeper`.
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// How many visitors sleep, or may at any time.
    pub fn sleepers(&self) -> u32 {
        // Relaxed: see `add_sleeper`.
        self.sleepers.load(Ordering::Relaxed)
    }

    /// Wakes visitors that sleep: something is due earlier than they know.
    #[cold]
    pub fn wake(&self) {
        for (list, _) in locked!(self.lists).iter() {
            if let Some(wake) = list.ring.as_ref().or(list.waker.as_ref()) {
                wake();
            }
        }
    }

    /// The next announcement is to be heard again: to be called before the last look for work.
    pub fn clear(&self) {
        // Relaxed: the lock under which the caller then looks orders it.
        self.ready.store(false, Ordering::Relaxed);
    }
}

impl ReadyList {
    /// A list whose reader sleeps: `waker` is called after each announcement.
    pub fn with_waker(waker: Waker) -> Self {
        Self { waker: Some(waker), ..Self::default() }
    }

    /// A list whose reader may sleep: `ring` is called by [`ReadyFlag::wake`].
    pub fn with_bell(ring: Waker) -> Self {
        Self { ring: Some(ring), ..Self::default() }
    }

    /// Whether members became hot.
    #[inline(always)]
    pub fn has_news(&self) -> bool {
        // Relaxed: who acts on it takes them, which is ordered.
        self.full.load(Ordering::Relaxed)
    }

    /// Gives the keys of members that became hot to `take`. Costs a load if there are none.
    #[inline]
    pub fn take(&self, take: impl FnMut(usize)) {
        // Acquire pairs with the Release in `ReadyFlag::mark_ready_now`.
        if self.full.load(Ordering::Acquire) {
            self.take_now(take);
        }
    }

    #[cold]
    fn take_now(&self, take: impl FnMut(usize)) {
        let mut keys = locked!(self.keys);
        // Under the lock: an announcement that comes later sets it again.
        self.full.store(false, Ordering::Relaxed);
        keys.drain(..).for_each(take);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_heard_once() {
        let (heat, list) = (ReadyFlag::default(), Arc::new(ReadyList::default()));
        heat.attach(&list, 7);
        heat.mark_ready();
        heat.mark_ready();
        let mut heard = Vec::new();
        list.take(|key| heard.push(key));
        list.take(|key| heard.push(key));
        assert_eq!(heard, [7]);
        heat.clear();
        heat.mark_ready();
        list.take(|key| heard.push(key));
        assert_eq!(heard, [7, 7]);
        heat.clear();
        heat.detach(&list);
        heat.mark_ready();
        list.take(|key| heard.push(key));
        assert_eq!(heard, [7, 7]);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    /// Work is found by the last look or announced after it.
    #[test]
    fn no_work_is_overlooked() {
        loom::model(|| {
            let heat = Arc::new(ReadyFlag::default());
            let list = Arc::new(ReadyList::default());
            let work = Arc::new(Mutex::new(false));
            heat.attach(&list, 7);
            heat.announce();
            list.take(|_| ());
            let worker = {
                let (heat, work) = (heat.clone(), work.clone());
                loom::thread::spawn(move || {
                    *work.lock().unwrap() = true;
                    heat.announce();
                })
            };
            heat.forget();
            let found = *work.lock().unwrap();
            worker.join().unwrap();
            let mut announced = false;
            list.take(|_| announced = true);
            assert!(found || announced, "work that nobody will visit");
        });
    }
}
