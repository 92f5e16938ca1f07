//! Decides which peer asks for a link. A claimed name counts if the connection comes from the
//! name's host; without authentication keys, the host is the unit of trust. A link with any other
//! claim is receive-only, and its messages have no source. When this endpoint has something to send
//! to the owner of the name, or posts a receive for it, it asks the owner whether it made that
//! connection. The question names the connection by its cookie, a random number that only its two
//! ends know.

use super::Peers;
use super::credit::RxCredits;
use super::link::{Link, Purpose};
use super::table::{PeerId, PeerState, Senders, Yielding};
use crate::statistics;
use crate::transport::{Down, LinkId, Transport, Verdict};
use crate::wire::hello::{Credits, Handshake, Hello};
use core::net::SocketAddr;
use ofi_core::error::Result;
use ofi_core::{Addr, Cause, Errno};

/// Hellos that refuse or verify grant no credit.
const NOTHING: Credits = Credits { bytes: 0, eager: 0, requests: 0, preview: 0 };
/// Length of a cookie in bytes.
pub(super) const COOKIE: usize = 16;
/// How often to ask a peer about claims before connecting to it in spite of further claims.
pub(super) const MOST_QUESTIONS: u8 = 3;

/// The effect of the peer's new connection on the link that the peer's sends use.
#[derive(Debug)]
pub(crate) enum Precedence {
    /// There is none.
    Free,
    /// The link gives way and is gone; waiting sends move to the new connection.
    Replaces,
    /// The link belongs to an earlier life of the peer, and so do the waiting sends.
    Ends(LinkId, Down),
}

/// The sender of a connect request, and the link that it asks for.
#[derive(Debug)]
pub(crate) struct Initiator {
    pub(crate) link: LinkId,
    pub(crate) from: Addr,
    /// The canonical address at which peers can reach it, according to its hello.
    pub(crate) name: Addr,
    /// The connection proves the name.
    pub(crate) proven: bool,
}

impl Initiator {
    /// Takes the name from the hello; `vouches` tells whether the connection proves a name.
    pub(crate) fn new(link: LinkId, hello: &Hello, from: &Addr, vouches: impl Fn(&Addr) -> bool) -> Self {
        let name = named(hello.name, from).canonical();
        Self { link, from: *from, name, proven: vouches(&name) }
    }
}

impl Peers {
    /// Answers a peer that asks which of the listed connections this endpoint made. Only a
    /// connection that leads to the initiator counts: a third endpoint to which we connected knows
    /// that connection's cookie and could pass it on.
    pub(crate) fn answer_claims(&self, hello: &Hello, from: &Addr) -> Verdict {
        let initiator = named(hello.name, from).canonical();
        let is_meant = |link: &Link| {
            let leads_there = link.identity.remote.is_some_and(|to| to.canonical() == initiator);
            link.identity.ours
                && link.purpose == Purpose::Carry
                && leads_there
                && hello.data.as_chunks::<COOKIE>().0.contains(&link.identity.cookie)
        };
        let mine = self.links.iter().find(|(_, link)| is_meant(link));
        let (handshake, cookie) =
            mine.map_or((Handshake::NotMine, [0; COOKIE]), |(_, link)| (Handshake::Mine, link.identity.cookie));
        Verdict::Refuse(self.hello(handshake, cookie, NOTHING, Vec::new()).encode())
    }

    pub(crate) fn refuse(&mut self, handshake: Handshake, why: &'static str) -> Verdict {
        if handshake == Handshake::Refuse {
            statistics::count(&mut self.totals.refused, why);
        }
        Verdict::Refuse(self.hello(handshake, [0; 16], NOTHING, why.as_bytes().to_vec()).encode())
    }

    /// Whether there is memory for another peer. `remains`: links that have ended left more than
    /// orphans.
    pub(crate) fn admits_more(&self, remains: bool) -> bool {
        self.account.used() < self.account.limit() || self.totals.orphans == 0 && !remains
    }

    /// Whether the hello carries this endpoint's own nonce.
    pub(crate) fn is_own(&self, hello: &Hello) -> bool {
        hello.nonce == self.myself.nonce
    }

    /// Whether this endpoint makes the connection to itself that asks for a link. Any peer knows
    /// our nonce, but not the cookie of that connection.
    pub(crate) fn connects_to_itself(&self, hello: &Hello, initiator: &Initiator) -> bool {
        let mine = |link: &Link| {
            link.identity.ours
                && link.identity.cookie == hello.cookie
                && link.identity.remote.is_some_and(|to| to.canonical() == initiator.name)
        };
        initiator.proven && self.links.iter().any(|(_, link)| mine(link))
    }

    /// Decides between the link that a peer's sends use and the peer's new connection.
    ///
    /// # Errors
    /// The new connection is refused.
    pub(crate) fn precedence(
        &mut self,
        peer: PeerId,
        hello: &Hello,
        initiator: &Initiator,
    ) -> Result<Precedence, Verdict> {
        match self.state_of(peer) {
            PeerState::Connecting(mine) => {
                let verifies = self.link(mine).is_some_and(|link| matches!(link.purpose, Purpose::Verify(_)));
                if !verifies && self.myself.nonce > hello.nonce {
                    return Err(self.refuse(Handshake::Crossing, "the other connection is used"));
                }
                self.remove_link(mine);
                self.abort_link(mine, None);
                Ok(Precedence::Replaces)
            }
            PeerState::Open(old) => {
                let stale = self.link(old).map(|link| (link.identity.nonce, link.identity.attempt));
                let same = stale.is_some_and(|(nonce, _)| nonce == hello.nonce);
                if same && stale.is_some_and(|(_, attempt)| hello.attempt <= attempt) {
                    // Its connect request crossed ours, which it has accepted since.
                    return Err(self.refuse(Handshake::Crossing, "the other connection is used"));
                }
                let (cause, what) = if same {
                    (Cause::Broken, "the peer connected anew")
                } else {
                    (Cause::PeerRestarted, "the peer was restarted")
                };
                let text = format!("{}: {what} from {}", initiator.name, initiator.from);
                Ok(Precedence::Ends(old, Down::new(cause, Errno::ECONNRESET, text)))
            }
            PeerState::Idle | PeerState::Yielding(_) => Ok(Precedence::Free),
        }
    }

