//! The rig detects what it is for: operations that complete twice, never, or although their success
//! is suppressed.

use ofi_core::{BindFlags, Completion, FiAddr, OpFlags};
use ofi_rig::{Message, Options, Receive, Side, expect, finish, ping_pong};
use ofi_sim::node::{self, Node, addr, open_node};
use ofi_sim::{Faults, World};
use ofi_tcp::transport::{Settings, TcpTransport};

fn world() -> World {
    World::new(1, Faults { stall: 0, split: false })
}

fn pair(world: &World) -> (Node, Node, FiAddr) {
    let [mut a, mut b] = [1, 2].map(|port| open_node(world, &node::Options::at(addr(1, port))));
    let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
    ping_pong(world, &mut a, &mut b, to_b, to_a);
    (a, b, to_b)
}

fn entry(context: usize, flags: OpFlags) -> Completion {
    Completion { context, flags, len: 0, buf: 0, data: 0, tag: 0, src: FiAddr::UNSPEC }
}

#[test]
fn receives_that_are_left_are_cancelled_at_the_end() {
    let world = world();
    let (mut a, mut b, to_b) = pair(&world);
    let left = [b.post_receive(Receive::new(8)), b.post_receive(Receive::new(100).flags(OpFlags::MULTI_RECV))];
    a.send(to_b, 1, vec![1; 8]);
    finish(&world, &mut [&mut a, &mut b]);
    assert!(left.iter().all(|context| b.outcome(*context).is_some_and(Result::is_err)));
    a.close();
    b.close();
}

#[test]
#[should_panic(expected = "every operation completes once")]
fn a_second_completion_is_noticed() {
    let world = world();
    let (mut a, mut b, to_b) = pair(&world);
    let sent = a.send(to_b, 1, vec![1; 8]);
    expect(&world, &mut [&mut a, &mut b], "the message leaves", |sides| sides[0].is_done(sent));
    a.cq.push(entry(sent, OpFlags::SEND));
    finish(&world, &mut [&mut a, &mut b]);
}

#[test]
#[should_panic(expected = "an inject call reports no success")]
fn a_success_of_an_inject_call_is_noticed() {
    let world = world();
    let (mut a, _b, to_b) = pair(&world);
    let context = a.post(Message::new(to_b, vec![1; 8]).injected());
    a.cq.push(entry(context, OpFlags::SEND));
    a.progress();
}

#[test]
#[should_panic(expected = "a suppressed success is reported")]
fn a_success_that_was_to_be_suppressed_is_noticed() {
    let world = world();
    let options = Options { bind: BindFlags::SELECTIVE_COMPLETION, ..Options::default() };
    let net = world.clone();
    let mut side = Side::open(options, world.port(), |_| {
        Box::new(move |_| TcpTransport::listening(net.net_of(node::ip(1)), addr(1, 1).into(), Settings::default()))
    });
    let receive = side.receive(FiAddr::UNSPEC, 1, 8);
    side.cq.push(entry(receive, OpFlags::RECV));
    side.progress();
}

#[test]
#[should_panic(expected = "every operation completes: did not happen in time")]
fn an_operation_that_does_not_complete_in_time_is_noticed() {
    let world = world();
    world.black_hole(addr(1, 9));
    let mut a = open_node(&world, &node::Options::at(addr(1, 1)));
    let nowhere = a.know(addr(1, 9));
    a.send(nowhere, 1, vec![1; 8]);
    finish(&world, &mut [&mut a]);
}
