//! Lines about payloads that the receiver reads out of the sender's memory (`direct.rs`).

use super::{Conn, DAMAGED, KIND_DIRECT, KIND_LEAVE, KIND_OUTCOME, Large, Out, Trouble, head};
use crate::direct::{self, Lent, Outcome};
use ofi_core::{Cause, Errno};
use ofi_engine::frame::{Header, MAX_HEADER, MAX_PAYLOAD, Violation};
use ofi_engine::transport::{Arriving, Down, LinkId, Payload, Place, Sink};
use ofi_os::process::Reading;
use ofi_sync::lines::BODY;

impl Conn {
    /// A payload that is to be read out of the sender's memory.
    pub(super) fn read_direct(
        &mut self,
        link: LinkId,
        header: usize,
        len: usize,
        body: &[u64; BODY],
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        self.reader.advance(1);
        let Some(process) = self.direct.peer() else {
            return Err(Violation("memory that was not found to be readable").into());
        };
        let from = usize::try_from(body[4]).map_err(|_| Violation("an address that is none"))?;
        if header > MAX_HEADER || !direct::is_large(len) || len > MAX_PAYLOAD || self.state_is_other() {
            return Err(Violation("a payload that does not fit").into());
        }
        let start = ofi_os::clock::now();
        if !direct::may_read(process, from) {
            self.direct.forget_peer();
            self.reply_outcome(body[5], Outcome::Refused);
            return Ok(());
        }
        let bytes = body.map(u64::to_ne_bytes);
        let mut landing = match sink.frame(link, &bytes.as_flattened()[..header], Arriving::Coming(len))? {
            Place::Into(landing) => landing,
            Place::Done => {
                self.reply_outcome(body[5], Outcome::Taken);
                return Ok(());
            }
        };
        let result = direct::read(process, from, &mut landing);
        if self.is_gone() || result == Reading::Ended {
            // It had its memory back already, or there is no such process any more.
            sink.unplaced(link, landing);
            return Err(Trouble::Ended);
        }
        if result == Reading::Bytes(landing.take) {
            self.reply_outcome(body[5], Outcome::Taken);
            if self.direct.note_read(direct::since(start), len) {
                self.reply(KIND_LEAVE, 0, 0);
            }
            sink.placed(link, landing)?;
        } else {
            self.reply_outcome(body[5], Outcome::Absent);
            let text = format!("link to {}: the sender's memory at {from:#x} is not there any more", self.remote);
            sink.spoiled(link, landing, Down::new(Cause::Absent, Errno::EFAULT, text));
        }
        Ok(())
    }

    /// What became of a payload that the other side was to read.
    pub(super) fn read_outcome(
        &mut self,
        link: LinkId,
        number: u64,
        code: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Violation> {
        const STRAY: Violation = Violation("the outcome of a payload that was not offered");
        self.reader.advance(1);
        let outcome = Outcome::from_code(code).ok_or(STRAY)?;
        let Lent { header, buffer, from, len, token, .. } = self.direct.take_back(number).ok_or(STRAY)?;
        match outcome {
            Outcome::Taken => sink.sent(link, token, buffer),
            Outcome::Absent => {
                let text = format!("link to {}: the memory of the message was unmapped", self.remote);
                sink.unsent(link, token, buffer, Down::new(Cause::Absent, Errno::EFAULT, text));
            }
            Outcome::Refused => {
                self.direct.refused();
                self.out.push_back(Out::Large(Large { header, buffer, from, len, done: 0, token: Some(token) }));
            }
        }
        Ok(())
    }

    fn reply_outcome(&mut self, number: u64, outcome: Outcome) {
        self.reply(KIND_OUTCOME, number, outcome.code());
    }

    /// Says whether the other side's memory can be read.
    pub(crate) fn reply_leave(&mut self, yes: bool) {
        self.reply(KIND_LEAVE, u64::from(yes), 0);
    }

    fn reply(&mut self, kind: u64, first: u64, second: u64) {
        self.direct.replies.push_back((kind, first, second));
    }

    pub(super) fn send_replies(&mut self) -> Result<bool, Violation> {
        let mut any = false;
        while self.direct.has_replies() && self.writer.has_room(1).map_err(|_| DAMAGED)? {
            let Some((kind, first, second)) = self.direct.replies.pop_front() else { break };
            self.writer.write(head(kind, 0, 0), &[first, second, 0, 0, 0, 0, 0]);
            any = true;
        }
        Ok(any)
    }

    /// Has the other side read a large payload, if it can and there is room for a line now. `payload` is kept then.
    pub(crate) fn send_direct(&mut self, header: &Header, payload: &mut Payload<'_>) -> bool {
        let &mut Payload { from, len, token, .. } = payload;
        let place = payload.buffer.as_ref().and_then(|buffer| self.direct.place_of(buffer, from));
        let (Some(place), true) = (place, self.writer.has_room(1) == Ok(true)) else { return false };
        let Some(buffer) = payload.buffer.take() else { return false };
        let number = self.direct.lend(*header, buffer, from, len, token);
        let [first, second, third, fourth] = header.words();
        let body = [first, second, third, fourth, place, u64::from(number), 0];
        self.writer.write(head(KIND_DIRECT, header.len(), len), &body);
        true
    }
}
