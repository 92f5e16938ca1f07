//! Endpoints over real shared memory in one process: messages arrive whole and in order.

use ofi_core::{Addr, Caps, Errno, FiAddr};
use ofi_engine::endpoint::Endpoint;
use ofi_memory::{Buffer, Span};
use ofi_os::clock;
use ofi_os::control_socket::{ControlSocket, Space};
use ofi_os::process;
use ofi_os::shm::seam;
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Message, Options, Outcome, RealTime, expect};
use ofi_shm::ShmTransport;
use ofi_shm::cma::CmaMode;
use ofi_shm::transport::Settings;
use ofi_sync::lock::Park;
use ofi_sync::primitive::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

mod accesses;
mod eager;
mod waiting;

type Ep = Endpoint<ShmTransport, Park>;
type Side = ofi_rig::Side<ShmTransport>;

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
    let options = Options {
        addr: name,
        caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV,
        rx_size: 1024,
        provider: "shm",
        ..Options::default()
    };
    Side::open(options, Arc::new(FdWaitObject::new(true).unwrap()), |_| {
        Box::new(move |addr: Option<Addr>| ShmTransport::new(addr.as_ref().and_then(Addr::name), settings.clone()))
    })
}

/// Sends `size` bytes and waits until both sides have completed.
fn exchange(from: &mut Side, to: &mut Side, dest: FiAddr, size: usize) {
    exchange_all(from, to, dest, size, size as u64..size as u64 + 1);
}

/// Sends several large messages at once.
fn exchange_many(from: &mut Side, to: &mut Side, dest: FiAddr, count: u64) {
    exchange_all(from, to, dest, LARGE, 0..count);
}

fn exchange_all(from: &mut Side, to: &mut Side, dest: FiAddr, size: usize, tags: std::ops::Range<u64>) {
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    for tag in tags {
        got.push(to.receive(FiAddr::UNSPEC, tag, size));
        sent.push(from.send(dest, tag, vec![7; size]));
    }
    expect(&RealTime, &mut [from, to], "an exchange", |sides| {
        let ended = |side: usize, contexts: &[usize]| contexts.iter().all(|one| sides[side].outcome(*one).is_some());
        ended(0, &sent) && ended(1, &got)
    });
    sent.into_iter().for_each(|context| assert!(from.take(context)[0].outcome.is_ok()));
    got.into_iter().for_each(|context| assert_eq!(len_of(&to.take(context)[0].outcome), size));
}

/// The length of a message that was received.
fn len_of(outcome: &Outcome) -> usize {
    outcome.as_ref().unwrap_or_else(|failure| panic!("{failure:?}")).len
}

#[test]
fn messages_of_every_size_arrive() {
    let (mut a, mut b) = (open(), open());
    let to_b = a.know(b.addr());
    let sizes = [0, 1, 8, 40, 41, 96, 97, 1000, 4096, 20_000, 65_536, 300_000, 1 << 20, 5 << 20];
    for size in sizes {
        exchange(&mut a, &mut b, to_b, size);
    }
    b.ep.close();
    a.ep.close();
}

#[test]
fn a_lack_of_memory_is_the_operations_error_with_the_numbers() {
    let (mut a, mut b) = (open(), open());
    let to_b = a.know(b.addr());
    // Before the peer is asked, and afterwards.
    for (errno, successes) in [(Errno::ENOSPC, 0), (Errno::ENOMEM, 0), (Errno::ENOSPC, 1), (Errno::ENOMEM, 2)] {
        seam::fail_after(successes, errno.raw());
        let sent = a.send(to_b, 1, vec![1; 8]);
        seam::succeed();
        a.progress();
        let failure = a.outcome(sent).unwrap().as_ref().unwrap_err();
        assert_eq!(failure.errno, errno);
        assert!(failure.text.contains("provide the memory of a link to fi_shm://"), "{}", failure.text);
        assert!(failure.text.contains("bytes"), "{}", failure.text);
    }
    // Later it works.
    exchange(&mut a, &mut b, to_b, 8);
}

