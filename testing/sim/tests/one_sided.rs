//! One-sided operations with hostile peers: a frame that does not fit the state of a link ends that
//! link, and an access that a region does not allow is refused. Neither harms the memory, the
//! endpoint or other peers.

use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Addr, MrAccess};
use ofi_engine::wire::frame::Frame;
use ofi_engine::wire::hello::Handshake;
use ofi_engine::wire::one_sided::{Action, Refusal, RemoteAddr};
use ofi_rig::{Exposed, Target, until};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, Received, connect_hello};
use ofi_sim::{Faults, World};
use std::time::Duration;

const KEY: u64 = 7;
const LEN: usize = 256;

/// A node with exposed memory, and a scripted peer with an open link to it.
struct Scene {
    world: World,
    node: Node,
    memory: Exposed,
    raw: Raw,
}

impl Scene {
    fn new() -> Self {
        let world = World::new(1, Faults { stall: 0, split: false });
        let mut node = open_node(&world, &Options::at(addr(1, 1000)));
        let memory = node.expose(KEY, vec![0x11; LEN]);
        let mut raw = Raw::connect(&world, ip(2), addr(1, 1000));
        raw.hello(&connect_hello(Addr::from(addr(2, 1000)), [9; 16]));
        let mut scene = Self {
            world,
            node: {
                node.progress();
                node
            },
            memory,
            raw,
        };
        let received = scene.exchange(&[]);
        assert!(
            matches!(&received[..], [Received::Hello(hello), ..] if hello.handshake == Handshake::Accept),
            "{received:?}"
        );
        scene
    }

    /// Sends frames, and returns the node's answers.
    fn exchange(&mut self, frames: &[(Frame, Vec<u8>)]) -> Vec<Received> {
        for (frame, payload) in frames {
            self.raw.frame(frame, payload);
        }
        let mut received = Vec::new();
        let Self { world, node, raw, .. } = self;
        let mut left = 50;
        until(world, &mut [node], |_| {
            raw.send();
            received.extend(raw.read());
            left -= 1;
            left == 0
        });
        received
    }

    /// The link ends, and the node serves another peer as before.
    #[track_caller]
    fn ends_the_link(frames: &[(Frame, Vec<u8>)]) {
        let mut scene = Self::new();
        let received = scene.exchange(frames);
        assert_eq!(received.last(), Some(&Received::End), "{frames:?} is answered by {received:?}");
        assert_eq!(scene.memory.bytes(), [0x11; LEN], "{frames:?}");
        let Self { world, mut node, memory, .. } = scene;
        let mut other = open_node(&world, &Options::at(addr(3, 1000)));
        let to = other.know(node.addr());
        let write = other.write(&Target::new(to, KEY, 0, 8), vec![1; 8]);
        assert!(until(&world, &mut [&mut node, &mut other], |nodes| nodes[1].is_done(write)));
        assert_eq!(memory.close()[..8], [1; 8]);
    }
}

fn place(addr: u64) -> RemoteAddr {
    RemoteAddr { key: KEY, addr }
}

fn write(addr: u64, more: u64, last: bool) -> Frame {
    Frame::Write { id: 1, place: place(addr), more, last, commit: false, data: None, performed: 0 }
}

fn action(kind: AtomicKind, op: AtomicOp) -> Action {
    Action { kind, op, datatype: Datatype::Uint64 }
}

fn atomic(action: Action, len: Option<u64>) -> Frame {
    Frame::Atomic { id: 1, place: place(0), action, len, last: true, data: None }
}

#[test]
fn unsolicited_answers_end_the_link() {
    Scene::ends_the_link(&[(Frame::Performed { count: 1 }, vec![])]);
    Scene::ends_the_link(&[(Frame::Performed { count: u32::MAX }, vec![])]);
    for last in [false, true] {
        Scene::ends_the_link(&[(Frame::Response { id: 0, last }, vec![2; 8])]);
        Scene::ends_the_link(&[(Frame::Response { id: u32::MAX, last }, vec![])]);
        Scene::ends_the_link(&[(Frame::Refused { id: 0, last, why: Refusal::Key }, vec![])]);
    }
}

#[test]
fn a_write_that_tells_of_operations_that_were_not_sent_is_not_carried_out() {
    for performed in [1, u16::MAX] {
        let place = place(0);
        let write = Frame::Write { id: 1, place, more: 0, last: true, commit: false, data: None, performed };
        Scene::ends_the_link(&[(write, vec![2; 8])]);
    }
}

