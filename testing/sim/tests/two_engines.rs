//! Two endpoints exchange random messages over a network that splits, stalls, breaks, and while one of them is
//! restarted. Whatever happens: every accepted operation completes exactly once, what arrives is what was sent, each
//! message arrives once, and in order.
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 500), `OFI_SIM_SEED=s` only that one.

use ofi_core::{Addr, BindFlags, Caps, Errno, FiAddr, OpFlags};
use ofi_engine::endpoint::{Config, Endpoint};
use ofi_engine::hello::Speaker;
use ofi_engine::op::{Posts, RecvOp, SendOp};
use ofi_engine::{AddressVector, CompletionQueue, Waiting};
use ofi_memory::{Buffer, Span};
use ofi_sim::{Faults, SimNet, World};
use ofi_sync::lock::Park;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

type Ep = Endpoint<TcpTransport<SimNet>, Park>;

const TAGS: u64 = 3;
const ROUNDS: usize = 120;

/// What a message says of itself, so that the receiver can tell what it should be.
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

struct Pending {
    is_send: bool,
    memory: Option<*mut [u8]>,
    /// For receives: the exact pattern and the order of posting.
    tag: Option<(u64, u64)>,
    order: u32,
}

struct Side {
    number: u8,
    life: u32,
    addr: Addr,
    ep: Arc<Ep>,
    cq: Arc<CompletionQueue<Park>>,
    peer: FiAddr,
    pending: HashMap<usize, Pending>,
    /// The longest message.
    most: usize,
    next_context: usize,
    next_message: u32,
    next_receive: u32,
}

/// Receiver and its life, sender and its life, exact tag.
type Lane = (u8, u32, u8, u32, Option<u64>);

#[derive(Default)]
struct Ledger {
    /// What was sent: length, tag.
    sent: HashMap<Name, (usize, Option<u64>)>,
    /// What arrived, to see that nothing arrives twice.
    arrived: HashMap<Name, ()>,
    /// By receiver's life, sender's life and exact tag: (order of the receive, number of the message).
    order: HashMap<Lane, Vec<(u32, u32)>>,
}

fn open(world: &World, number: u8, life: u32, addr: Addr, peer: Addr, most: usize, rng: &mut fastrand::Rng) -> Side {
    let mut nonce = [0u8; 16];
    rng.fill(&mut nonce);
    let config = Config {
        speaker: Speaker::Rdm,
        caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV | Caps::DIRECTED_RECV,
        tx_size: 64,
        rx_size: 4096,
        inject_size: 4096,
        nonce,
        provider: "sim",
    };
    let net_world = world.clone();
    let hold = rng.bool();
    let opener = Box::new(move |addr: Option<Addr>| {
        let settings = Settings { hold, ..Settings::default() };
        TcpTransport::listening(net_world.net(), addr.unwrap_or(Addr::ANY), settings)
    });
    let ep = Ep::new(Park, config, Some(addr), opener, None);
    let cq = Arc::new(CompletionQueue::new(Park, 16, world.port(), Waiting::Sleeping));
    let av = Arc::new(AddressVector::new(4, false));
    let handle = av.insert(peer);
    ep.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    ep.enable().unwrap();
    Side {
        number,
        life,
        addr,
        ep,
        cq,
        peer: handle,
        most,
        pending: HashMap::new(),
        next_context: 1,
        next_message: 0,
        next_receive: 0,
    }
}

impl Side {
    fn context(&mut self, pending: Pending) -> usize {
        let context = self.next_context;
        self.next_context += 1;
        self.pending.insert(context, pending);
        context
    }