    /// Accepts a link of a peer whose connection proves its name.
    pub(crate) fn accept_proven(
        &mut self,
        hello: &Hello,
        initiator: &Initiator,
        senders: &mut impl Senders,
    ) -> Verdict {
        let peer = self.peer_at(initiator.name, senders);
        let answer = self.add_accepted(initiator.link, peer, hello, &initiator.from, Purpose::Carry);
        if !self.is_own(hello) {
            self.set_state(peer, PeerState::Open(initiator.link));
            self.mark_pending(initiator.link);
        }
        Verdict::Accept(answer)
    }

    /// Accepts a link whose connection does not prove the claimed name.
    pub(crate) fn accept_unproven(
        &mut self,
        hello: &Hello,
        initiator: &Initiator,
        senders: &mut impl Senders,
    ) -> Verdict {
        let (id, name) = (initiator.link, initiator.name);
        let peer = self.add_peer(None, senders);
        let answer = self.add_accepted(id, peer, hello, &initiator.from, Purpose::Unproven(name));
        self.set_state(peer, PeerState::Open(id));
        self.mark_pending(id);
        // One claim per host: a host that makes more replaces its own.
        let host = initiator.from.socket().ip();
        self.drop_claims(name, |_, link| link.identity.remote.is_some_and(|remote| remote.socket().ip() == host));
        self.claims.add(name, id);
        // If this endpoint waits for the peer to connect, or for its messages, ask the peer now.
        if let Some(owner) = self.table.at(&name) {
            let sender = self.table.get(owner).map(|peer| peer.sender);
            match self.state_of(owner) {
                PeerState::Yielding(Yielding::Begun | Yielding::Until(_)) => self.yield_to(owner, Yielding::Over),
                PeerState::Idle if sender.is_some_and(|sender| senders.is_awaited(sender)) => {
                    self.yield_to(owner, Yielding::Over);
                }
                PeerState::Idle | PeerState::Yielding(_) | PeerState::Connecting(_) | PeerState::Open(_) => {}
            }
        }
        Verdict::Accept(answer)
    }

    /// Asks the owner of a name which of the links that claim the name are its own, after `before`
    /// earlier attempts.
    pub(crate) fn verify<T: Transport>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        name: Addr,
        before: u8,
    ) -> Result<()> {
        let mut cookies = Vec::new();
        for id in self.claims.of(&name) {
            if let Some(link) = self.links.get_mut(*id) {
                link.identity.asked = true;
                cookies.extend(link.identity.cookie);
            }
        }
        let mut link = Link::new(peer, RxCredits::none(), [0; COOKIE], true);
        link.purpose = Purpose::Verify(before + 1);
        let hello = self.hello(Handshake::Verify, [0; COOKIE], NOTHING, cookies);
        self.begin_link(transport, link, hello)
    }

    /// Handles the answer of a name's owner: it made the connection with this cookie, or none of
    /// those it was asked about. Returns the unproven link that is its own.
    pub(crate) fn handle_verified(&mut self, id: LinkId, cookie: Option<[u8; COOKIE]>) -> Option<LinkId> {
        let name = self.addr_on(id)?;
        let is_meant = |link: &Link| link.identity.asked && Some(link.identity.cookie) == cookie;
        let own = self.claims.of(&name).iter().copied();
        let own = own.into_iter().find(|claim| self.links.get(*claim).is_some_and(is_meant));
        if let Some(own) = own {
            self.drop_claims(name, |claim, _| claim == own);
        }
        // The other links stay, without a source.
        self.drop_claims(name, |_, link| link.identity.asked);
        own
    }

    /// An unproven link turns out to be this peer's. Returns the number of the peer that it had.
    pub(crate) fn take_over_link(&mut self, id: LinkId, peer: PeerId) -> Option<PeerId> {
        let (handle, sender) = self.table.get(peer).map(|peer| (peer.handle, peer.sender))?;
        let link = self.links.get_mut(id)?;
        let before = core::mem::replace(&mut link.peer, peer);
        (link.src, link.sender, link.purpose) = (handle, sender, Purpose::Carry);
        if let Some(peer) = self.table.get_mut(peer) {
            peer.links += 1;
            peer.connected += 1;
        }
        if let Some(before) = self.table.get_mut(before) {
            before.connected = before.connected.saturating_sub(1);
        }
        self.set_state(peer, PeerState::Open(id));
        self.mark_pending(id);
        Some(before)
    }
}

/// Where a peer can be reached: the name in its hello, with the observed IP address if it listens
/// on all addresses.
fn named(name: Option<Addr>, from: &Addr) -> Addr {
    match name {
        // shm: the kernel authenticates the sender's name; ignore the one in the hello.
        _ if from.name().is_some() => *from,
        Some(name) if !name.socket().ip().is_unspecified() => name,
        Some(name) => Addr::from(SocketAddr::new(from.socket().ip(), name.socket().port())),
        None => *from,
    }
}