#[test]
fn an_endpoint_that_is_opened_again_is_another() {
    let name = format!("fi_shm://again-{:016x}", u64::from_ne_bytes(ofi_os::random()));
    let mut a = open();
    let to_b = a.know(name.parse::<Addr>().unwrap());
    for _ in 0..3 {
        let mut b = open_as(Some(name.parse().unwrap()));
        exchange(&mut a, &mut b, to_b, 8);
        b.ep.close();
        // Until `a` has noticed the end.
        let end = clock::now() + Duration::from_secs(10);
        while !a.ep.describe().is_empty() {
            a.progress();
            assert!(clock::now() < end, "{}", a.ep.describe());
        }
    }
}

#[test]
fn a_connect_request_that_was_never_read_fails() {
    let name = format!("fi_shm://unread-{:016x}", u64::from_ne_bytes(ofi_os::random()));
    let mut a = open();
    let to_b = a.know(name.parse::<Addr>().unwrap());
    // An endpoint of that name ends before it reads the request; another takes the name.
    let socket = ControlSocket::bind(&Space::default(), &name).unwrap();
    let sent = a.send(to_b, 1, vec![1; 8]);
    drop(socket);
    let mut b = open_as(Some(name.parse().unwrap()));
    let start = clock::now();
    let failure = loop {
        b.progress();
        a.progress();
        if let Some(ended) = a.take(sent).pop() {
            break ended.outcome.unwrap_err();
        }
        // A second, and as much again for a busy machine.
        assert!(clock::now().since(start) < Duration::from_secs(2), "{}", a.ep.describe());
    };
    assert_eq!(failure.errno, Errno::ECONNREFUSED);
    exchange(&mut a, &mut b, to_b, 8);
    b.ep.close();
    a.ep.close();
}

/// An endpoint with links to `count` others. Each of them has sent it a message, and all but the
/// few that each poll reads know its bitmap.
fn hub(count: usize) -> (Side, Vec<(Side, FiAddr)>) {
    const READ_BY_EACH_POLL: usize = 4;
    let before = ofi_shm::seam::bitmaps();
    let mut hub = open();
    let peers = (0..count).map(|_| {
        let mut peer = open();
        let to_hub = peer.know(hub.addr());
        exchange(&mut peer, &mut hub, to_hub, 8);
        (peer, to_hub)
    });
    let mut peers: Vec<(Side, FiAddr)> = peers.collect();
    let end = clock::now() + Duration::from_secs(10);
    while ofi_shm::seam::bitmaps() - before < count - READ_BY_EACH_POLL {
        hub.progress();
        for (peer, _) in &mut peers {
            peer.progress();
        }
        assert!(clock::now() < end, "{} bitmaps\n{}", ofi_shm::seam::bitmaps() - before, hub.ep.describe());
    }
    (hub, peers)
}

#[test]
fn an_endpoint_with_many_links_finds_input_at_once() {
    let (mut hub, mut peers) = hub(20);
    let end = clock::now() + Duration::from_secs(10);
    // The links become active in turn, and the peers of those that become idle get the bitmap.
    let mut rounds = 0;
    while rounds < 100 {
        let mut late = 0;
        for (peer, to_hub) in &mut peers {
            let got = hub.receive(FiAddr::UNSPEC, 1, 8);
            peer.progress();
            peer.send(*to_hub, 1, vec![1; 8]);
            peer.progress();
            hub.progress();
            while !hub.is_done(got) {
                late += 1;
                hub.progress();
            }
        }
        rounds = if late == 0 { rounds + 1 } else { 0 };
        assert!(clock::now() < end, "{late} late\n{}", hub.ep.describe());
    }
}

