//! Peer identity. An attacker on another host claims names of others; it must not receive,
//! complete or break operations of other peers. A host with several addresses is recognized by each
//! of them.

use ofi_core::{Addr, FiAddr, OpFlags};
use ofi_engine::endpoint::OVERHEAD;
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_engine::wire::hello::{Handshake, Hello};
use ofi_rig::{Message, ping_pong, until};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Door, Raw, Received, connect_hello};
use ofi_sim::{Faults, World};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The hosts of the target, of the owner of the claimed name, and of the liar.
const TARGET: u8 = 1;
const OWNER: u8 = 2;
const LIAR: u8 = 66;

fn world() -> World {
    World::new(4, Faults { stall: 0, split: false })
}

fn target(world: &World) -> Node {
    open_node(world, &Options::at(addr(TARGET, 1000)))
}

fn owner(world: &World) -> Node {
    open_node(world, &Options::at(addr(OWNER, 1000)))
}

/// An unsolicited message.
const fn message(tag: u64) -> Frame {
    Frame::Eager {
        id: 0,
        info: MessageInfo { tag: Some(tag), data: None, ack: AckMode::No, fenced: false, group: false },
    }
}

fn steps(world: &World, nodes: &mut [&mut Node]) {
    until(world, nodes, {
        let mut left = 100;
        move |_| {
            left -= 1;
            left == 0
        }
    });
}

/// Connects a liar to the target under the owner's name; returns the target's answer too.
fn lie(world: &World, target: &mut Node, change: impl FnOnce(&mut Hello)) -> (Raw, Option<Hello>) {
    let mut raw = Raw::connect(world, ip(LIAR), addr(TARGET, 1000));
    let mut hello = connect_hello(Addr::from(addr(OWNER, 1000)), [0xff; 16]);
    change(&mut hello);
    raw.hello(&hello);
    assert!(raw.send());
    steps(world, &mut [target]);
    let answer = raw.read().into_iter().find_map(|received| match received {
        Received::Hello(hello) => Some(*hello),
        _ => None,
    });
    (raw, answer)
}

fn received_messages(raw: &mut Raw) -> usize {
    raw.read()
        .iter()
        .filter(|received| matches!(received, Received::Frame(Frame::Eager { .. } | Frame::Rts { .. }, _)))
        .count()
}

#[test]
fn messages_go_to_the_owner_of_a_name_and_not_to_a_claimant() {
    let world = world();
    let (mut target, mut owner) = (target(&world), owner(&world));
    let (to_owner, to_target) = (target.know(owner.addr()), owner.know(target.addr()));
    let (mut liar, answer) = lie(&world, &mut target, |_| ());
    assert_eq!(answer.map(|answer| answer.handshake), Some(Handshake::Accept), "it is accepted, without a source");
    let receive = owner.receive(FiAddr::UNSPEC, 5, 8);
    let sent = target.send(to_owner, 5, vec![1; 8]);
    assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[1].is_done(receive) && nodes[0].is_done(sent)));
    assert_eq!(received_messages(&mut liar), 0);
    // The owner's own link still works.
    ping_pong(&world, &mut target, &mut owner, to_owner, to_target);
    assert_eq!(received_messages(&mut liar), 0);
}

#[test]
fn messages_of_a_liar_have_no_source() {
    let world = world();
    let (mut target, owner) = (target(&world), owner(&world));
    let to_owner = target.know(owner.addr());
    let (mut liar, _) = lie(&world, &mut target, |_| ());
    let (from_owner, from_any) = (target.receive(to_owner, 5, 8), target.receive(FiAddr::UNSPEC, 6, 8));
    liar.frame(&message(5), &[1; 8]);
    liar.frame(&message(6), &[1; 8]);
    liar.send();
    assert!(until(&world, &mut [&mut target], |nodes| nodes[0].is_done(from_any)));
    assert!(target.outcome(from_owner).is_none(), "it is not from the owner");
    let Some(Ok(done)) = target.outcome(from_any) else { unreachable!() };
    assert_eq!(done.src, FiAddr::UNSPEC);
    // The end of the liar's link does not fail the receive from the owner either.
    drop(liar);
    steps(&world, &mut [&mut target]);
    assert!(target.outcome(from_owner).is_none());
}

