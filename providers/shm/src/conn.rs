//! One link: a ring and a pool in each direction, the sends that wait for room in them, and the
//! payload that is arriving. This side reads each shared word once and checks it; a violation costs
//! this link alone.
//!
//! ```text
//! first word of a line   stamp 16 · kind 8 · header length 8 · length 32 (from the highest bits)
//! Inline   header and payload follow, up to the end of the next line
//! Pooled   header in 32 bytes · offset in the pool u32 · bytes there u32; length: of the payload
//! Piece    offset u32 · 0 u32; length: bytes there, of the payload that is arriving
//! Hello    identity [16] · flags u64 · offset u32 · 0 u32; length: bytes there
//! End      nothing follows
//! Direct   header in 32 bytes · address u64 · number u64; length: of the payload (`cma.rs`)
//! Absent   header; length: of the payload, whose memory is gone
//! Outcome  number u64 · outcome of the payload of that number u64
//! Leave    1: this side can read the other's memory, 0: it cannot, or does not any more
//! ```

use crate::cma::{self, Cma, CmaLoan, Outcome};
use crate::fifo_allocator::{FifoAllocator, SMALLEST};
use crate::region::{Pool, ReadyBitmap, Region, Ring, Side};
use arrayvec::ArrayVec;
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_engine::transport::{Disposition, Down, Incoming, LinkEvents, LinkId, RecvTarget, Token};
use ofi_engine::wire::frame::{Header, MAX_HEADER, MAX_PAYLOAD, Violation};
use ofi_engine::wire::hello;
use ofi_memory::Buffer;
use ofi_os::control_socket::LivenessPipe;
use ofi_os::descriptor::PrivateFd;
use ofi_os::process::Life;
use ofi_sync::lines::{self, BODY, News, Order, Reader, SleepState, WakeAction, Writer, order_own, wake_action};
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

mod cma_link;

/// Bytes of header and payload that may travel in lines.
pub(crate) const INLINE: usize = 2 * BODY * 8;
/// Bytes of header and payload that fit into one line.
const LINE: usize = BODY * 8;
/// Lines read from a link before others have their turn.
const READS: usize = 64;
/// Lines to prefetch ahead when there are several.
const AHEAD: u64 = 4;
/// Bytes read from a link before others have their turn.
const BYTES: usize = 1 << 20;

/// Frames that may wait for a peer that does not read, if the account has room for them, and if
/// not.
const BACKLOG: usize = 256;
pub(crate) const LEAST_BACKLOG: usize = 16;
/// Bytes that [`BACKLOG`] frames take.
pub(crate) const BACKLOG_COST: usize = BACKLOG * size_of::<Out>();

const KIND_INLINE: u64 = 1;
const KIND_POOLED: u64 = 2;
const KIND_PIECE: u64 = 3;
const KIND_HELLO: u64 = 4;
const KIND_END: u64 = 5;
const KIND_DIRECT: u64 = 6;
const KIND_OUTCOME: u64 = 7;
const KIND_LEAVE: u64 = 8;
const KIND_ABSENT: u64 = 9;

/// Flag of a hello: the sender takes part in ordering memory accesses across processes.
const ORDERS: u64 = 1;

const fn head(kind: u64, header: usize, len: usize) -> u64 {
    kind << 40 | (header as u64) << 32 | len as u64
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "8 bits")]
const fn header_of(word: u64) -> usize {
    (word >> 32 & 0xff) as usize
}

/// The upper half of a line's first word, for a message with a tag and nothing else.
const PLAIN_HEAD: u64 = head(KIND_INLINE, 16, 0) >> 32;

const fn place(at: usize, len: usize) -> u64 {
    (at as u64) << 32 | len as u64
}

#[allow(clippy::cast_possible_truncation, reason = "32 bits each")]
const fn unplace(word: u64) -> (usize, usize) {
    ((word >> 32) as usize, (word & 0xffff_ffff) as usize)
}

/// Packs at most `8 * N` bytes into words, padded with zeros.
#[inline]
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut out = [0; N];
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in out.iter_mut().zip(chunks) {
        *word = u64::from_ne_bytes(*chunk);
    }
    if !rest.is_empty()
        && let Some(word) = out.get_mut(chunks.len())
    {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        *word = u64::from_ne_bytes(last);
    }
    out
}

