//! The contract between the engine and the transport that carries its frames.
//! A link delivers frames in order, exactly once, or breaks with a reason. The engine tells the
//! transport where a payload goes before the transport reads it. Calls go down, events come back
//! through a [`LinkEvents`]. The engine cannot call the transport from an event: the call that
//! reports the event borrows the transport as a whole, so answers wait until it returns.

use crate::wire::frame::{Header, MAX_PAYLOAD, MOST_EAGER, Violation};
use core::num::NonZeroU64;
use core::time::Duration;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_memory::Buffer;
use std::sync::Arc;

/// The transport's number for a link. Numbers are small, and reused after
/// [`LinkEvents::handle_link_down`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

impl LinkId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The engine's number for a payload that it lent to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u32);

impl Token {
    /// The token of each response to a peer's request. A link has one response at a time, and the
    /// application does not learn of its end.
    pub const RESPONSE: Self = Self(u32::MAX);
}

/// How soon a frame should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Posted by the application: leaves by the transport's batching rule.
    Posted,
    /// Posted by the application, which nothing need bring back to the library: leaves at once.
    Unreported,
    /// Posted by the application with FI_MORE.
    MoreFollows,
    /// A control frame of the engine: leaves at the end of the current poll.
    Control,
}

impl Urgency {
    /// Of an operation that the application has posted, with FI_MORE or not. `may_hold`: the
    /// application reads its completion, or a backstop sends what is held.
    pub(crate) const fn of_posted(more_follows: bool, may_hold: bool) -> Self {
        match (more_follows, may_hold) {
            (true, _) => Self::MoreFollows,
            (false, true) => Self::Posted,
            (false, false) => Self::Unreported,
        }
    }
}

/// The result of submitting a frame with a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Submitted {
    /// The transport has taken the bytes; the payload's buffer is free again.
    Done,
    /// The transport keeps the payload until [`LinkEvents::handle_send_done`],
    /// [`LinkEvents::handle_send_returned`] or [`LinkEvents::handle_send_failed`] gives it back.
    Kept,
    /// Back-pressure: the peer does not read and the link's backlog is full. Nothing was taken;
    /// [`LinkEvents::handle_send_room`] reports when the link takes frames again.
    Full,
    /// The link is broken and the payload was not kept; [`LinkEvents::handle_link_down`] follows.
    Broken,
}

/// The result of submitting a control frame, which is copied and never kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ControlSubmitted {
    /// The transport has taken the frame.
    Taken,
    /// Back-pressure, as for [`Submitted::Full`].
    Full,
    /// The link is broken; [`LinkEvents::handle_link_down`] follows.
    Broken,
}

impl From<Submitted> for ControlSubmitted {
    /// The result of a transport that treats both kinds of frames alike.
    fn from(submitted: Submitted) -> Self {
        match submitted {
            Submitted::Done | Submitted::Kept => Self::Taken,
            Submitted::Full => Self::Full,
            Submitted::Broken => Self::Broken,
        }
    }
}

/// A range of a buffer, sent as a payload.
#[derive(Debug)]
pub struct Payload<'a> {
    /// The buffer. The transport takes it out if it keeps it.
    pub buffer: &'a mut Option<Buffer>,
    /// Offset of the first byte.
    pub from: usize,
    /// Length in bytes.
    pub len: usize,
    /// The engine's number for it.
    pub token: Token,
    /// The application owns the buffer again when the call returns: the transport copies the bytes
    /// that it cannot send now instead of keeping the buffer.
    pub inject: bool,
}

impl Payload<'_> {
    /// Appends a copy of the bytes to `out`.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        if let Some(buffer) = &*self.buffer {
            buffer.append_to(self.from, self.len, out);
        }
    }
}

/// How much held-back output a flush sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// As much as the transport's batching rule says.
    ByRule,
    /// Everything: the caller has nothing left to read and may not call again soon.
    All,
}

/// The payload of an arriving frame.
#[derive(Clone, Copy, Debug)]
pub enum Incoming<'a> {
    /// The whole payload.
    Complete(&'a [u8]),
    /// The length of a payload whose bytes follow.
    Streaming(usize),
}

