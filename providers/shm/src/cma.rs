//! Cross-memory attach (CMA): a large payload goes straight from the sender's memory to the
//! receiver's, one copy instead of two, where the system allows it and it is faster than the pool.
//! The receiver reads it, or both sides copy a part each (`window.rs`). The sender asks first, by a
//! control message with its process id and the address of a secret; the receiver tries to read the
//! secret and grants or refuses. It reads the secret again with every payload, which proves that
//! the bytes are those of that process.
//!
//! Sizes differ in what is faster: the receiver times the ways for each class of sizes
//! (`chooser.rs`), and the permission says for which classes the sender may lend payloads.
//!
//! Three kinds of payloads can be lent ([`Kind`]); they differ in what happens if one cannot be
//! read after all.

use crate::chooser::{Chooser, Length, Sent, Way};
use crate::window::Share;
use core::ops::Range;
use ofi_core::Instant;
use ofi_engine::transport::{RecvTarget, Token};
use ofi_engine::wire::frame::{Frame, Header, MAX_PAYLOAD, Violation};
use ofi_memory::{Buffer, Chunk, ChunkMut};
use ofi_os::process::{self, Process};
use std::collections::VecDeque;

mod classes;
mod lent_at;
mod mode;
mod outcome;

pub(crate) use classes::Classes;
pub(crate) use lent_at::LentAt;
pub use mode::CmaMode;
pub(crate) use outcome::Outcome;

/// Large payloads after which asking for permission pays, and the pool has had its first turn.
const ASK_AFTER: u32 = 204;
/// The same before asking again after a refusal, the first time and at most; it doubles each time.
const ASK_AGAIN_AFTER: u32 = 4096;
const ASK_AGAIN_AT_MOST: u32 = 1 << 17;
/// The smallest payload that may use cross-memory attach.
const LEAST: usize = 16 << 10;
/// The most payloads that are lent at a time; the next ones go through the pool.
const MOST_LENT: usize = 1024;
/// The most outcomes that may wait for room: more than a peer lends at a time.
const REPLIES: usize = 4 * MOST_LENT;
/// The longest message that is offered, in bytes. A receiver that copies it polls nothing else
/// meanwhile, for some milliseconds; longer messages come in data frames, one at a time.
pub(crate) const MAX_OFFER: usize = 16 << 20;
/// Payloads in a row that the other side could not read, after which no more are lent. A few may
/// have pages that the program has never touched.
const REFUSALS: u32 = 8;

/// Whether the other side may read our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CmaPermission {
    /// No; ask (again) after `more` payloads.
    No { more: u32 },
    /// Asked, not answered yet.
    Requested,
    /// It reads payloads of these classes. If some are missing, ask again after `more` payloads.
    Yes { classes: Classes, more: u32 },
}

/// What kind of payload is lent, and how it comes if it is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message that is offered along with its RTS: in data frames.
    Offer,
    /// One that need not keep its order with other frames: later, through the pool.
    Unordered,
    /// That of an eager message, which must: through the bounce buffer, before all behind it.
    Eager,
    /// One of a one-sided operation, likewise. A program may look at its last word to see whether
    /// it is there.
    Ordered,
}

impl Kind {
    /// The kind of the payload that comes with a frame, if it can be lent.
    pub(crate) fn of(header: &[u8], len: usize) -> Option<Self> {
        match () {
            () if Frame::is_unordered(header, len) => Some(Self::Unordered),
            () if Frame::is_eager(header) => Some(Self::Eager),
            () if Frame::is_access(header) => Some(Self::Ordered),
            () => None,
        }
    }

    /// The same for a sender, which keeps eager messages only if it `may_keep_eager`.
    pub(crate) fn to_lend(header: &[u8], len: usize, may_keep_eager: bool) -> Option<Self> {
        Self::of(header, len).filter(|kind| may_keep_eager || *kind != Self::Eager)
    }

