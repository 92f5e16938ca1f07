//! The transport contract over stream sockets. A hot connection is read by trying; idle ones wait in epoll.
//! Below: [`Net`]. Beside: [`Reader`] and [`Writer`], the two halves of a connection without its socket.
//! Invariant: a connection leaves the table only through `drop_link`, which gives everything it kept back.

pub use crate::conn::Pending;
use crate::conn::{Conn, State, Trouble, note_sent, parse, receive_direct, send_from};
use crate::net::Net;
use crate::reader::{Reader, Record};
use crate::writer::{COPY, Writer};
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno, Error, Instant};
use ofi_engine::frame::{Header, Violation};
use ofi_engine::transport::{Down, Finish, Flush, LinkId, Payload, Sink, Submitted, Token, Transport, Urgency};
use ofi_memory::Buffer;
use ofi_os::poller::{Event, Interest};
use slab::Slab;
use std::io;
use std::time::Duration;

/// Bytes that one read takes at most, shared by all connections of an endpoint.
const STAGING: usize = 64 << 10;
/// Reads of a connection in a row before others have their turn.
const READS: usize = 8;
/// Polls without input after which a connection waits in epoll alone.
const PATIENCE: u16 = 100;
/// More hot connections than this are found by epoll, not by trying each.
const MOST_HOT: usize = 4;
/// Polls between looks at epoll while connections are hot.
const LOOK_EVERY: u32 = 16;
/// How often connections with unacknowledged bytes are looked after.
pub(crate) const AUDIT: Duration = Duration::from_secs(1);
/// Connections that have not said hello, at most; the oldest goes first.
const MOST_SILENT: usize = 1024;
/// How long a refused connection may take to end.
pub(crate) const REFUSED: Duration = Duration::from_secs(5);
/// The epoll key of the listening socket.
const LISTENER: u64 = u64::MAX;

/// What a transport is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long connecting may take.
    pub connect_deadline: Duration,
    /// How long the peer's host may leave bytes unacknowledged.
    pub silence_deadline: Duration,
    /// Whether messages of a burst may be held back.
    pub hold: bool,
    /// The address that peers see if the socket is bound to every interface.
    pub advertise: Option<std::net::IpAddr>,
}

impl Default for Settings {
    fn default() -> Self {
        let (connect_deadline, silence_deadline) = (Duration::from_secs(10), Duration::from_secs(20));
        Self { connect_deadline, silence_deadline, hold: true, advertise: None }
    }
}

/// Links over stream sockets.
pub struct TcpTransport<N: Net> {
    conns: Slab<Conn<N::Socket>>,
    staging: Vec<u8>,
    scratch: Vec<u8>,
    hot: Vec<usize>,
    busy_writers: Vec<usize>,
    finished: Vec<(LinkId, Token, Buffer)>,
    news: Vec<Event>,
    polls: u32,
    /// Connections that are connecting or refused: those with deadlines.
    timed: usize,
    blocked: usize,
    audit_at: Option<Instant>,
    listener: Option<N::Socket>,
    local: Addr,
    bind: Option<std::net::SocketAddr>,
    settings: Settings,
    net: N,
}

