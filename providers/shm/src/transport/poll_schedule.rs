//! Poll schedule: each pass polls a few active links, the idle links that peers mark in this
//! endpoint's ready bitmap, and at times one more idle link, because a peer that wrote while the
//! link became idle may not have set its bit.
//! Invariant: `order[entries[slot].rank]` is the slot of each link; exactly the links from
//! [`PollSchedule::busy`] on are idle.

use super::ShmTransport;
use super::looks::Looks;
use super::offers::Offers;
use crate::cma::Cma;
use crate::conn::{Conn, State};
use crate::control::{About, BitmapOffer};
use crate::region::ReadyBitmap;
use crate::seam;
use ofi_core::Instant;
use ofi_engine::transport::LinkEvents;
use ofi_os::descriptor::PrivateFd;
use std::os::fd::AsFd;
use std::time::Duration;

/// Up to this many links are all active.
pub(super) const FEW: usize = 8;
/// Active links if there are more.
const BUSY: usize = 4;
/// Idle links polled in a pass while some peers have not been offered the bitmap.
const OTHERS: usize = 64;
/// Reads that must find something before an idle link becomes active.
const CALLS: u32 = 32;
/// Links whose next lines are prefetched before the first of them is read: of more, the first would
/// be gone again.
const FETCHES: usize = 64;
/// Passes between polls of an idle link whose bit is not set.
const UNSET_EVERY: u32 = 8;
/// Peers offered the bitmap at a time.
const NOTICES: usize = 32;
/// How long after the last link was opened the endpoint offers the bitmap. A job opens its links
/// together; the offers would delay the first messages over them.
const CALM: Duration = Duration::from_millis(100);
/// How long after the first of several links the endpoint offers it at the latest.
const AT_LATEST: Duration = Duration::from_secs(2);

/// A link's place in the schedule.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Its position in the order.
    rank: usize,
    /// Not polled in every pass.
    idle: bool,
    /// Reads that found something since it became idle.
    calls: u32,
    /// The other side has been offered our bitmap.
    told: bool,
}

/// The order in which links are polled.
#[derive(Debug, Default)]
pub(super) struct PollSchedule {
    /// All links: the active ones first, among them those with recent input.
    pub(super) order: Vec<usize>,
    /// By slot, with entries of slots without a link.
    entries: Vec<Entry>,
    /// Rank of the idle link that was last polled in turn.
    next: usize,
    bitmap: Option<(ReadyBitmap, PrivateFd)>,
    /// Idle links whose peer has not been offered the bitmap.
    untold: usize,
    ready: Vec<usize>,
    /// The first slot whose peer is next to be offered the bitmap.
    first_told: usize,
    /// When it may be offered, and when at the latest, whatever links are opened meanwhile.
    tell_at: Instant,
    tell_by: Instant,
    polls: u32,
    pub(super) offers: Offers,
    pub(super) looks: Looks,
}

impl PollSchedule {
    /// How many links are polled in every pass.
    #[inline(always)]
    pub(super) const fn busy(&self) -> usize {
        if self.order.len() <= FEW { FEW } else { BUSY }
    }

    /// Counts a pass that has found nothing; returns how many more looks at the active links are
    /// worth their time.
    #[inline(always)]
    pub(super) fn more_looks(&mut self) -> usize {
        match self.order.len() {
            links @ 1..=FEW => self.looks.count() / links,
            // With many, the next message may come over any of them.
            _ => 0,
        }
    }

    /// Counts a pass. True if it must poll idle links.
    #[inline(always)]
    pub(super) fn is_others_turn(&mut self) -> bool {
        if self.order.len() <= FEW {
            return false;
        }
        self.next_poll();
        let ready = || self.bitmap.as_ref().is_some_and(|(bitmap, _)| bitmap.any_set(self.entries.len()));
        self.untold > 0 || self.is_unset_turn() || ready()
    }

