//! Charges to the account of the memory held for peers, and their release.

use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Addr, Cause, Errno};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_engine::wire::one_sided::{Action, RemoteAddr};
use ofi_memory::Buffer;
use ofi_rig::{Target, expect, ping_pong};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, connect_hello};
use ofi_sim::{Faults, World, pair};
use std::time::Duration;

const KEY: u64 = 7;
const MIB: usize = 1 << 20;
/// A payload that every transport copies.
const LEAST_COPY: usize = 64 << 10;

fn world() -> World {
    World::new(1, Faults { stall: 0, split: false })
}

/// A scripted peer with an open link to a node.
fn raw(world: &World, node: &mut Node, host: u8) -> Raw {
    let mut raw = Raw::connect(world, ip(host), node.addr().socket());
    raw.hello(&connect_hello(Addr::from(addr(host, 1000)), [host; 16]));
    pass(world, node, &mut [&mut raw]);
    raw
}

/// Makes all progress that does not need the peers to read.
fn pass(world: &World, node: &mut Node, raws: &mut [&mut Raw]) {
    for _ in 0..50 {
        raws.iter_mut().for_each(|raw| {
            raw.send();
        });
        world.advance(Duration::from_micros(20));
        node.progress();
    }
}

fn place(addr: u64) -> RemoteAddr {
    RemoteAddr { key: KEY, addr }
}

fn write(addr: u64) -> Frame {
    Frame::Write { id: 1, place: place(addr), more: 0, last: true, commit: false, data: None, performed: 0 }
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
    let info = MessageInfo { tag: Some(77), data: None, ack: AckMode::No, fenced: false, group: false };
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
    let read = |len| Frame::Read { id: 1, place: place(0), len, last: true };
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

#[test]
fn payloads_are_charged_while_they_have_to_be_copied() {
    let world = world();
    let mut node = open_node(&world, &Options::at(addr(1, 1000)));
    let memory = node.expose_probed(KEY, vec![0; 4 * MIB]);
    let nothing = node.account.used();
    let action = Action { kind: AtomicKind::Base, op: AtomicOp::Write, datatype: Datatype::Uint8 };
    let atomic = Frame::Atomic { id: 1, place: place(0), action, len: None, last: true, data: None };
    for (frame, len) in [(write(5), MIB), (write(0), 100_000), (atomic, 4096)] {
        let mut peer = raw(&world, &mut node, 2);
        let link = node.account.used();
        peer.begin_frame(&frame, len, &[9; 1000]);
        pass(&world, &mut node, &mut [&mut peer]);
        assert_eq!(node.account.used(), link + len, "{frame:?}");
        peer.bytes(&vec![9; len - 1000]);
        pass(&world, &mut node, &mut [&mut peer]);
        assert_eq!(node.account.used(), link, "{frame:?}");
        // A payload that never arrives.
        peer.begin_frame(&frame, len, &[9; 1000]);
        pass(&world, &mut node, &mut [&mut peer]);
        assert_eq!(node.account.used(), link + len, "{frame:?}");
        drop(peer);
        pass(&world, &mut node, &mut []);
        assert_eq!(node.account.used(), nothing, "{frame:?}");
    }
    let bytes = memory.bytes();
    assert!(bytes[..MIB + 5].iter().all(|byte| *byte == 9) && bytes[MIB + 5..].iter().all(|byte| *byte == 0));
    // A response that the peer does not read, until it does.
    let mut peer = raw(&world, &mut node, 2);
    let link = node.account.used();
    peer.frame(&Frame::Read { id: 1, place: place(0), len: 3 << 20, last: true }, &[]);
    pass(&world, &mut node, &mut [&mut peer]);
    assert_eq!(node.account.used(), link + MIB + (64 << 10), "a piece, and a backlog");
    for _ in 0..20 {
        peer.read();
        pass(&world, &mut node, &mut [&mut peer]);
    }
    assert_eq!(node.account.used(), link);
    peer.frame(&Frame::Read { id: 2, place: place(0), len: 3 << 20, last: true }, &[]);
    pass(&world, &mut node, &mut [&mut peer]);
    assert!(node.account.used() > link + MIB);
    drop(peer);
    pass(&world, &mut node, &mut []);
    assert_eq!(node.account.used(), nothing);
    memory.close();
    node.close();
}

#[test]
fn a_full_account_refuses_long_writes_and_shortens_the_pieces_of_reads() {
    let world = world();
    let mut node = open_node(&world, &Options::at(addr(1, 1000)));
    let mut friend = open_node(&world, &Options::at(addr(2, 1000)));
    let content: Vec<u8> = (0..4 * MIB).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let memory = node.expose_probed(KEY, content.clone());
    let (to_friend, to_node) = (node.know(friend.addr()), friend.know(node.addr()));
    ping_pong(&world, &mut node, &mut friend, to_friend, to_node);
    let (before, room) = (node.account.used(), node.account.room());
    node.account.charge(room);
    let limit = node.account.limit();
    let ends = |node: &mut Node, friend: &mut Node, access: usize| {
        expect(&world, &mut [node, friend], "it ends", |nodes| {
            assert!(nodes[0].account.used() <= limit + LEAST_COPY, "{} bytes", nodes[0].account.used());
            nodes[1].outcome(access).is_some()
        });
        friend.take(access).remove(0)
    };
    let at = |from, len| Target::new(to_node, KEY, from, len);
    let long = friend.write(&at(0, 200_000), vec![1; 200_000]);
    let failure = ends(&mut node, &mut friend, long).outcome.expect_err("there is no room");
    assert_eq!((failure.cause, failure.errno), (Cause::RemoteMemory, Errno::ENOBUFS));
    assert!(memory.bytes() == content, "nothing was written");
    let short = friend.write(&at(0, LEAST_COPY), content[..LEAST_COPY].to_vec());
    assert!(ends(&mut node, &mut friend, short).outcome.is_ok());
    let read = friend.read(&at(100, 3 * MIB));
    let read = ends(&mut node, &mut friend, read);
    assert!(read.outcome.is_ok() && read.bytes == content[100..100 + 3 * MIB]);
    assert_eq!(node.account.used(), limit);
    node.account.release(room);
    let long = friend.write(&at(0, 200_000), vec![1; 200_000]);
    assert!(ends(&mut node, &mut friend, long).outcome.is_ok());
    assert_eq!(node.account.used(), before);
    assert_eq!(memory.close()[..200_000], vec![1; 200_000]);
    node.close();
    friend.close();
}
