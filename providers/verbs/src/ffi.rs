//! The system's RDMA devices through libibverbs and librdmacm: the one module of this crate with
//! unsafe code. Below: the libraries, loaded on first use. Above: [`Device`] and
//! [`crate::device::Pair`], whose safe methods keep what the libraries ask of their callers:
//! objects are destroyed in order, a slot is never touched while the device has it, and no call
//! waits.

mod address;
mod chain;
mod channel;
mod domain;
mod done;
mod identifier;
mod layout;
mod library;
mod memory;
mod packets;
mod pair;
mod pool;
mod queue;
mod reads;
mod window;

use crate::device::{Device, Event, REGISTERED, SHARING};
use channel::{Channel, Space};
use core::ptr::NonNull;
use core::time::Duration;
use domain::Domain;
pub use done::Done;
use layout::{Context, event};
use library::Libraries;
use memory::Memory;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Cause, Errno, Instant};
use ofi_engine::transport::Down;
use ofi_os::clock;
use ofi_os::limits::{self, Limit};
use ofi_os::wait_fd::FdWaitObject;
pub use packets::{PacketPair, Route};
pub use pair::QueuePair;
use pair::Stage;
use pool::Pool;
use queue::{Completions, NO_COMPLETIONS, Queue};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The key of the connection manager's channel in the wait object; queues have their number.
const CHANNEL: u64 = 1 << 32;
/// The key of the identifier that listens.
const LISTENER: u64 = 0;
/// Connect requests that wait in the kernel.
const BACKLOG: i32 = 1024;
/// Milliseconds for each step of finding a peer; the transport has a deadline for all of them.
const STEP: i32 = 5000;

/// Whether the libraries can be loaded.
///
/// # Errors
/// The loader's text.
pub fn load() -> Result<(), &'static str> {
    library::libraries().map(drop)
}

/// The devices of this host at one address.
#[derive(Debug)]
pub struct System {
    /// Listens, or only has the address; dropped before the channel.
    listener: Option<QueuePair>,
    local: SocketAddr,
    queues: Vec<Watched>,
    shared: Shared,
    /// Each connection has a queue of its own, which another object may take over.
    separate: bool,
    generation: u64,
    channel: Arc<Channel>,
    wait: FdWaitObject,
    keys: Vec<u64>,
    /// Completions that arming has found.
    found: Vec<Done>,
    polled: Box<Completions>,
    /// The descriptor reports completions.
    is_armed: bool,
}

/// A queue whose completions are polled here.
#[derive(Debug)]
struct Watched {
    queue: Arc<Queue>,
    /// It has one connection, which another object may take over.
    separate: bool,
    /// The next completion is an event.
    armed: bool,
}

/// What the connections of a device object share.
#[derive(Debug)]
struct Shared {
    libraries: &'static Libraries,
    /// One for each device.
    memories: Vec<Arc<Memory>>,
    /// Slots of the connections to come.
    pool: Option<Arc<Pool>>,
}

impl Shared {
    /// The application's memory for a device, with its protection domain.
    fn memory(&mut self, context: NonNull<Context>) -> io::Result<Arc<Memory>> {
        if let Some(memory) = self.memories.iter().find(|memory| memory.domain.context == context) {
            return Ok(memory.clone());
        }
        let memory = Memory::new(Domain::new(self.libraries, context)?);
        self.memories.push(memory.clone());
        Ok(memory)
    }

    /// Slots for a connection in that domain.
    fn pool(&mut self, domain: &Arc<Domain>, separate: bool) -> io::Result<Arc<Pool>> {
        if separate {
            return Pool::new(domain, false);
        }
        if let Some(pool) = self.pool.as_ref().filter(|pool| pool.is_for(domain)) {
            return Ok(pool.clone());
        }
        let pool = Pool::new(domain, true)?;
        self.pool = Some(pool.clone());
        Ok(pool)
    }
}

/// What a [`System`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Connections both ways.
    Peer,
    /// Connections that others take over.
    Listener,
    /// Its own connections only.
    Initiator,
}

fn missing(what: &str) -> io::Error {
    io::Error::other(what)
}

fn failure(doing: &str, status: i32) -> Down {
    // Negative, or positive in events of the kernel's connection manager.
    let errno = Errno::from_raw(if status == 0 { Errno::ECONNREFUSED.raw() } else { status.abs() });
    Down::new(Cause::Connect, errno, format!("{doing}: {errno:?}"))
}

