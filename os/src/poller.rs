//! epoll(7): readiness of many descriptors.
#![allow(unsafe_code)]

use crate::descriptor::{Private, PrivateFd};
use crate::uncancelled;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The readiness to watch for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Input.
    Read,
    /// Input, once: after an event the descriptor is not watched until [`Poller::modify`].
    ReadOnce,
    /// Input, or room for output.
    ReadWrite,
}

/// A ready descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The key passed to [`Poller::add`].
    pub key: u64,
    /// There is input, end of stream or an error.
    pub readable: bool,
    /// There is room for output, or an error.
    pub writable: bool,
}

/// A set of watched descriptors.
#[derive(Debug)]
pub struct Poller(PrivateFd);

const MOST: usize = 64;

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh and owned by nothing else.
        Ok(Self(Private::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    fn control(&self, operation: i32, fd: RawFd, interest: Interest, key: u64) -> io::Result<()> {
        let events = match interest {
            Interest::Read => libc::EPOLLIN | libc::EPOLLRDHUP,
            Interest::ReadOnce => libc::EPOLLIN | libc::EPOLLONESHOT,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: key };
        // SAFETY: `event` is a valid epoll_event.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Watches `fd`.
    pub fn add(&self, fd: RawFd, interest: Interest, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, key)
    }

    /// Changes the interest in `fd`.
    pub fn modify(&self, fd: RawFd, interest: Interest, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, key)
    }

    /// Stops watching `fd`.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, Interest::Read, 0)
    }

    /// Calls `take` for each ready descriptor, at most 64 per call; waits up to `timeout` for the
    /// first (`None`: forever).
    ///
    /// # Errors
    /// EINTR if a signal has ended the wait, which no SA_RESTART prevents (signal(7)).
    pub fn wait(&self, timeout: Option<Duration>, mut take: impl FnMut(Event)) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let millis = match timeout {
            None => -1,
            // Rounded up: after a wait that ends early the caller would only wait again.
            Some(timeout) => i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
        };
        let most = i32::try_from(MOST).unwrap_or(1);
        // SAFETY: the kernel writes at most `most` events.
        let count = unsafe { uncancelled::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), most, millis) };
        let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
        let broken = (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();
        let readable = (libc::EPOLLIN | libc::EPOLLRDHUP).cast_unsigned();
        for event in &events[..count] {
            let bits = event.events;
            take(Event {
                key: event.u64,
                readable: bits & (readable | broken) != 0,
                writable: bits & (libc::EPOLLOUT.cast_unsigned() | broken) != 0,
            });
        }
        Ok(())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
