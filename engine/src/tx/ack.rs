//! Completion levels of sends: the acknowledgments that they ask for and get.

use super::{Body, SendStage, Tx};
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::transport::{Down, LinkId, Token};
use crate::wire::frame::{AckMode, Violation};
use ofi_core::OpFlags;
use ofi_memory::Buffer;
use ofi_sync::lock::LockKind;

/// Completion levels that need an acknowledgment.
const LEVELS: OpFlags = OpFlags::MATCH_COMPLETE.union(OpFlags::DELIVERY_COMPLETE).union(OpFlags::TRANSMIT_COMPLETE);

/// The acknowledgment for the highest completion level requested. Without one, and for inject
/// calls, an operation is done when the transport has the bytes.
#[inline(always)]
pub(super) fn ack_of(flags: OpFlags, inject: bool, fenced: bool) -> AckMode {
    if inject || !flags.intersects(LEVELS) { AckMode::No } else { level_of(flags, fenced) }
}

fn level_of(flags: OpFlags, fenced: bool) -> AckMode {
    if flags.contains(OpFlags::MATCH_COMPLETE) {
        AckMode::Match
    } else if flags.contains(OpFlags::DELIVERY_COMPLETE) {
        AckMode::Delivery
    } else if fenced {
        // A fenced message is acknowledged by its id, not by the count of arrivals.
        AckMode::Delivery
    } else {
        AckMode::Arrival
    }
}

impl Tx {
    /// The transport has sent a payload that it kept.
    pub(crate) fn handle_send_done<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        link: LinkId,
        token: Token,
        buffer: Buffer,
    ) {
        let Some(send) = self.sends.get_mut(token.0 as usize) else { return };
        send.lent.buffer = Some(buffer);
        match send.stage {
            SendStage::Sending { acked, .. } => {
                if send.info.ack == AckMode::No || acked {
                    self.finish(peers, out, token.0);
                } else {
                    send.leave(SendStage::Sent { link }, &mut self.unreported);
                }
            }
            SendStage::Issuing { link, .. } => {
                send.stage = SendStage::Issuing { link, flying: 0 };
                peers.mark_pending(link);
            }
            SendStage::Issued { link, answered, .. } => {
                send.leave(SendStage::Issued { link, held: false, answered }, &mut self.unreported);
                if answered {
                    self.end(peers, out, token.0);
                }
            }
            SendStage::SendingData { .. } => self.data_has_left(peers, out, link, token.0),
            SendStage::Offered { link } => {
                if let Some(entry) = peers.link(link) {
                    entry.tx.counts.data += send.len as u64;
                }
                self.data_is_sent(peers, out, token.0, link);
            }
            SendStage::Waiting | SendStage::RtsSent { .. } | SendStage::Sent { .. } | SendStage::LinkFailed { .. } => {}
        }
    }

    /// The peer did not take the payload with the RTS: it answers with a CTS.
    pub(crate) fn handle_offer_declined(&mut self, token: Token, buffer: Buffer) {
        let Some(send) = self.sends.get_mut(token.0 as usize) else { return };
        send.lent.buffer = Some(buffer);
        if let SendStage::Offered { link } = send.stage {
            send.stage = SendStage::RtsSent { link };
        }
    }

    /// The transport gives a payload back unsent: the link goes down.
    pub(crate) fn handle_send_returned(&mut self, token: Token, buffer: Buffer) {
        if let Some(send) = self.sends.get_mut(token.0 as usize) {
            send.lent.buffer = Some(buffer);
        }
    }

    /// The transport cannot read a payload: its message fails. A one-sided operation fails too, but
    /// not before the peer, which gets the frame without its payload, has answered.
    pub(crate) fn handle_send_failed<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (link, token): (LinkId, Token),
        buffer: Buffer,
        why: Down,
    ) {
        let Some(send) = self.sends.get_mut(token.0 as usize) else { return };
        if let Body::OneSided(op) = send.body {
            if let Some(op) = self.one_sided.get_mut(op as usize) {
                op.fails(|| why);
            }
            return self.handle_send_done(peers, out, link, token, buffer);
        }
        send.lent.buffer = Some(buffer);
        // The receiver does not count it.
        if send.info.ack == AckMode::Arrival
            && let Some(link) = send.stage.link().and_then(|id| peers.link(id))
        {
            link.tx.unarrived.retain(|number| *number != token.0);
        }
        self.fail(peers, out, token.0, &why);
    }

    pub(crate) fn handle_ack<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        id: LinkId,
        number: u32,
    ) -> Result<(), Violation> {
        const STRAY: Violation = Violation("an unexpected acknowledgment");
        let send = self.sends.get_mut(number as usize).ok_or(STRAY)?;
        if !matches!(send.info.ack, AckMode::Delivery | AckMode::Match) {
            return Err(STRAY);
        }
        match &mut send.stage {
            SendStage::Sent { link } if *link == id => self.finish(peers, out, number),
            SendStage::Sending { link, acked } if *link == id && !*acked => *acked = true,
            _ => return Err(STRAY),
        }
        Ok(())
    }

    /// Handles an Arrived frame: `count` more sends have arrived, in order.
    pub(crate) fn handle_arrived<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        id: LinkId,
        count: u32,
    ) -> Result<(), Violation> {
        for _ in 0..count {
            let number = peers.link(id).and_then(|link| link.tx.unarrived.pop_front());
            let number = number.ok_or(Violation("more arrivals than messages"))?;
            // Its operation may have ended already.
            let Some(send) = self.sends.get_mut(number as usize) else { continue };
            match &mut send.stage {
                SendStage::Sent { link } if *link == id => self.finish(peers, out, number),
                SendStage::Sending { link, acked } if *link == id => *acked = true,
                _ => {}
            }
        }
        Ok(())
    }
}
