//! The library's allocator: the C library's, and a reserve for when that has nothing left. A call that ran into the reserve
//! works to its end, notices it ([`Watch`]), takes back what it made and answers -FI_ENOMEM, where the process would end
//! otherwise. What does not fit into the reserve ends the process, unless the caller asked whether there is room.
//!
//! Nothing here allocates, and nothing is local to a thread: such memory may itself have to be allocated.

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
/// The largest block that the reserve gives out: the call that gets it needs more to work to its end, and to say so.
const LARGEST: usize = SIZE / 2;
/// The reserve is given out in units of so many bytes.
const UNIT: usize = 64;
const UNITS: usize = SIZE / UNIT;
/// Alignment of the reserve, and the largest that it serves.
const ALIGN: usize = 4096;

#[repr(C, align(4096))]
struct Pool([u8; SIZE]);
const _: () = assert!(align_of::<Pool>() == ALIGN);

/// The reserve's memory, which belongs to those who got it by [`State::take`]. It takes none until it is used.
static mut POOL: Pool = Pool([0; SIZE]);

/// Who has which unit, and who was served last.
struct State {
    /// A bit for each unit that is in use.
    used: [u64; UNITS / 64],
    /// Times that the reserve was asked.
    asked: u64,
    /// The threads that asked last.
    threads: [usize; RECENT],
}

/// Times of which the threads are known.
const RECENT: usize = 64;

static STATE: Mutex<State> = Mutex::new(State { used: [0; UNITS / 64], asked: 0, threads: [0; RECENT] });

/// [`State::asked`], readable without the lock.
static ASKED: AtomicU64 = AtomicU64::new(0);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool() -> *mut u8 {
    (&raw mut POOL).cast()
}

fn is_ours(block: *mut u8) -> bool {
    block.addr().wrapping_sub(pool().addr()) < SIZE
}

/// The calling thread's number, not 0 and no other living thread's.
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

    /// The first units in a row that are free: the number of the first.
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
        let recent = usize::try_from(self.asked).unwrap_or(0) % RECENT;
        self.threads[recent] = this_thread();
        self.asked += 1;
        // Relaxed: it is read by the thread that wrote it, or makes others look under the lock.
        ASKED.store(self.asked, Ordering::Relaxed);
        pool().wrapping_add(first * UNIT)
    }

    fn give_back(&mut self, block: *mut u8, size: usize) {
        let first = (block.addr() - pool().addr()) / UNIT;
        self.mark(first..first + units(size));
    }
}

/// So many bytes in units, at least one.
const fn units(size: usize) -> usize {
    if size == 0 { 1 } else { size.div_ceil(UNIT) }
}

/// The C library's allocator with the reserve behind it.
struct Reserved;

// SAFETY: blocks are the system's, or units of the pool that are marked as used for as long as they are given out, so no two
// overlap; which of both it was, the address tells. Neither unwinds.
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
        // SAFETY: it is not of the pool, so the system's, with the caller's layout.
        unsafe { System.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_ours(block) {
            // SAFETY: it is not of the pool, so the system's; layout and size are the caller's.
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
    /// Moves a block that cannot grow where it is, or comes from the reserve.
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
        // SAFETY: the old block has its layout's size, the new one the wanted one, and they are two.
        unsafe { core::ptr::copy_nonoverlapping(block, moved, layout.size().min(size)) };
        // SAFETY: the old block is given up by this function's contract.
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
        // SAFETY: it has the layout's size, and is nobody else's.
        unsafe { block.write_bytes(0, layout.size()) };
    }
    block
}

#[cold]
fn return_reserved(block: *mut u8, layout: Layout) {
    state().give_back(block, layout.size());
}

/// The reserve's lock, while the process is forked.
pub(crate) struct Held(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, State>);

/// Keeps others from the reserve. Nothing may be allocated meanwhile.
pub(crate) fn hold() -> Held {
    Held(state())
}

/// Notices whether this thread has run out of memory since it began, or the C library where it did not say so.
#[derive(Debug)]
pub(crate) struct Watch {
    asked: u64,
    shortages: u64,
    verdict: OnceCell<bool>,
}

impl Watch {
    /// Begins.
    pub(crate) fn begin() -> Self {
        // Relaxed: see `State::take`.
        Self { asked: ASKED.load(Ordering::Relaxed), shortages: shortage::count(), verdict: OnceCell::new() }
    }

    /// Whether the thread got memory of the reserve in the meantime, or a call of the C library had none.
    pub(crate) fn lacked(&self) -> bool {
        shortage::count() != self.shortages || self.was_served()
    }

    /// What [`Self::lacked`] says the first time that this is called. Shortages of other threads count, too, so it may
    /// answer differently the next time, while what a call makes and what it takes back have to go together.
    pub(crate) fn verdict(&self) -> bool {
        *self.verdict.get_or_init(|| self.lacked())
    }

    fn was_served(&self) -> bool {
        // Relaxed: see `State::take`.
        if ASKED.load(Ordering::Relaxed) == self.asked {
            return false;
        }
        let state = state();
        let since = usize::try_from(state.asked - self.asked).unwrap_or(usize::MAX);
        // Of times too long ago nobody knows whose they were.
        since > RECENT || {
            let last = usize::try_from(state.asked).unwrap_or(0);
            (last - since..last).any(|at| state.threads[at % RECENT] == this_thread())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test at a time counts what the reserve has given out.
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
    fn what_does_not_fit_is_refused() {
        let _turn = turn();
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        assert!(reserved(layout(LARGEST + 1, 1)).is_null());
        assert!(reserved(layout(1, 2 * ALIGN)).is_null());
        let watch = Watch::begin();
        assert!(reserved(layout(LARGEST + 1, 1)).is_null() && !watch.lacked());
    }

    #[test]
    fn a_watch_is_about_its_own_thread() {
        let _turn = turn();
        let layout = Layout::from_size_align(10, 1).unwrap();
        let watch = Watch::begin();
        std::thread::spawn(move || return_reserved(reserved(layout), layout)).join().unwrap();
        assert!(!watch.lacked());
        return_reserved(reserved(layout), layout);
        assert!(watch.lacked() && !Watch::begin().lacked());
    }

    #[test]
    fn a_verdict_stays() {
        let _turn = turn();
        let watch = Watch::begin();
        assert!(!watch.verdict());
        let layout = Layout::from_size_align(10, 1).unwrap();
        return_reserved(reserved(layout), layout);
        assert!(watch.lacked() && !watch.verdict());
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
