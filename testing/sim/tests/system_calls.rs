//! A small send, write or fetch-add makes at most one system call, counted at the transport's
//! interface to sockets, and carries a deferred acknowledgment.

use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Caps, Errno, FiAddr, Instant};
use ofi_engine::Waiting;
use ofi_engine::limits::Limits;
use ofi_engine::op::OneSidedOps;
use ofi_memory::{Buffer, Chunk, ChunkMut};
use ofi_os::clock;
use ofi_os::poller::{Event, Interest};
use ofi_os::socket::{Health, Socket};
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Exposed, Message, Options, RealTime, Side, Target, expect};
use ofi_sim::pair;
use ofi_sync::primitive::{AtomicBool, AtomicU64, Ordering};
use ofi_tcp::net::{Net, System};
use ofi_tcp::transport::{Settings, TcpTransport};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The key of the region that is accessed.
const KEY: u64 = 7;

/// Numbers of system calls, and of bytes sent.
#[derive(Clone, Default)]
struct Calls {
    all: Arc<AtomicU64>,
    sends: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    /// Sockets whose options were set, and the sends before the last of them.
    settled: Arc<AtomicU64>,
    sends_before: Arc<AtomicU64>,
    /// Receives that brought something.
    receives: Arc<AtomicU64>,
    /// Sockets that epoll watches.
    watched: Arc<AtomicU64>,
    /// The system refuses to watch more.
    refuses: Arc<AtomicBool>,
}

impl Calls {
    fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    fn sends(&self) -> u64 {
        self.sends.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn receives(&self) -> u64 {
        self.receives.load(Ordering::Relaxed)
    }

    fn watched(&self) -> u64 {
        self.watched.load(Ordering::Relaxed)
    }
}

/// The system's sockets, with every system call counted; reading the clock is none.
struct Counted(System, Calls);

impl Counted {
    fn count(&self) -> &System {
        self.1.all.fetch_add(1, Ordering::Relaxed);
        &self.0
    }

    fn count_send(&self, send: impl FnOnce(&System) -> io::Result<usize>) -> io::Result<usize> {
        self.1.sends.fetch_add(1, Ordering::Relaxed);
        let sent = send(self.count())?;
        self.1.bytes.fetch_add(sent as u64, Ordering::Relaxed);
        Ok(sent)
    }

    fn count_receive(&self, receive: impl FnOnce(&System) -> io::Result<usize>) -> io::Result<usize> {
        let received = receive(self.count())?;
        self.1.receives.fetch_add(1, Ordering::Relaxed);
        Ok(received)
    }

    fn count_mut(&mut self) -> &mut System {
        self.1.all.fetch_add(1, Ordering::Relaxed);
        &mut self.0
    }
}

impl Net for Counted {
    type Socket = Socket;

