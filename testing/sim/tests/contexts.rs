//! Two scalable endpoints with several contexts each exchange random messages and access each
//! other's memory over a network that splits, stalls and breaks. Every accepted operation must
//! complete exactly once, every message must arrive at most once, unchanged and in the order of its
//! context, and memory must hold the results of the operations in their order.
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 150), `OFI_SIM_SEED=s` only seed s.

use fastrand::Rng;
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_rig::{Accesses, Finished, Kind, Message, Receive};
use ofi_sim::node::{Node, addr};
use ofi_sim::portal::{Portal, context};
use ofi_sim::seeds;
use ofi_sim::{Faults, World};
use std::collections::HashMap;
use std::time::Duration;

/// Contexts of each kind on each side.
const CONTEXTS: usize = 3;
const ROUNDS: usize = 100;
const MOST: usize = 200_000;
const OURS: [Kind; 2] = [Kind::Send, Kind::Access];

/// A transmit context and a receive context of the other side, and whether the messages are tagged.
type Stream = (usize, usize, bool);

/// One scalable endpoint.
struct Half {
    portal: Portal,
    tx: Vec<Node>,
    rx: Vec<Node>,
    peer: FiAddr,
    /// The order of posting of each receive, by context and operation.
    posted: HashMap<(usize, usize), (u64, bool)>,
    receives: u64,
    /// Operations of each transmit context on the memory of the other side's receive context of
    /// the same index.
    accesses: Vec<Accesses>,
}

/// A sent message: its stream, its length, and whether it has arrived.
struct Sent {
    to: usize,
    stream: Stream,
    len: usize,
    arrived: bool,
}

#[derive(Default)]
struct Ledger {
    sent: Vec<Sent>,
    /// For each stream: the order of the receive, and the number of the message.
    order: HashMap<(usize, Stream), Vec<(u64, usize)>>,
    given: u64,
}

fn content(number: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::with_seed(number as u64).fill(&mut out);
    out
}

impl Half {
    fn open(world: &World, host: u8) -> Self {
        let portal = Portal::open(world, addr(host, 1000), (CONTEXTS, CONTEXTS));
        let tx = (0..CONTEXTS).map(|index| portal.transmit(index)).collect();
        let rx = (0..CONTEXTS).map(|index| portal.receive(index)).collect();
        let peer = portal.know(addr(3 - host, 1000));
        let accesses = (0..CONTEXTS).map(|_| Accesses::default()).collect();
        Self { portal, tx, rx, peer, posted: HashMap::new(), receives: 0, accesses }
    }