impl<N: Net> core::fmt::Debug for TcpTransport<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TcpTransport").field("local", &self.local).finish_non_exhaustive()
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
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO.raw()));
    // A pipe that is broken and a connection that is reset are the same to a caller.
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
        Ok(Self::new(net, Some(listener), Addr::from(name), bind, settings))
    }

    /// A transport for a connected endpoint, from `addr` if given.
    pub fn connected(net: N, addr: Option<Addr>, settings: Settings) -> Self {
        let bind = addr.map(|addr| addr.socket()).filter(|addr| !addr.ip().is_unspecified());
        Self::new(net, None, addr.unwrap_or(Addr::ANY), bind, settings)
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
            hot: Vec::new(),
            busy_writers: Vec::new(),
            finished: Vec::new(),
            news: Vec::new(),
            polls: 0,
            timed: 0,
            blocked: 0,
            audit_at: None,
            listener,
            local,
            bind,
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
        self.timed += usize::from(matches!(state, State::Connecting { .. }));
        let conn = Conn {
            socket,
            remote,
            state,
            reader,
            writer,
            idle: 0,
            hot: false,
            listed: false,
            blocked: false,
            unaudited: false,
            finishing: None,
            broken: None,
        };
        Ok(self.conns.insert(conn))
    }

    fn heat(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.hot
        {
            conn.hot = true;
            conn.idle = 0;
            self.hot.push(slot);
        }
    }

    /// Puts a connection on the list of those whose writers want attention.
    fn list(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.listed
        {
            conn.listed = true;
            self.busy_writers.push(slot);
        }
    }

    /// Sends what waits on a connection, as far as the system takes it.
    fn send_waiting(&mut self, slot: usize) {
        let Self { conns, net, finished, blocked: blocked_count, audit_at, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return };
        if conn.broken.is_some() || matches!(conn.state, State::Connecting { .. }) {
            return;
        }
        let mut waits = false;
        while !conn.writer.is_empty() {
            match conn.writer.with_chunks(|chunks| net.send(&conn.socket, chunks)) {
                Ok(count) => {
                    conn.writer.advance(count, |token, buffer| finished.push((id(slot), token, buffer)));
                    note_sent(conn, net, audit_at);
                }
                Err(error) if blocked(&error) => {
                    waits = true;
                    break;
                }
                Err(error) => {
                    conn.broken = Some(error);
                    break;
                }
            }
        }
        if waits != conn.blocked {
            conn.blocked = waits;
            if waits {
                *blocked_count += 1
            } else {
                *blocked_count -= 1
            }
            let interest = if waits { Interest::ReadWrite } else { Interest::Read };
            // The descriptor is ours and watched: this cannot fail but for memory, and then polling still works.
            drop(net.rewatch(&conn.socket, interest, slot as u64));
        }
        if conn.writer.is_empty() && conn.finishing == Some(false) && conn.broken.is_none() {
            conn.finishing = Some(true);
            // Fails only on a connection that is gone, which reading finds out.
            drop(net.shutdown_write(&conn.socket));
        }
    }

    fn deliver_finished(&mut self, sink: &mut impl Sink) {
        while let Some((link, token, buffer)) = self.finished.pop() {
            sink.sent(link, token, buffer);
        }
    }

    /// Takes a connection out of the table and gives back what it kept.
    fn drop_link(&mut self, slot: usize, sink: &mut impl Sink) {
        let Some(mut conn) = self.conns.try_remove(slot) else { return };
        let link = id(slot);
        // What was through before the end is through.
        self.deliver_finished(sink);
        conn.writer.abandon(|token, buffer| sink.returned(link, token, buffer));
        if let Some(landing) = conn.reader.abandon() {
            sink.unplaced(link, landing);
        }
        self.timed -= usize::from(matches!(conn.state, State::Connecting { .. } | State::Refused { .. }));
        self.blocked -= usize::from(conn.blocked);
        if conn.hot {
            self.hot.retain(|hot| *hot != slot);
        }
        if conn.listed {
            self.busy_writers.retain(|listed| *listed != slot);
        }
    }

    fn lose(&mut self, slot: usize, why: Down, sink: &mut impl Sink) {
        let known =
            self.conns.get(slot).is_some_and(|conn| !matches!(conn.state, State::Silent | State::Refused { .. }));
        self.drop_link(slot, sink);
        if known {
            sink.down(id(slot), why);
        }
    }

    /// The system's connecting is over.
    fn finish_connect(&mut self, slot: usize, sink: &mut impl Sink) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let State::Connecting { hello, .. } = &mut conn.state else { return };
        match self.net.connected(&conn.socket) {
            None => {}
            Some(Ok(())) => {
                let hello = core::mem::take(hello);
                conn.state = State::Asking;
                conn.writer.greet(&hello);
                self.timed -= 1;
                drop(self.net.rewatch(&conn.socket, Interest::Read, slot as u64));
                self.send_waiting(slot);
                self.heat(slot);
            }
            Some(Err(error)) => {
                let errno = Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO.raw()));
                let text = format!("connect to {}: {error}", conn.remote.socket());
                self.lose(slot, Down::new(Cause::Connect, errno, text), sink);
            }
        }
    }

    fn accept_all(&mut self) -> bool {
        let mut any = false;
        while let Some(listener) = &self.listener {
            match self.net.accept(listener) {
                Ok(Some((socket, from))) => {
                    any = true;
                    let silent = self.conns.iter().filter(|(_, conn)| matches!(conn.state, State::Silent));
                    if let (MOST_SILENT.., Some((oldest, _))) = (silent.clone().count(), silent.clone().next()) {
                        self.conns.remove(oldest);
                        self.hot.retain(|hot| *hot != oldest);
                    }
                    if let Ok(slot) = self.insert(socket, Addr::from(from), State::Silent, Reader::default()) {
                        self.heat(slot);
                    }
                }
                Ok(None) => break,
                // Out of descriptors: the connection stays in the backlog until there are some.
                Err(_) => break,
            }
        }
        any
    }

    /// Reads a connection. True if anything came.
    fn read(&mut self, slot: usize, sink: &mut impl Sink) -> bool {
        let mut any = false;
        if self.staging.is_empty() {
            self.staging.resize(STAGING, 0);
        }
        for _ in 0..READS {
            let Self { conns, staging, net, .. } = self;
            let Some(conn) = conns.get_mut(slot) else { return any };
            if matches!(conn.state, State::Connecting { .. }) {
                return any;
            }
            let (outcome, asked, direct) = match conn.reader.direct() {
                Some((landing, done, room)) if room >= COPY => {
                    let (outcome, asked) = receive_direct(net, &conn.socket, landing, done, room);
                    (outcome, asked, true)
                }
                _ => (net.recv_slice(&conn.socket, staging), STAGING, false),
            };
            let count = match outcome {
                Ok(0) => {
                    self.ended(slot, sink);
                    return true;
                }
                Ok(count) => count,
                Err(error) if blocked(&error) => {
                    if let Some(error) = conn.broken.take() {
                        let why = broken(&conn.remote, &error);
                        self.lose(slot, why, sink);
                        return true;
                    }
                    return any;
                }
                Err(error) => {
                    let why = broken(&conn.remote, conn.broken.as_ref().unwrap_or(&error));
                    self.lose(slot, why, sink);
                    return true;
                }
            };
            any = true;
            if !self.finished.is_empty() {
                // What the peer says may answer what was sent just before.
                self.deliver_finished(sink);
            }
            let Self { conns, staging, net, .. } = self;
            let Some(conn) = conns.get_mut(slot) else { return any };
            let result = if direct {
                match conn.reader.direct_done(count) {
                    Record::Placed(landing) => sink.placed(id(slot), landing).map_err(Trouble::Violation),
                    _ => Ok(()),
                }
            } else {
                let now = || net.now();
                parse(conn, slot, &staging[..count], sink, now)
            };
            match result {
                Ok(()) => {}
                Err(Trouble::Violation(Violation(what))) => {
                    let text = format!("connection to {}: {what}", conn.remote.socket());
                    self.lose(slot, Down::new(Cause::Violation, Errno::EPROTO, text), sink);
                    return true;
                }
                Err(Trouble::Down(why)) => {
                    self.lose(slot, why, sink);
                    return true;
                }
                Err(Trouble::Refused) => {
                    self.timed += 1;
                }
            }
            if !self.conns[slot].writer.is_empty() {
                self.list(slot);
            }
            if count < asked {
                return true;
            }
        }
        any
    }

    /// The peer's side of a connection has ended.
    fn ended(&mut self, slot: usize, sink: &mut impl Sink) {
        let Some(conn) = self.conns.get(slot) else { return };
        let who = conn.remote.socket();
        let why = match &conn.state {
            State::Asking => {
                let text = format!("connect to {who}: the peer closed the connection without an answer");
                Down::new(Cause::Rejected, Errno::ECONNREFUSED, text)
            }
            _ if conn.reader.is_mid_record() => {
                Down::new(Cause::Broken, Errno::ECONNRESET, format!("connection to {who}: cut off within a message"))
            }
            _ => Down::new(Cause::Broken, Errno::ECONNRESET, format!("connection to {who}: closed by the peer")),
        };
        self.lose(slot, why, sink);
    }

    fn check_deadlines(&mut self, sink: &mut impl Sink) -> bool {
        if self.timed == 0 && self.audit_at.is_none() {
            return false;
        }
        let now = self.net.now();
        let mut any = false;
        if self.timed > 0 {
            let late = |conn: &Conn<N::Socket>| match conn.state {
                State::Connecting { deadline, .. } | State::Refused { deadline } => now >= deadline,
                State::Asking | State::Silent | State::Open => false,
            };
            while let Some((slot, conn)) = self.conns.iter().find(|(_, conn)| late(conn)) {
                let text = format!(
                    "connect to {}: no answer within {:?}",
                    conn.remote.socket(),
                    self.settings.connect_deadline
                );
                self.lose(slot, Down::new(Cause::ConnectDeadline, Errno::ETIMEDOUT, text), sink);
                any = true;
            }
        }
        if self.audit_at.is_some_and(|at| now >= at) {
            any |= self.audit(now, sink);
        }
        any
    }

    /// Looks for peers whose hosts do not acknowledge.
    fn audit(&mut self, now: Instant, sink: &mut impl Sink) -> bool {
        let mut silent = Vec::new();
        let mut left = false;
        for (slot, conn) in self.conns.iter_mut().filter(|(_, conn)| conn.unaudited) {
            if self.net.unacknowledged(&conn.socket).unwrap_or(0) == 0 && conn.writer.is_empty() {
                conn.unaudited = false;
                continue;
            }
            left = true;
            let health = self.net.health(&conn.socket).unwrap_or_default();
            // One probe may be on its way; a peer that only does not read answers each.
            if health.unanswered >= 2 && health.since_ack >= self.settings.silence_deadline {
                silent.push((slot, health.since_ack));
            }
        }
        self.audit_at = left.then_some(now + AUDIT);
        for &(slot, since) in &silent {
            let who = self.conns[slot].remote.socket();
            let text = format!("connection to {who}: its host has not acknowledged anything for {since:?}");
            self.lose(slot, Down::new(Cause::Silent, Errno::EHOSTUNREACH, text), sink);
        }
        !silent.is_empty()
    }
}

