//! Two endpoints over real memory in one process: messages of every size arrive, in order and whole.

use ofi_core::{Addr, BindFlags, Caps, Errno, FiAddr, OpFlags};
use ofi_engine::endpoint::{Config, Endpoint};
use ofi_engine::hello::Speaker;
use ofi_engine::op::{Posts, RecvOp, SendOp};
use ofi_engine::{AddressVector, CompletionQueue, Waiting};
use ofi_memory::Buffer;
use ofi_os::clock;
use ofi_os::mailbox::{Mailbox, Space};
use ofi_os::shm::seam;
use ofi_os::wait_fd::WaitPort;
use ofi_shm::ShmTransport;
use ofi_sync::lock::Park;
use std::sync::Arc;
use std::time::Duration;

type Ep = Endpoint<ShmTransport, Park>;

struct Side {
    ep: Arc<Ep>,
    cq: Arc<CompletionQueue<Park>>,
    av: Arc<AddressVector>,
}

fn open() -> Side {
    open_as(None)
}

fn open_as(name: Option<Addr>) -> Side {
    let config = Config {
        speaker: Speaker::Rdm,
        caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV,
        tx_size: 1024,
        rx_size: 1024,
        inject_size: 4096,
        nonce: ofi_os::random(),
        provider: "shm",
    };
    let ep = Ep::new(Park, config, name, Box::new(ofi_shm::open_rdm), None);
    let cq = Arc::new(CompletionQueue::new(Park, 64, Arc::new(WaitPort::new(true).unwrap()), Waiting::Sleeping));
    let av = Arc::new(AddressVector::new(4, false));
    ep.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    ep.enable().unwrap();
    Side { ep, cq, av }
}

impl Side {
    fn addr(&self) -> Addr {
        self.ep.local_addr().unwrap()
    }

    fn send(&self, to: FiAddr, bytes: Vec<u8>, tag: u64) {
        let op = SendOp {
            dest: to,
            buffer: Buffer::Owned(bytes),
            context: 1,
            tag: Some(tag),
            data: None,
            flags: OpFlags::empty(),
            quiet: false,
        };
        self.ep.send(op).unwrap();
    }

    fn receive(&self, len: usize, tag: u64) {
        let op = RecvOp {
            src: FiAddr::UNSPEC,
            buffer: Buffer::Owned(vec![0; len]),
            context: 2,
            tag: Some((tag, 0)),
            flags: OpFlags::empty(),
        };
        self.ep.receive(op).unwrap();
    }

    fn reap(&self, done: &mut Vec<(usize, usize)>) {
        let read = self.cq.read(16, |completion| done.push((completion.context, completion.len)));
        assert!(read != Err(Errno::EAVAIL), "{:?}", self.cq.read_error());
    }
}

/// Sends so many bytes and waits until both sides are done with them.
fn exchange(from: &Side, to: &Side, dest: FiAddr, size: usize) {
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    to.receive(size, size as u64);
    from.send(dest, vec![7; size], size as u64);
    let end = clock::now() + Duration::from_secs(10);
    while sent.is_empty() || got.is_empty() {
        from.reap(&mut sent);
        to.reap(&mut got);
        assert!(clock::now() < end, "{size}: {}\n{}", from.ep.describe(), to.ep.describe());
    }
    assert_eq!(got, [(2, size)]);
}

#[test]
fn messages_of_every_size_arrive() {
    let (a, b) = (open(), open());
    let to_b = a.av.insert(b.addr());
    let sizes = [0, 1, 8, 40, 41, 96, 97, 1000, 4096, 20_000, 65_536, 300_000, 1 << 20, 5 << 20];
    for size in sizes {
        exchange(&a, &b, to_b, size);
    }
    b.ep.close();
    a.ep.close();
}

#[test]
fn a_lack_of_memory_is_the_operations_error_with_the_numbers() {
    let (a, b) = (open(), open());
    let to_b = a.av.insert(b.addr());
    for errno in [Errno::ENOSPC, Errno::ENOMEM] {
        seam::fail_with(Some(errno.raw()));
        a.send(to_b, vec![1; 8], 1);
        seam::fail_with(None);
        assert_eq!(a.cq.read(1, |_| unreachable!()), Err(Errno::EAVAIL));
        let failure = a.cq.read_error().unwrap();
        assert_eq!((failure.errno, failure.completion.context), (errno, 1));
        assert!(failure.text.contains("provide the memory of a link to fi_shm://"), "{}", failure.text);
        assert!(failure.text.contains("bytes"), "{}", failure.text);
    }
    // Later it works.
    exchange(&a, &b, to_b, 8);
}

