//! Sends on a link, as far as its ring and its pool have room; the rest waits.

use super::line::{
    DAMAGED, INLINE, KIND_END, KIND_HELLO, KIND_INLINE, KIND_LEAVE, KIND_OUTCOME, KIND_PIECE, KIND_POOLED, LINE,
    ORDERS, head, place, words,
};
use super::{BACKLOG, Conn, LEAST_BACKLOG, Large, Out};
use ofi_engine::transport::Token;
use ofi_engine::wire::frame::{Header, Violation};
use ofi_memory::Buffer;
use ofi_sync::lines::BODY;

impl Conn {
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
}
