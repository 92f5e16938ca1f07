//! The receiving half of a link: reads its lines, and the payloads that come through the pool.

use super::bounce::BounceReceiver;
use super::line::{
    DAMAGED, INLINE, KIND_ABSENT, KIND_DIRECT, KIND_END, KIND_HELLO, KIND_INLINE, KIND_OFFER, KIND_OUTCOME,
    KIND_PERMISSION, KIND_PIECE, KIND_POOLED, KIND_WINDOW, LINE, ORDERS, PLAIN_HEAD, header_of, unplace,
};
use super::{Conn, Out, ReadError, State};
use crate::chooser::Way;
use crate::cma::{Classes, LAST_WORD, LentAt, is_large};
use crate::region::{Pool, Region, Ring, Side};
use ofi_engine::transport::{Disposition, Incoming, LinkEvents, LinkId, RecvTarget};
use ofi_engine::wire::frame::{HEADER_WORDS, MAX_HEADER, MAX_PAYLOAD, Violation};
use ofi_engine::wire::hello;
use ofi_sync::lines::{BODY, Reader};
use std::collections::VecDeque;
use std::sync::Arc;

mod behind;
mod borrowed;
mod cma;

use behind::Distance;
use borrowed::Borrowed;

/// Lines read from a link before others have their turn.
const READS: usize = 64;
/// Lines to prefetch ahead when there are several.
const AHEAD: u64 = 4;
/// Bytes read from a link before others have their turn; the part of a payload that this side
/// copies out of the sender's memory is copied to its end, up to
/// [`MAX_OFFER`](crate::cma::MAX_OFFER).
const BYTES: usize = 1 << 20;

/// A payload that is arriving through the pool.
#[derive(Debug)]
struct Coming {
    target: Option<RecvTarget>,
    done: usize,
    total: usize,
    way: Way,
    /// Lines to stay behind the sender; only [`Way::Behind`] does.
    behind: u64,
}

/// Offers of a link that wait for a receive at a time; more are declined. The engine holds each
/// one's request, so this is about the time to find one.
pub(in crate::conn) const MOST_WAITING: usize = 256;

/// A payload in the sender's memory: its loan ([`CmaLoan`](crate::cma::CmaLoan)), as told.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Number of the loan.
    number: u32,
    lent: LentAt,
    /// The address there.
    from: usize,
    len: usize,
}

/// An offer whose message no receive has matched yet.
#[derive(Debug)]
struct WaitingOffer {
    /// The engine's number for the message.
    message: u32,
    place: Place,
    /// The sender has been told that it waits.
    is_told: bool,
}

/// The state of the receiving half of a link.
#[derive(Debug)]
pub(super) struct Receiver {
    reader: Reader<Ring>,
    pool: Pool,
    coming: Option<Coming>,
    /// The payloads that come out of the sender's memory.
    borrowed: VecDeque<Borrowed>,
    /// In the order of their lines.
    waiting: VecDeque<WaitingOffer>,
    /// How many of them the sender has not been told of.
    untold: usize,
    /// Offers that have waited, and where their payloads go: those behind the borrowed ones. None
    /// between two reads unless some are borrowed.
    matched: VecDeque<(Place, RecvTarget)>,
    /// It has not come for the last of those that had a window: it does something else.
    is_sender_away: bool,
    bounce: BounceReceiver,
    distance: Distance,
}

impl Receiver {
    /// Reads what `writer` sends.
    pub(super) fn new(region: &Arc<Region>, writer: Side) -> Self {
        let pool = region.pool(writer);
        Self {
            reader: Reader::new(region.ring(writer)),
            distance: Distance::of(pool.bytes.len()),
            pool,
            coming: None,
            borrowed: VecDeque::new(),
            waiting: VecDeque::new(),
            untold: 0,
            matched: VecDeque::new(),
            is_sender_away: false,
            bounce: BounceReceiver::new(region.bounce(writer)),
        }
    }

