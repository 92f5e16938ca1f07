//! A lock whose waiters sleep. Unlike the standard library's it knows no poisoning, which costs a
//! look at the thread's panics at each end: taking and releasing it, uncontended, is one atomic
//! exchange each.
#![allow(unsafe_code)]

use crate::primitive::{AtomicU32, Condvar, Mutex, Ordering};
#[allow(clippy::disallowed_types, reason = "this module guards the cell")]
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and threads may sleep.
const AWAITED: u32 = 2;

/// Looks at a held lock before a thread sleeps: most are held for less time than sleeping takes.
#[cfg(not(loom))]
const LOOKS: u32 = 100;
#[cfg(loom)]
const LOOKS: u32 = 0;

/// The lock, without what it guards.
struct RawLock {
    state: AtomicU32,
    /// Held while a thread decides to sleep, and before it is woken.
    sleeping: Mutex<()>,
    released: Condvar,
}

impl RawLock {
    fn new() -> Self {
        Self { state: AtomicU32::new(FREE), sleeping: Mutex::new(()), released: Condvar::new() }
    }

    #[inline(always)]
    fn lock(&self) {
        // Acquire pairs with the Release in `unlock`.
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended();
        }
    }

    #[cold]
    fn lock_contended(&self) {
        for _ in 0..LOOKS {
            match self.state.load(Ordering::Relaxed) {
                // Acquire: as in `lock`.
                FREE if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() => return,
                // Others sleep already: this thread does not overtake them.
                AWAITED => break,
                _ => core::hint::spin_loop(),
            }
        }
        let mut sleeping = ignore_panics(self.sleeping.lock());
        // Acquire: as in `lock`. The lock stays marked, because others may sleep; it may wake one
        // too many.
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            sleeping = ignore_panics(self.released.wait(sleeping));
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        // Release pairs with the Acquire in `lock`.
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        // A thread that has marked the lock before it was released sleeps once this succeeds.
        drop(ignore_panics(self.sleeping.lock()));
        self.released.notify_one();
    }
}

/// Nothing panics while the standard library's lock is held.
fn ignore_panics<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// A value that one thread at a time uses; others sleep meanwhile.
#[allow(clippy::disallowed_types, reason = "this module guards the cell")]
pub struct ParkCell<T> {
    lock: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time reach the value, and `T: Send` lets the value move
// between those threads.
unsafe impl<T: Send> Sync for ParkCell<T> {}

impl<T> ParkCell<T> {
    #[allow(clippy::disallowed_types, reason = "this module guards the cell")]
    pub(crate) fn new(value: T) -> Self {
        Self { lock: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. A panic of its holder, which ends release builds, releases it.
    #[inline(always)]
    pub(crate) fn lock(&self) -> ParkGuard<'_, T> {
        self.lock.lock();
        ParkGuard { cell: self }
    }
}

impl<T> fmt::Debug for ParkCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkCell").finish_non_exhaustive()
    }
}

/// Access to the value of a [`ParkCell`].
pub struct ParkGuard<'a, T> {
    cell: &'a ParkCell<T>,
}

// SAFETY: a guard that several threads share gives them no more than `&T`.
unsafe impl<T: Sync> Sync for ParkGuard<'_, T> {}

impl<T> fmt::Debug for ParkGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParkGuard")
    }
}

impl<T> Deref for ParkGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so no other guard exists.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for ParkGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, so no other guard exists.
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T> Drop for ParkGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cell.lock.unlock();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns() {
        const TURNS: u64 = 20_000;
        let cell = ParkCell::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cell = &cell;
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let mut value = cell.lock();
                        value.0 += 1;
                        if (turn + thread) % 64 == 0 {
                            // Long enough for the others to sleep.
                            std::thread::yield_now();
                        }
                        value.1 += 1;
                        assert_eq!(value.0, value.1, "two threads hold the lock");
                    }
                });
            }
        });
        assert_eq!(cell.lock().0, 4 * TURNS);
    }

    #[test]
    fn a_panic_releases_it() {
        let cell = ParkCell::new(1);
        let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            let _held = cell.lock();
            panic!("as the test wants");
        }));
        assert!(panicked.is_err());
        *cell.lock() += 1;
        assert_eq!(*cell.lock(), 2);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::Arc;

    /// Takes the lock, changes a word that it guards, and releases it.
    fn add(place: &(RawLock, AtomicU32)) {
        let (lock, word) = place;
        lock.lock();
        // Relaxed: the lock orders them.
        let value = word.load(Ordering::Relaxed);
        word.store(value + 1, Ordering::Relaxed);
        lock.unlock();
    }

    #[test]
    fn nobody_sleeps_for_ever_and_nothing_is_lost() {
        let mut model = loom::model::Builder::new();
        // Unbounded, the model takes minutes.
        model.preemption_bound = Some(3);
        model.check(|| {
            let place = Arc::new((RawLock::new(), AtomicU32::new(0)));
            let threads = [(); 2].map(|()| {
                let place = place.clone();
                loom::thread::spawn(move || add(&place))
            });
            add(&place);
            // Loom fails if a thread sleeps that nothing wakes.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            place.0.lock();
            assert_eq!(place.1.load(Ordering::Relaxed), 3);
            place.0.unlock();
        });
    }
}
