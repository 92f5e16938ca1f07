//! A simulated network with a virtual clock: a seed determines how reads and writes of its stream
//! sockets split, stall and break. The tcp transport runs on it as on the system's sockets, so
//! tests cover its whole protocol without real sockets.
#![forbid(unsafe_code)]

use ofi_core::Instant;
pub mod node;
pub mod pair;
pub mod portal;
pub mod raw;
pub mod seeds;
pub mod wire;

use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_memory::{Chunk, ChunkMut};
use ofi_os::poller::{Event, Interest};
use ofi_os::socket::Health;
use ofi_tcp::net::Net;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The faults to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Percentage of socket calls that would block.
    pub stall: u8,
    /// Whether reads and writes are split at random places.
    pub split: bool,
}

#[derive(Debug)]
struct End {
    /// Bytes from the peer that this end has not read.
    inbox: VecDeque<u8>,
    /// The peer has shut down writing.
    ended: bool,
    /// The connection is broken: reads fail once the inbox is empty.
    broken: bool,
    /// The other end; `None` once it is closed.
    peer: Option<usize>,
    local: SocketAddr,
    remote: SocketAddr,
    /// Whether the peer's host accepted or refused; `None` for a host that does not answer.
    connected: Option<bool>,
    watched: Option<(u64, Interest)>,
}

#[derive(Debug, Default)]
struct Listener {
    backlog: VecDeque<usize>,
    watched: Option<u64>,
    /// It listens on every address of its host.
    everywhere: bool,
}

#[derive(Debug)]
struct State {
    now: u64,
    rng: fastrand::Rng,
    faults: Faults,
    capacity: usize,
    ends: Vec<Option<End>>,
    listeners: HashMap<SocketAddr, Listener>,
    /// Further addresses of listeners, with their keys in `listeners`.
    aliases: HashMap<SocketAddr, SocketAddr>,
    next_port: u16,
    /// Addresses of hosts that do not answer.
    black_holes: Vec<SocketAddr>,
    /// The sockets that each endpoint watches, by its descriptor.
    nets: HashMap<Descriptor, Vec<Id>>,
    next_net: Descriptor,
    /// Writes fail, and no event reports it.
    mute: bool,
    meanwhile: Option<Meanwhile>,
}

