//! Groups of endpoints over the simulated network.
#![allow(dead_code, reason = "each test uses a part of it")]

use ofi_core::atomic::{AtomicOp, Datatype};
use ofi_core::{Addr, Errno, FiAddr, OpFlags};
use ofi_engine::EventQueue;
use ofi_engine::Waiting;
use ofi_engine::av_set::{AvSet, Selection};
use ofi_engine::completion::eq::{EventKind, Found, Owner};
use ofi_engine::op::{CollectiveCall, CollectiveKind, Elements, Input, Ways};
use ofi_memory::{Buffer, Loan};
use ofi_sim::node::{Node, Options, addr, open_node};
use ofi_sim::{Faults, World};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Passes after which a hang is certain.
const PASSES: usize = 20_000;

/// A member of groups.
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) eq: Arc<EventQueue>,
    pub(crate) set: AvSet,
    pub(crate) group: FiAddr,
    /// Contributions to operations that have not ended, and their results, by context.
    pub(crate) running: HashMap<usize, (Loan, Loan)>,
    /// Results of operations that have ended, or the errors.
    pub(crate) ended: HashMap<usize, Result<Vec<u8>, Errno>>,
    /// The buffers of operations that have ended, full of [`FORGOTTEN`].
    forgotten: Vec<Vec<u8>>,
}

/// What the application writes to the buffers of an operation that has ended.
const FORGOTTEN: u8 = 0xf0;

impl Drop for Member {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.node.close();
            let touched = self.forgotten.iter().any(|bytes| bytes.iter().any(|byte| *byte != FORGOTTEN));
            assert!(!touched, "the library wrote to the buffers of an operation that had ended");
        }
    }
}

/// The members of a group, which have each other's addresses.
pub(crate) struct Party {
    pub(crate) world: World,
    pub(crate) members: Vec<Member>,
}

impl Party {
    pub(crate) fn new(seed: u64, size: u8, faults: Faults) -> Self {
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
            Member {
                node,
                eq,
                set,
                group: FiAddr::UNSPEC,
                running: HashMap::new(),
                ended: HashMap::new(),
                forgotten: Vec::new(),
            }
        };
        let members = nodes.into_iter().map(member).collect();
        Self { world, members }
    }

    /// Lets all members make progress until `done`.
    pub(crate) fn until(&mut self, done: impl FnMut(&mut [Member]) -> bool) {
        self.until_done("an exchange", done);
    }

    /// Lets all members make progress until `done`, which must be before all deadlines are over.
    pub(crate) fn until_done(&mut self, what: &str, mut done: impl FnMut(&mut [Member]) -> bool) {
        for pass in 0..PASSES {
            if done(&mut self.members) {
                return;
            }
            // Most things take a few round trips, and others wait for deadlines of seconds.
            self.world.advance(Duration::from_micros(if pass < PASSES / 2 { 50 } else { 10_000 }));
            self.members.iter_mut().for_each(Member::progress);
        }
        let states: Vec<String> = self.members.iter().map(|member| member.node.ep.describe()).collect();
        panic!("{what} hangs:\n{}", states.join("\n"));
    }

    pub(crate) fn join(&mut self) {
        for member in &mut self.members {
            let owner = Owner(2);
            member.group = member.node.ep.join_group(&member.set, None, Ways::BOTH, owner).expect("it is a member");
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
    pub(crate) fn progress(&mut self) {
        let Self { node, running, ended, forgotten, .. } = self;
        let mut finish = |context: usize, errno: Option<Errno>| {
            let (contribution, result) = running.remove(&context).expect("an operation ends once");
            let (mut contribution, mut result) = (contribution.end(), result.end());
            ended.insert(context, errno.map_or_else(|| Ok(result.clone()), Err));
            contribution.fill(FORGOTTEN);
            result.fill(FORGOTTEN);
            forgotten.extend([contribution, result]);
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

    pub(crate) fn post(&mut self, step: Step, context: usize, input: &[u8], result: usize) {
        let (result_loan, result) = Loan::new(vec![0; result]);
        let (input_loan, input) = Loan::new(input.to_vec());
        let elements = Elements { datatype: Datatype::Uint64, op: Some(AtomicOp::Sum), count: step.count };
        let root = self.set.members()[step.root];
        let fence = if context.is_multiple_of(3) { OpFlags::FENCE } else { OpFlags::empty() };
        let call = CollectiveCall {
            kind: step.kind,
            group: self.group,
            root,
            elements: (step.kind != CollectiveKind::Barrier).then_some(elements),
            buffer: Input::new(move |len| first_bytes(input, len)),
            result: Input::new(move |_| result),
            context,
            flags: OpFlags::COMPLETION | fence,
        };
        self.node.ep.collective(call).expect("it is accepted");
        self.running.insert(context, (input_loan, result_loan));
    }
}

fn first_bytes(mut buffer: Buffer, len: usize) -> Buffer {
    buffer.split_front(len).expect("it is one piece")
}

/// An operation as all members post it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) kind: CollectiveKind,
    pub(crate) count: usize,
    pub(crate) root: usize,
}

pub(crate) fn step(rng: &mut fastrand::Rng, size: usize) -> Step {
    let kind = CollectiveKind::ALL[rng.usize(..CollectiveKind::ALL.len())];
    let count = if rng.u8(..4) == 0 { rng.usize(..30_000) } else { rng.usize(..20) };
    Step { kind, count, root: rng.usize(..size) }
}

pub(crate) fn element(rank: usize, at: usize) -> u64 {
    (rank as u64 + 1) << 32 | at as u64
}

pub(crate) fn bytes(elements: impl Iterator<Item = u64>) -> Vec<u8> {
    elements.flat_map(u64::to_ne_bytes).collect()
}

/// The result of a member.
pub(crate) fn expected(step: Step, size: usize, rank: usize) -> Vec<u8> {
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

pub(crate) fn seeds() -> std::ops::Range<u64> {
    ofi_sim::seeds::all(60)
}