    fn receive(&mut self, which: usize, len: usize, tagged: bool) {
        let receive = Receive::new(len);
        let receive = if tagged { receive.matching(0, u64::MAX) } else { receive };
        match self.rx[which].try_post_receive(receive) {
            Ok(operation) => {
                self.receives += 1;
                self.posted.insert((which, operation), (self.receives, tagged));
            }
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }

    /// Posts receives for any message.
    fn receive_all(&mut self) {
        for which in 0..CONTEXTS {
            self.receive(which, MOST, false);
            self.receive(which, MOST, true);
        }
    }

    /// The operations that the other side ends.
    fn unfinished(&self) -> usize {
        self.tx.iter().map(|node| node.unfinished(&OURS).len()).sum()
    }
}

fn send(halves: &mut [Half; 2], side: usize, ledger: &mut Ledger, rng: &mut Rng) {
    let half = &mut halves[side];
    let (from, to, tagged) = (rng.usize(0..CONTEXTS), rng.usize(0..CONTEXTS), rng.bool());
    let len = if rng.u8(0..8) == 0 { rng.usize(0..MOST) } else { rng.usize(0..5000) };
    let number = ledger.sent.len();
    let mut flags = match rng.u8(0..8) {
        0 => OpFlags::DELIVERY_COMPLETE,
        1 => OpFlags::MATCH_COMPLETE,
        2 if len <= 4096 => OpFlags::INJECT,
        3 => OpFlags::MORE,
        4 => OpFlags::TRANSMIT_COMPLETE,
        _ => OpFlags::empty(),
    };
    if rng.u8(0..16) == 0 {
        flags |= OpFlags::FENCE;
    }
    let dest = context(half.peer, u16::try_from(to).expect("few"));
    let message = Message::new(dest, content(number, len)).data(number as u64).flags(flags);
    let message = if tagged { message.tagged(rng.u64(0..3)) } else { message };
    match half.tx[from].try_post(if len <= 4096 && rng.u8(0..6) == 0 { message.injected() } else { message }) {
        Ok(_) => ledger.sent.push(Sent { to: 1 - side, stream: (from, to, tagged), len, arrived: false }),
        Err(errno) => assert_eq!(errno, Errno::AGAIN),
    }
}

fn access(halves: &mut [Half; 2], side: usize, ledger: &mut Ledger, rng: &mut Rng) {
    let (which, half) = (rng.usize(0..CONTEXTS), &mut halves[side]);
    ledger.given += 1;
    let (peer, data) = (context(half.peer, u16::try_from(which).expect("few")), 1 << 62 | ledger.given);
    if let Err(errno) = half.accesses[which].post(&mut half.tx[which], peer, (MOST, data), rng) {
        assert_eq!(errno, Errno::AGAIN);
    }
}

/// A transmit context's completion.
fn transmitted(half: &mut Half, which: usize, one: &Finished) {
    let done = one.completion();
    match one.kind {
        Kind::Send if done.flags.contains(OpFlags::SEND) => {}
        Kind::Send => half.accesses[which].inject_failed(),
        Kind::Access => half.accesses[which].completed(one),
        _ => panic!("a transmit context reports {one:?}"),
    }
}

/// A receive context's completion.
fn received(halves: &mut [Half; 2], side: usize, which: usize, one: &Finished, ledger: &mut Ledger) {
    let done = *one.completion();
    if one.kind == Kind::Notice {
        halves[1 - side].accesses[which].noticed(one);
        return;
    }
    let (order, tagged) = halves[side].posted.remove(&(which, done.context)).expect("it is posted");
    let total = match &one.outcome {
        Ok(_) => done.len,
        Err(failure) if failure.errno == Errno::ETRUNC => done.len + failure.olen,
        Err(failure) => {
            assert_ne!(failure.errno, Errno::EPROTO, "{failure:?}");
            return;
        }
    };
    let number = usize::try_from(done.data).expect("a number");
    let sent = &mut ledger.sent[number];
    assert!((sent.to, sent.stream.1, sent.stream.2, sent.len) == (side, which, tagged, total), "{done:?}");
    assert!(!sent.arrived, "message {number} arrived twice");
    assert!(content(number, total)[..done.len] == one.bytes[..done.len], "message {number} arrived changed");
    assert!(one.outcome.is_err() || done.src == halves[side].peer, "{done:?}");
    sent.arrived = true;
    ledger.order.entry((side, sent.stream)).or_default().push((order, number));
}

/// Reads what has completed on one side. True if anything has.
fn progress(halves: &mut [Half; 2], side: usize, ledger: &mut Ledger) -> bool {
    let mut any = false;
    for which in 0..CONTEXTS {
        for one in halves[side].tx[which].reap() {
            any = true;
            transmitted(&mut halves[side], which, &one);
        }
        for one in halves[side].rx[which].reap() {
            any |= one.outcome.is_ok();
            received(halves, side, which, &one, ledger);
        }
    }
    any
}

fn finish(world: &World, halves: &mut [Half; 2], ledger: &mut Ledger) {
    world.set_faults(Faults { stall: 0, split: false });
    let mut idle = 0;
    for _ in 0..20_000 {
        let any = progress(halves, 0, ledger) | progress(halves, 1, ledger);
        world.advance(Duration::from_micros(50));
        let left = halves.iter().map(Half::unfinished).sum::<usize>();
        if !any {
            world.advance(Duration::from_millis(20));
            halves.iter_mut().filter(|half| half.posted.len() < 200).for_each(Half::receive_all);
        }
        idle = if any || left > 0 { 0 } else { idle + 1 };
        if idle > 20 {
            break;
        }
    }
    for half in halves.iter() {
        let describe = || half.tx.iter().map(|node| node.ep.describe()).collect::<Vec<_>>().join("\n");
        assert_eq!(half.unfinished(), 0, "operations never completed:\n{}", describe());
    }
    for half in halves.iter_mut() {
        for node in half.rx.iter().chain(&half.tx) {
            node.pending().into_iter().for_each(|operation| node.ep.cancel(operation));
        }
    }
    for _ in 0..2000 {
        progress(halves, 0, ledger);
        progress(halves, 1, ledger);
        if halves.iter().all(|half| half.rx.iter().chain(&half.tx).all(|node| node.pending().is_empty())) {
            break;
        }
        world.advance(Duration::from_millis(20));
    }
    for half in halves.iter_mut() {
        for node in half.rx.iter_mut().chain(&mut half.tx) {
            assert!(node.pending().is_empty(), "operations that did not end\n{}", node.ep.describe());
            node.close();
        }
        half.portal.endpoint.close();
        std::mem::take(&mut half.accesses).into_iter().for_each(Accesses::check);
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let faults = Faults { stall: *rng.choice(&[0, 10, 40]).expect("some"), split: rng.bool() };
    let world = World::new(seed, faults);
    let mut halves = [1, 2].map(|host| Half::open(&world, host));
    let mut ledger = Ledger::default();
    let breaks = rng.bool();
    for side in 0..2 {
        for which in 0..CONTEXTS {
            ledger.given += 1;
            let [one, two] = &mut halves;
            let (initiator, target) = if side == 0 { (one, two) } else { (two, one) };
            initiator.accesses[which].expose(&target.rx[which], 1 << 62 | ledger.given, rng.usize(0..20_000), &mut rng);
        }
    }
    for _ in 0..ROUNDS {
        let side = rng.usize(0..2);
        match rng.u8(0..12) {
            0..=3 => (0..rng.usize(1..8)).for_each(|_| send(&mut halves, side, &mut ledger, &mut rng)),
            4..=6 => (0..rng.usize(1..8)).for_each(|_| {
                let (which, tagged) = (rng.usize(0..CONTEXTS), rng.bool());
                let len = if rng.u8(0..4) == 0 { MOST } else { rng.usize(0..5000) };
                halves[side].receive(which, len, tagged);
            }),
            7..=8 => drop(progress(&mut halves, side, &mut ledger)),
            9 => {
                let which = rng.usize(0..CONTEXTS);
                let half = &halves[side];
                // A cancelled send does not arrive.
                let node = if breaks && rng.bool() { &half.tx[which] } else { &half.rx[which] };
                node.ep.cancel(rng.usize(1..node.next_context().max(2)));
            }
            _ => (0..rng.usize(1..6)).for_each(|_| access(&mut halves, side, &mut ledger, &mut rng)),
        }
        world.advance(Duration::from_micros(rng.u64(0..20)));
        if breaks && rng.u8(0..30) == 0 {
            world.break_connections();
        }
    }
    finish(&world, &mut halves, &mut ledger);
    for (stream, mut pairs) in ledger.order {
        pairs.sort_unstable();
        assert!(pairs.is_sorted_by_key(|(_, number)| *number), "out of order for {stream:?}: {pairs:?}");
    }
    if !breaks {
        let lost = ledger.sent.iter().position(|sent| !sent.arrived);
        assert_eq!(lost, None, "without a break every message arrives");
    }
}

#[test]
fn random_exchanges_of_contexts_complete_exactly_once() {
    seeds::run(150, run);
}