impl<N: Net> Transport for TcpTransport<N> {
    type Request = Pending<N::Socket>;

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn remote_addr(&self, link: LinkId) -> Option<Addr> {
        self.conns.get(index(link)).map(|conn| conn.remote)
    }

    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId> {
        let doing = || format!("connect to {}", to.socket());
        let bind = self.bind.filter(|bind| bind.is_ipv4() == to.socket().is_ipv4());
        let socket = self.net.connect(to.socket(), bind).map_err(|error| Error::os(error, doing()))?;
        let deadline = self.net.now() + self.settings.connect_deadline;
        let state = State::Connecting { hello: hello.to_vec(), deadline };
        let slot = self.insert(socket, *to, state, Reader::default()).map_err(|error| Error::os(error, doing()))?;
        if self.listener.is_none()
            && let Ok(local) = self.net.local_addr(&self.conns[slot].socket)
        {
            self.local = Addr::from(local);
        }
        self.heat(slot);
        Ok(id(slot))
    }

    fn adopt(&mut self, request: Pending<N::Socket>, hello: &[u8]) -> Result<LinkId> {
        let Pending { socket, remote, reader } = request;
        if let Ok(local) = self.net.local_addr(&socket) {
            self.local = Addr::from(local);
        }
        let slot = self
            .insert(socket, remote, State::Open, reader)
            .map_err(|error| Error::os(error, "take over a connection"))?;
        self.conns[slot].writer.greet(hello);
        self.send_waiting(slot);
        self.list(slot);
        self.heat(slot);
        Ok(id(slot))
    }

