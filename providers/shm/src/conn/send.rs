//! The sending half of a link: fills its ring and its pool, as far as there is room; the rest
//! waits.

mod untold;

use super::Conn;
use super::bounce::BounceSender;
use super::line::{
    DAMAGED, INLINE, KIND_ABSENT, KIND_DIRECT, KIND_END, KIND_HELLO, KIND_INLINE, KIND_OFFER, KIND_OUTCOME,
    KIND_PERMISSION, KIND_PIECE, KIND_POOLED, KIND_WINDOW, LINE, ORDERS, body_of, head, place, words,
};
use crate::cma::{Classes, Cma, CmaLoan, Kind, LentAt, Outcome};
use crate::fifo_allocator::{FifoAllocator, SMALL, SMALLEST};
use crate::region::{Pool, Region, Ring, Side};
use arrayvec::ArrayVec;
use ofi_engine::transport::{Payload, RecvTarget, Token};
use ofi_engine::wire::frame::{Header, Violation};
use ofi_memory::Buffer;
use ofi_sync::account::Account;
use ofi_sync::lines::{BODY, SlotWriter, Writer};
use std::collections::VecDeque;
use std::sync::Arc;

/// Frames that may wait for a peer that does not read, if the account has room for them, and if
/// not.
const BACKLOG: usize = 256;
const LEAST_BACKLOG: usize = 16;
/// Bytes that [`BACKLOG`] frames take.
const BACKLOG_COST: usize = BACKLOG * size_of::<Out>();

/// Something to send that waits for room.
#[derive(Debug)]
pub(crate) enum Out {
    /// Header and payload that fit into lines, the header's length, and the send to report as done.
    Small(ArrayVec<u8, INLINE>, usize, Option<(Token, Buffer)>),
    /// A payload that goes through the pool.
    Large(Large),
    /// A payload whose memory is gone: its header, and its length.
    Absent(Header, usize),
    /// The answer to a connect request.
    Hello(Vec<u8>, [u8; 16]),
    /// The number of a payload that the other side lent, its outcome, and the receive target if the
    /// engine is to have it only once the outcome is sent.
    Outcome(u32, Outcome, Option<RecvTarget>),
    /// The classes of payloads that this side reads in the other side's memory, and whether the
    /// other side has asked.
    Permission(Classes, bool),
    /// Nothing follows.
    End,
}

/// What a link keeps for something that waits.
#[derive(Debug)]
pub(crate) enum Kept {
    /// The payload, with the engine's token.
    Payload(Token, Buffer),
    /// The target of a payload that is in place.
    Target(RecvTarget),
}

impl Out {
    fn into_kept(self) -> Option<Kept> {
        match self {
            Self::Large(Large { buffer, token: Some(token), .. }) | Self::Small(.., Some((token, buffer))) => {
                Some(Kept::Payload(token, buffer))
            }
            Self::Outcome(.., Some(target)) => Some(Kept::Target(target)),
            _ => None,
        }
    }
}

/// A payload that goes through the pool; `done` bytes of it are sent.
#[derive(Debug)]
pub(crate) struct Large {
    pub(crate) header: Header,
    pub(crate) buffer: Buffer,
    pub(crate) from: usize,
    pub(crate) len: usize,
    pub(crate) done: usize,
    /// The engine's token for it; none for our own copy.
    pub(crate) token: Option<Token>,
    /// It may be lent instead when its turn comes.
    pub(crate) may_lend: bool,
}

/// How far the orderly end of a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The engine has not asked for it.
    Open,
    /// It waits behind everything else.
    Queued,
    Sent,
}

/// The state of the sending half of a link.
#[derive(Debug)]
pub(crate) struct Sender {
    writer: Writer<Ring>,
    pool: Pool,
    allocator: FifoAllocator,
    bounce: BounceSender,
    out: VecDeque<Out>,
    end: End,
    /// In the transport's list of links with something to send.
    listed: bool,
    /// The account is charged for a long backlog.
    charged: bool,
    /// The engine submits nothing more until the transport reports room.
    stalled: bool,
    /// Bytes by which the pool was grown, to return to the budget.
    grown: usize,
}

