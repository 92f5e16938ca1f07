//! Memory barriers that other threads and processes pass without executing any (membarrier(2)).
#![allow(unsafe_code)]

use ofi_sync::lock::Park;
use std::sync::OnceLock;
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
    // The process has been forbidden the call since it registered. A processor needs no more than
    // microseconds to make a store visible.
    #[allow(clippy::disallowed_methods, reason = "nothing tells when a store is visible")]
    std::thread::sleep(Duration::from_millis(20));
}

/// The locks for this process: such that the thread that uses one most needs no atomic
/// instructions, where the system supports that.
pub fn locks() -> Park {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    if *REGISTERED.get_or_init(register_threads) { Park::owned(order_threads) } else { Park::default() }
}
