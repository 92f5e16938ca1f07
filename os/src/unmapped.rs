//! Learning that memory of this process is unmapped, moved or emptied (userfaultfd(2)). Nothing
//! watches page faults: a range is only marked, so that the kernel lets each change of it wait
//! until it is taken from here.
#![allow(unsafe_code)]

use crate::process::page_size;
use core::ops::Range;
use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Works where the system lets only privileged processes see faults of the kernel itself.
const USER_MODE_ONLY: i32 = 1;
const API: u64 = 0xaa;
/// UFFD_FEATURE_EVENT_REMAP, _REMOVE and _UNMAP.
const FEATURES: u64 = 1 << 2 | 1 << 3 | 1 << 6;
/// UFFDIO_REGISTER_MODE_WP: faults only on write-protected pages, and this process protects none.
const MODE: u64 = 2;

const IOCTL_API: libc::c_ulong = 0xc018_aa3f;
const IOCTL_REGISTER: libc::c_ulong = 0xc020_aa00;
const IOCTL_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const IOCTL_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;

const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

/// `struct uffd_msg` of the events that this module asks for.
#[repr(C)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    /// The first address; of a move, where it was.
    start: u64,
    /// Where the range ends; of a move, where it is now.
    end: u64,
    /// Of a move: how many bytes.
    len: u64,
}

const _: () = assert!(size_of::<Message>() == 32);

/// Pages of memory that nothing else uses. Dropping them unmaps them.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is this value's own.
unsafe impl Send for Pages {}
// SAFETY: shared references give no access to the bytes.
unsafe impl Sync for Pages {}

