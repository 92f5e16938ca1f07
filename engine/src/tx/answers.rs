//! Peers' answers to our one-sided operations: performed, refused, or returned bytes.
//! Invariant: an operation keeps its number until all of its frames have been answered, or its link
//! has ended. So an answer never meets a later operation with the same number.

use super::one_sided::{OneSided, What};
use super::{Body, Outgoing, SendStage, Tx};
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::peer::link::{Coming, LeftWrites, Unperformed};
use crate::peer::table::PeerId;
use crate::transport::{Disposition, Down, Incoming, LinkId, RecvTarget};
use crate::wire::frame::Violation;
use crate::wire::one_sided::Refusal;
use ofi_core::Completion;
use ofi_memory::{Buffer, Lent};
use ofi_sync::lock::LockKind;

const STRAY: Violation = Violation("an answer to a one-sided operation that is not outstanding");

/// The reason for which an operation fails that the peer has refused.
fn refused(why: Refusal) -> Down {
    let (cause, errno) = why.outcome();
    Down::new(cause, errno, cause.text())
}

impl Tx {
    /// The operation with that number, if frames of it have left on the link.
    fn issued(&mut self, id: LinkId, number: u32) -> Option<(&mut OneSided, &mut Lent, &mut SendStage)> {
        let send = self.sends.get_mut(number as usize)?;
        let Body::OneSided(op) = send.body else { return None };
        let (SendStage::Issuing { link, .. } | SendStage::Issued { link, .. }) = send.stage else { return None };
        if link != id {
            return None;
        }
        Some((self.one_sided.get_mut(op as usize)?, &mut send.lent, &mut send.stage))
    }

    /// Whether the transport has the memory for an operation's result, and a response is arriving.
    pub(super) fn is_being_filled(&self, send: &Outgoing) -> bool {
        let Body::OneSided(op) = send.body else { return false };
        let Some(op) = self.one_sided.get(op as usize) else { return false };
        let result = if op.what == What::Read { &send.lent.buffer } else { &op.result };
        op.what.has_response() && result.is_none()
    }

