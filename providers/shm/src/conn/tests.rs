//! Payloads that both sides copy, with a sender that takes each step when the test says so.

use super::line::{KIND_DIRECT, KIND_OUTCOME, KIND_POOLED, KIND_WINDOW};
use super::{Conn, Kept, Large, Out, Peer, ReadError, State};
use crate::cma::{Cma, CmaMode, Kind, LAST_WORD, Outcome};
use crate::region::{BOUNCE_LEN, Region, Side};
use crate::window::{Claim, OpenWindow, PeerWindow, Share};
use ofi_core::{Addr, Errno};
use ofi_engine::transport::{
    Disposition, Down, Incoming, LinkEvents, LinkId, OfferAnswer, Payload, RecvTarget, Token, Verdict,
};
use ofi_engine::wire::frame::{AckMode, Frame, Header, MessageInfo, Violation};
use ofi_engine::wire::one_sided::RemoteAddr;
use ofi_memory::{Buffer, Chunk, ChunkMut};
use ofi_os::process;
use ofi_sync::lines::{LINES, News, Reader, SleepState};
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::os::fd::AsFd;
use std::sync::Arc;

mod bounce;
mod waiting;

const LINK: LinkId = LinkId(0);
const LEN: usize = (1 << 20) - 99;
/// That of messages whose windows open ahead.
const SHORT: usize = (64 << 10) - 99;
/// What each end reads to see that the other's memory is that of this process.
static SECRET: [u8; 16] = *b"of this process.";
/// The number of the first payload that a side lends.
const NUMBER: u32 = 1;

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Arrived(Vec<u8>),
    Frame,
    Sent,
    Declined,
    Retry,
    Returned,
    Failed(Errno),
}

#[derive(Debug, Default)]
struct Events {
    seen: Vec<Event>,
    /// The address of the last receive target.
    target: usize,
    /// Offers so far, and which of them is declined, from 1.
    offers: usize,
    declined: usize,
    /// Which ones no receive matches yet.
    waits: Vec<usize>,
}

/// The number of the message of an offer.
fn message_of(offer: usize) -> u32 {
    u32::try_from(7 * offer).unwrap()
}

impl LinkEvents for Events {
    fn handle_connect_request(&mut self, _: LinkId, _: &[u8], _: &Addr, _: impl Fn(&Addr) -> bool) -> Verdict {
        unreachable!("the link is open")
    }
    fn handle_connected(&mut self, _: LinkId, _: &[u8]) -> Result<(), Down> {
        unreachable!("the link is open")
    }
    fn handle_frame(&mut self, link: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        match payload {
            Incoming::Streaming(take) => Ok(self.handle_offer(link, header, take)?.into()),
            Incoming::Complete(_) => {
                self.seen.push(Event::Frame);
                Ok(Disposition::Done)
            }
        }
    }
    fn handle_offer(&mut self, _: LinkId, _: &[u8], take: usize) -> Result<OfferAnswer, Violation> {
        self.offers += 1;
        if self.offers == self.declined {
            return Ok(OfferAnswer::Decline);
        }
        if self.waits.contains(&self.offers) {
            return Ok(OfferAnswer::Wait(message_of(self.offers)));
        }
        let buffer = Buffer::Owned(vec![1; take]);
        self.target = buffer.address();
        Ok(OfferAnswer::Take(RecvTarget { buffer, at: 0, take, offer: None }))
    }
    fn handle_recv_done(&mut self, _: LinkId, target: RecvTarget) -> Result<(), Violation> {
        let Buffer::Owned(bytes) = target.buffer else { panic!("another buffer than the target's") };
        self.seen.push(Event::Arrived(bytes));
        Ok(())
    }
    fn handle_send_done(&mut self, _: LinkId, _: Token, _: Buffer) {
        self.seen.push(Event::Sent);
    }
    fn handle_offer_declined(&mut self, _: LinkId, _: Token, _: Buffer) {
        self.seen.push(Event::Declined);
    }
    fn handle_send_returned(&mut self, _: LinkId, _: Token, _: Buffer) {
        self.seen.push(Event::Returned);
    }
    fn handle_recv_retry(&mut self, _: LinkId, _: RecvTarget) {
        self.seen.push(Event::Retry);
    }
    fn handle_recv_failed(&mut self, _: LinkId, _: RecvTarget, why: Down) {
        self.seen.push(Event::Failed(why.errno));
    }
    fn handle_send_failed(&mut self, _: LinkId, _: Token, _: Buffer, why: Down) {
        self.seen.push(Event::Failed(why.errno));
    }
    fn handle_send_room(&mut self, _: LinkId) {}
    fn handle_link_down(&mut self, _: LinkId, _: Down) {}
}

