//! The listener of a passive endpoint: accepts connections, reads their hellos, and refuses those
//! that the application rejects.

use crate::deadlines::Deadlines;
use crate::half_open::{FULL, HalfOpen, no_descriptor};
use crate::net::{Net, vouches};
use crate::reader::{Reader, Record};
use crate::transport::Pending;
use crate::writer::Writer;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Error, Instant};
use ofi_engine::transport::{ConnectRequest, Listener};
use ofi_os::poller::{Event, Interest};
use ofi_sync::account::Account;
use slab::Slab;
use std::sync::Arc;
use std::time::Duration;

const LISTENER: u64 = u64::MAX;
/// How long a refused peer may take to close its connection.
const REFUSED: Duration = Duration::from_secs(5);

/// The state of a connection.
enum State {
    /// Half-open: no hello yet. Its serial number in [`HalfOpen`].
    Silent(u64),
    /// Refused: waits for the peer to close it, until this deadline.
    Refused(Instant),
}

struct Conn<S> {
    socket: S,
    remote: Addr,
    reader: Reader,
    state: State,
}

/// A listening socket and its half-open and refused connections.
pub struct TcpListener<N: Net> {
    socket: N::Socket,
    local: Addr,
    /// The address of its interface, unless it listens on all of them.
    source: Option<std::net::SocketAddr>,
    conns: Slab<Conn<N::Socket>>,
    half_open: HalfOpen,
    /// Of refused connections.
    deadlines: Deadlines,
    news: Vec<Event>,
    net: N,
}

impl<N: Net> core::fmt::Debug for TcpListener<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TcpListener").field("local", &self.local).finish_non_exhaustive()
    }
}

type Requests<S> = Vec<ConnectRequest<Pending<S>>>;

impl<N: Net> TcpListener<N> {
    /// Listens at `addr`. If that is the wildcard address, peers see `advertise`.
    pub fn new(mut net: N, addr: Addr, advertise: Option<std::net::IpAddr>, account: Arc<Account>) -> Result<Self> {
        let doing = || format!("listen at {}", addr.socket());
        let socket = net.listen(addr.socket()).map_err(|error| Error::os(error, doing()))?;
        let mut bound = net.local_addr(&socket).map_err(|error| Error::os(error, doing()))?;
        let source = (!bound.ip().is_unspecified()).then_some(bound);
        if let (true, Some(ip)) = (bound.ip().is_unspecified(), advertise) {
            bound.set_ip(ip);
        }
        net.watch(&socket, Interest::Read, LISTENER).map_err(|error| Error::os(error, doing()))?;
        let half_open = HalfOpen::new(account);
        let (conns, deadlines) = (Slab::new(), Deadlines::default());
        Ok(Self { socket, local: Addr::from(bound), source, conns, half_open, deadlines, news: Vec::new(), net })
    }

    /// The address of its interface, unless it listens on all of them.
    pub const fn source(&self) -> Option<std::net::SocketAddr> {
        self.source
    }