#[test]
fn an_endpoint_with_many_links_is_woken_by_each() {
    let (mut hub, mut peers) = hub(12);
    let eps: Vec<Arc<Ep>> = peers.iter().map(|(peer, _)| peer.ep.clone()).collect();
    std::thread::scope(|scope| {
        let (go, gone) = std::sync::mpsc::channel();
        let peers = &mut peers;
        scope.spawn(move || {
            for at in gone {
                let (peer, to_hub): &mut (Side, FiAddr) = &mut peers[at];
                // Long enough for the other to be asleep.
                peer.cq.wait(1, Some(Duration::from_millis(2))).unwrap();
                let sent = peer.send(*to_hub, 1, vec![1; 8]);
                let own = peer.ep.clone();
                wait(peer, &own, sent);
            }
        });
        for at in (0..eps.len()).chain((0..eps.len()).rev()) {
            let got = hub.receive(FiAddr::UNSPEC, 1, 8);
            go.send(at).unwrap();
            assert_eq!(wait(&mut hub, &eps[at], got), 8);
        }
        drop(go);
    });
}

const LARGE: usize = 5 << 20;

/// Sends large messages until the second side has read from the first one's memory.
fn warm(a: &mut Side, b: &mut Side, to_b: FiAddr) {
    let before = process::seam::bytes_read();
    for _ in 0..4 {
        exchange(a, b, to_b, LARGE);
    }
    let read = process::seam::bytes_read() - before;
    assert!((LARGE..5 * LARGE).contains(&read), "{read} bytes were read out of the sender's memory");
}

#[test]
fn large_messages_are_read_out_of_the_senders_memory_if_wanted() {
    let (mut a, mut b) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
    let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
    warm(&mut a, &mut b, to_b);
    warm(&mut b, &mut a, to_a);
    exchange_many(&mut a, &mut b, to_b, 5);
    // A receiver that has completed has sent the outcome: the sender needs no further poll of it.
    b.receive(FiAddr::UNSPEC, 3, 1 << 20);
    let sent = a.send(to_b, 3, vec![1; 1 << 20]);
    let end = clock::now() + Duration::from_secs(10);
    // The read that finds the completion is the last.
    while b.cq.read(1, |got| assert_eq!(got.len, 1 << 20)) == Err(Errno::AGAIN) {
        a.progress();
    }
    while !a.is_done(sent) {
        a.progress();
        assert!(clock::now() < end, "{}", a.ep.describe());
    }
    // All bytes land in the right place.
    let bytes: Vec<u8> = (0..LARGE).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
    let got = b.receive(FiAddr::UNSPEC, 9, LARGE);
    let sent = a.send(to_b, 9, bytes.clone());
    expect(&RealTime, &mut [&mut a, &mut b], "a large message", |sides| {
        sides[0].is_done(sent) && sides[1].is_done(got)
    });
    assert!(b.take(got)[0].bytes == bytes, "other bytes came than were sent");
    a.ep.close();
    b.ep.close();
}

#[test]
fn a_large_message_arrives_while_its_sender_does_something_else() {
    for mode in [CmaMode::IfAllowed, CmaMode::Read, CmaMode::Both] {
        let (mut a, mut b) = (open_direct(mode), open_direct(mode));
        let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
        for _ in 0..4 {
            exchange(&mut a, &mut b, to_b, LARGE);
            exchange(&mut b, &mut a, to_a, LARGE);
        }
        for len in [1 << 20, 4 << 20, (16 << 20) - 5] {
            let bytes: Vec<u8> = (0..len).map(|at: usize| u8::try_from(at * 7 % 251).unwrap()).collect();
            let got = b.receive(FiAddr::UNSPEC, 3, len);
            let sent = a.send(to_b, 3, bytes.clone());
            expect(&RealTime, &mut [&mut b], "a large message", |sides| sides[0].is_done(got));
            assert!(b.take(got)[0].bytes == bytes, "other bytes came than were sent");
            expect(&RealTime, &mut [&mut a], "the end of the send", |sides| sides[0].is_done(sent));
        }
        a.ep.close();
        b.ep.close();
    }
}

