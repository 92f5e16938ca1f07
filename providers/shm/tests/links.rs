//! Endpoints over real shared memory in one process: messages arrive whole and in order.

use ofi_core::{Addr, BindFlags, Caps, Errno, FiAddr, OpFlags};
use ofi_engine::endpoint::{Config, Endpoint};
use ofi_engine::limits::Limits;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::wire::hello::EndpointKind;
use ofi_engine::{AddressVector, CompletionQueue, Waiting};
use ofi_memory::{Buffer, Span};
use ofi_os::clock;
use ofi_os::control_socket::{ControlSocket, Space};
use ofi_os::process;
use ofi_os::shm::{self, Mapping, seam};
use ofi_os::wait_fd::FdWaitObject;
use ofi_shm::ShmTransport;
use ofi_shm::cma::CmaMode;
use ofi_shm::transport::Settings;
use ofi_sync::account::Account;
use ofi_sync::lock::Park;
use std::os::fd::AsFd;
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
    open_with(name, Settings::default())
}

/// An endpoint that uses cross-memory attach as the mode says.
fn open_direct(direct: CmaMode) -> Side {
    open_with(None, Settings { cma: direct, ..Settings::default() })
}

fn open_with(name: Option<Addr>, settings: Settings) -> Side {
    let config = Config {
        kind: EndpointKind::Rdm,
        caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV,
        tx_size: 1024,
        rx_size: 1024,
        limits: Limits::new(usize::MAX, 4096),
        nonce: ofi_os::random(),
        provider: "shm",
        account: Arc::new(Account::new(256 << 20)),
    };
    let opener = move |addr: Option<Addr>| ShmTransport::new(addr.as_ref().and_then(Addr::name), settings.clone());
    let ep = Ep::new(Park, config, name, Box::new(opener), None);
    let cq = Arc::new(CompletionQueue::new(Park, 64, Arc::new(FdWaitObject::new(true).unwrap()), Waiting::Sleeping));
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
        self.send_buffer(to, Buffer::Owned(bytes), tag);
    }

    fn send_buffer(&self, to: FiAddr, buffer: Buffer, tag: u64) {
        let op =
            SendOp { dest: to, buffer, context: 1, tag: Some(tag), data: None, flags: OpFlags::empty(), inject: false };
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

/// Sends `size` bytes and waits until both sides have completed.
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

/// Sends several large messages at once.
fn exchange_many(from: &Side, to: &Side, dest: FiAddr, count: u64) {
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    for tag in 0..count {
        to.receive(LARGE, tag);
        from.send(dest, vec![7; LARGE], tag);
    }
    let end = clock::now() + Duration::from_secs(20);
    while sent.len() as u64 + (got.len() as u64) < 2 * count {
        from.reap(&mut sent);
        to.reap(&mut got);
        assert!(clock::now() < end, "{}\n{}", from.ep.describe(), to.ep.describe());
    }
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
        // Until `a` has noticed the end.
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
    // An endpoint of that name ends before it reads the request; another takes the name.
    let socket = ControlSocket::bind(&Space::default(), &name).unwrap();
    a.send(to_b, vec![1; 8], 1);
    drop(socket);
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

/// An endpoint with links to `count` others. Each of them has sent it a message.
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
    // Until all peers have the ready bitmap, and some rounds more: the links become active in turn.
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

const LARGE: usize = 5 << 20;

/// Sends large messages until the second side has read from the first one's memory.
fn warm(a: &Side, b: &Side, to_b: FiAddr) {
    let before = process::seam::bytes_read();
    for _ in 0..4 {
        exchange(a, b, to_b, LARGE);
    }
    let read = process::seam::bytes_read() - before;
    assert!((LARGE..5 * LARGE).contains(&read), "{read} bytes were read out of the sender's memory");
}

#[test]
fn large_messages_are_read_out_of_the_senders_memory_where_that_is_wanted() {
    let (a, b) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
    let (to_b, to_a) = (a.av.insert(b.addr()), b.av.insert(a.addr()));
    warm(&a, &b, to_b);
    warm(&b, &a, to_a);
    exchange_many(&a, &b, to_b, 5);
    // A receiver that has completed has sent the outcome: the sender needs no further poll of it.
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    b.receive(1 << 20, 3);
    a.send(to_b, vec![1; 1 << 20], 3);
    let end = clock::now() + Duration::from_secs(10);
    while got.is_empty() {
        a.reap(&mut sent);
        b.reap(&mut got);
    }
    while sent.is_empty() {
        a.reap(&mut sent);
        assert!(clock::now() < end, "{}", a.ep.describe());
    }
    // All bytes land in the right place.
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    let bytes: Vec<u8> = (0..LARGE).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
    let (fd, len) = (shm::create(LARGE, 0).unwrap(), bytes.len());
    let target = Mapping::new(fd.as_fd(), len).unwrap();
    // SAFETY: the mapping outlives the receive, and nothing else accesses it meanwhile.
    let span = unsafe { Span::new(target.base().as_ptr(), len) };
    let op = RecvOp {
        src: FiAddr::UNSPEC,
        buffer: Buffer::One(span),
        context: 2,
        tag: Some((9, 0)),
        flags: OpFlags::empty(),
    };
    b.ep.receive(op).unwrap();
    a.send(to_b, bytes.clone(), 9);
    while sent.is_empty() || got.is_empty() {
        a.reap(&mut sent);
        b.reap(&mut got);
    }
    // SAFETY: the mapping is that long, and nothing writes there any more.
    let arrived = unsafe { core::slice::from_raw_parts(target.base().as_ptr(), len) };
    assert!(arrived == bytes, "other bytes came than were sent");
    a.ep.close();
    b.ep.close();
}

#[test]
fn nothing_is_read_out_of_the_senders_memory_where_that_is_not_wanted() {
    for (mine, theirs) in [
        (CmaMode::Never, CmaMode::IfAllowed),
        (CmaMode::IfAllowed, CmaMode::Never),
        (CmaMode::IfFaster, CmaMode::IfFaster),
    ] {
        let (a, b) = (open_direct(mine), open_direct(theirs));
        let to_b = a.av.insert(b.addr());
        let before = process::seam::bytes_read();
        // Too few messages to measure which way is faster.
        for _ in 0..3 {
            exchange(&a, &b, to_b, LARGE);
        }
        assert_eq!(process::seam::bytes_read(), before);
    }
}

#[test]
fn what_is_faster_is_found_out_without_losing_anything() {
    let (a, b) = (open_direct(CmaMode::IfFaster), open_direct(CmaMode::IfFaster));
    let to_b = a.av.insert(b.addr());
    let before = process::seam::bytes_read();
    for _ in 0..40 {
        exchange(&a, &b, to_b, LARGE);
    }
    assert!(process::seam::bytes_read() > before, "it was never tried");
}

/// Makes the system deny process_vm_readv(2) to this thread from now on.
fn deny_reading() {
    let statement =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let number = u32::try_from(libc::SYS_process_vm_readv).unwrap();
    let eperm = u32::try_from(libc::EPERM).unwrap();
    let mut filter = [
        // The filter loads the number of the system call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | eperm, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes no pointers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program is four statements long, and a local.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn where_reading_is_denied_large_messages_go_through_the_pool() {
    let (a, b) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
    let to_b = a.av.insert(b.addr());
    warm(&a, &b, to_b);
    // The filter is this thread's, and ends with it.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            deny_reading();
            // Denied after it was found to be allowed (`a`, `b`), and from the first (`c`, `d`).
            let (c, d) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
            let to_d = c.av.insert(d.addr());
            exchange_many(&a, &b, to_b, 5);
            for _ in 0..20 {
                exchange(&a, &b, to_b, LARGE);
                exchange(&c, &d, to_d, LARGE);
            }
            assert_eq!(process::seam::bytes_read(), 0);
        });
    });
}