#[test]
fn operands_of_the_wrong_length_end_the_link() {
    let (sum, swap) = (action(AtomicKind::Fetch, AtomicOp::Sum), action(AtomicKind::Compare, AtomicOp::Cswap));
    let read = action(AtomicKind::Fetch, AtomicOp::Read);
    for (frame, len) in [
        (atomic(sum, None), 0),
        (atomic(sum, None), 7),
        (atomic(sum, None), 4104),
        (atomic(swap, None), 8),
        (atomic(swap, None), 24),
        (atomic(read, Some(8)), 8),
        (atomic(read, Some(12)), 0),
        (atomic(read, Some(0)), 0),
        (atomic(read, Some(u64::MAX)), 0),
    ] {
        Scene::ends_the_link(&[(frame, vec![3; len])]);
    }
}

#[test]
fn a_write_that_has_no_end_ends_the_link() {
    Scene::ends_the_link(&[(write(0, u64::MAX, false), vec![4; 8])]);
}

#[test]
fn accesses_that_the_region_does_not_allow_are_refused_in_order() {
    let mut scene = Scene::new();
    let far = Frame::Read { id: 5, place: place(250), len: 8, last: true };
    let near = Frame::Read { id: 6, place: place(0), len: 8, last: true };
    let other = RemoteAddr { key: 8, addr: 0 };
    let unknown = Frame::Write { id: 7, place: other, more: 0, last: true, commit: false, data: None, performed: 0 };
    let received = scene.exchange(&[
        (write(0, 0, true), vec![5; 8]),
        (unknown, vec![5; 8]),
        (write(u64::MAX, 0, true), vec![5; 8]),
        (write(LEN as u64 - 8, 1, false), vec![5; 8]),
        (far, vec![]),
        (near, vec![]),
    ]);
    let frames: Vec<&Frame> =
        received.iter().filter_map(|it| if let Received::Frame(frame, _) = it { Some(frame) } else { None }).collect();
    let refused = |id, last, why| Frame::Refused { id, last, why };
    for expected in [
        Frame::Performed { count: 1 },
        refused(7, true, Refusal::Key),
        refused(1, true, Refusal::Bounds),
        refused(1, false, Refusal::Bounds),
        refused(5, true, Refusal::Bounds),
        Frame::Response { id: 6, last: true },
    ] {
        assert!(frames.contains(&&expected), "{expected:?} is not among {frames:?}");
    }
    let at = |wanted: &Frame| frames.iter().position(|frame| *frame == wanted);
    assert!(at(&Frame::Performed { count: 1 }) < at(&refused(7, true, Refusal::Key)), "in the order of the operations");
    let mut expected = [0x11; LEN];
    expected[..8].fill(5);
    assert_eq!(scene.memory.bytes(), expected);
}

/// A peer that exceeds its granted requests while it reads nothing.
#[test]
fn more_requests_than_granted_end_the_link_and_hold_little_memory() {
    let mut scene = Scene::new();
    let big = scene.node.expose(9, vec![0; 1 << 20]);
    let from = RemoteAddr { key: 9, addr: 0 };
    let read = Frame::Read { id: 1, place: from, len: 1 << 20, last: true };
    for _ in 0..70 {
        scene.raw.frame(&read, &[]);
    }
    let Scene { world, node, raw, .. } = &mut scene;
    let mut left = 60;
    until(world, &mut [node], |_| {
        raw.send();
        left -= 1;
        left == 0
    });
    assert!(scene.node.account.used() < 4 << 20, "{} bytes are held", scene.node.account.used());
    let received = scene.exchange(&[]);
    assert_eq!(received.last(), Some(&Received::End), "the link has ended");
    big.close();
}

#[test]
fn rights_are_checked_for_each_kind_of_access() {
    let mut scene = Scene::new();
    let readable = scene.node.try_expose(20, vec![1; 64], MrAccess::REMOTE_READ).expect("the key is free");
    let place = RemoteAddr { key: 20, addr: 0 };
    let sum = Action { kind: AtomicKind::Base, op: AtomicOp::Sum, datatype: Datatype::Uint64 };
    let received = scene.exchange(&[
        (Frame::Write { id: 1, place, more: 0, last: true, commit: false, data: Some(3), performed: 0 }, vec![9; 8]),
        (Frame::Atomic { id: 2, place, action: sum, len: None, last: true, data: None }, vec![9; 8]),
    ]);
    for id in [1, 2] {
        let refused = Received::Frame(Frame::Refused { id, last: true, why: Refusal::Rights }, vec![]);
        assert!(received.contains(&refused), "{received:?}");
    }
    assert_eq!(readable.close(), [1; 64]);
    assert!(scene.node.reap().is_empty(), "a refused write reported a completion");
}

