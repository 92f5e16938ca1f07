//! The tables of an endpoint: peers, links, and the operations that are under way.

use super::credit::RxCredits;
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

/// How long to wait for the connection of a peer that connects to us instead of us to it, before we try again.
pub(super) const YIELD: Duration = Duration::from_secs(1);
/// The free space below which a buffer for several messages is given back, unless set (FI_OPT_MIN_MULTI_RECV), in bytes.
pub(super) const MIN_MULTI_RECV: usize = 16 << 10;
/// How long closing may take.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// What an endpoint is and may do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connected or not.
    pub kind: EndpointKind,
    /// Capabilities.
    pub caps: Caps,
    /// Sends that may be outstanding.
    pub tx_size: usize,
    /// Receives that may be posted.
    pub rx_size: usize,
    /// How long messages may be.
    pub limits: Limits,
    /// Random number of this endpoint.
    pub nonce: [u8; 16],
    /// The provider's name, for messages.
    pub provider: &'static str,
    /// What it and its transport hold for peers is charged to this account.
    pub account: Arc<Account>,
}

/// Number of a peer.
pub(super) type PeerId = u32;

/// How we stand with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    /// No link.
    Idle,
    /// A link on its way.
    Connecting(LinkId),
    /// The peer's own connection is to be used, and has not come yet.
    Yielding(Yielding),
    /// A link.
    Open(LinkId),
}

/// How long a peer's own connection is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yielding {
    /// It has just begun, at a time that the clock has to tell.
    Begun,
    /// Until then.
    Until(Instant),
    /// No longer: it is connected to, or asked about connections that claim to be its own.
    Over,
    /// It has been asked so many times, and said each time that they are not.
    Denied(u8),
}

/// Another endpoint.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) addr: Option<Addr>,
    pub(super) handle: FiAddr,
    pub(super) state: PeerState,
    /// Sends that wait for a link or for credit, in order.
    pub(super) waiting: VecDeque<u32>,
    /// Links to it, of which at most one is the one that sends use.
    pub(super) links: u32,
    /// Unexpected messages of it.
    pub(super) unexpected: u32,
    /// The account holds [`PEER_COST`] for it: it is only remembered because of its messages.
    pub(super) charged: bool,
}

impl Peer {
    pub(super) const fn new(addr: Option<Addr>, handle: FiAddr) -> Self {
        let waiting = VecDeque::new();
        Self { addr, handle, state: PeerState::Idle, waiting, links: 0, unexpected: 0, charged: false }
    }
}

/// What a peer costs that is only remembered because of its messages, in bytes: its entry in tables and map.
pub(super) const PEER_COST: usize = 512;

/// What the payload that is coming on a link is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coming {
    Receive { key: u32, id: u32, info: MessageInfo, len: usize },
    Unexpected { key: u32 },
    Data { key: u32, len: usize },
}

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Frames between this endpoint and the peer.
    Carry,
    /// The same, but that the peer has the name it claims is not proven: it is only received from.
    Unproven(Addr),
    /// Asks the owner of a name whether one of the links that claim it is its own: the so-manieth time.
    Verify(u8),
}

/// A message whose acknowledgement waits for those before it (FI_FENCE).
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The sender's number for it.
    pub(super) id: u32,
    pub(super) level: AckMode,
    /// Its place among the messages of the link.
    pub(super) seq: u32,
    /// Messages before it that have not got as far.
    pub(super) left: usize,
    /// It has got as far itself.
    pub(super) reached: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) purpose: Purpose,
    /// The peer's handle: a copy for what arrives, which would have to look it up otherwise.
    pub(super) src: FiAddr,
    /// The peer's random number; zero until it said it.
    pub(super) nonce: [u8; 16],
    /// How often the peer had begun to connect when it said hello.
    pub(super) attempt: u64,
    /// The connection's random number, by the side that connected.
    pub(super) cookie: [u8; 16],
    /// This side connected.
    pub(super) ours: bool,
    /// The owner of the name that the link claims has been asked about it.
    pub(super) asked: bool,
    pub(super) remote: Option<Addr>,
    /// What we may still send, in bytes of cost.
    pub(super) out: u64,
    /// The longest message that we may send unasked, in bytes.
    pub(super) eager: usize,
    /// We said that the credit does not suffice.
    pub(super) said_blocked: bool,
    /// What the peer may still send.
    pub(super) credit: RxCredits,
    /// The peer said that so much credit is needed for what it wants to send next.
    pub(super) blocked: Option<u64>,
    /// It cannot be given more.
    pub(super) starved: bool,
    /// Messages of the peer so far; a number that wraps.
    pub(super) seq: u32,
    /// Messages that have come and of whose arrival the peer wants to hear.
    pub(super) arrived: u32,
    /// In the list of links of which the peer hears when there is nothing more to read.
    pub(super) lazy: bool,
    /// Sends of whose arrival we want to hear, in order.
    pub(super) unarrived: VecDeque<u32>,
    pub(super) fences: Vec<Fence>,
    pub(super) control: VecDeque<Frame>,
    /// Sends that are clear to send, of which the first has its turn.
    pub(super) data_queue: VecDeque<u32>,
    pub(super) coming: Option<Coming>,
    /// The peer said that nothing follows.
    pub(super) bye: bool,
    /// We said so.
    pub(super) bye_sent: bool,
    /// In the list of links with something to do.
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

    /// The peer's first grant.
    pub(super) const fn granted_by_peer(&mut self, credits: Credits) {
        self.out = credits.bytes;
        self.eager = credits.eager as usize;
        if self.eager > MOST_EAGER {
            self.eager = MOST_EAGER;
        }
    }
}

