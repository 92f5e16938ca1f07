//! Peers that take as much memory as they can get: a ping-pong with another peer must go on, and
//! the memory that the endpoint holds for its peers must stay within its limit.

use ofi_core::{Addr, Errno, FiAddr, OpFlags};
use ofi_engine::endpoint::{GUARANTEED, OVERHEAD};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_engine::wire::hello::Handshake;
use ofi_rig::{Message, ping_pong, until};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, Received, connect_hello};
use ofi_sim::{Faults, World};
use std::time::Duration;

const LIMIT: usize = 16 << 20;

fn world(seed: u64) -> World {
    World::new(seed, Faults { stall: 0, split: seed % 2 == 1 })
}

/// The flooded endpoint, a well-behaved peer, and their handles for each other.
struct Scene {
    world: World,
    victim: Node,
    friend: Node,
    to_friend: FiAddr,
    to_victim: FiAddr,
}

impl Scene {
    fn new(seed: u64, limit: usize) -> Self {
        let world = world(seed);
        let victim = open_node(&world, &Options { limit, ..Options::at(addr(1, 1000)) });
        let friend = open_node(&world, &Options::at(addr(2, 1000)));
        let (to_friend, to_victim) = (victim.know(friend.addr()), friend.know(victim.addr()));
        let mut scene = Self { world, victim, friend, to_friend, to_victim };
        scene.ping_pong();
        scene
    }

    fn ping_pong(&mut self) {
        ping_pong(&self.world, &mut self.victim, &mut self.friend, self.to_friend, self.to_victim);
    }

    /// Makes progress on the victim alone.
    fn step(&mut self) {
        self.world.advance(Duration::from_micros(20));
        self.victim.progress();
    }

    fn flooder(&self, port: u16, nonce: u8) -> Raw {
        let mut raw = Raw::connect(&self.world, ip(66), addr(1, 1000));
        raw.hello(&connect_hello(Addr::from(addr(66, port)), [nonce; 16]));
        raw
    }

    /// Whether the victim uses at most its limit plus the guarantee of each link.
    fn is_within(&self, links: u64) -> bool {
        self.victim.account.used() as u64 <= self.victim.account.limit() as u64 + links * GUARANTEED
    }
}

fn is_accepted(raw: &mut Raw) -> bool {
    matches!(&raw.read()[..], [Received::Hello(hello), ..] if hello.handshake == Handshake::Accept)
}

const fn unwanted(ack: AckMode) -> Frame {
    Frame::Eager { id: 0, info: MessageInfo { tag: Some(77), data: None, ack, fenced: false, group: false } }
}

/// Sends until the credit is used up; returns the handshake's answer and the number of messages.
fn fill(scene: &mut Scene, raw: &mut Raw, payload: &[u8]) -> (Option<Handshake>, u64) {
    let mut credit = 0;
    let (mut handshake, mut count) = (None, 0);
    for _ in 0..200 {
        raw.send();
        scene.step();
        for received in raw.read() {
            match received {
                Received::Hello(hello) => (handshake, credit) = (Some(hello.handshake), hello.credits.bytes),
                Received::Frame(Frame::Credit { bytes }, _) => credit += bytes,
                Received::Frame(..) => {}
                Received::End => return (handshake, count),
            }
        }
        let cost = payload.len() as u64 + OVERHEAD;
        while credit >= cost && !raw.is_behind() {
            raw.frame(&unwanted(AckMode::No), payload);
            raw.send();
            credit -= cost;
            count += 1;
        }
        if handshake.is_some() && credit < cost && !raw.is_behind() {
            break;
        }
    }
    (0..20).for_each(|_| scene.step());
    (handshake, count)
}

#[test]
fn reconnecting_renews_no_credit() {
    for seed in 0..4 {
        let mut scene = Scene::new(seed, LIMIT);
        for round in 0..400u16 {
            let mut raw = scene.flooder(2000 + round, 7);
            let (handshake, _) = fill(&mut scene, &mut raw, &[7; 30 << 10]);
            assert_eq!(handshake, Some(Handshake::Accept), "round {round}: a new peer is accepted");
            drop(raw);
            scene.step();
            assert!(scene.is_within(2), "round {round}: {}", scene.victim.ep.describe());
        }
        scene.ping_pong();
        assert!(scene.victim.account.used() > LIMIT / 2, "messages were kept while there was room");
    }
}