/// An error in words. One for lack of memory names what is to be locked, how many bytes, and the
/// limit.
fn in_words(error: &io::Error, (what, bytes): (&str, usize), limit: Option<u64>) -> String {
    match limit {
        Some(limit) if error.raw_os_error() == Some(Errno::ENOMEM.raw()) => format!(
            "{error}: {what} locks {} KiB of memory, and the limit is {} KiB in all (ulimit -l)",
            bytes >> 10,
            limit >> 10
        ),
        _ => error.to_string(),
    }
}

fn limit_of_memory() -> Option<u64> {
    limits::limit(Limit::LockedMemory).map(|(soft, _)| soft).filter(|soft| *soft != u64::MAX)
}

/// The error of registering memory.
fn lack_in_words(error: &io::Error, what: &str, bytes: usize) -> io::Error {
    io::Error::new(error.kind(), in_words(error, (what, bytes), limit_of_memory()))
}

fn connect_failure(error: &io::Error) -> Down {
    let errno = Errno::from(error);
    let locks = ("a connection", REGISTERED);
    Down::new(Cause::Connect, errno, format!("connect to the peer: {}", in_words(error, locks, limit_of_memory())))
}

impl System {
    /// Opens the device at an address, or, to connect from any, at none.
    ///
    /// # Errors
    /// The system's: the address is in use, or no device has it.
    pub fn open(addr: Option<SocketAddr>, role: Role) -> io::Result<Self> {
        let libraries = library::libraries().map_err(missing)?;
        library::check_owner().map_err(missing)?;
        let channel = Channel::new(libraries, Space::Connections)?;
        library::own_devices();
        let wait = FdWaitObject::new(true).map_err(|error| io::Error::from_raw_os_error(error.errno().raw()))?;
        watch(&wait, channel.descriptor(), CHANNEL)?;
        let mut system = Self {
            listener: None,
            local: addr.unwrap_or_else(|| SocketAddr::from(([0; 4], 0))),
            queues: Vec::new(),
            shared: Shared { libraries, memories: Vec::new(), pool: None },
            separate: role == Role::Listener,
            generation: u64::from(u16::from_ne_bytes(ofi_os::random())),
            channel,
            wait,
            keys: Vec::new(),
            found: Vec::new(),
            polled: Box::new(NO_COMPLETIONS),
            is_armed: false,
        };
        if let (Some(addr), true) = (addr, role != Role::Initiator) {
            system.listen(addr)?;
        }
        Ok(system)
    }

    fn listen(&mut self, addr: SocketAddr) -> io::Result<()> {
        let id = self.channel.identifier(LISTENER)?;
        let pair = QueuePair::new(id, self.channel.clone(), LISTENER, Stage::Later, Vec::new());
        self.local = pair.id.bind(addr)?;
        pair.id.listen(BACKLOG)?;
        let context = pair.id.context().ok_or_else(|| missing("no RDMA device has this address"))?;
        self.listener = Some(pair);
        if !self.separate {
            // Now, so that the first connection does not wait for it.
            self.queue(context)?;
        }
        Ok(())
    }

    fn next_key(&mut self, slot: u32) -> u64 {
        self.generation = (self.generation + 1) & 0xff_ffff;
        // Not 0, which is the listener's.
        (self.generation.max(1) << 24) | u64::from(slot)
    }

    /// A completion queue for a connection on that device.
    fn queue(&mut self, context: NonNull<Context>) -> io::Result<Arc<Queue>> {
        let shared = |watched: &&Watched| {
            !watched.separate && watched.queue.domain.context == context && Queue::has_room(&watched.queue)
        };
        if let Some(watched) = self.queues.iter().find(shared).filter(|_| !self.separate) {
            return Ok(watched.queue.clone());
        }
        let queue = Queue::new(&self.shared.memory(context)?.domain, !self.separate)?;
        self.watch_queue(queue.clone(), self.separate)?;
        Ok(queue)
    }

    fn watch_queue(&mut self, queue: Arc<Queue>, separate: bool) -> io::Result<()> {
        watch(&self.wait, queue.descriptor(), self.queues.len() as u64)?;
        if self.is_armed {
            queue.request_event();
        }
        // A separate queue may have completions already, and its event may be requested already.
        self.queues.push(Watched { queue, separate, armed: self.is_armed });
        Ok(())
    }

    fn unwatch_queue(&mut self, queue: &Arc<Queue>) {
        let Some(at) = self.queues.iter().position(|watched| Arc::ptr_eq(&watched.queue, queue)) else { return };
        self.wait.remove(queue.descriptor());
        self.queues.swap_remove(at);
        // The last one has another number now.
        if let Some(moved) = self.queues.get(at) {
            self.wait.remove(moved.queue.descriptor());
            // Fails only without memory; the completions are then found by polling.
            drop(self.wait.add(moved.queue.descriptor(), at as u64));
        }
    }

