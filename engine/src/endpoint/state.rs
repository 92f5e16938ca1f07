//! The tables of an endpoint: peers, links, and the operations that are under way.

use crate::frame::{AckWanted, Frame, Label, MOST_EAGER, Violation};
use crate::hello::{Grant, Speaker};
use crate::transport::{Down, LinkId};
use ofi_core::{Addr, Caps, FiAddr, Instant};
use ofi_memory::{Buffer, Lent, Ticket};
use std::collections::VecDeque;
use std::time::Duration;

/// What every message costs of a link's credit besides its bytes: the entry that holds it while nobody wants it.
pub const OVERHEAD: u64 = 128;
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
    pub speaker: Speaker,
    /// Capabilities.
    pub caps: Caps,
    /// Sends that may be outstanding.
    pub tx_size: usize,
    /// Receives that may be posted.
    pub rx_size: usize,
    /// The largest message of an inject call, in bytes.
    pub inject_size: usize,
    /// Random number of this endpoint.
    pub nonce: [u8; 16],
    /// The provider's name, for messages.
    pub provider: &'static str,
}

/// [`MOST_EAGER`] as a grant says it.
const EAGER: u32 = 256 << 10;
const _: () = assert!(EAGER as usize == MOST_EAGER);

/// How much each link may send before it is granted more: generous for the first peers, so that the sum has a bound
/// that can be stated: 128 MiB for the first 64 links, 512 KiB each up to the 1,024th, 64 KiB each after that.
pub(super) const fn grant_for(links: usize) -> Grant {
    match links {
        0..64 => Grant { bytes: 2 << 20, messages: 8192, eager: EAGER },
        64..1024 => Grant { bytes: 512 << 10, messages: 2048, eager: EAGER },
        _ => Grant { bytes: 64 << 10, messages: 256, eager: 32 << 10 },
    }
}

/// Index of a peer.
pub(super) type PeerId = usize;

/// How we stand with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    /// No link.
    Idle,
    /// A link on its way.
    Connecting(LinkId),
    /// The peer's own connection is to be used, and has not come yet.
    Yielding(Instant),
    /// A link.
    Open(LinkId),
}

/// Another endpoint.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) addr: Option<Addr>,
    pub(super) handle: FiAddr,
    pub(super) state: PeerState,
    /// Sends that wait for a link or for credit, in order.
    pub(super) waiting: VecDeque<u32>,
}

/// What the payload that is coming on a link is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coming {
    Receive { key: u32, id: u32, label: Label, len: usize },
    Unexpected { key: u32 },
    Segment { key: u32, len: usize },
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    /// The peer's handle: a copy for what arrives, which would have to look it up otherwise.
    pub(super) src: FiAddr,
    /// The peer's random number; zero until it said it.
    pub(super) nonce: [u8; 16],
    /// How often the peer had begun to connect when it said hello.
    pub(super) attempt: u64,
    pub(super) remote: Option<Addr>,
    /// What we may still send.
    pub(super) out: Grant,
    /// Bytes of it that are kept for announcements.
    pub(super) reserve: u64,
    /// What the peer may still send.
    pub(super) incoming: Grant,
    /// What the peer got to begin with.
    pub(super) granted: Grant,
    /// What was consumed and not yet granted again.
    pub(super) owed_bytes: u64,
    pub(super) owed_messages: u32,
    pub(super) control: VecDeque<Frame>,
    /// Pulled sends, of which the first has its turn.
    pub(super) streams: VecDeque<u32>,
    pub(super) coming: Option<Coming>,
    /// The peer said that nothing follows.
    pub(super) bye: bool,
    /// We said so.
    pub(super) bye_sent: bool,
    /// In the list of links with something to do.
    pub(super) listed: bool,
}

