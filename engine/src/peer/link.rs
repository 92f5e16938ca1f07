//! Links: what the engine keeps of each, in a table by the transport's numbers.

use super::credit::{RxCredits, TxCredits};
use super::fences::Fences;
use super::table::PeerId;
use crate::keys::Keys;
use crate::statistics::{Exchanged, Traffic};
use crate::transport::{LinkId, RecvTarget};
use crate::wire::frame::{Frame, MessageInfo};
use crate::wire::hello::Hello;
use ofi_core::{Addr, FiAddr};
use ofi_memory::Ticket;
use std::collections::VecDeque;

/// The purpose of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Carries frames in both directions.
    Carry,
    /// The same, but the peer has not proven that it has this name: receive only.
    Unproven(Addr),
    /// Asks the owner of a name which of the links that claim the name are its own; counts
    /// attempts.
    Verify(u8),
}

/// The operation that a payload arriving on a link belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Coming {
    Receive {
        key: u32,
        id: u32,
        info: MessageInfo,
        len: usize,
    },
    Unexpected {
        key: u32,
    },
    Data {
        key: u32,
        len: usize,
    },
    /// The result of a read or an atomic operation of ours; `last` for its request.
    Response {
        number: u32,
        last: bool,
    },
    /// Bytes that the peer writes to our memory, or the operands of its atomic operation.
    Access,
    /// None any more: the endpoint is closing.
    Dropped,
}

/// A payload that arrives for a one-sided operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OneSidedPayload {
    /// The peer's operation.
    Access,
    /// Ours, by its number; `last` for its request.
    Response { number: u32, last: bool },
}

/// The initiator of a link, and the peer at its other end.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The peer's random number; zero until its hello arrives.
    pub(crate) nonce: [u8; 16],
    /// The peer's count of connection attempts when it sent its hello.
    pub(crate) attempt: u64,
    /// The connection's random number, chosen by the initiator.
    pub(crate) cookie: [u8; 16],
    /// This side is the initiator.
    pub(crate) ours: bool,
    /// One more than the index of the transmit context that is the initiator; 0 for an ordinary
    /// endpoint, and on a link of ours.
    pub(crate) transmit: u16,
    /// The owner of the claimed name has been asked about this link.
    pub(crate) asked: bool,
    pub(crate) remote: Option<Addr>,
}

/// The sending side of a link.
#[derive(Debug, Default)]
pub(crate) struct LinkTx {
    pub(crate) credit: TxCredits,
    /// Control frames, in order.
    pub(crate) control: VecDeque<Frame>,
    /// Bytes that the account is charged for a long queue of control frames, until the link ends.
    pub(crate) charged: usize,
    /// Sends that have their CTS, served in turn from the front.
    pub(crate) data_queue: VecDeque<u32>,
    /// Sends that wait for an arrival acknowledgment, in order.
    pub(crate) unarrived: VecDeque<u32>,
    /// One-sided operations that the peer acknowledges by counts, in order.
    pub(crate) unperformed: VecDeque<Unperformed>,
    /// Number of writes among them that are not listed.
    pub(crate) left: usize,
    /// Sends in progress on it.
    pub(crate) sends: Keys,
    /// This side has sent its last frame.
    pub(crate) ended: bool,
    /// The transport has refused a frame, and will report when it takes more.
    pub(crate) full: bool,
    pub(crate) counts: Counts,
}

/// Counts of one direction, beside those of the credit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Bytes of messages by rendezvous.
    pub(crate) data: u64,
    /// One-sided operations and their bytes.
    pub(crate) accesses: u64,
    pub(crate) access_bytes: u64,
}

impl Counts {
    /// A one-sided operation on `len` bytes.
    #[inline(always)]
    pub(crate) const fn access(&mut self, len: usize) {
        self.accesses += 1;
        self.access_bytes += len as u64;
    }

    const fn with(self, (messages, bytes): (u64, u64)) -> Traffic {
        let Self { data, accesses, access_bytes } = self;
        Traffic { messages, message_bytes: bytes + data, accesses, access_bytes }
    }
}

impl LinkTx {
    /// Whether no send is in progress.
    pub(crate) const fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.left == 0
    }
}

