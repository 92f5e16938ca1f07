//! When the acknowledgments of a peer's writes are sent: at once if the reader may not poll again
//! soon, with the reply if the application has replied at once before.

use ofi_core::{Completion, FiAddr, OpFlags};
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Exposed, Options, RealTime, Side, Target, expect, ping_pong};
use ofi_sim::node::{self, Node, addr, open_node};
use ofi_sim::wire::Wire;
use ofi_sim::{Faults, World, pair};
use std::sync::Arc;
use std::time::Duration;

const KEY: u64 = 7;

/// Two endpoints that write to each other's memory.
struct Scene {
    a: Side<Wire<Vec<u8>>>,
    b: Side<Wire<Vec<u8>>>,
    at_a: Target,
    at_b: Target,
    _memory: [Exposed; 2],
}

impl Scene {
    fn new() -> Self {
        let (there, here) = Wire::pair(addr(1, 1).into(), addr(1, 2).into());
        let open = |wire, nonce| {
            let mut wire = Some(wire);
            let options = Options { nonce: [nonce; 16], ..Options::default() };
            let wait_object = Arc::new(FdWaitObject::new(true).expect("descriptors are free"));
            Side::open(options, wait_object, |_| Box::new(move |_| Ok(wire.take().expect("opened once"))))
        };
        let (mut a, mut b) = (open(there, 1), open(here, 2));
        let memory = [&a, &b].map(|side| side.expose(KEY, vec![0; 8]));
        let (to_b, to_a) = (a.know(addr(1, 2)), b.know(addr(1, 1)));
        let (at_a, at_b) = (Target::new(to_a, KEY, 0, 8), Target::new(to_b, KEY, 0, 8));
        let first = a.write(&at_b, vec![1; 8]);
        expect(&RealTime, &mut [&mut a, &mut b], "the link opens", |sides| sides[0].is_done(first));
        // No poll is running that a reply could precede.
        (0..3).for_each(|_| {
            b.progress();
        });
        Self { a, b, at_a, at_b, _memory: memory }
    }

    /// A writes, and B reads its queue once.
    fn write_and_read(&mut self) -> usize {
        let write = self.a.write(&self.at_b, vec![2; 8]);
        self.b.progress();
        write
    }

    /// Whether A's write is done, without further calls of B.
    fn is_done(&mut self, write: usize) -> bool {
        (0..3).for_each(|_| {
            self.a.progress();
        });
        self.a.is_done(write)
    }

    /// B answers before it reads again.
    fn reply(&mut self) -> usize {
        self.b.write(&self.at_a, vec![3; 8])
    }

    /// B has replied to a write before it read again.
    fn replied() -> Self {
        let mut scene = Self::new();
        let write = scene.write_and_read();
        assert!(scene.is_done(write), "a reader without a history acknowledges at once");
        let reply = scene.reply();
        scene.a.progress();
        scene.b.progress();
        assert!(scene.b.is_done(reply));
        scene
    }
}

#[test]
fn an_acknowledgment_travels_with_the_expected_reply() {
    let mut scene = Scene::replied();
    for _ in 0..5 {
        let write = scene.write_and_read();
        assert!(!scene.is_done(write), "it waits for the reply");
        let reply = scene.reply();
        assert!(scene.is_done(write), "the reply takes it along");
        scene.b.progress();
        assert!(scene.b.is_done(reply));
    }
}

#[test]
fn an_acknowledgment_travels_with_a_reply_to_a_read_that_returned_entries() {
    let mut scene = Scene::replied();
    let first = scene.write_and_read();
    scene.reply();
    assert!(scene.is_done(first));
    // Its acknowledgment of the reply reaches B together with this write.
    let second = scene.a.write(&scene.at_b, vec![4; 8]);
    let mut entries = 0;
    assert_eq!(scene.b.cq.read(8, |_| entries += 1), Ok(1), "the reply is done");
    scene.reply();
    assert!(scene.is_done(second), "the next reply takes the acknowledgment along");
}

#[test]
fn an_acknowledgment_leaves_with_the_next_poll_if_no_reply_comes() {
    let mut scene = Scene::replied();
    let write = scene.write_and_read();
    assert!(!scene.is_done(write));
    scene.b.progress();
    assert!(scene.is_done(write));
    let write = scene.write_and_read();
    assert!(scene.is_done(write), "no reply is expected any more");
}

#[test]
fn an_acknowledgment_leaves_before_its_reader_sleeps() {
    let mut scene = Scene::replied();
    let write = scene.write_and_read();
    assert!(!scene.is_done(write));
    // Nothing arrives, so this call times out.
    scene.b.cq.wait(1, Some(Duration::from_millis(1))).expect("the queue can be waited on");
    assert!(scene.is_done(write));
}

