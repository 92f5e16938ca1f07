//! Checks every event of a transport as it comes.
//! Invariant: a link is in `links` from its first event, or from connect, until it is down or
//! aborted; no other link has events.

use crate::frame::Planned;
use crate::ledger::{ACCEPTOR, ChannelId, End, INITIATOR, Ledger, Plan, Side};
use fastrand::Rng;
use ofi_core::{Addr, Cause, Errno};
use ofi_engine::transport::{
    Disposition, Down, Incoming, LinkEvents, LinkId, OfferAnswer, OfferId, RecvTarget, Token, Verdict,
};
use ofi_engine::wire::frame::Violation;
use ofi_memory::Buffer;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The byte that fills receive buffers around the payload.
const FILL: u8 = 0xa5;

/// A link that exists.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) channel: ChannelId,
    /// Which end of the channel it is.
    pub(crate) side: usize,
    /// The target of the arriving frame's payload.
    target: Option<Target>,
    /// Targets of the payloads of offers.
    offers: Vec<(OfferId, Target)>,
    /// Offers that wait, and where their payloads will go.
    waiting: Vec<(RecvTarget, Target)>,
    /// It has refused a frame, and no room has been reported since.
    pub(crate) backed_up: bool,
    /// The reason for which it must go down now.
    condemned: Option<(Cause, &'static str)>,
}

impl Link {
    /// Whether the transport fills a receive buffer.
    const fn has_target(&self) -> bool {
        self.target.is_some() || !self.offers.is_empty()
    }
}

/// A receive buffer that the transport fills.
#[derive(Debug)]
struct Target {
    address: usize,
    at: usize,
    take: usize,
    len: usize,
    frame: Planned,
}

/// A payload that the transport has kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) link: LinkId,
    pub(crate) address: usize,
    pub(crate) len: usize,
    /// Where the payload begins in its buffer.
    pub(crate) from: usize,
    pub(crate) frame: Planned,
    pub(crate) is_offered: bool,
}

/// Observes one transport.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    rng: Rng,
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) kept: HashMap<u32, Kept>,
    /// Events so far.
    pub(crate) events: u64,
    /// The reason for which the last link went down.
    pub(crate) last_down: Option<(ChannelId, Down)>,
    /// Payloads go into buffers and are never dropped.
    pub(crate) takes_all: bool,
}

impl Observer {
    pub(crate) fn new(ledger: Rc<RefCell<Ledger>>, rng: Rng) -> Self {
        Self { ledger, rng, links: BTreeMap::new(), kept: HashMap::new(), events: 0, last_down: None, takes_all: false }
    }

    /// Records a link that this side connects or accepts by a call.
    pub(crate) fn begin(&mut self, id: LinkId, channel: ChannelId, side: usize) {
        let link = Link {
            channel,
            side,
            target: None,
            offers: Vec::new(),
            waiting: Vec::new(),
            backed_up: false,
            condemned: None,
        };
        let before = self.links.insert(id, link);
        assert!(before.is_none(), "link number {} is given to a second link: {before:?}", id.0);
        let state = if side == INITIATOR { Side::Connecting } else { Side::Open };
        let sides = &mut self.ledger.borrow_mut().channels[channel].sides;
        assert_eq!(sides[side], Side::Unaware, "channel {channel} begins twice");
        sides[side] = state;
    }

    fn link(&mut self, id: LinkId, what: &str) -> &mut Link {
        self.events += 1;
        match self.links.get_mut(&id) {
            Some(link) => link,
            None => panic!("{what} for link {}, which does not exist", id.0),
        }
    }

    /// A link that must stay up: nothing has ended it.
    fn open_link(&mut self, id: LinkId, what: &str) -> &mut Link {
        let link = self.link(id, what);
        assert!(link.condemned.is_none(), "{what} on link {}, which must go down: {:?}", id.0, link.condemned);
        link
    }

    /// Removes a link that has ended. All buffers must have been returned.
    pub(crate) fn forget(&mut self, id: LinkId) -> Link {
        let link = self.links.remove(&id).expect("the caller knows the link");
        assert!(!link.has_target(), "link {} ended with receive buffers: {link:?}", id.0);
        let kept: Vec<_> = self.kept.iter().filter(|(_, kept)| kept.link == id).map(|(token, _)| token).collect();
        assert!(kept.is_empty(), "link {} ended with the kept payloads {kept:?}", id.0);
        self.ledger.borrow_mut().channels[link.channel].sides[link.side] = Side::Over;
        link
    }

