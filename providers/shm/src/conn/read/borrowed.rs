//! The payloads that are on their way out of the sender's memory, in the order of their lines. This
//! side copies them, alone or together with the sender. Of short messages that wait, it opens the
//! windows of the next ones and claims its parts before it copies its part of the first: so neither
//! side waits for the other between two of them.

use super::{BYTES, Place, Receiver};
use crate::chooser::Way;
use crate::cma::{self, Kind, LentAt};
use crate::conn::line::{KIND_OFFER, header_of, unplace};
use crate::conn::{Conn, ReadError};
use crate::window::{OpenWindow, SHORT, WINDOWS, Words};
use core::ops::Range;
use ofi_engine::transport::{LinkEvents, LinkId, RecvTarget};
use ofi_engine::wire::frame::HEADER_WORDS;
use ofi_os::process::Process;
use std::time::Duration;

/// How long a link that ends waits for the last parts of a sender that lives. A part takes
/// microseconds, or until a sender that does not run has the core again. One that is stopped may
/// write afterwards, as one that may write to this process's memory could do anyway. After one that
/// was late the transport opens no more windows, so that a hostile peer cannot hold it up again.
const LAST_PART: Duration = Duration::from_secs(5);

/// Looks at a sender that is writing its last part, before the caller does something else.
const SPINS: u32 = 50;
/// Looks for a sender that may be about to come, before this side claims the rest of a payload. If
/// it did so at once, the two sides would copy other parts of a buffer each time, and the lines of
/// the buffer would move between their caches.
const PATIENCE: u32 = 25;

/// A payload that is on its way.
#[derive(Debug)]
pub(super) struct Borrowed {
    pub(super) place: Place,
    pub(super) target: RecvTarget,
    pub(super) kind: Kind,
    /// The sender copies a part of it; `None`: this side reads it alone.
    window: Option<OpenWindow>,
    /// This side looks for the sender before it claims the rest.
    is_patient: bool,
    /// This side had nothing to do but wait for the sender's part.
    has_waited: bool,
    own: Own,
    last: Last,
}

/// The last word of a payload.
#[derive(Debug)]
enum Last {
    /// It comes with the others.
    Alike,
    /// It is written when all others are in place ([`cma::LAST_WORD`]).
    Unread,
    /// This side has read it.
    Read([u8; cma::LAST_WORD]),
}

impl Last {
    /// The length in front of it of a payload of `len` bytes.
    const fn body_of(&self, len: usize) -> usize {
        match self {
            Self::Alike => len,
            Self::Unread | Self::Read(_) => len - cma::LAST_WORD,
        }
    }

    /// Reads a part of a payload of `len` bytes, whose pages are there, and with it the last word,
    /// unless that has been read.
    fn read_with(
        &mut self,
        process: &Process,
        Place { from, lent, len, .. }: Place,
        target: &mut RecvTarget,
        part: Range<usize>,
    ) -> bool {
        let mut word = [0; cma::LAST_WORD];
        let is_missing = matches!(self, Self::Unread);
        let last = is_missing.then(|| (self.body_of(len), &mut word));
        let is_read = cma::read_part(process, (from, lent), target, part, last);
        if is_read && is_missing {
            *self = Self::Read(word);
        }
        is_read
    }
}

/// How far this side is with its part of a payload.
#[derive(Debug)]
enum Own {
    /// It may claim of what is left: of all that comes without a window.
    Open,
    /// It has claimed that, and not copied it yet.
    Claimed(Range<usize>),
    /// It has copied what it has claimed, and nothing is left.
    Copied,
    /// It could not read what it has claimed.
    Failed,
    /// The payload comes through the bounce buffer instead; that many bytes have.
    Bounced(usize),
}

impl Own {
    /// After a claim, which finds nothing once both sides have claimed all.
    fn of(claim: Option<Range<usize>>) -> Self {
        claim.map_or(Self::Copied, Self::Claimed)
    }

    const fn has_ended(&self) -> bool {
        matches!(self, Self::Copied | Self::Failed)
    }

    /// Whether this side may copy, without waiting for the sender.
    const fn can_copy(&self) -> bool {
        matches!(self, Self::Open | Self::Claimed(_))
    }
}

impl Borrowed {
    /// The way that it comes.
    pub(super) const fn way(&self) -> Way {
        if self.window.is_some() { Way::Both } else { Way::Read }
    }

    /// The number of its window.
    fn window_number(&self) -> Option<u32> {
        self.window.as_ref().map(OpenWindow::number)
    }

