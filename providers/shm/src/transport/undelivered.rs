//! Events that a call without [`LinkEvents`] has found for the engine. They wait for the next poll
//! or flush.

use super::id;
use ofi_engine::transport::{Down, LinkEvents, LinkId, Token};
use ofi_memory::Buffer;

/// Events that wait.
#[derive(Debug, Default)]
pub(super) struct Undelivered {
    finished: Vec<(LinkId, Token, Buffer)>,
    /// Links that were backed up and have room again.
    rooms: Vec<LinkId>,
    /// Links that ended: slot, serial number and reason.
    lost: Vec<(usize, u64, Down)>,
}

impl Undelivered {
    #[inline(always)]
    pub(super) const fn is_empty(&self) -> bool {
        self.finished.len() | self.rooms.len() | self.lost.len() == 0
    }

    /// Whether a payload waits that has been sent.
    #[inline(always)]
    pub(super) const fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// A payload that the link kept has been sent.
    pub(super) fn add_finished(&mut self, slot: usize, token: Token, buffer: Buffer) {
        self.finished.push((id(slot), token, buffer));
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

    /// Reports sent payloads and room.
    pub(super) fn deliver(&mut self, events: &mut impl LinkEvents) {
        while let Some((link, token, buffer)) = self.finished.pop() {
            events.handle_send_done(link, token, buffer);
        }
        while let Some(link) = self.rooms.pop() {
            events.handle_send_room(link);
        }
    }

    /// What waits, for checks.
    pub(super) fn describe(&self) -> Option<String> {
        let news = [
            ("payloads to give back", self.finished.len()),
            ("links that ended", self.lost.len()),
            ("links with room", self.rooms.len()),
        ];
        let (what, count) = news.into_iter().find(|(_, count)| *count > 0)?;
        Some(format!("{count} {what}"))
    }
}
