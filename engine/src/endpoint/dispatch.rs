//! Frames from peers. All input is hostile until [`Frame::parse`] and the tables have checked it: a
//! frame that does not fit the state of its own link is a [`Violation`] and ends that link alone.

use super::credit::{OVERHEAD, cost_of};
use super::engine::{Engine, Phase, Work};
use super::state::{
    Body, Coming, Fence, Kept, PeerId, Receive, ReceiveStage, RendezvousRecv, Role, SendStage, Sender, Unexpected,
};
use crate::match_queue::QueueKind;
use crate::transport::{Disposition, Down, Incoming, LinkEvents, LinkId, RecvTarget, Token, Verdict};
use crate::wire::frame::{AckMode, Frame, MessageInfo, Violation};
use ofi_core::{Addr, Caps, Completion, FiAddr};
use ofi_memory::Buffer;
use ofi_sync::lock::LockKind;

const UNKNOWN_LINK: Violation = Violation("a frame on a link that is not open");
/// Number of arrivals that are acknowledged at once, although more may come.
const ARRIVALS: u32 = 64;
/// Maximum number of unacknowledged fences of a link: a sender waits for one before it sends the
/// next, and a failed one may linger.
const MOST_FENCES: usize = 16;

/// Key of a slab as the wire and the match queues carry it. Slabs are bounded by queue sizes far
/// below 2^32.
pub(super) fn key(index: usize) -> u32 {
    u32::try_from(index).expect("queue sizes are far below 2^32")
}

impl<K: LockKind> LinkEvents for Engine<K> {
    fn handle_connect_request(
        &mut self,
        link: LinkId,
        hello: &[u8],
        from: &Addr,
        vouches: impl Fn(&Addr) -> bool,
    ) -> Verdict {
        self.answer_connect_request(link, hello, from, vouches)
    }

    fn handle_connected(&mut self, link: LinkId, hello: &[u8]) -> Result<(), Down> {
        self.finish_connect(link, hello)
    }

    #[inline(always)]
    fn handle_frame(&mut self, id: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        if let (Some((_, tag)), Incoming::Complete(bytes)) = (Frame::plain(header), payload)
            && self.try_recv_fast(id, tag, bytes)
        {
            return Ok(Disposition::Done);
        }
        self.dispatch_frame(id, header, payload)
    }

    fn handle_recv_done(&mut self, id: LinkId, target: RecvTarget) -> Result<(), Violation> {
        let coming = self.link(id).ok_or(UNKNOWN_LINK)?.coming.take();
        match coming {
            Some(Coming::Receive { key, id: number, info, len }) => {
                let who = self.sender(id);
                if let Some(receive) = self.receives.remove(key) {
                    self.finish_receive(receive, info, target.take, len as u64, who);
                    self.arrived(id, number, info, len);
                }
            }
            Some(Coming::Unexpected { key }) => self.unexpected_is_here(id, key, target.buffer),
            Some(Coming::Data { key, len }) => {
                if let Some(receive) = self.receives.get_mut(key) {
                    receive.buffer = Some(target.buffer);
                    self.data_is_here(key, len);
                }
            }
            None => return Err(Violation("completion of a payload that was not expected")),
        }
        Ok(())
    }

    fn handle_send_done(&mut self, link: LinkId, token: Token, buffer: Buffer) {
        let Some(send) = self.sends.get_mut(token.0 as usize) else { return };
        send.lent.buffer = Some(buffer);
        match send.stage {
            SendStage::Sending { acked, .. } => {
                if send.info.ack == AckMode::No || acked {
                    self.finish_send(token.0);
                } else {
                    send.stage = SendStage::Sent { link };
                }
            }
            SendStage::SendingData { token: theirs, at, end, flying, .. } => {
                send.stage = SendStage::SendingData { link, token: theirs, at: at + flying, end, flying: 0 };
                if at + flying == end {
                    self.data_is_sent(token.0, link);
                } else if let Some(link_state) = self.link(link) {
                    link_state.data_queue.push_back(token.0);
                }
                // Send the next data frame, of this message or of another.
                self.mark_pending(link);
            }
            SendStage::Waiting | SendStage::RtsSent { .. } | SendStage::Sent { .. } | SendStage::LinkFailed { .. } => {}
        }
    }

