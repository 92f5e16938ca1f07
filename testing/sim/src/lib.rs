//! A simulated network with a virtual clock: stream sockets whose reads and writes are split, stall and break as a seed
//! says. The tcp transport runs over it as over the system's sockets, so its whole protocol is tested without any.
#![forbid(unsafe_code)]

use ofi_core::Instant;
pub mod wire;

use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, Port};
use ofi_memory::{Chunk, ChunkMut};
use ofi_os::poller::{Event, Interest};
use ofi_os::socket::Health;
use ofi_tcp::net::Net;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Out of 100 reads and writes, how many are told to come back later.
    pub stall: u8,
    /// Whether reads and writes are cut at random places.
    pub split: bool,
}

#[derive(Debug)]
struct End {
    /// What the peer sent and this end has not read.
    inbox: VecDeque<u8>,
    /// The peer sends nothing more.
    ended: bool,
    /// The connection is broken: an error after what is in the inbox.
    broken: bool,
    /// The other end; `None` once it is closed.
    peer: Option<usize>,
    local: SocketAddr,
    remote: SocketAddr,
    /// Accepted by the peer's host; refused; or neither, for a host that does not answer.
    connected: Option<bool>,
    watched: Option<(u64, Interest)>,
}

#[derive(Debug, Default)]
struct Listener {
    backlog: VecDeque<usize>,
    watched: Option<u64>,
}

#[derive(Debug)]
struct State {
    now: u64,
    rng: fastrand::Rng,
    faults: Faults,
    capacity: usize,
    ends: Vec<Option<End>>,
    listeners: HashMap<SocketAddr, Listener>,
    next_port: u16,
    /// Addresses of hosts that do not answer.
    black_holes: Vec<SocketAddr>,
}

/// The network.
#[derive(Clone, Debug)]
pub struct World(Arc<Mutex<State>>);

