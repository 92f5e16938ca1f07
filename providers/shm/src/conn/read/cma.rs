//! The lines of cross-memory attach (`cma.rs`): payloads in the sender's memory, and the outcomes
//! of those that this side lent.

use super::Receiver;
use crate::chooser::Way;
use crate::cma::{self, CmaLoan, Outcome};
use crate::conn::{Conn, Large, Out, ReadError};
use crate::window::{OpenWindow, PeerWindow, Words};
use ofi_core::{Cause, Errno, Instant};
use ofi_engine::transport::{Disposition, Down, Incoming, LinkEvents, LinkId, RecvTarget};
use ofi_engine::wire::frame::{Frame, HEADER_WORDS, MAX_HEADER, MAX_PAYLOAD, Violation};
use ofi_os::process;
use ofi_sync::lines::{BODY, order_own};
use std::time::Duration;

const INVALID: Violation = Violation("a payload with an invalid length, offset or state");

/// How long a link that ends waits for the last part of a sender that lives. A part takes
/// microseconds, or until a sender that does not run has the core again. One that is stopped may
/// write afterwards, as one that may write to this process's memory could do anyway. After one that
/// was late the transport opens no more windows, so that a hostile peer cannot hold it up again.
const LAST_PART: Duration = Duration::from_secs(5);

/// Looks at a sender that is writing its last part, before the caller does something else.
const SPINS: u32 = 50;

/// A payload that both sides copy: this one has claimed all that it will.
#[derive(Debug)]
pub(super) struct Shared {
    window: OpenWindow,
    target: RecvTarget,
    /// Its address in the sender's memory.
    from: usize,
    len: usize,
    /// This side could read its part.
    whole: bool,
}

impl Shared {
    /// Whether the sender has finished what it has claimed.
    pub(super) fn is_written(&self, words: Words<'_>) -> bool {
        self.window.outcome(words).is_some()
    }

    /// The receive target, once the sender writes to it no more: it has reported its part, or its
    /// process is dead. Also after [`LAST_PART`]; then true. The link is at its end.
    pub(super) fn into_target(mut self, words: Words<'_>, is_dead: impl Fn() -> bool) -> (RecvTarget, bool) {
        self.window.close(words);
        let start = ofi_os::clock::now();
        while !self.is_written(words) && !is_dead() {
            if ofi_os::clock::now().since(start) >= LAST_PART {
                return (self.target, true);
            }
            std::thread::yield_now();
        }
        (self.target, false)
    }
}

