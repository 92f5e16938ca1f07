//! Messages from peers. All input is hostile until [`Frame::parse`] and the tables have checked it:
//! a frame that does not fit the state of its own link is a [`Violation`] and ends that link alone.
//!
//! [`Frame::parse`]: crate::wire::frame::Frame::parse

use super::receive::{Receive, ReceiveStage, RendezvousRecv, Role};
use super::unexpected::{Body, Kept, Origin, Preview, Source, Unexpected};
use super::{Arrival, QueueKind, RxContext};
use crate::completion::reporter::{Reporter, Sender};
use crate::peer::Peers;
use crate::peer::credit::cost_of;
use crate::peer::link::{Coming, Link};
use crate::transport::{Disposition, Down, Incoming, LinkId, OfferAnswer, OfferId, RecvTarget};
use crate::wire::frame::{AckMode, Frame, MessageInfo, Violation};
use ofi_core::Completion;
use ofi_memory::Buffer;
use ofi_sync::lock::LockKind;

pub(super) const UNKNOWN_LINK: Violation = Violation("a frame on a link that is not open");

/// What became of the payload of an offer.
#[derive(Debug)]
pub(crate) enum OfferEnd {
    /// It is in place.
    Placed,
    /// It comes in data frames, or the link goes down.
    Declined,
    /// It cannot be read or placed: its message fails.
    Failed(Down),
}

