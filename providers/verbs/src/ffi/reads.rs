//! The reads of the peer's memory that a queue pair has under way, no more at once than both
//! devices carry out: the next one would hold up the segments behind it.

use super::memory::Registered;
use crate::device::{Place, SLOT};
use core::ops::Range;
use ofi_engine::transport::{OfferId, RecvTarget};
use ofi_memory::Buffer;
use std::collections::VecDeque;

/// Bytes that are read at once into registered memory: less than the longest message of any device
/// (8 MiB on rxe).
const PIECE: usize = 4 << 20;

/// A read of the peer's memory. Dropped after the queue pair is destroyed.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) into: Destination,
    pub(super) from: Place,
    /// Of the target: where the payload goes in its buffer, and how many bytes of it.
    pub(super) at: usize,
    take: usize,
    /// The part that the device is reading, or will.
    pub(super) part: Range<usize>,
    /// A part could not be copied to the target.
    pub(super) is_unwritable: bool,
    /// The engine's name for the payload.
    offer: Option<OfferId>,
}

/// Where the device puts what it reads.
#[derive(Debug)]
pub(super) enum Destination {
    Registered(Registered),
    /// Into the slot for that; from there it is copied.
    Copied(Buffer),
}

impl Read {
    pub(super) fn new(into: Destination, from: Place, (at, take): (usize, usize), offer: Option<OfferId>) -> Self {
        let mut read = Self { into, from, at, take, part: 0..0, is_unwritable: false, offer };
        read.advance();
        read
    }

    /// Goes on to the next part; false if there is none.
    pub(super) fn advance(&mut self) -> bool {
        let most = if matches!(self.into, Destination::Registered(_)) { PIECE } else { SLOT };
        self.part = self.part.end..self.take.min(self.part.end + most);
        !self.part.is_empty()
    }

    pub(super) fn end(self) -> RecvTarget {
        let buffer = match self.into {
            Destination::Registered(memory) => memory.end(),
            Destination::Copied(buffer) => buffer,
        };
        RecvTarget { buffer, at: self.at, take: self.take, offer: self.offer }
    }
}

/// The reads of a queue pair, by number.
#[derive(Debug, Default)]
pub(super) struct Reads {
    all: Vec<Option<Read>>,
    /// Numbers of those whose next part is not posted, in order.
    waiting: VecDeque<u16>,
    /// Posted parts.
    posted: u16,
    /// The most of them at once, once that is known.
    depth: Option<u16>,
}

impl Reads {
    pub(super) const fn is_depth_known(&self) -> bool {
        self.depth.is_some()
    }

    /// The devices carry out so many parts at once.
    pub(super) fn set_depth(&mut self, depth: u16) {
        self.depth = Some(depth.max(1));
    }

    /// Adds a read, whose first part waits.
    pub(super) fn add(&mut self, number: u16, read: Read) {
        let at = usize::from(number);
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        self.all[at] = Some(read);
        self.waiting.push_back(number);
    }

    pub(super) fn get(&self, number: u16) -> Option<&Read> {
        self.all.get(usize::from(number))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u16) -> Option<&mut Read> {
        self.all.get_mut(usize::from(number))?.as_mut()
    }

    /// Takes a read whose last part is done.
    pub(super) fn take(&mut self, number: u16) -> Option<Read> {
        self.waiting.retain(|waiting| *waiting != number);
        self.all.get_mut(usize::from(number))?.take()
    }

    /// The number of a read whose next part is to be posted now.
    pub(super) fn next(&mut self) -> Option<u16> {
        let next = if self.depth.is_some_and(|depth| self.posted < depth) { self.waiting.pop_front() } else { None };
        self.posted += u16::from(next.is_some());
        next
    }

    /// A part is done.
    pub(super) const fn part_done(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// The next part of a read waits, before those of others.
    pub(super) fn go_on(&mut self, number: u16) {
        self.waiting.push_front(number);
    }

    /// Takes all.
    pub(super) fn end(&mut self) -> impl Iterator<Item = Read> {
        core::mem::take(self).all.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_parts_are_posted_than_the_devices_carry_out() {
        let from = Place { address: 0, key: 0 };
        let read = |take| Read::new(Destination::Copied(Buffer::empty()), from, (0, take), None);
        let mut reads = Reads::default();
        assert!(!reads.is_depth_known());
        reads.set_depth(2);
        for number in 0..4 {
            reads.add(number, read(2 * SLOT));
        }
        let posted = |reads: &mut Reads| core::iter::from_fn(|| reads.next()).collect::<Vec<_>>();
        assert_eq!(posted(&mut reads), [0, 1]);
        reads.part_done();
        assert!(reads.get_mut(0).is_some_and(Read::advance));
        reads.go_on(0);
        assert_eq!(posted(&mut reads), [0], "its second part comes before the third read");
        reads.part_done();
        assert!(reads.take(0).is_some() && reads.take(0).is_none());
        assert_eq!(posted(&mut reads), [2]);
        assert_eq!(reads.end().count(), 3);
    }
}
