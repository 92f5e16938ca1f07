//! Counts the times the C library ran out of memory in lookups of interfaces and names, which
//! report a failure as "not found". A caller that must tell the two apart compares the count before
//! and after.

use std::sync::{Mutex, MutexGuard, PoisonError};

static COUNT: Mutex<u64> = Mutex::new(0);

fn lock() -> MutexGuard<'static, u64> {
    COUNT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Failures so far, in all threads.
pub fn count() -> u64 {
    *lock()
}

/// The count's lock, held across fork(2).
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, u64>);

/// Locks the count.
pub fn hold() -> Held {
    Held(lock())
}

/// Whether a lookup failed because this process or the system has run out of a resource.
pub fn is_one(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOBUFS))
        || error.kind() == std::io::ErrorKind::OutOfMemory
}

/// Counts the error if it is ENOMEM.
pub(crate) fn note(error: &std::io::Error) {
    if error.raw_os_error() == Some(libc::ENOMEM) {
        *lock() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lack_of_memory_counts() {
        let before = count();
        note(&std::io::Error::from_raw_os_error(libc::ENOENT));
        note(&std::io::Error::other("of our own"));
        assert_eq!(count(), before);
        note(&std::io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!(count(), before + 1);
    }
}
