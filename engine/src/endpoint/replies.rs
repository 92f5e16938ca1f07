//! Acknowledgments that a read has left for the application's reply to take along.

use super::core::Core;
use crate::peer::table::PeerState;
use crate::transport::{Flush, Transport};
use crate::tx::send_control;
use ofi_core::FiAddr;
use ofi_sync::lock::LockKind;

impl<K: LockKind> Core<K> {
    /// An operation is about to leave for `dest`: acknowledgments that were left for it leave
    /// first.
    #[inline(always)]
    pub(super) fn take_acks_along<T: Transport>(&mut self, transport: &mut T, dest: FiAddr) {
        if self.peers.agenda.watches_replies() {
            self.send_acks(transport, dest);
        }
    }

    #[inline(never)]
    fn send_acks<T: Transport>(&mut self, transport: &mut T, dest: FiAddr) {
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
        let Some(left) = self.peers.agenda.note_reply(link) else { return };
        // The link stays listed: the next poll sends what the transport has not taken.
        send_control(&mut self.peers, transport, left);
        if link != Some(left) {
            // No frame behind them makes the transport send them.
            transport.flush(Flush::All, self);
        }
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
