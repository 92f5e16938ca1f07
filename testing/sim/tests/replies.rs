//! When the acknowledgments of a peer's writes leave: at once for a reader that may not poll again
//! soon, and with the reply of an application that has answered at once before.

use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Exposed, Options, RealTime, Side, Target, expect};
use ofi_sim::node::addr;
use ofi_sim::wire::Wire;
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
        // No poll is under way that a reply could precede.
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
    // Nothing comes, so this call ends by its timeout.
    scene.b.cq.wait(1, Some(Duration::from_millis(1))).expect("the queue can be waited on");
    assert!(scene.is_done(write));
}
