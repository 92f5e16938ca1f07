//! What an endpoint is doing, for people and for checks.

use super::credit::cost_of;
use super::engine::{Engine, Work};
use super::state::{Peer, PeerState};
use crate::match_queue::MatchQueue;
use crate::transport::LinkId;
use ofi_sync::lock::LockKind;

/// Unexpected messages that [`Engine::describe`] lists one by one.
const MOST_SHOWN: usize = 64;

impl<K: LockKind> Engine<K> {
    /// For tests: work that nothing would resume if this endpoint were left alone now, if any.
    pub(super) fn left_undone(&self, mut is_backed_up: impl FnMut(LinkId) -> bool) -> Option<String> {
        if self.work.has(Work::PENDING) || self.is_pending() {
            return Some(format!("links are listed: {:?}, {:?}", self.todo, self.aborted));
        }
        if !self.lazy.is_empty() {
            return Some(format!("arrival acknowledgments are pending on {:?}", self.lazy));
        }
        if self.match_queues.iter().any(MatchQueue::is_pending) && !self.av_is_known() {
            return Some("a receive waits for a handle that has been inserted".to_owned());
        }
        let mut stuck = |peer: &Peer| {
            let PeerState::Open(id) = peer.state else { return None };
            let link = self.links.get(id.index())?.as_ref()?;
            let send = self.sends.get(*peer.waiting.front()? as usize)?;
            let cost = if send.len <= link.eager { cost_of(send.len) } else { super::credit::OVERHEAD };
            (link.out >= cost && !send.fenced && !is_backed_up(id))
                .then(|| format!("a send that could leave is still queued on {id:?}"))
        };
        self.peers.iter().find_map(|(_, peer)| stuck(peer))
    }

    /// Describes links and operations, and what they wait for.
    pub(super) fn describe(&self) -> String {
        use core::fmt::Write;
        let mut out = String::new();
        // Writing to a String cannot fail.
        let account = &self.config.account;
        if account.used() > 0 {
            let _ = writeln!(out, "{} of {} bytes are held for peers", account.used(), account.limit());
        }
        for (_, peer) in self.peers.iter() {
            let _ = writeln!(out, "peer {:?}: {:?}, {} sends wait", peer.addr, peer.state, peer.waiting.len());
        }
        for (id, link) in self.links.iter().enumerate().filter_map(|(id, link)| Some((id, link.as_ref()?))) {
            let _ = writeln!(
                out,
                "link {id}: {:?}, may send {} bytes, may receive {:?}, blocked {:?}, {} control frames, coming {:?}, \
                 data to send {:?}",
                link.purpose,
                link.out,
                link.credit,
                link.blocked,
                link.control.len(),
                link.coming,
                link.data_queue
            );
        }
        for (key, send) in &self.sends {
            let _ = writeln!(out, "send {key} of {} bytes, {:?}: {:?}", send.len, send.info, send.stage);
        }
        for (key, receive) in self.receives.iter() {
            let _ = writeln!(out, "receive {key}: {:?}", receive.stage);
        }
        if self.unexpected.len() > 0 {
            let _ = writeln!(out, "{} unexpected messages", self.unexpected.len());
        }
        for (key, message) in self.unexpected.iter().take(MOST_SHOWN) {
            let _ = writeln!(
                out,
                "unexpected {key} of {} bytes, {:?} from peer {}",
                message.total(),
                message.info(),
                message.peer
            );
        }
        out
    }
}
