//! Locks for elements that the CPU cannot update atomically. Elements at the same address have the
//! same lock, so that updates of them are atomic with each other in the whole process.

use core::fmt;
use ofi_sync::primitive::real::Mutex;
use std::sync::{MutexGuard, PoisonError};

const LOCKS: usize = 64;

static TABLE: [Mutex<()>; LOCKS] = [const { Mutex::new(()) }; LOCKS];

/// Takes the lock of the element at this address.
pub(super) fn lock(address: usize) -> MutexGuard<'static, ()> {
    // The upper bits tell elements of an array apart whatever their size; the lower ones, the
    // elements of a packed structure.
    take(&TABLE[(address ^ address >> 4) % LOCKS])
}

/// Ignores poisoning: the lock guards memory of the application's, which has no invariants.
fn take(lock: &'static Mutex<()>) -> MutexGuard<'static, ()> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All locks, for fork(2): a child must not inherit one that another thread holds.
pub struct Held(#[allow(dead_code, reason = "held")] [MutexGuard<'static, ()>; LOCKS]);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// Takes all locks. An operation holds only one, and waits for nothing while it does.
pub fn hold() -> Held {
    Held(core::array::from_fn(|at| take(&TABLE[at])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_locks_of_their_own() {
        for size in [1, 2, 4, 8, 16, 32] {
            let of = |element: usize| (0x7000 + element * size) ^ (0x7000 + element * size) >> 4;
            assert!((1..4).all(|element| of(element) % LOCKS != of(0) % LOCKS), "{size}");
        }
    }
}
