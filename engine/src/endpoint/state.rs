//! Entries of the engine's tables: peers, links, and the operations under way.

use super::credit::RxCredits;
use crate::hash::HashMap;
use crate::limits::Limits;
use crate::match_queue::QueueKind;
use crate::transport::{Down, LinkId};
use crate::wire::frame::{AckMode, Frame, MOST_EAGER, MessageInfo};
use crate::wire::hello::{Credits, EndpointKind};
use arrayvec::ArrayVec;
use ofi_core::{Addr, Caps, FiAddr, Instant};
use ofi_memory::{Buffer, Lent, Ticket};
use ofi_sync::account::Account;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// After this side's connect gives way to the peer's, how long to wait for the peer's connection
/// before trying again.
pub(super) const YIELD: Duration = Duration::from_secs(1);
/// Free space, in bytes, below which a multi-receive buffer is released, unless set
/// (FI_OPT_MIN_MULTI_RECV).
pub(super) const MIN_MULTI_RECV: usize = 16 << 10;
/// How long closing may take.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connectionless or connected.
    pub kind: EndpointKind,
    /// Capabilities.
    pub caps: Caps,
    /// Maximum number of outstanding sends.
    pub tx_size: usize,
    /// Maximum number of posted receives.
    pub rx_size: usize,
    /// Message size limits.
    pub limits: Limits,
    /// Random number that identifies this endpoint.
    pub nonce: [u8; 16],
    /// The provider's name, for logs.
    pub provider: &'static str,
    /// Charged with the memory that the engine and its transport hold for peers.
    pub account: Arc<Account>,
}

/// Index of a peer in the engine's table.
pub(super) type PeerId = u32;

/// Connection state of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    /// No link.
    Idle,
    /// A link is being set up.
    Connecting(LinkId),
    /// This side's connect gave way to the peer's own connection, which has not come yet.
    Yielding(Yielding),
    /// A link is open.
    Open(LinkId),
}

/// How long to wait for a peer's own connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yielding {
    /// The wait starts with the next tick, which sets its deadline.
    Begun,
    /// Until this deadline.
    Until(Instant),
    /// No longer: the next tick connects to the peer, or asks it about links that claim its name.
    Over,
    /// No longer: the peer was asked this many times and denied each time that the links are its
    /// own.
    Denied(u8),
}

/// A peer endpoint.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) addr: Option<Addr>,
    pub(super) handle: FiAddr,
    pub(super) state: PeerState,
    /// Sends that wait for a link or for credit, in order.
    pub(super) waiting: VecDeque<u32>,
    /// Number of links to it; sends use at most one.
    pub(super) links: u32,
    /// Number of its unexpected messages.
    pub(super) unexpected: u32,
    /// The account is charged [`PEER_COST`]: a link of the peer ended and left unexpected messages.
    pub(super) charged: bool,
}

impl Peer {
    pub(super) const fn new(addr: Option<Addr>, handle: FiAddr) -> Self {
        let waiting = VecDeque::new();
        Self { addr, handle, state: PeerState::Idle, waiting, links: 0, unexpected: 0, charged: false }
    }
}

/// Charge, in bytes, for a peer whose link left unexpected messages: its table and map entries.
pub(super) const PEER_COST: usize = 512;

/// The operation that a payload arriving on a link belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coming {
    Receive { key: u32, id: u32, info: MessageInfo, len: usize },
    Unexpected { key: u32 },
    Data { key: u32, len: usize },
}

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Carries frames in both directions.
    Carry,
    /// The same, but the peer has not proven that it has this name: receive only.
    Unproven(Addr),
    /// Asks the owner of a name which of the links that claim the name are its own; counts
    /// attempts.
    Verify(u8),
}

/// A message that is acknowledged only after those before it (FI_FENCE).
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The sender's number for it.
    pub(super) id: u32,
    pub(super) level: AckMode,
    /// Its sequence number on the link.
    pub(super) seq: u32,
    /// Number of messages before it that have not reached `level`.
    pub(super) left: usize,
    /// It has reached `level` itself.
    pub(super) reached: bool,
}

