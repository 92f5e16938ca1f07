//! Deferred and triggered operations (fi_trigger(3)) while links break: everything that was queued
//! and not cancelled completes exactly once.

use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{BindFlags, Completion, Errno, FiAddr, OpFlags};
use ofi_engine::op::{AtomicCall, RecvOp, Remote, RmaKind, RmaOp, SendOp};
use ofi_engine::progress::set::Pollable;
use ofi_engine::trigger::{Action, Initiator, Membership, Notice, Operation, Tally, Transfer, Work, WorkQueue};
use ofi_engine::{Counter, CounterUnit, Waiting};
use ofi_memory::{Buffer, Loan};
use ofi_rig::{Message, Receive};
use ofi_sim::node::{Node, Options, addr, open_node};
use ofi_sim::{Faults, World};
use ofi_sync::lock::Park;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const KEY: u64 = 7;
/// Length of the exposed memory, in bytes.
const LEN: usize = 1 << 17;
/// Operations of a run.
const COUNT: usize = 60;

/// How triggered operations, and deferred ones that failed, were reported; and deferred ones that
/// succeeded.
#[derive(Default)]
struct Reports {
    reported: HashMap<usize, usize>,
    failures: usize,
}

struct Scene {
    world: World,
    a: Node,
    b: Node,
    queue: Arc<WorkQueue>,
    trigger: Arc<dyn Tally>,
    done: Arc<Counter<Park>>,
    reports: Reports,
    /// Memory of operations, which ends with the scene.
    loans: Vec<Loan>,
    _membership: Membership,
}

impl Scene {
    fn new(seed: u64, faults: Faults, tx_size: usize) -> Self {
        let world = World::new(seed, faults);
        let a = open_node(&world, &Options { tx_size, ..Options::at(addr(1, 1000)) });
        let b = open_node(&world, &Options::at(addr(2, 1000)));
        a.know(addr(2, 1000));
        b.know(addr(1, 1000));
        let counter = || Arc::new(Counter::new(Park::default(), CounterUnit::Operations, world.port(), Waiting::Never));
        let (trigger, done): (Arc<dyn Tally>, _) = (counter(), counter());
        let queue = Arc::new(WorkQueue::default());
        let membership = queue.join_queue(&a.cq).expect("it has no descriptor");
        let (reports, loans) = (Reports::default(), Vec::new());
        Self { world, a, b, queue, trigger, done, reports, loans, _membership: membership }
    }

    /// Queues an operation; with `deferred` it reports to the counter alone.
    fn submit(&mut self, operation: Operation, threshold: u64, deferred: bool) {
        let context = operation.context();
        let counter: Arc<dyn Tally> = self.done.clone();
        let notice = Notice { context, reports: false, counter: Some(counter), users: Vec::new() };
        let endpoint: Arc<dyn Initiator> = self.a.ep.clone();
        let transfer = Transfer { endpoint, operation, notice: deferred.then_some(notice) };
        let action = Action::Transfer(Box::new(transfer));
        let id = if deferred { context } else { 0 };
        self.queue.submit(&self.trigger, threshold, Work { id, action, users: Vec::new() });
        self.queue.run();
    }

