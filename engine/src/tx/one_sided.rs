//! One-sided operations of ours: access to a peer's memory. Each remote range travels in frames of
//! its own, in order with the sends; `answers.rs` handles the peer's answers.

use super::send::takes_at_once;
use super::{Body, NO_MESSAGE, Outgoing, SendStage, Tx};
use crate::completion::deferred::DEFERRED;
use crate::completion::reporter::Reporter;
use crate::limits::{Kind, Limits};
use crate::op::{AtomicCall, MOST_REMOTE_RANGES, Remote, RmaKind, RmaOp};
use crate::peer::Peers;
use crate::peer::link::{LeftWrites, Link, Unperformed};
use crate::peer::table::{PeerId, PeerState};
use crate::transport::{ControlSubmitted, Down, LinkId, Payload, Submitted, Token, Transport, Urgency};
use crate::wire::frame::{Frame, Header};
use crate::wire::one_sided::{Action, RemoteAddr};
use ofi_core::atomic::AtomicKind;
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_memory::{Buffer, Lent, Ticket};
use ofi_sync::lock::LockKind;

/// Flags that no one-sided operation supports. FI_COMMIT_COMPLETE is for reads and writes alone.
pub(super) const UNSUPPORTED: OpFlags = OpFlags::TRIGGER.union(OpFlags::MULTICAST).union(OpFlags::AUTH_KEY);

/// Writes, and operands of atomic operations, up to this length are copied, where they do not leave
/// at once.
pub(super) const SHORT: usize = 256;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Writes; the bytes are to be durable if `commit`.
    Write {
        commit: bool,
    },
    Read,
    Atomic(Action),
}

impl What {
    /// Whether the peer answers each of its frames with bytes.
    pub(super) const fn has_response(self) -> bool {
        match self {
            Self::Write { .. } => false,
            Self::Read => true,
            Self::Atomic(action) => action.has_result(),
        }
    }
}

/// The one-sided part of an outstanding operation.
#[derive(Debug)]
pub(super) struct OneSided {
    pub(super) what: What,
    pub(super) remote: Remote,
    data: Option<u64>,
    /// Takes what an atomic operation returns; `None` while the transport fills it.
    pub(super) result: Option<Buffer>,
    /// Number of ranges whose frames have left.
    range: usize,
    /// Bytes of the next range that have left.
    at: u64,
    /// Bytes of the local buffer that have left.
    sent: usize,
    /// Requests that are not answered yet.
    pub(super) awaited: u32,
    /// Bytes that have been returned.
    pub(super) placed: usize,
    /// Why it fails, when its last frame has been answered.
    pub(super) failure: Option<Box<Down>>,
}

/// How an operation leaves and completes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    suppress: bool,
    inject: bool,
    fenced: bool,
    more_follows: bool,
    /// The bytes are to be durable.
    commit: bool,
}

/// A checked operation, ready to leave.
#[derive(Debug)]
pub(crate) struct Access {
    what: What,
    remote: Remote,
    data: Option<u64>,
    buffer: Buffer,
    result: Option<Buffer>,
    context: usize,
    /// Flags of the completion.
    class: OpFlags,
    pub(crate) peer: FiAddr,
    len: usize,
    how: How,
    /// A trigger starts it: no call of the application would post it again.
    triggered: bool,
}

/// How far sending an operation's frames got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Issue {
    /// All have left, or the link is broken.
    All,
    /// The transport or the peer must come first.
    Some,
}

impl Access {
    /// A read or write that has been checked.
    pub(crate) fn of(op: RmaOp, how: How) -> Self {
        let (what, class) = match op.kind {
            RmaKind::Write => (What::Write { commit: how.commit }, OpFlags::RMA | OpFlags::WRITE),
            RmaKind::Read => (What::Read, OpFlags::RMA | OpFlags::READ),
        };
        let data = op.data.filter(|_| op.kind == RmaKind::Write);
        let RmaOp { buffer, remote, context, peer, .. } = op;
        let len = buffer.len();
        Self { what, remote, data, buffer, result: None, context, class, peer, len, how, triggered: false }
    }

    /// The operation is deferred work, which reports to a notice.
    pub(crate) fn deferred(self) -> Self {
        Self { class: self.class | DEFERRED, how: How { suppress: true, ..self.how }, ..self }
    }

    /// A trigger starts it.
    pub(crate) fn triggered(self) -> Self {
        Self { triggered: true, ..self }
    }
}