/// State of a link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) purpose: Purpose,
    /// Copy of the peer's handle: saves arriving messages the lookup.
    pub(super) src: FiAddr,
    /// The peer's random number; zero until its hello arrives.
    pub(super) nonce: [u8; 16],
    /// The peer's count of connection attempts when it sent its hello.
    pub(super) attempt: u64,
    /// The connection's random number, chosen by the initiator.
    pub(super) cookie: [u8; 16],
    /// This side is the initiator.
    pub(super) ours: bool,
    /// The owner of the claimed name has been asked about this link.
    pub(super) asked: bool,
    pub(super) remote: Option<Addr>,
    /// Credit that we have left, in bytes of cost.
    pub(super) out: u64,
    /// The longest message that we may send eagerly, in bytes.
    pub(super) eager: usize,
    /// We have told the peer that our credit does not suffice.
    pub(super) said_blocked: bool,
    /// Credit of the peer.
    pub(super) credit: RxCredits,
    /// Credit that the peer's next message needs, if it lacks credit.
    pub(super) blocked: Option<u64>,
    /// The account has no room for that credit.
    pub(super) starved: bool,
    /// Number of messages received; wraps.
    pub(super) seq: u32,
    /// Number of arrivals to acknowledge to the peer.
    pub(super) arrived: u32,
    /// In the list of links with deferred arrival acknowledgments.
    pub(super) lazy: bool,
    /// Sends that wait for an arrival acknowledgment, in order.
    pub(super) unarrived: VecDeque<u32>,
    pub(super) fences: Vec<Fence>,
    pub(super) control: VecDeque<Frame>,
    /// Sends that have their CTS, served in turn from the front.
    pub(super) data_queue: VecDeque<u32>,
    pub(super) coming: Option<Coming>,
    /// The peer has sent Bye.
    pub(super) bye: bool,
    /// We have sent Bye.
    pub(super) bye_sent: bool,
    /// In the list of links with something to send.
    pub(super) pending: bool,
}

impl Link {
    pub(super) const fn new(peer: PeerId, credit: RxCredits, cookie: [u8; 16], ours: bool) -> Self {
        Self {
            peer,
            purpose: Purpose::Carry,
            src: FiAddr::UNSPEC,
            nonce: [0; 16],
            attempt: 0,
            cookie,
            ours,
            asked: false,
            remote: None,
            out: 0,
            eager: 0,
            said_blocked: false,
            credit,
            blocked: None,
            starved: false,
            seq: 0,
            arrived: 0,
            lazy: false,
            unarrived: VecDeque::new(),
            fences: Vec::new(),
            control: VecDeque::new(),
            data_queue: VecDeque::new(),
            coming: None,
            bye: false,
            bye_sent: false,
            pending: false,
        }
    }

    /// Takes the initial credit that the peer's hello grants.
    pub(super) const fn granted_by_peer(&mut self, credits: Credits) {
        self.out = credits.bytes;
        self.eager = credits.eager as usize;
        if self.eager > MOST_EAGER {
            self.eager = MOST_EAGER;
        }
    }
}

/// Progress of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendStage {
    /// Waits for a link or for credit.
    Waiting,
    /// The transport holds its payload. `acked`: the acknowledgment has overtaken the report that
    /// it was sent.
    Sending { link: LinkId, acked: bool },
    /// The RTS is sent; waits for the CTS.
    RtsSent { link: LinkId },
    /// The CTS has arrived: the bytes from `at` to `end` are still to be sent, `flying` of them are
    /// with the transport.
    SendingData { link: LinkId, token: u32, at: usize, end: usize, flying: usize },
    /// Sent; waits for the acknowledgment.
    Sent { link: LinkId },
    /// Submitted to a broken link; fails when the link goes down.
    LinkFailed { link: LinkId },
}

impl SendStage {
    pub(super) const fn link(self) -> Option<LinkId> {
        match self {
            Self::Waiting => None,
            Self::Sending { link, .. }
            | Self::RtsSent { link }
            | Self::SendingData { link, .. }
            | Self::Sent { link }
            | Self::LinkFailed { link } => Some(link),
        }
    }
}

