//! The verbs transport over simulated devices of this process: no machine needs an RDMA device. A
//! segment for which the peer has no slot ends the test, because credits must prevent that.

use crate::tcp::readable;
use crate::verbs_exposed::FakeExposed;
use fastrand::Rng;
use ofi_conformance::{Medium, Nowhere};
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_engine::transport::{Down, RecvTarget};
use ofi_memory::Buffer;
use ofi_os::wait_fd::FdWaitObject;
use ofi_sync::account::Account;
use ofi_sync::primitive::{AtomicU64, Ordering};
use ofi_verbs::device::{Device, Event, Pair, Place, READS, RECEIVES, Ring, SENDS, SLOT, Work};
use ofi_verbs::transport::{Settings, VerbsTransport};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Reads take fewer polls than this.
const READ_POLLS: u32 = 40;
/// The shortest payload that is read where it lies: short, so that random scripts have many.
pub(crate) const READ_FROM: usize = 512;
/// The same for a world in which most payloads come in segments.
const RARELY: usize = 100_000;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a device object has to report.
#[derive(Debug)]
struct Reports {
    state: Mutex<ReportsState>,
    bell: FdWaitObject,
}

#[derive(Debug, Default)]
struct ReportsState {
    events: VecDeque<Event<FakePair>>,
    done: VecDeque<FakeDone>,
    armed: bool,
}

impl Reports {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), bell: FdWaitObject::new(true).expect("descriptors are free") })
    }

    fn push_event(&self, event: Event<FakePair>) {
        lock(&self.state).events.push_back(event);
        self.bell.signal();
    }

    fn push_done(&self, done: FakeDone) {
        let mut state = lock(&self.state);
        state.done.push_back(done);
        if state.armed {
            self.bell.signal();
        }
    }
}

/// A completion.
#[derive(Debug)]
pub(crate) struct FakeDone {
    key: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Sent(u16),
    /// With the key of the window that it has ended.
    Received(u16, Vec<u8>, Option<u32>),
    /// By its number; for so many polls it is still being read.
    Read(u16, Place, u32),
}

/// One side of a connection, as the other one sees it.
#[derive(Debug, Default)]
pub(crate) struct Side {
    key: u64,
    reports: Option<Arc<Reports>>,
    receives: VecDeque<u16>,
    /// Completions of a connection that no device object polls now.
    pending: Vec<FakeDone>,
    /// What the other side may read, by key.
    pub(crate) exposed: BTreeMap<u32, Vec<u8>>,
    /// Keys of windows that the other side has ended.
    pub(crate) ended: Vec<u32>,
    keys: u32,
    has_ended: bool,
}

impl Side {
    fn complete(&mut self, what: What) {
        let done = FakeDone { key: self.key, what };
        match &self.reports {
            Some(reports) => reports.push_done(done),
            None => self.pending.push(done),
        }
    }

    fn end(&mut self, text: &str) {
        if let Some(reports) = self.reports.as_ref().filter(|_| !self.has_ended) {
            reports.push_event(Event::Ended(self.key, Down::new(Cause::Broken, Errno::ECONNRESET, text)));
        }
    }
}

/// The initiator's side, then the acceptor's.
pub(crate) type Wire = Arc<Mutex<[Side; 2]>>;

