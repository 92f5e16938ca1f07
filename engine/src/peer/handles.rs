//! How changes of the address vector reach the peers (fi_av(3)). Handles are cached; an epoch says
//! when the cache is stale.

use super::Peers;
use super::agenda::Work;
use super::table::{Peer, PeerId, PeerState, Senders};
use crate::av::{AddressVector, Change};
use ofi_core::{Addr, Errno, FiAddr, RxBits};
use std::sync::Arc;

/// The address vector of an endpoint.
#[derive(Debug)]
pub(crate) struct BoundAv {
    av: Arc<AddressVector>,
    /// The changes up to this epoch are known.
    epoch: u64,
    /// This endpoint's number in the address vector.
    reader: usize,
    /// The address vector knows that receives wait for handles.
    awaits: bool,
}

impl Peers {
    /// Whether an address vector is bound.
    pub(crate) const fn has_av(&self) -> bool {
        self.av.is_some()
    }

    /// The address vector.
    pub(crate) fn av(&self) -> Option<&Arc<AddressVector>> {
        self.av.as_ref().map(|bound| &bound.av)
    }

    /// Binds the address vector, in which the endpoint has the number `reader`.
    pub(crate) fn bind_av(&mut self, av: Arc<AddressVector>, epoch: u64, reader: usize) {
        self.table.forget_handles();
        self.table.set_rx_bits(av.rx_bits());
        self.av = Some(BoundAv { av, epoch, reader, awaits: false });
    }

    /// Whether the address vector is unchanged since [`Self::next_changes`].
    #[inline(always)]
    pub(crate) fn is_av_known(&self) -> bool {
        self.av.as_ref().is_none_or(|bound| bound.av.epoch() == bound.epoch)
    }

    /// The peer of a handle, if it is cached and the address vector has not changed.
    #[inline(always)]
    pub(crate) fn known_peer(&self, handle: FiAddr) -> Option<PeerId> {
        self.table.of_handle(handle).filter(|_| self.is_av_known())
    }

    /// The number by which match queues know the peer of a handle, if it is cached and the address
    /// vector has not changed.
    #[inline(always)]
    pub(crate) fn known_sender(&self, handle: FiAddr) -> Option<u32> {
        let peer = self.table.of_plain_handle(handle).filter(|_| self.is_av_known())?;
        self.table.get(peer).map(|peer| peer.sender)
    }

    /// The number by which match queues know the peer of a handle; creates the peer if needed. The
    /// messages of all its transmit contexts have this number, whichever receive context the handle
    /// names.
    pub(crate) fn sender_in_av(&mut self, handle: FiAddr, senders: &mut impl Senders) -> Option<u32> {
        let (handle, _) = self.rx_bits().split(handle);
        let peer = self.known_peer(handle).or_else(|| self.peer_in_av(handle, senders).ok())?;
        Some(self.table.get(peer)?.sender)
    }

    fn rx_bits(&self) -> RxBits {
        self.av.as_ref().map(|bound| bound.av.rx_bits()).unwrap_or_default()
    }

    /// The peer that the address vector has for a handle, created if needed.
    pub(crate) fn peer_in_av(&mut self, handle: FiAddr, senders: &mut impl Senders) -> Result<PeerId, Errno> {
        handle.index().ok_or(Errno::EINVAL)?;
        let bound = self.av.as_ref().ok_or(Errno::ENOAV)?;
        let (_, rx_index) = bound.av.rx_bits().split(handle);
        let rx_index = u16::try_from(rx_index).map_err(|_| Errno::EINVAL)?;
        let addr = bound.av.lookup(handle).ok_or(Errno::EINVAL)?.canonical();
        let peer = self.context_at(addr, rx_index, senders);
        self.set_handle(peer, handle);
        Ok(peer)
    }

    /// The peer of a canonical address, created if needed.
    pub(crate) fn peer_at(&mut self, addr: Addr, senders: &mut impl Senders) -> PeerId {
        self.context_at(addr, 0, senders)
    }

    fn context_at(&mut self, addr: Addr, rx_index: u16, senders: &mut impl Senders) -> PeerId {
        match self.table.context_at(&addr, rx_index) {
            Some(peer) => peer,
            None => self.add_context(Some(addr), rx_index, senders),
        }
    }

    /// Adds a peer, found by its canonical address if it has one.
    pub(crate) fn add_peer(&mut self, addr: Option<Addr>, senders: &mut impl Senders) -> PeerId {
        self.add_context(addr, 0, senders)
    }

