//! Decides which peer asks for a link. A claimed name counts if the connection comes from the
//! name's host; without authentication keys, the host is the unit of trust. A link with any other
//! claim is receive-only, and its messages have no source. When this endpoint has something to send
//! to the owner of the name, or posts a receive for it, it asks the owner whether it made that
//! connection. The question names the connection by its cookie, a random number that only its two
//! ends know.

use super::credit::RxCredits;
use super::engine::{Engine, Phase};
use super::state::{Link, PeerId, PeerState, Purpose, Yielding};
use crate::match_queue::QueueKind;
use crate::transport::{Down, LinkId, Transport, Verdict};
use crate::wire::hello::{Credits, EndpointKind, Handshake, Hello, MAX_USER_DATA};
use core::net::SocketAddr;
use ofi_core::error::Result;
use ofi_core::{Addr, Cause, Errno};
use ofi_sync::lock::LockKind;

/// Hellos that refuse or verify grant no credit.
const NOTHING: Credits = Credits { bytes: 0, eager: 0 };
/// Length of a cookie in bytes.
const COOKIE: usize = 16;
/// Maximum number of claims to one name: as many cookies as fit into one Verify hello.
const MOST_CLAIMS: usize = MAX_USER_DATA / COOKIE;
/// How often to ask a peer about claims before connecting to it in spite of further claims.
pub(super) const MOST_QUESTIONS: u8 = 3;

impl<K: LockKind> Engine<K> {
    /// Answers a connect request.
    pub(super) fn answer_connect_request(
        &mut self,
        id: LinkId,
        hello: &[u8],
        from: &Addr,
        vouches: impl Fn(&Addr) -> bool,
    ) -> Verdict {
        let hello = match Hello::parse(hello) {
            Ok(hello) => hello,
            Err(violation) => return self.refuse(Handshake::Refuse, violation.0),
        };
        if hello.kind != self.config.kind {
            return self.refuse(Handshake::Refuse, "the endpoint types do not match");
        }
        if matches!(self.config.kind, EndpointKind::Msg) {
            return self.refuse(Handshake::Refuse, "a connected endpoint takes no further connection");
        }
        match hello.handshake {
            Handshake::Connect if self.phase != Phase::Enabled => {
                self.refuse(Handshake::Refuse, "the endpoint is closing")
            }
            Handshake::Connect => self.handle_question(id, &hello, from, vouches),
            Handshake::Verify => self.answer_claims(&hello, from),
            _ => self.refuse(Handshake::Refuse, "the hello is not a request"),
        }
    }

    /// Answers a peer that asks which of the listed connections this endpoint made. Only a
    /// connection that leads to the initiator counts: a third endpoint to which we connected knows
    /// that connection's cookie and could pass it on.
    fn answer_claims(&self, hello: &Hello, from: &Addr) -> Verdict {
        let initiator = named(hello.name, from).canonical();
        let is_meant = |link: &Link| {
            let leads_there = link.remote.is_some_and(|to| to.canonical() == initiator);
            link.ours
                && link.purpose == Purpose::Carry
                && leads_there
                && hello.data.as_chunks::<COOKIE>().0.contains(&link.cookie)
        };
        let mine = self.links.iter().flatten().find(|link| is_meant(link));
        let (handshake, cookie) = mine.map_or((Handshake::NotMine, [0; COOKIE]), |link| (Handshake::Mine, link.cookie));
        Verdict::Refuse(self.hello(handshake, cookie, NOTHING, Vec::new()).encode())
    }

    fn refuse(&self, handshake: Handshake, why: &str) -> Verdict {
        Verdict::Refuse(self.hello(handshake, [0; 16], NOTHING, why.as_bytes().to_vec()).encode())
    }

