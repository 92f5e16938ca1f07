//! Threads of the library: named, and deaf to the application's signals.
#![allow(unsafe_code)]

use ofi_core::error::{Error, Result};
use std::thread::{Builder, JoinHandle};

/// Starts a thread that takes no signals: those are for the application's own threads.
///
/// # Errors
/// EAGAIN if the system has no room for one.
pub fn spawn(name: &str, life: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is a place for a signal set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` has been filled, `before` is a place for the old set. The new thread inherits the mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let thread = Builder::new().name(name.to_owned()).spawn(life);
    // SAFETY: `before` has been filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    thread.map_err(|error| Error::os(error, "start a thread"))
}
