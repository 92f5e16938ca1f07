//! Accesses to memory that may be unmapped or protected, by system calls that answer EFAULT
//! instead of raising a signal.
//!
//! Bulk copies are process_vm_readv(2) and process_vm_writev(2) on this process, or go through a
//! pipe where a seccomp profile forbids these. Single loads, stores and atomics are the CPU's,
//! after the kernel has tried the page; a try does not change the memory.

use super::RegionError;
use super::direct;
use ofi_core::Errno;
use ofi_sync::primitive::real::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// This process may not call process_vm_readv(2) and process_vm_writev(2).
pub(super) static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// futex(2): adds 0 to the second word and, if it holds an unlikely value, wakes its waiters, who
/// are used to be woken for nothing.
const ADD_NOTHING: libc::c_int = libc::FUTEX_OP_ADD << 28 | libc::FUTEX_OP_CMP_EQ << 24 | 0x907;

/// How many bytes a pipe is given at once.
const PIPE: usize = 64 << 10;

/// Error of the last system call.
fn last_error() -> Errno {
    io::Error::last_os_error().into()
}

/// Calls `call` with the number of bytes moved so far until it has moved `len`; its result is a
/// system call's.
fn move_all(len: usize, mut call: impl FnMut(usize) -> isize) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        match usize::try_from(call(done)) {
            Ok(0) => return Err(Errno::EFAULT),
            Ok(count) => done += count,
            Err(_) => match last_error() {
                Errno::EINTR => {}
                errno => return Err(errno),
            },
        }
    }
    Ok(())
}

fn piece(base: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len }
}

/// The calling thread's number: names this process even after its first thread has ended.
fn this_process() -> libc::pid_t {
    // SAFETY: the call takes no pointers.
    let number = unsafe { libc::syscall(libc::SYS_gettid) };
    libc::pid_t::try_from(number).expect("the number of a thread is a pid")
}

/// Runs a bulk copy, or the other way to do it if the process may not make this one's calls.
fn unless_forbidden(
    copy: impl FnOnce() -> Result<(), Errno>,
    instead: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), RegionError> {
    // Relaxed: it spares a system call and orders nothing.
    let copied = if FORBIDDEN.load(Ordering::Relaxed) { Err(Errno::EPERM) } else { copy() };
    let done = match copied {
        Err(Errno::EPERM | Errno::ENOSYS | Errno::EACCES) => {
            FORBIDDEN.store(true, Ordering::Relaxed);
            instead()
        }
        other => other,
    };
    done.map_err(RegionError::Unreachable)
}

/// Copies from the memory.
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
unsafe fn copy_out(from: *const u8, out: &mut [u8]) -> Result<(), RegionError> {
    let (len, to) = (out.len(), out.as_mut_ptr());
    let direct = || {
        move_all(len, |done| {
            let here = piece(to.wrapping_add(done), len - done);
            let there = piece(from.wrapping_add(done), len - done);
            // SAFETY: `here` is the rest of a slice; the kernel checks `there`.
            unsafe { libc::process_vm_readv(this_process(), &raw const here, 1, &raw const there, 1, 0) }
        })
    };
    // SAFETY: this function's contract; `to` is a slice of `len` bytes.
    unless_forbidden(direct, || unsafe { through_pipe(from, to, len) })
}

/// Copies to the memory.
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
unsafe fn copy_in(to: *mut u8, bytes: &[u8]) -> Result<(), RegionError> {
    let (len, from) = (bytes.len(), bytes.as_ptr());
    let direct = || {
        move_all(len, |done| {
            let here = piece(from.wrapping_add(done), len - done);
            let there = piece(to.wrapping_add(done), len - done);
            // SAFETY: `here` is the rest of a slice; the kernel checks `there`, which the
            // application has lent.
            unsafe { libc::process_vm_writev(this_process(), &raw const here, 1, &raw const there, 1, 0) }
        })
    };
    // SAFETY: this function's contract; `from` is a slice of `len` bytes.
    unless_forbidden(direct, || unsafe { through_pipe(from, to, len) })
}

/// Copies `len` bytes through a pipe, whose calls answer EFAULT on both sides.
///
/// # Safety
/// The memory at `to` is writable, or unmapped and lent by the application; the other is readable
/// or unmapped.
pub(super) unsafe fn through_pipe(from: *const u8, to: *mut u8, len: usize) -> Result<(), Errno> {
    let mut ends = [0; 2];
    // SAFETY: the call writes the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(last_error());
    }
    // SAFETY: both are fresh and owned by nothing else.
    let [output, input] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    let mut done = 0;
    while done < len {
        let mut count = 0;
        move_all(1, |_| {
            // SAFETY: the kernel checks the memory.
            let put = unsafe { libc::write(input.as_raw_fd(), from.wrapping_add(done).cast(), PIPE.min(len - done)) };
            count = usize::try_from(put).unwrap_or(0);
            put
        })?;
        move_all(count, |taken| {
            let to = to.wrapping_add(done + taken).cast();
            // SAFETY: this function's contract; the kernel checks the memory.
            unsafe { libc::read(output.as_raw_fd(), to, count - taken) }
        })?;
        done += count;
    }
    Ok(())
}