    fn handle_question(&mut self, id: LinkId, hello: &Hello, from: &Addr, vouches: impl Fn(&Addr) -> bool) -> Verdict {
        let account = &self.config.account;
        if account.used() >= account.limit() && self.orphans > 0 {
            let why = "unexpected messages of disconnected peers fill the endpoint's memory limit for peers";
            return self.refuse(Handshake::Refuse, why);
        }
        let name = named(hello.name, from).canonical();
        let to_self = hello.nonce == self.config.nonce;
        if to_self {
            // Any peer knows our nonce, but not the cookie of a connection that we make to
            // ourselves.
            let mine = |link: &Link| {
                link.ours && link.cookie == hello.cookie && link.remote.is_some_and(|to| to.canonical() == name)
            };
            if !vouches(&name) || !self.links.iter().flatten().any(|link| mine(link)) {
                return self.refuse(Handshake::Refuse, "the hello carries this endpoint's own nonce");
            }
        } else if !vouches(&name) {
            return self.accept_unproven(id, hello, from, name);
        }
        let peer = self.peer_at(name);
        if !to_self && let Err(refusal) = self.make_way(peer, hello, from, name) {
            return refusal;
        }
        // Ending the old link may have released the peer.
        let peer = self.peer_at(name);
        let verdict = self.accept_link(id, peer, hello, from, Purpose::Carry);
        if !to_self {
            self.set_state(peer, PeerState::Open(id));
            self.mark_pending(id);
        }
        verdict
    }

    fn accept_link(&mut self, id: LinkId, peer: PeerId, hello: &Hello, from: &Addr, purpose: Purpose) -> Verdict {
        let credit = RxCredits::open(&self.config.account);
        let grant = credit.grant();
        let mut link = Link::new(peer, credit, hello.cookie, false);
        link.purpose = purpose;
        link.nonce = hello.nonce;
        link.attempt = hello.attempt;
        link.granted_by_peer(hello.credits);
        link.remote = Some(*from);
        self.add_link(id, link);
        Verdict::Accept(self.hello(Handshake::Accept, hello.cookie, grant, Vec::new()).encode())
    }

    /// Accepts a link whose connection does not prove the claimed name.
    fn accept_unproven(&mut self, id: LinkId, hello: &Hello, from: &Addr, name: Addr) -> Verdict {
        let peer = self.add_peer(None);
        let verdict = self.accept_link(id, peer, hello, from, Purpose::Unproven(name));
        self.set_state(peer, PeerState::Open(id));
        self.mark_pending(id);
        // One claim per host: a host that makes more replaces its own.
        let host = from.socket().ip();
        self.drop_claims(name, |_, link| link.remote.is_some_and(|remote| remote.socket().ip() == host));
        let claims = self.claimed.entry(name).or_default();
        if claims.len() < MOST_CLAIMS {
            claims.push(id);
        }
        self.watch_posts();
        // If this endpoint waits for the peer to connect, or for its messages, ask the peer now.
        let waits = self.by_addr.get(&name).copied();
        if let Some(peer) = waits {
            match self.state_of(peer) {
                PeerState::Yielding(Yielding::Begun | Yielding::Until(_)) => self.ask_soon(peer),
                PeerState::Idle if self.is_awaited(peer) => self.ask_soon(peer),
                _ => {}
            }
        }
        verdict
    }

    /// Whether a receive is posted that only this peer can fill.
    fn is_awaited(&self, peer: PeerId) -> bool {
        self.match_queues.iter().any(|queue| queue.posted_from(peer).next().is_some())
    }

    /// Has the next tick ask the peer about claims, or connect to it.
    fn ask_soon(&mut self, peer: PeerId) {
        self.set_state(peer, PeerState::Yielding(Yielding::Over));
        self.stir();
    }

    /// A receive was posted that only this peer can fill. A link that claims the peer's name may
    /// carry the message, so ask the peer, once about each claim.
    #[cold]
    pub(super) fn await_peer(&mut self, peer: PeerId) {
        let name = self.peers.get(peer).and_then(|peer| peer.addr);
        let claims = name.and_then(|name| self.claimed.get(&name)).map(Vec::as_slice).unwrap_or_default();
        let is_new = |id: &LinkId| self.links.get(id.index()).and_then(Option::as_ref).is_some_and(|link| !link.asked);
        if claims.iter().any(is_new) && self.state_of(peer) == PeerState::Idle {
            self.ask_soon(peer);
        }
    }

    /// Drops claims to a name. Their links stay, without a source.
    pub(super) fn drop_claims(&mut self, name: Addr, which: impl Fn(LinkId, &Link) -> bool) {
        let Self { claimed, links, .. } = self;
        let Some(claims) = claimed.get_mut(&name) else { return };
        let goes = |id: LinkId| links.get(id.index()).and_then(Option::as_ref).is_none_or(|link| which(id, link));
        claims.retain(|id| !goes(*id));
        if claims.is_empty() {
            claimed.remove(&name);
            self.watch_posts();
        }
    }