/// The two ends of a link in this process, which may copy from and to each other's memory.
struct Ends {
    from: Conn,
    to: Conn,
    region: Arc<Region>,
    events: Events,
}

impl Ends {
    fn new() -> Self {
        let (region, memory) = Region::create(1 << 20).unwrap();
        let attached = Region::attach(memory.as_fd()).unwrap();
        let end = |region: &Arc<Region>, initiator| {
            let peer = Peer::new("fi_shm://test".parse().unwrap(), "test".to_owned(), (1, initiator));
            let mut conn = Conn::new(region.clone(), State::Open, peer);
            conn.is_connectionless = true;
            conn.cma = Cma::new(CmaMode::Both, 0);
            conn.cma.asked();
            let pid = i32::try_from(std::process::id()).unwrap();
            let granted = conn.cma.try_process(pid, SECRET.as_ptr().addr(), SECRET);
            conn.cma.has_answered();
            assert!(granted.is_some_and(|classes| conn.cma.answered(classes)));
            conn
        };
        let (from, to) = (end(&region, true), end(&attached, false));
        Self { from, to, region, events: Events::default() }
    }

    /// The sender offers the first [`LEN`] bytes.
    fn offer(&mut self, bytes: Vec<u8>) {
        self.lend(bytes, LEN, Kind::Offer);
    }

    /// The sender lends the first `len` bytes: of a message with its RTS, of a data frame, or of a
    /// write.
    fn lend(&mut self, bytes: Vec<u8>, len: usize, kind: Kind) {
        lend(&mut self.from, bytes, (0, len), kind);
    }

    /// The sender sends a frame without a payload.
    fn send_frame(&mut self) {
        let frame = Frame::Ack { id: 0 }.encode();
        assert!(self.from.sender.send_small(&frame, frame.len()).unwrap());
    }

    /// The sender sends what waits. Returns what it sees.
    fn send_waiting(&mut self) -> Vec<Event> {
        send_waiting(&mut self.from)
    }

    /// The kinds of the lines that the receiver has sent.
    fn kinds_of_answers(&self) -> Vec<u64> {
        let mut reader = Reader::new(self.region.ring(Side::Acceptor));
        let next = || {
            let (head, _) = reader.read()?;
            reader.advance(1);
            Some(head >> 40)
        };
        std::iter::from_fn(next).collect()
    }

    /// The receiver's answers reach the sender. Returns what the sender sees.
    fn answer(&mut self) -> Vec<Event> {
        assert_eq!(send_waiting(&mut self.to), []);
        let mut events = Events::default();
        assert!(self.from.read(LINK, true, &mut events).unwrap());
        events.seen
    }

    /// The receiver reads, while the sender claims the end of the window for the payload of that
    /// number and length as soon as it opens.
    fn read_with_claim(&mut self, number: u32, len: usize) -> Option<Claim> {
        let Self { to, region, events, .. } = self;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let words = region.window(Side::Acceptor, number);
                loop {
                    let claim = PeerWindow::new(number, len).claim(words);
                    if claim.is_some() || over.load(Ordering::Relaxed) {
                        return claim;
                    }
                }
            });
            assert!(to.read(LINK, true, events).unwrap());
            over.store(true, Ordering::Relaxed);
            sender.join().unwrap()
        })
    }
}

/// The header of a payload of `len` bytes.
fn header_of(len: usize, kind: Kind) -> Header {
    let info = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };
    let place = RemoteAddr { key: 0, addr: 0 };
    let frame = match kind {
        Kind::Offer => Frame::Rts { id: 0, len: len as u64, info },
        Kind::Unordered => Frame::Data { token: 0 },
        Kind::Eager => Frame::Eager { id: 0, info },
        Kind::Ordered => Frame::Write { id: 0, place, more: 0, last: true, commit: false, data: None, performed: 0 },
    };
    let header = frame.encode();
    assert!(kind == Kind::Offer || Kind::of(&header, len) == Some(kind));
    header
}

/// A side lends `len` bytes of `bytes`.
fn lend(side: &mut Conn, bytes: Vec<u8>, (from, len): (usize, usize), kind: Kind) {
    let mut buffer = Some(Buffer::Owned(bytes));
    let mut payload = Payload { buffer: &mut buffer, from, len, token: Token(0), inject: false };
    assert!(side.sender.send_cma(&mut side.cma, &header_of(len, kind), &mut payload, kind));
}