#[test]
fn a_link_that_exists_is_not_broken_by_a_claim() {
    let world = world();
    let (mut target, mut owner) = (target(&world), owner(&world));
    let (to_owner, to_target) = (target.know(owner.addr()), owner.know(target.addr()));
    ping_pong(&world, &mut target, &mut owner, to_owner, to_target);
    let waits = target.receive(to_owner, 9, 8);
    // As if the owner had restarted, and as if it reconnected, with the nonce that all peers know.
    let nonce = Options::at(addr(OWNER, 1000)).nonce;
    for lied in [[0xff; 16], nonce] {
        let (mut liar, _) = lie(&world, &mut target, |hello| (hello.nonce, hello.attempt) = (lied, u64::MAX));
        assert!(target.outcome(waits).is_none());
        ping_pong(&world, &mut target, &mut owner, to_owner, to_target);
        assert_eq!(received_messages(&mut liar), 0);
    }
    owner.send(to_target, 9, vec![3; 8]);
    assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[0].is_done(waits)));
}

#[test]
fn a_crossing_connect_is_not_won_by_a_claim() {
    let world = world();
    let (mut target, mut owner) = (target(&world), owner(&world));
    let to_owner = target.know(owner.addr());
    // The target is connecting when the liar's connect request, with the largest nonce, arrives.
    let sent = target.send(to_owner, 5, vec![1; 8]);
    let (mut liar, _) = lie(&world, &mut target, |_| ());
    let receive = owner.receive(FiAddr::UNSPEC, 5, 8);
    assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[1].is_done(receive) && nodes[0].is_done(sent)));
    assert_eq!(received_messages(&mut liar), 0);
}

#[test]
fn the_nonce_of_the_endpoint_proves_nothing() {
    let world = world();
    let mut target = target(&world);
    // The answer to any connect request reveals the nonce.
    let (_first, answer) = lie(&world, &mut target, |_| ());
    let answer = answer.expect("an answer");
    for name in [addr(OWNER, 1000), addr(TARGET, 1000), addr(LIAR, 1000)] {
        let (_liar, answer) = lie(&world, &mut target, |hello| {
            (hello.nonce, hello.cookie, hello.name) = (answer.nonce, answer.cookie, Some(Addr::from(name)));
        });
        assert_eq!(answer.map(|answer| answer.handshake), Some(Handshake::Refuse));
    }
    // The endpoint can still connect to itself.
    let to_self = target.know(target.addr());
    let receive = target.receive(to_self, 5, 8);
    let sent = target.send(to_self, 5, vec![1; 8]);
    assert!(until(&world, &mut [&mut target], |nodes| nodes[0].is_done(receive) && nodes[0].is_done(sent)));
}

#[test]
fn a_peer_on_the_owners_host_is_the_owner_by_the_rule() {
    let world = world();
    let mut target = target(&world);
    let name = target.know(addr(OWNER, 1000));
    let mut raw = Raw::connect(&world, ip(OWNER), addr(TARGET, 1000));
    raw.hello(&connect_hello(Addr::from(addr(OWNER, 1000)), [1; 16]));
    raw.send();
    steps(&world, &mut [&mut target]);
    let sent = target.send(name, 5, vec![1; 8]);
    assert!(until(&world, &mut [&mut target], |nodes| nodes[0].is_done(sent)));
    assert_eq!(received_messages(&mut raw), 1);
}

/// A host with two addresses: it advertises one and connects from the other.
fn multi_homed(world: &World, from: u8) -> Node {
    open_node(world, &Options { hosts: vec![ip(OWNER), ip(from)], ..Options::at(addr(OWNER, 1000)) })
}

