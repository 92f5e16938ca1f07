//! Peers without credit for their next message: they must get credit when memory becomes free, a
//! receive wants the message, or the messages before it have been received.

use ofi_core::{Addr, FiAddr, OpFlags};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_engine::wire::hello::Handshake;
use ofi_rig::{Message, Receive, until};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, Received, connect_hello};
use ofi_sim::{Faults, World};
use std::time::Duration;

const UNWANTED: u64 = 1;
const WANTED: u64 = 2;

fn world() -> World {
    World::new(2, Faults { stall: 0, split: false })
}

/// A node with little memory for its peers, so that credit is scarce.
fn narrow(world: &World) -> Node {
    open_node(world, &Options { limit: 1 << 20, ..Options::at(addr(1, 1000)) })
}

fn peer(world: &World, host: u8) -> Node {
    open_node(world, &Options::at(addr(host, 1000)))
}

fn steps(world: &World, nodes: &mut [&mut Node]) {
    let mut left = 50;
    until(world, nodes, |_| {
        left -= 1;
        left == 0
    });
}

/// Sends unexpected messages until the credit is used up, then an expected one, which waits.
/// Returns the number of unexpected messages sent.
fn fill(world: &World, from: &mut Node, to: &mut Node, handle: FiAddr) -> usize {
    let mut sent = 0;
    loop {
        let context = from.send(handle, UNWANTED, vec![1; 1000]);
        steps(world, &mut [from, to]);
        if !from.is_done(context) {
            // The last one waits for credit: cancel it, so that the expected message is next.
            from.ep.cancel(context);
            from.progress();
            assert!(from.outcome(context).is_some_and(Result::is_err));
            break;
        }
        sent += 1;
        assert!(sent < 10_000, "the credit has no end");
    }
    let wanted = from.send(handle, WANTED, vec![2; 1000]);
    steps(world, &mut [from, to]);
    assert!(!from.is_done(wanted), "the message had credit");
    sent
}

#[test]
fn a_receive_whose_sender_becomes_known_gets_a_message_without_credit() {
    let world = world();
    let (mut a, mut r) = (peer(&world, 2), narrow(&world));
    let to_r = a.know(r.addr());
    let directed = r.receive(FiAddr(0), WANTED, 1000);
    fill(&world, &mut a, &mut r, to_r);
    assert!(r.outcome(directed).is_none());
    assert_eq!(r.know(a.addr()), FiAddr(0));
    assert!(until(&world, &mut [&mut a, &mut r], |nodes| nodes[1].is_done(directed)), "{}", r.ep.describe());
}

#[test]
fn a_receive_for_a_claimed_name_gets_a_message_without_credit() {
    let world = world();
    let hosts = vec![ip(2), ip(3)];
    let mut a = open_node(&world, &Options { hosts, ..Options::at(addr(2, 1000)) });
    let mut r = narrow(&world);
    let (to_r, to_a) = (a.know(r.addr()), r.know(a.addr()));
    fill(&world, &mut a, &mut r, to_r);
    let directed = r.receive(to_a, WANTED, 1000);
    assert!(until(&world, &mut [&mut a, &mut r], |nodes| nodes[1].is_done(directed)), "{}", r.ep.describe());
}

#[test]
fn a_send_behind_a_cancelled_one_is_sent() {
    let world = world();
    let (mut a, mut r) = (peer(&world, 2), narrow(&world));
    let to_r = a.know(r.addr());
    // Long messages: the remaining credit fits a short message, but not another long one.
    let last = (0..100).find_map(|_| {
        let context = a.send(to_r, UNWANTED, vec![1; 30_000]);
        steps(&world, &mut [&mut a, &mut r]);
        (!a.is_done(context)).then_some(context)
    });
    let last = last.expect("the credit has an end");
    let short = a.send(to_r, UNWANTED, vec![1; 8]);
    steps(&world, &mut [&mut a, &mut r]);
    assert!(!a.is_done(short), "the short message overtook");
    a.ep.cancel(last);
    assert_eq!(a.ep.unfinished(), None);
    assert!(until(&world, &mut [&mut a, &mut r], |nodes| nodes[0].is_done(short)));
}

