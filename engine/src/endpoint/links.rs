//! How links begin and end: connecting on first use, crossing connects, restarted peers, broken links, closing.

use super::engine::{Engine, NO_PEER, Phase};
use super::state::{Body, Config, Link, PeerId, PeerState, ReceiveStage, SendStage, YIELD, grant_for};
use crate::eq::EventKind;
use crate::frame::Frame;
use crate::hello::{Grant, Greeting, Hello, Speaker};
use crate::outlets::Outlets;
use crate::transport::{Asked, Down, Finish, LinkId, Submitted, Transport, Urgency, Verdict};
use core::net::SocketAddr;
use ofi_core::error::Result;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{Addr, Cause, Errno, Error, FiAddr, Instant};
use ofi_sync::lock::LockKind;

impl<K: LockKind> Engine<K> {
    fn hello(&self, greeting: Greeting, grant: Grant, name: Option<Addr>, data: Vec<u8>) -> Hello {
        let Config { speaker, nonce, .. } = self.config;
        Hello { greeting, speaker, nonce, attempt: self.attempts, grant, name, data }
    }

    /// Connects to a peer that sends wait for; they fail if that cannot even begin.
    pub(super) fn begin_connect<T: Transport>(&mut self, transport: &mut T, peer: PeerId) {
        if let Err(error) = self.connect(transport, peer, Vec::new()) {
            let why = Down::new(Cause::Connect, error.errno(), error.to_string());
            self.fail_waiting(peer, &why);
        }
    }

    /// Connects to a peer.
    pub(super) fn connect<T: Transport>(&mut self, transport: &mut T, peer: PeerId, data: Vec<u8>) -> Result<()> {
        let addr = self.peers[peer].addr.ok_or_else(|| Error::new(Errno::EINVAL, "connect without an address"))?;
        let grant = grant_for(self.link_count);
        self.attempts += 1;
        let hello = self.hello(Greeting::Ask, grant, Some(transport.local_addr()), data);
        let id = transport.connect(&addr, &hello.encode())?;
        let mut link = Link::new(peer, grant);
        link.remote = Some(addr);
        self.add_link(id, link);
        self.peers[peer].state = PeerState::Connecting(id);
        Ok(())
    }

    fn fail_waiting(&mut self, peer: PeerId, why: &Down) {
        let waiting = core::mem::take(&mut self.peers[peer].waiting);
        for &number in &waiting {
            self.fail_send(number, why);
        }
    }

    /// Somebody asks for a link.
    pub(super) fn handle_incoming(&mut self, id: LinkId, hello: &[u8], from: &Addr) -> Verdict {
        let grant = grant_for(self.link_count);
        let refuse = |engine: &Self, greeting, why: &str| {
            Verdict::Refuse(engine.hello(greeting, grant, None, why.as_bytes().to_vec()).encode())
        };
        let hello = match Hello::parse(hello) {
            Ok(hello) if hello.speaker != self.config.speaker => {
                return refuse(self, Greeting::Mismatch, "this endpoint is of another kind");
            }
            Ok(hello) if hello.greeting != Greeting::Ask => return refuse(self, Greeting::Mismatch, "not a question"),
            Ok(hello) => hello,
            Err(violation) => return refuse(self, Greeting::Mismatch, violation.0),
        };
        if self.phase != Phase::Enabled {
            return refuse(self, Greeting::Reject, "the endpoint is closing");
        }
        let name = named(hello.name, from).canonical();
        let peer = match self.by_addr.get(&name) {
            Some(&peer) => peer,
            None => self.add_peer(Some(name)),
        };
        let to_self = hello.nonce == self.config.nonce;
        if !to_self {
            match self.peers[peer].state {
                PeerState::Connecting(mine) => {
                    if self.config.nonce > hello.nonce {
                        return refuse(self, Greeting::Crossing, "the other connection is used");
                    }
                    // Theirs is used; what waits moves to it.
                    self.remove_link(mine);
                    self.abandoned.push((mine, None));
                }
                PeerState::Open(old) => {
                    let stale = self.link(old).map(|link| (link.nonce, link.attempt, link.remote));
                    if stale.is_some_and(|(nonce, attempt, _)| nonce == hello.nonce && hello.attempt <= attempt) {
                        // Its question crossed ours, which it has answered since.
                        return refuse(self, Greeting::Crossing, "the other connection is used");
                    }
                    let same_host = stale.is_none_or(|(.., remote)| {
                        remote.is_none_or(|remote| remote.socket().ip() == from.socket().ip())
                    });
                    if !same_host {
                        return refuse(self, Greeting::Reject, "that address is in use by another host");
                    }
                    let why = if stale.is_some_and(|(nonce, ..)| nonce == hello.nonce) {
                        Down::new(Cause::Broken, Errno::ECONNRESET, format!("{name}: the peer connected anew"))
                    } else {
                        Down::new(Cause::PeerRestarted, Errno::ECONNRESET, format!("{name}: the peer was restarted"))
                    };
                    // What waits was for the old one; what is with the transport fails when that has let go of it.
                    self.fail_waiting(peer, &why);
                    self.abandoned.push((old, Some(why)));
                }
                PeerState::Idle | PeerState::Yielding(_) => {}
            }
        }
        // Ending the old link may have released the peer.
        let peer = match self.by_addr.get(&name) {
            Some(&peer) => peer,
            None => self.add_peer(Some(name)),
        };
        let mut link = Link::new(peer, grant);
        link.nonce = hello.nonce;
        link.attempt = hello.attempt;
        link.granted_by_peer(hello.grant);
        link.remote = Some(*from);
        self.add_link(id, link);
        if !to_self {
            self.peers[peer].state = PeerState::Open(id);
            self.list(id);
        }
        Verdict::Accept(self.hello(Greeting::Accept, grant, None, Vec::new()).encode())
    }

