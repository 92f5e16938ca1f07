//! Delivery: unexpected messages into receives, the receiver's side of a rendezvous, and the
//! acknowledgments that senders want.

use super::post::Match;
use super::receive::{Receive, ReceiveStage, RendezvousRecv};
use super::unexpected::{Body, Kept, Preview};
use super::{Arrival, QueueKind, RxContext};
use crate::completion::reporter::{Reporter, Sender};
use crate::peer::Peers;
use crate::peer::credit::{OVERHEAD, cost_of};
use crate::peer::table::PeerId;
use crate::transport::{Down, LinkId, OfferId, RecvTarget};
use crate::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_memory::Buffer;
use ofi_sync::lock::LockKind;

/// Number of arrivals that are acknowledged at once, although more may come.
const ARRIVALS: u32 = 64;

impl RxContext {
    /// Delivers an unexpected message to a receive, or leaves that to the endpoint that received
    /// the message.
    pub(crate) fn deliver<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, found: Match) {
        match self.unexpected.get(found.message) {
            Some(message) if message.participant != peers.participant() => {
                self.participants.leave_to(message.participant, found)
            }
            _ => self.deliver_unexpected(peers, out, found),
        }
    }

    /// Delivers an unexpected message of this endpoint; it and the receive have left their match
    /// queue.
    pub(super) fn deliver_unexpected<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, found: Match) {
        let Match { receive, message } = found;
        let Some(entry) = self.unexpected.get_mut(message) else { return };
        if entry.body.claim(receive) {
            if let Some(receive) = self.receives.get_mut(receive) {
                receive.stage = ReceiveStage::Matched;
            }
            return;
        }
        if self.is_notice(receive) {
            return self.notify(peers, out, found);
        }
        let Self { unexpected, receives, .. } = self;
        let Some(entry) = unexpected.get_mut(message) else { return };
        let (link, info, id, seq, offered) = (entry.link(), entry.info(), entry.id, entry.seq, entry.is_offered());
        match &mut entry.body {
            // Claimed above.
            Body::Coming { .. } => {}
            Body::Rts { total, .. } => {
                let (total, src, preview) = (*total, peers.handle_of(entry.peer), entry.len);
                self.remove_unexpected(peers, message);
                let Some(link) = link else { return };
                if preview > 0 {
                    peers.return_credits(Some(link), u64::from(preview));
                }
                let rendezvous = RendezvousRecv { link, id, info, at: 0, want: 0, total, src, seq, place: 0 };
                self.begin_rendezvous(peers, receive, rendezvous);
                if offered {
                    self.take_offer(peers, receive);
                } else {
                    self.send_cts(peers, out, receive);
                }
            }
            Body::Here(bytes) => {
                let buffer = receives.get_mut(receive).and_then(|receive| receive.buffer.as_mut());
                let placed = buffer.map_or(0, |buffer| buffer.write_at(0, bytes.bytes()));
                let len = entry.len;
                let sender = sender_of(peers, out, entry.peer);
                self.remove_unexpected(peers, message);
                self.finish(out, receive, Arrival { info, placed, total: len.into(), sender });
                peers.return_credits(link, cost_of(len as usize));
                if let Some(link) = link {
                    Self::passed(peers, link, seq, AckMode::Match);
                    if info.ack == AckMode::Match {
                        Self::reached(peers, link, id, info, AckMode::Match);
                    }
                }
            }
        }
    }

    /// All bytes of an unexpected message, or of its preview, have arrived.
    pub(super) fn unexpected_is_here<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        id: LinkId,
        message: u32,
        buffer: Buffer,
    ) {
        let Buffer::Owned(bytes) = buffer else { return };
        let Some(entry) = self.unexpected.get_mut(message) else { return };
        let claimed = entry.body.claimed();
        if let Body::Rts { preview, .. } = &mut entry.body {
            *preview = Some(Box::new(Preview::Here(bytes)));
            return self.deliver_claimed(peers, out, message, claimed);
        }
        entry.body = Body::Here(Kept::Long(bytes.into_boxed_slice()));
        let (number, info, seq) = (entry.id, entry.info(), entry.seq);
        if info.ack != AckMode::Match {
            Self::reached(peers, id, number, info, AckMode::Delivery);
        }
        Self::passed(peers, id, seq, AckMode::Delivery);
        self.deliver_claimed(peers, out, message, claimed);
    }

    /// Delivers an unexpected message to the receive that has claimed it, if there is one.
    fn deliver_claimed<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        message: u32,
        claimed: Option<u32>,
    ) {
        if let Some(receive) = claimed {
            self.deliver_unexpected(peers, out, Match { receive, message });
        }
    }

    /// The payload of an unexpected message cannot be read: the message is dropped, and the receive
    /// that has claimed it fails. Of an offered one only the preview is lost.
    #[cold]
    pub(super) fn unexpected_has_failed<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, message): (LinkId, u32),
        why: &Down,
    ) {
        let Some(entry) = self.unexpected.get_mut(message) else { return };
        let claimed = entry.body.claimed();
        if let Body::Rts { preview, .. } = &mut entry.body {
            *preview = None;
            return self.deliver_claimed(peers, out, message, claimed);
        }
        let (number, seq, len) = (entry.id, entry.seq, entry.len);
        self.lose_unexpected(peers, out, message, why);
        peers.return_credits(Some(id), cost_of(len as usize));
        Self::has_failed(peers, id, (number, seq));
    }

    /// Matches unexpected messages, oldest first, with receives that they may fit
    /// now; the others keep their place.
    #[cold]
    pub(crate) fn rematch<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>) {
        for kind in QueueKind::ALL {
            if self.queues[kind].posted_len() == 0 {
                continue;
            }
            let waiting: Vec<(u32, u32)> = self.queues[kind].unexpected().collect();
            for (message, sender) in waiting {
                let Some(entry) = self.unexpected.get(message) else { continue };
                let sought = (entry.info().tag.unwrap_or(0), sender, entry.total());
                if let Some(receive) = self.match_posted(out, kind, sought).or_else(|| self.take_noted()) {
                    self.queues[kind].drop_unexpected(message);
                    self.deliver(peers, out, Match { receive, message });
                }
            }
        }
    }

    /// Prepares a receive for as much of a message as it has room for. Returns how much.
    pub(super) fn begin_rendezvous(
        &mut self,
        peers: &mut Peers,
        receive: u32,
        mut rendezvous: RendezvousRecv,
    ) -> usize {
        let Some(entry) = self.receives.get_mut(receive) else { return 0 };
        let room = entry.buffer.as_ref().map_or(0, Buffer::len);
        let want = usize::try_from(rendezvous.total).unwrap_or(usize::MAX).min(room);
        let id = rendezvous.link;
        rendezvous.want = want;
        if let Some(link) = peers.link(id) {
            rendezvous.place = link.rx.rendezvous.add(receive);
        }
        entry.stage = ReceiveStage::Rendezvous(Box::new(rendezvous));
        peers.return_credits(Some(id), OVERHEAD);
        want
    }

    /// Asks the transport for what a receive wants of a message that was offered before. That may
    /// be nothing: the sender learns in the same way that its message is over.
    fn take_offer(&mut self, peers: &mut Peers, receive: u32) {
        let Some(entry) = self.receives.get_mut(receive) else { return };
        let ReceiveStage::Rendezvous(rendezvous) = &entry.stage else { return };
        let RendezvousRecv { link: id, want: take, seq, .. } = **rendezvous;
        if let Some(link) = peers.link(id)
            && let Some(buffer) = entry.buffer.take()
        {
            let offer = Some(OfferId::new(receive, seq));
            link.rx.offers.push_back(RecvTarget { buffer, at: 0, take, offer });
            peers.mark_pending(id);
        }
    }

    /// Sends the CTS for what a receive wants of its message.
    pub(super) fn send_cts<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, receive: u32) {
        let Some(Receive { stage: ReceiveStage::Rendezvous(rendezvous), .. }) = self.receives.get(receive) else {
            return;
        };
        let RendezvousRecv { link: id, id: number, want, .. } = **rendezvous;
        if let Some(link) = peers.link(id) {
            link.tx.control.push_back(Frame::Cts { id: number, token: receive, len: want as u64 });
            peers.mark_pending(id);
        }
        if want == 0 {
            self.rendezvous_done(peers, out, receive);
        }
    }

    /// Completes a rendezvous: all its data is in place.
    pub(super) fn rendezvous_done<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, receive: u32) {
        let Some(entry) = self.receives.get_mut(receive) else { return };
        if let ReceiveStage::Rendezvous(rendezvous) = core::mem::replace(&mut entry.stage, ReceiveStage::Matched) {
            self.unlist_rendezvous(peers, receive, &rendezvous);
            let RendezvousRecv { link, id, info, want, total, src, seq, .. } = *rendezvous;
            if let Some(link) = peers.link(link) {
                link.rx.counts.data += want as u64;
            }
            Self::passed(peers, link, seq, AckMode::Delivery);
            Self::passed(peers, link, seq, AckMode::Match);
            Self::reached(peers, link, id, info, AckMode::Match);
            // As the sender was known when the RTS was matched.
            let addr = if out.tells_addr(src) { peers.addr_on(link).map(Box::new) } else { None };
            let sender = Sender { src, addr };
            self.finish(out, receive, Arrival { info, placed: want, total, sender });
        }
    }

    /// A message has reached a level: fences behind it wait for one less.
    #[inline]
    pub(super) fn passed(peers: &mut Peers, id: LinkId, seq: u32, level: AckMode) {
        if let Some(link) = peers.link(id)
            && !link.rx.fences.is_empty()
        {
            let done = link.rx.fences.pass(seq, level);
            Self::acknowledge(peers, id, done);
        }
    }

    /// A message has failed after it was begun: it is not acknowledged, and fences behind it do not
    /// wait for it.
    pub(super) fn has_failed(peers: &mut Peers, id: LinkId, (number, seq): (u32, u32)) {
        if let Some(link) = peers.link(id) {
            link.rx.fences.drop_failed(number);
        }
        Self::passed(peers, id, seq, AckMode::Delivery);
        Self::passed(peers, id, seq, AckMode::Match);
    }

    /// A whole message is in its receive: returns credit and acknowledges it.
    #[inline]
    pub(super) fn arrived(peers: &mut Peers, id: LinkId, number: u32, info: MessageInfo, len: usize) {
        peers.return_credits(Some(id), cost_of(len));
        Self::reached(peers, id, number, info, AckMode::Match);
    }

    /// A message has reached a level and all lower ones: acknowledges it if the sender wants that.
    /// A fenced one is acknowledged once those before it have reached its level.
    #[inline]
    pub(super) fn reached(peers: &mut Peers, id: LinkId, number: u32, info: MessageInfo, level: AckMode) {
        match (info.ack, level) {
            (AckMode::No, _) | (AckMode::Match, AckMode::Arrival | AckMode::Delivery) => {}
            (AckMode::Arrival, _) => Self::note_arrival(peers, id),
            (AckMode::Delivery | AckMode::Match, _) if info.fenced => {
                let done = peers.link(id).map(|link| link.rx.fences.reach(number));
                Self::acknowledge(peers, id, done.unwrap_or_default());
            }
            (AckMode::Delivery | AckMode::Match, _) => Self::acknowledge(peers, id, [number]),
        }
    }

    fn acknowledge(peers: &mut Peers, id: LinkId, numbers: impl IntoIterator<Item = u32>) {
        let Some(link) = peers.link(id) else { return };
        link.tx.control.extend(numbers.into_iter().map(|id| Frame::Ack { id }));
        if !link.tx.control.is_empty() {
            peers.mark_pending(id);
        }
    }

    /// Counts an arrival to acknowledge: soon, together with others.
    fn note_arrival(peers: &mut Peers, id: LinkId) {
        let Some(link) = peers.link(id) else { return };
        let arrivals = &mut link.rx.arrivals;
        arrivals.count += 1;
        if arrivals.count >= ARRIVALS {
            peers.mark_pending(id);
        } else if !core::mem::replace(&mut arrivals.listed, true) {
            peers.agenda.push_deferred(id);
        }
    }
}

/// The sender of an unexpected message: its current handle, or its address if that is to be
/// reported.
fn sender_of<K: LockKind>(peers: &Peers, out: &Reporter<K>, peer: PeerId) -> Sender {
    let src = peers.handle_of(peer);
    let addr = if out.tells_addr(src) { peers.addr_of(peer) } else { None };
    Sender { src, addr: addr.map(Box::new) }
}
