//! Messages with more than a tag.

use crate::buf::IoBuf;
use crate::inner::{Inner, To};
use crate::operation::Operation;
use ofi_core::{FiAddr, OpFlags};

/// Messages of any peer.
pub(crate) const ANY: To = Ok(FiAddr::UNSPEC);
/// The peer of a connected endpoint.
pub(crate) const CONNECTED: To = Ok(FiAddr::UNSPEC);

/// A message to send, with what it carries beside its bytes (fi_sendmsg, fi_tsendmsg).
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// # let ep = RdmEndpoint::open(&domain, &info)?;
/// # let me = ep.peer(ep.local_addr()?)?;
/// # let receive = ep.receive_tagged(1, 0, [0u8; 8]);
/// let send = ep.message(me).tag(1).data(2).delivery_complete().send(*b"received");
/// # let (received, sent) = ofi::block_on(async { (receive.await, send.await) });
/// # assert_eq!((sent.0.is_ok(), received.0?.data()), (true, Some(2)));
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a message is sent by `send`"]
pub struct Message<'a> {
    on: &'a Inner,
    peer: To,
    tag: Option<u64>,
    data: Option<u64>,
    flags: OpFlags,
}

impl<'a> Message<'a> {
    pub(crate) const fn new(on: &'a Inner, peer: To) -> Self {
        Self { on, peer, tag: None, data: None, flags: OpFlags::empty() }
    }

    /// A tag: only tagged receives take the message (fi_tagged(3)).
    pub const fn tag(self, tag: u64) -> Self {
        Self { tag: Some(tag), ..self }
    }

    /// Data for the completion of the receive (FI_REMOTE_CQ_DATA).
    pub const fn data(self, data: u64) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The send completes when the peer's endpoint has the message (FI_DELIVERY_COMPLETE,
    /// fi_cq(3)).
    pub fn delivery_complete(self) -> Self {
        Self { flags: self.flags | OpFlags::DELIVERY_COMPLETE, ..self }
    }

    /// The send completes when the peer's program has posted a receive that takes the message
    /// (FI_MATCH_COMPLETE, fi_cq(3)).
    pub fn match_complete(self) -> Self {
        Self { flags: self.flags | OpFlags::MATCH_COMPLETE, ..self }
    }

    /// Sends it.
    pub fn send<B: IoBuf>(self, buf: B) -> Operation<'a, B> {
        let data = if self.data.is_some() { OpFlags::REMOTE_CQ_DATA } else { OpFlags::empty() };
        self.on.send(self.peer, (self.tag, self.data), self.flags | data, buf)
    }
}
