//! Sleeping on the descriptor.

use super::handshake::connected_pair;
use crate::ledger::{ChannelId, Plan, Side};
use crate::medium::{Medium, Need};
use crate::world::{NodeId, World};
use ofi_engine::transport::Flush;
use ofi_os::clock;

/// Puts a node to sleep, although its peers may have more to send it.
fn sleep<M: Medium>(world: &mut World<M>, node: usize) {
    let end = clock::now() + M::WATCHDOG;
    while !world.fall_asleep(node) {
        assert!(clock::now() < end, "an idle transport does not fall asleep");
    }
}

/// Waits until a sleeping node's descriptor is readable: a deadline must not be what wakes it.
fn expect_woken<M: Medium>(world: &mut World<M>, node: usize, what: &str) {
    let end = clock::now() + M::WATCHDOG;
    while !world.medium.is_readable(&world.nodes[node].transport) {
        assert!(!M::SYNCHRONOUS, "{what} does not wake the sleeper");
        assert!(clock::now() < end, "{what} does not wake the sleeper");
    }
}

/// Puts one end of a link to sleep, and sends it a frame.
fn expect_woken_by_frame<M: Medium>(world: &mut World<M>, from: NodeId, to: NodeId, channel: ChannelId) {
    world.nodes[to].wake(true);
    sleep(world, to);
    let id = world.end_of(from, channel);
    let before = world.nodes[from].next_number(id);
    while world.nodes[from].next_number(id) == before {
        world.submit_some(from, id, 1);
    }
    world.nodes[from].flush(Flush::All);
    expect_woken(world, to, "a frame");
    world.settle();
}

/// A frame wakes the transport that accepted a listener's request, and the one that connected.
pub(crate) fn woken_after_hand_over<M: Medium>(seed: u64) {
    let mut world = World::<M>::new(seed);
    world.medium.calm();
    let (from, to, channel) = connected_pair(&mut world);
    world.nodes.iter_mut().for_each(|node| node.observer.takes_all = true);
    world.settle();
    expect_woken_by_frame(&mut world, from, to, channel);
    expect_woken_by_frame(&mut world, to, from, channel);
}

/// Frames that arrive one by one before a transport may leave its descriptor alone, in any case.
const BUSY: usize = 200;

/// A transport that was polled through many frames reads on when links are added, and is woken by
/// the next frame: it may stop watching what each poll reads, as long as it does and until it is
/// armed.
pub(crate) fn woken_after_traffic<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    world.nodes.iter_mut().for_each(|node| node.observer.takes_all = true);
    let mut channels = Vec::new();
    for _ in 0..3 {
        world.nodes[1].wake(true);
        for _ in 0..1 + world.rng.usize(..5) {
            let channel = world.connect(0, 1, Plan::Accept);
            world.until("the link opens", |world| world.ledger.borrow().channels[channel].sides == [Side::Open; 2]);
            channels.push(channel);
            for _ in 0..BUSY / channels.len() {
                for channel in &channels {
                    let id = world.end_of(0, *channel);
                    world.submit_some(0, id, 1);
                    world.nodes[0].flush(Flush::All);
                    world.settle();
                }
            }
        }
        let channel = channels[world.rng.usize(..channels.len())];
        expect_woken_by_frame(&mut world, 0, 1, channel);
    }
}

/// A connect request, a frame and the end of a link make the descriptor readable.
pub(crate) fn woken<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    // The rest of a dropped payload may still be in flight when everything else has arrived.
    world.nodes[1].observer.takes_all = true;
    sleep(&mut world, 1);
    let channel = world.connect(0, 1, Plan::Accept);
    let end = clock::now() + M::WATCHDOG;
    while !world.medium.is_readable(&world.nodes[1].transport) {
        world.step(0);
        world.nodes[0].flush(Flush::All);
        assert!(clock::now() < end, "a connect request does not wake the sleeper");
    }
    world.until("the link opens", |world| world.ledger.borrow().channels[channel].sides == [Side::Open; 2]);
    world.settle();
    for _ in 0..3 {
        expect_woken_by_frame(&mut world, 0, 1, channel);
    }
    if M::has(Need::Ends) {
        world.nodes[1].wake(true);
        sleep(&mut world, 1);
        let sleeper = if world.rng.bool() {
            let id = world.end_of(0, channel);
            let _ = world.nodes[0].shutdown(id);
            world.nodes[0].flush(Flush::All);
            1
        } else {
            // The sleeper takes its place.
            world.kill(0);
            0
        };
        expect_woken(&mut world, sleeper, "the end of the link");
        world.settle();
    }
}
