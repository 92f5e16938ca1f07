//! Memory that a device may access while it is registered: the slots of a connection, and buffers
//! of the application.
#![allow(unsafe_code)]

use super::domain::Domain;
use super::layout::{ACCESS_LOCAL_WRITE, ACCESS_MW_BIND, Mr};
use super::library::Libraries;
use super::{lack_in_words, limit_of_memory};
use crate::device::SLOT;
use crate::kept::{Access, Kept, Limits};
use crate::{CACHE_COUNT, CACHE_MONITOR, CACHE_SIZE, watched};
use core::ffi::c_int;
use core::ops::Range;
use core::ptr::{self, NonNull};
use ofi_core::log::{self, Level, Subsystem};
use ofi_memory::Buffer;
use ofi_os::limits::{may_lock_more, memory};
use ofi_sync::primitive::real::{AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The alignment of slots: pages.
const ALIGN: usize = 4096;

/// Flags of ibv_reg_mr(3).
const fn flags(access: Access) -> c_int {
    match access {
        Access::Windows => ACCESS_MW_BIND,
        Access::Write => ACCESS_MW_BIND | ACCESS_LOCAL_WRITE,
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

/// How many registrations of payloads are kept, and how much memory they may have.
fn limits() -> Limits {
    let bytes = CACHE_SIZE.number((memory() / 8).min(most_lent() / 2));
    Limits::new(CACHE_MONITOR.text().as_deref(), CACHE_COUNT.number(watched::MOST as u64), bytes)
}

/// A registration: while it lasts, the device may access the memory, as far as posted work or a
/// window names it. It ends before its protection domain.
#[derive(Debug)]
struct Registration {
    mr: NonNull<Mr>,
    libraries: &'static Libraries,
}

// SAFETY: the library's calls for a registration may come from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `len` bytes from `base` on.
    fn new(domain: &Domain, base: *mut u8, len: usize, access: Access) -> io::Result<Self> {
        let libraries = domain.libraries;
        // SAFETY: the protection domain is open; absent memory is an error of the call.
        let mr = unsafe { (libraries.verbs.ibv_reg_mr)(domain.pd.as_ptr(), base.cast(), len, flags(access)) };
        Ok(Self { mr: NonNull::new(mr).ok_or_else(io::Error::last_os_error)?, libraries })
    }

    fn lkey(&self) -> u32 {
        // SAFETY: the registration lasts as long as this value.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// Ends it; false if the device may still access the memory.
    fn end(&self) -> bool {
        // SAFETY: registered once; only the owner's drop calls this.
        let status = unsafe { (self.libraries.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
        if status != 0 {
            log::log("verbs", Level::Warn, Subsystem::Mr, || {
                format!("a registration does not end: ibv_dereg_mr says {status}")
            });
        }
        status == 0
    }
}

/// A registration of the application's memory.
#[derive(Debug)]
pub(super) struct PayloadRegistration {
    registration: Registration,
    len: u64,
}

impl PayloadRegistration {
    fn new(domain: &Domain, range: &Range<usize>, access: Access) -> io::Result<Self> {
        let (len, most) = (range.len() as u64, most_lent());
        // Relaxed: only the sum matters.
        if LENT.fetch_add(len, Ordering::Relaxed).saturating_add(len) > most {
            LENT.fetch_sub(len, Ordering::Relaxed);
            let why = format!("payloads may lock {} KiB, half of the limit (ulimit -l)", most >> 10);
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
        }
        let base = ptr::with_exposed_provenance_mut(range.start);
        match Registration::new(domain, base, range.len(), access) {
            Ok(registration) => Ok(Self { registration, len }),
            Err(error) => {
                LENT.fetch_sub(len, Ordering::Relaxed);
                Err(lack_in_words(&error, "a payload", range.len()))
            }
        }
    }
}

impl Drop for PayloadRegistration {
    fn drop(&mut self) {
        self.registration.end();
        LENT.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// The application's memory, for a protection domain.
#[derive(Debug)]
pub(super) struct Memory {
    /// The registrations that are kept. They end before the domain does.
    kept: Mutex<Kept<PayloadRegistration>>,
    pub(super) domain: Arc<Domain>,
}

impl Memory {
    pub(super) fn new(domain: Arc<Domain>) -> Arc<Self> {
        Arc::new(Self { kept: Mutex::new(Kept::new(limits())), domain })
    }

    /// The registrations that are kept.
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept<PayloadRegistration>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the bytes of a buffer lie, if they are one piece.
pub(super) fn range_of(buffer: &Buffer, (from, len): (usize, usize)) -> Option<Range<usize>> {
    let end = from.checked_add(len).filter(|end| *end <= buffer.len() && buffer.is_one_piece())?;
    Some(buffer.address() + from..buffer.address() + end)
}

/// Part of a buffer that a device may access. Its registration may outlive it, but then nothing
/// names the memory to the device.
#[derive(Debug)]
pub(super) struct Registered {
    payload: Arc<PayloadRegistration>,
    /// After the registration: its protection domain.
    _domain: Arc<Domain>,
    range: Range<usize>,
    buffer: Buffer,
}

impl Registered {
    /// Registers `len` bytes of a buffer from `from` on.
    pub(super) fn new(
        memory: &Memory,
        buffer: Buffer,
        part: (usize, usize),
        access: Access,
    ) -> Result<Self, (Buffer, io::Error)> {
        let Some(range) = range_of(&buffer, part) else {
            return Err((buffer, io::Error::new(io::ErrorKind::InvalidInput, "it is not one piece of memory")));
        };
        let domain = &memory.domain;
        if !domain.reads_safely() {
            let why = "reads into memory that the peer may not write are unknown to iWARP";
            return Err((buffer, io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let register = |range: &Range<usize>, access| PayloadRegistration::new(domain, range, access);
        let payload = match &buffer {
            // Memory of our own is freed when the operation ends.
            Buffer::Owned(_) => register(&range, access).map(Arc::new),
            _ => memory.kept().get(&range, access, &register),
        };
        match payload {
            Ok(payload) => Ok(Self { payload, _domain: domain.clone(), range, buffer }),
            Err(error) => Err((buffer, error)),
        }
    }

    /// The address of the first byte, for the device.
    pub(super) const fn address(&self) -> u64 {
        self.range.start as u64
    }

    /// The key for this side's device.
    pub(super) fn lkey(&self) -> u32 {
        self.payload.registration.lkey()
    }

    /// How many bytes of the buffer the device may access.
    pub(super) const fn len(&self) -> u64 {
        (self.range.end - self.range.start) as u64
    }

    /// The registration, for windows.
    pub(super) fn handle(&self) -> *mut Mr {
        self.payload.registration.mr.as_ptr()
    }

    /// Gives the buffer back, which nothing names to the device any longer. Ends the registration,
    /// unless it is kept.
    pub(super) fn end(self) -> Buffer {
        self.buffer
    }
}

/// Registered slots. Invariant: the memory exists for as long as the registration.
#[derive(Debug)]
pub(crate) struct Slots {
    base: NonNull<u8>,
    count: u16,
    registration: Registration,
    /// After the registration.
    _domain: Arc<Domain>,
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
        // The drop frees the memory once the registration has ended.
        match Registration::new(domain, base.as_ptr(), layout.size(), Access::Write) {
            Ok(registration) => Ok(Self { base, count, registration, _domain: domain.clone() }),
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