/// A side lends memory that the system has not provided yet.
fn lend_nothing(side: &mut Conn, len: usize, kind: Kind) {
    // So much comes fresh from the system; the allocator writes to its beginning only.
    const LONG: usize = 64 << 20;
    lend(side, vec![0; LONG], (LONG / 2, len), kind);
}

/// A side sends what waits. Returns what it sees.
fn send_waiting(side: &mut Conn) -> Vec<Event> {
    let mut seen = Vec::new();
    let ended = |kept| match kept {
        Kept::Payload(..) => seen.push(Event::Sent),
        Kept::Target(RecvTarget { buffer: Buffer::Owned(bytes), .. }) => seen.push(Event::Arrived(bytes)),
        Kept::Target(_) => panic!("another buffer than the target's"),
    };
    let terms = (true, side.may_keep_eager());
    side.sender.send_waiting(&mut side.cma, terms, &mut 0, ended).unwrap();
    seen
}

/// The length that both sides may copy of a payload of [`LEN`] bytes.
fn window_of(kind: Kind) -> usize {
    if kind == Kind::Ordered { LEN - LAST_WORD } else { LEN }
}

/// Ends whose receiver waits for a part that the sender has claimed.
fn ends_that_wait(kind: Kind, lend: impl Fn(&mut Ends)) -> (Ends, Claim) {
    // The receiver claims all of it if the thread of the sender does not run.
    for _ in 0..10_000 {
        let mut ends = Ends::new();
        lend(&mut ends);
        if let Some(claim) = ends.read_with_claim(NUMBER, window_of(kind)) {
            return (ends, claim);
        }
    }
    panic!("the sender never comes before the receiver has read everything");
}

fn message() -> Vec<u8> {
    (0..LEN).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn a_payload_arrives_when_the_sender_has_finished_its_part() {
    for (kind, written) in [Kind::Offer, Kind::Ordered].into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let bytes = message();
        let (mut ends, claim) = ends_that_wait(kind, |ends| ends.lend(bytes.clone(), LEN, kind));
        // A frame behind the payload does not overtake it, and does not keep the receiver awake.
        ends.send_frame();
        assert!(!ends.to.has_news());
        assert!(!ends.to.read(LINK, true, &mut ends.events).unwrap());
        assert!(ends.events.seen.is_empty());
        if written {
            let (process, part) = (ends.to.cma.peer().unwrap(), claim.bytes.clone());
            assert!(process.write(ends.events.target + part.start, &[Chunk::of(&bytes[part])]));
        }
        if kind == Kind::Ordered {
            let mut last = [0; LAST_WORD];
            let at = ends.events.target + LEN - LAST_WORD;
            assert!(ends.to.cma.peer().unwrap().read(at, &mut [ChunkMut::of(&mut last)]));
            assert_eq!(last, [1; LAST_WORD], "the last word comes when all others are in place");
        }
        let window = PeerWindow::new(NUMBER, window_of(kind));
        window.finish(ends.region.window(Side::Acceptor, NUMBER), &claim, written);
        assert!(ends.to.has_news());
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
        assert!(ends.events.seen == [Event::Arrived(bytes), Event::Frame], "{kind:?} written: {written}");
        assert_eq!(ends.answer(), [Event::Sent]);
    }
}

#[test]
fn payloads_that_are_read_together_have_a_window_each() {
    let mut ends = Ends::new();
    ends.offer(message());
    ends.offer(message());
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert_eq!(ends.events.seen.len(), 2);
    for number in [NUMBER, NUMBER + 1] {
        let opened = ends.region.window(Side::Acceptor, number).claims.load(Ordering::Relaxed) >> 32;
        assert_eq!(opened, u64::from(number), "what waits to be sent keeps no window from opening");
    }
    assert!(ends.to.must_notify);
    assert_eq!(ends.answer(), [Event::Sent, Event::Sent]);
}

