//! Blocked peers: unexpected messages have used up their credit. While a receive is posted that
//! such a peer could fill, it gets more, since the matching message may be next. If the account is
//! full, receives that only such peers could fill fail instead of waiting forever.

use super::RxContext;
use super::match_queue::Source;
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::peer::shortage::Relief;
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
           closed peers, connections that have not sent a hello, payloads and responses of one-sided operations, and \
           output that a peer does not read; besides, each connection may hold 64 KiB in 64 messages, 256 KiB in 64 \
           responses, and 164 KiB for one-sided payloads, refusals and output (default: 268435456; at least 1048576)",
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

/// The senders whose messages are wanted.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// Those of the senders that this source covers.
    From(Source),
    /// Those that a posted receive covers.
    Posted,
}

impl RxContext {
    /// Handles a Blocked frame: the peer's next message costs more than its credit.
    pub(crate) fn handle_blocked<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        id: LinkId,
        bytes: u64,
    ) {
        let Some(sender) = peers.note_blocked(id, bytes) else { return };
        self.note_watching(peers);
        let is_wanted = self.is_wanted(sender);
        if matches!(self.relieve(peers, id, is_wanted), Relief::Starved) {
            self.note_starved(peers, out, &[sender]);
        }
    }

    /// Whether a receive is posted that the sender could fill.
    fn is_wanted(&self, sender: u32) -> bool {
        self.queues.iter().any(|queue| queue.wants(sender))
    }

    /// The account has room again, or receives have resolved to other peers: blocked peers may get
    /// credit.
    #[cold]
    pub(crate) fn relieve_all<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>) {
        peers.take_freed();
        self.relieve_where(peers, out, Wanted::Posted);
    }

    /// A receive or a peek wants messages: blocked peers that may have them may get credit, and one
    /// that must have them is asked about links that claim its name.
    pub(crate) fn tell_wanted<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, source: Source) {
        if !peers.watches_receives() {
            return;
        }
        if let Some(peer) = source.one().and_then(|sender| peers.peer_of_sender(sender)) {
            peers.await_peer(peer);
        }
        if peers.is_freed() {
            self.relieve_all(peers, out);
        }
        self.relieve_where(peers, out, Wanted::From(source));
    }

    /// Gives credit to blocked peers whose messages are wanted.
    fn relieve_where<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, wanted: Wanted) {
        let mut starved = Vec::new();
        let mut at = 0;
        while let Some((id, sender)) = peers.blocked_at(at) {
            let is_wanted = match wanted {
                Wanted::From(source) => source.covers(sender),
                Wanted::Posted => self.is_wanted(sender),
            };
            match self.relieve(peers, id, is_wanted) {
                // It has left the list.
                Relief::Granted => continue,
                Relief::Starved => starved.push(sender),
                Relief::Waits => {}
            }
            at += 1;
        }
        if !starved.is_empty() {
            self.note_starved(peers, out, &starved);
        }
    }

    /// The account had no room for these senders: polls check it until it has.
    fn note_starved<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, senders: &[u32]) {
        peers.note_starved();
        self.fail_starved(peers, out, senders);
    }

    fn relieve(&mut self, peers: &mut Peers, id: LinkId, is_wanted: bool) -> Relief {
        peers.relieve(id, is_wanted, || self.drop_indexes())
    }

    /// The account is full: fails the receives that only starved senders could fill. Those of a
    /// shared context may be filled by the peers of another endpoint.
    #[cold]
    fn fail_starved<K: LockKind>(&mut self, peers: &Peers, out: &mut Reporter<K>, senders: &[u32]) {
        if self.participants.is_shared() {
            return;
        }
        let all = peers.are_all_starved();
        let is_lost = |source: Source| match source.one() {
            Some(sender) => senders.contains(&sender),
            None => all && source == Source::ANY,
        };
        let keys: Vec<u32> = self.queues.iter().flat_map(|queue| queue.posted_of(is_lost)).collect();
        if keys.is_empty() {
            return;
        }
        let limit = peers.account().limit();
        let text = format!(
            "unexpected messages fill the {limit} bytes that the endpoint may hold for its peers ({})",
            PEER_MEMORY.name
        );
        let why = Down::new(Cause::NoMemory, Errno::ENOBUFS, text);
        for key in keys {
            self.fail_posted(out, key, &why);
        }
    }
}
