//! Pages for tests, some of them protected.
#![allow(unsafe_code)]

use crate::region::{Reach, Region};
use core::ptr;
use ofi_core::MrAccess;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The size of a page; larger ones do not matter to the tests.
pub(crate) const PAGE: usize = 64 << 10;

/// Fresh pages, unmapped when dropped.
pub(crate) struct Pages {
    base: *mut u8,
    len: usize,
}

impl Pages {
    /// This many pages of zeros.
    pub(crate) fn new(count: usize) -> Self {
        let (len, flags) = (count * PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses a free address.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), len }
    }

    /// Fresh pages of a file that ends after the first, in which a touch raises SIGBUS.
    pub(crate) fn of_short_file(count: usize) -> Self {
        let len = count * PAGE;
        // SAFETY: the name is a literal.
        let fd = unsafe { libc::memfd_create(c"short".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the descriptor is fresh and owned by nothing else.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(PAGE as u64).unwrap();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses a free address.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), len }
    }

    /// Protects a page.
    pub(crate) fn protect(&self, page: usize, rights: libc::c_int) {
        // SAFETY: the page is within this mapping, which nothing references.
        let code = unsafe { libc::mprotect(self.at(page * PAGE).cast(), PAGE, rights) };
        assert_eq!(code, 0);
    }

    /// The byte at an offset.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.base.wrapping_add(offset)
    }

    /// The bytes at an offset, which must be readable.
    pub(crate) fn copy(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        // SAFETY: they are within the mapping.
        (0..len).map(|at| unsafe { self.at(offset + at).read_volatile() }).collect()
    }

    /// A region of these pages.
    pub(crate) fn region(&self) -> Region {
        // SAFETY: the tests drop the region first, and use the pages only through it meanwhile.
        unsafe { Region::new(&[(self.base, self.len)], 0, MrAccess::all(), Reach::Mapped) }.unwrap()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing references it.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// The whole address space.
pub(crate) fn everything() -> Region {
    // SAFETY: the tests use only what they have mapped for it.
    unsafe { Region::new(&[(ptr::null_mut(), usize::MAX)], 0, MrAccess::all(), Reach::Probed) }.unwrap()
}

/// Runs `test` in a thread that may not copy by process_vm_readv(2) and process_vm_writev(2).
pub(crate) fn without_process_vm(test: impl FnOnce() + Send) {
    let filter = |code: u32, jt, jf, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let refused = |number: libc::c_long, to_end| {
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to_end, 0, u32::try_from(number).unwrap())
    };
    let errno = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let mut filters = [
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        refused(libc::SYS_process_vm_readv, 2),
        refused(libc::SYS_process_vm_writev, 1),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, errno),
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let program = libc::sock_fprog { len: filters.len().try_into().unwrap(), filter: filters.as_mut_ptr() };
            // SAFETY: it only takes privileges away.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
            // SAFETY: the program is a local with that many instructions; it applies to this
            // thread.
            let code = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
            assert_eq!(code, 0);
            test();
        });
    });
}
