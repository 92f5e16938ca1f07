//! Two kinds of locking behind one trait: an endpoint is compiled for each and pays only for its
//! own. [`Park`]: a real lock. [`Unlocked`]: none, for FI_THREAD_DOMAIN with
//! FI_PROGRESS_CONTROL_UNIFIED, made only from the caller's promise.
#![allow(unsafe_code)]

use crate::bias::Barrier;
use crate::park::{ParkCell, ParkGuard};
use core::cell::Cell;
#[allow(clippy::disallowed_types, reason = "this module is the replacement")]
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// A kind of locking.
pub trait LockKind: Copy + Send + Sync + 'static {
    /// A value behind this kind of lock.
    type Cell<T: Send>: Send + Sync;
    /// Access to the value.
    type Guard<'a, T: Send + 'a>: DerefMut<Target = T>;
    /// Whether a thread of the library may take the lock too.
    const IS_SHARED: bool;

    /// Puts a value behind the lock. The kind itself is the proof that it may be used.
    fn cell<T: Send>(self, value: T) -> Self::Cell<T>;
    /// Takes the lock.
    fn lock<T: Send>(cell: &Self::Cell<T>) -> Self::Guard<'_, T>;
}

/// A lock that parks: any thread may make any call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Park(Option<Barrier>);

impl Park {
    /// Biased locks: the thread that uses a lock most takes it without atomic instructions. Another
    /// thread calls `barrier` first, which makes every running thread of the process pass a full
    /// memory barrier.
    pub const fn owned(barrier: Barrier) -> Self {
        Self(Some(barrier))
    }
}

impl LockKind for Park {
    type Cell<T: Send> = ParkCell<T>;
    type Guard<'a, T: Send + 'a> = ParkGuard<'a, T>;
    const IS_SHARED: bool = true;

    fn cell<T: Send>(self, value: T) -> ParkCell<T> {
        ParkCell::new(value, self.0)
    }

    #[inline(always)]
    fn lock<T: Send>(cell: &ParkCell<T>) -> ParkGuard<'_, T> {
        cell.lock()
    }
}

/// No lock at all.
#[derive(Clone, Copy, Debug)]
pub struct Unlocked(());

impl Unlocked {
    /// The right to use no locks.
    ///
    /// # Safety
    /// The caller must ensure that, for objects made with it, no two threads are inside calls on
    /// objects of one domain at the same time (FI_THREAD_DOMAIN with
    /// FI_PROGRESS_CONTROL_UNIFIED, fi_domain(3)).
    pub const unsafe fn promised() -> Self {
        Self(())
    }
}

/// A value that only one thread at a time uses, as promised by [`Unlocked::promised`].
#[allow(clippy::disallowed_types, reason = "this module is the replacement")]
pub struct UnlockedCell<T> {
    taken: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: `Unlocked::promised` obliges the application never to be in two calls of one domain at
// once, so the cell is reached by one thread at a time, and `T: Send` lets the value move between
// those threads.
unsafe impl<T: Send> Sync for UnlockedCell<T> {}

impl<T> fmt::Debug for UnlockedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnlockedCell").field("taken", &self.taken.get()).finish_non_exhaustive()
    }
}

/// Access to the value of an [`UnlockedCell`].
pub struct UnlockedGuard<'a, T>(&'a UnlockedCell<T>);

impl<T> fmt::Debug for UnlockedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnlockedGuard")
    }
}

impl LockKind for Unlocked {
    type Cell<T: Send> = UnlockedCell<T>;
    type Guard<'a, T: Send + 'a> = UnlockedGuard<'a, T>;
    const IS_SHARED: bool = false;

    #[allow(clippy::disallowed_types, reason = "this module is the replacement")]
    fn cell<T: Send>(self, value: T) -> UnlockedCell<T> {
        UnlockedCell { taken: Cell::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    fn lock<T: Send>(cell: &UnlockedCell<T>) -> UnlockedGuard<'_, T> {
        // Catches re-entrance by the same thread, and most broken promises, for the price of a
        // predicted branch.
        assert!(!cell.taken.replace(true), "concurrent calls on objects of a FI_THREAD_DOMAIN domain");
        UnlockedGuard(cell)
    }
}

impl<T> Deref for UnlockedGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `taken` was set when this guard was made, so no other guard exists.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for UnlockedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `taken` was set when this guard was made, so no other guard exists.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for UnlockedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.set(false);
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_guard_a_value() {
        let cell = Park::default().cell(1);
        *Park::lock(&cell) += 1;
        assert_eq!(*Park::lock(&cell), 2);
        // SAFETY: this test is one thread.
        let cell = unsafe { Unlocked::promised() }.cell(1);
        *Unlocked::lock(&cell) += 1;
        assert_eq!(*Unlocked::lock(&cell), 2);
    }

    #[test]
    #[should_panic(expected = "concurrent calls")]
    fn re_entrance_is_caught() {
        // SAFETY: this test is one thread.
        let cell = unsafe { Unlocked::promised() }.cell(1);
        let _first = Unlocked::lock(&cell);
        let _second = Unlocked::lock(&cell);
    }
}
