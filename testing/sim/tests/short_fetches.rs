//! Short atomic operations that return what was there, whose requests leave within their call: how
//! many may be outstanding, their order, and what becomes of one that the transport has no room
//! for.

use ofi_core::OpFlags;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_rig::{Exposed, Target, until};
use ofi_sim::node::{Node, Options, addr, open_node};
use ofi_sim::{Faults, World};

const KEY: u64 = 7;
/// Length of the writes before one.
const LONG: usize = 240;
/// Operations that may be outstanding: more than the transport and the connection hold.
const SIZE: usize = 4096;

/// A node with a link to another one, which makes progress only when the test polls it.
struct Scene {
    world: World,
    from: Node,
    to: Node,
    /// A number, and room for writes behind it.
    memory: Exposed,
    number: Target,
    room: Target,
    written: usize,
}

impl Scene {
    fn new() -> Self {
        let world = World::new(1, Faults { stall: 0, split: false });
        let options = Options { tx_size: SIZE, ..Options::at(addr(1, 1000)) };
        let (mut from, mut to) = (open_node(&world, &options), open_node(&world, &Options::at(addr(2, 1000))));
        let memory = to.expose(KEY, vec![0; 8 + LONG]);
        let peer = from.know(to.addr());
        let (number, room) = (Target::new(peer, KEY, 0, 8), Target::new(peer, KEY, 8, LONG));
        let first = from.write(&room, vec![1; LONG]);
        assert!(until(&world, &mut [&mut from, &mut to], |nodes| nodes[0].is_done(first)), "the link opens");
        Self { world, from, to, memory, number, room, written: 0 }
    }

    fn write(&mut self) {
        let outcome = self.from.try_write(&self.room, vec![2; LONG], None, OpFlags::empty());
        outcome.expect("there is room in the table");
        self.written += 1;
    }

    /// How many operations wait for room in the transport.
    fn waiting(&self) -> usize {
        let text = self.from.ep.describe();
        let number = text.lines().find_map(|line| line.strip_prefix("peer ")?.strip_suffix(" sends wait"));
        number.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a line tells")
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
    let mut scene = Scene::new();
    while scene.waiting() == 0 {
        scene.write();
    }
    let room = scene.written - 1;
    let (sum, swap) = ((AtomicKind::Fetch, AtomicOp::Sum), (AtomicKind::Compare, AtomicOp::Cswap));
    for (first, second, expected) in [(sum, swap, ([0, 5], 9)), (swap, sum, ([0, 9], 14))] {
        let mut scene = Scene::new();
        for _ in 0..room {
            scene.write();
        }
        assert_eq!(scene.waiting(), 0);
        let mut post = |what, of: u64| match what {
            (AtomicKind::Compare, _) => scene.fetch(what, 9, &of.to_le_bytes()),
            _ => scene.fetch(what, 5, &[]),
        };
        let operations = [post(first, 0), post(second, 5)];
        assert_eq!(scene.waiting(), 2, "the first one meets a full transport");
        assert_eq!((scene.found(&operations), scene.number()), (expected.0.to_vec(), expected.1));
    }
}
