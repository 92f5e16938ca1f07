//! Multi-receive buffers (FI_MULTI_RECV, fi_msg(3)) while links break: each buffer is released
//! once, no message arrives twice, and messages in one buffer do not overlap. The buffers belong to
//! an endpoint, or to a context that two endpoints share (fi_srx_context).
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 200), `OFI_SIM_SEED=s` only seed s.

use fastrand::Rng;
use ofi_core::{Addr, BindFlags, Errno, FiAddr, OpFlags};
use ofi_engine::endpoint::{Config, Endpoint};
use ofi_engine::op::RecvOp;
use ofi_engine::wire::hello::{Contexts, EndpointKind};
use ofi_engine::{AddressVector, CompletionQueue, RxSettings, SharedRx, Waiting};
use ofi_memory::Loan;
use ofi_os::membarrier;
use ofi_rig::{Finished, Kind, Message, Options, Receive, Watch, expect, finish};
use ofi_sim::node::{self, Node, addr, open_node};
use ofi_sim::seeds;
use ofi_sim::{Faults, SimNet, World};
use ofi_sync::account::Account;
use ofi_sync::lock::Park;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Messages of a run, and the longest in bytes: it goes by rendezvous.
const COUNT: u64 = 80;
const MOST: usize = 100_000;
/// Capacity of the buffers, in bytes.
const ROOM: Range<usize> = 2_000..400_000;
const TAG: u64 = 5;

/// A message that was accepted.
struct Sent {
    /// The sender's place in the list of senders, which is also its handle.
    sender: usize,
    context: usize,
    len: usize,
    level: OpFlags,
}

/// What was sent, by number.
type Log = HashMap<u64, Sent>;

/// How many messages arrived, and how many buffers saw one fail.
#[derive(Default)]
struct Totals {
    arrived: usize,
    failed: usize,
}

fn byte_of(number: u64) -> u8 {
    u8::try_from(number + 1).expect("there are few")
}

/// A buffer for several messages: its capacity, whether it has the tag, and its source.
fn buffer(rng: &mut Rng) -> (usize, Option<(u64, u64)>, FiAddr) {
    let room = if rng.bool() { rng.usize(ROOM) } else { rng.usize(ROOM.start..10_000) };
    let src = if rng.u8(..6) == 0 { FiAddr(rng.u64(..2)) } else { FiAddr::UNSPEC };
    (room, rng.bool().then_some((TAG, 0)), src)
}

/// A random message from one of the senders.
fn send(senders: &mut [Node], to: FiAddr, log: &mut Log, rng: &mut Rng) {
    let (number, sender) = (log.len() as u64, rng.usize(..senders.len()));
    let len = if rng.u8(..4) == 0 { rng.usize(..MOST) } else { rng.usize(..600) };
    let level = [OpFlags::empty(), OpFlags::DELIVERY_COMPLETE, OpFlags::MATCH_COMPLETE][rng.usize(..3)];
    let message = Message::new(to, vec![byte_of(number); len]).data(number).flags(level);
    let message = if rng.bool() { message.tagged(TAG) } else { message };
    let context = senders[sender].post(message);
    log.insert(number, Sent { sender, context, len, level });
}