    /// Whether the payload arrives before all that is behind it.
    pub(crate) const fn keeps_order(self) -> bool {
        matches!(self, Self::Eager | Self::Ordered)
    }
}

/// A payload lent to the other side, which reads it.
#[derive(Debug)]
pub(crate) struct CmaLoan {
    number: u32,
    pub(crate) header: Header,
    pub(crate) buffer: Buffer,
    pub(crate) from: usize,
    pub(crate) len: usize,
    pub(crate) token: Token,
    pub(crate) kind: Kind,
    /// The other side has opened a window for it.
    has_window: bool,
    /// The other side reads it once a receive matches it ([`Outcome::Waits`]).
    waits: bool,
}

impl CmaLoan {
    pub(crate) const fn new(
        number: u32,
        header: Header,
        buffer: Buffer,
        (from, len): (usize, usize),
        (token, kind): (Token, Kind),
    ) -> Self {
        Self { number, header, buffer, from, len, token, kind, has_window: false, waits: false }
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// The length that both sides may copy.
    const fn window_len(&self) -> usize {
        match self.kind {
            Kind::Ordered => self.len - LAST_WORD,
            Kind::Offer | Kind::Unordered | Kind::Eager => self.len,
        }
    }
}

/// Bytes at the end of an ordered payload that the receiver writes when all others are in place, as
/// a program may wait for the last word of a write. No window covers them.
pub(crate) const LAST_WORD: usize = size_of::<u64>();

/// The payloads that this side gets out of the other side's memory.
#[derive(Debug, Default)]
struct Reading {
    /// Their classes.
    granted: Classes,
    /// How it gets those of each class, once the first large payload has come.
    choosers: Option<Box<[Chooser; Classes::COUNT]>>,
    /// What this side claims first of payloads that both sides copy.
    shares: [Share; Classes::COUNT],
}

/// Cross-memory attach on a link, in both directions.
#[derive(Debug)]
pub(crate) struct Cma {
    how: CmaMode,
    permission: CmaPermission,
    /// In the order in which the other side will mostly report them.
    lent: VecDeque<CmaLoan>,
    ordered: Ordered,
    next: u32,
    /// How many of them the other side could not read, since it last could.
    refusals: u32,
    comparison: Comparison,
    /// Large payloads after a refusal before this side asks again.
    pause: u32,
    /// The process whose memory may be read.
    peer: Option<Process>,
    reading: Reading,
    due: Due,
}

/// Which payloads this side sends through the pool, for the other side to compare.
#[derive(Debug, Default)]
struct Comparison {
    /// Bytes still to send through the pool before it is compared: at first it is small, and then
    /// its pages are touched for the first time.
    cold: usize,
    /// Whether the kernel copies fast between processes, once that matters.
    is_kernel_fast: Option<bool>,
    /// Large payloads of each class that this side has sent since.
    sent: [Sent; Classes::COUNT],
}

/// The ordered payloads that this side has lent.
#[derive(Debug, Default)]
struct Ordered {
    count: usize,
    /// The last one that the other side has wanted through the bounce buffer.
    wanted: Option<u32>,
}

/// What this side has still to send about payloads.
#[derive(Debug, Default)]
struct Due {
    /// Outcomes.
    outcomes: usize,
    /// The answer to the other side's last question.
    answer: bool,
}

impl Default for Cma {
    fn default() -> Self {
        Self {
            how: CmaMode::Never,
            permission: CmaPermission::No { more: ASK_AFTER },
            lent: VecDeque::new(),
            ordered: Ordered::default(),
            next: 0,
            refusals: 0,
            comparison: Comparison::default(),
            pause: ASK_AGAIN_AFTER,
            peer: None,
            reading: Reading::default(),
            due: Due::default(),
        }
    }
}

impl Cma {
    /// `pool`: the size of a pool in bytes.
    pub(crate) fn new(how: CmaMode, pool: usize) -> Self {
        let (cold, more) = match how {
            CmaMode::IfAllowed | CmaMode::Read | CmaMode::Both => (0, 1),
            _ => (2 * pool, ASK_AFTER),
        };
        Self {
            how,
            permission: CmaPermission::No { more },
            comparison: Comparison { cold, ..Comparison::default() },
            ..Self::default()
        }
    }

