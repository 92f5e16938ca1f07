//! Memory barriers that one thread imposes on other threads and processes (membarrier(2)), so that
//! their hot paths need no instruction for it.
#![allow(unsafe_code)]

use ofi_sync::lock::Park;
use ofi_sync::primitive::real::{AtomicU8, Ordering};
use std::time::Duration;

fn membarrier(command: i32) -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers this process for mutual ordering of memory accesses with other processes. False if the
/// system does not allow it.
pub fn share_ordering() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
}

/// Orders the memory accesses of every process that called [`share_ordering`].
pub fn order_all() {
    // Succeeds whenever the registration did.
    let _ = membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

fn register_threads() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Orders the memory accesses of every running thread of this process.
fn order_threads() {
    let order = || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    if order() || register_threads() && order() {
        return;
    }
    // A filter (seccomp(2)) has forbidden the call since the process registered. A processor makes
    // its stores visible within microseconds.
    #[allow(clippy::disallowed_methods, reason = "no event marks when a store is visible")]
    std::thread::sleep(Duration::from_millis(20));
}

/// The kind of lock for this process: biased where the system supports membarrier(2), so that the
/// thread that uses a lock most takes it without atomic instructions.
pub fn locks() -> Park {
    const UNKNOWN: u8 = 0;
    const REGISTERED: u8 = 1;
    const REFUSED: u8 = 2;
    /// Not a lock: a process that forks while a thread registers would leave it locked in the
    /// child. Concurrent first calls may all register.
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    // A model has no such barriers.
    if cfg!(ofi_loom) {
        return Park::default();
    }
    // Relaxed: it protects nothing.
    let mut state = STATE.load(Ordering::Relaxed);
    if state == UNKNOWN {
        state = if register_threads() { REGISTERED } else { REFUSED };
        STATE.store(state, Ordering::Relaxed);
    }
    if state == REGISTERED { Park::owned(order_threads) } else { Park::default() }
}
