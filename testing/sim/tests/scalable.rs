//! Scalable endpoints (fi_endpoint(3)) over the simulated network: each transmit context has a link
//! of its own to each receive context that it uses, and the peer's name is that of the scalable
//! endpoint.

use fastrand::Rng;
use ofi_core::{Addr, Errno, FiAddr, OpFlags};
use ofi_engine::endpoint::Config;
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_engine::wire::hello::{Contexts, Handshake, Hello};
use ofi_rig::{Message, Options, expect, finish, until};
use ofi_sim::node::{self, Node, addr, ip, open_node};
use ofi_sim::portal::{Portal, context};
use ofi_sim::raw::{Raw, Received, connect_hello};
use ofi_sim::{Faults, World};
use ofi_sync::account::Account;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn calm() -> World {
    World::new(4, Faults { stall: 0, split: false })
}

fn steps(world: &World, nodes: &mut [&mut Node]) {
    let mut left = 100;
    until(world, nodes, |_| {
        left -= 1;
        left == 0
    });
}

/// The causes and errors with which a message fails.
fn failure(node: &Node, sent: usize) -> (Errno, String) {
    match node.outcome(sent) {
        Some(Err(failure)) => (failure.errno, failure.text.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn random_messages_between_contexts_arrive_once_with_their_source() {
    for seed in 0..100 {
        let mut rng = Rng::with_seed(seed);
        let world = World::new(seed, Faults { stall: 3, split: true });
        let (left, right) = (Portal::open(&world, addr(1, 1000), (3, 2)), Portal::open(&world, addr(2, 1000), (2, 3)));
        let (to_right, to_left) = (left.know(right.at), right.know(left.at));
        let mut tx: Vec<Node> = (0..3).map(|index| left.transmit(index)).collect();
        let mut rx: Vec<Node> = (0..3).map(|index| right.receive(index)).collect();
        let mut expected = Vec::new();
        for number in 0..40_u64 {
            let (from, to) = (rng.usize(0..3), rng.usize(0..3));
            let len = *rng.choice(&[0, 1, 100, 5000, 70_000, 300_000]).unwrap();
            let bytes: Vec<u8> = (0..len).map(|at: u64| (at ^ number).to_le_bytes()[0]).collect();
            let handle = context(to_right, u16::try_from(to).unwrap());
            let src = if rng.bool() { to_left } else { FiAddr::UNSPEC };
            let post = |rx: &mut Vec<Node>| rx[to].receive(src, number, bytes.len());
            let early = rng.bool().then(|| post(&mut rx));
            let sent = tx[from].send(handle, number, bytes.clone());
            let received = early.unwrap_or_else(|| post(&mut rx));
            expected.push((from, sent, to, received, bytes));
        }
        let (mut a, mut b): (Vec<&mut Node>, Vec<&mut Node>) = (tx.iter_mut().collect(), rx.iter_mut().collect());
        let mut nodes: Vec<&mut Node> = a.drain(..).chain(b.drain(..)).collect();
        expect(&world, &mut nodes, "all messages arrive", |nodes| {
            expected
                .iter()
                .all(|(from, sent, to, received, _)| nodes[*from].is_done(*sent) && nodes[3 + *to].is_done(*received))
        });
        for (_, _, to, received, bytes) in &expected {
            let done = &nodes[3 + *to].finished(*received)[0];
            assert_eq!((done.completion().src, &done.bytes), (to_left, bytes), "seed {seed}");
        }
        finish(&world, &mut nodes);
    }
}

#[test]
fn a_request_waits_until_its_context_is_enabled() {
    let world = calm();
    let (left, right) = (Portal::open(&world, addr(1, 1000), (1, 1)), Portal::open(&world, addr(2, 1000), (1, 2)));
    let to_right = left.know(right.at);
    let mut tx = left.transmit(0);
    right.endpoint.local_addr().unwrap();
    let sent = tx.send(context(to_right, 1), 7, vec![5; 8]);
    steps(&world, &mut [&mut tx]);
    // Another context reads the request, which is not for it.
    let mut first = right.receive(0);
    steps(&world, &mut [&mut tx, &mut first]);
    assert!(tx.outcome(sent).is_none());
    let mut second = right.receive(1);
    let received = second.receive(FiAddr::UNSPEC, 7, 8);
    expect(&world, &mut [&mut tx, &mut second], "the message arrives", |nodes| nodes[1].is_done(received));
    finish(&world, &mut [&mut tx, &mut first, &mut second]);
}

#[test]
fn an_unknown_context_refuses() {
    let world = calm();
    let (left, right) = (Portal::open(&world, addr(1, 1000), (1, 1)), Portal::open(&world, addr(2, 1000), (1, 2)));
    let mut ordinary = open_node(&world, &node::Options::at(addr(3, 1000)));
    let (to_right, to_ordinary) = (left.know(right.at), left.know(addr(3, 1000)));
    let (mut tx, mut rx, closed) = (left.transmit(0), right.receive(0), right.receive(1));
    closed.ep.close();
    for (handle, why) in [
        (context(to_right, 2), "no receive context"),
        (context(to_right, 1), "closed"),
        (context(to_ordinary, 1), "no receive context"),
    ] {
        let sent = tx.send(handle, 7, vec![5; 8]);
        expect(&world, &mut [&mut tx, &mut rx, &mut ordinary], why, |nodes| nodes[0].outcome(sent).is_some());
        let (errno, text) = failure(&tx, sent);
        assert!(errno == Errno::ECONNREFUSED && text.contains(why), "{errno:?} {text}");
    }
    // A context that is opened anew takes messages again.
    let mut again = right.receive(1);
    let (received, sent) = (again.receive(FiAddr::UNSPEC, 7, 8), tx.send(context(to_right, 1), 7, vec![5; 8]));
    expect(&world, &mut [&mut tx, &mut again], "the message arrives", |nodes| {
        nodes[1].is_done(received) && nodes[0].is_done(sent)
    });
}

#[test]
fn an_ordinary_endpoint_and_a_scalable_one_connect_to_each_other_at_once() {
    for seed in 0..50 {
        let world = World::new(seed, Faults { stall: 3, split: true });
        let portal = Portal::open(&world, addr(2, 1000), (2, 1));
        let mut ordinary = open_node(&world, &node::Options::at(addr(1, 1000)));
        let (to_portal, to_ordinary) = (ordinary.know(portal.at), portal.know(addr(1, 1000)));
        let (mut first, mut second, mut rx) = (portal.transmit(0), portal.transmit(1), portal.receive(0));
        let (from_first, from_second) = (ordinary.receive(to_portal, 1, 70_000), ordinary.receive(to_portal, 2, 8));
        let received = rx.receive(to_ordinary, 3, 70_000);
        let sent = ordinary.send(to_portal, 3, vec![3; 70_000]);
        first.send(to_ordinary, 1, vec![1; 70_000]);
        second.send(to_ordinary, 2, vec![2; 8]);
        let mut nodes = [&mut ordinary, &mut first, &mut second, &mut rx];
        expect(&world, &mut nodes, "all messages arrive", |nodes| {
            nodes[0].is_done(from_first)
                && nodes[0].is_done(from_second)
                && nodes[3].is_done(received)
                && nodes[0].is_done(sent)
        });
        finish(&world, &mut nodes);
        // The end of a context leaves the other links.
        first.ep.close();
        drop(first);
        let (again, back) = (ordinary.receive(to_portal, 4, 8), rx.receive(to_ordinary, 5, 8));
        second.send(to_ordinary, 4, vec![4; 8]);
        ordinary.send(to_portal, 5, vec![5; 8]);
        let mut nodes = [&mut ordinary, &mut second, &mut rx];
        expect(&world, &mut nodes, "the others go on", |nodes| nodes[0].is_done(again) && nodes[2].is_done(back));
    }
}

#[test]
fn a_restarted_endpoint_is_a_new_peer_for_each_context() {
    let world = calm();
    let mut target = open_node(&world, &node::Options::at(addr(1, 1000)));
    let from = target.know(addr(2, 1000));
    for life in 0..3_u8 {
        let portal = Portal::open(&world, addr(2, 1000), (2, 1));
        let to_target = portal.know(addr(1, 1000));
        let mut contexts = [portal.transmit(0), portal.transmit(1)];
        for (tag, tx) in (0..).zip(&mut contexts) {
            let received = target.receive(from, tag, 8);
            tx.send(to_target, tag, vec![life; 8]);
            expect(&world, &mut [tx, &mut target], "it arrives", |nodes| nodes[1].is_done(received));
            assert_eq!(target.take(received)[0].bytes, [life; 8]);
        }
        // Without an orderly end, as if the process was killed: the next life takes its address.
        world.break_connections();
        let [first, second] = contexts;
        drop((first, second));
        portal.endpoint.close();
        steps(&world, &mut [&mut target]);
    }
}

#[test]
fn changes_of_the_address_vector_reach_named_contexts() {
    let world = calm();
    let (left, right) = (Portal::open(&world, addr(1, 1000), (1, 1)), Portal::open(&world, addr(2, 1000), (1, 2)));
    let (mut tx, mut rx) = (left.transmit(0), right.receive(1));
    for round in 0..3 {
        let to_right = left.know(right.at);
        let named = context(to_right, 1);
        let received = rx.receive(FiAddr::UNSPEC, round, 8);
        tx.send(named, round, vec![5; 8]);
        expect(&world, &mut [&mut tx, &mut rx], "it arrives", |nodes| nodes[1].is_done(received));
        assert!(left.av.remove(to_right));
        let message = Message::new(named, vec![1]).tagged(9);
        assert_eq!(tx.try_post(message).unwrap_err(), Errno::EINVAL, "the handle names nothing now");
        // The next address gets the handle.
        assert_eq!(left.know(addr(9, 9)), to_right);
        assert!(left.av.remove(to_right));
    }
    assert_eq!(left.av.lookup(context(left.know(right.at), 77)), Some(Addr::from(right.at)));
}

/// Connects with these contexts under a name; returns the answer too.
fn lie(
    world: &World,
    host: u8,
    to: SocketAddr,
    nodes: &mut [&mut Node],
    change: impl FnOnce(&mut Hello),
) -> (Raw, Option<Hello>) {
    let mut raw = Raw::connect(world, ip(host), to);
    let mut hello = connect_hello(Addr::from(addr(host, 1000)), [host; 16]);
    change(&mut hello);
    raw.hello(&hello);
    assert!(raw.send());
    steps(world, nodes);
    let answer = raw.read().into_iter().find_map(|received| match received {
        Received::Hello(hello) => Some(*hello),
        _ => None,
    });
    (raw, answer)
}

#[test]
fn a_liar_does_not_take_the_place_of_a_context() {
    let world = calm();
    let mut target = open_node(&world, &node::Options::at(addr(1, 1000)));
    let portal = Portal::open(&world, addr(2, 1000), (1, 1));
    let (from, to_target) = (target.know(portal.at), portal.know(addr(1, 1000)));
    let mut tx = portal.transmit(0);
    let received = target.receive(from, 1, 8);
    tx.send(to_target, 1, vec![1; 8]);
    expect(&world, &mut [&mut tx, &mut target], "it arrives", |nodes| nodes[1].is_done(received));
    // Another host claims the name and the context.
    let contexts = Contexts { transmit: 1, receive: 0 };
    let (mut liar, answer) = lie(&world, 66, addr(1, 1000), &mut [&mut target], |hello| {
        (hello.name, hello.contexts, hello.attempt) = (Some(Addr::from(portal.at)), contexts, u64::MAX);
    });
    assert_eq!(answer.map(|answer| answer.handshake), Some(Handshake::Accept), "it is accepted, without a source");
    let (directed, any) = (target.receive(from, 2, 8), target.receive(FiAddr::UNSPEC, 3, 8));
    for tag in [2, 3] {
        let info = MessageInfo { tag: Some(tag), data: None, ack: AckMode::No, fenced: false, group: false };
        liar.frame(&Frame::Eager { id: 0, info }, &[9; 8]);
    }
    liar.send();
    expect(&world, &mut [&mut target, &mut tx], "the lie has no source", |nodes| nodes[0].is_done(any));
    assert!(target.outcome(directed).is_none());
    assert_eq!(target.finished(any)[0].completion().src, FiAddr::UNSPEC);
    tx.send(to_target, 2, vec![2; 8]);
    expect(&world, &mut [&mut target, &mut tx], "the context's link works", |nodes| nodes[0].is_done(directed));
    assert_eq!(target.take(directed)[0].bytes, [2; 8]);
}

#[test]
fn hostile_requests_cost_a_scalable_endpoint_their_connection_only() {
    let world = calm();
    let (left, right) = (Portal::open(&world, addr(1, 1000), (1, 1)), Portal::open(&world, addr(2, 1000), (1, 2)));
    let mut rng = Rng::with_seed(9);
    let (mut tx, mut rx) = (left.transmit(0), right.receive(0));
    let to_right = left.know(right.at);
    let mut open = Vec::new();
    for round in 0..300 {
        let index = |rng: &mut Rng| if rng.bool() { rng.u16(0..3) } else { rng.u16(..) };
        let contexts = Contexts { transmit: index(&mut rng), receive: index(&mut rng) };
        let handshake = *rng
            .choice(&[
                Handshake::Connect,
                Handshake::Connect,
                Handshake::Connect,
                Handshake::Verify,
                Handshake::Mine,
                Handshake::Reject,
            ])
            .unwrap();
        let (raw, answer) = lie(&world, 60 + rng.u8(0..5), right.at, &mut [&mut rx], |hello| {
            (hello.contexts, hello.handshake, hello.attempt) = (contexts, handshake, rng.u64(..));
            hello.nonce = [rng.u8(..); 16];
        });
        let expected = match (handshake, contexts.receive) {
            (Handshake::Connect, 0) => None,
            // It waits for the second context, which the test does not open.
            (Handshake::Connect, 1) => {
                assert!(answer.is_none(), "round {round}: {answer:?}");
                None
            }
            (Handshake::Verify, _) => Some(Handshake::NotMine),
            _ => Some(Handshake::Refuse),
        };
        if let Some(expected) = expected {
            assert_eq!(answer.map(|answer| answer.handshake), Some(expected), "round {round}");
        }
        open.push(raw);
        if open.len() > 20 {
            open.swap_remove(rng.usize(..open.len()));
        }
    }
    let (received, sent) = (rx.receive(FiAddr::UNSPEC, 7, 8), tx.send(to_right, 7, vec![5; 8]));
    expect(&world, &mut [&mut tx, &mut rx], "a friend is served", |nodes| {
        nodes[0].is_done(sent) && nodes[1].is_done(received)
    });
    drop(open);
    rx.ep.close();
    right.endpoint.close();
}

#[test]
fn requests_of_peers_that_are_gone_leave_their_place_to_others() {
    let world = calm();
    let (left, right) = (Portal::open(&world, addr(1, 1000), (1, 1)), Portal::open(&world, addr(2, 1000), (1, 2)));
    let (mut first, to_right) = (right.receive(0), left.know(right.at));
    // More than may wait, from peers that leave at once.
    for number in 0..4500_u32 {
        let mut raw = Raw::connect(&world, ip(66), right.at);
        let mut hello = connect_hello(Addr::from(addr(66, 1000)), [66; 16]);
        hello.contexts = Contexts { transmit: 1, receive: 1 };
        hello.nonce[..4].copy_from_slice(&number.to_le_bytes());
        raw.hello(&hello);
        assert!(raw.send());
        for _ in 0..4 {
            first.progress();
            world.advance(Duration::from_micros(50));
        }
    }
    let mut tx = left.transmit(0);
    let sent = tx.send(context(to_right, 1), 7, vec![5; 8]);
    steps(&world, &mut [&mut tx, &mut first]);
    assert!(tx.outcome(sent).is_none(), "it waits: {:?}", tx.outcome(sent));
    let mut second = right.receive(1);
    let received = second.receive(FiAddr::UNSPEC, 7, 8);
    expect(&world, &mut [&mut tx, &mut second], "the message arrives", |nodes| nodes[1].is_done(received));
    finish(&world, &mut [&mut tx, &mut first, &mut second]);
}

/// What has been sent arrives, although its context is opened anew before the receiver reads it.
#[test]
fn a_transmit_context_that_is_opened_anew_keeps_what_it_has_sent() {
    for seed in 0..50 {
        let world = World::new(seed, Faults { stall: 40, split: true });
        let mut target = open_node(&world, &node::Options::at(addr(1, 1000)));
        let portal = Portal::open(&world, addr(2, 1000), (2, 1));
        let (from, to_target) = (target.know(portal.at), portal.know(addr(1, 1000)));
        let mut tx = portal.transmit(1);
        let opened = target.receive(from, 0, 8);
        tx.send(to_target, 0, vec![0; 8]);
        expect(&world, &mut [&mut tx, &mut target], "the link opens", |nodes| nodes[1].is_done(opened));
        let mut received = Vec::new();
        for life in 1..4_u8 {
            let tag = u64::from(life) * 10;
            let sent: Vec<usize> = (0..5).map(|number| tx.send(to_target, tag + number, vec![life; 200])).collect();
            // Only the sender makes progress: the receiver does not read.
            expect(&world, &mut [&mut tx], "they leave", |nodes| sent.iter().all(|sent| nodes[0].is_done(*sent)));
            received.extend((0..5).map(|number| target.receive(from, tag + number, 200)));
            tx.close();
            tx = portal.transmit(1);
            let (last, sent) = (target.receive(from, tag + 9, 8), tx.send(to_target, tag + 9, vec![life; 8]));
            expect(&world, &mut [&mut tx, &mut target], "the new link works", |nodes| {
                nodes[0].is_done(sent) && nodes[1].is_done(last)
            });
        }
        expect(&world, &mut [&mut tx, &mut target], "all arrive", |nodes| {
            received.iter().all(|received| nodes[1].is_done(*received))
        });
        finish(&world, &mut [&mut tx, &mut target]);
    }
}

#[test]
fn operations_on_a_receive_context_that_is_opened_anew_end_once() {
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let world = World::new(seed, Faults { stall: 3, split: true });
        let (left, right) = (Portal::open(&world, addr(1, 1000), (2, 1)), Portal::open(&world, addr(2, 1000), (1, 2)));
        let to = context(left.know(right.at), 1);
        let (mut one, mut two, mut rx) = (left.transmit(0), left.transmit(1), right.receive(1));
        for life in 0..4_u64 {
            let mut sent = [Vec::new(), Vec::new()];
            for number in 0..12 {
                let tag = life * 100 + number;
                let bytes = vec![7; *rng.choice(&[8, 5000, 70_000, 500_000]).unwrap()];
                if number % 3 == 0 {
                    rx.receive(FiAddr::UNSPEC, tag, bytes.len());
                }
                let (which, node) = if rng.bool() { (0, &mut one) } else { (1, &mut two) };
                let message = Message::new(to, bytes).tagged(tag).flags(OpFlags::MATCH_COMPLETE);
                sent[which].push(node.post(message));
            }
            let mut left = rng.usize(0..60);
            until(&world, &mut [&mut one, &mut two, &mut rx], |_| {
                left = left.saturating_sub(1);
                left == 0
            });
            rx.close();
            rx = right.receive(1);
            // Those that had not reached the closed context wait for receives of the new one.
            (0..12).for_each(|number| _ = rx.receive(FiAddr::UNSPEC, life * 100 + number, 500_000));
            // The rig counts: what completes twice panics.
            expect(&world, &mut [&mut one, &mut two, &mut rx], "they end", |nodes| {
                sent.iter().zip(nodes.iter()).all(|(sent, node)| sent.iter().all(|sent| node.outcome(*sent).is_some()))
            });
            for node in [&mut one, &mut two] {
                let (received, sent) = (rx.receive(FiAddr::UNSPEC, 9999, 8), node.send(to, 9999, vec![8; 8]));
                expect(&world, &mut [node, &mut rx], "a new one works", |nodes| {
                    nodes[0].is_done(sent) && nodes[1].is_done(received)
                });
            }
        }
        finish(&world, &mut [&mut one, &mut two, &mut rx]);
    }
}

#[test]
fn open_contexts_are_counted_and_their_indices_end() {
    let world = calm();
    let portal = Portal::open(&world, addr(1, 1000), (1, 1));
    let tx = portal.transmit(0);
    let config = || {
        let node = Options::default();
        Config {
            kind: ofi_engine::wire::hello::EndpointKind::Rdm,
            caps: node.caps,
            tx_size: 1,
            rx_size: 1,
            limits: node.limits,
            nonce: [0; 16],
            provider: "sim",
            regions: Arc::default(),
            account: Arc::new(Account::new(0)),
            contexts: Contexts::default(),
        }
    };
    assert_eq!(portal.endpoint.open_transmit(0, config()).unwrap_err().errno(), Errno::EBUSY);
    assert_eq!(portal.endpoint.open_transmit(1, config()).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(portal.endpoint.open_receive(1, config()).unwrap_err().errno(), Errno::EINVAL);
    tx.ep.close();
    // The index is free again.
    drop(portal.transmit(0));
}
