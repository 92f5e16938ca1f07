//! Peers of an endpoint: their identities, links, credit and pending work.
//! Neighbours: `tx` and `rx` carry messages over the links; the endpoint's core passes events on.
//! Knows no operation: sends and receives appear as keys only.

pub(crate) mod agenda;
pub(crate) mod claims;
pub(crate) mod connect;
pub(crate) mod contexts;
pub(crate) mod credit;
pub(crate) mod fences;
pub(crate) mod handles;
pub(crate) mod handshake;
pub(crate) mod link;
pub(crate) mod shortage;
pub(crate) mod table;
pub(crate) mod yields;

use crate::hash::HashMap;
use crate::keys::Keys;
use crate::statistics::{self, Exchanged, PeerStatistics, Statistics};
use crate::transport::{Down, LinkId};
use crate::wire::hello::{Contexts, EndpointKind};
use agenda::Agenda;
use claims::Claims;
use contexts::ContextLinks;
use credit::MOST_PREVIEW;
use handles::BoundAv;
use link::{Arrivals, Coming, Link, LinkTable, OneSidedPayload, Purpose};
use ofi_core::error::Result;
use ofi_core::{Addr, Cause, Errno, Error, FiAddr};
use ofi_sync::account::Account;
use shortage::Shortage;
use std::sync::Arc;
use table::{PEER_COST, PeerId, PeerState, PeerTable, Senders};
use yields::Yields;

/// Number of an endpoint among those that share a receive context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParticipantId(pub(crate) u32);

/// This endpoint's identity, as its hellos state it.
#[derive(Debug)]
struct Myself {
    kind: EndpointKind,
    nonce: [u8; 16],
    /// Number of connection attempts.
    attempts: u64,
    /// Its index if it is a transmit or receive context of a scalable endpoint; both 0 for an
    /// ordinary endpoint.
    contexts: Contexts,
    /// How many first bytes of a message its RTS is to bring.
    preview: u32,
}

/// The peers of an endpoint and their links.
///
/// `table` and `links` are open to the other parts, because a send holds the entry of its peer
/// while it uses the peer's link: methods of `Peers` cannot lend both at once. `agenda` is open
/// because it guards its own state: methods of `Peers` would only pass its calls on.
#[derive(Debug)]
pub(crate) struct Peers {
    myself: Myself,
    account: Arc<Account>,
    participant: ParticipantId,
    pub(crate) table: PeerTable,
    pub(crate) links: LinkTable,
    pub(crate) agenda: Agenda,
    claims: Claims,
    contexts: ContextLinks,
    yields: Yields,
    av: Option<BoundAv>,
    shortage: Shortage,
    pub(crate) totals: Totals,
}

/// What is counted for all peers together.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Number of unexpected messages whose link is gone.
    orphans: usize,
    /// What has crossed links that have ended.
    exchanged: Exchanged,
    /// How many links have opened.
    connected: u64,
    /// How many links have ended, by cause.
    ended: Vec<(Cause, u64)>,
    /// How many connect requests were refused, by reason.
    refused: Vec<(&'static str, u64)>,
}

impl Totals {
    /// A link has ended, or could not be opened.
    pub(crate) fn end(&mut self, cause: Cause) {
        statistics::count(&mut self.ended, cause);
    }
}

impl Peers {
    pub(crate) fn new(kind: EndpointKind, nonce: [u8; 16], contexts: Contexts, account: Arc<Account>) -> Self {
        Self {
            myself: Myself { kind, nonce, attempts: 0, contexts, preview: 0 },
            account,
            participant: ParticipantId::default(),
            table: PeerTable::new(),
            links: LinkTable::default(),
            agenda: Agenda::default(),
            claims: Claims::default(),
            contexts: ContextLinks::default(),
            yields: Yields::default(),
            av: None,
            shortage: Shortage::default(),
            totals: Totals::default(),
        }
    }

    /// How many first bytes of a message, unless it is one of a group, its RTS brings.
    pub(crate) fn preview(&self) -> u64 {
        u64::from(self.myself.preview)
    }

