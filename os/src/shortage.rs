//! How often the C library has run out of memory in calls whose failure is no error of their own: an interface or a name
//! that cannot be looked up is one that is not there. Who must not mistake the one for the other compares the count.

use std::sync::{Mutex, MutexGuard, PoisonError};

static COUNT: Mutex<u64> = Mutex::new(0);

fn lock() -> MutexGuard<'static, u64> {
    COUNT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Times so far, in all threads.
pub fn count() -> u64 {
    *lock()
}

/// The lock of the count, while the process is forked.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, u64>);

/// Keeps others from the count.
pub fn hold() -> Held {
    Held(lock())
}

/// Once more, if that is what the error says.
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
