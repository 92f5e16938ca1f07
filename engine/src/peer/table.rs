//! The table of peers: found by address and by handle.
//! Below: nothing. Above: [`super::Peers`] keeps their links, and tells when one may be removed.

use crate::hash::HashMap;
use crate::table::Table;
use crate::transport::LinkId;
use core::num::NonZeroU32;
use ofi_core::{Addr, FiAddr, Instant};
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
}

impl PeerTable {
    pub(crate) fn new() -> Self {
        Self { peers: Table::new(), by_addr: HashMap::default(), by_handle: Vec::new() }
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

    /// Adds a peer, found by its canonical address if it has one.
    pub(crate) fn add(&mut self, addr: Option<Addr>, handle: FiAddr) -> PeerId {
        let (state, waiting) = (PeerState::Idle, VecDeque::new());
        let peer = Peer { addr, handle, state, sender: 0, waiting, links: 0, orphans: 0, charged: false, kept: false };
        let id = self.peers.insert(peer);
        if let Some(addr) = addr {
            self.by_addr.insert(addr, id);
        }
        id
    }

    /// Removes a peer.
    pub(crate) fn remove(&mut self, id: PeerId) -> Option<Peer> {
        let peer = self.peers.remove(id)?;
        if let Some(addr) = peer.addr {
            self.by_addr.remove(&addr);
        }
        if let Some(slot) = peer.handle.index().and_then(|index| self.by_handle.get_mut(index))
            && *slot == number(id)
        {
            *slot = None;
        }
        Some(peer)
    }

    /// The peer of a canonical address.
    pub(crate) fn at(&self, addr: &Addr) -> Option<PeerId> {
        self.by_addr.get(addr).copied()
    }

    /// The peer of a handle, if the application has addressed it by that.
    #[inline(always)]
    pub(crate) fn of_handle(&self, handle: FiAddr) -> Option<PeerId> {
        // FI_ADDR_UNSPEC and other invalid handles are not in the table.
        let index = usize::try_from(handle.0).ok()?;
        self.by_handle.get(index)?.map(|number| number.get() - 1)
    }

    /// The application addresses a peer by this handle.
    pub(crate) fn set_handle(&mut self, id: PeerId, handle: FiAddr) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.handle = handle;
        let Some(index) = handle.index() else { return };
        if self.by_handle.len() <= index {
            self.by_handle.resize(index + 1, None);
        }
        self.by_handle[index] = number(id);
    }

    /// No peer is known by this handle.
    pub(crate) fn forget_handle(&mut self, handle: FiAddr) {
        if let Some(slot) = handle.index().and_then(|index| self.by_handle.get_mut(index)) {
            *slot = None;
        }
    }

    /// No peer is known by any handle.
    pub(crate) fn forget_handles(&mut self) {
        self.by_handle.fill(None);
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
