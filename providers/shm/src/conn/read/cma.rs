//! The lines of cross-memory attach (`cma.rs`): payloads in the sender's memory, and the outcomes
//! of those that this side lent.

use crate::cma::{self, CmaLoan, Outcome};
use crate::conn::{Conn, Large, Out, ReadError};
use ofi_core::{Cause, Errno};
use ofi_engine::transport::{Disposition, Down, Incoming, LinkEvents, LinkId};
use ofi_engine::wire::frame::{HEADER_WORDS, MAX_HEADER, MAX_PAYLOAD, Violation};
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
    ) -> Result<(), ReadError> {
        self.receiver.advance();
        let Some(process) = self.cma.peer() else {
            return Err(Violation("a cross-memory attach payload without permission").into());
        };
        let from = usize::try_from(body[HEADER_WORDS]).map_err(|_| Violation("an invalid address"))?;
        let start = ofi_os::clock::now();
        let mut target = match self.place(link, header, len, body, events)? {
            Disposition::Into(target) => target,
            Disposition::Done => return self.reply(body[HEADER_WORDS + 1], Outcome::Taken),
        };
        if !cma::read(process, from, &mut target) {
            // The sender sends it again, through the pool.
            events.handle_recv_retry(link, target);
            return self.reply(body[HEADER_WORDS + 1], Outcome::Refused);
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
        if self.cma.note_read(cma::since(start), len) {
            self.sender.queue(Out::Permission(false));
        }
        events.handle_recv_done(link, target)?;
        self.reply(body[HEADER_WORDS + 1], Outcome::Taken)
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
        self.receiver.advance();
        let outcome = Outcome::from_code(code).ok_or(STRAY)?;
        let CmaLoan { header, buffer, from, len, token, .. } = self.cma.take_back(number).ok_or(STRAY)?;
        match outcome {
            Outcome::Taken => events.handle_send_done(link, token, buffer),
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
        self.sender.queue(Out::Outcome(number, outcome));
        let heard = self.cma.reply();
        if heard { Ok(()) } else { Err(Violation("the peer leaves too many payload outcomes unread").into()) }
    }
}