impl Receiver {
    fn shared_is_written(&self, words: Words<'_>) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_written(words))
    }
}

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
        let from = self.address_of(body)?;
        match self.place(link, header, len, body, events)? {
            Disposition::Into(target) => self.copy(link, (from, body[HEADER_WORDS + 1], len), target, events),
            Disposition::Done => self.reply(body[HEADER_WORDS + 1], Outcome::Taken),
        }
    }

    /// Reads a message that the sender offers along with its RTS, if a receive takes it now.
    pub(super) fn read_offer(
        &mut self,
        link: LinkId,
        header: usize,
        len: usize,
        body: &[u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<(), ReadError> {
        let from = self.address_of(body)?;
        if header > MAX_HEADER || !cma::is_large(len) || len > cma::MAX_OFFER || self.state_is_other() {
            return Err(INVALID.into());
        }
        let bytes = body.map(u64::to_ne_bytes);
        match events.handle_offer(link, &bytes.as_flattened()[..header], len)? {
            Disposition::Into(target) => self.copy(link, (from, body[HEADER_WORDS + 1], len), target, events),
            Disposition::Done => self.reply(body[HEADER_WORDS + 1], Outcome::Declined),
        }
    }

    /// Consumes the line of a payload in the sender's memory. Returns its address there.
    fn address_of(&mut self, body: &[u64; BODY]) -> Result<usize, Violation> {
        self.receiver.advance();
        if self.cma.peer().is_none() {
            return Err(Violation("a cross-memory attach payload without permission"));
        }
        usize::try_from(body[HEADER_WORDS]).map_err(|_| Violation("an invalid address"))
    }

    /// Copies a payload of `len` bytes at `from` of the sender's memory to its target: alone, or
    /// together with the sender.
    fn copy(
        &mut self,
        link: LinkId,
        (from, number, len): (usize, u64, usize),
        mut target: RecvTarget,
        events: &mut impl LinkEvents,
    ) -> Result<(), ReadError> {
        let Some(process) = self.cma.peer() else { return Ok(()) };
        let ends = from.checked_add(len).is_some();
        if ends
            && target.take == len
            && target.buffer.is_one_piece()
            && self.cma.shares(len)
            && let Ok(place) = u32::try_from(number)
            && self.presence.is_attentive()
            && self.sender.has_room_for_window()
        {
            let words = self.presence.own_window();
            let mut window = OpenWindow::open(words, place, len, self.cma.share_of(len));
            self.sender.tell_window(place, target.buffer.address() + target.at, len);
            self.presence.hint();
            // Of the whole payload, as the parts differ from one to the next.
            let mut whole = process.is_present(from, len);
            let claimed = loop {
                if !whole {
                    break Ok(());
                }
                match window.claim(words) {
                    Ok(Some(bytes)) => whole = cma::read_part(process, from, &mut target, bytes),
                    Ok(None) => break Ok(()),
                    Err(damage) => break Err(damage),
                }
            };
            if !whole {
                window.close(words);
            }
            // The link's end gives the target back, after a violation too.
            self.receiver.shared = Some(Shared { window, target, from, len, whole });
            claimed?;
            if self.receiver.shared.as_ref().is_some_and(|shared| shared.window.has_sender()) {
                let waits = !self.receiver.shared_is_written(words);
                self.cma.adapt_share(len, waits);
                for _ in 0..SPINS {
                    if self.receiver.shared_is_written(words) {
                        break;
                    }
                    core::hint::spin_loop();
                }
            }
            self.end_shared(link, events)?;
            return Ok(());
        }
        let whole = cma::read(process, from, &mut target);
        self.end_read(link, (number, len), (target, whole, false), events)
    }

    /// Ends a payload that both sides copy. False while the sender has claimed bytes that it has
    /// not written.
    pub(super) fn end_shared(&mut self, link: LinkId, events: &mut impl LinkEvents) -> Result<bool, ReadError> {
        let words = self.presence.own_window();
        let ended = self.receiver.shared.as_ref().map(|shared| shared.window.outcome(words));
        let (Some(Some(written)), Some(shared)) = (ended, self.receiver.shared.take_if(|_| ended != Some(None))) else {
            return Ok(ended.is_none());
        };
        let Shared { window, mut target, from, len, mut whole } = shared;
        if whole && !written {
            // The sender could not write its part.
            let rest = window.sender_from();
            whole = self.cma.peer().is_some_and(|process| {
                process.is_present(from + rest, len - rest) && cma::read_part(process, from, &mut target, rest..len)
            });
        }
        self.end_read(link, (window.number().into(), len), (target, whole, true), events)?;
        Ok(true)
    }

    /// The receiver of a lent payload opens a window: copies from the back what it does not claim.
    /// True if there was such a part, for whose end the receiver waits.
    pub(super) fn read_window(&mut self, len: usize, body: &[u64; BODY]) -> Result<bool, Violation> {
        self.receiver.advance();
        let [number, to, opened, ..] = *body;
        let Some((loan, process)) = self.cma.window_of(number, len)? else { return Ok(false) };
        let to = usize::try_from(to).ok().filter(|to| to.checked_add(len).is_some());
        let Some(to) = to else { return Err(Violation("a window at an invalid address")) };
        let (words, number) = (self.presence.their_window(), loan.number());
        let mut any = false;
        // The system may have given the pid to another process since. What is not claimed, the
        // receiver reads.
        let now = ofi_os::clock::now();
        if !process.is_same(Some(Instant::from_nanos(opened)), now) || !process.is_writable(to, len) {
            return Ok(false);
        }
        let mut window = PeerWindow::new(number, len);
        while let Some(claim) = window.claim(words) {
            let bytes = claim.bytes.clone();
            let written = cma::write_part(process, to, loan, bytes);
            window.finish(words, &claim, written);
            any = true;
        }
        if any {
            // The other side may sleep by now.
            self.must_notify = true;
        }
        Ok(any)
    }

    /// Delivers a payload, `whole`, that was read; or has the sender send it again.
    fn end_read(
        &mut self,
        link: LinkId,
        (number, len): (u64, usize),
        (target, whole, shared): (RecvTarget, bool, bool),
        events: &mut impl LinkEvents,
    ) -> Result<(), ReadError> {
        if !whole {
            // The sender sends it again, through the pool.
            events.handle_recv_retry(link, target);
            return self.reply(number, Outcome::Refused);
        }
        // Before checking the word: bytes read after the sender took its memory back are not the
        // message.
        order_own();
        if self.presence.is_gone() {
            let text = format!("link to {}: the peer left while its memory was being read", self.peer.addr);
            events.handle_recv_failed(link, target, Down::new(Cause::Broken, Errno::ECONNRESET, text));
            // The lines behind this one are read before the link goes down.
            self.lost = true;
            return Ok(());
        }
        let way = if shared { Way::Both } else { Way::Read };
        if let Some(left) = self.cma.note(way, ofi_os::clock::now(), len) {
            self.sender.queue(Out::Permission(left, false));
        }
        events.handle_recv_done(link, target)?;
        self.reply(number, Outcome::Taken)
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
        if let Disposition::Into(target) = self.place(link, header, len, body, events)? {
            let text = format!("link to {}: the sender unmapped the buffer before it was read", self.peer.addr);
            events.handle_recv_failed(link, target, Down::new(Cause::Absent, Errno::EFAULT, text));
        }
        Ok(())
    }

    /// Asks the engine for the receive target of a payload that does not come in pieces.
    fn place(
        &self,
        link: LinkId,
        header: usize,
        len: usize,
        body: &[u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<Disposition, Violation> {
        if header > MAX_HEADER || !cma::is_large(len) || len > MAX_PAYLOAD || self.state_is_other() {
            return Err(INVALID);
        }
        let bytes = body.map(u64::to_ne_bytes);
        let header = &bytes.as_flattened()[..header];
        if !Frame::is_unordered(header, len) {
            return Err(INVALID);
        }
        events.handle_frame(link, header, Incoming::Streaming(len))
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
        let CmaLoan { header, buffer, from, len, token, is_offer, .. } = self.cma.take_back(number).ok_or(STRAY)?;
        match outcome {
            Outcome::Taken => {
                self.cma.was_read();
                events.handle_send_done(link, token, buffer);
            }
            Outcome::Declined if !is_offer => return Err(STRAY),
            Outcome::Declined => events.handle_offer_declined(link, token, buffer),
            Outcome::Refused if is_offer => {
                // The data frame will be lent, too: its outcome counts.
                events.handle_offer_declined(link, token, buffer);
            }
            Outcome::Refused => {
                if process::is_mapped(buffer.address() + from, len) {
                    self.cma.refused();
                    self.sender.queue(Out::Large(Large { header, buffer, from, len, done: 0, token: Some(token) }));
                } else {
                    self.sender.queue(Out::Absent(header, len));
                    let text = format!("link to {}: the memory of the message was unmapped", self.peer.addr);
                    events.handle_send_failed(link, token, buffer, Down::new(Cause::Absent, Errno::EFAULT, text));
                }
            }
        }
        Ok(())
    }

    fn reply(&mut self, number: u64, outcome: Outcome) -> Result<(), ReadError> {
        // At once, as more payloads may follow before this side sends what waits: the sender may
        // use its buffer again, and no window opens while something waits.
        if self.sender.send_outcome(number, outcome)? {
            self.must_notify = true;
            return Ok(());
        }
        self.sender.queue(Out::Outcome(number, outcome));
        let heard = self.cma.reply();
        if heard { Ok(()) } else { Err(Violation("the peer leaves too many payload outcomes unread").into()) }
    }
}