    /// Reads the rest of the payload that is missing in front of its last word, and that. False if
    /// the memory cannot be read.
    fn read_rest(&mut self, process: Option<&Process>, rest: Range<usize>) -> bool {
        let Self { place, target, last, .. } = self;
        if rest.is_empty() && !matches!(last, Last::Unread) {
            return true;
        }
        let can_read = |process: &&Process| process.is_present(place.from + rest.start, place.len - rest.start);
        process.filter(can_read).is_some_and(|process| last.read_with(process, *place, target, rest))
    }

    /// Writes the last word, if it has been read apart.
    fn write_last(&mut self) {
        let Self { place, target, last, .. } = self;
        if let Last::Read(word) = &*last {
            target.buffer.write_at(target.at + last.body_of(place.len), word);
        }
    }

    /// Whether this side waits for the sender, which is writing its part: it comes for the payloads
    /// behind this one next.
    fn is_written<'a>(&self, words: impl FnOnce(u32) -> Words<'a>) -> bool {
        matches!(self.own, Own::Copied) && self.outcome(words).is_none()
    }

    /// Once both sides have ended their parts: whether the whole is there.
    fn outcome<'a>(&self, words: impl FnOnce(u32) -> Words<'a>) -> Option<Result<(), Missing>> {
        if !self.own.has_ended() {
            return None;
        }
        let sender = match &self.window {
            // Also if this side has failed: the sender may still be writing.
            Some(window) if window.outcome(words(window.number()))? => Ok(()),
            Some(window) => Err(Missing::FromSender(window.sender_from())),
            None => Ok(()),
        };
        Some(if matches!(self.own, Own::Failed) { Err(Missing::Own) } else { sender })
    }
}

/// What could not be copied of a payload.
#[derive(Clone, Copy, Debug)]
enum Missing {
    /// What this side has claimed.
    Own,
    /// The sender's part, which begins there.
    FromSender(usize),
}

impl Receiver {
    /// Whether this side can copy a part of the payloads that are arriving, or end the first: there
    /// are some.
    #[cold]
    pub(super) fn can_bring<'a>(&self, words: impl Fn(u32) -> Words<'a>) -> bool {
        let can_end = self.borrowed.front().is_some_and(|first| first.outcome(&words).is_some());
        let is_bounced = |payload: &Borrowed| matches!(payload.own, Own::Bounced(_));
        let has_piece = || self.borrowed.front().is_some_and(is_bounced) && self.bounce.next().is_some();
        can_end || self.next_to_copy(&words, true).is_some() || has_piece()
    }

    /// The payload whose part this side copies next. It leaves the rest of one to the sender until
    /// it has `waited` for it, and as long as the sender is writing one before.
    fn next_to_copy<'a>(&self, words: impl Fn(u32) -> Words<'a>, waited: bool) -> Option<usize> {
        // What is claimed first: meanwhile the sender comes for the rest.
        let claimed = self.borrowed.iter().position(|payload| matches!(payload.own, Own::Claimed(_)));
        claimed.or_else(|| {
            let mut is_near = !waited;
            self.borrowed.iter().position(|payload| {
                let is_taken = |window: &OpenWindow| window.is_taken(words(window.number()));
                let is_left = is_near && payload.is_patient;
                is_near |= payload.is_written(&words);
                payload.own.can_copy() && (!is_left || payload.window.as_ref().is_none_or(is_taken))
            })
        })
    }

    /// The targets of all payloads, once the sender writes to none of them any more: it has
    /// reported its parts, or its process is dead. Also after [`LAST_PART`], for all of them
    /// together; then true. The link is at its end.
    pub(in crate::conn) fn take_borrowed<'a>(
        &mut self,
        words: impl Fn(u32) -> Words<'a>,
        is_dead: impl Fn() -> bool,
    ) -> (Vec<RecvTarget>, bool) {
        // All of them before the first wait, in which the sender may come for the next one.
        for window in self.borrowed.iter_mut().filter_map(|payload| payload.window.as_mut()) {
            window.close(words(window.number()));
        }
        let start = ofi_os::clock::now();
        let mut was_late = false;
        for window in self.borrowed.iter().filter_map(|payload| payload.window.as_ref()) {
            while window.outcome(words(window.number())).is_none() && !was_late && !is_dead() {
                was_late = ofi_os::clock::now().since(start) >= LAST_PART;
                std::thread::yield_now();
            }
        }
        let borrowed = self.borrowed.drain(..).map(|payload| payload.target);
        (borrowed.chain(self.matched.drain(..).map(|(_, target)| target)).collect(), was_late)
    }

    /// Whether no payload that is arriving uses the words of the window for that number. They are
    /// free for another number once both sides have ended their parts of the one before.
    fn has_window_for(&self, number: u32) -> bool {
        let same = |used: u32| used % WINDOWS == number % WINDOWS;
        !self.borrowed.iter().filter_map(Borrowed::window_number).any(same)
    }
}

