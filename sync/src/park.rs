//! A lock whose waiters sleep. Unlike the standard library's it knows no poisoning, which costs a
//! look at the thread's panics at each end. Uncontended, the thread that owns it (`bias.rs`) takes
//! and releases it without atomic instructions, another thread by one each.
#![allow(unsafe_code)]

use crate::bias::{Barrier, Bias, OWNERS};
use crate::primitive::{AtomicU32, Condvar, Mutex, Ordering};
use crate::thread;
#[allow(clippy::disallowed_types, reason = "this module guards the cell")]
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and threads may sleep.
const AWAITED: u32 = 2;

/// Looks at a held lock before a thread sleeps: most are held for less time than sleeping takes.
#[cfg(not(ofi_loom))]
const LOOKS: u32 = 7;
#[cfg(ofi_loom)]
const LOOKS: u32 = 0;

/// Looks until something is so; false if that takes longer than to sleep. It looks ever more
/// rarely, because each look takes the word's line from the thread that holds the lock.
fn spin(is_so: impl Fn() -> bool) -> bool {
    (0..LOOKS).any(|look| {
        (0..1 << look).for_each(|_| core::hint::spin_loop());
        is_so()
    })
}

/// A lock that any thread takes by an atomic exchange.
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
        // This thread may overtake others that sleep: nobody would use the lock while one of them
        // wakes up.
        let is_taken = || {
            // Acquire: as in `lock`.
            let take = || self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
            self.state.load(Ordering::Relaxed) == FREE && take().is_ok()
        };
        if spin(is_taken) {
            return;
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

    /// Wakes all: the threads that wait for the raw lock and the thread that holds it and waits for
    /// the former owner sleep on the same condition.
    #[cold]
    fn wake_all(&self) {
        drop(ignore_panics(self.sleeping.lock()));
        self.released.notify_all();
    }
}

/// How a thread holds a lock: as the owner with this flag, or the raw lock. One word, so that
/// guards stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold(usize);

impl Hold {
    const RAW: Self = Self(OWNERS);
}

/// The lock, without what it guards.
struct Lock {
    bias: Bias,
    raw: RawLock,
}

impl Lock {
    fn new(barrier: Option<Barrier>) -> Self {
        Self { bias: Bias::new(barrier), raw: RawLock::new() }
    }

    #[inline(always)]
    fn lock(&self) -> Hold {
        let me = thread::id();
        if let Some(flag) = self.bias.own_flag(me) {
            if self.bias.enter(me, flag) {
                return Hold(flag);
            }
            self.leave(flag);
        }
        self.lock_raw(me);
        Hold::RAW
    }

    #[inline(never)]
    fn lock_raw(&self, me: usize) {
        self.raw.lock();
        if self.bias.note_use(me) {
            self.revoke_ownership();
        }
    }

    #[cold]
    fn revoke_ownership(&self) {
        let flag = self.bias.revoke();
        if spin(|| !self.bias.is_inside(flag)) {
            return;
        }
        let mut sleeping = ignore_panics(self.raw.sleeping.lock());
        while self.bias.is_inside(flag) {
            sleeping = ignore_panics(self.raw.released.wait(sleeping));
        }
    }

    #[inline(always)]
    fn unlock(&self, hold: Hold) {
        if hold.0 < OWNERS {
            self.leave(hold.0);
        } else {
            self.unlock_raw();
        }
    }

    #[inline(always)]
    fn leave(&self, flag: usize) {
        if self.bias.leave(flag) {
            self.raw.wake_all();
        }
    }

    #[inline(never)]
    fn unlock_raw(&self) {
        self.bias.note_release();
        self.raw.unlock();
    }
}

/// Nothing panics while the standard library's lock is held.
fn ignore_panics<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// A value that one thread at a time uses; others sleep meanwhile.
#[allow(clippy::disallowed_types, reason = "this module guards the cell")]
pub struct ParkCell<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time reach the value, and `T: Send` lets the value move
// between those threads.
unsafe impl<T: Send> Sync for ParkCell<T> {}

