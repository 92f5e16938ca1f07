//! Lets the thread that uses a lock most take it without atomic instructions (biased locking): such
//! a thread owns the lock. Another thread that wants it takes the ownership away, for which all
//! threads of the process must pass a memory barrier, and waits until the owner is outside.
//!
//! Ownership changes only in the hands of a thread that holds the raw lock, so owner and holder
//! exclude each other as follows: the owner enters (`inside`), then looks whether it still owns the
//! lock; the holder takes the ownership, has everyone pass the barrier, then looks whether the
//! owner is inside. One of the two sees the other.
//!
//! A lock that several threads use is soon left without an owner: each loss makes the lock wait for
//! eight times as many uses in a row by one thread before it has an owner again.

use crate::primitive::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Makes every running thread of the process pass a full memory barrier (membarrier(2)).
pub type Barrier = fn();

/// Uses in a row by one thread that make it the owner, at first.
#[cfg(not(loom))]
const FIRST_USES: u32 = 64;
#[cfg(loom)]
const FIRST_USES: u32 = 1;
/// The same at most: losing the ownership then costs nothing that can be measured.
const MOST_USES: u32 = 1 << 24;

/// Keeps the compiler from reordering; the processor is kept by the other side's [`Barrier`].
#[inline(always)]
fn light_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    // Loom has no barriers for other threads.
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Who owns a lock.
#[derive(Debug)]
pub(crate) struct Bias {
    /// The number of the owning thread, 0 if there is none.
    owner: AtomicUsize,
    /// The owner holds the lock, or tries to.
    inside: AtomicBool,
    /// Whose uses are counted, how many there have been in a row, and how many are wanted. Only
    /// the holder of the raw lock looks at these.
    last: AtomicUsize,
    uses: AtomicU32,
    wanted: AtomicU32,
    /// Without one nobody owns the lock.
    barrier: Option<Barrier>,
}

impl Bias {
    pub(crate) fn new(barrier: Option<Barrier>) -> Self {
        Self {
            owner: AtomicUsize::new(0),
            inside: AtomicBool::new(false),
            last: AtomicUsize::new(0),
            uses: AtomicU32::new(0),
            wanted: AtomicU32::new(FIRST_USES),
            barrier,
        }
    }

    /// Whether thread `me` owns the lock and is not inside.
    #[inline(always)]
    pub(crate) fn is_own(&self, me: usize) -> bool {
        // Relaxed: an owner has had the lock itself; if it is not the owner any more, `enter`
        // tells.
        self.owner.load(Ordering::Relaxed) == me && !self.inside.load(Ordering::Relaxed)
    }

    /// Enters as the owner. If that fails, because another thread takes the ownership away, the
    /// caller must [`Self::leave`].
    #[inline(always)]
    pub(crate) fn enter(&self, me: usize) -> bool {
        self.inside.store(true, Ordering::Relaxed);
        // Pairs with the barrier in `take_away`.
        light_fence();
        self.owner.load(Ordering::Relaxed) == me
    }

    /// Leaves as the owner. True if a thread may wait for that.
    #[inline(always)]
    pub(crate) fn leave(&self) -> bool {
        // Release pairs with the Acquire in `is_inside`.
        self.inside.store(false, Ordering::Release);
        // Pairs with the barrier in `take_away`.
        light_fence();
        self.owner.load(Ordering::Relaxed) == 0
    }

    /// Thread `me` has taken the raw lock. True if it must take the ownership away from another.
    #[inline(always)]
    pub(crate) fn note_use(&self, me: usize) -> bool {
        // Relaxed here and below: the raw lock orders them.
        if self.last.load(Ordering::Relaxed) == me {
            let uses = self.uses.load(Ordering::Relaxed);
            self.uses.store(uses.saturating_add(1), Ordering::Relaxed);
        } else {
            self.last.store(me, Ordering::Relaxed);
            self.uses.store(1, Ordering::Relaxed);
        }
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// Takes the ownership away. The owner may still be inside.
    #[cold]
    pub(crate) fn take_away(&self) {
        self.owner.store(0, Ordering::Relaxed);
        let wanted = self.wanted.load(Ordering::Relaxed);
        self.wanted.store(wanted.saturating_mul(8).min(MOST_USES), Ordering::Relaxed);
        if let Some(barrier) = self.barrier {
            barrier();
        }
    }

    /// Whether the former owner is inside.
    pub(crate) fn is_inside(&self) -> bool {
        // Acquire pairs with the Release in `leave`.
        self.inside.load(Ordering::Acquire)
    }

    /// The holder of the raw lock is about to release it: makes it the owner if it has used the
    /// lock often enough.
    #[inline(always)]
    pub(crate) fn note_release(&self) {
        if self.uses.load(Ordering::Relaxed) >= self.wanted.load(Ordering::Relaxed) && self.barrier.is_some() {
            self.owner.store(self.last.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