/// All listening devices and all connections.
#[derive(Debug, Default)]
pub(crate) struct Net {
    listeners: BTreeMap<SocketAddr, Arc<Reports>>,
    wires: Vec<Wire>,
    ports: u16,
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct FakePair {
    key: u64,
    wire: Wire,
    side: usize,
    from: SocketAddr,
    /// The destination and the private data, until the request is sent.
    request: Option<(SocketAddr, Vec<u8>)>,
    slots: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    ring: Ring,
    /// What the next flush sends.
    chain: Vec<FakeSegment>,
    reads: BTreeMap<u16, RecvTarget>,
    was_refused: bool,
    is_stopped: bool,
}

/// A segment that waits for the next flush.
#[derive(Debug)]
struct FakeSegment {
    bytes: Vec<u8>,
    /// Its number, if it reports its completion.
    reported: Option<u16>,
    /// The key of the window that it ends.
    ends: Option<u32>,
}

impl FakePair {
    fn new(wire: Wire, side: usize, from: SocketAddr) -> Self {
        let slots = vec![Vec::new(); usize::from(RECEIVES)];
        let buffer = vec![0; SLOT];
        Self {
            key: 0,
            wire,
            side,
            from,
            request: None,
            slots,
            buffer,
            ring: Ring::default(),
            chain: Vec::new(),
            reads: BTreeMap::new(),
            was_refused: false,
            is_stopped: false,
        }
    }

    fn belong(&mut self, key: u64, reports: &Arc<Reports>) {
        self.key = key;
        let side = &mut lock(&self.wire)[self.side];
        (side.key, side.reports) = (key, Some(reports.clone()));
        for done in side.pending.drain(..) {
            reports.push_done(FakeDone { key, ..done });
        }
    }

    fn post(&mut self, len: usize, last: bool, ends: Option<u32>) {
        assert!(self.ring.slot().is_some(), "a segment without a slot to send from");
        let (number, is_reported) = self.ring.take(last);
        let bytes = self.buffer[..len].to_vec();
        self.chain.push(FakeSegment { bytes, reported: is_reported.then_some(number), ends });
    }
}

impl Pair for FakePair {
    type Done = FakeDone;
    type Exposed = FakeExposed;

