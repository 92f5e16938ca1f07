//! Life of links: connect requests, answers to our own, broken links, closing. The parts handle
//! their peers, sends and receives; this file calls them in order.

use super::connected::Connected;
use super::core::Core;
use super::life::Life;
use crate::peer::agenda::Work;
use crate::peer::handshake::{Initiator, Precedence};
use crate::peer::link::Purpose;
use crate::peer::table::{PeerState, Yielding};
use crate::transport::{Down, LinkId, ShutdownState, Transport, Verdict};
use crate::wire::hello::{EndpointKind, Handshake, Hello};
use ofi_core::{Addr, Cause, Errno, FiAddr};
use ofi_sync::lock::LockKind;

/// The meaning of the answer to our hello.
enum Answer {
    /// The peer accepts the link.
    Accepted(Hello),
    /// The link is of no use: the reason for ending it.
    Ends(Down),
}

impl<K: LockKind> Core<K> {
    /// Answers a connect request.
    #[cold]
    pub(super) fn answer_connect_request(
        &mut self,
        id: LinkId,
        hello: &[u8],
        from: &Addr,
        vouches: impl Fn(&Addr) -> bool,
    ) -> Verdict {
        let hello = match Hello::parse(hello) {
            Ok(hello) => hello,
            Err(violation) => return self.peers.refuse(Handshake::Refuse, violation.0),
        };
        let Life::Connectionless(life) = self.life else {
            let why = match hello.kind {
                EndpointKind::Msg => "a connected endpoint takes no further connection",
                EndpointKind::Rdm => "the endpoint types do not match",
            };
            return self.peers.refuse(Handshake::Refuse, why);
        };
        if hello.kind != EndpointKind::Rdm {
            return self.peers.refuse(Handshake::Refuse, "the endpoint types do not match");
        }
        if let Some(why) = self.peers.is_elsewhere(&hello) {
            return self.peers.refuse(Handshake::Refuse, why);
        }
        match hello.handshake {
            Handshake::Verify => self.peers.answer_claims(&hello, from),
            Handshake::Connect => match life.admits() {
                Ok(()) => self.admit_peer(&hello, &Initiator::new(id, &hello, from, vouches)),
                Err(why) => self.peers.refuse(Handshake::Refuse, why),
            },
            Handshake::Accept
            | Handshake::Crossing
            | Handshake::Refuse
            | Handshake::Reject
            | Handshake::Mine
            | Handshake::NotMine => self.peers.refuse(Handshake::Refuse, "the hello is not a request"),
        }
    }

    fn admit_peer(&mut self, hello: &Hello, initiator: &Initiator) -> Verdict {
        let Self { peers, tx, rx, out, .. } = self;
        let mut rx = rx.lock();
        if !peers.admits_more(rx.has_lost_notices()) {
            let why = "unexpected messages of disconnected peers fill the endpoint's memory limit for peers";
            return peers.refuse(Handshake::Refuse, why);
        }
        if hello.contexts.transmit > 0 {
            return peers.accept_context(hello, initiator, &mut *rx);
        }
        if peers.is_own(hello) {
            if !peers.connects_to_itself(hello, initiator) {
                return peers.refuse(Handshake::Refuse, "the hello carries this endpoint's own nonce");
            }
        } else if !initiator.proven {
            let verdict = peers.accept_unproven(hello, initiator, &mut *rx);
            rx.note_watching(peers);
            return verdict;
        } else {
            let peer = peers.peer_at(initiator.name, &mut *rx);
            match peers.precedence(peer, hello, initiator) {
                Err(refusal) => return refusal,
                Ok(Precedence::Free | Precedence::Replaces) => {}
                Ok(Precedence::Ends(old, why)) => {
                    // Queued sends targeted the old incarnation: fail them now. Sends held by the
                    // transport fail when it returns them.
                    tx.fail_waiting(peers, out, peer, &why);
                    peers.abort_link(old, Some(why));
                }
            }
        }
        peers.accept_proven(hello, initiator, &mut *rx)
    }

