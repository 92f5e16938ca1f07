//! Short atomic operations that return what was there: the request leaves first, and what its
//! response needs is kept while that is under way.

use super::one_sided::{OneSided, SHORT, UNSUPPORTED, interleave};
use super::{Body, NO_MESSAGE, Outgoing, SendStage, Tx};
use crate::completion::reporter::Reporter;
use crate::limits::Limits;
use crate::op::{AtomicCall, Remote};
use crate::peer::Peers;
use crate::peer::table::{PeerId, PeerState};
use crate::transport::{Payload, Submitted, Token, Transport, Urgency};
use crate::wire::frame::Frame;
use crate::wire::one_sided::{Action, RemoteAddr};
use ofi_core::OpFlags;
use ofi_core::atomic::AtomicKind;
use ofi_memory::{Buffer, Lent, Ticket};
use ofi_sync::lock::LockKind;

/// Flags of operations that [`Tx::start`] handles.
const OTHERS: OpFlags =
    UNSUPPORTED.union(OpFlags::COMMIT_COMPLETE).union(OpFlags::FENCE).union(OpFlags::MORE).union(OpFlags::INJECT);

impl Tx {
    /// Whether an atomic operation is of those that [`Self::try_fetch_fast`] sends, and valid.
    #[inline(always)]
    pub(crate) fn is_plain_fetch<K: LockKind>(&self, out: &Reporter<K>, limits: &Limits, call: &AtomicCall) -> bool {
        let Remote::One([range]) = &call.remote else { return false };
        let len = call.operands.len();
        call.kind != AtomicKind::Base
            && call.op.has_operand()
            && call.op.is_valid(call.kind, call.datatype)
            && !call.flags.intersects(OTHERS)
            && call.data.is_none()
            && (1..=limits.least()).contains(&len)
            && len.is_multiple_of(call.datatype.size())
            && range.len == len as u64
            && call.result.len() == len
            && (call.kind != AtomicKind::Compare || call.compare.len() == len)
            && out.sinks.tx.is_some()
            && self.sends.len() + self.left < self.size
    }

    /// Fast path: sends a plain fetch ([`Self::is_plain_fetch`]) to a peer with an open link. On
    /// false the operation is as it was, and [`Self::start`] handles it. `seq` is its place among
    /// all operations of the endpoint.
    #[inline(always)]
    pub(crate) fn try_fetch_fast<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        transport: &mut T,
        (peer, call): (PeerId, &mut AtomicCall),
        seq: u64,
    ) -> bool {
        let Remote::One([range]) = call.remote else { return false };
        let Some(entry) = peers.table.get(peer) else { return false };
        let PeerState::Open(id) = entry.state else { return false };
        if !entry.waiting.is_empty() {
            return false;
        }
        let Some(link) = peers.links.get_mut(id) else { return false };
        if link.tx.full || !link.tx.credit.has_request() {
            return false;
        }
        let action = Action { kind: call.kind, op: call.op, datatype: call.datatype };
        let len = call.operands.len();
        let sent = len * action.values();
        if sent > SHORT {
            return false;
        }
        let number = super::key(self.sends.vacant_key());
        let place = RemoteAddr { key: range.key, addr: range.addr };
        let header = Frame::Atomic { id: number, place, action, len: None, last: true, data: None }.encode();
        let both = if call.kind == AtomicKind::Compare {
            Some(interleave(&call.remote, &call.operands, &call.compare))
        } else {
            None
        };
        let payload = both.as_ref().unwrap_or(&call.operands);
        let mut stage = SendStage::Issued { link: id, held: false, answered: false };
        if sent > T::INLINE_MAX || !transport.try_submit_fast(id, &header, payload, sent) {
            // Its completion waits for the peer, so the transport may copy what does not leave now.
            let mut buffer = Some(both.unwrap_or_else(|| core::mem::replace(&mut call.operands, Buffer::empty())));
            let payload = Payload { buffer: &mut buffer, from: 0, len: sent, token: Token(number), inject: true };
            match transport.submit(id, &header, payload, Urgency::Posted) {
                Submitted::Full => {
                    if call.kind != AtomicKind::Compare {
                        call.operands = buffer.unwrap_or_else(Buffer::empty);
                    }
                    link.tx.full = true;
                    return false;
                }
                Submitted::Broken => stage = SendStage::LinkFailed { link: id },
                Submitted::Done | Submitted::Kept => {}
            }
        }
        if matches!(stage, SendStage::Issued { .. }) {
            link.tx.credit.take_request();
            link.tx.counts.access(len);
        }
        let selective = out.sinks.tx.as_ref().is_some_and(|sink| sink.selective);
        let suppress = call.inject || selective && !call.flags.contains(OpFlags::COMPLETION);
        let result = core::mem::replace(&mut call.result, Buffer::empty());
        let op = OneSided::requested(action, Remote::One([range]), result, sent);
        let body = Body::OneSided(super::key(self.one_sided.insert(op)));
        let class = OpFlags::ATOMIC.union(OpFlags::READ);
        let added = self.sends.insert(Outgoing {
            // The operands have left.
            lent: Lent::new(Ticket::new(call.context, class, suppress), Buffer::empty()),
            peer,
            stage,
            place: link.tx.sends.add(number),
            info: NO_MESSAGE,
            len,
            seq,
            inject: false,
            fenced: false,
            body,
        });
        debug_assert_eq!(super::key(added), number, "the request names it");
        true
    }
}
