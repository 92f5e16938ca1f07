//! [`Transport`] over stream sockets: each poll reads active connections, idle ones wait in epoll.
//! [`Net`] supplies the sockets; [`Reader`] and [`Writer`] are the two halves of a connection.
//! Invariant: a connection leaves the table only through `drop_link`, which returns its buffers.

mod accepting;
mod reading;
mod sending;
mod watching;

pub use crate::conn::Pending;
use crate::conn::{BACKLOG, Conn, State};
use crate::deadlines::Deadlines;
use crate::half_open::HalfOpen;
use crate::net::Net;
use crate::reader::Reader;
use crate::slots;
use crate::writer::Writer;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno, Error, Instant};
use ofi_engine::transport::{
    ControlSubmitted, Down, Flush, LinkEvents, LinkId, Payload, ShutdownState, Submitted, Token, Transport, Urgency,
};
use ofi_engine::wire::frame::Header;
use ofi_memory::Buffer;
use ofi_os::poller::{Event, Interest};
use ofi_sync::account::Account;
use slab::Slab;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use watching::Watching;

/// Largest size of the receive buffer that all connections of an endpoint share, in bytes.
const STAGING: usize = 64 << 10;
/// Its size until more has arrived at once: a program may have an endpoint for each connection.
const FIRST_STAGING: usize = 512;
/// Most consecutive reads of a connection before others are served.
const READS: usize = 8;
/// Polls without input after which an active connection becomes idle.
const PATIENCE: u32 = 100;
/// With more active connections than this, epoll finds those with input.
const MOST_ACTIVE: usize = 4;
/// Polls between epoll_wait calls while all active connections are read.
const LOOK_EVERY: u32 = 16;
/// Most connections that a poll audits: each takes system calls.
const AUDITS: usize = 16;
/// The epoll key of the listening socket.
const LISTENER: u64 = u64::MAX;

/// Settings of a transport.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long connecting may take.
    pub connect_deadline: Duration,
    /// How long the peer's host may leave bytes unacknowledged.
    pub silence_deadline: Duration,
    /// Whether messages of a burst may be held back.
    pub hold: bool,
    /// The address that peers see if the socket is bound to the wildcard address.
    pub advertise: Option<std::net::IpAddr>,
    /// The account to charge for memory held for peers.
    pub account: Arc<Account>,
}

impl Default for Settings {
    fn default() -> Self {
        let (connect_deadline, silence_deadline) = (Duration::from_secs(10), Duration::from_secs(20));
        let account = Arc::new(Account::new(usize::MAX));
        Self { connect_deadline, silence_deadline, hold: true, advertise: None, account }
    }
}

/// An event queued until `deliver`: `submit` and `accept` have no [`LinkEvents`] to report to.
enum Done {
    /// The kernel has taken a kept payload.
    Sent(LinkId, Token, Buffer),
    /// A link that was backed up has room again.
    Room(LinkId),
}

/// Links over stream sockets.
pub struct TcpTransport<N: Net> {
    conns: Slab<Conn<N::Socket>>,
    staging: Vec<u8>,
    scratch: Vec<u8>,
    active: Vec<usize>,
    busy_writers: Vec<usize>,
    done: Vec<Done>,
    /// Connections on which sending failed: each is read to its end.
    broken: Vec<usize>,
    /// Each poll must call `attend`: there are broken connections, or accepting is paused.
    attention: bool,
    half_open: HalfOpen,
    news: Vec<Event>,
    polls: u32,
    /// Of connections that are connecting or refused.
    deadlines: Deadlines,
    /// When to check connections with bytes that the peer's host may not have acknowledged.
    audits: Deadlines,
    blocked: usize,
    /// Connections that hold back output for which the application need not call again.
    holding: usize,
    watching: Watching,
    listener: Option<N::Socket>,
    local: Addr,
    /// Peers reach this endpoint at `local`, whatever addresses its connections have.
    named: bool,
    bind: Option<std::net::SocketAddr>,
    /// The bound socket for the next connection, of a connected endpoint with an address.
    bound: Option<N::Socket>,
    settings: Settings,
    net: N,
}