impl Conn {
    /// Takes on a payload of `len` bytes at `from` of the sender's memory. If both sides are to
    /// copy it, opens a window for it.
    pub(super) fn expect(&mut self, place: Place, target: RecvTarget, kind: Kind) {
        let Place { number, from, len, .. } = place;
        let is_possible = from.checked_add(len).is_some() && target.take == len && target.buffer.is_one_piece();
        let last = if kind == Kind::Ordered && target.take == len { Last::Unread } else { Last::Alike };
        let shares = is_possible
            && self.cma.shares(len)
            && self.receiver.has_window_for(number)
            && self.presence.is_attentive()
            && self.sender.has_room_for_line();
        // If others are arriving, the sender comes for them first.
        let is_behind = !self.receiver.borrowed.is_empty();
        let is_patient = len <= SHORT && (is_behind || !self.receiver.is_sender_away);
        let (window, has_waited, own) = (None, false, Own::Open);
        let mut payload = Borrowed { place, target, kind, window, is_patient, has_waited, own, last };
        if shares {
            let (words, body) = (self.presence.own_window(number), payload.last.body_of(len));
            let (window, part) = OpenWindow::open(words, number, body, self.cma.share_of(len));
            self.sender.tell_window(number, payload.target.buffer.address() + payload.target.at, body);
            self.presence.hint();
            (payload.window, payload.own) = (Some(window), Own::Claimed(part));
        }
        self.receiver.borrowed.push_back(payload);
    }

    /// Copies this side's parts of the payloads that are arriving, and of the offers behind them.
    /// Returns the bytes that have arrived, and whether there was something to do: the payloads
    /// that are left wait for the sender, or for other links to have their turn.
    #[inline(never)]
    pub(super) fn bring(&mut self, link: LinkId, events: &mut impl LinkEvents) -> Result<(usize, bool), ReadError> {
        let (mut bytes, mut any, mut spins, mut waits) = (0, false, 0, 0);
        while !self.receiver.borrowed.is_empty() && bytes < BYTES {
            self.look_ahead(link, events)?;
            let piece = self.take_bounced(link, events)?;
            let copied = self.copy_part(waits >= PATIENCE)?;
            let ended = self.end_first(link, events)?;
            bytes += piece.or(ended).unwrap_or(0);
            if copied || piece.or(ended).is_some() {
                (any, spins, waits) = (true, 0, 0);
                continue;
            }
            if let Some(first) = self.receiver.borrowed.front_mut() {
                first.has_waited = true;
            }
            if spins == SPINS {
                break;
            }
            spins += 1;
            let words = |number| self.presence.own_window(number);
            let is_written = |first: &Borrowed| first.is_written(words);
            waits = if self.receiver.borrowed.front().is_some_and(is_written) { 0 } else { waits + 1 };
            core::hint::spin_loop();
        }
        Ok((bytes, any))
    }

    /// Opens windows for the offers behind offers that have some. An offer that is declined is the
    /// last one for now, so that a peer cannot keep this side here with others.
    fn look_ahead(&mut self, link: LinkId, events: &mut impl LinkEvents) -> Result<(), ReadError> {
        loop {
            let Receiver { borrowed, reader, .. } = &self.receiver;
            let is_alike = |payload: &Borrowed| {
                payload.kind == Kind::Offer && payload.window.is_some() && payload.place.len <= SHORT
            };
            let count = borrowed.len();
            let Some(word) = reader.head().filter(|_| count < WINDOWS as usize && borrowed.iter().all(is_alike)) else {
                return Ok(());
            };
            let (body, (_, len)) = (reader.front(), unplace(word));
            let (number, _) = LentAt::unpack(body[HEADER_WORDS + 1]);
            if word >> 40 != KIND_OFFER || len > SHORT || !self.receiver.has_window_for(number) {
                return Ok(());
            }
            self.read_offer(link, header_of(word), len, &body, events)?;
            if self.receiver.borrowed.len() == count {
                return Ok(());
            }
        }
    }

