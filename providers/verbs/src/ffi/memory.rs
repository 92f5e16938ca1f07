//! The slots of a connection: memory that the device may access while it is registered.
#![allow(unsafe_code)]

use super::Domain;
use super::layout::{ACCESS_LOCAL_WRITE, Mr};
use crate::device::SLOT;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::sync::Arc;

/// The alignment of slots: pages.
const ALIGN: usize = 4096;

/// Registered slots. Invariant: the memory exists for as long as the registration.
#[derive(Debug)]
pub(crate) struct Slots {
    base: NonNull<u8>,
    count: u16,
    mr: NonNull<Mr>,
    domain: Arc<Domain>,
}

// SAFETY: the memory is this value's own, and the library's calls for a registration may come from
// any thread.
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
        // SAFETY: the protection domain is open; the memory is `layout.size()` bytes of ours.
        let mr = unsafe {
            (domain.libraries.verbs.ibv_reg_mr)(
                domain.pd.as_ptr(),
                base.as_ptr().cast(),
                layout.size(),
                ACCESS_LOCAL_WRITE,
            )
        };
        let Some(mr) = NonNull::new(mr) else {
            let error = io::Error::last_os_error();
            // SAFETY: allocated above with this layout, and not registered.
            unsafe { dealloc(base.as_ptr(), layout) };
            return Err(error);
        };
        Ok(Self { base, count, mr, domain: domain.clone() })
    }

    /// The key of the registration.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the registration lasts as long as this value.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    fn start(&self, slot: u16) -> NonNull<u8> {
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
        // SAFETY: registered once; the owner has destroyed the queue pair that used it.
        let left = unsafe { (self.domain.libraries.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
        // Memory that the device may still access is never reused.
        if let (0, Ok(layout)) = (left, layout(self.count)) {
            // SAFETY: allocated with this layout, and no longer registered.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}
