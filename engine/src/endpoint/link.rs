//! Life of links: connecting on first use, crossing connects, restarted peers, broken links,
//! closing. `handshake.rs` decides who a peer is.

use super::credit::{RxCredits, cost_of};
use super::engine::{Engine, NO_PEER, Phase, Work};
use super::handshake::MOST_QUESTIONS;
use super::state::{
    Body, Config, Link, PEER_COST, PeerId, PeerState, Purpose, ReceiveStage, SendStage, YIELD, Yielding,
};
use crate::completion::eq::EventKind;
use crate::completion::sinks::CompletionSinks;
use crate::match_queue::{MatchQueue, QueueKind};
use crate::transport::{ConnectRequest, Down, LinkId, ShutdownState, Submitted, Transport, Urgency};
use crate::wire::frame::Frame;
use crate::wire::hello::{Credits, EndpointKind, Handshake, Hello};
use ofi_core::error::Result;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{Addr, Cause, Errno, Error, FiAddr, Instant};
use ofi_sync::lock::LockKind;

impl<K: LockKind> Engine<K> {
    pub(super) fn hello(&self, handshake: Handshake, cookie: [u8; 16], credits: Credits, data: Vec<u8>) -> Hello {
        let Config { kind, nonce, .. } = self.config;
        Hello { handshake, kind, nonce, attempt: self.attempts, cookie, credits, name: None, data }
    }

    /// Connects to a peer for its waiting sends, which fail if the connect cannot start. If a link
    /// claims the peer's name, asks the peer about it first, unless the peer was `asked` often
    /// enough: a flood of claims must not delay sends.
    pub(super) fn begin_connect<T: Transport>(&mut self, transport: &mut T, peer: PeerId, asked: u8) {
        let addr = self.peers.get(peer).and_then(|peer| peer.addr);
        let claimed = addr.filter(|addr| asked < MOST_QUESTIONS && self.claimed.contains_key(addr));
        let result = match claimed {
            Some(name) => self.verify(transport, peer, name, asked),
            None => self.connect(transport, peer, Vec::new()),
        };
        if let Err(error) = result {
            let why = Down::new(Cause::Connect, error.errno(), error.to_string());
            self.fail_waiting(peer, &why);
        }
    }

    /// Starts connecting to a peer, with the application's connection data.
    pub(super) fn connect<T: Transport>(&mut self, transport: &mut T, peer: PeerId, data: Vec<u8>) -> Result<()> {
        let credit = RxCredits::open(&self.config.account);
        let grant = credit.grant();
        let cookie = transport.random();
        let link = Link::new(peer, credit, cookie, true);
        let hello = self.hello(Handshake::Connect, cookie, grant, data);
        self.begin_link(transport, link, hello)
    }

    /// Has the transport connect with this hello, and adds the link.
    pub(super) fn begin_link<T: Transport>(&mut self, transport: &mut T, mut link: Link, hello: Hello) -> Result<()> {
        let addr = self.peers.get(link.peer).and_then(|peer| peer.addr);
        self.attempts += 1;
        let hello = Hello { attempt: self.attempts, name: Some(transport.local_addr()), ..hello };
        let begun = addr
            .ok_or_else(|| Error::new(Errno::EINVAL, "connect without an address"))
            .and_then(|addr| transport.connect(&addr, &hello.encode()));
        match begun {
            Ok(id) => {
                link.remote = addr;
                let peer = link.peer;
                self.add_link(id, link);
                self.set_state(peer, PeerState::Connecting(id));
                Ok(())
            }
            Err(error) => {
                link.credit.close(&self.config.account);
                Err(error)
            }
        }
    }