    fn handle_send_returned(&mut self, _link: LinkId, token: Token, buffer: Buffer) {
        if let Some(send) = self.sends.get_mut(token.0 as usize) {
            send.lent.buffer = Some(buffer);
        }
    }

    fn handle_recv_retry(&mut self, id: LinkId, target: RecvTarget) {
        let coming = self.link(id).and_then(|link| link.coming.take());
        if let Some(Coming::Receive { key, .. } | Coming::Data { key, .. }) = coming
            && let Some(receive) = self.receives.get_mut(key)
        {
            receive.buffer = Some(target.buffer);
        }
    }

    fn handle_recv_failed(&mut self, id: LinkId, target: RecvTarget, why: Down) {
        let coming = self.link(id).and_then(|link| link.coming.take());
        if let Some(Coming::Receive { key, .. } | Coming::Data { key, .. }) = coming
            && let Some(mut receive) = self.receives.remove(key)
        {
            receive.buffer = Some(target.buffer);
            if let Some(Coming::Receive { id: number, .. }) = coming
                && let Some(link) = self.link(id)
            {
                link.fences.retain(|fence| fence.id != number);
            }
            let seq =
                if let ReceiveStage::Rendezvous(rendezvous) = &receive.stage { Some(rendezvous.seq) } else { None };
            self.fail_receive(receive, &why);
            // The message has failed: a fence behind it does not wait for it.
            if let Some(seq) = seq {
                self.passed(id, seq, AckMode::Delivery);
            }
        }
    }

    fn handle_send_failed(&mut self, link: LinkId, token: Token, buffer: Buffer, why: Down) {
        if let Some(send) = self.sends.get_mut(token.0 as usize) {
            send.lent.buffer = Some(buffer);
            self.fail_send(token.0, &why);
        }
        // Send the next data frame, of another message.
        self.mark_pending(link);
    }

    fn handle_send_room(&mut self, link: LinkId) {
        self.mark_pending(link);
    }

    fn handle_link_down(&mut self, link: LinkId, reason: Down) {
        self.lose_link(link, reason);
    }
}

impl<K: LockKind> Engine<K> {
    /// Fast path: a short tagged message that matches the oldest posted receive and fits into it.
    /// On false nothing has changed, and [`Self::dispatch_frame`] handles the frame.
    #[inline(always)]
    fn try_recv_fast(&mut self, id: LinkId, tag: u64, bytes: &[u8]) -> bool {
        let cost = cost_of(bytes.len());
        if !self.av_is_known() || self.config.caps.contains(Caps::SOURCE_ERR) {
            return false;
        }
        let Self { links, match_queues: queues, receives, .. } = self;
        let Some(Some(link)) = links.get_mut(id.index()) else { return false };
        let (src, queue) = (link.src, &mut queues[QueueKind::Tagged]);
        let Some(found) = queue.first(tag, link.peer) else { return false };
        let ended = receives.end(found, |receive| {
            // `Table::end` drops nothing: a receive with one span owns only its ticket, which ends
            // below.
            let Some(Buffer::One(span)) = &mut receive.buffer else { return None };
            if span.len() < bytes.len() || receive.role != Role::Plain || bytes.len() > link.credit.eager() {
                return None;
            }
            let grants = link.credit.take_consumed(cost)?;
            link.seq = link.seq.wrapping_add(1);
            span.write_at(0, bytes);
            queue.take_first();
            let suppress = receive.ticket.is_suppressed();
            let Completion { context, flags, .. } = receive.ticket.finish_here();
            Some((grants, suppress, context, flags))
        });
        let Some((grants, suppress, context, flags)) = ended else { return false };
        let src = self.reported_source(src);
        self.out.received(Completion { context, flags, len: bytes.len(), buf: 0, data: 0, tag, src }, suppress);
        if grants {
            self.grant_credits(id);
        }
        true
    }