#[test]
fn a_peek_finds_a_message_behind_others() {
    let world = world();
    let (mut a, mut r) = (peer(&world, 2), narrow(&world));
    let to_r = a.know(r.addr());
    fill(&world, &mut a, &mut r, to_r);
    let found = (0..100).any(|_| {
        let look = r.post_receive(Receive::new(0).tagged(WANTED).flags(OpFlags::PEEK));
        steps(&world, &mut [&mut a, &mut r]);
        r.is_done(look)
    });
    assert!(found, "{}", r.ep.describe());
}

#[test]
fn received_messages_give_their_peer_credit_for_its_next_one() {
    let world = world();
    let (mut a, mut flooder, idle) = (peer(&world, 2), peer(&world, 3), peer(&world, 4));
    let mut r = narrow(&world);
    let (to_r, from_a) = (a.know(r.addr()), r.know(a.addr()));
    // The link still has credit, so a receive from any source keeps waiting.
    let mut idle = idle;
    let idle_to_r = idle.know(r.addr());
    let hello = r.receive(FiAddr::UNSPEC, 7, 8);
    idle.send(idle_to_r, 7, vec![1; 8]);
    assert!(until(&world, &mut [&mut idle, &mut r], |nodes| nodes[1].is_done(hello)));
    let wanted = r.receive(FiAddr::UNSPEC, WANTED, 1000);
    // The flooder fills the memory: it gets credit because its next message may match the receive.
    let flooder_to_r = flooder.know(r.addr());
    let is_full = (0..10_000).any(|_| {
        let context = flooder.send(flooder_to_r, UNWANTED, vec![1; 1000]);
        steps(&world, &mut [&mut flooder, &mut r]);
        !flooder.is_done(context)
    });
    assert!(is_full);
    fill(&world, &mut a, &mut r, to_r);
    assert!(r.outcome(wanted).is_none(), "{:?}", r.outcome(wanted));
    for _ in 0..3 {
        let taken = r.receive(from_a, UNWANTED, 1000);
        assert!(until(&world, &mut [&mut a, &mut r], |nodes| nodes[1].is_done(taken)));
    }
    assert!(until(&world, &mut [&mut a, &mut r], |nodes| nodes[1].is_done(wanted)), "{}", r.ep.describe());
}

#[test]
fn fences_that_no_sender_waits_for_cost_the_link() {
    let world = world();
    let mut r = narrow(&world);
    let mut raw = Raw::connect(&world, ip(66), addr(1, 1000));
    raw.hello(&connect_hello(Addr::from(addr(66, 2000)), [7; 16]));
    let info = |tag, fenced| MessageInfo { tag: Some(tag), data: None, ack: AckMode::Match, fenced, group: false };
    for _ in 0..40 {
        r.receive(FiAddr::UNSPEC, WANTED, 8);
    }
    raw.send();
    steps(&world, &mut [&mut r]);
    let mut received = raw.read();
    raw.frame(&Frame::Eager { id: 0, info: info(UNWANTED, false) }, &[]);
    (1..40).for_each(|id| raw.frame(&Frame::Eager { id, info: info(WANTED, true) }, &[]));
    for _ in 0..50 {
        raw.send();
        steps(&world, &mut [&mut r]);
        received.extend(raw.read());
        if received.contains(&Received::End) {
            break;
        }
    }
    assert!(matches!(&received[0], Received::Hello(hello) if hello.handshake == Handshake::Accept), "{received:?}");
    assert!(received.contains(&Received::End));
}