    pub(super) fn set_state(&mut self, peer: PeerId, state: PeerState) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.state = state;
        }
    }

    pub(super) fn state_of(&self, peer: PeerId) -> PeerState {
        self.peers.get(peer).map_or(PeerState::Idle, |peer| peer.state)
    }

    pub(super) fn fail_waiting(&mut self, peer: PeerId, why: &Down) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        for number in core::mem::take(&mut entry.waiting) {
            self.fail_send(number, why);
        }
    }

    /// Handles the peer's answer to our hello.
    pub(super) fn finish_connect(&mut self, id: LinkId, hello: &[u8]) -> core::result::Result<(), Down> {
        let (remote, purpose) = self.link(id).map_or((None, Purpose::Carry), |link| (link.remote, link.purpose));
        let to = || remote.map_or_else(|| "the peer".to_owned(), |remote| remote.to_string());
        let hello = Hello::parse(hello).map_err(|violation| {
            Down::new(Cause::Violation, Errno::EPROTO, format!("connect to {}: {}", to(), violation.0))
        })?;
        match hello.handshake {
            Handshake::Mine | Handshake::NotMine => {
                return Err(match purpose {
                    Purpose::Verify(_) => {
                        let cookie = (hello.handshake == Handshake::Mine).then_some(hello.cookie);
                        self.handle_verified(id, cookie)
                    }
                    Purpose::Carry | Purpose::Unproven(_) => {
                        let text = format!("connect to {}: the answer does not match the request", to());
                        Down::new(Cause::Violation, Errno::EPROTO, text)
                    }
                });
            }
            Handshake::Accept if matches!(purpose, Purpose::Verify(_)) => {
                let text = format!("connect to {}: the peer accepted a link that was not requested", to());
                return Err(Down::new(Cause::Violation, Errno::EPROTO, text));
            }
            Handshake::Accept => {}
            Handshake::Crossing => {
                return Err(Down::new(Cause::Rejected, Errno::EALREADY, "the other connection is used"));
            }
            Handshake::Connect | Handshake::Refuse | Handshake::Reject | Handshake::Verify => {
                let said = String::from_utf8_lossy(&hello.data).into_owned();
                if matches!(self.config.kind, EndpointKind::Msg) && hello.handshake == Handshake::Reject {
                    // The event carries the peer application's data.
                    let why = Down::new(Cause::Rejected, Errno::ECONNREFUSED, format!("connect to {}: rejected", to()));
                    let Down { cause, errno, text } = why.clone();
                    self.event(EventKind::Failed { errno, cause, text, data: hello.data });
                    if self.phase != Phase::Closing {
                        self.phase = Phase::Ended;
                    }
                    return Err(why);
                }
                let text = format!("connect to {}: {said}", to());
                return Err(Down::new(Cause::Rejected, Errno::ECONNREFUSED, text));
            }
        }
        let closing = self.phase == Phase::Closing && matches!(self.config.kind, EndpointKind::Msg);
        let Some(link) = self.link(id).filter(|_| !closing) else {
            return Err(Down::new(Cause::LocalClosed, Errno::ECANCELED, Cause::LocalClosed.text()));
        };
        link.nonce = hello.nonce;
        link.attempt = hello.attempt;
        link.granted_by_peer(hello.credits);
        let peer = link.peer;
        self.set_state(peer, PeerState::Open(id));
        self.mark_pending(id);
        if matches!(self.config.kind, EndpointKind::Msg) {
            self.phase = Phase::Enabled;
            self.event(EventKind::Connected(hello.data));
        }
        Ok(())
    }

    /// Accepts a connection request of a passive endpoint. An error changes nothing, and another
    /// request may be accepted.
    pub(super) fn accept<T: Transport>(
        &mut self,
        transport: &mut T,
        asked: ConnectRequest<T::Request>,
        data: Vec<u8>,
    ) -> Result<()> {
        let hello = Hello::parse(&asked.hello).map_err(|violation| Error::new(Errno::EPROTO, violation.0))?;
        let credit = RxCredits::open(&self.config.account);
        let answer = self.hello(Handshake::Accept, hello.cookie, credit.grant(), data);
        let id = match transport.accept(asked.request, &answer.encode()) {
            Ok(id) => id,
            Err(error) => {
                credit.close(&self.config.account);
                return Err(error);
            }
        };
        let peer = self.add_peer(Some(asked.from));
        let mut link = Link::new(peer, credit, hello.cookie, false);
        link.nonce = hello.nonce;
        link.attempt = hello.attempt;
        link.granted_by_peer(hello.credits);
        link.remote = Some(asked.from);
        self.add_link(id, link);
        self.set_state(peer, PeerState::Open(id));
        self.phase = Phase::Enabled;
        self.mark_pending(id);
        self.event(EventKind::Connected(Vec::new()));
        Ok(())
    }

    /// A link is down.
    pub(super) fn lose_link(&mut self, id: LinkId, reason: Down) {
        // The transport may reuse the id from now on.
        self.aborted.retain(|(aborted, _)| *aborted != id);
        let Some(link) = self.link(id) else { return };
        let why = if link.bye {
            let who = link.remote.map_or_else(|| "the peer".to_owned(), |remote| remote.to_string());
            Down::new(Cause::PeerClosed, Errno::ECONNRESET, format!("{who}: the peer closed its endpoint"))
        } else {
            reason
        };
        let (peer, purpose) = (link.peer, link.purpose);
        let crossing = why.cause == Cause::Rejected && why.errno == Errno::EALREADY;
        let denied = match purpose {
            Purpose::Verify(times) if why.errno == Errno::EALREADY => Some(times),
            _ => None,
        };
        let only_asked = matches!(purpose, Purpose::Verify(_))
            && denied.is_none()
            && self.peers.get(peer).is_some_and(|peer| peer.waiting.is_empty());
        if only_asked {
            // Directed receives fail when a link to the peer breaks. This link only carried a
            // question, perhaps prompted by a false claim, so they stay.
            self.remove_link(id);
            if self.state_of(peer) == PeerState::Connecting(id) {
                self.set_state(peer, PeerState::Idle);
                self.release_peer(peer);
            }
            return;
        }
        if crossing && matches!(self.config.kind, EndpointKind::Rdm) || denied.is_some() {
            self.remove_link(id);
            if self.state_of(peer) == PeerState::Connecting(id) {
                // If a link claims the peer's name, it may be the peer's connection: ask the peer
                // at once. After a denial the false claims are gone, and this side connects as
                // usual.
                let claims = self
                    .peers
                    .get(peer)
                    .and_then(|peer| peer.addr)
                    .is_some_and(|addr| self.claimed.contains_key(&addr));
                let until = match denied {
                    Some(times) => Yielding::Denied(times),
                    None if claims => Yielding::Over,
                    None => Yielding::Begun,
                };
                self.set_state(peer, PeerState::Yielding(until));
                self.stir();
            }
            return;
        }
        self.end_link(id, &why);
    }

    /// Ends a link: operations that are under way on it or wait for it fail.
    pub(super) fn end_link(&mut self, id: LinkId, why: &Down) {
        let Some(link) = self.remove_link(id) else { return };
        let failed: Vec<u32> = self
            .sends
            .iter()
            .filter(|(_, send)| send.stage.link() == Some(id))
            .filter_map(|(key, _)| u32::try_from(key).ok())
            .collect();
        let before = self.failures;
        for number in failed {
            self.fail_send(number, why);
        }
        let is_current = |state: PeerState| matches!(state, PeerState::Open(l) | PeerState::Connecting(l) if l == id);
        let handle = self.handle_of(link.peer);
        if is_current(self.state_of(link.peer)) {
            self.set_state(link.peer, PeerState::Idle);
            self.fail_waiting(link.peer, why);
        }
        self.end_unexpected(id, link.peer, link.bye, why);
        let broken: Vec<u32> = self
            .receives
            .iter()
            .filter(|(_, receive)| match &receive.stage {
                ReceiveStage::Posted => false,
                ReceiveStage::Receiving { link } => *link == id,
                ReceiveStage::Rendezvous(rendezvous) => rendezvous.link == id,
            })
            .map(|(key, _)| key)
            .collect();
        for key in broken {
            if let Some(receive) = self.receives.remove(key) {
                self.fail_receive(receive, why);
            }
        }
        match self.config.kind {
            EndpointKind::Rdm => {
                if why.cause != Cause::PeerClosed && why.cause != Cause::PeerRestarted && handle != FiAddr::UNSPEC {
                    self.fail_directed(link.peer, why);
                }
                self.release_peer(link.peer);
            }
            EndpointKind::Msg => self.connection_ended(why),
        }
        let lost = self.failures - before;
        if lost > 0 && self.phase != Phase::Closing {
            self.losses.add(|| format!("{}; {lost} operations failed", why.text));
            self.stir();
        }
    }

    /// Settles a peer's unexpected messages after their link has ended: complete ones stay, charged
    /// to the account, unless the account is full and the peer did not close in order. The others
    /// are lost.
    fn end_unexpected(&mut self, id: LinkId, peer: PeerId, orderly: bool, why: &Down) {
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        for (key, message) in self.unexpected.iter_mut().filter(|(_, message)| message.link() == Some(id)) {
            message.orphan();
            self.orphans += 1;
            match message.body {
                Body::Here(_) => {
                    self.config.account.charge(usize::try_from(cost_of(message.len as usize)).unwrap_or(0));
                    kept.push(key);
                }
                Body::Coming { .. } | Body::Rts { .. } => lost.push(key),
            }
        }
        let account = self.config.account.clone();
        if let Some(entry) = self.peers.get_mut(peer)
            && !kept.is_empty()
            && !core::mem::replace(&mut entry.charged, true)
        {
            account.charge(PEER_COST);
        }
        if !orderly && account.used() > account.limit() {
            // What only saves time makes way for messages.
            self.match_queues.iter_mut().for_each(MatchQueue::drop_index);
        }
        let mut dropped = 0;
        while !orderly && account.used() > account.limit() {
            // The latest first: earlier messages are likely to be received earlier.
            let Some(key) = kept.pop() else { break };
            let Some(message) = self.take_unexpected(key) else { continue };
            self.match_queues[message.info().queue_kind()].drop_unexpected(key);
            self.return_credits(None, cost_of(message.len as usize));
            self.spoil_claims(key, why);
            dropped += 1;
        }
        if dropped > 0 {
            let text =
                format!("{}; dropped {dropped} unexpected messages: the memory limit for peers is reached", why.text);
            self.losses.add(|| text);
            self.stir();
        }
        for key in lost {
            let Some(message) = self.take_unexpected(key) else { continue };
            self.match_queues[message.info().queue_kind()].drop_unexpected(key);
            self.spoil_claims(key, why);
            if let Body::Coming { claimed: Some(receive), .. } = message.body
                && let Some(receive) = self.receives.remove(receive)
            {
                self.fail_receive(receive, why);
            }
        }
    }

    /// A message is lost: records the reason in its claim, if it has one.
    fn spoil_claims(&mut self, key: u32, why: &Down) {
        for claim in self.claims.iter_mut().filter(|claim| claim.message.as_ref().is_ok_and(|of| *of == key)) {
            claim.message = Err(why.clone());
        }
    }

    /// Fails the receives that only a lost peer could have filled.
    fn fail_directed(&mut self, peer: PeerId, why: &Down) {
        for queue in QueueKind::ALL {
            let keys: Vec<u32> = self.match_queues[queue].posted_from(peer).collect();
            for key in keys {
                self.fail_posted(key, why);
            }
        }
    }

    /// A connected endpoint's link has ended: everything posted on it ends too.
    fn connection_ended(&mut self, why: &Down) {
        if self.phase == Phase::Closing {
            return;
        }
        let phase = core::mem::replace(&mut self.phase, Phase::Ended);
        self.flush_receives(why);
        match phase {
            Phase::Enabled | Phase::ShutDown => self.event(EventKind::Shutdown),
            Phase::New => self.event(EventKind::Failed {
                errno: why.errno,
                cause: why.cause,
                text: why.text.clone(),
                data: Vec::new(),
            }),
            // The peer's rejection has been reported with its data.
            Phase::Ended | Phase::Closing => {}
        }
    }

    fn flush_receives(&mut self, why: &Down) {
        for queue in QueueKind::ALL {
            let keys: Vec<u32> = self.match_queues[queue].posted().collect();
            for key in keys {
                self.fail_posted(key, why);
            }
        }
    }

    /// Shuts a connection down gracefully (fi_shutdown(3)): sends within credit leave, then Bye;
    /// the rest fails. An event reports the peer's shutdown.
    pub(super) fn shut_down<T: Transport>(&mut self, transport: &mut T) -> core::result::Result<(), Errno> {
        if matches!(self.config.kind, EndpointKind::Rdm) {
            return Err(Errno::ENOSYS);
        }
        if self.phase == Phase::Ended {
            // The peer shut down first.
            return Ok(());
        }
        let PeerState::Open(id) = self.state_of(0) else { return Err(Errno::ENOTCONN) };
        if self.phase == Phase::ShutDown {
            return Err(Errno::ENOTCONN);
        }
        self.pump(transport, id);
        let why = Down::new(Cause::LocalClosed, Errno::ECANCELED, Cause::LocalClosed.text());
        self.phase = Phase::ShutDown;
        self.flush_receives(&why);
        self.fail_waiting(0, &why);
        self.fail_unanswered(&why);
        self.say_bye(transport, id);
        let _ = transport.shutdown(id);
        Ok(())
    }

    /// Fails sends that wait for the peer's answer, and receives in a rendezvous: frames about them
    /// are ignored from now on.
    fn fail_unanswered(&mut self, why: &Down) {
        let ends = |stage: &SendStage| match stage {
            SendStage::RtsSent { .. } | SendStage::Sent { .. } => true,
            SendStage::SendingData { flying, .. } => *flying == 0,
            SendStage::Waiting | SendStage::Sending { .. } | SendStage::LinkFailed { .. } => false,
        };
        let sends = self.sends.iter().filter(|(_, send)| ends(&send.stage));
        let sends: Vec<u32> = sends.filter_map(|(key, _)| u32::try_from(key).ok()).collect();
        sends.into_iter().for_each(|number| self.fail_send(number, why));
        // A receive whose payload is just arriving ends with the link.
        let is_rendezvous = |receive: &super::state::Receive| {
            matches!(receive.stage, ReceiveStage::Rendezvous(_)) && receive.buffer.is_some()
        };
        let rendezvous: Vec<u32> =
            self.receives.iter().filter(|(_, receive)| is_rendezvous(receive)).map(|(key, _)| key).collect();
        for key in rendezvous {
            if let Some(receive) = self.receives.remove(key) {
                self.fail_receive(receive, why);
            }
        }
    }

    fn say_bye<T: Transport>(&mut self, transport: &mut T, id: LinkId) {
        if let Some(link) = self.link(id)
            && !link.bye_sent
        {
            link.bye_sent = true;
            let said: Submitted = transport.submit(id, &Frame::Bye.encode(), None, Urgency::Control);
            debug_assert!(said != Submitted::Kept, "a frame without payload is never kept");
        }
    }

    /// Does what is due, and work that needs the time or the transport: logs losses, connects to
    /// peers and asks them about claims. Resets [`Engine::work`].
    pub(super) fn tick<T: Transport>(&mut self, transport: &mut T) {
        let work = core::mem::take(&mut self.work);
        if work.has(Work::DEFERRED) {
            self.work.add(Work::DEFERRED);
        }
        if !work.has(Work::STIRRED) {
            return;
        }
        let now = transport.now();
        if let Some(text) = self.losses.take(now) {
            log::log(self.config.provider, Level::Error, Subsystem::EpCtrl, || text);
        }
        let mut late = Vec::new();
        for (id, peer) in self.peers.iter_mut() {
            let PeerState::Yielding(until) = &mut peer.state else { continue };
            match *until {
                Yielding::Begun => *until = Yielding::Until(now + YIELD),
                Yielding::Until(end) if now < end => {}
                Yielding::Until(_) | Yielding::Over => {
                    late.push((id, 0));
                    continue;
                }
                Yielding::Denied(times) => {
                    late.push((id, times));
                    continue;
                }
            }
            self.work.add(Work::STIRRED);
        }
        for (peer, asked) in late {
            // The peer's own connection did not arrive: connect, with a deadline of our own.
            self.set_state(peer, PeerState::Idle);
            let Some(entry) = self.peers.get(peer) else { continue };
            let (name, idle) = (entry.addr, entry.waiting.is_empty());
            if !idle {
                self.begin_connect(transport, peer, asked);
            } else if let Some(name) = name.filter(|name| asked == 0 && self.claimed.contains_key(name)) {
                // Only receives wait. Failing to ask is no error: the peer may connect later.
                drop(self.verify(transport, peer, name, asked));
            } else {
                self.release_peer(peer);
            }
        }
    }

    /// When [`Self::tick`] next has work.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if !self.work.has(Work::STIRRED) {
            return None;
        }
        let until = |peer: &super::state::Peer| match peer.state {
            PeerState::Yielding(Yielding::Until(until)) => Some(until),
            PeerState::Yielding(Yielding::Begun | Yielding::Over | Yielding::Denied(_)) => Some(Instant::from_nanos(0)),
            _ => None,
        };
        self.peers.iter().filter_map(|(_, peer)| until(peer)).min()
    }

    /// Starts closing: only sends accepted for inject or transmit still leave.
    pub(super) fn begin_close(&mut self) {
        self.phase = Phase::Closing;
        // Report no completions or events from here on: other endpoints may still use the queues.
        self.out = CompletionSinks::default();
        self.eq = None;
        if let Some(text) = self.losses.take_rest() {
            log::log(self.config.provider, Level::Error, Subsystem::EpCtrl, || text);
        }
        self.discard_receives();
        let Self { sends, peers, links, .. } = self;
        for (_, peer) in peers.iter_mut() {
            let state = peer.state;
            peer.waiting.retain(|number| {
                let Some(send) = sends.get(*number as usize) else { return false };
                match state {
                    PeerState::Open(id) => {
                        let link = links.get(id.index()).and_then(Option::as_ref);
                        link.is_some_and(|link| send.len <= link.eager)
                    }
                    PeerState::Idle | PeerState::Connecting(_) | PeerState::Yielding(_) => send.inject,
                }
            });
        }
        for link in links.iter_mut().flatten() {
            link.data_queue.clear();
        }
        let lazy = core::mem::take(&mut self.lazy);
        lazy.into_iter().for_each(|id| self.mark_pending(id));
    }

    /// Takes a step of closing. True when all links are done.
    pub(super) fn step_close<T: Transport>(&mut self, transport: &mut T) -> bool {
        let mut over = true;
        for index in 0..self.links.len() {
            let Some(Some(link)) = self.links.get(index) else { continue };
            let Ok(number) = u32::try_from(index) else { continue };
            let id = LinkId(number);
            let peer = link.peer;
            let Some(entry) = self.peers.get(peer) else { continue };
            match entry.state {
                PeerState::Connecting(current) if current == id => {
                    if entry.waiting.is_empty() {
                        transport.abort(id, self);
                        self.remove_link(id);
                    } else {
                        over = false;
                    }
                    continue;
                }
                PeerState::Open(current) if current == id && !entry.waiting.is_empty() => {
                    self.pump(transport, id);
                    over = false;
                    continue;
                }
                _ => {}
            }
            self.say_bye(transport, id);
            over &= transport.shutdown(id) == ShutdownState::Done;
        }
        let yields =
            |peer: &super::state::Peer| !peer.waiting.is_empty() && matches!(peer.state, PeerState::Yielding(_));
        over && !self.peers.iter().any(|(_, peer)| yields(peer))
    }

    /// Number of operations and links that closing leaves unfinished.
    pub(super) fn unfinished(&self) -> usize {
        self.peers.iter().map(|(_, peer)| peer.waiting.len()).sum::<usize>() + self.link_count
    }

    /// The peer's address, while an endpoint is connected.
    pub(super) fn connected_peer(&self) -> Option<Addr> {
        let peer = self.peers.get(0)?;
        matches!(peer.state, PeerState::Open(_)).then_some(peer.addr)?
    }

    /// Clears the peers cached by handle: an address vector has been bound.
    pub(super) fn reset_handles(&mut self) {
        self.by_handle.fill(NO_PEER);
    }
}
