//! A queue's wait object: an epoll descriptor over its endpoints' descriptors, an eventfd as the
//! signal, a timerfd as the timer. With FI_WAIT_NONE it is the epoll descriptor alone.
#![allow(unsafe_code)]

use crate::clock;
use crate::descriptor::{Private, PrivateFd};
use crate::poller::{Event, Interest, Poller};
use crate::uncancelled;
use ofi_core::Instant;
use ofi_core::error::{Error, Result};
use ofi_core::wait::{Descriptor, WaitObject};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The epoll key of the eventfd and the timerfd.
const OWN: u64 = u64::MAX;

/// A wait object with a descriptor (epoll).
#[derive(Debug)]
pub struct FdWaitObject {
    poller: Poller,
    waiting: Option<Waiting>,
    apart: OnceLock<Box<Self>>,
    /// Watched descriptors and their keys, for a separate wait object created later.
    watched: Mutex<Vec<(Descriptor, u64)>>,
}

#[derive(Debug)]
struct Waiting {
    signal_fd: PrivateFd,
    timer: PrivateFd,
    armed_for: Mutex<Option<Instant>>,
}

impl FdWaitObject {
    /// A wait object; callers can sleep on it if `waitable`.
    pub fn new(waitable: bool) -> Result<Self> {
        let poller = Poller::new().map_err(|error| Error::os(error, "create an epoll descriptor"))?;
        let waiting = if waitable { Some(Waiting::new(&poller)?) } else { None };
        Ok(Self { poller, waiting, apart: OnceLock::new(), watched: Mutex::default() })
    }

    /// A second descriptor of it, which stays open when this one is closed.
    ///
    /// # Errors
    /// EMFILE if there is no descriptor left.
    pub fn share(&self) -> Result<OwnedFd> {
        let shared = self.poller.as_fd().try_clone_to_owned();
        shared.map_err(|error| Error::os(error, "duplicate an epoll descriptor"))
    }

    /// Whether the descriptor is readable now, for a reactor that learns only of changes.
    pub fn is_readable(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the array is one entry.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    fn watched(&self) -> MutexGuard<'_, Vec<(Descriptor, u64)>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn new(poller: &Poller) -> Result<Self> {
        // SAFETY: the call takes no pointers.
        let signal_fd = own(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }, "create an eventfd")?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: the call takes no pointers.
        let timer = own(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }, "create a timerfd")?;
        for fd in [&signal_fd, &timer] {
            poller.add(fd.as_raw_fd(), Interest::Read, OWN).map_err(|error| Error::os(error, "watch a descriptor"))?;
        }
        Ok(Self { signal_fd, timer, armed_for: Mutex::new(None) })
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

