//! Connected endpoints that are shut down (fi_shutdown(3), fi_cm(3)) while links break: everything
//! accepted completes once, on both sides, and each side gets one event about the end.
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 300), `OFI_SIM_SEED=s` only seed s.

use fastrand::Rng;
use ofi_core::{Addr, Errno, FiAddr, OpFlags};
use ofi_engine::completion::eq::{EventKind, Found, Owner};
use ofi_engine::passive::PassiveEndpoint;
use ofi_engine::provider::Provider as _;
use ofi_engine::transport::{ConnectRequest, Transport};
use ofi_engine::{EventQueue, Waiting};
use ofi_rig::{Exposed, Kind, Message, Options, Receive, Side, Target, Watch, finish};
use ofi_sim::node::{Node, addr, ip};
use ofi_sim::seeds;
use ofi_sim::{Faults, SimNet, World};
use ofi_sync::account::Account;
use ofi_tcp::listener::TcpListener;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

type Request = ConnectRequest<<TcpTransport<SimNet> as Transport>::Request>;

/// Operations of a run, and the longest message in bytes.
const COUNT: u64 = 60;
const MOST: usize = 120_000;
const KEY: u64 = 7;
/// Connected endpoints ignore it.
const PEER: FiAddr = FiAddr(0);

/// A connected endpoint, its events, and what it posted.
struct End {
    side: Node,
    eq: Arc<EventQueue>,
    memory: Exposed,
    connected: usize,
    shutdowns: usize,
    posted: Vec<usize>,
    /// The application has called fi_shutdown.
    is_shut_down: bool,
}

impl End {
    fn open(world: &World, host: u8) -> Self {
        let eq = Arc::new(EventQueue::new(world.port(), Waiting::Sleeping));
        let network = world.clone();
        let options = Options { tx_size: 32, provider: "sim", ..Options::default() };
        let side = Side::open_connected(options, world.port(), &eq, |account| {
            let account = account.clone();
            Box::new(move |_| {
                let settings = Settings { account: account.clone(), ..Settings::default() };
                TcpTransport::connected(network.net_of(ip(host)), None, settings)
            })
        });
        let memory = side.expose(KEY, vec![0; MOST]);
        Self { side, eq, memory, connected: 0, shutdowns: 0, posted: Vec::new(), is_shut_down: false }
    }

    fn read_events(&mut self) {
        loop {
            match self.eq.read(|_| false) {
                Found::Event(event) => match event.kind {
                    EventKind::Connected(_) => self.connected += 1,
                    EventKind::Shutdown => self.shutdowns += 1,
                    other => panic!("an event of a connected endpoint: {other:?}"),
                },
                Found::Error => panic!("the connection fails: {:?}", self.eq.read_error()),
                Found::Nothing => return,
            }
        }
    }

    fn shut_down(&mut self) {
        let ended = self.shutdowns > 0;
        match self.side.ep.shut_down() {
            Ok(()) => {}
            Err(errno) => assert!(errno == Errno::ENOTCONN && (self.is_shut_down || ended), "{errno:?}"),
        }
        self.is_shut_down = true;
        // The entries of what it cancels are there when the call returns.
        self.side.progress();
        assert_eq!(self.side.pending(), [] as [usize; 0], "{}", self.side.ep.describe());
    }

    /// Records an operation that was accepted. One may be refused for lack of room, or because the
    /// connection has ended, which the application may not have read yet.
    fn record(&mut self, posted: Result<usize, Errno>) -> bool {
        match posted {
            Ok(context) => {
                assert!(!self.is_shut_down, "the connection was shut down");
                self.posted.push(context);
                true
            }
            Err(errno) => {
                assert!(matches!(errno, Errno::AGAIN | Errno::ENOTCONN), "{errno:?}");
                assert!(errno != Errno::AGAIN || !self.is_shut_down, "the connection was shut down");
                false
            }
        }
    }
}

/// Two connected endpoints.
struct Scene {
    world: World,
    ends: [End; 2],
    passive: Arc<PassiveEndpoint<TcpListener<SimNet>>>,
}