    fn send(&mut self, rng: &mut fastrand::Rng, ledger: &mut Ledger) {
        let len = match rng.u8(0..20) {
            0..=11 => rng.usize(0..200),
            12..=16 => rng.usize(0..8000),
            17..=18 => rng.usize(0..60_000),
            _ => rng.usize(0..self.most),
        };
        let name = Name { side: self.number, life: self.life, number: self.next_message };
        let tag = rng.bool().then(|| rng.u64(0..TAGS));
        let mut bytes = content(name, len).into_boxed_slice();
        let quiet = len <= 4096 && rng.u8(0..4) == 0;
        let mut flags = OpFlags::empty();
        match rng.u8(0..6) {
            0 => flags |= OpFlags::DELIVERY_COMPLETE,
            1 => flags |= OpFlags::MATCH_COMPLETE,
            2 if len <= 4096 => flags |= OpFlags::INJECT,
            3 => flags |= OpFlags::MORE,
            _ => {}
        }
        let given_back = quiet || flags.contains(OpFlags::INJECT);
        let memory = Box::into_raw(std::mem::take(&mut bytes));
        // SAFETY: the memory is freed when the operation has completed, or, for an inject, after the call.
        let span = unsafe { Span::new(memory.cast(), len) };
        let kept = (!given_back).then_some(memory);
        let context =
            if quiet { 0 } else { self.context(Pending { is_send: true, memory: kept, tag: None, order: 0 }) };
        let op = SendOp {
            dest: self.peer,
            buffer: Buffer::One(span),
            context,
            tag,
            data: Some(data_of(name)),
            flags,
            quiet,
        };
        match self.ep.send(op) {
            Ok(()) => {
                self.next_message += 1;
                ledger.sent.insert(name, (len, tag));
            }
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                self.forget(context);
            }
        }
        if given_back {
            // The buffer is the application's again when the call returns: what it writes now must not be seen.
            // SAFETY: the memory was made above and nobody else may use it now.
            let mut bytes = unsafe { Box::from_raw(memory) };
            bytes.fill(0xee);
        }
    }

    fn forget(&mut self, context: usize) {
        if let Some(Pending { memory: Some(memory), .. }) = self.pending.remove(&context) {
            // SAFETY: the operation is over, so the memory is ours alone.
            drop(unsafe { Box::from_raw(memory) });
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

    fn post(&mut self, len: usize, tag: Option<(u64, u64)>, src: FiAddr) {
        let memory = Box::into_raw(vec![0u8; len].into_boxed_slice());
        let order = self.next_receive;
        self.next_receive += 1;
        let context = self.context(Pending { is_send: false, memory: Some(memory), tag, order });
        // SAFETY: the memory is freed when the operation has completed, or leaked.
        let span = unsafe { Span::new(memory.cast(), len) };
        let op = RecvOp { src, buffer: Buffer::One(span), context, tag, flags: OpFlags::empty() };
        if let Err(errno) = self.ep.receive(op) {
            assert_eq!(errno, Errno::AGAIN);
            self.forget(context);
        }
    }

    /// Reads the completion queue until it is empty. True if anything was in it.
    fn progress(&mut self, ledger: &mut Ledger) -> bool {
        let mut any = false;
        loop {
            let mut done = Vec::new();
            match self.cq.read(8, |completion| done.push(*completion)) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return any,
                Err(errno) => {
                    assert_eq!(errno, Errno::EAVAIL);
                    let failure = self.cq.read_error().expect("EAVAIL means that there is an error");
                    assert!(!failure.text.is_empty(), "an error has a cause: {failure:?}");
                    if failure.completion.context == 0 {
                        assert!(failure.completion.flags.contains(OpFlags::SEND));
                    } else {
                        let pending = self.pending.get(&failure.completion.context).expect("completes once");
                        if failure.errno == Errno::ETRUNC {
                            let len = failure.completion.len;
                            assert!(!pending.is_send);
                            self.check(ledger, &failure.completion, len + failure.olen);
                        }
                        self.forget(failure.completion.context);
                    }
                }
            }
            for completion in done {
                any = true;
                let pending = self.pending.get(&completion.context).expect("every operation completes once");
                if pending.is_send {
                    assert!(completion.flags.contains(OpFlags::SEND));
                } else {
                    self.check(ledger, &completion, completion.len);
                }
                self.forget(completion.context);
            }
        }
    }

    fn check(&self, ledger: &mut Ledger, completion: &ofi_core::Completion, total: usize) {
        let pending = &self.pending[&completion.context];
        assert!(completion.flags.contains(OpFlags::RECV | OpFlags::REMOTE_CQ_DATA), "{completion:?}");
        let name = name_of(completion.data);
        let (len, tag) = *ledger.sent.get(&name).expect("what arrives was sent");
        assert_eq!(len, total, "{name:?}");
        assert_eq!(tag.is_some(), completion.flags.contains(OpFlags::TAGGED));
        if let (Some(tag), Some((wanted, ignore))) = (tag, pending.tag) {
            assert_eq!((tag ^ wanted) & !ignore, 0);
            assert_eq!(tag, completion.tag);
        }
        let memory = pending.memory.expect("a receive has memory");
        // SAFETY: the operation has completed, so the memory is ours again.
        let bytes = unsafe { &*memory };
        assert!(content(name, len)[..completion.len] == bytes[..completion.len], "{name:?} is not what was sent");
        assert!(ledger.arrived.insert(name, ()).is_none(), "{name:?} arrived twice");
        let exact = pending.tag.is_none_or(|(_, ignore)| ignore == 0);
        if exact {
            let key = (self.number, self.life, name.side, name.life, tag);
            ledger.order.entry(key).or_default().push((pending.order, name.number));
        }
    }
}

