//! The sender's side of a rendezvous: the peer answers the RTS with a CTS, and the message follows
//! in data frames. Where the transport has offered the payload along with the RTS, the peer may
//! take it at once instead.

use super::{SendStage, Tx};
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::transport::{LinkId, Payload, Submitted, Token, Transport, Urgency};
use crate::wire::frame::{AckMode, Frame, MAX_PAYLOAD, Violation};
use ofi_sync::lock::LockKind;

impl Tx {
    pub(crate) fn handle_cts<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        id: LinkId,
        (number, token, len): (u32, u32, u64),
    ) -> Result<(), Violation> {
        const STRAY: Violation = Violation("a CTS for a message that was not offered");
        let send = self.sends.get_mut(number as usize).ok_or(STRAY)?;
        if send.stage != (SendStage::RtsSent { link: id }) {
            return Err(STRAY);
        }
        let end = usize::try_from(len).ok().filter(|len| *len <= send.len).ok_or(STRAY)?;
        send.stage = SendStage::SendingData { link: id, token, at: 0, end, flying: 0 };
        if end == 0 {
            self.data_is_sent(peers, out, number, id);
        } else {
            queue_data(peers, id, number);
            peers.mark_pending(id);
        }
        Ok(())
    }

    /// The transport has sent the data frame that it kept.
    pub(super) fn data_has_left<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        link: LinkId,
        number: u32,
    ) {
        let Some(send) = self.sends.get_mut(number as usize) else { return };
        let SendStage::SendingData { token, at, end, flying, .. } = send.stage else { return };
        send.stage = SendStage::SendingData { link, token, at: at + flying, end, flying: 0 };
        if let Some(entry) = peers.link(link) {
            entry.tx.counts.data += flying as u64;
        }
        if at + flying == end {
            self.data_is_sent(peers, out, number, link);
        } else {
            queue_data(peers, link, number);
        }
        // Send the next data frame, of this message or of another.
        peers.mark_pending(link);
    }

    /// The last byte of a rendezvous has been sent: the send completes, or waits for its
    /// acknowledgment.
    pub(super) fn data_is_sent<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        number: u32,
        link: LinkId,
    ) {
        match self.sends.get_mut(number as usize) {
            Some(send) if send.info.ack != AckMode::No => {
                send.leave(SendStage::Sent { link }, &mut self.unreported);
            }
            _ => self.finish(peers, out, number),
        }
    }

    /// Sends data frames of the messages that are clear to send, in turn.
    pub(super) fn pump_data<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        transport: &mut T,
        id: LinkId,
    ) {
        while let Some(number) = peers.link(id).and_then(|link| link.tx.data_queue.pop_front()) {
            let Some(send) = self.sends.get_mut(number as usize) else { continue };
            let SendStage::SendingData { link: _, token, at, end, .. } = send.stage else { continue };
            let len = (end - at).min(MAX_PAYLOAD);
            let header = Frame::Data { token }.encode();
            let payload = Payload { buffer: &mut send.lent.buffer, from: at, len, token: Token(number), inject: false };
            match transport.submit(id, &header, payload, Urgency::Posted) {
                Submitted::Done => {
                    send.stage = SendStage::SendingData { link: id, token, at: at + len, end, flying: 0 };
                    if let Some(link) = peers.link(id) {
                        link.tx.counts.data += len as u64;
                    }
                    if at + len == end {
                        self.data_is_sent(peers, out, number, id);
                    } else {
                        queue_data(peers, id, number);
                    }
                }
                Submitted::Kept => {
                    send.stage = SendStage::SendingData { link: id, token, at, end, flying: len };
                    // The transport holds one data frame of a link at a time, so that control
                    // frames can pass between.
                    return;
                }
                Submitted::Full => {
                    if let Some(link) = peers.link(id) {
                        link.tx.full = true;
                        link.tx.data_queue.push_front(number);
                    }
                    return;
                }
                Submitted::Broken => {
                    send.leave(SendStage::LinkFailed { link: id }, &mut self.unreported);
                    return;
                }
            }
        }
    }
}

fn queue_data(peers: &mut Peers, id: LinkId, number: u32) {
    if let Some(link) = peers.link(id) {
        link.tx.data_queue.push_back(number);
    }
}
