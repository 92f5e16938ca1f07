//! What runs when the process exits.
#![allow(unsafe_code)]

use std::io;

/// Has exit(3), or the return from `main`, call a function, before those that were registered
/// earlier. A forked child inherits that (atexit(3)).
///
/// # Errors
/// ENOMEM if there is no memory to remember it.
pub fn at_exit(run: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the function takes nothing. The library is never unloaded, so it stays.
    match unsafe { libc::atexit(run) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}