    /// Handles a Performed frame: `count` more operations have been carried out, in order.
    pub(crate) fn handle_performed<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        id: LinkId,
        count: u32,
    ) -> Result<(), Violation> {
        let mut rest = count;
        while rest > 0 {
            let operation = peers.link(id).and_then(|link| link.pop_unperformed(rest));
            match operation.ok_or(Violation("the peer performed more operations than it was sent"))? {
                Unperformed::Listed(number) => {
                    rest -= 1;
                    self.answer(peers, out, number);
                }
                Unperformed::Left(LeftWrites { ticket, len, count, .. }) => {
                    rest -= count;
                    self.left -= count as usize;
                    let suppress = ticket.is_suppressed();
                    let completion = ticket.finish();
                    for _ in 0..count {
                        out.sinks.accessed(completion, suppress, len);
                    }
                    if self.fences > 0 {
                        // A fenced one that waits for it may leave.
                        peers.mark_pending(id);
                    }
                }
            }
        }
        Ok(())
    }

    /// The peer refuses a write that is not listed.
    #[cold]
    fn left_is_refused<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        id: LinkId,
        (last, why): (bool, Refusal),
    ) -> Result<(), Violation> {
        let link = peers.link(id).ok_or(STRAY)?;
        let peer = link.peer;
        if !last || !matches!(link.tx.unperformed.front(), Some(Unperformed::Left(_))) {
            return Err(STRAY);
        }
        if let Some(Unperformed::Left(write)) = link.pop_unperformed(1) {
            self.fail_left(peers, out, peer, write, &refused(why));
        }
        Ok(())
    }

    /// Completes writes with an error.
    #[cold]
    pub(super) fn fail_left<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        peer: PeerId,
        LeftWrites { ticket, len, count, .. }: LeftWrites,
        why: &Down,
    ) {
        self.left -= count as usize;
        self.after_fence(peers, peer, false);
        let src = out.source(peers.handle_of(peer));
        let completion = Completion { len, src, ..ticket.finish() };
        for _ in 0..count {
            out.send_failed(completion, why);
        }
    }

    /// Handles a Refused frame.
    pub(crate) fn handle_refused<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        id: LinkId,
        (number, last, why): (u32, bool, Refusal),
    ) -> Result<(), Violation> {
        if number == Unperformed::LEFT {
            return self.left_is_refused(peers, out, id, (last, why));
        }
        let (op, ..) = self.issued(id, number).ok_or(STRAY)?;
        op.fails(|| refused(why));
        if op.what.has_response() {
            return self.request_is_answered(peers, out, id, number);
        }
        if last {
            // Operations before it have been performed or refused.
            let link = peers.link(id).ok_or(STRAY)?;
            if link.tx.unperformed.front().is_none_or(|operation| operation.number() != number) {
                return Err(STRAY);
            }
            link.tx.unperformed.pop_front();
            self.answer(peers, out, number);
        }
        Ok(())
    }

    /// The answer to an operation's last frame has come: it ends, unless the transport still holds
    /// its payload.
    fn answer<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, number: u32) {
        if let Some(send) = self.sends.get_mut(number as usize)
            && let SendStage::Issued { held: true, answered, .. } = &mut send.stage
        {
            *answered = true;
            return;
        }
        self.end(peers, out, number);
    }

    /// Ends an operation whose frames have been answered.
    pub(super) fn end<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, number: u32) {
        let Some(send) = self.sends.get(number as usize) else { return };
        let Body::OneSided(op) = send.body else { return };
        match self.one_sided.get_mut(op as usize).and_then(|op| op.failure.take()) {
            None => self.finish(peers, out, number),
            Some(why) => self.fail(peers, out, number, &why),
        }
    }

    /// Bytes that a request of ours returns.
    pub(crate) fn handle_response<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, last): (LinkId, u32, bool),
        payload: Incoming<'_>,
    ) -> Result<Disposition, Violation> {
        let len = payload.len();
        let (op, lent, _) = self.issued(id, number).ok_or(STRAY)?;
        let result = match op.what {
            What::Write { .. } => return Err(STRAY),
            What::Read => &mut lent.buffer,
            What::Atomic(action) if action.has_result() => &mut op.result,
            What::Atomic(_) => return Err(STRAY),
        };
        let buffer = result.as_mut().ok_or(STRAY)?;
        let at = op.placed;
        if op.awaited == 0 || buffer.len() - at < len {
            return Err(Violation("the peer returns more bytes than it was asked for"));
        }
        if let Incoming::Complete(bytes) = payload {
            buffer.write_at(at, bytes);
            self.returned(peers, out, (id, number, last), len)?;
            return Ok(Disposition::Done);
        }
        let link = peers.link(id).ok_or(STRAY)?;
        link.rx.coming = Some(Coming::Response { number, last });
        let buffer = result.take().unwrap_or_else(Buffer::empty);
        Ok(Disposition::Into(RecvTarget { buffer, at, take: len, offer: None }))
    }

    /// A streaming response is in place.
    pub(crate) fn handle_response_done<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, last): (LinkId, u32, bool),
        target: RecvTarget,
    ) -> Result<(), Violation> {
        let len = target.take;
        self.give_result_back(id, number, target.buffer);
        if self.issued(id, number).is_some() { self.returned(peers, out, (id, number, last), len) } else { Ok(()) }
    }

    /// The transport gives back the buffer of a response that it could not place.
    pub(crate) fn give_result_back(&mut self, id: LinkId, number: u32, buffer: Buffer) {
        if let Some((op, lent, _)) = self.issued(id, number) {
            let place = if op.what == What::Read { &mut lent.buffer } else { &mut op.result };
            *place = Some(buffer);
        }
    }

    /// The bytes of a response could not be read: its operation fails, when the peer has answered
    /// its other frames.
    pub(crate) fn handle_response_failed<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, last): (LinkId, u32, bool),
        (target, why): (RecvTarget, Down),
    ) {
        let Some((op, ..)) = self.issued(id, number) else { return };
        op.fails(|| why);
        if let Err(violation) = self.handle_response_done(peers, out, (id, number, last), target) {
            peers.abort_link(id, Some(Down::violation(violation.0)));
        }
    }

    /// `len` more bytes of a response are in place.
    fn returned<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, last): (LinkId, u32, bool),
        len: usize,
    ) -> Result<(), Violation> {
        if let Some((op, ..)) = self.issued(id, number) {
            op.placed += len;
        }
        if last { self.request_is_answered(peers, out, id, number) } else { Ok(()) }
    }

    /// One request of an operation has been answered to the end.
    fn request_is_answered<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        id: LinkId,
        number: u32,
    ) -> Result<(), Violation> {
        let link = peers.link(id).ok_or(STRAY)?;
        let waits = !link.tx.credit.has_request();
        link.tx.credit.return_request();
        let (op, lent, stage) = self.issued(id, number).ok_or(STRAY)?;
        op.awaited = op.awaited.checked_sub(1).ok_or(STRAY)?;
        let has_left = matches!(stage, SendStage::Issued { .. });
        let is_over = op.awaited == 0 && has_left;
        let wanted = match op.what {
            What::Read => lent.buffer.as_ref().map_or(0, Buffer::len),
            What::Write { .. } | What::Atomic(_) => op.result.as_ref().map_or(0, Buffer::len),
        };
        if is_over && op.failure.is_none() && op.placed != wanted {
            return Err(Violation("the peer returns fewer bytes than it was asked for"));
        }
        if is_over {
            self.answer(peers, out, number);
        }
        if waits {
            peers.mark_pending(id);
        }
        Ok(())
    }
}