/// How far the handshake of a link is.
#[derive(Debug)]
pub(crate) enum State {
    /// The request is not sent yet: the other side's socket was full.
    Unasked { memory: PrivateFd, hello: Vec<u8>, liveness: Option<(LivenessPipe, PrivateFd)> },
    /// Waits for the answer, with a liveness pipe if another endpoint may take the peer's name.
    Asking(Option<LivenessPipe>),
    /// Frames flow.
    Open,
}

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
    /// The number of a payload that the other side lent, and its outcome.
    Outcome(u64, Outcome),
    /// Whether this side reads the other side's memory.
    Permission(bool),
    /// Nothing follows.
    End,
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
}

/// A payload that is arriving through the pool.
#[derive(Debug)]
struct Coming {
    target: Option<RecvTarget>,
    done: usize,
    total: usize,
    /// When it began, if it is large enough to be timed.
    began: Option<Instant>,
}

/// Why a link ends.
#[derive(Debug)]
pub(crate) enum Trouble {
    Violation(Violation),
    /// The engine did not take the answer.
    Down(Down),
    /// The other side shut the link down in order.
    Ended,
}

impl From<Violation> for Trouble {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

const DAMAGED: Violation = Violation("the link's shared memory is corrupt");

#[derive(Debug)]
pub(crate) struct Conn {
    region: Arc<Region>,
    pub(crate) side: Side,
    writer: Writer<Ring>,
    reader: Reader<Ring>,
    pool: Pool,
    theirs: Pool,
    allocator: FifoAllocator,
    pub(crate) state: State,
    pub(crate) remote: Addr,
    /// The name by which the other side is woken and probed.
    pub(crate) peer: String,
    /// The initiator's number for the connect request.
    pub(crate) number: u64,
    order: Order,
    coming: Option<Coming>,
    pub(crate) cma: Cma,
    pub(crate) out: VecDeque<Out>,
    /// The engine has asked for the end.
    pub(crate) finishing: bool,
    /// The end has been sent.
    pub(crate) ended: bool,
    /// The other side's process or endpoint is gone.
    pub(crate) lost: bool,
    /// Distinguishes the links that have the same slot one after the other.
    pub(crate) serial: u64,
    /// In the list of links with something to send.
    pub(crate) listed: bool,
    /// Position in the poll schedule.
    pub(crate) rank: usize,
    /// Not polled in every pass.
    pub(crate) idle: bool,
    /// Reads that found something since it became idle.
    pub(crate) calls: u32,
    /// The other side has been offered our bitmap.
    pub(crate) told: bool,
    /// The other side's bitmap, and this link's bit in it.
    pub(crate) bitmap: Option<(ReadyBitmap, usize)>,
    /// Bytes by which the pool was grown, to return to the budget.
    pub(crate) grown: usize,
    /// The other side's process, where the system reports its end.
    pub(crate) life: Option<Arc<Life>>,
    /// The other side does not know this side's process yet.
    pub(crate) unknown: bool,
    /// The account is charged for a long backlog.
    pub(crate) charged: bool,
    /// The engine submits nothing more until the transport reports room.
    pub(crate) stalled: bool,
}

impl Conn {
    pub(crate) fn new(
        region: Arc<Region>,
        side: Side,
        state: State,
        remote: Addr,
        peer: String,
        number: u64,
    ) -> io::Result<Self> {
        let (pool, theirs) = (region.pool(side), region.pool(side.other()));
        let mut allocator = FifoAllocator::new(pool.bytes.len());
        pool.provide(SMALLEST)?;
        allocator.grow(SMALLEST);
        Ok(Self {
            writer: Writer::new(region.ring(side)),
            reader: Reader::new(region.ring(side.other())),
            allocator,
            pool,
            theirs,
            region,
            side,
            state,
            remote,
            peer,
            number,
            order: Order::ByBoth,
            coming: None,
            cma: Cma::default(),
            out: VecDeque::new(),
            finishing: false,
            ended: false,
            lost: false,
            serial: 0,
            listed: false,
            rank: 0,
            idle: false,
            calls: 0,
            told: false,
            bitmap: None,
            grown: 0,
            life: None,
            unknown: false,
            charged: false,
            stalled: false,
        })
    }

