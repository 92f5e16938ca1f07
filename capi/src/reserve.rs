//! The library's allocator: the C library's, with a static reserve for when that fails. A call that
//! used the reserve runs to its end, detects it ([`Watch`]), undoes its work and returns
//! -FI_ENOMEM; otherwise the process would abort. An allocation that does not fit into the reserve
//! aborts the process, unless its caller handles the failure.
//!
//! Nothing here allocates or uses thread-local storage, which may itself need an allocation.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::OnceCell;
use ofi_os::shortage;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static ALLOCATOR: Reserved = Reserved;

/// Bytes of the reserve.
const SIZE: usize = 1 << 20;
/// The largest block from the reserve: the call needs the rest to finish and to report the error.
const LARGEST: usize = SIZE / 2;
/// Allocation unit of the reserve, in bytes.
const UNIT: usize = 64;
const UNITS: usize = SIZE / UNIT;
/// Alignment of the reserve, and the largest alignment that it serves.
const ALIGN: usize = 4096;

#[repr(C, align(4096))]
struct Pool([u8; SIZE]);
const _: () = assert!(align_of::<Pool>() == ALIGN);

/// The reserve's memory, handed out by [`State::take`]. Its pages take no memory until used.
static mut POOL: Pool = Pool([0; SIZE]);

/// The units in use, and the threads that were served last.
struct State {
    /// One bit per unit: set while in use.
    used: [u64; UNITS / 64],
    /// Blocks handed out so far.
    served: u64,
    /// The threads that got the last [`RECENT`] blocks.
    threads: [usize; RECENT],
}

/// Number of blocks whose threads are recorded.
const RECENT: usize = 64;

static STATE: Mutex<State> = Mutex::new(State { used: [0; UNITS / 64], served: 0, threads: [0; RECENT] });

/// [`State::served`], readable without the lock.
static SERVED: AtomicU64 = AtomicU64::new(0);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool() -> *mut u8 {
    (&raw mut POOL).cast()
}

fn is_ours(block: *mut u8) -> bool {
    block.addr().wrapping_sub(pool().addr()) < SIZE
}

/// The calling thread's id: not 0, and unique among living threads.
pub(crate) fn this_thread() -> usize {
    // SAFETY: the call takes nothing and cannot fail.
    let thread = unsafe { libc::pthread_self() };
    usize::try_from(thread).unwrap_or(0)
}

impl State {
    fn is_used(&self, unit: usize) -> bool {
        self.used[unit / 64] & (1 << (unit % 64)) != 0
    }

    fn mark(&mut self, units: core::ops::Range<usize>) {
        units.for_each(|unit| self.used[unit / 64] ^= 1 << (unit % 64));
    }

    /// The first run of `count` free units: the index of its first unit, found at steps of `step`.
    fn find(&self, count: usize, step: usize) -> Option<usize> {
        let mut at = 0;
        while at + count <= UNITS {
            match (at..at + count).rev().find(|unit| self.is_used(*unit)) {
                None => return Some(at),
                Some(used) => at = (used + 1).next_multiple_of(step),
            }
        }
        None
    }

    fn take(&mut self, layout: Layout) -> *mut u8 {
        let (count, step) = (units(layout.size()), units(layout.align()));
        if layout.size() > LARGEST || layout.align() > ALIGN {
            return core::ptr::null_mut();
        }
        let Some(first) = self.find(count, step) else { return core::ptr::null_mut() };
        self.mark(first..first + count);
        let recent = usize::try_from(self.served).unwrap_or(0) % RECENT;
        self.threads[recent] = this_thread();
        self.served += 1;
        // Relaxed: the thread that wrote it reads its own value; any other then checks under the
        // lock.
        SERVED.store(self.served, Ordering::Relaxed);
        pool().wrapping_add(first * UNIT)
    }

    fn release(&mut self, block: *mut u8, size: usize) {
        let first = (block.addr() - pool().addr()) / UNIT;
        self.mark(first..first + units(size));
    }
}

/// A size in units, at least one.
const fn units(size: usize) -> usize {
    if size == 0 { 1 } else { size.div_ceil(UNIT) }
}

/// The C library's allocator with the reserve as fallback.
struct Reserved;

