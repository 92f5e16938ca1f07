//! Messages and one-sided operations whose payload cannot be read after their frame has been sent,
//! as a transport may report; over shared memory a hostile peer can claim it at any time. Such an
//! operation fails once, and its number is not reused before the peer has answered all of its
//! frames.

use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::error::Result;
use ofi_core::{Addr, Cause, Errno, FiAddr, Instant, OpFlags};
use ofi_engine::transport::{
    Disposition, Down, Incoming, LinkEvents, LinkId, OfferAnswer, Payload, RecvTarget, ShutdownState, Submitted, Token,
    Transport, Urgency, Verdict,
};
use ofi_engine::wire::frame::{AckMode, Frame, Header, MessageInfo, Violation};
use ofi_memory::Buffer;
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Exposed, Message, Options, RealTime, Receive, Side, Target, expect, finish};
use ofi_sim::node::addr;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const LINK: LinkId = LinkId(0);
const KEY: u64 = 7;
/// Requests that a link may have outstanding.
const REQUESTS: usize = 64;

#[derive(Debug)]
enum Item {
    Ask(Vec<u8>),
    Answer(Vec<u8>),
    /// A frame whose payload the sender has copied.
    Frame(Header, Vec<u8>),
    /// A frame whose payload stays with the sender; without bytes it cannot be read, only measured.
    Lent(Header, std::result::Result<Vec<u8>, usize>),
    /// A request whose payload of that length the transport brings, until [`Self::Brought`].
    Offer(Header, usize),
    /// What the last offer brings; without bytes it cannot be read.
    Brought(Option<Vec<u8>>),
}

type Queue = Arc<Mutex<VecDeque<Item>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end of a link. It keeps payloads, and later cannot read some of them.
#[derive(Debug)]
struct Lender {
    local: Addr,
    remote: Addr,
    outgoing: Queue,
    incoming: Queue,
    /// Payloads that are kept, and whether they can be read.
    kept: Vec<(Token, Buffer, bool)>,
    /// The place of a message that cannot be read: it fails in the next poll.
    failing: Option<RecvTarget>,
    /// The place of the last offer's payload.
    offered: Option<RecvTarget>,
    /// The number of the message of the offer that waits.
    waiting: Option<u32>,
    /// Number of payloads that can be read before one that cannot.
    absent: Arc<Mutex<Option<usize>>>,
}

