//! A peer that sends random frames of one-sided operations, valid, nearly valid and invalid, at any
//! time, also as responses to the victim's requests. The victim must not panic or hold much memory,
//! its own operations must complete exactly once, and its other links must stay up.
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 500), `OFI_SIM_SEED=s` only seed s.

use fastrand::Rng;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Addr, Errno, FiAddr, MrAccess, OpFlags};
use ofi_engine::wire::frame::Frame;
use ofi_engine::wire::one_sided::{Action, Refusal, RemoteAddr};
use ofi_rig::{Exposed, Target, expect, ping_pong};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, Received, connect_hello};
use ofi_sim::seeds;
use ofi_sim::{Faults, World};
use std::time::Duration;

/// Regions of the victim: writable, read-only, and long.
const KEYS: [u64; 3] = [7, 8, 9];
const LENGTHS: [usize; 3] = [256, 64, 600 << 10];
/// Maximum memory held for the attacker and the friend: their windows and copied responses.
const BOUND: usize = 8 << 20;

struct Scene {
    world: World,
    victim: Node,
    friend: Node,
    to_friend: FiAddr,
    to_victim: FiAddr,
    to_attacker: FiAddr,
    raw: Raw,
    /// Numbers of the victim's requests that the attacker has received.
    requests: Vec<u32>,
    lives: u8,
}

impl Scene {
    fn new(seed: u64, rng: &mut Rng) -> Self {
        let world = World::new(seed, Faults { stall: *[0, 10].get(rng.usize(0..2)).unwrap(), split: rng.bool() });
        let mut victim = open_node(&world, &Options::at(addr(1, 1000)));
        let mut friend = open_node(&world, &Options::at(addr(2, 1000)));
        let (to_friend, to_victim) = (victim.know(friend.addr()), friend.know(victim.addr()));
        ping_pong(&world, &mut victim, &mut friend, to_friend, to_victim);
        let to_attacker = victim.know(addr(66, 1000));
        let raw = attack(&world, 0);
        Self { world, victim, friend, to_friend, to_victim, to_attacker, raw, requests: Vec::new(), lives: 1 }
    }

    /// The attacker sends something, and the victim makes progress.
    fn step(&mut self, rng: &mut Rng) {
        for _ in 0..rng.usize(0..6) {
            if rng.u8(0..60) == 0 {
                let bytes: Vec<u8> = (0..rng.usize(1..60)).map(|_| rng.u8(..)).collect();
                self.raw.bytes(&bytes);
            } else {
                let (frame, len) = draw(rng, &self.requests);
                self.raw.frame(&frame, &vec![rng.u8(..); len]);
            }
        }
        let mut open = self.raw.send();
        self.world.advance(Duration::from_micros(20));
        self.victim.progress();
        // Sometimes it does not read.
        if rng.u8(0..3) > 0 {
            for received in self.raw.read() {
                match received {
                    Received::Frame(Frame::Read { id, .. } | Frame::Write { id, .. } | Frame::Atomic { id, .. }, _) => {
                        self.requests.push(id);
                    }
                    Received::Frame(..) | Received::Hello(_) => {}
                    Received::End => open = false,
                }
            }
        }
        if !open {
            self.raw = attack(&self.world, self.lives);
            self.lives = self.lives.wrapping_add(1);
            self.requests.clear();
        }
        let used = self.victim.account.used();
        assert!(used < BOUND, "{used} bytes are held: {}", self.victim.ep.describe());
    }

    /// The victim accesses the attacker's memory.
    fn access(&mut self, rng: &mut Rng) {
        let len = rng.usize(1..40) * 8;
        let mut target = Target::new(self.to_attacker, 1, 0, len);
        if rng.bool() {
            target = target.and(1, 0, 8);
        }
        let total: usize = target.ranges.iter().map(|range| usize::try_from(range.len).unwrap()).sum();
        let bytes = vec![3; total];
        let flags = if rng.u8(0..8) == 0 { OpFlags::FENCE } else { OpFlags::empty() };
        let sum = |kind| (kind, AtomicOp::Sum, Datatype::Uint64);
        let posted = match rng.u8(0..4) {
            0 => self.victim.try_read(&target, flags),
            1 => self.victim.try_write(&target, bytes, None, flags),
            2 => self.victim.try_atomic(&target, sum(AtomicKind::Fetch), &bytes, &[], flags),
            _ => self.victim.try_atomic(&target, sum(AtomicKind::Base), &bytes, &[], flags),
        };
        assert!(matches!(posted, Ok(_) | Err(Errno::AGAIN)), "{posted:?}");
    }

    /// The friend writes to the victim and reads it back.
    fn befriend(&mut self, exposed: &Exposed) {
        let Self { world, victim, friend, to_victim, to_friend, .. } = self;
        ping_pong(world, victim, friend, *to_friend, *to_victim);
        let len = exposed.bytes().len();
        let target = Target::new(*to_victim, 77, 0, len);
        let write = friend.write(&target, vec![9; len]);
        let read = friend.read(&target);
        expect(world, &mut [friend, victim], "the friend is served", |sides| {
            sides[0].is_done(write) && sides[0].is_done(read)
        });
        assert!(friend.take(read)[0].bytes.iter().all(|byte| *byte == 9));
    }
}