#[test]
fn windows_of_short_offers_open_before_the_first_is_copied() {
    const W: u64 = KIND_WINDOW;
    const O: u64 = KIND_OUTCOME;
    let kinds = |payloads: &[(usize, Kind)]| {
        let mut ends = Ends::new();
        for (len, kind) in payloads {
            ends.lend(message(), *len, *kind);
        }
        while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
        assert_eq!(ends.events.seen.len(), payloads.len());
        for (seen, (len, _)) in ends.events.seen.iter().zip(payloads) {
            assert!(*seen == Event::Arrived(message()[..*len].to_vec()));
        }
        ends.kinds_of_answers()
    };
    let (offer, data, eager, write) = (Kind::Offer, Kind::Unordered, Kind::Eager, Kind::Ordered);
    assert_eq!(kinds(&[(SHORT, offer); 5]), [W, W, W, W, O, W, O, O, O, O]);
    assert_eq!(kinds(&[(LEN, offer), (SHORT, offer)]), [W, O, W, O], "behind a long one");
    assert_eq!(kinds(&[(SHORT, offer), (LEN, offer)]), [W, O, W, O], "a long one");
    assert_eq!(kinds(&[(SHORT, data), (SHORT, offer)]), [W, O, W, O], "a frame's payload is the only one");
    assert_eq!(kinds(&[(SHORT, offer), (SHORT, data)]), [W, O, W, O]);
    assert_eq!(
        kinds(&[(SHORT, offer), (SHORT, eager), (SHORT, eager)]),
        [W, O, W, O, W, O],
        "one eager message at a time"
    );
    assert_eq!(kinds(&[(SHORT, offer), (SHORT, write), (SHORT, write)]), [W, O, W, O, W, O], "one write at a time");
}

#[test]
fn a_declined_offer_costs_no_other_its_window() {
    let mut ends = Ends::new();
    ends.events.declined = 2;
    (0..6).for_each(|_| ends.lend(message(), SHORT, Kind::Offer));
    while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
    assert_eq!(ends.events.seen.len(), 5);
    let windows = ends.kinds_of_answers().into_iter().filter(|kind| *kind == KIND_WINDOW);
    assert_eq!(windows.count(), 5, "number 5 waits until number 1 has ended");
}

#[test]
fn payloads_end_in_the_order_of_their_lines() {
    for written in [true, false] {
        let bytes = message();
        let (mut ends, claim) = (0..10_000)
            .find_map(|_| {
                let mut ends = Ends::new();
                (0..3).for_each(|_| ends.lend(bytes.clone(), SHORT, Kind::Offer));
                ends.read_with_claim(NUMBER + 1, SHORT).map(|claim| (ends, claim))
            })
            .expect("the sender comes before the receiver has read everything");
        let arrived = || Event::Arrived(bytes[..SHORT].to_vec());
        assert!(ends.events.seen == [arrived()], "the third waits for the second");
        assert!(!ends.to.has_news());
        PeerWindow::new(NUMBER + 1, SHORT).finish(ends.region.window(Side::Acceptor, NUMBER + 1), &claim, written);
        assert!(ends.to.has_news());
        if !written {
            assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
            assert!(ends.events.seen == [arrived(), arrived(), arrived()]);
            continue;
        }
        // The link may end instead.
        ends.events.seen.clear();
        assert!(!ends.to.abandon(LINK, &mut ends.events), "the sender was not late");
        assert!(ends.events.seen == [Event::Retry, Event::Retry]);
    }
}

#[test]
fn an_offer_whose_pages_are_missing_is_declined() {
    let mut ends = Ends::new();
    lend_nothing(&mut ends.from, LEN, Kind::Offer);
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert!(ends.events.seen == [Event::Retry]);
    assert_eq!(ends.answer(), [Event::Declined]);
    assert!(ends.from.cma.lends(LEN), "one such payload does not stop the others");
}

#[test]
fn a_message_has_arrived_once_its_sender_can_know_that_it_has_been_taken() {
    let lines = usize::try_from(LINES).unwrap();
    let fill = |ends: &mut Ends| {
        let frame = Frame::Ack { id: 0 }.encode();
        (0..lines).for_each(|_| assert!(ends.to.sender.send_small(&frame, frame.len()).unwrap()));
        ends.lend(message(), SHORT, Kind::Offer);
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
        assert!(ends.events.seen.is_empty() && ends.to.sender.has_more(), "the ring has no room for the outcome");
    };
    let mut ends = Ends::new();
    fill(&mut ends);
    let mut events = Events::default();
    while ends.from.read(LINK, true, &mut events).unwrap() {}
    assert!(send_waiting(&mut ends.to) == [Event::Arrived(message()[..SHORT].to_vec())]);
    assert!(ends.from.read(LINK, true, &mut events).unwrap());
    assert_eq!((events.seen.len(), events.seen.pop()), (lines + 1, Some(Event::Sent)));
    // The link may end instead.
    let mut ends = Ends::new();
    fill(&mut ends);
    ends.to.abandon(LINK, &mut ends.events);
    assert!(ends.events.seen == [Event::Arrived(message()[..SHORT].to_vec())]);
}

#[test]
fn a_sender_is_notified_of_room_that_it_can_see() {
    let mut ends = Ends::new();
    for number in 1..=2 * LINES {
        ends.send_frame();
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
        // The position is published once in a quarter of the ring.
        let expected = number.is_multiple_of(LINES / 4).then_some(News::Room);
        assert_eq!(ends.to.take_news(), expected, "{number}");
    }
}

