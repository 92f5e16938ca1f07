//! Identifiers of the connection manager: an address, and the device that leads there.
#![allow(unsafe_code)]

use super::address;
use super::channel::Channel;
use super::domain::Domain;
use super::layout::{CmId, Context, QpInitAttr};
use core::ptr::{self, NonNull};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// An identifier. Dropping it closes it; its queue pair is destroyed before.
#[derive(Debug)]
pub(super) struct Identifier {
    id: NonNull<CmId>,
    pub(super) channel: Arc<Channel>,
}

// SAFETY: librdmacm may be called from any thread for the same objects.
unsafe impl Send for Identifier {}

/// Bytes of a segment that a device is to take along with the work: a small message with its
/// headers.
const INLINE: u32 = 256;

/// The result of a call that returns a status and sets errno(3).
pub(super) fn result(status: i32) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Identifier {
    /// Takes over an open identifier, which belongs to the channel.
    pub(super) const fn new(id: NonNull<CmId>, channel: Arc<Channel>) -> Self {
        Self { id, channel }
    }

    /// For calls of the library.
    pub(super) const fn raw(&self) -> *mut CmId {
        self.id.as_ptr()
    }

    /// The address of this side, or of the peer.
    pub(super) fn address(&self, remote: bool) -> Option<SocketAddr> {
        // SAFETY: the identifier is open, and this thread alone uses it.
        let id = unsafe { self.id.as_ref() };
        address::decode(if remote { &id.destination.0 } else { &id.source.0 })
    }

    /// The device that the connection manager has chosen.
    pub(super) const fn context(&self) -> Option<NonNull<Context>> {
        // SAFETY: the identifier is open, and this thread alone uses it.
        NonNull::new(unsafe { (*self.id.as_ptr()).verbs })
    }

    /// The number of the device's port that it is bound to.
    pub(super) const fn port(&self) -> u8 {
        // SAFETY: the identifier is open, and this thread alone uses it.
        unsafe { (*self.id.as_ptr()).port }
    }

    /// Gives it another key, which its events report.
    pub(super) fn set_key(&self, key: u64) {
        let context = ptr::without_provenance_mut(usize::try_from(key).unwrap_or(0));
        // SAFETY: the identifier is open, and this thread alone uses it. The context is a number.
        unsafe { (*self.id.as_ptr()).context = context };
    }

    /// Binds it to an address; returns the address with its port.
    pub(super) fn bind(&self, addr: SocketAddr) -> io::Result<SocketAddr> {
        let mut storage = address::encode(addr);
        // SAFETY: the identifier is open, and the address is complete.
        result(unsafe { (self.channel.libraries.cm.rdma_bind_addr)(self.raw(), &mut storage) })?;
        Ok(self.address(false).unwrap_or(addr))
    }

    /// Listens at the address that it is bound to.
    pub(super) fn listen(&self, backlog: i32) -> io::Result<()> {
        // SAFETY: the identifier is open.
        result(unsafe { (self.channel.libraries.cm.rdma_listen)(self.raw(), backlog) })
    }

    /// Starts to join a group through the device that it is bound to.
    pub(super) fn join(&self, group: SocketAddr) -> io::Result<()> {
        let mut group = address::encode(group);
        let join = self.channel.libraries.cm.rdma_join_multicast;
        // SAFETY: the identifier is open, and the address is complete. The context is a number.
        result(unsafe { join(self.raw(), &mut group, ptr::null_mut()) })
    }

    /// Leaves a group, also while it is joined. The library keeps what it knows of it until then.
    pub(super) fn leave(&self, group: SocketAddr) {
        let mut group = address::encode(group);
        // SAFETY: the identifier is open, and the address is complete.
        unsafe { (self.channel.libraries.cm.rdma_leave_multicast)(self.raw(), &mut group) };
    }

    /// Starts to find the peer and a way to it.
    pub(super) fn resolve(&self, from: Option<SocketAddr>, to: SocketAddr, timeout: i32) -> io::Result<()> {
        let mut from = from.map(address::encode);
        let from = from.as_mut().map_or(ptr::null_mut(), |from| &raw mut *from);
        let mut to = address::encode(to);
        // SAFETY: the identifier is open; both addresses are complete, or the first is null.
        result(unsafe { (self.channel.libraries.cm.rdma_resolve_addr)(self.raw(), from, &mut to, timeout) })
    }

    /// Starts to find the route.
    pub(super) fn resolve_route(&self, timeout: i32) -> io::Result<()> {
        // SAFETY: the identifier is open.
        result(unsafe { (self.channel.libraries.cm.rdma_resolve_route)(self.raw(), timeout) })
    }

    /// Creates its queue pair, which takes up to [`INLINE`] bytes of a segment along with the work;
    /// returns how many.
    pub(super) fn create_pair(&self, domain: &Domain, attributes: &mut QpInitAttr) -> io::Result<usize> {
        let create = self.channel.libraries.cm.rdma_create_qp;
        let mut attempt = |inline: u32| {
            attributes.max_inline_data = inline;
            // SAFETY: the identifier is open and has no queue pair; the domain and the attributes'
            // queues are its device's.
            result(unsafe { create(self.raw(), domain.pd.as_ptr(), attributes) })
        };
        // A device that takes less refuses, and no call tells its limit.
        attempt(INLINE).or_else(|_| attempt(INLINE / 2)).or_else(|_| attempt(0))?;
        Ok(usize::try_from(attributes.max_inline_data).unwrap_or(0))
    }

    /// Its queue pair.
    pub(super) const fn pair(&self) -> *mut super::layout::Qp {
        // SAFETY: the identifier is open, and this thread alone uses it.
        unsafe { (*self.id.as_ptr()).qp }
    }

    /// The number of its queue pair; 0 without one.
    pub(super) const fn number(&self) -> u32 {
        let qp = self.pair();
        // SAFETY: the identifier's queue pair exists.
        if qp.is_null() { 0 } else { unsafe { (*qp).number } }
    }

    /// Moves it to another channel.
    pub(super) fn migrate(&mut self, channel: &Arc<Channel>) -> io::Result<()> {
        let migrate = self.channel.libraries.cm.rdma_migrate_id;
        // SAFETY: both are open, and all events of the identifier are acknowledged.
        result(unsafe { migrate(self.raw(), channel.raw()) })?;
        self.channel = channel.clone();
        Ok(())
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: the identifier is open, has no queue pair, and all its events are acknowledged.
        unsafe { (self.channel.libraries.cm.rdma_destroy_id)(self.raw()) };
    }
}
