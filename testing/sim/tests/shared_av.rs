//! Endpoints whose address vector is in memory that other processes have too (FI_SHARED_AV):
//! nothing notifies them of insertions there.
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 200), `OFI_SIM_SEED=s` only seed s.

use core::ops::Range;
use fastrand::Rng;
use ofi_core::{Addr, Errno, FiAddr, OpFlags};
use ofi_engine::AddressVector;
use ofi_engine::av::shared::{SharedMemory, initialize, words_for};
use ofi_rig::{Message, Receive, Side, Target, expect, finish};
use ofi_sim::node::{Node, Options, addr, open_node};
use ofi_sim::seeds;
use ofi_sim::{Faults, World};
use ofi_sync::primitive::real::AtomicU64;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

const CAPACITY: usize = 64;

/// Memory of this process, as if other processes had it too.
#[derive(Clone, Debug)]
struct Heap(Arc<Vec<AtomicU64>>);

impl SharedMemory for Heap {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn with_write_lock(&self, change: &mut dyn FnMut()) -> Result<(), Errno> {
        change();
        Ok(())
    }

    fn allocate(&self, _words: Range<usize>) -> Result<(), Errno> {
        Ok(())
    }
}

/// An address vector in fresh memory, and what other processes see of it.
fn share() -> (Arc<AddressVector>, AddressVector) {
    let memory = Heap(Arc::new((0..words_for(CAPACITY)).map(|_| AtomicU64::new(0)).collect()));
    initialize(memory.words(), 1);
    let open = |memory| AddressVector::shared(Box::new(memory), CAPACITY).unwrap();
    (Arc::new(open(memory.clone())), open(memory))
}

fn open(world: &World, av: Arc<AddressVector>) -> Node {
    let network = world.clone();
    Side::open_sharing(ofi_rig::Options::default(), av, world.port(), |account| {
        let account = account.clone();
        Box::new(move |_| {
            let at = addr(1, 1);
            let settings = Settings { account: account.clone(), ..Settings::default() };
            TcpTransport::listening(network.net_of(at.ip()), Addr::from(at), settings)
        })
    })
}

#[test]
fn a_thread_looks_for_insertions_only_while_receives_wait_for_them() {
    let world = World::new(1, Faults { stall: 0, split: false });
    let mut side = open(&world, share().0);
    side.progress();
    assert_eq!(side.ep.next_due(), None);
    let receive = side.receive(FiAddr(3), 0, 8);
    assert!(side.ep.next_due().is_some(), "handle 3 may be inserted by another process");
    side.progress();
    assert!(side.ep.next_due().is_some());
    side.ep.cancel(receive);
    side.progress();
    assert_eq!(side.ep.next_due(), None, "nothing waits for a handle any more");
    assert_eq!(side.take(receive).len(), 1);
}

/// The first peer's host; the others follow.
const FIRST: u8 = 2;
const PEERS: u8 = 3;

/// What a peer's messages consist of.
fn byte_of(peer: usize) -> u8 {
    u8::try_from(peer + 1).expect("there are few")
}

/// One end's traffic, with the handles that another process inserts and removes.
struct Scene {
    world: World,
    side: Node,
    peers: Vec<Node>,
    elsewhere: AddressVector,
    /// The peers' handle of the side.
    to_side: FiAddr,
    /// The peers in the order of their handles, which never change their peer.
    handles: Vec<usize>,
    /// Peers that are in the address vector now.
    inserted: HashSet<usize>,
    receives: Vec<(usize, usize)>,
}

impl Scene {
    fn new(seed: u64, rng: &mut Rng) -> Self {
        let world = World::new(seed, Faults { stall: rng.u8(..20), split: rng.bool() });
        let (av, elsewhere) = share();
        let side = open(&world, av);
        let peers: Vec<Node> = (0..PEERS).map(|at| open_node(&world, &Options::at(addr(FIRST + at, 1)))).collect();
        let to_side = FiAddr(0);
        for peer in &peers {
            assert_eq!(peer.know(side.addr()), to_side);
        }
        // Inserted once, so that each has the same handle whenever it is there again.
        let mut handles: Vec<usize> = (0..peers.len()).collect();
        rng.shuffle(&mut handles);
        let (inserted, receives) = (HashSet::new(), Vec::new());
        Self { world, side, peers, elsewhere, to_side, handles, inserted, receives }
    }

