//! Another process's memory, read without its help (process_vm_readv(2)).
#![allow(unsafe_code)]

use ofi_memory::ChunkMut;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What tests want to know.
#[doc(hidden)]
pub mod seam {
    use core::cell::Cell;

    thread_local!(static READ: Cell<usize> = const { Cell::new(0) });

    /// Bytes that this thread has read from the memory of processes.
    pub fn bytes_read() -> usize {
        READ.get()
    }

    pub(super) fn note(bytes: usize) {
        READ.set(READ.get() + bytes);
    }
}

/// What could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// So many bytes: all of them, or what lies before a place where nothing is.
    Bytes(usize),
    /// The process has ended; what came is somebody else's, if anything.
    Ended,
    /// It may not be read.
    Denied,
}

/// A process that was there when it was opened.
#[derive(Debug)]
pub struct Process {
    id: libc::pid_t,
    fd: OwnedFd,
}

impl Process {
    /// The process of that number, as this process counts them.
    pub fn open(id: i32) -> io::Result<Self> {
        if id <= 0 {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the descriptor is fresh and nobody else's.
        Ok(Self { id, fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Copies what is at `from` in that process to the pieces, in order.
    pub fn read(&self, from: usize, pieces: &mut [ChunkMut<'_>]) -> Reading {
        let len = pieces.iter().map(ChunkMut::len).sum();
        let there = libc::iovec { iov_base: core::ptr::without_provenance_mut(from), iov_len: len };
        let (count, here) = (pieces.len() as libc::c_ulong, pieces.as_mut_ptr().cast::<libc::iovec>());
        // SAFETY: the pieces are laid out as iovecs (asserted in `socket.rs`) over memory that is writable as long as they live;
        // the other address is one of the other process, which the system checks.
        let got = unsafe { libc::process_vm_readv(self.id, here, count, &raw const there, 1, 0) };
        let got = usize::try_from(got).or_else(|_| match io::Error::last_os_error().raw_os_error() {
            Some(libc::EFAULT) => Ok(0),
            _ => Err(()),
        });
        // The number may be another process's by now, but not as long as the one that was opened is there.
        if self.has_ended() {
            return Reading::Ended;
        }
        seam::note(got.unwrap_or(0));
        got.map_or(Reading::Denied, Reading::Bytes)
    }

    fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is a local.
        unsafe { libc::poll(&raw mut poll, 1, 0) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_far_as_it_is_there() {
        let me = Process::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        let (from, mut a, mut b) = ([1u8, 2, 3, 4, 5], [0u8; 2], [0u8; 3]);
        let got = me.read(from.as_ptr().addr(), &mut [ChunkMut::of(&mut a), ChunkMut::of(&mut b)]);
        assert_eq!((got, a, b), (Reading::Bytes(5), [1, 2], [3, 4, 5]));
        assert_eq!(me.read(8, &mut [ChunkMut::of(&mut a)]), Reading::Bytes(0));
        assert_eq!(seam::bytes_read(), 5);
    }

    #[test]
    fn a_process_that_has_ended_is_not_read() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::open(i32::try_from(child.id()).unwrap()).unwrap();
        child.wait().unwrap();
        let mut byte = [0];
        assert_eq!(process.read(byte.as_ptr().addr(), &mut [ChunkMut::of(&mut byte)]), Reading::Ended);
        assert!(Process::open(0).is_err());
    }
}