    fn key(&self) -> u64 {
        self.key
    }
    fn claim(&mut self, done: FakeDone) -> Option<Work> {
        if done.key != self.key {
            return None;
        }
        Some(match done.what {
            What::Sent(number) => {
                self.ring.complete(number);
                Work::Sent
            }
            What::Received(slot, bytes, ended) => {
                assert!(self.slots.iter().all(Vec::is_empty), "a slot is kept from other connections");
                let len = bytes.len();
                lock(&self.wire)[self.side].ended.extend(ended);
                self.slots[usize::from(slot)] = bytes;
                Work::Received { slot, len }
            }
            What::Read(number, place, _) => {
                let sides = lock(&self.wire);
                let peer = &sides[1 - self.side];
                let (Some(bytes), Some(target)) = (peer.exposed.get(&place.key), self.reads.get_mut(&number)) else {
                    assert!(peer.has_ended, "a payload is withdrawn before it is read");
                    let text = "the peer has no such memory";
                    return Some(Work::Failed(Down::new(Cause::Broken, Errno::ECONNRESET, text)));
                };
                let bytes = &bytes[..target.take];
                Work::Read { number, is_whole: target.buffer.write_at(target.at, bytes) == bytes.len() }
            }
        })
    }
    fn received(&self, slot: u16) -> &[u8] {
        &self.slots[usize::from(slot)]
    }
    fn post_receive(&mut self, slot: u16) -> io::Result<()> {
        if self.is_stopped {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.slots[usize::from(slot)].clear();
        lock(&self.wire)[self.side].receives.push_back(slot);
        Ok(())
    }
    fn send_slot(&mut self) -> Option<&mut [u8]> {
        let ring = Some(&self.ring).filter(|_| !self.is_stopped)?;
        ring.slot().map(|slot| {
            assert!(slot < SENDS);
            &mut self.buffer[..]
        })
    }
    fn send(&mut self, len: usize) -> io::Result<()> {
        self.post(len, false, None);
        Ok(())
    }
    fn send_last(&mut self, len: usize) -> io::Result<()> {
        self.post(len, true, None);
        Ok(())
    }
    fn send_ending(&mut self, len: usize, key: u32) -> io::Result<()> {
        self.post(len, false, Some(key));
        Ok(())
    }
    fn flush(&mut self) -> io::Result<()> {
        let mut sides = lock(&self.wire);
        for FakeSegment { bytes, reported, ends } in self.chain.drain(..) {
            let peer = &mut sides[1 - self.side];
            if !peer.has_ended {
                let slot = peer.receives.pop_front().expect("the peer has posted a slot for each credit");
                let ended = ends.filter(|key| peer.exposed.remove(key).is_some());
                peer.complete(What::Received(slot, bytes, ended));
            }
            if let Some(number) = reported {
                sides[self.side].complete(What::Sent(number));
            }
        }
        Ok(())
    }
    fn is_sent(&self) -> bool {
        self.ring.is_done()
    }
    fn expose(&mut self, buffer: Buffer, from: usize, len: usize) -> Result<FakeExposed, (Buffer, io::Error)> {
        let side = &mut lock(&self.wire)[self.side];
        side.keys += 1;
        // Now and then a device has no room for a registration.
        if side.keys.is_multiple_of(64) {
            return Err((buffer, io::ErrorKind::OutOfMemory.into()));
        }
        let mut bytes = Vec::new();
        buffer.append_to(from, len, &mut bytes);
        side.exposed.insert(side.keys, bytes);
        let place = Place { address: buffer.address() as u64 + from as u64, key: side.keys };
        Ok(FakeExposed::new(self.wire.clone(), self.side, place, buffer))
    }
    fn knows(&self, _: &Buffer, _: usize, len: usize) -> bool {
        len.is_multiple_of(2)
    }
    fn note(&mut self, buffer: &Buffer, from: usize, len: usize) {
        assert!(buffer.len() - from >= len && !self.knows(buffer, from, len), "what is known is exposed");
    }
    fn take_back(&mut self, exposed: FakeExposed) -> Result<Buffer, FakeExposed> {
        exposed.take_back()
    }
    fn read(&mut self, number: u16, from: Place, target: RecvTarget) -> Result<(), (RecvTarget, io::Error)> {
        // Now and then a device has no room for a registration.
        if from.key.is_multiple_of(8) {
            return Err((target, io::ErrorKind::OutOfMemory.into()));
        }
        self.read_copied(number, from, target)
    }
    fn read_copied(&mut self, number: u16, from: Place, target: RecvTarget) -> Result<(), (RecvTarget, io::Error)> {
        assert!(number < READS && !self.reads.contains_key(&number), "number {number} is not free");
        if self.is_stopped {
            return Err((target, io::ErrorKind::NotConnected.into()));
        }
        self.reads.insert(number, target);
        // The device reads for some polls, in which frames arrive, and other payloads too.
        lock(&self.wire)[self.side].complete(What::Read(number, from, from.key % READ_POLLS));
        Ok(())
    }
    fn take_read(&mut self, number: u16) -> Option<RecvTarget> {
        self.reads.remove(&number)
    }
    fn stop(&mut self) -> Vec<RecvTarget> {
        let mut sides = lock(&self.wire);
        if !core::mem::replace(&mut self.is_stopped, true) && !self.was_refused {
            sides[1 - self.side].end("the peer has ended the connection");
        }
        sides[self.side].has_ended = true;
        core::mem::take(&mut self.reads).into_values().collect()
    }
    fn reject(mut self, data: &[u8]) {
        self.was_refused = true;
        let side = &lock(&self.wire)[1 - self.side];
        if let Some(reports) = &side.reports {
            reports.push_event(Event::Rejected(side.key, data.to_vec()));
        }
    }
}

impl Drop for FakePair {
    fn drop(&mut self) {
        drop(self.stop());
        // Releases its reports.
        lock(&self.wire)[self.side].reports = None;
    }
}

/// What others do before each look at a device's completions.
#[derive(Default)]
pub(crate) struct Meanwhile(Option<Box<dyn FnMut() + Send>>);

impl core::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Meanwhile").field(&self.0.is_some()).finish()
    }
}

