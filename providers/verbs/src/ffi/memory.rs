//! Memory that a device may access while it is registered: the slots of a connection, and buffers
//! of the application.
#![allow(unsafe_code)]

use super::layout::{ACCESS_LOCAL_WRITE, ACCESS_MW_BIND, Mr};
use super::{Domain, lack_in_words, limit_of_memory};
use crate::device::SLOT;
use core::ffi::c_int;
use core::ptr::{self, NonNull};
use ofi_core::log::{self, Level, Subsystem};
use ofi_memory::Buffer;
use ofi_os::limits::may_lock_more;
use ofi_sync::primitive::real::{AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::sync::{Arc, OnceLock};

/// The alignment of slots: pages.
const ALIGN: usize = 4096;

/// What a device may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// This side's device writes it.
    Write,
    /// A peer's device reads it through a window; without one, nothing may.
    Windows,
}

impl Access {
    const fn flags(self) -> c_int {
        match self {
            Self::Write => ACCESS_LOCAL_WRITE,
            Self::Windows => ACCESS_MW_BIND,
        }
    }
}

/// Bytes of the application's memory that are registered.
static LENT: AtomicU64 = AtomicU64::new(0);

/// How many may be at a time: half of the limit of locked memory, so that new connections find
/// room.
fn most_lent() -> u64 {
    static MOST: OnceLock<u64> = OnceLock::new();
    *MOST.get_or_init(|| match limit_of_memory() {
        Some(limit) if !may_lock_more() => limit / 2,
        _ => u64::MAX,
    })
}

/// A registration: while it lasts, the device may access the memory.
#[derive(Debug)]
struct Registration {
    mr: NonNull<Mr>,
    domain: Arc<Domain>,
}

// SAFETY: the library's calls for a registration may come from any thread.
unsafe impl Send for Registration {}

impl Registration {
    /// Registers `len` bytes from `base` on.
    ///
    /// # Safety
    /// The memory is the device's until this value is dropped.
    unsafe fn new(domain: &Arc<Domain>, base: *mut u8, len: usize, access: Access) -> io::Result<Self> {
        let register = domain.libraries.verbs.ibv_reg_mr;
        // SAFETY: the protection domain is open; absent memory is an error of the call.
        let mr = unsafe { register(domain.pd.as_ptr(), base.cast(), len, access.flags()) };
        Ok(Self { mr: NonNull::new(mr).ok_or_else(io::Error::last_os_error)?, domain: domain.clone() })
    }

