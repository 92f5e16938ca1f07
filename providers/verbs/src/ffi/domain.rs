//! Protection domains, and what their devices can do.
#![allow(unsafe_code)]

use super::layout::{
    Context, DEVICE_WINDOWS_OF_PAIRS, DeviceAttr, Pd, QP_MAX_QP_RD_ATOMIC, QPT_RC, Qp, QpAttr, QpInitAttr, RecvWr,
    SendWr, Srq, TRANSPORT_IWARP, VENDOR_RXE, WC_WITH_INV, WC_WITH_INV_OF_RXE, WorkCompletion,
};
use super::library::Libraries;
use core::ptr::{self, NonNull};
use std::io;
use std::sync::Arc;

/// The error of a call that returned a null pointer.
pub(crate) fn not_null<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// The result of a call that returns the error, as those through the table of a device do.
pub(super) fn returned(status: i32) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status.abs())) }
}

/// A protection domain of a device that librdmacm has opened, and never closes.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) libraries: &'static Libraries,
    pub(crate) context: NonNull<Context>,
    pub(crate) pd: NonNull<Pd>,
    /// What the device can do (`IBV_DEVICE_`), and who made it.
    capabilities: u32,
    vendor: u32,
    has_shared_queues: bool,
}

// SAFETY: libibverbs may be called from any thread for the same objects.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(libraries: &'static Libraries, context: NonNull<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: librdmacm keeps its devices open.
        let pd = not_null(unsafe { (libraries.verbs.ibv_alloc_pd)(context.as_ptr()) })?;
        let mut attributes = DeviceAttr::EMPTY;
        // SAFETY: the device is open, and the place for the result is ours. If the call fails, the
        // device is taken to have nothing of it.
        unsafe { (libraries.verbs.ibv_query_device)(context.as_ptr(), &mut attributes) };
        let DeviceAttr { device_cap_flags: capabilities, vendor_id: vendor, max_srq, .. } = attributes;
        let has_shared_queues = max_srq > 0;
        Ok(Arc::new(Self { libraries, context, pd, capabilities, vendor, has_shared_queues }))
    }

    /// Posts work, and what is linked to it, to the send queue of a queue pair.
    ///
    /// # Safety
    /// The queue pair is open and of this device. The works and their lists of pieces outlive the
    /// call; the memory of the pieces is the device's until the work completes.
    pub(super) unsafe fn post_send(&self, qp: *mut Qp, work: *mut SendWr) -> io::Result<()> {
        // SAFETY: the device is open, so its table is complete.
        let post = unsafe { (*self.context.as_ptr()).ops.post_send };
        // SAFETY: by this function's contract; the place for the work that fails is ours.
        returned(unsafe { post(qp, work, &mut ptr::null_mut()) })
    }

    /// The same for a receive queue.
    ///
    /// # Safety
    /// As for [`Self::post_send`].
    pub(super) unsafe fn post_receive(&self, qp: *mut Qp, work: *mut RecvWr) -> io::Result<()> {
        // SAFETY: the device is open, so its table is complete.
        let post = unsafe { (*self.context.as_ptr()).ops.post_recv };
        // SAFETY: by this function's contract; the place for the work that fails is ours.
        returned(unsafe { post(qp, work, &mut ptr::null_mut()) })
    }

    /// The same for a shared receive queue.
    ///
    /// # Safety
    /// As for [`Self::post_send`].
    pub(super) unsafe fn post_shared_receive(&self, srq: *mut Srq, work: *mut RecvWr) -> io::Result<()> {
        // SAFETY: the device is open, so its table is complete.
        let post = unsafe { (*self.context.as_ptr()).ops.post_srq_recv };
        let post = post.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: by this function's contract; the place for the work that fails is ours.
        returned(unsafe { post(srq, work, &mut ptr::null_mut()) })
    }

    /// How many reads of a connected queue pair both devices carry out at once.
    ///
    /// # Safety
    /// The queue pair is open and of this device.
    pub(super) unsafe fn reads_at_once(&self, qp: *mut Qp) -> u16 {
        let (mut attributes, mut made) =
            (QpAttr::EMPTY, QpInitAttr::new(QPT_RC, (ptr::null_mut(), 0), (ptr::null_mut(), 0)));
        let query = self.libraries.verbs.ibv_query_qp;
        // SAFETY: by this function's contract; both places for results are ours. If the call fails,
        // it is one at a time.
        unsafe { query(qp, &mut attributes, QP_MAX_QP_RD_ATOMIC, &mut made) };
        u16::from(attributes.max_rd_atomic)
    }

    /// Whether the device has shared receive queues.
    pub(super) const fn has_shared_queues(&self) -> bool {
        self.has_shared_queues
    }

    /// Whether the device has memory windows that only the peer of one queue pair can use.
    pub(super) const fn has_windows(&self) -> bool {
        self.capabilities & DEVICE_WINDOWS_OF_PAIRS != 0
    }

    /// Whether peers can read payloads where they lie.
    pub(super) const fn may_expose(&self) -> bool {
        self.has_windows() && self.reads_safely()
    }

    /// The key of the window that a segment has ended.
    pub(super) fn ended_window(&self, done: &WorkCompletion) -> Option<u32> {
        let also = if self.vendor == VENDOR_RXE { WC_WITH_INV_OF_RXE } else { 0 };
        (done.wc_flags & (WC_WITH_INV | also) != 0).then_some(done.invalidated_rkey)
    }

    /// Whether a device may read a peer's memory into memory that the peer may not write: not on
    /// iWARP.
    pub(crate) const fn reads_safely(&self) -> bool {
        // SAFETY: librdmacm keeps its devices open.
        let device = unsafe { (*self.context.as_ptr()).device };
        // SAFETY: an open device has its description.
        let transport = unsafe { (*device).transport };
        transport != TRANSPORT_IWARP
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: allocated once; everything made in it keeps this value alive.
        unsafe { (self.libraries.verbs.ibv_dealloc_pd)(self.pd.as_ptr()) };
    }
}