#[test]
fn an_endpoint_that_is_opened_again_is_another() {
    let name = format!("fi_shm://again-{:016x}", u64::from_ne_bytes(ofi_os::random()));
    let a = open();
    let to_b = a.av.insert(name.parse().unwrap());
    for _ in 0..3 {
        let b = open_as(Some(name.parse().unwrap()));
        exchange(&a, &b, to_b, 8);
        b.ep.close();
        // Until the end has been heard of.
        let end = clock::now() + Duration::from_secs(10);
        while !a.ep.describe().is_empty() {
            a.reap(&mut Vec::new());
            assert!(clock::now() < end, "{}", a.ep.describe());
        }
    }
}

#[test]
fn a_question_that_nobody_read_is_not_waited_for() {
    let name = format!("fi_shm://unread-{:016x}", u64::from_ne_bytes(ofi_os::random()));
    let a = open();
    let to_b = a.av.insert(name.parse().unwrap());
    // An endpoint of that name which ends before it looks; then there is another.
    let mailbox = Mailbox::bind(&Space::default(), &name).unwrap();
    a.send(to_b, vec![1; 8], 1);
    drop(mailbox);
    let b = open_as(Some(name.parse().unwrap()));
    let start = clock::now();
    let failure = loop {
        b.reap(&mut Vec::new());
        match a.cq.read(1, |_| ()) {
            Err(Errno::EAVAIL) => break a.cq.read_error().unwrap(),
            other => assert_eq!(other, Err(Errno::AGAIN)),
        }
        // A second, and as much again for a busy machine.
        assert!(clock::now().since(start) < Duration::from_secs(2), "{}", a.ep.describe());
    };
    assert_eq!((failure.errno, failure.completion.context), (Errno::ECONNREFUSED, 1));
    exchange(&a, &b, to_b, 8);
    b.ep.close();
    a.ep.close();
}

/// An endpoint with links to `count` others, all of which have sent something to it.
fn hub(count: usize) -> (Side, Vec<(Side, FiAddr)>) {
    let hub = open();
    let peers = (0..count).map(|_| {
        let peer = open();
        let to_hub = peer.av.insert(hub.addr());
        exchange(&peer, &hub, to_hub, 8);
        (peer, to_hub)
    });
    let peers = peers.collect();
    (hub, peers)
}

#[test]
fn whoever_has_many_links_finds_what_came_at_once() {
    let (hub, peers) = hub(20);
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    let end = clock::now() + Duration::from_secs(10);
    // Until all have heard that there is a board, and for some rounds more: the links become busy in turn.
    let mut rounds = 0;
    while rounds < 100 {
        let mut late = 0;
        for (peer, to_hub) in &peers {
            hub.receive(8, 1);
            peer.reap(&mut sent);
            peer.send(*to_hub, vec![1; 8], 1);
            peer.reap(&mut sent);
            hub.reap(&mut got);
            while got.is_empty() {
                late += 1;
                hub.reap(&mut got);
            }
            got.clear();
        }
        rounds = if late == 0 { rounds + 1 } else { 0 };
        assert!(clock::now() < end, "{late} late\n{}", hub.ep.describe());
    }
}

#[test]
fn whoever_has_many_links_is_woken_by_each() {
    let (hub, peers) = hub(12);
    std::thread::scope(|scope| {
        let (go, gone) = std::sync::mpsc::channel();
        let peers = &peers;
        scope.spawn(move || {
            let mut pool = Vec::new();
            for at in gone {
                let (peer, to_hub): &(Side, FiAddr) = &peers[at];
                // Long enough for the other to be asleep.
                peer.cq.wait(1, Some(Duration::from_millis(2))).unwrap();
                peer.send(*to_hub, vec![1; 8], 1);
                wait(peer, peer, 1, &mut pool);
            }
        });
        let mut pool = Vec::new();
        for at in (0..peers.len()).chain((0..peers.len()).rev()) {
            hub.receive(8, 1);
            go.send(at).unwrap();
            assert_eq!(wait(&hub, &peers[at].0, 2, &mut pool), 8);
        }
    });
}

