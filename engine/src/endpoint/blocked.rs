//! Blocked peers: unexpected messages have used up their credit. While a receive is posted that
//! such a peer could fill, it gets more, since the matching message may be next. If the account is
//! full, receives that only such peers could fill fail instead of waiting forever.

use super::engine::{Engine, Work};
use super::state::PeerId;
use crate::match_queue::{MatchQueue, Source};
use crate::transport::{Down, LinkId};
use ofi_core::param::{Param, ParamKind};
use ofi_core::{Cause, Errno};
use ofi_sync::account::Account;
use ofi_sync::lock::LockKind;
use std::sync::Arc;

/// Parameter: the memory that an endpoint may hold for its peers.
pub const PEER_MEMORY: Param = Param {
    name: "FI_OFI_PEER_MEMORY",
    kind: ParamKind::Size,
    help: "Maximum memory in bytes that an endpoint holds for its peers: unexpected messages, including those of \
           closed peers, connections that have not sent a hello, and output that a peer does not read; besides, each \
           connection may hold 64 KiB in 64 messages (default: 268435456; at least 1048576)",
};

/// Default of [`PEER_MEMORY`].
const DEFAULT: u64 = 256 << 20;
/// Minimum of [`PEER_MEMORY`].
const LEAST: u64 = 1 << 20;

/// The account of a new endpoint, with the limit that [`PEER_MEMORY`] sets.
pub fn peer_account() -> Arc<Account> {
    let limit = usize::try_from(PEER_MEMORY.number(DEFAULT).max(LEAST)).unwrap_or(usize::MAX);
    Arc::new(Account::new(limit))
}

/// Outcome of trying to give a blocked peer credit.
enum Relief {
    /// It has the credit that it needs.
    Granted,
    /// The account has no room.
    Starved,
    /// No receive wants its messages.
    Waits,
}

impl<K: LockKind> Engine<K> {
    /// Handles a Blocked frame: the peer's next message costs more than its credit.
    pub(super) fn handle_blocked(&mut self, id: LinkId, bytes: u64) {
        let Some(link) = self.link(id) else { return };
        // No eager message costs more, so ignore what the peer asks for beyond that.
        let most = super::credit::cost_of(link.credit.eager());
        let peer = link.peer;
        if link.blocked.replace(bytes.min(most)).is_none() {
            link.credit.set_prompt(true);
            self.blocked.push(id);
            self.watch_posts();
        }
        let is_wanted = self.is_wanted(peer);
        if matches!(self.relieve(id, is_wanted), Relief::Starved) {
            self.note_starved(&[peer]);
        }
    }

    /// Whether a receive is posted that the peer could fill.
    fn is_wanted(&self, peer: PeerId) -> bool {
        self.match_queues.iter().any(|queue| queue.posted_of(|src| src.covers(peer)).next().is_some())
    }

    /// The account has room again, or receives have resolved to other peers: blocked peers may get
    /// credit.
    #[cold]
    pub(super) fn relieve_all(&mut self) {
        self.freed = false;
        self.starved_at = None;
        for id in self.blocked.clone() {
            if let Some(link) = self.link(id) {
                link.starved = false;
            }
        }
        self.relieve_where(None);
    }

    /// A receive or a peek wants messages from this source: blocked peers that it covers may get
    /// credit.
    pub(super) fn relieve_for(&mut self, src: Source) {
        if self.freed {
            self.relieve_all();
        }
        self.relieve_where(Some(src));
    }

    /// Gives credit to the blocked peers that `wanted` covers, or without it to all that a posted
    /// receive covers.
    fn relieve_where(&mut self, wanted: Option<Source>) {
        let mut starved = Vec::new();
        let mut at = 0;
        while let Some(&id) = self.blocked.get(at) {
            let Some(peer) = self.link(id).map(|link| link.peer) else { break };
            let is_wanted = match wanted {
                Some(src) => src.covers(peer),
                None => self.is_wanted(peer),
            };
            match self.relieve(id, is_wanted) {
                // It has left the list.
                Relief::Granted => continue,
                Relief::Starved => starved.push(peer),
                Relief::Waits => {}
            }
            at += 1;
        }
        if !starved.is_empty() {
            self.note_starved(&starved);
        }
    }

    /// The account had no room for these peers: polls check it until it has.
    fn note_starved(&mut self, peers: &[PeerId]) {
        self.starved_at = Some(self.config.account.used());
        self.work.add(Work::DEFERRED);
        self.fail_starved(peers);
    }

    fn relieve(&mut self, id: LinkId, is_wanted: bool) -> Relief {
        self.grant_credits(id);
        let Some(Some(link)) = self.links.get_mut(id.index()) else { return Relief::Waits };
        let Some(need) = link.blocked else { return Relief::Waits };
        if link.credit.promised() < need {
            if !is_wanted {
                // It keeps the credit it has and waits, as any sender does.
                return Relief::Waits;
            }
            if !link.credit.extend(need, &self.config.account) {
                // What only saves time makes way for messages.
                self.match_queues.iter_mut().for_each(MatchQueue::drop_index);
            }
            let Some(Some(link)) = self.links.get_mut(id.index()) else { return Relief::Waits };
            if link.credit.promised() < need && !link.credit.extend(need, &self.config.account) {
                link.starved = true;
                return Relief::Starved;
            }
        }
        let Some(Some(link)) = self.links.get_mut(id.index()) else { return Relief::Waits };
        link.starved = false;
        link.blocked = None;
        link.credit.set_prompt(false);
        self.unblock(id);
        self.mark_pending(id);
        Relief::Granted
    }

    /// The account is full: fails the receives that only starved peers could fill.
    #[cold]
    fn fail_starved(&mut self, peers: &[PeerId]) {
        let all = self.links.iter().flatten().all(|link| link.starved);
        let is_lost = |src: Source| match src.one() {
            Some(peer) => peers.contains(&peer),
            None => all && src == Source::ANY,
        };
        let keys: Vec<u32> = self.match_queues.iter().flat_map(|queue| queue.posted_of(is_lost)).collect();
        if keys.is_empty() {
            return;
        }
        let limit = self.config.account.limit();
        let text = format!(
            "unexpected messages fill the {limit} bytes that the endpoint may hold for its peers ({})",
            PEER_MEMORY.name
        );
        let why = Down::new(Cause::NoMemory, Errno::ENOBUFS, text);
        for key in keys {
            self.fail_posted(key, &why);
        }
    }
}