/// A send that did not complete within its call.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) lent: Lent,
    pub(super) peer: PeerId,
    pub(super) stage: SendStage,
    pub(super) info: MessageInfo,
    pub(super) len: usize,
    pub(super) seq: u64,
    /// FI_INJECT: the buffer is this endpoint's copy.
    pub(super) inject: bool,
    /// FI_FENCE: leaves when everything sent to the peer before it is done.
    pub(super) fenced: bool,
}

/// Receiver side of a rendezvous: `at` of `want` bytes have arrived, of a message of `total` bytes.
#[derive(Debug)]
pub(super) struct RendezvousRecv {
    pub(super) link: LinkId,
    pub(super) id: u32,
    pub(super) info: MessageInfo,
    pub(super) at: usize,
    pub(super) want: usize,
    pub(super) total: u64,
    pub(super) src: FiAddr,
    /// Its sequence number on the link.
    pub(super) seq: u32,
}

/// Progress of a receive.
#[derive(Debug)]
pub(super) enum ReceiveStage {
    /// In its match queue.
    Posted,
    /// Its payload is arriving, in its buffer or in an unexpected message that it has claimed.
    Receiving { link: LinkId },
    /// The CTS is sent. Boxed, so that the receives of short messages stay small.
    Rendezvous(Box<RendezvousRecv>),
}

/// Kind of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A receive of one message.
    Plain,
    /// A multi-receive buffer, by its index in `multi_recvs`.
    MultiRecv(u32),
    /// The part of a multi-receive buffer that holds one message; `base` is its address.
    Part { parent: u32, base: usize },
    /// Drops its message (FI_DISCARD).
    Discard,
}

/// The sender of a message.
#[derive(Debug)]
pub(super) struct Sender {
    /// Its handle in the address vector.
    pub(super) src: FiAddr,
    /// Its address, if it has no handle and the application wants the address (FI_SOURCE_ERR).
    pub(super) addr: Option<Box<Addr>>,
}

/// State of a multi-receive buffer (FI_MULTI_RECV). The buffer of its receive is the free part.
#[derive(Debug)]
pub(super) struct MultiRecv {
    /// Free space, in bytes, below which it is released.
    pub(super) least: usize,
    /// Number of messages that are arriving in it.
    pub(super) parts: u32,
    /// It has received a message.
    pub(super) used: bool,
    /// It accepts more messages.
    pub(super) open: bool,
    /// Why it failed before it was full, if it did.
    pub(super) ended: Option<Down>,
}

/// A message that a peek reserved (FI_CLAIM), or why it is lost.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) context: usize,
    pub(super) message: Result<u32, Down>,
}

/// A receive: posted, or with its message under way.
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) ticket: Ticket,
    /// `None` while the transport fills it.
    pub(super) buffer: Option<Buffer>,
    pub(super) stage: ReceiveStage,
    pub(super) role: Role,
    pub(super) queue: QueueKind,
    pub(super) seq: u64,
}

/// Payload of an unexpected message; short payloads are stored inline.
#[derive(Debug)]
pub(super) enum Kept {
    Short(ArrayVec<u8, 16>),
    Long(Box<[u8]>),
}

impl Kept {
    pub(super) fn new(bytes: &[u8]) -> Self {
        ArrayVec::try_from(bytes).map_or_else(|_| Self::Long(bytes.into()), Self::Short)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

/// How much of an unexpected message has arrived.
#[derive(Debug)]
pub(super) enum Body {
    /// All of it.
    Here(Kept),
    /// Its payload is arriving; a receive may have claimed it.
    Coming { claimed: Option<u32> },
    /// Its RTS: the payload waits at the sender.
    Rts { total: u64 },
}

/// An unexpected message. [`super::credit::OVERHEAD`] covers what it costs besides its payload.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) body: Body,
    tag: u64,
    data: u64,
    pub(super) id: u32,
    /// Payload bytes that have arrived or are arriving; 0 for an RTS.
    pub(super) len: u32,
    pub(super) peer: PeerId,
    /// Its sequence number on the link.
    pub(super) seq: u32,
    /// The link whose credit it holds; `u32::MAX` if the link is gone, and the account is charged.
    link: u32,
    ack: AckMode,
    has: u8,
}

/// Bytes of a match queue entry, and bytes that the allocator adds to a payload.
const BESIDE: usize = 24 + 24;
const _: () = assert!((size_of::<Option<Unexpected>>() + BESIDE) as u64 <= super::credit::OVERHEAD);

impl Unexpected {
    const HAS_TAG: u8 = 1;
    const HAS_DATA: u8 = 2;
    const FENCED: u8 = 4;

