//! Peers by address and by handle, and how changes of the address vector reach them.

use super::engine::{Engine, NO_PEER};
use super::state::{PEER_COST, Peer, PeerId, PeerState};
use crate::av::{AddressVector, Change};
use crate::hash::HashMap;
use crate::match_queue::{MatchQueue, QueueKind};
use ofi_core::{Addr, Errno, FiAddr};
use ofi_sync::lock::LockKind;

impl<K: LockKind> Engine<K> {
    /// The peer of a handle, if it is cached and the address vector has not changed.
    #[inline(always)]
    pub(super) fn known_peer(&self, handle: FiAddr) -> Option<PeerId> {
        if matches!(self.config.kind, crate::wire::hello::EndpointKind::Msg) {
            return Some(0);
        }
        // FI_ADDR_UNSPEC and other invalid handles are not in the table.
        let index = usize::try_from(handle.0).ok()?;
        self.by_handle.get(index).copied().filter(|peer| *peer != NO_PEER && self.av_is_known())
    }

    /// Whether the address vector is unchanged since [`Self::check_av`].
    #[inline(always)]
    pub(super) fn av_is_known(&self) -> bool {
        self.av.as_ref().is_none_or(|av| av.epoch() == self.av_epoch)
    }

    /// The peer of a handle, created if needed.
    #[inline]
    pub(super) fn peer_of(&mut self, handle: FiAddr) -> Result<PeerId, Errno> {
        match self.known_peer(handle) {
            Some(peer) => Ok(peer),
            None => self.find_peer(handle),
        }
    }

    #[cold]
    fn find_peer(&mut self, handle: FiAddr) -> Result<PeerId, Errno> {
        self.check_av();
        if let Some(peer) = self.known_peer(handle) {
            return Ok(peer);
        }
        self.peer_in_av(handle)
    }

    /// The peer that the address vector has for a handle, created if needed.
    fn peer_in_av(&mut self, handle: FiAddr) -> Result<PeerId, Errno> {
        handle.index().ok_or(Errno::EINVAL)?;
        let av = self.av.as_ref().ok_or(Errno::ENOAV)?;
        let addr = av.lookup(handle).ok_or(Errno::EINVAL)?.canonical();
        let peer = self.peer_at(addr);
        self.name_peer(peer, handle);
        Ok(peer)
    }

    /// The peer of a canonical address, created if needed.
    pub(super) fn peer_at(&mut self, addr: Addr) -> PeerId {
        match self.by_addr.get(&addr) {
            Some(&peer) => peer,
            None => self.add_peer(Some(addr)),
        }
    }

