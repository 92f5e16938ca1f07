//! Events that a call without [`LinkEvents`] has found for the engine. They wait for the next poll
//! or flush.

use super::id;
use crate::conn::Kept;
use ofi_engine::transport::{Down, LinkEvents, LinkId};
use std::collections::VecDeque;

/// Events that wait.
#[derive(Debug, Default)]
pub(super) struct Undelivered {
    /// What links have kept until now.
    ended: VecDeque<(LinkId, Kept)>,
    /// Links that were backed up and have room again.
    rooms: Vec<LinkId>,
    /// Links that ended: slot, serial number and reason.
    lost: Vec<(usize, u64, Down)>,
}

impl Undelivered {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.ended.len() | self.rooms.len() | self.lost.len() == 0
    }

    /// Whether the engine waits for something that a link has kept.
    #[inline(always)]
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The link has sent a payload that it kept, or the outcome of one that has arrived.
    pub(super) fn add_ended(&mut self, slot: usize, kept: Kept) {
        self.ended.push_back((id(slot), kept));
    }

    /// A link that was backed up has room again.
    pub(super) fn add_room(&mut self, slot: usize) {
        self.rooms.push(id(slot));
    }

    /// The link with that serial number ended.
    pub(super) fn add_lost(&mut self, slot: usize, serial: u64, why: Down) {
        self.lost.push((slot, serial, why));
    }

    /// Takes a link that ended. Another one may have its slot by now.
    pub(super) fn take_lost(&mut self) -> Option<(usize, u64, Down)> {
        self.lost.pop()
    }

    /// A link has left the table.
    pub(super) fn forget(&mut self, slot: usize) {
        self.rooms.retain(|room| *room != id(slot));
    }

    /// Reports payloads that have been sent or have arrived, and room.
    pub(super) fn deliver(&mut self, events: &mut impl LinkEvents) {
        while let Some((link, kept)) = self.ended.pop_front() {
            match kept {
                Kept::Payload(token, buffer) => events.handle_send_done(link, token, buffer),
                Kept::Target(target) => {
                    let accepted = events.handle_recv_done(link, target);
                    debug_assert!(accepted.is_ok(), "the payload of an offer");
                }
            }
        }
        while let Some(link) = self.rooms.pop() {
            events.handle_send_room(link);
        }
    }

    /// What waits, for checks.
    pub(super) fn describe(&self) -> Option<String> {
        let news = [
            ("payloads to give back", self.ended.len()),
            ("links that ended", self.lost.len()),
            ("links with room", self.rooms.len()),
        ];
        let (what, count) = news.into_iter().find(|(_, count)| *count > 0)?;
        Some(format!("{count} {what}"))
    }
}
