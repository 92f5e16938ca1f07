//! Turns records into a byte stream: the sending half of a connection, without its socket.
//! Heads and small payloads are gathered in one buffer, large ones stay in place; order is kept.
//!
//! The rule for bursts (`README.md`): the first message of a burst leaves before its call returns,
//! and unless the burst before was long, so do the next ones: [`BURST`] in all, or half as many
//! large ones. Later ones are held until a completion queue is read empty, more is posted [`HOLD`]
//! after the last send, or twice that if many are held, or [`FULL`] bytes are held. If none of that
//! happens, the endpoint's backstop sends them; without one, none is held of which the application
//! reads no completion.

use crate::reader::{HELLO, PREFIX};
use core::ops::RangeInclusive;
use ofi_core::Instant;
use ofi_engine::transport::{Flush, Token};
use ofi_engine::wire::frame::MAX_HEADER;
use ofi_memory::{Buffer, Chunk};
use std::collections::VecDeque;
use std::time::Duration;

/// Messages at the start of a burst that are not held, unless the last one was long.
pub const BURST: u8 = 4;
/// Records of a long burst.
pub const LONG: u16 = 16;
/// A payload of this many bytes counts as two messages of a burst: the next ones cost less if they
/// leave together.
const LARGE: usize = 16 << 10;
/// Payloads that leave in halves as the first of a burst that answers a large one: a packet holds
/// up to 64 KiB, and the peer receives the first half while the second is copied. Longer ones are
/// several packets anyway, and for shorter ones the second system call takes what it saves.
const HALVED: RangeInclusive<usize> = 48 << 10..=96 << 10;
/// How long after the last send a message may still be held; twice as long if [`LONG`] are.
pub const HOLD: Duration = Duration::from_micros(4);
/// Messages in a queue of as many or more between two looks at the clock.
const LOOK_EVERY: u32 = 4;
/// Held bytes that force a send.
pub const FULL: usize = 1 << 20;
/// Payloads up to this size are copied behind their header.
pub const COPY: usize = 1024;
/// Larger payloads are padded to a stream position congruent to their address modulo 64.
const ALIGN_FROM: usize = 1024;
/// Reads that find entries before held messages leave anyway.
const PATIENCE: u8 = 16;
/// Most chunks of one send.
const MOST_CHUNKS: usize = 64;

/// A queued piece of the stream.
#[derive(Debug)]
enum Piece {
    /// This many of the gathered bytes.
    Bytes(usize),
    /// A payload that stays in its buffer.
    Lent { buffer: Buffer, from: usize, len: usize, token: Token },
    /// The end of a copied payload: returns its buffer when the bytes before this have been sent.
    End { buffer: Buffer, token: Token },
}

/// The sending half of a connection.
#[derive(Debug, Default)]
pub struct Writer {
    gathered: Vec<u8>,
    /// How many of `gathered` have been sent.
    sent: usize,
    pieces: VecDeque<Piece>,
    /// Bytes queued, both gathered and lent.
    held: usize,
    /// The stream position of the next byte.
    position: u64,
    number: u16,
    /// Messages of the current burst that were not held; a large one counts twice. After a long
    /// burst all but one count as used from the start.
    burst: u8,
    /// The number of the first record of the current burst.
    first: u16,
    /// [`Flush::ByRule`] calls since the queue was last empty.
    passes: u8,
    /// A control frame or a hello is queued: the next flush sends everything.
    pub urgent: bool,
    last_send: Instant,
    /// Posted messages that have joined the queue since.
    joined: u32,
}

/// The longest prefix, header and padding.
const MOST_HEAD: usize = PREFIX + MAX_HEADER + 63;

/// A record's prefix, header and padding.
#[derive(Debug)]
pub struct Head {
    bytes: [u8; MOST_HEAD],
    len: usize,
}