impl Link {
    pub(super) const fn new(peer: PeerId, granted: Grant) -> Self {
        Self {
            peer,
            src: FiAddr::UNSPEC,
            nonce: [0; 16],
            attempt: 0,
            remote: None,
            out: Grant { bytes: 0, messages: 0, eager: 0 },
            reserve: 0,
            incoming: granted,
            granted,
            owed_bytes: 0,
            owed_messages: 0,
            control: VecDeque::new(),
            streams: VecDeque::new(),
            coming: None,
            bye: false,
            bye_sent: false,
            listed: false,
        }
    }

    /// Whether a message may be sent unasked now. Some credit stays for announcements: however much of it lies unexpected
    /// at the receiver, the message that it waits for must get through. An announcement costs as much as a short message.
    #[inline]
    pub(super) const fn affords_eager(&self, len: usize) -> bool {
        let cost = len as u64 + OVERHEAD;
        let reserve = if len as u64 <= OVERHEAD { 0 } else { self.reserve };
        self.out.bytes >= cost + reserve && self.out.messages > 0
    }

    /// The peer's first grant.
    pub(super) const fn granted_by_peer(&mut self, grant: Grant) {
        self.out = grant;
        if self.out.eager > EAGER {
            self.out.eager = EAGER;
        }
        self.reserve = grant.bytes / 8;
    }

    /// Whether a message of so many credited bytes may be sent now.
    #[inline]
    pub(super) const fn affords(&self, cost: u64) -> bool {
        self.out.bytes >= cost && self.out.messages > 0
    }

    #[inline]
    pub(super) const fn spend(&mut self, cost: u64) {
        self.out.bytes -= cost;
        self.out.messages -= 1;
    }

    /// The peer sent a message of so many credited bytes.
    #[inline]
    pub(super) const fn charge(&mut self, cost: u64) -> Result<(), Violation> {
        if self.incoming.bytes < cost || self.incoming.messages == 0 {
            return Err(Violation("the peer sent more than it was granted"));
        }
        self.incoming.bytes -= cost;
        self.incoming.messages -= 1;
        Ok(())
    }

    /// A message of so many credited bytes has been consumed. True if it is time to grant more.
    #[inline]
    pub(super) const fn consumed(&mut self, cost: u64) -> bool {
        self.owed_bytes += cost;
        self.owed_messages += 1;
        self.owed_bytes >= self.granted.bytes / 2 || self.owed_messages >= self.granted.messages / 2
    }

    /// Both in one, for a message that is consumed as it comes. None if it was not granted, and then nothing has happened.
    #[inline(always)]
    pub(super) fn pass(&mut self, cost: u64) -> Option<bool> {
        self.charge(cost).ok()?;
        Some(self.consumed(cost))
    }

    /// Grants what is owed.
    pub(super) fn grant(&mut self) {
        self.incoming.bytes += self.owed_bytes;
        self.incoming.messages += self.owed_messages;
        self.control.push_back(Frame::Credit { messages: self.owed_messages, bytes: self.owed_bytes });
        self.owed_bytes = 0;
        self.owed_messages = 0;
    }
}

/// Where a send is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendStage {
    /// Waits for a link or for credit.
    Waiting,
    /// The transport keeps its payload. `acked`: the acknowledgement has overtaken the report that it was sent.
    Sending { link: LinkId, acked: bool },
    /// The peer has been asked to pull it.
    Requested { link: LinkId },
    /// Being pulled: the bytes from `at` to `end` are still to be sent, `flying` of them are with the transport.
    Streaming { link: LinkId, token: u32, at: usize, end: usize, flying: usize },
    /// Sent; the acknowledgement is missing.
    Sent { link: LinkId },
    /// Given to a link that turned out to be broken.
    Doomed { link: LinkId },
}

impl SendStage {
    pub(super) const fn link(self) -> Option<LinkId> {
        match self {
            Self::Waiting => None,
            Self::Sending { link, .. }
            | Self::Requested { link }
            | Self::Streaming { link, .. }
            | Self::Sent { link }
            | Self::Doomed { link } => Some(link),
        }
    }
}

