//! Streams of incoming messages.

use crate::av::Peer;
use crate::inner::Inner;
use crate::message::ANY;
use crate::operation::{Completion, Operation, OperationError};
use core::future::{Future, poll_fn};
use core::ops::Deref;
use core::pin::Pin;
use core::task::{Context, Poll};
use ofi_core::Errno;
use std::collections::VecDeque;

/// The messages that arrive at an endpoint, in order, over a fixed number of receives.
///
/// ```no_run
/// # async fn example(ep: &ofi::RdmEndpoint) -> Result<(), ofi::OperationError> {
/// let mut incoming: ofi::Incoming<'_> = ep.incoming(16, 4096);
/// loop {
///     let message = incoming.next().await?;
///     println!("{} bytes from {:?}", message.len(), message.source());
///     incoming.recycle(message);
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Incoming<'a> {
    on: &'a Inner,
    tag: Option<(u64, u64)>,
    depth: usize,
    size: usize,
    receives: VecDeque<Operation<'a, Vec<u8>>>,
    spare: Vec<Vec<u8>>,
}

/// A message that has arrived; it dereferences to its bytes.
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// # let ep = RdmEndpoint::open(&domain, &info)?;
/// # let me = ep.peer(ep.local_addr()?)?;
/// # let mut incoming = ep.incoming_tagged(7, 0, 1, 64);
/// # drop(ofi::block_on(ep.send_tagged(me, 7, "hello")));
/// let message = ofi::block_on(incoming.next())?;
/// assert_eq!((message.completion().tag(), &message[..]), (Some(7), &b"hello"[..]));
/// let bytes: Vec<u8> = message.into_vec();
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Debug)]
pub struct ReceivedMessage {
    completion: Completion,
    buf: Vec<u8>,
}

impl Deref for ReceivedMessage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[..self.completion.len()]
    }
}

impl ReceivedMessage {
    /// Tag, data and source of the message.
    pub const fn completion(&self) -> &Completion {
        &self.completion
    }

    /// The sender, as [`Completion::source`].
    pub fn source(&self) -> Option<Peer> {
        self.completion.source()
    }

    /// The bytes of the message.
    pub fn into_vec(mut self) -> Vec<u8> {
        self.buf.truncate(self.completion.len());
        self.buf
    }
}

impl<'a> Incoming<'a> {
    pub(crate) fn new(on: &'a Inner, tag: Option<(u64, u64)>, depth: usize, size: usize) -> Self {
        let depth = depth.max(1);
        let mut new = Self { on, tag, depth, size, receives: VecDeque::with_capacity(depth), spare: Vec::new() };
        new.post();
        new
    }

    fn post(&mut self) {
        while self.receives.len() < self.depth {
            let mut buf = self.spare.pop().unwrap_or_default();
            buf.resize(self.size, 0);
            self.receives.push_back(self.on.receive(ANY, self.tag, buf));
        }
    }

    /// The next message. Dropping the future loses none.
    ///
    /// # Errors
    /// ETRUNC for a message of more than `size` bytes, which is lost. The stream goes on.
    pub async fn next(&mut self) -> Result<ReceivedMessage, OperationError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Self::next`], for futures that are written by hand.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<ReceivedMessage, OperationError>> {
        self.post();
        let Some(oldest) = self.receives.front_mut() else { return Poll::Pending };
        let Poll::Ready((result, buf)) = Pin::new(oldest).poll(context) else { return Poll::Pending };
        self.receives.pop_front();
        Poll::Ready(match result {
            Ok(completion) => Ok(ReceivedMessage { completion, buf }),
            Err(error) => {
                self.spare.push(buf);
                Err(error)
            }
        })
    }

    /// Whether the connection of its endpoint has ended: an error of a receive other than ETRUNC
    /// says so, and all later receives would fail as well.
    fn poll_connected(&mut self, context: &mut Context<'_>) -> Poll<(Result<ReceivedMessage, OperationError>, bool)> {
        self.poll_next(context).map(|result| {
            let ended = result.as_ref().is_err_and(|error| error.errno() != Errno::ETRUNC);
            (result, ended)
        })
    }

    /// Gives the buffer of a message back to the stream, which then allocates no other.
    pub fn recycle(&mut self, message: ReceivedMessage) {
        if self.spare.len() < self.depth {
            self.spare.push(message.buf);
        }
    }
}

/// The messages that arrive over a connection, in order, until it ends.
///
/// ```no_run
/// # async fn example(ep: &ofi::MsgEndpoint) -> Result<(), ofi::OperationError> {
/// let mut incoming: ofi::ConnectionIncoming<'_> = ep.incoming(16, 4096);
/// while let Some(message) = incoming.next().await {
///     println!("{} bytes", message?.len()); // the last one is the error that ended the connection
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConnectionIncoming<'a> {
    /// `None` once the connection has ended.
    messages: Option<Incoming<'a>>,
}

impl<'a> ConnectionIncoming<'a> {
    pub(crate) const fn new(messages: Incoming<'a>) -> Self {
        Self { messages: Some(messages) }
    }

    /// The next message; after the error with which the connection ends, `None` for ever. Dropping
    /// the future loses none.
    ///
    /// # Errors
    /// ETRUNC for a message of more than `size` bytes, which is lost, and the stream goes on;
    /// otherwise the cause for which the connection has ended.
    pub async fn next(&mut self) -> Option<Result<ReceivedMessage, OperationError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Self::next`], for futures that are written by hand.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ReceivedMessage, OperationError>>> {
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        let Poll::Ready((result, ended)) = messages.poll_connected(context) else { return Poll::Pending };
        if ended {
            self.messages = None;
        }
        Poll::Ready(Some(result))
    }

    /// As [`Incoming::recycle`].
    pub fn recycle(&mut self, message: ReceivedMessage) {
        if let Some(messages) = &mut self.messages {
            messages.recycle(message);
        }
    }
}