/// A one-sided operation that the peer acknowledges by counts.
#[derive(Debug)]
pub(crate) enum Unperformed {
    /// In the table of sends under this number.
    Listed(u32),
    /// Writes that have left whole and are in no table.
    Left(LeftWrites),
}

/// Writes that wait for nothing but the peer's acknowledgment. Writes in a row share an entry if
/// their success is not reported and their failures look the same.
#[derive(Debug)]
pub(crate) struct LeftWrites {
    pub(crate) ticket: Ticket,
    /// Length of each in bytes.
    pub(crate) len: usize,
    /// The place of the first one among all operations of the endpoint; the others follow it.
    pub(crate) seq: u64,
    pub(crate) count: u32,
}

impl LeftWrites {
    /// Adds a write if it is as the others. Otherwise returns it.
    #[inline(always)]
    fn add(&mut self, write: Self) -> Option<Self> {
        let alike = self.ticket.is_suppressed()
            && write.ticket.is_suppressed()
            && self.ticket.context() == write.ticket.context()
            && self.len == write.len
            && self.seq + u64::from(self.count) == write.seq;
        if !alike {
            return Some(write);
        }
        self.count += write.count;
        write.ticket.discard();
        None
    }

    /// Takes the first `count`, fewer than there are.
    fn split(&mut self, count: u32) -> Self {
        let first = Self { ticket: self.ticket.part(), len: self.len, seq: self.seq, count };
        self.seq += u64::from(count);
        self.count -= count;
        first
    }
}

impl Unperformed {
    /// The number under which the peer knows all writes that are not listed.
    pub(crate) const LEFT: u32 = u32::MAX;

    /// The number under which the peer knows it.
    pub(crate) const fn number(&self) -> u32 {
        match self {
            Self::Listed(number) => *number,
            Self::Left(_) => Self::LEFT,
        }
    }
}

/// A peer that needs credit for its next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// It has enough.
    #[default]
    No,
    /// It needs this much.
    Needs(u64),
    /// It needs this much, and the account has no room for that.
    Starved(u64),
}

impl Blocked {
    /// The credit that the next message needs, if the peer lacks credit.
    pub(crate) const fn need(self) -> Option<u64> {
        match self {
            Self::No => None,
            Self::Needs(bytes) | Self::Starved(bytes) => Some(bytes),
        }
    }
}

/// Counts that are to be acknowledged to the peer.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Messages that have arrived.
    pub(crate) count: u32,
    /// One-sided operations that have been carried out.
    pub(crate) performed: u32,
    /// In the list of links with deferred acknowledgments.
    pub(crate) listed: bool,
}

/// The receiving side of a link.
#[derive(Debug)]
pub(crate) struct LinkRx {
    /// Credit of the peer.
    pub(crate) credit: RxCredits,
    pub(crate) blocked: Blocked,
    /// Number of messages received; wraps.
    pub(crate) seq: u32,
    pub(crate) arrivals: Arrivals,
    pub(crate) fences: Fences,
    pub(crate) coming: Option<Coming>,
    /// Unexpected messages that hold its credit.
    pub(crate) unexpected: Keys,
    /// Receives that get their message by rendezvous.
    pub(crate) rendezvous: Keys,
    /// Where the payloads of offers go that have waited for a receive: the transport has yet to be
    /// asked for them.
    pub(crate) offers: VecDeque<RecvTarget>,
    /// The peer has sent its last frame.
    pub(crate) ended: bool,
    pub(crate) counts: Counts,
}

/// State of a link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: PeerId,
    /// Copy of the peer's number in the match queues: saves arriving messages the lookup.
    pub(crate) sender: u32,
    /// Copy of the peer's handle, likewise.
    pub(crate) src: FiAddr,
    pub(crate) purpose: Purpose,
    pub(crate) identity: Identity,
    pub(crate) tx: LinkTx,
    pub(crate) rx: LinkRx,
    /// In the list of links with something to send.
    pub(crate) pending: bool,
}

