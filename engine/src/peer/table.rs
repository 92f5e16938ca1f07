//! The table of peers: found by address and by handle.
//! Below: nothing. Above: [`super::Peers`] keeps their links, and tells when one may be removed.

use crate::hash::HashMap;
use crate::statistics::Exchanged;
use crate::table::Table;
use crate::transport::LinkId;
use core::num::NonZeroU32;
use ofi_core::{Addr, FiAddr, Instant, RxBits};
use std::collections::VecDeque;

/// Index of a peer in the table.
pub(crate) type PeerId = u32;

/// The match queues' view of senders: numbers that last as long as a message or a receive names
/// them. An endpoint's own queues use the peers' numbers, shared ones have numbers of their own.
pub(crate) trait Senders {
    /// The number of a new peer.
    fn number(&mut self, peer: PeerId, addr: Option<&Addr>) -> u32;
    /// Whether a receive is posted that only this sender can fill.
    fn is_awaited(&self, sender: u32) -> bool;
    /// A peer is gone.
    fn release(&mut self, sender: u32);
}

/// Charge, in bytes, for a peer whose link left unexpected messages: its table and map entries.
pub(crate) const PEER_COST: usize = 512;

/// Connection state of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// No link.
    Idle,
    /// A link is being set up.
    Connecting(LinkId),
    /// This side's connect gave way to the peer's own connection, which has not come yet.
    Yielding(Yielding),
    /// A link is open.
    Open(LinkId),
}

impl PeerState {
    /// Whether this is the link that the peer's sends use, or will use once it is open.
    pub(crate) fn is_current(self, link: LinkId) -> bool {
        matches!(self, Self::Open(current) | Self::Connecting(current) if current == link)
    }
}

/// How long to wait for a peer's own connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yielding {
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
pub(crate) struct Peer {
    pub(crate) addr: Option<Addr>,
    /// Its index among the receive contexts of a scalable endpoint; 0 for an ordinary endpoint.
    pub(crate) rx_index: u16,
    pub(crate) handle: FiAddr,
    pub(crate) state: PeerState,
    /// Number by which the match queues know it.
    pub(crate) sender: u32,
    /// Sends that wait for a link or for credit, in order.
    pub(crate) waiting: VecDeque<u32>,
    /// Number of links to it; sends use at most one.
    pub(crate) links: u32,
    /// Number of its unexpected messages whose link is gone.
    pub(crate) orphans: u32,
    /// The account is charged [`PEER_COST`]: a link of the peer ended and left unexpected messages.
    pub(crate) charged: bool,
    /// The only peer of a connected endpoint.
    pub(crate) kept: bool,
    /// How many links to it have opened.
    pub(crate) connected: u64,
    /// What has crossed those that have ended.
    pub(crate) exchanged: Exchanged,
}

impl Peer {
    /// Whether it may be forgotten: it has no link, no waiting send and no unexpected message.
    pub(crate) fn is_unused(&self) -> bool {
        !self.kept && self.state == PeerState::Idle && self.waiting.is_empty() && self.links == 0 && self.orphans == 0
    }
}

/// Peers by number, by canonical address and by handle.
#[derive(Debug)]
pub(crate) struct PeerTable {
    peers: Table<Peer>,
    by_addr: HashMap<Addr, PeerId>,
    /// One more than the peer's number, by handle.
    by_handle: Vec<Option<NonZeroU32>>,
    contexts: Contexts,
}

/// Peers that are receive contexts of scalable endpoints with an index above 0.
#[derive(Debug, Default)]
struct Contexts {
    rx_bits: RxBits,
    by_addr: HashMap<(Addr, u16), PeerId>,
    by_handle: HashMap<u64, PeerId>,
    /// The largest index that a peer has had.
    last: u16,
}

impl PeerTable {
    pub(crate) fn new() -> Self {
        let contexts = Contexts::default();
        Self { peers: Table::new(), by_addr: HashMap::default(), by_handle: Vec::new(), contexts }
    }

