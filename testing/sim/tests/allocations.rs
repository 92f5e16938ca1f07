//! In steady state a small message, write and fetch-add allocate nothing, over memory and over the
//! tcp transport on real sockets.

use ofi_engine::transport::Transport;
use ofi_memory::{Buffer, Span};
use ofi_rig::Side;
use ofi_sim::pair;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligations are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn lend(bytes: &mut [u8; 8]) -> Buffer {
    // SAFETY: the tests keep the array until the message is complete.
    Buffer::One(unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) })
}

/// Counts the allocations of a thousand rounds after a thousand others. This file has only one
/// test, so nothing else allocates.
fn steady(mut round: impl FnMut()) -> u64 {
    (0..1000).for_each(|_| round());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..1000).for_each(|_| round());
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// What a pair of endpoints does in a round.
fn rounds<T: Transport>((a, b): &(Side<T>, Side<T>)) {
    let (mut from, mut to) = (*b"8 bytes.", [0u8; 8]);
    assert_eq!(steady(|| pair::message(a, b, lend(&mut from), lend(&mut to))), 0, "messages");
    let region = b.expose(7, vec![0; 8]);
    assert_eq!(steady(|| pair::write(a, b, 7, lend(&mut from))), 0, "writes");
    assert_eq!(region.bytes(), from);
    assert_eq!(steady(|| pair::fetch_add(a, b, 7, lend(&mut from), lend(&mut to))), 0, "fetch-adds");
}

#[test]
fn small_operations_allocate_nothing_in_steady_state() {
    rounds(&pair::in_memory());
    rounds(&pair::over_tcp());
}