// SAFETY: a block is the system's, or units of the pool that stay marked as used until it is freed,
// so no two overlap; the address determines which. Neither allocator unwinds.
unsafe impl GlobalAlloc for Reserved {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is the caller's.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { reserved(layout) } else { block }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is the caller's.
        let block = unsafe { System.alloc_zeroed(layout) };
        if block.is_null() { reserved_zeroed(layout) } else { block }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_ours(block) {
            return return_reserved(block, layout);
        }
        // SAFETY: the block is not from the pool, so it is the system's, with the caller's layout.
        unsafe { System.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_ours(block) {
            // SAFETY: the block is not from the pool, so it is the system's; layout and size are
            // the caller's.
            let moved = unsafe { System.realloc(block, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the arguments are those of this function.
        unsafe { self.copy(block, layout, size) }
    }
}

impl Reserved {
    /// Reallocates by copying: the block cannot grow in place, or is from the reserve.
    ///
    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    #[cold]
    unsafe fn copy(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return core::ptr::null_mut() };
        // SAFETY: the size is not zero by this function's contract.
        let moved = unsafe { self.alloc(wanted) };
        if moved.is_null() {
            return moved;
        }
        // SAFETY: the old block has its layout's size, the new one `size` bytes, and they are
        // distinct.
        unsafe { core::ptr::copy_nonoverlapping(block, moved, layout.size().min(size)) };
        // SAFETY: the caller gives up the old block by this function's contract.
        unsafe { self.dealloc(block, layout) };
        moved
    }
}

#[cold]
fn reserved(layout: Layout) -> *mut u8 {
    state().take(layout)
}

#[cold]
fn reserved_zeroed(layout: Layout) -> *mut u8 {
    let block = state().take(layout);
    if !block.is_null() {
        // SAFETY: the block is new and has the layout's size.
        unsafe { block.write_bytes(0, layout.size()) };
    }
    block
}

#[cold]
fn return_reserved(block: *mut u8, layout: Layout) {
    state().release(block, layout.size());
}

/// The reserve's lock, held across fork(2).
pub(crate) struct Held(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, State>);

/// Locks the reserve. The caller must not allocate while it holds the lock.
pub(crate) fn hold() -> Held {
    Held(state())
}

/// Detects that this thread got memory from the reserve since [`Self::begin`], or that a C library
/// call ran out of memory without reporting it.
#[derive(Debug)]
pub(crate) struct Watch {
    served: u64,
    shortages: u64,
    verdict: OnceCell<bool>,
}

impl Watch {
    pub(crate) fn begin() -> Self {
        // Relaxed: see `State::take`.
        Self { served: SERVED.load(Ordering::Relaxed), shortages: shortage::count(), verdict: OnceCell::new() }
    }

    /// Whether this thread got memory from the reserve since, or a C library call found none.
    pub(crate) fn ran_out(&self) -> bool {
        shortage::count() != self.shortages || self.was_served()
    }

    /// The result of [`Self::ran_out`] at the first call. Shortages of other threads count, too, so
    /// a later result may differ, but a call must decide only once whether to undo its work.
    pub(crate) fn verdict(&self) -> bool {
        *self.verdict.get_or_init(|| self.ran_out())
    }

    fn was_served(&self) -> bool {
        // Relaxed: see `State::take`.
        if SERVED.load(Ordering::Relaxed) == self.served {
            return false;
        }
        let state = state();
        let since = usize::try_from(state.served - self.served).unwrap_or(usize::MAX);
        // The threads of older blocks are not recorded: assume that this one was among them.
        since > RECENT || {
            let last = usize::try_from(state.served).unwrap_or(0);
            (last - since..last).any(|at| state.threads[at % RECENT] == this_thread())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serializes the tests: they count the units in use.
    static TURN: Mutex<()> = Mutex::new(());

    fn turn() -> MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn blocks_of_the_reserve_do_not_overlap_and_come_back() {
        let _turn = turn();
        let layouts = [(1, 1), (64, 16), (65, 64), (4096, 4096), (100_000, 8), (200, 256)];
        let layouts = layouts.map(|(size, align)| Layout::from_size_align(size, align).unwrap());
        let before = state().used;
        for _ in 0..3 {
            let mut blocks: Vec<(*mut u8, Layout)> = Vec::new();
            for layout in layouts.into_iter().cycle().take(40) {
                let block = reserved(layout);
                assert!(is_ours(block) && block.addr().is_multiple_of(layout.align()));
                let end = block.addr() + layout.size();
                assert!(
                    blocks.iter().all(|(other, of)| end <= other.addr() || other.addr() + of.size() <= block.addr())
                );
                blocks.push((block, layout));
            }
            blocks.into_iter().for_each(|(block, layout)| return_reserved(block, layout));
            assert_eq!(state().used, before);
        }
    }

    #[test]
    fn blocks_that_do_not_fit_are_refused() {
        let _turn = turn();
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        assert!(reserved(layout(LARGEST + 1, 1)).is_null());
        assert!(reserved(layout(1, 2 * ALIGN)).is_null());
        let watch = Watch::begin();
        assert!(reserved(layout(LARGEST + 1, 1)).is_null() && !watch.ran_out());
    }

    #[test]
    fn a_watch_is_about_its_own_thread() {
        let _turn = turn();
        let layout = Layout::from_size_align(10, 1).unwrap();
        let watch = Watch::begin();
        std::thread::spawn(move || return_reserved(reserved(layout), layout)).join().unwrap();
        assert!(!watch.ran_out());
        return_reserved(reserved(layout), layout);
        assert!(watch.ran_out() && !Watch::begin().ran_out());
    }

    #[test]
    fn a_verdict_stays() {
        let _turn = turn();
        let watch = Watch::begin();
        assert!(!watch.verdict());
        let layout = Layout::from_size_align(10, 1).unwrap();
        return_reserved(reserved(layout), layout);
        assert!(watch.ran_out() && !watch.verdict());
    }

    #[test]
    fn blocks_that_grow_out_of_the_reserve_keep_their_bytes() {
        let _turn = turn();
        let layout = Layout::from_size_align(100, 8).unwrap();
        let block = reserved(layout);
        // SAFETY: the block has 100 bytes.
        unsafe { block.write_bytes(7, 100) };
        // SAFETY: the block is of that layout, and given up.
        let grown = unsafe { ALLOCATOR.realloc(block, layout, 1000) };
        assert!(!is_ours(grown));
        // SAFETY: the first 100 bytes were written.
        assert!(unsafe { core::slice::from_raw_parts(grown, 100) }.iter().all(|byte| *byte == 7));
        // SAFETY: the block is of that layout, and given up.
        unsafe { ALLOCATOR.dealloc(grown, Layout::from_size_align(1000, 8).unwrap()) };
    }
}