    #[inline(never)]
    fn dispatch_frame(&mut self, id: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        match Frame::parse(header)? {
            Frame::Eager { id: number, info } => return self.handle_message(id, number, info, payload),
            Frame::Data { token } => return self.receive_data(id, token, payload),
            _ if !payload.is_empty() => return Err(Violation("a control frame has a payload")),
            Frame::Rts { id: number, len, info } => self.handle_rts(id, number, len, info)?,
            Frame::Cts { id: number, token, len } => self.handle_cts(id, number, token, len)?,
            Frame::Credit { bytes } => {
                let link = self.link(id).ok_or(UNKNOWN_LINK)?;
                link.out = link.out.saturating_add(bytes);
                link.said_blocked = false;
                self.mark_pending(id);
            }
            Frame::Ack { id: number } => self.handle_ack(id, number)?,
            Frame::Bye => self.link(id).ok_or(UNKNOWN_LINK)?.bye = true,
            Frame::Blocked { bytes } => self.handle_blocked(id, bytes),
            Frame::Arrived { count } => self.handle_arrived(id, count)?,
        }
        Ok(Disposition::Done)
    }

    /// The handle of a link's peer.
    #[inline]
    fn source(&self, id: LinkId) -> FiAddr {
        self.links.get(id.index()).and_then(Option::as_ref).map_or(FiAddr::UNSPEC, |link| link.src)
    }

    /// The sender on a link, with its address if the application wants that.
    #[inline]
    fn sender(&mut self, id: LinkId) -> Sender {
        let src = self.source(id);
        Sender { src, addr: self.addr_to_tell(src, id) }
    }

    fn handle_message(
        &mut self,
        id: LinkId,
        number: u32,
        info: MessageInfo,
        payload: Incoming<'_>,
    ) -> Result<Disposition, Violation> {
        let len = payload.len();
        let link = self.link(id).ok_or(UNKNOWN_LINK)?;
        link.credit.take_rx(cost_of(len))?;
        if len > link.credit.eager() {
            return Err(Violation("an eager message exceeds the eager limit"));
        }
        let sender = self.begin_message(id, number, info)?;
        self.check_av();
        let (peer, _) = sender;
        let Some(found) = self.match_posted(info.queue_kind(), info.tag.unwrap_or(0), peer, len as u64) else {
            return Ok(self.keep_unexpected(id, number, info, payload, sender));
        };
        match payload {
            Incoming::Complete(bytes) => {
                if let Some(mut receive) = self.receives.remove(found) {
                    let placed = receive.buffer.as_mut().map_or(0, |buffer| buffer.write_at(0, bytes));
                    let who = self.sender(id);
                    self.finish_receive(receive, info, placed, len as u64, who);
                }
                self.arrived(id, number, info, len);
                Ok(Disposition::Done)
            }
            Incoming::Streaming(_) => {
                let Some(receive) = self.receives.get_mut(found) else { return Ok(Disposition::Done) };
                receive.stage = ReceiveStage::Receiving { link: id };
                let buffer = receive.buffer.take().unwrap_or_else(Buffer::empty);
                if let Some(link) = self.link(id) {
                    link.coming = Some(Coming::Receive { key: found, id: number, info, len });
                }
                let take = len.min(buffer.len());
                Ok(Disposition::Into(RecvTarget { buffer, at: 0, take }))
            }
        }
    }

    /// Begins a message of a link, and its fence if it has one. Returns its peer and sequence
    /// number.
    fn begin_message(&mut self, id: LinkId, number: u32, info: MessageInfo) -> Result<(PeerId, u32), Violation> {
        let link = self.link(id).ok_or(UNKNOWN_LINK)?;
        let (peer, seq) = (link.peer, link.seq);
        link.seq = seq.wrapping_add(1);
        if info.fenced {
            let left = self.behind(id, info.ack);
            if let Some(link) = self.link(id) {
                if link.fences.len() >= MOST_FENCES {
                    return Err(Violation("too many unacknowledged fences"));
                }
                link.fences.push(Fence { id: number, level: info.ack, seq, left, reached: false });
            }
        }
        Ok((peer, seq))
    }