impl RxContext {
    /// Fast path: a short tagged message that matches the oldest posted receive and fits into it.
    /// On false nothing has changed, and the frame is handled as any other.
    #[inline(always)]
    pub(crate) fn try_recv_fast<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, tag, bytes): (LinkId, u64, &[u8]),
    ) -> bool {
        let cost = cost_of(bytes.len());
        if !peers.is_av_known() || out.tells_addrs() {
            return false;
        }
        let Self { queues, receives, .. } = self;
        let Some(link) = peers.links.get_mut(id) else { return false };
        let (src, queue) = (link.src, &mut queues[QueueKind::Tagged]);
        let Some(found) = queue.first(tag, link.sender) else { return false };
        let Some(mut entry) = receives.occupied(found) else { return false };
        let receive = entry.value();
        let Some(Buffer::One(span)) = &mut receive.buffer else { return false };
        if span.len() < bytes.len() || receive.role != Role::Plain || bytes.len() > link.rx.credit.eager() {
            return false;
        }
        let Some(grants) = link.rx.credit.take_consumed(cost) else { return false };
        link.rx.seq = link.rx.seq.wrapping_add(1);
        span.write_at(0, bytes);
        queue.take_first();
        let suppress = receive.ticket.is_suppressed();
        let Completion { context, flags, .. } = receive.ticket.finish_here();
        // A receive with one span owns only its ticket, which has just ended.
        entry.end();
        let src = out.source(src);
        out.sinks.received(Completion { context, flags, len: bytes.len(), buf: 0, data: 0, tag, src }, suppress);
        if grants {
            peers.grant_credits(id);
        }
        true
    }

    /// An eager message arrives; the result says where its payload goes.
    #[inline(always)]
    pub(crate) fn handle_message<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, info): (LinkId, u32, MessageInfo),
        payload: Incoming<'_>,
    ) -> Result<Disposition, Violation> {
        let len = payload.len();
        charge_eager(peers, id, len)?;
        let from = self.begin_message(peers, (id, number, info))?;
        let sought = (info.tag.unwrap_or(0), from.sender, len as u64);
        let Some(found) = self.match_posted(out, info.queue_kind(), sought) else {
            return Ok(self.keep_unexpected(peers, out, (id, number, info), (payload, from)));
        };
        match payload {
            Incoming::Complete(bytes) => {
                if let Some(receive) = self.receives.get_mut(found) {
                    let placed = receive.buffer.as_mut().map_or(0, |buffer| buffer.write_at(0, bytes));
                    let sender = sender_on(peers, out, id);
                    self.finish(out, found, Arrival { info, placed, total: len as u64, sender });
                }
                Self::arrived(peers, id, number, info, len);
                Ok(Disposition::Done)
            }
            Incoming::Streaming(_) => {
                let Some(receive) = self.receives.get_mut(found) else { return Ok(Disposition::Done) };
                receive.stage = ReceiveStage::Matched;
                let buffer = receive.buffer.take().unwrap_or_else(Buffer::empty);
                if let Some(link) = peers.link(id) {
                    link.rx.coming = Some(Coming::Receive { key: found, id: number, info, len });
                }
                let take = len.min(buffer.len());
                Ok(Disposition::Into(RecvTarget { buffer, at: 0, take, offer: None }))
            }
        }
    }

    /// Begins a message of a link, and its fence if it has one.
    #[inline(always)]
    fn begin_message(
        &self,
        peers: &mut Peers,
        (id, number, info): (LinkId, u32, MessageInfo),
    ) -> Result<Source, Violation> {
        let participant = peers.participant();
        let link = peers.link(id).ok_or(UNKNOWN_LINK)?;
        let (peer, sender, seq) = (link.peer, link.sender, link.rx.seq);
        link.rx.seq = seq.wrapping_add(1);
        if info.fenced {
            self.begin_fence(link, (number, info.ack, seq))?;
        }
        Ok(Source { peer, sender, seq, participant })
    }

    #[cold]
    fn begin_fence(&self, link: &mut Link, (number, ack, seq): (u32, AckMode, u32)) -> Result<(), Violation> {
        let here = |key: &u32| self.unexpected.get(*key).is_some_and(|message| matches!(message.body, Body::Here(_)));
        let unexpected = link.rx.unexpected.iter().filter(|key| ack == AckMode::Match || !here(key)).count();
        link.rx.fences.add(number, ack, seq, unexpected + link.rx.rendezvous.len())
    }

    #[inline(always)]
    fn keep_unexpected<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, info): (LinkId, u32, MessageInfo),
        (payload, from): (Incoming<'_>, Source),
    ) -> Disposition {
        let len = payload.len();
        match payload {
            Incoming::Complete(bytes) => {
                if !matches!(info.ack, AckMode::No | AckMode::Match) {
                    Self::reached(peers, id, number, info, AckMode::Delivery);
                }
                let key = self.queue(peers, Body::Here(Kept::new(bytes)), (id, number, info), len, from);
                self.notice_arrival(peers, out, key);
                Disposition::Done
            }
            Incoming::Streaming(_) => {
                let key = self.queue(peers, Body::Coming { claimed: None }, (id, number, info), len, from);
                if let Some(link) = peers.link(id) {
                    link.rx.coming = Some(Coming::Unexpected { key });
                }
                self.notice_arrival(peers, out, key);
                Disposition::Into(RecvTarget { buffer: Buffer::Owned(vec![0; len]), at: 0, take: len, offer: None })
            }
        }
    }

    #[inline(always)]
    fn queue(
        &mut self,
        peers: &mut Peers,
        body: Body,
        (id, number, info): (LinkId, u32, MessageInfo),
        len: usize,
        from: Source,
    ) -> u32 {
        // At most the eager limit.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let key = self.unexpected.next_number();
        let place = if let Some(link) = peers.link(id) { link.rx.unexpected.add(key) } else { 0 };
        let origin = Origin::Link { id, place };
        self.unexpected.insert(Unexpected::new(body, info, number, len, from, origin));
        self.queues[info.queue_kind()].push_unexpected(info.tag.unwrap_or(0), from.sender, key);
        key
    }

    /// An eager message arrives that no receive may take: the transport drops its payload.
    #[cold]
    pub(crate) fn drop_message(
        &self,
        peers: &mut Peers,
        (id, number, info): (LinkId, u32, MessageInfo),
        len: usize,
    ) -> Result<(), Violation> {
        charge_eager(peers, id, len)?;
        self.begin_message(peers, (id, number, info))?;
        Self::arrived(peers, id, number, info, len);
        Ok(())
    }

    /// The RTS of a message arrives that no receive may take: lets its sender end it.
    #[cold]
    pub(crate) fn drop_rts(
        &self,
        peers: &mut Peers,
        (id, number, info): (LinkId, u32, MessageInfo),
        lens: (u64, usize),
    ) -> Result<(), Violation> {
        self.begin_rts(peers, (id, number, info), lens)?;
        if let Some(link) = peers.link(id) {
            // No data follows, so the token names no receive.
            link.tx.control.push_back(Frame::Cts { id: number, token: 0, len: 0 });
            peers.mark_pending(id);
        }
        peers.return_credits(Some(id), cost_of(lens.1));
        Self::reached(peers, id, number, info, AckMode::Match);
        Ok(())
    }

    /// Begins the message of an RTS that brings this many first bytes.
    fn begin_rts(
        &self,
        peers: &mut Peers,
        (id, number, info): (LinkId, u32, MessageInfo),
        (len, preview): (u64, usize),
    ) -> Result<Source, Violation> {
        let expected = if info.group { 0 } else { peers.preview().min(len) };
        if preview as u64 != expected {
            return Err(Violation("an RTS with another preview than it should have"));
        }
        peers.link(id).ok_or(UNKNOWN_LINK)?.rx.credit.take_rx(cost_of(preview))?;
        self.begin_message(peers, (id, number, info))
    }

    /// The RTS of a message arrives, with its first bytes if the endpoint's hello asks for them.
    pub(crate) fn handle_rts<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, info): (LinkId, u32, MessageInfo),
        (len, preview): (u64, Incoming<'_>),
    ) -> Result<Disposition, Violation> {
        let from = self.begin_rts(peers, (id, number, info), (len, preview.len()))?;
        match self.match_posted(out, info.queue_kind(), (info.tag.unwrap_or(0), from.sender, len)) {
            Some(found) => {
                let (src, seq) = (peers.links.get(id).ok_or(UNKNOWN_LINK)?.src, from.seq);
                let rendezvous =
                    RendezvousRecv { link: id, id: number, info, at: 0, want: 0, total: len, src, seq, place: 0 };
                self.begin_rendezvous(peers, found, rendezvous);
                self.send_cts(peers, out, found);
                if !preview.is_empty() {
                    peers.return_credits(Some(id), preview.len() as u64);
                }
                Ok(Disposition::Done)
            }
            None => Ok(self.keep_rts(peers, out, (id, number, info), (len, preview, from), false)),
        }
    }

    /// The RTS of a message arrives, whose payload the transport can bring at once: that goes to
    /// the receive which matches it. Until one does, it waits at the sender.
    pub(crate) fn handle_offer<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, info): (LinkId, u32, MessageInfo),
        len: u64,
    ) -> Result<OfferAnswer, Violation> {
        let from = self.begin_rts(peers, (id, number, info), (len, 0))?;
        let Some(found) = self.match_posted(out, info.queue_kind(), (info.tag.unwrap_or(0), from.sender, len)) else {
            self.keep_rts(peers, out, (id, number, info), (len, Incoming::Complete(&[]), from), true);
            return Ok(OfferAnswer::Wait(from.seq));
        };
        let (src, seq) = (peers.links.get(id).ok_or(UNKNOWN_LINK)?.src, from.seq);
        let rendezvous = RendezvousRecv { link: id, id: number, info, at: 0, want: 0, total: len, src, seq, place: 0 };
        let want = self.begin_rendezvous(peers, found, rendezvous);
        if let Some(receive) = self.receives.get_mut(found)
            && want > 0
            && let Some(buffer) = receive.buffer.take()
        {
            let offer = Some(OfferId::new(found, from.seq));
            return Ok(OfferAnswer::Take(RecvTarget { buffer, at: 0, take: want, offer }));
        }
        self.send_cts(peers, out, found);
        Ok(OfferAnswer::Decline)
    }

    /// Keeps the message of an RTS until a receive matches it. `offered`: the transport may be
    /// asked for the payload then.
    fn keep_rts<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, number, info): (LinkId, u32, MessageInfo),
        (total, preview, from): (u64, Incoming<'_>, Source),
        offered: bool,
    ) -> Disposition {
        let len = preview.len();
        let (kept, is_here) = match preview {
            Incoming::Complete([]) => (None, true),
            Incoming::Complete(bytes) => (Some(Preview::Here(bytes.to_vec())), true),
            Incoming::Streaming(_) => (Some(Preview::Coming { claimed: None }), false),
        };
        let kept = kept.map(Box::new);
        let key = self.queue(peers, Body::Rts { total, preview: kept }, (id, number, info), len, from);
        if offered && let Some(message) = self.unexpected.get_mut(key) {
            message.note_offer();
        }
        if !is_here && let Some(link) = peers.link(id) {
            link.rx.coming = Some(Coming::Unexpected { key });
        }
        self.notice_arrival(peers, out, key);
        if is_here {
            return Disposition::Done;
        }
        Disposition::Into(RecvTarget { buffer: Buffer::Owned(vec![0; len]), at: 0, take: len, offer: None })
    }

    /// A data frame of a rendezvous arrives; the result says where its payload goes.
    pub(crate) fn handle_data<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, token): (LinkId, u32),
        payload: Incoming<'_>,
    ) -> Result<Disposition, Violation> {
        const STRAY: Violation = Violation("data for a message without a CTS");
        let receive = self.receives.get_mut(token).ok_or(STRAY)?;
        let link = peers.link(id).ok_or(UNKNOWN_LINK)?;
        let (at, want) = match &receive.stage {
            // The link's own list decides: links of other endpoints of a shared context have the
            // same numbers.
            ReceiveStage::Rendezvous(rendezvous)
                if rendezvous.link == id && link.rx.rendezvous.has(token, rendezvous.place) =>
            {
                (rendezvous.at, rendezvous.want)
            }
            _ => return Err(STRAY),
        };
        let len = payload.len();
        if len == 0 || len > want - at {
            return Err(Violation("data does not fit its message"));
        }
        match payload {
            Incoming::Complete(bytes) => {
                // The transport has the buffer of a message that was offered: no CTS is sent.
                receive.buffer.as_mut().ok_or(STRAY)?.write_at(at, bytes);
                self.data_is_here(peers, out, token, len);
                Ok(Disposition::Done)
            }
            Incoming::Streaming(_) => {
                let buffer = receive.buffer.take().ok_or(STRAY)?;
                link.rx.coming = Some(Coming::Data { key: token, len });
                Ok(Disposition::Into(RecvTarget { buffer, at, take: len, offer: None }))
            }
        }
    }

    /// Whether a receive waits for the payload of this unexpected message, which is arriving.
    pub(crate) fn is_claimed(&mut self, message: u32) -> bool {
        self.unexpected.get_mut(message).is_some_and(|message| message.body.claimed().is_some())
    }

    /// A streaming payload is in place.
    pub(crate) fn handle_recv_done<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        id: LinkId,
        target: RecvTarget,
    ) -> Result<(), Violation> {
        let coming = peers.link(id).ok_or(UNKNOWN_LINK)?.rx.coming.take();
        match coming {
            Some(Coming::Receive { key, id: number, info, len }) => {
                let sender = sender_on(peers, out, id);
                if let Some(receive) = self.receives.get_mut(key) {
                    receive.buffer = Some(target.buffer);
                    self.finish(out, key, Arrival { info, placed: target.take, total: len as u64, sender });
                    Self::arrived(peers, id, number, info, len);
                }
            }
            Some(Coming::Unexpected { key }) => self.unexpected_is_here(peers, out, id, key, target.buffer),
            Some(Coming::Data { key, len }) => {
                if let Some(receive) = self.receives.get_mut(key) {
                    receive.buffer = Some(target.buffer);
                    self.data_is_here(peers, out, key, len);
                }
            }
            Some(Coming::Dropped | Coming::Response { .. } | Coming::Access) => {}
            None => return Err(Violation("completion of a payload that was not expected")),
        }
        Ok(())
    }

    /// A streaming payload will not arrive: the link goes down, or the same data frame arrives
    /// again.
    pub(crate) fn handle_recv_retry(&mut self, peers: &mut Peers, id: LinkId, target: RecvTarget) {
        let coming = peers.link(id).and_then(|link| link.rx.coming);
        let Some(Coming::Receive { key, .. } | Coming::Data { key, .. }) = coming else { return };
        if let Some(receive) = self.receives.get_mut(key) {
            receive.buffer = Some(target.buffer);
        }
    }

    /// The transport gives the buffer of an offer's payload back.
    #[inline(never)]
    pub(crate) fn handle_offer_end<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, offer): (LinkId, OfferId),
        (buffer, end): (Buffer, OfferEnd),
    ) {
        let key = offer.receive();
        let Some(receive) = self.receives.get_mut(key) else { return };
        let ReceiveStage::Rendezvous(rendezvous) = &receive.stage else { return };
        // The receive may have ended meanwhile, and another one may have its number.
        let waits = rendezvous.link == id
            && rendezvous.seq == offer.message()
            && peers.link(id).is_some_and(|link| link.rx.rendezvous.has(key, rendezvous.place));
        if !waits {
            return;
        }
        receive.buffer = Some(buffer);
        match end {
            OfferEnd::Placed => self.rendezvous_done(peers, out, key),
            OfferEnd::Declined => self.send_cts(peers, out, key),
            OfferEnd::Failed(why) => {
                if let Some(receive) = self.remove(peers, key) {
                    self.fail_begun(peers, out, receive, &why);
                }
            }
        }
    }

    /// A streaming payload cannot be read: its message fails.
    pub(crate) fn handle_recv_failed<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (id, target): (LinkId, RecvTarget),
        why: &Down,
    ) {
        let Some(coming) = peers.link(id).and_then(|link| link.rx.coming.take()) else { return };
        let key = match coming {
            Coming::Receive { key, id: number, len, .. } => {
                if let Some(link) = peers.link(id) {
                    link.rx.fences.drop_failed(number);
                }
                peers.return_credits(Some(id), cost_of(len));
                key
            }
            Coming::Data { key, .. } => key,
            Coming::Unexpected { key } => return self.unexpected_has_failed(peers, out, (id, key), why),
            Coming::Dropped | Coming::Response { .. } | Coming::Access => return,
        };
        let Some(mut receive) = self.remove(peers, key) else { return };
        receive.buffer = Some(target.buffer);
        self.fail_begun(peers, out, receive, why);
    }

    /// Fails a receive whose message has begun to arrive.
    fn fail_begun<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, receive: Receive, why: &Down) {
        let begun = match &receive.stage {
            ReceiveStage::Rendezvous(rendezvous) => Some((rendezvous.link, (rendezvous.id, rendezvous.seq))),
            ReceiveStage::Posted | ReceiveStage::Matched => None,
        };
        self.fail(out, receive, why);
        if let Some((link, message)) = begun {
            Self::has_failed(peers, link, message);
        }
    }

    fn data_is_here<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, key: u32, len: usize) {
        if let Some(Receive { stage: ReceiveStage::Rendezvous(rendezvous), .. }) = self.receives.get_mut(key) {
            rendezvous.at += len;
            if rendezvous.at == rendezvous.want {
                self.rendezvous_done(peers, out, key);
            }
        }
    }
}

/// Charges an eager message to its link's credit.
#[inline(always)]
fn charge_eager(peers: &mut Peers, id: LinkId, len: usize) -> Result<(), Violation> {
    let link = peers.link(id).ok_or(UNKNOWN_LINK)?;
    link.rx.credit.take_rx(cost_of(len))?;
    if len > link.rx.credit.eager() {
        return Err(Violation("an eager message exceeds the eager limit"));
    }
    Ok(())
}

/// The sender on a link, with its address if the application wants that.
#[inline]
pub(super) fn sender_on<K: LockKind>(peers: &Peers, out: &Reporter<K>, id: LinkId) -> Sender {
    let src = peers.links.get(id).map_or(ofi_core::FiAddr::UNSPEC, |link| link.src);
    let addr = if out.tells_addr(src) { peers.addr_on(id).map(Box::new) } else { None };
    Sender { src, addr }
}
