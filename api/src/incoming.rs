//! Streams of incoming messages.

use crate::av::Peer;
use crate::endpoint::Inner;
use crate::message::ANY;
use crate::operation::{Completion, Operation, OperationError};
use core::future::{Future, poll_fn};
use core::ops::Deref;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;

/// The messages that arrive at an endpoint, in order, over a fixed number of receives.
///
/// [`RdmEndpoint::incoming`](crate::RdmEndpoint::incoming) has an example.
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
#[derive(Debug)]
pub struct Arrived {
    completion: Completion,
    buf: Vec<u8>,
}

impl Deref for Arrived {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[..self.completion.len()]
    }
}

impl Arrived {
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
    /// ETRUNC for a message of more than `size` bytes, which is lost; the cause if the connection
    /// of a [`MsgEndpoint`](crate::MsgEndpoint) has ended. The stream goes on after either.
    pub async fn next(&mut self) -> Result<Arrived, OperationError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Self::next`], for futures that are written by hand.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Arrived, OperationError>> {
        self.post();
        let Some(oldest) = self.receives.front_mut() else { return Poll::Pending };
        let Poll::Ready((result, buf)) = Pin::new(oldest).poll(context) else { return Poll::Pending };
        self.receives.pop_front();
        Poll::Ready(match result {
            Ok(completion) => Ok(Arrived { completion, buf }),
            Err(error) => {
                self.spare.push(buf);
                Err(error)
            }
        })
    }

    /// Gives the buffer of a message back to the stream, which then allocates no other.
    pub fn recycle(&mut self, message: Arrived) {
        if self.spare.len() < self.depth {
            self.spare.push(message.buf);
        }
    }
}