    /// Whether offers wait to be taken.
    pub(crate) fn has_waiting(&self) -> bool {
        self.links.values().any(|link| !link.waiting.is_empty())
    }

    /// The targets of the offers that wait: the caller gives them to the transport.
    pub(crate) fn take_waiting(&mut self) -> Vec<(LinkId, RecvTarget)> {
        let mut taken = Vec::new();
        for (id, link) in &mut self.links {
            for (target, expected) in link.waiting.drain(..) {
                link.offers.extend(target.offer.map(|offer| (offer, expected)));
                taken.push((*id, target));
            }
        }
        taken
    }

    /// True if the transport has a buffer or must report room, or offers wait, on one of the links.
    pub(crate) fn is_waiting(&self, on: impl Fn(&Link) -> bool) -> bool {
        let kept = self.kept.values().map(|kept| &self.links[&kept.link]);
        let others = self.links.values().filter(|link| link.has_target() || link.backed_up || !link.waiting.is_empty());
        kept.chain(others).any(on)
    }

    /// Handles the return of a kept payload.
    fn take_back(&mut self, id: LinkId, Token(token): Token, buffer: &Buffer, what: &str) -> ChannelId {
        let channel = self.link(id, what).channel;
        let Some(Kept { link, address, len, from, frame, .. }) = self.kept.remove(&token) else {
            panic!("{what} with token {token} on link {}, which the transport does not have", id.0);
        };
        assert_eq!(link, id, "{what} with token {token} names another link");
        assert_eq!((buffer.address(), buffer.len()), (address, len), "{what} with token {token} has another buffer");
        let payload = frame.bytes();
        assert_eq!(bytes_of(buffer).get(from..from + payload.len()), Some(payload), "{what}: a changed buffer");
        channel
    }

    /// Whether the receiver has the payload of an offer that the transport has kept: the sender
    /// learns that once. `None` for any other payload.
    fn was_taken(&mut self, id: LinkId, Token(token): Token) -> Option<bool> {
        let &Link { channel, side, .. } = self.links.get(&id)?;
        let header = self.kept.get(&token).filter(|kept| kept.is_offered)?.frame.header;
        let taken = &mut self.ledger.borrow_mut().channels[channel].flows[side].taken;
        let at = taken.iter().position(|taken| *taken == header);
        at.map(|at| taken.swap_remove(at));
        Some(at.is_some())
    }

    /// Handles the return of a receive buffer.
    fn take_target(&mut self, id: LinkId, target: &RecvTarget, what: &str) -> Target {
        let link = self.link(id, what);
        let expected = match target.offer {
            None => link.target.take(),
            Some(offer) => {
                let at = link.offers.iter().position(|(other, _)| *other == offer);
                at.map(|at| link.offers.swap_remove(at).1)
            }
        };
        let Some(expected) = expected else { panic!("{what} on link {}, which has no such buffer", id.0) };
        let Target { address, at, take, len, .. } = expected;
        let got = (target.buffer.address(), target.at, target.take, target.buffer.len());
        assert_eq!(got, (address, at, take, len), "{what} on link {} gives another buffer back", id.0);
        expected
    }

    /// Finds the planned frame that has arrived.
    fn match_frame(&mut self, channel: ChannelId, side: usize, header: &[u8], len: usize) -> Planned {
        let ledger = &mut *self.ledger.borrow_mut();
        let flow = &mut ledger.channels[channel].flows[1 - side];
        let is_it = |frame: &Planned| *frame.header == *header && frame.bytes().len() == len;
        if flow.unordered.as_ref().is_some_and(is_it) {
            return flow.unordered.take().expect("it is it");
        }
        match flow.queue.pop_front() {
            Some(frame) if is_it(&frame) => frame,
            next => panic!(
                "channel {channel}: a frame with the header {header:?} and {len} bytes arrives after {} others; \
                 next is {:?} with {:?} bytes",
                flow.arrived,
                next.as_ref().map(|frame| &*frame.header),
                next.as_ref().map(|frame| frame.bytes().len()),
            ),
        }
    }

    /// Whether the script answers with a violation now.
    fn violates(&mut self, id: LinkId, channel: ChannelId, side: usize) -> Result<(), Violation> {
        let ledger = &mut *self.ledger.borrow_mut();
        let flow = &ledger.channels[channel].flows[1 - side];
        if flow.violation_at.is_none_or(|at| flow.arrived < at) {
            return Ok(());
        }
        ledger.channels[channel].end(End::Violation(side));
        let link = self.links.get_mut(&id).expect("the caller knows the link");
        link.condemned = Some((Cause::Violation, VIOLATION));
        Err(Violation(VIOLATION))
    }
}