fn attack(world: &World, life: u8) -> Raw {
    let mut raw = Raw::connect(world, ip(66), addr(1, 1000));
    raw.hello(&connect_hello(Addr::from(addr(66, 1000)), [100_u8.wrapping_add(life); 16]));
    raw
}

/// A frame, with the length of its payload.
fn draw(rng: &mut Rng, requests: &[u32]) -> (Frame, usize) {
    let which = rng.usize(0..3);
    let edge = LENGTHS[which] as u64;
    let place = RemoteAddr {
        key: *rng.choice(&[KEYS[which], KEYS[which], KEYS[which], 1, u64::MAX]).unwrap(),
        addr: *rng.choice(&[0, 0, rng.clone().u64(0..edge), edge, edge - 8, u64::MAX]).unwrap(),
    };
    let known = rng.choice(requests).copied().filter(|_| rng.u8(0..8) > 0);
    let id = known.unwrap_or_else(|| *rng.choice(&[0, 1, 2, 63, u32::MAX - 1, u32::MAX]).unwrap());
    let len = *rng.choice(&[0, 1, 8, 8, 16, 64, 4096, 4104, 70_000]).unwrap();
    let (last, wild) = (rng.u8(0..4) > 0, rng.u8(0..24) == 0);
    let data = (last && rng.u8(0..4) == 0).then(|| rng.u64(..));
    match rng.u8(0..12) {
        0..=2 => {
            let more = if wild { u64::MAX - rng.u64(0..100) } else { *rng.choice(&[0, 0, 8, 1 << 40]).unwrap() };
            let performed = if rng.u8(0..40) == 0 { rng.u16(..) } else { 0 };
            (Frame::Write { id, place, more, last, commit: rng.bool(), data, performed }, len)
        }
        3..=5 => {
            let len = if wild { u64::MAX } else { *rng.choice(&[0, 8, 64, 4096, 4097, 600 << 10]).unwrap() };
            (Frame::Read { id, place, len, last }, 0)
        }
        6..=8 => {
            let action = draw_action(rng);
            let unit = action.datatype.size() * action.values().max(1);
            let carried = if wild { len } else { unit * rng.usize(1..4) };
            let (elements, carried) = match action.values() {
                0 => (Some((action.datatype.size() * rng.usize(usize::from(!wild)..4)) as u64), 0),
                _ => (None, carried),
            };
            (Frame::Atomic { id, place, action, len: elements, last, data }, carried)
        }
        9 => (Frame::Response { id, last }, len),
        10 => (Frame::Performed { count: *rng.choice(&[1, 1, 1, 2, 64, u32::MAX]).unwrap() }, 0),
        _ => {
            let all = [Refusal::Key, Refusal::Rights, Refusal::Bounds, Refusal::Fault, Refusal::Closed, Refusal::Flush];
            (Frame::Refused { id, last, why: *rng.choice(&all).unwrap() }, 0)
        }
    }
}

fn draw_action(rng: &mut Rng) -> Action {
    loop {
        let kind = *rng.choice(&[AtomicKind::Base, AtomicKind::Fetch, AtomicKind::Compare]).unwrap();
        let (op, datatype) = (*rng.choice(&AtomicOp::ALL).unwrap(), *rng.choice(&Datatype::ALL).unwrap());
        if op.is_valid(kind, datatype) {
            return Action { kind, op, datatype };
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut scene = Scene::new(seed, &mut rng);
    let rights = [MrAccess::REMOTE, MrAccess::REMOTE_READ, MrAccess::REMOTE];
    let exposed: Vec<Exposed> = (0..3)
        .map(|which| scene.victim.try_expose(KEYS[which], vec![5; LENGTHS[which]], rights[which]).unwrap())
        .collect();
    let own = scene.victim.expose(77, vec![0; 1000]);
    for round in 0..80 {
        if rng.u8(0..4) == 0 {
            scene.access(&mut rng);
        }
        scene.step(&mut rng);
        if round == 40 {
            scene.befriend(&own);
        }
    }
    // The attacker disconnects, which ends the victim's requests to it.
    let Scene { world, mut victim, mut friend, raw, .. } = scene;
    drop(raw);
    exposed.iter().for_each(Exposed::retire);
    expect(&world, &mut [&mut victim, &mut friend], "everything ends", |sides| {
        sides[0].pending().is_empty() && exposed.iter().all(|region| region.region.is_idle())
    });
    assert_eq!(exposed[1].rest(), vec![5; LENGTHS[1]], "the read-only region has changed");
}

#[test]
fn random_frames_harm_no_other_peer() {
    seeds::run(500, run);
}