    /// Returns the target of the payload that is arriving through the pool. The link is at its end.
    pub(super) fn take_target(&mut self) -> Option<RecvTarget> {
        self.coming.take().and_then(|coming| coming.target)
    }

    /// Consumes a line.
    fn advance(&mut self) {
        self.reader.advance(1);
    }

    /// Consumes a line, and publishes that at once.
    fn advance_now(&mut self) {
        self.reader.advance(1);
        self.reader.tell();
    }
}

impl Conn {
    /// Whether there is something to read. The payloads that are arriving come before the lines
    /// behind them.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        if self.receiver.borrowed.is_empty() && !self.cma.has_lent_ordered() {
            self.receiver.reader.is_ready()
        } else {
            self.is_ready_amid_payloads()
        }
    }

    /// The same while payloads are arriving, or the other side may want one of this side's.
    #[inline(never)]
    fn is_ready_amid_payloads(&self) -> bool {
        let can_read = || {
            if self.receiver.borrowed.is_empty() {
                self.receiver.reader.is_ready()
            } else {
                self.receiver.can_bring(|number| self.presence.own_window(number))
            }
        };
        self.cma.has_lent_ordered() && self.sender.wanted().is_some() || can_read()
    }

    /// Prefetches the next line.
    pub(crate) fn fetch_line(&self) {
        self.receiver.reader.fetch(0);
    }

    /// How many lines this side has read, as last published to the other side.
    #[inline(always)]
    pub(super) const fn told(&self) -> u64 {
        self.receiver.reader.told()
    }

    /// Goes on with the payloads that are arriving, and reads lines: at most [`READS`], beside
    /// those of such payloads, and about [`BYTES`]. True if there was something to do.
    #[inline(always)]
    pub(crate) fn read(&mut self, link: LinkId, ours: bool, events: &mut impl LinkEvents) -> Result<bool, ReadError> {
        let (mut lines, mut bytes, mut any) = (0, 0, false);
        if self.cma.has_lent_ordered() {
            // First: the other side may read nothing else before.
            any = self.read_wanted(link, events)?;
        }
        if !self.receiver.borrowed.is_empty() {
            let brought;
            (bytes, brought) = self.bring(link, events)?;
            any |= brought;
            if !self.receiver.borrowed.is_empty() {
                // No frame comes before the payloads that are arriving.
                return Ok(any);
            }
        }
        let mut next = self.receiver.reader.head();
        while let Some(word) = next
            && lines < READS
        {
            if lines > 0 {
                // After a second line, more are likely.
                self.receiver.reader.fetch(AHEAD);
            }
            lines += 1;
            if !self.read_short(link, word, events)? {
                bytes += self.read_any(link, word, ours, events)?;
                if bytes >= BYTES || !self.receiver.borrowed.is_empty() {
                    break;
                }
            }
            next = self.receiver.reader.head();
        }
        if !self.receiver.matched.is_empty() {
            self.borrow_matched();
        }
        Ok(lines > 0 || any)
    }

    /// Reads a frame that fits into one line. False, with nothing done, if the line is anything
    /// else or not expected now.
    #[inline(always)]
    fn read_short(&mut self, link: LinkId, word: u64, events: &mut impl LinkEvents) -> Result<bool, ReadError> {
        let (_, len) = unplace(word);
        if word >> 32 == PLAIN_HEAD && len <= 8 && !self.state_is_other() {
            // The most frequent message stays in registers.
            let [first, second, third] = self.receiver.reader.front::<3>().map(u64::to_ne_bytes);
            self.receiver.reader.advance(1);
            events.handle_frame(link, [first, second].as_flattened(), Incoming::Complete(&third[..len]))?;
            return Ok(true);
        }
        let header = header_of(word);
        let total = header + len;
        if word >> 40 != KIND_INLINE || header > MAX_HEADER || total > LINE || self.state_is_other() {
            return Ok(false);
        }
        let bytes = self.receiver.reader.front::<BODY>().map(u64::to_ne_bytes);
        self.receiver.reader.advance(1);
        let (header, payload) = bytes.as_flattened()[..total].split_at(header);
        events.handle_frame(link, header, Incoming::Complete(payload))?;
        Ok(true)
    }

    /// True if no frame may begin now.
    #[inline(always)]
    const fn state_is_other(&self) -> bool {
        !matches!(self.state, State::Open) || self.receiver.coming.is_some()
    }

    #[inline(never)]
    fn read_any(
        &mut self,
        link: LinkId,
        word: u64,
        ours: bool,
        events: &mut impl LinkEvents,
    ) -> Result<usize, ReadError> {
        let (header, (_, len)) = (header_of(word), unplace(word));
        if word >> 40 == KIND_INLINE {
            self.read_two(link, header, len, events)?;
            return Ok(0);
        }
        let body = self.receiver.reader.front();
        let mut bytes = 0;
        match word >> 40 {
            kind @ (KIND_POOLED | KIND_PIECE) => {
                bytes = if kind == KIND_POOLED {
                    self.read_pooled(link, header, len, &body, events)?
                } else {
                    self.read_piece(link, len, body[0], events)?
                };
                // Return the piece of the pool to the writer at once.
                self.receiver.advance_now();
            }
            KIND_HELLO => self.read_hello(link, len, &body, ours, events)?,
            KIND_DIRECT => {
                self.read_cma(link, header, len, &body, events)?;
                (bytes, _) = self.bring(link, events)?;
            }
            KIND_OFFER => {
                self.read_offer(link, header, len, &body, events)?;
                (bytes, _) = self.bring(link, events)?;
            }
            KIND_ABSENT => self.read_absent(link, header, len, &body, events)?,
            KIND_OUTCOME => self.read_outcome(link, body[0], body[1], events)?,
            KIND_PERMISSION => {
                self.receiver.reader.advance(1);
                let classes =
                    Classes::from_code(body[0]).ok_or(Violation("a permission for unknown classes of payloads"))?;
                match body[1] {
                    0 => self.cma.restricted(classes),
                    1 if self.cma.answered(classes) => {}
                    _ => return Err(Violation("an unsolicited cross-memory attach permission").into()),
                }
            }
            // The other side waits for what this one has copied: it is told before anything else.
            KIND_WINDOW => bytes = if self.read_windows(len, body)? { BYTES } else { 0 },
            KIND_END => {
                self.receiver.advance_now();
                return Err(ReadError::Ended);
            }
            _ => return Err(Violation("a line of unknown kind").into()),
        }
        Ok(bytes)
    }

    /// Reads a frame that takes two lines.
    fn read_two(
        &mut self,
        link: LinkId,
        header: usize,
        len: usize,
        events: &mut impl LinkEvents,
    ) -> Result<(), ReadError> {
        let total = header + len;
        if header > MAX_HEADER || total <= LINE || total > INLINE || self.state_is_other() {
            return Err(Violation("a line that does not fit").into());
        }
        let first = self.receiver.reader.front::<BODY>();
        let second = self.receiver.reader.read_second().map_err(|_| DAMAGED)?;
        self.receiver.reader.advance(2);
        let both = [first.map(u64::to_ne_bytes), second.map(u64::to_ne_bytes)];
        let (header, payload) = both.as_flattened().as_flattened()[..total].split_at(header);
        events.handle_frame(link, header, Incoming::Complete(payload))?;
        Ok(())
    }

    /// Reads the first piece of a payload in the pool.
    fn read_pooled(
        &mut self,
        link: LinkId,
        header: usize,
        total: usize,
        body: &[u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<usize, ReadError> {
        let (at, len) = unplace(body[HEADER_WORDS]);
        let fits =
            header <= MAX_HEADER && len <= total && total <= MAX_PAYLOAD && self.receiver.pool.bytes.holds(at, len);
        if !fits || self.state_is_other() {
            return Err(Violation("a payload with an invalid length, offset or state").into());
        }
        let mut bytes = [0u8; MAX_HEADER];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(body) {
            *chunk = word.to_ne_bytes();
        }
        let target = match events.handle_frame(link, &bytes[..header], Incoming::Streaming(total))? {
            Disposition::Into(target) => Some(target),
            Disposition::Done => None,
        };
        let way = if is_large(total) { self.cma.next_pooled(total) } else { Way::Pool };
        let behind = if way == Way::Behind { self.receiver.distance.in_lines(len) } else { 0 };
        self.receiver.coming = Some(Coming { target, done: 0, total, way, behind });
        self.land(link, at, len, events)?;
        Ok(len)
    }

    fn read_piece(
        &mut self,
        link: LinkId,
        len: usize,
        word: u64,
        events: &mut impl LinkEvents,
    ) -> Result<usize, ReadError> {
        let (at, _) = unplace(word);
        let room = self.receiver.coming.as_ref().map_or(0, |coming| coming.total - coming.done);
        if len == 0 || len > room || !self.receiver.pool.bytes.holds(at, len) {
            return Err(Violation("a piece that does not fit").into());
        }
        self.land(link, at, len, events)?;
        Ok(len)
    }

    /// Copies `len` bytes at `at` of the pool into the receive target, as the next of the payload
    /// that is arriving.
    fn land(&mut self, link: LinkId, at: usize, len: usize, events: &mut impl LinkEvents) -> Result<(), Violation> {
        if let Some(target) = self.copy_piece(at, len) {
            events.handle_recv_done(link, target)?;
        }
        Ok(())
    }

    /// The same; the target once it has the whole payload.
    #[inline(never)]
    fn copy_piece(&mut self, at: usize, len: usize) -> Option<RecvTarget> {
        let coming = self.receiver.coming.as_mut()?;
        let is_last = coming.done + len == coming.total;
        let way = coming.way;
        if way == Way::Behind {
            self.receiver.distance.keep(&self.receiver.reader, coming.behind);
            if is_last {
                self.cma.note_burst(coming.total, self.receiver.reader.has_line(1));
            }
        }
        if let Some(target) = &mut coming.target {
            let take = target.take.saturating_sub(coming.done).min(len);
            // The last word comes last: a program may wait for that of a write.
            let body = take.saturating_sub(LAST_WORD);
            let (pool, to) = (&self.receiver.pool.bytes, target.at + coming.done);
            if way == Way::Vector {
                pool.drain_by_vectors(at, &mut target.buffer, to, body);
            } else {
                pool.drain(at, &mut target.buffer, to, body);
            }
            let mut last = [0; LAST_WORD];
            let last = &mut last[..take - body];
            pool.read(at + body, last);
            target.buffer.write_at(to + body, last);
        }
        coming.done += len;
        if !is_last {
            return None;
        }
        let Coming { target, total, .. } = self.receiver.coming.take()?;
        if is_large(total) {
            let left = self.cma.note(way, ofi_os::clock::now, total);
            left.into_iter().for_each(|left| self.sender.queue(Out::Permission(left, false)));
        }
        target
    }

    fn read_hello(
        &mut self,
        link: LinkId,
        len: usize,
        body: &[u64; BODY],
        ours: bool,
        events: &mut impl LinkEvents,
    ) -> Result<(), ReadError> {
        if !matches!(self.state, State::Asking(_)) || len > hello::MAX_LEN {
            return Err(Violation("an unexpected or invalid answer to a connect request").into());
        }
        let hello = self.receiver.bounce.take_hello(len);
        self.receiver.advance_now();
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&body[0].to_ne_bytes());
        identity[8..].copy_from_slice(&body[1].to_ne_bytes());
        self.peer.name = crate::names::Identity(identity).name();
        self.presence.set_order(ours, body[2] & ORDERS != 0);
        self.state = State::Open;
        events.handle_connected(link, &hello).map_err(ReadError::Down)
    }
}