    /// Handles the peer's answer to our hello.
    #[cold]
    pub(super) fn finish_connect(&mut self, id: LinkId, hello: &[u8]) -> core::result::Result<(), Down> {
        let link = self.peers.links.get(id);
        let (remote, purpose) = link.map_or((None, Purpose::Carry), |link| (link.identity.remote, link.purpose));
        let to = remote.map_or_else(|| "the peer".to_owned(), |remote| remote.to_string());
        let hello =
            Hello::parse(hello).map_err(|violation| Down::violation(format!("connect to {to}: {}", violation.0)))?;
        let hello = match self.read_answer(id, purpose, &to, hello) {
            Answer::Accepted(hello) => hello,
            Answer::Ends(why) => return Err(why),
        };
        let gives_up = self.life == Life::Connected(Connected::Closing);
        if gives_up || self.peers.links.get(id).is_none() {
            return Err(Down::new(Cause::LocalClosed, Errno::ECANCELED, Cause::LocalClosed.text()));
        }
        self.peers.open_link(id, &hello);
        if let Life::Connected(_) = self.life {
            self.connection_made(hello);
        }
        Ok(())
    }

    fn read_answer(&mut self, id: LinkId, purpose: Purpose, to: &str, hello: Hello) -> Answer {
        let violation = |what: &str| Answer::Ends(Down::violation(format!("connect to {to}: {what}")));
        let verifies = matches!(purpose, Purpose::Verify(_));
        match hello.handshake {
            Handshake::Mine | Handshake::NotMine if verifies => {
                let cookie = (hello.handshake == Handshake::Mine).then_some(hello.cookie);
                self.handle_verified(id, cookie);
                Answer::Ends(Down::new(Cause::LocalClosed, Errno::EALREADY, "the question was answered"))
            }
            Handshake::Mine | Handshake::NotMine => violation("the answer does not match the request"),
            Handshake::Accept if verifies => violation("the peer accepted a link that was not requested"),
            Handshake::Accept => Answer::Accepted(hello),
            Handshake::Crossing => {
                Answer::Ends(Down::new(Cause::Rejected, Errno::EALREADY, "the other connection is used"))
            }
            Handshake::Reject if matches!(self.life, Life::Connected(_)) => {
                let why = Down::new(Cause::Rejected, Errno::ECONNREFUSED, format!("connect to {to}: rejected"));
                // The event carries the peer application's data.
                self.connection_rejected(&why, hello.data);
                Answer::Ends(why)
            }
            Handshake::Connect | Handshake::Refuse | Handshake::Reject | Handshake::Verify => {
                let said = String::from_utf8_lossy(&hello.data);
                let text = format!("connect to {to}: {said}");
                Answer::Ends(Down::new(Cause::Rejected, Errno::ECONNREFUSED, text))
            }
        }
    }

    /// Handles the answer of a name's owner: the unproven link that it names, with its messages,
    /// becomes the peer's.
    fn handle_verified(&mut self, id: LinkId, cookie: Option<[u8; 16]>) {
        let Self { peers, rx, out, .. } = self;
        let Some(peer) = peers.links.get(id).map(|link| link.peer) else { return };
        let Some(own) = peers.handle_verified(id, cookie) else { return };
        let Some(before) = peers.take_over_link(own, peer) else { return };
        let mut rx = rx.lock();
        rx.merge(peers, own, (before, peer));
        rx.rematch(peers, out);
        // The peer may be blocked on a message for one of these receives.
        peers.note_freed();
    }

    /// A link is down.
    #[cold]
    pub(super) fn lose_link(&mut self, id: LinkId, reason: Down) {
        // The transport may reuse the id from now on.
        self.peers.agenda.forget_aborted(id);
        let Self { peers, rx, .. } = self;
        let Some(link) = peers.links.get(id) else { return };
        let (peer, purpose) = (link.peer, link.purpose);
        let why = if link.rx.ended {
            let who = link.identity.remote.map_or_else(|| "the peer".to_owned(), |remote| remote.to_string());
            Down::new(Cause::PeerClosed, Errno::ECONNRESET, format!("{who}: the peer closed its endpoint"))
        } else {
            reason
        };
        let crossing = why.cause == Cause::Rejected && why.errno == Errno::EALREADY;
        let denied = match purpose {
            Purpose::Verify(times) if why.errno == Errno::EALREADY => Some(times),
            Purpose::Carry | Purpose::Unproven(_) | Purpose::Verify(_) => None,
        };
        let only_asked = matches!(purpose, Purpose::Verify(_))
            && denied.is_none()
            && peers.table.get(peer).is_some_and(|peer| peer.waiting.is_empty());
        if only_asked {
            // Directed receives fail when a link to the peer breaks. This link only carried a
            // question, perhaps prompted by a false claim, so they stay.
            peers.remove_link(id);
            if peers.state_of(peer) == PeerState::Connecting(id) {
                peers.set_state(peer, PeerState::Idle);
                peers.release_peer(peer, &mut *rx.lock());
            }
            return;
        }
        if crossing && matches!(self.life, Life::Connectionless(_)) || denied.is_some() {
            peers.remove_link(id);
            if peers.state_of(peer) == PeerState::Connecting(id) {
                // If a link claims the peer's name, it may be the peer's connection: ask the peer
                // at once. After a denial the false claims are gone, and this side connects as
                // usual.
                let until = match denied {
                    Some(times) => Yielding::Denied(times),
                    None if peers.is_claimed(peer) => Yielding::Over,
                    None => Yielding::Begun,
                };
                peers.yield_to(peer, until);
            }
            return;
        }
        self.end_link(id, &why);
    }