impl OneSided {
    /// An atomic operation with a result whose one request has left, with a payload of `sent`
    /// bytes.
    #[inline(always)]
    pub(super) fn requested(action: Action, remote: Remote, result: Buffer, sent: usize) -> Self {
        Self {
            what: What::Atomic(action),
            remote,
            data: None,
            result: Some(result),
            range: 1,
            at: 0,
            sent,
            awaited: 1,
            placed: 0,
            failure: None,
        }
    }

    /// The next frame, and the length of its payload.
    fn next_frame<T: Transport>(&self, id: u32) -> Option<(Frame, usize)> {
        let range = self.remote.get(self.range)?;
        let ends = self.range + 1 == self.remote.len();
        let place = RemoteAddr { key: range.key, addr: range.addr.wrapping_add(self.at) };
        Some(match self.what {
            What::Write { commit } => {
                let left = range.len - self.at;
                let len = left.min(T::MAX_WRITE as u64);
                let (more, last) = (left - len, ends && left == len);
                let data = self.data.filter(|_| last);
                (Frame::Write { id, place, more, last, commit, data, performed: 0 }, to_usize(len))
            }
            What::Read => (Frame::Read { id, place, len: range.len, last: ends }, 0),
            What::Atomic(action) => {
                let values = action.values();
                let len = (values == 0).then_some(range.len);
                let data = self.data.filter(|_| ends);
                (Frame::Atomic { id, place, action, len, last: ends, data }, to_usize(range.len) * values)
            }
        })
    }

    /// The next frame, with a payload of `len` bytes, has left.
    fn advance(&mut self, len: usize) {
        self.sent += len;
        self.at += len as u64;
        let whole = match self.what {
            What::Write { .. } => self.remote.get(self.range).is_none_or(|range| self.at == range.len),
            What::Read | What::Atomic(_) => true,
        };
        if whole {
            self.range += 1;
            self.at = 0;
        }
        self.awaited += u32::from(self.what.has_response());
    }

    fn has_left(&self) -> bool {
        self.range == self.remote.len()
    }

    /// Notes why it fails, unless it fails already.
    pub(super) fn fails(&mut self, why: impl FnOnce() -> Down) {
        self.failure.get_or_insert_with(|| Box::new(why()));
    }

    /// Whether the next frame may leave on a link.
    pub(super) fn can_leave(&self, link: &Link) -> bool {
        !link.tx.full && (!self.what.has_response() || link.tx.credit.has_request())
    }

    /// Whether a closing endpoint still sends it: not if the peer would answer with bytes, which no
    /// completion would report.
    pub(super) fn leaves_at_close(&self) -> bool {
        !self.what.has_response()
    }
}

/// A length that a local buffer has, or a range that is as long.
#[allow(clippy::cast_possible_truncation, reason = "no longer than a local buffer")]
const fn to_usize(len: u64) -> usize {
    len as usize
}

/// The sum of the ranges' lengths.
fn total(remote: &Remote) -> Result<usize, Errno> {
    if remote.is_empty() || remote.len() > MOST_REMOTE_RANGES {
        return Err(Errno::EINVAL);
    }
    let sum = remote.iter().try_fold(0u64, |sum, range| sum.checked_add(range.len));
    sum.and_then(|sum| usize::try_from(sum).ok()).ok_or(Errno::EMSGSIZE)
}

impl Tx {
    /// Checks a remote memory access.
    ///
    /// # Errors
    /// ENOCQ, EBADFLAGS, EMSGSIZE, EINVAL if local and remote lengths differ, and AGAIN if too many
    /// operations are outstanding (fi_rma(3)).
    #[inline(always)]
    pub(crate) fn admit_rma<K: LockKind>(&self, out: &Reporter<K>, limits: &Limits, op: &RmaOp) -> Result<How, Errno> {
        let len = op.buffer.len();
        let inject = op.inject || op.flags.contains(OpFlags::INJECT) && op.kind == RmaKind::Write;
        let how = self.admit_access(out, (op.flags, op.inject))?;
        let commit = op.flags.contains(OpFlags::COMMIT_COMPLETE);
        if commit && !out.commits() {
            return Err(Errno::EBADFLAGS);
        }
        if len > limits.least() && !limits.allow(len, Kind::Access, inject) {
            return Err(Errno::EMSGSIZE);
        }
        if total(&op.remote)? != len {
            return Err(Errno::EINVAL);
        }
        Ok(How { inject, commit, ..how })
    }

