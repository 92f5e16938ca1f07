//! Groups over the simulated network: random operations of random groups complete with the right
//! results, and each operation ends exactly once when connections break. Messages that claim to be
//! a group's do no harm.

use ofi_core::atomic::{AtomicOp, Datatype};
use ofi_core::{Addr, Errno, FiAddr, OpFlags};
use ofi_engine::EventQueue;
use ofi_engine::Waiting;
use ofi_engine::av_set::{AvSet, Selection};
use ofi_engine::completion::eq::{EventKind, Found, Owner};
use ofi_engine::op::{CollectiveCall, CollectiveKind, Elements, Input};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_memory::{Buffer, Loan};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, connect_hello};
use ofi_sim::{Faults, World};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Passes after which a hang is certain.
const PASSES: usize = 400_000;

struct Member {
    node: Node,
    eq: Arc<EventQueue>,
    set: AvSet,
    group: FiAddr,
    /// Results of operations that have not ended, by context.
    running: HashMap<usize, Loan>,
    /// Results of those that have, or the error.
    ended: HashMap<usize, Result<Vec<u8>, Errno>>,
}

struct Party {
    world: World,
    members: Vec<Member>,
}

impl Party {
    fn new(seed: u64, size: u8, faults: Faults) -> Self {
        let world = World::new(seed, faults);
        let nodes: Vec<Node> = (0..size).map(|at| open_node(&world, &Options::at(addr(at + 1, 1000)))).collect();
        let names: Vec<Addr> = nodes.iter().map(Node::addr).collect();
        let member = |node: Node| {
            let eq = Arc::new(EventQueue::new(world.port(), Waiting::Sleeping));
            node.ep.bind_eq(&eq, Owner(1)).expect("the first event queue");
            for name in &names {
                node.know(*name);
            }
            let set = AvSet::new(&node.av, Selection::Everything).expect("there is memory");
            Member { node, eq, set, group: FiAddr::UNSPEC, running: HashMap::new(), ended: HashMap::new() }
        };
        let members = nodes.into_iter().map(member).collect();
        Self { world, members }
    }

    /// Lets all members make progress until `done`.
    fn until(&mut self, mut done: impl FnMut(&mut [Member]) -> bool) {
        for _ in 0..PASSES {
            if done(&mut self.members) {
                return;
            }
            self.world.advance(Duration::from_micros(50));
            self.members.iter_mut().for_each(Member::progress);
        }
        let states: Vec<String> = self.members.iter().map(|member| member.node.ep.describe()).collect();
        panic!("a hang:\n{}", states.join("\n"));
    }

    fn join(&mut self) {
        for member in &mut self.members {
            let owner = Owner(2);
            member.group = member.node.ep.join_group(&member.set, None, (true, true), owner).expect("it is a member");
        }
        let mut joined = vec![false; self.members.len()];
        self.until(|members| {
            for (member, joined) in members.iter().zip(&mut joined) {
                match member.eq.read(|_| false) {
                    Found::Event(event) => *joined |= matches!(event.kind, EventKind::Joined),
                    Found::Error => panic!("a join failed: {:?}", member.eq.read_error()),
                    Found::Nothing => {}
                }
            }
            joined.iter().all(|joined| *joined)
        });
    }
}

impl Member {
    fn progress(&mut self) {
        let Self { node, running, ended, .. } = self;
        let mut finish = |context: usize, errno: Option<Errno>| {
            let loan = running.remove(&context).expect("an operation ends once");
            let bytes = loan.end();
            ended.insert(context, errno.map_or(Ok(bytes), Err));
        };
        let read = node.cq.read(8, |completion| {
            assert!(completion.flags.contains(OpFlags::COLLECTIVE));
            finish(completion.context, None);
        });
        if read.is_err_and(|errno| !errno.is_again()) {
            let failure = node.cq.read_error().expect("there is an error");
            assert!(!failure.text.is_empty(), "an error has a cause");
            finish(failure.completion.context, Some(failure.errno));
        }
    }

