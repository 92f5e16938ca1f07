//! Memory shared between processes (memfd_create(2)): unnamed, so that no file stays behind, and
//! sealed, so that neither side can shrink it under the other.
#![allow(unsafe_code)]

use crate::descriptor::{Private, PrivateFd};
use core::ops::Range;
use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Mapping granularity in bytes.
pub const PAGE: usize = 4096;

/// Fault injection for tests.
#[doc(hidden)]
pub mod seam {
    use core::cell::Cell;

    thread_local!(static FAILS: Cell<Option<(usize, i32)>> = const { Cell::new(None) });

    /// Makes every reservation by this thread fail with `errno`, after so many that succeed.
    pub fn fail_after(count: usize, errno: i32) {
        FAILS.set(Some((count, errno)));
    }

    /// Reservations by this thread succeed again.
    pub fn succeed() {
        FAILS.set(None);
    }

    pub(super) fn check() -> std::io::Result<()> {
        match FAILS.get() {
            None => Ok(()),
            Some((0, errno)) => Err(std::io::Error::from_raw_os_error(errno)),
            Some((left, errno)) => {
                FAILS.set(Some((left - 1, errno)));
                Ok(())
            }
        }
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Memory of `len` bytes with a sealed size; those in `reserved` are allocated at once.
pub fn create(len: usize, reserved: Range<usize>) -> io::Result<PrivateFd> {
    // SAFETY: the name ends with NUL.
    let fd = unsafe { libc::memfd_create(c"ofi-shm".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    done(fd)?;
    // SAFETY: the descriptor is fresh and owned by nothing else.
    let fd = Private::new(unsafe { OwnedFd::from_raw_fd(fd) });
    let size = |len: usize| libc::off_t::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    // SAFETY: the call takes no pointers.
    done(unsafe { libc::ftruncate(fd.as_raw_fd(), size(len)?) })?;
    allocate(fd.as_fd(), reserved)?;
    // SAFETY: the call takes no pointers.
    done(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
    Ok(fd)
}

/// Bytes that one call allocates: a call that a signal interrupts starts over.
const PART: usize = 1 << 20;

/// Allocates a part of a file of memory, in bytes: an error now instead of SIGBUS later.
pub fn allocate(fd: BorrowedFd<'_>, bytes: Range<usize>) -> io::Result<()> {
    seam::check()?;
    let offset = |at: usize| libc::off_t::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    for at in bytes.clone().step_by(PART) {
        let (begin, len) = (offset(at)?, offset(PART.min(bytes.end - at))?);
        // SAFETY: the call takes no pointers.
        while let Err(error) = done(unsafe { libc::fallocate(fd.as_raw_fd(), 0, begin, len) }) {
            // Some kernels let any signal interrupt it.
            if error.raw_os_error() != Some(libc::EINTR) {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The length of a peer's memory. EPERM unless it is sealed against shrinking: access could raise
/// SIGBUS.
pub fn sealed_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: the call takes no pointers.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    done(seals)?;
    if seals & libc::F_SEAL_SHRINK == 0 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: an all-zero stat is a valid one.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is a local.
    done(unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) })?;
    usize::try_from(stat.st_size).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// A mapping; it outlives the descriptor.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length; the memory is mapped for every thread until the value is
// dropped.
unsafe impl Send for Mapping {}
// SAFETY: shared access gives out addresses only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes.
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::with_rights(fd, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps the first `len` bytes of memory whose pages are allocated as they are needed. They are
    /// not locked (mlockall(2) with MCL_FUTURE): that would allocate all of them.
    pub(crate) fn sparse(fd: BorrowedFd<'_>, len: usize, writable: bool) -> io::Result<Self> {
        // Locking allocates no pages while nothing may access them.
        let mapping = Self::with_rights(fd, len, libc::PROT_NONE)?;
        let base = mapping.base.as_ptr().cast::<libc::c_void>();
        // A failure leaves it locked, which costs memory only.
        // SAFETY: the mapping is new, and the call changes no content.
        let _ = unsafe { libc::munlock(base, len) };
        let rights = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: the mapping is new, so nothing relies on its rights.
        done(unsafe { libc::mprotect(base, len, rights) })?;
        Ok(mapping)
    }

    fn with_rights(fd: BorrowedFd<'_>, len: usize, rights: i32) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces no other.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, rights, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // Keeps the mapping out of forked children. A failure is harmless: they do not use it.
        // SAFETY: the mapping was just made; the call affects only forked children.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        Ok(Self { base, len })
    }

    /// The address of the first byte.
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Allocates the pages of a part now: an error here instead of SIGBUS later.
    pub fn populate(&self, at: usize, len: usize) -> io::Result<()> {
        self.fault_in(at, len, libc::MADV_POPULATE_WRITE)
    }

    /// Maps the pages of a part, many at once where they are allocated, and allocates the others:
    /// an error here instead of SIGBUS later.
    pub fn map_pages(&self, part: Range<usize>) -> io::Result<()> {
        // In memory of this kind, reading a page that is missing allocates it as well.
        self.fault_in(part.start, part.len(), libc::MADV_POPULATE_READ)
    }

    fn fault_in(&self, at: usize, len: usize, advice: i32) -> io::Result<()> {
        seam::check()?;
        assert!(at <= self.len && len <= self.len - at, "range exceeds the mapping");
        // SAFETY: the part is within the mapping.
        let part = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: the call changes no content.
        match done(unsafe { libc::madvise(part.cast(), len, advice) }) {
            // Linux before 5.14 lacks the call and allocates pages on first access.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            // The call reports a page that cannot be allocated as EFAULT.
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            other => other,
        }
    }

    /// Frees the pages of a part: they read as zero from now on.
    pub fn release(&self, at: usize, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "range exceeds the mapping");
        // SAFETY: the part is within the mapping.
        let part = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: the mapping is shared and writable; its bytes are zero afterwards, which every
        // reader allows for. A failure leaves the pages as they are.
        let _ = unsafe { libc::madvise(part.cast(), len, libc::MADV_REMOVE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no address into it is used any more.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Size in bytes of a core's largest private cache (L2); 1 MiB if unknown.
pub fn private_cache() -> usize {
    // SAFETY: the call takes no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) };
    usize::try_from(size).ok().filter(|size| *size >= 64 << 10).unwrap_or(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_sealed_and_mapped() {
        let fd = create(64 << 10, PAGE..2 * PAGE).unwrap();
        assert_eq!(sealed_len(fd.as_fd()).unwrap(), 64 << 10);
        // SAFETY: the call takes no pointers.
        assert!(unsafe { libc::ftruncate(fd.as_raw_fd(), 0) } < 0);
        let mapping = Mapping::new(fd.as_fd(), 64 << 10).unwrap();
        mapping.populate(PAGE, PAGE).unwrap();
        mapping.release(PAGE, PAGE);
        assert_eq!(mapping.len(), 64 << 10);
    }

    #[test]
    fn other_files_are_refused() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(sealed_len(file.as_fd()).is_err());
        // SAFETY: the name ends with NUL.
        let fd = unsafe { libc::memfd_create(c"x".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        // SAFETY: the descriptor is fresh and owned by nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        assert_eq!(sealed_len(fd.as_fd()).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn a_lack_of_memory_is_an_error() {
        seam::fail_after(1, libc::ENOSPC);
        assert!(create(PAGE, 0..PAGE).is_ok());
        assert_eq!(create(PAGE, 0..PAGE).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        seam::succeed();
        assert!(create(PAGE, 0..PAGE).is_ok());
    }
}