    /// Number of messages of a link that have not reached a level.
    #[cold]
    fn behind(&self, id: LinkId, level: AckMode) -> usize {
        let unexpected = self.unexpected.iter().filter(|(_, message)| {
            let here = matches!(message.body, Body::Here(_));
            message.link() == Some(id) && (level == AckMode::Match || !here)
        });
        let is_rendezvous =
            |receive: &Receive| matches!(&receive.stage, ReceiveStage::Rendezvous(rendezvous) if rendezvous.link == id);
        unexpected.count() + self.receives.iter().filter(|(_, receive)| is_rendezvous(receive)).count()
    }

    /// A message has reached a level: fences behind it wait for one less.
    #[inline]
    fn passed(&mut self, id: LinkId, seq: u32, level: AckMode) {
        if self.link(id).is_some_and(|link| !link.fences.is_empty()) {
            self.pass_fences(id, seq, level);
        }
    }

    #[cold]
    fn pass_fences(&mut self, id: LinkId, seq: u32, level: AckMode) {
        let Some(link) = self.link(id) else { return };
        for fence in link.fences.iter_mut().filter(|fence| fence.level == level) {
            // Sequence numbers wrap: earlier ones are less than half their range below the fence's.
            let before = fence.seq.wrapping_sub(seq).wrapping_sub(1) < u32::MAX / 2;
            fence.left -= usize::from(before && fence.left > 0);
        }
        self.answer_fences(id);
    }

    /// Acknowledges fences that no earlier message holds up.
    #[cold]
    fn answer_fences(&mut self, id: LinkId) {
        let Some(link) = self.link(id) else { return };
        let mut done = Vec::new();
        link.fences.retain(|fence| {
            let over = fence.reached && fence.left == 0;
            if over {
                done.push(fence.id);
            }
            !over
        });
        link.control.extend(done.iter().map(|id| Frame::Ack { id: *id }));
        if !done.is_empty() {
            self.mark_pending(id);
        }
    }

    /// A whole message is in its receive: returns credit and acknowledges it.
    #[inline]
    fn arrived(&mut self, id: LinkId, number: u32, info: MessageInfo, len: usize) {
        self.return_credits(Some(id), cost_of(len));
        self.reached(id, number, info, AckMode::Match);
    }

    /// A message has reached a level and all lower ones: acknowledges it if the sender wants that.
    #[inline]
    fn reached(&mut self, id: LinkId, number: u32, info: MessageInfo, level: AckMode) {
        match (info.ack, level) {
            (AckMode::No, _) | (AckMode::Match, AckMode::Arrival | AckMode::Delivery) => {}
            (AckMode::Arrival, _) => self.note_arrival(id),
            (AckMode::Delivery | AckMode::Match, _) => self.acknowledge(id, number, info.fenced),
        }
    }

    /// Acknowledges a message; a fenced one once those before it have reached its level.
    fn acknowledge(&mut self, id: LinkId, number: u32, fenced: bool) {
        let Some(link) = self.link(id) else { return };
        if fenced {
            link.fences.iter_mut().filter(|fence| fence.id == number).for_each(|fence| fence.reached = true);
            return self.answer_fences(id);
        }
        link.control.push_back(Frame::Ack { id: number });
        self.mark_pending(id);
    }

    /// Counts an arrival to acknowledge: soon, together with others.
    fn note_arrival(&mut self, id: LinkId) {
        let Some(Some(link)) = self.links.get_mut(id.index()) else { return };
        link.arrived += 1;
        if link.arrived >= ARRIVALS {
            self.mark_pending(id);
        } else if !core::mem::replace(&mut link.lazy, true) {
            self.lazy.push(id);
            self.work.add(Work::DEFERRED);
        }
    }

    /// Queues the links with deferred arrival acknowledgments for sending.
    #[cold]
    pub(super) fn tell_arrivals(&mut self) {
        while let Some(id) = self.lazy.pop() {
            if let Some(link) = self.link(id) {
                link.lazy = false;
                self.mark_pending(id);
            }
        }
    }

