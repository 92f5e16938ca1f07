//! Payloads that stay where they lie: a sender registers one, and names the place; the receiver's
//! device reads it from there, so that neither processor copies it.
//! A message's request offers its payload. If no receive matches yet, or memory cannot be
//! registered, the receiver declines, and the payload comes in data frames. Any other frame can be
//! a remote one, whose payload the receiver always reads, or drops.
//! What is offered is read while the frames behind it arrive: they do not depend on it. A link
//! delivers frames in order: while the payload of a remote one is read, the segments behind it
//! wait, as many as the peer has credits. Invariant: each payload has one outcome, unless the link
//! ends.

use crate::device::{Exposed, Pair, READS};
use crate::wire::{Kind, Offer, Outcome};
use ofi_engine::transport::Token;
use ofi_memory::Buffer;
use slab::Slab;
use std::collections::VecDeque;

/// How many payloads of a side may lack their outcome. The peer may read all of them at once.
pub(crate) const MOST: usize = READS as usize;

/// Messages that are copied without trying after the first failure, and at most.
const FIRST_SKIPPED: u32 = 16;
const MOST_SKIPPED: u32 = 4096;

/// How a payload is exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// With a message's request; the receiver may decline it.
    Offer,
    /// As a remote frame's.
    Remote,
}

impl Exposure {
    /// The segment that names it.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Offer => Kind::Offer,
            Self::Remote => Kind::Remote,
        }
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

/// What both sides know of such payloads on a connection.
#[derive(Debug)]
pub(crate) struct Offers<P: Pair> {
    /// Those of this side that lack their outcome, oldest first.
    open: VecDeque<Open<P::Exposed>>,
    next: u32,
    /// How many messages are copied without trying, because the device could not reach them; and
    /// how many were, the last time.
    skipped: (u32, u32),
    /// Whether it is logged that messages are copied, for each way.
    said: [bool; 2],
    /// The peer's payloads that the device is reading.
    pub(crate) readings: Slab<Reading>,
    /// The number of the one that belongs to a remote frame.
    pub(crate) remote: Option<u16>,
    /// Segments behind that, or behind the peer's end.
    pub(crate) behind: VecDeque<Vec<u8>>,
    /// The peer has ended the link, whose payloads are still being read.
    pub(crate) has_ended: bool,
}

/// A payload of the peer: the peer's number for it, and the key of the peer's window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) number: u32,
    pub(crate) key: u32,
}

/// A payload of this side that has come back.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) token: Token,
    pub(crate) buffer: Buffer,
    pub(crate) exposure: Exposure,
}

#[derive(Debug)]
struct Open<E> {
    exposure: Exposure,
    number: u32,
    token: Token,
    exposed: E,
}

impl<P: Pair> Offers<P> {
    pub(crate) const fn new() -> Self {
        Self {
            open: VecDeque::new(),
            next: 0,
            skipped: (0, 0),
            said: [false; 2],
            readings: Slab::new(),
            remote: None,
            behind: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Whether one more is possible.
    pub(crate) fn has_room(&self) -> bool {
        self.open.len() < MOST
    }

    /// Whether the next message is to be copied without trying to offer it.
    pub(crate) const fn skips(&mut self) -> bool {
        let skips = self.skipped.0 > 0;
        self.skipped.0 = self.skipped.0.saturating_sub(1);
        skips
    }

    /// Whether the peer's device has read all payloads of remote frames. Those that are offered
    /// need not be: the peer's program may never post a receive for them.
    pub(crate) fn is_read(&self) -> bool {
        self.open.iter().all(|open| open.exposure == Exposure::Offer)
    }

    /// Adds a payload of this side.
    pub(crate) fn add(&mut self, exposure: Exposure, token: Token, exposed: P::Exposed, len: usize) -> Offer {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.skipped = (0, 0);
        let offer = Offer { number, place: exposed.place(), len };
        self.open.push_back(Open { exposure, number, token, exposed });
        offer
    }

    /// The peer tells what became of a payload, which comes back.
    ///
    /// # Errors
    /// There is no such payload, or the peer's device may still read it.
    pub(crate) fn finish(&mut self, outcome: Outcome, pair: &mut P) -> Result<Returned, &'static str> {
        let at = self.open.iter().position(|open| open.number == outcome.number);
        let Some(Open { exposure, number, token, exposed }) = at.and_then(|at| self.open.remove(at)) else {
            return Err("the outcome of a payload that was not there to be read");
        };
        match pair.take_back(exposed) {
            Ok(buffer) => Ok(Returned { token, buffer, exposure }),
            Err(exposed) => {
                self.open.push_back(Open { exposure, number, token, exposed });
                Err("an outcome that leaves the payload's window open")
            }
        }
    }

    /// The device cannot reach memory: ever more messages are copied before the next try.
    pub(crate) fn back_off(&mut self) {
        let next = (2 * self.skipped.1).clamp(FIRST_SKIPPED, MOST_SKIPPED);
        self.skipped = (next, next);
    }

    /// Whether it is to be logged now that a message is copied: once for each way.
    pub(crate) const fn says(&mut self, way: Way) -> bool {
        !core::mem::replace(&mut self.said[way as usize], true)
    }

    /// The payloads of this side; the connection has ended.
    pub(crate) fn end(self) -> impl Iterator<Item = (Token, Buffer)> {
        self.open.into_iter().map(|open| (open.token, open.exposed.withdraw()))
    }
}
