//! System calls on descriptors that are no cancellation points (pthreads(7)). In a program with
//! threads those of the C library change the thread's cancellation state before and after, by two
//! locked instructions each; and a thread that is cancelled in one leaves the library's locks held.
//! Signatures, results and errno(3) are the C library's.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::ptr;
use libc::{epoll_event, mmsghdr, msghdr, sockaddr, socklen_t, ssize_t, syscall};

/// A result has the size of a register, as `ssize_t` has.
const fn length(result: libc::c_long) -> ssize_t {
    result as ssize_t
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
    // SAFETY: the caller's pointers are readable for the lengths beside them.
    length(unsafe { syscall(libc::SYS_sendto, fd, bytes, len, flags, to, to_len) })
}

/// sendmsg(2).
#[inline]
pub(crate) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's header names readable memory.
    length(unsafe { syscall(libc::SYS_sendmsg, fd, message, flags) })
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
    // SAFETY: the caller's pointers are writable for the lengths beside them.
    length(unsafe { syscall(libc::SYS_recvfrom, fd, bytes, len, flags, from, from_len) })
}

/// recvmsg(2).
#[inline]
pub(crate) unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's header names writable memory.
    length(unsafe { syscall(libc::SYS_recvmsg, fd, message, flags) })
}

/// recvmmsg(2) without a timeout.
#[inline]
pub(crate) unsafe fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> ssize_t {
    let timeout = ptr::null_mut::<c_void>();
    // SAFETY: the caller's headers name writable memory.
    length(unsafe { syscall(libc::SYS_recvmmsg, fd, messages, count, flags, timeout) })
}

/// read(2).
#[inline]
pub(crate) unsafe fn read(fd: c_int, bytes: *mut c_void, len: usize) -> ssize_t {
    // SAFETY: the caller's pointer is writable for `len` bytes.
    length(unsafe { syscall(libc::SYS_read, fd, bytes, len) })
}

/// write(2).
#[inline]
pub(crate) unsafe fn write(fd: c_int, bytes: *const c_void, len: usize) -> ssize_t {
    // SAFETY: the caller's pointer is readable for `len` bytes.
    length(unsafe { syscall(libc::SYS_write, fd, bytes, len) })
}

/// epoll_wait(2).
#[inline]
pub(crate) unsafe fn epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, millis: c_int) -> ssize_t {
    let (mask, mask_len) = (ptr::null::<c_void>(), size_of::<u64>());
    // SAFETY: the caller's pointer is writable for `most` events, and no signal mask is set.
    length(unsafe { syscall(libc::SYS_epoll_pwait, fd, events, most, millis, mask, mask_len) })
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
            // SAFETY: the calling thread exists.
            assert_eq!(unsafe { libc::pthread_cancel(libc::pthread_self()) }, 0);
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
