//! What an endpoint counts agrees with what was exchanged: with each peer and in all, also after
//! connections have ended.

use ofi_core::{Addr, Cause, FiAddr};
use ofi_engine::wire::hello::{EndpointKind, Hello};
use ofi_engine::{Exchanged, Statistics, Traffic};
use ofi_rig::{Target, expect};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, connect_hello};
use ofi_sim::{Faults, World};

const KEY: u64 = 7;

fn world() -> World {
    World::new(1, Faults { stall: 0, split: false })
}

fn node(world: &World, host: u8) -> Node {
    open_node(world, &Options::at(addr(host, 1000)))
}

/// Sends a message of each length, and waits until all have arrived.
fn send_all(world: &World, from: &mut Node, to: &mut Node, handle: FiAddr, lens: &[usize]) {
    for len in lens {
        let receive = to.receive(FiAddr::UNSPEC, 1, *len);
        let send = from.send(handle, 1, vec![1; *len]);
        expect(world, &mut [from, to], "a message", |nodes| nodes[0].is_done(send) && nodes[1].is_done(receive));
    }
}

/// The statistics of the peer at the other node's address.
fn of_peer(node: &Node, other: &Node) -> Exchanged {
    let Statistics { peers, .. } = node.ep.statistics();
    peers.iter().find(|peer| peer.addr == Some(other.addr())).map(|peer| peer.exchanged).unwrap_or_default()
}

fn messages(messages: u64, message_bytes: u64) -> Traffic {
    Traffic { messages, message_bytes, ..Traffic::default() }
}

#[test]
fn messages_of_all_lengths_count_at_both_ends() {
    let world = world();
    let (mut a, mut b) = (node(&world, 1), node(&world, 2));
    let to_b = a.know(b.addr());
    b.know(a.addr());
    assert_eq!(a.ep.statistics(), Statistics::default());
    // Eager, by rendezvous in one data frame, and in several.
    let lens = [0, 8, 5_000, 700_000, 3_000_001];
    send_all(&world, &mut a, &mut b, to_b, &lens);
    let expected = messages(5, lens.iter().sum::<usize>() as u64);
    assert_eq!(of_peer(&a, &b), Exchanged { sent: expected, received: Traffic::default() });
    assert_eq!(of_peer(&b, &a), Exchanged { sent: Traffic::default(), received: expected });
    // Far more than the credit of a new connection.
    let many = [32_000; 400];
    send_all(&world, &mut a, &mut b, to_b, &many);
    let expected = messages(405, expected.message_bytes + 400 * 32_000);
    assert_eq!((of_peer(&a, &b).sent, of_peer(&b, &a).received), (expected, expected));
    let Statistics { exchanged, failures, connected, peers, .. } = a.ep.statistics();
    assert_eq!((exchanged, failures, connected, peers.len()), (of_peer(&a, &b), 0, 1, 1));
    assert!(peers[0].is_connected && peers[0].connected == 1);
}

#[test]
fn one_sided_operations_count_at_the_end_of_their_memory() {
    let world = world();
    let (mut a, mut b) = (node(&world, 1), node(&world, 2));
    let to_b = a.know(b.addr());
    let memory = b.expose(KEY, vec![0; 100_000]);
    let target = |len| Target::new(to_b, KEY, 0, len);
    let mut posted = vec![a.write(&target(8), vec![1; 8])];
    for len in [1_000, 100_000] {
        posted.push(a.write(&target(len), vec![1; len]));
        posted.push(a.read(&target(len)));
    }
    a.inject_write(&target(16), vec![2; 16], None).expect("there is room");
    posted.push(a.write(&target(8), vec![1; 8]));
    expect(&world, &mut [&mut a, &mut b], "all", |nodes| posted.iter().all(|one| nodes[0].is_done(*one)));
    let expected = Traffic { accesses: 7, access_bytes: 2 * 101_000 + 32, ..Traffic::default() };
    assert_eq!(of_peer(&a, &b), Exchanged { sent: expected, received: Traffic::default() });
    assert_eq!(b.ep.statistics().exchanged, Exchanged { sent: Traffic::default(), received: expected });
    memory.close();
}

#[test]
fn what_waits_and_what_fails_counts() {
    let world = world();
    let (mut a, mut b) = (node(&world, 1), node(&world, 2));
    let to_b = a.know(b.addr());
    let sends = [a.send(to_b, 1, vec![1; 1_000]), a.send(to_b, 2, vec![1; 8])];
    expect(&world, &mut [&mut a, &mut b], "unexpected messages", |nodes| {
        nodes[1].ep.statistics().unexpected == 2 && sends.iter().all(|send| nodes[0].is_done(*send))
    });
    assert!(b.ep.statistics().peer_memory > 0);
    // A write without a region.
    let write = a.write(&Target::new(to_b, KEY, 0, 8), vec![1; 8]);
    expect(&world, &mut [&mut a, &mut b], "a refusal", |nodes| nodes[0].outcome(write).is_some());
    assert_eq!(a.ep.statistics().failures, 1);
    assert_eq!(b.ep.statistics().exchanged.received.accesses, 0, "it was refused");
}

#[test]
fn traffic_of_ended_connections_stays_in_the_sums() {
    let world = world();
    let (mut a, mut b) = (node(&world, 1), node(&world, 2));
    let to_b = a.know(b.addr());
    send_all(&world, &mut a, &mut b, to_b, &[100, 50_000]);
    b.close();
    expect(&world, &mut [&mut a], "the end of the connection", |nodes| !nodes[0].ep.statistics().ended.is_empty());
    let ended = a.ep.statistics();
    assert_eq!(ended.ended, [(Cause::PeerClosed, 1)]);
    assert_eq!(ended.exchanged.sent, messages(2, 50_100));
    // Another endpoint at that address is another peer to the engine, and the same to the address.
    let mut b = node(&world, 2);
    send_all(&world, &mut a, &mut b, to_b, &[7]);
    let all = a.ep.statistics();
    assert_eq!((all.exchanged.sent, all.connected), (messages(3, 50_107), 2));
    assert_eq!(b.ep.statistics().exchanged.received, messages(1, 7));
}

#[test]
fn refusals_count_by_their_reason() {
    let world = world();
    let mut a = node(&world, 1);
    for _ in 0..2 {
        let mut stranger = Raw::connect(&world, ip(3), addr(1, 1000));
        let hello = connect_hello(Addr::from(addr(3, 1)), [3; 16]);
        stranger.hello(&Hello { kind: EndpointKind::Msg, ..hello });
        stranger.send();
        expect(&world, &mut [&mut a], "an answer", |_| !stranger.read().is_empty());
    }
    assert_eq!(a.ep.statistics().refused, [("the endpoint types do not match", 2)]);
    assert_eq!(a.ep.statistics().connected, 0);
}