/// A send that did not complete within its call.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) lent: Lent,
    pub(super) peer: PeerId,
    pub(super) stage: SendStage,
    pub(super) label: Label,
    pub(super) len: usize,
    pub(super) seq: u64,
    /// FI_INJECT: the buffer is a copy of ours.
    pub(super) inject: bool,
    /// FI_FENCE: it leaves when everything sent to the peer before it is done.
    pub(super) fenced: bool,
}

/// A message that is being pulled: `at` of `want` bytes are there, of a message of `total` bytes.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) link: LinkId,
    pub(super) id: u32,
    pub(super) label: Label,
    pub(super) at: usize,
    pub(super) want: usize,
    pub(super) total: u64,
    pub(super) src: FiAddr,
}

/// Where a receive is.
#[derive(Debug)]
pub(super) enum ReceiveStage {
    /// In the matcher.
    Posted,
    /// Its payload is coming, or will come into an unexpected message that it claimed.
    Arriving { link: LinkId },
    /// Being pulled. Elsewhere, so that the receives of short messages stay small.
    Pulling(Box<Pull>),
}

/// What a receive is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A receive of one message.
    Plain,
    /// A buffer for several messages, by its number in `multis`.
    Multi(u32),
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
pub(super) struct Multi {
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
    pub(super) lane: usize,
    pub(super) seq: u64,
}

/// What there is of a message that nobody has asked for yet.
#[derive(Debug)]
pub(super) enum Body {
    /// All of it.
    Here(Vec<u8>),
    /// It is being read; a receive may have claimed it.
    Coming { link: LinkId, claimed: Option<u32> },
    /// It waits at the sender.
    Requested { link: LinkId, total: u64 },
}

/// A message that came before its receive.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) body: Body,
    pub(super) label: Label,
    pub(super) id: u32,
    pub(super) len: usize,
    pub(super) src: FiAddr,
    pub(super) addr: Option<Addr>,
    /// Whose credit it holds, until it is consumed or the link is gone.
    pub(super) link: Option<LinkId>,
    pub(super) lane: usize,
}

impl Unexpected {
    /// How long the message is, in bytes.
    pub(super) const fn total(&self) -> u64 {
        match self.body {
            Body::Requested { total, .. } => total,
            Body::Here(_) | Body::Coming { .. } => self.len as u64,
        }
    }
}

impl Label {
    /// The queue of receives that it goes to: untagged or tagged.
    pub(super) const fn lane(&self) -> usize {
        if self.tag.is_some() { TAGGED } else { MSG }
    }

    pub(super) const fn wants(&self, ack: AckWanted) -> bool {
        matches!((self.ack, ack), (AckWanted::Match, AckWanted::Match) | (AckWanted::Delivery, AckWanted::Delivery))
    }
}

/// Index of the untagged receives.
pub(super) const MSG: usize = 0;
/// Index of the tagged receives.
pub(super) const TAGGED: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_sends_more_than_granted_is_noticed() {
        let mut link = Link::new(0, Grant { bytes: 300, messages: 2, eager: 100 });
        assert!(link.charge(200).is_ok());
        assert!(link.charge(101).is_err());
        assert!(link.charge(100).is_ok());
        assert!(link.charge(0).is_err());
    }

    #[test]
    fn what_was_consumed_is_granted_again_by_halves() {
        let mut link = Link::new(0, Grant { bytes: 300, messages: 100, eager: 100 });
        link.charge(140).unwrap();
        assert!(!link.consumed(140));
        link.charge(10).unwrap();
        assert!(link.consumed(10));
        link.grant();
        assert_eq!(link.incoming, link.granted);
        assert_eq!(link.control.pop_front(), Some(Frame::Credit { messages: 2, bytes: 150 }));
    }

    #[test]
    fn hot_structures_keep_their_size() {
        assert!(size_of::<Receive>() <= 112, "{}", size_of::<Receive>());
        assert!(size_of::<Outgoing>() <= 184, "{}", size_of::<Outgoing>());
    }
}