#[test]
fn both_sides_copy_large_messages_if_wanted() {
    let (mut a, mut b) = (open_direct(CmaMode::Both), open_direct(CmaMode::Both));
    let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
    // Each side grants permission to the other.
    for _ in 0..4 {
        exchange(&mut a, &mut b, to_b, LARGE);
        exchange(&mut b, &mut a, to_a, LARGE);
    }
    let bytes: Vec<u8> = (0..1 << 20).map(|at: usize| u8::try_from(at * 7 % 251).unwrap()).collect();
    let end = clock::now() + Duration::from_secs(20);
    std::thread::scope(|scope| {
        let (bytes, own) = (&bytes, a.ep.clone());
        let receiver = scope.spawn(move || {
            for tag in 0.. {
                let got = b.receive(FiAddr::UNSPEC, tag, 1 << 20);
                let ended = loop {
                    assert!(clock::now() < end, "{}", b.ep.describe());
                    b.progress();
                    if let Some(ended) = b.take(got).pop() {
                        break ended;
                    }
                };
                match len_of(&ended.outcome) {
                    0 => break,
                    len => assert!(ended.bytes[..len] == **bytes, "other bytes came than were sent"),
                }
            }
        });
        // Whether the two threads copy at the same time is up to the system.
        let mut tag = 0;
        while process::seam::bytes_written() == 0 {
            assert!(clock::now() < end, "the sender has written nothing into the receiver's memory");
            let sent = a.send(to_b, tag, bytes.clone());
            wait(&mut a, &own, sent);
            tag += 1;
        }
        let sent = a.send(to_b, tag, Vec::new());
        wait(&mut a, &own, sent);
        receiver.join().unwrap();
    });
    a.ep.close();
}

#[test]
fn nothing_is_read_out_of_the_senders_memory_if_not_wanted() {
    for (mine, theirs, len) in [
        (CmaMode::Never, CmaMode::IfAllowed, LARGE),
        (CmaMode::IfAllowed, CmaMode::Never, LARGE),
        (CmaMode::IfFaster, CmaMode::IfFaster, 48 << 10),
    ] {
        let (mut a, mut b) = (open_direct(mine), open_direct(theirs));
        let to_b = a.know(b.addr());
        let before = process::seam::bytes_read();
        // Too few messages to measure which way is faster.
        for _ in 0..3 {
            exchange(&mut a, &mut b, to_b, len);
        }
        assert_eq!(process::seam::bytes_read(), before);
    }
}

#[test]
fn measuring_the_faster_way_loses_nothing() {
    let (mut a, mut b) = (open_direct(CmaMode::IfFaster), open_direct(CmaMode::IfFaster));
    let to_b = a.know(b.addr());
    let lent = || process::seam::bytes_read() + process::seam::bytes_written();
    let before = lent();
    // Past the first trial of another way and the first turn of the pool.
    const COUNT: usize = 700;
    for _ in 0..COUNT {
        exchange(&mut a, &mut b, to_b, 1 << 20);
    }
    let lent = (lent() - before) >> 20;
    assert!(lent > 0, "it was never tried");
    assert!(lent <= COUNT - 33, "{lent}: the pool has no turn that is long enough for two groups");
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
fn large_messages_go_through_the_pool_if_reading_is_denied() {
    let (mut a, mut b) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
    let to_b = a.know(b.addr());
    warm(&mut a, &mut b, to_b);
    // The filter is this thread's, and ends with it.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            deny_reading();
            // Denied after it was found to be allowed (`a`, `b`), and from the first (`c`, `d`).
            let (mut c, mut d) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
            let to_d = c.know(d.addr());
            exchange_many(&mut a, &mut b, to_b, 5);
            for _ in 0..20 {
                exchange(&mut a, &mut b, to_b, LARGE);
                exchange(&mut c, &mut d, to_d, LARGE);
            }
            assert_eq!(process::seam::bytes_read(), 0);
        });
    });
}