    fn accept_all(&mut self, asked: &mut Requests<N::Socket>) {
        loop {
            if self.half_open.is_full(|| self.net.now()) {
                self.net.unwatch(&self.socket);
                return self.half_open.pause(self.net.now(), || FULL.to_owned());
            }
            match self.net.accept(&self.socket) {
                Ok(Some((socket, from))) => {
                    let now = self.net.now();
                    self.make_room(now, false, asked);
                    let key = self.conns.vacant_key();
                    if self.net.watch(&socket, Interest::Read, key as u64).is_ok() {
                        let state = State::Silent(self.half_open.add(key, now));
                        self.conns.insert(Conn { socket, remote: Addr::from(from), reader: Reader::default(), state });
                        self.read(key, asked);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    // Out of descriptors: the connection stays in the kernel's backlog for now.
                    let now = self.net.now();
                    if !self.make_room(now, true, asked) {
                        self.net.unwatch(&self.socket);
                        return self.half_open.pause(now, || no_descriptor(&error));
                    }
                }
            }
        }
    }

    /// Drops the connection that must give way, if any, after reading it: it may have sent a hello.
    fn make_room(&mut self, now: Instant, pressed: bool, asked: &mut Requests<N::Socket>) -> bool {
        let Some(key) = self.half_open.victim(now, pressed) else { return false };
        self.read(key, asked);
        if self.conns.get(key).is_some_and(|conn| matches!(conn.state, State::Silent(_))) {
            self.remove(key);
        }
        true
    }

    /// Removes a connection from the table. Accepting may resume, since a descriptor may be free.
    fn remove(&mut self, key: usize) -> Conn<N::Socket> {
        let conn = self.conns.remove(key);
        match conn.state {
            State::Silent(serial) => self.half_open.remove(serial),
            State::Refused(deadline) => self.deadlines.remove(deadline, key),
        }
        self.half_open.hurry();
        conn
    }

    /// Reads a half-open connection's hello, or a refused connection's end.
    fn read(&mut self, key: usize, asked: &mut Requests<N::Socket>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let mut bytes = [0u8; 1024];
        let count = match self.net.recv_slice(&conn.socket, &mut bytes) {
            Ok(count) if count > 0 => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Ok(_) | Err(_) => {
                self.remove(key);
                return;
            }
        };
        if matches!(conn.state, State::Refused(_)) {
            return;
        }
        let hello = match conn.reader.next(&bytes[..count]) {
            Ok((Record::Nothing, _)) => return,
            Ok((Record::Hello(hello), used)) if used == count => hello.to_vec(),
            // Not our protocol: something other than a hello, or more bytes before our answer.
            _ => {
                self.remove(key);
                return;
            }
        };
        let conn = self.remove(key);
        let to = self.net.local_addr(&conn.socket).map_or(self.local, Addr::from);
        let request = Pending { socket: conn.socket, remote: conn.remote, reader: conn.reader };
        self.net.unwatch(&request.socket);
        asked.push(ConnectRequest { request, hello, from: conn.remote, to });
    }

    fn push_refusal(net: &N, socket: &N::Socket, writer: &mut Writer) {
        while !writer.is_empty() {
            match writer.with_chunks(|chunks| net.send(socket, chunks)) {
                Ok(count) => writer.advance(count, |_, _| ()),
                Err(_) => return,
            }
        }
        // Fails only on a connection that is gone already.
        drop(net.shutdown_write(socket));
    }

    /// Drops refused connections past their deadline.
    fn end_refused(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = self.net.now();
        while let Some((_, key)) = self.deadlines.first_due(now) {
            self.remove(key);
        }
    }
}

impl<N: Net> Listener for TcpListener<N> {
    type Request = Pending<N::Socket>;

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn poll(&mut self, asked: &mut Vec<ConnectRequest<Self::Request>>) -> bool {
        let mut news = core::mem::take(&mut self.news);
        self.net.news(Duration::ZERO, &mut news);
        let any = !news.is_empty();
        for event in news.drain(..) {
            match usize::try_from(event.key) {
                _ if event.key == LISTENER => self.accept_all(asked),
                Ok(key) => self.read(key, asked),
                Err(_) => {}
            }
        }
        self.news = news;
        self.end_refused();
        let Self { half_open, net, socket, .. } = self;
        if half_open.resumes(|| net.now()) {
            // The descriptor is ours: this fails only without memory, and the next pause retries.
            drop(net.watch(socket, Interest::Read, LISTENER));
            self.accept_all(asked);
        }
        any
    }

    fn vouches(&self, from: &Addr, name: &Addr) -> bool {
        vouches(&self.net, name, from)
    }

    fn refuse(&mut self, request: Self::Request, hello: &[u8]) {
        let Pending { socket, remote, reader } = request;
        let mut writer = Writer::default();
        writer.push_hello(hello);
        let deadline = self.net.now() + REFUSED;
        Self::push_refusal(&self.net, &socket, &mut writer);
        let key = self.conns.vacant_key();
        // If this fails, the deadline still ends the connection.
        drop(self.net.watch(&socket, Interest::Read, key as u64));
        self.conns.insert(Conn { socket, remote, reader, state: State::Refused(deadline) });
        self.deadlines.add(deadline, key);
    }

    /// A peer sends nothing between its request and the answer: whatever there is to read ends it.
    fn is_gone(&self, request: &Self::Request) -> bool {
        let read = self.net.recv_slice(&request.socket, &mut [0]);
        !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.deadlines.next(), self.half_open.deadline()].into_iter().flatten().min()
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.net.descriptor()
    }
}