const VIOLATION: &str = "a violation of the script";
const DECLINED: &str = "the script declines the answer";

fn bytes_of(buffer: &Buffer) -> &[u8] {
    match buffer {
        Buffer::Owned(bytes) => bytes,
        Buffer::One(_) | Buffer::Many(..) | Buffer::Registered(_) => panic!("the suite lends memory of its own only"),
    }
}

impl LinkEvents for Observer {
    fn handle_connect_request(
        &mut self,
        id: LinkId,
        hello: &[u8],
        from: &Addr,
        vouches: impl Fn(&Addr) -> bool,
    ) -> Verdict {
        self.events += 1;
        assert!(vouches(from), "the connection does not prove that its peer is at its address {from}");
        let channel = self.ledger.borrow().channel_of(hello);
        let (plan, answer) = {
            let entry = &self.ledger.borrow().channels[channel];
            (entry.plan, entry.answer.clone())
        };
        if plan == Plan::Refuse {
            let taken = self.links.contains_key(&id);
            assert!(!taken, "link number {} is given to a second link", id.0);
            return Verdict::Refuse(answer);
        }
        self.begin(id, channel, ACCEPTOR);
        Verdict::Accept(answer)
    }

    fn handle_connected(&mut self, id: LinkId, hello: &[u8]) -> Result<(), Down> {
        let link = self.open_link(id, "an answer");
        let (number, side) = (link.channel, link.side);
        let ledger = &mut *self.ledger.borrow_mut();
        let channel = &mut ledger.channels[number];
        assert_eq!(channel.sides[side], Side::Connecting, "channel {number} is answered twice");
        assert_eq!(channel.answer, hello, "the answer of channel {number} was changed on the way");
        if channel.plan == Plan::Accept {
            channel.sides[side] = Side::Open;
            return Ok(());
        }
        let link = self.links.get_mut(&id).expect("it was there");
        link.condemned = Some((Cause::Rejected, DECLINED));
        Err(Down::new(Cause::Rejected, Errno::ECONNREFUSED, DECLINED))
    }

    fn handle_frame(&mut self, id: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        let link = self.open_link(id, "a frame");
        let (channel, side) = (link.channel, link.side);
        assert!(link.target.is_none(), "a frame arrives on link {} before the payload of the one before", id.0);
        let state = self.ledger.borrow().channels[channel].sides[side];
        assert_eq!(state, Side::Open, "a frame arrives on channel {channel} before the handshake is done");
        let frame = self.match_frame(channel, side, header, payload.len());
        self.violates(id, channel, side)?;
        let streaming = match payload {
            Incoming::Complete(bytes) => {
                assert!(bytes == frame.bytes(), "channel {channel}: a payload was changed on the way");
                None
            }
            Incoming::Streaming(len) => (self.takes_all || self.rng.u8(0..10) > 0).then_some(len),
        };
        let Some(len) = streaming else {
            self.ledger.borrow_mut().channels[channel].flows[1 - side].arrived += 1;
            return Ok(Disposition::Done);
        };
        // Sometimes into the middle of a buffer, sometimes only the beginning of the payload.
        let take = if self.takes_all || self.rng.u8(0..5) > 0 { len } else { self.rng.usize(0..=len) };
        let (at, tail) = (self.rng.usize(0..100), self.rng.usize(0..100));
        let buffer = Buffer::Owned(vec![FILL; at + take + tail]);
        let target = Target { address: buffer.address(), at, take, len: buffer.len(), frame };
        self.links.get_mut(&id).expect("it was there").target = Some(target);
        Ok(Disposition::Into(RecvTarget { buffer, at, take, offer: None }))
    }

    fn handle_offer(&mut self, id: LinkId, header: &[u8], len: usize) -> Result<OfferAnswer, Violation> {
        let answer = self.handle_frame(id, header, Incoming::Streaming(len))?;
        let name = OfferId::new(self.rng.u32(0..4), u32::try_from(self.events).expect("few"));
        let waits = self.rng.u8(0..3) == 0;
        let link = self.links.get_mut(&id).expect("it was there");
        let (Disposition::Into(mut target), Some(expected)) = (answer, link.target.take()) else {
            return Ok(OfferAnswer::Decline);
        };
        target.offer = Some(name);
        if waits {
            link.waiting.push((target, expected));
            return Ok(OfferAnswer::Wait(name.message()));
        }
        link.offers.push((name, expected));
        Ok(OfferAnswer::Take(target))
    }

