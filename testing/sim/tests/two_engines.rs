//! Two endpoints exchange random messages and access each other's memory over a network that
//! splits, stalls and breaks, or through shared memory that runs out at times, and across restarts.
//! Every accepted operation must complete exactly once, every message must arrive once, unchanged
//! and in order, and memory must hold the results of the operations in their order. Sometimes a
//! thread sleeps on one endpoint's queue descriptor while others post, cancel and read another
//! queue: while the descriptor is not readable, no work may be pending.
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 500; a twentieth of them through memory, where time is
//! real), `OFI_SIM_SEED=s` only seed s.

use ofi_core::wait::WaitObject;
use ofi_core::{Addr, Caps, Completion, Errno, FiAddr, Instant, OpFlags};
use ofi_engine::endpoint::{Endpoint, Opener};
use ofi_engine::transport::Transport;
use ofi_os::poller::{Interest, Poller};
use ofi_os::shm::seam;
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Accesses, Finished, Kind, Message, Options, Receive};
use ofi_shm::ShmTransport;
use ofi_shm::cma::CmaMode;
use ofi_shm::transport as shm;
use ofi_sim::seeds;
use ofi_sim::{Faults, SimNet, SimWaitObject, World};
use ofi_sync::lock::Park;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The medium between the two endpoints.
trait Medium: Sized {
    type Carrier: Transport;
    type WaitObject: WaitObject + 'static;

    /// `rng` determines the faults.
    fn new(seed: u64, rng: &mut fastrand::Rng) -> Self;
    fn addr(&self, side: u8) -> Addr;
    fn opener(&self, rng: &mut fastrand::Rng) -> Opener<Self::Carrier>;
    fn port(&self) -> Arc<Self::WaitObject>;
    /// Whether a sleeper on the wait object's descriptor wakes up.
    fn is_readable(&self, port: &Self::WaitObject) -> bool;
    /// Whether the wait object's timer wakes the sleeper by `due`.
    fn wakes_by(&self, port: &Self::WaitObject, due: Instant) -> bool;
    /// Advances the clock.
    fn advance(&self, by: Duration);
    /// Causes a fault.
    fn disturb(&self);
    /// Ends all faults.
    fn calm(&self);
    /// Lets time pass while neither side can progress.
    fn idle(&self, somebody: &ofi_rig::Side<Self::Carrier>);
    /// Closes an endpoint; close may depend on the other side's progress in `meanwhile`.
    fn close(&self, ep: &Ep<Self>, meanwhile: impl FnMut());
}

impl Medium for World {
    type Carrier = TcpTransport<SimNet>;
    type WaitObject = SimWaitObject;

    fn new(seed: u64, rng: &mut fastrand::Rng) -> Self {
        Self::new(seed, faults(rng))
    }

    fn addr(&self, side: u8) -> Addr {
        Addr::from(SocketAddr::from(([127, 0, 0, 1], 1000 + u16::from(side))))
    }

    fn opener(&self, rng: &mut fastrand::Rng) -> Opener<Self::Carrier> {
        let (world, hold) = (self.clone(), rng.bool());
        Box::new(move |addr| {
            let settings = Settings { hold, ..Settings::default() };
            TcpTransport::listening(world.net(), addr.unwrap_or(Addr::ANY), settings)
        })
    }

    fn port(&self) -> Arc<SimWaitObject> {
        self.port()
    }

    fn is_readable(&self, port: &SimWaitObject) -> bool {
        port.is_readable()
    }

    fn wakes_by(&self, port: &SimWaitObject, due: Instant) -> bool {
        port.alarm_at().is_some_and(|alarm| alarm <= due)
    }

    fn advance(&self, by: Duration) {
        self.advance(by);
    }

    fn disturb(&self) {
        self.break_connections();
    }

    fn calm(&self) {
        self.set_faults(Faults { stall: 0, split: false });
    }

    fn idle(&self, _: &ofi_rig::Side<Self::Carrier>) {
        self.advance(Duration::from_millis(20));
    }

    fn close(&self, ep: &Ep<Self>, _: impl FnMut()) {
        ep.close();
    }
}