/// Checks the completions of a buffer, and adds the numbers of messages that it took.
fn check(seed: u64, buffer: &[Finished], log: &Log, taken: &mut HashSet<u64>, totals: &mut Totals) {
    let (mut places, mut released) = (Vec::new(), 0);
    for (at, one) in buffer.iter().enumerate() {
        if one.completion().flags.contains(OpFlags::MULTI_RECV) {
            assert_eq!(at + 1, buffer.len(), "seed {seed}: the release comes last: {buffer:?}");
            released += 1;
        }
        let entry = one.completion();
        match &one.outcome {
            Ok(entry) if entry.flags.contains(OpFlags::REMOTE_CQ_DATA) => {
                let message = &log[&entry.data];
                assert_eq!(entry.len, message.len, "seed {seed}: message {}", entry.data);
                assert!(one.bytes.iter().all(|byte| *byte == byte_of(entry.data)), "seed {seed}: {}", entry.data);
                assert_eq!(entry.src, FiAddr(message.sender as u64), "seed {seed}: message {}", entry.data);
                places.push((one.at, one.at + entry.len));
                totals.arrived += 1;
            }
            // Longer than the whole buffer.
            Err(failure) if failure.errno == Errno::ETRUNC => assert!(failure.olen > 0, "seed {seed}"),
            // The release alone, or a message whose link broke.
            Ok(_) => continue,
            Err(_) => {
                totals.failed += 1;
                continue;
            }
        }
        assert!(taken.insert(entry.data), "seed {seed}: message {} arrives once", entry.data);
    }
    assert_eq!(released, 1, "seed {seed}: a buffer is released once: {buffer:?}");
    places.sort_unstable();
    let apart = places.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    assert!(apart, "seed {seed}: messages overlap: {places:?}");
}

/// A receive has taken each message whose sender was notified of that.
fn check_senders(seed: u64, senders: &[Node], log: &Log, taken: &HashSet<u64>) {
    for (number, message) in log {
        let sender = &senders[message.sender];
        let [done] = sender.finished(message.context) else { panic!("seed {seed}: message {number} ends once") };
        let matched = done.outcome.is_ok() && message.level == OpFlags::MATCH_COMPLETE;
        assert!(!matched || taken.contains(number), "seed {seed}: message {number} was matched");
    }
}

fn run_seeds(mut run: impl FnMut(u64, &mut Totals)) {
    let mut totals = Totals::default();
    if seeds::run(200, |seed| run(seed, &mut totals)) {
        let Totals { arrived, failed } = totals;
        assert!(arrived > 500 && failed > 50, "{arrived} messages arrived, {failed} failed with their links");
    }
}

fn exchange(seed: u64, totals: &mut Totals) {
    let mut rng = Rng::with_seed(seed);
    let world = World::new(seed, Faults { stall: rng.u8(..25), split: rng.bool() });
    let mut inbox = open_node(&world, &node::Options::at(addr(1, 1000)));
    let mut senders = [2, 3].map(|host| open_node(&world, &node::Options::at(addr(host, 1000))));
    for sender in &senders {
        inbox.know(sender.addr());
    }
    let to = senders.each_ref().map(|sender| sender.know(inbox.addr()))[0];
    inbox.ep.set_min_multi_recv(rng.usize(1..20_000));
    let (mut log, mut buffers) = (Log::new(), Vec::new());
    while (log.len() as u64) < COUNT {
        match rng.u8(..8) {
            0..3 => send(&mut senders, to, &mut log, &mut rng),
            3 => {
                let (room, tag, src) = buffer(&mut rng);
                let receive = Receive::new(room).flags(OpFlags::MULTI_RECV).from(src);
                let receive = tag.into_iter().fold(receive, |receive, (tag, ignore)| receive.matching(tag, ignore));
                buffers.push(inbox.post_receive(receive));
            }
            4 if rng.u8(..10) == 0 => {
                // A cancelled buffer keeps the messages that it has.
                rng.choice(&buffers).into_iter().for_each(|victim| inbox.ep.cancel(*victim));
            }
            5 if rng.u8(..6) == 0 => world.break_connections(),
            _ => {}
        }
        for node in [&mut inbox].into_iter().chain(&mut senders) {
            node.progress();
        }
        world.advance(Duration::from_micros(50));
    }
    let [one, two] = &mut senders;
    // What no buffer takes would wait for ever at its sender, if that waits for a match.
    while !one.pending().is_empty() || !two.pending().is_empty() {
        for tag in [None, Some((TAG, 0))] {
            let receive = Receive::new(ROOM.end).flags(OpFlags::MULTI_RECV);
            let receive = tag.into_iter().fold(receive, |receive, (tag, ignore)| receive.matching(tag, ignore));
            buffers.push(inbox.post_receive(receive));
        }
        let room = buffers[buffers.len() - 2..].to_vec();
        let what = format!("seed {seed}: sends complete, or buffers fill");
        expect(&world, &mut [&mut inbox, &mut *one, &mut *two], &what, |nodes| {
            nodes[1..].iter().all(|node| node.pending().is_empty())
                || room.iter().any(|buffer| !nodes[0].pending().contains(buffer))
        });
    }
    finish(&world, &mut [&mut inbox, one, two]);
    let mut taken = HashSet::new();
    for buffer in &buffers {
        check(seed, inbox.finished(*buffer), &log, &mut taken, totals);
    }
    check_senders(seed, &senders, &log, &taken);
    assert_eq!(inbox.ep.unfinished(), None, "seed {seed}");
    [&mut inbox].into_iter().chain(&mut senders).for_each(Node::close);
}