    #[inline]
    fn submit(
        &mut self,
        link: LinkId,
        header: &Header,
        mut payload: Option<Payload<'_>>,
        urgency: Urgency,
    ) -> Submitted {
        let slot = index(link);
        let Self { conns, net, scratch, audit_at, settings, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return Submitted::Broken };
        if conn.broken.is_some() || conn.finishing.is_some() {
            return Submitted::Broken;
        }
        let (from, len, address) = match &payload {
            Some(Payload { buffer: Some(buffer), from, len, .. }) => (*from, *len, buffer.address() + from),
            _ => (0, 0, 0),
        };
        let head = conn.writer.head(header, len, address);
        let mut sent = 0;
        let leaves = match urgency {
            Urgency::Control => {
                conn.writer.urgent = true;
                false
            }
            Urgency::MoreFollows => false,
            Urgency::Posted => conn.writer.may_send(|| net.now()) || !settings.hold && conn.writer.is_empty(),
        };
        if leaves {
            let outcome = match &payload {
                Some(Payload { buffer: Some(buffer), .. }) if len > COPY => {
                    send_from(net, &conn.socket, head.bytes(), buffer, from, len)
                }
                Some(Payload { buffer: Some(buffer), .. }) => {
                    scratch.clear();
                    scratch.extend_from_slice(head.bytes());
                    buffer.append_to(from, len, scratch);
                    net.send_slice(&conn.socket, scratch)
                }
                _ => net.send_slice(&conn.socket, head.bytes()),
            };
            match outcome {
                Ok(count) => {
                    note_sent(conn, net, audit_at);
                    sent = count;
                }
                Err(error) if blocked(&error) => {}
                Err(error) => {
                    conn.broken = Some(error);
                    self.heat(slot);
                    return Submitted::Broken;
                }
            }
        }
        let total = head.bytes().len() + len;
        if !conn.listed {
            conn.listed = true;
            self.busy_writers.push(slot);
        }
        if sent == total {
            return Submitted::Done;
        }
        // The rest waits: small and injected bytes as a copy, others where they are.
        let mut kept = Submitted::Done;
        let head_sent = sent.min(head.bytes().len());
        conn.writer.push_bytes(&head.bytes()[head_sent..]);
        let gone = sent - head_sent;
        if let Some(Payload { buffer, inject, token, .. }) = &mut payload {
            if *inject || len - gone <= COPY {
                if let Some(buffer) = buffer {
                    conn.writer.push_copy(buffer, from + gone, len - gone);
                }
            } else if let Some(buffer) = buffer.take() {
                conn.writer.push_lent(buffer, from + gone, len - gone, *token);
                kept = Submitted::Kept;
            }
        }
        let now_due = leaves || urgency == Urgency::Posted && (!settings.hold || conn.writer.is_due(net.now()));
        if now_due {
            self.send_waiting(slot);
        }
        kept
    }

