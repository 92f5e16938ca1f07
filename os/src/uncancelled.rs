//! System calls on descriptors that are no cancellation points (pthreads(7)). In a program with
//! threads those of the C library change the thread's cancellation state before and after, by two
//! locked instructions each; and a thread that is cancelled in one leaves the library's locks held.
//! Signatures, results and errno(3) are the C library's.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_long, c_void};
use core::ptr;
use libc::{epoll_event, mmsghdr, msghdr, sockaddr, socklen_t, ssize_t};

/// An argument of a system call.
trait Argument {
    fn bits(self) -> usize;
}

impl Argument for c_int {
    fn bits(self) -> usize {
        // Sign-extended: the system reads the lower half.
        self as isize as usize
    }
}

impl Argument for u32 {
    fn bits(self) -> usize {
        self as usize
    }
}

impl Argument for usize {
    fn bits(self) -> usize {
        self
    }
}

impl<T> Argument for *const T {
    fn bits(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Argument for *mut T {
    fn bits(self) -> usize {
        self.expose_provenance()
    }
}

/// The system call with that number: minus the error number, or the result.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation, reason = "a long has the size of a register")]
#[inline(always)]
unsafe fn call(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result;
    // SAFETY: the caller vouches for the arguments. The system changes these registers and memory.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The system call with that number: minus the error number, or the result.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn call(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result;
    // SAFETY: the caller vouches for the arguments. The system changes this register and memory.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number, inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

/// The system call with that number: minus the error number, or the result.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn call(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller vouches for the arguments.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result != -1 {
        return result as isize;
    }
    // SAFETY: the call needs nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is a variable of this thread.
    -(unsafe { *place } as isize)
}

/// The result of a system call as the C library gives it.
#[inline(always)]
fn result_of(result: isize) -> ssize_t {
    if result < 0 { failed(result) } else { result }
}

#[cold]
fn failed(result: isize) -> ssize_t {
    let errno = i32::try_from(-result).unwrap_or(libc::EIO);
    // SAFETY: the call needs nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is a variable of this thread.
    unsafe { *place = errno };
    -1
}

/// A system call with up to six arguments.
macro_rules! syscall {
    ($number:expr; $a:expr, $b:expr, $c:expr) => { syscall!($number; $a, $b, $c, 0usize, 0usize, 0usize) };
    ($number:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {{
        let arguments = [$a.bits(), $b.bits(), $c.bits(), $d.bits(), $e.bits(), $f.bits()];
        // SAFETY: the caller of the function around this keeps its contract for the pointers.
        result_of(unsafe { call($number, arguments) })
    }};
}

/// send(2).
#[inline]
pub(crate) unsafe fn send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: the caller's pointer is readable for `len` bytes.
    unsafe { sendto(fd, bytes, len, flags, ptr::null(), 0) }
}

/// sendto(2).
#[inline]
pub(crate) unsafe fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    syscall!(libc::SYS_sendto; fd, bytes, len, flags, to, to_len)
}

/// sendmsg(2).
#[inline]
pub(crate) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    syscall!(libc::SYS_sendmsg; fd, message, flags)
}

/// recv(2).
#[inline]
pub(crate) unsafe fn recv(fd: c_int, bytes: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: the caller's pointer is writable for `len` bytes.
    unsafe { recvfrom(fd, bytes, len, flags, ptr::null_mut(), ptr::null_mut()) }
}

/// recvfrom(2).
#[inline]
pub(crate) unsafe fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    syscall!(libc::SYS_recvfrom; fd, bytes, len, flags, from, from_len)
}

/// recvmsg(2).
#[inline]
pub(crate) unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    syscall!(libc::SYS_recvmsg; fd, message, flags)
}

/// recvmmsg(2) without a timeout.
#[inline]
pub(crate) unsafe fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> ssize_t {
    syscall!(libc::SYS_recvmmsg; fd, messages, count, flags, 0usize, 0usize)
}

/// read(2).
#[inline]
pub(crate) unsafe fn read(fd: c_int, bytes: *mut c_void, len: usize) -> ssize_t {
    syscall!(libc::SYS_read; fd, bytes, len)
}

/// write(2).
#[inline]
pub(crate) unsafe fn write(fd: c_int, bytes: *const c_void, len: usize) -> ssize_t {
    syscall!(libc::SYS_write; fd, bytes, len)
}

/// epoll_wait(2).
#[inline]
pub(crate) unsafe fn epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, millis: c_int) -> ssize_t {
    // Without a signal mask.
    syscall!(libc::SYS_epoll_pwait; fd, events, most, millis, 0usize, size_of::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// `pthread_cancel` takes effect at cancellation points, and the test's end is none: a thread
    /// that is cancelled first would not come back from a call that is one.
    #[test]
    fn a_cancelled_thread_comes_back_from_its_calls() {
        let done = std::thread::spawn(|| {
            let (a, b) = UnixStream::pair().expect("two sockets");
            let mut bytes = [7u8; 8];
            let mut message = msghdr_of(&mut bytes);
            // SAFETY: the call needs nothing.
            let this = unsafe { libc::pthread_self() };
            // SAFETY: the thread exists.
            assert_eq!(unsafe { libc::pthread_cancel(this) }, 0);
            // SAFETY: the header names a local.
            let mut results = vec![unsafe { sendmsg(a.as_raw_fd(), &message.1, 0) }];
            // SAFETY: the header names a local.
            results.push(unsafe { recvmsg(b.as_raw_fd(), &mut message.1, 0) });
            // SAFETY: the array is readable.
            results.push(unsafe { send(a.as_raw_fd(), bytes.as_ptr().cast(), 8, 0) });
            // SAFETY: the array is writable.
            results.push(unsafe { recv(b.as_raw_fd(), bytes.as_mut_ptr().cast(), 8, 0) });
            // SAFETY: the array is readable.
            results.push(unsafe { write(a.as_raw_fd(), bytes.as_ptr().cast(), 8) });
            // SAFETY: the array is writable.
            results.push(unsafe { read(b.as_raw_fd(), bytes.as_mut_ptr().cast(), 8) });
            // SAFETY: there are no events to write.
            results.push(unsafe { epoll_wait(-1, ptr::null_mut(), 1, 0) });
            let mut old = 0;
            // From here on the thread is not cancelled: it has to return its results.
            // SAFETY: `old` is a local.
            assert_eq!(unsafe { pthread_setcancelstate(DISABLE, &mut old) }, 0);
            results
        });
        assert_eq!(done.join().expect("it returns"), [8, 8, 8, 8, 8, 8, -1]);
    }

    /// A header of one chunk, which is kept beside it.
    fn msghdr_of(bytes: &mut [u8]) -> (Box<libc::iovec>, msghdr) {
        let mut chunk = Box::new(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
        // SAFETY: an all-zero message header is a valid empty one.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = &mut *chunk;
        message.msg_iovlen = 1;
        (chunk, message)
    }

    const DISABLE: c_int = 1;

    // SAFETY: the C library has it (pthread_setcancelstate(3)); the crate libc does not declare it.
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }
}
