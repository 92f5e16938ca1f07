//! Poll schedule: each pass polls a few active links, the idle links that peers mark in this
//! endpoint's ready bitmap, and at times one more idle link, because a peer that wrote while the
//! link became idle may not have set its bit.
//! Invariant: `order[conn.rank]` is the link; exactly those from [`PollSchedule::busy`] on are
//! idle.

use super::ShmTransport;
use crate::cma::Cma;
use crate::conn::{Conn, State};
use crate::control::{About, BitmapOffer};
use crate::region::{ReadyBitmap, Side};
use ofi_engine::transport::LinkEvents;
use ofi_os::descriptor::PrivateFd;
use std::os::fd::AsFd;

/// Up to this many links are all active.
pub(super) const FEW: usize = 8;
/// Active links if there are more.
const BUSY: usize = 4;
/// Idle links polled in a pass while some peers have not been offered the bitmap.
const OTHERS: usize = 64;
/// Reads that must find something before an idle link becomes active.
const CALLS: u32 = 32;
/// Passes between polls of an idle link whose bit is not set.
const UNSET_EVERY: u32 = 8;
/// Peers offered the bitmap at a time.
const NOTICES: usize = 32;

/// The order in which links are polled.
#[derive(Debug, Default)]
pub(super) struct PollSchedule {
    /// All links: the active ones first, among them those with recent input.
    pub(super) order: Vec<usize>,
    /// Rank of the idle link that was last polled in turn.
    next: usize,
    bitmap: Option<(ReadyBitmap, PrivateFd)>,
    /// Idle links whose peer has not been offered the bitmap.
    untold: usize,
    /// All slots are smaller.
    end: usize,
    ready: Vec<usize>,
    /// The first slot whose peer is next to be offered the bitmap.
    first_told: usize,
    polls: u32,
}

impl PollSchedule {
    /// How many links are polled in every pass.
    #[inline(always)]
    pub(super) const fn busy(&self) -> usize {
        if self.order.len() <= FEW { FEW } else { BUSY }
    }

    /// Counts a pass. True if it must poll idle links.
    #[inline(always)]
    pub(super) fn is_others_turn(&mut self) -> bool {
        if self.order.len() <= FEW {
            return false;
        }
        self.next_poll();
        let ready = || self.bitmap.as_ref().is_some_and(|(bitmap, _)| bitmap.any_set(self.end));
        self.untold > 0 || self.is_unset_turn() || ready()
    }

    /// Counts a pass.
    pub(super) const fn next_poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
    }

    const fn is_unset_turn(&self) -> bool {
        self.polls.is_multiple_of(UNSET_EVERY)
    }
}

impl ShmTransport {
    pub(super) fn insert(&mut self, mut conn: Conn) -> usize {
        conn.cma = Cma::new(self.settings.cma);
        conn.serial = self.probes.add(self.conns.vacant_key(), ofi_os::clock::now());
        let slot = self.conns.insert(conn);
        let rank = self.schedule.order.len();
        self.schedule.order.push(slot);
        self.schedule.end = self.schedule.end.max(slot + 1);
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
        if self.armed {
            self.announce_new(slot);
        }
        slot
    }

    /// Announces to the peer of a new link that this side sleeps, and checks for what the peer
    /// wrote before it could know.
    #[cold]
    fn announce_new(&mut self, slot: usize) {
        self.conns[slot].announce_sleep();
        self.order();
        if self.conns[slot].has_news() {
            // Wake ourselves. A socket too full for that is readable anyway.
            drop(self.control.wake(&self.control.identity().name()));
        }
    }

    /// Removes a link from the schedule. It has left the table.
    pub(super) fn forget(&mut self, conn: &Conn) {
        self.schedule.untold -= usize::from(conn.idle && !conn.told);
        let last = self.schedule.order.len() - 1;
        self.schedule.order.swap(conn.rank, last);
        self.schedule.order.pop();
        if conn.rank < last {
            self.put(conn.rank);
        }
        if last == FEW {
            // Few enough to make all of them active.
            (BUSY..FEW).for_each(|rank| self.put(rank));
        }
    }

