//! The mutex and condition variable that C programs wait on (FI_WAIT_MUTEX_COND, fi_cq(3)).
#![allow(unsafe_code)]

use core::ffi::c_void;
use std::time::{Duration, SystemTime};

/// A `pthread_mutex_t` and a `pthread_cond_t` at fixed addresses, held by raw pointer because C
/// code modifies them.
#[derive(Debug)]
pub struct MutexCond {
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
}

// SAFETY: both are made for concurrent use, and used only through the pthread calls.
unsafe impl Send for MutexCond {}
// SAFETY: as above.
unsafe impl Sync for MutexCond {}

impl Default for MutexCond {
    fn default() -> Self {
        Self {
            mutex: Box::into_raw(Box::new(libc::PTHREAD_MUTEX_INITIALIZER)),
            cond: Box::into_raw(Box::new(libc::PTHREAD_COND_INITIALIZER)),
        }
    }
}

impl MutexCond {
    /// The addresses of the mutex and the condition variable, for C.
    pub const fn addresses(&self) -> (*mut c_void, *mut c_void) {
        (self.mutex.cast(), self.cond.cast())
    }

    /// Wakes all waiters, unless another thread holds the mutex for longer than `limit`: then this
    /// returns false. A waiter holds the mutex from its last check to its wait, so no wakeup is
    /// lost.
    pub fn broadcast(&self, limit: Duration) -> bool {
        // With a time of day that has passed, the call tries once.
        let until = (SystemTime::now() + limit).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let until = libc::timespec {
            tv_sec: until.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: until.subsec_nanos().into(),
        };
        // SAFETY: the mutex is initialized and never moves, and `until` is a valid time.
        if unsafe { libc::pthread_mutex_timedlock(self.mutex, &raw const until) } != 0 {
            return false;
        }
        // SAFETY: the condition variable is initialized and never moves.
        unsafe { libc::pthread_cond_broadcast(self.cond) };
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex) };
        true
    }

    /// Runs `held` with the mutex held.
    #[cfg(test)]
    pub(crate) fn with(&self, held: impl FnOnce()) {
        // SAFETY: the mutex is initialized and never moves.
        unsafe { libc::pthread_mutex_lock(self.mutex) };
        held();
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex) };
    }

    /// Waits on the condition variable until `ready`, which runs with the mutex held.
    #[cfg(test)]
    pub(crate) fn wait_until(&self, mut ready: impl FnMut() -> bool) {
        self.with(|| {
            while !ready() {
                // SAFETY: both are initialized, never move, and this thread holds the mutex.
                unsafe { libc::pthread_cond_wait(self.cond, self.mutex) };
            }
        });
    }
}

impl Drop for MutexCond {
    fn drop(&mut self) {
        // SAFETY: no thread waits: the queue that it belonged to is closed.
        unsafe { libc::pthread_cond_destroy(self.cond) };
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_destroy(self.mutex) };
        // SAFETY: made by `Box::into_raw` and freed once.
        drop(unsafe { Box::from_raw(self.cond) });
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(self.mutex) });
    }
}