#[test]
fn messages_of_closed_peers_are_kept_and_new_peers_are_refused_with_a_reason() {
    let mut scene = Scene::new(0, LIMIT);
    let (mut kept, mut refused) = (0, false);
    for round in 0..1000u16 {
        let mut raw = scene.flooder(2000 + round, 7);
        let (handshake, count) = fill(&mut scene, &mut raw, &[7; 30 << 10]);
        if handshake == Some(Handshake::Refuse) {
            refused = true;
            break;
        }
        kept += count;
        raw.frame(&Frame::Bye, &[]);
        raw.send();
        scene.step();
        drop(raw);
        scene.step();
        assert!(scene.is_within(2));
    }
    assert!(refused, "{} bytes are held", scene.victim.account.used());
    scene.ping_pong();
    // All messages can still be received, which makes room again.
    for number in 0..kept {
        let receive = scene.victim.receive(FiAddr::UNSPEC, 77, 30 << 10);
        scene.victim.progress();
        assert!(scene.victim.is_done(receive), "message {number} of {kept}");
    }
    let mut raw = scene.flooder(900, 7);
    assert_eq!(fill(&mut scene, &mut raw, &[]).0, Some(Handshake::Accept));
}

#[test]
fn a_flood_of_empty_messages_ends_at_the_limit_and_starves_no_peer() {
    let mut scene = Scene::new(1, LIMIT);
    // Receives whose tags the flooder does not send.
    scene.victim.receive(FiAddr::UNSPEC, 1, 8);
    let directed = scene.victim.receive(scene.to_friend, 2, 8);
    let mut raw = scene.flooder(2000, 7);
    let mut total = 0;
    let (handshake, count) = fill(&mut scene, &mut raw, &[]);
    assert_eq!(handshake, Some(Handshake::Accept));
    total += count;
    // It reports that it is blocked, and gets more credit as long as there is room.
    loop {
        raw.frame(&Frame::Blocked { bytes: OVERHEAD }, &[]);
        let mut credit = 0;
        for _ in 0..50 {
            raw.send();
            scene.step();
            credit += raw
                .read()
                .iter()
                .map(|received| if let Received::Frame(Frame::Credit { bytes }, _) = received { *bytes } else { 0 })
                .sum::<u64>();
        }
        if credit < OVERHEAD {
            break;
        }
        for _ in 0..credit / OVERHEAD {
            raw.frame(&unwanted(AckMode::No), &[]);
            total += 1;
        }
        while raw.is_behind() {
            assert!(raw.send(), "it stays within its credit");
            scene.step();
        }
        assert!(scene.is_within(2));
    }
    assert!(total >= LIMIT as u64 / OVERHEAD * 95 / 100, "{total} messages");
    scene.ping_pong();
    // The receives stay posted for other peers.
    assert!(scene.victim.outcome(directed).is_none());
    scene.friend.send(scene.to_victim, 2, vec![1; 8]);
    assert!(until(&scene.world, &mut [&mut scene.victim, &mut scene.friend], |nodes| nodes[0].is_done(directed)));
}

#[test]
fn a_peer_that_does_not_read_costs_at_most_its_credit() {
    for ack in [AckMode::Delivery, AckMode::Match] {
        let mut scene = Scene::new(2, LIMIT);
        let mut raw = scene.flooder(2000, 7);
        raw.send();
        (0..5).for_each(|_| scene.step());
        // Up to a million messages that each require an acknowledgment, sent without reading.
        let mut sent = 0u32;
        let ended = loop {
            for _ in 0..100 {
                raw.frame(&unwanted(ack), &[]);
                sent += 1;
            }
            let open = raw.send();
            // The application receives them as they arrive.
            (0..100).for_each(|_| assert!(scene.victim.receive(FiAddr::UNSPEC, 77, 0) > 0));
            scene.step();
            if !open || sent >= 1_000_000 {
                break !open;
            }
        };
        assert!(ended, "{ack:?}: it sent {sent} messages: {}", scene.victim.ep.describe());
        assert!(sent < 100_000, "{ack:?}: it sent {sent} messages, more than its credit and the network allow");
        scene.ping_pong();
    }
}

#[test]
fn output_to_a_peer_that_does_not_read_is_bounded() {
    let mut scene = Scene::new(2, LIMIT);
    let mut raw = scene.flooder(2000, 7);
    raw.send();
    (0..40).for_each(|_| scene.step());
    let to = scene.victim.know(addr(66, 2000));
    // The peer granted a gigabyte of credit; the endpoint must keep injected bytes.
    let mut sent = 0;
    while scene.victim.try_post(Message::new(to, vec![1; 4000]).tagged(1).flags(OpFlags::INJECT)).is_ok() {
        sent += 1;
        scene.step();
        assert!(sent < 10_000, "{}", scene.victim.ep.describe());
    }
    let before = scene.victim.account.used();
    // Once the peer reads, every message arrives.
    let mut got = 0;
    for _ in 0..20_000 {
        got += raw.read().iter().filter(|received| matches!(received, Received::Frame(Frame::Eager { .. }, _))).count();
        scene.step();
        if got == sent {
            break;
        }
    }
    assert_eq!(got, sent);
    assert!(scene.victim.account.used() < before, "the memory kept for it was not released");
    scene.ping_pong();
}