impl World {
    /// A network whose faults follow from `seed`.
    pub fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let capacity = rng.usize(1000..300_000);
        Self(Arc::new(Mutex::new(State {
            now: 1_000_000_000,
            rng,
            faults,
            capacity,
            ends: Vec::new(),
            listeners: HashMap::new(),
            next_port: 40_000,
            black_holes: Vec::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sockets for one endpoint.
    pub fn net(&self) -> SimNet {
        SimNet { world: self.clone(), sockets: Vec::new() }
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.lock().now += u64::try_from(by.as_nanos()).unwrap_or(0);
    }

    /// The present.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.lock().now)
    }

    /// Changes what may go wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Breaks every connection: both ends get an error after what has arrived, of which some is lost.
    pub fn break_connections(&self) {
        let mut state = self.lock();
        let State { ends, rng, .. } = &mut *state;
        for end in ends.iter_mut().flatten() {
            let keep = rng.usize(0..=end.inbox.len());
            end.inbox.truncate(keep);
            end.broken = true;
        }
    }

    /// Connecting to that address gets no answer from now on.
    pub fn black_hole(&self, addr: SocketAddr) {
        self.lock().black_holes.push(addr);
    }

    /// A port for the queues of endpoints in this network: it has no descriptors and finds everybody.
    pub fn port(&self) -> Arc<dyn Port> {
        Arc::new(SimPort(self.clone()))
    }
}

/// The sockets of one endpoint.
#[derive(Debug)]
pub struct SimNet {
    world: World,
    /// Watched sockets, so that only the endpoint's own news are told.
    sockets: Vec<Id>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    End(usize),
    Listener(SocketAddr),
}

/// A simulated socket.
#[derive(Debug)]
pub struct SimSocket {
    world: World,
    id: Id,
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        match self.id {
            Id::Listener(addr) => {
                // Connections that nobody accepted are reset.
                for index in state.listeners.remove(&addr).map(|listener| listener.backlog).unwrap_or_default() {
                    let peer = state.ends[index].take().and_then(|end| end.peer);
                    if let Some(Some(peer)) = peer.map(|peer| state.ends[peer].as_mut()) {
                        (peer.peer, peer.broken) = (None, true);
                    }
                }
            }
            Id::End(index) => {
                let Some(end) = state.ends[index].take() else { return };
                // Unread bytes make the close a reset, as in a real system; what the peer has is still readable.
                if let Some(Some(peer)) = end.peer.map(|peer| state.ends[peer].as_mut()) {
                    peer.peer = None;
                    if end.inbox.is_empty() && !end.broken { peer.ended = true } else { peer.broken = true }
                }
            }
        }
    }
}

fn error(kind: ErrorKind) -> io::Error {
    let number = match kind {
        ErrorKind::WouldBlock => 11,
        ErrorKind::ConnectionRefused => 111,
        ErrorKind::BrokenPipe => 32,
        ErrorKind::AddrInUse => 98,
        _ => 104,
    };
    io::Error::from_raw_os_error(number)
}

impl State {
    fn stalls(&mut self) -> bool {
        self.rng.u8(0..100) < self.faults.stall
    }

    fn cut(&mut self, len: usize) -> usize {
        if self.faults.split && len > 1 && self.rng.u8(0..3) == 0 { self.rng.usize(1..=len) } else { len }
    }

    fn end(&mut self, id: Id) -> Option<&mut End> {
        match id {
            Id::End(index) => self.ends.get_mut(index)?.as_mut(),
            Id::Listener(_) => None,
        }
    }

    fn write(&mut self, id: Id, bytes: &[u8]) -> io::Result<usize> {
        if self.stalls() {
            return Err(error(ErrorKind::WouldBlock));
        }
        let (capacity, len) = (self.capacity, self.cut(bytes.len()));
        let end = self.end(id).ok_or_else(|| error(ErrorKind::BrokenPipe))?;
        let peer = match end.peer {
            Some(peer) if !end.broken => peer,
            _ => return Err(error(ErrorKind::BrokenPipe)),
        };
        let peer = self.ends[peer].as_mut().ok_or_else(|| error(ErrorKind::BrokenPipe))?;
        let room = capacity.saturating_sub(peer.inbox.len());
        if room == 0 && len > 0 {
            return Err(error(ErrorKind::WouldBlock));
        }
        let count = len.min(room);
        peer.inbox.extend(&bytes[..count]);
        Ok(count)
    }

    fn read(&mut self, id: Id, len: usize) -> io::Result<Vec<u8>> {
        if self.stalls() {
            return Err(error(ErrorKind::WouldBlock));
        }
        let len = self.cut(len);
        let end = self.end(id).ok_or_else(|| error(ErrorKind::ConnectionReset))?;
        if end.inbox.is_empty() {
            return match (end.broken, end.ended) {
                (true, _) => Err(error(ErrorKind::ConnectionReset)),
                (false, true) => Ok(Vec::new()),
                (false, false) => Err(error(ErrorKind::WouldBlock)),
            };
        }
        let count = len.min(end.inbox.len());
        Ok(end.inbox.drain(..count).collect())
    }
}

impl Net for SimNet {
    type Socket = SimSocket;

    fn listen(&mut self, mut addr: SocketAddr) -> io::Result<SimSocket> {
        let mut state = self.world.lock();
        if addr.port() == 0 {
            addr.set_port(state.next_port);
            state.next_port += 1;
        }
        if state.listeners.contains_key(&addr) {
            return Err(error(ErrorKind::AddrInUse));
        }
        state.listeners.insert(addr, Listener::default());
        Ok(SimSocket { world: self.world.clone(), id: Id::Listener(addr) })
    }

    fn connect(&mut self, to: SocketAddr, _from: Option<SocketAddr>) -> io::Result<SimSocket> {
        let mut state = self.world.lock();
        let port = state.next_port;
        state.next_port = state.next_port.wrapping_add(1).max(40_000);
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mine = state.ends.len();
        let mut end = End {
            inbox: VecDeque::new(),
            ended: false,
            broken: false,
            peer: None,
            local,
            remote: to,
            connected: None,
            watched: None,
        };
        if state.black_holes.contains(&to) {
            state.ends.push(Some(end));
        } else if state.listeners.contains_key(&to) {
            end.connected = Some(true);
            end.peer = Some(mine + 1);
            let theirs =
                End { peer: Some(mine), local: to, remote: local, inbox: VecDeque::new(), watched: None, ..end };
            state.ends.push(Some(end));
            state.ends.push(Some(theirs));
            if let Some(listener) = state.listeners.get_mut(&to) {
                listener.backlog.push_back(mine + 1);
            }
        } else {
            end.connected = Some(false);
            state.ends.push(Some(end));
        }
        Ok(SimSocket { world: self.world.clone(), id: Id::End(mine) })
    }

    fn accept(&mut self, listener: &SimSocket) -> io::Result<Option<(SimSocket, SocketAddr)>> {
        let mut state = self.world.lock();
        if state.stalls() {
            return Ok(None);
        }
        let Id::Listener(addr) = listener.id else { return Ok(None) };
        let Some(index) = state.listeners.get_mut(&addr).and_then(|listener| listener.backlog.pop_front()) else {
            return Ok(None);
        };
        let remote = state.end(Id::End(index)).map_or(addr, |end| end.remote);
        Ok(Some((SimSocket { world: self.world.clone(), id: Id::End(index) }, remote)))
    }

    fn connected(&self, socket: &SimSocket) -> Option<io::Result<()>> {
        let mut state = self.world.lock();
        if state.stalls() {
            return None;
        }
        match state.end(socket.id)?.connected? {
            true => Some(Ok(())),
            false => Some(Err(error(ErrorKind::ConnectionRefused))),
        }
    }

    fn local_addr(&self, socket: &SimSocket) -> io::Result<SocketAddr> {
        match socket.id {
            Id::Listener(addr) => Ok(addr),
            id => self.world.lock().end(id).map(|end| end.local).ok_or_else(|| error(ErrorKind::NotConnected)),
        }
    }

    fn send(&self, socket: &SimSocket, chunks: &[Chunk<'_>]) -> io::Result<usize> {
        let mut bytes = Vec::new();
        chunks.iter().for_each(|chunk| chunk.append_to(&mut bytes));
        self.send_slice(socket, &bytes)
    }

    fn send_slice(&self, socket: &SimSocket, bytes: &[u8]) -> io::Result<usize> {
        self.world.lock().write(socket.id, bytes)
    }

    fn recv(&self, socket: &SimSocket, chunks: &mut [ChunkMut<'_>]) -> io::Result<usize> {
        let len = chunks.iter().map(ChunkMut::len).sum();
        let bytes = self.world.lock().read(socket.id, len)?;
        let mut rest = &bytes[..];
        for chunk in chunks {
            let count = chunk.write(rest);
            rest = &rest[count..];
        }
        Ok(bytes.len())
    }

    fn recv_slice(&self, socket: &SimSocket, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.world.lock().read(socket.id, out.len())?;
        out[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn shutdown_write(&self, socket: &SimSocket) -> io::Result<()> {
        let mut state = self.world.lock();
        let peer = state.end(socket.id).and_then(|end| end.peer);
        if let Some(Some(peer)) = peer.map(|peer| state.ends[peer].as_mut()) {
            peer.ended = true;
        }
        Ok(())
    }

    fn unacknowledged(&self, _socket: &SimSocket) -> io::Result<usize> {
        // What is in the peer's inbox has been acknowledged by its host.
        Ok(0)
    }

    fn health(&self, _socket: &SimSocket) -> io::Result<Health> {
        Ok(Health::default())
    }

    fn watch(&mut self, socket: &SimSocket, interest: Interest, key: u64) -> io::Result<()> {
        self.sockets.push(socket.id);
        self.rewatch(socket, interest, key)
    }

    fn rewatch(&mut self, socket: &SimSocket, interest: Interest, key: u64) -> io::Result<()> {
        let mut state = self.world.lock();
        match socket.id {
            Id::Listener(addr) => {
                if let Some(listener) = state.listeners.get_mut(&addr) {
                    listener.watched = Some(key);
                }
            }
            id => {
                if let Some(end) = state.end(id) {
                    end.watched = Some((key, interest));
                }
            }
        }
        Ok(())
    }

    fn unwatch(&mut self, socket: &SimSocket) {
        self.sockets.retain(|id| *id != socket.id);
        if let Some(end) = self.world.lock().end(socket.id) {
            end.watched = None;
        }
    }

    fn news(&mut self, timeout: Duration, news: &mut Vec<Event>) {
        let mut state = self.world.lock();
        state.now += u64::try_from(timeout.as_nanos()).unwrap_or(0);
        let State { ends, listeners, capacity, .. } = &mut *state;
        self.sockets.retain(|id| match id {
            Id::Listener(addr) => listeners.contains_key(addr),
            Id::End(index) => ends[*index].is_some(),
        });
        for id in &self.sockets {
            match id {
                Id::Listener(addr) => {
                    let Some(listener) = listeners.get(addr) else { continue };
                    if let (Some(key), false) = (listener.watched, listener.backlog.is_empty()) {
                        news.push(Event { key, readable: true, writable: false });
                    }
                }
                Id::End(index) => {
                    let Some(end) = &ends[*index] else { continue };
                    let Some((key, interest)) = end.watched else { continue };
                    let room =
                        end.peer.and_then(|peer| ends[peer].as_ref()).is_none_or(|peer| peer.inbox.len() < *capacity);
                    let readable = !end.inbox.is_empty() || end.ended || end.broken;
                    let writable = interest == Interest::ReadWrite
                        && (room && end.connected == Some(true) || end.connected == Some(false) || end.broken);
                    if readable || writable {
                        news.push(Event { key, readable, writable });
                    }
                }
            }
        }
    }

    fn descriptor(&self) -> Option<Descriptor> {
        None
    }

    fn now(&self) -> Instant {
        // Time passes with every look, as it does for a real program.
        let mut state = self.world.lock();
        state.now += 500;
        Instant::from_nanos(state.now)
    }
}

#[derive(Debug)]
struct SimPort(World);

impl Port for SimPort {
    fn add(&self, _fd: Descriptor, _key: u64) -> Result<()> {
        Ok(())
    }
    fn remove(&self, _fd: Descriptor) {}
    fn ready(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) {
        self.0.advance(timeout.unwrap_or(Duration::from_millis(1)));
        // Whoever is not there is ignored.
        keys.extend(0..8);
    }
    fn ring(&self) {}
    fn quiet(&self) {}
    fn alarm(&self, _when: Option<Instant>) {}
    fn descriptor(&self) -> Descriptor {
        -1
    }
    fn now(&self) -> Instant {
        self.0.now()
    }
}