impl Head {
    /// The bytes in front of the payload.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Writer {
    /// Builds the head of the next record, for a payload of `len` bytes at `address`.
    #[inline]
    pub fn head(&mut self, header: &[u8], len: usize, address: usize) -> Head {
        let bare = PREFIX + header.len();
        let pad = if len > ALIGN_FROM {
            let at = usize::try_from(self.position % 64).unwrap_or(0) + bare;
            address.wrapping_sub(at) % 64
        } else {
            0
        };
        let mut head = Head { bytes: [0; MOST_HEAD], len: bare + pad };
        head.bytes[0] = u8::try_from(header.len()).unwrap_or(0);
        head.bytes[1] = u8::try_from(pad).unwrap_or(0);
        head.bytes[2..4].copy_from_slice(&self.number.to_le_bytes());
        head.bytes[4..8].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        head.bytes[PREFIX..bare].copy_from_slice(header);
        self.number = self.number.wrapping_add(1);
        self.position += (head.len + len) as u64;
        head
    }

    /// Queues a hello.
    pub fn push_hello(&mut self, hello: &[u8]) {
        let mut prefix = [HELLO, 0, 0, 0, 0, 0, 0, 0];
        prefix[2..4].copy_from_slice(&self.number.to_le_bytes());
        prefix[4..8].copy_from_slice(&u32::try_from(hello.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.number = self.number.wrapping_add(1);
        self.position += (PREFIX + hello.len()) as u64;
        self.push_bytes(&prefix);
        self.push_bytes(hello);
        self.urgent = true;
    }

    /// Queues bytes.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.gathered.extend_from_slice(bytes);
        self.grow(bytes.len());
    }

    /// Queues a copy of part of a buffer.
    pub fn push_copy(&mut self, buffer: &Buffer, from: usize, len: usize) {
        if len == 0 {
            return;
        }
        buffer.append_to(from, len, &mut self.gathered);
        self.grow(len);
    }

    fn grow(&mut self, count: usize) {
        match self.pieces.back_mut() {
            Some(Piece::Bytes(bytes)) => *bytes += count,
            _ => self.pieces.push_back(Piece::Bytes(count)),
        }
        self.held += count;
    }

    /// Queues part of a buffer without a copy.
    pub fn push_lent(&mut self, buffer: Buffer, from: usize, len: usize, token: Token) {
        self.pieces.push_back(Piece::Lent { buffer, from, len, token });
        self.held += len;
    }

    /// Queues a copied payload's end: `buffer` is returned when all bytes queued so far were sent.
    pub fn push_end(&mut self, buffer: Buffer, token: Token) {
        self.pieces.push_back(Piece::End { buffer, token });
    }

    /// True if nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether the application does not learn when the last piece of the queue has been sent: a
    /// copy, or a response.
    pub fn ends_untold(&self) -> bool {
        match self.pieces.back() {
            None => false,
            Some(Piece::Bytes(_)) => true,
            Some(Piece::Lent { token, .. } | Piece::End { token, .. }) => *token == Token::RESPONSE,
        }
    }

    /// Copied bytes in the queue.
    pub fn copied(&self) -> usize {
        self.gathered.len() - self.sent
    }

    /// Whether a message being posted is sent now. Calls `now` only if the time decides.
    #[inline]
    pub fn may_send(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if !self.is_empty() {
            return false;
        }
        if self.burst < BURST {
            self.burst += 1;
            return true;
        }
        self.is_late(now, HOLD)
    }

    /// A payload of `len` bytes is sent now, after [`Self::may_send`]; `answers` tells that the
    /// peer has sent a large one lately. Returns how much of it the first call should send.
    #[inline]
    pub fn count_large(&mut self, len: usize, answers: bool) -> usize {
        if len < LARGE {
            return len;
        }
        let is_first = self.burst == 1;
        self.burst = self.burst.saturating_add(1);
        if is_first && answers && HALVED.contains(&len) { len / 2 } else { len }
    }

    /// Whether the caller must send the queue now that a message joins it; `more` bytes of the
    /// message are left to send. Of many messages, each [`LOOK_EVERY`]th makes the writer look at
    /// the clock, and the writer holds them for twice as long: the application posts them fast, and
    /// one call for all of them saves much.
    pub fn is_due(&mut self, more: usize, now: impl FnOnce() -> Instant) -> bool {
        self.joined = self.joined.saturating_add(1);
        let hold = if self.joined < LONG.into() { HOLD } else { 2 * HOLD };
        let looks = self.joined < LOOK_EVERY || self.joined.is_multiple_of(LOOK_EVERY);
        self.held + more >= FULL || looks && self.is_late(now, hold)
    }

    fn is_late(&self, now: impl FnOnce() -> Instant, hold: Duration) -> bool {
        now().since(self.last_send) > hold
    }

    /// Records the time of a send.
    #[inline]
    pub const fn sent_at(&mut self, now: Instant) {
        self.last_send = now;
        self.joined = 0;
    }

    /// Handles a flush; true if the queue must be sent. [`Flush::All`] ends the burst.
    pub fn pass(&mut self, how: Flush, now: impl FnOnce() -> Instant) -> bool {
        match how {
            Flush::All => {
                if self.number != self.first {
                    let is_long = self.number.wrapping_sub(self.first) >= LONG;
                    self.burst = if is_long { BURST - 1 } else { 0 };
                    self.first = self.number;
                }
                !self.is_empty()
            }
            Flush::ByRule if self.is_empty() => false,
            Flush::ByRule => {
                self.passes = self.passes.saturating_add(1);
                self.urgent || self.passes >= PATIENCE || self.held >= FULL || self.is_late(now, HOLD)
            }
        }
    }

    /// True if the burst is over and nothing is queued: flushes can skip this writer.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.number == self.first
    }