#[test]
fn an_acknowledgment_leaves_with_a_second_read_that_does_not_poll() {
    let mut scene = Scene::replied();
    let write = scene.write_and_read();
    assert!(!scene.is_done(write), "it waits for the reply");
    let flags = OpFlags::SEND;
    let entry = Completion { context: 0, flags, len: 0, buf: 0, data: 0, tag: 0, src: FiAddr::UNSPEC };
    scene.b.cq.push(entry);
    assert_eq!(scene.b.cq.read(1, |_| ()), Ok(1), "an entry keeps it from polling");
    assert!(scene.is_done(write));
}

/// A and C are peers of B.
struct Three {
    world: World,
    nodes: [Node; 3],
    to_a: FiAddr,
    to_b: FiAddr,
    to_c: FiAddr,
    memory: [Exposed; 3],
}

impl Three {
    fn new() -> Self {
        let world = World::new(1, Faults { stall: 0, split: false });
        let nodes = [1, 2, 3].map(|host| open_node(&world, &node::Options::at(addr(host, 1000))));
        let memory = [0, 1, 2].map(|at: usize| nodes[at].expose(KEY, vec![0; 8]));
        let [a, b, c] = &nodes;
        let (to_b, to_a, to_c) = (a.know(b.addr()), b.know(a.addr()), b.know(c.addr()));
        let from_c = c.know(b.addr());
        let mut three = Self { world, nodes, to_a, to_b, to_c, memory };
        let [a, b, c] = &mut three.nodes;
        ping_pong(&three.world, a, b, to_b, to_a);
        ping_pong(&three.world, c, b, from_c, to_c);
        three.settle(&[0, 1, 2]);
        three
    }

    /// Makes all progress that needs only some of the nodes.
    fn settle(&mut self, which: &[usize]) {
        for _ in 0..20 {
            which.iter().for_each(|node| {
                self.nodes[*node].progress();
            });
            self.world.advance(Duration::from_micros(50));
        }
    }

    /// A writes to B, which reads its queue once when the write has arrived.
    fn write_and_read(&mut self) -> usize {
        let write = self.nodes[0].write(&Target::new(self.to_b, KEY, 0, 8), vec![2; 8]);
        self.settle(&[0, 2]);
        self.nodes[1].progress();
        write
    }

    fn reply(&mut self, to: FiAddr) {
        self.nodes[1].write(&Target::new(to, KEY, 0, 8), vec![3; 8]);
    }

    /// Whether A's write is done, without further calls of B.
    fn is_done(&mut self, write: usize) -> bool {
        self.settle(&[0, 2]);
        self.nodes[0].is_done(write)
    }
}

#[test]
fn an_acknowledgment_does_not_wait_for_a_reply_while_the_application_serves_another_peer() {
    let mut three = Three::new();
    for _ in 0..3 {
        let write = three.write_and_read();
        assert!(three.is_done(write), "no reply is expected");
        three.reply(three.to_a);
        three.settle(&[0, 1, 2]);
        let write = three.write_and_read();
        assert!(!three.is_done(write), "it waits for the reply");
        three.reply(three.to_c);
        assert!(three.is_done(write), "it leaves with the next operation");
        three.settle(&[0, 1, 2]);
        let write = three.write_and_read();
        assert!(three.is_done(write), "the application does not answer this peer at once");
        three.settle(&[0, 1, 2]);
    }
    drop(three.memory);
}

/// Short messages have a fast path there, which looks for no acknowledgments.
#[test]
fn an_acknowledgment_over_shared_memory_leaves_with_the_read() {
    let (mut a, mut b) = pair::over_shm();
    let (at_a, at_b) = (Target::new(FiAddr(0), KEY, 0, 8), Target::new(FiAddr(0), KEY, 0, 8));
    let _memory = [&a, &b].map(|side| side.expose(KEY, vec![0; 8]));
    let first = a.write(&at_b, vec![1; 8]);
    expect(&RealTime, &mut [&mut a, &mut b], "the link opens", |sides| sides[0].is_done(first));
    for round in 0..6 {
        let write = a.write(&at_b, vec![2; 8]);
        b.progress();
        if round % 2 == 0 {
            b.write(&at_a, vec![3; 8]);
        } else {
            b.send(FiAddr(0), 1, vec![3; 8]);
        }
        (0..3).for_each(|_| {
            a.progress();
        });
        assert!(a.is_done(write), "round {round}");
        b.progress();
    }
    a.close();
    b.close();
}
