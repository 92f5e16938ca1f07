//! Descriptors private to this process: a forked child closes its copies at once. Otherwise a peer
//! would not notice this process's exit while the child lives, names and ports would stay in use,
//! and epoll would keep reporting descriptors that were closed here.
#![allow(unsafe_code)]

use core::mem::ManuallyDrop;
use core::ops::Deref;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All open private descriptors.
#[derive(Debug)]
struct Ours {
    open: BTreeSet<RawFd>,
    /// Number of forks down to this process: a copy from an earlier generation is already closed.
    generation: u64,
    /// `open` lists descriptors of an earlier generation.
    stale: bool,
}

static OURS: Mutex<Ours> = Mutex::new(Ours { open: BTreeSet::new(), generation: 0, stale: false });

fn ours() -> MutexGuard<'static, Ours> {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    if ours.stale {
        ours.open.clear();
        ours.stale = false;
    }
    ours
}

/// A descriptor, or its owner, whose copies forked children close.
#[derive(Debug)]
pub struct Private<T: AsRawFd> {
    inner: ManuallyDrop<T>,
    fd: RawFd,
    generation: u64,
}

/// A private bare descriptor.
pub type PrivateFd = Private<OwnedFd>;

impl<T: AsRawFd> Private<T> {
    /// Registers a fresh descriptor. `inner` must never change to own another one.
    pub fn new(inner: T) -> Self {
        let fd = inner.as_raw_fd();
        let mut ours = ours();
        ours.open.insert(fd);
        Self { inner: ManuallyDrop::new(inner), fd, generation: ours.generation }
    }
}

impl<T: AsRawFd> Drop for Private<T> {
    fn drop(&mut self) {
        let mut ours = ours();
        if ours.generation != self.generation {
            // The copy is closed, and its number may be in use again.
            return;
        }
        ours.open.remove(&self.fd);
        // Under the list's lock: a child forked in between would keep a copy that no list names.
        // SAFETY: the value is being dropped, so `inner` is not used again.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}

impl<T: AsRawFd> Deref for Private<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: AsRawFd> AsRawFd for Private<T> {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl<T: AsRawFd + AsFd> AsFd for Private<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// The list's lock, held across fork(2).
#[derive(Debug)]
pub struct Held(MutexGuard<'static, Ours>);

/// Locks the list.
pub fn hold() -> Held {
    Held(ours())
}

impl Held {
    /// In the forked child: closes its copies, without allocating or freeing memory.
    pub fn close_copies(&mut self) {
        for fd in &self.0.open {
            // SAFETY: the descriptor was open at the fork; its users do not exist in the child, or
            // see by their generation that it is closed.
            unsafe { libc::close(*fd) };
        }
        self.0.generation += 1;
        self.0.stale = true;
    }
}

/// Makes calls on a descriptor that would wait return [`io::ErrorKind::WouldBlock`].
///
/// # Errors
/// The system's.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the command takes no argument.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: the same, with flags as argument.
    if flags < 0 || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: the call takes no pointers.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    /// A copy with a high number. The kernel assigns the lowest free number, so tests on other
    /// threads would get a low one as soon as it is closed.
    fn far_from_others(fd: impl AsRawFd) -> OwnedFd {
        // SAFETY: the call takes no pointers.
        let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 500) };
        assert!(copy >= 500);
        // SAFETY: the descriptor is fresh and owned by nothing else.
        unsafe { OwnedFd::from_raw_fd(copy) }
    }

    #[test]
    fn open_descriptors_are_listed_and_dropped_ones_are_closed() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (reader, writer) = (Private::new(reader), Private::new(far_from_others(writer)));
        let fd = writer.as_raw_fd();
        assert!(hold().0.open.contains(&fd) && hold().0.open.contains(&reader.as_raw_fd()));
        drop(writer);
        assert!(!hold().0.open.contains(&fd));
        // The other end reads end of file: the descriptor was closed.
        assert_eq!(std::io::Read::read(&mut &*reader, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_descriptor_of_another_generation_is_left_alone() {
        let (_, writer) = std::io::pipe().unwrap();
        let fd = writer.as_raw_fd();
        let mut writer = Private::new(writer);
        writer.generation += 1;
        drop(writer);
        assert!(is_open(fd));
    }
}