    /// Sets who orders memory accesses: the sleeper alone, if both processes take part.
    pub(crate) const fn set_order(&mut self, ours: bool, theirs: bool) {
        self.order = if ours && theirs { Order::ByReader } else { Order::ByBoth };
    }

    /// Whether there is something to read.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.reader.is_ready()
    }

    /// Notifies the other side of `news`, unless it polls the link anyway. True if it must be
    /// woken.
    #[inline(always)]
    pub(crate) fn must_wake(&self, news: News) -> bool {
        match wake_action(self.region.asleep(self.side.other()), news, self.order) {
            WakeAction::Nothing => false,
            WakeAction::Wake => true,
            WakeAction::Note => {
                if let Some((bitmap, place)) = &self.bitmap {
                    bitmap.set(*place);
                }
                false
            }
        }
    }

    /// Announces that this side sleeps. The caller orders its accesses and then checks
    /// [`Self::has_news`] once more.
    pub(crate) fn announce_sleep(&self) {
        SleepState::asleep(self.idle, self.has_more()).announce(self.region.asleep(self.side));
    }

    /// Announces that this side polls.
    pub(crate) fn announce_waking(&self) {
        SleepState::awake(self.idle).announce(self.region.asleep(self.side));
    }

    /// Whether the other side has woken this one since it fell asleep.
    pub(crate) fn was_rung(&self) -> bool {
        lines::was_woken(self.region.asleep(self.side))
    }

    /// Whether there is something to read or new room for a waiting send, or the other side has
    /// left.
    pub(crate) fn has_news(&mut self) -> bool {
        if self.is_ready() || self.is_gone() {
            return true;
        }
        let before = self.writer.consumed();
        self.has_more() && self.writer.look().is_ok_and(|now| now != before)
    }

    /// Whether the request will never be answered: the endpoint that received it has ended.
    pub(crate) fn is_lost_request(&self) -> bool {
        // In this order: the peer writes its answer before it drops the request.
        matches!(&self.state, State::Asking(Some(liveness)) if liveness.is_closed()) && !self.is_ready()
    }

    fn word(&self, side: Side) -> &AtomicU64 {
        self.region.gone(side)
    }

    /// Marks this side as gone, in the shared memory.
    pub(crate) fn leave(&self) {
        // Release pairs with the Acquire in `is_gone`: the other side sees lines written before.
        self.word(self.side).store(1, Ordering::Release);
        // Before the application reuses the memory that the other side was reading.
        order_own();
    }

    /// Whether the other side has marked itself as gone.
    pub(crate) fn is_gone(&self) -> bool {
        // Acquire pairs with the Release in `leave`.
        self.word(self.side.other()).load(Ordering::Acquire) != 0
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
        let [first, second, third, fourth] = header.words();
        // Words beyond the header are overwritten by the payload, or ignored.
        line.set(0, first);
        line.set(1, second);
        let words = header.len() / 8;
        if words > 2 {
            line.set(2, third);
            line.set(3, fourth);
        }
        for (at, word) in payload.enumerate() {
            line.set(words + at, word);
        }
        self.writer.publish(head(KIND_INLINE, header.len(), len));
        true
    }