    /// Both sides make progress.
    fn pass(&mut self) {
        self.world.advance(Duration::from_micros(50));
        let Self { a, b, reports, .. } = self;
        loop {
            let mut take = |completion: &Completion| *reports.reported.entry(completion.context).or_default() += 1;
            match a.cq.read(8, &mut take) {
                Ok(_) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    let failure = a.cq.read_error().expect("there is one");
                    assert!(!failure.completion.flags.contains(OpFlags::TRIGGER), "{failure:?}");
                    take(&failure.completion);
                    reports.failures += 1;
                }
            }
        }
        b.progress();
    }

    fn settle(&mut self, what: &str, is_over: impl Fn(&Self) -> bool) {
        for _ in 0..400_000 {
            self.pass();
            if is_over(self) {
                return;
            }
        }
        panic!("{what}: {}\n{}", self.a.ep.describe(), self.b.ep.describe());
    }

    /// An operation of a random kind, to peer 0.
    fn operation(&mut self, random: &mut fastrand::Rng, context: usize) -> Operation {
        let (peer, flags, inject) = (FiAddr(0), OpFlags::empty(), false);
        let len = if random.u8(..4) == 0 { random.usize(1..LEN) } else { random.usize(1..200) };
        let buffer = Buffer::Owned(vec![1; len]);
        match random.u8(..6) {
            0 | 1 => {
                let tag = random.bool().then_some(1);
                let level = [flags, OpFlags::DELIVERY_COMPLETE, OpFlags::TRANSMIT_COMPLETE][random.usize(..3)];
                Operation::Send(SendOp { dest: peer, buffer, context, tag, data: None, flags: level, inject })
            }
            2 => {
                let buffer = self.lend(len);
                let tag = Some((u64::MAX, 0));
                Operation::Receive(RecvOp { src: FiAddr::UNSPEC, buffer, context, tag, flags })
            }
            3 => {
                let (kind, remote) = (RmaKind::Write, Remote::one(0, len as u64, KEY));
                Operation::Rma(RmaOp { kind, peer, buffer, remote, context, data: None, flags, inject })
            }
            4 => {
                let (kind, remote) = (RmaKind::Read, Remote::one(0, len as u64, KEY));
                let buffer = self.lend(len);
                Operation::Rma(RmaOp { kind, peer, buffer, remote, context, data: None, flags, inject })
            }
            _ => Operation::Atomic(AtomicCall {
                kind: AtomicKind::Fetch,
                op: AtomicOp::Sum,
                datatype: Datatype::Uint64,
                peer,
                operands: Buffer::Owned(vec![1; 8]),
                compare: Buffer::empty(),
                result: self.lend(8),
                remote: Remote::one(0, 8, KEY),
                context,
                data: None,
                flags,
                inject,
            }),
        }
    }

    fn lend(&mut self, len: usize) -> Buffer {
        let (loan, buffer) = Loan::new(vec![0; len]);
        self.loans.push(loan);
        buffer
    }

    fn completed(&self) -> usize {
        let (successes, errors) = self.done.peek();
        usize::try_from(successes + errors).expect("they are few")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let ep: Arc<dyn Initiator> = self.a.ep.clone();
        self.queue.forget(&ep);
        self.a.close();
        self.b.close();
        // Closed endpoints touch no memory.
        self.loans.drain(..).for_each(|loan| drop(loan.end()));
    }
}

#[test]
fn what_was_queued_completes_once_while_links_break() {
    let mut outcomes = (0, 0);
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let faults = Faults { stall: random.u8(..30), split: random.bool() };
        let mut scene = Scene::new(seed, faults, random.usize(2..40));
        let memory = scene.b.expose(KEY, vec![0; LEN]);
        for _ in 0..COUNT {
            // Each message has a receive: unexpected ones would use up the sender's credit.
            scene.b.post_receive(Receive::new(LEN).tagged(1));
            scene.b.post_receive(Receive::new(LEN));
        }
        let (mut deferred, mut triggered, mut receives) = (Vec::new(), Vec::new(), Vec::new());
        for at in 0..COUNT {
            let context = 1000 + at;
            let operation = scene.operation(&mut random, context);
            if matches!(operation, Operation::Receive(_)) {
                receives.push(context);
            }
            let is_deferred = random.u8(..3) > 0;
            if is_deferred {
                deferred.push(context)
            } else {
                triggered.push(context)
            }
            scene.submit(operation, random.u64(..COUNT as u64), is_deferred);
            match random.u8(..12) {
                0..5 => {
                    scene.trigger.add(random.u64(1..4));
                    if random.bool() {
                        scene.queue.run();
                    }
                }
                5 => scene.world.break_connections(),
                6 => {
                    // What is cancelled before it starts reports nothing; a receive never started.
                    let victim = random.choice(deferred.iter().copied());
                    if let Some(victim) = victim
                        && scene.queue.cancel(victim)
                    {
                        deferred.retain(|context| *context != victim);
                        receives.retain(|context| *context != victim);
                    }
                }
                _ => scene.pass(),
            }
        }
        scene.trigger.add_errors(COUNT as u64);
        scene.queue.run();
        // Everything has started, or waits for room that others leave.
        let all = |scene: &Scene, waiting: usize| {
            scene.completed()
                + triggered.iter().filter(|context| scene.reports.reported.contains_key(context)).count()
                + waiting
                >= deferred.len() + triggered.len()
        };
        let unmatched = receives.len();
        scene.settle(&format!("seed {seed}"), |scene| all(scene, unmatched));
        for context in &receives {
            scene.a.ep.cancel(*context);
        }
        scene.settle(&format!("seed {seed}, after cancelling"), |scene| all(scene, 0));
        (0..200).for_each(|_| scene.pass());
        assert_eq!(scene.completed(), deferred.len(), "seed {seed}: deferred work completes once");
        for context in &triggered {
            assert_eq!(scene.reports.reported.get(context), Some(&1), "seed {seed}: {context} completes once");
        }
        let (successes, errors) = scene.done.peek();
        outcomes = (outcomes.0 + successes, outcomes.1 + errors);
        let of_deferred = scene.reports.reported.iter().filter(|(context, _)| deferred.contains(context));
        let reported: usize = of_deferred.map(|(_, count)| count).sum();
        assert_eq!(reported as u64, errors, "seed {seed}: of deferred work, failures alone are reported");
        drop(scene);
        drop(memory);
    }
    assert!(outcomes.0 > 1000 && outcomes.1 > 100, "most work succeeds, and links break under some: {outcomes:?}");
}

