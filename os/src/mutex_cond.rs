//! A mutex and a condition in the form in which C programs wait on them (FI_WAIT_MUTEX_COND, fi_cq(3)).
#![allow(unsafe_code)]

use core::ffi::c_void;

/// A `pthread_mutex_t` and a `pthread_cond_t` that stay where they are. C changes them behind our back, so they are held
/// by address.
#[derive(Debug)]
pub struct MutexCond {
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
}

// SAFETY: the two are made to be used by several threads at once, and only through their own calls.
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
    /// Where the mutex and the condition are, for C.
    pub const fn addresses(&self) -> (*mut c_void, *mut c_void) {
        (self.mutex.cast(), self.cond.cast())
    }

    /// Wakes whoever waits on the condition. A waiter holds the mutex from its last look to its wait, so none is missed.
    pub fn broadcast(&self) {
        // SAFETY: an initialised mutex at its place.
        unsafe { libc::pthread_mutex_lock(self.mutex) };
        // SAFETY: an initialised condition at its place.
        unsafe { libc::pthread_cond_broadcast(self.cond) };
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex) };
    }
}

impl Drop for MutexCond {
    fn drop(&mut self) {
        // SAFETY: nobody waits any more: the queue that it belongs to is being closed.
        unsafe { libc::pthread_cond_destroy(self.cond) };
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_destroy(self.mutex) };
        // SAFETY: made by `Box::into_raw` and given back once.
        drop(unsafe { Box::from_raw(self.cond) });
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(self.mutex) });
    }
}