    fn add_context(&mut self, addr: Option<Addr>, rx_index: u16, senders: &mut impl Senders) -> PeerId {
        let handle = match (&addr, &self.av) {
            (Some(addr), Some(bound)) => bound.av.rx_bits().join(bound.av.find(addr), rx_index),
            _ => FiAddr::UNSPEC,
        };
        let id = self.table.add(addr, rx_index, handle);
        let sender = senders.number(id, addr.as_ref());
        if let Some(peer) = self.table.get_mut(id) {
            peer.sender = sender;
        }
        id
    }

    /// Sets a peer's handle, and its links' copies of it.
    pub(crate) fn set_handle(&mut self, id: PeerId, handle: FiAddr) {
        let Some(before) = self.table.get(id).map(|peer| peer.handle) else { return };
        self.table.set_handle(id, handle);
        if before != handle {
            self.copy_handle(id, handle);
        }
    }

    fn copy_handle(&mut self, id: PeerId, handle: FiAddr) {
        let Self { table, links, .. } = self;
        let Some(peer) = table.get(id) else { return };
        match peer.state {
            // The usual case: its only link is the one that its sends use.
            PeerState::Open(link) | PeerState::Connecting(link) if peer.links == 1 => {
                if let Some(link) = links.get_mut(link) {
                    link.src = handle;
                }
            }
            _ if peer.links == 0 => {}
            _ => links.iter_mut().filter(|(_, link)| link.peer == id).for_each(|(_, link)| link.src = handle),
        }
    }

    /// Applies changes of the address vector to the peers that they are about. Returns the peers
    /// that the application cannot address any more, and `None` if there was no change.
    pub(crate) fn next_changes(&mut self) -> Option<Vec<PeerId>> {
        let bound = self.av.as_mut()?;
        if bound.av.epoch() == bound.epoch {
            return None;
        }
        let (epoch, changes) = bound.av.changes_since(bound.epoch);
        bound.epoch = epoch;
        let av = bound.av.clone();
        match changes {
            Some(changes) => {
                let mut unnamed = Vec::new();
                changes.into_iter().for_each(|change| self.apply_change(change, av.rx_bits(), &mut unnamed));
                Some(unnamed)
            }
            None => Some(self.learn_all(&av)),
        }
    }

    fn apply_change(&mut self, change: Change, rx_bits: RxBits, unnamed: &mut Vec<PeerId>) {
        let (handle, addr, is_inserted) = match change {
            Change::Inserted(handle, addr) => (handle, addr, true),
            Change::Removed(handle, addr) => (handle, addr, false),
        };
        for index in 0..=self.table.last_context() {
            let handle = rx_bits.join(handle, index);
            match self.table.context_at(&addr, index) {
                Some(peer) if is_inserted => self.set_handle(peer, handle),
                // Unless it has another handle by now.
                Some(peer) if self.handle_of(peer) == handle => {
                    self.table.forget_handle(handle);
                    self.set_handle(peer, FiAddr::UNSPEC);
                    unnamed.push(peer);
                }
                Some(_) | None => self.table.forget_handle(handle),
            }
        }
    }

    /// Learns the handles of all peers anew. Returns the peers without one.
    fn learn_all(&mut self, av: &AddressVector) -> Vec<PeerId> {
        self.table.forget_handles();
        let handle = |peer: &Peer| {
            let handle = peer.addr.as_ref().map_or(FiAddr::UNSPEC, |addr| av.find(addr));
            av.rx_bits().join(handle, peer.rx_index)
        };
        let all: Vec<(PeerId, FiAddr)> = self.table.iter().map(|(id, peer)| (id, handle(peer))).collect();
        let mut unnamed = Vec::new();
        for (id, handle) in all {
            self.table.set_handle(id, handle);
            if handle == FiAddr::UNSPEC {
                unnamed.push(id);
            }
        }
        let Self { table, links, .. } = self;
        for (_, link) in links.iter_mut() {
            link.src = table.get(link.peer).map_or(FiAddr::UNSPEC, |peer| peer.handle);
        }
        unnamed
    }

    /// Tells the address vector whether receives wait for a handle that it does not have.
    pub(crate) fn note_awaited(&mut self, awaits: bool) {
        if let Some(bound) = self.av.as_mut().filter(|bound| bound.awaits != awaits) {
            bound.awaits = awaits;
            bound.av.set_awaits(bound.reader, awaits);
            if awaits && bound.av.is_shared() {
                self.agenda.add(Work::WATCHES);
            } else {
                self.agenda.remove(Work::WATCHES);
            }
        }
    }
}
