//! Delivery: order, integrity, and output that is held back.

use crate::frame::Planned;
use crate::ledger::{ChannelId, INITIATOR};
use crate::medium::Medium;
use crate::node::Manner;
use crate::world::{NodeId, World};
use ofi_engine::transport::{Flush, Urgency};
use ofi_engine::wire::frame::{MAX_PAYLOAD, MOST_EAGER};

/// Frames of all sizes around powers of two, in every manner, both ways.
pub(crate) fn every_size<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let channel = world.link(0, 1);
    let powers = (0..=20).map(|power| 1usize << power);
    let mut sizes: Vec<usize> = powers.flat_map(|size| [size - 1, size, size + 1]).collect();
    sizes.extend(60..130);
    sizes.retain(|size| *size <= M::MOST_PAYLOAD.min(MAX_PAYLOAD));
    for node in [0, 1] {
        world.nodes[node].observer.takes_all = true;
        for &size in &sizes {
            for urgency in [Urgency::Posted, Urgency::Unreported, Urgency::MoreFollows, Urgency::Control] {
                for (inject, fast) in [(false, false), (true, false), (false, true)] {
                    if (inject || urgency != Urgency::Posted) && size > MOST_EAGER {
                        continue;
                    }
                    send_when_there_is_room(&mut world, node, channel, size, Manner { urgency, inject, fast });
                }
            }
        }
        world.flush_all();
        world.settle();
    }
}

fn send_when_there_is_room<M: Medium>(
    world: &mut World<M>,
    node: NodeId,
    channel: ChannelId,
    size: usize,
    manner: Manner,
) {
    let id = world.end_of(node, channel);
    let World { nodes, rng, .. } = world;
    let frame = Planned::with_payload(nodes[node].next_number(id), size, rng);
    if frame.is_unordered() && !nodes[node].may_send_unordered(id) {
        nodes[node].flush(Flush::All);
        world.settle();
    }
    world.submit_surely(node, id, &frame, manner);
}

/// Large data frames among small ones, each submitted when the one before is done, as the engine
/// sends long messages: a transport may carry them in another way.
pub(crate) fn data_frames<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let channel = world.link(0, 1);
    world.large = 300;
    for _ in 0..60 {
        let node = world.rng.usize(0..2);
        let id = world.end_of(node, channel);
        world.submit_some(node, id, 2);
        world.flush_all();
        if world.rng.u8(0..4) > 0 {
            world.settle();
        }
    }
    world.settle();
}

/// Enough frames to wrap a transport's 8-bit and 16-bit counters.
pub(crate) fn many<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let channel = world.link(0, 1);
    world.settle();
    let id = world.end_of(0, channel);
    while world.nodes[0].next_number(id) < 70_000 {
        let World { nodes, rng, .. } = &mut world;
        let number = nodes[0].next_number(id);
        let frame = if rng.bool() { Planned::control(number, rng) } else { Planned::with_payload(number, 8, rng) };
        if number.is_multiple_of(64) {
            nodes[0].flush(Flush::All);
            while world.step(1) {}
            world.step(0);
        }
        let manner = Manner::random(&mut world.rng);
        world.submit_surely(0, id, &frame, manner);
    }
    world.settle();
}

/// A poll during which a kept payload comes back returns true.
pub(crate) fn sent_is_activity<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let channel = world.link(0, 1);
    world.settle();
    let id = world.end_of(0, channel);
    let World { nodes, rng, .. } = &mut world;
    let frame = Planned::with_payload(0, M::MOST_PAYLOAD.min(2000), rng);
    let manner = Manner { urgency: Urgency::MoreFollows, inject: false, fast: false };
    let _ = nodes[0].submit(id, frame, manner, rng);
    world.expect_activity(0);
    world.settle();
}

/// Submits a few small frames of any urgency on a link.
fn submit_little<M: Medium>(world: &mut World<M>) -> ChannelId {
    let channel = world.link(0, 1);
    world.settle();
    let id = world.end_of(0, channel);
    let count = world.rng.usize(1..12);
    for _ in 0..count {
        let World { nodes, rng, .. } = world;
        let number = nodes[0].next_number(id);
        let len = rng.usize(0..=M::MOST_PAYLOAD.min(300));
        let frame = if rng.bool() { Planned::with_payload(number, len, rng) } else { Planned::control(number, rng) };
        let _ = nodes[0].submit(id, frame, Manner::random(rng), rng);
    }
    channel
}

/// After a flush the peer receives everything without further calls of the sender.
pub(crate) fn flush_all<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let channel = submit_little(&mut world);
    world.nodes[0].flush(Flush::All);
    expect_everything(&mut world, channel);
}

/// What the application reads no completion of arrives without further calls of the sender.
pub(crate) fn unreported<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let channel = world.link(0, 1);
    world.settle();
    let id = world.end_of(0, channel);
    for _ in 0..world.rng.usize(1..12) {
        let World { nodes, rng, .. } = &mut world;
        let len = rng.usize(0..=M::MOST_PAYLOAD.min(300));
        let frame = Planned::with_payload(nodes[0].next_number(id), len, rng);
        let manner = Manner { urgency: Urgency::Unreported, inject: rng.bool(), fast: rng.bool() };
        let _ = nodes[0].submit(id, frame, manner, rng);
    }
    expect_everything(&mut world, channel);
}

/// After a poll the peer receives everything without further calls of the sender.
pub(crate) fn poll<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let channel = submit_little(&mut world);
    world.nodes[0].poll();
    expect_everything(&mut world, channel);
}

fn expect_everything<M: Medium>(world: &mut World<M>, channel: ChannelId) {
    world.until_alone(1, "everything arrives without the sender's help", |world| {
        world.ledger.borrow().channels[channel].flows[INITIATOR].is_empty()
    });
    world.settle();
}