#[test]
fn buffers_for_several_messages_are_released_once_while_links_break() {
    run_seeds(exchange);
}

type Ep = Endpoint<TcpTransport<SimNet>, Park>;

/// Two endpoints that take their receives from one context.
struct Shared {
    rx: Arc<SharedRx<Park>>,
    endpoints: Vec<(Arc<Ep>, Arc<CompletionQueue<Park>>)>,
    /// The last context that was given out.
    last: usize,
    /// Buffers that are not released, by context, and the completions of all.
    posted: HashMap<usize, Loan>,
    finished: HashMap<usize, Vec<Finished>>,
}

impl Shared {
    fn open(world: &World, av: &Arc<AddressVector>) -> Self {
        let (caps, account) = (Options::default().caps, Arc::new(Account::new(256 << 20)));
        let rx = SharedRx::new(membarrier::locks(), RxSettings { size: 1 << 20, caps }, account.clone());
        let open = |port| {
            let config = Config {
                kind: EndpointKind::Rdm,
                caps,
                tx_size: 64,
                rx_size: 1 << 20,
                limits: Options::default().limits,
                nonce: [u8::try_from(port).expect("small"); 16],
                provider: "sim",
                regions: Arc::default(),
                account: account.clone(),
                contexts: Contexts::default(),
            };
            let (network, at) = (world.clone(), addr(1, port));
            let settings = Settings { account: account.clone(), ..Settings::default() };
            let opener =
                Box::new(move |_| TcpTransport::listening(network.net_of(at.ip()), Addr::from(at), settings.clone()));
            let ep = Ep::new(membarrier::locks(), config, None, opener, None);
            let cq = Arc::new(CompletionQueue::new(membarrier::locks(), 64, world.port(), Waiting::Sleeping));
            ep.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("the first queue");
            ep.bind_av(av).expect("the first address vector");
            ep.bind_rx(&rx).expect("it is not enabled");
            ep.enable().expect("everything is bound");
            (ep, cq)
        };
        let endpoints = [1, 2].map(open).into();
        Self { rx, endpoints, last: 0, posted: HashMap::new(), finished: HashMap::new() }
    }

    fn post(&mut self, (room, tag, src): (usize, Option<(u64, u64)>, FiAddr)) {
        self.last += 1;
        let context = self.last;
        let (loan, buffer) = Loan::new(vec![0; room]);
        let flags = OpFlags::MULTI_RECV;
        self.rx.receive(RecvOp { src, buffer, context, tag, flags }).expect("few are posted");
        self.posted.insert(context, loan);
    }