    /// Counts a pass.
    pub(super) const fn next_poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
    }

    const fn is_unset_turn(&self) -> bool {
        self.polls.is_multiple_of(UNSET_EVERY)
    }

    /// Whether the link is not polled in every pass.
    pub(super) fn is_idle(&self, slot: usize) -> bool {
        self.entries[slot].idle
    }

    /// Adds a link at the end of the order. Returns its rank.
    fn push(&mut self, slot: usize, now: Instant) -> usize {
        if self.untold == 0 {
            self.tell_by = now + AT_LATEST;
        }
        self.tell_at = self.tell_by.min(now + CALM);
        let rank = self.order.len();
        self.order.push(slot);
        if self.entries.len() <= slot {
            self.entries.resize(slot + 1, Entry::default());
        }
        self.entries[slot] = Entry { rank, ..Entry::default() };
        rank
    }

    /// Removes a link. Returns the rank that another one has now, if any.
    fn remove(&mut self, slot: usize) -> Option<usize> {
        let Entry { rank, idle, told, .. } = self.entries[slot];
        self.untold -= usize::from(idle && !told);
        self.order.swap_remove(rank);
        (rank < self.order.len()).then_some(rank)
    }

    /// Updates the link that is now at `rank`. Returns its slot if it becomes active or idle by
    /// that.
    fn update(&mut self, rank: usize) -> Option<usize> {
        let idle = rank >= self.busy();
        let slot = *self.order.get(rank)?;
        let entry = &mut self.entries[slot];
        entry.rank = rank;
        if entry.idle == idle {
            return None;
        }
        (entry.idle, entry.calls) = (idle, 0);
        if !entry.told {
            self.untold = if idle { self.untold + 1 } else { self.untold - 1 };
        }
        Some(slot)
    }

    /// Counts a read of an idle link that found something. Returns its rank if it is to become
    /// active.
    fn count_call(&mut self, slot: usize) -> Option<usize> {
        let entry = &mut self.entries[slot];
        entry.calls += 1;
        (entry.calls >= CALLS && entry.rank >= BUSY).then_some(entry.rank)
    }

    /// Sets the bit of a link that has something to read, for a later pass to find.
    pub(super) fn note(&self, slot: usize) {
        if let Some((bitmap, _)) = &self.bitmap {
            bitmap.set(slot);
        }
    }

    /// Takes note that the peer of a link has been offered the bitmap, or has not after all.
    fn set_told(&mut self, slot: usize, told: bool) {
        let entry = &mut self.entries[slot];
        if core::mem::replace(&mut entry.told, told) != told && entry.idle {
            self.untold = if told { self.untold - 1 } else { self.untold + 1 };
        }
    }
}

impl ShmTransport {
    pub(super) fn insert(&mut self, mut conn: Conn) -> usize {
        conn.cma = Cma::new(self.settings.cma, self.settings.pool);
        conn.is_connectionless = !self.settings.to_passive;
        let now = ofi_os::clock::now();
        conn.serial = self.probes.add(self.conns.vacant_key(), now);
        let slot = self.conns.insert(conn);
        let rank = self.schedule.push(slot, now);
        if rank == FEW {
            // Too many to keep all of them active.
            (BUSY..FEW).for_each(|rank| self.put(rank));
        }
        self.put(rank);
        if rank >= FEW {
            self.swap(rank, BUSY - 1);
        } else {
            self.promote(slot);
        }
        if self.sleep.is_armed() {
            self.announce_new(slot);
        }
        slot
    }

    /// Removes a link from the schedule. It has left the table.
    pub(super) fn forget(&mut self, slot: usize) {
        if let Some(rank) = self.schedule.remove(slot) {
            self.put(rank);
        }
        if self.schedule.order.len() == FEW {
            // Few enough to make all of them active.
            (BUSY..FEW).for_each(|rank| self.put(rank));
        }
    }

