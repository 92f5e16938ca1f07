//! Writes to persistent memory (FI_RMA_PMEM, FI_COMMIT_COMPLETE, fi_rma(3)) while links break: each
//! completes once, and success means that all of its bytes are in the peer's memory. The simulation
//! has no medium; `cargo xtask rdma-vm --only pmem` cuts the power of one.
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 200), `OFI_SIM_SEED=s` only seed s.

use fastrand::Rng;
use ofi_core::{Addr, Caps, Errno, OpFlags};
use ofi_rig::{Kind, Options, Side, Target, expect, finish, until};
use ofi_sim::node::{Node, addr};
use ofi_sim::seeds;
use ofi_sim::{Faults, World};
use ofi_tcp::transport::{Settings, TcpTransport};
use std::collections::HashMap;
use std::time::Duration;

/// Keys of persistent memory and of other memory.
const DURABLE: u64 = 7;
const PLAIN: u64 = 8;
/// Each operation has a part of the memory for itself, in bytes.
const PART: usize = 100_000;
const COUNT: usize = 40;

fn open(world: &World, host: u8) -> Node {
    let (network, at) = (world.clone(), addr(host, 1000));
    let base = Options::default();
    let options = Options { caps: base.caps | Caps::RMA_PMEM, provider: "sim", ..base };
    Side::open(options, world.port(), |account| {
        let account = account.clone();
        Box::new(move |_| {
            let settings = Settings { account: account.clone(), ..Settings::default() };
            TcpTransport::listening(network.net_of(at.ip()), Addr::from(at), settings)
        })
    })
}

/// A write that was accepted.
struct Write {
    number: usize,
    /// Lengths of its one or two ranges; the second begins in the middle of its part.
    lens: Vec<usize>,
    /// Whether its memory is persistent.
    durable: bool,
}

impl Write {
    fn byte(&self) -> u8 {
        u8::try_from(self.number + 1).expect("there are few")
    }

    fn begins(&self, range: usize) -> usize {
        self.number * PART + range * PART / 2
    }
}

/// How many writes with FI_COMMIT_COMPLETE succeeded, and how many failed with their link.
#[derive(Default)]
struct Outcomes {
    committed: usize,
    lost: usize,
}

fn exchange(seed: u64, outcomes: &mut Outcomes) {
    let mut rng = Rng::with_seed(seed);
    let world = World::new(seed, Faults { stall: rng.u8(..20), split: rng.bool() });
    let (mut target, mut initiator) = (open(&world, 1), open(&world, 2));
    let to = initiator.know(addr(1, 1000));
    let durable = target.expose_persistent(DURABLE, vec![0; COUNT * PART]);
    let plain = target.expose(PLAIN, vec![0; COUNT * PART]);
    let (mut writes, mut reads) = (HashMap::new(), Vec::new());
    for number in 0..COUNT {
        let most = if rng.u8(..4) == 0 { PART / 2 } else { 300 };
        let lens: Vec<usize> = (0..rng.usize(1..=2)).map(|_| rng.usize(1..=most)).collect();
        let write = Write { number, lens, durable: rng.u8(..5) > 0 };
        let key = if write.durable { DURABLE } else { PLAIN };
        let mut place = Target::new(to, key, write.begins(0) as u64, write.lens[0]);
        if let Some(len) = write.lens.get(1) {
            place = place.and(key, write.begins(1) as u64, *len);
        }
        let flags = match rng.u8(..6) {
            0 => OpFlags::COMMIT_COMPLETE | OpFlags::FENCE,
            1 => OpFlags::COMMIT_COMPLETE | OpFlags::MORE,
            _ => OpFlags::COMMIT_COMPLETE,
        };
        if rng.u8(..6) == 0 {
            // A read with that level makes nothing durable.
            reads.push(initiator.try_read(&place, OpFlags::COMMIT_COMPLETE).expect("few are outstanding"));
        }
        let (bytes, data) = (vec![write.byte(); write.lens.iter().sum()], rng.bool().then_some(number as u64 + 1));
        let context = initiator.try_write(&place, bytes, data, flags).expect("few are outstanding");
        writes.insert(context, (write, data));
        if rng.u8(..8) == 0 {
            world.break_connections();
        }
        for _ in 0..rng.usize(..4) {
            target.progress();
            initiator.progress();
            world.advance(Duration::from_micros(50));
        }
    }
    let mut sides = [&mut target, &mut initiator];
    expect(&world, &mut sides, &format!("seed {seed}"), |sides| sides[1].pending().is_empty());
    // A write whose link broke fails before the target has read the rest of the link.
    let mut idle = 0;
    until(&world, &mut [&mut initiator], |_| {
        idle = if target.progress() { 0 } else { idle + 1 };
        idle == 200
    });
    finish(&world, &mut [&mut target, &mut initiator]);
    let notices: Vec<u64> = target
        .take(0)
        .iter()
        .map(|notice| {
            assert_eq!(notice.kind, Kind::Notice);
            notice.completion().data
        })
        .collect();
    let (durable, plain) = (durable.close(), plain.close());
    assert!(plain.iter().all(|byte| *byte == 0), "seed {seed}: memory that is not persistent was written");
    for (context, (write, data)) in &writes {
        let [done] = initiator.finished(*context) else {
            panic!("seed {seed}: write {} does not end once", write.number)
        };
        let times = notices.iter().filter(|notice| Some(**notice) == *data).count();
        match &done.outcome {
            Ok(_) => {
                assert!(write.durable, "seed {seed}: write {} needs persistent memory", write.number);
                for (range, len) in write.lens.iter().enumerate() {
                    let from = write.begins(range);
                    let there = durable[from..from + len].iter().all(|byte| *byte == write.byte());
                    assert!(there, "seed {seed}: write {} has succeeded", write.number);
                }
                assert_eq!(times, usize::from(data.is_some()), "seed {seed}: write {}", write.number);
                outcomes.committed += 1;
            }
            Err(failure) if failure.errno == Errno::EACCES => {
                assert!(!write.durable, "seed {seed}: write {} is allowed: {failure:?}", write.number);
                assert_eq!(times, 0, "seed {seed}: write {} is refused", write.number);
            }
            Err(_) => {
                assert!(times <= usize::from(write.durable), "seed {seed}: write {}", write.number);
                outcomes.lost += 1;
            }
        }
    }
    for read in reads {
        assert_eq!(initiator.finished(read).len(), 1, "seed {seed}: a read ends once");
    }
    assert_eq!(initiator.ep.unfinished(), None, "seed {seed}");
    initiator.close();
    target.close();
}

#[test]
fn durable_writes_complete_once_while_links_break() {
    let mut outcomes = Outcomes::default();
    if seeds::run(200, |seed| exchange(seed, &mut outcomes)) {
        let Outcomes { committed, lost } = outcomes;
        assert!(committed > 500 && lost > 100, "{committed} writes became durable, {lost} were lost with their links");
    }
}
