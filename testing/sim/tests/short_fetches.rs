//! Short atomic operations that return what was there, whose requests leave within their call: how
//! many may be outstanding, their order, and what becomes of one that the transport has no room for.

use ofi_core::OpFlags;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_rig::{Exposed, Target, until};
use ofi_sim::node::{Node, Options, addr, open_node};
use ofi_sim::{Faults, World};

const KEY: u64 = 7;
/// Length of the writes before one.
const LONG: usize = 240;
/// More than the transport and the connection hold.
const MOST: usize = 1000;

/// A node with a link to another one, which makes progress only when the test polls it.
struct Scene {
    world: World,
    from: Node,
    to: Node,
    /// A number, and room for writes behind it.
    memory: Exposed,
    number: Target,
    room: Target,
}

impl Scene {
    fn new() -> Self {
        let world = World::new(1, Faults { stall: 0, split: false });
        let options = Options { tx_size: 2 * MOST, ..Options::at(addr(1, 1000)) };
        let (mut from, mut to) = (open_node(&world, &options), open_node(&world, &Options::at(addr(2, 1000))));
        let memory = to.expose(KEY, vec![0; 8 + LONG]);
        let peer = from.know(to.addr());
        let (number, room) = (Target::new(peer, KEY, 0, 8), Target::new(peer, KEY, 8, LONG));
        let first = from.write(&room, vec![1; LONG]);
        assert!(until(&world, &mut [&mut from, &mut to], |nodes| nodes[0].is_done(first)), "the link opens");
        Self { world, from, to, memory, number, room }
    }

    fn fetch(&mut self, (kind, op): (AtomicKind, AtomicOp), operand: u64, compare: &[u8]) -> usize {
        let what = (kind, op, Datatype::Uint64);
        let outcome = self.from.try_atomic(&self.number, what, &operand.to_le_bytes(), compare, OpFlags::empty());
        outcome.expect("there is room")
    }

    fn add(&mut self, operand: u64) -> usize {
        self.fetch((AtomicKind::Fetch, AtomicOp::Sum), operand, &[])
    }

    /// All complete; returns what each found.
    #[track_caller]
    fn found(&mut self, operations: &[usize]) -> Vec<u64> {
        let Self { world, from, to, .. } = self;
        assert!(
            until(world, &mut [from, to], |nodes| operations.iter().all(|at| nodes[0].is_done(*at))),
            "in time: {}",
            from.ep.describe()
        );
        let found = |at: &usize| {
            let [one] = &self.from.finished(*at) else { panic!("it has ended twice") };
            u64::from_le_bytes(one.bytes[..].try_into().expect("a number"))
        };
        operations.iter().map(found).collect()
    }

    fn number(&self) -> u64 {
        u64::from_le_bytes(self.memory.bytes()[..8].try_into().expect("a number"))
    }
}

/// The peer ends the link of a side that asks for more at once than it may.
#[test]
fn more_than_the_peer_grants_wait_and_keep_their_order() {
    let mut scene = Scene::new();
    for round in 0..3 {
        let operations: Vec<usize> = (0..200).map(|_| scene.add(1)).collect();
        let found = scene.found(&operations);
        assert_eq!(found, (200 * round..200 * (round + 1)).collect::<Vec<_>>());
    }
    assert_eq!(scene.number(), 600);
}

#[test]
fn one_that_the_transport_has_no_room_for_is_carried_out_as_it_was_posted() {
    for before in 0..MOST {
        let mut scene = Scene::new();
        for _ in 0..before {
            scene.from.try_write(&scene.room.clone(), vec![2; LONG], None, OpFlags::empty()).expect("there is room");
        }
        let swap = (AtomicKind::Compare, AtomicOp::Cswap);
        let operations = [scene.add(5), scene.fetch(swap, 9, &5u64.to_le_bytes()), scene.fetch(swap, 1, &[5; 8])];
        assert_eq!(scene.found(&operations), [0, 5, 9], "after {before} writes");
        assert_eq!(scene.number(), 9, "after {before} writes");
    }
}
