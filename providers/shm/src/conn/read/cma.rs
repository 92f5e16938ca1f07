//! The lines of cross-memory attach (`cma.rs`): payloads in the sender's memory, and the outcomes
//! of those that this side lent.

use super::borrowed::Borrowed;
use super::{BYTES, MOST_WAITING, Place, Receiver, WaitingOffer};
use crate::cma::{self, CmaLoan, Kind, LentAt, Outcome};
use crate::conn::line::{KIND_WINDOW, unplace};
use crate::conn::{Conn, Large, Out, ReadError};
use crate::window::{PeerWindow, SHORT, WINDOWS};
use ofi_core::{Cause, Errno, Instant};
use ofi_engine::transport::{Disposition, Down, Incoming, LinkEvents, LinkId, OfferAnswer, RecvTarget};
use ofi_engine::wire::frame::{HEADER_WORDS, MAX_HEADER, MAX_PAYLOAD, Violation};
use ofi_os::process;
use ofi_sync::lines::{BODY, order_own};

const INVALID: Violation = Violation("a payload with an invalid length, offset or state");

impl Conn {
    /// Reads a payload out of the sender's memory.
    pub(super) fn read_cma(
        &mut self,
        link: LinkId,
        header: usize,
        len: usize,
        body: &[u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<(), ReadError> {
        let at = self.lent_place(len, body)?;
        let (kind, disposition) = self.place(link, header, len, body, events)?;
        match disposition {
            Disposition::Into(target) => {
                self.expect(at, target, kind);
                Ok(())
            }
            Disposition::Done => self.reply(at.number, Outcome::Taken),
        }
    }

    /// Reads a message that the sender offers along with its RTS, if a receive takes it now.
    /// Otherwise it waits for one.
    pub(super) fn read_offer(
        &mut self,
        link: LinkId,
        header: usize,
        len: usize,
        body: &[u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<(), ReadError> {
        let place = self.lent_place(len, body)?;
        if header > MAX_HEADER || !cma::is_large(len) || len > cma::MAX_OFFER || self.state_is_other() {
            return Err(INVALID.into());
        }
        let bytes = body.map(u64::to_ne_bytes);
        match events.handle_offer(link, &bytes.as_flattened()[..header], len)? {
            OfferAnswer::Take(target) => {
                self.expect(place, target, Kind::Offer);
                Ok(())
            }
            OfferAnswer::Wait(message) if self.keep_waiting(message, place) => Ok(()),
            OfferAnswer::Wait(_) | OfferAnswer::Decline => self.reply(place.number, Outcome::Declined),
        }
    }

    /// Keeps an offer until a receive matches its message. False if it is to be declined.
    fn keep_waiting(&mut self, message: u32, place: Place) -> bool {
        let Receiver { waiting, untold, .. } = &mut self.receiver;
        // The numbers of messages wrap.
        let is_known = waiting.iter().any(|other| other.message == message);
        let keeps = self.is_connectionless && !is_known && waiting.len() < MOST_WAITING;
        if keeps {
            waiting.push_back(WaitingOffer { message, place, is_told: false });
            *untold += 1;
        }
        keeps
    }

    /// Whether the sender has not been told of all offers that wait.
    #[inline(always)]
    pub(crate) const fn has_untold(&self) -> bool {
        self.receiver.untold > 0
    }

    /// Tells the sender of offers that wait, as far as there is room for lines: so its link can end
    /// without them. It need not know soon, and mostly a receive matches before.
    pub(crate) fn tell_waiting(&mut self) -> Result<(), Violation> {
        let Receiver { waiting, untold, .. } = &mut self.receiver;
        for offer in waiting.iter_mut().filter(|offer| !offer.is_told) {
            if !self.sender.send_outcome(offer.place.number, Outcome::Waits)? {
                break;
            }
            offer.is_told = true;
            *untold -= 1;
            self.presence.hint();
        }
        // The ring must not stay full of such lines.
        self.must_notify |= !self.sender.has_room_for_line();
        Ok(())
    }

    /// Takes on the payload of an offer that waits. Gives the target back if none waits for its
    /// message.
    pub(crate) fn take_offer(&mut self, target: RecvTarget) -> Result<(), RecvTarget> {
        let waiting = &mut self.receiver.waiting;
        let is_it = |offer: &WaitingOffer| target.offer.is_some_and(|id| id.message() == offer.message);
        let Some(offer) = waiting.iter().position(is_it).and_then(|at| waiting.remove(at)) else { return Err(target) };
        self.receiver.untold -= usize::from(!offer.is_told);
        self.receiver.matched.push_back((offer.place, target));
        self.borrow_matched();
        Ok(())
    }

    /// Takes on payloads of offers that have waited, for [`Self::bring`]: a few short ones at a
    /// time, or one, so that lines are read between them.
    #[inline(never)]
    pub(super) fn borrow_matched(&mut self) {
        loop {
            let Receiver { borrowed, matched, .. } = &mut self.receiver;
            let is_short = |place: &Place| place.len <= SHORT;
            let may_share =
                borrowed.len() < WINDOWS as usize && borrowed.iter().all(|payload| is_short(&payload.place));
            let fits = |(place, _): &mut (Place, RecvTarget)| borrowed.is_empty() || may_share && is_short(place);
            let Some((place, target)) = matched.pop_front_if(fits) else { return };
            self.expect(place, target, Kind::Offer);
        }
    }

    /// Consumes the line of a payload in the sender's memory. Returns where it is.
    fn lent_place(&mut self, len: usize, body: &[u64; BODY]) -> Result<Place, Violation> {
        self.receiver.advance();
        if self.cma.peer().is_none() {
            return Err(Violation("a cross-memory attach payload without permission"));
        }
        let from = usize::try_from(body[HEADER_WORDS]).map_err(|_| Violation("an invalid address"))?;
        let (number, lent) = LentAt::unpack(body[HEADER_WORDS + 1]);
        Ok(Place { number, lent, from, len })
    }

    /// The receiver of lent payloads opens windows. True if this side has copied something, for
    /// whose end the receiver waits.
    pub(super) fn read_windows(&mut self, len: usize, body: [u64; BODY]) -> Result<bool, Violation> {
        let mut bytes = self.read_window(len, &body)?;
        while bytes < BYTES
            && let Some(word) = self.receiver.reader.head()
            && word >> 40 == KIND_WINDOW
        {
            let body = self.receiver.reader.front();
            bytes += self.read_window(unplace(word).1, &body)?;
        }
        Ok(bytes > 0)
    }

    /// Copies of a lent payload, from the back, what the receiver does not claim. Returns the
    /// number of bytes.
    fn read_window(&mut self, len: usize, body: &[u64; BODY]) -> Result<usize, Violation> {
        self.receiver.advance();
        let [number, to, opened, ..] = *body;
        let Some((loan, process)) = self.cma.window_of(number, len)? else { return Ok(0) };
        let to = usize::try_from(to).ok().filter(|to| to.checked_add(len).is_some());
        let Some(to) = to else { return Err(Violation("a window at an invalid address")) };
        let number = loan.number();
        let words = self.presence.their_window(number);
        let mut copied = 0;
        // The system may have given the pid to another process since. What is not claimed, the
        // receiver reads.
        let now = ofi_os::clock::now();
        if !process.is_same(Some(Instant::from_nanos(opened)), now) || !process.is_writable(to, len) {
            return Ok(0);
        }
        let mut window = PeerWindow::new(number, len);
        while let Some(claim) = window.claim(words) {
            let bytes = claim.bytes.clone();
            let written = cma::write_part(process, to, loan, bytes);
            window.finish(words, &claim, written);
            copied += claim.bytes.len();
        }
        if copied > 0 {
            // The other side may sleep by now.
            self.must_notify = true;
        }
        Ok(copied)
    }

    /// Delivers a payload that was read, if it is whole; otherwise has the sender send it again.
    pub(super) fn end_read(
        &mut self,
        link: LinkId,
        payload: Borrowed,
        is_whole: bool,
        events: &mut impl LinkEvents,
    ) -> Result<(), ReadError> {
        let way = payload.way();
        let Borrowed { place: Place { number, len, .. }, target, kind, .. } = payload;
        if !is_whole {
            // The sender sends it again, through the pool or in data frames.
            self.cma.interrupt(len);
            events.handle_recv_retry(link, target);
            return self.reply(number, Outcome::Refused);
        }
        // Of an ordered payload, that has been looked at before its last word was written.
        if !kind.keeps_order() && self.was_taken_back() {
            let text = format!("link to {}: the peer left while its memory was being read", self.peer.addr);
            events.handle_recv_failed(link, target, Down::new(Cause::Broken, Errno::ECONNRESET, text));
            // The lines behind this one are read before the link goes down.
            self.lost = true;
            return Ok(());
        }
        if target.take < len {
            // A part of it tells nothing of the way.
            self.cma.interrupt(len);
        } else if let Some(left) = self.cma.note(way, ofi_os::clock::now, len) {
            self.sender.queue(Out::Permission(left, false));
        }
        if kind == Kind::Offer && !self.sender.has_room_for_line() {
            // Later: a program that sees its receive complete may make no more progress, and the
            // sender would not learn that its message has been taken.
            return self.queue_outcome(number, Outcome::Taken, Some(target));
        }
        events.handle_recv_done(link, target)?;
        self.reply(number, Outcome::Taken)
    }

    /// Whether the sender has left and so taken its memory back: what this side has read may not be
    /// the payload.
    pub(super) fn was_taken_back(&self) -> bool {
        // The reads come before the look at the word.
        order_own();
        self.presence.is_gone()
    }

    /// Fails the message of a payload whose memory is gone.
    pub(super) fn read_absent(
        &mut self,
        link: LinkId,
        header: usize,
        len: usize,
        body: &[u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<(), Violation> {
        self.receiver.advance();
        if let (_, Disposition::Into(target)) = self.place(link, header, len, body, events)? {
            self.fail_absent(link, target, events);
        }
        Ok(())
    }

    /// Fails the message or operation of a payload whose memory is gone.
    pub(super) fn fail_absent(&self, link: LinkId, target: RecvTarget, events: &mut impl LinkEvents) {
        let text = format!("link to {}: the sender unmapped the buffer before it was read", self.peer.addr);
        events.handle_recv_failed(link, target, Down::new(Cause::Absent, Errno::EFAULT, text));
    }

    /// Asks the engine for the receive target of a payload that does not come in pieces, and tells
    /// its kind.
    fn place(
        &self,
        link: LinkId,
        header: usize,
        len: usize,
        body: &[u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<(Kind, Disposition), Violation> {
        if header > MAX_HEADER || !cma::is_large(len) || len > MAX_PAYLOAD || self.state_is_other() {
            return Err(INVALID);
        }
        let bytes = body.map(u64::to_ne_bytes);
        let header = &bytes.as_flattened()[..header];
        let kind = Kind::of(header, len).ok_or(INVALID)?;
        Ok((kind, events.handle_frame(link, header, Incoming::Streaming(len))?))
    }

    /// Handles the outcome of a payload that was lent to the other side.
    pub(super) fn read_outcome(
        &mut self,
        link: LinkId,
        number: u64,
        code: u64,
        events: &mut impl LinkEvents,
    ) -> Result<(), Violation> {
        const STRAY: Violation = Violation("the outcome of a payload that was not offered");
        self.receiver.advance();
        let outcome = Outcome::from_code(code).ok_or(STRAY)?;
        if outcome == Outcome::Waits {
            return if self.cma.waits(number) { Ok(()) } else { Err(STRAY) };
        }
        // Before the loan ends: a violation returns it to the engine with all others.
        let is_possible = |loan: &CmaLoan| match outcome {
            Outcome::Taken => true,
            Outcome::Declined => loan.kind == Kind::Offer,
            Outcome::Refused => !loan.kind.keeps_order(),
            Outcome::Waits => false,
        };
        let loan = self.cma.take_back(number, is_possible).ok_or(STRAY)?;
        match outcome {
            Outcome::Taken => {
                self.cma.was_read();
                events.handle_send_done(link, loan.token, loan.buffer);
            }
            // If it was refused, the data frame will be lent, too: its outcome counts.
            Outcome::Declined | Outcome::Refused if loan.kind == Kind::Offer => {
                events.handle_offer_declined(link, loan.token, loan.buffer);
            }
            Outcome::Declined | Outcome::Refused | Outcome::Waits => {
                let (header, len) = (loan.header, loan.len);
                let again = self.regain(link, loan, events);
                self.sender.queue(again.map_or(Out::Absent(header, len), Out::Large));
            }
        }
        Ok(())
    }

    /// Begins to pass the payload that the other side wants through the bounce buffer. True if it
    /// wants one.
    #[inline(never)]
    pub(super) fn read_wanted(&mut self, link: LinkId, events: &mut impl LinkEvents) -> Result<bool, Violation> {
        let Some(number) = self.sender.wanted() else { return Ok(false) };
        if self.sender.is_bouncing() {
            return Err(Violation("a request for a second payload"));
        }
        let loan = self.cma.take_wanted(number).ok_or(Violation("a request for a payload that was not lent"))?;
        let again = self.regain(link, loan, events);
        self.sender.bounce(again);
        Ok(true)
    }

    /// The payload of a loan that the other side could not read, to send it another way. `None` if
    /// its memory is gone: the engine knows that then.
    fn regain(&mut self, link: LinkId, loan: CmaLoan, events: &mut impl LinkEvents) -> Option<Large> {
        let CmaLoan { header, buffer, from, len, token, .. } = loan;
        if process::is_mapped(buffer.address() + from, len) {
            self.cma.refused();
            return Some(Large { header, buffer, from, len, done: 0, token: Some(token), may_lend: false });
        }
        let text = format!("link to {}: the memory of the message was unmapped", self.peer.addr);
        events.handle_send_failed(link, token, buffer, Down::new(Cause::Absent, Errno::EFAULT, text));
        None
    }

    fn reply(&mut self, number: u32, outcome: Outcome) -> Result<(), ReadError> {
        // At once, as more payloads may follow before this side sends what waits: the sender may
        // use its buffer again.
        if self.sender.send_outcome(number, outcome)? {
            self.must_notify = true;
            return Ok(());
        }
        self.queue_outcome(number, outcome, None)
    }

    fn queue_outcome(&mut self, number: u32, outcome: Outcome, target: Option<RecvTarget>) -> Result<(), ReadError> {
        // The ring is full: a sender that sleeps must make room.
        self.must_notify = true;
        self.sender.queue(Out::Outcome(number, outcome, target));
        let heard = self.cma.reply();
        if heard { Ok(()) } else { Err(Violation("the peer leaves too many payload outcomes unread").into()) }
    }
}
