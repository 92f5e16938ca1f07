//! Ready list: an endpoint with pending work queues itself for progress; queuing it again costs one
//! relaxed load.
//!
//! A producer creates work under a lock, releases the lock, then calls [`ReadyFlag::mark_ready`]. A
//! consumer that finds no work calls [`ReadyFlag::clear`], then checks once more under that lock:
//! the check finds work created before it; the producer of later work sees the flag cleared and
//! marks it again.

use crate::primitive::{AtomicBool, AtomicU32, Mutex, Ordering};
use core::fmt;
use std::sync::Arc;

/// A pollable's ready flag, and the ready lists that it queues on.
#[derive(Debug, Default)]
pub struct ReadyFlag {
    ready: AtomicBool,
    /// Consumers that sleep, or may at any time.
    sleepers: AtomicU32,
    lists: Mutex<Vec<(Arc<ReadyList>, usize)>>,
}

/// Wakes a consumer of a ready list.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// Pollables that became ready since the list was last taken.
#[derive(Default)]
pub struct ReadyList {
    full: AtomicBool,
    keys: Mutex<Vec<usize>>,
    ring: Option<Waker>,
}

impl fmt::Debug for ReadyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyList").field("full", &self.full).field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Ignores poisoning: no holder can leave these values inconsistent.
macro_rules! locked {
    ($mutex:expr) => {
        $mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    };
}

impl ReadyFlag {
    /// Also queues on that list, under that key.
    pub fn attach(&self, list: &Arc<ReadyList>, key: usize) {
        locked!(self.lists).push((list.clone(), key));
    }

    /// No longer queues on that list.
    pub fn detach(&self, list: &Arc<ReadyList>) {
        locked!(self.lists).retain(|(other, _)| !Arc::ptr_eq(other, list));
    }

    /// Queues this pollable for progress. Call after releasing the lock under which the work was
    /// created.
    #[inline]
    pub fn mark_ready(&self) {
        // Relaxed: the work's lock orders this load after the consumer's `clear`, if its last check
        // missed the work.
        if !self.ready.load(Ordering::Relaxed) {
            self.mark_ready_now();
        }
    }

    #[cold]
    fn mark_ready_now(&self) {
        self.ready.store(true, Ordering::Relaxed);
        for (list, key) in locked!(self.lists).iter() {
            let mut keys = locked!(list.keys);
            // A list that is never taken must not grow.
            if !keys.contains(key) {
                keys.push(*key);
            }
            drop(keys);
            // Release pairs with the Acquire in `ReadyList::take`.
            list.full.store(true, Ordering::Release);
        }
    }

    /// Adds a consumer that sleeps, or may at any time.
    pub fn add_sleeper(&self) {
        // Relaxed: the consumer then takes the list's lock and the work's lock, and a producer
        // checks after both.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a sleeping consumer.
    pub fn remove_sleeper(&self) {
        // Relaxed: a producer that still sees it only wakes a consumer in vain.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// True if a consumer sleeps, or may at any time. Check after [`Self::mark_ready`].
    #[inline]
    pub fn is_slept_on(&self) -> bool {
        // Relaxed: see `add_sleeper`.
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// The number of consumers that sleep, or may at any time.
    pub fn sleepers(&self) -> u32 {
        // Relaxed: see `add_sleeper`.
        self.sleepers.load(Ordering::Relaxed)
    }

    /// Wakes sleeping consumers: there is work that no event on a descriptor announces, or a
    /// deadline moved earlier.
    #[cold]
    pub fn wake(&self) {
        locked!(self.lists).iter().filter_map(|(list, _)| list.ring.as_ref()).for_each(|ring| ring());
    }

    /// Queues this pollable for progress, and wakes sleeping consumers for it.
    #[inline]
    pub fn mark_ready_and_wake(&self) {
        self.mark_ready();
        if self.is_slept_on() {
            self.wake();
        }
    }

    /// Lets the next [`Self::mark_ready`] queue again. Call before the last check for work.
    pub fn clear(&self) {
        // Relaxed: ordered by the lock under which the caller then checks.
        self.ready.store(false, Ordering::Relaxed);
    }
}

impl ReadyList {
    /// A list whose consumer may sleep: [`ReadyFlag::wake`] calls `ring`.
    pub fn with_bell(ring: Waker) -> Self {
        Self { ring: Some(ring), ..Self::default() }
    }

    /// Whether pollables became ready.
    #[inline(always)]
    pub fn has_news(&self) -> bool {
        // Relaxed: the caller then calls `take`, which orders.
        self.full.load(Ordering::Relaxed)
    }

    /// Calls `take` with the key of each pollable that became ready. Costs one load if there are
    /// none.
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
        // Under the lock: a later `mark_ready` sets it again.
        self.full.store(false, Ordering::Relaxed);
        keys.drain(..).for_each(take);
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ready_pollable_is_queued_once() {
        let (flag, list) = (ReadyFlag::default(), Arc::new(ReadyList::default()));
        flag.attach(&list, 7);
        flag.mark_ready();
        flag.mark_ready();
        let mut heard = Vec::new();
        list.take(|key| heard.push(key));
        list.take(|key| heard.push(key));
        assert_eq!(heard, [7]);
        flag.clear();
        flag.mark_ready();
        list.take(|key| heard.push(key));
        assert_eq!(heard, [7, 7]);
        flag.clear();
        flag.detach(&list);
        flag.mark_ready();
        list.take(|key| heard.push(key));
        assert_eq!(heard, [7, 7]);
    }
}

#[cfg(all(test, ofi_loom))]
mod models {
    use super::*;

    /// The last check finds the work, or the producer queues it afterwards.
    #[test]
    fn no_work_is_overlooked() {
        loom::model(|| {
            let flag = Arc::new(ReadyFlag::default());
            let list = Arc::new(ReadyList::default());
            let work = Arc::new(Mutex::new(false));
            flag.attach(&list, 7);
            flag.mark_ready();
            list.take(|_| ());
            let worker = {
                let (flag, work) = (flag.clone(), work.clone());
                loom::thread::spawn(move || {
                    *work.lock().unwrap() = true;
                    flag.mark_ready();
                })
            };
            flag.clear();
            let found = *work.lock().unwrap();
            worker.join().unwrap();
            let mut announced = false;
            list.take(|_| announced = true);
            assert!(found || announced, "lost work: neither found nor queued");
        });
    }
}