#[test]
fn silent_connections_block_no_new_peer() {
    let mut scene = Scene::new(0, LIMIT);
    let silent: Vec<Raw> = (0..3000).map(|_| Raw::connect(&scene.world, ip(66), addr(1, 1000))).collect();
    (0..40).for_each(|_| scene.step());
    let mut raw = scene.flooder(2000, 7);
    assert_eq!(fill(&mut scene, &mut raw, &[]).0, Some(Handshake::Accept));
    scene.ping_pong();
    assert!(scene.is_within(2));
    drop(silent);
    scene.step();
}

#[test]
fn silent_connections_give_way_when_memory_is_short_and_only_then() {
    let mut scene = Scene::new(0, 1 << 20);
    let mut silent: Vec<Raw> = (0..300).map(|_| Raw::connect(&scene.world, ip(66), addr(1, 1000))).collect();
    (0..40).for_each(|_| scene.step());
    // Some are accepted beyond the limit; the others wait in the backlog, which costs nothing.
    let used = scene.victim.account.used();
    assert!((1 << 20..(2 << 20) + (200 << 10)).contains(&used), "{used}");
    let ended = |peers: &mut [Raw]| {
        peers.iter_mut().map(|raw| raw.read().contains(&Received::End)).filter(|ended| *ended).count()
    };
    assert_eq!(ended(&mut silent), 0, "their peers may be busy");
    scene.world.advance(Duration::from_secs(11));
    // Each newcomer takes the place of a connection that has been silent for long.
    let mut late: Vec<Raw> = (0..100).map(|_| Raw::connect(&scene.world, ip(66), addr(1, 1000))).collect();
    (0..40).for_each(|_| scene.step());
    let gone = ended(&mut silent);
    assert!((100..=150).contains(&gone), "{gone} gave way");
    assert!(scene.victim.account.used() <= used + 8192);
    assert_eq!(ended(&mut late), 0);
    // A connection that was silent for long is accepted when it finally sends its hello.
    let last = silent.last_mut().expect("there are some");
    last.hello(&connect_hello(Addr::from(addr(66, 3000)), [8; 16]));
    last.send();
    (0..5).for_each(|_| scene.step());
    assert!(is_accepted(last));
    scene.ping_pong();
}

#[test]
fn garbage_costs_its_own_connection_alone() {
    let mut scene = Scene::new(0, LIMIT);
    let mut rng = fastrand::Rng::with_seed(5);
    for round in 0..500 {
        let mut raw = if round % 2 == 0 {
            Raw::connect(&scene.world, ip(66), addr(1, 1000))
        } else {
            scene.flooder(2000 + round, 7)
        };
        let mut bytes = vec![0; rng.usize(1..5000)];
        rng.fill(&mut bytes);
        raw.bytes(&bytes);
        raw.send();
        (0..3).for_each(|_| scene.step());
        if round % 50 == 0 {
            scene.ping_pong();
        }
    }
    scene.ping_pong();
    assert!(scene.is_within(500));
}

/// Twice a former fixed limit, all connected before the endpoint polls.
#[test]
fn connections_to_a_busy_endpoint_are_all_accepted() {
    let mut scene = Scene::new(0, 256 << 20);
    let mut peers: Vec<Raw> = (0..2048u16)
        .map(|number| {
            let mut raw = scene.flooder(3000 + number, 9);
            assert!(raw.send());
            raw
        })
        .collect();
    scene.world.advance(Duration::from_secs(4));
    (0..40).for_each(|_| scene.step());
    assert_eq!(peers.iter_mut().map(is_accepted).filter(|accepted| *accepted).count(), 2048);
    scene.ping_pong();
}

#[test]
fn expected_messages_arrive_behind_a_million_unexpected_ones() {
    let world = world(0);
    let mut receiver = open_node(&world, &Options::at(addr(1, 1000)));
    let mut sender = open_node(&world, &Options { tx_size: 4096, ..Options::at(addr(2, 1000)) });
    let to = sender.know(receiver.addr());
    let wanted = receiver.receive(FiAddr::UNSPEC, 2, 8);
    let mut sent = 0;
    let send = |sender: &mut Node, receiver: &mut Node, tag| {
        loop {
            match sender.try_post(Message::new(to, Vec::new()).tagged(tag)) {
                Ok(_) => return,
                Err(errno) => assert_eq!(errno, Errno::AGAIN),
            }
            sender.progress();
            receiver.progress();
            world.advance(Duration::from_micros(5));
        }
    };
    while sent < 1_000_000 {
        send(&mut sender, &mut receiver, 1);
        sent += 1;
    }
    send(&mut sender, &mut receiver, 2);
    assert!(until(&world, &mut [&mut receiver, &mut sender], |nodes| nodes[0].is_done(wanted)));
    assert!(receiver.account.used() <= 128 * 1_000_000 + (16 << 20), "{}", receiver.account.used());
}