impl Pages {
    /// So many pages, with zeros.
    ///
    /// # Errors
    /// The system's: no memory.
    pub fn new(count: usize) -> io::Result<Self> {
        let len = count.checked_mul(page_size()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    /// Their addresses.
    pub fn range(&self) -> Range<usize> {
        let start = self.start.addr().get();
        start..start + self.len
    }

    /// Their bytes.
    pub const fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped, readable and writable for that length, and this value's own.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Gives the memory of some of the pages back; they have zeros again.
    ///
    /// # Errors
    /// The system's.
    pub fn empty(&mut self, pages: Range<usize>) -> io::Result<()> {
        let bytes = &mut self.bytes()[pages.start * page_size()..pages.end * page_size()];
        // SAFETY: whole pages of this value's own.
        let status = unsafe { libc::madvise(bytes.as_mut_ptr().cast(), bytes.len(), libc::MADV_DONTNEED) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nothing names it any longer.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Watches ranges of this process's memory. A thread must take the changes as long as a range is
/// watched: the threads that make them wait for that.
#[derive(Debug)]
pub struct Watcher {
    descriptor: OwnedFd,
    /// For [`Self::is_quiet`].
    own: Pages,
}

impl Watcher {
    /// A watcher without ranges.
    ///
    /// # Errors
    /// The system's: EPERM or ENOSYS where it does not let this process watch its memory.
    pub fn new() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes no pointers.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let raw = i32::try_from(raw).ok().filter(|raw| *raw >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a new descriptor, which nothing else owns.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        let watcher = Self { descriptor, own: Pages::new(1)? };
        watcher.call(IOCTL_API, &mut [API, FEATURES, 0])?;
        watcher.watch(&watcher.own.range())?;
        Ok(watcher)
    }

    fn call<const N: usize>(&self, request: libc::c_ulong, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: each request takes a structure of as many words.
        let status = unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request, words.as_mut_ptr()) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Watches a range of whole pages.
    ///
    /// # Errors
    /// The system's: part of it is not mapped, is a mapped file, or is watched by somebody else.
    pub fn watch(&self, range: &Range<usize>) -> io::Result<()> {
        self.call(IOCTL_REGISTER, &mut [range.start as u64, range.len() as u64, MODE, 0])
    }

    /// Watches a range no longer. What of it is not watched stays as it is.
    pub fn forget(&self, range: &Range<usize>) {
        // What is unmapped is not watched any longer.
        drop(self.call(IOCTL_UNREGISTER, &mut [range.start as u64, range.len() as u64]));
    }

    /// Whether no change has begun that is not taken. If so, memory that the caller may use now is
    /// what it was when it was watched, unless a change of it was taken since.
    pub fn is_quiet(&self) -> bool {
        // Takes protection off that is not there. The kernel refuses that meanwhile.
        let page = self.own.range();
        self.call(IOCTL_WRITEPROTECT, &mut [page.start as u64, page.len() as u64, 0]).is_ok()
    }

    /// Waits until there is a change.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&self) -> io::Result<()> {
        let mut waits = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, as the call is told.
        match unsafe { libc::poll(&mut waits, 1, -1) } {
            1 if waits.revents & libc::POLLIN != 0 => Ok(()),
            1 => Err(io::ErrorKind::BrokenPipe.into()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Takes the next change: a range whose memory is no longer what it was. `None` without one.
    pub fn take(&self) -> Option<Range<usize>> {
        let mut message = Message { event: 0, reserved: [0; 7], start: 0, end: 0, len: 0 };
        let room = ptr::from_mut(&mut message).cast::<libc::c_void>();
        // SAFETY: the structure has the size that is named.
        let count = unsafe { libc::read(self.descriptor.as_raw_fd(), room, size_of::<Message>()) };
        if count != 32 {
            return None;
        }
        let address = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
        let start = address(message.start);
        Some(match message.event {
            EVENT_UNMAP | EVENT_REMOVE => start..address(message.end),
            EVENT_REMAP => start..start.saturating_add(address(message.len)),
            // Of a kind that nobody asked for.
            _ => 0..usize::MAX,
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Or unmapping it would wait for somebody who takes it.
        self.forget(&self.own.range());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    fn written(count: usize) -> Pages {
        let mut pages = Pages::new(count).unwrap();
        pages.bytes().fill(1);
        pages
    }

    /// Changes memory in another thread, and says when it is done.
    fn elsewhere(change: impl FnOnce() + Send + 'static) -> Receiver<()> {
        let (said, heard) = channel();
        std::thread::spawn(move || {
            change();
            said.send(()).unwrap();
        });
        heard
    }

    fn watcher() -> Option<Watcher> {
        match Watcher::new() {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let refused = [Some(libc::EPERM), Some(libc::ENOSYS)].contains(&error.raw_os_error());
                assert!(refused, "{error}");
                eprintln!("not tested: the system lets this process not watch its memory: {error}");
                None
            }
        }
    }

    #[test]
    fn a_change_waits_until_it_is_taken() {
        let Some(watcher) = watcher() else { return };
        for unmaps in [true, false] {
            let mut pages = written(4);
            let range = pages.range();
            watcher.watch(&range).unwrap();
            assert!(watcher.is_quiet() && watcher.take().is_none());
            let done = elsewhere(move || {
                if unmaps {
                    drop(pages);
                } else {
                    pages.empty(0..4).unwrap();
                    core::mem::forget(pages);
                }
            });
            watcher.wait().unwrap();
            assert!(!watcher.is_quiet() && done.try_recv().is_err());
            assert_eq!(watcher.take(), Some(range.clone()));
            done.recv().unwrap();
            assert!(watcher.is_quiet());
            watcher.forget(&range);
        }
    }

    #[test]
    fn what_is_forgotten_changes_without_notice() {
        let Some(watcher) = watcher() else { return };
        let pages = written(2);
        watcher.watch(&pages.range()).unwrap();
        watcher.forget(&pages.range());
        elsewhere(move || drop(pages)).recv().unwrap();
        assert!(watcher.is_quiet() && watcher.take().is_none());
    }

    #[test]
    fn a_watcher_that_goes_leaves_its_ranges() {
        let Some(watcher) = watcher() else { return };
        let pages = written(2);
        watcher.watch(&pages.range()).unwrap();
        drop(watcher);
        elsewhere(move || drop(pages)).recv().unwrap();
    }
}