    /// Counts a large payload that is about to be sent. True if it is time to ask for permission.
    pub(crate) fn is_time_to_ask(&mut self, len: usize) -> bool {
        if !self.how.is_allowed() {
            return false;
        }
        let is_first = self.pause == ASK_AGAIN_AFTER;
        if self.how == CmaMode::IfFaster && (Length::MIDDLE..Length::LONG).contains(&len) {
            self.comparison.is_kernel_fast.get_or_insert_with(process::copies_fast);
        }
        // Those that begin with the direct ways need it at once.
        if self.length_of(len) != Length::Short && is_first && matches!(self.permission, CmaPermission::No { .. }) {
            return true;
        }
        if self.comparison.cold > 0 && self.is_pools_turn(len) {
            self.comparison.cold = self.comparison.cold.saturating_sub(len);
            return false;
        }
        let length = self.length_of(len);
        self.comparison.sent[Classes::index(len)].add(length);
        match &mut self.permission {
            CmaPermission::Requested => false,
            CmaPermission::Yes { classes, .. } if *classes == Classes::ALL => false,
            CmaPermission::No { more } | CmaPermission::Yes { more, .. } => {
                *more = more.saturating_sub(1);
                *more == 0
            }
        }
    }

    /// Whether the other side may read large payloads of this length. The first ones of a class go
    /// through the pool, for the other side to compare.
    #[inline]
    pub(crate) fn lends(&self, len: usize) -> bool {
        self.is_permitted(len) && !self.is_for_pool(len)
    }

    #[inline]
    fn is_permitted(&self, len: usize) -> bool {
        match self.permission {
            CmaPermission::Yes { classes, .. } => classes.has(len) && self.lent.len() < MOST_LENT,
            CmaPermission::No { .. } | CmaPermission::Requested => false,
        }
    }

    /// Whether the payload of this length that has just been counted is to go through the pool.
    #[inline]
    pub(crate) fn is_for_pool(&self, len: usize) -> bool {
        self.how == CmaMode::IfFaster && self.is_pools_turn(len)
    }

    /// Whether a payload of this length is to go through the pool, for the other side to compare.
    /// Not one that would have to be cut into several frames: they wait for the other side
    /// together, and then follow each other fast, whatever the message took.
    fn is_pools_turn(&self, len: usize) -> bool {
        len <= MAX_PAYLOAD && self.comparison.sent[Classes::index(len)].is_for_pool(self.length_of(len))
    }

    fn length_of(&self, len: usize) -> Length {
        Length::of(len, self.comparison.is_kernel_fast == Some(true))
    }

    /// Permission has been asked for.
    pub(crate) const fn asked(&mut self) {
        self.permission = CmaPermission::Requested;
        self.refusals = 0;
    }

    /// Takes the other side's answer. False if this side has not asked.
    pub(crate) fn answered(&mut self, classes: Classes) -> bool {
        let is_expected = self.permission == CmaPermission::Requested;
        if is_expected {
            self.permit(classes);
        }
        is_expected
    }

    /// The other side reads payloads of these classes at most. It may say so at any time: a
    /// question may be on its way, or the permission gone already.
    pub(crate) fn restricted(&mut self, classes: Classes) {
        if let CmaPermission::Yes { classes: before, .. } = self.permission {
            self.permit(before.and(classes));
        }
    }

    /// Sets the permission. This side asks for what is missing after a pause, which doubles.
    fn permit(&mut self, classes: Classes) {
        let was_all =
            matches!(self.permission, CmaPermission::Requested | CmaPermission::Yes { classes: Classes::ALL, .. });
        let more = match self.permission {
            // A pause that is running goes on.
            CmaPermission::Yes { more, .. } if !was_all => more,
            _ => self.pause,
        };
        if was_all && classes != Classes::ALL {
            self.pause = (2 * self.pause).min(ASK_AGAIN_AT_MOST);
        }
        self.permission =
            if classes.is_none() { CmaPermission::No { more } } else { CmaPermission::Yes { classes, more } };
    }

