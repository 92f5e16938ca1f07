//! The order of events of a payload: of one poll during which the peer answers what the poll has
//! just sent, of a payload whose target cannot be written, and of offers with what follows them.

use crate::verbs::Simulated;
use fastrand::Rng;
use libtest_mimic::Trial;
use ofi_conformance::Medium;
use ofi_core::Addr;
use ofi_engine::transport::{
    ControlSubmitted, Disposition, Down, Incoming, LinkEvents, LinkId, OfferAnswer, OfferId, Payload, RecvTarget,
    Submitted, Token, Transport, Urgency, Verdict,
};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo, Violation};
use ofi_memory::Buffer;
use std::sync::{Arc, Mutex};

/// More than the slots of a connection hold, so that its end waits in the sender's queue.
const LEN: usize = 300 << 10;
/// Polls until the payload and its answer must have arrived.
const MOST_POLLS: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Open,
    /// The payload has left.
    Sent,
    /// The whole payload has arrived.
    Arrived(LinkId),
    /// The payload cannot be written.
    Failed,
    /// The peer's frame without a payload has arrived.
    Answered,
    /// The payload of this offer has arrived.
    Brought(u32),
    /// The peer has ended the link.
    Ended,
}

#[derive(Debug, Default)]
struct Log {
    heard: Vec<Heard>,
    /// The receive buffers have room for one byte only, and no other can be written.
    is_short: bool,
}

