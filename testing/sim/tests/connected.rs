//! Connected endpoints (fi_cm(3)) with a scripted peer: what shutting down and closing leave.

use ofi_core::{BindFlags, Caps, Errno, FiAddr, OpFlags};
use ofi_engine::completion::eq::Owner;
use ofi_engine::endpoint::{Config, Endpoint, Opener};
use ofi_engine::limits::Limits;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::target::mr::Regions;
use ofi_engine::trigger::{Initiator, Operation};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_engine::wire::hello::{Contexts, EndpointKind, Handshake, Hello};
use ofi_engine::{CompletionQueue, EventQueue, Waiting};
use ofi_memory::Buffer;
use ofi_sim::node::{addr, ip};
use ofi_sim::raw::{Door, Raw, Received};
use ofi_sim::{Faults, SimNet, World};
use ofi_sync::account::Account;
use ofi_sync::lock::Park;
use ofi_sync::primitive::{AtomicBool, Ordering};
use ofi_tcp::transport::{Settings, TcpTransport};
use std::sync::Arc;
use std::time::Duration;

type Sim = TcpTransport<SimNet>;

/// A connected endpoint with its queues.
struct Side {
    ep: Arc<Endpoint<Sim, Park>>,
    cq: Arc<CompletionQueue<Park>>,
    /// Whether it has a transport, or has had one.
    opened: Arc<AtomicBool>,
}

impl Side {
    fn open(world: &World) -> Self {
        let account = Arc::new(Account::new(16 << 20));
        let config = Config {
            kind: EndpointKind::Msg,
            caps: Caps::MSG | Caps::SEND | Caps::RECV,
            tx_size: 1024,
            rx_size: 1024,
            limits: Limits::new(usize::MAX, 4096),
            nonce: [1; 16],
            provider: "sim",
            regions: Arc::new(Regions::default()),
            account: account.clone(),
            contexts: Contexts::default(),
        };
        let (network, opened) = (world.clone(), Arc::new(AtomicBool::new(false)));
        let opens = opened.clone();
        let opener: Opener<Sim> = Box::new(move |_| {
            opens.store(true, Ordering::Relaxed);
            let settings = Settings { account: account.clone(), ..Settings::default() };
            TcpTransport::connected(network.net_of(ip(1)), None, settings)
        });
        let ep = Endpoint::new(Park::default(), config, None, opener, None);
        let cq = Arc::new(CompletionQueue::new(Park::default(), 4096, world.port(), Waiting::Never));
        ep.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("the first queue");
        let eq = Arc::new(EventQueue::new(world.port(), Waiting::Never));
        ep.bind_eq(&eq, Owner(1)).expect("the first queue");
        Self { ep, cq, opened }
    }

    /// Connects to a scripted peer, which accepts.
    fn connect(&self, world: &World, door: &mut Door) -> Raw {
        self.ep.connect(addr(2, 5).into(), &[]).expect("it is enabled");
        self.step(world);
        let mut raw = door.accept(world).expect("the endpoint connects");
        let Some(Received::Hello(request)) = raw.read().into_iter().next() else { panic!("it says hello") };
        let accept = Hello { handshake: Handshake::Accept, nonce: [2; 16], ..*request };
        raw.hello(&accept);
        raw.send();
        self.step(world);
        raw
    }

    /// Makes progress a few times; returns the number of successes.
    fn step(&self, world: &World) -> usize {
        let mut count = 0;
        for _ in 0..5 {
            world.advance(Duration::from_micros(50));
            count += self.cq.read(64, |_| ()).unwrap_or(0);
        }
        count
    }

    fn inject(&self, len: usize) -> bool {
        let (buffer, flags) = (Buffer::Owned(vec![3; len]), OpFlags::INJECT | OpFlags::INJECT_COMPLETE);
        let op = SendOp { dest: FiAddr(0), buffer, context: 1, tag: None, data: None, flags, inject: false };
        self.ep.send(op).is_ok()
    }
}

/// Sends that have completed arrive, even if the peer was in the middle of a message that no
/// receive waits for.
#[test]
fn shutting_down_keeps_what_was_sent_while_an_unmatched_message_arrives() {
    for seed in 0..20 {
        let world = World::new(seed, Faults { stall: 0, split: false });
        let mut door = Door::open(&world, addr(2, 5));
        let side = Side::open(&world);
        let mut raw = side.connect(&world, &mut door);
        let info = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };
        raw.begin_frame(&Frame::Eager { id: 0, info }, 50_000, &[9; 100]);
        raw.send();
        let mut completed = side.step(&world);
        // The peer does not read: the later ones wait in the endpoint.
        while completed < 150 && side.inject(4000) {
            completed += side.step(&world);
        }
        side.ep.shut_down().expect("it is connected");
        raw.bytes(&[9; 49_900]);
        let (mut got, mut bye) = (0, false);
        for _ in 0..2000 {
            raw.send();
            side.step(&world);
            for received in raw.read() {
                match received {
                    Received::Frame(Frame::Eager { .. }, _) => got += 1,
                    Received::Frame(Frame::Bye, _) => bye = true,
                    Received::Frame(..) | Received::Hello(_) | Received::End => {}
                }
            }
        }
        assert!(completed > 0 && got >= completed && bye, "seed {seed}: {got} of {completed} arrive, {bye}");
        side.ep.close();
    }
}

/// A deferred receive opens the transport of an endpoint that is not connected yet, but not that of
/// a closed one.
#[test]
fn deferred_work_does_not_reopen_a_closed_endpoint() {
    let world = World::new(0, Faults { stall: 0, split: false });
    let receive = |side: &Side| {
        let (src, buffer, context, tag, flags) = (FiAddr::UNSPEC, Buffer::empty(), 1, None, OpFlags::empty());
        let op = Operation::Receive(RecvOp { src, buffer, context, tag, flags });
        assert!(side.ep.start(op, None, None).is_ok());
        side.opened.load(Ordering::Relaxed)
    };
    let side = Side::open(&world);
    assert!(receive(&side));
    side.ep.close();
    let side = Side::open(&world);
    side.ep.close();
    assert!(!receive(&side));
    assert_eq!(side.cq.read(1, |_| ()), Err(Errno::AGAIN), "a closed endpoint reports nothing");
}
