//! One transport with its observer: submits frames, and checks what the calls return.

use crate::frame::Planned;
use crate::ledger::{ChannelId, End, INITIATOR, Ledger, Side};
use crate::observer::{Kept, Link, Observer};
use fastrand::Rng;
use ofi_core::Addr;
use ofi_engine::transport::{
    ControlSubmitted, Flush, LinkEvents, LinkId, Payload, ShutdownState, Submitted, Token, Transport, Urgency,
};
use ofi_memory::Buffer;
use std::cell::RefCell;
use std::rc::Rc;

/// A transport under test.
pub(crate) struct Node<T> {
    pub(crate) transport: T,
    pub(crate) observer: Observer,
    /// It sleeps: the world polls it again only when its descriptor is readable or a deadline
    /// passes.
    pub(crate) asleep: bool,
    armed: bool,
    next_token: u32,
    ledger: Rc<RefCell<Ledger>>,
}

/// How to submit a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) urgency: Urgency,
    pub(crate) inject: bool,
    /// Try [`Transport::try_submit_fast`] first.
    pub(crate) fast: bool,
}

impl Manner {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let urgency = match rng.u8(0..6) {
            0 => Urgency::Control,
            1 => Urgency::MoreFollows,
            2 => Urgency::Unreported,
            _ => Urgency::Posted,
        };
        Self { urgency, inject: rng.u8(0..4) == 0, fast: rng.bool() }
    }
}

/// The byte that overwrites buffers that the transport has returned.
const JUNK: u8 = 0xee;

impl<T: Transport> Node<T> {
    pub(crate) fn new(transport: T, ledger: Rc<RefCell<Ledger>>, rng: Rng) -> Self {
        let observer = Observer::new(ledger.clone(), rng);
        Self { transport, observer, asleep: false, armed: false, next_token: 0, ledger }
    }

    /// Polls once. True if anything happened.
    pub(crate) fn poll(&mut self) -> bool {
        let before = self.observer.events;
        let any = self.transport.poll(&mut self.observer);
        any || self.observer.events != before
    }

    /// Takes the offers that wait, as a program does that posts receives. True if the transport
    /// brings some of them.
    pub(crate) fn take_offers(&mut self) -> bool {
        let mut any = false;
        for (id, target) in self.observer.take_waiting() {
            match self.transport.take_offer(id, target) {
                Ok(()) => any = true,
                // It comes in data frames.
                Err(target) => self.observer.handle_recv_retry(id, target),
            }
        }
        any
    }

    pub(crate) fn flush(&mut self, how: Flush) {
        self.transport.flush(how, &mut self.observer);
    }

    /// Connects to an address, for a channel of the ledger.
    pub(crate) fn connect(&mut self, to: &Addr, channel: ChannelId) -> LinkId {
        let hello = self.ledger.borrow().channels[channel].hello.clone();
        let link = self.transport.connect(to, &hello).unwrap_or_else(|error| panic!("connect to {to}: {error}"));
        self.observer.begin(link, channel, INITIATOR);
        self.after_call();
        link
    }

    /// The open links.
    pub(crate) fn open_links(&self) -> Vec<LinkId> {
        let ledger = self.ledger.borrow();
        let is_open = |link: &Link| ledger.channels[link.channel].sides[link.side] == Side::Open;
        self.observer.links.iter().filter(|(_, link)| is_open(link)).map(|(id, _)| *id).collect()
    }

    /// False if a link has refused a frame and reported no room since.
    pub(crate) fn has_room(&self, id: LinkId) -> bool {
        !self.observer.links[&id].backed_up
    }

    /// The number for the next frame of a link.
    pub(crate) fn next_number(&self, id: LinkId) -> u32 {
        let link = &self.observer.links[&id];
        self.ledger.borrow().channels[link.channel].flows[link.side].sent
    }

    /// True if the previous frame that need not keep its order is done, so that another may be
    /// sent.
    pub(crate) fn may_send_unordered(&self, id: LinkId) -> bool {
        let link = &self.observer.links[&id];
        let ledger = self.ledger.borrow();
        let is_kept = self.observer.kept.values().any(|kept| kept.link == id && kept.frame.is_unordered());
        !is_kept && ledger.channels[link.channel].flows[link.side].unordered.is_none()
    }

    /// Submits a frame on an open link.
    pub(crate) fn submit(&mut self, id: LinkId, frame: Planned, manner: Manner, rng: &mut Rng) -> ControlSubmitted {
        let inject = manner.inject && !frame.is_unordered();
        if manner.fast && self.submit_fast(id, &frame) {
            self.note_sent(id, frame);
            return ControlSubmitted::Taken;
        }
        let outcome = match frame.payload() {
            Some(bytes) => self.submit_payload(id, &frame, bytes, (manner.urgency, inject), rng).into(),
            None => self.transport.submit_control(id, &frame.header, manner.urgency),
        };
        match outcome {
            ControlSubmitted::Taken => self.note_sent(id, frame),
            ControlSubmitted::Full => {
                if let Some(link) = self.observer.links.get_mut(&id) {
                    link.backed_up = true;
                }
            }
            ControlSubmitted::Broken => {
                let ledger = self.ledger.borrow();
                let channel = &ledger.channels[self.observer.links[&id].channel];
                assert!(channel.may_end(), "link {} is broken, though nothing ended it", id.0);
            }
        }
        self.after_call();
        outcome
    }