/// The node reads or writes two ranges of the peer's memory, and the peer answers once too often.
#[test]
fn an_extra_answer_ends_the_link() {
    let bytes = Frame::Response { id: 0, last: true };
    let refused = Frame::Refused { id: 0, last: true, why: Refusal::Bounds };
    let early = Frame::Refused { id: 0, last: false, why: Refusal::Key };
    let performed = Frame::Performed { count: 1 };
    let cases: [(bool, &[Frame], bool); 8] = [
        (true, &[bytes, bytes, bytes], true),
        (true, &[bytes, bytes, refused], true),
        (true, &[bytes, refused, bytes], false),
        (true, &[refused, refused, refused], false),
        (false, &[performed, performed], true),
        (false, &[performed, refused], true),
        (false, &[early, refused, performed], false),
        (false, &[early, performed, early], false),
    ];
    for (reads, answers, succeeds) in cases {
        let mut scene = Scene::new();
        let to = scene.node.know(addr(2, 1000));
        let target = Target::new(to, 5, 0, 8).and(5, 100, 8);
        let access = if reads { scene.node.read(&target) } else { scene.node.write(&target, vec![1; 16]) };
        let requests = scene.exchange(&[]);
        let id = requests.iter().find_map(|received| match received {
            Received::Frame(Frame::Read { id, .. } | Frame::Write { id, .. }, _) => Some(*id),
            _ => None,
        });
        let id = id.unwrap_or_else(|| panic!("the request was not sent: {requests:?}"));
        let answer = |frame: &Frame| match *frame {
            Frame::Response { last, .. } => (Frame::Response { id, last }, vec![2; 8]),
            Frame::Refused { last, why, .. } => (Frame::Refused { id, last, why }, vec![]),
            other => (other, vec![]),
        };
        let answers: Vec<_> = answers.iter().map(answer).collect();
        let (extra, due) = answers.split_last().expect("there are some");
        let received = scene.exchange(due);
        assert!(!received.contains(&Received::End), "{due:?} are due");
        let [ended] = scene.node.finished(access) else { panic!("{due:?} do not end it once") };
        assert_eq!(ended.outcome.is_ok(), succeeds, "{due:?}: {:?}", ended.outcome);
        let received = scene.exchange(std::slice::from_ref(extra));
        assert_eq!(received.last(), Some(&Received::End), "{extra:?} is not due");
        assert_eq!(scene.node.finished(access).len(), 1, "the operation ended again");
    }
}

/// A peer sends writes that are refused, and reads nothing, until its link ends. Returns how many
/// it sent, and the highest charge of the account; with `full` the account has no room.
fn refused_until_the_end(full: bool) -> (usize, usize) {
    let mut scene = Scene::new();
    let account = scene.node.account.clone();
    let room = if full { account.room() } else { 0 };
    account.charge(room);
    let before = account.used();
    let unknown = RemoteAddr { key: 8, addr: 0 };
    let write = Frame::Write { id: 1, place: unknown, more: 0, last: true, commit: false, data: None, performed: 0 };
    let (mut sent, mut most) = (0, 0);
    let ended = loop {
        for _ in 0..1000 {
            scene.raw.frame(&write, &[]);
            sent += 1;
        }
        let open = scene.raw.send();
        scene.world.advance(Duration::from_micros(20));
        scene.node.progress();
        most = most.max(account.used() - before.min(account.used()));
        if !open || sent >= 1_000_000 {
            break !open;
        }
    };
    assert!(ended, "it sent {sent} writes: {}", scene.node.ep.describe());
    scene.node.close();
    assert_eq!(account.used(), room);
    (sent, most)
}

/// Refusals wait while the peer does not read, although operations without a response need no
/// credit.
#[test]
fn refused_writes_of_a_peer_that_does_not_read_hold_little_memory() {
    let ((many, most), (few, least)) = (refused_until_the_end(false), refused_until_the_end(true));
    assert!(many > few + 10_000, "{many} and {few} were sent");
    assert!((1 << 20..=(1 << 20) + (64 << 10)).contains(&most), "{most} bytes were charged");
    assert_eq!(least, 0, "there was no room");
}
