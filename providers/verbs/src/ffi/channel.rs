//! Event channels of the connection manager.
#![allow(unsafe_code)]

use super::domain::not_null;
use super::layout::{
    CmEvent, CmId, EventChannel, PS_TCP, PS_UDP, QP_MIN_RNR_TIMER, Qp, QpAttr, UdParam, event as events,
};
use super::library::Libraries;
use core::ptr::{self, NonNull};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::wait::Descriptor;
use ofi_os::descriptor::set_nonblocking;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The shortest time that a device can wait before it tries again: 10 us.
const SHORTEST_WAIT: u8 = 1;

/// A channel, open for as long as an identifier is on it.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(super) libraries: &'static Libraries,
    channel: NonNull<EventChannel>,
    /// What its identifiers are for.
    space: Space,
}

/// The port space of identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Connections,
    Packets,
}

// SAFETY: librdmacm may be called from any thread for the same objects.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// An event, without what belongs to the library.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: i32,
    pub(super) status: i32,
    /// The key of its identifier.
    pub(super) key: u64,
    /// The new identifier of a request.
    pub(super) requested: Option<NonNull<CmId>>,
    pub(super) data: Vec<u8>,
    /// The way to the queue pair, or the group, of an identifier for packets, once it is known.
    pub(super) way: Option<UdParam>,
}

impl Channel {
    pub(super) fn new(libraries: &'static Libraries, space: Space) -> io::Result<Arc<Self>> {
        // SAFETY: the call takes no arguments.
        let channel = not_null(unsafe { (libraries.cm.rdma_create_event_channel)() })?;
        let channel = Self { libraries, channel, space };
        // SAFETY: the channel lasts until the end of the function.
        set_nonblocking(unsafe { BorrowedFd::borrow_raw(channel.descriptor()) })?;
        Ok(Arc::new(channel))
    }

    pub(super) const fn raw(&self) -> *mut EventChannel {
        self.channel.as_ptr()
    }

    /// Readable when there is an event.
    pub(super) const fn descriptor(&self) -> Descriptor {
        // SAFETY: the channel lasts as long as this value.
        unsafe { (*self.channel.as_ptr()).fd }
    }

    /// A new identifier with a key.
    pub(super) fn identifier(&self, key: u64) -> io::Result<NonNull<CmId>> {
        let mut id = ptr::null_mut();
        let create = self.libraries.cm.rdma_create_id;
        let space = match self.space {
            Space::Connections => PS_TCP,
            Space::Packets => PS_UDP,
        };
        let context = ptr::without_provenance_mut(usize::try_from(key).unwrap_or(0));
        // SAFETY: the channel is open, and the place for the result is ours; the context is a
        // number.
        let failed = unsafe { create(self.raw(), &mut id, context, space) };
        if failed == 0 { not_null(id) } else { Err(io::Error::last_os_error()) }
    }

    /// The next event, if there is one; a readable descriptor does not mean that, because the
    /// library keeps some events to itself. `owns`: the queue pairs of this channel's identifiers
    /// share slots, and only this thread destroys them.
    pub(super) fn next(&self, owns: bool) -> io::Result<Event> {
        let mut event: *mut CmEvent = ptr::null_mut();
        // SAFETY: the channel is open, and the place for the result is ours.
        let failed = unsafe { (self.libraries.cm.rdma_get_cm_event)(self.raw(), &mut event) };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the library has returned an event, which stays until it is acknowledged.
        let CmEvent { id, listen_id, event: kind, status, param } = unsafe { event.read() };
        // SAFETY: both members begin with the private data, and every event has it or zeros.
        let conn = unsafe { param.conn };
        let len = usize::from(conn.private_data_len);
        let tells_way = matches!(kind, events::ESTABLISHED | events::MULTICAST_JOIN);
        let way = if self.space == Space::Packets && tells_way {
            // SAFETY: the member is that of the identifiers' port space.
            Some(unsafe { param.ud })
        } else {
            None
        };
        let data = if conn.private_data.is_null() || len == 0 {
            Vec::new()
        } else {
            // SAFETY: the event has `len` bytes of private data.
            unsafe { core::slice::from_raw_parts(conn.private_data.cast::<u8>(), len) }.to_vec()
        };
        let key = if id.is_null() {
            0
        } else {
            // SAFETY: the identifier of an event exists until the event is acknowledged.
            unsafe { (*id).context }.addr() as u64
        };
        if kind == events::ESTABLISHED && owns && !id.is_null() {
            // SAFETY: as above; only this thread destroys its queue pair.
            self.set_wait(unsafe { (*id).qp });
        }
        let requested = if listen_id.is_null() { None } else { NonNull::new(id) };
        // SAFETY: the event is acknowledged once, and nothing of it is used later.
        unsafe { (self.libraries.cm.rdma_ack_cm_event)(event) };
        Ok(Event { kind, status, key, requested, data, way })
    }
}

impl Channel {
    /// Sets how long a sender's device waits before it tries again to send a segment for which no
    /// slot is posted. librdmacm sets the longest time there is (0.65 s).
    fn set_wait(&self, qp: *mut Qp) {
        let mut attributes = QpAttr::with_timer(SHORTEST_WAIT);
        if qp.is_null() {
            return;
        }
        // SAFETY: the identifier's queue pair exists, and the attribute is the one that is named.
        let status = unsafe { (self.libraries.verbs.ibv_modify_qp)(qp, &mut attributes, QP_MIN_RNR_TIMER) };
        if status != 0 {
            log::log("verbs", Level::Warn, Subsystem::EpCtrl, || {
                format!("peers without a slot wait for long: ibv_modify_qp says {status}")
            });
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created once; its identifiers kept this value alive.
        unsafe { (self.libraries.cm.rdma_destroy_event_channel)(self.raw()) };
    }
}