    fn lkey(&self) -> u32 {
        // SAFETY: the registration lasts as long as this value.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// Ends it; false if the device may still access the memory.
    fn end(&self) -> bool {
        // SAFETY: registered once; only the owner's drop calls this.
        let status = unsafe { (self.domain.libraries.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
        if status != 0 {
            log::log("verbs", Level::Warn, Subsystem::Mr, || {
                format!("a registration does not end: ibv_dereg_mr says {status}")
            });
        }
        status == 0
    }
}

/// Part of a buffer that a device may access. Invariant: `buffer` is `Some` until it is given back,
/// and the registration ends before that.
#[derive(Debug)]
pub(super) struct Registered {
    registration: Registration,
    address: u64,
    len: u64,
    buffer: Option<Buffer>,
}

impl Registered {
    /// Registers `len` bytes of a buffer from `from` on.
    pub(super) fn new(
        domain: &Arc<Domain>,
        buffer: Buffer,
        (from, len): (usize, usize),
        access: Access,
    ) -> Result<Self, (Buffer, io::Error)> {
        let end = from.checked_add(len);
        if !buffer.is_one_piece() || end.is_none_or(|end| end > buffer.len()) {
            return Err((buffer, io::Error::new(io::ErrorKind::InvalidInput, "it is not one piece of memory")));
        }
        if !domain.reads_safely() {
            let why = "reads into memory that the peer may not write are unknown to iWARP";
            return Err((buffer, io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        // Relaxed: only the sum matters.
        let (len_lent, most) = (len as u64, most_lent());
        if LENT.fetch_add(len_lent, Ordering::Relaxed).saturating_add(len_lent) > most {
            LENT.fetch_sub(len_lent, Ordering::Relaxed);
            let why = format!("payloads may lock {} KiB, half of the limit (ulimit -l)", most >> 10);
            return Err((buffer, io::Error::new(io::ErrorKind::OutOfMemory, why)));
        }
        let address = buffer.address() + from;
        let base = ptr::with_exposed_provenance_mut(address);
        // SAFETY: this value keeps the buffer until the registration has ended, and the application
        // leaves the memory of a buffer alone until the engine gives the buffer back.
        match unsafe { Registration::new(domain, base, len, access) } {
            Ok(registration) => Ok(Self { registration, address: address as u64, len: len_lent, buffer: Some(buffer) }),
            Err(error) => {
                LENT.fetch_sub(len_lent, Ordering::Relaxed);
                Err((buffer, lack_in_words(&error, "a payload", len)))
            }
        }
    }

    /// The address of the first byte, for the device.
    pub(super) const fn address(&self) -> u64 {
        self.address
    }

    /// The key for this side's device.
    pub(super) fn lkey(&self) -> u32 {
        self.registration.lkey()
    }

    /// How many bytes of the buffer the device may access.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// The registration, for windows.
    pub(super) const fn handle(&self) -> *mut Mr {
        self.registration.mr.as_ptr()
    }

    /// Ends the registration, and gives the buffer back.
    pub(super) fn end(mut self) -> Buffer {
        self.end_registration();
        self.buffer.take().unwrap_or_else(Buffer::empty)
    }

    fn end_registration(&self) {
        self.registration.end();
        LENT.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.buffer.is_some() {
            self.end_registration();
        }
    }
}

/// Registered slots. Invariant: the memory exists for as long as the registration.
#[derive(Debug)]
pub(crate) struct Slots {
    base: NonNull<u8>,
    count: u16,
    registration: Registration,
}

// SAFETY: the memory is this value's own.
unsafe impl Send for Slots {}

fn layout(count: u16) -> io::Result<Layout> {
    Layout::from_size_align(usize::from(count) * SLOT, ALIGN).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

impl Slots {
    pub(crate) fn new(domain: &Arc<Domain>, count: u16) -> io::Result<Self> {
        let layout = layout(count)?;
        // SAFETY: the layout has a size other than 0.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the memory is this value's; its drop frees it once the registration has ended.
        match unsafe { Registration::new(domain, base.as_ptr(), layout.size(), Access::Write) } {
            Ok(registration) => Ok(Self { base, count, registration }),
            Err(error) => {
                // SAFETY: allocated above with this layout, and not registered.
                unsafe { dealloc(base.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    /// The key of the registration.
    pub(crate) fn lkey(&self) -> u32 {
        self.registration.lkey()
    }

    /// The first byte of a slot.
    pub(super) fn start(&self, slot: u16) -> NonNull<u8> {
        assert!(slot < self.count, "a slot that does not exist");
        // SAFETY: the slot lies within the memory.
        unsafe { self.base.add(usize::from(slot) * SLOT) }
    }

    /// The address of a slot, for the device.
    pub(crate) fn address(&self, slot: u16) -> u64 {
        self.start(slot).addr().get() as u64
    }

    /// The bytes of a slot.
    ///
    /// # Safety
    /// The device does not have the slot.
    pub(crate) unsafe fn bytes(&self, slot: u16) -> &[u8] {
        // SAFETY: a slot is `SLOT` initialized bytes; nothing writes to it while it is borrowed, by
        // this function's contract and because changes need `&mut self`.
        unsafe { core::slice::from_raw_parts(self.start(slot).as_ptr(), SLOT) }
    }

    /// The bytes of a slot, to write to.
    ///
    /// # Safety
    /// The device does not have the slot.
    pub(crate) unsafe fn bytes_mut(&mut self, slot: u16) -> &mut [u8] {
        // SAFETY: as for `bytes`; the borrow is unique.
        unsafe { core::slice::from_raw_parts_mut(self.start(slot).as_ptr(), SLOT) }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Memory that the device may still access is never reused.
        if let (true, Ok(layout)) = (self.registration.end(), layout(self.count)) {
            // SAFETY: allocated with this layout, and no longer registered.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}