    /// The address of a part of `len` bytes of a contiguous buffer, if the other side may read it.
    pub(crate) fn place_of(&self, buffer: &Buffer, from: usize, len: usize) -> Option<u64> {
        if self.lends(len) { self.place_if_permitted(buffer, from, len) } else { None }
    }

    /// The same of a payload that need not go through the pool.
    pub(crate) fn place_if_permitted(&self, buffer: &Buffer, from: usize, len: usize) -> Option<u64> {
        (self.is_permitted(len) && buffer.is_one_piece()).then(|| (buffer.address() + from) as u64)
    }

    /// Lends a payload to the other side, under the number that [`Self::next_number`] returns.
    pub(crate) fn lend(&mut self, loan: CmaLoan) {
        self.next = loan.number;
        self.ordered.count += usize::from(loan.kind.keeps_order());
        self.lent.push_back(loan);
    }

    /// The number of the next loan, under which the other side reports the outcome.
    pub(crate) fn next_number(&self) -> u32 {
        let mut next = self.next.wrapping_add(1);
        // Numbers wrap, and an offer may wait for as long as that takes: then the oldest loan is
        // one.
        if self.lent.front().is_some_and(|oldest| oldest.waits) {
            while self.lent.iter().any(|loan| loan.number == next) {
                next = next.wrapping_add(1);
            }
        }
        next
    }

    /// Ends the loan of that number, unless `can_end` refuses it.
    pub(crate) fn take_back(&mut self, number: u64, can_end: impl FnOnce(&CmaLoan) -> bool) -> Option<CmaLoan> {
        let at = self.lent.iter().position(|lent| u64::from(lent.number) == number)?;
        let loan = can_end(&self.lent[at]).then(|| self.lent.remove(at))??;
        self.ordered.count -= usize::from(loan.kind.keeps_order());
        Some(loan)
    }

    /// Ends the loan of an ordered payload that is wanted through the bounce buffer.
    pub(crate) fn take_wanted(&mut self, number: u64) -> Option<CmaLoan> {
        let loan = self.take_back(number, |loan| loan.kind.keeps_order())?;
        self.ordered.wanted = Some(loan.number);
        Some(loan)
    }

    /// Whether the other side may still want a payload through the bounce buffer.
    #[inline(always)]
    pub(crate) const fn has_lent_ordered(&self) -> bool {
        self.ordered.count > 0
    }

    /// The other side has no receive yet for the offer of that number. False if it said so before,
    /// or nothing of the kind is lent.
    pub(crate) fn waits(&mut self, number: u64) -> bool {
        let loan = self.lent.iter_mut().find(|loan| u64::from(loan.number) == number && loan.kind == Kind::Offer);
        loan.is_some_and(|loan| !core::mem::replace(&mut loan.waits, true))
    }

    /// Whether the other side is to read a payload before the link ends in order. Not those that
    /// wait for its program: as with any rendezvous, the end of the link is their end.
    pub(crate) fn has_lent(&self) -> bool {
        self.lent.iter().any(|loan| !loan.waits)
    }

    /// Counts an outcome to send. False if the other side leaves too many unread.
    pub(crate) const fn reply(&mut self) -> bool {
        self.due.outcomes += 1;
        self.due.outcomes <= REPLIES
    }

    /// An outcome has been sent.
    pub(crate) const fn replied(&mut self) {
        self.due.outcomes -= 1;
    }

    /// The answer to the other side's offer has been sent.
    pub(crate) const fn has_answered(&mut self) {
        self.due.answer = false;
    }