impl<T> ParkCell<T> {
    #[allow(clippy::disallowed_types, reason = "this module guards the cell")]
    pub(crate) fn new(value: T, barrier: Option<Barrier>) -> Self {
        Self { lock: Lock::new(barrier), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. A panic of its holder, which ends release builds, releases it.
    #[inline(always)]
    pub(crate) fn lock(&self) -> ParkGuard<'_, T> {
        let hold = self.lock.lock();
        ParkGuard { cell: self, hold, not_send: PhantomData }
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
    hold: Hold,
    /// Only the thread that has entered as the owner may leave.
    not_send: PhantomData<*const ()>,
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
        self.cell.lock.unlock(self.hold);
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The scheduler interrupts the other threads within this time, which is a barrier for them.
    fn barrier() {
        crate::primitive::fence(Ordering::SeqCst);
        #[allow(clippy::disallowed_methods, reason = "stands for membarrier(2), which is above this crate")]
        std::thread::sleep(Duration::from_millis(1));
    }

    #[test]
    fn threads_take_turns() {
        for barrier in [None, Some(barrier as Barrier)] {
            take_turns(barrier);
        }
    }

    fn take_turns(barrier: Option<Barrier>) {
        const TURNS: u64 = 20_000;
        let cell = ParkCell::new((0u64, 0u64), barrier);
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
        let cell = ParkCell::new(1, Some(barrier));
        for _ in 0..200 {
            let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
                let _held = cell.lock();
                std::panic::resume_unwind(Box::new(()));
            }));
            assert!(panicked.is_err());
        }
        *cell.lock() += 1;
        assert_eq!(*cell.lock(), 2);
    }

    #[test]
    fn the_usual_thread_owns_the_lock_until_another_wants_it() {
        let cell = ParkCell::new(0, Some(barrier));
        let uses = |most: u32| (1..=most).find(|_| cell.lock().hold == Hold(0));
        assert_eq!(uses(1000), Some(65));
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(cell.lock().hold, Hold::RAW)).join().unwrap());
        assert_eq!(uses(1000), Some(513));
    }

    #[test]
    fn a_lock_has_a_bounded_number_of_owners() {
        let cell = ParkCell::new(0, Some(barrier));
        let owns = |uses: u32| (0..uses).any(|_| cell.lock().hold != Hold::RAW);
        // Threads whose numbers differ: they exist at the same time.
        let (done, wait) = (std::sync::Barrier::new(OWNERS + 1), std::sync::Mutex::new(()));
        std::thread::scope(|scope| {
            for _ in 0..OWNERS {
                scope.spawn(|| {
                    let turn = wait.lock().unwrap();
                    cell.lock.bias.want_one_use();
                    assert!(owns(10));
                    drop(turn);
                    done.wait();
                });
            }
            done.wait();
        });
        cell.lock.bias.want_one_use();
        assert!(!owns(10), "an owner more than there are flags");
    }

    #[test]
    fn without_a_barrier_no_thread_owns_the_lock() {
        let cell = ParkCell::new(0, None);
        assert!((0..1000).all(|_| cell.lock().hold == Hold::RAW));
    }
}

#[cfg(all(test, ofi_loom))]
mod models {
    use super::*;
    use crate::primitive::Arc;

    /// Takes the lock, changes a word that it guards, and releases it.
    fn add(place: &(Lock, AtomicU32)) -> Hold {
        let (lock, word) = place;
        let hold = lock.lock();
        // Relaxed: the lock orders them.
        let value = word.load(Ordering::Relaxed);
        word.store(value + 1, Ordering::Relaxed);
        lock.unlock(hold);
        hold
    }

    /// Several threads take the lock, this one first `before` times, and then once more.
    fn check(threads: usize, before: u32, barrier: Option<Barrier>) {
        let mut model = loom::model::Builder::new();
        // Unbounded, the model takes minutes.
        model.preemption_bound = Some(3);
        model.check(move || {
            let place = Arc::new((Lock::new(barrier), AtomicU32::new(0)));
            for _ in 0..before {
                assert_eq!(add(&place), Hold::RAW);
            }
            let begin = |_| {
                let place = place.clone();
                loom::thread::spawn(move || add(&place))
            };
            let threads: Vec<_> = (0..threads).map(begin).collect();
            let all = before + 1 + u32::try_from(threads.len()).unwrap();
            add(&place);
            // Loom fails if a thread sleeps for ever.
            threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
            let hold = place.0.lock();
            assert_eq!(place.1.load(Ordering::Relaxed), all);
            place.0.unlock(hold);
        });
    }

    #[test]
    fn no_thread_sleeps_for_ever_and_nothing_is_lost() {
        check(2, 0, None);
    }

    #[test]
    fn a_late_owner_does_not_release_a_new_one() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let place = Arc::new((Lock::new(Some(|| crate::primitive::fence(Ordering::SeqCst))), AtomicU32::new(0)));
            assert_eq!(add(&place), Hold::RAW);
            let thread = {
                let place = place.clone();
                // The first use makes it the owner, the second is as the owner.
                loom::thread::spawn(move || (add(&place), add(&place)))
            };
            add(&place);
            thread.join().unwrap();
            let hold = place.0.lock();
            assert_eq!(place.1.load(Ordering::Relaxed), 4);
            place.0.unlock(hold);
        });
    }

    #[test]
    fn an_owner_and_others_exclude_each_other() {
        check(2, 1, Some(|| crate::primitive::fence(Ordering::SeqCst)));
    }
}