impl LinkEvents for Log {
    fn handle_connect_request(&mut self, _: LinkId, _: &[u8], _: &Addr, _: impl Fn(&Addr) -> bool) -> Verdict {
        Verdict::Accept(Vec::new())
    }
    fn handle_connected(&mut self, _: LinkId, _: &[u8]) -> Result<(), Down> {
        self.heard.push(Heard::Open);
        Ok(())
    }
    fn handle_frame(&mut self, _: LinkId, _: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        Ok(match payload {
            Incoming::Complete(_) => {
                self.heard.push(Heard::Answered);
                Disposition::Done
            }
            Incoming::Streaming(take) => {
                let room = if self.is_short { 1 } else { take };
                Disposition::Into(RecvTarget { buffer: Buffer::Owned(vec![0; room]), at: 0, take, offer: None })
            }
        })
    }
    fn handle_offer(&mut self, _: LinkId, header: &[u8], take: usize) -> Result<OfferAnswer, Violation> {
        let Frame::Rts { id: message, .. } = Frame::parse(header)? else { return Err(Violation("another offer")) };
        let offer = Some(OfferId::new(0, message));
        Ok(OfferAnswer::Take(RecvTarget { buffer: Buffer::Owned(vec![0; take]), at: 0, take, offer }))
    }
    fn handle_recv_done(&mut self, link: LinkId, target: RecvTarget) -> Result<(), Violation> {
        self.heard.push(match target.offer {
            Some(offer) => Heard::Brought(offer.message()),
            None => Heard::Arrived(link),
        });
        Ok(())
    }
    fn handle_send_done(&mut self, _: LinkId, _: Token, _: Buffer) {
        self.heard.push(Heard::Sent);
    }
    fn handle_offer_declined(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_send_returned(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_recv_retry(&mut self, _: LinkId, _: RecvTarget) {}
    fn handle_recv_failed(&mut self, _: LinkId, _: RecvTarget, _: Down) {
        self.heard.push(Heard::Failed);
    }
    fn handle_send_failed(&mut self, _: LinkId, _: Token, _: Buffer, _: Down) {}
    fn handle_send_room(&mut self, _: LinkId) {}
    fn handle_link_down(&mut self, _: LinkId, _: Down) {
        self.heard.push(Heard::Ended);
    }
}

/// A payload whose receive buffer cannot be written fails, in segments or read where it lies; its
/// sender gets it back, and the link carries the next frame.
fn an_unwritable_target_fails_alone(read_from: usize) {
    let mut net = Simulated::reading_from(read_from);
    let mut receiver = net.open(&mut Rng::with_seed(0));
    let to = receiver.local_addr();
    let mut sender = net.open(&mut Rng::with_seed(0));
    let (mut sent, mut seen) = (Log::default(), Log { is_short: true, ..Log::default() });
    let mut poll = |sender: &mut <Simulated as Medium>::Carrier, sent: &mut Log, seen: &mut Log| {
        for _ in 0..MOST_POLLS {
            sender.poll(sent);
            receiver.poll(seen);
        }
    };
    let link = sender.connect(&to, &[]).expect("the simulated device has room");
    poll(&mut sender, &mut sent, &mut seen);
    let mut buffer = Some(Buffer::Owned(vec![7; LEN]));
    let payload = Payload { buffer: &mut buffer, from: 0, len: LEN, token: Token(1), inject: false };
    assert_eq!(sender.submit(link, &Frame::Data { token: 1 }.encode(), payload, Urgency::Posted), Submitted::Kept);
    assert_eq!(sender.submit_control(link, &Frame::Ack { id: 1 }.encode(), Urgency::Control), ControlSubmitted::Taken);
    poll(&mut sender, &mut sent, &mut seen);
    assert_eq!((sent.heard, seen.heard), (vec![Heard::Open, Heard::Sent], vec![Heard::Failed, Heard::Answered]));
}

/// A payload is reported as sent before its answer, which one poll can read after it has sent the
/// payload's last part.
fn sent_before_answered(read_from: usize) {
    let mut net = Simulated::reading_from(read_from);
    let receiver = Arc::new(Mutex::new(net.open(&mut Rng::with_seed(0))));
    let to = receiver.lock().expect("one thread").local_addr();
    let mut seen = Log::default();
    let mut sender = net.with_others(move || {
        let mut receiver = receiver.lock().expect("one thread");
        receiver.poll(&mut seen);
        for heard in seen.heard.drain(..) {
            let Heard::Arrived(link) = heard else { panic!("{heard:?} at the receiver") };
            let submitted = receiver.submit_control(link, &Frame::Ack { id: 1 }.encode(), Urgency::Control);
            assert_eq!(submitted, ControlSubmitted::Taken);
        }
    });
    let (mut log, mut polls) = (Log::default(), 0);
    let mut until = |sender: &mut <Simulated as Medium>::Carrier, log: &mut Log, what| {
        while !log.heard.contains(&what) {
            sender.poll(log);
            polls += 1;
            assert!(polls < MOST_POLLS, "{what:?} does not happen: {log:?}");
        }
    };
    let link = sender.connect(&to, &[]).expect("the simulated device has room");
    until(&mut sender, &mut log, Heard::Open);
    let mut buffer = Some(Buffer::Owned(vec![7; LEN]));
    let payload = Payload { buffer: &mut buffer, from: 0, len: LEN, token: Token(1), inject: false };
    assert_eq!(sender.submit(link, &Frame::Data { token: 1 }.encode(), payload, Urgency::Posted), Submitted::Kept);
    until(&mut sender, &mut log, Heard::Answered);
    assert_eq!(log.heard, [Heard::Open, Heard::Sent, Heard::Answered]);
}

/// A frame that follows offers arrives before their payloads are read; the end of the peer waits
/// for the payloads.
fn offers_hold_up_the_end_alone() {
    const OFFERS: u32 = 3;
    let mut net = Simulated::reading_from(LEN);
    let mut receiver = net.open(&mut Rng::with_seed(0));
    let to = receiver.local_addr();
    let mut sender = net.open(&mut Rng::with_seed(0));
    let (mut sent, mut seen) = (Log::default(), Log::default());
    let link = sender.connect(&to, &[]).expect("the simulated device has room");
    for _ in 0..MOST_POLLS {
        sender.poll(&mut sent);
        receiver.poll(&mut seen);
    }
    let info = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };
    for id in 0..OFFERS {
        let header = Frame::Rts { id, len: LEN as u64, info }.encode();
        let mut buffer = Some(Buffer::Owned(vec![7; LEN]));
        let payload = Payload { buffer: &mut buffer, from: 0, len: LEN, token: Token(id), inject: false };
        assert!(sender.offer(link, &header, payload), "the simulated device has room");
    }
    let _ = sender.shutdown(link, Some(&Frame::Ack { id: 1 }.encode()));
    for _ in 0..MOST_POLLS {
        sender.poll(&mut sent);
        receiver.poll(&mut seen);
    }
    let [Heard::Answered, brought @ .., Heard::Ended] = &mut seen.heard[..] else { panic!("{seen:?}") };
    brought.sort_by_key(|heard| if let Heard::Brought(id) = heard { *id } else { u32::MAX });
    assert_eq!(*brought, [0, 1, 2].map(Heard::Brought));
    assert_eq!(sent.heard, [Heard::Open, Heard::Sent, Heard::Sent, Heard::Sent, Heard::Ended]);
}

/// The tests of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name, test: fn(usize)| {
        Trial::test(format!("verbs_sim::{name}"), move || {
            // In segments, and read where it lies.
            [LEN + 1, LEN].into_iter().for_each(test);
            Ok(())
        })
    };
    let offers = Trial::test("verbs_sim::offers_hold_up_the_end_of_the_peer_alone", || {
        offers_hold_up_the_end_alone();
        Ok(())
    });
    vec![
        offers,
        trial("a_payload_is_sent_before_its_answer", sent_before_answered),
        trial("a_payload_whose_target_cannot_be_written_fails_alone", an_unwritable_target_fails_alone),
    ]
}
