//! Who asks for a link. A name counts if the connection comes from the host that the name is of; without authentication
//! keys a host is the unit of trust. Any other claim makes a link that is only received from, without a source, until there
//! is something to send to the owner of the name: the owner is then asked whether it made that connection, by a random
//! number that only the connection's two ends know.

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

/// A hello that refuses grants nothing.
const NOTHING: Credits = Credits { bytes: 0, eager: 0 };
/// Bytes of a connection's random number.
const COOKIE: usize = 16;
/// Claims to one name that are remembered: as many as the owner can be asked about at once.
const MOST_CLAIMS: usize = MAX_USER_DATA / COOKIE;
/// How often a peer is asked about claims before it is connected to whatever others claim.
pub(super) const MOST_QUESTIONS: u8 = 3;

impl<K: LockKind> Engine<K> {
    /// A peer asks for a link.
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
            return self.refuse(Handshake::Refuse, "this endpoint is of another kind");
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
            _ => self.refuse(Handshake::Refuse, "not a question"),
        }
    }

    /// A peer asks which of the connections that claim to come from this endpoint does. Only a connection that leads to the
    /// initiator counts: a third endpoint to which we connected knows that connection's cookie and could pass it on.
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
            let why = "messages of peers that have gone fill the memory that the endpoint may hold for peers";
            return self.refuse(Handshake::Refuse, why);
        }
        let name = named(hello.name, from).canonical();
        let to_self = hello.nonce == self.config.nonce;
        if to_self {
            // Any peer knows that number, but not that of a connection which we make to ourselves.
            let mine = |link: &Link| {
                link.ours && link.cookie == hello.cookie && link.remote.is_some_and(|to| to.canonical() == name)
            };
            if !vouches(&name) || !self.links.iter().flatten().any(|link| mine(link)) {
                return self.refuse(Handshake::Refuse, "that is this endpoint's own number");
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

    /// A link by a name that its connection does not prove.
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
        // Who waits for this very peer to connect asks it now, and who waits for what it sends.
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

    /// A receive that only that peer can fill is posted.
    fn is_awaited(&self, peer: PeerId) -> bool {
        self.match_queues.iter().any(|queue| queue.posted_from(peer).next().is_some())
    }

    /// A peer is asked about claims, or connected to, with the next tick.
    fn ask_soon(&mut self, peer: PeerId) {
        self.set_state(peer, PeerState::Yielding(Yielding::Over));
        self.stir();
    }

    /// A receive that only that peer can fill was posted: what comes over a connection that claims to be the peer's may be
    /// for it, so the peer is asked, once about each claim.
    #[cold]
    pub(super) fn await_peer(&mut self, peer: PeerId) {
        let name = self.peers.get(peer).and_then(|peer| peer.addr);
        let claims = name.and_then(|name| self.claimed.get(&name)).map(Vec::as_slice).unwrap_or_default();
        let is_new = |id: &LinkId| self.links.get(id.index()).and_then(Option::as_ref).is_some_and(|link| !link.asked);
        if claims.iter().any(is_new) && self.state_of(peer) == PeerState::Idle {
            self.ask_soon(peer);
        }
    }

    /// Forgets claims to a name. Their links stay, without a source.
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

    /// What is between us and a peer already gives way to its connection, or that is refused.
    fn make_way(&mut self, peer: PeerId, hello: &Hello, from: &Addr, name: Addr) -> Result<(), Verdict> {
        match self.state_of(peer) {
            PeerState::Connecting(mine) => {
                let verifies = self.link(mine).is_some_and(|link| matches!(link.purpose, Purpose::Verify(_)));
                if !verifies && self.config.nonce > hello.nonce {
                    return Err(self.refuse(Handshake::Crossing, "the other connection is used"));
                }
                // Theirs is used; what waits moves to it.
                self.remove_link(mine);
                self.abort_link(mine, None);
            }
            PeerState::Open(old) => {
                let stale = self.link(old).map(|link| (link.nonce, link.attempt));
                let same = stale.is_some_and(|(nonce, _)| nonce == hello.nonce);
                if same && stale.is_some_and(|(_, attempt)| hello.attempt <= attempt) {
                    // Its question crossed ours, which it has answered since.
                    return Err(self.refuse(Handshake::Crossing, "the other connection is used"));
                }
                let (cause, what) = if same {
                    (Cause::Broken, "the peer connected anew")
                } else {
                    (Cause::PeerRestarted, "the peer was restarted")
                };
                let why = Down::new(cause, Errno::ECONNRESET, format!("{name}: {what} from {from}"));
                // What waits was for the old one; what is with the transport fails when that has let go of it.
                self.fail_waiting(peer, &why);
                self.abort_link(old, Some(why));
            }
            PeerState::Idle | PeerState::Yielding(_) => {}
        }
        Ok(())
    }

    /// Asks the owner of a name which of the links that claim the name is its own, having asked `before` so many times.
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

    /// The owner of a name answered: it made the connection of that cookie, or none of those that it was asked about. Returns
    /// why the connection that it was asked by ends.
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
        // The others stay what they are: links without a source.
        self.drop_claims(name, |_, link| link.asked);
        answered
    }

    /// A link is that of a peer after all.
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
        // Receives for the peer may be what it has no credit for.
        self.note_freed();
    }
}

/// Where a peer can be reached: what it says, with the address that we see if it listens on all of its own.
fn named(name: Option<Addr>, from: &Addr) -> Addr {
    match name {
        // shm: the kernel authenticates the sender's name; ignore the one in the hello.
        _ if from.name().is_some() => *from,
        Some(name) if !name.socket().ip().is_unspecified() => name,
        Some(name) => Addr::from(SocketAddr::new(from.socket().ip(), name.socket().port())),
        None => *from,
    }
}
