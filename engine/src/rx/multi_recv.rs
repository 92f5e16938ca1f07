//! Multi-receive buffers (FI_MULTI_RECV, fi_msg(3)): each takes several messages, one behind the
//! other, until its free space is small.

use super::receive::{Intake, MultiRecv, Role};
use super::{QueueKind, RxContext};
use crate::completion::reporter::Reporter;
use crate::transport::Down;
use ofi_core::OpFlags;
use ofi_sync::lock::LockKind;
use slab::Slab;

/// Who reports that a multi-receive buffer is released, when one of its messages completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// None: the buffer is not released.
    No,
    /// The message's completion.
    Joined,
    /// An entry of its own, behind the message's.
    Behind {
        /// The buffer's receive.
        parent: u32,
        /// The buffer's state.
        multi: u32,
    },
}

/// Whether a multi-receive buffer accepts more messages.
pub(super) fn is_open(multi_recvs: &Slab<MultiRecv>, multi: u32) -> bool {
    multi_recvs.get(multi as usize).is_some_and(|multi| matches!(multi.intake, Intake::Open))
}

impl RxContext {
    /// Adds the state of a new multi-receive buffer.
    pub(super) fn add_multi_recv(&mut self) -> u32 {
        let multi = MultiRecv { least: self.min_multi_recv, parts: 0, used: false, intake: Intake::Open };
        u32::try_from(self.multi_recvs.insert(multi)).expect("queue sizes are far below 2^32")
    }

    /// Takes the receive for an arriving message out of its match queue; a multi-receive buffer
    /// gives a slot.
    #[inline]
    pub(super) fn match_posted<K: LockKind>(
        &mut self,
        out: &mut Reporter<K>,
        queue: QueueKind,
        (tag, sender, len): (u64, u32, u64),
    ) -> Option<u32> {
        loop {
            let Some(found) = self.queues[queue].take_posted(tag, sender) else {
                if self.legacy.fast_until == 0 {
                    self.note_unposted(queue);
                }
                return None;
            };
            match self.receives.get(found).map(|receive| receive.role) {
                Some(Role::MultiRecv(multi)) => {
                    if let Some(part) = self.alloc_multi_recv_slot(out, found, multi, len) {
                        return Some(part);
                    }
                }
                Some(Role::Notice { .. }) => {
                    self.note_notice(found);
                    return None;
                }
                _ => return Some(found),
            }
        }
    }

    /// Adds a receive for a message of `len` bytes in the free part of a multi-receive buffer.
    /// `None` if the message does not fit behind earlier ones: then the buffer takes no more.
    #[cold]
    pub(super) fn alloc_multi_recv_slot<K: LockKind>(
        &mut self,
        out: &mut Reporter<K>,
        parent: u32,
        multi: u32,
        len: u64,
    ) -> Option<u32> {
        let receive = self.receives.get_mut(parent)?;
        let state = self.multi_recvs.get_mut(multi as usize)?;
        let buffer = receive.buffer.as_mut()?;
        let room = buffer.len();
        if state.used && len > room as u64 {
            self.retire(out, parent, multi);
            return None;
        }
        let base = buffer.address();
        let front = buffer.split_front(usize::try_from(len).unwrap_or(usize::MAX).min(room))?;
        let (ticket, queue, seq) = (receive.ticket.part(), receive.queue, receive.seq);
        state.parts += 1;
        state.used = true;
        let left = room - front.len();
        if left < state.least.max(1) {
            self.retire(out, parent, multi);
        }
        Some(self.add(ticket, Some(front), Role::Part { parent, base }, (queue, seq)))
    }

    /// Closes a multi-receive buffer to further messages, and releases it if none is arriving.
    fn retire<K: LockKind>(&mut self, out: &mut Reporter<K>, parent: u32, multi: u32) {
        if let Some(queue) = self.receives.get(parent).map(|receive| receive.queue) {
            self.queues[queue].withdraw(parent);
        }
        self.close_intake(out, parent, multi, Intake::Full);
    }

    /// A multi-receive buffer was canceled, or no peer can fill it any more. It is out of its
    /// queue.
    pub(super) fn fail_multi_recv<K: LockKind>(&mut self, out: &mut Reporter<K>, parent: u32, multi: u32, why: &Down) {
        self.close_intake(out, parent, multi, Intake::Failed(why.clone()));
    }

    fn close_intake<K: LockKind>(&mut self, out: &mut Reporter<K>, parent: u32, multi: u32, intake: Intake) {
        let Some(state) = self.multi_recvs.get_mut(multi as usize) else { return };
        state.intake = intake;
        if state.parts == 0 {
            self.release_multi_recv(out, parent, multi);
        }
    }

    /// A message in a multi-receive buffer has completed, and its completion comes next. It also
    /// reports that the buffer is released if that is so, unless there is an error to report or the
    /// message's success is not reported.
    #[cold]
    pub(super) fn part_is_done(&mut self, parent: u32, suppress: bool) -> Release {
        let Some(Role::MultiRecv(multi)) = self.receives.get(parent).map(|receive| receive.role) else {
            return Release::No;
        };
        let Some(state) = self.multi_recvs.get_mut(multi as usize) else { return Release::No };
        state.parts -= 1;
        match state.intake {
            _ if state.parts > 0 => Release::No,
            Intake::Open => Release::No,
            Intake::Full if !suppress => {
                self.multi_recvs.remove(multi as usize);
                if let Some(receive) = self.receives.remove(parent) {
                    receive.ticket.finish();
                }
                Release::Joined
            }
            Intake::Full | Intake::Failed(_) => Release::Behind { parent, multi },
        }
    }

    /// Releases a multi-receive buffer whose messages have been reported. An application may free
    /// what the context names when it reads this, so nothing of the buffer may follow.
    pub(super) fn release_multi_recv<K: LockKind>(&mut self, out: &mut Reporter<K>, parent: u32, multi: u32) {
        let Some(receive) = self.receives.remove(parent) else { return };
        let state = self.multi_recvs.remove(multi as usize);
        let mut completion = receive.ticket.finish();
        match state.intake {
            Intake::Failed(why) => {
                completion.flags |= OpFlags::MULTI_RECV;
                out.missed(completion, &why);
            }
            Intake::Open | Intake::Full => {
                // The release is always reported, and does not count as a message.
                completion.flags = OpFlags::MULTI_RECV;
                out.sinks.report(completion);
            }
        }
    }
}