/// Maps memory far from where the kernel puts mappings of its own choice: once it is unmapped, no
/// other test's thread is given that address. Each call has a place of its own in the process.
fn map_far_away(len: usize) -> *mut u8 {
    static PLACES: AtomicUsize = AtomicUsize::new(0);
    let place = PLACES.fetch_add(1, Ordering::Relaxed);
    let far = std::ptr::without_provenance_mut(0x2000_0000_0000 + (place << 32));
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel refuses the address if something is mapped there.
    let base = unsafe { libc::mmap(far, len, rights, flags, -1, 0) };
    assert_eq!(base, far, "{}", std::io::Error::last_os_error());
    base.cast()
}

#[test]
fn memory_that_is_unmapped_under_way_costs_its_message_alone() {
    let (mut a, mut b) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
    let to_b = a.know(b.addr());
    warm(&mut a, &mut b, to_b);
    let memory = map_far_away(LARGE);
    // SAFETY: the test unmaps it before the send has completed, on purpose: only the other side's
    // system call reads it.
    let span = unsafe { Span::new(memory, LARGE) };
    let sent = a.post(Message::lent(to_b, Buffer::One(span)).tagged(5));
    // SAFETY: the mapping is the test's own.
    assert_eq!(unsafe { libc::munmap(memory.cast(), LARGE) }, 0);
    let got = b.receive(FiAddr::UNSPEC, 5, LARGE);
    expect(&RealTime, &mut [&mut a, &mut b], "it fails", |sides| {
        sides[0].outcome(sent).is_some() && sides[1].outcome(got).is_some()
    });
    for outcome in [a.outcome(sent), b.outcome(got)] {
        let failure = outcome.unwrap().as_ref().expect_err("completed without its memory");
        assert_eq!(failure.errno, Errno::EFAULT);
    }
    // The link goes on as before.
    warm(&mut a, &mut b, to_b);
    exchange(&mut a, &mut b, to_b, 8);
}

/// Waits for a completion with that context, asleep if need be. Returns its length.
fn wait(side: &mut Side, other: &Ep, context: usize) -> usize {
    let end = clock::now() + Duration::from_secs(10);
    loop {
        side.progress();
        if let Some(ended) = side.take(context).pop() {
            return len_of(&ended.outcome);
        }
        side.cq.wait(1, Some(Duration::from_secs(1))).unwrap();
        assert!(clock::now() < end, "{}\n{}", side.ep.describe(), other.describe());
    }
}

#[test]
fn sleepers_are_woken() {
    for size in [8, 64, 4096, 65_536, 1 << 20] {
        let (mut a, mut b) = (open(), open());
        let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
        let (ep_a, ep_b) = (a.ep.clone(), b.ep.clone());
        let trips = 200;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..trips {
                    let got = b.receive(FiAddr::UNSPEC, 1, size);
                    assert_eq!(wait(&mut b, &ep_a, got), size);
                    let sent = b.send(to_a, 1, vec![1; size]);
                    wait(&mut b, &ep_a, sent);
                }
            });
            for trip in 0..trips {
                let got = a.receive(FiAddr::UNSPEC, 1, size);
                if trip % 10 == 0 {
                    // Long enough for the other to be asleep.
                    a.cq.wait(1, Some(Duration::from_millis(2))).unwrap();
                }
                let sent = a.send(to_b, 1, vec![1; size]);
                wait(&mut a, &ep_b, sent);
                assert_eq!(wait(&mut a, &ep_b, got), size);
            }
        });
    }
}

/// Messages of a stream that are under way at a time.
const DEPTH: usize = 64;