fn faults(rng: &mut fastrand::Rng) -> Faults {
    Faults { stall: *[0, 0, 10, 40].get(rng.usize(0..4)).unwrap(), split: rng.bool() }
}

fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let world = World::new(seed, faults(&mut rng));
    let addr = |port: u16| Addr::from(SocketAddr::from(([127, 0, 0, 1], port)));
    // Segments are up to 1 MiB; most seeds do without them for speed.
    let most = if rng.u8(0..32) == 0 { 2_500_000 } else { 300_000 };
    let mut ledger = Ledger::default();
    let mut sides = [
        open(&world, 0, 0, addr(1000), addr(1001), most, &mut rng),
        open(&world, 1, 0, addr(1001), addr(1000), most, &mut rng),
    ];
    let breaks = rng.u8(0..4) == 0;
    let restarts = rng.u8(0..4) == 0;
    for _ in 0..ROUNDS {
        let side = rng.usize(0..2);
        match rng.u8(0..10) {
            0..=3 => (0..rng.usize(1..8)).for_each(|_| sides[side].send(&mut rng, &mut ledger)),
            4..=6 => (0..rng.usize(1..8)).for_each(|_| sides[side].receive(&mut rng, false)),
            7..=8 => {
                sides[side].progress(&mut ledger);
            }
            _ => {
                let context = rng.usize(1..sides[side].next_context.max(2));
                sides[side].ep.cancel(context);
            }
        }
        world.advance(Duration::from_micros(rng.u64(0..20)));
        if breaks && rng.u8(0..60) == 0 {
            world.break_connections();
        }
        if restarts && rng.u8(0..60) == 0 {
            restart(&world, &mut sides[side], &mut rng);
        }
    }
    finish(&world, &mut sides, &mut ledger, &mut rng);
    for (key, mut pairs) in ledger.order {
        pairs.sort_unstable();
        assert!(pairs.is_sorted_by_key(|(_, message)| *message), "out of order for {key:?}: {pairs:?}");
    }
}

/// A process dies and another takes its address.
fn restart(world: &World, side: &mut Side, rng: &mut fastrand::Rng) {
    if rng.bool() {
        world.break_connections();
    }
    side.ep.close();
    let peer = if side.number == 0 { 1001 } else { 1000 };
    let peer = Addr::from(SocketAddr::from(([127, 0, 0, 1], peer)));
    let pending: Vec<usize> = side.pending.keys().copied().collect();
    pending.into_iter().for_each(|context| side.forget(context));
    *side = open(world, side.number, side.life + 1, side.addr, peer, side.most, rng);
}

