//! The contract between the engine and what carries its frames.
//! A transport gives links that deliver frames in order, exactly once, or break with a reason. It is told where
//! payload goes before it reads it. Calls go down, events come back through a [`LinkEvents`]; the engine never calls the
//! transport from inside one.

use crate::wire::frame::{Header, Violation};
use core::time::Duration;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_memory::Buffer;
use std::sync::Arc;

/// A link, by the transport's number for it. Numbers are small and used again after [`LinkEvents::handle_link_down`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

impl LinkId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The engine's number for a payload that it lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u32);

/// How soon a frame should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The application posted it: within the transport's rule for bursts.
    Posted,
    /// The application posted it and said that more follows (FI_MORE).
    MoreFollows,
    /// The engine's own word: with the end of the current poll.
    Control,
}

/// What became of a submitted frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Submitted {
    /// The bytes have been taken; the payload is free.
    Done,
    /// The transport kept the payload; [`LinkEvents::handle_send_done`] or [`LinkEvents::handle_send_returned`] will give it back.
    Kept,
    /// The link is broken; [`LinkEvents::handle_link_down`] will follow, the payload was not kept.
    Broken,
}

/// Part of a buffer that travels as a payload.
#[derive(Debug)]
pub struct Payload<'a> {
    /// The buffer. The transport takes it out if it keeps it.
    pub buffer: &'a mut Option<Buffer>,
    /// The first byte.
    pub from: usize,
    /// How many.
    pub len: usize,
    /// The engine's number for it.
    pub token: Token,
    /// The application has the buffer back when the call returns: what cannot be sent now is copied, not kept.
    pub inject: bool,
}

/// How much of what is being held back leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// What the transport's rule for bursts says.
    ByRule,
    /// Everything: the caller has nothing left to read and may not come back soon.
    All,
}

/// The payload of an arriving frame.
#[derive(Clone, Copy, Debug)]
pub enum Incoming<'a> {
    /// It is all there.
    Complete(&'a [u8]),
    /// So many bytes will follow.
    Streaming(usize),
}

impl Incoming<'_> {
    /// How many bytes it has.
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

/// Where an arriving payload goes.
#[derive(Debug)]
pub struct RecvTarget {
    /// The buffer.
    pub buffer: Buffer,
    /// Where in it the payload begins.
    pub at: usize,
    /// How many of its bytes to place; the rest is dropped.
    pub take: usize,
}

/// The engine's answer to an arriving frame.
#[derive(Debug)]
pub enum Disposition {
    /// It has what it needs; a payload that is still coming is to be dropped.
    Done,
    /// The payload goes there; [`LinkEvents::handle_recv_done`] gives the buffer back. Only for a payload that is coming.
    Into(RecvTarget),
}

/// The engine's answer to somebody who asks for a link.
#[derive(Debug)]
pub enum Verdict {
    /// Yes, with this hello.
    Accept(Vec<u8>),
    /// No, with this hello.
    Refuse(Vec<u8>),
}

/// Why a link is no more.
#[derive(Clone, Debug)]
pub struct Down {
    /// Why.
    pub cause: Cause,
    /// The error number for operations that it takes along.
    pub errno: Errno,
    /// Why, in a sentence.
    pub text: Arc<str>,
}

impl Down {
    /// A reason.
    #[cold]
    pub fn new(cause: Cause, errno: Errno, text: impl Into<Arc<str>>) -> Self {
        Self { cause, errno, text: text.into() }
    }
}

/// Who hears what happens on links.
pub trait LinkEvents {
    /// Somebody at `from` asks for a link. On [`Verdict::Accept`] it is open at once. `vouches` tells whether the connection
    /// shows that the peer may call itself by a name: without keys, that it comes from the host of the name; where the medium
    /// itself says who speaks, any name is that.
    fn handle_connect_request(
        &mut self,
        link: LinkId,
        hello: &[u8],
        from: &Addr,
        vouches: impl Fn(&Addr) -> bool,
    ) -> Verdict;
    /// The peer answered the hello of [`Transport::connect`].
    fn handle_connected(&mut self, link: LinkId, hello: &[u8]) -> Result<(), Down>;
    /// A frame arrived; says where its payload goes.
    fn handle_frame(&mut self, link: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation>;
    /// The payload that was coming is in place.
    fn handle_recv_done(&mut self, link: LinkId, target: RecvTarget) -> Result<(), Violation>;
    /// A kept payload has been taken by the medium.
    fn handle_send_done(&mut self, link: LinkId, token: Token, buffer: Buffer);
    /// A kept payload was not sent: the link goes down.
    fn handle_send_returned(&mut self, link: LinkId, token: Token, buffer: Buffer);
    /// The payload that was coming does not come: the link goes down, or the same frame comes again.
    fn handle_recv_retry(&mut self, link: LinkId, target: RecvTarget);
    /// The payload that was coming cannot be had: its message fails, the link goes on.
    fn handle_recv_failed(&mut self, link: LinkId, target: RecvTarget, why: Down);
    /// A kept payload cannot be had: its message fails, the link goes on.
    fn handle_send_failed(&mut self, link: LinkId, token: Token, buffer: Buffer, why: Down);
    /// A link of which [`Transport::is_backed_up`] said so takes frames again.
    fn handle_send_room(&mut self, link: LinkId);
    /// The link is no more; its number may be used again.
    fn handle_link_down(&mut self, link: LinkId, reason: Down);
}

/// How far a link's orderly end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownState {
    /// Not all of it has been acknowledged by the peer's host.
    Pending,
    /// Everything has been acknowledged, or the peer ended too.
    Done,
}