/// Finds out whether the page is readable.
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
unsafe fn try_read(at: *const u8) -> Result<(), RegionError> {
    // SAFETY: this function's contract.
    unsafe { copy_out(at, &mut [0]) }
}

/// Finds out whether the page is writable: adds 0 to an aligned word, atomically.
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
unsafe fn try_write(at: *mut u8) -> Result<(), RegionError> {
    let word = at.map_addr(|address| address & !(size_of::<u32>() - 1));
    // The first word is ours: no thread waits on it.
    let (ours, wake) = (AtomicU32::new(0), libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG);
    // SAFETY: the first word is a local; the kernel checks the second, which the application has
    // lent.
    let called = unsafe { libc::syscall(libc::SYS_futex, ours.as_ptr(), wake, 0, 0usize, word, ADD_NOTHING) };
    if called >= 0 {
        return Ok(());
    }
    match last_error() {
        Errno::EFAULT => Err(RegionError::Unreachable(Errno::EFAULT)),
        // The kernel, or a seccomp profile, does not let us: it may know of another way.
        // SAFETY: this function's contract.
        _ => unsafe { populate(word) }.map_err(RegionError::Unreachable),
    }
}

/// Makes the page present and writable, as a write would.
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
pub(super) unsafe fn populate(at: *mut u8) -> Result<(), Errno> {
    let page = at.map_addr(|address| address & !(page_size() - 1));
    // SAFETY: the call changes no content, and the kernel checks the memory.
    if unsafe { libc::madvise(page.cast(), 1, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    // ENOMEM says that the page is not mapped, EINVAL that it may not be written.
    match last_error() {
        Errno::ENOMEM | Errno::EINVAL => Err(Errno::EFAULT),
        errno => Err(errno),
    }
}

/// Makes all pages of the `len` bytes at `at` present, as reads or, if `write`, writes of them
/// would; whether all are there. `None` if the kernel does not say: it is older than 5.14, or the
/// mapping lacks the right or cannot be populated.
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
pub(super) unsafe fn populate_all(at: *mut u8, len: usize, write: bool) -> Option<bool> {
    let skew = at.addr() & (page_size() - 1);
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: the call changes no content, and the kernel checks the memory.
    if unsafe { libc::madvise(at.wrapping_sub(skew).cast(), len + skew, advice) } == 0 {
        return Some(true);
    }
    // ENOMEM: not mapped. EFAULT: a touch would raise a signal.
    matches!(last_error(), Errno::ENOMEM | Errno::EFAULT).then_some(false)
}

/// Tries all pages of the `len` bytes at `at`, where `len` is not 0: whether they are readable or,
/// if `write`, writable.
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
pub(super) unsafe fn try_pages(at: *mut u8, len: usize, write: bool) -> Result<(), RegionError> {
    let page = page_size();
    let mut done = 0;
    while done < len {
        let now = at.wrapping_add(done);
        if write {
            // SAFETY: this function's contract.
            unsafe { try_write(now) }?;
        } else {
            // SAFETY: this function's contract.
            unsafe { try_read(now) }?;
        }
        done += page - now.addr() % page;
    }
    Ok(())
}

/// Writes the bytes: the last aligned word, or as much of it as they have, after all others, and
/// by stores as in [`direct::write`].
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
pub(super) unsafe fn write(to: *mut u8, bytes: &[u8]) -> Result<(), RegionError> {
    let (body, tail) = bytes.split_at(direct::before_last_word(to.addr(), bytes.len()));
    let last = to.wrapping_add(body.len());
    if !body.is_empty() {
        // SAFETY: this function's contract.
        unsafe { copy_in(to, body) }?;
    }
    // SAFETY: this function's contract.
    unsafe { try_write(last) }?;
    // SAFETY: the page of this word is writable.
    unsafe { direct::write(last, tail) };
    Ok(())
}

/// Reads into `out`: bytes that lie in one aligned word, by loads as in [`direct::read`].
///
/// # Safety
/// The application has lent the memory; it may be unmapped.
pub(super) unsafe fn read(from: *const u8, out: &mut [u8]) -> Result<(), RegionError> {
    if direct::before_last_word(from.addr(), out.len()) > 0 {
        // SAFETY: this function's contract.
        return unsafe { copy_out(from, out) };
    }
    // SAFETY: this function's contract.
    unsafe { try_read(from) }?;
    // SAFETY: the page of this word is readable.
    unsafe { direct::read(from, out) };
    Ok(())
}

/// The page size in bytes.
fn page_size() -> usize {
    // SAFETY: the call takes no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).ok().filter(|page| page.is_power_of_two()).unwrap_or(4096)
}

/// Writes the pages of the `len` bytes at `at` to the file that they map (msync(2)).
pub(super) fn sync(at: *mut u8, len: usize) -> Result<(), RegionError> {
    let skew = at.addr() % page_size();
    // SAFETY: the call does not change the memory, and the kernel checks it.
    let code = unsafe { libc::msync(at.wrapping_sub(skew).cast(), len + skew, libc::MS_SYNC) };
    match code {
        0 => Ok(()),
        // Some pages are not mapped.
        _ => Err(RegionError::Unreachable(match last_error() {
            Errno::ENOMEM => Errno::EFAULT,
            errno => errno,
        })),
    }
}