    fn poll(&mut self, sink: &mut impl Sink) -> bool {
        let mut any = !self.finished.is_empty();
        self.deliver_finished(sink);
        self.polls = self.polls.wrapping_add(1);
        let by_trying = self.hot.len() <= MOST_HOT;
        if !by_trying || self.hot.is_empty() || self.polls.is_multiple_of(LOOK_EVERY) {
            let mut news = core::mem::take(&mut self.news);
            self.net.news(Duration::ZERO, &mut news);
            for event in news.drain(..) {
                any |= self.handle_event(event, by_trying, sink);
            }
            self.news = news;
        }
        if by_trying {
            let mut at = 0;
            while let Some(&slot) = self.hot.get(at) {
                let before = self.hot.len();
                let got = self.visit(slot, sink);
                any |= got;
                // A connection that was dropped has made room for the next.
                if self.hot.get(at) == Some(&slot) || self.hot.len() > before {
                    at += 1;
                }
            }
        } else {
            self.hot.retain(|&slot| match self.conns.get_mut(slot) {
                Some(conn) => {
                    conn.idle += 1;
                    conn.hot = conn.idle < PATIENCE;
                    conn.hot
                }
                None => false,
            });
        }
        any |= self.check_deadlines(sink);
        self.flush(Flush::All, sink);
        any
    }