    fn listen(&mut self, addr: SocketAddr) -> io::Result<Socket> {
        self.count_mut().listen(addr)
    }
    fn connect(&mut self, to: SocketAddr, from: Option<SocketAddr>) -> io::Result<Socket> {
        self.count_mut().connect(to, from)
    }
    fn bind(&mut self, addr: SocketAddr) -> io::Result<Socket> {
        self.count_mut().bind(addr)
    }
    fn connect_bound(&mut self, socket: &Socket, to: SocketAddr) -> io::Result<()> {
        self.count_mut().connect_bound(socket, to)
    }
    fn accept(&mut self, listener: &Socket) -> io::Result<Option<(Socket, SocketAddr)>> {
        self.count_mut().accept(listener)
    }
    fn connected(&self, socket: &Socket) -> Option<io::Result<()>> {
        self.count().connected(socket)
    }
    fn settle(&self, socket: &Socket, peer: SocketAddr) -> io::Result<()> {
        self.1.settled.fetch_add(1, Ordering::Relaxed);
        self.1.sends_before.store(self.1.sends(), Ordering::Relaxed);
        self.count().settle(socket, peer)
    }
    fn local_addr(&self, socket: &Socket) -> io::Result<SocketAddr> {
        self.count().local_addr(socket)
    }
    fn send(&self, socket: &Socket, chunks: &[Chunk<'_>]) -> io::Result<usize> {
        self.count_send(|net| net.send(socket, chunks))
    }
    fn send_slice(&self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        self.count_send(|net| net.send_slice(socket, bytes))
    }
    fn recv(&self, socket: &Socket, chunks: &mut [ChunkMut<'_>]) -> io::Result<usize> {
        self.count_receive(|net| net.recv(socket, chunks))
    }
    fn recv_slice(&self, socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
        self.count_receive(|net| net.recv_slice(socket, bytes))
    }
    fn shutdown_write(&self, socket: &Socket) -> io::Result<()> {
        self.count().shutdown_write(socket)
    }
    fn unacknowledged(&self, socket: &Socket) -> io::Result<usize> {
        self.count().unacknowledged(socket)
    }
    fn health(&self, socket: &Socket) -> io::Result<Health> {
        self.count().health(socket)
    }
    fn watch(&mut self, socket: &Socket, interest: Interest, key: u64) -> io::Result<()> {
        if self.1.refuses.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(Errno::ENOMEM.raw()));
        }
        self.1.watched.fetch_add(1, Ordering::Relaxed);
        self.count_mut().watch(socket, interest, key)
    }
    fn rewatch(&mut self, socket: &Socket, interest: Interest, key: u64) -> io::Result<()> {
        self.count_mut().rewatch(socket, interest, key)
    }
    fn unwatch(&mut self, socket: &Socket) {
        self.1.watched.fetch_sub(1, Ordering::Relaxed);
        self.count_mut().unwatch(socket);
    }
    fn news(&mut self, timeout: Duration, news: &mut Vec<Event>) {
        self.count_mut().news(timeout, news);
    }
    fn descriptor(&self) -> Option<Descriptor> {
        self.0.descriptor()
    }
    fn now(&self) -> Instant {
        self.0.now()
    }
    fn is_own(&self, ip: IpAddr) -> bool {
        self.0.is_own(ip)
    }
    fn random(&mut self) -> [u8; 16] {
        self.0.random()
    }
}

fn open(nonce: u8, calls: &Calls) -> Side<TcpTransport<Counted>> {
    let options = Options {
        caps: Caps::MSG | Caps::SEND | Caps::RECV | Caps::RMA | Caps::ATOMIC,
        tx_size: 4096,
        rx_size: 64,
        limits: Limits::new(usize::MAX, 64),
        nonce: [nonce; 16],
        provider: "tcp",
        sizes: (64, 1),
        waiting: Waiting::Never,
        ..Options::default()
    };
    let calls = calls.clone();
    let here = Addr::from(SocketAddr::from(([127, 0, 0, 1], 0)));
    let opener = Box::new(move |_| {
        TcpTransport::listening(Counted(System::new().unwrap(), calls.clone()), here, Settings::default())
    });
    Side::open(options, Arc::new(FdWaitObject::new(false).unwrap()), |_| opener)
}

/// The maximum number of system calls of one of 2,000 operations, over an open link.
fn most_calls(mut post: impl FnMut(&mut Side<TcpTransport<Counted>>)) -> u64 {
    let calls = Calls::default();
    let (mut a, mut b) = (open(1, &calls), open(2, &Calls::default()));
    a.know(b.addr());
    let region = b.expose(KEY, vec![0; 8]);
    let poll = |a: &Side<_>, b: &Side<_>| (a.cq.read(1, |_| ()), b.cq.read(1, |_| ()));
    post(&mut a);
    // Wait until the link is up.
    while a.ep.describe().contains("Connecting") {
        let _ = poll(&a, &b);
    }
    let (mut worst, mut total) = (0, 0);
    for round in 0..2000 {
        let before = calls.all();
        post(&mut a);
        let made = calls.all() - before;
        worst = worst.max(made);
        total += made;
        // Poll only after every seventh operation, so that they come in bursts.
        if round % 7 == 0 {
            while a.cq.read(64, |_| ()) == Ok(64) {}
            let _ = poll(&a, &b);
        }
    }
    assert!(total > 0);
    drop(region);
    a.close();
    b.close();
    worst
}

#[test]
fn a_small_send_makes_at_most_one_system_call() {
    let worst = most_calls(|a| {
        let _ = a.post(Message::new(FiAddr(0), vec![1; 8]).injected());
    });
    assert!(worst <= 1, "a send made {worst} system calls");
}

#[test]
fn a_small_write_and_a_fetch_add_make_at_most_one_system_call() {
    let word = || Buffer::Owned(vec![1; 8]);
    let worst = most_calls(|a| a.ep.rma(pair::write_op(KEY, word())).expect("there is room"));
    assert!(worst <= 1, "a write made {worst} system calls");
    let worst = most_calls(|a| a.ep.atomic(pair::fetch_add_call(KEY, word(), word())).expect("there is room"));
    assert!(worst <= 1, "a fetch-add made {worst} system calls");
}

#[test]
fn the_socket_of_a_connection_gets_its_options_once_the_hello_has_left() {
    let (at_a, at_b) = (Calls::default(), Calls::default());
    let (mut a, mut b) = (open(1, &at_a), open(2, &at_b));
    let to = Target::new(a.know(b.addr()), KEY, 0, 8);
    let _memory = b.expose(KEY, vec![0; 8]);
    let write = a.write(&to, vec![1; 8]);
    expect(&RealTime, &mut [&mut a, &mut b], "the write is done", |sides| sides[0].is_done(write));
    let settled = |calls: &Calls| calls.settled.load(Ordering::Relaxed);
    assert_eq!((settled(&at_a), settled(&at_b)), (1, 0), "what is accepted inherits them");
    assert_eq!(at_a.sends_before.load(Ordering::Relaxed), 1);
    a.close();
    b.close();
}

#[test]
fn a_large_payload_and_the_head_behind_it_take_one_receive() {
    const LEN: usize = 64 << 10;
    let calls = Calls::default();
    let (mut a, mut b) = (open(1, &Calls::default()), open(2, &calls));
    let to = Target::new(a.know(b.addr()), KEY, 0, LEN);
    let _memory = b.expose(KEY, vec![0; LEN]);
    let first = a.write(&to, vec![1; LEN]);
    expect(&RealTime, &mut [&mut a, &mut b], "the write is done", |sides| sides[0].is_done(first));
    let before = calls.receives();
    let writes: Vec<_> = (0..16).map(|_| a.write(&to, vec![1; LEN])).collect();
    expect(&RealTime, &mut [&mut a, &mut b], "the writes are done", |sides| {
        writes.iter().all(|write| sides[0].is_done(*write))
    });
    // Where the peer has sent no more for the moment, the next head comes by itself; and a packet
    // may end within a payload.
    let made = calls.receives() - before;
    assert!(made <= 16 + 8, "{made} receives for 16 payloads");
    a.close();
    b.close();
}

/// Two sides with a link that is so busy that neither watches its socket, and the memory of the
/// second to which the first has written.
fn busy(calls: &Calls) -> ([Side<TcpTransport<Counted>>; 2], Target, Exposed) {
    let at_b = Calls::default();
    let (mut a, mut b) = (open(1, calls), open(2, &at_b));
    let to = Target::new(a.know(b.addr()), KEY, 0, 8);
    let memory = b.expose(KEY, vec![0; 8]);
    // Usually after 64: on a loaded machine a side may find nothing for so long that it is idle.
    for _ in 0..10_000 {
        let write = a.write(&to, vec![1; 8]);
        expect(&RealTime, &mut [&mut a, &mut b], "the write is done", |sides| sides[0].is_done(write));
        // The listeners are left.
        if (calls.watched(), at_b.watched()) == (1, 1) {
            return ([a, b], to, memory);
        }
    }
    panic!("the sides go on watching their sockets");
}

/// Reads the queue 1,000 times, in vain.
fn be_idle(side: &Side<TcpTransport<Counted>>) {
    (0..1000).for_each(|_| assert!(side.cq.read(1, |_| ()).is_err()));
}

#[test]
fn a_connection_that_is_read_all_the_time_is_watched_again_when_it_is_idle() {
    let calls = Calls::default();
    let ([mut a, mut b], ..) = busy(&calls);
    be_idle(&a);
    assert_eq!(calls.watched(), 2);
    a.close();
    b.close();
}

#[test]
fn a_connection_that_the_system_refuses_to_watch_again_is_polled() {
    let calls = Calls::default();
    let ([mut a, mut b], to, memory) = busy(&calls);
    calls.refuses.store(true, Ordering::Relaxed);
    be_idle(&a);
    let write = a.write(&to, vec![2; 8]);
    expect(&RealTime, &mut [&mut a, &mut b], "the write is acknowledged", |sides| sides[0].is_done(write));
    assert_eq!((memory.bytes(), calls.watched()), (vec![2; 8], 1));
    calls.refuses.store(false, Ordering::Relaxed);
    be_idle(&a);
    assert_eq!(calls.watched(), 2);
    a.close();
    b.close();
}

#[test]
fn a_connection_whose_room_the_system_refuses_to_watch_breaks() {
    let calls = Calls::default();
    let ([mut a, mut b], to, _memory) = busy(&calls);
    // More than the sockets hold while the peer does not read.
    let large = vec![0; 64 << 20];
    let _large = b.expose(KEY + 1, large.clone());
    calls.refuses.store(true, Ordering::Relaxed);
    let write = a.write(&Target::new(to.peer, KEY + 1, 0, large.len()), large);
    expect(&RealTime, &mut [&mut a], "the write fails", |sides| sides[0].outcome(write).is_some());
    let why = a.outcome(write).cloned().expect("it has ended").expect_err("it cannot leave");
    assert_eq!(why.errno, Errno::ENOMEM);
    a.close();
    b.close();
}

#[test]
fn an_acknowledgment_and_the_reply_leave_in_one_frame() {
    let calls = Calls::default();
    let (mut a, mut b) = (open(1, &Calls::default()), open(2, &calls));
    let (at_b, at_a) = (Target::new(a.know(b.addr()), KEY, 0, 8), Target::new(b.know(a.addr()), KEY, 0, 8));
    let [at_home, memory] = [&a, &b].map(|side| side.expose(KEY, vec![0; 8]));
    let first = a.write(&at_b, vec![0; 8]);
    expect(&RealTime, &mut [&mut a, &mut b], "the link opens", |sides| sides[0].is_done(first));
    let (mut made, mut bytes) = (0, 0);
    for round in 1..=80 {
        let before = (calls.sends(), calls.bytes());
        let write = a.write(&at_b, vec![round; 8]);
        expect(&RealTime, &mut [&mut b], "the write arrives", |_| memory.bytes() == [round; 8]);
        b.inject_write(&at_a, vec![round; 8], None).expect("few are outstanding");
        made += calls.sends() - before.0;
        bytes += calls.bytes() - before.1;
        expect(&RealTime, &mut [&mut a], "the write is acknowledged", |sides| sides[0].is_done(write));
        expect(&RealTime, &mut [&mut a], "the reply arrives", |_| at_home.bytes() == [round; 8]);
    }
    // The first reply is not expected, and no acknowledgment is deferred for more than 8 busy
    // polls.
    let alone = 1 + 80 / 8;
    assert!((80..=80 + alone).contains(&made), "{made} system calls for 80 replies");
    // A prefix, a header and 8 bytes; an acknowledgment alone has a prefix and a header.
    let (reply, acknowledgment) = (8 + 24 + 8, 8 + 8);
    assert!((80 * reply..=80 * reply + alone * acknowledgment).contains(&bytes), "{bytes} bytes for 80 replies");
    a.close();
    b.close();
}

#[test]
fn an_idle_endpoint_makes_no_system_calls_before_its_connection_is_audited() {
    let calls = Calls::default();
    let (mut a, mut b) = (open(1, &calls), open(2, &Calls::default()));
    let at_b = Target::new(a.know(b.addr()), KEY, 0, 8);
    let _memory = b.expose(KEY, vec![0; 8]);
    loop {
        let write = a.write(&at_b, vec![1; 8]);
        expect(&RealTime, &mut [&mut a, &mut b], "the write is done", |sides| sides[0].is_done(write));
        let sent = clock::now();
        be_idle(&a);
        let before = calls.all();
        be_idle(&a);
        let made = calls.all() - before;
        if clock::now().since(sent) < Duration::from_millis(500) {
            assert_eq!(made, 0, "system calls of 1,000 passes over an idle endpoint");
            break;
        }
        // So late the audit may have been among them.
    }
    let before = calls.all();
    expect(&RealTime, &mut [&mut a], "the connection is audited", |_| calls.all() > before);
    a.close();
    b.close();
}