    /// Makes the link that is now at `rank` active or idle.
    fn put(&mut self, rank: usize) {
        let Self { conns, schedule, sleep, .. } = self;
        let Some(slot) = schedule.update(rank) else { return };
        let Some(conn) = conns.get(slot).filter(|_| !sleep.is_armed()) else { return };
        conn.announce_waking(schedule.is_idle(slot));
        if conn.is_ready() {
            // The peer wrote before it could know that it must set the bit.
            schedule.note(slot);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.schedule.order.swap(a, b);
        self.put(a);
        self.put(b);
    }

    /// Moves an active link forward: it had something to read.
    pub(super) fn promote(&mut self, slot: usize) {
        let rank = self.schedule.entries[slot].rank;
        if rank > 0 {
            self.swap(rank, rank - 1);
        }
    }

    /// Reads an idle link, which may become active by it.
    fn read_other(&mut self, slot: usize, events: &mut impl LinkEvents) -> bool {
        if !self.conns.get(slot).is_some_and(Conn::is_ready) || !self.read(slot, events) {
            return false;
        }
        let Some(conn) = self.conns.get(slot) else { return true };
        if conn.is_ready() {
            self.schedule.note(slot);
        }
        if let Some(rank) = self.schedule.count_call(slot) {
            self.swap(rank, BUSY - 1);
        }
        true
    }

    /// Reads the links that are set in the bitmap, and some other idle links in turn.
    pub(super) fn read_others(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        if let Some((bitmap, _)) = &self.schedule.bitmap {
            let (mut ready, end) = (core::mem::take(&mut self.schedule.ready), self.schedule.entries.len());
            bitmap.take(end, |place| ready.push(place));
            // So many links are in no cache: their lines come while others are read.
            let first = ready.iter().take(FETCHES).filter_map(|place| self.conns.get(*place));
            first.for_each(Conn::fetch_line);
            for place in ready.drain(..) {
                for slot in (place..end).step_by(ReadyBitmap::BITS) {
                    any |= self.read_other(slot, events);
                }
            }
            self.schedule.ready = ready;
        }
        let count = if self.schedule.untold > 0 { OTHERS } else { usize::from(self.schedule.is_unset_turn()) };
        for _ in 0..count.min(self.schedule.order.len().saturating_sub(self.schedule.busy())) {
            let PollSchedule { order, next, .. } = &mut self.schedule;
            *next = if *next + 1 >= order.len() || *next < BUSY { BUSY } else { *next + 1 };
            let Some(&slot) = order.get(*next) else { break };
            any |= self.read_other(slot, events);
        }
        any
    }

    /// Offers the bitmap to the peers of idle links, if it is time. True if a peer was offered it.
    pub(super) fn tell_bitmap(&mut self, now: Instant) -> bool {
        if self.schedule.untold == 0 || now < self.schedule.tell_at {
            return false;
        }
        let Self { conns, schedule, control, .. } = self;
        if schedule.bitmap.is_none() {
            // Without a bitmap the idle links are polled in turn.
            schedule.bitmap = ReadyBitmap::create().ok();
        }
        let Some((_, memory)) = &schedule.bitmap else { return false };
        let end = schedule.entries.len();
        // Begin with other peers each time: a socket may stay full.
        schedule.first_told = schedule.first_told.wrapping_add(NOTICES) % end.max(1);
        let untold = |slot: &usize| {
            let (Entry { idle, told, .. }, conn) = (schedule.entries[*slot], conns.get(*slot));
            idle && !told && conn.is_some_and(|conn| matches!(conn.state, State::Open))
        };
        let slots = (schedule.first_told..end).chain(0..schedule.first_told).filter(untold);
        let offered = slots.take(NOTICES).filter(|slot| {
            let peer = &conns[*slot].peer;
            // A full socket is tried again; the next probe finds one that is gone.
            control.give_bitmap(&peer.name, peer.request, *slot, memory.as_fd()).is_ok()
        });
        let offered = offered.collect::<Vec<usize>>();
        offered.iter().for_each(|slot| schedule.set_told(*slot, true));
        !offered.is_empty()
    }

    /// The link that a control message is about.
    pub(super) fn link_of(&self, number: u64, theirs: bool, from: &str) -> Option<usize> {
        // The message may overtake the answer, which brings the peer's identity: until then the
        // number alone tells the link.
        let asking = |conn: &Conn| !theirs && matches!(conn.state, State::Asking(_));
        let meant = |conn: &Conn| conn.peer.request == (number, !theirs) && (asking(conn) || conn.peer.name == from);
        self.conns.iter().find(|(_, conn)| meant(conn)).map(|(slot, _)| slot)
    }

    /// A peer offers its bitmap.
    pub(super) fn handle_bitmap(&mut self, offer: &BitmapOffer) {
        let BitmapOffer { from, number, theirs, place, memory } = offer;
        if let Some(slot) = self.link_of(*number, *theirs, from) {
            // Without it the peer polls this link in turn.
            let bitmap = ReadyBitmap::attach(memory.as_fd()).ok().map(|bitmap| {
                // No bit is set for lines written since the peer sent the offer.
                bitmap.set(*place);
                seam::note_bitmap();
                (bitmap, *place)
            });
            self.conns[slot].presence.set_bitmap(bitmap);
        }
    }

    /// A peer got the offer without the bitmap: offers it again.
    pub(super) fn handle_bitmap_lost(&mut self, about: &About) {
        if let Some(slot) = self.link_of(about.number, about.theirs, &about.from) {
            self.schedule.set_told(slot, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most looks of a poll that awaits an answer, with so many links.
    fn looks_with(links: usize) -> usize {
        let mut schedule = PollSchedule::default();
        (0..links).for_each(|slot| assert_eq!(schedule.push(slot, Instant::default()), slot));
        // The thread looks often where it awaits its second answer.
        schedule.looks.note_sent();
        schedule.looks.count();
        schedule.looks.note_read();
        schedule.looks.note_sent();
        (0..8).map(|_| schedule.more_looks()).max().unwrap_or(0)
    }

    #[test]
    fn the_bitmap_is_offered_when_links_have_stopped_coming_or_after_a_while() {
        let start = Instant::default();
        let mut schedule = PollSchedule::default();
        schedule.push(0, start);
        assert_eq!(schedule.tell_at, start + CALM);
        schedule.untold = 1;
        let mut now = start;
        for slot in 1..100 {
            now = start + CALM / 2 * u32::try_from(slot).unwrap();
            schedule.push(slot, now);
            assert_eq!(schedule.tell_at, (now + CALM).min(start + AT_LATEST));
        }
        assert!(now > schedule.tell_at, "they still come, and the first ones have waited for long enough");
        schedule.untold = 0;
        schedule.push(100, now);
        assert_eq!(schedule.tell_at, now + CALM, "nobody waits any more");
    }

    #[test]
    fn links_share_the_looks_unless_they_are_many() {
        let alone = looks_with(1);
        assert!(alone > FEW, "each of a few links has a share");
        assert_eq!([3, FEW].map(looks_with), [alone / 3, alone / FEW]);
        assert_eq!([0, FEW + 1].map(looks_with), [0; 2]);
    }
}
