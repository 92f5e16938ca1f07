//! Sources of messages and counters of a peer's accesses, while links break.

use fastrand::Rng;
use ofi_core::{Addr, BindFlags, Caps, Errno, FiAddr, OpFlags};
use ofi_engine::{Counter, CounterUnit, Waiting};
use ofi_os::membarrier;
use ofi_rig::{Message, Options, Receive, Side, Target, until};
use ofi_sim::node::{Node, addr};
use ofi_sim::{Faults, World};
use ofi_tcp::transport::{Settings, TcpTransport};
use std::sync::Arc;
use std::time::Duration;

/// The program's number for the known sender.
const ID: FiAddr = FiAddr(4711);

fn open(world: &World, host: u8, more: Caps) -> Node {
    let (network, at) = (world.clone(), addr(host, 1000));
    let base = Options::default();
    let options = Options { caps: base.caps | more, provider: "sim", ..base };
    Side::open(options, world.port(), |account| {
        let account = account.clone();
        Box::new(move |_| {
            let settings = Settings { account: account.clone(), ..Settings::default() };
            TcpTransport::listening(network.net_of(at.ip()), Addr::from(at), settings)
        })
    })
}

#[test]
fn sources_are_right_while_links_break() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let world = World::new(seed, Faults { stall: 3, split: true });
        let mut inbox = open(&world, 1, Caps::SOURCE_ERR | Caps::AV_USER_ID);
        let mut senders = [2, 3].map(|host| open(&world, host, Caps::empty()));
        let known = inbox.know(addr(2, 1000));
        assert!(inbox.av.set_user_id(known, ID));
        let to = [0, 1].map(|which: usize| senders[which].know(addr(1, 1000)));
        let (mut receives, mut sent) = (Vec::new(), 0);
        for _ in 0..40 {
            let which = rng.usize(0..2);
            senders[which].post(Message::new(to[which], vec![u8::from(which == 1); rng.usize(1..3000)]));
            sent += 1;
            receives.push(inbox.post_receive(Receive::new(4000)));
            if rng.u8(0..10) == 0 {
                world.break_connections();
            }
            for node in [&mut inbox].into_iter().chain(&mut senders) {
                node.progress();
            }
            world.advance(Duration::from_micros(50));
        }
        let [one, two] = &mut senders;
        until(&world, &mut [&mut inbox, one, two], |nodes| nodes[1..].iter().all(|node| node.pending().is_empty()));
        let mut arrived = 0;
        for receive in receives {
            let Some(done) = inbox.finished(receive).first() else { continue };
            match &done.outcome {
                Ok(completion) => {
                    assert_eq!((completion.src, done.bytes[0]), (ID, 0), "seed {seed}");
                    arrived += 1;
                }
                Err(failure) if failure.errno == Errno::EADDRNOTAVAIL => {
                    assert_eq!((failure.sender, done.bytes[0]), (Some(Addr::from(addr(3, 1000))), 1), "seed {seed}");
                    arrived += 1;
                }
                // Its link has broken.
                Err(_) => {}
            }
        }
        assert!(arrived > 0 && arrived <= sent, "seed {seed}: {arrived} of {sent}");
        [&mut inbox].into_iter().chain(&mut senders).for_each(Side::close);
    }
}

#[test]
fn accesses_are_counted_once_while_links_break() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let world = World::new(seed, Faults { stall: 3, split: true });
        let (mut target, mut initiator) = (open(&world, 1, Caps::empty()), open(&world, 2, Caps::empty()));
        let (unit, how) = (CounterUnit::Operations, Waiting::Sleeping);
        let counter = Arc::new(Counter::new(membarrier::locks(), unit, world.port(), how));
        target.ep.bind_counter(&counter, BindFlags::REMOTE_WRITE).unwrap();
        let exposed = target.expose(7, vec![0; 4096]);
        let to = initiator.know(addr(1, 1000));
        let mut writes = Vec::new();
        for _ in 0..40 {
            let len = rng.usize(1..4096);
            let (place, bytes) = (Target::new(to, 7, 0, len), vec![1; len]);
            writes.push(initiator.try_write(&place, bytes, None, OpFlags::empty()).unwrap());
            if rng.u8(0..10) == 0 {
                world.break_connections();
            }
            target.progress();
            initiator.progress();
            world.advance(Duration::from_micros(50));
        }
        until(&world, &mut [&mut target, &mut initiator], |nodes| nodes[1].pending().is_empty());
        let done = writes.iter().filter(|write| initiator.is_done(**write)).count() as u64;
        let counted = counter.read();
        assert!(done <= counted && counted <= writes.len() as u64, "seed {seed}: {counted} counted, {done} succeeded");
        assert_eq!(counter.read_errors(), 0);
        exposed.close();
        target.close();
        initiator.close();
    }
}
