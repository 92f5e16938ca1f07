//! A peer of the verbs transport that breaks the rules of payloads that are read: that ends its
//! link, and nothing else. It writes its segments by hand (`providers/verbs/src/wire.rs`).

use crate::verbs::Simulated;
use fastrand::Rng;
use libtest_mimic::Trial;
use ofi_conformance::Medium;
use ofi_core::{Addr, Cause};
use ofi_engine::transport::{
    Disposition, Down, Incoming, LinkEvents, LinkId, OfferAnswer, OfferId, Payload, RecvTarget, Submitted, Token,
    Transport, Urgency, Verdict,
};
use ofi_engine::wire::frame::{AckMode, Frame, MAX_PAYLOAD, MessageInfo, Violation};
use ofi_memory::Buffer;
use ofi_verbs::device::{Device, Event, Pair, Work};

/// Kinds of segments.
const HELLO: u8 = 1;
const FRAME: u8 = 3;
const BYE: u8 = 6;
const OFFER: u8 = 7;
const OUTCOME: u8 = 8;
const REMOTE: u8 = 9;
/// Bytes of the payload that is to be read.
const LEN: u64 = 4096;
/// Segments that are sent in a poll; with a hello, fewer than a ring of slots holds.
const BURST: usize = 12;
/// Polls until everything that can happen has.
const POLLS: usize = 100;

/// The private data of a request: version 4, 32 slots of 8 KiB.
const GRANT: [u8; 12] = [b'O', b'F', b'I', b'V', 4, 0, 32, 0, 0, 0x20, 0, 0];

fn segment(kind: u8, header: &[u8], credits: u16, len: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![kind, u8::try_from(header.len()).expect("headers are short")];
    out.extend(credits.to_le_bytes());
    out.extend(u32::try_from(len).expect("payloads are short").to_le_bytes());
    out.extend(header);
    out.extend(bytes);
    out
}

fn request() -> Vec<u8> {
    let info = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };
    Frame::Rts { id: 1, len: LEN, info }.encode().to_vec()
}

/// A payload that is to be read.
fn to_read(kind: u8, header: &[u8], number: u32, len: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    // A key that no memory has; the victim's device takes long to find that out.
    bytes.extend(39u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    segment(kind, header, 0, bytes.len(), &bytes)
}

fn offer(number: u32, len: u64) -> Vec<u8> {
    to_read(OFFER, &request(), number, len)
}

fn remote(number: u32, len: u64) -> Vec<u8> {
    to_read(REMOTE, &Frame::Data { token: 1 }.encode(), number, len)
}

/// A short message.
fn message() -> Vec<u8> {
    let info = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };
    segment(FRAME, &Frame::Eager { id: 2, info }.encode(), 0, 1, &[7])
}

/// What the victim's engine hears of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Offer,
    TargetBack,
    Frame,
    Sent,
    Returned,
    Down,
}

/// The victim's engine: declines every offer and drops every frame, or takes all.
#[derive(Debug, Default)]
struct Victim {
    takes: bool,
    link: Option<LinkId>,
    heard: Vec<Heard>,
    down: Option<Down>,
}

impl Victim {
    fn offered(&self) -> usize {
        self.heard.iter().filter(|heard| **heard == Heard::Offer).count()
    }
}