#[test]
fn arrivals_are_acknowledged_however_busy_other_peers_are() {
    let world = world();
    let (mut a, mut r) = (peer(&world, 2), narrow(&world));
    let to_r = a.know(r.addr());
    let mut raw = Raw::connect(&world, ip(66), addr(1, 1000));
    raw.hello(&connect_hello(Addr::from(addr(66, 2000)), [7; 16]));
    raw.send();
    steps(&world, &mut [&mut a, &mut r]);
    let sent = a
        .try_post(Message::new(to_r, vec![1; 8]).tagged(UNWANTED).flags(OpFlags::TRANSMIT_COMPLETE))
        .expect("few are outstanding");
    let mut rounds = 0;
    while !a.is_done(sent) {
        rounds += 1;
        assert!(rounds < 100, "{}", a.ep.describe());
        a.progress();
        // Every poll of the receiver finds a frame.
        (0..20).for_each(|_| {
            raw.frame(&Frame::Blocked { bytes: 1 }, &[]);
            raw.send();
            assert_eq!(r.cq.read(1, |_| ()).err(), Some(ofi_core::Errno::AGAIN));
            raw.read();
        });
        world.advance(Duration::from_micros(5));
    }
}

#[test]
fn a_read_that_finds_nothing_acknowledges_arrivals() {
    let world = world();
    let (mut a, mut r) = (peer(&world, 2), narrow(&world));
    let to_r = a.know(r.addr());
    let to_a = r.know(a.addr());
    ofi_rig::ping_pong(&world, &mut a, &mut r, to_r, to_a);
    let sent = a
        .try_post(Message::new(to_r, vec![1; 8]).tagged(UNWANTED).flags(OpFlags::TRANSMIT_COMPLETE))
        .expect("few are outstanding");
    steps(&world, &mut [&mut a]);
    // One read receives the message but finds no entry; then the reader stops.
    let mut reads = 0;
    while !r.ep.describe().contains("unexpected message") {
        reads += 1;
        assert!(reads < 10_000, "the message does not arrive");
        assert_eq!(r.cq.read(1, |_| ()).err(), Some(ofi_core::Errno::AGAIN));
        world.advance(Duration::from_micros(5));
    }
    assert!(until(&world, &mut [&mut a], |nodes| nodes[0].is_done(sent)), "{}", r.ep.describe());
}

/// What a peer is granted once it has used up its credit, what it has used, and its first grant.
/// `wanted`: a receive takes each of its messages.
fn use_up(wanted: bool) -> (u64, u64, u64) {
    const LEN: usize = 100 << 10;
    let world = world();
    let mut r = peer(&world, 1);
    let mut raw = Raw::connect(&world, ip(66), addr(1, 1000));
    raw.hello(&connect_hello(Addr::from(addr(66, 2000)), [7; 16]));
    raw.send();
    steps(&world, &mut [&mut r]);
    let window = match &raw.read()[..] {
        [Received::Hello(hello)] => hello.credits.bytes,
        other => panic!("{other:?}"),
    };
    let (cost, ack) = (LEN as u64 + 128, AckMode::No);
    let info = MessageInfo { tag: Some(WANTED), data: None, ack, fenced: false, group: false };
    let (mut used, mut id, mut granted) = (0, 0, 0);
    let mut pass = |raw: &mut Raw, r: &mut Node| {
        let mut is_behind = true;
        while is_behind {
            raw.send();
            is_behind = raw.is_behind();
            steps(&world, &mut [r]);
            let credit = |one| if let Received::Frame(Frame::Credit { bytes }, _) = one { bytes } else { 0 };
            granted += raw.read().into_iter().map(credit).sum::<u64>();
        }
    };
    while used + cost <= window {
        if wanted {
            r.receive(FiAddr::UNSPEC, WANTED, LEN);
        }
        raw.frame(&Frame::Eager { id, info }, &[1; LEN]);
        (used, id) = (used + cost, id + 1);
        pass(&mut raw, &mut r);
    }
    raw.frame(&Frame::Blocked { bytes: cost }, &[]);
    pass(&mut raw, &mut r);
    (granted, used, window)
}

#[test]
fn a_peer_whose_messages_are_received_as_they_arrive_may_have_twice_as_many_under_way() {
    let (granted, used, window) = use_up(true);
    assert_eq!(granted, used + window);
}

#[test]
fn a_peer_whose_messages_wait_has_no_more_under_way() {
    let (granted, _, _) = use_up(false);
    assert_eq!(granted, 0);
}