/// Memory of this process. Its links do not break; new links may fail to reserve memory.
struct Memory {
    names: [Addr; 2],
    lacking: Cell<bool>,
    /// Reservations that succeed before the next one that does not.
    successes: Cell<usize>,
}

impl Medium for Memory {
    type Carrier = ShmTransport;
    type WaitObject = FdWaitObject;

    fn new(seed: u64, _: &mut fastrand::Rng) -> Self {
        let name = |side| format!("fi_shm://sim-{}-{seed}-{side}", std::process::id()).parse().unwrap();
        Self { names: [name(0), name(1)], lacking: Cell::new(false), successes: Cell::new(0) }
    }

    fn addr(&self, side: u8) -> Addr {
        self.names[usize::from(side)]
    }

    fn opener(&self, rng: &mut fastrand::Rng) -> Opener<ShmTransport> {
        let modes = [CmaMode::IfFaster, CmaMode::IfAllowed, CmaMode::Read, CmaMode::Both];
        let direct = rng.choice(modes).unwrap_or_default();
        let settings = shm::Settings { cma: direct, ..shm::Settings::default() };
        Box::new(move |addr| ShmTransport::new(addr.as_ref().and_then(Addr::name), settings.clone()))
    }

    fn port(&self) -> Arc<FdWaitObject> {
        Arc::new(FdWaitObject::new(true).unwrap())
    }

    fn is_readable(&self, port: &FdWaitObject) -> bool {
        let poller = Poller::new().unwrap();
        poller.add(port.descriptor(), Interest::Read, 0).unwrap();
        let mut any = false;
        poller.wait(Some(Duration::ZERO), |_| any = true).unwrap();
        any
    }

    /// `FdWaitObject` does not expose when its timer expires.
    fn wakes_by(&self, _: &FdWaitObject, _: Instant) -> bool {
        true
    }

    fn advance(&self, _: Duration) {}

    fn disturb(&self) {
        self.lacking.set(!self.lacking.get());
        if self.lacking.get() {
            // Before a peer is asked for a link, or afterwards.
            seam::fail_after(self.successes.get(), Errno::ENOMEM.raw());
            self.successes.set((self.successes.get() + 1) % 3);
        } else {
            seam::succeed();
        }
    }

    fn calm(&self) {
        seam::succeed();
    }

    fn idle(&self, somebody: &ofi_rig::Side<ShmTransport>) {
        somebody.cq.wait(1, Some(Duration::from_millis(1))).unwrap();
    }

    fn close(&self, ep: &Ep<Self>, mut meanwhile: impl FnMut()) {
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| ep.close());
            while !closing.is_finished() {
                meanwhile();
            }
        });
    }
}

type Ep<M> = Endpoint<<M as Medium>::Carrier, Park>;

const TAGS: u64 = 3;
const ROUNDS: usize = 120;
/// Operations that the other side ends.
const OURS: [Kind; 2] = [Kind::Send, Kind::Access];

/// A message's identity, sent as its data: the receiver derives the expected content from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name {
    side: u8,
    life: u32,
    number: u32,
}

fn content(name: Name, len: usize) -> Vec<u8> {
    let seed = u64::from(name.side) << 56 | u64::from(name.life) << 32 | u64::from(name.number);
    let mut out = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut out);
    out
}

fn data_of(name: Name) -> u64 {
    u64::from(name.side) << 60 | u64::from(name.life) << 40 | u64::from(name.number)
}

fn name_of(data: u64) -> Name {
    let part = |from: u32, mask: u64| u32::try_from((data >> from) & mask).unwrap();
    Name {
        side: u8::try_from(data >> 60).unwrap(),
        life: part(40, 0xf_ffff),
        number: part(0, 0xff_ffff_ffff & 0xffff_ffff),
    }
}

/// A posted receive.
#[derive(Clone, Copy)]
struct Posted {
    /// The tag with its ignore mask.
    tag: Option<(u64, u64)>,
    /// The order of posting.
    order: u32,
}

struct Side<M: Medium> {
    number: u8,
    life: u32,
    rig: ofi_rig::Side<M::Carrier>,
    port: Arc<M::WaitObject>,
    /// A thread sleeps on the descriptor of the queue of receives.
    asleep: bool,
    peer: FiAddr,
    posted: HashMap<usize, Posted>,
    /// The longest message.
    most: usize,
    next_message: u32,
    next_receive: u32,
}

