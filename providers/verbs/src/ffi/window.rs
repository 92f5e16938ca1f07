//! Memory windows: parts of registered memory that the peer of one queue pair may read.
//! All connections of a device object share its protection domain, so the key of a registration
//! gives no peer any access; a window's key gives it to one peer, until its device is told to end
//! the window, or its queue pair is destroyed.
#![allow(unsafe_code)]

use super::domain::{Domain, not_null};
use super::layout::{ACCESS_REMOTE_READ, MW_TYPE_2, Mw, SendWr, WR_BIND_MW};
use super::memory::Registered;
use crate::device::{Exposed, Place};
use crate::offers;
use core::ptr::NonNull;
use ofi_memory::Buffer;
use std::io;
use std::sync::Arc;

/// Works that open windows, of a queue pair at a time: those of the payloads that the peer may
/// read, and of others whose room in the queue a later report gives back.
pub(super) const WINDOWS: u16 = 64;
const _: () = assert!(WINDOWS as usize == 2 * offers::MOST);

/// The part of a key that the program chooses. A window gets another one each time it opens, so
/// that its last 255 keys open nothing.
const TAG: u32 = 0xff;

/// A window. It opens with work of a queue pair, which is destroyed after it, and keeps the
/// registration of its memory from ending until it is ended or freed.
#[derive(Debug)]
pub(super) struct MemoryWindow {
    window: NonNull<Mw>,
    /// With which it opens. The library's structure has the one before until the work is posted.
    key: u32,
    domain: Arc<Domain>,
}

// SAFETY: the library's calls for a window may come from any thread.
unsafe impl Send for MemoryWindow {}

impl MemoryWindow {
    pub(super) fn new(domain: &Arc<Domain>) -> io::Result<Self> {
        let missing = || io::Error::new(io::ErrorKind::Unsupported, "the device has no memory windows of type 2B");
        let domain = domain.clone();
        // SAFETY: the device is open, so its table is complete.
        let allocate = unsafe { (*domain.context.as_ptr()).ops.windows.alloc_mw };
        let allocate = allocate.filter(|_| domain.has_windows()).ok_or_else(missing)?;
        // SAFETY: the protection domain is open.
        let window = not_null(unsafe { allocate(domain.pd.as_ptr(), MW_TYPE_2) })?;
        // SAFETY: allocated just now.
        let key = unsafe { window.as_ref() }.rkey;
        Ok(Self { window, key, domain })
    }

    /// The work that opens it to registered memory, with another key than before. What is posted
    /// to the queue pair later finds it open. The work names no pieces of memory.
    fn opening(&mut self, memory: &Registered) -> SendWr {
        self.key = self.key & !TAG | self.key.wrapping_add(1) & TAG;
        let mut others = [0; 11];
        let [a, b, c, d] = self.key.to_ne_bytes();
        others[5] = self.window.as_ptr().expose_provenance() as u64;
        others[6] = u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
        others[7] = memory.handle().expose_provenance() as u64;
        (others[8], others[9], others[10]) = (memory.address(), memory.len(), ACCESS_REMOTE_READ);
        SendWr { opcode: WR_BIND_MW, others, ..SendWr::EMPTY }
    }

    /// The work that opens it is posted.
    fn note_posted(&mut self) {
        // SAFETY: the window lasts as long as this value, which alone uses it.
        unsafe { self.window.as_mut() }.rkey = self.key;
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // SAFETY: the device is open, so its table is complete.
        let free = unsafe { (*self.domain.context.as_ptr()).ops.windows.dealloc_mw };
        if let Some(free) = free {
            // SAFETY: allocated once.
            unsafe { free(self.window.as_ptr()) };
        }
    }
}

/// A payload that one peer may read, through the window with that key.
#[derive(Debug)]
pub struct Lent {
    key: u32,
    memory: Registered,
}

impl Exposed for Lent {
    fn place(&self) -> Place {
        Place { address: self.memory.address(), key: self.key }
    }

    fn withdraw(self) -> Buffer {
        self.memory.end()
    }
}

/// The windows of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Windows {
    open: Vec<MemoryWindow>,
    /// How many of them, the last ones, are to be opened by work that is not posted.
    unposted: usize,
    /// Ended ones, for the next payloads: making one is a system call.
    spare: Vec<MemoryWindow>,
    /// Keys of those that the peer has ended, until their payloads are taken back.
    ended: Vec<u32>,
}

impl Windows {
    /// Lets the peer read memory. `post` takes the work that opens a window to it, unless there is
    /// no room. It is posted before the next call.
    pub(super) fn lend(
        &mut self,
        domain: &Arc<Domain>,
        memory: Registered,
        post: impl FnOnce(SendWr) -> bool,
    ) -> Result<Lent, (Buffer, io::Error)> {
        let mut window = match self.spare.pop().map_or_else(|| MemoryWindow::new(domain), Ok) {
            Ok(window) => window,
            Err(error) => return Err((memory.end(), error)),
        };
        debug_assert_eq!(self.unposted, 0, "each payload is named by a segment, which is posted");
        if !post(window.opening(&memory)) {
            self.spare.push(window);
            return Err((memory.end(), io::ErrorKind::WouldBlock.into()));
        }
        let key = window.key;
        self.open.push(window);
        self.unposted += 1;
        Ok(Lent { key, memory })
    }

    /// All work so far is posted.
    pub(super) fn note_posted(&mut self) {
        let unposted = core::mem::take(&mut self.unposted);
        self.open.iter_mut().rev().take(unposted).for_each(MemoryWindow::note_posted);
    }

    /// The peer has ended a window.
    pub(super) fn note_ended(&mut self, key: u32) {
        self.ended.push(key);
    }

    /// Takes memory back, unless the peer may still read it.
    pub(super) fn take_back(&mut self, lent: Lent) -> Result<Buffer, Lent> {
        let Some(at) = self.ended.iter().position(|key| *key == lent.key) else { return Err(lent) };
        self.ended.swap_remove(at);
        if let Some(at) = self.open.iter().position(|window| window.key == lent.key) {
            self.spare.push(self.open.swap_remove(at));
        }
        Ok(lent.memory.end())
    }

    /// Frees all: from now on the peer reads nothing.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}