impl Incoming<'_> {
    /// The length in bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Complete(bytes) => bytes.len(),
            Self::Streaming(len) => *len,
        }
    }

    /// True if there is no payload.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Names the payload of an offer ([`LinkEvents::handle_offer`]): a link may bring several at a
/// time. One word, because the answer to each frame has room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferId(NonZeroU64);

impl OfferId {
    /// What goes to the receive with this number, below 2^32 - 1, from the message with that number
    /// on the link.
    pub const fn new(receive: u32, message: u32) -> Self {
        Self(NonZeroU64::MIN.saturating_add((receive as u64) << 32 | message as u64))
    }

    /// The number of the receive.
    pub const fn receive(self) -> u32 {
        ((self.0.get() - 1) >> 32) as u32
    }

    /// The message's number on the link.
    pub const fn message(self) -> u32 {
        let [a, b, c, d, ..] = (self.0.get() - 1).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// Where the transport places an arriving payload.
#[derive(Debug)]
pub struct RecvTarget {
    /// The buffer.
    pub buffer: Buffer,
    /// Offset of the payload in it.
    pub at: usize,
    /// How many bytes to place; the transport drops the rest.
    pub take: usize,
    /// The offer whose payload it is; `None` for that of the frame that is arriving.
    pub offer: Option<OfferId>,
}

/// The engine's answer to an arriving frame.
#[derive(Debug)]
pub enum Disposition {
    /// The engine needs nothing more: the transport drops a payload that is still streaming.
    Done,
    /// The transport places the payload there; [`LinkEvents::handle_recv_done`] gives the buffer
    /// back. Only for [`Incoming::Streaming`].
    Into(RecvTarget),
}

/// The engine's answer to an offer.
#[derive(Debug)]
pub enum OfferAnswer {
    /// The transport places the payload there, as for [`Disposition::Into`].
    Take(RecvTarget),
    /// No receive matches the message of that number ([`OfferId::message`]) yet. The transport may
    /// keep the offer for [`Transport::take_offer`], or decline it. The call may never come: the
    /// offer ends with the link.
    Wait(u32),
    /// The peer keeps the payload until its CTS, if it is to send one at all.
    Decline,
}

impl From<OfferAnswer> for Disposition {
    /// The answer for a transport that keeps no offers.
    fn from(answer: OfferAnswer) -> Self {
        match answer {
            OfferAnswer::Take(target) => Self::Into(target),
            OfferAnswer::Wait(_) | OfferAnswer::Decline => Self::Done,
        }
    }
}

/// The engine's answer to a connect request.
#[derive(Debug)]
pub enum Verdict {
    /// Accept the link and answer with this hello.
    Accept(Vec<u8>),
    /// Refuse the link and answer with this hello.
    Refuse(Vec<u8>),
}

/// Why a link or an operation failed.
#[derive(Clone, Debug)]
pub struct Down {
    /// The provider error code.
    pub cause: Cause,
    /// The error number that the failed operations report.
    pub errno: Errno,
    /// The reason in words.
    pub text: Arc<str>,
}

impl Down {
    /// A reason.
    #[cold]
    pub fn new(cause: Cause, errno: Errno, text: impl Into<Arc<str>>) -> Self {
        Self { cause, errno, text: text.into() }
    }

    /// The reason for which a peer's protocol violation ends its link.
    #[cold]
    pub fn violation(text: impl Into<Arc<str>>) -> Self {
        Self::new(Cause::Violation, Errno::EPROTO, text)
    }
}

/// Link events: what a transport reports to the engine.
pub trait LinkEvents {
    /// A peer at `from` requests a link; on [`Verdict::Accept`] the link is open at once. `vouches`
    /// tells whether the connection proves that the peer owns a name. Over a network, without keys,
    /// the peer must come from the name's host; over shared memory the kernel authenticates the
    /// sender, so any name is proven.
    fn handle_connect_request(
        &mut self,
        link: LinkId,
        hello: &[u8],
        from: &Addr,
        vouches: impl Fn(&Addr) -> bool,
    ) -> Verdict;
    /// The peer answered the hello of [`Transport::connect`].
    fn handle_connected(&mut self, link: LinkId, hello: &[u8]) -> Result<(), Down>;
    /// A frame arrived; the result says where its payload goes.
    fn handle_frame(&mut self, link: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation>;
    /// The request to send a message of `len` bytes arrived (an RTS frame), and the transport can
    /// bring the payload at once. The frames behind the request may arrive before the payload is in
    /// place, and more offers: their payloads may end in any order.
    fn handle_offer(&mut self, link: LinkId, header: &[u8], len: usize) -> Result<OfferAnswer, Violation>;
    /// A streaming payload is in place. If it is that of an offer, the engine reports no violation,
    /// because it has accepted the request; and the transport may report it although the engine has
    /// reported a violation of a later frame.
    fn handle_recv_done(&mut self, link: LinkId, target: RecvTarget) -> Result<(), Violation>;
    /// The transport has sent a kept payload.
    fn handle_send_done(&mut self, link: LinkId, token: Token, buffer: Buffer);
    /// The peer takes the payload of [`Transport::offer`] later, by its CTS.
    fn handle_offer_declined(&mut self, link: LinkId, token: Token, buffer: Buffer);
    /// The transport gives a kept payload back unsent: the link goes down.
    fn handle_send_returned(&mut self, link: LinkId, token: Token, buffer: Buffer);
    /// A streaming payload will not arrive: the link goes down, the same frame arrives again, or
    /// the payload was that of an offer and comes in data frames.
    fn handle_recv_retry(&mut self, link: LinkId, target: RecvTarget);
    /// A streaming payload cannot be read: its message fails, the link stays up. Frames behind it
    /// follow, unless the link goes down.
    fn handle_recv_failed(&mut self, link: LinkId, target: RecvTarget, why: Down);
    /// A kept payload cannot be read: its message fails, the link stays up. At the peer the frame
    /// arrives in its place, and ends in [`LinkEvents::handle_recv_failed`].
    fn handle_send_failed(&mut self, link: LinkId, token: Token, buffer: Buffer, why: Down);
    /// Back-pressure is over: a link that refused a frame with [`Submitted::Full`] or
    /// [`ControlSubmitted::Full`] takes frames again.
    fn handle_send_room(&mut self, link: LinkId);
    /// The link is down; its number may be reused.
    fn handle_link_down(&mut self, link: LinkId, reason: Down);
}

/// How far the orderly shutdown of a link has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownState {
    /// The peer's host has not acknowledged everything yet.
    Pending,
    /// Everything is acknowledged, or the peer ended the link too.
    Done,
}

/// Carries frames over links. The functions with a default concern some transports only; each says
/// which ones must override it.
pub trait Transport: Send + Sized + 'static {
    /// The handle of a connect request that a [`Listener`] reported.
    type Request: Send + 'static;
    /// True if a poll is no system call.
    const POLLED: bool = false;
    /// True if the descriptor reports all events only while armed ([`Transport::arm`]).
    const ARMED: bool = Self::POLLED;
    /// Size of header and payload up to which [`Transport::try_submit_fast`] is worth a try; 0 for
    /// a transport without it.
    const INLINE_MAX: usize = 0;
    /// Whether acknowledgments should wait for a frame of the application's that they can leave
    /// with. Not where each frame is passed on by itself at once and costs little.
    const COMBINES_FRAMES: bool = Self::INLINE_MAX == 0;
    /// The longest message that [`Transport::offer`] is asked to take, in bytes.
    const MAX_OFFER: usize = MAX_PAYLOAD;
    /// The longest payload of a frame of a one-sided write, in bytes, at most [`MAX_PAYLOAD`]. The
    /// frames of writes keep their order; a transport that can keep it for longer ones, too,
    /// overrides it.
    const MAX_WRITE: usize = MOST_EAGER;

    /// Whether it holds frames for which the application need not call again: by its batching rule,
    /// on links that would take them, or on links that take no more, if the application does not
    /// learn when the last of them has been sent. A transport that keeps frames overrides it.
    fn holds_posted(&self) -> bool {
        false
    }
    /// The next poll looks for all events: for a caller that polls seldom. A transport whose polls
    /// do not always look overrides it.
    fn expect_events(&mut self) {}
    /// The address at which peers reach this endpoint.
    fn local_addr(&self) -> Addr;
    /// Starts to connect. Returns local errors only; the peer's arrive by
    /// [`LinkEvents::handle_link_down`].
    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId>;
    /// Accepts a connect request and answers with `hello`. On success the link has the number that
    /// [`Self::next_link`] returned before.
    fn accept(&mut self, request: Self::Request, hello: &[u8]) -> Result<LinkId>;
    /// The number that the next link will get.
    fn next_link(&self) -> LinkId;
    /// Whether a frame with a payload of `len` bytes would leave at once. If it would not, the
    /// engine refuses an injected operation for now: nothing need bring its application back.
    /// The application may do nothing but try again, so this sends what it can.
    fn takes_at_once(&mut self, _link: LinkId, _len: usize) -> bool {
        true
    }
    /// Sends a frame with a payload, or keeps it until the link takes it.
    fn submit(&mut self, link: LinkId, header: &Header, payload: Payload<'_>, urgency: Urgency) -> Submitted;
    /// Sends a frame without a payload, or copies it until the link takes it. By default a frame
    /// with an empty payload; a transport overrides it if it can save work for frames without one.
    #[inline]
    fn submit_control(&mut self, link: LinkId, header: &Header, urgency: Urgency) -> ControlSubmitted {
        let payload = Payload { buffer: &mut None, from: 0, len: 0, token: Token(u32::MAX), inject: true };
        self.submit(link, header, payload, urgency).into()
    }
    /// Sends a frame with the first `len` bytes of a buffer, if no frame is queued before it and no
    /// part of it has to be kept. False: nothing has happened, or the link is broken and the frame
    /// not sent. For transports with an [`Transport::INLINE_MAX`].
    #[inline(always)]
    fn try_submit_fast(&mut self, _link: LinkId, _header: &Header, _buffer: &Buffer, _len: usize) -> bool {
        false
    }
    /// Whether a message of `len` bytes is faster by [`Self::offer`] than as an eager one.
    #[inline(always)]
    fn prefers_offer(&self, _link: LinkId, _buffer: &Buffer, _len: usize) -> bool {
        false
    }
    /// Sends the request for a rendezvous together with access to the whole message, so that the
    /// peer's transport can bring it at once. On true the transport keeps the payload until
    /// [`LinkEvents::handle_send_done`], [`LinkEvents::handle_offer_declined`] or
    /// [`LinkEvents::handle_send_returned`] gives it back; on false nothing has happened, and the
    /// request leaves as any other frame. By default the transport has no access to give.
    fn offer(&mut self, _link: LinkId, _header: &Header, _payload: Payload<'_>) -> bool {
        false
    }
    /// A receive matches the message of an offer that was answered with [`OfferAnswer::Wait`]: the
    /// transport brings the payload, as if the answer had named this target. Offers are taken in
    /// any order, and `take` may be less than the payload has, also 0. If the transport has
    /// declined the offer, it gives the target back, and the engine sends a CTS. By default it
    /// keeps no offers.
    fn take_offer(&mut self, _link: LinkId, target: RecvTarget) -> Result<(), RecvTarget> {
        Err(target)
    }
    /// Makes progress on all links; nothing is held back afterwards. True if anything happened.
    fn poll(&mut self, events: &mut impl LinkEvents) -> bool;
    /// Sends held-back frames. By default there are none; a transport that does not pass each frame
    /// on at once overrides it.
    fn flush(&mut self, _how: Flush, _events: &mut impl LinkEvents) {}
    /// Sleeps until an event or the timeout. Only for closing an endpoint. By default it does not
    /// sleep, so that closing polls all the time; a transport with a descriptor overrides it.
    fn wait(&mut self, _timeout: Duration) {}
    /// Shuts a link down in order: submitted frames leave first, then `last`, also under
    /// back-pressure, then the end. Called again without `last`, it tells how far that is.
    fn shutdown(&mut self, link: LinkId, last: Option<&Header>) -> ShutdownState;
    /// Ends a link now. Kept payloads come back by [`LinkEvents::handle_send_returned`];
    /// [`LinkEvents::handle_link_down`] is not called.
    fn abort(&mut self, link: LinkId, events: &mut impl LinkEvents);
    /// The next deadline, if any. By default none; a transport with work that only the passage of
    /// time brings on (retries, timeouts, probes) overrides it.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
    /// The descriptor that becomes readable on events. By default none: a thread cannot sleep on
    /// such a transport and polls it all the time.
    fn descriptor(&self) -> Option<Descriptor> {
        None
    }
    /// True if it must be polled even without events on its descriptor. By default only a transport
    /// without a descriptor is; one that delays work to a later poll overrides it.
    fn is_busy(&self) -> bool {
        self.descriptor().is_none()
    }
    /// Tells the peers that this side sleeps, before [`Transport::order`] and [`Transport::arm`].
    /// Overridden by a transport whose peers read that from shared memory. True if
    /// [`Transport::order`] is needed.
    fn announce(&mut self) -> bool {
        false
    }
    /// Orders what all transports of this process have announced before what they read next. It is
    /// a call of its own because one serves many transports, and a memory barrier over processes
    /// takes longer than all the rest of arming.
    fn order(&self) {}
    /// After [`Transport::announce`] and [`Transport::order`]: makes the descriptor report all
    /// events until [`Transport::disarm`]. True if some are pending already. May be called again
    /// while armed. For transports that are [`Transport::ARMED`]; the descriptors of others
    /// always report all events.
    fn arm(&mut self) -> bool {
        false
    }
    /// Arms this transport alone.
    fn arm_alone(&mut self) -> bool {
        if self.announce() {
            self.order();
        }
        self.arm()
    }
    /// The descriptor is readable: the next poll reads what made it so. Otherwise polls while armed
    /// may leave that to the thread that sleeps. Overridden together with [`Transport::arm`].
    fn note_events(&mut self) {}
    /// The descriptor need no longer report all events. Overridden together with
    /// [`Transport::arm`].
    fn disarm(&mut self) {}
    /// The current time.
    fn now(&self) -> Instant;
    /// An unpredictable random number.
    fn random(&mut self) -> [u8; 16];
    /// Whether frames wait for something that a poll may find: the call that submitted them polls,
    /// since the program need not read a queue soon. By default they wait for the peer alone.
    fn wants_poll(&self) -> bool {
        false
    }
    /// Describes pending work that no event on the descriptor and no deadline would resume, if any:
    /// for checks. A transport with queues of its own overrides it.
    fn unfinished(&self) -> Option<String> {
        None
    }
}

/// A peer's connect request.
#[derive(Debug)]
pub struct ConnectRequest<R> {
    /// The handle for [`Transport::accept`] or [`Listener::refuse`].
    pub request: R,
    /// The peer's hello.
    pub hello: Vec<u8>,
    /// The peer's address.
    pub from: Addr,
    /// The local address that the peer connected to.
    pub to: Addr,
}

/// Listens for connections.
pub trait Listener: Send + 'static {
    /// The handle of a connect request.
    type Request: Send + 'static;

    /// The address that it listens on.
    fn local_addr(&self) -> Addr;
    /// Appends new requests. True if anything happened.
    fn poll(&mut self, asked: &mut Vec<ConnectRequest<Self::Request>>) -> bool;
    /// Whether a connection from `from` proves that the peer owns a name, as for
    /// [`LinkEvents::handle_connect_request`].
    fn vouches(&self, from: &Addr, name: &Addr) -> bool;
    /// Refuses a request and answers with `hello`.
    fn refuse(&mut self, request: Self::Request, hello: &[u8]);
    /// Whether the peer of a request that waits for its answer is gone. By default unknown: the
    /// request then waits as long as the listener. A listener of scalable endpoints overrides it.
    fn is_gone(&self, _request: &Self::Request) -> bool {
        false
    }
    /// The next deadline, if any; as for [`Transport::next_deadline`].
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
    /// The descriptor that becomes readable on events.
    fn descriptor(&self) -> Option<Descriptor>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_name_of_an_offer_keeps_its_numbers(receive in 0..u32::MAX, message: u32) {
            let offer = OfferId::new(receive, message);
            prop_assert_eq!((offer.receive(), offer.message()), (receive, message));
        }
    }
}
