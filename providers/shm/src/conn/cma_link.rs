//! The lines of a link for cross-memory attach (`cma.rs`).

use super::line::{DAMAGED, KIND_ABSENT, KIND_DIRECT, head};
use super::{Conn, Large, Out, Trouble};
use crate::cma::{self, CmaLoan, Outcome};
use ofi_core::{Cause, Errno};
use ofi_engine::transport::{Disposition, Down, Incoming, LinkEvents, LinkId, Payload};
use ofi_engine::wire::frame::{Header, MAX_HEADER, MAX_PAYLOAD, Violation};
use ofi_os::process;
use ofi_sync::lines::{BODY, order_own};

impl Conn {
    /// Reads a payload out of the sender's memory.
    pub(super) fn read_cma(
        &mut self,
        link: LinkId,
        header: usize,
        len: usize,
        body: &[u64; BODY],
        events: &mut impl LinkEvents,
    ) -> Result<(), Trouble> {
        self.reader.advance(1);
        let Some(process) = self.cma.peer() else {
            return Err(Violation("a cross-memory attach payload without permission").into());
        };
        let from = usize::try_from(body[4]).map_err(|_| Violation("an invalid address"))?;
        let start = ofi_os::clock::now();
        let mut target = match self.place(link, header, len, body, events)? {
            Disposition::Into(target) => target,
            Disposition::Done => return self.reply(body[5], Outcome::Taken),
        };
        if !cma::read(process, from, &mut target) {
            // The sender sends it again, through the pool.
            events.handle_recv_retry(link, target);
            return self.reply(body[5], Outcome::Refused);
        }
        // Before checking the word: bytes read after the sender took its memory back are not the
        // message.
        order_own();
        if self.is_gone() {
            let text = format!("link to {}: the peer left while its memory was being read", self.remote);
            events.handle_recv_failed(link, target, Down::new(Cause::Broken, Errno::ECONNRESET, text));
            // The lines behind this one are read before the link goes down.
            self.lost = true;
            return Ok(());
        }
        if self.cma.note_read(cma::since(start), len) {
            self.queue(Out::Permission(false));
        }
        events.handle_recv_done(link, target)?;
        self.reply(body[5], Outcome::Taken)
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
        self.reader.advance(1);
        if let Disposition::Into(target) = self.place(link, header, len, body, events)? {
            let text = format!("link to {}: the sender unmapped the buffer before it was read", self.remote);
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
            return Err(Violation("a payload with an invalid length, offset or state"));
        }
        let bytes = body.map(u64::to_ne_bytes);
        events.handle_frame(link, &bytes.as_flattened()[..header], Incoming::Streaming(len))
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
        self.reader.advance(1);
        let outcome = Outcome::from_code(code).ok_or(STRAY)?;
        let CmaLoan { header, buffer, from, len, token, .. } = self.cma.take_back(number).ok_or(STRAY)?;
        match outcome {
            Outcome::Taken => events.handle_send_done(link, token, buffer),
            Outcome::Refused => {
                if process::is_mapped(buffer.address() + from, len) {
                    self.cma.refused();
                    self.queue(Out::Large(Large { header, buffer, from, len, done: 0, token: Some(token) }));
                } else {
                    self.queue(Out::Absent(header, len));
                    let text = format!("link to {}: the memory of the message was unmapped", self.remote);
                    events.handle_send_failed(link, token, buffer, Down::new(Cause::Absent, Errno::EFAULT, text));
                }
            }
        }
        Ok(())
    }

    /// Queues something to send, ahead of a queued end.
    pub(crate) fn queue(&mut self, out: Out) {
        let ends = matches!(self.out.back(), Some(Out::End));
        self.out.insert(self.out.len() - usize::from(ends), out);
    }

    fn reply(&mut self, number: u64, outcome: Outcome) -> Result<(), Trouble> {
        self.queue(Out::Outcome(number, outcome));
        let heard = self.cma.reply();
        if heard { Ok(()) } else { Err(Violation("the peer leaves too many payload outcomes unread").into()) }
    }

    /// Sends a line of two words. False if there is no room for it.
    pub(super) fn send_word(&mut self, kind: u64, first: u64, second: u64) -> Result<bool, Violation> {
        let room = self.writer.has_room(1).map_err(|_| DAMAGED)?;
        if room {
            self.writer.write(head(kind, 0, 0), &[first, second, 0, 0, 0, 0, 0]);
        }
        Ok(room)
    }

    /// Reports that a payload's memory is gone. False if there is no room for the line.
    pub(super) fn send_absent(&mut self, header: &Header, len: usize) -> Result<bool, Violation> {
        let room = self.writer.has_room(1).map_err(|_| DAMAGED)?;
        if room {
            let [first, second, third, fourth] = header.words();
            self.writer.write(head(KIND_ABSENT, header.len(), len), &[first, second, third, fourth, 0, 0, 0]);
        }
        Ok(room)
    }

    /// Lends a large payload to the other side, if it may read it and there is room for a line now.
    /// Takes the buffer out of `payload` then.
    pub(crate) fn send_cma(&mut self, header: &Header, payload: &mut Payload<'_>) -> bool {
        let &mut Payload { from, len, token, .. } = payload;
        let place = payload.buffer.as_ref().and_then(|buffer| self.cma.place_of(buffer, from));
        let (Some(place), true) = (place, self.writer.has_room(1) == Ok(true)) else { return false };
        let Some(buffer) = payload.buffer.take() else { return false };
        let number = self.cma.lend(*header, buffer, from, len, token);
        let [first, second, third, fourth] = header.words();
        let body = [first, second, third, fourth, place, u64::from(number), 0];
        self.writer.write(head(KIND_DIRECT, header.len(), len), &body);
        true
    }
}
