//! Every way in which an open link ends.

use crate::ledger::{ACCEPTOR, ChannelId, INITIATOR, Side};
use crate::medium::Medium;
use crate::world::World;
use ofi_core::Cause;

/// Two nodes with a link on which both have submitted frames, some of them still in flight.
fn busy_pair<M: Medium>(seed: u64) -> (World<M>, ChannelId) {
    let mut world = World::<M>::new(seed);
    world.open();
    world.open();
    world.large = world.rng.choice([0, 5, 300]).unwrap_or(0);
    let channel = world.link(0, 1);
    // A transport may need a few round trips before it carries large data frames in another way.
    let rounds = if world.large > 100 { world.rng.usize(20..60) } else { world.rng.usize(0..20) };
    for _ in 0..rounds {
        let node = world.rng.usize(0..2);
        let id = world.end_of(node, channel);
        world.submit_some(node, id, 3);
        if world.rng.bool() {
            let node = world.rng.usize(0..2);
            world.step(node);
        }
        if world.large > 100 && world.rng.bool() {
            world.settle();
        }
    }
    (world, channel)
}

/// Waits until everything has ended, and connects again: link numbers may be reused now.
fn finish<M: Medium>(mut world: World<M>, channel: ChannelId) {
    world.settle();
    for side in [INITIATOR, ACCEPTOR] {
        assert_eq!(world.side(channel, side), Side::Over);
    }
    world.medium.calm();
    let again = world.link(0, 1);
    for node in [0, 1] {
        let id = world.end_of(node, again);
        world.submit_some(node, id, 5);
    }
    world.flush_all();
    world.settle();
}

/// The ledger requires that the frames of the side that shuts down arrive before the end.
pub(crate) fn one_shuts_down<M: Medium>(seed: u64) {
    let (mut world, channel) = busy_pair::<M>(seed);
    let node = world.rng.usize(0..2);
    let id = world.end_of(node, channel);
    let _ = world.nodes[node].shutdown(id);
    finish(world, channel);
}

/// All frames of a side whose shutdown is done arrive before the end of the link.
pub(crate) fn both_shut_down<M: Medium>(seed: u64) {
    let (mut world, channel) = busy_pair::<M>(seed);
    if world.rng.bool() {
        world.settle();
    }
    for node in [0, 1] {
        let id = world.end_of(node, channel);
        let _ = world.nodes[node].shutdown(id);
    }
    finish(world, channel);
}

/// The side that aborts gets all buffers back at once, and no event afterwards.
pub(crate) fn abort<M: Medium>(seed: u64) {
    let (mut world, channel) = busy_pair::<M>(seed);
    let node = world.rng.usize(0..2);
    let id = world.end_of(node, channel);
    world.nodes[node].abort(id);
    finish(world, channel);
}

/// One node disappears without a shutdown.
pub(crate) fn vanish<M: Medium>(seed: u64) {
    let (mut world, channel) = busy_pair::<M>(seed);
    let node = world.rng.usize(0..2);
    world.kill(node);
    world.settle();
    world.open();
    finish(world, channel);
}

/// The medium breaks under the link.
pub(crate) fn breakage<M: Medium>(seed: u64) {
    let (mut world, channel) = busy_pair::<M>(seed);
    world.break_links();
    finish(world, channel);
}

/// A violation on one of several links.
pub(crate) fn violation<M: Medium>(seed: u64) {
    let (mut world, channel) = busy_pair::<M>(seed);
    let other = world.link(1, 0);
    let side = world.rng.usize(0..2);
    {
        let flow = &mut world.ledger.borrow_mut().channels[channel].flows[1 - side];
        flow.violation_at = Some(flow.arrived + world.rng.u32(0..4));
    }
    // Until the frame that is answered with a violation has been sent.
    let sender = if side == INITIATOR { 1 } else { 0 };
    while world.side(channel, side) != Side::Over {
        if world.side(channel, 1 - side) == Side::Open {
            let id = world.end_of(sender, channel);
            world.submit_some(sender, id, 3);
        }
        for node in [0, 1] {
            let id = world.end_of(node, other);
            world.submit_some(node, id, 1);
            world.step(node);
        }
    }
    let receiver = 1 - sender;
    let down = world.nodes[receiver].observer.last_down.take().expect("it was reported");
    assert_eq!((down.0, down.1.cause), (channel, Cause::Violation));
    world.medium.calm();
    world.settle();
    for node in [0, 1] {
        assert_eq!(world.side(other, node), Side::Open, "a violation ended another link");
        let id = world.end_of(node, other);
        world.submit_some(node, id, 5);
    }
    world.flush_all();
    world.settle();
}