    /// Sets a peer's handle, and its links' copies of it.
    fn set_handle(&mut self, id: PeerId, handle: FiAddr) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.handle = handle;
        if peer.links > 0 {
            let links = self.links.iter_mut().flatten().filter(|link| link.peer == id);
            links.for_each(|link| link.src = handle);
        }
    }

    /// Adds a peer, found by its canonical address if it has one.
    pub(super) fn add_peer(&mut self, addr: Option<Addr>) -> PeerId {
        let handle = match (&addr, &self.av) {
            (Some(addr), Some(av)) => av.find(addr),
            _ => FiAddr::UNSPEC,
        };
        let id = self.peers.insert(Peer::new(addr, handle));
        if let Some(addr) = addr {
            self.by_addr.insert(addr, id);
        }
        id
    }

    /// Removes the peer of a connection attempt that could not start.
    pub(super) fn forget_peer(&mut self, id: PeerId) {
        if let Some(Peer { addr: Some(addr), .. }) = self.peers.remove(id) {
            self.by_addr.remove(&addr);
        }
    }

    /// Removes a peer that has no link, no waiting send, no unexpected message and no directed
    /// receive.
    pub(super) fn release_peer(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(id) else { return };
        let idle = peer.state == PeerState::Idle && peer.waiting.is_empty() && peer.links == 0 && peer.unexpected == 0;
        let connected = matches!(self.config.kind, crate::wire::hello::EndpointKind::Msg);
        if connected || !idle || self.match_queues.iter().any(|queue| queue.posted_from(id).next().is_some()) {
            return;
        }
        let Some(peer) = self.peers.remove(id) else { return };
        if peer.charged {
            self.config.account.release(PEER_COST);
        }
        if let Some(addr) = peer.addr {
            self.by_addr.remove(&addr);
        }
        if let Some(slot) = peer.handle.index().and_then(|index| self.by_handle.get_mut(index))
            && *slot == id
        {
            *slot = NO_PEER;
        }
    }

    /// Updates the links' copies of their peers' handles.
    pub(super) fn name_links(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.src = self.peers.get(link.peer).map_or(FiAddr::UNSPEC, |peer| peer.handle);
        }
    }

    /// Applies changes to the address vector.
    #[inline]
    pub(super) fn check_av(&mut self) {
        if let Some(av) = &self.av
            && av.epoch() != self.av_epoch
        {
            self.learn_av();
        }
    }

    #[cold]
    fn learn_av(&mut self) {
        let Some(av) = self.av.clone() else { return };
        // Until nothing has changed meanwhile: an insertion calls only endpoints that have said that
        // they wait for one.
        while av.epoch() != self.av_epoch {
            let (epoch, changes) = av.changes_since(self.av_epoch);
            self.av_epoch = epoch;
            match changes {
                Some(changes) => changes.into_iter().for_each(|change| self.apply_change(change)),
                None => self.learn_all(&av),
            }
            for kind in QueueKind::ALL {
                self.resolve_pending(kind);
            }
            self.note_awaited();
        }
    }

    /// Gives receives for handles without a peer their peer, where the address vector has the handle now.
    fn resolve_pending(&mut self, kind: QueueKind) {
        let mut known = HashMap::default();
        for handle in self.match_queues[kind].pending_handles() {
            if let Ok(peer) = self.known_peer(handle).ok_or(Errno::EINVAL).or_else(|_| self.peer_in_av(handle)) {
                known.insert(handle, peer);
            }
        }
        if self.match_queues[kind].resolve(|handle| known.get(&handle).copied()) {
            self.rematch(kind);
            // A blocked peer may hold a message for one of these receives.
            self.note_freed();
        }
    }

    /// Applies a change of the address vector to the peer that it is about, if there is one.
    fn apply_change(&mut self, change: Change) {
        match change {
            Change::Inserted(handle, addr) => match self.by_addr.get(&addr) {
                Some(&peer) => self.name_peer(peer, handle),
                None => self.forget_handle(handle),
            },
            Change::Removed(handle, addr) => {
                self.forget_handle(handle);
                // Unless it has another handle by now.
                let of_handle = |peer: &&PeerId| self.peers.get(**peer).is_some_and(|peer| peer.handle == handle);
                if let Some(&peer) = self.by_addr.get(&addr).filter(of_handle) {
                    self.set_handle(peer, FiAddr::UNSPEC);
                    // The application cannot address it any more.
                    self.release_peer(peer);
                }
            }
        }
    }

    /// No peer is known by this handle.
    fn forget_handle(&mut self, handle: FiAddr) {
        if let Some(slot) = handle.index().and_then(|index| self.by_handle.get_mut(index)) {
            *slot = NO_PEER;
        }
    }

    /// The application addresses a peer by this handle.
    fn name_peer(&mut self, peer: PeerId, handle: FiAddr) {
        self.set_handle(peer, handle);
        let Some(index) = handle.index() else { return };
        if self.by_handle.len() <= index {
            self.by_handle.resize(index + 1, NO_PEER);
        }
        self.by_handle[index] = peer;
    }

    /// Learns the handles of all peers anew.
    fn learn_all(&mut self, av: &AddressVector) {
        self.by_handle.fill(NO_PEER);
        let mut unnamed = Vec::new();
        for (id, peer) in self.peers.iter_mut() {
            peer.handle = peer.addr.as_ref().map_or(FiAddr::UNSPEC, |addr| av.find(addr));
            if peer.handle == FiAddr::UNSPEC {
                unnamed.push(id);
            }
            if let Some(index) = peer.handle.index() {
                if self.by_handle.len() <= index {
                    self.by_handle.resize(index + 1, NO_PEER);
                }
                self.by_handle[index] = id;
            }
        }
        self.name_links();
        // The application cannot address them any more.
        unnamed.into_iter().for_each(|peer| self.release_peer(peer));
    }

    /// Tells the address vector whether receives wait for a handle that it does not have.
    pub(super) fn note_awaited(&mut self) {
        let awaits = self.match_queues.iter().any(MatchQueue::is_pending);
        if let (Some(av), true) = (&self.av, awaits != self.awaits) {
            self.awaits = awaits;
            av.set_awaits(self.reader, awaits);
        }
    }

    /// The handle of a peer, or [`FiAddr::UNSPEC`].
    #[inline]
    pub(super) fn handle_of(&self, peer: PeerId) -> FiAddr {
        self.peers.get(peer).map_or(FiAddr::UNSPEC, |peer| peer.handle)
    }
}