    /// Separate queues whose connection is gone are not polled any longer.
    fn drop_queues(&mut self) {
        let unused = |watched: &Watched| watched.separate && Arc::strong_count(&watched.queue) == 1;
        while let Some(gone) = self.queues.iter().find(|watched| unused(watched)).map(|watched| watched.queue.clone()) {
            self.unwatch_queue(&gone);
        }
    }

    /// Takes the events of the queues and returns whether the connection manager has one.
    fn look(&mut self) -> bool {
        let mut keys = core::mem::take(&mut self.keys);
        keys.clear();
        self.wait.ready(Some(Duration::ZERO), &mut keys);
        let mut any = false;
        for key in &keys {
            any |= *key == CHANNEL;
            let number = usize::try_from(*key).unwrap_or(usize::MAX);
            if let Some(watched) = self.queues.get_mut(number) {
                watched.queue.take_event();
                watched.armed = self.is_armed;
                // This thread polls the queue next, but another one may sleep on the descriptor.
                if self.is_armed {
                    watched.queue.request_event();
                }
            }
        }
        self.keys = keys;
        any
    }

    fn poll_queues(&mut self, out: &mut Vec<Done>) -> bool {
        let mut more = false;
        for Watched { queue, .. } in &self.queues {
            more |= queue.poll_done(&mut self.polled, out);
        }
        more
    }

    fn translate(&self, event: channel::Event) -> Option<Event<QueuePair>> {
        let channel::Event { kind, status, key, requested, data, .. } = event;
        let ended = |doing: &str| Some(Event::Ended(key, failure(doing, status)));
        match kind {
            event::CONNECT_REQUEST => {
                let pair = QueuePair::new(requested?, self.channel.clone(), key, Stage::Later, Vec::new());
                let from = pair.id.address(true)?;
                Some(Event::Requested { pair, from, data })
            }
            event::ADDR_RESOLVED | event::ROUTE_RESOLVED => Some(Event::Resolved(key)),
            event::ADDR_ERROR => ended("find the peer's address"),
            event::ROUTE_ERROR => ended("find a route to the peer"),
            event::CONNECT_ERROR | event::UNREACHABLE => ended("connect to the peer"),
            event::REJECTED if status == BY_ENDPOINT => Some(Event::Rejected(key, data)),
            event::REJECTED => {
                let text = format!("no endpoint accepts there (reason {status} of the connection manager)");
                Some(Event::Ended(key, Down::new(Cause::Connect, Errno::ECONNREFUSED, text)))
            }
            event::ESTABLISHED if data.is_empty() => None,
            event::ESTABLISHED => Some(Event::Connected(key, data)),
            event::DISCONNECTED => Some(Event::Ended(
                key,
                Down::new(Cause::Broken, Errno::ECONNRESET, "the peer has ended the connection"),
            )),
            event::DEVICE_REMOVAL => {
                Some(Event::Ended(key, Down::new(Cause::Broken, Errno::ENODEV, "the device is removed")))
            }
            _ => None,
        }
    }
}

/// The reason of a refusal by an endpoint, with private data; others are the peer's host's.
const BY_ENDPOINT: i32 = 28;

fn watch(wait: &FdWaitObject, descriptor: Descriptor, key: u64) -> io::Result<()> {
    wait.add(descriptor, key).map_err(|error| io::Error::from_raw_os_error(error.errno().raw()))
}

impl Device for System {
    type Pair = QueuePair;
    type Done = Done;

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn connect(&mut self, slot: u32, to: SocketAddr, data: &[u8]) -> io::Result<QueuePair> {
        let key = self.next_key(slot);
        let id = self.channel.identifier(key)?;
        let pair = QueuePair::new(id, self.channel.clone(), key, Stage::Address, data.to_vec());
        let mut from = self.local;
        // A connected endpoint keeps its port only if it was given one; a listener has its own.
        if self.listener.is_some() {
            from.set_port(0);
        }
        let from = (!from.ip().is_unspecified() && from.is_ipv4() == to.is_ipv4()).then_some(from);
        pair.id.resolve(from, to, STEP)?;
        Ok(pair)
    }