    /// Another process inserts the peers whose turn it is, or removes the last of them: a handle
    /// that is free again goes to the same peer.
    fn change_elsewhere(&mut self, inserts: bool) {
        let count = self.inserted.len();
        if inserts && count < self.handles.len() {
            let peer = self.handles[count];
            assert_eq!(self.elsewhere.insert(self.peers[peer].addr()), FiAddr(count as u64));
            self.inserted.insert(peer);
        } else if !inserts && count > 0 {
            assert!(self.elsewhere.remove(FiAddr(count as u64 - 1)), "it is there");
            self.inserted.remove(&self.handles[count - 1]);
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        let handle = rng.usize(..self.handles.len());
        let (to, len) =
            (FiAddr(handle as u64), if rng.u8(..4) == 0 { rng.usize(1..200_000) } else { rng.usize(1..300) });
        let level = [OpFlags::empty(), OpFlags::DELIVERY_COMPLETE][rng.usize(..2)];
        match rng.u8(..12) {
            0 | 1 => {
                // The handle may exist only later.
                let receive = Receive::new(200_000).from(to);
                self.receives.push((self.side.post_receive(receive), handle));
            }
            2 | 3 => {
                let peer = self.handles[handle];
                let message = Message::new(self.to_side, vec![byte_of(peer); len]).flags(level);
                self.peers[peer].post(message);
            }
            4 | 5 => {
                let posted = self.side.try_post(Message::new(to, vec![9; len]).flags(level));
                let known = self.inserted.contains(&self.handles[handle]);
                assert_eq!(posted.is_ok(), known, "{posted:?}");
                if known {
                    self.peers[self.handles[handle]].post_receive(Receive::new(200_000));
                }
            }
            6 => {
                let target = Target::new(to, 7, 0, len.min(4096));
                let posted = self.side.try_write(&target, vec![9; len.min(4096)], None, level);
                assert_eq!(posted.is_ok(), self.inserted.contains(&self.handles[handle]), "{posted:?}");
            }
            7 => self.change_elsewhere(rng.u8(..3) > 0),
            8 if rng.u8(..4) == 0 => self.world.break_connections(),
            _ => {}
        }
        self.pass();
    }

    fn pass(&mut self) {
        self.side.progress();
        for peer in &mut self.peers {
            peer.progress();
        }
        self.world.advance(Duration::from_micros(50));
    }
}

/// Returns how many receives had a message.
fn exchange(seed: u64) -> usize {
    let mut rng = Rng::with_seed(seed);
    let mut scene = Scene::new(seed, &mut rng);
    let memory: Vec<_> = scene.peers.iter().map(|peer| peer.expose(7, vec![0; 4096])).collect();
    for _ in 0..300 {
        scene.step(&mut rng);
    }
    // Each peer is known in the end, and a last message to and from each arrives.
    while scene.inserted.len() < scene.handles.len() {
        scene.change_elsewhere(true);
    }
    // What is sent on a link that has just broken may be lost: all notice that first.
    (0..500).for_each(|_| scene.pass());
    let mut last = Vec::new();
    for (handle, peer) in scene.handles.clone().into_iter().enumerate() {
        let tagged = Receive::new(8).tagged(1).from(FiAddr(handle as u64));
        last.push((scene.side.post_receive(tagged), peer));
        scene.peers[peer].send(scene.to_side, 1, vec![byte_of(peer); 8]);
    }
    let Scene { world, side, peers, .. } = &mut scene;
    let mut all: Vec<&mut Node> = core::iter::once(side).chain(peers).collect();
    expect(world, &mut all, &format!("seed {seed}: the last messages"), |all| {
        last.iter().all(|(receive, _)| all[0].is_done(*receive))
    });
    finish(world, &mut all);
    let mut arrived = 0;
    let directed = scene.receives.iter().map(|(receive, handle)| (*receive, scene.handles[*handle]));
    for (receive, peer) in directed.chain(last) {
        let [done] = scene.side.finished(receive) else { panic!("seed {seed}: a receive ends once") };
        if let Ok(entry) = &done.outcome {
            assert!(done.bytes[..entry.len].iter().all(|byte| *byte == byte_of(peer)), "seed {seed}: of another peer");
            arrived += 1;
        }
    }
    memory.into_iter().for_each(|memory| drop(memory.close()));
    scene.side.close();
    scene.peers.iter_mut().for_each(Node::close);
    arrived
}

#[test]
fn addresses_of_other_processes_serve_once_each_while_links_break() {
    let mut arrived = 0;
    if seeds::run(200, |seed| arrived += exchange(seed)) {
        assert!(arrived > 2000, "{arrived} directed receives had a message");
    }
}
