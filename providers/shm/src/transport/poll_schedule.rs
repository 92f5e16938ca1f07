//! Which links are looked at when: a few busy ones in every poll; of the others those that peers note on this endpoint's
//! bitmap, and at times one more, since a note may be missing that was owed while the link became one of them.
//! Invariant: `order[conn.rank]` is the link, and those from [`PollSchedule::busy`] on, and only those, are idle.

use super::ShmTransport;
use crate::cma::Cma;
use crate::conn::{Conn, State};
use crate::control::{About, BitmapOffer};
use crate::region::{ReadyBitmap, Side};
use ofi_engine::transport::LinkEvents;
use ofi_os::descriptor::PrivateFd;
use std::os::fd::AsFd;

/// So many links are all looked at in every poll.
pub(super) const FEW: usize = 8;
/// Links that are where there are more.
const BUSY: usize = 4;
/// Others that are looked at in a poll while some of them have not been told of the bitmap.
const OTHERS: usize = 64;
/// Times that something must come on one of the others before it is a busy one.
const CALLS: u32 = 32;
/// Polls between looks at one that nobody ready.
const UNNOTED_EVERY: u32 = 8;
/// Peers that are told of the bitmap at a time.
const NOTICES: usize = 32;

/// The order of the links.
#[derive(Debug, Default)]
pub(super) struct PollSchedule {
    /// All links: the busy ones first, the latest first among them.
    pub(super) order: Vec<usize>,
    /// The next of the others to look at.
    next: usize,
    bitmap: Option<(ReadyBitmap, PrivateFd)>,
    /// Cold links whose other side has not been told of the bitmap.
    untold: usize,
    /// Links have smaller numbers.
    end: usize,
    ready: Vec<usize>,
    /// Whose turn it is to be told of the bitmap.
    first_told: usize,
    polls: u32,
}

impl PollSchedule {
    /// How many links are looked at in every poll.
    #[inline(always)]
    pub(super) const fn busy(&self) -> usize {
        if self.order.len() <= FEW { FEW } else { BUSY }
    }

    /// Whether one of the others is to be looked at in this poll.
    #[inline(always)]
    pub(super) fn is_others_turn(&mut self) -> bool {
        if self.order.len() <= FEW {
            return false;
        }
        self.next_poll();
        let ready = || self.bitmap.as_ref().is_some_and(|(bitmap, _)| bitmap.any_set(self.end));
        self.untold > 0 || self.is_unnoted_turn() || ready()
    }

    /// Another poll begins.
    pub(super) const fn next_poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
    }

    const fn is_unnoted_turn(&self) -> bool {
        self.polls.is_multiple_of(UNNOTED_EVERY)
    }
}

impl ShmTransport {
    pub(super) fn insert(&mut self, mut conn: Conn) -> usize {
        conn.cma = Cma::new(self.settings.cma);
        let slot = self.conns.insert(conn);
        let rank = self.schedule.order.len();
        self.schedule.order.push(slot);
        self.schedule.end = self.schedule.end.max(slot + 1);
        if rank == FEW {
            // Now they are many.
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

    /// Somebody sleeps already: the other side of a new link is to know, and what it said before it knew is to be found.
    #[cold]
    fn announce_new(&mut self, slot: usize) {
        self.conns[slot].announce_sleep();
        self.order();
        if self.conns[slot].has_news() {
            // Whoever cannot be woken is not asleep.
            drop(self.control.wake(&self.control.identity().name()));
        }
    }

    /// Takes a link out of the order that is out of the table.
    pub(super) fn forget(&mut self, conn: &Conn) {
        self.schedule.untold -= usize::from(conn.idle && !conn.told);
        let last = self.schedule.order.len() - 1;
        self.schedule.order.swap(conn.rank, last);
        self.schedule.order.pop();
        if conn.rank < last {
            self.put(conn.rank);
        }
        if last == FEW {
            // Now they are few.
            (BUSY..FEW).for_each(|rank| self.put(rank));
        }
    }

    /// What stands at that place of the order now is told so.
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
            // It came before anybody was asked to note it.
            bitmap.set(schedule.order[rank]);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.schedule.order.swap(a, b);
        self.put(a);
        self.put(b);
    }

    /// A busy link had something: it is looked at earlier from now on.
    pub(super) fn promote(&mut self, slot: usize) {
        let rank = self.conns[slot].rank;
        if rank > 0 {
            self.swap(rank, rank - 1);
        }
    }

    /// Reads one of the others, which may become a busy one by it.
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

    /// Reads the links that are ready on the bitmap, and some of the others that are not busy.
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
        let count = if self.schedule.untold > 0 { OTHERS } else { usize::from(self.schedule.is_unnoted_turn()) };
        for _ in 0..count.min(self.schedule.order.len().saturating_sub(self.schedule.busy())) {
            let PollSchedule { order, next, .. } = &mut self.schedule;
            *next = if *next + 1 >= order.len() || *next < BUSY { BUSY } else { *next + 1 };
            let Some(&slot) = order.get(*next) else { break };
            any |= self.read_other(slot, events);
        }
        any
    }