    fn submit_payload(
        &mut self,
        id: LinkId,
        frame: &Planned,
        bytes: &[u8],
        (urgency, inject): (Urgency, bool),
        rng: &mut Rng,
    ) -> Submitted {
        let (from, tail) = (rng.usize(0..100), rng.usize(0..100));
        let mut whole = vec![JUNK; from];
        whole.extend_from_slice(bytes);
        whole.resize(from + bytes.len() + tail, JUNK);
        let mut buffer = Some(Buffer::Owned(whole));
        let (address, whole) = buffer.as_ref().map_or((0, 0), |buffer| (buffer.address(), buffer.len()));
        let token = self.next_token;
        self.next_token += 1;
        let len = bytes.len();
        let offer = Payload { buffer: &mut buffer, from, len, token: Token(token), inject: false };
        let is_offered = frame.may_be_offered() && rng.u8(0..4) > 0 && self.transport.offer(id, &frame.header, offer);
        let payload = Payload { buffer: &mut buffer, from, len, token: Token(token), inject };
        let outcome =
            if is_offered { Submitted::Kept } else { self.transport.submit(id, &frame.header, payload, urgency) };
        match outcome {
            Submitted::Kept => {
                assert!(!inject || is_offered, "link {} keeps an injected payload", id.0);
                assert!(buffer.is_none(), "link {} both keeps and returns a payload", id.0);
                let kept = Kept { link: id, address, len: whole, from, frame: frame.clone(), is_offered };
                self.observer.kept.insert(token, kept);
            }
            Submitted::Done | Submitted::Full | Submitted::Broken => {
                let left = buffer.as_ref().map(|buffer| (buffer.address(), buffer.len()));
                assert_eq!(left, Some((address, whole)), "link {} takes the buffer of {outcome:?}", id.0);
            }
        }
        if let Some(Buffer::Owned(mut bytes)) = buffer {
            // The buffer was returned: nothing may depend on its content.
            bytes.fill(JUNK);
        }
        outcome
    }

    fn submit_fast(&mut self, id: LinkId, frame: &Planned) -> bool {
        let bytes = frame.bytes();
        if T::INLINE_MAX == 0 || frame.header.len() + bytes.len() > T::INLINE_MAX {
            return false;
        }
        let buffer = if bytes.is_empty() { Buffer::empty() } else { Buffer::Owned(bytes.to_vec()) };
        self.transport.try_submit_fast(id, &frame.header, &buffer, bytes.len())
    }

    fn note_sent(&mut self, id: LinkId, frame: Planned) {
        let link = &self.observer.links[&id];
        let ledger = &mut *self.ledger.borrow_mut();
        let flow = &mut ledger.channels[link.channel].flows[link.side];
        flow.sent += 1;
        if frame.is_unordered() {
            flow.unordered = Some(frame);
        } else {
            flow.queue.push_back(frame);
        }
    }

    /// Shuts a link down, or checks how far its shutdown is.
    pub(crate) fn shutdown(&mut self, id: LinkId) -> ShutdownState {
        let (channel, side) = (self.observer.links[&id].channel, self.observer.links[&id].side);
        // The last frame is sent even under back-pressure.
        let number = self.next_number(id);
        let last = (!self.is_shut_down(id)).then(|| Planned::control(number, &mut Rng::with_seed(u64::from(number))));
        let header = last.as_ref().map(|last| last.header);
        if let Some(last) = last {
            self.note_sent(id, last);
        }
        self.ledger.borrow_mut().channels[channel].end(End::Shutdown(side));
        let state = self.transport.shutdown(id, header.as_ref());
        if state == ShutdownState::Done {
            self.ledger.borrow_mut().channels[channel].flows[side].finished = true;
        }
        self.after_call();
        state
    }

    /// True if the script has shut a link down.
    pub(crate) fn is_shut_down(&self, id: LinkId) -> bool {
        let link = &self.observer.links[&id];
        self.ledger.borrow().channels[link.channel].ends.contains(&End::Shutdown(link.side))
    }

    /// Aborts a link.
    pub(crate) fn abort(&mut self, id: LinkId) {
        let (channel, side) = (self.observer.links[&id].channel, self.observer.links[&id].side);
        self.ledger.borrow_mut().channels[channel].end(End::Abort(side));
        self.transport.abort(id, &mut self.observer);
        assert!(self.observer.links.contains_key(&id), "abort reports the end of link {}", id.0);
        self.observer.forget(id);
        self.after_call();
    }

    /// The engine flushes after a call while a thread sleeps: nothing may be left to do then.
    fn after_call(&mut self) {
        if self.asleep {
            self.flush(Flush::All);
        }
    }

    /// Falls asleep if there is nothing to do. False if there is.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        if self.poll() {
            return false;
        }
        self.flush(Flush::All);
        self.armed = true;
        self.asleep = !self.transport.arm_alone();
        self.asleep
    }

    /// Wakes up, sometimes without disarming.
    pub(crate) fn wake(&mut self, disarm: bool) {
        self.asleep = false;
        self.transport.note_events();
        if disarm && self.armed {
            self.armed = false;
            self.transport.disarm();
        }
    }

    /// Whether a deadline has passed.
    pub(crate) fn is_due(&self) -> bool {
        self.transport.next_deadline().is_some_and(|when| when <= self.transport.now())
    }
}