/// The link breaks while a send waits: it reconnects when its counter gets there.
#[test]
fn work_that_waits_survives_a_broken_link() {
    let mut scene = Scene::new(1, Faults { stall: 0, split: false }, 16);
    let receive = scene.b.post_receive(Receive::new(8).tagged(1));
    let later = scene.b.post_receive(Receive::new(8).tagged(1));
    let send = |context| {
        let (dest, buffer, tag) = (FiAddr(0), Buffer::Owned(vec![1; 8]), Some(1));
        let (flags, inject) = (OpFlags::DELIVERY_COMPLETE, false);
        Operation::Send(SendOp { dest, buffer, context, tag, data: None, flags, inject })
    };
    scene.submit(send(1000), 1, true);
    scene.submit(send(1001), 2, true);
    scene.trigger.add(1);
    scene.settle("the first", |scene| scene.b.is_done(receive) && scene.completed() == 1);
    scene.world.break_connections();
    (0..100).for_each(|_| scene.pass());
    assert_eq!(scene.completed(), 1);
    scene.trigger.add(1);
    scene.settle("the second", |scene| scene.completed() == 2);
    assert_eq!(scene.done.peek(), (2, 0));
    scene.settle("its receive", |scene| scene.b.is_done(later));
}

/// A thread that sleeps does not know that another one has made room on an endpoint.
#[test]
fn room_for_stalled_work_keeps_threads_awake() {
    for cancels in [false, true] {
        let mut scene = Scene::new(3, Faults { stall: 0, split: false }, 1);
        for context in [1000, 1001] {
            let (dest, buffer, tag) = (FiAddr(0), Buffer::Owned(vec![1; 8]), Some(1));
            let (flags, inject) = (OpFlags::DELIVERY_COMPLETE, false);
            let op = SendOp { dest, buffer, context, tag, data: None, flags, inject };
            scene.submit(Operation::Send(op), 0, true);
        }
        assert!(!scene.queue.before_sleep() && scene.queue.next_deadline().is_none(), "it can do nothing");
        if cancels {
            scene.a.ep.cancel(1000);
        }
        for _ in 0..1000 {
            if scene.completed() > 0 {
                break;
            }
            scene.world.advance(Duration::from_micros(50));
            // Another thread's progress, which does not poll the queue.
            scene.a.ep.poll();
            scene.b.progress();
        }
        assert_eq!(scene.completed(), 1);
        assert!(scene.queue.before_sleep() && scene.queue.next_deadline().is_some(), "there is room");
        assert!(scene.queue.run() && !scene.queue.before_sleep());
        scene.settle("the second", |scene| scene.completed() == 2);
    }
}

/// Reading a counter goes on to make progress on an endpoint that refuses to be bound to it.
#[test]
fn a_refused_binding_of_a_counter_changes_nothing() {
    let mut scene = Scene::new(4, Faults { stall: 0, split: false }, 16);
    let counter = || {
        let port = scene.world.port();
        Arc::new(Counter::new(Park::default(), CounterUnit::Operations, port, Waiting::Never))
    };
    let (bound, watched) = (counter(), counter());
    scene.a.ep.bind_counter(&bound, BindFlags::TRANSMIT).expect("the first counter");
    scene.a.ep.watch_counter(&watched).expect("it has no descriptor");
    for (count, flags) in [(1, BindFlags::TRANSMIT), (2, BindFlags::SELECTIVE_COMPLETION)] {
        scene.a.ep.bind_counter(&watched, flags).expect_err("it is refused");
        scene.a.post(Message::new(FiAddr(0), vec![1; 8]).tagged(1).flags(OpFlags::DELIVERY_COMPLETE));
        for _ in 0..1000 {
            scene.world.advance(Duration::from_micros(50));
            watched.read();
            scene.b.progress();
        }
        assert_eq!(bound.peek(), (count, 0), "after {flags:?}");
    }
}
