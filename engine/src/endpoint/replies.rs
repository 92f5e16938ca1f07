//! Acknowledgments that a read has left for the application's reply to take along.

use super::core::Core;
use crate::peer::table::PeerState;
use crate::transport::{Flush, LinkId, Transport};
use crate::tx::send_control;
use ofi_core::FiAddr;
use ofi_sync::lock::LockKind;

impl<K: LockKind> Core<K> {
    /// An operation is about to leave for `dest`: acknowledgments that were left for it leave
    /// first.
    #[inline(always)]
    pub(super) fn take_acks_along<T: Transport>(&mut self, transport: &mut T, dest: FiAddr) {
        if self.peers.agenda.watches_replies()
            && let Some(link) = self.acks_to_take_along(transport, dest)
        {
            // The link stays listed: the next poll sends what the transport has not taken.
            send_control(&mut self.peers, transport, link);
        }
    }

    /// The same for a write, which may itself tell how many operations have been carried out. If
    /// the link is returned, nothing else is left on it: the caller sends that if the write does
    /// not tell.
    #[inline(always)]
    pub(super) fn take_most_acks_along<T: Transport>(&mut self, transport: &mut T, dest: FiAddr) -> Option<LinkId> {
        if !self.peers.agenda.watches_replies() {
            return None;
        }
        let id = self.acks_to_take_along(transport, dest)?;
        if self.peers.link(id).is_some_and(|link| link.owes_only_performed()) {
            return Some(id);
        }
        send_control(&mut self.peers, transport, id);
        None
    }

    /// The link of an operation to `dest`, if acknowledgments are left there for it to take along.
    /// Sends those that are left elsewhere.
    #[inline(never)]
    fn acks_to_take_along<T: Transport>(&mut self, transport: &mut T, dest: FiAddr) -> Option<LinkId> {
        let peer = match self.known_peer(dest) {
            Some(peer) => Some(peer),
            // Without such a peer, the operation will fail.
            None => self.find_peer(dest).ok(),
        };
        let peer = peer.and_then(|peer| self.peers.table.get(peer));
        let link = peer.filter(|peer| peer.waiting.is_empty()).and_then(|peer| match peer.state {
            PeerState::Open(id) => Some(id),
            PeerState::Idle | PeerState::Connecting(_) | PeerState::Yielding(_) => None,
        });
        let left = self.peers.agenda.note_reply(link)?;
        if link == Some(left) {
            return link;
        }
        send_control(&mut self.peers, transport, left);
        // No frame behind them makes the transport send them.
        transport.flush(Flush::All, self);
        None
    }

    /// Sends deferred acknowledgments.
    #[cold]
    #[inline(never)]
    pub(super) fn send_deferred<T: Transport>(&mut self, transport: &mut T) {
        while let Some(id) = self.peers.take_deferred() {
            if !send_control(&mut self.peers, transport, id) {
                self.peers.mark_pending(id);
            }
        }
    }
}
