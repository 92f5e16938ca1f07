//! Resource limits and file system space.
#![allow(unsafe_code)]

use crate::process::page_size;
use std::ffi::CString;

/// A resource limit of this process (getrlimit(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open descriptors.
    Descriptors,
    /// Locked memory, in bytes.
    LockedMemory,
    /// Processes and threads of this user.
    Processes,
    /// The length of a file, in bytes.
    FileLength,
}

/// The soft and the hard limit; `u64::MAX` means unlimited.
pub fn limit(which: Limit) -> Option<(u64, u64)> {
    let resource = match which {
        Limit::Descriptors => libc::RLIMIT_NOFILE,
        Limit::LockedMemory => libc::RLIMIT_MEMLOCK,
        Limit::Processes => libc::RLIMIT_NPROC,
        Limit::FileLength => libc::RLIMIT_FSIZE,
    };
    let mut value = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `value` is a place for the result.
    let result = unsafe { libc::getrlimit(resource, &mut value) };
    (result == 0).then_some((value.rlim_cur, value.rlim_max))
}

/// The memory of this machine, in bytes.
pub fn memory() -> u64 {
    // SAFETY: the call takes no pointers.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(page_size() as u64)
}

/// Whether this process may lock more memory than [`Limit::LockedMemory`] says (CAP_IPC_LOCK).
pub fn may_lock_more() -> bool {
    const IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    effective.is_some_and(|effective| effective >> IPC_LOCK & 1 == 1)
}

/// Free and total bytes of the file system at `path`.
pub fn space(path: &str) -> Option<(u64, u64)> {
    let path = CString::new(path).ok()?;
    let mut value = core::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with NUL, and `value` is a place for the result.
    if unsafe { libc::statvfs(path.as_ptr(), value.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled by the call.
    let value = unsafe { value.assume_init() };
    Some((value.f_bavail * value.f_frsize, value.f_blocks * value.f_frsize))
}

/// Whether this process may create files in the folder `path`.
pub fn is_writable(path: &str) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    // SAFETY: the path ends with NUL.
    unsafe { libc::access(path.as_ptr(), libc::W_OK) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_space_are_known() {
        let (soft, hard) = limit(Limit::Descriptors).unwrap();
        assert!(soft > 0 && soft <= hard);
        let (free, all) = space("/").unwrap();
        assert!(free <= all && all > 0);
        assert_eq!(space("/no/such/place"), None);
    }
}