/// A callback that runs while an endpoint waits.
struct Meanwhile(Box<dyn FnMut() + Send>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meanwhile").finish_non_exhaustive()
    }
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
            aliases: HashMap::new(),
            next_port: 40_000,
            black_holes: Vec::new(),
            nets: HashMap::new(),
            next_net: 100,
            mute: false,
            meanwhile: None,
        })))
    }

    /// Sets a callback that runs while an endpoint waits, as it does in close.
    pub fn meanwhile(&self, what: impl FnMut() + Send + 'static) {
        self.lock().meanwhile = Some(Meanwhile(Box::new(what)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sockets for one endpoint of the host 127.0.0.1.
    pub fn net(&self) -> SimNet {
        self.net_of(Ipv4Addr::LOCALHOST.into())
    }

    /// Sockets for one endpoint of a host.
    pub fn net_of(&self, host: IpAddr) -> SimNet {
        self.net_of_many(&[host])
    }

    /// Sockets for one endpoint of a host with several addresses: connections leave from the last;
    /// a listener without a given address is reachable at all of them.
    pub fn net_of_many(&self, hosts: &[IpAddr]) -> SimNet {
        let mut state = self.lock();
        let descriptor = state.next_net;
        state.next_net += 1;
        state.nets.insert(descriptor, Vec::new());
        SimNet { world: self.clone(), hosts: hosts.to_vec(), descriptor }
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        self.lock().now += u64::try_from(by.as_nanos()).unwrap_or(0);
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.lock().now)
    }

    /// Changes the faults.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Breaks every connection: both ends lose some of the bytes that have arrived, and get an
    /// error after the rest.
    pub fn break_connections(&self) {
        self.break_some(|_| true);
    }

    /// Breaks the connections of a host, as [`Self::break_connections`] does.
    pub fn break_connections_of(&self, host: IpAddr) {
        self.break_some(|end| end.local.ip() == host || end.remote.ip() == host);
    }

    fn break_some(&self, breaks: impl Fn(&End) -> bool) {
        let mut state = self.lock();
        let State { ends, rng, .. } = &mut *state;
        for end in ends.iter_mut().flatten().filter(|end| breaks(end)) {
            let keep = rng.usize(0..=end.inbox.len());
            end.inbox.truncate(keep);
            end.broken = true;
        }
    }

    /// From now on writes fail, and no descriptor reports it.
    pub fn fail_writes(&self) {
        self.lock().mute = true;
    }

    /// From now on connections to this address get no answer.
    pub fn black_hole(&self, addr: SocketAddr) {
        self.lock().black_holes.push(addr);
    }

    /// A wait object for a queue of endpoints in this network.
    pub fn port(&self) -> Arc<SimWaitObject> {
        Arc::new(SimWaitObject { world: self.clone(), ear: Mutex::default() })
    }
}

/// The sockets of one endpoint.
#[derive(Debug)]
pub struct SimNet {
    world: World,
    /// The host's addresses; connections leave from the last by default.
    hosts: Vec<IpAddr>,
    /// The key of its watched sockets in the world.
    descriptor: Descriptor,
}

impl Drop for SimNet {
    fn drop(&mut self) {
        self.world.lock().nets.remove(&self.descriptor);
    }
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
                // Reset the connections that were not accepted.
                for index in state.listeners.remove(&addr).map(|listener| listener.backlog).unwrap_or_default() {
                    let peer = state.ends[index].take().and_then(|end| end.peer);
                    if let Some(Some(peer)) = peer.map(|peer| state.ends[peer].as_mut()) {
                        (peer.peer, peer.broken) = (None, true);
                    }
                }
            }
            Id::End(index) => {
                let Some(end) = state.ends[index].take() else { return };
                // Unread bytes turn the close into a reset, as in a real system; the peer can still
                // read its inbox.
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
    fn port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = self.next_port.wrapping_add(1).max(40_000);
        port
    }

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

    /// What is reported of a socket that an endpoint watches, and under which key.
    fn set_interest(&mut self, id: Id, interest: Interest, key: u64) {
        if let Id::Listener(addr) = id {
            if let Some(listener) = self.listeners.get_mut(&addr) {
                listener.watched = Some(key);
            }
        } else if let Some(end) = self.end(id) {
            end.watched = Some((key, interest));
        }
    }

    /// Collects the events of the sockets that an endpoint watches.
    fn news_of(&mut self, descriptor: Descriptor, news: &mut Vec<Event>) {
        let Self { nets, listeners, ends, .. } = self;
        let Some(sockets) = nets.get_mut(&descriptor) else { return };
        sockets.retain(|id| match id {
            Id::Listener(addr) => listeners.contains_key(addr),
            Id::End(index) => ends[*index].is_some(),
        });
        for id in sockets {
            match id {
                Id::Listener(addr) => {
                    let Some(listener) = self.listeners.get(addr) else { continue };
                    if let (Some(key), false) = (listener.watched, listener.backlog.is_empty()) {
                        news.push(Event { key, readable: true, writable: false });
                    }
                }
                Id::End(index) => {
                    let Some(end) = &self.ends[*index] else { continue };
                    let Some((key, interest)) = end.watched else { continue };
                    let peer = end.peer.and_then(|peer| self.ends[peer].as_ref());
                    let room = peer.is_none_or(|peer| peer.inbox.len() < self.capacity);
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

    fn write(&mut self, id: Id, bytes: &[u8]) -> io::Result<usize> {
        if self.stalls() {
            return Err(error(ErrorKind::WouldBlock));
        }
        if self.mute {
            return Err(error(ErrorKind::BrokenPipe));
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
        // Reading copies whole slices; an iterator over the queue takes byte after byte.
        let mut out = vec![0; len.min(end.inbox.len())];
        end.inbox.read_exact(&mut out)?;
        Ok(out)
    }
}

impl SimNet {
    fn source(&self) -> IpAddr {
        self.hosts[self.hosts.len() - 1]
    }
}

impl Net for SimNet {
    type Socket = SimSocket;
    const ALIGNS: bool = false;

    fn listen(&mut self, mut addr: SocketAddr) -> io::Result<SimSocket> {
        let mut state = self.world.lock();
        if addr.port() == 0 {
            addr.set_port(state.port());
        }
        let everywhere = addr.ip().is_unspecified();
        if everywhere {
            let primary = SocketAddr::new(self.hosts[0], addr.port());
            state.aliases.extend(self.hosts.iter().map(|ip| (SocketAddr::new(*ip, addr.port()), primary)));
            state.aliases.insert(addr, primary);
            addr = primary;
        }
        if state.listeners.contains_key(&addr) {
            return Err(error(ErrorKind::AddrInUse));
        }
        state.listeners.insert(addr, Listener { everywhere, ..Listener::default() });
        Ok(SimSocket { world: self.world.clone(), id: Id::Listener(addr) })
    }

    fn connect(&mut self, to: SocketAddr, from: Option<SocketAddr>) -> io::Result<SimSocket> {
        let socket = self.bind(SocketAddr::new(from.map_or_else(|| self.source(), |from| from.ip()), 0))?;
        self.connect_bound(&socket, to)?;
        Ok(socket)
    }

    fn bind(&mut self, mut addr: SocketAddr) -> io::Result<SimSocket> {
        let mut state = self.world.lock();
        if addr.port() == 0 {
            addr.set_port(state.port());
        }
        let id = Id::End(state.ends.len());
        state.ends.push(Some(End {
            inbox: VecDeque::new(),
            ended: false,
            broken: false,
            peer: None,
            local: addr,
            remote: addr,
            connected: None,
            watched: None,
        }));
        Ok(SimSocket { world: self.world.clone(), id })
    }

    fn connect_bound(&mut self, socket: &SimSocket, to: SocketAddr) -> io::Result<()> {
        let mut state = self.world.lock();
        let Id::End(mine) = socket.id else { return Err(error(ErrorKind::NotConnected)) };
        let theirs = state.ends.len();
        let State { ends, listeners, black_holes, aliases, .. } = &mut *state;
        let end = ends[mine].as_mut().ok_or_else(|| error(ErrorKind::NotConnected))?;
        end.remote = to;
        if black_holes.contains(&to) {
            return Ok(());
        }
        let listener = listeners.get_mut(aliases.get(&to).unwrap_or(&to));
        end.connected = Some(listener.is_some());
        if let Some(listener) = listener {
            end.peer = Some(theirs);
            listener.backlog.push_back(theirs);
            let (local, remote) = (to, end.local);
            ends.push(Some(End {
                inbox: VecDeque::new(),
                ended: false,
                broken: false,
                peer: Some(mine),
                local,
                remote,
                connected: Some(true),
                watched: None,
            }));
        }
        Ok(())
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

    fn settle(&self, _: &SimSocket, _: SocketAddr) -> io::Result<()> {
        Ok(())
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
            Id::Listener(addr) => {
                let everywhere = self.world.lock().listeners.get(&addr).is_some_and(|listener| listener.everywhere);
                Ok(if everywhere { SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), addr.port()) } else { addr })
            }
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
        // The peer's host has acknowledged the bytes in the peer's inbox.
        Ok(0)
    }

    fn health(&self, _socket: &SimSocket) -> io::Result<Health> {
        Ok(Health::default())
    }

    fn watch(&mut self, socket: &SimSocket, interest: Interest, key: u64) -> io::Result<()> {
        let mut state = self.world.lock();
        let sockets = state.nets.entry(self.descriptor).or_default();
        if sockets.contains(&socket.id) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        sockets.push(socket.id);
        state.set_interest(socket.id, interest, key);
        Ok(())
    }

    fn rewatch(&mut self, socket: &SimSocket, interest: Interest, key: u64) -> io::Result<()> {
        let mut state = self.world.lock();
        if !state.nets.entry(self.descriptor).or_default().contains(&socket.id) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.set_interest(socket.id, interest, key);
        Ok(())
    }

    fn unwatch(&mut self, socket: &SimSocket) {
        let mut state = self.world.lock();
        state.nets.entry(self.descriptor).or_default().retain(|id| *id != socket.id);
        match socket.id {
            Id::Listener(addr) => {
                if let Some(listener) = state.listeners.get_mut(&addr) {
                    listener.watched = None;
                }
            }
            id => {
                if let Some(end) = state.end(id) {
                    end.watched = None;
                }
            }
        }
    }

    fn news(&mut self, timeout: Duration, news: &mut Vec<Event>) {
        let mut state = self.world.lock();
        state.now += u64::try_from(timeout.as_nanos()).unwrap_or(0);
        if !timeout.is_zero()
            && let Some(mut what) = state.meanwhile.take()
        {
            drop(state);
            (what.0)();
            state = self.world.lock();
            state.meanwhile = Some(what);
        }
        state.news_of(self.descriptor, news);
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.descriptor)
    }

    fn now(&self) -> Instant {
        // Each read of the clock advances it, as time passes for a real program.
        let mut state = self.world.lock();
        state.now += 500;
        Instant::from_nanos(state.now)
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        self.hosts.contains(&ip)
    }

    fn random(&mut self) -> [u8; 16] {
        let mut out = [0; 16];
        self.world.lock().rng.fill(&mut out);
        out
    }
}

/// The wait object of a queue in the simulated network.
#[derive(Debug)]
pub struct SimWaitObject {
    world: World,
    ear: Mutex<Ear>,
}

#[derive(Debug, Default)]
struct Ear {
    watched: Vec<(Descriptor, u64)>,
    rung: bool,
    alarm: Option<Instant>,
}

impl SimWaitObject {
    fn ear(&self) -> MutexGuard<'_, Ear> {
        self.ear.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its descriptor is readable: a watched endpoint has events, a signal is pending, or
    /// the timer has expired.
    pub fn is_readable(&self) -> bool {
        let mut keys = Vec::new();
        self.collect(&mut keys);
        let ear = self.ear();
        !keys.is_empty() || ear.rung || ear.alarm.is_some_and(|when| when <= self.world.now())
    }

    /// When its timer wakes a sleeper.
    pub fn alarm_at(&self) -> Option<Instant> {
        self.ear().alarm
    }

    fn collect(&self, keys: &mut Vec<u64>) {
        let ear = self.ear();
        let mut state = self.world.lock();
        for (descriptor, key) in &ear.watched {
            let mut news = Vec::new();
            state.news_of(*descriptor, &mut news);
            if !news.is_empty() {
                keys.push(*key);
            }
        }
    }
}

impl WaitObject for SimWaitObject {
    fn add(&self, fd: Descriptor, key: u64) -> Result<()> {
        self.ear().watched.push((fd, key));
        Ok(())
    }
    fn remove(&self, fd: Descriptor) {
        self.ear().watched.retain(|(watched, _)| *watched != fd);
    }
    fn ready(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) -> bool {
        self.collect(keys);
        if !keys.is_empty() || self.is_readable() {
            return false;
        }
        // No other thread can make it readable: advance the clock.
        let alarm = self.ear().alarm.map(|when| when.since(self.world.now()));
        let pause = timeout.unwrap_or(Duration::from_millis(1));
        self.world.advance(alarm.map_or(pause, |alarm| alarm.min(pause)));
        self.collect(keys);
        false
    }
    fn signal(&self) {
        self.ear().rung = true;
    }
    fn drain(&self) {
        let now = self.world.now();
        let mut ear = self.ear();
        ear.rung = false;
        ear.alarm = ear.alarm.filter(|when| *when > now);
    }
    fn set_timer(&self, when: Option<Instant>) {
        self.ear().alarm = when;
    }
    fn give_turn(&self) {}
    fn descriptor(&self) -> Descriptor {
        -1
    }
    fn now(&self) -> Instant {
        self.world.now()
    }
}