    /// Copies the next part that this side has claimed, or claims one of what is left of a payload:
    /// of one that it leaves to the sender, only once it has `waited`. False if there is nothing to
    /// copy.
    fn copy_part(&mut self, waited: bool) -> Result<bool, ReadError> {
        let Some(process) = self.cma.peer() else { return Ok(false) };
        let at = self.receiver.next_to_copy(|number| self.presence.own_window(number), waited);
        let Some(payload) = at.and_then(|at| self.receiver.borrowed.get_mut(at)) else { return Ok(false) };
        let Borrowed { place, target, last, .. } = payload;
        let Some(window) = &mut payload.window else {
            let all = 0..last.body_of(target.take);
            let is_read = process.is_present(place.from, target.take) && last.read_with(process, *place, target, all);
            payload.own = if is_read { Own::Copied } else { Own::Failed };
            return Ok(true);
        };
        let words = self.presence.own_window(window.number());
        if matches!(payload.own, Own::Open) {
            // This side has waited once for this one.
            payload.is_patient = false;
            payload.own = Own::of(window.claim(words)?);
        }
        let Own::Claimed(part) = &payload.own else { return Ok(true) };
        // With its first part this side looks at the whole payload: the process remembers equal
        // ranges, and the parts differ from one payload to the next.
        let is_present = part.start > 0 || process.is_present(place.from, place.len);
        let is_read = is_present && last.read_with(process, *place, target, part.clone());
        payload.own = if !is_read {
            window.close(words);
            Own::Failed
        } else if window.is_taken(words) {
            // It can end before this side copies its parts of others.
            Own::of(window.claim(words)?)
        } else {
            Own::Open
        };
        Ok(true)
    }

    /// Takes the next piece of a payload that comes through the bounce buffer, and returns its
    /// length. `None` if there is none yet.
    fn take_bounced(&mut self, link: LinkId, events: &mut impl LinkEvents) -> Result<Option<usize>, ReadError> {
        let Receiver { borrowed, bounce, .. } = &mut self.receiver;
        let Some(Borrowed { own: Own::Bounced(done), target, place, .. }) = borrowed.front_mut() else {
            return Ok(None);
        };
        let Some(piece) = bounce.take(target, *done..place.len)? else { return Ok(None) };
        *done += piece;
        let is_whole = *done == place.len;
        // The sender may sleep until there is room for the next piece.
        self.must_notify = true;
        if (piece == 0 || is_whole)
            && let Some(Borrowed { target, .. }) = borrowed.pop_front()
        {
            match is_whole {
                true => events.handle_recv_done(link, target)?,
                false => self.fail_absent(link, target, events),
            }
        }
        Ok(Some(piece))
    }

    /// Ends the first payload, and returns its length: 0 if it comes through the bounce buffer
    /// instead. `None` while the sender has claimed bytes that it has not written.
    fn end_first(&mut self, link: LinkId, events: &mut impl LinkEvents) -> Result<Option<usize>, ReadError> {
        let outcome = self.receiver.borrowed.front().and_then(|first| first.outcome(|at| self.presence.own_window(at)));
        let Some(outcome) = outcome else { return Ok(None) };
        let Some(mut payload) = self.receiver.borrowed.pop_front() else { return Ok(None) };
        let Place { number, len, .. } = payload.place;
        let body = payload.last.body_of(len);
        let is_whole = match outcome {
            Ok(()) => payload.read_rest(self.cma.peer(), body..body),
            Err(Missing::Own) => false,
            Err(Missing::FromSender(start)) => payload.read_rest(self.cma.peer(), start..body),
        };
        if payload.kind.keeps_order() {
            if !is_whole {
                self.receiver.bounce.ask(number);
                self.must_notify = true;
                self.cma.interrupt(len);
                (payload.window, payload.own) = (None, Own::Bounced(0));
                self.receiver.borrowed.push_front(payload);
                return Ok(Some(0));
            }
            // Its bytes must not look as if they were all there, and nothing behind it may be
            // carried out.
            if self.was_taken_back() {
                events.handle_recv_retry(link, payload.target);
                return Err(ReadError::Ended);
            }
            payload.write_last();
        }
        if let Some(window) = &payload.window {
            self.receiver.is_sender_away = !window.has_sender();
            if window.has_sender() {
                self.cma.adapt_share(len, payload.has_waited);
            }
        }
        self.end_read(link, payload, is_whole, events)?;
        Ok(Some(len))
    }
}