    /// Both endpoints make progress. True if anything completed.
    fn progress(&mut self) -> bool {
        let mut entries = Vec::new();
        for (_, cq) in &self.endpoints {
            loop {
                match cq.read(8, |entry| entries.push(Ok(*entry))) {
                    Ok(_) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => {
                        let failure = cq.read_error().expect("there is an error");
                        assert!(!failure.text.is_empty(), "an error has a cause: {failure:?}");
                        entries.push(Err(Box::new(failure)));
                    }
                }
            }
        }
        let any = !entries.is_empty();
        for outcome in entries {
            let entry = *outcome.as_ref().unwrap_or_else(|failure| &failure.completion);
            let loan = self.posted.get(&entry.context).expect("nothing completes after the release");
            let (mut at, mut bytes) = (0, Vec::new());
            if entry.buf != 0 {
                at = entry.buf - loan.address();
                bytes = loan.copy(at, entry.len);
            }
            self.finished.entry(entry.context).or_default().push(Finished {
                kind: Kind::MultiRecv,
                outcome,
                at,
                bytes,
            });
            if entry.flags.contains(OpFlags::MULTI_RECV) {
                self.posted.remove(&entry.context).map(Loan::end);
            }
        }
        any
    }
}

fn poll(senders: &mut [Node]) {
    for sender in senders {
        sender.progress();
    }
}

fn exchange_shared(seed: u64, totals: &mut Totals) {
    let mut rng = Rng::with_seed(seed);
    let world = World::new(seed, Faults { stall: rng.u8(..25), split: rng.bool() });
    let av = Arc::new(AddressVector::new(4, false));
    let mut shared = Shared::open(&world, &av);
    let mut senders = [2, 3].map(|host| open_node(&world, &node::Options::at(addr(host, 1000))));
    for sender in &senders {
        av.insert(sender.addr());
        for port in [1, 2] {
            sender.know(addr(1, port));
        }
    }
    shared.rx.set_min_multi_recv(rng.usize(1..20_000));
    let mut log = Log::new();
    while (log.len() as u64) < COUNT {
        match rng.u8(..8) {
            0..3 => send(&mut senders, FiAddr(rng.u64(..2)), &mut log, &mut rng),
            3 => shared.post(buffer(&mut rng)),
            4 if rng.u8(..10) == 0 && shared.last > 0 => {
                shared.rx.cancel(rng.usize(1..=shared.last)).expect("both endpoints have queues");
            }
            5 if rng.u8(..6) == 0 => world.break_connections(),
            _ => {}
        }
        shared.progress();
        poll(&mut senders);
        world.advance(Duration::from_micros(50));
    }
    let end = world.now() + World::LIMIT;
    let pass = |shared: &mut Shared, senders: &mut [Node]| {
        if world.now() >= end {
            let states: Vec<String> = shared.endpoints.iter().map(|(ep, _)| ep.describe()).collect();
            panic!("seed {seed} hangs, with {:?}: {}", shared.posted.keys(), states.join("\n"));
        }
        poll(senders);
        world.advance(Duration::from_micros(50));
        shared.progress()
    };
    while senders.iter().any(|sender| !sender.pending().is_empty()) {
        let first = shared.last + 1;
        shared.post((ROOM.end, None, FiAddr::UNSPEC));
        shared.post((ROOM.end, Some((TAG, 0)), FiAddr::UNSPEC));
        while shared.posted.contains_key(&first)
            && shared.posted.contains_key(&shared.last)
            && senders.iter().any(|sender| !sender.pending().is_empty())
        {
            pass(&mut shared, &mut senders);
        }
    }
    for context in 1..=shared.last {
        shared.rx.cancel(context).expect("both endpoints have queues");
    }
    while !shared.posted.is_empty() {
        pass(&mut shared, &mut senders);
    }
    for _ in 0..50 {
        assert!(!pass(&mut shared, &mut senders), "seed {seed}: a buffer completes after its release");
    }
    let mut taken = HashSet::new();
    for context in 1..=shared.last {
        check(seed, &shared.finished[&context], &log, &mut taken, totals);
    }
    check_senders(seed, &senders, &log, &taken);
    senders.iter_mut().for_each(Node::close);
    for (ep, _) in &shared.endpoints {
        assert_eq!(ep.unfinished(), None, "seed {seed}");
        ep.close();
    }
}

#[test]
fn buffers_of_a_shared_context_are_released_once_while_links_break() {
    run_seeds(exchange_shared);
}