    /// Fast path: sends a short write of one range to a peer with an open link, and remembers only
    /// how it completes. On false nothing has changed, and [`Self::start`] handles the operation.
    /// `seq` is its place among all operations of the endpoint.
    #[inline(always)]
    pub(crate) fn try_write_fast<T: Transport>(
        &mut self,
        peers: &mut Peers,
        transport: &mut T,
        (peer, op, how): (PeerId, &mut RmaOp, How),
        seq: u64,
    ) -> bool {
        let Remote::One([range]) = &op.remote else { return false };
        let len = op.buffer.len();
        if op.kind != RmaKind::Write || len > SHORT || how.fenced {
            return false;
        }
        let Some(entry) = peers.table.get(peer) else { return false };
        let PeerState::Open(id) = entry.state else { return false };
        if !entry.waiting.is_empty() {
            return false;
        }
        let Some(link) = peers.links.get_mut(id).filter(|link| !link.tx.full) else { return false };
        let place = RemoteAddr { key: range.key, addr: range.addr };
        let number = Unperformed::LEFT;
        let (commit, data, performed) = (how.commit, op.data, link.performed_along());
        let header = Frame::Write { id: number, place, more: 0, last: true, commit, data, performed }.encode();
        if len > T::INLINE_MAX || !transport.try_submit_fast(id, &header, &op.buffer, len) {
            if how.inject && how.suppress && !transport.takes_at_once(id, len) {
                return false;
            }
            // Its completion waits for the peer, so the transport may copy what does not leave now.
            let mut buffer = Some(core::mem::replace(&mut op.buffer, Buffer::empty()));
            let payload = Payload { buffer: &mut buffer, from: 0, len, token: Token(number), inject: true };
            let urgency = Urgency::of_posted(how.more_follows, !how.suppress || self.is_backed);
            let outcome = transport.submit(id, &header, payload, urgency);
            if outcome == Submitted::Full {
                op.buffer = buffer.unwrap_or_else(Buffer::empty);
                link.tx.full = true;
                return false;
            }
        }
        let ticket = Ticket::new(op.context, OpFlags::RMA.union(OpFlags::WRITE), how.suppress);
        link.push_left(LeftWrites { ticket, len, seq, count: 1 });
        link.tx.counts.access(len);
        link.rx.arrivals.performed -= u32::from(performed);
        self.left += 1;
        true
    }

    /// Checks an atomic operation.
    ///
    /// # Errors
    /// As for [`Self::admit_rma`]; EOPNOTSUPP for an operation that the datatype does not have.
    #[inline]
    pub(crate) fn admit_atomic<K: LockKind>(
        &self,
        out: &Reporter<K>,
        limits: &Limits,
        call: AtomicCall,
    ) -> Result<Access, Errno> {
        let action = Action { kind: call.kind, op: call.op, datatype: call.datatype };
        if !call.op.is_valid(call.kind, call.datatype) {
            return Err(Errno::EOPNOTSUPP);
        }
        if call.flags.contains(OpFlags::COMMIT_COMPLETE) {
            return Err(Errno::EBADFLAGS);
        }
        let how = self.admit_access(out, (call.flags, call.inject))?;
        let len = total(&call.remote)?;
        let inject = call.inject || call.flags.contains(OpFlags::INJECT);
        if len > limits.least() && !limits.allow(len, Kind::Atomic, inject) {
            return Err(Errno::EMSGSIZE);
        }
        let size = call.datatype.size() as u64;
        let fits = |buffer: &Buffer, wanted: bool| !wanted || buffer.len() == len;
        let compares = call.kind == AtomicKind::Compare;
        let whole = call.remote.iter().all(|range| range.len > 0 && range.len % size == 0);
        if !whole
            || !fits(&call.operands, call.op.has_operand())
            || !fits(&call.compare, compares)
            || !fits(&call.result, action.has_result())
        {
            return Err(Errno::EINVAL);
        }
        let buffer = match (compares, call.op.has_operand()) {
            (true, _) => interleave(&call.remote, &call.operands, &call.compare),
            (false, true) => call.operands,
            (false, false) => Buffer::empty(),
        };
        let class = OpFlags::ATOMIC | if action.has_result() { OpFlags::READ } else { OpFlags::WRITE };
        let result = action.has_result().then_some(call.result);
        let AtomicCall { remote, context, peer, data, .. } = call;
        let what = What::Atomic(action);
        let (how, triggered) = (How { inject, ..how }, false);
        Ok(Access { what, remote, data, buffer, result, context, class, peer, len, how, triggered })
    }

