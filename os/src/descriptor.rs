//! Descriptors that are this process's alone: a process that is forked from it closes its copies at once. Otherwise a peer
//! would not notice the end of the one as long as the other lives, names and ports would stay taken, and what was closed
//! here would still be news for a poller.
#![allow(unsafe_code)]

use core::mem::ManuallyDrop;
use core::ops::Deref;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Every such descriptor that is open.
#[derive(Debug)]
struct Ours {
    open: BTreeSet<RawFd>,
    /// Forks since those who opened them lived: a copy of one of another generation is closed already.
    generation: u64,
    /// What is listed is of another generation.
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

/// A descriptor, or what owns one, that forked processes close.
#[derive(Debug)]
pub struct Private<T: AsRawFd> {
    inner: ManuallyDrop<T>,
    fd: RawFd,
    generation: u64,
}

/// A bare one.
pub type PrivateFd = Private<OwnedFd>;

impl<T: AsRawFd> Private<T> {
    /// Takes care of a fresh one, which never comes to own another.
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
            // The copy is closed, and its number may be another's.
            return;
        }
        ours.open.remove(&self.fd);
        // While the list is held: a process forked in between would keep a copy that no list names.
        // SAFETY: the value is dropped, so that nobody uses what is in it again.
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

/// The list, while the process is forked.
#[derive(Debug)]
pub struct Held(MutexGuard<'static, Ours>);

/// Keeps others from the list.
pub fn hold() -> Held {
    Held(ours())
}

impl Held {
    /// In the forked process: closes its copies. It takes and gives back no memory.
    pub fn close_copies(&mut self) {
        for fd in &self.0.open {
            // SAFETY: the descriptor was open when the process was forked; those who had it are not here to use it, or find
            // by their generation that it is gone.
            unsafe { libc::close(*fd) };
        }
        self.0.generation += 1;
        self.0.stale = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: the call takes no pointers.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    /// A copy with a number that tests on other threads do not get: the kernel gives out the lowest that is free, so they
    /// would be given this one as soon as it is closed.
    fn far_from_others(fd: impl AsRawFd) -> OwnedFd {
        // SAFETY: the call takes no pointers.
        let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 500) };
        assert!(copy >= 500);
        // SAFETY: the descriptor is fresh and owned by nothing else.
        unsafe { OwnedFd::from_raw_fd(copy) }
    }

    #[test]
    fn what_is_open_is_listed_and_what_is_dropped_is_closed() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (reader, writer) = (Private::new(reader), Private::new(far_from_others(writer)));
        let fd = writer.as_raw_fd();
        assert!(hold().0.open.contains(&fd) && hold().0.open.contains(&reader.as_raw_fd()));
        drop(writer);
        assert!(!hold().0.open.contains(&fd));
        // Its end is seen by the other: it was closed.
        assert_eq!(std::io::Read::read(&mut &*reader, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn one_of_another_generation_is_left_alone() {
        let (_, writer) = std::io::pipe().unwrap();
        let fd = writer.as_raw_fd();
        let mut writer = Private::new(writer);
        writer.generation += 1;
        drop(writer);
        assert!(is_open(fd));
    }
}