/// Receiver and its life, sender and its life, exact tag.
type Lane = (u8, u32, u8, u32, Option<u64>);

#[derive(Default)]
struct Ledger {
    /// Length and tag of each sent message.
    sent: HashMap<Name, (usize, Option<u64>)>,
    /// Messages that arrived, to detect duplicates.
    arrived: HashMap<Name, ()>,
    /// By receiver's life, sender's life and exact tag: (order of the receive, number of the
    /// message).
    order: HashMap<Lane, Vec<(u32, u32)>>,
    /// Operations of each side on the other's memory, by the initiator's side.
    accesses: [Accesses; 2],
    /// The same for earlier lives.
    past: [Vec<Accesses>; 2],
    /// Keys and completion data that have been given out.
    given: u64,
}

impl Ledger {
    /// Operations of a side on the other's memory, now and in earlier lives.
    fn accesses_of(&mut self, initiator: u8) -> impl Iterator<Item = &mut Accesses> {
        let which = usize::from(initiator);
        self.accesses[which..=which].iter_mut().chain(&mut self.past[which])
    }

    fn give(&mut self) -> u64 {
        self.given += 1;
        1 << 62 | self.given
    }

    /// A side exposes memory to the other.
    fn expose<M: Medium>(&mut self, side: &Side<M>, rng: &mut fastrand::Rng) {
        let len = match rng.u8(0..8) {
            0 => rng.usize(0..40),
            1..=4 => rng.usize(0..3000),
            5..=6 => rng.usize(0..40_000),
            _ => rng.usize(0..side.most),
        };
        let key = self.give();
        self.accesses[usize::from(1 - side.number)].expose(&side.rig, key, len, rng);
    }

    /// A side has died: its memory is no longer accessed, and it accesses no other memory.
    fn died(&mut self, side: u8) {
        self.accesses_of(side).for_each(Accesses::initiator_died);
        self.accesses_of(1 - side).for_each(Accesses::target_died);
        for (past, accesses) in self.past.iter_mut().zip(std::mem::take(&mut self.accesses)) {
            past.push(accesses);
        }
    }
}

/// An endpoint's side and life (incarnation).
type Who = (u8, u32);

/// `split`: sends complete into a queue of their own.
fn open<M: Medium>(medium: &M, (number, life): Who, most: usize, split: bool, rng: &mut fastrand::Rng) -> Side<M> {
    let mut nonce = [0u8; 16];
    rng.fill(&mut nonce);
    let options = Options {
        addr: Some(medium.addr(number)),
        caps: Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::ATOMIC | Caps::RMA_EVENT | Caps::DIRECTED_RECV,
        tx_size: 64,
        rx_size: 4096,
        nonce,
        provider: "sim",
        sizes: (16, 4),
        ..Options::default()
    };
    let (port, opener) = (medium.port(), medium.opener(rng));
    let rig = if split {
        ofi_rig::Side::open_split(options, port.clone(), medium.port(), |_| opener)
    } else {
        ofi_rig::Side::open(options, port.clone(), |_| opener)
    };
    let peer = rig.know(medium.addr(1 - number));
    Side {
        number,
        life,
        rig,
        port,
        asleep: false,
        peer,
        most,
        posted: HashMap::new(),
        next_message: 0,
        next_receive: 0,
    }
}

