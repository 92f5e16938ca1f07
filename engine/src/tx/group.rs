//! Messages of collective operations, which the endpoint posts itself: they do not count as sends
//! of the application.

use super::{Body, Outgoing, SendStage, Tx};
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::peer::table::PeerId;
use crate::transport::{Down, Transport};
use crate::wire::frame::{AckMode, MessageInfo};
use ofi_core::OpFlags;
use ofi_memory::{Buffer, Lent, Ticket};
use ofi_sync::lock::LockKind;

/// The number of a message whose result does not matter.
pub(crate) const UNTRACKED: usize = 0;

/// A message for a member.
#[derive(Debug)]
pub(crate) struct MemberMessage {
    pub(crate) tag: u64,
    /// The data word.
    pub(crate) word: u64,
    pub(crate) buffer: Buffer,
    /// Its number in [`Left`].
    pub(crate) number: usize,
    /// It leaves when everything sent to the member before it is done (FI_FENCE).
    pub(crate) fenced: bool,
}

impl MemberMessage {
    /// A message without content, which says all by its word.
    pub(crate) const fn notice(tag: u64, word: u64, number: usize) -> Self {
        Self { tag, word, buffer: Buffer::empty(), number, fenced: false }
    }
}

/// A message that has left, or failed.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) number: usize,
    pub(crate) result: Result<(), Down>,
    /// Its memory, to be used again, unless it was the application's.
    pub(crate) bytes: Vec<u8>,
}

impl Tx {
    /// Sends a message to a member, behind all others that wait for it.
    pub(crate) fn send_group<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        transport: &mut T,
        (peer, message): (PeerId, MemberMessage),
        seq: u64,
    ) {
        let MemberMessage { tag, word, buffer, number, fenced } = message;
        let info = MessageInfo { tag: Some(tag), data: Some(word), ack: AckMode::No, fenced: false, group: true };
        let (len, ticket) = (buffer.len(), Ticket::new(number, OpFlags::COLLECTIVE, number == UNTRACKED));
        let (lent, stage, body) = (Lent::new(ticket, buffer), SendStage::Waiting, Body::Group);
        self.size += 1;
        let send = Outgoing { lent, peer, stage, place: 0, info, len, seq, inject: false, fenced, body };
        self.queue(peers, out, transport, send);
    }

    /// Withdraws those of these messages that have not begun to leave.
    pub(crate) fn withdraw_group<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        numbers: &[usize],
        why: &Down,
    ) {
        if numbers.is_empty() {
            return;
        }
        let is_one = |send: &Outgoing| {
            send.body == Body::Group
                && send.stage == SendStage::Waiting
                && numbers.contains(&send.lent.ticket.context())
        };
        let found: Vec<u32> =
            self.sends.iter().filter(|(_, send)| is_one(send)).map(|(number, _)| super::key(number)).collect();
        found.into_iter().for_each(|number| self.cancel(peers, out, number, why));
    }

    /// A message of a group has left or failed.
    pub(super) fn end_group(&mut self, lent: Lent, result: Result<(), Down>) {
        self.size -= 1;
        let Lent { ticket, buffer } = lent;
        let number = ticket.finish().context;
        if number != UNTRACKED {
            let bytes = if let Some(Buffer::Owned(bytes)) = buffer { bytes } else { Vec::new() };
            self.group_left.push(Left { number, result, bytes });
        }
    }

    /// Takes the messages that have left or failed.
    pub(crate) fn take_group_left(&mut self) -> Vec<Left> {
        core::mem::take(&mut self.group_left)
    }

    /// Whether messages have left or failed.
    pub(crate) const fn has_group_left(&self) -> bool {
        !self.group_left.is_empty()
    }
}