    /// The peer answered.
    pub(super) fn handle_answer(&mut self, id: LinkId, hello: &[u8]) -> core::result::Result<(), Down> {
        let remote = self.link(id).and_then(|link| link.remote);
        let to = || remote.map_or_else(|| "the peer".to_owned(), |remote| remote.to_string());
        let hello = Hello::parse(hello).map_err(|violation| {
            Down::new(Cause::Violation, Errno::EPROTO, format!("connect to {}: {}", to(), violation.0))
        })?;
        match hello.greeting {
            Greeting::Accept => {}
            Greeting::Crossing => {
                return Err(Down::new(Cause::Rejected, Errno::EALREADY, "the other connection is used"));
            }
            Greeting::Ask | Greeting::Mismatch | Greeting::Reject => {
                let said = String::from_utf8_lossy(&hello.data).into_owned();
                if matches!(self.config.speaker, Speaker::Msg) && hello.greeting == Greeting::Reject {
                    // The application's own words, for the event.
                    let why = Down::new(Cause::Rejected, Errno::ECONNREFUSED, format!("connect to {}: rejected", to()));
                    let Down { cause, errno, text } = why.clone();
                    self.event(EventKind::Failed { errno, cause, text, data: hello.data });
                    if self.phase != Phase::Closing {
                        self.phase = Phase::Ended;
                    }
                    return Err(why);
                }
                let errno = if hello.greeting == Greeting::Reject { Errno::ECONNREFUSED } else { Errno::EPROTO };
                return Err(Down::new(Cause::Rejected, errno, format!("connect to {}: {said}", to())));
            }
        }
        let closing = self.phase == Phase::Closing && matches!(self.config.speaker, Speaker::Msg);
        let Some(link) = self.link(id).filter(|_| !closing) else {
            return Err(Down::new(Cause::LocalClosed, Errno::ECANCELED, Cause::LocalClosed.text()));
        };
        link.nonce = hello.nonce;
        link.attempt = hello.attempt;
        link.granted_by_peer(hello.grant);
        let peer = link.peer;
        self.peers[peer].state = PeerState::Open(id);
        self.list(id);
        if matches!(self.config.speaker, Speaker::Msg) {
            self.phase = Phase::Enabled;
            self.event(EventKind::Connected(hello.data));
        }
        Ok(())
    }

    /// Takes over a connection that a passive endpoint was asked for.
    pub(super) fn accept<T: Transport>(
        &mut self,
        transport: &mut T,
        asked: Asked<T::Request>,
        data: Vec<u8>,
    ) -> Result<()> {
        let hello = Hello::parse(&asked.hello).map_err(|violation| Error::new(Errno::EPROTO, violation.0))?;
        let peer = self.add_peer(Some(asked.from));
        let grant = grant_for(0);
        let answer = self.hello(Greeting::Accept, grant, None, data);
        let id = transport.adopt(asked.request, &answer.encode())?;
        let mut link = Link::new(peer, grant);
        link.nonce = hello.nonce;
        link.attempt = hello.attempt;
        link.granted_by_peer(hello.grant);
        link.remote = Some(asked.from);
        self.add_link(id, link);
        self.peers[peer].state = PeerState::Open(id);
        self.phase = Phase::Enabled;
        self.list(id);
        self.event(EventKind::Connected(Vec::new()));
        Ok(())
    }

