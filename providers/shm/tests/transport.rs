//! The transport alone: two transports record their events, to test the contract with the engine.

use ofi_core::Addr;
use ofi_engine::transport::{
    ControlSubmitted, Disposition, Down, Incoming, LinkEvents, LinkId, OfferAnswer, Payload, RecvTarget, Submitted,
    Token, Transport, Urgency, Verdict,
};
use ofi_engine::wire::frame::{Frame, Header, Violation};
use ofi_memory::{Buffer, Shared};
use ofi_os::clock;
use ofi_os::control_socket::{ControlSocket, Space};
use ofi_os::poller::{Interest, Poller};
use ofi_os::process::seam;
use ofi_os::shm::{Mapping, sealed_len};
use ofi_shm::ShmTransport;
use ofi_shm::cma::CmaMode;
use ofi_shm::transport::Settings;
use std::os::fd::AsFd;
use std::time::Duration;

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Incoming(LinkId),
    Answered(LinkId),
    /// A frame, by its number.
    Frame(u32),
    Placed,
    Sent(Token),
    Down(LinkId),
}

/// Records events and accepts everything.
#[derive(Debug, Default)]
struct Recorder(Vec<Event>);

impl LinkEvents for Recorder {
    fn handle_connect_request(&mut self, link: LinkId, _: &[u8], _: &Addr, _: impl Fn(&Addr) -> bool) -> Verdict {
        self.0.push(Event::Incoming(link));
        Verdict::Accept(vec![2; 100])
    }
    fn handle_connected(&mut self, link: LinkId, _: &[u8]) -> Result<(), Down> {
        self.0.push(Event::Answered(link));
        Ok(())
    }
    fn handle_frame(&mut self, _: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        match (Frame::parse(header)?, payload) {
            (Frame::Ack { id }, _) => self.0.push(Event::Frame(id)),
            (_, Incoming::Streaming(take)) => {
                return Ok(Disposition::Into(RecvTarget {
                    buffer: Buffer::Owned(vec![0; take]),
                    at: 0,
                    take,
                    offer: None,
                }));
            }
            (frame, _) => panic!("the tests send no {frame:?}"),
        }
        Ok(Disposition::Done)
    }
    fn handle_offer(&mut self, _: LinkId, _: &[u8], take: usize) -> Result<OfferAnswer, Violation> {
        Ok(OfferAnswer::Take(RecvTarget { buffer: Buffer::Owned(vec![0; take]), at: 0, take, offer: None }))
    }
    fn handle_offer_declined(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_recv_done(&mut self, _: LinkId, _: RecvTarget) -> Result<(), Violation> {
        self.0.push(Event::Placed);
        Ok(())
    }
    fn handle_send_done(&mut self, _: LinkId, token: Token, _: Buffer) {
        self.0.push(Event::Sent(token));
    }
    fn handle_send_returned(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_recv_retry(&mut self, _: LinkId, _: RecvTarget) {}
    fn handle_recv_failed(&mut self, _: LinkId, _: RecvTarget, why: Down) {
        panic!("{why:?}");
    }
    fn handle_send_failed(&mut self, _: LinkId, _: Token, _: Buffer, why: Down) {
        panic!("{why:?}");
    }
    fn handle_send_room(&mut self, _: LinkId) {}
    fn handle_link_down(&mut self, link: LinkId, _: Down) {
        self.0.push(Event::Down(link));
    }
}

impl Recorder {
    fn position(&self, event: &Event) -> Option<usize> {
        self.0.iter().position(|seen| seen == event)
    }
}

/// A transport and its events.
struct Node {
    transport: ShmTransport,
    heard: Recorder,
}

impl Node {
    fn open() -> Self {
        let settings = Settings { cma: CmaMode::IfAllowed, ..Settings::default() };
        Self { transport: ShmTransport::new(None, settings).unwrap(), heard: Recorder::default() }
    }

    fn poll(&mut self) {
        self.transport.poll(&mut self.heard);
    }

    fn send_large(&mut self, link: LinkId, token: u32) -> Submitted {
        const LEN: usize = 1 << 20;
        let mut buffer = Some(Buffer::Owned(vec![1; LEN]));
        let payload = Payload { buffer: &mut buffer, from: 0, len: LEN, token: Token(token), inject: false };
        let header = Frame::Data { token }.encode();
        self.transport.submit(link, &header, payload, Urgency::Posted)
    }
}

fn ack(id: u32) -> Header {
    Frame::Ack { id }.encode()
}

/// Polls all nodes until `is_so`.
fn until(nodes: &mut [&mut Node], what: &str, mut is_so: impl FnMut(&[&mut Node]) -> bool) {
    let end = clock::now() + Duration::from_secs(10);
    while !is_so(nodes) {
        nodes.iter_mut().for_each(|node| node.poll());
        assert!(clock::now() < end, "{what}: {:?}", nodes.iter().map(|node| &node.heard).collect::<Vec<_>>());
    }
}

/// Connects `a` to `b`. Returns the link's id on each side.
fn link(a: &mut Node, b: &mut Node) -> (LinkId, LinkId) {
    let from_a = a.transport.connect(&b.transport.local_addr(), &[1; 100]).unwrap();
    until(&mut [a, b], "no answer", |nodes| nodes[0].heard.position(&Event::Answered(from_a)).is_some());
    let from_b = b.heard.0.iter().find_map(|event| match event {
        Event::Incoming(link) => Some(*link),
        _ => None,
    });
    (from_a, from_b.unwrap())
}

/// A program may submit much before it polls: what waits for room leaves with the next frame.
#[test]
fn frames_that_wait_leave_with_the_next_one() {
    let (mut a, mut b) = (Node::open(), Node::open());
    let (to_b, _) = link(&mut a, &mut b);
    let mut count = 0;
    let mut submit = |a: &mut Node| {
        count += 1;
        assert_eq!(a.transport.submit_control(to_b, &ack(count), Urgency::Posted), ControlSubmitted::Taken);
    };
    // More than a ring has lines.
    (0..200).for_each(|_| submit(&mut a));
    let arrived = |b: &mut Node| {
        let frames = |b: &Node| b.heard.0.iter().filter(|event| matches!(event, Event::Frame(_))).count();
        let mut before = usize::MAX;
        while before != frames(b) {
            before = frames(b);
            b.poll();
        }
        before
    };
    let first = arrived(&mut b);
    assert!(first < 200, "some wait");
    submit(&mut a);
    assert_eq!(arrived(&mut b), 201, "all after the first {first}");
    let frames = b.heard.0.iter().filter_map(|event| if let Event::Frame(id) = event { Some(*id) } else { None });
    assert!(frames.eq(1..=201), "in order");
}

/// Sends payloads until they are read by cross-memory attach.
fn send_until_lent(a: &mut Node, b: &mut Node, to_b: LinkId) {
    let before = seam::bytes_read();
    let mut token = 0;
    while seam::bytes_read() == before {
        token += 1;
        let is_sent = a.send_large(to_b, token) == Submitted::Done;
        let placed = b.heard.0.len();
        until(&mut [&mut *a, &mut *b], "not sent", |nodes| {
            let is_sent = is_sent || nodes[0].heard.position(&Event::Sent(Token(token))).is_some();
            is_sent && nodes[1].heard.0.len() > placed
        });
        assert!(token < 100, "memory is not read, though it may be");
    }
}

/// The outcome of a payload read by cross-memory attach arrives before a later frame, even if the
/// ring was full for the outcome and has room for the frame.
#[test]
fn nothing_overtakes_the_outcome_of_a_payload() {
    let (mut a, mut b) = (Node::open(), Node::open());
    let (to_b, to_a) = link(&mut a, &mut b);
    send_until_lent(&mut a, &mut b, to_b);
    // Fill the ring back.
    let mut filled = 1000;
    while b.transport.try_submit_fast(to_a, &ack(filled), &Buffer::empty(), 0) {
        filled += 1;
    }
    let before = seam::bytes_read();
    assert_eq!(a.send_large(to_b, 999), Submitted::Kept);
    let placed = b.heard.0.len();
    until(&mut [&mut b], "not read", |nodes| nodes[0].heard.0.len() > placed);
    assert_eq!(b.heard.0[placed..], [Event::Placed]);
    assert!(seam::bytes_read() > before);
    // The ring is drained, and the payload is acknowledged.
    a.poll();
    assert_eq!(a.heard.position(&Event::Sent(Token(999))), None);
    assert_eq!(b.transport.submit_control(to_a, &ack(999), Urgency::Control), ControlSubmitted::Taken);
    until(&mut [&mut a, &mut b], "no acknowledgement", |nodes| nodes[0].heard.position(&Event::Frame(999)).is_some());
    assert!(a.heard.position(&Event::Sent(Token(999))) < a.heard.position(&Event::Frame(999)), "{:?}", a.heard);
    assert!(a.heard.position(&Event::Sent(Token(999))).is_some());
}

/// The memory of the link that the connect request in a control socket brings, from behind the pool
/// of the initiator on.
fn asked_of(socket: &ControlSocket) -> (Mapping, Shared) {
    let mut bytes = [0; 1024];
    let message = socket.receive(&mut bytes).unwrap();
    let fd = message.descriptors.into_iter().next().unwrap();
    let mapping = Mapping::new(fd.as_fd(), sealed_len(fd.as_fd()).unwrap()).unwrap();
    /// The page of words and two rings (`region.rs`).
    const MIDDLE: usize = 4096 + 2 * 128 * 64;
    let pool = (mapping.len() - MIDDLE) / 2;
    // SAFETY: the mapping is longer than that.
    let middle = unsafe { mapping.base().add(pool) };
    // SAFETY: the mapping is kept beside the value, and nothing forms references to it.
    let memory = unsafe { Shared::new(middle, mapping.len() - pool) };
    (mapping, memory)
}

fn name() -> String {
    format!("fi_shm://{:032x}", u128::from_ne_bytes(ofi_os::random()))
}

/// The transport finds a link damaged, the engine aborts it, and a new link gets its id before the
/// next poll.
#[test]
fn a_link_that_was_lost_takes_no_later_one_along() {
    /// The words of the acceptor: lines read, and gone.
    const READ: usize = 512;
    const GONE: usize = 512 + 128;
    let name = name();
    let socket = ControlSocket::bind(&Space::default(), &name).unwrap();
    let (mut a, mut b) = (Node::open(), Node::open());
    let lost = a.transport.connect(&name.parse().unwrap(), &[1; 100]).unwrap();
    let (_mapping, memory) = asked_of(&socket);
    // The peer claims to have read lines that were never written, and to have left.
    memory.write(READ, &u64::MAX.to_le_bytes());
    memory.write(GONE, &1u64.to_le_bytes());
    let mut submitted = ControlSubmitted::Taken;
    for id in 0..1000 {
        submitted = a.transport.submit_control(lost, &ack(id), Urgency::Control);
        if submitted == ControlSubmitted::Broken {
            break;
        }
    }
    a.transport.flush(ofi_engine::transport::Flush::All, &mut a.heard);
    a.transport.abort(lost, &mut a.heard);
    let next = a.transport.connect(&b.transport.local_addr(), &[1; 100]).unwrap();
    assert_eq!(next, lost, "the number is used again ({submitted:?})");
    let told = a.heard.0.len();
    until(&mut [&mut a, &mut b], "no answer", |nodes| nodes[0].heard.0.len() > told);
    assert_eq!(a.heard.0[told..], [Event::Answered(next)]);
    // The new link stays open for longer than the interval between probes.
    let end = clock::now() + Duration::from_millis(600);
    while clock::now() < end {
        a.poll();
        b.poll();
    }
    assert_eq!(a.heard.position(&Event::Down(next)), None);
}

/// An endpoint that gets a bitmap offer without its descriptor reports the bitmap as lost.
#[test]
fn a_bitmap_that_was_lost_on_the_way_is_asked_for() {
    const BOARD: u8 = 4;
    const BOARD_LOST: u8 = 6;
    let name = name();
    let socket = ControlSocket::bind(&Space::default(), &name).unwrap();
    let mut a = Node::open();
    let number = [5; 8];
    let head = |kind: u8| [&b"OFIshm\x09"[..], &[kind], &[7; 16], &number].concat();
    // The offer of a bitmap for a link that its sender asked for, without a descriptor.
    let bitmap = [&head(BOARD)[..], &[1], &0u64.to_le_bytes()].concat();
    let Addr::Name(to) = a.transport.local_addr() else { panic!("a name") };
    socket.send(to.as_str(), &bitmap, &[]).unwrap();
    a.poll();
    let mut bytes = [0; 1024];
    let message = socket.receive(&mut bytes).unwrap();
    assert_eq!((bytes[7], &bytes[24..32]), (BOARD_LOST, &number[..]));
    // The link is that of a request by the message's receiver.
    assert_eq!((message.len, bytes[32]), (33, 0));
}

/// After it was armed, a side stays awake and finds a frame by polling. The waking message of that
/// frame must not wake it when it sleeps the next time.
#[test]
fn a_waking_message_that_comes_too_late_is_read_before_the_next_sleep() {
    let (mut a, mut b) = (Node::open(), Node::open());
    let (to_b, _) = link(&mut a, &mut b);
    let end = clock::now() + Duration::from_secs(10);
    for id in 1.. {
        while b.transport.arm_alone() {
            b.poll();
        }
        assert_eq!(a.transport.submit_control(to_b, &ack(id), Urgency::Control), ControlSubmitted::Taken);
        b.transport.disarm();
        until(&mut [&mut b], "no frame", |nodes| nodes[0].heard.position(&Event::Frame(id)).is_some());
        let waits = b.transport.arm_alone();
        b.poll();
        b.transport.disarm();
        assert!(!b.transport.arm_alone(), "it has been read");
        if waits {
            break;
        }
        // On a busy machine the poll that found the frame also read the message.
        assert!(clock::now() < end, "a message that waits in the socket is not noticed");
    }
}

/// Whether a thread that sleeps on the descriptors wakes up at once.
fn wakes(poller: &Poller) -> bool {
    let mut woken = false;
    poller.wait(Some(Duration::ZERO), |_| woken = true).unwrap();
    woken
}

/// A thread polls a side on which another one sleeps. It hears the frames, and does not take the
/// message that wakes the other: after a while it does, but then it sends another.
#[test]
fn a_thread_that_polls_takes_no_waking_message_from_one_that_sleeps() {
    let (mut a, mut b) = (Node::open(), Node::open());
    let (to_b, _) = link(&mut a, &mut b);
    let poller = Poller::new().unwrap();
    poller.add(b.transport.descriptor().unwrap(), Interest::Read, 0).unwrap();
    while b.transport.arm_alone() {
        b.poll();
    }
    assert!(!wakes(&poller));
    assert_eq!(a.transport.submit_control(to_b, &ack(1), Urgency::Control), ControlSubmitted::Taken);
    let end = clock::now() + Duration::from_millis(20);
    while clock::now() < end {
        b.poll();
        assert!(wakes(&poller), "the polls are not those of the thread that sleeps");
    }
    assert!(b.heard.position(&Event::Frame(1)).is_some());
    // It wakes up, and goes to sleep again: the next frame wakes it, too.
    b.transport.note_events();
    b.poll();
    assert!(!wakes(&poller), "a poll after events reads what made the descriptor readable");
    assert_eq!(a.transport.submit_control(to_b, &ack(2), Urgency::Control), ControlSubmitted::Taken);
    assert!(wakes(&poller));
}

/// The outcome of a payload leaves before the receiver's poll is over, not as what waits for room.
#[test]
fn a_sender_that_sleeps_is_woken_by_the_outcome() {
    let (mut a, mut b) = (Node::open(), Node::open());
    let (to_b, _) = link(&mut a, &mut b);
    send_until_lent(&mut a, &mut b, to_b);
    assert_eq!(a.send_large(to_b, 999), Submitted::Kept);
    let poller = Poller::new().unwrap();
    poller.add(a.transport.descriptor().unwrap(), Interest::Read, 0).unwrap();
    while a.transport.arm_alone() {
        a.poll();
    }
    assert!(!wakes(&poller));
    let placed = b.heard.0.len();
    until(&mut [&mut b], "not read", |nodes| nodes[0].heard.0.len() > placed);
    assert!(wakes(&poller));
    a.transport.note_events();
    until(&mut [&mut a], "no outcome", |nodes| nodes[0].heard.position(&Event::Sent(Token(999))).is_some());
}

/// The descriptor reports an event to a thread that then disarms: its next poll reads the message,
/// however lately the socket was read.
#[test]
fn the_poll_after_an_event_reads_the_message() {
    let (mut a, mut b) = (Node::open(), Node::open());
    let (to_b, _) = link(&mut a, &mut b);
    let poller = Poller::new().unwrap();
    poller.add(b.transport.descriptor().unwrap(), Interest::Read, 0).unwrap();
    for id in 0..100 {
        while b.transport.arm_alone() {
            b.poll();
        }
        assert_eq!(a.transport.submit_control(to_b, &ack(id), Urgency::Control), ControlSubmitted::Taken);
        assert!(wakes(&poller));
        b.transport.note_events();
        b.transport.disarm();
        b.poll();
        assert!(!wakes(&poller));
    }
}