    /// The checks that all one-sided operations have in common.
    #[inline(always)]
    fn admit_access<K: LockKind>(&self, out: &Reporter<K>, (flags, inject): (OpFlags, bool)) -> Result<How, Errno> {
        let selective = out.sinks.tx.as_ref().ok_or(Errno::ENOCQ)?.selective;
        if flags.intersects(UNSUPPORTED) {
            return Err(Errno::EBADFLAGS);
        }
        if self.sends.len() + self.left >= self.size {
            return Err(Errno::AGAIN);
        }
        Ok(How {
            suppress: inject || selective && !flags.contains(OpFlags::COMPLETION),
            inject: false,
            fenced: flags.contains(OpFlags::FENCE),
            more_follows: flags.contains(OpFlags::MORE),
            commit: false,
        })
    }

    /// Starts an operation: it leaves now, or waits with the peer. `seq` is its place among all
    /// operations of the endpoint.
    ///
    /// # Errors
    /// EOPBADSTATE if there is no such peer; AGAIN for an injected operation that would have to
    /// wait for room on its link, and that no completion reports.
    pub(crate) fn start<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        transport: &mut T,
        (peer, access): (PeerId, Access),
        seq: u64,
    ) -> Result<(), Errno> {
        let entry = peers.table.get_mut(peer).ok_or(Errno::EOPBADSTATE)?;
        let Access { what, remote, data, buffer, result, context, class, len, how, triggered, .. } = access;
        let How { suppress, inject, fenced, more_follows, .. } = how;
        if inject && suppress && !triggered && !takes_at_once(entry, transport, len) {
            return Err(Errno::AGAIN);
        }
        let urgency = Urgency::of_posted(more_follows, !suppress || self.is_backed);
        let lent = Lent::new(Ticket::new(context, class, suppress), buffer);
        let op =
            OneSided { what, remote, data, result, range: 0, at: 0, sent: 0, awaited: 0, placed: 0, failure: None };
        let body = Body::OneSided(super::key(self.one_sided.insert(op)));
        let (stage, info) = (SendStage::Waiting, NO_MESSAGE);
        let send = Outgoing { lent, peer, stage, place: 0, info, len, seq, inject, fenced, body };
        self.unreported += usize::from(send.is_unreported());
        let number = super::key(self.sends.insert(send));
        self.fences += usize::from(fenced);
        if let PeerState::Open(id) = entry.state
            && entry.waiting.is_empty()
            && let Some(link) = peers.links.get_mut(id)
            && (!fenced || link.tx.is_idle())
            && self.issue(link, transport, (id, number), (inject, urgency)) == Issue::All
        {
            return Ok(());
        }
        if let Some(send) = self.sends.get_mut(number as usize)
            && inject
            && let Some(buffer) = &send.lent.buffer
        {
            send.lent.buffer = Some(buffer.to_owned_copy());
        }
        entry.waiting.push_back(number);
        self.move_on(peers, out, transport, peer);
        Ok(())
    }

    /// Sends the frames of the operation at the front of its peer's queue. False if it stays there.
    pub(super) fn issue_first<T: Transport>(
        &mut self,
        link: &mut Link,
        transport: &mut T,
        id: LinkId,
        number: u32,
    ) -> bool {
        let is_unreported = self.sends.get(number as usize).is_some_and(Outgoing::is_unreported);
        let urgency = Urgency::of_posted(false, !is_unreported || self.is_backed);
        self.issue(link, transport, (id, number), (false, urgency)) == Issue::All
    }

    /// Sends an operation's frames, as far as transport and peer take them now. `inject`: the
    /// payload must not be kept.
    #[inline]
    fn issue<T: Transport>(
        &mut self,
        link: &mut Link,
        transport: &mut T,
        (id, number): (LinkId, u32),
        (inject, urgency): (bool, Urgency),
    ) -> Issue {
        let Some(send) = self.sends.get_mut(number as usize) else { return Issue::All };
        let Body::OneSided(op) = send.body else { return Issue::All };
        let Some(op) = self.one_sided.get_mut(op as usize) else { return Issue::All };
        if let SendStage::Issuing { flying, .. } = send.stage
            && flying > 0
        {
            return Issue::Some;
        }
        loop {
            let Some((frame, len)) = op.next_frame::<T>(number) else { return Issue::All };
            if !op.can_leave(link) {
                return Issue::Some;
            }
            let header = frame.encode();
            let carries = matches!(op.what, What::Write { .. }) || len > 0;
            let outcome = if carries {
                let payload =
                    Payload { buffer: &mut send.lent.buffer, from: op.sent, len, token: Token(number), inject };
                submit(transport, id, &header, payload, urgency)
            } else {
                match transport.submit_control(id, &header, urgency) {
                    ControlSubmitted::Taken => Submitted::Done,
                    ControlSubmitted::Full => Submitted::Full,
                    ControlSubmitted::Broken => Submitted::Broken,
                }
            };
            if outcome == Submitted::Full {
                link.tx.full = true;
                return Issue::Some;
            }
            let begun = send.stage.is_listed();
            if !begun {
                send.place = link.tx.sends.add(number);
            }
            if outcome == Submitted::Broken {
                // What has left before may still be answered: the stage stays.
                if !begun {
                    send.leave(SendStage::LinkFailed { link: id }, &mut self.unreported);
                }
                return Issue::All;
            }
            if op.what.has_response() {
                link.tx.credit.take_request();
            }
            op.advance(len);
            let held = outcome == Submitted::Kept;
            if op.has_left() {
                link.tx.counts.access(send.len);
                if !op.what.has_response() {
                    link.tx.unperformed.push_back(Unperformed::Listed(number));
                }
                send.leave(SendStage::Issued { link: id, held, answered: false }, &mut self.unreported);
                return Issue::All;
            }
            send.stage = SendStage::Issuing { link: id, flying: usize::from(held) };
            if held {
                return Issue::Some;
            }
        }
    }
}