    /// Sets what [`Self::preview`] answers, before the first hello.
    ///
    /// # Errors
    /// EMSGSIZE if it is too long.
    pub(crate) fn set_preview(&mut self, len: usize) -> Result<()> {
        let fits = u32::try_from(len).ok().filter(|len| *len <= MOST_PREVIEW);
        let text = || format!("set FI_OPT_BUFFERED_MIN to {len} bytes: the largest is {MOST_PREVIEW}");
        self.myself.preview = fits.ok_or_else(|| Error::new(Errno::EMSGSIZE, text()))?;
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id)
    }

    fn add_link(&mut self, id: LinkId, mut link: Link) {
        if let Some(peer) = self.table.get_mut(link.peer) {
            peer.links += 1;
            link.src = peer.handle;
            link.sender = peer.sender;
        }
        self.links.insert(id, link);
    }

    /// Removes a link. The operations that it names are the caller's.
    pub(crate) fn remove_link(&mut self, id: LinkId) -> Option<Box<Link>> {
        let link = self.links.remove(id)?;
        let exchanged = link.exchanged();
        self.totals.exchanged += exchanged;
        if let Some(peer) = self.table.get_mut(link.peer) {
            peer.links -= 1;
            peer.exchanged += exchanged;
        }
        link.rx.credit.close(&self.account);
        self.account.release(link.tx.charged);
        self.note_freed();
        if link.rx.blocked.need().is_some() {
            self.shortage.forget(id);
        }
        if link.identity.transmit > 0 {
            self.contexts.forget(link.peer, link.identity.transmit, id);
        }
        if let Purpose::Unproven(name) = link.purpose {
            self.drop_claims(name, |claim, _| claim == id);
        }
        Some(link)
    }

    /// A link has opened.
    fn note_connected(&mut self, peer: PeerId) {
        self.totals.connected += 1;
        if let Some(peer) = self.table.get_mut(peer) {
            peer.connected += 1;
        }
    }

    /// What was exchanged with all peers, and with each of the first `most`.
    pub(crate) fn statistics(&self, most: usize) -> Statistics {
        let Totals { orphans: _, exchanged, connected, ended, refused } = &self.totals;
        let mut all = Statistics {
            exchanged: *exchanged,
            connected: *connected,
            ended: ended.clone(),
            refused: refused.clone(),
            peer_memory: self.account.used() as u64,
            ..Statistics::default()
        };
        let mut places = HashMap::default();
        for (id, peer) in self.table.iter().take(most) {
            places.insert(id, all.peers.len());
            all.peers.push(PeerStatistics {
                addr: peer.addr,
                connected: peer.connected,
                is_connected: matches!(peer.state, PeerState::Open(_)),
                waiting: peer.waiting.len() as u64,
                exchanged: peer.exchanged,
            });
        }
        for (_, link) in self.links.iter() {
            let exchanged = link.exchanged();
            all.exchanged += exchanged;
            if let Some(place) = places.get(&link.peer) {
                all.peers[*place].exchanged += exchanged;
            }
        }
        all
    }

    /// Takes the payload that is arriving on a link, if it is that of a one-sided operation: the
    /// rest of it will not arrive.
    pub(crate) fn take_one_sided(&mut self, id: LinkId) -> Option<OneSidedPayload> {
        let coming = &mut self.links.get_mut(id)?.rx.coming;
        let payload = match *coming {
            Some(Coming::Access) => OneSidedPayload::Access,
            Some(Coming::Response { number, last }) => OneSidedPayload::Response { number, last },
            _ => return None,
        };
        *coming = None;
        Some(payload)
    }

    /// The receives and unexpected messages of the links have ended.
    pub(crate) fn forget_receives(&mut self) {
        for (_, link) in self.links.iter_mut() {
            (link.rx.unexpected, link.rx.rendezvous) = (Keys::default(), Keys::default());
            link.rx.offers.clear();
            link.rx.coming = link.rx.coming.map(|_| Coming::Dropped);
        }
    }

    /// Queues a link that has something to send.
    #[inline]
    pub(crate) fn mark_pending(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id)
            && !link.pending
        {
            link.pending = true;
            self.agenda.push_pending(id);
        }
    }

    /// The next link that has something to send, and whether the transport is to be asked for
    /// offers on it.
    #[inline]
    pub(crate) fn next_pending(&mut self) -> Option<(LinkId, bool)> {
        loop {
            let id = self.agenda.pop_pending()?;
            if let Some(link) = self.links.get_mut(id) {
                link.pending = false;
                return Some((id, !link.rx.offers.is_empty()));
            }
        }
    }

    /// Queues a link for the transport to abort. With a reason, its operations fail for that
    /// reason.
    pub(crate) fn abort_link(&mut self, id: LinkId, why: Option<Down>) {
        self.agenda.push_aborted(id, why);
    }

    /// Queues the links with deferred arrival acknowledgments for sending.
    #[cold]
    pub(crate) fn end_deferral(&mut self) {
        while let Some(id) = self.take_deferred() {
            self.mark_pending(id);
        }
    }

    /// Forgets the links with deferred acknowledgments that frames of the application's have taken
    /// along.
    pub(crate) fn forget_paid(&mut self) {
        let Self { links, agenda, .. } = self;
        agenda.retain_deferred(|id| {
            let Some(link) = links.get_mut(id) else { return false };
            let Arrivals { count, performed, listed } = &mut link.rx.arrivals;
            *listed = *count > 0 || *performed > 0;
            *listed
        });
    }

    /// The next link with deferred arrival acknowledgments: the caller sends them.
    pub(crate) fn take_deferred(&mut self) -> Option<LinkId> {
        while let Some(id) = self.agenda.pop_deferred() {
            if let Some(link) = self.link(id) {
                link.rx.arrivals.listed = false;
                return Some(id);
            }
        }
        None
    }

    /// Whether links wait for the transport or for credit that has become free.
    pub(crate) fn is_pending(&self) -> bool {
        self.agenda.has_links() || self.can_relieve()
    }

    /// The account that is charged for memory held for peers.
    pub(crate) const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// This endpoint's number in the receive context that it shares.
    #[inline(always)]
    pub(crate) const fn participant(&self) -> ParticipantId {
        self.participant
    }

    /// The endpoint shares a receive context from now on.
    pub(crate) const fn set_participant(&mut self, participant: ParticipantId) {
        self.participant = participant;
    }

    /// A message has been consumed: returns its credit to its link, or to the account if the link
    /// is gone.
    #[inline]
    pub(crate) fn return_credits(&mut self, link: Option<LinkId>, cost: u64) {
        match link {
            Some(id) => {
                if let Some(link) = self.link(id)
                    && link.rx.credit.consumed(cost)
                {
                    let waits = link.rx.blocked.need().is_some();
                    self.grant_credits(id);
                    if waits {
                        self.note_freed();
                    }
                }
            }
            None => {
                self.account.release(usize::try_from(cost).unwrap_or(usize::MAX));
                self.note_freed();
            }
        }
    }

    /// Returns consumed credit to the account and the link's peer.
    #[cold]
    pub(crate) fn grant_credits(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id) {
            let freed = link.rx.credit.settle(&self.account) > 0;
            if link.rx.credit.is_due() {
                self.mark_pending(id);
            }
            if freed {
                self.note_freed();
            }
        }
    }

    /// The peer with this number in the match queues.
    pub(crate) fn peer_of_sender(&self, sender: u32) -> Option<PeerId> {
        // In an endpoint's own queues the numbers are the same.
        if self.table.get(sender).is_some_and(|peer| peer.sender == sender) {
            return Some(sender);
        }
        self.table.iter().find(|(_, peer)| peer.sender == sender).map(|(id, _)| id)
    }

    pub(crate) fn set_state(&mut self, peer: PeerId, state: PeerState) {
        self.table.set_state(peer, state);
    }

    pub(crate) fn state_of(&self, peer: PeerId) -> PeerState {
        self.table.get(peer).map_or(PeerState::Idle, |peer| peer.state)
    }

    /// The address of a peer.
    pub(crate) fn addr_of(&self, peer: PeerId) -> Option<Addr> {
        self.table.get(peer)?.addr
    }

    /// The handle of a peer, or [`FiAddr::UNSPEC`].
    #[inline]
    pub(crate) fn handle_of(&self, peer: PeerId) -> FiAddr {
        self.table.get(peer).map_or(FiAddr::UNSPEC, |peer| peer.handle)
    }

    /// The address of a link's peer.
    pub(crate) fn addr_on(&self, id: LinkId) -> Option<Addr> {
        self.addr_of(self.links.get(id)?.peer)
    }

    /// Removes a peer if nothing needs it any more.
    pub(crate) fn release_peer(&mut self, id: PeerId, senders: &mut impl Senders) {
        let Some(peer) = self.table.get(id) else { return };
        if peer.is_unused() && !senders.is_awaited(peer.sender) {
            self.drop_peer(id, senders);
        }
    }

    /// Removes a peer that has no link.
    pub(crate) fn drop_peer(&mut self, id: PeerId, senders: &mut impl Senders) {
        let Some(peer) = self.table.remove(id) else { return };
        if peer.charged {
            self.account.release(PEER_COST);
        }
        senders.release(peer.sender);
    }

    /// The link of an unexpected message has ended: the message is an orphan.
    pub(crate) fn add_orphan(&mut self, id: PeerId) {
        self.totals.orphans += 1;
        if let Some(peer) = self.table.get_mut(id) {
            peer.orphans += 1;
        }
    }

    /// An orphan is gone: removes its peer if nothing else is left of it.
    #[cold]
    pub(crate) fn remove_orphan(&mut self, id: PeerId, senders: &mut impl Senders) {
        self.totals.orphans -= 1;
        if let Some(peer) = self.table.get_mut(id) {
            peer.orphans -= 1;
            if peer.orphans == 0 && peer.links == 0 {
                self.release_peer(id, senders);
            }
        }
    }

    /// A link of the peer has ended and left messages: charges the account for the peer, once.
    pub(crate) fn charge_peer(&mut self, id: PeerId) {
        if let Some(peer) = self.table.get_mut(id)
            && !core::mem::replace(&mut peer.charged, true)
        {
            self.account.charge(PEER_COST);
        }
    }

    /// Drops all links, and releases what the account is charged for them and for their peers. Only
    /// for closing.
    pub(crate) fn discard_all(&mut self) {
        for id in self.links.ids() {
            self.remove_link(id);
        }
        for (_, peer) in self.table.iter_mut() {
            if core::mem::take(&mut peer.charged) {
                self.account.release(PEER_COST);
            }
        }
    }
}