impl Scene {
    fn new(seed: u64, faults: Faults) -> Self {
        let world = World::new(seed, faults);
        let mut info = ofi_tcp::Provider::offers().pop().expect("connected endpoints").most;
        info.src_addr = Some(addr(1, 1000).into());
        let (network, account) = (world.clone(), Arc::new(Account::new(1 << 20)));
        let opener = move |at: Option<Addr>| {
            TcpListener::new(network.net_of(ip(1)), at.expect("it has one"), None, account.clone())
        };
        let passive = PassiveEndpoint::new(info, [3; 16], Box::new(opener));
        let requests = Arc::new(EventQueue::new(world.port(), Waiting::Sleeping));
        passive.bind_eq(&requests, Owner(9)).expect("it does not listen yet");
        passive.listen().expect("the address is free");
        let ends = [End::open(&world, 2), End::open(&world, 1)];
        ends[0].side.ep.connect(addr(1, 1000).into(), b"hello").expect("it is new");
        let mut scene = Self { world, ends, passive };
        let mut accepted = false;
        scene.until("they connect", |ends| {
            if let Found::Event(event) = requests.read(|_| false) {
                let EventKind::ConnectionRequest(request) = event.kind else { panic!("{event:?}") };
                assert!(!accepted && request.data == b"hello");
                let asked: Request = request.into_asked().expect("it is of this transport");
                ends[1].side.ep.accept(asked, &[]).expect("the request is new");
                accepted = true;
            }
            ends.iter().all(|end| end.connected == 1)
        });
        scene
    }

    /// Both ends make progress until the condition holds.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut [End; 2]) -> bool) {
        let end = self.world.now() + World::LIMIT;
        while !is_so(&mut self.ends) {
            let [a, b] = &self.ends;
            assert!(self.world.now() < end, "{what}: {}\n{}", a.side.ep.describe(), b.side.ep.describe());
            self.pass();
        }
    }

    fn pass(&mut self) {
        for end in &mut self.ends {
            end.side.progress();
            end.read_events();
        }
        self.world.advance(Duration::from_micros(50));
    }

    /// Posts an operation of a random kind at one end.
    fn post(&mut self, number: u64, random: &mut Rng) {
        let (which, len) =
            (random.usize(..2), if random.u8(..4) == 0 { random.usize(..MOST) } else { random.usize(..200) });
        let level = [OpFlags::empty(), OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE][random.usize(..3)];
        let target = Target::new(PEER, KEY, 0, len.max(1));
        let bytes = vec![u8::try_from(number).expect("there are few") | 1; len.max(1)];
        let kind = random.u8(..6);
        if kind < 3 {
            // Some messages stay without a receive.
            let receiver = &mut self.ends[1 - which];
            if random.u8(..4) > 0 {
                let tagged = Receive::new(MOST).tagged(1);
                let posted = receiver.side.try_post_receive(if kind == 0 { tagged } else { Receive::new(MOST) });
                receiver.record(posted);
            }
        }
        let end = &mut self.ends[which];
        let message = Message::new(PEER, bytes.clone()).data(number).flags(level);
        let posted = match kind {
            0 => end.side.try_post(message.tagged(1)),
            1 | 2 => end.side.try_post(message),
            3 => end.side.try_write(&target, bytes, None, level),
            _ => end.side.try_read(&target, OpFlags::empty()),
        };
        end.record(posted);
    }

    /// Checks that everything accepted completes once, receives included, and that each end gets
    /// one event.
    fn finish(&mut self, seed: u64) {
        self.until(&format!("seed {seed}: the end of everything"), |ends| {
            ends.iter().all(|end| end.shutdowns > 0 && end.side.pending().is_empty())
        });
        let Self { world, ends: [a, b], .. } = self;
        finish(world, &mut [&mut a.side, &mut b.side]);
        (0..50).for_each(|_| self.pass());
        for end in &mut self.ends {
            assert_eq!((end.connected, end.shutdowns), (1, 1), "seed {seed}");
            for context in &end.posted {
                assert_eq!(end.side.finished(*context).len(), 1, "seed {seed}: {context} completes once");
            }
            let refused = end.side.try_post(Message::new(PEER, vec![1; 8]));
            assert_eq!(refused, Err(Errno::ENOTCONN), "seed {seed}: the connection has ended");
            assert_eq!(end.side.ep.unfinished(), None, "seed {seed}");
        }
    }

    fn close(self) {
        let Self { ends, passive, .. } = self;
        for mut end in ends {
            end.side.close();
            end.memory.close();
            assert_eq!(end.side.account.used(), 0, "a closed endpoint holds nothing for its peer");
        }
        passive.close();
    }
}