    /// Makes an existing link or connect give way to the peer's new connection, or refuses the
    /// latter.
    fn make_way(&mut self, peer: PeerId, hello: &Hello, from: &Addr, name: Addr) -> Result<(), Verdict> {
        match self.state_of(peer) {
            PeerState::Connecting(mine) => {
                let verifies = self.link(mine).is_some_and(|link| matches!(link.purpose, Purpose::Verify(_)));
                if !verifies && self.config.nonce > hello.nonce {
                    return Err(self.refuse(Handshake::Crossing, "the other connection is used"));
                }
                // The peer's connection is used; waiting sends move to it.
                self.remove_link(mine);
                self.abort_link(mine, None);
            }
            PeerState::Open(old) => {
                let stale = self.link(old).map(|link| (link.nonce, link.attempt));
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
                let why = Down::new(cause, Errno::ECONNRESET, format!("{name}: {what} from {from}"));
                // Queued sends targeted the old incarnation: fail them now. Sends held by the
                // transport fail when it returns them.
                self.fail_waiting(peer, &why);
                self.abort_link(old, Some(why));
            }
            PeerState::Idle | PeerState::Yielding(_) => {}
        }
        Ok(())
    }

    /// Asks the owner of a name which of the links that claim the name are its own, after `before`
    /// earlier attempts.
    pub(super) fn verify<T: Transport>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        name: Addr,
        before: u8,
    ) -> Result<()> {
        let mut cookies = Vec::new();
        for id in self.claimed.get(&name).cloned().unwrap_or_default() {
            if let Some(link) = self.link(id) {
                link.asked = true;
                cookies.extend(link.cookie);
            }
        }
        let mut link = Link::new(peer, RxCredits::none(), [0; COOKIE], true);
        link.purpose = Purpose::Verify(before + 1);
        let hello = self.hello(Handshake::Verify, [0; COOKIE], NOTHING, cookies);
        self.begin_link(transport, link, hello)
    }

    /// Handles the answer of a name's owner: it made the connection with this cookie, or none of
    /// those it was asked about. Returns the reason for ending the link that carried the question.
    pub(super) fn handle_verified(&mut self, id: LinkId, cookie: Option<[u8; COOKIE]>) -> Down {
        let answered = Down::new(Cause::LocalClosed, Errno::EALREADY, "the question was answered");
        let Some(peer) = self.link(id).map(|link| link.peer) else { return answered };
        let Some(name) = self.peers.get(peer).and_then(|peer| peer.addr) else { return answered };
        let claims = self.claimed.get(&name).cloned().unwrap_or_default();
        let is_meant = |link: &Link| link.asked && Some(link.cookie) == cookie;
        let own = claims.into_iter().find(|claim| self.link(*claim).is_some_and(|link| is_meant(link)));
        if let Some(own) = own {
            self.take_over_link(own, peer);
        }
        // The other links stay, without a source.
        self.drop_claims(name, |_, link| link.asked);
        answered
    }

    /// An unproven link turns out to be this peer's: it and its messages become the peer's.
    fn take_over_link(&mut self, id: LinkId, peer: PeerId) {
        let handle = self.handle_of(peer);
        let Some(link) = self.link(id) else { return };
        let before = core::mem::replace(&mut link.peer, peer);
        link.src = handle;
        if let Purpose::Unproven(name) = core::mem::replace(&mut link.purpose, Purpose::Carry) {
            self.drop_claims(name, |claim, _| claim == id);
        }
        let mut moved = 0;
        for (_, message) in self.unexpected.iter_mut().filter(|(_, message)| message.peer == before) {
            message.peer = peer;
            moved += 1;
        }
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.links += 1;
            peer.unexpected += moved;
        }
        self.set_state(peer, PeerState::Open(id));
        drop(self.peers.remove(before));
        for queue in QueueKind::ALL {
            self.match_queues[queue].merge(before, peer);
            self.rematch(queue);
        }
        self.mark_pending(id);
        // The peer may be blocked on a message for one of these receives.
        self.note_freed();
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
