//! Random scripts: everything the contract allows, in any order.

use crate::ledger::{Plan, Side};
use crate::medium::{Medium, Need};
use crate::world::{NodeId, World};
use ofi_engine::transport::{Flush, Transport};
use std::time::Duration;

/// Rounds of a script. Most scripts are short: for the same cost, many short ones begin and end
/// more links than a long one.
const ROUNDS: [usize; 12] = [10, 10, 10, 25, 25, 25, 25, 50, 50, 50, 100, 200];

/// One script.
pub(crate) fn script<M: Medium>(seed: u64) {
    let mut world = World::<M>::new(seed);
    world.open();
    world.open();
    if M::has(Need::Ends) && world.rng.u8(0..4) == 0 {
        world.open();
    }
    world.large = world.rng.choice([0, 0, 0, 2, 2, 5, 5, 100]).unwrap_or(0);
    let rounds = world.rng.choice(ROUNDS).unwrap_or(ROUNDS[0]);
    // At times more links than a transport polls in each pass.
    let links = if world.rng.u8(0..4) == 0 { world.rng.usize(1..=M::MOST_LINKS) } else { 1 };
    (0..links).for_each(|_| connect(&mut world));
    for _ in 0..rounds {
        let node = world.rng.usize(..world.nodes.len());
        match world.rng.u8(0..100) {
            0..35 => submit(&mut world, node),
            35..70 => {
                world.step(node);
            }
            70..78 => {
                let how = if world.rng.bool() { Flush::All } else { Flush::ByRule };
                world.nodes[node].flush(how);
            }
            78..86 => {
                world.fall_asleep(node);
            }
            86..89 => connect(&mut world),
            89..92 => end_something(&mut world, node),
            92..94 => {
                let World { medium, rng, .. } = &mut world;
                medium.disturb(rng);
            }
            94..96 => world.settle(),
            _ => world.nodes[node].transport.wait(Duration::from_micros(20)),
        }
    }
    world.medium.calm();
    world.flush_all();
    world.settle();
    if M::has(Need::Ends) {
        shut_everything_down(&mut world);
    }
}

fn submit<M: Medium>(world: &mut World<M>, node: NodeId) {
    let links = world.writable_links(node);
    if let Some(id) = world.rng.choice(links) {
        let count = world.rng.usize(1..10);
        world.submit_some(node, id, count);
    }
}

fn connect<M: Medium>(world: &mut World<M>) {
    let live = world.ledger.borrow().channels.iter().filter(|channel| channel.sides != [Side::Over; 2]).count();
    if live >= M::MOST_LINKS {
        return;
    }
    let mut ends: Vec<NodeId> = (0..world.nodes.len()).collect();
    world.rng.shuffle(&mut ends);
    let plan = match world.rng.u8(0..10) {
        0 if M::has(Need::Ends) => Plan::Refuse,
        1 if M::has(Need::Ends) => Plan::Decline,
        _ => Plan::Accept,
    };
    world.connect(ends[0], ends[1], plan);
}

fn end_something<M: Medium>(world: &mut World<M>, node: NodeId) {
    if !M::has(Need::Ends) {
        return;
    }
    let Some(id) = world.rng.choice(world.nodes[node].open_links()) else { return };
    match world.rng.u8(0..12) {
        0..5 => {
            let _ = world.nodes[node].shutdown(id);
        }
        5..7 => world.nodes[node].abort(id),
        7..10 => {
            let link = &world.nodes[node].observer.links[&id];
            let flow = &mut world.ledger.borrow_mut().channels[link.channel].flows[1 - link.side];
            flow.violation_at = Some(flow.arrived + world.rng.u32(0..10));
        }
        10 if M::has(Need::Breaks) => world.break_links(),
        _ => {
            world.kill(node);
            world.open();
        }
    }
}

fn shut_everything_down<M: Medium>(world: &mut World<M>) {
    for node in 0..world.nodes.len() {
        for id in world.nodes[node].open_links() {
            let _ = world.nodes[node].shutdown(id);
        }
    }
    world.settle();
    assert!(world.nodes.iter().all(|node| node.observer.links.is_empty()), "a link is left");
}