    /// Tells peers of the bitmap whose links are not looked at in every poll.
    pub(super) fn tell_bitmap(&mut self) {
        if self.schedule.untold == 0 {
            return;
        }
        let Self { conns, schedule, control, .. } = self;
        if schedule.bitmap.is_none() {
            // Without one the links are looked at in turn.
            schedule.bitmap = ReadyBitmap::create().ok();
        }
        let Some((_, memory)) = &schedule.bitmap else { return };
        let untold = |conn: &Conn| conn.idle && !conn.told && matches!(conn.state, State::Open);
        // Each time others come first: a socket may stay full.
        schedule.first_told = schedule.first_told.wrapping_add(NOTICES) % schedule.end.max(1);
        let first = schedule.first_told;
        let slots = (first..schedule.end).chain(0..first).filter(|slot| conns.get(*slot).is_some_and(untold));
        for slot in slots.take(NOTICES).collect::<Vec<usize>>() {
            let Some(conn) = conns.get_mut(slot) else { continue };
            let request = (conn.number, conn.side == Side::Initiator);
            // A socket that is full is tried again, one that is no more the next probe finds out.
            if control.give_bitmap(&conn.peer, request, slot, memory.as_fd()).is_ok() {
                conn.told = true;
                schedule.untold -= 1;
            }
        }
    }

    /// The link that a message is about.
    pub(super) fn link_of(&self, number: u64, theirs: bool, from: &str) -> Option<usize> {
        let side = if theirs { Side::Acceptor } else { Side::Initiator };
        // Until the answer has been read, the number alone tells who was asked: its message may be faster.
        let asking = |conn: &Conn| !theirs && matches!(conn.state, State::Asking(_));
        let meant = |conn: &Conn| conn.number == number && conn.side == side && (asking(conn) || conn.peer == from);
        self.conns.iter().find(|(_, conn)| meant(conn)).map(|(slot, _)| slot)
    }

    /// A peer has a bitmap of its own.
    pub(super) fn handle_bitmap(&mut self, offer: &BitmapOffer) {
        let BitmapOffer { from, number, theirs, place, memory } = offer;
        if let Some(slot) = self.link_of(*number, *theirs, from) {
            // Without it the other side looks at this link in turn.
            self.conns[slot].bitmap = ReadyBitmap::attach(memory.as_fd()).ok().map(|bitmap| {
                // What was sent since the message was is not ready anywhere.
                bitmap.set(*place);
                (bitmap, *place)
            });
        }
    }

    /// A peer has not got the bitmap: it is told again.
    pub(super) fn handle_board_lost(&mut self, about: &About) {
        let Some(slot) = self.link_of(about.number, about.theirs, &about.from) else { return };
        let conn = &mut self.conns[slot];
        if core::mem::take(&mut conn.told) && conn.idle {
            self.schedule.untold += 1;
        }
    }

    /// Nobody sleeps any more: what came to links that are not busy is found by the next poll.
    pub(super) fn note_own(&self) {
        let Some((bitmap, _)) = &self.schedule.bitmap else { return };
        for (slot, _) in self.conns.iter().filter(|(_, conn)| conn.idle && conn.is_ready()) {
            bitmap.set(slot);
        }
    }
}
