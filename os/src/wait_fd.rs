//! A queue's port: one epoll descriptor over its endpoints' descriptors, an eventfd as the bell, a timerfd as the
//! alarm. Without waiting (FI_WAIT_NONE) it is the epoll descriptor alone.
#![allow(unsafe_code)]

use crate::clock;
use crate::poller::{Event, Interest, Poller};
use ofi_core::Instant;
use ofi_core::error::{Error, Result};
use ofi_core::wait::{Descriptor, Port};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

/// The key under which the bell and the alarm are watched.
const OWN: u64 = u64::MAX;

/// A set of descriptors with news, a bell and an alarm.
#[derive(Debug)]
pub struct WaitPort {
    poller: Poller,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bell: OwnedFd,
    timer: OwnedFd,
    alarm: Mutex<Option<Instant>>,
}

impl WaitPort {
    /// A port; one that can sleep if `waitable`.
    pub fn new(waitable: bool) -> Result<Self> {
        let poller = Poller::new().map_err(|error| Error::os(error, "make an epoll descriptor"))?;
        let waiting = if waitable { Some(Waiting::new(&poller)?) } else { None };
        Ok(Self { poller, waiting })
    }
}

impl Waiting {
    fn new(poller: &Poller) -> Result<Self> {
        // SAFETY: the call takes no pointers.
        let bell = own(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }, "make an eventfd")?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: the call takes no pointers.
        let timer = own(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }, "make a timerfd")?;
        for fd in [&bell, &timer] {
            poller.add(fd.as_raw_fd(), Interest::Read, OWN).map_err(|error| Error::os(error, "watch a descriptor"))?;
        }
        Ok(Self { bell, timer, alarm: Mutex::new(None) })
    }

    fn set_timer(&self, when: Option<Instant>) {
        let nanos = when.map_or(0, |when| when.nanos().max(1));
        let value = libc::timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
        };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: none, it_value: value };
        // SAFETY: `spec` is a valid itimerspec, and the old setting is not asked for.
        unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &spec, core::ptr::null_mut()) };
    }
}

fn own(fd: i32, doing: &str) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(Error::os(io::Error::last_os_error(), doing));
    }
    // SAFETY: the descriptor is fresh and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn drain(fd: &OwnedFd) {
    let mut count = [0u8; 8];
    // SAFETY: the buffer has the eight bytes that the kernel writes. Nothing to drain is EAGAIN, which is fine.
    unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

impl Port for WaitPort {
    fn add(&self, fd: Descriptor, key: u64) -> Result<()> {
        self.poller.add(fd, Interest::Read, key).map_err(|error| Error::os(error, "watch an endpoint's descriptor"))
    }

    fn remove(&self, fd: Descriptor) {
        // Fails only if the descriptor is gone already, which is what is wanted.
        drop(self.poller.remove(fd));
    }

    fn ready(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) {
        let take = |event: Event| {
            if event.key != OWN {
                keys.push(event.key);
            }
        };
        // The descriptor is ours and valid: only EINTR can come, and that ends the wait early.
        drop(self.poller.wait(timeout, take));
    }

    fn ring(&self) {
        if let Some(waiting) = &self.waiting {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the buffer has eight bytes. A full counter is EAGAIN: then it is readable, which is the purpose.
            unsafe { libc::write(waiting.bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    fn quiet(&self) {
        if let Some(waiting) = &self.waiting {
            drain(&waiting.bell);
        }
    }

    fn alarm(&self, when: Option<Instant>) {
        if let Some(waiting) = &self.waiting {
            let mut alarm = waiting.alarm.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // An alarm that went off stays readable until it is set anew.
            let went_off = alarm.is_some_and(|at| at <= clock::now());
            if *alarm != when || went_off {
                waiting.set_timer(when);
                *alarm = when;
            }
        }
    }

    fn descriptor(&self) -> Descriptor {
        self.poller.as_raw_fd()
    }

    fn now(&self) -> Instant {
        clock::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(fd: Descriptor, timeout: i32) -> bool {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&mut poll, 1, timeout) == 1 }
    }

    #[test]
    fn the_bell_makes_it_readable_until_quiet() {
        let port = WaitPort::new(true).unwrap();
        assert!(!readable(port.descriptor(), 0));
        port.ring();
        assert!(readable(port.descriptor(), 0));
        port.quiet();
        assert!(!readable(port.descriptor(), 0));
    }

    #[test]
    fn the_alarm_makes_it_readable_in_time() {
        let port = WaitPort::new(true).unwrap();
        port.alarm(Some(clock::now() + Duration::from_millis(5)));
        assert!(readable(port.descriptor(), 5_000));
        port.alarm(None);
        assert!(!readable(port.descriptor(), 0));
    }

    #[test]
    fn an_end_of_waiting_is_not_an_error() {
        let port = WaitPort::new(true).unwrap();
        let mut keys = Vec::new();
        port.ready(Some(Duration::from_millis(1)), &mut keys);
        port.ring();
        port.ready(None, &mut keys);
        assert!(keys.is_empty());
    }
}