#[test]
fn outcomes_go_past_sends_that_wait_for_the_pool() {
    let mut ends = Ends::new();
    let large = |bytes: Vec<u8>| {
        let header = header_of(bytes.len(), Kind::Unordered);
        let (len, buffer) = (bytes.len(), Buffer::Owned(bytes));
        Large { header, buffer, from: 0, len, done: 0, token: Some(Token(1)), may_lend: false }
    };
    ends.to.sender.queue(Out::Large(large(message())));
    assert_eq!(send_waiting(&mut ends.to), []);
    assert!(ends.to.sender.has_more(), "the pool is smaller");
    ends.lend(message(), SHORT, Kind::Offer);
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert!(ends.events.seen == [Event::Arrived(message()[..SHORT].to_vec())]);
    assert!(ends.kinds_of_answers().ends_with(&[KIND_WINDOW, KIND_OUTCOME]));
    assert_eq!(ends.to.take_news(), Some(News::Line));
}

#[test]
fn a_receiver_that_sleeps_is_told_of_the_senders_part() {
    let mut ends = Ends::new();
    let bytes = message();
    ends.offer(bytes.clone());
    let words = ends.region.window(Side::Acceptor, NUMBER);
    let (mut window, part) = OpenWindow::open(words, NUMBER, LEN, Share::default());
    let target = vec![1; LEN];
    ends.to.sender.tell_window(NUMBER, target.as_ptr().addr(), LEN);
    assert!(ends.from.read(LINK, true, &mut Events::default()).unwrap());
    assert_eq!(window.claim(words), Ok(None), "the sender has come first");
    assert!(window.outcome(words) == Some(true) && target[part.end..] == bytes[part.end..]);
    assert!(ends.from.must_notify);
}

#[test]
fn an_eager_message_is_kept_only_for_a_side_that_polls() {
    const SIZE: usize = 16 << 10;
    let info = MessageInfo { tag: Some(7), data: None, ack: AckMode::No, fenced: false, group: false };
    let eager = Frame::Eager { id: 0, info }.encode();
    assert_eq!(Kind::of(&eager, SIZE), Some(Kind::Eager));
    for (connected, asleep, expected) in
        [(false, false, KIND_DIRECT), (false, true, KIND_POOLED), (true, false, KIND_POOLED)]
    {
        let mut ends = Ends::new();
        ends.from.is_connectionless = !connected;
        if asleep {
            ends.to.presence.announce(SleepState::asleep(false, false));
        }
        // One that has waited for room.
        let (buffer, token) = (Buffer::Owned(vec![5; SIZE]), Some(Token(1)));
        let large = Large { header: eager, buffer, from: 0, len: SIZE, done: 0, token, may_lend: true };
        ends.from.sender.queue(Out::Large(large));
        ends.send_waiting();
        let (head, _) = Reader::new(ends.region.ring(Side::Initiator)).read().unwrap();
        assert_eq!(head >> 40, expected, "{connected} {asleep}");
    }
}

#[test]
fn a_window_is_for_a_payload_that_is_lent() {
    for (number, len) in [(NUMBER + 1, LEN), (NUMBER, LEN - 1), (NUMBER, LEN + 1)] {
        let mut ends = Ends::new();
        ends.offer(message());
        ends.to.sender.tell_window(number, 8, len);
        assert!(ends.from.read(LINK, true, &mut Events::default()).is_err(), "{number} {len}");
    }
}

#[test]
fn a_payload_has_one_window() {
    let mut ends = Ends::new();
    ends.offer(message());
    ends.to.sender.tell_window(NUMBER, 8, LEN);
    assert!(ends.from.read(LINK, true, &mut Events::default()).unwrap());
    ends.to.sender.tell_window(NUMBER, 8, LEN);
    assert!(ends.from.read(LINK, true, &mut Events::default()).is_err());
}

#[test]
fn a_window_into_missing_memory_is_left_to_the_receiver() {
    let mut ends = Ends::new();
    ends.offer(message());
    let words = ends.region.window(Side::Acceptor, NUMBER);
    let (mut window, first) = OpenWindow::open(words, NUMBER, LEN, Share::default());
    ends.to.sender.tell_window(NUMBER, 8, LEN);
    assert!(ends.from.read(LINK, true, &mut Events::default()).unwrap());
    let parts = std::iter::from_fn(|| window.claim(words).unwrap()).map(|part| part.len());
    assert_eq!(first.len() + parts.sum::<usize>(), LEN, "the sender has claimed nothing");
    assert!(!window.has_sender());
}
