//! Messages keep their sender and their order when address vector handles change, and sends that
//! cannot be written fail or stay incomplete.

use ofi_core::{Caps, Errno, FiAddr, OpFlags};
use ofi_rig::{Receive, Side, ping_pong, until};
use ofi_sim::node::{Node, Options, addr, open_node};
use ofi_sim::wire::Wire;
use ofi_sim::{Faults, World};
use std::time::Duration;

fn open(world: &World, port: u16) -> Node {
    open_node(world, &Options::at(addr(1, port)))
}

#[test]
fn a_message_keeps_its_sender_when_its_handle_is_reused() {
    let world = World::new(1, Faults { stall: 0, split: false });
    let (mut a, mut c, mut r) = (open(&world, 1), open(&world, 2), open(&world, 3));
    let handle = r.know(a.addr());
    let (a_to_r, c_to_r) = (a.know(r.addr()), c.know(r.addr()));
    a.send(a_to_r, 1, vec![1; 8]);
    // Sent behind the first message: once it arrives, the first has arrived too.
    a.send(a_to_r, 2, vec![1; 8]);
    let behind = r.receive(FiAddr::UNSPEC, 2, 8);
    assert!(until(&world, &mut [&mut a, &mut r], |nodes| nodes[1].is_done(behind)));
    assert!(r.av.remove(handle));
    assert_eq!(r.know(c.addr()), handle);
    // A receive from C, though its handle was A's.
    let directed = r.receive(handle, 1, 100);
    c.send(c_to_r, 1, vec![2; 16]);
    assert!(until(&world, &mut [&mut a, &mut c, &mut r], |nodes| nodes[2].is_done(directed)));
    let got = r.outcome(directed).unwrap().as_ref().unwrap();
    assert_eq!((got.len, got.src), (16, handle));
    // A receive from any source gets A's message; A has no handle any more.
    let any = r.receive(FiAddr::UNSPEC, 1, 100);
    assert!(until(&world, &mut [&mut a, &mut c, &mut r], |nodes| nodes[2].is_done(any)));
    let got = r.outcome(any).unwrap().as_ref().unwrap();
    assert_eq!((got.len, got.src), (8, FiAddr::UNSPEC));
}

/// The RTS is matched while its sender has no handle. The sender gets one before the data arrives,
/// which changes nothing for this message (FI_SOURCE_ERR, fi_cq(3)).
#[test]
fn a_receive_reports_its_sender_as_it_was_when_it_matched() {
    let world = World::new(1, Faults { stall: 0, split: false });
    let (there, here) = Wire::<Vec<u8>>::pair(addr(1, 1).into(), addr(1, 2).into());
    let open = |wire| {
        let defaults = ofi_rig::Options::default();
        let options = ofi_rig::Options { caps: defaults.caps | Caps::SOURCE_ERR, ..defaults };
        let mut wire = Some(wire);
        Side::open(options, world.port(), |_| Box::new(move |_| Ok(wire.take().expect("opened once"))))
    };
    let (mut a, mut r) = (open(there), open(here));
    let to_r = a.know(addr(1, 2));
    let got = r.receive(FiAddr::UNSPEC, 1, 3 << 20);
    a.send(to_r, 1, vec![1; 3 << 20]);
    // The connect request, the answer, the RTS, the CTS.
    for _ in 0..2 {
        a.progress();
        r.progress();
    }
    r.know(addr(1, 1));
    // A receive call makes the endpoint check the address vector.
    r.post_receive(Receive::new(8).tagged(9).flags(OpFlags::PEEK));
    assert!(r.outcome(got).is_none(), "the data has not arrived yet");
    for _ in 0..20 {
        a.progress();
        r.progress();
    }
    let failure = r.outcome(got).unwrap().as_ref().unwrap_err();
    assert_eq!((failure.errno, failure.sender), (Errno::EADDRNOTAVAIL, Some(addr(1, 1).into())));
}

#[test]
fn a_receive_whose_sender_becomes_known_takes_messages_in_order() {
    let world = World::new(1, Faults { stall: 0, split: false });
    let (mut a, mut r) = (open(&world, 1), open(&world, 3));
    let to_r = a.know(r.addr());
    r.ep.set_min_multi_recv(8);
    let several = r.post_receive(Receive::new(100).tagged(1).from(FiAddr(0)).flags(OpFlags::MULTI_RECV));
    for len in [60, 80, 10] {
        a.send(to_r, 1, vec![1; len]);
    }
    // All three wait: the receive's handle has no address yet.
    let last = a.send(to_r, 2, vec![3; 1]);
    let heard = r.receive(FiAddr::UNSPEC, 2, 8);
    assert!(until(&world, &mut [&mut a, &mut r], |nodes| nodes[0].is_done(last) && nodes[1].is_done(heard)));
    assert!(r.outcome(several).is_none());
    assert_eq!(r.know(a.addr()), FiAddr(0));
    // The first fits. The second does not, and stays before the third.
    assert!(until(&world, &mut [&mut a, &mut r], |nodes| nodes[1].outcome(several).is_some()));
    let rest = [r.receive(FiAddr(0), 1, 100), r.receive(FiAddr(0), 1, 100)];
    assert!(until(&world, &mut [&mut a, &mut r], |nodes| rest.iter().all(|context| nodes[1].is_done(*context))));
    assert_eq!(rest.map(|context| r.outcome(context).unwrap().as_ref().unwrap().len), [80, 10]);
}

