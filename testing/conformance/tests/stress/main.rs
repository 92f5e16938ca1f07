//! Random operations between four endpoints over the system's sockets and over shared memory, from
//! several threads at once: one thread drives two endpoints, and two threads share one. Completion
//! queues have room for one entry, and most worlds have little memory for their peers. Every
//! accepted operation must complete exactly once, every message must arrive once, unchanged and in
//! order, and memory must hold the results of the one-sided operations. In the end no endpoint
//! holds memory for a peer, and the process is no larger than after the first worlds.
//!
//! `OFI_STRESS_SECONDS=n` runs for n seconds over each transport (default 3). `OFI_STRESS_SEED=s`
//! repeats the random choices of a run, but not its timing. The worlds of a run have consecutive
//! seeds; a failure names that of its world.

mod guest;
mod media;
mod node;
mod watch;
mod world;

use fastrand::Rng;
use guest::Guest;
use libtest_mimic::{Arguments, Trial};
use media::{Loopback, Medium, SharedMemory};
use node::Node;
use ofi_core::{Addr, FiAddr};
use ofi_engine::AddressVector;
use ofi_engine::transport::Transport;
use ofi_os::clock::now;
use ofi_rig::{Kind, Options, Side};
use std::process::ExitCode;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use watch::Watch;
use world::{ENDPOINTS, LAST, MOST_POSTED, THREADS, World, reached_by, wait};

/// How many endpoints each thread drives, not counting the guest thread.
const DRIVERS: [usize; THREADS - 1] = [1, 1, 2];
/// Worlds after which the process has reached its size. Worlds differ in the memory that they need.
const EARLY: u64 = 4;
/// Tolerated growth of the process: how much freed memory stays in each thread's arena depends on
/// the timing.
const SLACK: usize = 64 << 20;

/// Drives endpoints through all rounds, and closes them.
fn drive<T: Transport>(mut nodes: Vec<Node<T>>, world: &World, rng: &mut Rng) {
    for round in 0..world.rounds {
        nodes.iter_mut().for_each(|node| node.expose(world, rng));
        world.barrier.wait();
        for _ in 0..world.steps {
            let which = rng.usize(0..nodes.len());
            nodes[which].step(world, rng);
        }
        // Inject calls do not report completion, but the last message to each endpoint arrives
        // behind all accesses.
        let first = nodes[0].number;
        let mut last: Vec<(usize, usize)> =
            (0..nodes.len()).flat_map(|node| reached_by(first + node).map(move |dest| (node, dest))).collect();
        let mut is_settled = false;
        while !world.is_quiet(round) {
            last.retain(|(node, dest)| !nodes[*node].send(*dest, world, rng));
            let mut any = false;
            for node in &mut nodes {
                any |= node.reap(world);
                node.post_any();
            }
            if !is_settled && last.is_empty() {
                is_settled = nodes.iter().all(|node| node.rig.unfinished(&[Kind::Send, Kind::Access]).is_empty());
                world.tally().settled += usize::from(is_settled);
            }
            if !any {
                let which = rng.usize(0..nodes.len());
                wait(&nodes[which].rig.cq, Duration::from_millis(1));
            }
        }
        world.barrier.wait();
        nodes.iter_mut().for_each(|node| node.end_receives(world));
        world.barrier.wait();
        nodes.iter_mut().for_each(|node| node.end_round(world));
    }
    // The last endpoint holds no memory for the others once they are gone.
    for node in nodes.iter_mut().filter(|node| node.number != LAST) {
        node.rig.close();
        world.tally().closed += 1;
    }
    for node in nodes.iter_mut().filter(|node| node.number == LAST) {
        while world.tally().closed < ENDPOINTS - 1 || node.rig.account.used() > 0 {
            assert!(!node.reap(world), "an operation completed twice");
        }
        node.rig.close();
    }
}

/// Opens endpoints, runs some rounds, and closes them.
fn run<M: Medium>(seed: u64, watch: &Arc<Watch>) {
    let mut rng = Rng::with_seed(seed);
    let medium = M::new(&mut rng);
    let avs = [(); 2].map(|()| Arc::new(AddressVector::new(4, false)));
    let memory = rng.choice([64 << 10, 1 << 20, 64 << 20]).unwrap_or_default();
    let sides: Vec<Side<M::Carrier>> = (0..ENDPOINTS)
        .map(|number| {
            let mut nonce = [0; 16];
            rng.fill(&mut nonce);
            let options = Options {
                nonce,
                memory,
                sizes: (1, 4),
                tx_size: rng.usize(8..100),
                rx_size: 2 * MOST_POSTED,
                ..Options::default()
            };
            medium.open(options, avs[number / 2].clone(), &mut rng)
        })
        .collect();
    let addrs: Vec<Addr> = sides.iter().map(Side::addr).collect();
    let handles = avs.map(|av| addrs.iter().map(|addr| av.insert(*addr)).collect::<Vec<FiAddr>>());
    let endpoints: Vec<_> = sides.iter().map(|side| side.ep.clone()).collect();
    let world = Arc::new(World {
        seed,
        rounds: rng.usize(1..4),
        steps: rng.usize(200..2000),
        accesses: Default::default(),
        tally: Mutex::default(),
        barrier: Barrier::new(THREADS),
        watch: watch.clone(),
    });
    watch.look_at(seed, {
        let world = world.clone();
        Box::new(move || {
            let all: Vec<String> = endpoints.iter().map(|ep| ep.describe()).collect();
            format!("{:?}\n{}", world.tally, all.join("\n"))
        })
    });
    let host = &sides[LAST];
    let (ep, cq, av) = (host.ep.clone(), host.cq.clone(), host.av.clone());
    let guest = Guest { ep, cq, av, peers: handles[LAST / 2].clone(), stranger: medium.stranger(), next_message: 0 };
    let mut nodes = sides.into_iter().enumerate().map(|(number, rig)| Node::new(number, rig, &handles[number / 2]));
    std::thread::scope(|scope| {
        for driven in DRIVERS {
            let (nodes, world, mut rng) = (nodes.by_ref().take(driven).collect(), &world, rng.fork());
            scope.spawn(move || drive(nodes, world, &mut rng));
        }
        guest.visit(&world, &mut rng);
    });
    watch.look_at(seed, Box::new(|| "between worlds".to_owned()));
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has memory");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn stress<M: Medium>() {
    let first = number("OFI_STRESS_SEED").unwrap_or_else(|| Rng::new().u64(..));
    eprintln!("{}: OFI_STRESS_SEED={first}", M::NAME);
    let (watch, _end) = Watch::start(M::NAME);
    let (print, watched) = (std::panic::take_hook(), watch.clone());
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        watched.abort(M::NAME);
    }));
    let end = now() + Duration::from_secs(number("OFI_STRESS_SECONDS").unwrap_or(3));
    let (mut early, mut worlds) = (0, 0);
    while worlds < EARLY || now() < end {
        run::<M>(first.wrapping_add(worlds), &watch);
        worlds += 1;
        if worlds <= EARLY {
            early = early.max(resident());
        }
    }
    let late = resident();
    eprintln!("{}: {} completions in {worlds} worlds; {early}, then {late} bytes", M::NAME, watch.completions());
    assert!(late <= early + SLACK, "{early} bytes after the first {EARLY} worlds, {late} in the end");
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One at a time: the size of the process and the panic hook belong to one run.
    arguments.test_threads = Some(1);
    let trial = |name, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    let trials = vec![trial(Loopback::NAME, stress::<Loopback>), trial(SharedMemory::NAME, stress::<SharedMemory>)];
    libtest_mimic::run(&arguments, trials).exit_code()
}