    fn handle_offer_declined(&mut self, id: LinkId, token: Token, buffer: Buffer) {
        let was_taken = self.was_taken(id, token);
        assert_eq!(was_taken, Some(false), "link {}: an offer is declined", id.0);
        self.take_back(id, token, &buffer, "an offer that the other side declines");
    }

    fn handle_recv_done(&mut self, id: LinkId, target: RecvTarget) -> Result<(), Violation> {
        if target.offer.is_none() {
            self.open_link(id, "a payload in place");
        }
        let Target { at, take, frame, .. } = self.take_target(id, &target, "a payload in place");
        let bytes = bytes_of(&target.buffer);
        assert!(bytes[at..at + take] == frame.bytes()[..take], "link {}: a payload was changed on the way", id.0);
        let around = bytes[..at].iter().chain(&bytes[at + take..]);
        assert!(around.copied().all(|byte| byte == FILL), "link {}: bytes beside the payload were written", id.0);
        let (channel, side) = (self.links[&id].channel, self.links[&id].side);
        {
            let flow = &mut self.ledger.borrow_mut().channels[channel].flows[1 - side];
            flow.arrived += 1;
            flow.taken.extend(target.offer.map(|_| frame.header));
        }
        // A violation that is due after this frame may be reported with it, unless it was an offer.
        if target.offer.is_none() && self.rng.bool() { self.violates(id, channel, side) } else { Ok(()) }
    }

    fn handle_send_done(&mut self, id: LinkId, token: Token, buffer: Buffer) {
        let was_taken = self.was_taken(id, token);
        assert_ne!(was_taken, Some(false), "link {}: an offer is taken that has not arrived", id.0);
        self.take_back(id, token, &buffer, "a payload that was sent");
    }

    fn handle_send_returned(&mut self, id: LinkId, token: Token, buffer: Buffer) {
        let channel = self.take_back(id, token, &buffer, "a payload that was not sent");
        let may_end = self.ledger.borrow().channels[channel].may_end();
        assert!(may_end, "link {} gives a payload back although nothing ends it", id.0);
    }

    fn handle_recv_retry(&mut self, id: LinkId, target: RecvTarget) {
        let Target { frame, .. } = self.take_target(id, &target, "a payload that does not come");
        let link = &self.links[&id];
        let ledger = &mut *self.ledger.borrow_mut();
        let channel = &mut ledger.channels[link.channel];
        let may_end = channel.may_end();
        let flow = &mut channel.flows[1 - link.side];
        if target.offer.is_some() {
            flow.arrived += 1;
        } else if frame.is_unordered() && flow.unordered.is_none() {
            flow.unordered = Some(frame);
        } else {
            assert!(may_end, "link {}: a payload does not come, though nothing ends the link", id.0);
            flow.queue.push_front(frame);
        }
    }

    fn handle_recv_failed(&mut self, id: LinkId, target: RecvTarget, why: Down) {
        self.take_target(id, &target, "a payload that cannot be read");
        let channel = self.links[&id].channel;
        let may_end = self.ledger.borrow().channels[channel].may_end();
        assert!(may_end, "all memory can be read, but link {} fails a payload: {why:?}", id.0);
    }

    fn handle_send_failed(&mut self, id: LinkId, token: Token, buffer: Buffer, why: Down) {
        self.take_back(id, token, &buffer, "a payload that cannot be read");
        panic!("all memory can be read, but link {} fails a payload: {why:?}", id.0);
    }

    fn handle_send_room(&mut self, id: LinkId) {
        let link = self.link(id, "room");
        assert!(link.backed_up, "link {} has room, but was not backed up", id.0);
        link.backed_up = false;
    }

    fn handle_link_down(&mut self, id: LinkId, reason: Down) {
        self.link(id, "the end");
        let Link { channel: number, side, condemned, .. } = self.forget(id);
        if let Some((cause, text)) = condemned {
            assert_eq!(reason.cause, cause, "link {} goes down for another reason than it must", id.0);
            assert!(reason.text.contains(text), "link {}: {:?} does not say {text:?}", id.0, reason.text);
        }
        let ledger = &mut *self.ledger.borrow_mut();
        let channel = &mut ledger.channels[number];
        assert!(channel.may_end(), "link {} goes down, though nothing ended it: {reason:?}", id.0);
        let flow = &channel.flows[1 - side];
        if channel.delivers_from(1 - side) {
            assert!(flow.is_empty(), "channel {number} ended in order, but lacks frames: {flow:?}; {reason:?}");
        }
        self.last_down = Some((number, reason));
    }
}
