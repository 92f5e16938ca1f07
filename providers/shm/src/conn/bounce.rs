//! The bounce buffer: how a payload that the receiver cannot read out of the sender's memory still
//! comes in the order of its line. The lines behind it, with all that lies in the pool for them,
//! wait for it, so that there may be room for it neither in the ring nor in the pool. It comes in
//! pieces through a buffer of its own, one round trip each, which is slow and hardly ever needed.
//!
//! The receiver asks for it in a word, not in a line: the sender may wait for such a payload of the
//! other direction itself, and reads no line until then.
//!
//! ```text
//! wanted   requests so far u32 · number of the payload that the receiver wants u32
//! filled   number of the piece u32 · its length u32, 0: the sender's memory is gone
//! drained  number of the last piece that the receiver has taken u64
//! ```
//!
//! The numbers of a direction's pieces follow each other, from 1, whatever payload they are of.

use super::Large;
use super::line::{place, unplace};
use crate::region::{BOUNCE_LEN, Bounce};
use crate::seam;
use core::ops::Range;
use ofi_engine::transport::RecvTarget;
use ofi_engine::wire::frame::Violation;
use ofi_sync::primitive::Ordering;

/// The sender's half.
#[derive(Debug)]
pub(super) struct BounceSender {
    buffer: Bounce,
    /// The last piece that it has filled.
    number: u32,
    /// The receiver's requests that it has seen.
    requests: u32,
    /// The payload that it passes.
    passing: Option<Passing>,
}

#[derive(Debug)]
enum Passing {
    Payload(Large),
    /// The payload's memory is gone.
    Absent,
}

impl BounceSender {
    pub(super) const fn new(buffer: Bounce) -> Self {
        Self { buffer, number: 0, requests: 0, passing: None }
    }

    /// Leaves the answer to a connect request there. The line that tells of it opens the link, so
    /// there is no payload yet.
    pub(super) fn leave_hello(&self, hello: &[u8]) {
        self.buffer.bytes.write(0, hello);
    }

    /// The number of the payload that the receiver wants, if it has asked since.
    pub(super) fn wanted(&self) -> Option<u64> {
        // Acquire: the receiver has read its hello, which lies where the payload goes.
        let (requests, number) = unplace(self.buffer.wanted().load(Ordering::Acquire));
        (requests != self.requests as usize).then_some(number as u64)
    }

    /// Begins to pass the payload that the receiver wants, `None` if its memory is gone. There is
    /// no other.
    pub(super) fn begin(&mut self, payload: Option<Large>) {
        self.requests = self.requests.wrapping_add(1);
        self.passing = Some(payload.map_or(Passing::Absent, Passing::Payload));
    }

    /// Whether there is something to pass.
    pub(super) const fn is_active(&self) -> bool {
        self.passing.is_some()
    }

    /// Whether there is room for a piece that waits.
    pub(super) fn has_room(&self) -> bool {
        // Acquire: the receiver has copied the last piece.
        self.is_active() && self.buffer.drained().load(Ordering::Acquire) == u64::from(self.number)
    }

    /// Passes the next piece, if there is room for it. Returns whether there was, and the payload
    /// once all of it has been passed.
    pub(super) fn pass(&mut self) -> (bool, Option<Large>) {
        if !self.has_room() {
            return (false, None);
        }
        let len = match &mut self.passing {
            None => return (false, None),
            Some(Passing::Absent) => 0,
            Some(Passing::Payload(large)) => {
                let len = (large.len - large.done).min(BOUNCE_LEN);
                self.buffer.bytes.fill(0, &large.buffer, large.from + large.done, len);
                large.done += len;
                len
            }
        };
        seam::note();
        self.number = self.number.wrapping_add(1);
        // Release: the bytes come first.
        self.buffer.filled().store(place(self.number as usize, len), Ordering::Release);
        let has_more = matches!(&self.passing, Some(Passing::Payload(large)) if large.done < large.len);
        match self.passing.take_if(|_| !has_more) {
            Some(Passing::Payload(large)) => (true, Some(large)),
            Some(Passing::Absent) | None => (true, None),
        }
    }

    /// Returns what it passes. The link is at its end.
    pub(super) fn take_back(&mut self) -> Option<Large> {
        match self.passing.take()? {
            Passing::Payload(large) => Some(large),
            Passing::Absent => None,
        }
    }
}

/// The receiver's half.
#[derive(Debug)]
pub(super) struct BounceReceiver {
    buffer: Bounce,
    /// The last piece that it has taken.
    number: u32,
    /// Payloads that it has asked for.
    requests: u32,
}

impl BounceReceiver {
    pub(super) const fn new(buffer: Bounce) -> Self {
        Self { buffer, number: 0, requests: 0 }
    }

    /// The answer to a connect request ([`BounceSender::leave_hello`]), of that length, at most
    /// [`BOUNCE_LEN`].
    pub(super) fn take_hello(&self, len: usize) -> Vec<u8> {
        let mut hello = vec![0; len];
        self.buffer.bytes.read(0, &mut hello);
        hello
    }

    /// Asks for the payload of that number. The caller notifies the sender.
    pub(super) fn ask(&mut self, number: u32) {
        self.requests = self.requests.wrapping_add(1);
        let word = u64::from(self.requests) << 32 | u64::from(number);
        // Release: this side has read the hello that lies in the buffer.
        self.buffer.wanted().store(word, Ordering::Release);
    }

    /// The length of the next piece, as the sender gives it, if there is one.
    pub(super) fn next(&self) -> Option<usize> {
        // Acquire: the bytes come with it.
        let (number, len) = unplace(self.buffer.filled().load(Ordering::Acquire));
        (number == self.number.wrapping_add(1) as usize).then_some(len)
    }

    /// Takes the next piece of a payload that lacks the bytes in `rest`. Returns the length of the
    /// piece: 0 if the sender reports that the memory is gone, `None` if it has passed no piece.
    ///
    /// # Errors
    /// A violation if the sender passes a piece of another length than it must.
    pub(super) fn take(&mut self, target: &mut RecvTarget, rest: Range<usize>) -> Result<Option<usize>, Violation> {
        let Some(len) = self.next() else { return Ok(None) };
        if len > 0 && len != rest.len().min(BOUNCE_LEN) {
            return Err(Violation("a piece of another length than it must have"));
        }
        let mut bytes = [0; BOUNCE_LEN];
        self.buffer.bytes.read(0, &mut bytes[..len]);
        let take = target.take.saturating_sub(rest.start).min(len);
        target.buffer.write_at(target.at + rest.start, &bytes[..take]);
        self.number = self.number.wrapping_add(1);
        // Release: the bytes have been copied.
        self.buffer.drained().store(u64::from(self.number), Ordering::Release);
        Ok(Some(len))
    }
}
