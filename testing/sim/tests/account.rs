//! What the account of the memory held for peers is charged for, and that all of it is released.

use ofi_core::Addr;
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_engine::wire::one_sided::RemoteAddr;
use ofi_memory::Buffer;
use ofi_rig::ping_pong;
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, question};
use ofi_sim::{Faults, World, pair};
use std::time::Duration;

const KEY: u64 = 7;
const MIB: usize = 1 << 20;

fn world() -> World {
    World::new(1, Faults { stall: 0, split: false })
}

/// A scripted peer with an open link to a node.
fn raw(world: &World, node: &mut Node, host: u8) -> Raw {
    let mut raw = Raw::connect(world, ip(host), node.addr().socket());
    raw.hello(&question(Addr::from(addr(host, 1000)), [host; 16]));
    pass(world, node, &mut [&mut raw]);
    raw
}

/// Lets everything happen that does not need the peers to read.
fn pass(world: &World, node: &mut Node, raws: &mut [&mut Raw]) {
    for _ in 0..50 {
        raws.iter_mut().for_each(|raw| {
            raw.send();
        });
        world.advance(Duration::from_micros(20));
        node.progress();
    }
}

#[test]
fn closing_an_endpoint_releases_all_that_it_was_charged() {
    let world = world();
    let mut node = open_node(&world, &Options::at(addr(1, 1000)));
    let memory = node.expose(KEY, vec![0; 4 * MIB]);
    // A window.
    let mut friend = open_node(&world, &Options::at(addr(2, 1000)));
    let (to_friend, to_node) = (node.know(friend.addr()), friend.know(node.addr()));
    ping_pong(&world, &mut node, &mut friend, to_friend, to_node);
    let window = node.account.used();
    assert!(window > 0);
    // Unexpected messages of a peer that has left.
    let mut leaving = raw(&world, &mut node, 3);
    let info = MessageInfo { tag: Some(77), data: None, ack: AckMode::No, fenced: false };
    leaving.frame(&Frame::Eager { id: 0, info }, &[1; 10_000]);
    leaving.frame(&Frame::Bye, &[]);
    pass(&world, &mut node, &mut [&mut leaving]);
    drop(leaving);
    pass(&world, &mut node, &mut []);
    let orphans = node.account.used() - window;
    assert!((10_000..20_000).contains(&orphans), "{orphans}");
    // Output that a peer does not read.
    let mut silent = raw(&world, &mut node, 4);
    let second = node.account.used();
    let read = |len| Frame::Read { id: 1, place: RemoteAddr { key: KEY, addr: 0 }, len, last: true };
    silent.frame(&read(4 << 20), &[]);
    silent.frame(&read(4096), &[]);
    pass(&world, &mut node, &mut [&mut silent]);
    assert!(node.account.used() >= second + 4096 + (64 << 10), "a copied response, and a backlog");
    // A connection without a hello.
    let half_open = Raw::connect(&world, ip(5), node.addr().socket());
    pass(&world, &mut node, &mut []);
    node.close();
    assert_eq!(node.account.used(), 0);
    drop((half_open, silent));
    memory.close();
    friend.close();
    assert_eq!(friend.account.used(), 0);
}

#[test]
fn closing_an_endpoint_releases_its_windows_over_shared_memory() {
    let (mut a, mut b) = pair::over_shm();
    pair::message(&a, &b, Buffer::Owned(vec![1; 8]), Buffer::Owned(vec![0; 8]));
    assert!(a.account.used() > 0 && b.account.used() > 0);
    a.close();
    b.close();
    assert_eq!((a.account.used(), b.account.used()), (0, 0));
}