fn own(fd: i32, doing: &str) -> Result<PrivateFd> {
    if fd < 0 {
        return Err(Error::os(io::Error::last_os_error(), doing));
    }
    // SAFETY: the descriptor is fresh and owned by nothing else.
    Ok(Private::new(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn drain(fd: &PrivateFd) {
    let mut count = [0u8; 8];
    // SAFETY: the buffer has the eight bytes that the kernel writes. Nothing to drain is EAGAIN,
    // which is fine.
    unsafe { uncancelled::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

impl WaitObject for FdWaitObject {
    fn add(&self, fd: Descriptor, key: u64) -> Result<()> {
        let mut watched = self.watched();
        self.poller
            .add(fd, Interest::Read, key)
            .map_err(|error| Error::os(error, "add an endpoint's descriptor to epoll"))?;
        if let Some(apart) = self.apart.get()
            && let Err(error) = apart.add(fd, key)
        {
            drop(self.poller.remove(fd));
            return Err(error);
        }
        watched.push((fd, key));
        Ok(())
    }

    fn remove(&self, fd: Descriptor) {
        let mut watched = self.watched();
        watched.retain(|(other, _)| *other != fd);
        // Fails only if the descriptor is already gone, as wanted.
        drop(self.poller.remove(fd));
        if let Some(apart) = self.apart.get() {
            apart.remove(fd);
        }
    }

    fn ready(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) -> bool {
        let take = |event: Event| {
            if event.key != OWN {
                keys.push(event.key);
            }
        };
        // The descriptor is ours and valid: only EINTR is possible, which ends the wait early.
        self.poller.wait(timeout, take).is_err()
    }

    fn signal(&self) {
        if let Some(waiting) = &self.waiting {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the buffer has eight bytes. EAGAIN means a full counter, which is readable as
            // wanted.
            unsafe { uncancelled::write(waiting.signal_fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    fn drain(&self) {
        if let Some(waiting) = &self.waiting {
            drain(&waiting.signal_fd);
        }
    }

    fn set_timer(&self, when: Option<Instant>) {
        if let Some(waiting) = &self.waiting {
            let mut armed_for = waiting.armed_for.lock().unwrap_or_else(PoisonError::into_inner);
            // An expired timer stays readable until it is set again.
            let went_off = armed_for.is_some_and(|at| at <= clock::now());
            if *armed_for != when || went_off {
                waiting.set_timer(when);
                *armed_for = when;
            }
        }
    }

    fn apart(&self) -> Option<&dyn WaitObject> {
        // Held so that no descriptor is added or removed meanwhile, and only one caller creates it.
        let watched = self.watched();
        let made = match self.apart.get() {
            Some(made) => made,
            None => {
                // A failure is not cached: the system may have descriptors the next time.
                let apart = Self::new(true).ok()?;
                watched.iter().try_for_each(|(fd, key)| apart.add(*fd, *key)).ok()?;
                self.apart.get_or_init(|| Box::new(apart))
            }
        };
        Some(&**made)
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
    fn a_signal_makes_it_readable_until_drained() {
        let object = FdWaitObject::new(true).unwrap();
        assert!(!readable(object.descriptor(), 0));
        object.signal();
        assert!(readable(object.descriptor(), 0));
        object.drain();
        assert!(!readable(object.descriptor(), 0));
    }

    #[test]
    fn the_timer_makes_it_readable_in_time() {
        let object = FdWaitObject::new(true).unwrap();
        object.set_timer(Some(clock::now() + Duration::from_millis(5)));
        assert!(readable(object.descriptor(), 5_000));
        object.set_timer(None);
        assert!(!readable(object.descriptor(), 0));
    }

    #[test]
    fn a_separate_wait_object_has_the_same_descriptors_and_a_signal_of_its_own() {
        let object = FdWaitObject::new(true).unwrap();
        let (early, late) = (FdWaitObject::new(true).unwrap(), FdWaitObject::new(true).unwrap());
        object.add(early.descriptor(), 1).unwrap();
        let apart = object.apart().unwrap();
        object.add(late.descriptor(), 2).unwrap();
        early.signal();
        late.signal();
        let mut keys = Vec::new();
        apart.ready(Some(Duration::ZERO), &mut keys);
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
        object.remove(early.descriptor());
        object.remove(late.descriptor());
        assert!(!readable(apart.descriptor(), 0));
        object.signal();
        assert!(readable(object.descriptor(), 0) && !readable(apart.descriptor(), 0));
        apart.signal();
        apart.drain();
        assert!(readable(object.descriptor(), 0) && !readable(apart.descriptor(), 0));
        assert_eq!(object.apart().unwrap().descriptor(), apart.descriptor());
    }

    #[test]
    fn a_separate_wait_object_that_could_not_be_made_is_made_the_next_time() {
        let object = FdWaitObject::new(true).unwrap();
        // An invalid descriptor: epoll rejects it.
        object.watched().push((-1, 1));
        assert!(object.apart().is_none());
        object.watched().clear();
        assert!(object.apart().is_some());
    }

    #[test]
    fn an_end_of_waiting_is_not_an_error() {
        let object = FdWaitObject::new(true).unwrap();
        let mut keys = Vec::new();
        object.ready(Some(Duration::from_millis(1)), &mut keys);
        object.signal();
        object.ready(None, &mut keys);
        assert!(keys.is_empty());
    }
}