    fn advance(&mut self, pair: &mut QueuePair) -> Result<(), Down> {
        let fail = |error: io::Error| connect_failure(&error);
        match pair.stage {
            Stage::Address => pair.resolve_route(STEP).map_err(fail),
            Stage::Route => {
                let context = pair.id.context().ok_or_else(|| fail(missing("no RDMA device leads there")))?;
                let queue = self.queue(context).map_err(fail)?;
                let memory = self.shared.memory(context).map_err(fail)?;
                let pool = self.shared.pool(&memory.domain, self.separate).map_err(fail)?;
                pair.join(queue, pool, memory).and_then(|()| pair.request()).map_err(fail)?;
                if self.listener.is_none() {
                    self.local = pair.id.address(false).unwrap_or(self.local);
                }
                Ok(())
            }
            Stage::Later => Ok(()),
        }
    }

    fn accept(&mut self, slot: u32, pair: &mut QueuePair, data: &[u8]) -> Result<(), Down> {
        let fail = |error: io::Error| connect_failure(&error);
        let key = self.next_key(slot);
        pair.set_key(key);
        let context = pair.id.context().ok_or_else(|| fail(missing("the request came from no device")))?;
        let queue = self.queue(context).map_err(fail)?;
        let memory = self.shared.memory(context).map_err(fail)?;
        let pool = self.shared.pool(&memory.domain, self.separate).map_err(fail)?;
        pair.join(queue, pool, memory).and_then(|()| pair.answer(data)).map_err(fail)
    }

    fn attach(&mut self, slot: u32, pair: &mut QueuePair) -> io::Result<()> {
        let key = self.next_key(slot);
        pair.id.migrate(&self.channel)?;
        pair.set_key(key);
        if self.listener.is_none() {
            self.local = pair.id.address(false).unwrap_or(self.local);
        }
        let Some(joined) = &pair.joined else { return Err(io::ErrorKind::NotConnected.into()) };
        self.shared.memories.push(joined.memory.clone());
        self.watch_queue(joined.queue.clone(), true)
    }

    fn release(&mut self, pair: &mut QueuePair) {
        if let Some(joined) = &pair.joined {
            let queue = joined.queue.clone();
            self.unwatch_queue(&queue);
        }
    }

    fn poll_events(&mut self, out: &mut Vec<Event<QueuePair>>) {
        self.wait.drain();
        self.drop_queues();
        for memory in &self.shared.memories {
            memory.kept().give_up_changed();
        }
        while self.look() {
            match self.channel.next(!self.separate) {
                Ok(event) => out.extend(self.translate(event)),
                Err(_) => return,
            }
        }
    }

    fn poll_completions(&mut self, out: &mut Vec<Done>) -> bool {
        out.append(&mut self.found);
        self.poll_queues(out)
    }

    fn key_of(done: &Done) -> u64 {
        done.key
    }

    fn wait(&mut self, timeout: Duration) {
        let mut keys = core::mem::take(&mut self.keys);
        keys.clear();
        self.wait.ready(Some(timeout), &mut keys);
        self.keys = keys;
    }

    fn arm(&mut self) -> bool {
        let has_event = self.look();
        self.is_armed = true;
        for watched in self.queues.iter_mut().filter(|watched| !watched.armed) {
            watched.armed = true;
            watched.queue.request_event();
        }
        // What came before the request is no event.
        let mut found = core::mem::take(&mut self.found);
        self.poll_queues(&mut found);
        self.found = found;
        has_event || !self.found.is_empty()
    }

    fn disarm(&mut self) {
        self.is_armed = false;
    }

    fn wake(&mut self) {
        self.wait.signal();
    }

    fn descriptor(&self) -> Descriptor {
        self.wait.descriptor()
    }

    fn now(&self) -> Instant {
        self.wait.now()
    }

    fn tick(&self) -> Instant {
        clock::tick()
    }

    fn random(&mut self) -> [u8; 16] {
        ofi_os::random()
    }

    fn cost(&self) -> usize {
        let share = |memory: &Arc<Memory>| memory.domain.has_shared_queues();
        if !self.separate && self.shared.memories.iter().all(share) { SHARING } else { REGISTERED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_names_the_limit() {
        let lack = io::Error::from_raw_os_error(Errno::ENOMEM.raw());
        let locks = ("a connection", REGISTERED);
        let text = in_words(&lack, locks, Some(64 << 10));
        assert!(text.contains("a connection locks 384 KiB") && text.contains("64 KiB in all (ulimit -l)"), "{text}");
        assert!(!in_words(&lack, locks, None).contains("ulimit"));
        let other = io::Error::from_raw_os_error(Errno::EIO.raw());
        assert!(!in_words(&other, locks, Some(64 << 10)).contains("ulimit"));
    }
}
