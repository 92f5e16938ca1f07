//! Offers: a sender registers a message where it lies, and names the place together with its
//! request; the receiver's device reads it from there, so that neither processor copies it. If no
//! receive matches yet, or memory cannot be registered, the receiver declines, and the payload
//! comes in data frames.
//! A link delivers in order: while an offer is read, the segments behind it stay in their slots,
//! which the peer has no credit to fill again. Invariant: each offer has one outcome, unless the
//! link ends.

use crate::device::{Exposed, Pair};
use crate::wire::{Offer, Outcome};
use ofi_engine::transport::Token;
use ofi_memory::Buffer;
use std::collections::VecDeque;

/// How many offers of a side may lack their outcome.
pub(crate) const MOST: usize = 32;

/// Both sides' part of the offers on a connection.
#[derive(Debug)]
pub(crate) struct Offers<P: Pair> {
    /// Those of this side that lack their outcome, oldest first.
    open: VecDeque<Open<P::Exposed>>,
    next: u32,
    /// Memory could not be registered: this side offers nothing more.
    is_refused: bool,
    /// The peer's offer that the device is reading.
    pub(crate) reading: Option<u32>,
    /// Slots behind it with the lengths of their segments.
    pub(crate) behind: VecDeque<(u16, usize)>,
}

#[derive(Debug)]
struct Open<E> {
    number: u32,
    token: Token,
    exposed: E,
}

impl<P: Pair> Offers<P> {
    pub(crate) const fn new() -> Self {
        Self { open: VecDeque::new(), next: 0, is_refused: false, reading: None, behind: VecDeque::new() }
    }

    /// Whether one more is possible.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_refused && self.open.len() < MOST
    }

    /// Whether offers of this side lack their outcome.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Adds an offer of this side.
    pub(crate) fn add(&mut self, token: Token, exposed: P::Exposed, len: usize) -> Offer {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let offer = Offer { number, place: exposed.place(), len };
        self.open.push_back(Open { number, token, exposed });
        offer
    }

    /// The peer tells what became of an offer: its payload comes back. `None` if there is no such
    /// offer.
    pub(crate) fn finish(&mut self, outcome: Outcome) -> Option<(Token, Buffer)> {
        let at = self.open.iter().position(|open| open.number == outcome.number)?;
        self.open.remove(at).map(|open| (open.token, open.exposed.withdraw()))
    }

    /// Memory cannot be registered. True the first time.
    pub(crate) const fn refuse(&mut self) -> bool {
        !core::mem::replace(&mut self.is_refused, true)
    }

    /// The payloads of this side; the connection has ended.
    pub(crate) fn end(self) -> impl Iterator<Item = (Token, Buffer)> {
        self.open.into_iter().map(|open| (open.token, open.exposed.withdraw()))
    }
}