    fn post(&mut self, step: Step, context: usize, input: &[u8], result: usize) {
        let (loan, buffer) = Loan::new(vec![0; result]);
        let input = input.to_vec();
        let elements = Elements { datatype: Datatype::Uint64, op: Some(AtomicOp::Sum), count: step.count };
        let root = self.set.members()[step.root];
        let call = CollectiveCall {
            kind: step.kind,
            group: self.group,
            root,
            elements: (step.kind != CollectiveKind::Barrier).then_some(elements),
            buffer: Input::new(move |len| Buffer::Owned(input[..len].to_vec())),
            result: Input::new(move |_| buffer),
            context,
            flags: OpFlags::COMPLETION,
        };
        self.node.ep.collective(call).expect("it is accepted");
        self.running.insert(context, loan);
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    kind: CollectiveKind,
    count: usize,
    root: usize,
}

fn step(rng: &mut fastrand::Rng, size: usize) -> Step {
    let kind = CollectiveKind::ALL[rng.usize(..CollectiveKind::ALL.len())];
    let count = if rng.u8(..4) == 0 { rng.usize(..30_000) } else { rng.usize(..20) };
    Step { kind, count, root: rng.usize(..size) }
}

fn element(rank: usize, at: usize) -> u64 {
    (rank as u64 + 1) << 32 | at as u64
}

fn bytes(elements: impl Iterator<Item = u64>) -> Vec<u8> {
    elements.flat_map(u64::to_ne_bytes).collect()
}

/// The result of a member.
fn expected(step: Step, size: usize, rank: usize) -> Vec<u8> {
    let Step { kind, count, root } = step;
    let sum = |at: usize| (0..size).map(|rank| element(rank, at)).fold(0u64, u64::wrapping_add);
    let nothing = || Vec::new();
    match kind {
        CollectiveKind::Barrier => nothing(),
        CollectiveKind::Broadcast if rank == root => nothing(),
        CollectiveKind::Broadcast => bytes((0..count).map(|at| element(root, at))),
        CollectiveKind::Alltoall => {
            bytes((0..size).flat_map(|from| (0..count).map(move |at| element(from, rank * count + at))))
        }
        CollectiveKind::Allreduce => bytes((0..count).map(sum)),
        CollectiveKind::Allgather => bytes((0..size).flat_map(|from| (0..count).map(move |at| element(from, at)))),
        CollectiveKind::ReduceScatter => bytes((0..count).map(|at| sum(rank * count + at))),
        CollectiveKind::Reduce if rank == root => bytes((0..count).map(sum)),
        CollectiveKind::Scatter => bytes((0..count).map(|at| element(root, rank * count + at))),
        CollectiveKind::Gather if rank == root => {
            bytes((0..size).flat_map(|from| (0..count).map(move |at| element(from, at))))
        }
        CollectiveKind::Reduce | CollectiveKind::Gather => nothing(),
    }
}

fn seeds() -> std::ops::Range<u64> {
    if let Some(seed) = std::env::var("OFI_SIM_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return seed..seed + 1;
    }
    0..std::env::var("OFI_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60)
}

/// Posts random operations, each member at its own pace; `break_at`: breaks all connections then.
fn exchange(seed: u64, break_at: Option<usize>) -> Party {
    let mut rng = fastrand::Rng::with_seed(seed);
    let size = rng.usize(1..7);
    let faults = Faults { stall: rng.u8(..40), split: rng.bool() };
    let mut party = Party::new(seed, u8::try_from(size).unwrap(), faults);
    party.join();
    let steps: Vec<Step> = (0..12).map(|_| step(&mut rng, size)).collect();
    let mut posted = vec![0; size];
    let mut pass = 0;
    let inputs = |rank: usize, step: Step| bytes((0..step.count * size).map(move |at| element(rank, at)));
    party.until(|members| {
        for (rank, member) in members.iter_mut().enumerate() {
            if let Some(step) = steps.get(posted[rank])
                && rng.u8(..3) == 0
            {
                posted[rank] += 1;
                member.post(*step, posted[rank], &inputs(rank, *step), expected(*step, size, rank).len());
            }
        }
        pass += 1;
        break_at == Some(pass)
            || posted.iter().all(|posted| *posted == steps.len()) && members.iter().all(|one| one.running.is_empty())
    });
    if break_at.is_some() {
        party.world.break_connections();
        // The other members still post theirs.
        for (rank, member) in party.members.iter_mut().enumerate() {
            for step in &steps[posted[rank]..] {
                posted[rank] += 1;
                member.post(*step, posted[rank], &inputs(rank, *step), expected(*step, size, rank).len());
            }
        }
        party.until(|members| members.iter().all(|member| member.running.is_empty()));
    }
    // Whoever sleeps now leaves nothing undone.
    let mut passes = 0;
    party.until(|_| {
        passes += 1;
        passes > 500
    });
    for (rank, member) in party.members.iter().enumerate() {
        assert_eq!(member.ended.len(), steps.len());
        for (context, result) in &member.ended {
            match result {
                Ok(result) => {
                    let step = steps[context - 1];
                    assert!(*result == expected(step, size, rank), "seed {seed}: {step:?} of {size} at {rank}");
                }
                Err(errno) => assert!(break_at.is_some(), "seed {seed}: {errno:?}"),
            }
        }
        assert_eq!(member.node.ep.unfinished(), None, "seed {seed}");
    }
    party
}

#[test]
fn random_operations_are_right() {
    for seed in seeds() {
        exchange(seed, None);
    }
}

#[test]
fn operations_end_once_when_connections_break() {
    for seed in seeds() {
        let party = exchange(seed, Some(1 + usize::try_from(seed % 40).unwrap()));
        // Members that have failed tell all others: none is left with a group that works.
        if party.members.len() > 1 {
            let failed = |member: &Member| member.ended.values().any(Result::is_err);
            let all = party.members.iter().all(failed);
            assert!(all || !party.members.iter().any(failed), "seed {seed}: the members disagree");
        }
    }
}

#[test]
fn what_only_claims_to_be_of_a_group_is_dropped() {
    for seed in seeds() {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut party = Party::new(seed, 3, Faults { stall: 0, split: false });
        party.join();
        let mut raw = Raw::connect(&party.world, ip(66), addr(1, 1000));
        raw.hello(&connect_hello(Addr::from(addr(66, 7)), [7; 16]));
        for _ in 0..2000 {
            // A guess at a small part of all tags, and any word.
            let (tag, data) = (Some(rng.u64(..4) << 62 | rng.u64(..3)), Some(rng.u64(..)));
            let info = MessageInfo { tag, data, ack: AckMode::No, fenced: false, group: true };
            let len = rng.usize(..40);
            if rng.bool() {
                raw.frame(&Frame::Eager { id: 0, info }, &vec![7; len]);
            } else {
                raw.frame(&Frame::Rts { id: 0, len: rng.u64(..), info }, &[]);
            }
            raw.send();
            drop(raw.read());
            party.world.advance(Duration::from_micros(50));
            party.members[0].progress();
        }
        let allreduce = Step { kind: CollectiveKind::Allreduce, count: 5, root: 0 };
        for (rank, member) in party.members.iter_mut().enumerate() {
            member.post(allreduce, 1, &bytes((0..5).map(|at| element(rank, at))), 40);
        }
        party.until(|members| members.iter().all(|member| member.running.is_empty()));
        for member in &party.members {
            assert_eq!(member.ended[&1].as_ref().ok(), Some(&expected(allreduce, 3, 0)), "seed {seed}");
        }
    }
}