impl LinkEvents for Victim {
    fn handle_connect_request(&mut self, link: LinkId, _: &[u8], _: &Addr, _: impl Fn(&Addr) -> bool) -> Verdict {
        self.link = Some(link);
        Verdict::Accept(Vec::new())
    }
    fn handle_connected(&mut self, _: LinkId, _: &[u8]) -> Result<(), Down> {
        Ok(())
    }
    fn handle_frame(&mut self, _: LinkId, _: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        self.heard.push(Heard::Frame);
        Ok(match payload {
            Incoming::Streaming(take) if self.takes => {
                Disposition::Into(RecvTarget { buffer: Buffer::Owned(vec![0; take]), at: 0, take, offer: None })
            }
            _ => Disposition::Done,
        })
    }
    fn handle_offer(&mut self, _: LinkId, _: &[u8], take: usize) -> Result<OfferAnswer, Violation> {
        self.heard.push(Heard::Offer);
        let offer = Some(OfferId::new(0, u32::try_from(self.offered()).expect("few")));
        let target = || RecvTarget { buffer: Buffer::Owned(vec![0; take]), at: 0, take, offer };
        Ok(if self.takes { OfferAnswer::Take(target()) } else { OfferAnswer::Decline })
    }
    fn handle_recv_done(&mut self, _: LinkId, _: RecvTarget) -> Result<(), Violation> {
        Ok(())
    }
    fn handle_send_done(&mut self, _: LinkId, _: Token, _: Buffer) {
        self.heard.push(Heard::Sent);
    }
    fn handle_offer_declined(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_send_returned(&mut self, _: LinkId, _: Token, _: Buffer) {
        self.heard.push(Heard::Returned);
    }
    fn handle_recv_retry(&mut self, _: LinkId, _: RecvTarget) {
        self.heard.push(Heard::TargetBack);
    }
    fn handle_recv_failed(&mut self, _: LinkId, _: RecvTarget, _: Down) {}
    fn handle_send_failed(&mut self, _: LinkId, _: Token, _: Buffer, _: Down) {}
    fn handle_send_room(&mut self, _: LinkId) {}
    fn handle_link_down(&mut self, _: LinkId, why: Down) {
        self.heard.push(Heard::Down);
        self.down = Some(why);
    }
}

/// Sends these segments on a new connection, returns no credits, and ends it if the victim takes
/// offers. Returns what the victim has heard.
fn send_to(takes: bool, segments: &[Vec<u8>]) -> Victim {
    exchange(takes, None, segments)
}

/// The same, once the victim has sent a payload of so many bytes.
fn exchange(takes: bool, mut sends: Option<usize>, segments: &[Vec<u8>]) -> Victim {
    let mut net = Simulated::new(&mut Rng::with_seed(0));
    let mut transport = net.open(&mut Rng::with_seed(0));
    let to = transport.local_addr().socket();
    let mut victim = Victim { takes, ..Victim::default() };
    let mut device = net.bare();
    let mut pair = device.connect(0, to, &GRANT).expect("the simulated device has room");
    let (mut events, mut done, mut segments) = (Vec::new(), Vec::new(), segments.iter());
    let mut is_connected = false;
    let hello = segment(HELLO, &[], 0, 0, &[]);
    for _ in 0..POLLS + segments.len() {
        transport.poll(&mut victim);
        if let Some(link) = victim.link
            && let Some(len) = sends.take()
        {
            let mut buffer = Some(Buffer::Owned(vec![1; len]));
            let payload = Payload { buffer: &mut buffer, from: 0, len, token: Token(1), inject: false };
            let submitted = transport.submit(link, &Frame::Data { token: 1 }.encode(), payload, Urgency::Posted);
            assert!(matches!(submitted, Submitted::Kept), "the payload stays where it is");
        }
        device.poll_events(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Resolved(_) => device.advance(&mut pair).expect("the transport listens"),
                Event::Connected(..) => {
                    is_connected = true;
                    let slot = pair.send_slot().expect("nothing was sent");
                    slot[..hello.len()].copy_from_slice(&hello);
                    pair.send(hello.len()).and_then(|()| pair.flush()).expect("the connection is open");
                }
                _ => {}
            }
        }
        while device.poll_completions(&mut done) {}
        for done in done.drain(..) {
            if let Some(Work::Received { slot, .. }) = pair.claim(done) {
                // The slot is free again, but the victim is not told.
                pair.post_receive(slot).expect("the connection is open");
            }
        }
        if is_connected && sends.is_none() {
            for next in segments.by_ref().take(BURST) {
                let slot = pair.send_slot().expect("each poll completes what was sent");
                slot[..next.len()].copy_from_slice(next);
                pair.send_last(next.len()).and_then(|()| pair.flush()).expect("the connection is open");
            }
            if takes && segments.len() == 0 {
                break;
            }
        }
    }
    assert!(segments.next().is_none(), "all is sent");
    drop(pair);
    if takes {
        for _ in 0..POLLS {
            transport.poll(&mut victim);
        }
    }
    victim
}

fn send(segments: &[Vec<u8>]) -> Victim {
    send_to(false, segments)
}

fn is_ended(victim: &Victim, text: &str) {
    let why = victim.down.as_ref().expect("the link has ended");
    assert!(why.cause == Cause::Violation && why.text.contains(text), "{why:?}");
}