/// Sends a stream of messages.
fn stream(side: &mut Side, other: &Ep, dest: FiAddr, size: usize, count: usize) {
    let mut sent = VecDeque::new();
    for _ in 0..count {
        sent.push_back(side.send(dest, 1, vec![1; size]));
        if sent.len() > DEPTH {
            wait(side, other, sent.pop_front().unwrap());
        }
    }
    sent.into_iter().for_each(|context| _ = wait(side, other, context));
}

#[test]
fn streams_flow() {
    for (size, count) in [(8, 20_000), (4096, 10_000), (65_536, 2000), (1 << 20, 100)] {
        let (mut a, mut b) = (open(), open());
        let to_b = a.know(b.addr());
        let (ep_a, ep_b) = (a.ep.clone(), b.ep.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut posted: VecDeque<usize> = (0..DEPTH).map(|_| b.receive(FiAddr::UNSPEC, 1, size)).collect();
                for number in 0..count {
                    assert_eq!(wait(&mut b, &ep_a, posted.pop_front().unwrap()), size);
                    if number + DEPTH < count {
                        posted.push_back(b.receive(FiAddr::UNSPEC, 1, size));
                    }
                }
            });
            stream(&mut a, &ep_b, to_b, size, count);
        });
    }
}

/// Two endpoints run all patterns: the state after one pattern does not stop the next.
#[test]
fn patterns_follow_each_other() {
    let plan = [(8, 2000, 20_000), (64, 2000, 20_000), (4096, 1000, 10_000), (65_536, 500, 2000), (1 << 20, 100, 200)];
    let (mut a, mut b) = (open(), open());
    let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
    let (ep_a, ep_b) = (a.ep.clone(), b.ep.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (size, trips, messages) in plan {
                for _ in 0..trips {
                    let got = b.receive(FiAddr::UNSPEC, 1, size);
                    wait(&mut b, &ep_a, got);
                    let sent = b.send(to_a, 1, vec![1; size]);
                    wait(&mut b, &ep_a, sent);
                }
                for _ in 0..messages {
                    let got = b.receive(FiAddr::UNSPEC, 1, size);
                    wait(&mut b, &ep_a, got);
                }
            }
        });
        for (size, trips, messages) in plan {
            for _ in 0..trips {
                let got = a.receive(FiAddr::UNSPEC, 1, size);
                let sent = a.send(to_b, 1, vec![1; size]);
                wait(&mut a, &ep_b, sent);
                wait(&mut a, &ep_b, got);
            }
            stream(&mut a, &ep_b, to_b, size, messages);
        }
    });
}

/// A message that a sender wrote behind a payload arrives, even if the sender ends and the payload
/// cannot be read any more.
#[test]
fn a_message_sent_before_the_end_arrives() {
    /// More than is offered: it comes in data frames.
    const UNOFFERED: usize = 17 << 20;
    let (mut a, mut b) = (open_direct(CmaMode::IfAllowed), open_direct(CmaMode::IfAllowed));
    let to_b = a.know(b.addr());
    warm(&mut a, &mut b, to_b);
    let large = [0, 1, 2].map(|tag| b.receive(FiAddr::UNSPEC, tag, UNOFFERED));
    let short = b.receive(FiAddr::UNSPEC, 9, 8);
    a.send(to_b, 0, vec![1; UNOFFERED]);
    // RTS, CTS, and the first data frame is in the ring; then a short message behind it.
    for _ in 0..3 {
        a.progress();
        b.progress();
    }
    a.progress();
    a.send(to_b, 9, vec![1; 8]);
    // Closing waits in vain for the payload to be read.
    a.close();
    expect(&RealTime, &mut [&mut b], "the short message comes and a large one fails", |sides| {
        sides[0].outcome(short).is_some() && large.iter().any(|one| sides[0].outcome(*one).is_some())
    });
    assert_eq!(len_of(b.outcome(short).unwrap()), 8);
    assert!(large.iter().all(|one| !b.is_done(*one)));
}