/// Without faults from now on everything that was accepted comes to its end.
fn finish(world: &World, sides: &mut [Side; 2], ledger: &mut Ledger, rng: &mut fastrand::Rng) {
    world.set_faults(Faults { stall: 0, split: false });
    let mut quiet = 0;
    for _ in 0..20_000 {
        let mut any = false;
        for side in sides.iter_mut() {
            any |= side.progress(ledger);
            let posted = side.pending.values().filter(|pending| !pending.is_send).count();
            if posted < 4 {
                side.post(side.most, None, FiAddr::UNSPEC);
                side.post(side.most, Some((0, u64::MAX)), FiAddr::UNSPEC);
            }
        }
        world.advance(Duration::from_micros(50));
        let sends = sides.iter().flat_map(|side| side.pending.values()).filter(|pending| pending.is_send).count();
        // A receive with an exact tag may stand before the wildcard in a sender's way: withdraw old ones in turn.
        if !any && sends > 0 {
            // Nobody can move: only time can.
            world.advance(Duration::from_millis(20));
            for side in sides.iter_mut() {
                side.receive(rng, true);
            }
        }
        quiet = if any || sends > 0 { 0 } else { quiet + 1 };
        if quiet > 50 {
            break;
        }
    }
    if sides.iter().flat_map(|side| side.pending.values()).any(|pending| pending.is_send) {
        sides.iter().for_each(|side| eprintln!("side {}:\n{}", side.number, side.ep.describe()));
    }
    for side in sides.iter_mut() {
        let sends: Vec<_> = side.pending.iter().filter(|(_, pending)| pending.is_send).map(|(c, _)| *c).collect();
        assert!(sends.is_empty(), "sends that never completed on side {}: {sends:?}", side.number);
        let receives: Vec<usize> = side.pending.keys().copied().collect();
        for context in receives {
            side.ep.cancel(context);
        }
        side.progress(ledger);
        assert!(side.pending.is_empty(), "receives that could not be cancelled");
    }
    for side in sides.iter() {
        side.ep.close();
    }
}

#[test]
fn random_exchanges_complete_exactly_once() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("OFI_SIM_SEED") {
        return run(seed);
    }
    let seeds = number("OFI_SIM_SEEDS").unwrap_or(500);
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(|| run(seed));
        if let Err(panic) = result {
            eprintln!("seed {seed} failed; OFI_SIM_SEED={seed} runs it alone");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_host_that_does_not_answer_fails_by_the_deadline() {
    let mut rng = fastrand::Rng::with_seed(1);
    let world = World::new(1, Faults { stall: 0, split: false });
    let addr = |port: u16| Addr::from(SocketAddr::from(([127, 0, 0, 1], port)));
    world.black_hole(addr(1001).socket());
    let mut ledger = Ledger::default();
    let mut side = open(&world, 0, 0, addr(1000), addr(1001), 300_000, &mut rng);
    (0..5).for_each(|_| side.send(&mut rng, &mut ledger));
    let start = world.now();
    while !side.pending.is_empty() {
        world.advance(Duration::from_millis(10));
        side.progress(&mut ledger);
    }
    let took = world.now().since(start);
    assert!(took >= Duration::from_secs(10) && took < Duration::from_millis(10_200), "{took:?}");
}

#[test]
fn nobody_listening_fails_at_once() {
    let mut rng = fastrand::Rng::with_seed(1);
    let world = World::new(1, Faults { stall: 0, split: false });
    let addr = |port: u16| Addr::from(SocketAddr::from(([127, 0, 0, 1], port)));
    let mut ledger = Ledger::default();
    let mut side = open(&world, 0, 0, addr(1000), addr(1001), 300_000, &mut rng);
    side.post(10, None, side.peer);
    let op = SendOp {
        dest: side.peer,
        buffer: Buffer::empty(),
        context: 77,
        tag: None,
        data: None,
        flags: OpFlags::empty(),
        quiet: false,
    };
    side.ep.send(op).unwrap();
    let mut failure = None;
    for _ in 0..10 {
        match side.cq.read(1, |_| ()) {
            Err(Errno::EAVAIL) => failure = Some(side.cq.read_error().unwrap()),
            other => assert_eq!(other, Err(Errno::AGAIN)),
        }
        if failure.is_some() {
            break;
        }
    }
    let failure = failure.expect("an error");
    assert_eq!((failure.errno, failure.completion.context), (Errno::ECONNREFUSED, 77));
    assert!(failure.text.contains("connect to 127.0.0.1:1001"), "{}", failure.text);
    drop(ledger.sent.drain());
    side.ep.close();
}