fn rules() {
    // What is allowed.
    let victim = send(&[offer(0, LEN), offer(1, LEN)]);
    assert_eq!((victim.offered(), victim.down.is_none()), (2, true));
    is_ended(&send(&[offer(0, 0)]), "an offer of no bytes");
    is_ended(&send(&[offer(0, u64::MAX)]), "or of too many");
    is_ended(&send(&[segment(OUTCOME, &[], 0, 5, &[0, 0, 0, 0, 1])]), "a payload that was not there to be read");
    is_ended(&send(&[segment(OUTCOME, &[], 0, 5, &[0, 0, 0, 0, 2])]), "neither yes nor no");
    // It could still read the payload.
    let victim = exchange(false, Some(4096), &[segment(OUTCOME, &[], 0, 5, &[0, 0, 0, 0, 1])]);
    is_ended(&victim, "leaves the payload's window open");
    assert_eq!(victim.heard, [Heard::Returned, Heard::Down]);
    // It returns no credits, so the victim soon has none to return its own with.
    is_ended(&send(&vec![message(); 700]), "sends without credit");
    let held: Vec<_> = core::iter::once(remote(0, LEN)).chain((0..33).map(|_| message())).collect();
    is_ended(&exchange(true, None, &held), "sends without credit");
    // In the middle of a frame.
    let partial = segment(FRAME, &request(), 0, 9000, &[7; 100]);
    is_ended(&send(&[partial.clone(), offer(0, LEN)]), "out of turn");
    is_ended(&send(&[partial, segment(OUTCOME, &[], 0, 5, &[0; 5])]), "out of turn");
    // The peer returns no credits, so the victim's answers wait: their number is bounded.
    let many: Vec<_> = (0..80).map(|number| offer(number, LEN)).collect();
    let victim = send(&many);
    is_ended(&victim, "more payloads to read than a side may have open");
    assert!((33..80).contains(&victim.offered()), "{}", victim.offered());
    // The peer has as many payloads open as it may, and the device reads all of them.
    let victim = send_to(true, &many[..33]);
    is_ended(&victim, "more payloads to read than a side may have open");
    let back = victim.heard.iter().filter(|heard| **heard == Heard::TargetBack).count();
    assert_eq!((victim.offered(), back), (33, 33));
}

fn rules_of_remote_frames() {
    let victim = send(&[remote(0, LEN), remote(1, LEN)]);
    assert_eq!((victim.heard.as_slice(), victim.down.is_none()), (&[Heard::Frame; 2][..], true));
    is_ended(&send(&[remote(0, 0)]), "an offer of no bytes");
    is_ended(&send(&[remote(0, MAX_PAYLOAD as u64 + 1)]), "the payload of a frame is too long");
    let partial = segment(FRAME, &request(), 0, 9000, &[7; 100]);
    is_ended(&send(&[partial, remote(0, LEN)]), "out of turn");
    let many: Vec<_> = (0..80).map(|number| remote(number, LEN)).collect();
    is_ended(&send(&many), "more payloads to read than a side may have open");
}

/// A frame that arrives behind an offer does not wait until the payload is read, and so is not lost
/// when the peer goes before.
fn what_arrived_stays() {
    let victim = send_to(true, &[offer(0, LEN), message()]);
    assert_eq!(victim.heard, [Heard::Offer, Heard::Frame, Heard::TargetBack, Heard::Down], "{:?}", victim.down);
}

/// Nothing follows the end of a peer, also while its payloads are still being read.
fn nothing_follows_the_end() {
    let bye = segment(BYE, &[], 0, 0, &[]);
    let victim = send_to(true, &[offer(0, LEN), bye, message()]);
    assert_eq!(victim.heard, [Heard::Offer, Heard::TargetBack, Heard::Down], "{:?}", victim.down);
}

/// A frame that has arrived behind a remote one is not handled when that is lost: it would be out
/// of order.
fn what_follows_a_lost_frame_is_lost() {
    let victim = send_to(true, &[message(), remote(0, LEN), message()]);
    assert_eq!(victim.heard, [Heard::Frame, Heard::Frame, Heard::TargetBack, Heard::Down], "{:?}", victim.down);
}

/// The tests of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name, test: fn()| {
        Trial::test(format!("verbs_sim::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        trial("a_peer_that_breaks_the_rules_of_offers_ends_its_link", rules),
        trial("a_peer_that_breaks_the_rules_of_remote_frames_ends_its_link", rules_of_remote_frames),
        trial("what_arrived_behind_an_offer_is_handled_before_the_end", what_arrived_stays),
        trial("what_arrived_behind_a_lost_frame_is_lost", what_follows_a_lost_frame_is_lost),
        trial("what_arrived_behind_the_end_is_lost", nothing_follows_the_end),
    ]
}