impl<N: Net> core::fmt::Debug for TcpTransport<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TcpTransport").field("local", &self.local).finish_non_exhaustive()
    }
}

#[inline(never)]
fn deliver_all(all: &mut Vec<Done>, events: &mut impl LinkEvents) {
    for done in all.drain(..) {
        match done {
            Done::Sent(link, token, buffer) => events.handle_send_done(link, token, buffer),
            Done::Room(link) => events.handle_send_room(link),
        }
    }
}

fn index(link: LinkId) -> usize {
    link.index()
}

fn id(index: usize) -> LinkId {
    LinkId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn blocked(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn broken(remote: &Addr, error: &io::Error) -> Down {
    let errno = Errno::from(error);
    // EPIPE (32): to a caller it is the same as a reset.
    let errno = if errno.raw() == 32 { Errno::ECONNRESET } else { errno };
    Down::new(Cause::Broken, errno, format!("connection to {}: {error}", remote.socket()))
}

impl<N: Net> TcpTransport<N> {
    /// A transport for a connectionless endpoint: listens at `addr`.
    pub fn listening(mut net: N, addr: Addr, settings: Settings) -> Result<Self> {
        let doing = || format!("listen at {}", addr.socket());
        let listener = net.listen(addr.socket()).map_err(|error| Error::os(error, doing()))?;
        let bound = net.local_addr(&listener).map_err(|error| Error::os(error, doing()))?;
        net.watch(&listener, Interest::Read, LISTENER).map_err(|error| Error::os(error, doing()))?;
        let mut name = bound;
        if let (true, Some(ip)) = (bound.ip().is_unspecified(), settings.advertise) {
            name.set_ip(ip);
        }
        let bind = (!bound.ip().is_unspecified()).then_some(bound);
        Ok(Self { named: true, ..Self::new(net, Some(listener), Addr::from(name), bind, settings) })
    }

    /// A transport for a context of a scalable endpoint with this name, which accepts its
    /// connections. Its own connections come from the interface address `source`, if given.
    pub fn context(net: N, name: Addr, source: Option<std::net::SocketAddr>, settings: Settings) -> Self {
        Self { named: true, ..Self::new(net, None, name, source, settings) }
    }

    /// A transport for a connected endpoint, bound to `addr` now if given.
    pub fn connected(net: N, addr: Option<Addr>, settings: Settings) -> Result<Self> {
        let bind = addr.map(|addr| addr.socket()).filter(|addr| !addr.ip().is_unspecified() || addr.port() != 0);
        let mut transport = Self::new(net, None, addr.unwrap_or(Addr::ANY), bind, settings);
        transport.bind()?;
        Ok(transport)
    }

    /// Binds a socket to the address to connect from, if there is one.
    fn bind(&mut self) -> Result<()> {
        let Some(addr) = self.bind else { return Ok(()) };
        let doing = || format!("bind to {addr}");
        let socket = self.net.bind(addr).map_err(|error| Error::os(error, doing()))?;
        let bound = self.net.local_addr(&socket).map_err(|error| Error::os(error, doing()))?;
        self.local = Addr::from(bound);
        self.bind = Some(bound);
        self.bound = Some(socket);
        Ok(())
    }

    fn new(
        net: N,
        listener: Option<N::Socket>,
        local: Addr,
        bind: Option<std::net::SocketAddr>,
        settings: Settings,
    ) -> Self {
        Self {
            conns: Slab::new(),
            staging: Vec::new(),
            scratch: Vec::new(),
            active: Vec::new(),
            busy_writers: Vec::new(),
            done: Vec::new(),
            broken: Vec::new(),
            attention: false,
            half_open: HalfOpen::new(settings.account.clone()),
            news: Vec::new(),
            polls: 0,
            deadlines: Deadlines::default(),
            audits: Deadlines::default(),
            blocked: 0,
            holding: 0,
            watching: Watching::default(),
            listener,
            local,
            named: false,
            bind,
            bound: None,
            settings,
            net,
        }
    }

    /// The network, for tests.
    pub const fn net(&mut self) -> &mut N {
        &mut self.net
    }

    fn insert(&mut self, socket: N::Socket, remote: Addr, state: State, reader: Reader) -> io::Result<usize> {
        let slot = self.conns.vacant_key();
        let interest = if matches!(state, State::Connecting { .. }) { Interest::ReadWrite } else { Interest::Read };
        self.net.watch(&socket, interest, slot as u64)?;
        let writer = Writer::default();
        if let Some(deadline) = state.deadline() {
            self.deadlines.add(deadline, slot);
        }
        let conn = Conn {
            socket,
            remote,
            state,
            reader,
            writer,
            heard: self.polls,
            active: None,
            listed: None,
            blocked: false,
            holding: false,
            watched: true,
            charged: false,
            stalled: false,
            audit: None,
            finishing: None,
            broken: None,
        };
        if self.conns.is_empty() {
            // Often it is the only one.
            self.conns.reserve_exact(1);
        }
        Ok(self.conns.insert(conn))
    }

    fn activate(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get_mut(slot)
            && conn.active.is_none()
        {
            conn.active = Some(self.active.len());
            conn.heard = self.polls;
            self.active.push(slot);
        }
    }

    fn deactivate(&mut self, slot: usize) {
        if self.conns.get(slot).is_some_and(|conn| !conn.watched) && self.watch(slot, Interest::Read).is_err() {
            // Only polls find its input.
            return;
        }
        let Self { conns, active, .. } = self;
        if let Some(at) = conns.get_mut(slot).and_then(|conn| conn.active.take()) {
            slots::remove(active, at, conns, |conn| &mut conn.active);
        }
    }

    /// Whether each poll reads the active connections. Otherwise epoll finds those with input, and
    /// watches them all from now on.
    #[inline(always)]
    fn reads_by_trying(&mut self) -> bool {
        self.active.len() <= MOST_ACTIVE || !self.watch_all()
    }

    /// Makes an active connection idle if it has been silent for long. Each call checks the next
    /// one, so that a poll costs the same whatever their number.
    fn age_one(&mut self) {
        let at = self.polls as usize % self.active.len().max(1);
        let Some(&slot) = self.active.get(at) else { return };
        if self.conns.get(slot).is_some_and(|conn| self.polls.wrapping_sub(conn.heard) >= PATIENCE) {
            self.deactivate(slot);
        }
    }

    #[inline(always)]
    fn deliver(&mut self, events: &mut impl LinkEvents) {
        if !self.done.is_empty() {
            deliver_all(&mut self.done, events);
        }
    }

    /// Removes a connection from the table and returns the buffers it kept.
    fn drop_link(&mut self, slot: usize, events: &mut impl LinkEvents) {
        let Some(mut conn) = self.conns.try_remove(slot) else { return };
        self.holding -= usize::from(conn.holding);
        let link = id(slot);
        // Payloads sent before the end are reported as sent.
        self.deliver(events);
        conn.writer.abort(|token, buffer| events.handle_send_returned(link, token, buffer));
        if let Some(target) = conn.reader.abort() {
            events.handle_recv_retry(link, target);
        }
        if let Some(deadline) = conn.state.deadline() {
            self.deadlines.remove(deadline, slot);
        }
        if let Some(audit) = conn.audit {
            self.audits.remove(audit, slot);
        }
        self.blocked -= usize::from(conn.blocked);
        if conn.charged {
            self.settings.account.release(BACKLOG);
        }
        if !conn.watched {
            self.forget_unwatched();
        }
        if let State::Silent { serial } = conn.state {
            self.half_open.remove(serial);
        }
        self.half_open.hurry();
        if let Some(at) = conn.active {
            slots::remove(&mut self.active, at, &mut self.conns, |conn| &mut conn.active);
        }
        if let Some(at) = conn.listed {
            slots::remove(&mut self.busy_writers, at, &mut self.conns, |conn| &mut conn.listed);
        }
    }

    fn lose(&mut self, slot: usize, why: Down, events: &mut impl LinkEvents) {
        let known = self
            .conns
            .get(slot)
            .is_some_and(|conn| !matches!(conn.state, State::Silent { .. } | State::Refused { .. }));
        self.drop_link(slot, events);
        if known {
            events.handle_link_down(id(slot), why);
        }
    }

    /// Starts to connect a socket; a connected endpoint's uses the address it is bound to.
    fn socket_to(&mut self, to: std::net::SocketAddr) -> io::Result<N::Socket> {
        let bind = self.bind.filter(|bind| bind.is_ipv4() == to.is_ipv4());
        if self.named || bind.is_none() {
            return self.net.connect(to, bind);
        }
        let socket = match (self.bound.take(), bind) {
            (Some(socket), _) => socket,
            // A failed attempt used up the previous socket.
            (None, Some(bind)) => self.net.bind(bind)?,
            (None, None) => return self.net.connect(to, None),
        };
        self.net.connect_bound(&socket, to)?;
        Ok(socket)
    }

    /// Sends the hello if the kernel has connected; drops the link if it failed to.
    fn finish_connect(&mut self, slot: usize, events: &mut impl LinkEvents) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let State::Connecting { hello, deadline } = &mut conn.state else { return };
        let remote = conn.remote.socket();
        let mut outcome = self.net.connected(&conn.socket);
        if let Some(Ok(())) = outcome {
            let (hello, deadline) = (core::mem::take(hello), *deadline);
            conn.state = State::Asking;
            conn.writer.push_hello(&hello);
            self.deadlines.remove(deadline, slot);
            drop(self.net.rewatch(&conn.socket, Interest::Read, slot as u64));
            self.send_waiting(slot);
            self.activate(slot);
            // The peer is at work meanwhile.
            outcome = self.conns.get(slot).map(|conn| self.net.settle(&conn.socket, remote));
        }
        if let Some(Err(error)) = outcome {
            let errno = Errno::from(&error);
            let text = format!("connect to {remote}: {error}");
            self.lose(slot, Down::new(Cause::Connect, errno, text), events);
        }
    }
}

impl<N: Net> Transport for TcpTransport<N> {
    type Request = Pending<N::Socket>;
    const ARMED: bool = true;

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId> {
        let doing = || format!("connect to {}", to.socket());
        let socket = self.socket_to(to.socket()).map_err(|error| Error::os(error, doing()))?;
        let deadline = self.net.now() + self.settings.connect_deadline;
        let state = State::Connecting { hello: hello.to_vec(), deadline };
        let slot = self.insert(socket, *to, state, Reader::default()).map_err(|error| Error::os(error, doing()))?;
        if !self.named
            && let Ok(local) = self.net.local_addr(&self.conns[slot].socket)
        {
            self.local = Addr::from(local);
        }
        self.activate(slot);
        Ok(id(slot))
    }

    fn accept(&mut self, request: Pending<N::Socket>, hello: &[u8]) -> Result<LinkId> {
        let Pending { socket, remote, reader } = request;
        if !self.named
            && let Ok(local) = self.net.local_addr(&socket)
        {
            self.local = Addr::from(local);
        }
        let taken = self.net.take_over(&socket);
        let slot = taken
            .and_then(|()| self.insert(socket, remote, State::Open, reader))
            .map_err(|error| Error::os(error, "accept a connection request"))?;
        self.conns[slot].writer.push_hello(hello);
        self.send_waiting(slot);
        self.list(slot);
        self.activate(slot);
        Ok(id(slot))
    }

    fn next_link(&self) -> LinkId {
        id(self.conns.vacant_key())
    }

    #[inline]
    fn holds_posted(&self) -> bool {
        self.holding > 0
    }

    fn expect_events(&mut self) {
        self.polls |= LOOK_EVERY - 1;
    }

    fn takes_at_once(&mut self, link: LinkId, _: usize) -> bool {
        self.blocked == 0 || self.tries_again(index(link))
    }

    fn submit(&mut self, link: LinkId, header: &Header, payload: Payload<'_>, urgency: Urgency) -> Submitted {
        self.send_frame(link, header, Some(payload), urgency)
    }

    #[inline]
    fn submit_control(&mut self, link: LinkId, header: &Header, urgency: Urgency) -> ControlSubmitted {
        self.send_frame(link, header, None, urgency).into()
    }

    #[inline(always)]
    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = !self.done.is_empty();
        self.deliver(events);
        self.polls = self.polls.wrapping_add(1);
        let by_trying = self.reads_by_trying();
        if !by_trying || self.active.is_empty() || self.polls.is_multiple_of(LOOK_EVERY) {
            let mut news = core::mem::take(&mut self.news);
            self.net.news(Duration::ZERO, &mut news);
            for event in news.drain(..) {
                any |= self.handle_event(event, by_trying, events);
            }
            self.news = news;
        }
        if by_trying {
            let mut at = 0;
            while let Some(&slot) = self.active.get(at) {
                let before = self.active.len();
                let got = self.visit(slot, events);
                any |= got;
                // If the connection left the list, the next one took its place.
                if self.active.get(at) == Some(&slot) || self.active.len() > before {
                    at += 1;
                }
            }
        } else {
            self.age_one();
        }
        any |= self.check_deadlines(events);
        if self.attention {
            any |= self.attend(events);
        }
        if !self.busy_writers.is_empty() {
            self.flush_writers(Flush::All);
            any |= !self.done.is_empty();
        }
        self.deliver(events);
        any
    }

    fn flush(&mut self, how: Flush, events: &mut impl LinkEvents) {
        self.flush_writers(how);
        self.deliver(events);
    }

    fn wait(&mut self, timeout: Duration) {
        // Discard the events: epoll is level-triggered and reports them again to the next poll.
        let mut news = Vec::new();
        let timeout = if self.watch_all() { timeout } else { Duration::ZERO };
        self.net.news(timeout, &mut news);
    }

    fn shutdown(&mut self, link: LinkId, last: Option<&Header>) -> ShutdownState {
        let slot = index(link);
        if let Some(last) = last {
            // A broken link does not send it: its end tells the peer enough.
            let _ = self.send_frame_anyway(link, last, None, Urgency::Control);
        }
        let Some(conn) = self.conns.get_mut(slot) else { return ShutdownState::Done };
        if conn.finishing.is_none() {
            conn.finishing = Some(false);
        }
        self.send_waiting(slot);
        let Some(conn) = self.conns.get(slot) else { return ShutdownState::Done };
        let acknowledged = conn.finishing == Some(true) && self.net.unacknowledged(&conn.socket).unwrap_or(0) == 0;
        if acknowledged || conn.broken.is_some() || matches!(conn.state, State::Refused { .. }) {
            ShutdownState::Done
        } else {
            ShutdownState::Pending
        }
    }

    fn abort(&mut self, link: LinkId, events: &mut impl LinkEvents) {
        self.drop_link(index(link), events);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let pause = self.half_open.deadline();
        [self.deadlines.next(), self.audits.next(), pause].into_iter().flatten().min()
    }

    fn is_busy(&self) -> bool {
        // What is only due at some time counts with its deadline.
        let waits = !self.busy_writers.is_empty() || !self.broken.is_empty() || self.half_open.deadline().is_some();
        waits || self.blocked > 0
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.net.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.arm_descriptor()
    }

    fn disarm(&mut self) {
        self.disarm_descriptor();
    }

    fn now(&self) -> Instant {
        self.net.now()
    }

    fn random(&mut self) -> [u8; 16] {
        self.net.random()
    }

    fn unfinished(&self) -> Option<String> {
        let writes = |slot: &usize| {
            let conn = self.conns.get(*slot)?;
            let stuck = conn.blocked || conn.broken.is_some() || matches!(conn.state, State::Connecting { .. });
            (!stuck && !conn.writer.is_empty()).then(|| format!("connection {slot} has bytes to send"))
        };
        let news = [("undelivered events", self.done.len()), ("broken connections", self.broken.len())];
        news.into_iter()
            .find(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{count} {what}"))
            .or_else(|| self.busy_writers.iter().find_map(writes))
    }
}