    fn flush(&mut self, how: Flush, sink: &mut impl Sink) {
        let mut at = 0;
        while let Some(&slot) = self.busy_writers.get(at) {
            let Self { conns, net, .. } = self;
            let Some(conn) = conns.get_mut(slot) else {
                self.busy_writers.swap_remove(at);
                continue;
            };
            let due = conn.writer.pass(how, || net.now());
            if conn.writer.is_quiet() {
                conn.listed = false;
                self.busy_writers.swap_remove(at);
                continue;
            }
            if due && !conn.blocked {
                self.send_waiting(slot);
            }
            at += 1;
        }
        self.deliver_finished(sink);
    }

    fn wait(&mut self, timeout: Duration) {
        // News are left for the next poll: epoll tells them again.
        let mut news = Vec::new();
        self.net.news(timeout, &mut news);
    }

    fn finish(&mut self, link: LinkId) -> Finish {
        let slot = index(link);
        let Some(conn) = self.conns.get_mut(slot) else { return Finish::Done };
        if conn.finishing.is_none() {
            conn.finishing = Some(false);
        }
        self.send_waiting(slot);
        let Some(conn) = self.conns.get(slot) else { return Finish::Done };
        let acknowledged = conn.finishing == Some(true) && self.net.unacknowledged(&conn.socket).unwrap_or(0) == 0;
        if acknowledged || conn.broken.is_some() || matches!(conn.state, State::Refused { .. }) {
            Finish::Done
        } else {
            Finish::Pending
        }
    }

    fn abandon(&mut self, link: LinkId, sink: &mut impl Sink) {
        self.drop_link(index(link), sink);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let timed = if self.timed == 0 {
            None
        } else {
            self.conns
                .iter()
                .filter_map(|(_, conn)| match conn.state {
                    State::Connecting { deadline, .. } | State::Refused { deadline } => Some(deadline),
                    State::Asking | State::Silent | State::Open => None,
                })
                .min()
        };
        [timed, self.audit_at].into_iter().flatten().min()
    }

    fn is_busy(&self) -> bool {
        self.timed > 0 || self.blocked > 0 || self.audit_at.is_some() || !self.busy_writers.is_empty()
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.net.descriptor()
    }

    fn now(&self) -> Instant {
        self.net.now()
    }
}

impl<N: Net> TcpTransport<N> {
    fn handle_event(&mut self, event: Event, by_trying: bool, sink: &mut impl Sink) -> bool {
        if event.key == LISTENER {
            return self.accept_all();
        }
        let Ok(slot) = usize::try_from(event.key) else { return false };
        let Some(conn) = self.conns.get(slot) else { return false };
        let connecting = matches!(conn.state, State::Connecting { .. });
        if connecting && (event.writable || event.readable) {
            self.finish_connect(slot, sink);
            return true;
        }
        if event.writable {
            self.send_waiting(slot);
        }
        let mut any = event.writable;
        if event.readable {
            self.heat(slot);
            if !by_trying {
                any |= self.read(slot, sink);
            }
            if let Some(conn) = self.conns.get_mut(slot) {
                conn.idle = 0;
            }
        }
        any
    }

    /// Tries a hot connection.
    fn visit(&mut self, slot: usize, sink: &mut impl Sink) -> bool {
        let Some(conn) = self.conns.get(slot) else { return false };
        if matches!(conn.state, State::Connecting { .. }) {
            self.finish_connect(slot, sink);
            return false;
        }
        let got = self.read(slot, sink);
        if let Some(conn) = self.conns.get_mut(slot) {
            conn.idle = if got { 0 } else { conn.idle + 1 };
            // A broken connection is read until its end shows.
            if conn.idle >= PATIENCE && conn.broken.is_none() {
                conn.hot = false;
                self.hot.retain(|hot| *hot != slot);
            }
        }
        got
    }
}