#[test]
fn at_the_limit_the_receive_fails_with_the_reason() {
    for (len, limit) in [(0, 1 << 20), (40 << 10, 8 << 20)] {
        let world = world(3);
        let mut receiver = open_node(&world, &Options { limit, ..Options::at(addr(1, 1000)) });
        let mut sender = open_node(&world, &Options { tx_size: 1 << 16, ..Options::at(addr(2, 1000)) });
        let to = sender.know(receiver.addr());
        let wanted = receiver.receive(FiAddr::UNSPEC, 2, 8);
        let count = limit / (len + 128) + 2000;
        (0..count).for_each(|_| assert!(sender.send(to, 1, vec![1; len]) > 0));
        sender.send(to, 2, vec![2; 8]);
        assert!(until(&world, &mut [&mut receiver, &mut sender], |nodes| nodes[0].outcome(wanted).is_some()));
        let Some(Err(failure)) = receiver.outcome(wanted) else { panic!("it cannot have arrived") };
        assert_eq!(failure.errno, Errno::ENOBUFS);
        assert!(failure.text.contains("FI_OFI_PEER_MEMORY"), "{}", failure.text);
        assert!(receiver.account.used() <= limit);
        // A later receive fails as well instead of waiting. Receiving the stored messages makes
        // room for the rest.
        let again = receiver.receive(FiAddr::UNSPEC, 2, 8);
        assert!(until(&world, &mut [&mut receiver, &mut sender], |nodes| nodes[0].outcome(again).is_some()));
        assert!(matches!(receiver.outcome(again), Some(Err(failure)) if failure.errno == Errno::ENOBUFS));
        for number in 0..count {
            let receive = receiver.receive(FiAddr::UNSPEC, 1, len);
            let came = until(&world, &mut [&mut receiver, &mut sender], |nodes| nodes[0].is_done(receive));
            assert!(came, "message {number} of {count}: {}", receiver.ep.describe());
        }
        let last = receiver.receive(FiAddr::UNSPEC, 2, 8);
        assert!(until(&world, &mut [&mut receiver, &mut sender], |nodes| nodes[0].is_done(last)));
    }
}

/// Messages of no group that break the rules end their link, and leave neither a receive nor a
/// peer.
#[test]
fn strangers_with_messages_of_no_group_leave_nothing() {
    let mut scene = Scene::new(0, LIMIT);
    let held = |scene: &Scene| {
        let all = scene.victim.ep.describe();
        all.lines().filter(|line| line.starts_with("receive ") || line.starts_with("peer ")).count()
    };
    let before = held(&scene);
    for round in 0..100 {
        let mut raw = scene.flooder(2000 + round, 7);
        let accepted = (0..50).any(|_| {
            raw.send();
            scene.step();
            is_accepted(&mut raw)
        });
        assert!(accepted, "round {round}");
        let info = MessageInfo { tag: Some(3), data: Some(0), ack: AckMode::No, fenced: false, group: true };
        // Longer than any eager message.
        raw.begin_frame(&Frame::Eager { id: 0, info }, 300 << 10, &[7; 64]);
        raw.send();
        (0..5).for_each(|_| scene.step());
        assert!(raw.read().contains(&Received::End));
    }
    assert_eq!(held(&scene), before, "{}", scene.victim.ep.describe());
    scene.ping_pong();
}

/// What the endpoint remembers of lost messages, because the application was notified of them,
/// counts when new peers are refused.
#[test]
fn lost_messages_with_a_notice_keep_new_peers_out() {
    let world = world(0);
    let victim = open_node(&world, &Options { limit: 1 << 20, ..Options::at(addr(1, 1000)) });
    victim.ep.serve_legacy(Some(0x1000));
    let step = || {
        world.advance(Duration::from_micros(20));
        while victim.cq.read(64, |_| ()).is_ok() {}
    };
    let mut refused = false;
    for round in 0..300 {
        let mut raw = Raw::connect(&world, ip(66), addr(1, 1000));
        raw.hello(&connect_hello(Addr::from(addr(66, 2000 + round)), [7; 16]));
        raw.send();
        (0..5).for_each(|_| step());
        let answer = raw.read();
        if matches!(&answer[..], [Received::Hello(hello), ..] if hello.handshake == Handshake::Refuse) {
            refused = true;
            break;
        }
        let info = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };
        (0..64).for_each(|id| raw.frame(&Frame::Rts { id, len: 1 << 20, info }, &[]));
        raw.send();
        (0..5).for_each(|_| step());
        drop(raw);
        (0..5).for_each(|_| step());
        let used = victim.account.used() as u64;
        assert!(used <= (1 << 20) + GUARANTEED, "round {round}: {used} bytes are held");
    }
    assert!(refused, "{} bytes are held", victim.account.used());
}