#[test]
fn a_host_with_several_addresses_is_recognized_once_verified() {
    [true, false].into_iter().for_each(several_addresses);
}

fn several_addresses(by_sending: bool) {
    let world = world();
    let (mut target, mut owner) = (target(&world), multi_homed(&world, 3));
    assert_eq!(owner.addr(), Addr::from(addr(OWNER, 1000)));
    let (to_owner, to_target) = (target.know(owner.addr()), owner.know(target.addr()));
    let any = target.receive(FiAddr::UNSPEC, 6, 8);
    owner.send(to_target, 5, vec![1; 8]);
    owner.send(to_target, 6, vec![1; 8]);
    assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[0].is_done(any)));
    let Some(Ok(done)) = target.outcome(any) else { unreachable!() };
    assert_eq!(done.src, FiAddr::UNSPEC, "the claim is not proven");
    if by_sending {
        // To send, the target asks the owner; the owner's earlier messages then have their source.
        let receive = owner.receive(to_target, 7, 8);
        target.send(to_owner, 7, vec![1; 8]);
        assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[1].is_done(receive)));
    }
    // A receive that only the owner can fill makes the target ask, too.
    let named = target.receive(to_owner, 5, 8);
    let done = until(&world, &mut [&mut target, &mut owner], |nodes| nodes[0].is_done(named));
    assert!(done, "{}\n{}", target.ep.describe(), owner.ep.describe());
    let Some(Ok(done)) = target.outcome(named) else { unreachable!() };
    assert_eq!(done.src, to_owner);
    ping_pong(&world, &mut target, &mut owner, to_owner, to_target);
    assert_eq!(target.ep.describe().matches("\nlink ").count() + owner.ep.describe().matches("\nlink ").count(), 2);
}

#[test]
fn a_host_with_several_addresses_reconnects_from_any_of_them() {
    let world = world();
    let mut target = target(&world);
    let mut one = owner(&world);
    let (to_owner, to_target) = (target.know(one.addr()), one.know(target.addr()));
    ping_pong(&world, &mut target, &mut one, to_owner, to_target);
    // It restarts with other routes: it connects from its second address.
    one.ep.close();
    drop(one);
    let mut owner = multi_homed(&world, 3);
    let to_target = owner.know(target.addr());
    for _ in 0..2 {
        let any = target.receive(FiAddr::UNSPEC, 6, 8);
        owner.send(to_target, 6, vec![1; 8]);
        assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[0].is_done(any)));
        ping_pong(&world, &mut target, &mut owner, to_owner, to_target);
        // Its connections break, and it connects again.
        world.break_connections();
        steps(&world, &mut [&mut target, &mut owner]);
    }
    assert_eq!(owner.ep.local_addr().map(|addr| addr.to_string()), Ok(Addr::from(addr(OWNER, 1000)).to_string()));
}

#[test]
fn crossing_connects_of_a_host_with_several_addresses_take_no_second() {
    for (host, nonce) in [(3, [0; 16]), (4, [0xff; 16])] {
        let world = world();
        let mut target = target(&world);
        let options = Options { hosts: vec![ip(OWNER), ip(host)], nonce, ..Options::at(addr(OWNER, 1000)) };
        let mut owner = open_node(&world, &options);
        let (to_owner, to_target) = (target.know(owner.addr()), owner.know(target.addr()));
        let start = world.now();
        ping_pong(&world, &mut target, &mut owner, to_owner, to_target);
        assert!(
            world.now().since(start) < Duration::from_millis(500),
            "the side that waits for the other asks at once"
        );
    }
}