#[test]
fn sends_that_cannot_be_written_fail_however_many_connections_there_are() {
    let world = World::new(1, Faults { stall: 0, split: false });
    let mut hub = open(&world, 1);
    // More peers than one poll checks.
    let mut peers: Vec<Node> = (2..12).map(|port| open(&world, port)).collect();
    let mut to = Vec::new();
    for peer in &mut peers {
        let (to_peer, to_hub) = (hub.know(peer.addr()), peer.know(hub.addr()));
        ping_pong(&world, &mut hub, peer, to_peer, to_hub);
        to.push(to_peer);
    }
    world.fail_writes();
    for to_peer in to {
        let sent = hub.send(to_peer, 1, vec![1; 8]);
        let ended = until(&world, &mut [&mut hub], |nodes| nodes[0].outcome(sent).is_some());
        assert!(ended, "the operation never ends:\n{}", hub.ep.describe());
        let failure = hub.outcome(sent).unwrap().as_ref().unwrap_err();
        assert_eq!(failure.errno, Errno::ECONNRESET, "{}", failure.text);
    }
}

#[test]
fn a_send_is_complete_only_when_the_system_has_all_of_its_bytes() {
    for seed in 0..200 {
        // The seed determines the connection's capacity, and so where a message is cut.
        let world = World::new(seed, Faults { stall: 0, split: false });
        let (mut a, mut r) = (open(&world, 1), open(&world, 2));
        let (to_r, to_a) = (a.know(r.addr()), r.know(a.addr()));
        ping_pong(&world, &mut a, &mut r, to_r, to_a);
        let sizes = [0, 1, 8, 700, 1024, 1025, 4000, 70_000, 200_000];
        let receives: Vec<_> = (0..200).map(|_| r.receive(FiAddr::UNSPEC, 7, 300_000)).collect();
        // R makes no calls: A's messages stay in flight.
        let mut complete = 0;
        for count in 0..receives.len() {
            let sent = a.send(to_r, 7, vec![1; sizes[(count + usize::try_from(seed).unwrap()) % sizes.len()]]);
            a.progress();
            if !a.is_done(sent) {
                break;
            }
            complete += 1;
        }
        assert!(complete < receives.len(), "seed {seed}: the connection took everything");
        // A makes no more calls after its sends complete: they must arrive without it.
        let came = until(&world, &mut [&mut r], |nodes| receives[..complete].iter().all(|one| nodes[0].is_done(*one)));
        assert!(came, "seed {seed}: not all of {complete} messages came");
    }
}

#[test]
fn receives_are_canceled_however_many_there_are() {
    // If each cancellation searched all operations, this would take minutes.
    const COUNT: u64 = 100_000;
    let world = World::new(1, Faults { stall: 0, split: false });
    let (mut a, mut r) = (open(&world, 1), open(&world, 2));
    let to_r = a.know(r.addr());
    let receives: Vec<usize> = (0..COUNT).map(|tag| r.receive(FiAddr::UNSPEC, tag, 8)).collect();
    // Some are completed in between, and the places of their numbers are used again.
    for tag in [5, 70, 99_999] {
        a.send(to_r, tag, vec![1; 8]);
    }
    let done = |nodes: &mut [&mut Node]| [5, 70, 99_999].iter().all(|tag| nodes[1].is_done(receives[*tag]));
    assert!(until(&world, &mut [&mut a, &mut r], done));
    let late: Vec<usize> = (0..3).map(|tag| r.receive(FiAddr::UNSPEC, COUNT + tag, 8)).collect();
    for context in receives.iter().rev().chain(&late) {
        r.ep.cancel(*context);
        // No operation has this context any more.
        r.ep.cancel(*context);
    }
    r.progress();
    let was_canceled = |context: &usize| {
        r.outcome(*context).is_some_and(|outcome| outcome.as_ref().is_err_and(|why| why.errno == Errno::ECANCELED))
    };
    assert!(late.iter().all(was_canceled));
    assert_eq!(receives.iter().filter(|context| was_canceled(context)).count(), receives.len() - 3);
}

#[test]
fn a_send_that_flushes_a_burst_is_complete_only_when_the_system_has_all_of_its_bytes() {
    for seed in 0..100 {
        let world = World::new(seed, Faults { stall: 0, split: false });
        let (mut a, mut r) = (open(&world, 1), open(&world, 2));
        let (to_r, to_a) = (a.know(r.addr()), r.know(a.addr()));
        ping_pong(&world, &mut a, &mut r, to_r, to_a);
        let receives: Vec<_> = (0..6000).map(|_| r.receive(FiAddr::UNSPEC, 7, 1000)).collect();
        let mut complete = 0;
        for round in 1..=receives.len() / 6 {
            // The fifth message of a burst is held back. After a pause the next one flushes it.
            for _ in 0..5 {
                a.send(to_r, 7, vec![1; 8]);
            }
            world.advance(Duration::from_micros(10));
            let last = a.send(to_r, 7, vec![1; 700]);
            a.progress();
            if !a.is_done(last) {
                break;
            }
            complete = round * 6;
        }
        assert!(complete < receives.len(), "seed {seed}: the connection took everything");
        let came = until(&world, &mut [&mut r], |nodes| receives[..complete].iter().all(|one| nodes[0].is_done(*one)));
        assert!(came, "seed {seed}: not all of {complete} messages came");
    }
}