    #[inline(always)]
    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(id)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.peers.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PeerId, &mut Peer)> {
        self.peers.iter_mut()
    }

    pub(crate) const fn len(&self) -> usize {
        self.peers.len()
    }

    /// Which bits of the handles name receive contexts.
    pub(crate) const fn set_rx_bits(&mut self, rx_bits: RxBits) {
        self.contexts.rx_bits = rx_bits;
    }

    /// Adds a peer, found by its canonical address and the index of its receive context if it has
    /// an address.
    pub(crate) fn add(&mut self, addr: Option<Addr>, rx_index: u16, handle: FiAddr) -> PeerId {
        let (state, waiting, charged, kept) = (PeerState::Idle, VecDeque::new(), false, false);
        let peer = Peer {
            addr,
            rx_index,
            handle,
            state,
            sender: 0,
            waiting,
            links: 0,
            orphans: 0,
            charged,
            kept,
            connected: 0,
            exchanged: Exchanged::default(),
        };
        let id = self.peers.insert(peer);
        match addr {
            None => {}
            Some(addr) if rx_index == 0 => _ = self.by_addr.insert(addr, id),
            Some(addr) => {
                self.contexts.by_addr.insert((addr, rx_index), id);
                self.contexts.last = self.contexts.last.max(rx_index);
            }
        }
        id
    }

    /// Removes a peer.
    pub(crate) fn remove(&mut self, id: PeerId) -> Option<Peer> {
        let peer = self.peers.remove(id)?;
        match peer.addr {
            None => {}
            Some(addr) if peer.rx_index == 0 => _ = self.by_addr.remove(&addr),
            Some(addr) => _ = self.contexts.by_addr.remove(&(addr, peer.rx_index)),
        }
        if self.of_handle(peer.handle) == Some(id) {
            self.forget_handle(peer.handle);
        }
        Some(peer)
    }

    /// The peer of a canonical address, or its first receive context.
    pub(crate) fn at(&self, addr: &Addr) -> Option<PeerId> {
        self.by_addr.get(addr).copied()
    }

    /// The receive context of a canonical address.
    pub(crate) fn context_at(&self, addr: &Addr, rx_index: u16) -> Option<PeerId> {
        if rx_index == 0 { self.at(addr) } else { self.contexts.by_addr.get(&(*addr, rx_index)).copied() }
    }

    /// The largest index of a receive context that a peer has had.
    pub(crate) const fn last_context(&self) -> u16 {
        self.contexts.last
    }

    /// The peer of a handle, if the application has addressed it by that.
    #[inline(always)]
    pub(crate) fn of_handle(&self, handle: FiAddr) -> Option<PeerId> {
        // FI_ADDR_UNSPEC and other invalid handles are not in the table.
        let index = usize::try_from(handle.0).ok()?;
        match self.by_handle.get(index) {
            Some(number) => number.map(|number| number.get() - 1),
            None => self.context_of(handle),
        }
    }

    /// The peer of a handle that names no receive context, as for [`Self::of_handle`].
    #[inline(always)]
    pub(crate) fn of_plain_handle(&self, handle: FiAddr) -> Option<PeerId> {
        let index = usize::try_from(handle.0).ok()?;
        self.by_handle.get(index)?.map(|number| number.get() - 1)
    }

    #[inline(never)]
    fn context_of(&self, handle: FiAddr) -> Option<PeerId> {
        self.contexts.by_handle.get(&handle.0).copied()
    }

    fn names_context(&self, handle: FiAddr) -> bool {
        self.contexts.rx_bits.split(handle).1 > 0
    }

    /// The application addresses a peer by this handle.
    pub(crate) fn set_handle(&mut self, id: PeerId, handle: FiAddr) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.handle = handle;
        if self.names_context(handle) {
            self.contexts.by_handle.insert(handle.0, id);
            return;
        }
        let Some(index) = handle.index() else { return };
        if self.by_handle.len() <= index {
            self.by_handle.resize(index + 1, None);
        }
        self.by_handle[index] = number(id);
    }

    /// No peer is known by this handle.
    pub(crate) fn forget_handle(&mut self, handle: FiAddr) {
        if self.names_context(handle) {
            self.contexts.by_handle.remove(&handle.0);
        } else if let Some(slot) = handle.index().and_then(|index| self.by_handle.get_mut(index)) {
            *slot = None;
        }
    }

    /// No peer is known by any handle.
    pub(crate) fn forget_handles(&mut self) {
        self.by_handle.fill(None);
        self.contexts.by_handle.clear();
    }

    /// Changes a peer's connection state.
    pub(crate) fn set_state(&mut self, id: PeerId, state: PeerState) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.state = state;
        }
    }
}

fn number(id: PeerId) -> Option<NonZeroU32> {
    NonZeroU32::new(id + 1)
}
