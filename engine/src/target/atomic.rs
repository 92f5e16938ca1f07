//! Atomic operations of peers (fi_atomic(3)).

use super::access::{Payload, Placing};
use super::respond::Response;
use super::{Change, Target, refusal};
use crate::completion::reporter::Reporter;
use crate::op::MOST_ATOMIC;
use crate::peer::Peers;
use crate::transport::{Disposition, Incoming, LinkId, RecvTarget};
use crate::wire::frame::Violation;
use crate::wire::one_sided::{Action, Refusal, RemoteAddr};
use ofi_core::{BindFlags, OpFlags};
use ofi_memory::Buffer;
use ofi_memory::rmw::{self, RmwError};
use ofi_sync::lock::LockKind;

impl Target {
    /// Handles an Atomic frame.
    #[inline]
    pub(crate) fn handle_atomic<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (link, id): (LinkId, u32),
        (place, action, len): (RemoteAddr, Action, Option<u64>),
        (last, data): (bool, Option<u64>),
        payload: Incoming<'_>,
    ) -> Result<Disposition, Violation> {
        let change = Change { link, id, last, data, class: OpFlags::ATOMIC };
        if action.has_result() {
            self.admit_request(link)?;
        }
        let (values, carried) = (action.values(), payload.len());
        let bytes = match len {
            Some(len) if carried == 0 => usize::try_from(len).unwrap_or(usize::MAX),
            None if values > 0 && carried % values == 0 => carried / values,
            _ => return Err(Violation("an atomic operation whose operands have the wrong length")),
        };
        if bytes == 0 || bytes > MOST_ATOMIC || bytes % action.datatype.size() != 0 {
            return Err(Violation("an atomic operation on an invalid number of elements"));
        }
        match payload {
            Incoming::Complete(operands) => {
                let operands = if values == 0 { None } else { Some(operands) };
                self.apply(peers, out, change, (place, action, bytes), operands.unwrap_or_default())?;
                Ok(Disposition::Done)
            }
            Incoming::Streaming(len) => {
                // They are short.
                peers.account().charge(len);
                self.place(peers, Placing { change, kind: Payload::Operands { place, action }, charged: len });
                Ok(Disposition::Into(RecvTarget { buffer: Buffer::Owned(vec![0; len]), at: 0, take: len, offer: None }))
            }
        }
    }

    /// The operands of an atomic operation have arrived.
    pub(super) fn carry_out<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        change: Change,
        (place, action): (RemoteAddr, Action),
        operands: &[u8],
    ) -> Result<(), Violation> {
        self.apply(peers, out, change, (place, action, operands.len() / action.values().max(1)), operands)
    }

    /// Applies an atomic operation to `len` bytes of our memory, with the operands and then the
    /// values to compare with.
    fn apply<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        change: Change,
        (place, action, len): (RemoteAddr, Action, usize),
        operands: &[u8],
    ) -> Result<(), Violation> {
        let (operands, compare) = operands.split_at(if action.values() == 2 { len } else { operands.len() });
        let mut result = if action.has_result() { self.take_spare() } else { Vec::new() };
        if action.has_result() {
            result.resize(len, 0);
        }
        let rights = action.op.target_access(action.kind);
        let done = self.resolve(place, len as u64, rights).and_then(|(_, range)| {
            let call = rmw::AtomicCall { datatype: action.datatype, op: action.op, operand: operands, compare };
            let result = action.has_result().then_some(result.as_mut_slice());
            rmw::apply(&range, &call, result).map_err(|why| match why {
                RmwError::Region(why) => refusal(why),
                // The frame was checked for both.
                RmwError::Unsupported | RmwError::Count => Refusal::Closed,
            })
        });
        match (done, action.has_result()) {
            (Ok(()), false) => self.performed(peers, out, change, len),
            (Err(why), false) => self.refuse_change(peers, change, why),
            (Err(why), true) => self.refuse_request(peers, (change.link, change.id, change.last), why),
            (Ok(()), true) => {
                self.end_frame(peers, out, change, len, BindFlags::REMOTE_READ);
                self.respond(peers, change.link, Response::copied(change.id, result));
            }
        }
        Ok(())
    }
}