#[test]
fn a_posted_receive_triggers_verification() {
    let world = world();
    let (mut target, mut owner) = (target(&world), multi_homed(&world, 3));
    let (to_owner, to_target) = (target.know(owner.addr()), owner.know(target.addr()));
    let named = target.receive(to_owner, 5, 8);
    owner.send(to_target, 5, vec![1; 8]);
    assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[0].is_done(named)));
    ping_pong(&world, &mut target, &mut owner, to_owner, to_target);
    assert_eq!(target.ep.describe().matches("\nlink ").count() + owner.ep.describe().matches("\nlink ").count(), 2);
}

#[test]
fn a_claim_fails_no_receive_for_an_owner_that_has_yet_to_come() {
    let world = world();
    let mut target = target(&world);
    let to_owner = target.know(addr(OWNER, 1000));
    let named = target.receive(to_owner, 5, 8);
    for _ in 0..5 {
        let (_liar, _) = lie(&world, &mut target, |_| ());
        assert!(target.outcome(named).is_none(), "{:?}", target.outcome(named));
    }
    let mut owner = owner(&world);
    let to_target = owner.know(target.addr());
    owner.send(to_target, 5, vec![1; 8]);
    assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[0].is_done(named)));
}

#[test]
fn a_connection_that_the_owner_made_to_a_liar_proves_nothing_to_others() {
    let world = world();
    let (mut target, mut owner) = (target(&world), owner(&world));
    let to_owner = target.know(owner.addr());
    let to_target = owner.know(target.addr());
    // The owner connects to the liar as to any other peer, which reveals its nonce and cookie.
    let mut door = Door::open(&world, addr(LIAR, 5));
    let to_liar = owner.know(addr(LIAR, 5));
    owner.send(to_liar, 1, vec![1; 8]);
    steps(&world, &mut [&mut owner]);
    let mut raw = door.accept(&world).expect("the owner connects");
    let Some(Received::Hello(request)) = raw.read().into_iter().next() else { panic!("it says hello") };
    raw.hello(&Hello { handshake: Handshake::Accept, nonce: target_nonce(), ..*request.clone() });
    raw.send();
    steps(&world, &mut [&mut owner]);
    let (mut liar, answer) = lie(&world, &mut target, |hello| {
        (hello.nonce, hello.cookie) = (request.nonce, request.cookie);
    });
    assert_eq!(answer.map(|answer| answer.handshake), Some(Handshake::Accept), "it is accepted, without a source");
    let named = target.receive(to_owner, 5, 8);
    liar.frame(&message(5), &[6; 8]);
    liar.send();
    let receive = owner.receive(to_target, 5, 8);
    let sent = target.send(to_owner, 5, vec![1; 8]);
    assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[1].is_done(receive) && nodes[0].is_done(sent)));
    assert_eq!(received_messages(&mut liar), 0);
    assert!(target.outcome(named).is_none(), "it is not from the owner");
    ping_pong(&world, &mut target, &mut owner, to_owner, to_target);
}

fn target_nonce() -> [u8; 16] {
    Options::at(addr(TARGET, 1000)).nonce
}

#[test]
fn a_false_claim_beside_a_true_one_breaks_nothing() {
    for liar_first in [true, false] {
        let world = world();
        let (mut target, mut owner) = (target(&world), multi_homed(&world, 3));
        let (to_owner, to_target) = (target.know(owner.addr()), owner.know(target.addr()));
        let mut liars = Vec::new();
        if liar_first {
            liars.push(lie(&world, &mut target, |_| ()).0);
        }
        let any = target.receive(FiAddr::UNSPEC, 6, 8);
        let waits = owner.receive(to_target, 9, 8);
        owner.send(to_target, 6, vec![1; 8]);
        assert!(until(&world, &mut [&mut target, &mut owner], |nodes| nodes[0].is_done(any)));
        if !liar_first {
            liars.push(lie(&world, &mut target, |_| ()).0);
        }
        target.send(to_owner, 9, vec![1; 8]);
        let done = until(&world, &mut [&mut target, &mut owner], |nodes| nodes[1].outcome(waits).is_some());
        assert!(done && owner.is_done(waits), "{:?}", owner.outcome(waits));
        assert_eq!(owner.ep.describe().matches("\nlink ").count(), 1, "its connection is the one that is used");
        assert!(liars.iter_mut().all(|liar| received_messages(liar) == 0));
    }
}