/// What carries frames.
pub trait Transport: Send + Sized + 'static {
    /// A connection that somebody asked a [`Listener`] for.
    type Request: Send + 'static;
    /// True if news may come of which the descriptor tells only while it is armed.
    const POLLED: bool = false;

    /// The address under which others reach this endpoint.
    fn local_addr(&self) -> Addr;
    /// The address at the other end of a link.
    fn remote_addr(&self, link: LinkId) -> Option<Addr>;
    /// Begins to connect. An error is one of this host; the peer's come by [`LinkEvents::handle_link_down`].
    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId>;
    /// Takes over a connection that was asked for, and says yes to it.
    fn accept(&mut self, request: Self::Request, hello: &[u8]) -> Result<LinkId>;
    /// Sends a frame, or keeps it until it can.
    fn submit(&mut self, link: LinkId, header: &Header, payload: Option<Payload<'_>>, urgency: Urgency) -> Submitted;
    /// Bytes of header and payload up to which [`Transport::try_submit_fast`] is worth a try.
    const INLINE_MAX: usize = 0;
    /// Sends a frame with the first `len` bytes of a buffer if it can be done without keeping anything, ahead of nothing.
    /// False: nothing has happened.
    #[inline(always)]
    fn try_submit_fast(&mut self, _link: LinkId, _header: &Header, _buffer: &Buffer, _len: usize) -> bool {
        false
    }
    /// True if so much waits on a link for a peer that does not read that nothing should be added, but the end:
    /// [`LinkEvents::handle_send_room`] tells when that is over.
    fn is_backed_up(&mut self, _link: LinkId) -> bool {
        false
    }
    /// Moves everything on; nothing is held back afterwards. True if anything happened.
    fn poll(&mut self, events: &mut impl LinkEvents) -> bool;
    /// Sends what is being held back.
    fn flush(&mut self, how: Flush, events: &mut impl LinkEvents);
    /// Sleeps until there is news or the timeout is over. Only for closing an endpoint.
    fn wait(&mut self, timeout: Duration);
    /// Ends a link in order: what was submitted leaves, then the end.
    fn shutdown(&mut self, link: LinkId) -> ShutdownState;
    /// Ends a link now. Kept payloads come back by [`LinkEvents::handle_send_returned`]; [`LinkEvents::handle_link_down`] is not called.
    fn abort(&mut self, link: LinkId, events: &mut impl LinkEvents);
    /// When something is due, if anything is.
    fn next_deadline(&self) -> Option<Instant>;
    /// True if it must be polled although its descriptor is silent.
    fn is_busy(&self) -> bool;
    /// What becomes readable when there is news.
    fn descriptor(&self) -> Option<Descriptor>;
    /// The descriptor is to tell of all news until [`Transport::disarm`]. True if there are some already. May be called
    /// again while it is armed.
    fn arm(&mut self) -> bool {
        false
    }
    /// The descriptor need not tell of all news any more.
    fn disarm(&mut self) {}
    /// The present.
    fn now(&self) -> Instant;
    /// A random number that nobody can guess.
    fn random(&mut self) -> [u8; 16];
    /// Why it must not be left alone until its descriptor has news or its next deadline comes, if it must not: for checks.
    fn unfinished(&self) -> Option<String> {
        None
    }
}

/// A connection that somebody asks for.
#[derive(Debug)]
pub struct ConnectRequest<R> {
    /// What to give to [`Transport::accept`] or [`Listener::refuse`].
    pub request: R,
    /// What the peer said.
    pub hello: Vec<u8>,
    /// The peer's address.
    pub from: Addr,
    /// The address that it connected to.
    pub to: Addr,
}

/// What waits for connections.
pub trait Listener: Send + 'static {
    /// A connection that somebody asked for.
    type Request: Send + 'static;

    /// The address that it listens at.
    fn local_addr(&self) -> Addr;
    /// Appends new requests. True if anything happened.
    fn poll(&mut self, asked: &mut Vec<ConnectRequest<Self::Request>>) -> bool;
    /// Says no to a request.
    fn refuse(&mut self, request: Self::Request, hello: &[u8]);
    /// When something is due, if anything is.
    fn next_deadline(&self) -> Option<Instant>;
    /// What becomes readable when there is news.
    fn descriptor(&self) -> Option<Descriptor>;
}
