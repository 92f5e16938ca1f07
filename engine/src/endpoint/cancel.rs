//! Cancellation by context (fi_cancel(3)).

use super::engine::Engine;
use super::state::{Cancelable, Operation, PeerState, ReceiveStage, Role, SendStage};
use crate::match_queue::QueueKind;
use crate::transport::Down;
use ofi_core::{Cause, Errno};
use ofi_sync::lock::LockKind;

/// Operations that may be stale beside as many that are not.
const SLACK: usize = 1024;

impl<K: LockKind> Engine<K> {
    /// Cancels the oldest cancelable operation with this context. False if there is none.
    pub(super) fn cancel(&mut self, context: usize) -> bool {
        self.note_cancelable();
        let Some((_, operation)) = self.oldest_cancelable(context) else { return false };
        let why = Down::new(Cause::Cancelled, Errno::ECANCELED, Cause::Cancelled.text());
        match operation {
            Operation::Receive(number) => self.fail_posted(number, &why),
            Operation::Send(number) => {
                self.unqueue(number);
                self.fail_send(number, &why);
            }
        }
        true
    }

    /// Adds the operations that were posted since the last cancellation.
    fn note_cancelable(&mut self) {
        if self.cancelable.up_to == self.seq {
            return;
        }
        if self.cancelable.added > 2 * (self.receives.len() + self.sends.len()) + SLACK {
            self.cancelable = Cancelable::default();
        }
        let up_to = self.cancelable.up_to;
        let mut fresh = Vec::new();
        for kind in QueueKind::ALL {
            // The latest are at the end.
            let posted = self.match_queues[kind].posted().rev();
            let posted = posted.filter_map(|number| Some((number, self.receives.get(number)?)));
            let posted = posted.take_while(|(_, receive)| receive.seq > up_to);
            fresh.extend(
                posted.map(|(number, receive)| (receive.seq, receive.ticket.context(), Operation::Receive(number))),
            );
        }
        for (_, peer) in self.peers.iter() {
            let waiting = peer.waiting.iter().rev();
            let waiting = waiting.filter_map(|number| Some((*number, self.sends.get(*number as usize)?)));
            let waiting = waiting.take_while(|(_, send)| send.seq > up_to);
            fresh.extend(waiting.map(|(number, send)| (send.seq, send.lent.ticket.context(), Operation::Send(number))));
        }
        fresh.sort_unstable_by_key(|(seq, ..)| *seq);
        self.cancelable.added += fresh.len();
        for (seq, context, operation) in fresh {
            self.cancelable.by_context.entry(context).or_default().push_back((seq, operation));
        }
        self.cancelable.up_to = self.seq;
    }

    /// The oldest cancelable operation with this context. Drops those before it that have completed.
    fn oldest_cancelable(&mut self, context: usize) -> Option<(u64, Operation)> {
        loop {
            let &(seq, operation) = self.cancelable.by_context.get(&context)?.front()?;
            let is_open = self.is_cancelable(seq, operation);
            if is_open {
                return Some((seq, operation));
            }
            let list = self.cancelable.by_context.get_mut(&context)?;
            list.pop_front();
            if list.is_empty() {
                self.cancelable.by_context.remove(&context);
            }
        }
    }

    /// Whether an operation is still the one with that sequence number, and waits to be matched or sent.
    fn is_cancelable(&self, seq: u64, operation: Operation) -> bool {
        match operation {
            Operation::Receive(number) => self.receives.get(number).is_some_and(|receive| {
                let takes = match receive.role {
                    Role::MultiRecv(multi) => self.is_open(multi),
                    Role::Plain | Role::Part { .. } | Role::Discard => true,
                };
                receive.seq == seq && takes && matches!(receive.stage, ReceiveStage::Posted)
            }),
            Operation::Send(number) => self
                .sends
                .get(number as usize)
                .is_some_and(|send| send.seq == seq && matches!(send.stage, SendStage::Waiting)),
        }
    }

    /// Takes a waiting send out of its peer's queue.
    fn unqueue(&mut self, number: u32) {
        let Self { sends, peers, .. } = self;
        let Some(send) = sends.get(number as usize) else { return };
        let Some(peer) = peers.get_mut(send.peer) else { return };
        // The queue is in the order of sequence numbers.
        let earlier = |other: &u32| sends.get(*other as usize).is_some_and(|other| other.seq < send.seq);
        let at = peer.waiting.partition_point(earlier);
        if peer.waiting.get(at) == Some(&number) {
            peer.waiting.remove(at);
        }
        if let PeerState::Open(link) = peer.state {
            // The credit may suffice for the send behind it.
            self.mark_pending(link);
        }
    }
}
