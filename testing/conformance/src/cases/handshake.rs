//! Failed handshakes, and listeners.

use crate::ledger::{ACCEPTOR, ChannelId, End, INITIATOR, Plan, Side};
use crate::medium::{Medium, Nowhere};
use crate::node::Node;
use crate::world::{NodeId, World};
use ofi_core::Cause;
use ofi_engine::transport::{ConnectRequest, Listener, Transport};
use ofi_os::clock;
use std::time::Duration;

/// The handle of a connect request that a listener reports.
type Request<M> = <<M as Medium>::Carrier as Transport>::Request;

/// Either side refuses; another link stays up.
pub(crate) fn refused<M: Medium>(seed: u64) {
    let mut world = World::<M>::new(seed);
    world.open();
    world.open();
    let other = world.rng.bool().then(|| world.link(0, 1));
    for plan in [Plan::Refuse, Plan::Decline] {
        let channel = world.connect(0, 1, plan);
        world.until("the link is refused", |world| world.side(channel, INITIATOR) == Side::Over);
        let (ended, down) = world.nodes[0].observer.last_down.take().expect("it was reported");
        assert_eq!((ended, down.cause), (channel, Cause::Rejected));
        world.settle();
    }
    if let Some(other) = other {
        for node in [0, 1] {
            let id = world.end_of(node, other);
            world.submit_some(node, id, 5);
        }
    }
    world.medium.calm();
    world.flush_all();
    world.settle();
}

/// The initiator gives up at any time during the handshake.
pub(crate) fn aborted<M: Medium>(seed: u64) {
    let mut world = World::<M>::new(seed);
    world.open();
    world.open();
    let channel = world.connect(0, 1, Plan::Accept);
    let steps = world.rng.usize(0..6);
    for _ in 0..steps {
        let node = world.rng.usize(0..2);
        world.step(node);
    }
    let id = world.end_of(0, channel);
    world.nodes[0].abort(id);
    world.settle();
    // Another link may get its number.
    world.medium.calm();
    let next = world.link(0, 1);
    for node in [0, 1] {
        let id = world.end_of(node, next);
        world.submit_some(node, id, 5);
    }
    world.flush_all();
    world.settle();
}

/// The link goes down exactly once: immediately, or at the transport's deadline but not earlier.
pub(crate) fn nowhere<M: Medium>(seed: u64) {
    let mut world = World::<M>::new(seed);
    let node = world.open();
    let Nowhere { addr, cause, by_deadline } = world.medium.nowhere().expect("the medium has such a place");
    let channel = world.ledger.borrow_mut().add(addr, Plan::Accept, &mut world.rng);
    world.ledger.borrow_mut().channels[channel].end(End::Nowhere);
    world.nodes[node].connect(&addr, channel);
    if by_deadline {
        let due = world.nodes[node].transport.next_deadline().expect("connecting has a deadline");
        while world.nodes[node].transport.now() + Duration::from_millis(1) < due {
            world.step(node);
            assert_eq!(world.side(channel, INITIATOR), Side::Connecting, "the link ends before its deadline");
            let left = due.since(world.nodes[node].transport.now());
            world.nodes[node].transport.wait((left / 2).max(Duration::from_micros(100)));
        }
        world.nodes[node].transport.wait(Duration::from_millis(2));
        while world.nodes[node].poll() {}
        assert_eq!(world.side(channel, INITIATOR), Side::Over, "the deadline has passed");
    } else {
        world.until("connecting fails", |world| world.side(channel, INITIATOR) == Side::Over);
    }
    let (ended, down) = world.nodes[node].observer.last_down.take().expect("it was reported");
    assert_eq!((ended, down.cause), (channel, cause), "{down:?}");
    world.settle();
}

/// A poll that reports the end of a link returns true.
pub(crate) fn end_is_activity<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let Nowhere { addr, .. } = world.medium.nowhere().expect("the medium has such a place");
    let channel = world.ledger.borrow_mut().add(addr, Plan::Accept, &mut world.rng);
    world.ledger.borrow_mut().channels[channel].end(End::Nowhere);
    world.nodes[0].connect(&addr, channel);
    let end = clock::now() + M::WATCHDOG;
    while world.side(channel, INITIATOR) != Side::Over {
        world.expect_activity(0);
        world.nodes[0].transport.wait(Duration::from_millis(10));
        assert!(clock::now() < end, "connecting to nowhere does not fail");
    }
}

/// A node connects to a listener, which gets its request.
fn ask<M: Medium>(world: &mut World<M>, listener: &mut M::Listener, plan: Plan) -> (NodeId, ChannelId, Request<M>) {
    let transport = world.medium.open_connected();
    world.nodes.push(Node::new(transport, world.ledger.clone(), world.rng.fork()));
    let from = world.nodes.len() - 1;
    let addr = listener.local_addr();
    let channel = world.ledger.borrow_mut().add(addr, plan, &mut world.rng);
    world.nodes[from].connect(&addr, channel);
    let mut requests = Vec::new();
    let end = clock::now() + M::WATCHDOG;
    while requests.is_empty() {
        world.step(from);
        listener.poll(&mut requests);
        world.nodes[from].transport.wait(Duration::from_micros(100));
        assert!(clock::now() < end, "the listener gets no request");
    }
    let ConnectRequest { request, hello, to, .. } = requests.remove(0);
    assert!(requests.is_empty(), "one request is reported twice");
    assert_eq!((world.ledger.borrow().channel_of(&hello), to), (channel, addr));
    (from, channel, request)
}

/// A new node accepts a listener's request.
fn accept<M: Medium>(world: &mut World<M>, channel: ChannelId, request: Request<M>) -> NodeId {
    let answer = world.ledger.borrow().channels[channel].answer.clone();
    let mut transport = world.medium.open_connected();
    let id = transport.accept(request, &answer).expect("the request is accepted");
    let mut node = Node::new(transport, world.ledger.clone(), world.rng.fork());
    node.observer.begin(id, channel, ACCEPTOR);
    world.nodes.push(node);
    world.until("the link opens", |world| world.side(channel, INITIATOR) == Side::Open);
    world.nodes.len() - 1
}

/// Two nodes with a link made through a listener: the initiator and the acceptor.
pub(crate) fn connected_pair<M: Medium>(world: &mut World<M>) -> (NodeId, NodeId, ChannelId) {
    let mut listener = world.medium.listen().expect("the medium has listeners");
    let (from, channel, request) = ask(world, &mut listener, Plan::Accept);
    (from, accept(world, channel, request), channel)
}

/// A listener's request is refused, or accepted by another transport; an accepted link carries
/// frames.
pub(crate) fn listener<M: Medium>(seed: u64) {
    let mut world = World::<M>::new(seed);
    let mut listener = world.medium.listen().expect("the medium has listeners");
    let (from, channel, request) = ask(&mut world, &mut listener, Plan::Accept);
    let to = accept(&mut world, channel, request);
    for node in [from, to] {
        let id = world.end_of(node, channel);
        world.submit_some(node, id, 10);
    }
    world.medium.calm();
    world.flush_all();
    world.settle();
    let (_, channel, request) = ask(&mut world, &mut listener, Plan::Refuse);
    let answer = world.ledger.borrow().channels[channel].answer.clone();
    listener.refuse(request, &answer);
    world.until("the link is refused", |world| world.side(channel, INITIATOR) == Side::Over);
}