/// A simulated device at one address.
#[derive(Debug)]
pub(crate) struct FakeDevice {
    meanwhile: Meanwhile,
    addr: SocketAddr,
    net: Arc<Mutex<Net>>,
    reports: Arc<Reports>,
    generation: u64,
    ticks: AtomicU64,
}

impl FakeDevice {
    fn next_key(&mut self, slot: u32) -> u64 {
        self.generation += 1;
        self.generation << 24 | u64::from(slot)
    }
}

impl Drop for FakeDevice {
    fn drop(&mut self) {
        lock(&self.net).listeners.remove(&self.addr);
        let requests = core::mem::take(&mut lock(&self.reports.state).events);
        drop(requests);
    }
}

impl Device for FakeDevice {
    type Pair = FakePair;
    type Done = FakeDone;

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
    fn connect(&mut self, slot: u32, to: SocketAddr, data: &[u8]) -> io::Result<FakePair> {
        let wire = Wire::default();
        lock(&self.net).wires.push(wire.clone());
        let mut pair = FakePair::new(wire, 0, self.addr);
        pair.request = Some((to, data.to_vec()));
        let key = self.next_key(slot);
        pair.belong(key, &self.reports);
        self.reports.push_event(Event::Resolved(key));
        Ok(pair)
    }
    fn advance(&mut self, pair: &mut FakePair) -> Result<(), Down> {
        let Some((to, data)) = pair.request.take() else { return Ok(()) };
        (0..RECEIVES).for_each(|slot| pair.post_receive(slot).expect("it is new"));
        let listener = lock(&self.net).listeners.get(&to).cloned();
        let refused = || Down::new(Cause::Connect, Errno::ECONNREFUSED, "no endpoint accepts there");
        let far = FakePair::new(pair.wire.clone(), 1, to);
        listener.ok_or_else(refused)?.push_event(Event::Requested { pair: far, from: pair.from, data });
        Ok(())
    }
    fn accept(&mut self, slot: u32, pair: &mut FakePair, data: &[u8]) -> Result<(), Down> {
        let key = self.next_key(slot);
        pair.belong(key, &self.reports);
        (0..RECEIVES).for_each(|slot| pair.post_receive(slot).expect("it is new"));
        let sides = lock(&pair.wire);
        let gone = || Down::new(Cause::Connect, Errno::ECONNRESET, "the peer has gone");
        let reports = sides[0].reports.as_ref().ok_or_else(gone)?;
        reports.push_event(Event::Connected(sides[0].key, data.to_vec()));
        Ok(())
    }
    fn attach(&mut self, slot: u32, pair: &mut FakePair) -> io::Result<()> {
        let key = self.next_key(slot);
        pair.belong(key, &self.reports);
        let mut sides = lock(&pair.wire);
        if sides[0].has_ended {
            sides[1].end("the peer has ended the connection");
        }
        Ok(())
    }
    fn release(&mut self, pair: &mut FakePair) {
        lock(&pair.wire)[pair.side].reports = None;
    }
    fn poll_events(&mut self, out: &mut Vec<Event<FakePair>>) {
        self.reports.bell.drain();
        out.extend(lock(&self.reports.state).events.drain(..));
    }
    fn poll_completions(&mut self, out: &mut Vec<FakeDone>) -> bool {
        if let Meanwhile(Some(others)) = &mut self.meanwhile {
            others();
        }
        let mut state = lock(&self.reports.state);
        let (count, mut later) = (state.done.len().min(8), Vec::new());
        for mut done in state.done.drain(..count) {
            match &mut done.what {
                What::Read(_, _, polls) if *polls > 0 => {
                    *polls -= 1;
                    later.push(done);
                }
                _ => out.push(done),
            }
        }
        let more = !state.done.is_empty();
        // What has arrived since comes before it.
        state.done.extend(later);
        more
    }
    fn key_of(done: &FakeDone) -> u64 {
        done.key
    }
    fn wait(&mut self, timeout: Duration) {
        self.reports.bell.ready(Some(timeout), &mut Vec::new());
    }
    fn arm(&mut self) -> bool {
        let mut state = lock(&self.reports.state);
        state.armed = true;
        !state.done.is_empty() || !state.events.is_empty()
    }
    fn disarm(&mut self) {
        lock(&self.reports.state).armed = false;
    }
    fn wake(&mut self) {
        self.reports.bell.signal();
    }
    fn descriptor(&self) -> Descriptor {
        self.reports.bell.descriptor()
    }
    fn now(&self) -> Instant {
        self.reports.bell.now()
    }
    fn tick(&self) -> Instant {
        // Polls look for events as time passes, which a few of them would not take.
        Instant::from_nanos(self.ticks.fetch_add(1, Ordering::Relaxed))
    }
    fn random(&mut self) -> [u8; 16] {
        ofi_os::random()
    }
    fn cost(&self) -> usize {
        SLOT
    }
}

