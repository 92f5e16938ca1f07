//! Work that a queue pair's device gets in one call.

use super::layout::{SendWr, Sge, WR_SEND, WR_SEND_WITH_INV};
use crate::device::SENDS;
use core::ptr::{self, NonNull};

/// Work in a [`Chain`]: the segments of a ring, and the opening of one window.
const CHAINED: usize = SENDS as usize + 1;

/// Work for the device, which it gets in one call. Kept from call to call, because clearing it
/// takes longer than posting a segment.
#[derive(Debug)]
pub(super) struct Chain {
    works: Box<[SendWr; CHAINED]>,
    pieces: Box<[Sge; CHAINED]>,
    /// How many of them wait.
    pub(super) count: usize,
    /// The place of the last segment among them.
    last_segment: Option<usize>,
}

impl Chain {
    pub(super) fn new() -> Self {
        Self {
            works: Box::new([SendWr::EMPTY; CHAINED]),
            pieces: Box::new([Sge::EMPTY; CHAINED]),
            count: 0,
            last_segment: None,
        }
    }

    /// Adds work with its piece of memory; false if there is no room.
    pub(super) fn add(&mut self, work: SendWr, piece: Sge) -> bool {
        let (Some(next), Some(place)) = (self.works.get_mut(self.count), self.pieces.get_mut(self.count)) else {
            return false;
        };
        (*next, *place) = (work, piece);
        self.count += 1;
        true
    }

    /// Adds a segment; false if there is no room, which a full ring of slots prevents.
    pub(super) fn add_segment(&mut self, wr_id: u64, piece: Sge, send_flags: u32, ends: Option<u32>) -> bool {
        let opcode = if ends.is_some() { WR_SEND_WITH_INV } else { WR_SEND };
        let imm_data = ends.unwrap_or(0);
        self.last_segment = Some(self.count);
        self.add(SendWr { wr_id, num_sge: 1, opcode, send_flags, imm_data, ..SendWr::EMPTY }, piece)
    }

    /// The last segment.
    pub(super) fn last_segment(&mut self) -> Option<&mut SendWr> {
        self.works.get_mut(self.last_segment?)
    }

    /// Links the works with each other and with their pieces; returns the first. Empties the chain.
    pub(super) fn link(&mut self) -> Option<NonNull<SendWr>> {
        let count = core::mem::take(&mut self.count);
        self.last_segment = None;
        let mut next = ptr::null_mut();
        for (work, piece) in self.works[..count].iter_mut().zip(self.pieces.iter_mut()).rev() {
            (work.next, work.sg_list) = (next, piece);
            next = work;
        }
        NonNull::new(next)
    }
}