#[test]
fn repeated_claims_delay_no_send() {
    let world = world();
    let (mut target, mut owner) = (target(&world), owner(&world));
    let (to_owner, to_target) = (target.know(owner.addr()), owner.know(target.addr()));
    let receive = owner.receive(to_target, 5, 8);
    let mut liars = vec![lie(&world, &mut target, |_| ()).0];
    for round in 0..250 {
        if round == 50 {
            // From now on claims arrive one by one.
            target.send(to_owner, 5, vec![1; 8]);
        }
        // One claim per step, from each of 50 hosts in turn.
        let mut raw = Raw::connect(&world, ip(LIAR + round % 50), addr(TARGET, 1000));
        raw.hello(&connect_hello(Addr::from(addr(OWNER, 1000)), [0xff; 16]));
        liars.push(raw);
        assert!(liars.iter_mut().rev().take(3).all(Raw::send));
        target.progress();
        // The owner answers slowly, so that new claims arrive with every answer.
        if round % 10 == 0 {
            owner.progress();
        }
        world.advance(Duration::from_micros(50));
    }
    assert!(owner.is_done(receive), "{}", target.ep.describe());
}

#[test]
fn closing_sends_a_message_that_waits_behind_a_false_claim() {
    let world = world();
    let (mut target, mut owner) = (target(&world), owner(&world));
    let (to_owner, to_target) = (target.know(owner.addr()), owner.know(target.addr()));
    let receive = owner.receive(to_target, 5, 8);
    let (_liar, _) = lie(&world, &mut target, |_| ());
    target.try_post(Message::new(to_owner, vec![1; 8]).tagged(5).flags(OpFlags::INJECT)).expect("few are outstanding");
    let owner = Arc::new(Mutex::new(owner));
    let other = owner.clone();
    world.meanwhile(move || {
        other.lock().unwrap().progress();
    });
    target.ep.close();
    let mut owner = owner.lock().unwrap();
    assert!(until(&world, &mut [&mut owner], |nodes| nodes[0].is_done(receive)));
}

#[test]
fn a_claim_to_an_unowned_name_delays_nothing() {
    let world = world();
    let mut target = target(&world);
    let to_owner = target.know(addr(OWNER, 1000));
    let (_liar, _) = lie(&world, &mut target, |_| ());
    let sent = target.send(to_owner, 5, vec![1; 8]);
    assert!(until(&world, &mut [&mut target], |nodes| nodes[0].outcome(sent).is_some()));
    assert!(target.outcome(sent).is_some_and(Result::is_err), "no endpoint has the name");
}

/// Messages of an unproven link are charged like others, and freed with the link.
#[test]
fn claims_are_charged_as_any_other_link() {
    let world = world();
    let mut target = open_node(&world, &Options { limit: 4 << 20, ..Options::at(addr(TARGET, 1000)) });
    for round in 0..200u16 {
        let (mut liar, answer) =
            lie(&world, &mut target, |hello| hello.name = Some(Addr::from(addr(OWNER, 2000 + round))));
        let Some(answer) = answer.filter(|answer| answer.handshake == Handshake::Accept) else { continue };
        let count = answer.credits.bytes / (1000 + OVERHEAD);
        (0..count).for_each(|_| liar.frame(&message(5), &[1; 1000]));
        for _ in 0..100 {
            liar.send();
            steps(&world, &mut [&mut target]);
            if !liar.is_behind() {
                break;
            }
        }
        drop(liar);
        steps(&world, &mut [&mut target]);
        assert!(target.account.used() <= (4 << 20) + (100 << 10), "{}", target.ep.describe());
    }
}
