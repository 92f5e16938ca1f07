//! Shared libraries that are loaded at run time (dlopen(3)). They stay loaded: other threads may
//! run their code.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A loaded library.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<c_void>);

impl Library {
    /// Loads the library with its dependencies, binds all its symbols at once, and runs its
    /// constructors. Its own symbols are not visible to others.
    ///
    /// # Errors
    /// The loader's text.
    pub fn open(path: &Path) -> Result<Self, String> {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return Err("its name contains NUL".into()) };
        // SAFETY: the path ends with NUL.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(last_error)
    }

    /// The address of an exported symbol.
    pub fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is never closed, and the name ends with NUL.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

fn last_error() -> String {
    // SAFETY: it takes no arguments.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: not null, so it ends with NUL and stays until this thread's next call of the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The file from which the code or data at an address was loaded.
pub fn file_of(address: usize) -> Option<PathBuf> {
    let mut found = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for; `found` is a place for the result.
    if unsafe { libc::dladdr(core::ptr::without_provenance(address), &mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: not null, so it ends with NUL; the caller's library stays loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Whether this process has more rights than its user, who must not choose what it loads.
pub fn is_privileged() -> bool {
    // SAFETY: it only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_opens_or_says_why_not() {
        let libc = Library::open(Path::new("libc.so.6")).unwrap();
        let puts = libc.symbol(c"puts").unwrap();
        assert!(libc.symbol(c"no such symbol").is_none());
        assert!(file_of(puts.addr().get()).unwrap().to_string_lossy().contains("libc.so"));
        assert!(Library::open(Path::new("/no/such/library.so")).unwrap_err().contains("/no/such/library.so"));
        assert!(file_of(0).is_none());
    }
}