impl Link {
    /// A link that this side initiates, or the peer if not `ours`.
    pub(crate) fn new(peer: PeerId, credit: RxCredits, cookie: [u8; 16], ours: bool) -> Self {
        let identity = Identity { nonce: [0; 16], attempt: 0, cookie, ours, transmit: 0, asked: false, remote: None };
        let rx = LinkRx {
            credit,
            blocked: Blocked::No,
            seq: 0,
            arrivals: Arrivals::default(),
            fences: Fences::default(),
            coming: None,
            unexpected: Keys::default(),
            rendezvous: Keys::default(),
            offers: VecDeque::new(),
            ended: false,
            counts: Counts::default(),
        };
        let (src, purpose, tx) = (FiAddr::UNSPEC, Purpose::Carry, LinkTx::default());
        Self { peer, sender: 0, src, purpose, identity, tx, rx, pending: false }
    }

    /// What has crossed it.
    pub(crate) fn exchanged(&self) -> Exchanged {
        let (tx, rx) = (&self.tx, &self.rx);
        Exchanged { sent: tx.counts.with(tx.credit.taken()), received: rx.counts.with(rx.credit.taken()) }
    }

    /// How many of the peer's operations the next write tells of: a refusal that waits goes before
    /// later ones.
    #[inline(always)]
    pub(crate) fn performed_along(&self) -> u16 {
        let performed = if self.tx.control.is_empty() { self.rx.arrivals.performed } else { 0 };
        u16::try_from(performed).unwrap_or(u16::MAX)
    }

    /// Whether the next write can tell the peer all that it is to know.
    pub(crate) fn owes_only_performed(&self) -> bool {
        self.tx.control.is_empty() && self.rx.arrivals.count == 0 && self.rx.credit.due() == 0
    }

    /// Adds a write to the operations that the peer acknowledges by counts.
    #[inline(always)]
    pub(crate) fn push_left(&mut self, write: LeftWrites) {
        self.tx.left += 1;
        let other = match self.tx.unperformed.back_mut() {
            Some(Unperformed::Left(last)) => last.add(write),
            _ => Some(write),
        };
        if let Some(write) = other {
            self.tx.unperformed.push_back(Unperformed::Left(write));
        }
    }

    /// Takes the first of the operations that the peer acknowledges by counts, up to `most` of them
    /// if they are alike.
    #[inline]
    pub(crate) fn pop_unperformed(&mut self, most: u32) -> Option<Unperformed> {
        let operation = match self.tx.unperformed.front_mut()? {
            Unperformed::Left(writes) if writes.count > most => Unperformed::Left(writes.split(most)),
            _ => self.tx.unperformed.pop_front()?,
        };
        if let Unperformed::Left(writes) = &operation {
            self.tx.left -= writes.count as usize;
        }
        Some(operation)
    }

    /// Takes the writes that are in no table, to fail or discard them.
    pub(crate) fn take_left(&mut self) -> impl Iterator<Item = LeftWrites> + use<> {
        self.tx.left = 0;
        let mut left = Vec::new();
        for operation in core::mem::take(&mut self.tx.unperformed) {
            match operation {
                Unperformed::Left(writes) => left.push(writes),
                Unperformed::Listed(_) => self.tx.unperformed.push_back(operation),
            }
        }
        left.into_iter()
    }

    /// Records the peer's identity and the credit that its hello grants.
    pub(crate) fn take_hello(&mut self, hello: &Hello) {
        self.identity.nonce = hello.nonce;
        self.identity.attempt = hello.attempt;
        self.tx.credit = TxCredits::granted(hello.credits);
    }
}

/// Links by the transport's numbers.
#[derive(Debug, Default)]
pub(crate) struct LinkTable {
    links: Vec<Option<Box<Link>>>,
    count: usize,
}

impl LinkTable {
    #[inline(always)]
    pub(crate) fn get(&self, id: LinkId) -> Option<&Link> {
        self.links.get(id.index())?.as_deref()
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id.index())?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, id: LinkId, link: Link) {
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some(Box::new(link));
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Box<Link>> {
        let link = self.links.get_mut(id.index())?.take()?;
        self.count -= 1;
        Some(link)
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        (0..).zip(&self.links).filter_map(|(number, link)| Some((LinkId(number), link.as_deref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (LinkId, &mut Link)> {
        (0..).zip(&mut self.links).filter_map(|(number, link)| Some((LinkId(number), link.as_deref_mut()?)))
    }

    /// The numbers of all links.
    pub(crate) fn ids(&self) -> Vec<LinkId> {
        self.iter().map(|(id, _)| id).collect()
    }
}