    /// Calls `send` with the next chunks of the queue.
    pub fn with_chunks<R>(&self, send: impl FnOnce(&[Chunk<'_>]) -> R) -> R {
        let empty = Chunk::of(&[]);
        let mut chunks = [empty; MOST_CHUNKS];
        let mut count = 0;
        let (mut from, mut to) = (self.sent, self.sent);
        for piece in &self.pieces {
            match piece {
                // Consecutive gathered bytes form one chunk, across the ends of payloads.
                Piece::Bytes(bytes) => to += bytes,
                Piece::End { .. } => {}
                // Chunks that do not fit leave later: `advance` counts bytes, not pieces.
                Piece::Lent { buffer, from: first, len, .. } => {
                    let gathered = core::mem::replace(&mut from, to)..to;
                    let gathered = (!gathered.is_empty()).then(|| Chunk::of(&self.gathered[gathered]));
                    let mut push = |chunk| {
                        if let Some(slot) = chunks.get_mut(count) {
                            *slot = chunk;
                            count += 1;
                        }
                    };
                    gathered.into_iter().for_each(&mut push);
                    buffer.for_each(*first, *len, push);
                }
            }
            if count == MOST_CHUNKS {
                break;
            }
        }
        if let Some(slot) = chunks.get_mut(count).filter(|_| from < to) {
            *slot = Chunk::of(&self.gathered[from..to]);
            count += 1;
        }
        send(&chunks[..count])
    }

    /// Removes `count` sent bytes; `done` gets each payload that has been sent whole.
    pub fn advance(&mut self, mut count: usize, mut done: impl FnMut(Token, Buffer)) {
        self.held -= count;
        while count > 0 || matches!(self.pieces.front(), Some(Piece::End { .. })) {
            match self.pieces.pop_front() {
                Some(Piece::End { buffer, token }) => done(token, buffer),
                Some(Piece::Bytes(bytes)) => {
                    let used = bytes.min(count);
                    self.sent += used;
                    count -= used;
                    if used < bytes {
                        self.pieces.push_front(Piece::Bytes(bytes - used));
                    }
                }
                Some(Piece::Lent { buffer, from, len, token }) => {
                    let used = len.min(count);
                    count -= used;
                    if used < len {
                        self.pieces.push_front(Piece::Lent { buffer, from: from + used, len: len - used, token });
                    } else {
                        done(token, buffer);
                    }
                }
                None => break,
            }
        }
        if self.pieces.is_empty() {
            self.gathered.clear();
            self.sent = 0;
            self.passes = 0;
            self.urgent = false;
        } else if self.sent >= 1 << 16 {
            self.gathered.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Empties the queue; `back` gets the payloads that will not be sent.
    pub fn abort(&mut self, mut back: impl FnMut(Token, Buffer)) {
        for piece in self.pieces.drain(..) {
            match piece {
                Piece::Lent { buffer, token, .. } | Piece::End { buffer, token } => back(token, buffer),
                Piece::Bytes(_) => {}
            }
        }
        self.held = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(1_000_000 + micros * 1000)
    }

    #[test]
    fn the_first_four_of_a_burst_leave_at_once() {
        let mut writer = Writer::default();
        writer.sent_at(at(0));
        let sent = (0..6).map(|_| writer.may_send(|| at(1))).collect::<Vec<_>>();
        assert_eq!(sent, [true, true, true, true, false, false]);
        assert!(writer.may_send(|| at(10)), "after a pause nothing is held");
    }

    #[test]
    fn many_messages_are_held_for_longer_at_fewer_looks_at_the_clock() {
        let held = |each: u64| {
            let (mut writer, mut looks) = (Writer::default(), 0);
            writer.sent_at(at(0));
            let clock = |tenths: u64, looks: &mut u32| {
                *looks += 1;
                at(0) + Duration::from_nanos(100 * tenths)
            };
            let all = (1..1000).take_while(|number| !writer.is_due(0, || clock(number * each, &mut looks)));
            (all.count(), looks)
        };
        // Tenths of a microsecond from one message to the next.
        assert_eq!(held(50), (0, 1));
        assert_eq!(held(15), (2, 3));
        assert_eq!(held(4), (11, 6));
        assert_eq!(held(3), (27, 10));
        assert_eq!(held(1), (83, 24));
        // A pause, after few and after many.
        for (held, late) in [(1, 1), (3, 1), (9, 3)] {
            let mut writer = Writer::default();
            writer.sent_at(at(0));
            assert!((0..held).all(|_| !writer.is_due(0, || at(1))));
            assert_eq!((1..).find(|_| writer.is_due(0, || at(1000))), Some(late), "{held}");
        }
        let mut writer = Writer::default();
        writer.sent_at(at(0));
        assert!(writer.is_due(FULL, || panic!("the time does not matter")));
    }

    /// Posts a message with a payload of `len` bytes. True if it leaves at once.
    fn post(writer: &mut Writer, len: usize) -> bool {
        writer.head(&[1; 16], len, 0);
        let leaves = writer.may_send(|| at(1));
        if leaves {
            writer.count_large(len, false);
        }
        leaves
    }

    #[test]
    fn the_first_two_large_ones_of_a_burst_leave_at_once() {
        let mut writer = Writer::default();
        writer.sent_at(at(0));
        assert_eq!([LARGE, 8, LARGE, LARGE].map(|len| post(&mut writer, len)), [true, true, true, false]);
        writer.pass(Flush::All, || at(1));
        assert_eq!([LARGE; 3].map(|len| post(&mut writer, len)), [true, true, false]);
    }

    #[test]
    fn the_first_of_a_burst_that_answers_leaves_in_halves() {
        let first = |before: &[usize], len, answers| {
            let mut writer = Writer::default();
            writer.sent_at(at(0));
            before.iter().for_each(|len| assert!(post(&mut writer, *len)));
            assert!(writer.may_send(|| at(1)));
            writer.count_large(len, answers)
        };
        assert_eq!(first(&[], 64 << 10, true), 32 << 10);
        assert_eq!(first(&[], 64 << 10, false), 64 << 10, "the peer sends no large ones");
        assert_eq!(first(&[8], 64 << 10, true), 64 << 10, "the second of its burst");
        assert_eq!([32 << 10, 1 << 20].map(|len| first(&[], len, true)), [32 << 10, 1 << 20]);
    }

    #[test]
    fn after_a_long_burst_only_the_first_message_of_the_next_one_leaves_at_once() {
        let mut writer = Writer::default();
        writer.sent_at(at(0));
        let mut burst = |count| {
            let left = (0..count).filter(|_| post(&mut writer, 8)).count();
            // A queue is read empty more than once.
            for _ in 0..3 {
                writer.pass(Flush::All, || at(1));
            }
            left
        };
        let counts = [3, LONG - 1, LONG, 2 * LONG, LONG - 1, 6];
        assert_eq!(counts.map(&mut burst), [3, 4, 4, 1, 1, 4]);
    }

    #[test]
    fn an_emptied_queue_ends_the_burst_and_the_holding() {
        let mut writer = Writer::default();
        writer.sent_at(at(0));
        while post(&mut writer, 8) {}
        writer.push_bytes(b"held");
        assert!(!writer.pass(Flush::ByRule, || at(1)), "there is more to read");
        assert!(writer.pass(Flush::ByRule, || at(5)), "held long enough");
        assert!(writer.pass(Flush::All, || at(1)));
        let mut out = Vec::new();
        writer.with_chunks(|chunks| chunks.iter().for_each(|chunk| chunk.append_to(&mut out)));
        assert_eq!(out, b"held");
        writer.advance(4, |_, _| ());
        assert!(writer.is_idle());
        assert!(writer.may_send(|| at(1)), "a new burst");
    }

    #[test]
    fn the_application_is_told_of_payloads_that_are_returned() {
        let mut writer = Writer::default();
        assert!(!writer.ends_untold());
        writer.push_bytes(b"a");
        assert!(writer.ends_untold());
        writer.push_lent(Buffer::Owned(b"b".to_vec()), 0, 1, Token(1));
        assert!(!writer.ends_untold());
        writer.push_bytes(b"c");
        assert!(writer.ends_untold());
        writer.push_end(Buffer::Owned(b"c".to_vec()), Token(2));
        assert!(!writer.ends_untold());
        writer.push_lent(Buffer::Owned(b"d".to_vec()), 0, 1, Token::RESPONSE);
        assert!(writer.ends_untold());
    }

    #[test]
    fn pieces_leave_in_order_whatever_is_taken_at_a_time() {
        let mut writer = Writer::default();
        writer.push_bytes(b"abc");
        writer.push_lent(Buffer::Owned(b"0123456789".to_vec()), 2, 5, Token(7));
        writer.push_bytes(b"xyz");
        let (mut out, mut done) = (Vec::new(), Vec::new());
        while !writer.is_empty() {
            let mut all = Vec::new();
            writer.with_chunks(|chunks| chunks.iter().for_each(|chunk| chunk.append_to(&mut all)));
            out.extend_from_slice(&all[..all.len().min(2)]);
            writer.advance(all.len().min(2), |token, _| done.push(token));
        }
        assert_eq!(out, b"abc23456xyz");
        assert_eq!(done, [Token(7)]);
    }

    #[test]
    fn a_copied_payload_is_through_when_its_last_byte_has_left() {
        let mut writer = Writer::default();
        writer.push_bytes(b"abc");
        writer.push_end(Buffer::Owned(b"abc".to_vec()), Token(1));
        writer.push_bytes(b"de");
        writer.push_end(Buffer::Owned(b"de".to_vec()), Token(2));
        writer.push_lent(Buffer::Owned(b"fg".to_vec()), 0, 2, Token(3));
        let whole = |chunks: &[Chunk<'_>]| chunks.iter().map(Chunk::len).collect::<Vec<_>>();
        assert_eq!(writer.with_chunks(whole), [5, 2]);
        let mut done = Vec::new();
        for (count, expected) in [(2, &[][..]), (1, &[1]), (1, &[1]), (2, &[1, 2]), (1, &[1, 2, 3])] {
            writer.advance(count, |Token(token), _| done.push(token));
            assert_eq!(done, expected);
        }
        assert!(writer.is_empty());
        writer.push_bytes(b"h");
        writer.push_end(Buffer::Owned(b"h".to_vec()), Token(4));
        writer.abort(|Token(token), _| done.push(token));
        assert_eq!(done, [1, 2, 3, 4]);
    }

    #[test]
    fn large_payloads_land_aligned() {
        let mut writer = Writer::default();
        writer.push_hello(b"some bytes before");
        for address in [0usize, 40, 63] {
            let before = writer.position;
            let head = writer.head(&[1; 16], 5000, address);
            let lands = usize::try_from(before).unwrap() + head.bytes().len();
            assert_eq!(lands % 64, address % 64);
        }
    }
}