/// Where a send is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendStage {
    /// Waits for a link or for credit.
    Waiting,
    /// The transport keeps its payload. `acked`: the acknowledgement has overtaken the report that it was sent.
    Sending { link: LinkId, acked: bool },
    /// The peer has its RTS.
    RtsSent { link: LinkId },
    /// The peer has sent a CTS: the bytes from `at` to `end` are still to be sent, `flying` of them are with the transport.
    SendingData { link: LinkId, token: u32, at: usize, end: usize, flying: usize },
    /// Sent; the acknowledgement is missing.
    Sent { link: LinkId },
    /// Given to a link that turned out to be broken.
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
    /// FI_INJECT: the buffer is a copy of ours.
    pub(super) inject: bool,
    /// FI_FENCE: it leaves when everything sent to the peer before it is done.
    pub(super) fenced: bool,
}

/// A rendezvous as its receiver sees it: `at` of `want` bytes are there, of a message of `total` bytes.
#[derive(Debug)]
pub(super) struct RendezvousRecv {
    pub(super) link: LinkId,
    pub(super) id: u32,
    pub(super) info: MessageInfo,
    pub(super) at: usize,
    pub(super) want: usize,
    pub(super) total: u64,
    pub(super) src: FiAddr,
    /// Its place among the messages of the link.
    pub(super) seq: u32,
}

/// Where a receive is.
#[derive(Debug)]
pub(super) enum ReceiveStage {
    /// In the matcher.
    Posted,
    /// Its payload is coming, or will come into an unexpected message that it claimed.
    Arriving { link: LinkId },
    /// Its sender has been sent a CTS. Elsewhere, so that the receives of short messages stay small.
    Rendezvous(Box<RendezvousRecv>),
}

/// What a receive is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A receive of one message.
    Plain,
    /// A buffer for several messages, by its number in `multis`.
    MultiRecv(u32),
    /// The part of a buffer for several messages that one of them goes to; `base` is its address.
    Part { parent: u32, base: usize },
    /// Its message is thrown away (FI_DISCARD).
    Discard,
}

/// Who sent a message.
#[derive(Debug)]
pub(super) struct Sender {
    /// As the address vector knows it.
    pub(super) src: FiAddr,
    /// Its address, if the address vector does not have it and the application wants to be told (FI_SOURCE_ERR).
    pub(super) addr: Option<Box<Addr>>,
}

/// What there is to know of a buffer for several messages (FI_MULTI_RECV). Its free bytes are its receive's buffer.
#[derive(Debug)]
pub(super) struct MultiRecv {
    /// The least free space with which it takes messages, in bytes.
    pub(super) least: usize,
    /// Messages that are on their way into it.
    pub(super) parts: u32,
    /// It has taken a message.
    pub(super) used: bool,
    /// It takes more.
    pub(super) open: bool,
    /// It was ended before it was full, and why.
    pub(super) ended: Option<Down>,
}

/// A message that a peek reserved (FI_CLAIM), or why it is lost.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) context: usize,
    pub(super) message: Result<u32, Down>,
}

/// A receive.
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) ticket: Ticket,
    /// Elsewhere while the transport fills it.
    pub(super) buffer: Option<Buffer>,
    pub(super) stage: ReceiveStage,
    pub(super) role: Role,
    pub(super) queue: QueueKind,
    pub(super) seq: u64,
}

/// Bytes of a message that this endpoint keeps: short ones lie in the entry.
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

/// What there is of a message that nobody has asked for yet.
#[derive(Debug)]
pub(super) enum Body {
    /// All of it.
    Here(Kept),
    /// It is being read; a receive may have claimed it.
    Coming { claimed: Option<u32> },
    /// It waits at the sender.
    Rts { total: u64 },
}

/// A message that came before its receive. [`super::credit::OVERHEAD`] is at least what it costs besides its bytes.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) body: Body,
    tag: u64,
    data: u64,
    pub(super) id: u32,
    /// Bytes of it that are here, or will be.
    pub(super) len: u32,
    pub(super) peer: PeerId,
    /// Its place among the messages of the link.
    pub(super) seq: u32,
    /// Whose credit it holds; none if the link is gone, and the account holds it.
    link: u32,
    ack: AckMode,
    has: u8,
}

/// What an entry of the matcher takes, and what the allocator adds to a payload, in bytes.
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

    /// Whose credit it holds, if not the account's.
    pub(super) fn link(&self) -> Option<LinkId> {
        (self.link != u32::MAX).then_some(LinkId(self.link))
    }

    /// The link is gone.
    pub(super) const fn orphan(&mut self) {
        self.link = u32::MAX;
    }

    /// How long the message is, in bytes.
    pub(super) const fn total(&self) -> u64 {
        match self.body {
            Body::Rts { total, .. } => total,
            Body::Here(_) | Body::Coming { .. } => self.len as u64,
        }
    }
}

impl MessageInfo {
    /// The queue of receives that it goes to: untagged or tagged.
    pub(super) const fn queue_kind(&self) -> QueueKind {
        QueueKind::of(self.tag)
    }
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
