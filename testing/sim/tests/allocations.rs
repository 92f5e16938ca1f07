//! In steady state a small message allocates nothing, over memory and over the tcp transport on
//! real sockets.

use ofi_core::{Addr, Caps, Errno, FiAddr, OpFlags};
use ofi_engine::Waiting;
use ofi_engine::limits::Limits;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::provider::{LinkProvider, OpenArgs};
use ofi_memory::{Buffer, Span};
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Options, Side};
use ofi_sim::pair;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;

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

fn open(nonce: u8) -> Side<ofi_tcp::Tcp> {
    let options = Options {
        addr: Addr::decode(&[2, 0, 0, 0, 127, 0, 0, 1]),
        caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV,
        tx_size: 64,
        rx_size: 64,
        limits: Limits::new(usize::MAX, 64),
        nonce: [nonce; 16],
        provider: "tcp",
        av_size: 1,
        waiting: Waiting::Never,
        ..Options::default()
    };
    Side::open(options, Arc::new(FdWaitObject::new(false).unwrap()), |account| {
        let account = account.clone();
        Box::new(move |addr| ofi_tcp::Provider.open_rdm(OpenArgs::new(addr, &account)))
    })
}

#[test]
fn a_small_message_allocates_nothing_in_steady_state() {
    let (mut from, mut to) = (*b"8 bytes.", [0u8; 8]);
    let (a, b) = pair::in_memory();
    assert_eq!(steady(|| pair::message(&a, &b, lend(&mut from), lend(&mut to))), 0);

    let (mut a, mut b) = (open(1), open(2));
    a.know(b.addr());
    let round = || {
        let receive =
            |buffer| RecvOp { src: FiAddr::UNSPEC, buffer, context: 0, tag: Some((1, 0)), flags: OpFlags::empty() };
        b.ep.receive(receive(lend(&mut to))).unwrap();
        let send = SendOp {
            dest: FiAddr(0),
            buffer: lend(&mut from),
            context: 0,
            tag: Some(1),
            data: None,
            flags: OpFlags::empty(),
            inject: false,
        };
        a.ep.send(send).unwrap();
        let mut done = 0;
        while done < 2 {
            for cq in [&a.cq, &b.cq] {
                match cq.read(1, |_| ()) {
                    Ok(count) => done += count,
                    Err(errno) => assert_eq!(errno, Errno::AGAIN),
                }
            }
        }
    };
    assert_eq!(steady(round), 0);
    a.close();
    b.close();
}