    /// Ends all loans.
    pub(crate) fn take_all_back(&mut self) -> impl Iterator<Item = CmaLoan> {
        self.ordered.count = 0;
        self.lent.drain(..)
    }

    /// The other side has read a payload.
    pub(crate) const fn was_read(&mut self) {
        self.refusals = 0;
    }

    /// The other side could not read a payload. After some in a row all take the pool, and this
    /// side asks again later.
    pub(crate) fn refused(&mut self) {
        self.refusals += 1;
        if self.refusals >= REFUSALS && matches!(self.permission, CmaPermission::Yes { .. }) {
            self.permit(Classes::default());
        }
    }

    /// Tests whether this side can read the memory of a process: its secret must be at `at`.
    /// Returns the answer to send, or `None` if the previous one still waits.
    pub(crate) fn try_process(&mut self, pid: i32, at: usize, secret: [u8; 16]) -> Option<Classes> {
        if core::mem::replace(&mut self.due.answer, true) {
            // The peer asks again without having made room for the last answer.
            return None;
        }
        let found = if !self.how.is_allowed() { None } else { Process::find(pid, at, secret) };
        self.reading.choosers.iter_mut().flat_map(|choosers| choosers.iter_mut()).for_each(Chooser::try_again);
        self.reading.granted = if found.is_some() { Classes::ALL } else { Classes::default() };
        if found.is_some() {
            // If it failed, earlier payloads may still lie in the memory of the process found
            // before.
            self.peer = found;
        }
        Some(self.reading.granted)
    }

    /// The process whose memory may be read.
    pub(crate) const fn peer(&self) -> Option<&Process> {
        self.peer.as_ref()
    }

    /// Whether the other side has permission, but has not been asked for its own.
    pub(crate) fn asks_back(&self) -> bool {
        !self.reading.granted.is_none() && matches!(self.permission, CmaPermission::No { .. }) && self.how.is_allowed()
    }

    /// Reads alone from now on: the other side did not report what it wrote.
    pub(crate) fn read_alone(&mut self) {
        if self.how.is_allowed() {
            self.how = CmaMode::Read;
        }
    }

    /// Whether both sides are to copy a payload of that length, which the other side has lent: it
    /// can write to this side's memory, as this side has permission to read its own.
    pub(crate) fn shares(&self, len: usize) -> bool {
        matches!(self.permission, CmaPermission::Yes { .. })
            && match self.how {
                CmaMode::Never | CmaMode::Close | CmaMode::Behind | CmaMode::Vector | CmaMode::Read => false,
                CmaMode::Both => true,
                CmaMode::IfFaster | CmaMode::IfAllowed => {
                    let chooser = self.reading.choosers.as_ref().map(|choosers| &choosers[Classes::index(len)]);
                    chooser.is_none_or(|chooser| chooser.next_lent() == Way::Both)
                }
            }
    }

    /// The part of a payload of `len` bytes that this side claims first.
    pub(crate) fn share_of(&self, len: usize) -> Share {
        self.reading.shares[Classes::index(len)]
    }

    /// The sender has claimed a part of such a payload; `waits`: this side waits for it.
    pub(crate) fn adapt_share(&mut self, len: usize, waits: bool) {
        self.reading.shares[Classes::index(len)].adapt(len, waits);
    }

    /// The other side opens a window for `len` bytes of a payload: the payload's loan.
    ///
    /// # Errors
    /// A violation if nothing of the kind is lent, or the payload has had its window. A window may
    /// come late for a payload that went through the bounce buffer, as the request for that is no
    /// line.
    pub(crate) fn window_of(&mut self, number: u64, len: usize) -> Result<Option<(&CmaLoan, &Process)>, Violation> {
        let loan = self.lent.iter_mut().find(|lent| u64::from(lent.number) == number);
        let Some(loan) = loan.filter(|loan| loan.window_len() == len) else {
            // Numbers wrap.
            let is_before = |(number, last): (u32, u32)| last.wrapping_sub(number) <= u32::MAX / 2;
            let may_be_late = u32::try_from(number).ok().zip(self.ordered.wanted).is_some_and(is_before);
            return if may_be_late { Ok(None) } else { Err(Violation("a window for a payload that was not offered")) };
        };
        if core::mem::replace(&mut loan.has_window, true) {
            return Err(Violation("a second window for a payload"));
        }
        Ok(self.peer.as_ref().map(|process| (&*loan, process)))
    }