/// Devices of this process.
#[derive(Debug)]
pub(crate) struct Simulated {
    net: Arc<Mutex<Net>>,
    /// Of its transports.
    read_from: usize,
}

impl Simulated {
    /// Devices whose transports leave payloads of that many bytes where they lie.
    pub(crate) fn reading_from(read_from: usize) -> Self {
        Self { net: Arc::default(), read_from }
    }

    /// A transport before each of whose looks at its completions others make progress.
    pub(crate) fn with_others(&self, others: impl FnMut() + Send + 'static) -> VerbsTransport<FakeDevice> {
        self.transport(true, Meanwhile(Some(Box::new(others))))
    }

    /// A device without a transport, which does not listen.
    pub(crate) fn bare(&self) -> FakeDevice {
        self.new_device(false, Meanwhile::default())
    }

    fn device(&self, listens: bool) -> VerbsTransport<FakeDevice> {
        self.transport(listens, Meanwhile::default())
    }

    fn transport(&self, listens: bool, meanwhile: Meanwhile) -> VerbsTransport<FakeDevice> {
        let account = Arc::new(Account::new(usize::MAX));
        let connect_deadline = Duration::from_secs(10);
        let (read_from, read_known_from) = (self.read_from, self.read_from / 4);
        let settings = Settings { connect_deadline, account, read_from, read_known_from };
        VerbsTransport::new(self.new_device(listens, meanwhile), settings)
    }

    fn new_device(&self, listens: bool, meanwhile: Meanwhile) -> FakeDevice {
        let mut net = lock(&self.net);
        net.ports += 1;
        let addr = SocketAddr::from(([10, 0, 0, 1], net.ports));
        let reports = Reports::new();
        if listens {
            net.listeners.insert(addr, reports.clone());
        }
        FakeDevice { meanwhile, addr, net: self.net.clone(), reports, generation: 0, ticks: AtomicU64::new(0) }
    }
}

impl Medium for Simulated {
    type Carrier = VerbsTransport<FakeDevice>;
    type Listener = VerbsTransport<FakeDevice>;

    const NAME: &'static str = "verbs_sim";

    fn new(rng: &mut Rng) -> Self {
        Self::reading_from(if rng.u8(0..4) > 0 { READ_FROM } else { RARELY })
    }

    fn open(&mut self, _: &mut Rng) -> Self::Carrier {
        self.device(true)
    }

    fn listen(&mut self) -> Option<Self::Listener> {
        Some(self.device(true))
    }

    fn open_connected(&mut self) -> Self::Carrier {
        self.device(false)
    }

    fn is_readable(&self, transport: &Self::Carrier) -> bool {
        readable(transport)
    }

    fn nowhere(&mut self) -> Option<Nowhere> {
        let addr = Addr::from(SocketAddr::from(([10, 0, 0, 2], 1)));
        Some(Nowhere { addr, cause: Cause::Connect, by_deadline: false })
    }

    fn break_links(&self) {
        for wire in &lock(&self.net).wires {
            lock(wire).iter_mut().for_each(|side| side.end("the device is removed"));
        }
    }
}