    pub(super) fn new(
        body: Body,
        info: MessageInfo,
        id: u32,
        len: u32,
        link: LinkId,
        (peer, seq): (PeerId, u32),
    ) -> Self {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let has = flag(info.tag.is_some(), Self::HAS_TAG)
            | flag(info.data.is_some(), Self::HAS_DATA)
            | flag(info.fenced, Self::FENCED);
        let (tag, data) = (info.tag.unwrap_or(0), info.data.unwrap_or(0));
        Self { body, tag, data, id, len, peer, seq, link: link.0, ack: info.ack, has }
    }

    pub(super) fn info(&self) -> MessageInfo {
        MessageInfo {
            tag: (self.has & Self::HAS_TAG != 0).then_some(self.tag),
            data: (self.has & Self::HAS_DATA != 0).then_some(self.data),
            ack: self.ack,
            fenced: self.has & Self::FENCED != 0,
        }
    }

    /// The link whose credit it holds; `None` if the account is charged instead.
    pub(super) fn link(&self) -> Option<LinkId> {
        (self.link != u32::MAX).then_some(LinkId(self.link))
    }

    /// Detaches it from its link, which is gone.
    pub(super) const fn orphan(&mut self) {
        self.link = u32::MAX;
    }

    /// Length of the message in bytes.
    pub(super) const fn total(&self) -> u64 {
        match self.body {
            Body::Rts { total, .. } => total,
            Body::Here(_) | Body::Coming { .. } => self.len as u64,
        }
    }
}

impl MessageInfo {
    /// The match queue that it goes to.
    pub(super) const fn queue_kind(&self) -> QueueKind {
        QueueKind::of(self.tag)
    }
}

/// An operation that may be canceled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// By its number among the receives.
    Receive(u32),
    /// By its number among the sends.
    Send(u32),
}

/// Cancelable operations by context, oldest first, as of the last cancellation. Each cancellation adds
/// those that were posted since, so that many of them do not search all operations each.
#[derive(Debug, Default)]
pub(super) struct Cancelable {
    pub(super) by_context: HashMap<usize, VecDeque<(u64, Operation)>>,
    /// The sequence number of the latest operation in here.
    pub(super) up_to: u64,
    /// Operations added, also those that have completed since.
    pub(super) added: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_structures_keep_their_size() {
        assert!(size_of::<Receive>() <= 112, "{}", size_of::<Receive>());
        assert!(size_of::<Outgoing>() <= 184, "{}", size_of::<Outgoing>());
        assert!(size_of::<Unexpected>() <= 72, "{}", size_of::<Unexpected>());
    }

    #[test]
    fn an_unexpected_message_keeps_what_it_was() {
        for (tag, data, fenced) in [(Some(1), None, true), (None, Some(0), false), (Some(0), Some(u64::MAX), true)] {
            let info = MessageInfo { tag, data, ack: AckMode::Match, fenced };
            let message = Unexpected::new(Body::Rts { total: 9 }, info, 3, 0, LinkId(4), (5, 6));
            assert_eq!((message.info(), message.link(), message.total()), (info, Some(LinkId(4)), 9));
        }
        assert_eq!(Kept::new(&[7; 16]).bytes(), [7; 16]);
        assert_eq!(Kept::new(&[7; 17]).bytes(), [7; 17]);
    }
}