impl<M: Medium> Side<M> {
    fn send(&mut self, rng: &mut fastrand::Rng, ledger: &mut Ledger) {
        let len = match rng.u8(0..20) {
            0..=11 => rng.usize(0..200),
            12..=16 => rng.usize(0..8000),
            17..=18 => rng.usize(0..60_000),
            _ => rng.usize(0..self.most),
        };
        let name = Name { side: self.number, life: self.life, number: self.next_message };
        let tag = rng.bool().then(|| rng.u64(0..TAGS));
        let quiet = len <= 4096 && rng.u8(0..4) == 0;
        let mut flags = OpFlags::empty();
        match rng.u8(0..8) {
            0 => flags |= OpFlags::DELIVERY_COMPLETE,
            1 => flags |= OpFlags::MATCH_COMPLETE,
            2 if len <= 4096 => flags |= OpFlags::INJECT,
            3 => flags |= OpFlags::MORE,
            4 => flags |= OpFlags::TRANSMIT_COMPLETE,
            _ => {}
        }
        if rng.u8(0..16) == 0 {
            flags |= OpFlags::FENCE;
        }
        let mut message = Message::new(self.peer, content(name, len)).data(data_of(name)).flags(flags);
        if let Some(tag) = tag {
            message = message.tagged(tag);
        }
        match self.rig.try_post(if quiet { message.injected() } else { message }) {
            Ok(_) => {
                self.next_message += 1;
                ledger.sent.insert(name, (len, tag));
            }
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }

    fn access(&mut self, rng: &mut fastrand::Rng, ledger: &mut Ledger) {
        let data = ledger.give();
        let accesses = &mut ledger.accesses[usize::from(self.number)];
        if let Err(errno) = accesses.post(&mut self.rig, self.peer, (self.most, data), rng) {
            assert_eq!(errno, Errno::AGAIN);
        }
    }

    fn receive(&mut self, rng: &mut fastrand::Rng, any: bool) {
        let len = if any || rng.u8(0..8) == 0 { self.most } else { rng.usize(0..70_000) };
        let tag = rng.bool().then(|| {
            let ignore = if any || rng.u8(0..4) == 0 { u64::MAX } else { 0 };
            (rng.u64(0..TAGS), ignore)
        });
        self.post(len, tag, if rng.bool() { self.peer } else { FiAddr::UNSPEC });
    }

    /// Posts receives for any message.
    fn post_any(&mut self) {
        self.post(self.most, None, FiAddr::UNSPEC);
        self.post(self.most, Some((0, u64::MAX)), FiAddr::UNSPEC);
    }

    fn post(&mut self, len: usize, tag: Option<(u64, u64)>, src: FiAddr) {
        let order = self.next_receive;
        self.next_receive += 1;
        let mut receive = Receive::new(len).from(src);
        if let Some((tag, ignore)) = tag {
            receive = receive.matching(tag, ignore);
        }
        match self.rig.try_post_receive(receive) {
            Ok(context) => drop(self.posted.insert(context, Posted { tag, order })),
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }

    /// Reads the completion queues until they are empty. True if anything was in them.
    fn progress(&mut self, ledger: &mut Ledger) -> bool {
        self.asleep = false;
        let finished = self.rig.reap();
        self.note(finished, ledger)
    }

    /// Reads the queue of sends, as a thread other than the sleeper.
    fn read_sent(&mut self, ledger: &mut Ledger) -> bool {
        let finished = self.rig.reap_sent();
        self.note(finished, ledger)
    }

    /// A thread that has nothing to read sleeps on the descriptor if `try_wait` allows it.
    fn sleep(&mut self) {
        self.asleep = self.rig.cq.try_wait() == Ok(());
    }

    /// Checks that a sleeper wakes up or has no pending work. Waking takes time: a sleeper may
    /// stay asleep although its descriptor is readable, and find that another thread did the work.
    fn check_sleep(&mut self, medium: &M, rng: &mut fastrand::Rng) {
        if !self.asleep {
            return;
        }
        if medium.is_readable(&self.port) {
            self.asleep = rng.u8(0..4) == 0;
        } else if let Some(left) = self.rig.ep.unfinished() {
            panic!("side {} sleeps, and {left}\n{}", self.number, self.rig.ep.describe());
        } else if let Some(due) = self.rig.ep.next_due().filter(|due| !medium.wakes_by(&self.port, *due)) {
            panic!("side {} sleeps for longer than until {due:?}\n{}", self.number, self.rig.ep.describe());
        }
    }

    /// Checks completions. True if there are any that are not errors.
    fn note(&mut self, finished: Vec<Finished>, ledger: &mut Ledger) -> bool {
        let mut any = false;
        for one in finished {
            let done = *one.completion();
            any |= one.outcome.is_ok();
            if let Err(failure) = &one.outcome {
                assert_ne!(failure.errno, Errno::EPROTO, "a side broke the protocol: {failure:?}");
            }
            match one.kind {
                Kind::Send if done.flags.contains(OpFlags::SEND) => continue,
                Kind::Send => {
                    assert!(done.flags.intersects(OpFlags::RMA | OpFlags::ATOMIC), "{done:?}");
                    ledger.accesses_of(self.number).for_each(Accesses::inject_failed);
                    continue;
                }
                Kind::Access => {
                    let mut all = ledger.accesses_of(self.number);
                    all.find(|it| it.awaits(done.context)).expect("it was posted").completed(&one);
                    continue;
                }
                Kind::Notice => {
                    let mut all = ledger.accesses_of(1 - self.number);
                    all.find(|it| it.knows(done.data)).expect("it was sent").noticed(&one);
                    continue;
                }
                Kind::Receive | Kind::MultiRecv | Kind::Peek => {}
            }
            match &one.outcome {
                Ok(_) => self.check(ledger, &done, done.len, &one.bytes),
                Err(failure) if failure.errno == Errno::ETRUNC => {
                    self.check(ledger, &done, done.len + failure.olen, &one.bytes);
                }
                Err(_) => {}
            }
            self.posted.remove(&done.context);
        }
        any
    }

    fn check(&self, ledger: &mut Ledger, completion: &Completion, total: usize, bytes: &[u8]) {
        let posted = self.posted[&completion.context];
        assert!(completion.flags.contains(OpFlags::RECV | OpFlags::REMOTE_CQ_DATA), "{completion:?}");
        let name = name_of(completion.data);
        let (len, tag) = *ledger.sent.get(&name).expect("the message was sent");
        assert_eq!(len, total, "{name:?}");
        assert_eq!(tag.is_some(), completion.flags.contains(OpFlags::TAGGED));
        if let (Some(tag), Some((wanted, ignore))) = (tag, posted.tag) {
            assert_eq!((tag ^ wanted) & !ignore, 0);
            assert_eq!(tag, completion.tag);
        }
        assert!(content(name, len)[..completion.len] == bytes[..completion.len], "{name:?} arrived changed");
        assert!(ledger.arrived.insert(name, ()).is_none(), "{name:?} arrived twice");
        let exact = posted.tag.is_none_or(|(_, ignore)| ignore == 0);
        if exact {
            let key = (self.number, self.life, name.side, name.life, tag);
            ledger.order.entry(key).or_default().push((posted.order, name.number));
        }
    }
}

fn faults(rng: &mut fastrand::Rng) -> Faults {
    Faults { stall: *[0, 0, 10, 40].get(rng.usize(0..4)).unwrap(), split: rng.bool() }
}

fn run<M: Medium>(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let medium = M::new(seed, &mut rng);
    // Data frames carry up to 1 MiB; most seeds avoid large ones for speed.
    let most = if rng.u8(0..32) == 0 { 2_500_000 } else { 300_000 };
    let mut ledger = Ledger::default();
    let split = rng.bool();
    let mut sides = [0, 1].map(|side| open(&medium, (side, 0), most, split, &mut rng));
    let breaks = rng.u8(0..4) == 0;
    let restarts = rng.u8(0..4) == 0;
    let sleeps = rng.bool();
    // The others only exchange messages.
    let accesses = rng.u8(0..4) > 0;
    if accesses {
        sides.iter().for_each(|side| (0..rng.usize(1..4)).for_each(|_| ledger.expose(side, &mut rng)));
    }
    for _ in 0..ROUNDS {
        let side = rng.usize(0..2);
        match rng.u8(0..if accesses { 13 } else { 10 }) {
            0..=3 => (0..rng.usize(1..8)).for_each(|_| sides[side].send(&mut rng, &mut ledger)),
            4..=6 => (0..rng.usize(1..8)).for_each(|_| sides[side].receive(&mut rng, false)),
            7..=8 if sides[side].asleep => {
                sides[side].read_sent(&mut ledger);
            }
            7..=8 => {
                sides[side].progress(&mut ledger);
                if sleeps && rng.bool() {
                    sides[side].sleep();
                }
            }
            9 => {
                let context = rng.usize(1..sides[side].rig.next_context().max(2));
                sides[side].rig.ep.cancel(context);
            }
            10..=11 => (0..rng.usize(1..8)).for_each(|_| sides[side].access(&mut rng, &mut ledger)),
            _ if rng.u8(0..4) == 0 => ledger.accesses[side].close_one(&mut rng),
            _ if rng.u8(0..4) == 0 => ledger.expose(&sides[side], &mut rng),
            _ => ledger.accesses[side].look_at_closed(),
        }
        sides.iter_mut().for_each(|side| side.check_sleep(&medium, &mut rng));
        medium.advance(Duration::from_micros(rng.u64(0..20)));
        if breaks && rng.u8(0..60) == 0 {
            medium.disturb();
        }
        if restarts && rng.u8(0..60) == 0 {
            restart(&medium, &mut sides, side, &mut ledger, &mut rng);
        }
    }
    finish(&medium, &mut sides, &mut ledger, &mut rng);
    for (key, mut pairs) in ledger.order {
        pairs.sort_unstable();
        assert!(pairs.is_sorted_by_key(|(_, message)| *message), "out of order for {key:?}: {pairs:?}");
    }
}

/// A process dies and another takes its address.
fn restart<M: Medium>(
    medium: &M,
    sides: &mut [Side<M>; 2],
    which: usize,
    ledger: &mut Ledger,
    rng: &mut fastrand::Rng,
) {
    if rng.bool() {
        medium.disturb();
    }
    let [one, two] = sides;
    let (side, other) = if which == 0 { (one, two) } else { (two, one) };
    medium.close(&side.rig.ep, || {
        other.progress(ledger);
    });
    side.rig.close();
    ledger.died(side.number);
    *side = open(medium, (side.number, side.life + 1), side.most, side.rig.sent.is_some(), rng);
    ledger.expose(side, rng);
    ledger.expose(other, rng);
}

/// Ends all faults, and checks that every accepted operation completes.
fn finish<M: Medium>(medium: &M, sides: &mut [Side<M>; 2], ledger: &mut Ledger, rng: &mut fastrand::Rng) {
    medium.calm();
    let mut quiet = 0;
    for _ in 0..20_000 {
        let mut any = false;
        for side in sides.iter_mut() {
            any |= side.progress(ledger);
            if side.posted.len() < 4 {
                side.post_any();
            }
        }
        medium.advance(Duration::from_micros(50));
        let sends: usize = sides.iter().map(|side| side.rig.unfinished(&OURS).len()).sum();
        // The posted receives may have exact tags that match no pending send: post wildcards.
        if !any && sends > 0 {
            medium.idle(&sides[0].rig);
            for side in sides.iter_mut() {
                side.receive(rng, true);
            }
        }
        quiet = if any || sends > 0 { 0 } else { quiet + 1 };
        if quiet > 50 {
            break;
        }
    }
    if sides.iter().any(|side| !side.rig.unfinished(&OURS).is_empty()) {
        sides.iter().for_each(|side| eprintln!("side {}:\n{}", side.number, side.rig.ep.describe()));
    }
    for side in sides.iter_mut() {
        let sends = side.rig.unfinished(&OURS);
        assert!(sends.is_empty(), "sends that never completed on side {}: {sends:?}", side.number);
        for context in side.rig.pending() {
            side.rig.ep.cancel(context);
        }
        side.progress(ledger);
    }
    // A receive that was being filled ends once the engine notices that its sender is gone.
    for _ in 0..2000 {
        if sides.iter().all(|side| side.rig.pending().is_empty()) {
            break;
        }
        for side in sides.iter_mut() {
            side.progress(ledger);
            medium.idle(&side.rig);
        }
    }
    assert!(sides.iter().all(|side| side.rig.pending().is_empty()), "receives that could not be cancelled");
    let [one, two] = sides;
    medium.close(&one.rig.ep, || {
        two.progress(ledger);
    });
    // The end of the last link leaves nothing but messages, which can still be received.
    for _ in 0..2000 {
        if two.rig.account.used() == 0 {
            break;
        }
        two.post_any();
        two.progress(ledger);
        medium.idle(&two.rig);
    }
    assert_eq!(two.rig.account.used(), 0, "memory is still held for a peer:\n{}", two.rig.ep.describe());
    two.rig.close();
    let accesses =
        std::mem::take(&mut ledger.accesses).into_iter().chain(ledger.past.iter_mut().flat_map(std::mem::take));
    accesses.for_each(Accesses::check);
}

/// Runs one seed for every `every` seeds requested.
fn run_seeds<M: Medium>(every: u64) {
    keep_memory();
    seeds::run_some(500, every, run::<M>);
}

/// Makes the allocator keep the memory of large messages: the kernel would clear new pages each
/// time, which takes longer than the messages.
fn keep_memory() {
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: the call takes no pointers.
        let set = unsafe { libc::mallopt(parameter, 1 << 30) };
        assert_eq!(set, 1, "glibc has this parameter");
    }
}

#[test]
fn random_exchanges_complete_exactly_once() {
    run_seeds::<World>(1);
}

#[test]
fn random_exchanges_through_memory_complete_exactly_once() {
    run_seeds::<Memory>(20);
}

#[test]
fn a_host_that_does_not_answer_fails_by_the_deadline() {
    let mut rng = fastrand::Rng::with_seed(1);
    let world = World::new(1, Faults { stall: 0, split: false });
    world.black_hole(Medium::addr(&world, 1).socket());
    let mut ledger = Ledger::default();
    let mut side = open(&world, (0, 0), 300_000, false, &mut rng);
    (0..5).for_each(|_| side.send(&mut rng, &mut ledger));
    let start = world.now();
    while !side.rig.pending().is_empty() {
        world.advance(Duration::from_millis(10));
        side.progress(&mut ledger);
    }
    let took = world.now().since(start);
    assert!(took >= Duration::from_secs(10) && took < Duration::from_millis(10_200), "{took:?}");
}

#[test]
fn a_receive_from_a_peer_that_was_named_late_ends_with_it() {
    let mut rng = fastrand::Rng::with_seed(1);
    let world = World::new(1, Faults { stall: 0, split: false });
    let mut sides = [0, 1].map(|side| open(&world, (side, 0), 1000, false, &mut rng));
    let [receiver, sender] = &mut sides;
    // An unknown peer sends; then it is inserted, a receive names it, and its link breaks before
    // anything else happens.
    assert!(receiver.rig.av.remove(receiver.peer));
    receiver.post(1000, None, FiAddr::UNSPEC);
    sender.rig.post(Message::new(sender.peer, vec![1; 8]));
    let read = |side: &mut Side<World>, other: &Side<World>| {
        for _ in 0..1000 {
            world.advance(Duration::from_micros(50));
            // Makes progress without reading entries.
            let _ = other.rig.cq.read(0, |_| ());
            if let Some(one) = side.rig.reap().pop() {
                return Some(one.outcome);
            }
        }
        None
    };
    assert!(read(sender, receiver).is_some_and(|sent| sent.is_ok()));
    assert!(read(receiver, sender).is_some_and(|got| got.is_ok()));
    let named = receiver.rig.av.insert(world.addr(1));
    receiver.post(1000, None, named);
    world.break_connections();
    let ended = read(receiver, sender).expect("the receive ends").expect_err("with an error");
    assert_eq!(ended.completion.context, receiver.rig.next_context() - 1);
    sides.iter_mut().for_each(|side| side.rig.close());
}

#[test]
fn a_connection_without_a_listener_fails_at_once() {
    let mut rng = fastrand::Rng::with_seed(1);
    let world = World::new(1, Faults { stall: 0, split: false });
    let mut side = open(&world, (0, 0), 300_000, false, &mut rng);
    side.post(10, None, side.peer);
    let sent = side.rig.post(Message::new(side.peer, Vec::new()));
    for _ in 0..10 {
        side.rig.progress();
        if side.rig.outcome(sent).is_some() {
            break;
        }
    }
    let failure = side.rig.outcome(sent).expect("it ends").as_ref().expect_err("an error");
    assert_eq!(failure.errno, Errno::ECONNREFUSED);
    assert!(failure.text.contains("connect to 127.0.0.1:1001"), "{}", failure.text);
    side.rig.close();
}