impl Sender {
    pub(super) fn new(region: &Arc<Region>, side: Side) -> Self {
        let pool = region.pool(side);
        let mut allocator = FifoAllocator::new(pool.bytes.len());
        allocator.grow(SMALLEST, pool.place_of(SMALLEST));
        Self {
            writer: Writer::new(region.ring(side)),
            pool,
            allocator,
            bounce: BounceSender::new(region.bounce(side)),
            out: VecDeque::new(),
            end: End::Open,
            listed: false,
            charged: false,
            stalled: false,
            grown: 0,
        }
    }

    /// Prefetches the next line.
    #[inline(always)]
    pub(crate) fn fetch_line(&self) {
        self.writer.fetch();
    }

    /// Sends a frame with the first `len` bytes of a buffer if it fits into lines and there is room
    /// for it now.
    #[inline(always)]
    pub(crate) fn send_line(&mut self, header: &Header, buffer: &Buffer, len: usize) -> bool {
        if header.len() + len > LINE {
            return self.send_two_lines(header, buffer, len);
        }
        let Some(payload) = buffer.words(len) else { return false };
        if self.writer.has_room(1) != Ok(true) {
            return false;
        }
        let line = self.writer.slot();
        let words = put_header(line, header);
        for (at, word) in payload.enumerate() {
            line.set(words + at, word);
        }
        self.writer.publish(head(KIND_INLINE, header.len(), len));
        true
    }

    fn send_two_lines(&mut self, header: &Header, buffer: &Buffer, len: usize) -> bool {
        let Some(mut payload) = buffer.words(len) else { return false };
        if header.len() + len > INLINE || self.writer.has_room(2) != Ok(true) {
            return false;
        }
        let (line, second_line) = (self.writer.slot(), self.writer.second_slot());
        let words = put_header(line, header);
        for at in words..BODY {
            let Some(word) = payload.next() else { break };
            line.set(at, word);
        }
        for at in 0..BODY {
            let Some(word) = payload.next() else { break };
            second_line.set(at, word);
        }
        self.writer.publish_two(head(KIND_INLINE, header.len(), len));
        true
    }

    /// Sends header and payload, at most [`INLINE`] bytes, if there is room for them now.
    #[inline]
    pub(crate) fn send_small(&mut self, bytes: &[u8], header: usize) -> Result<bool, Violation> {
        let len = bytes.len() - header;
        if bytes.len() <= LINE {
            if !self.writer.has_room(1).map_err(|_| DAMAGED)? {
                return Ok(false);
            }
            self.writer.write(head(KIND_INLINE, header, len), &words(bytes));
        } else {
            if !self.writer.has_room(2).map_err(|_| DAMAGED)? {
                return Ok(false);
            }
            self.writer.write_two(head(KIND_INLINE, header, len), &words(&bytes[..LINE]), &words(&bytes[LINE..]));
        }
        Ok(true)
    }