    /// Updates the link that is now at `rank`, and makes it active or idle.
    fn put(&mut self, rank: usize) {
        let Self { conns, schedule, armed, .. } = self;
        let Some(conn) = conns.get_mut(schedule.order[rank]) else { return };
        conn.rank = rank;
        let idle = rank >= schedule.busy();
        if conn.idle == idle {
            return;
        }
        (conn.idle, conn.calls) = (idle, 0);
        if !conn.told {
            schedule.untold = if idle { schedule.untold + 1 } else { schedule.untold - 1 };
        }
        if *armed {
            return;
        }
        conn.announce_waking();
        if let (true, Some((bitmap, _))) = (conn.is_ready(), &schedule.bitmap) {
            // The peer wrote before it could know that it must set the bit.
            bitmap.set(schedule.order[rank]);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.schedule.order.swap(a, b);
        self.put(a);
        self.put(b);
    }

    /// Moves an active link forward: it had something to read.
    pub(super) fn promote(&mut self, slot: usize) {
        let rank = self.conns[slot].rank;
        if rank > 0 {
            self.swap(rank, rank - 1);
        }
    }

    /// Reads an idle link, which may become active by it.
    fn read_other(&mut self, slot: usize, events: &mut impl LinkEvents) -> bool {
        if !self.conns.get(slot).is_some_and(Conn::is_ready) || !self.read(slot, events) {
            return false;
        }
        let Some(conn) = self.conns.get_mut(slot) else { return true };
        if let Some((bitmap, _)) = &self.schedule.bitmap
            && conn.is_ready()
        {
            bitmap.set(slot);
        }
        conn.calls += 1;
        let rank = conn.rank;
        if conn.calls >= CALLS && rank >= BUSY {
            self.swap(rank, BUSY - 1);
        }
        true
    }

    /// Reads the links that are set in the bitmap, and some other idle links in turn.
    pub(super) fn read_others(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        if let Some((bitmap, _)) = &self.schedule.bitmap {
            let mut ready = core::mem::take(&mut self.schedule.ready);
            bitmap.take(self.schedule.end, |place| ready.push(place));
            for place in ready.drain(..) {
                for slot in (place..self.schedule.end).step_by(ReadyBitmap::BITS) {
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

    /// Offers the bitmap to the peers of idle links.
    pub(super) fn tell_bitmap(&mut self) {
        if self.schedule.untold == 0 {
            return;
        }
        let Self { conns, schedule, control, .. } = self;
        if schedule.bitmap.is_none() {
            // Without a bitmap the idle links are polled in turn.
            schedule.bitmap = ReadyBitmap::create().ok();
        }
        let Some((_, memory)) = &schedule.bitmap else { return };
        let untold = |conn: &Conn| conn.idle && !conn.told && matches!(conn.state, State::Open);
        // Begin with other peers each time: a socket may stay full.
        schedule.first_told = schedule.first_told.wrapping_add(NOTICES) % schedule.end.max(1);
        let first = schedule.first_told;
        let slots = (first..schedule.end).chain(0..first).filter(|slot| conns.get(*slot).is_some_and(untold));
        for slot in slots.take(NOTICES).collect::<Vec<usize>>() {
            let Some(conn) = conns.get_mut(slot) else { continue };
            let request = (conn.number, conn.side == Side::Initiator);
            // A full socket is tried again; the next probe finds one that is gone.
            if control.give_bitmap(&conn.peer, request, slot, memory.as_fd()).is_ok() {
                conn.told = true;
                schedule.untold -= 1;
            }
        }
    }

    /// The link that a control message is about.
    pub(super) fn link_of(&self, number: u64, theirs: bool, from: &str) -> Option<usize> {
        let side = if theirs { Side::Acceptor } else { Side::Initiator };
        // The message may overtake the answer, which brings the peer's identity: until then the
        // number alone tells the link.
        let asking = |conn: &Conn| !theirs && matches!(conn.state, State::Asking(_));
        let meant = |conn: &Conn| conn.number == number && conn.side == side && (asking(conn) || conn.peer == from);
        self.conns.iter().find(|(_, conn)| meant(conn)).map(|(slot, _)| slot)
    }

    /// A peer offers its bitmap.
    pub(super) fn handle_bitmap(&mut self, offer: &BitmapOffer) {
        let BitmapOffer { from, number, theirs, place, memory } = offer;
        if let Some(slot) = self.link_of(*number, *theirs, from) {
            // Without it the peer polls this link in turn.
            self.conns[slot].bitmap = ReadyBitmap::attach(memory.as_fd()).ok().map(|bitmap| {
                // No bit is set for lines written since the peer sent the offer.
                bitmap.set(*place);
                (bitmap, *place)
            });
        }
    }

    /// A peer got the offer without the bitmap: offers it again.
    pub(super) fn handle_bitmap_lost(&mut self, about: &About) {
        let Some(slot) = self.link_of(about.number, about.theirs, &about.from) else { return };
        let conn = &mut self.conns[slot];
        if core::mem::take(&mut conn.told) && conn.idle {
            self.schedule.untold += 1;
        }
    }

    /// Sets the bits of idle links that became ready during sleep, for the next poll to find.
    pub(super) fn note_own(&self) {
        let Some((bitmap, _)) = &self.schedule.bitmap else { return };
        for (slot, _) in self.conns.iter().filter(|(_, conn)| conn.idle && conn.is_ready()) {
            bitmap.set(slot);
        }
    }
}