/// Waits for one completion with that context, asleep if need be.
fn wait(side: &Side, other: &Side, context: usize, pool: &mut Vec<(usize, usize)>) -> usize {
    let end = clock::now() + Duration::from_secs(10);
    loop {
        if let Some(at) = pool.iter().position(|(of, _)| *of == context) {
            return pool.swap_remove(at).1;
        }
        side.reap(pool);
        if pool.is_empty() {
            side.cq.wait(1, Some(Duration::from_secs(1))).unwrap();
            assert!(clock::now() < end, "{}\n{}", side.ep.describe(), other.ep.describe());
        }
    }
}

#[test]
fn sleepers_are_woken() {
    for size in [8, 64, 4096, 65_536, 1 << 20] {
        let (a, b) = (open(), open());
        let (to_b, to_a) = (a.av.insert(b.addr()), b.av.insert(a.addr()));
        let trips = 200;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pool = Vec::new();
                for _ in 0..trips {
                    b.receive(size, 1);
                    assert_eq!(wait(&b, &a, 2, &mut pool), size);
                    b.send(to_a, vec![1; size], 1);
                    wait(&b, &a, 1, &mut pool);
                }
            });
            let mut pool = Vec::new();
            for trip in 0..trips {
                a.receive(size, 1);
                if trip % 10 == 0 {
                    // Long enough for the other to be asleep.
                    a.cq.wait(1, Some(Duration::from_millis(2))).unwrap();
                }
                a.send(to_b, vec![1; size], 1);
                wait(&a, &b, 1, &mut pool);
                assert_eq!(wait(&a, &b, 2, &mut pool), size);
            }
        });
    }
}

#[test]
fn streams_flow() {
    for (size, count) in [(8, 20_000), (4096, 10_000), (65_536, 2000), (1 << 20, 100)] {
        let (a, b) = (open(), open());
        let to_b = a.av.insert(b.addr());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pool = Vec::new();
                for _ in 0..64 {
                    b.receive(size, 1);
                }
                for number in 0..count {
                    assert_eq!(wait(&b, &a, 2, &mut pool), size);
                    if number + 64 < count {
                        b.receive(size, 1);
                    }
                }
            });
            let mut pool = Vec::new();
            for number in 0..count {
                a.send(to_b, vec![1; size], 1);
                if number >= 64 {
                    wait(&a, &b, 1, &mut pool);
                }
            }
            for _ in 0..64 {
                wait(&a, &b, 1, &mut pool);
            }
        });
    }
}

/// The same two endpoints for everything: what one pattern leaves behind does not stop the next.
#[test]
fn patterns_follow_each_other() {
    let plan = [(8, 2000, 20_000), (64, 2000, 20_000), (4096, 1000, 10_000), (65_536, 500, 2000), (1 << 20, 100, 200)];
    let (a, b) = (open(), open());
    let (to_b, to_a) = (a.av.insert(b.addr()), b.av.insert(a.addr()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pool = Vec::new();
            for (size, trips, stream) in plan {
                for _ in 0..trips {
                    b.receive(size, 1);
                    wait(&b, &a, 2, &mut pool);
                    b.send(to_a, vec![1; size], 1);
                    wait(&b, &a, 1, &mut pool);
                }
                for _ in 0..stream {
                    b.receive(size, 1);
                    wait(&b, &a, 2, &mut pool);
                }
            }
        });
        let mut pool = Vec::new();
        for (size, trips, stream) in plan {
            for _ in 0..trips {
                a.receive(size, 1);
                a.send(to_b, vec![1; size], 1);
                wait(&a, &b, 1, &mut pool);
                wait(&a, &b, 2, &mut pool);
            }
            for number in 0..stream {
                a.send(to_b, vec![1; size], 1);
                if number >= 64 {
                    wait(&a, &b, 1, &mut pool);
                }
            }
            for _ in 0..64 {
                wait(&a, &b, 1, &mut pool);
            }
        }
    });
}