    fn send_two_lines(&mut self, header: &Header, buffer: &Buffer, len: usize) -> bool {
        let Some(payload) = buffer.words(len) else { return false };
        if header.len() + len > INLINE || self.writer.has_room(2) != Ok(true) {
            return false;
        }
        let (first, second) = (self.writer.slot(), self.writer.second_slot());
        let words = header.words().into_iter().take(header.len() / 8).chain(payload);
        for (at, word) in words.enumerate() {
            if at < BODY {
                first.set(at, word);
            } else {
                second.set(at - BODY, word);
            }
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

    /// Allocates `len` bytes of the pool, if they and a line are free now. `budget`: bytes by which
    /// pools may still grow.
    fn take(&mut self, len: usize, budget: &mut usize) -> Result<Option<usize>, Violation> {
        for attempt in 0..2 {
            if attempt > 0 {
                self.writer.look().map_err(|_| DAMAGED)?;
            }
            let room = self.writer.has_room(1).map_err(|_| DAMAGED)?;
            // Before `take` reuses the line's entry.
            self.allocator.free(self.writer.consumed());
            if self.allocator.wanted().is_some() {
                self.grow(budget);
            }
            if self.allocator.is_cramped() {
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
    fn grow(&mut self, budget: &mut usize) {
        let Some(wanted) = self.allocator.wanted() else { return };
        let more = wanted - self.allocator.limit();
        let small = wanted <= 16 << 10;
        if !small && more > *budget || self.pool.provide(wanted).is_err() {
            // Keep the current size: slower, but it works.
            self.allocator.settle();
            return;
        }
        if !small {
            *budget -= more;
            self.grown += more;
        }
        self.allocator.grow(wanted);
    }

    /// Sends as much of a payload as there is room for. True once all of it is sent.
    pub(crate) fn send_large(&mut self, large: &mut Large, budget: &mut usize) -> Result<bool, Violation> {
        let piece = self.allocator.piece(large.len);
        while large.done < large.len {
            let len = piece.min(large.len - large.done);
            let Some(at) = self.take(len, budget)? else { return Ok(false) };
            self.pool.bytes.fill(at, &large.buffer, large.from + large.done, len);
            if large.done == 0 {
                let [first, second, third, fourth] = large.header.words();
                let body = [first, second, third, fourth, place(at, len), 0, 0];
                self.writer.write(head(KIND_POOLED, large.header.len(), large.len), &body);
            } else {
                let mut body = [0; BODY];
                body[0] = place(at, 0);
                self.writer.write(head(KIND_PIECE, 0, len), &body);
            }
            large.done += len;
        }
        Ok(true)
    }

    /// Sends an answer, if there is room.
    fn send_hello(&mut self, hello: &[u8], identity: [u8; 16], orders: bool) -> Result<bool, Violation> {
        let mut none = 0;
        let Some(at) = self.take(hello.len(), &mut none)? else { return Ok(false) };
        self.pool.bytes.write(at, hello);
        let mut body: [u64; BODY] = words(&identity);
        body[2] = if orders { ORDERS } else { 0 };
        body[3] = place(at, 0);
        self.writer.write(head(KIND_HELLO, 0, hello.len()), &body);
        Ok(true)
    }

    /// How many sends may wait while the other side does not read.
    pub(crate) const fn backlog(&self) -> usize {
        if self.charged { BACKLOG } else { LEAST_BACKLOG }
    }

    /// Whether sends wait for room; a new send must not overtake them.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        !self.out.is_empty()
    }

    /// Sends what waits, as far as there is room. True if anything moved. `sent` takes back
    /// payloads that are sent.
    pub(crate) fn send_waiting(
        &mut self,
        orders: bool,
        budget: &mut usize,
        mut sent: impl FnMut(Token, Buffer),
    ) -> Result<bool, Violation> {
        let mut any = false;
        while let Some(mut out) = self.out.pop_front() {
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
                Out::Outcome(number, outcome) => {
                    let done = self.send_word(KIND_OUTCOME, *number, outcome.code())?;
                    if done {
                        self.cma.replied();
                    }
                    done
                }
                Out::Permission(yes) => {
                    let done = self.send_word(KIND_LEAVE, u64::from(*yes), 0)?;
                    if done {
                        self.cma.has_answered();
                    }
                    done
                }
                // Not before the other side is done with the payloads lent to it.
                Out::End if self.cma.has_lent() => false,
                Out::End => {
                    let room = self.writer.has_room(1).map_err(|_| DAMAGED)?;
                    if room {
                        self.writer.write(head(KIND_END, 0, 0), &[0; BODY]);
                        self.ended = true;
                    }
                    room
                }
            };
            if !done {
                self.out.push_front(out);
                return Ok(any);
            }
            any = true;
            if let Out::Large(Large { buffer, token: Some(token), .. }) | Out::Small(.., Some((token, buffer))) = out {
                sent(token, buffer);
            }
        }
        Ok(any)
    }

    /// Reads lines, at most [`READS`] and about [`BYTES`]. True if there were any.
    #[inline(always)]
    pub(crate) fn read(&mut self, link: LinkId, ours: bool, events: &mut impl LinkEvents) -> Result<bool, Trouble> {
        let (mut lines, mut bytes) = (0, 0);
        let mut next = self.reader.head();
        while let Some(word) = next
            && lines < READS
        {
            if lines > 0 {
                // After a second line, more are likely.
                self.reader.fetch(AHEAD);
            }
            lines += 1;
            if !self.read_short(link, word, events)? {
                bytes += self.read_any(link, word, ours, events)?;
                if bytes >= BYTES {
                    break;
                }
            }
            next = self.reader.head();
        }
        Ok(lines > 0)
    }

    /// Reads a frame that fits into one line. False, with nothing done, if the line is anything
    /// else or not expected now.
    #[inline(always)]
    fn read_short(&mut self, link: LinkId, word: u64, events: &mut impl LinkEvents) -> Result<bool, Trouble> {
        let (_, len) = unplace(word);
        if word >> 32 == PLAIN_HEAD && len <= 8 && !self.state_is_other() {
            // The most frequent message stays in registers.
            let [first, second, third] = self.reader.front::<3>().map(u64::to_ne_bytes);
            self.reader.advance(1);
            events.handle_frame(link, [first, second].as_flattened(), Incoming::Complete(&third[..len]))?;
            return Ok(true);
        }
        let header = header_of(word);
        let total = header + len;
        if word >> 40 != KIND_INLINE || header > MAX_HEADER || total > LINE || self.state_is_other() {
            return Ok(false);
        }
        let bytes = self.reader.front::<BODY>().map(u64::to_ne_bytes);
        self.reader.advance(1);
        let (header, payload) = bytes.as_flattened()[..total].split_at(header);
        events.handle_frame(link, header, Incoming::Complete(payload))?;
        Ok(true)
    }

    /// True if no frame may begin now.
    #[inline(always)]
    const fn state_is_other(&self) -> bool {
        !matches!(self.state, State::Open) || self.coming.is_some()
    }

    #[inline(never)]
    fn read_any(
        &mut self,
        link: LinkId,
        word: u64,
        ours: bool,
        events: &mut impl LinkEvents,
    ) -> Result<usize, Trouble> {
        let (header, (_, len)) = (header_of(word), unplace(word));
        let body = self.reader.front();
        let mut bytes = 0;
        match word >> 40 {
            KIND_INLINE => self.read_two(link, header, len, body, events)?,
            kind @ (KIND_POOLED | KIND_PIECE) => {
                bytes = if kind == KIND_POOLED {
                    self.read_pooled(link, header, len, &body, events)?
                } else {
                    self.read_piece(link, len, body[0], events)?
                };
                self.reader.advance(1);
                // Return the piece of the pool to the writer at once.
                self.reader.tell();
            }
            KIND_HELLO => self.read_hello(link, len, &body, ours, events)?,
            KIND_DIRECT => {
                bytes = len;
                self.read_cma(link, header, len, &body, events)?;
            }
            KIND_ABSENT => self.read_absent(link, header, len, &body, events)?,
            KIND_OUTCOME => self.read_outcome(link, body[0], body[1], events)?,
            KIND_LEAVE => {
                self.reader.advance(1);
                if !self.cma.answered(body[0] != 0) {
                    return Err(Violation("an unsolicited cross-memory attach permission").into());
                }
            }
            KIND_END => {
                self.reader.advance(1);
                self.reader.tell();
                return Err(Trouble::Ended);
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
        body: [u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<(), Trouble> {
        let total = header + len;
        if header > MAX_HEADER || total <= LINE || total > INLINE || self.state_is_other() {
            return Err(Violation("a line that does not fit").into());
        }
        let second = self.reader.read_second().map_err(|_| DAMAGED)?;
        self.reader.advance(2);
        let both = [body.map(u64::to_ne_bytes), second.map(u64::to_ne_bytes)];
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
    ) -> Result<usize, Trouble> {
        let (at, len) = unplace(body[4]);
        let fits = header <= MAX_HEADER && len <= total && total <= MAX_PAYLOAD && self.theirs.bytes.holds(at, len);
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
        let began = cma::is_large(total).then(ofi_os::clock::now);
        self.coming = Some(Coming { target, done: 0, total, began });
        self.land(link, at, len, events)?;
        Ok(len)
    }

    fn read_piece(
        &mut self,
        link: LinkId,
        len: usize,
        word: u64,
        events: &mut impl LinkEvents,
    ) -> Result<usize, Trouble> {
        let (at, _) = unplace(word);
        let room = self.coming.as_ref().map_or(0, |coming| coming.total - coming.done);
        if len == 0 || len > room || !self.theirs.bytes.holds(at, len) {
            return Err(Violation("a piece that does not fit").into());
        }
        self.land(link, at, len, events)?;
        Ok(len)
    }

    /// Copies `len` bytes at `at` of the pool into the receive target, as the next of the payload
    /// that is arriving.
    fn land(&mut self, link: LinkId, at: usize, len: usize, events: &mut impl LinkEvents) -> Result<(), Violation> {
        let Some(coming) = &mut self.coming else { return Ok(()) };
        if let Some(target) = &mut coming.target {
            let take = target.take.saturating_sub(coming.done).min(len);
            self.theirs.bytes.drain(at, &mut target.buffer, target.at + coming.done, take);
        }
        coming.done += len;
        if coming.done == coming.total
            && let Some(Coming { target, total, began, .. }) = self.coming.take()
        {
            if let Some(began) = began {
                self.cma.note_pooled(cma::since(began), total);
            }
            if let Some(target) = target {
                events.handle_recv_done(link, target)?;
            }
        }
        Ok(())
    }

    fn read_hello(
        &mut self,
        link: LinkId,
        len: usize,
        body: &[u64; BODY],
        ours: bool,
        events: &mut impl LinkEvents,
    ) -> Result<(), Trouble> {
        let (at, _) = unplace(body[3]);
        if !matches!(self.state, State::Asking(_)) || len > hello::MAX_LEN || !self.theirs.bytes.holds(at, len) {
            return Err(Violation("an unexpected or invalid answer to a connect request").into());
        }
        let mut hello = vec![0; len];
        self.theirs.bytes.read(at, &mut hello);
        self.reader.advance(1);
        self.reader.tell();
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&body[0].to_ne_bytes());
        identity[8..].copy_from_slice(&body[1].to_ne_bytes());
        self.peer = crate::names::Identity(identity).name();
        self.set_order(ours, body[2] & ORDERS != 0);
        self.state = State::Open;
        events.handle_connected(link, &hello).map_err(Trouble::Down)
    }

    /// Returns to the engine every buffer that the link kept. The link is at its end.
    pub(crate) fn abandon(&mut self, link: LinkId, events: &mut impl LinkEvents) {
        if let Some(Coming { target: Some(target), .. }) = self.coming.take() {
            events.handle_recv_retry(link, target);
        }
        for CmaLoan { token, buffer, .. } in self.cma.take_all_back() {
            events.handle_send_returned(link, token, buffer);
        }
        for out in self.out.drain(..) {
            if let Out::Large(Large { buffer, token: Some(token), .. }) | Out::Small(.., Some((token, buffer))) = out {
                events.handle_send_returned(link, token, buffer);
            }
        }
    }
}

/// The reason for a link whose peer is gone.
pub(crate) fn ended(conn: &Conn) -> Down {
    let (cause, errno) = match conn.state {
        State::Open => (Cause::Broken, Errno::ECONNRESET),
        State::Unasked { .. } | State::Asking(_) => (Cause::Connect, Errno::ECONNREFUSED),
    };
    Down::new(cause, errno, format!("link to {}: the peer's endpoint is gone", conn.remote))
}

/// The reason for a connect request that cannot be sent.
pub(crate) fn unreachable(to: &Addr, error: &io::Error) -> Down {
    let absent = matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
    let errno =
        if absent { Errno::ECONNREFUSED } else { Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO.raw())) };
    let why = if absent { "no endpoint on this host has this name".to_owned() } else { error.to_string() };
    Down::new(Cause::Connect, errno, format!("connect to {to}: {why}"))
}