    fn keep_unexpected(
        &mut self,
        id: LinkId,
        number: u32,
        info: MessageInfo,
        payload: Incoming<'_>,
        sender: (PeerId, u32),
    ) -> Disposition {
        if self.phase == Phase::Closing {
            // No receive can take it; reading on lets the peer's Bye through.
            return Disposition::Done;
        }
        let len = payload.len();
        let (body, place) = match payload {
            Incoming::Complete(bytes) => {
                if info.ack != AckMode::Match {
                    self.reached(id, number, info, AckMode::Delivery);
                }
                (Body::Here(Kept::new(bytes)), Disposition::Done)
            }
            Incoming::Streaming(_) => {
                let target = RecvTarget { buffer: Buffer::Owned(vec![0; len]), at: 0, take: len };
                (Body::Coming { claimed: None }, Disposition::Into(target))
            }
        };
        let coming = matches!(body, Body::Coming { .. });
        let key = self.queue(body, info, number, len, id, sender);
        if coming && let Some(link) = self.link(id) {
            link.coming = Some(Coming::Unexpected { key });
        }
        place
    }

    fn queue(
        &mut self,
        body: Body,
        info: MessageInfo,
        number: u32,
        len: usize,
        id: LinkId,
        sender: (PeerId, u32),
    ) -> u32 {
        let (peer, _) = sender;
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.unexpected += 1;
        }
        // At most the eager limit.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let key = self.unexpected.insert(Unexpected::new(body, info, number, len, id, sender));
        self.match_queues[info.queue_kind()].push_unexpected(info.tag.unwrap_or(0), peer, key);
        key
    }

    /// Whether to report a sender's address: it has no handle and the application wants it
    /// (FI_SOURCE_ERR).
    #[inline]
    fn tells_addr(&self, src: FiAddr) -> bool {
        src == FiAddr::UNSPEC && self.config.caps.contains(Caps::SOURCE_ERR)
    }

    /// The address of a link's peer, if it is to be reported.
    #[inline]
    fn addr_to_tell(&mut self, src: FiAddr, id: LinkId) -> Option<Box<Addr>> {
        if self.tells_addr(src) { self.peer_addr(id).map(Box::new) } else { None }
    }

    fn peer_addr(&mut self, id: LinkId) -> Option<Addr> {
        let peer = self.link(id)?.peer;
        self.peers.get(peer)?.addr
    }

    /// The sender of an unexpected message: its current handle, or its address if that is to be
    /// reported.
    fn sender_of(&self, peer: PeerId) -> Sender {
        let src = self.handle_of(peer);
        let addr = if self.tells_addr(src) { self.peers.get(peer).and_then(|peer| peer.addr) } else { None };
        Sender { src, addr: addr.map(Box::new) }
    }

    fn handle_rts(&mut self, id: LinkId, number: u32, len: u64, info: MessageInfo) -> Result<(), Violation> {
        self.link(id).ok_or(UNKNOWN_LINK)?.credit.take_rx(OVERHEAD)?;
        if self.phase == Phase::Closing {
            return Ok(());
        }
        let sender = self.begin_message(id, number, info)?;
        self.check_av();
        let (peer, seq) = sender;
        match self.match_posted(info.queue_kind(), info.tag.unwrap_or(0), peer, len) {
            Some(found) => {
                let src = self.source(id);
                self.send_cts(
                    found,
                    RendezvousRecv { link: id, id: number, info, at: 0, want: 0, total: len, src, seq },
                );
            }
            None => {
                self.queue(Body::Rts { total: len }, info, number, 0, id, sender);
            }
        }
        Ok(())
    }

    /// Sends a CTS for as much of a message as the receive has room for.
    fn send_cts(&mut self, receive: u32, mut rendezvous: RendezvousRecv) {
        let Some(entry) = self.receives.get_mut(receive) else { return };
        let room = entry.buffer.as_ref().map_or(0, Buffer::len);
        rendezvous.want = usize::try_from(rendezvous.total).unwrap_or(usize::MAX).min(room);
        let (id, number, want) = (rendezvous.link, rendezvous.id, rendezvous.want);
        entry.stage = ReceiveStage::Rendezvous(Box::new(rendezvous));
        if let Some(link) = self.link(id) {
            link.control.push_back(Frame::Cts { id: number, token: receive, len: want as u64 });
            self.mark_pending(id);
        }
        self.return_credits(Some(id), OVERHEAD);
        if want == 0 {
            self.rendezvous_done(receive);
        }
    }

    /// Completes a rendezvous: all its data is in place.
    fn rendezvous_done(&mut self, receive: u32) {
        let Some(mut entry) = self.receives.remove(receive) else { return };
        if let ReceiveStage::Rendezvous(rendezvous) = core::mem::replace(&mut entry.stage, ReceiveStage::Posted) {
            let RendezvousRecv { link, id, info, want, total, src, seq, .. } = *rendezvous;
            self.passed(link, seq, AckMode::Delivery);
            self.passed(link, seq, AckMode::Match);
            self.reached(link, id, info, AckMode::Match);
            let addr = self.addr_to_tell(src, link);
            self.finish_receive(entry, info, want, total, Sender { src, addr });
        }
    }

    fn receive_data(&mut self, id: LinkId, token: u32, payload: Incoming<'_>) -> Result<Disposition, Violation> {
        const STRAY: Violation = Violation("data for a message without a CTS");
        if self.is_ending() {
            return Ok(Disposition::Done);
        }
        let receive = self.receives.get_mut(token).ok_or(STRAY)?;
        let (at, want) = match &receive.stage {
            ReceiveStage::Rendezvous(rendezvous) if rendezvous.link == id => (rendezvous.at, rendezvous.want),
            _ => return Err(STRAY),
        };
        let len = payload.len();
        if len == 0 || len > want - at {
            return Err(Violation("data does not fit its message"));
        }
        match payload {
            Incoming::Complete(bytes) => {
                if let Some(buffer) = &mut receive.buffer {
                    buffer.write_at(at, bytes);
                }
                self.data_is_here(token, len);
                Ok(Disposition::Done)
            }
            Incoming::Streaming(_) => {
                let buffer = receive.buffer.take().ok_or(STRAY)?;
                self.link(id).ok_or(UNKNOWN_LINK)?.coming = Some(Coming::Data { key: token, len });
                Ok(Disposition::Into(RecvTarget { buffer, at, take: len }))
            }
        }
    }

    fn data_is_here(&mut self, key: u32, len: usize) {
        if let Some(Receive { stage: ReceiveStage::Rendezvous(rendezvous), .. }) = self.receives.get_mut(key) {
            rendezvous.at += len;
            if rendezvous.at == rendezvous.want {
                self.rendezvous_done(key);
            }
        }
    }

    fn unexpected_is_here(&mut self, id: LinkId, key: u32, buffer: Buffer) {
        let Buffer::Owned(bytes) = buffer else { return };
        let Some(message) = self.unexpected.get_mut(key) else { return };
        let claimed = if let Body::Coming { claimed } = &message.body { *claimed } else { None };
        message.body = Body::Here(Kept::Long(bytes.into_boxed_slice()));
        let (number, info, seq) = (message.id, message.info(), message.seq);
        if info.ack != AckMode::Match {
            self.reached(id, number, info, AckMode::Delivery);
        }
        self.passed(id, seq, AckMode::Delivery);
        if let Some(receive) = claimed {
            self.deliver_unexpected(receive, key);
        }
    }

    /// Whether this side has shut down or is closing. Its operations have ended: ignore frames
    /// about them.
    const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::ShutDown)
    }

    fn handle_cts(&mut self, id: LinkId, number: u32, token: u32, len: u64) -> Result<(), Violation> {
        const STRAY: Violation = Violation("a CTS for a message that was not offered");
        if self.is_ending() {
            return Ok(());
        }
        let send = self.sends.get_mut(number as usize).ok_or(STRAY)?;
        if send.stage != (SendStage::RtsSent { link: id }) {
            return Err(STRAY);
        }
        let end = usize::try_from(len).ok().filter(|len| *len <= send.len).ok_or(STRAY)?;
        send.stage = SendStage::SendingData { link: id, token, at: 0, end, flying: 0 };
        if end == 0 {
            self.data_is_sent(number, id);
        } else {
            self.link(id).ok_or(UNKNOWN_LINK)?.data_queue.push_back(number);
            self.mark_pending(id);
        }
        Ok(())
    }

    /// The last byte of a rendezvous has been sent: the send completes, or waits for its
    /// acknowledgment.
    pub(super) fn data_is_sent(&mut self, number: u32, link: LinkId) {
        match self.sends.get_mut(number as usize) {
            Some(send) if send.info.ack != AckMode::No => send.stage = SendStage::Sent { link },
            _ => self.finish_send(number),
        }
    }

    fn handle_ack(&mut self, id: LinkId, number: u32) -> Result<(), Violation> {
        const STRAY: Violation = Violation("an unexpected acknowledgment");
        if self.is_ending() {
            return Ok(());
        }
        let send = self.sends.get_mut(number as usize).ok_or(STRAY)?;
        if !matches!(send.info.ack, AckMode::Delivery | AckMode::Match) {
            return Err(STRAY);
        }
        match &mut send.stage {
            SendStage::Sent { link } if *link == id => self.finish_send(number),
            SendStage::Sending { link, acked } if *link == id && !*acked => *acked = true,
            _ => return Err(STRAY),
        }
        Ok(())
    }

    /// Handles an Arrived frame: `count` more sends have arrived, in order.
    fn handle_arrived(&mut self, id: LinkId, count: u32) -> Result<(), Violation> {
        if self.is_ending() {
            return Ok(());
        }
        for _ in 0..count {
            let link = self.link(id).ok_or(UNKNOWN_LINK)?;
            let number = link.unarrived.pop_front().ok_or(Violation("more arrivals than messages"))?;
            // Its operation may have ended already.
            let Some(send) = self.sends.get_mut(number as usize) else { continue };
            match &mut send.stage {
                SendStage::Sent { link } if *link == id => self.finish_send(number),
                SendStage::Sending { link, acked } if *link == id => *acked = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Matches unexpected messages, oldest first, with receives that they may fit now; the others
    /// keep their place.
    #[cold]
    pub(super) fn rematch(&mut self, queue: QueueKind) {
        if self.match_queues[queue].posted_len() == 0 {
            return;
        }
        let waiting: Vec<u32> = self.match_queues[queue].unexpected().collect();
        for key in waiting {
            let Some(message) = self.unexpected.get(key) else { continue };
            let (tag, peer, total) = (message.info().tag.unwrap_or(0), message.peer, message.total());
            if let Some(receive) = self.match_posted(queue, tag, peer, total) {
                self.match_queues[queue].drop_unexpected(key);
                self.deliver_unexpected(receive, key);
            }
        }
    }

    /// Delivers an unexpected message to a receive; both have left their match queue.
    pub(super) fn deliver_unexpected(&mut self, receive: u32, message: u32) {
        let Some(entry) = self.unexpected.get_mut(message) else { return };
        let link = entry.link();
        if let Body::Coming { claimed } = &mut entry.body {
            *claimed = Some(receive);
            if let (Some(receive), Some(link)) = (self.receives.get_mut(receive), link) {
                receive.stage = ReceiveStage::Receiving { link };
            }
            return;
        }
        let src = entry.peer;
        let who = self.sender_of(src);
        let Some(entry) = self.take_unexpected(message) else { return };
        let (info, id, seq) = (entry.info(), entry.id, entry.seq);
        match entry.body {
            Body::Coming { .. } => {}
            Body::Rts { total } => {
                let Some(link) = link else { return };
                self.send_cts(receive, RendezvousRecv { link, id, info, at: 0, want: 0, total, src: who.src, seq });
            }
            Body::Here(bytes) => {
                if let Some(mut receive) = self.receives.remove(receive) {
                    let placed = receive.buffer.as_mut().map_or(0, |buffer| buffer.write_at(0, bytes.bytes()));
                    self.finish_receive(receive, info, placed, u64::from(entry.len), who);
                }
                self.return_credits(link, cost_of(entry.len as usize));
                if let Some(link) = link {
                    self.passed(link, seq, AckMode::Match);
                    if info.ack == AckMode::Match {
                        self.reached(link, id, info, AckMode::Match);
                    }
                }
            }
        }
    }
}