/// Submits a frame with a payload, by the transport's fast path if that takes it.
#[inline(always)]
fn submit<T: Transport>(
    transport: &mut T,
    id: LinkId,
    header: &Header,
    payload: Payload<'_>,
    urgency: Urgency,
) -> Submitted {
    if payload.from == 0
        && payload.len <= T::INLINE_MAX
        && let Some(buffer) = &payload.buffer
        && transport.try_submit_fast(id, header, buffer, payload.len)
    {
        return Submitted::Done;
    }
    transport.submit(id, header, payload, urgency)
}

/// The payloads of a comparing operation: for each range, the operands and then the values to
/// compare with.
pub(super) fn interleave(remote: &Remote, operands: &Buffer, compare: &Buffer) -> Buffer {
    let mut bytes = Vec::with_capacity(operands.len() + compare.len());
    let mut at = 0;
    for range in remote.iter() {
        let len = to_usize(range.len);
        operands.append_to(at, len, &mut bytes);
        compare.append_to(at, len, &mut bytes);
        at += len;
    }
    Buffer::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::hello::{Contexts, EndpointKind};
    use ofi_core::{Caps, Cause};
    use ofi_sync::account::Account;
    use ofi_sync::lock::Park;
    use std::sync::Arc;

    /// A read that waits for its response. Without its memory, the transport is filling that.
    fn add_read(tx: &mut Tx, buffer: Option<Buffer>) -> u32 {
        let remote = Remote::one(0, 8, 7);
        let (what, data, result, failure) = (What::Read, None, None, None);
        let op = OneSided { what, remote, data, result, range: 1, at: 0, sent: 0, awaited: 1, placed: 0, failure };
        let body = Body::OneSided(super::super::key(tx.one_sided.insert(op)));
        let lent = Lent { ticket: Ticket::new(1, OpFlags::RMA | OpFlags::READ, false), buffer };
        let stage = SendStage::Issued { link: LinkId(0), held: false, answered: false };
        let info = NO_MESSAGE;
        let (peer, place, len, seq) = (0, 0, 8, 1);
        let read = Outgoing { lent, peer, stage, place, info, len, seq, inject: false, fenced: false, body };
        super::super::key(tx.sends.insert(read))
    }

    #[test]
    fn a_shutdown_does_not_end_a_read_whose_bytes_are_just_arriving() {
        let mut peers = Peers::new(EndpointKind::Msg, [0; 16], Contexts::default(), Arc::new(Account::new(0)));
        let (mut tx, mut out) = (Tx::new(8), Reporter::<Park>::new(Caps::RMA, "test"));
        let waiting = add_read(&mut tx, Some(Buffer::Owned(vec![0; 8])));
        let arriving = add_read(&mut tx, None);
        let why = Down::new(Cause::LocalClosed, Errno::ECANCELED, "the connection was shut down");
        tx.fail_unanswered(&mut peers, &mut out, &why);
        assert_eq!(out.failures(), 1);
        assert!(!tx.sends.contains(waiting as usize));
        assert!(tx.sends.contains(arriving as usize), "the application must not have its memory back yet");
        tx.discard_all(&mut peers);
    }
}