#[test]
fn what_is_accepted_completes_once_when_connections_are_shut_down_and_break() {
    let (mut successes, mut failures) = (0, 0);
    for seed in seeds::all(300) {
        let mut random = Rng::with_seed(seed);
        let mut scene = Scene::new(seed, Faults { stall: random.u8(..30), split: random.bool() });
        let ends_at = random.u64(..COUNT);
        for number in 0..COUNT {
            scene.post(number, &mut random);
            if number == ends_at {
                // One end shuts down, or the link breaks, or both in either order.
                let (breaks, which) = (random.bool(), random.usize(..2));
                if breaks && random.bool() {
                    scene.world.break_connections();
                    (0..random.u8(..3)).for_each(|_| scene.pass());
                }
                scene.ends[which].shut_down();
                if breaks {
                    scene.world.break_connections();
                }
            }
            if number > ends_at && random.u8(..10) == 0 {
                scene.ends[random.usize(..2)].shut_down();
            }
            (0..random.u8(..4)).for_each(|_| scene.pass());
        }
        scene.finish(seed);
        for end in &scene.ends {
            let succeeded = end.posted.iter().filter(|context| end.side.is_done(**context)).count();
            successes += succeeded;
            failures += end.posted.len() - succeeded;
        }
        scene.close();
    }
    if seeds::all(300).count() > 1 {
        assert!(successes > 500 && failures > 500, "{successes} operations succeeded, {failures} failed");
    }
}

/// What has been sent leaves before the connection ends, however the network splits it.
#[test]
fn messages_that_were_sent_before_a_shutdown_arrive() {
    for seed in seeds::all(300) {
        let mut random = Rng::with_seed(seed);
        let mut scene = Scene::new(seed, Faults { stall: random.u8(..30), split: random.bool() });
        let (mut sent, mut receives) = (Vec::new(), Vec::new());
        for number in 0..random.u64(1..30) {
            let len = if random.u8(..4) == 0 { random.usize(..MOST) } else { random.usize(..200) };
            let [sender, receiver] = &mut scene.ends;
            receives.push(receiver.side.post_receive(Receive::new(MOST)));
            let byte = u8::try_from(number).expect("there are few");
            sent.push(sender.side.post(Message::new(PEER, vec![byte; len]).data(number)));
            (0..random.u8(..3)).for_each(|_| scene.pass());
        }
        scene.until(&format!("seed {seed}: the sends complete"), |ends| {
            ends[0].side.unfinished(&[Kind::Send]).is_empty()
        });
        assert!(sent.iter().all(|context| scene.ends[0].side.is_done(*context)), "seed {seed}");
        scene.ends[0].shut_down();
        scene.finish(seed);
        let receiver = &scene.ends[1].side;
        let mut arrived = HashSet::new();
        for context in receives {
            let [done] = receiver.finished(context) else { panic!("seed {seed}: a receive does not end once") };
            let Ok(entry) = &done.outcome else { panic!("seed {seed}: {:?}", done.outcome) };
            assert!(done.bytes[..entry.len].iter().all(|byte| u64::from(*byte) == entry.data), "seed {seed}");
            assert!(arrived.insert(entry.data), "seed {seed}: message {} arrives once", entry.data);
        }
        assert_eq!(arrived.len(), sent.len(), "seed {seed}");
        scene.close();
    }
}