    /// Ends a link: operations in progress on it or waiting for it fail.
    pub(super) fn end_link(&mut self, id: LinkId, why: &Down) {
        let Self { peers, tx, rx, target, out, .. } = self;
        let Some(mut link) = peers.remove_link(id) else { return };
        peers.totals.end(why.cause);
        target.end_link(peers, id);
        let mut before = out.failures();
        tx.end_link(peers, out, &mut link, why);
        let (handle, sender) = (peers.handle_of(link.peer), link.sender);
        if peers.state_of(link.peer).is_current(id) {
            peers.set_state(link.peer, PeerState::Idle);
            tx.fail_waiting(peers, out, link.peer, why);
        }
        let mut context = rx.lock();
        context.end_link(peers, out, &link, why);
        match self.life {
            Life::Connectionless(_) => {
                if !self.groups.is_empty()
                    && let Some(addr) = peers.addr_of(link.peer)
                {
                    self.groups.lose(&addr, why);
                    context.fail_group(out, sender, why);
                    peers.agenda.add(Work::GROUPS);
                }
                if why.cause != Cause::PeerClosed && why.cause != Cause::PeerRestarted && handle != FiAddr::UNSPEC {
                    context.fail_directed(out, sender, why);
                }
                peers.release_peer(link.peer, &mut *context);
            }
            Life::Connected(life) => {
                drop(context);
                let failed = self.out.failures();
                self.connection_ended(life, why);
                if why.cause == Cause::PeerClosed {
                    // Receives that wait when the peer closes in order have lost nothing.
                    before += self.out.failures() - failed;
                }
            }
        }
        let lost = self.out.failures() - before;
        if lost > 0 && !self.life.is_closing() {
            self.out.lose(|| format!("{}; {lost} operations failed", why.text));
            self.peers.agenda.add(Work::STIRRED);
        }
    }

    /// Takes a step of closing. True when all links are done.
    pub(super) fn step_close<T: Transport>(&mut self, transport: &mut T) -> bool {
        let mut over = true;
        for id in self.peers.links.ids() {
            let Some(peer) = self.peers.links.get(id).map(|link| link.peer) else { continue };
            let Some(entry) = self.peers.table.get(peer) else { continue };
            match entry.state {
                PeerState::Connecting(current) if current == id => {
                    if entry.waiting.is_empty() {
                        transport.abort(id, self);
                        self.peers.remove_link(id);
                    } else {
                        over = false;
                    }
                    continue;
                }
                PeerState::Open(current) if current == id && !entry.waiting.is_empty() => {
                    let Self { peers, tx, out, .. } = self;
                    tx.pump(peers, out, transport, id);
                    over = false;
                    continue;
                }
                PeerState::Idle | PeerState::Yielding(_) | PeerState::Connecting(_) | PeerState::Open(_) => {}
            }
            over &= self.peers.shut_down(transport, id) == ShutdownState::Done;
        }
        let mut peers = self.peers.table.iter();
        over && !peers.any(|(_, peer)| !peer.waiting.is_empty() && matches!(peer.state, PeerState::Yielding(_)))
    }

    /// Ends all links for the transport. Only for closing.
    pub(super) fn abort_all<T: Transport>(&mut self, transport: &mut T) {
        for id in self.peers.links.ids() {
            transport.abort(id, self);
        }
    }

    /// Number of operations and links that closing leaves unfinished.
    pub(super) fn unfinished(&self) -> usize {
        self.peers.table.iter().map(|(_, peer)| peer.waiting.len()).sum::<usize>() + self.peers.links.len()
    }
}