    /// Allocates `len` bytes of the pool for a payload of `total`, if they and a line are free now.
    /// `budget`: bytes by which pools may still grow.
    /// `begun`: the payload's first pieces have left.
    fn take(
        &mut self,
        len: usize,
        (total, begun): (usize, bool),
        budget: &mut usize,
    ) -> Result<Option<usize>, Violation> {
        for attempt in 0..2 {
            if attempt > 0 {
                self.writer.look().map_err(|_| DAMAGED)?;
            }
            let room = self.writer.has_room(1).map_err(|_| DAMAGED)?;
            // Before `take` reuses the line's entry.
            self.allocator.free(self.writer.consumed());
            if let Some(wanted) = self.allocator.wanted(total) {
                self.grow(wanted, budget);
            }
            if !begun && self.allocator.is_cramped(total) {
                // No allocation now: the pool drains, so that it can grow.
                continue;
            }
            if room && let Some(at) = self.allocator.take(self.writer.written(), len) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    #[cold]
    fn grow(&mut self, wanted: usize, budget: &mut usize) {
        let limit = self.allocator.limit();
        let is_affordable = wanted <= SMALL || wanted - limit <= *budget;
        let wanted = if is_affordable || limit >= SMALL { wanted } else { SMALL };
        let (small, more) = (wanted <= SMALL, wanted - limit);
        if !small && more > *budget || self.pool.provide(wanted).is_err() {
            // Keep the current size: slower, but it works.
            self.allocator.settle();
            return;
        }
        if !small {
            *budget -= more;
            self.grown += more;
        }
        self.allocator.grow(wanted, self.pool.place_of(wanted));
    }

    /// Sends as much of a payload as there is room for. True once all of it is sent.
    pub(crate) fn send_large(&mut self, large: &mut Large, budget: &mut usize) -> Result<bool, Violation> {
        self.send_pieces(large, 0, budget)
    }

    /// The same, in pieces of at least this length.
    fn send_pieces(&mut self, large: &mut Large, least: usize, budget: &mut usize) -> Result<bool, Violation> {
        while large.done < large.len {
            // The pool may grow for it.
            let len = self.allocator.piece(large.len).max(least).min(large.len - large.done);
            let Some(at) = self.take(len, (large.len, large.done > 0), budget)? else { return Ok(false) };
            self.pool.bytes.fill(at, &large.buffer, large.from + large.done, len);
            if large.done == 0 {
                let body = body_of(&large.header, [place(at, len), 0]);
                self.writer.write(head(KIND_POOLED, large.header.len(), large.len), &body);
            } else {
                let mut body = [0; BODY];
                body[0] = place(at, 0);
                self.writer.write(head(KIND_PIECE, 0, len), &body);
            }
            large.done += len;
        }
        self.fetch_next(large.len);
        Ok(true)
    }

    /// Prefetches the part of the pool that the next payload goes to if it is as long as the last:
    /// its lines move here while the peer reads, not while this side copies.
    #[inline]
    fn fetch_next(&self, len: usize) {
        /// Half of a small first-level cache.
        const MOST: usize = 16 << 10;
        let len = len.min(MOST);
        if let Some(at) = self.allocator.next(len) {
            self.pool.bytes.fetch_to_write(at, len);
        }
    }

    /// Sends an answer, if there is room.
    fn send_hello(&mut self, hello: &[u8], identity: [u8; 16], orders: bool) -> Result<bool, Violation> {
        if !self.writer.has_room(1).map_err(|_| DAMAGED)? {
            return Ok(false);
        }
        self.bounce.leave_hello(hello);
        let mut body: [u64; BODY] = words(&identity);
        body[2] = if orders { ORDERS } else { 0 };
        self.writer.write(head(KIND_HELLO, 0, hello.len()), &body);
        Ok(true)
    }

    /// How many sends may wait while the other side does not read.
    const fn backlog(&self) -> usize {
        if self.charged { BACKLOG } else { LEAST_BACKLOG }
    }

    /// Whether the other side does not read and the backlog is full. Room will be reported.
    pub(crate) fn is_backed_up(&mut self, account: &Account) -> bool {
        if self.out.len() >= LEAST_BACKLOG && !self.charged {
            self.charged = account.try_charge(BACKLOG_COST);
        }
        let stalled = self.out.len() >= self.backlog();
        self.stalled |= stalled;
        stalled
    }

    /// After something was sent: returns what the backlog cost, if there is none any more. True if
    /// back-pressure is over.
    pub(crate) fn relax(&mut self, account: &Account) -> bool {
        let has_room = self.stalled && self.out.len() < self.backlog() / 2;
        self.stalled &= !has_room;
        if self.out.is_empty() {
            self.discharge(account);
        }
        has_room
    }

    fn discharge(&mut self, account: &Account) {
        if core::mem::take(&mut self.charged) {
            account.release(BACKLOG_COST);
        }
    }

    /// Ends the link's use of the account and of the budget for pools.
    pub(crate) fn release(&mut self, account: &Account, budget: &mut usize) {
        self.discharge(account);
        *budget += core::mem::take(&mut self.grown);
    }

    /// Takes note that the transport lists the link as one with something to send. False if it did
    /// already.
    pub(crate) const fn enlist(&mut self) -> bool {
        !core::mem::replace(&mut self.listed, true)
    }

    /// The transport does not list the link any more.
    pub(crate) const fn delist(&mut self) {
        self.listed = false;
    }

    /// Queues the end of the link. False if it was queued already.
    pub(crate) fn close(&mut self) -> bool {
        let is_first = self.end == End::Open;
        if is_first {
            self.end = End::Queued;
            self.out.push_back(Out::End);
        }
        is_first
    }

    /// Whether the end of the link is queued or sent.
    #[inline(always)]
    pub(crate) fn is_closing(&self) -> bool {
        self.end != End::Open
    }

    /// Whether the end of the link has been sent.
    pub(crate) fn has_ended(&self) -> bool {
        self.end == End::Sent
    }

    /// Queues something to send, ahead of a queued end.
    pub(crate) fn queue(&mut self, out: Out) {
        let ends = self.end == End::Queued;
        self.out.insert(self.out.len() - usize::from(ends), out);
    }

    /// Whether sends wait for room; a new send must not overtake them.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        !self.out.is_empty() || self.bounce.is_active()
    }

    /// The number of the payload that the other side wants through the bounce buffer.
    pub(super) fn wanted(&self) -> Option<u64> {
        self.bounce.wanted()
    }

    /// Passes the payload that the other side wants through the bounce buffer; `None`: its memory
    /// is gone. One at a time.
    pub(super) fn bounce(&mut self, payload: Option<Large>) {
        self.bounce.begin(payload);
    }

    /// Whether one is passing.
    pub(super) const fn is_bouncing(&self) -> bool {
        self.bounce.is_active()
    }

    /// Whether the other side has made room for a waiting send since this side last looked.
    pub(crate) fn has_new_room(&mut self) -> bool {
        let before = self.writer.consumed();
        self.has_more() && (self.writer.look().is_ok_and(|now| now != before) || self.bounce.has_room())
    }

    /// Returns what the link kept. The link is at its end.
    pub(super) fn take_back(&mut self) -> impl Iterator<Item = Kept> {
        self.out.extend(self.bounce.take_back().map(Out::Large));
        self.out.drain(..).filter_map(Out::into_kept)
    }

    /// Sends what waits, as far as there is room. True if anything moved. `ended` takes back what
    /// the link kept for what is sent.
    pub(crate) fn send_waiting(
        &mut self,
        cma: &mut Cma,
        (orders, may_keep_eager): (bool, bool),
        budget: &mut usize,
        mut ended: impl FnMut(Kept),
    ) -> Result<bool, Violation> {
        let (mut any, passed) = self.bounce.pass();
        passed.and_then(|large| Out::Large(large).into_kept()).into_iter().for_each(&mut ended);
        while let Some(out) = self.out.pop_front() {
            let Some(mut out) = self.lend_waiting(cma, out, may_keep_eager) else {
                any = true;
                continue;
            };
            let done = match &mut out {
                Out::Small(bytes, header, _) => self.send_small(bytes, *header)?,
                Out::Large(large) => {
                    let before = large.done;
                    let done = self.send_large(large, budget)?;
                    any |= large.done > before;
                    done
                }
                Out::Absent(header, len) => self.send_absent(header, *len)?,
                Out::Hello(hello, identity) => self.send_hello(hello, *identity, orders)?,
                Out::Outcome(number, outcome, _) => {
                    let done = self.send_word(KIND_OUTCOME, (*number).into(), outcome.code())?;
                    if done {
                        cma.replied();
                    }
                    done
                }
                Out::Permission(classes, is_answer) => {
                    let done = self.send_word(KIND_PERMISSION, classes.code(), u64::from(*is_answer))?;
                    if done && *is_answer {
                        cma.has_answered();
                    }
                    done
                }
                // Not before the other side is done with the payloads that it is to read.
                Out::End if cma.has_lent() || self.bounce.is_active() => false,
                Out::End => {
                    let room = self.writer.has_room(1).map_err(|_| DAMAGED)?;
                    if room {
                        self.writer.write(head(KIND_END, 0, 0), &[0; BODY]);
                        self.end = End::Sent;
                    }
                    room
                }
            };
            if !done {
                self.out.push_front(out);
                return Ok(any);
            }
            any = true;
            out.into_kept().into_iter().for_each(&mut ended);
        }
        Ok(any)
    }

    /// Sends the outcome of a payload that the other side lent, ahead of what waits: lines that
    /// answer payloads have no order with others. False if there is no room for it.
    pub(crate) fn send_outcome(&mut self, number: u32, outcome: Outcome) -> Result<bool, Violation> {
        self.send_word(KIND_OUTCOME, number.into(), outcome.code())
    }

    /// Sends a line of two words. False if there is no room for it.
    fn send_word(&mut self, kind: u64, first: u64, second: u64) -> Result<bool, Violation> {
        let room = self.writer.has_room(1).map_err(|_| DAMAGED)?;
        if room {
            self.writer.write(head(kind, 0, 0), &[first, second, 0, 0, 0, 0, 0]);
        }
        Ok(room)
    }

    /// Reports that a payload's memory is gone. False if there is no room for the line.
    fn send_absent(&mut self, header: &Header, len: usize) -> Result<bool, Violation> {
        let room = self.writer.has_room(1).map_err(|_| DAMAGED)?;
        if room {
            self.writer.write(head(KIND_ABSENT, header.len(), len), &body_of(header, [0; 2]));
        }
        Ok(room)
    }

    /// Whether a line can be sent now: [`Self::tell_window`], [`Self::send_outcome`].
    pub(crate) fn has_room_for_line(&mut self) -> bool {
        self.writer.has_room(1) == Ok(true)
    }

    /// Tells the other side that a window for its payload is open.
    pub(crate) fn tell_window(&mut self, number: u32, to: usize, len: usize) {
        let now = ofi_os::clock::now().nanos();
        self.writer.write(head(KIND_WINDOW, 0, len), &[number.into(), to as u64, now, 0, 0, 0, 0]);
    }

    /// Lends a payload whose turn has come, if the other side may read it. Otherwise returns what
    /// it was given. Without this, all payloads behind one that waits for the pool would take it.
    fn lend_waiting(&mut self, cma: &mut Cma, out: Out, may_keep_eager: bool) -> Option<Out> {
        let mut large = match out {
            Out::Large(large) if large.may_lend && large.done == 0 => large,
            other => return Some(other),
        };
        let kind = Kind::to_lend(&large.header, large.len, may_keep_eager);
        let (Some(token), Some(kind)) = (large.token, kind) else {
            return Some(Out::Large(large));
        };
        let at = cma.place_if_permitted(&large.buffer, large.from, large.len);
        let mut buffer = Some(large.buffer);
        let mut payload = Payload { buffer: &mut buffer, from: large.from, len: large.len, token, inject: false };
        let is_lent = self.lend_at(cma, (at, kind), &large.header, &mut payload);
        large.buffer = buffer?;
        (!is_lent).then_some(Out::Large(large))
    }

    /// Lends a large payload to the other side, if it may read it and there is room for a line now.
    /// Takes the buffer out of `payload` then.
    pub(crate) fn send_cma(&mut self, cma: &mut Cma, header: &Header, payload: &mut Payload<'_>, kind: Kind) -> bool {
        let &mut Payload { from, len, .. } = payload;
        let at = payload.buffer.as_ref().and_then(|buffer| cma.place_of(buffer, from, len));
        self.lend_at(cma, (at, kind), header, payload)
    }

    /// The same, if there is an address at which the other side may read it.
    fn lend_at(
        &mut self,
        cma: &mut Cma,
        (at, kind): (Option<u64>, Kind),
        header: &Header,
        payload: &mut Payload<'_>,
    ) -> bool {
        let &mut Payload { from, len, token, .. } = payload;
        let (Some(at), true) = (at, self.writer.has_room(1) == Ok(true)) else { return false };
        let Some(buffer) = payload.buffer.take() else { return false };
        let number = cma.next_number();
        cma.lend(CmaLoan::new(number, *header, buffer, (from, len), (token, kind)));
        let body = body_of(header, [at, LentAt::new(ofi_os::clock::now()).pack(number)]);
        let line = if kind == Kind::Offer { KIND_OFFER } else { KIND_DIRECT };
        self.writer.write(head(line, header.len(), len), &body);
        true
    }
}

impl Conn {
    /// Whether eager messages may stay here until the other side reads them. They are done as soon
    /// as the pool has them, so they wait only for a side that does not sleep.
    pub(crate) fn may_keep_eager(&self) -> bool {
        self.is_connectionless && self.presence.is_attentive()
    }
}

/// Fills a line's first words with a header; returns how many it has. Words beyond it are
/// overwritten by the payload, or ignored.
#[inline(always)]
fn put_header(line: SlotWriter<'_>, header: &Header) -> usize {
    let [first, second, third, fourth, fifth] = header.words();
    line.set(0, first);
    line.set(1, second);
    let words = header.len() / 8;
    if words > 2 {
        line.set(2, third);
        line.set(3, fourth);
        line.set(4, fifth);
    }
    words
}
