//! Biased locking: the thread that uses a lock most owns it and takes it without atomic
//! instructions. Another thread that wants the lock revokes the ownership: it makes all threads of
//! the process pass a memory barrier, and waits until the owner is outside.
//!
//! Only a thread that holds the raw lock changes the ownership. Owner and holder exclude each
//! other: the owner sets its flag `inside`, then checks that it still owns the lock; the holder
//! clears the owner, imposes the barrier, then checks the owner's flag. At least one of the two
//! sees the other's store. Each owner has a flag of its own: a former owner, late after it has seen
//! that it owns the lock, still sets its flag and clears it again.
//!
//! A lock that several threads use soon stays without an owner: after each revocation the lock
//! waits for eight times as many uses in a row by one thread before that thread owns it.

use crate::primitive::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Makes every running thread of the process pass a full memory barrier (membarrier(2)).
pub type Barrier = fn();

/// Uses in a row that make a thread the owner, at first.
#[cfg(not(ofi_loom))]
const FIRST_USES: u32 = 64;
#[cfg(ofi_loom)]
const FIRST_USES: u32 = 1;
/// After a revocation a thread needs so many times as many uses.
#[cfg(not(ofi_loom))]
const GROWTH: u32 = 8;
#[cfg(ofi_loom)]
const GROWTH: u32 = 1;
/// The same at most: the cost of a revocation is then too rare to measure.
const MOST_USES: u32 = 1 << 24;

/// How many different threads may own a lock one after the other; the numbers of threads are
/// multiples of it.
pub(crate) const OWNERS: usize = 8;

/// Keeps the compiler from reordering; the other side's [`Barrier`] keeps the processor from it.
#[inline(always)]
fn light_fence() {
    #[cfg(not(ofi_loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    // Loom cannot impose barriers on other threads.
    #[cfg(ofi_loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Who owns a lock.
#[derive(Debug)]
pub(crate) struct Bias {
    /// The number of the owning thread plus the index of its flag, 0 if there is none.
    owner: AtomicUsize,
    /// The owner with this flag holds the lock, or tries to.
    inside: [AtomicBool; OWNERS],
    /// The latest value of `owner` that was not 0. Only the holder of the raw lock accesses this
    /// and the next three.
    latest: AtomicUsize,
    /// The thread that used the lock last, its uses in a row, and the number that makes it the
    /// owner.
    last: AtomicUsize,
    uses: AtomicU32,
    wanted: AtomicU32,
    /// Without one no thread owns the lock.
    barrier: Option<Barrier>,
}

impl Bias {
    pub(crate) fn new(barrier: Option<Barrier>) -> Self {
        Self {
            owner: AtomicUsize::new(0),
            inside: core::array::from_fn(|_| AtomicBool::new(false)),
            latest: AtomicUsize::new(0),
            last: AtomicUsize::new(0),
            uses: AtomicU32::new(0),
            wanted: AtomicU32::new(FIRST_USES),
            barrier,
        }
    }

    /// The index of the flag of thread `me`, if it owns the lock and is not inside.
    #[inline(always)]
    pub(crate) fn own_flag(&self, me: usize) -> Option<usize> {
        // Relaxed: a thread reads its own number only if it became the owner itself; `enter`
        // detects a revocation since.
        let flag = self.owner.load(Ordering::Relaxed) ^ me;
        (flag < OWNERS && !self.inside[flag].load(Ordering::Relaxed)).then_some(flag)
    }

    /// Lets the next owner become one after a single use.
    #[cfg(all(test, not(ofi_loom)))]
    pub(crate) fn want_one_use(&self) {
        self.wanted.store(1, Ordering::Relaxed);
    }

    /// Enters as the owner. False if another thread revokes the ownership: the caller must
    /// [`Self::leave`] then.
    #[inline(always)]
    pub(crate) fn enter(&self, me: usize, flag: usize) -> bool {
        self.inside[flag % OWNERS].store(true, Ordering::Relaxed);
        // Pairs with the barrier in `revoke`.
        light_fence();
        self.owner.load(Ordering::Relaxed) == me ^ flag
    }

    /// Leaves as the owner. True if a thread may be waiting for that.
    #[inline(always)]
    pub(crate) fn leave(&self, flag: usize) -> bool {
        // Release pairs with the Acquire in `is_inside`.
        self.inside[flag % OWNERS].store(false, Ordering::Release);
        // Pairs with the barrier in `revoke`.
        light_fence();
        // A thread that waits for this flag lets no other thread become the owner meanwhile.
        self.owner.load(Ordering::Relaxed) == 0
    }

    /// Thread `me` has taken the raw lock. True if it must revoke another thread's ownership.
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

    /// Revokes the ownership. Returns the flag of the owner, which may still be inside.
    #[cold]
    pub(crate) fn revoke(&self) -> usize {
        let owner = self.owner.load(Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
        let wanted = self.wanted.load(Ordering::Relaxed);
        self.wanted.store(wanted.saturating_mul(GROWTH).min(MOST_USES), Ordering::Relaxed);
        if let Some(barrier) = self.barrier {
            barrier();
        }
        owner % OWNERS
    }

    /// Whether the former owner with this flag is inside.
    pub(crate) fn is_inside(&self, flag: usize) -> bool {
        // Acquire pairs with the Release in `leave`.
        self.inside[flag % OWNERS].load(Ordering::Acquire)
    }

    /// Thread `last` is about to release the raw lock: makes it the owner if it has used the lock
    /// often enough.
    #[inline(always)]
    pub(crate) fn note_release(&self) {
        if self.uses.load(Ordering::Relaxed) >= self.wanted.load(Ordering::Relaxed) && self.barrier.is_some() {
            self.grant();
        }
    }

    /// Makes thread `last` the owner. It keeps its flag if it was the latest owner; a further
    /// thread takes the next flag, if there is one.
    #[cold]
    fn grant(&self) {
        let (last, latest) = (self.last.load(Ordering::Relaxed), self.latest.load(Ordering::Relaxed));
        let flag = latest % OWNERS;
        let owner = match latest {
            0 => last,
            _ if latest - flag == last => latest,
            _ if flag + 1 < OWNERS => last + flag + 1,
            _ => return self.wanted.store(u32::MAX, Ordering::Relaxed),
        };
        self.latest.store(owner, Ordering::Relaxed);
        self.owner.store(owner, Ordering::Relaxed);
    }
}