impl Lender {
    fn take(&mut self, item: Item, events: &mut impl LinkEvents) -> std::result::Result<(), Violation> {
        match item {
            Item::Ask(hello) => match events.handle_connect_request(LINK, &hello, &self.remote, |_| true) {
                Verdict::Accept(answer) | Verdict::Refuse(answer) => {
                    lock(&self.outgoing).push_back(Item::Answer(answer));
                }
            },
            Item::Answer(hello) => events.handle_connected(LINK, &hello).expect("the peer accepts"),
            Item::Frame(header, payload) => {
                let place = events.handle_frame(LINK, &header, Incoming::Complete(&payload))?;
                assert!(matches!(place, Disposition::Done));
            }
            Item::Offer(header, len) => {
                match events.handle_offer(LINK, &header, len)? {
                    OfferAnswer::Take(target) => self.offered = Some(target),
                    // One waits; more are declined.
                    OfferAnswer::Wait(message) => self.waiting = self.waiting.or(Some(message)),
                    OfferAnswer::Decline => {}
                }
            }
            Item::Brought(bytes) => {
                let mut target = self.offered.take().expect("the offer is wanted");
                match bytes {
                    Some(bytes) => {
                        target.buffer.write_at(target.at, &bytes[..target.take]);
                        events.handle_recv_done(LINK, target)?;
                    }
                    None => events.handle_recv_failed(LINK, target, absent()),
                }
            }
            Item::Lent(header, payload) => {
                let len = payload.as_ref().map_or_else(|len| *len, Vec::len);
                let Disposition::Into(mut target) = events.handle_frame(LINK, &header, Incoming::Streaming(len))?
                else {
                    return Ok(());
                };
                match payload {
                    Ok(bytes) => {
                        target.buffer.write_at(target.at, &bytes[..target.take]);
                        events.handle_recv_done(LINK, target)?;
                    }
                    Err(_) if matches!(Frame::parse(&header), Ok(Frame::Eager { .. })) => {
                        self.failing = Some(target);
                    }
                    Err(_) => {
                        // Tried again before it fails, as over shared memory.
                        events.handle_recv_retry(LINK, target);
                        match events.handle_frame(LINK, &header, Incoming::Streaming(len))? {
                            Disposition::Into(target) => events.handle_recv_failed(LINK, target, absent()),
                            Disposition::Done => panic!("the engine first wanted the payload"),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn absent() -> Down {
    Down::new(Cause::Absent, Errno::EFAULT, Cause::Absent.text())
}

impl Transport for Lender {
    type Request = ();

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn connect(&mut self, _: &Addr, hello: &[u8]) -> Result<LinkId> {
        lock(&self.outgoing).push_back(Item::Ask(hello.to_vec()));
        Ok(LINK)
    }

    fn accept(&mut self, (): (), _: &[u8]) -> Result<LinkId> {
        Ok(LINK)
    }

    fn next_link(&self) -> LinkId {
        LINK
    }

    fn submit(&mut self, _: LinkId, header: &Header, payload: Payload<'_>, _: Urgency) -> Submitted {
        let mut bytes = Vec::new();
        payload.append_to(&mut bytes);
        if payload.inject || payload.len == 0 {
            lock(&self.outgoing).push_back(Item::Frame(*header, bytes));
            return Submitted::Done;
        }
        let mut left = lock(&self.absent);
        let is_absent = *left == Some(0);
        *left = left.and_then(|left| left.checked_sub(1));
        let bytes = if is_absent { Err(bytes.len()) } else { Ok(bytes) };
        lock(&self.outgoing).push_back(Item::Lent(*header, bytes));
        self.kept.push((payload.token, payload.buffer.take().expect("it has bytes"), !is_absent));
        Submitted::Kept
    }

    fn take_offer(&mut self, _: LinkId, target: RecvTarget) -> std::result::Result<(), RecvTarget> {
        let is_it = |waiting: &mut u32| target.offer.is_some_and(|offer| offer.message() == *waiting);
        match self.waiting.take_if(is_it) {
            Some(_) => self.offered = Some(target),
            None => return Err(target),
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = !self.kept.is_empty();
        for (token, buffer, is_there) in std::mem::take(&mut self.kept) {
            if is_there {
                events.handle_send_done(LINK, token, buffer);
            } else {
                events.handle_send_failed(LINK, token, buffer, absent());
            }
        }
        if let Some(target) = self.failing.take() {
            any = true;
            events.handle_recv_failed(LINK, target, absent());
        }
        loop {
            if self.failing.is_some() {
                return any;
            }
            let Some(item) = lock(&self.incoming).pop_front() else { return any };
            any = true;
            if let Err(violation) = self.take(item, events) {
                if let Some(target) = self.offered.take() {
                    events.handle_recv_retry(LINK, target);
                }
                events.handle_link_down(LINK, Down::violation(violation.0));
            }
        }
    }

    fn shutdown(&mut self, _: LinkId, last: Option<&Header>) -> ShutdownState {
        lock(&self.outgoing).extend(last.map(|last| Item::Frame(*last, Vec::new())));
        ShutdownState::Done
    }

    fn abort(&mut self, _: LinkId, events: &mut impl LinkEvents) {
        for (token, buffer, _) in std::mem::take(&mut self.kept) {
            events.handle_send_returned(LINK, token, buffer);
        }
        for target in [self.failing.take(), self.offered.take()].into_iter().flatten() {
            events.handle_recv_retry(LINK, target);
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn random(&mut self) -> [u8; 16] {
        [7; 16]
    }
}

/// B exposes memory to A.
struct Scene {
    a: Side<Lender>,
    b: Side<Lender>,
    memory: Exposed,
    content: Vec<u8>,
    /// A range of B's memory.
    at: Box<dyn Fn(usize, usize) -> Target>,
    /// The indexes of the payloads of A and of B that cannot be read.
    absent: [Arc<Mutex<Option<usize>>>; 2],
    /// What B gets from A, and A from B.
    to_b: Queue,
    to_a: Queue,
}

const LEN: usize = 4 << 20;

impl Scene {
    fn new() -> Self {
        let (left, right) = (Queue::default(), Queue::default());
        let absent: [Arc<Mutex<Option<usize>>>; 2] = [Arc::default(), Arc::default()];
        let open = |me: u16, outgoing: &Queue, incoming: &Queue| {
            let mut lender = Some(Lender {
                local: addr(1, me).into(),
                remote: addr(1, 3 - me).into(),
                outgoing: outgoing.clone(),
                incoming: incoming.clone(),
                kept: Vec::new(),
                failing: None,
                offered: None,
                waiting: None,
                absent: absent[usize::from(me) - 1].clone(),
            });
            let options = Options { nonce: [u8::try_from(me).expect("small"); 16], ..Options::default() };
            let wait_object = Arc::new(FdWaitObject::new(true).expect("descriptors are free"));
            Side::open(options, wait_object, |_| Box::new(move |_| Ok(lender.take().expect("opened once"))))
        };
        let (a, b) = (open(1, &left, &right), open(2, &right, &left));
        let (to_b, _) = (a.know(addr(1, 2)), b.know(addr(1, 1)));
        let content: Vec<u8> = (0..LEN).map(|at| (at % 251).to_le_bytes()[0]).collect();
        let memory = b.expose(KEY, content.clone());
        let at = Box::new(move |from: usize, len| Target::new(to_b, KEY, from as u64, len));
        Self { a, b, memory, content, at, absent, to_b: left, to_a: right }
    }

    /// Operations posted before and after the failure succeed. They exceed the outstanding requests
    /// of a link, so every request is returned exactly once.
    fn others_succeed(&mut self, failing: usize) {
        let Self { a, b, at, content, .. } = self;
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for round in 0..4 {
            for number in 0..2 * REQUESTS {
                let from = 5 * number;
                reads.push((a.read(&at(from, 100 * (number % 80))), from));
                writes.push(a.write(&at(LEN - 8, 8), vec![9; 8]));
            }
            if round == 0 {
                b.progress();
                a.progress();
            } else {
                finish(&RealTime, &mut [&mut *a, &mut *b]);
            }
        }
        for (read, from) in reads {
            let [done] = a.finished(read) else { panic!("it ends once") };
            assert!(done.outcome.is_ok(), "{:?}", done.outcome);
            assert!(done.bytes == content[from..from + done.bytes.len()], "{} bytes", done.bytes.len());
        }
        assert!(writes.into_iter().all(|write| a.is_done(write)));
        let [failed] = a.finished(failing) else { panic!("it ends once") };
        let failure = failed.outcome.as_ref().expect_err("its memory could not be read");
        assert_eq!(failure.errno, Errno::EFAULT, "{}", failure.text);
        assert_eq!(failure.completion.context, failing);
    }

    fn close(mut self) {
        self.memory.close();
        self.a.close();
        self.b.close();
    }
}

/// When the receive of a message is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    Before,
    WhileItArrives,
    Never,
}

/// Many fail, which would use up the link's credit if it did not come back.
#[test]
fn messages_of_absent_memory_fail_once_and_alone() {
    const EAGER: usize = 16_000;
    for posted in [Posted::Before, Posted::WhileItArrives, Posted::Never] {
        let Scene { mut a, mut b, memory, absent, .. } = Scene::new();
        let exchange = |a: &mut Side<Lender>, b: &mut Side<Lender>| {
            let (send, receive) = (a.send(FiAddr(0), 7, vec![2; EAGER]), b.receive(FiAddr(0), 7, EAGER));
            expect(&RealTime, &mut [&mut *a, &mut *b], "a message arrives", |sides| {
                sides[0].is_done(send) && sides[1].is_done(receive)
            });
            assert!(b.finished(receive)[0].bytes == vec![2; EAGER]);
        };
        exchange(&mut a, &mut b);
        let failed = |side: &Side<Lender>, context| {
            let failure = side.outcome(context).map(|outcome| outcome.as_ref().map_err(|failure| failure.errno));
            matches!(failure, Some(Err(Errno::EFAULT)))
        };
        for _ in 0..500 {
            let mut receive = (posted == Posted::Before).then(|| b.receive(FiAddr(0), 7, EAGER));
            *lock(&absent[0]) = Some(0);
            let send = a.send(FiAddr(0), 7, vec![1; EAGER]);
            expect(&RealTime, &mut [&mut a], "the message leaves", |_| lock(&absent[0]).is_none());
            b.progress();
            match posted {
                Posted::Before => {}
                Posted::WhileItArrives => receive = Some(b.receive(FiAddr(0), 7, EAGER)),
                // It fails before the next receive can claim it.
                Posted::Never => _ = b.progress(),
            }
            expect(&RealTime, &mut [&mut a, &mut b], "both sides hear of it", |sides| {
                failed(sides[0], send) && receive.is_none_or(|receive| failed(sides[1], receive))
            });
        }
        exchange(&mut a, &mut b);
        finish(&RealTime, &mut [&mut a, &mut b]);
        memory.close();
        a.close();
        b.close();
    }
}

#[test]
fn a_read_of_absent_memory_fails_once_and_alone() {
    for absent in 0..7 {
        let mut scene = Scene::new();
        *lock(&scene.absent[1]) = Some(absent);
        // Three kept payloads, one, none and three.
        let target = (scene.at)(0, (2 << 20) + 5000).and(KEY, 100, 70_000).and(KEY, 0, 300).and(KEY, 1 << 20, 3 << 20);
        let read = scene.a.read(&target);
        scene.others_succeed(read);
        scene.close();
    }
}

#[test]
fn a_write_of_absent_memory_fails_once_and_alone() {
    for absent in 0..6 {
        let mut scene = Scene::new();
        *lock(&scene.absent[0]) = Some(absent);
        // One kept payload, three, and one each.
        let target = (scene.at)(LEN - 8, 8).and(KEY, 3 << 20, 700_000).and(KEY, 2 << 20, 8).and(KEY, 1 << 20, 8);
        let write = scene.a.write(&target, vec![4; 700_024]);
        scene.others_succeed(write);
        scene.close();
    }
}

#[test]
fn an_atomic_operation_with_absent_operands_fails_once_and_alone() {
    for kind in [AtomicKind::Base, AtomicKind::Fetch] {
        for absent in 0..3 {
            let mut scene = Scene::new();
            *lock(&scene.absent[0]) = Some(absent);
            let target = (scene.at)(LEN - 8, 8).and(KEY, 2 << 20, 8).and(KEY, 1 << 20, 8);
            let action = (kind, AtomicOp::Sum, Datatype::Uint64);
            let atomic = scene.a.try_atomic(&target, action, &[1; 24], &[], OpFlags::empty());
            scene.others_succeed(atomic.expect("few are outstanding"));
            scene.close();
        }
    }
}

/// A link keeps few fences: those of messages that have failed do not count.
#[test]
fn fenced_messages_of_absent_memory_fail_once_and_alone() {
    const LONG: usize = 1 << 20;
    let Scene { mut a, mut b, memory, absent, .. } = Scene::new();
    let fenced =
        |bytes: Vec<u8>| Message::new(FiAddr(0), bytes).tagged(7).flags(OpFlags::FENCE | OpFlags::DELIVERY_COMPLETE);
    for _ in 0..40 {
        *lock(&absent[0]) = Some(0);
        let (send, receive) = (a.post(fenced(vec![1; LONG])), b.receive(FiAddr(0), 7, LONG));
        let failed = |side: &Side<Lender>, context| {
            side.outcome(context).is_some_and(|outcome| outcome.as_ref().is_err_and(|why| why.errno == Errno::EFAULT))
        };
        expect(&RealTime, &mut [&mut a, &mut b], "both sides hear of it", |sides| {
            failed(sides[0], send) && failed(sides[1], receive)
        });
    }
    let (send, receive) = (a.post(fenced(vec![2; LONG])), b.receive(FiAddr(0), 7, LONG));
    expect(&RealTime, &mut [&mut a, &mut b], "the next one arrives", |sides| {
        sides[0].is_done(send) && sides[1].is_done(receive)
    });
    assert!(b.finished(receive)[0].bytes == vec![2; LONG]);
    memory.close();
    a.close();
    b.close();
}

/// A scene in which B takes the payload of an offer that A has made by hand; its receive.
fn offered(len: usize, fenced: bool) -> (Scene, usize) {
    let mut scene = Scene::new();
    let Scene { a, b, to_b, .. } = &mut scene;
    let (send, receive) = (a.send(FiAddr(0), 7, vec![1]), b.receive(FiAddr(0), 7, 1));
    expect(&RealTime, &mut [&mut *a, &mut *b], "the link opens", |sides| {
        sides[0].is_done(send) && sides[1].is_done(receive)
    });
    let receive = b.receive(FiAddr(0), 7, len);
    let ack = if fenced { AckMode::Delivery } else { AckMode::No };
    let info = MessageInfo { tag: Some(7), data: None, ack, fenced, group: false };
    lock(to_b).push_back(Item::Offer(Frame::Rts { id: 9, len: len as u64, info }.encode(), len));
    b.progress();
    assert!(b.outcome(receive).is_none(), "its payload is on the way");
    (scene, receive)
}

/// Data frames cannot complete a receive whose payload the transport brings: it would still write
/// there.
#[test]
fn data_for_a_receive_that_an_offer_fills_ends_the_link() {
    // The numbers of receives are small, so a peer can guess them.
    for token in 0..4 {
        let (Scene { mut a, mut b, memory, to_b, .. }, receive) = offered(100, false);
        lock(&to_b).push_back(Item::Frame(Frame::Data { token }.encode(), vec![3; 100]));
        expect(&RealTime, &mut [&mut b], "the receive fails", |sides| sides[0].outcome(receive).is_some());
        let outcome = b.outcome(receive).expect("it has ended").as_ref();
        assert_eq!(outcome.map(|_| ()).map_err(|failure| failure.cause), Err(Cause::Violation), "token {token}");
        memory.close();
        a.close();
        b.close();
    }
}

#[test]
fn an_offer_that_cannot_be_read_fails_alone() {
    for fenced in [false, true] {
        let (Scene { mut a, mut b, memory, to_b, .. }, receive) = offered(1000, fenced);
        lock(&to_b).push_back(Item::Brought(None));
        b.progress();
        let failure = b.outcome(receive).expect("it has ended").as_ref().expect_err("it could not be read");
        assert_eq!(failure.errno, Errno::EFAULT);
        // No fence is left that the next ones would meet.
        let info = MessageInfo { tag: Some(7), data: None, ack: AckMode::Delivery, fenced: true, group: false };
        for id in 10..40 {
            let receive = b.receive(FiAddr(0), 7, 1000);
            lock(&to_b).push_back(Item::Offer(Frame::Rts { id, len: 1000, info }.encode(), 1000));
            lock(&to_b).push_back(Item::Brought(None));
            b.progress();
            assert!(b.outcome(receive).is_some_and(|outcome| outcome.is_err()));
        }
        let receive = b.receive(FiAddr(0), 7, 1000);
        let info = MessageInfo { tag: Some(7), data: None, ack: AckMode::No, fenced: false, group: false };
        lock(&to_b).push_back(Item::Offer(Frame::Rts { id: 50, len: 1000, info }.encode(), 1000));
        lock(&to_b).push_back(Item::Brought(Some(vec![5; 1000])));
        b.progress();
        assert!(b.is_done(receive) && b.finished(receive)[0].bytes == vec![5; 1000]);
        memory.close();
        a.close();
        b.close();
    }
}

/// The CTS that B has sent, as the numbers of their messages.
fn clear_to_send(to_a: &Queue) -> Vec<u32> {
    let frames = lock(to_a);
    let cts = frames.iter().filter_map(|item| match item {
        Item::Frame(header, _) => match Frame::parse(header) {
            Ok(Frame::Cts { id, .. }) => Some(id),
            _ => None,
        },
        _ => None,
    });
    cts.collect()
}

/// The transport brings what an offer has kept waiting. Of one that it has declined meanwhile, the
/// payload comes by a CTS.
#[test]
fn an_offer_waits_for_its_receive() {
    let mut scene = Scene::new();
    let Scene { a, b, to_b, to_a, .. } = &mut scene;
    let (send, receive) = (a.send(FiAddr(0), 7, vec![1]), b.receive(FiAddr(0), 7, 1));
    expect(&RealTime, &mut [&mut *a, &mut *b], "the link opens", |sides| {
        sides[0].is_done(send) && sides[1].is_done(receive)
    });
    let info = MessageInfo { tag: Some(7), data: None, ack: AckMode::No, fenced: false, group: false };
    for id in [9, 10] {
        lock(to_b).push_back(Item::Offer(Frame::Rts { id, len: 1000, info }.encode(), 1000));
    }
    b.progress();
    let first = b.receive(FiAddr(0), 7, 600);
    assert!(b.outcome(first).is_none() && clear_to_send(to_a).is_empty());
    lock(to_b).push_back(Item::Brought(Some(vec![5; 1000])));
    b.progress();
    let ended = b.take(first).remove(0);
    assert_eq!(ended.outcome.expect_err("it does not fit").errno, Errno::ETRUNC);
    assert_eq!(ended.bytes, [5; 600]);
    let second = b.receive(FiAddr(0), 7, 1000);
    b.progress();
    assert!(b.outcome(second).is_none());
    assert_eq!(clear_to_send(to_a), [10]);
    let Scene { mut a, mut b, memory, .. } = scene;
    memory.close();
    a.close();
    b.close();
}

/// A link that ends before the payload of a waiting offer has come fails the receive, and takes the
/// messages along that no receive has matched.
#[test]
fn the_end_of_the_link_ends_what_waits() {
    for is_taken in [false, true] {
        let mut scene = Scene::new();
        let Scene { a, b, to_b, .. } = &mut scene;
        let (send, receive) = (a.send(FiAddr(0), 7, vec![1]), b.receive(FiAddr(0), 7, 1));
        expect(&RealTime, &mut [&mut *a, &mut *b], "the link opens", |sides| {
            sides[0].is_done(send) && sides[1].is_done(receive)
        });
        let info = MessageInfo { tag: Some(7), data: None, ack: AckMode::No, fenced: false, group: false };
        lock(to_b).push_back(Item::Offer(Frame::Rts { id: 9, len: 1000, info }.encode(), 1000));
        b.progress();
        let receive = is_taken.then(|| b.receive(FiAddr(0), 7, 1000));
        lock(to_b).push_back(Item::Frame(Frame::Cts { id: 77, token: 0, len: 1 }.encode(), Vec::new()));
        b.progress();
        match receive {
            Some(receive) => assert!(b.outcome(receive).is_some_and(|outcome| outcome.is_err())),
            None => {
                let look = b.post_receive(Receive::new(0).tagged(7).flags(OpFlags::PEEK));
                b.progress();
                let failure = b.take(look).remove(0).outcome.expect_err("no message is left");
                assert_eq!(failure.errno, Errno::ENOMSG);
            }
        }
        let Scene { mut a, mut b, memory, .. } = scene;
        memory.close();
        a.close();
        b.close();
    }
}