    /// Takes note of when a large payload arrived, and how. If the pool is faster for its class,
    /// returns the classes that this side still reads.
    pub(crate) fn note(&mut self, way: Way, now: impl Fn() -> Instant, len: usize) -> Option<Classes> {
        let is_pool_faster = self.chooser(len).note(way, now, len);
        if !is_pool_faster || self.how != CmaMode::IfFaster || !self.reading.granted.has(len) {
            return None;
        }
        self.reading.granted = Classes(self.reading.granted.0 & !(1 << Classes::index(len)));
        Some(self.reading.granted)
    }

    /// The way that a large payload takes through the pool, from which it arrives now.
    pub(crate) fn next_pooled(&mut self, len: usize) -> Way {
        match self.how {
            CmaMode::Close => Way::Pool,
            CmaMode::Behind => Way::Behind,
            CmaMode::Vector => Way::Vector,
            _ => self.chooser(len).next_pooled(),
        }
    }

    /// The receiver stayed behind for such a payload: whether anything follows it.
    pub(crate) fn note_burst(&mut self, len: usize, goes_on: bool) {
        self.chooser(len).note_burst(goes_on);
    }

    fn chooser(&mut self, len: usize) -> &mut Chooser {
        let new = || Box::new(core::array::from_fn(|class| Chooser::new(LEAST << class)));
        &mut self.reading.choosers.get_or_insert_with(new)[Classes::index(len)]
    }

    /// A payload of that length comes through the bounce buffer, or later: the time since the one
    /// before tells nothing of a way.
    pub(crate) fn interrupt(&mut self, len: usize) {
        let class = Classes::index(len);
        self.reading.choosers.iter_mut().for_each(|choosers| choosers[class].interrupt());
    }
}

/// Whether a payload of `len` bytes is timed, and may use cross-memory attach if it waits for the
/// one before.
#[inline(always)]
pub(crate) const fn is_large(len: usize) -> bool {
    len >= LEAST
}

/// Reads a part of a payload at `from`, whose pages are there, and `last`, the word at another
/// offset. False if the memory cannot be read.
pub(crate) fn read_part(
    process: &Process,
    (from, lent): (usize, LentAt),
    target: &mut RecvTarget,
    part: Range<usize>,
    last: Option<(usize, &mut [u8; LAST_WORD])>,
) -> bool {
    let mut pieces = arrayvec::ArrayVec::<ChunkMut<'_>, { Process::PIECES }>::new();
    let mut fits = true;
    target.buffer.for_each_mut(target.at + part.start, part.len(), |piece| fits &= pieces.try_push(piece).is_ok());
    let mut ranges = [(from + part.start, part.len()), (0, 0)];
    if let Some((at, word)) = last {
        ranges[1] = (from + at, word.len());
        fits &= pieces.try_push(ChunkMut::of(word)).is_ok();
    }
    fits && process.read_ranges(&ranges, &mut pieces, Some(lent.age(ofi_os::clock::now())))
}

/// Writes a part of a lent payload to the other side's memory, whose pages are there.
pub(crate) fn write_part(process: &Process, to: usize, loan: &CmaLoan, part: Range<usize>) -> bool {
    let mut pieces = arrayvec::ArrayVec::<Chunk<'_>, { Process::PIECES }>::new();
    let mut fits = true;
    loan.buffer.for_each(loan.from + part.start, part.len(), |piece| fits &= pieces.try_push(piece).is_ok());
    fits && process.write(to + part.start, &pieces)
}

#[cfg(test)]
mod tests;