    /// A link is no more.
    pub(super) fn handle_down(&mut self, id: LinkId, reason: Down) {
        // The number may be used again from now on.
        self.abandoned.retain(|(abandoned, _)| *abandoned != id);
        let Some(link) = self.link(id) else { return };
        let orderly = link.bye;
        let why = if orderly {
            let who = link.remote.map_or_else(|| "the peer".to_owned(), |remote| remote.to_string());
            Down::new(Cause::PeerClosed, Errno::ECONNRESET, format!("{who}: the peer closed its endpoint"))
        } else {
            reason
        };
        let peer = link.peer;
        let crossing = why.cause == Cause::Rejected && why.errno == Errno::EALREADY;
        if crossing && matches!(self.config.speaker, Speaker::Rdm) {
            self.remove_link(id);
            if self.peers.get(peer).is_some_and(|peer| peer.state == PeerState::Connecting(id)) {
                // Marked by the clock in `tick`: the engine has no clock of its own.
                self.peers[peer].state = PeerState::Yielding(Instant::from_nanos(u64::MAX));
                self.yielding = true;
            }
            return;
        }
        self.end_link(id, &why);
    }

    /// Ends a link: what was under way on it, or waited for it, fails.
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
        let mut handle = FiAddr::UNSPEC;
        if let Some(peer) = self.peers.get_mut(link.peer) {
            handle = peer.handle;
            if is_current(peer.state) {
                peer.state = PeerState::Idle;
                self.fail_waiting(link.peer, why);
            }
        }
        self.end_unexpected(id, why);
        let broken: Vec<u32> = self
            .receives
            .iter()
            .filter(|(_, receive)| match &receive.stage {
                ReceiveStage::Posted => false,
                ReceiveStage::Arriving { link } => *link == id,
                ReceiveStage::Pulling(pull) => pull.link == id,
            })
            .map(|(key, _)| key)
            .collect();
        for key in broken {
            if let Some(receive) = self.receives.remove(key) {
                self.fail_receive(receive, why);
            }
        }
        let lost = self.failures - before;
        if lost > 0 && self.phase != Phase::Closing {
            let provider = self.config.provider;
            log::log(provider, Level::Error, Subsystem::EpCtrl, || format!("{}; {lost} operations failed", why.text));
        }
        match self.config.speaker {
            Speaker::Rdm => {
                if why.cause != Cause::PeerClosed && why.cause != Cause::PeerRestarted && handle != FiAddr::UNSPEC {
                    self.fail_directed(handle, why);
                }
                self.release_peer(link.peer);
            }
            Speaker::Msg => self.connection_ended(why),
        }
    }

    /// Messages that were not all there when their link ended.
    fn end_unexpected(&mut self, id: LinkId, why: &Down) {
        let mut lost = Vec::new();
        for (key, message) in &mut self.unexpected {
            if message.link == Some(id) {
                message.link = None;
            }
            if let Body::Coming { link, .. } | Body::Requested { link, .. } = message.body
                && link == id
            {
                lost.push(key);
            }
        }
        for key in lost {
            let message = self.unexpected.remove(key);
            if let Ok(key) = u32::try_from(key) {
                self.lanes[message.lane].drop_unexpected(key);
                for claim in self.claims.iter_mut().filter(|claim| claim.message.as_ref().is_ok_and(|of| *of == key)) {
                    claim.message = Err(why.clone());
                }
            }
            if let Body::Coming { claimed: Some(receive), .. } = message.body
                && let Some(receive) = self.receives.remove(receive)
            {
                self.fail_receive(receive, why);
            }
        }
    }

    /// Receives that only a peer that is gone could have filled.
    fn fail_directed(&mut self, handle: FiAddr, why: &Down) {
        for lane in 0..self.lanes.len() {
            let keys: Vec<u32> = self.lanes[lane].posted_from(handle).collect();
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
        if phase == Phase::Enabled {
            self.event(EventKind::Shutdown);
        } else if phase == Phase::New {
            // Otherwise this side has ended it, or the peer's rejection has been reported with its data.
            self.event(EventKind::Failed {
                errno: why.errno,
                cause: why.cause,
                text: why.text.clone(),
                data: Vec::new(),
            });
        }
    }

    fn flush_receives(&mut self, why: &Down) {
        for lane in 0..self.lanes.len() {
            let keys: Vec<u32> = self.lanes[lane].posted().collect();
            for key in keys {
                self.fail_posted(key, why);
            }
        }
    }

    /// Ends a connection in order (fi_shutdown(3)): what was accepted leaves, then the end.
    pub(super) fn shut_down<T: Transport>(&mut self, transport: &mut T) -> core::result::Result<(), Errno> {
        if matches!(self.config.speaker, Speaker::Rdm) {
            return Err(Errno::ENOSYS);
        }
        let Some(PeerState::Open(id)) = self.peers.get(0).map(|peer| peer.state) else { return Err(Errno::ENOTCONN) };
        self.pump(transport, id);
        let why = Down::new(Cause::LocalClosed, Errno::ECANCELED, Cause::LocalClosed.text());
        self.phase = Phase::Ended;
        self.flush_receives(&why);
        self.fail_waiting(0, &why);
        self.say_bye(transport, id);
        let _ = transport.finish(id);
        Ok(())
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

    /// What is due at `now`.
    pub(super) fn tick<T: Transport>(&mut self, transport: &mut T) {
        if !self.yielding {
            return;
        }
        self.yielding = false;
        let now = transport.now();
        let mut late = Vec::new();
        for (id, peer) in &mut self.peers {
            if let PeerState::Yielding(until) = &mut peer.state {
                self.yielding = true;
                if until.nanos() == u64::MAX {
                    *until = now + YIELD;
                } else if now >= *until {
                    late.push(id);
                }
            }
        }
        for peer in late {
            // The peer said that it would connect and did not: it was lost in between. Ours has its own deadline.
            self.peers[peer].state = PeerState::Idle;
            if self.peers[peer].waiting.is_empty() {
                self.release_peer(peer);
            } else {
                self.begin_connect(transport, peer);
            }
        }
    }

    /// When [`Self::tick`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if !self.yielding {
            return None;
        }
        self.peers
            .iter()
            .filter_map(|(_, peer)| match peer.state {
                PeerState::Yielding(until) => Some(until),
                _ => None,
            })
            .min()
    }

    /// Begins to close: only what was accepted for inject or transmit is still sent.
    pub(super) fn begin_close(&mut self) {
        self.phase = Phase::Closing;
        // Nobody hears of what comes to its end from here on: the queues may be read by others still.
        self.out = Outlets::default();
        self.eq = None;
        self.discard_receives();
        let Self { sends, peers, links, .. } = self;
        for (key, send) in sends.iter_mut() {
            let state = peers.get(send.peer).map(|peer| peer.state);
            let eager = match state {
                Some(PeerState::Open(id)) => {
                    let link = links.get(id.index()).and_then(Option::as_ref);
                    link.is_some_and(|link| send.len <= link.out.eager as usize)
                }
                Some(_) => send.inject,
                None => false,
            };
            let leaves = match send.stage {
                SendStage::Waiting => eager,
                SendStage::Sending { .. } => true,
                _ => false,
            };
            if !leaves && let (Some(peer), Ok(key)) = (peers.get_mut(send.peer), u32::try_from(key)) {
                peer.waiting.retain(|waiting| *waiting != key);
            }
        }
        for link in links.iter_mut().flatten() {
            link.streams.clear();
        }
    }

    /// Closes a little further. True when everything is over.
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
                        transport.abandon(id, self);
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
            over &= transport.finish(id) == Finish::Done;
        }
        over && !self
            .peers
            .iter()
            .any(|(_, peer)| !peer.waiting.is_empty() && matches!(peer.state, PeerState::Yielding(_)))
    }

    /// How many operations and links closing leaves unfinished.
    pub(super) fn unfinished(&self) -> usize {
        self.peers.iter().map(|(_, peer)| peer.waiting.len()).sum::<usize>() + self.link_count
    }

    /// The peer of a connected endpoint.
    pub(super) fn connected_peer(&self) -> Option<Addr> {
        let peer = self.peers.get(0)?;
        matches!(peer.state, PeerState::Open(_)).then_some(peer.addr)?
    }

    /// Forgets which peers handles stand for: an address vector has been bound.
    pub(super) fn reset_handles(&mut self) {
        self.by_handle.fill(NO_PEER);
    }
}

/// Where a peer can be reached: what it says, with the address that we see if it listens on all of its own.
fn named(name: Option<Addr>, from: &Addr) -> Addr {
    match name {
        // Where the medium says who speaks, nobody else is asked.
        _ if from.name().is_some() => *from,
        Some(name) if !name.socket().ip().is_unspecified() => name,
        Some(name) => Addr::from(SocketAddr::new(from.socket().ip(), name.socket().port())),
        None => *from,
    }
}
