//! Short writes, which are sent within their call, until the peer has carried them out: how many
//! may be outstanding, which operations wait for them, and their fate when their link ends.

use ofi_core::{Errno, OpFlags};
use ofi_rig::{Exposed, Target, until};
use ofi_sim::node::{Node, Options, addr, open_node};
use ofi_sim::{Faults, World};

const KEY: u64 = 7;

/// A node that writes to another one, which makes progress only when the test polls it.
struct Scene {
    world: World,
    from: Node,
    to: Node,
    target: Target,
    memory: Exposed,
}

impl Scene {
    fn new(tx_size: usize) -> Self {
        let world = World::new(1, Faults { stall: 0, split: false });
        let options = Options { tx_size, ..Options::at(addr(1, 1000)) };
        let (mut from, mut to) = (open_node(&world, &options), open_node(&world, &Options::at(addr(2, 1000))));
        let memory = to.expose(KEY, vec![0; 8]);
        let target = Target::new(from.know(to.addr()), KEY, 0, 8);
        let first = from.write(&target, vec![1; 8]);
        assert!(until(&world, &mut [&mut from, &mut to], |nodes| nodes[0].is_done(first)), "the link opens");
        Self { world, from, to, target, memory }
    }

    /// Both make progress until the condition holds.
    #[track_caller]
    fn until(&mut self, mut is_so: impl FnMut(&mut Node) -> bool) {
        let Self { world, from, to, .. } = self;
        assert!(until(world, &mut [from, to], |nodes| is_so(nodes[0])), "in time");
    }
}

#[test]
fn writes_are_outstanding_until_the_peer_has_carried_them_out() {
    const SIZE: usize = 16;
    let mut scene = Scene::new(SIZE);
    for _ in 0..3 {
        let (mut injected, mut writes) = (0, Vec::new());
        let refused = loop {
            let outcome = if writes.len() > injected {
                injected += 1;
                scene.from.inject_write(&scene.target, vec![2; 8], None)
            } else {
                scene.from.try_write(&scene.target, vec![3; 8], None, OpFlags::empty()).map(|write| writes.push(write))
            };
            if let Err(errno) = outcome {
                break errno;
            }
        };
        assert_eq!((refused, writes.len() + injected.min(writes.len())), (Errno::AGAIN, SIZE));
        assert!(!writes.iter().any(|write| scene.from.is_done(*write)));
        scene.until(|from| writes.iter().all(|write| from.is_done(*write)));
        assert!(scene.from.inject_errors().is_empty());
    }
}

#[test]
fn a_fenced_write_leaves_when_those_before_it_are_done() {
    let mut scene = Scene::new(1024);
    for turn in 0..4u8 {
        let earlier = scene.from.write(&scene.target, vec![turn; 8]);
        let fenced = scene.from.try_write(&scene.target, vec![0x80 | turn; 8], None, OpFlags::FENCE).unwrap();
        let behind = scene.from.write(&scene.target, vec![0xc0 | turn; 8]);
        // The initiator makes no calls, so only what it has already sent arrives.
        let Scene { world, to, memory, .. } = &mut scene;
        assert!(until(world, &mut [to], |_| memory.bytes() == [turn; 8]), "the first write arrives");
        (0..50).for_each(|_| {
            to.progress();
        });
        assert_eq!(memory.bytes(), [turn; 8], "the fenced write was sent before the other was done");
        scene.until(|from| from.is_done(earlier) && from.is_done(fenced) && from.is_done(behind));
        assert_eq!(scene.memory.bytes(), [0xc0 | turn; 8]);
    }
}

#[test]
fn writes_fail_once_and_in_order_when_their_link_ends() {
    let mut scene = Scene::new(1024);
    // One is longer, and is tracked in another way.
    let write = |len| {
        let target = Target::new(scene.target.peer, KEY, 0, len);
        scene.from.write(&target, vec![3; len])
    };
    let writes: Vec<usize> = [8, 8, 1000, 8, 8].map(write).to_vec();
    for _ in 0..3 {
        scene.from.inject_write(&scene.target, vec![2; 8], None).unwrap();
    }
    let last = scene.from.write(&scene.target, vec![4; 8]);
    let Scene { world, mut from, mut to, memory, .. } = scene;
    memory.retire();
    to.close();
    let mut failed = Vec::new();
    let over = until(&world, &mut [] as &mut [&mut Node], |_| {
        for finished in from.reap() {
            let failure = finished.outcome.expect_err("the peer is gone");
            failed.push(failure.completion.context);
        }
        failed.len() == writes.len() + 4
    });
    assert!(over, "{failed:?}");
    let expected: Vec<usize> = writes.into_iter().chain([0; 3]).chain([last]).collect();
    assert_eq!(failed, expected);
    assert!(from.reap().is_empty(), "each fails once");
}