#[test]
fn memory_that_is_unmapped_under_way_costs_its_message_alone() {
    let (a, b) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
    let to_b = a.av.insert(b.addr());
    warm(&a, &b, to_b);
    let fd = shm::create(LARGE, 0).unwrap();
    let memory = Mapping::new(fd.as_fd(), LARGE).unwrap();
    // SAFETY: the test unmaps it before the send has completed, on purpose: only the other side's
    // system call reads it.
    let span = unsafe { Span::new(memory.base().as_ptr(), LARGE) };
    a.send_buffer(to_b, Buffer::One(span), 5);
    drop(memory);
    b.receive(LARGE, 5);
    let (mut sent, mut got) = (None, None);
    let end = clock::now() + Duration::from_secs(10);
    while sent.is_none() || got.is_none() {
        for (side, failure) in [(&a, &mut sent), (&b, &mut got)] {
            match side.cq.read(1, |_| panic!("completed without its memory")) {
                Err(Errno::EAVAIL) => *failure = Some(side.cq.read_error().unwrap()),
                other => assert_eq!(other, Err(Errno::AGAIN)),
            }
        }
        assert!(clock::now() < end, "{}\n{}", a.ep.describe(), b.ep.describe());
    }
    let (sent, got) = (sent.unwrap(), got.unwrap());
    assert_eq!((sent.errno, sent.completion.context), (Errno::EFAULT, 1));
    assert_eq!((got.errno, got.completion.context), (Errno::EFAULT, 2));
    // The link goes on as before.
    warm(&a, &b, to_b);
    exchange(&a, &b, to_b, 8);
}

/// Waits for a completion with that context, asleep if need be. Returns its length.
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

/// Two endpoints run all patterns: the state after one pattern does not stop the next.
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

/// A message that a sender wrote behind a payload arrives, even if the sender ends and the payload
/// cannot be read any more.
#[test]
fn what_was_said_before_the_end_is_heard() {
    let (a, b) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
    let to_b = a.av.insert(b.addr());
    warm(&a, &b, to_b);
    for tag in 0..3 {
        b.receive(LARGE, tag);
    }
    b.receive(8, 9);
    a.send(to_b, vec![1; LARGE], 0);
    let mut sent = Vec::new();
    let end = clock::now() + Duration::from_secs(10);
    // RTS, CTS, and the first data frame is in the ring; then a short message behind it.
    for _ in 0..3 {
        a.reap(&mut sent);
        b.reap(&mut sent);
    }
    a.reap(&mut sent);
    a.send(to_b, vec![1; 8], 9);
    let (mut got, mut failed) = (Vec::new(), 0);
    // Closing waits in vain for the payload to be read.
    a.ep.close();
    let end = end + Duration::from_secs(10);
    while got.is_empty() || failed < 1 {
        match b.cq.read(1, |completion| got.push((completion.context, completion.len))) {
            Err(Errno::EAVAIL) => {
                b.cq.read_error().unwrap();
                failed += 1;
            }
            Err(Errno::AGAIN) | Ok(_) => {}
            other => panic!("{other:?}"),
        }
        assert!(clock::now() < end, "{got:?} {failed} {}", b.ep.describe());
    }
    assert_eq!(got, [(2, 8)]);
}
