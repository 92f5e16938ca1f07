//! What comes from peers. Everything in here is hostile until [`Frame::parse`] and the tables say otherwise: a frame
//! that does not fit the state of its own link is a [`Violation`] and costs that link alone.

use super::engine::{Engine, Phase};
use super::state::{Body, Coming, OVERHEAD, Pull, Receive, ReceiveStage, Role, SendStage, Sender, TAGGED, Unexpected};
use crate::frame::{AckWanted, Frame, Label, Violation};
use crate::transport::{Arriving, Down, Landing, LinkId, Place, Sink, Token, Verdict};
use ofi_core::{Addr, Caps, Completion, FiAddr};
use ofi_memory::Buffer;
use ofi_sync::lock::LockKind;

const UNKNOWN_LINK: Violation = Violation("a frame on a link that is not open");

const fn cost_of(len: usize) -> u64 {
    len as u64 + OVERHEAD
}

/// Key of a slab as the wire and the matcher carry it. Slabs are bounded by queue sizes far below 2^32.
pub(super) fn key(index: usize) -> u32 {
    u32::try_from(index).expect("queue sizes are far below 2^32")
}

impl<K: LockKind> Sink for Engine<K> {
    fn incoming(&mut self, link: LinkId, hello: &[u8], from: &Addr) -> Verdict {
        self.handle_incoming(link, hello, from)
    }

    fn answered(&mut self, link: LinkId, hello: &[u8]) -> Result<(), Down> {
        self.handle_answer(link, hello)
    }

    #[inline(always)]
    fn frame(&mut self, id: LinkId, header: &[u8], payload: Arriving<'_>) -> Result<Place, Violation> {
        if let (Some((_, tag)), Arriving::Here(bytes)) = (Frame::plain(header), payload)
            && self.take_at_once(id, tag, bytes)
        {
            return Ok(Place::Done);
        }
        self.handle_frame(id, header, payload)
    }

    fn placed(&mut self, id: LinkId, landing: Landing) -> Result<(), Violation> {
        let coming = self.link(id).ok_or(UNKNOWN_LINK)?.coming.take();
        match coming {
            Some(Coming::Receive { key, id: number, label, len }) => {
                let who = self.sender(id);
                if let Some(receive) = self.receives.remove(key) {
                    self.finish_receive(receive, label, landing.take, len as u64, who);
                    self.arrived(id, number, label, len);
                }
            }
            Some(Coming::Unexpected { key }) => self.unexpected_is_here(id, key, landing.buffer),
            Some(Coming::Segment { key, len }) => {
                if let Some(receive) = self.receives.get_mut(key) {
                    receive.buffer = Some(landing.buffer);
                    self.segment_is_here(key, len);
                }
            }
            None => return Err(Violation("a payload ended that was not expected")),
        }
        Ok(())
    }

    fn sent(&mut self, link: LinkId, token: Token, buffer: Buffer) {
        let Some(send) = self.sends.get_mut(token.0 as usize) else { return };
        send.lent.buffer = Some(buffer);
        match send.stage {
            SendStage::Sending { acked, .. } => {
                if send.label.ack == AckWanted::No || acked {
                    self.finish_send(token.0);
                } else {
                    send.stage = SendStage::Sent { link };
                }
            }
            SendStage::Streaming { token: theirs, at, end, flying, .. } => {
                send.stage = SendStage::Streaming { link, token: theirs, at: at + flying, end, flying: 0 };
                if at + flying == end {
                    self.stream_is_sent(token.0, link);
                } else if let Some(link_state) = self.link(link) {
                    link_state.streams.push_back(token.0);
                }
                // This stream's next segment, or the next stream's.
                self.list(link);
            }
            SendStage::Waiting | SendStage::Requested { .. } | SendStage::Sent { .. } | SendStage::Doomed { .. } => {}
        }
    }

    fn returned(&mut self, _link: LinkId, token: Token, buffer: Buffer) {
        if let Some(send) = self.sends.get_mut(token.0 as usize) {
            send.lent.buffer = Some(buffer);
        }
    }

    fn unplaced(&mut self, id: LinkId, landing: Landing) {
        let coming = self.link(id).and_then(|link| link.coming.take());
        if let Some(Coming::Receive { key, .. } | Coming::Segment { key, .. }) = coming
            && let Some(receive) = self.receives.get_mut(key)
        {
            receive.buffer = Some(landing.buffer);
        }
    }

    fn spoiled(&mut self, id: LinkId, landing: Landing, why: Down) {
        let coming = self.link(id).and_then(|link| link.coming.take());
        if let Some(Coming::Receive { key, .. } | Coming::Segment { key, .. }) = coming
            && let Some(mut receive) = self.receives.remove(key)
        {
            receive.buffer = Some(landing.buffer);
            self.fail_receive(receive, &why);
        }
    }

    fn unsent(&mut self, link: LinkId, token: Token, buffer: Buffer, why: Down) {
        if let Some(send) = self.sends.get_mut(token.0 as usize) {
            send.lent.buffer = Some(buffer);
            self.fail_send(token.0, &why);
        }
        // The next stream's turn.
        self.list(link);
    }

    fn down(&mut self, link: LinkId, reason: Down) {
        self.handle_down(link, reason);
    }
}

impl<K: LockKind> Engine<K> {
    /// The common case in one piece: a short tagged message that is for the oldest posted receive and fits into it. False:
    /// something is not as usual, and nothing has happened.
    #[inline(always)]
    fn take_at_once(&mut self, id: LinkId, tag: u64, bytes: &[u8]) -> bool {
        let cost = cost_of(bytes.len());
        if !self.av_is_known() || self.config.caps.contains(Caps::SOURCE_ERR) {
            return false;
        }
        let Self { links, lanes, receives, .. } = self;
        let Some(Some(link)) = links.get_mut(id.index()) else { return false };
        let (src, lane) = (link.src, &mut lanes[TAGGED]);
        let Some(found) = lane.first(tag, src) else { return false };
        let ended = receives.end(found, |receive| {
            // Such a receive owns nothing but its ticket.
            let Some(Buffer::One(span)) = &mut receive.buffer else { return None };
            if span.len() < bytes.len() || receive.role != Role::Plain || bytes.len() > link.granted.eager as usize {
                return None;
            }
            let grants = link.pass(cost)?;
            span.write_at(0, bytes);
            lane.take_first();
            let silent = receive.ticket.is_silent();
            let Completion { context, flags, .. } = receive.ticket.finish_here();
            Some((grants, silent, context, flags))
        });
        let Some((grants, silent, context, flags)) = ended else { return false };
        let src = self.told(src);
        self.out.received(Completion { context, flags, len: bytes.len(), buf: 0, data: 0, tag, src }, silent);
        if grants {
            self.grant(id);
        }
        true
    }

    #[inline(never)]
    fn handle_frame(&mut self, id: LinkId, header: &[u8], payload: Arriving<'_>) -> Result<Place, Violation> {
        match Frame::parse(header)? {
            Frame::Eager { id: number, label } => return self.handle_message(id, number, label, payload),
            Frame::Segment { token } => return self.handle_segment(id, token, payload),
            _ if !payload.is_empty() => return Err(Violation("a control frame has a payload")),
            Frame::Request { id: number, len, label } => self.handle_request(id, number, len, label)?,
            Frame::Pull { id: number, token, len } => self.handle_pull(id, number, token, len)?,
            Frame::Credit { messages, bytes } => {
                let link = self.link(id).ok_or(UNKNOWN_LINK)?;
                link.out.bytes = link.out.bytes.saturating_add(bytes);
                link.out.messages = link.out.messages.saturating_add(messages);
                self.list(id);
            }
            Frame::Ack { id: number } => self.handle_ack(id, number)?,
            Frame::Bye => self.link(id).ok_or(UNKNOWN_LINK)?.bye = true,
        }
        Ok(Place::Done)
    }

    /// The sender on a link, as the address vector knows it.
    #[inline]
    fn source(&self, id: LinkId) -> FiAddr {
        self.links.get(id.index()).and_then(Option::as_ref).map_or(FiAddr::UNSPEC, |link| link.src)
    }

    /// The same with its address where that is all we know.
    #[inline]
    fn sender(&mut self, id: LinkId) -> Sender {
        let src = self.source(id);
        Sender { src, addr: self.addr_to_tell(src, id) }
    }

    fn handle_message(
        &mut self,
        id: LinkId,
        number: u32,
        label: Label,
        payload: Arriving<'_>,
    ) -> Result<Place, Violation> {
        let len = payload.len();
        let link = self.link(id).ok_or(UNKNOWN_LINK)?;
        link.charge(cost_of(len))?;
        if len > link.granted.eager as usize {
            return Err(Violation("a message is longer than may come unasked"));
        }
        self.check_av();
        let src = self.source(id);
        let Some(found) = self.match_posted(label.lane(), label.tag.unwrap_or(0), src, len as u64) else {
            return Ok(self.keep_unexpected(id, number, label, payload, src));
        };
        match payload {
            Arriving::Here(bytes) => {
                if let Some(mut receive) = self.receives.remove(found) {
                    let placed = receive.buffer.as_mut().map_or(0, |buffer| buffer.write_at(0, bytes));
                    let who = self.sender(id);
                    self.finish_receive(receive, label, placed, len as u64, who);
                }
                self.arrived(id, number, label, len);
                Ok(Place::Done)
            }
            Arriving::Coming(_) => {
                let Some(receive) = self.receives.get_mut(found) else { return Ok(Place::Done) };
                receive.stage = ReceiveStage::Arriving { link: id };
                let buffer = receive.buffer.take().unwrap_or_else(Buffer::empty);
                if label.wants(AckWanted::Match) {
                    self.acknowledge(id, number);
                }
                if let Some(link) = self.link(id) {
                    link.coming = Some(Coming::Receive { key: found, id: number, label, len });
                }
                let take = len.min(buffer.len());
                Ok(Place::Into(Landing { buffer, at: 0, take }))
            }
        }
    }

    /// A message is in its receive, whole: credit and acknowledgements.
    #[inline]
    fn arrived(&mut self, id: LinkId, number: u32, label: Label, len: usize) {
        self.give_back(Some(id), cost_of(len));
        if label.ack != AckWanted::No {
            self.acknowledge(id, number);
        }
    }

    /// Acknowledges a message; once, whichever of match and delivery was wanted.
    fn acknowledge(&mut self, id: LinkId, number: u32) {
        if let Some(link) = self.link(id) {
            link.control.push_back(Frame::Ack { id: number });
            self.list(id);
        }
    }

    fn keep_unexpected(&mut self, id: LinkId, number: u32, label: Label, payload: Arriving<'_>, src: FiAddr) -> Place {
        if self.phase == Phase::Closing {
            // Nobody will receive it; reading on lets the peer's bye through.
            return Place::Done;
        }
        let len = payload.len();
        let addr = if src == FiAddr::UNSPEC { self.peer_addr(id) } else { None };
        let mut buffer = self.spare(len);
        let (body, place) = match payload {
            Arriving::Here(bytes) => {
                buffer.extend_from_slice(bytes);
                if label.wants(AckWanted::Delivery) {
                    self.acknowledge(id, number);
                }
                (Body::Here(buffer), Place::Done)
            }
            Arriving::Coming(_) => {
                buffer.resize(len, 0);
                let landing = Landing { buffer: Buffer::Owned(buffer), at: 0, take: len };
                (Body::Coming { link: id, claimed: None }, Place::Into(landing))
            }
        };
        let coming = matches!(body, Body::Coming { .. });
        let key =
            self.queue(Unexpected { body, label, id: number, len, src, addr, link: Some(id), lane: label.lane() });
        if coming && let Some(link) = self.link(id) {
            link.coming = Some(Coming::Unexpected { key });
        }
        place
    }

    fn queue(&mut self, message: Unexpected) -> u32 {
        let (lane, tag, src) = (message.lane, message.label.tag.unwrap_or(0), message.src);
        let key = key(self.unexpected.insert(message));
        self.lanes[lane].push_unexpected(tag, src, key);
        key
    }

    /// Whether the application is to be told the address of this sender, which has no handle.
    #[inline]
    fn tells_addr(&self, src: FiAddr) -> bool {
        src == FiAddr::UNSPEC && self.config.caps.contains(Caps::SOURCE_ERR)
    }

    /// That address, if it is.
    #[inline]
    fn addr_to_tell(&mut self, src: FiAddr, id: LinkId) -> Option<Box<Addr>> {
        if self.tells_addr(src) { self.peer_addr(id).map(Box::new) } else { None }
    }

    fn peer_addr(&mut self, id: LinkId) -> Option<Addr> {
        let peer = self.link(id)?.peer;
        self.peers.get(peer)?.addr
    }

    fn handle_request(&mut self, id: LinkId, number: u32, len: u64, label: Label) -> Result<(), Violation> {
        self.link(id).ok_or(UNKNOWN_LINK)?.charge(OVERHEAD)?;
        if self.phase == Phase::Closing {
            return Ok(());
        }
        self.check_av();
        let src = self.source(id);
        match self.match_posted(label.lane(), label.tag.unwrap_or(0), src, len) {
            Some(found) => self.pull(found, id, number, label, len, src),
            None => {
                let addr = if src == FiAddr::UNSPEC { self.peer_addr(id) } else { None };
                let body = Body::Requested { link: id, total: len };
                let lane = label.lane();
                self.queue(Unexpected { body, label, id: number, len: 0, src, addr, link: Some(id), lane });
            }
        }
        Ok(())
    }

    /// Asks for a message that waits at its sender.
    fn pull(&mut self, receive: u32, id: LinkId, number: u32, label: Label, total: u64, src: FiAddr) {
        let Some(entry) = self.receives.get_mut(receive) else { return };
        let room = entry.buffer.as_ref().map_or(0, Buffer::len);
        let want = usize::try_from(total).unwrap_or(usize::MAX).min(room);
        entry.stage = ReceiveStage::Pulling(Box::new(Pull { link: id, id: number, label, at: 0, want, total, src }));
        if let Some(link) = self.link(id) {
            link.control.push_back(Frame::Pull { id: number, token: receive, len: want as u64 });
            self.list(id);
        }
        self.give_back(Some(id), OVERHEAD);
        if want == 0 {
            self.pulled(receive);
        }
    }

    /// All that was pulled is in place.
    fn pulled(&mut self, receive: u32) {
        let Some(mut entry) = self.receives.remove(receive) else { return };
        if let ReceiveStage::Pulling(pull) = core::mem::replace(&mut entry.stage, ReceiveStage::Posted) {
            let Pull { link, id, label, want, total, src, .. } = *pull;
            if label.wants(AckWanted::Delivery) {
                self.acknowledge(link, id);
            }
            let addr = self.addr_to_tell(src, link);
            self.finish_receive(entry, label, want, total, Sender { src, addr });
        }
    }

    fn handle_segment(&mut self, id: LinkId, token: u32, payload: Arriving<'_>) -> Result<Place, Violation> {
        const STRAY: Violation = Violation("a segment of a message that was not pulled");
        if self.phase == Phase::Closing {
            return Ok(Place::Done);
        }
        let receive = self.receives.get_mut(token).ok_or(STRAY)?;
        let (at, want) = match &receive.stage {
            ReceiveStage::Pulling(pull) if pull.link == id => (pull.at, pull.want),
            _ => return Err(STRAY),
        };
        let len = payload.len();
        if len == 0 || len > want - at {
            return Err(Violation("a segment does not fit its message"));
        }
        match payload {
            Arriving::Here(bytes) => {
                if let Some(buffer) = &mut receive.buffer {
                    buffer.write_at(at, bytes);
                }
                self.segment_is_here(token, len);
                Ok(Place::Done)
            }
            Arriving::Coming(_) => {
                let buffer = receive.buffer.take().ok_or(STRAY)?;
                self.link(id).ok_or(UNKNOWN_LINK)?.coming = Some(Coming::Segment { key: token, len });
                Ok(Place::Into(Landing { buffer, at, take: len }))
            }
        }
    }

    fn segment_is_here(&mut self, key: u32, len: usize) {
        if let Some(Receive { stage: ReceiveStage::Pulling(pull), .. }) = self.receives.get_mut(key) {
            pull.at += len;
            if pull.at == pull.want {
                self.pulled(key);
            }
        }
    }

    fn unexpected_is_here(&mut self, id: LinkId, key: u32, buffer: Buffer) {
        let Buffer::Owned(bytes) = buffer else { return };
        let Some(message) = self.unexpected.get_mut(key as usize) else { return };
        let claimed = if let Body::Coming { claimed, .. } = &message.body { *claimed } else { None };
        message.body = Body::Here(bytes);
        if message.label.wants(AckWanted::Delivery) {
            let number = message.id;
            self.acknowledge(id, number);
        }
        if let Some(receive) = claimed {
            self.give(receive, key);
        }
    }

    fn handle_pull(&mut self, id: LinkId, number: u32, token: u32, len: u64) -> Result<(), Violation> {
        const STRAY: Violation = Violation("a pull of a message that was not offered");
        if self.phase == Phase::Closing {
            return Ok(());
        }
        let send = self.sends.get_mut(number as usize).ok_or(STRAY)?;
        if send.stage != (SendStage::Requested { link: id }) {
            return Err(STRAY);
        }
        let end = usize::try_from(len).ok().filter(|len| *len <= send.len).ok_or(STRAY)?;
        send.stage = SendStage::Streaming { link: id, token, at: 0, end, flying: 0 };
        if end == 0 {
            self.stream_is_sent(number, id);
        } else {
            self.link(id).ok_or(UNKNOWN_LINK)?.streams.push_back(number);
            self.list(id);
        }
        Ok(())
    }

    /// The last byte of a pulled message has been sent. Being pulled it was matched; delivery is acknowledged.
    pub(super) fn stream_is_sent(&mut self, number: u32, link: LinkId) {
        match self.sends.get_mut(number as usize) {
            Some(send) if send.label.ack == AckWanted::Delivery => send.stage = SendStage::Sent { link },
            _ => self.finish_send(number),
        }
    }

    fn handle_ack(&mut self, id: LinkId, number: u32) -> Result<(), Violation> {
        const STRAY: Violation = Violation("an acknowledgement that was not asked for");
        if self.phase == Phase::Closing {
            return Ok(());
        }
        let send = self.sends.get_mut(number as usize).ok_or(STRAY)?;
        if send.label.ack == AckWanted::No {
            return Err(STRAY);
        }
        match &mut send.stage {
            SendStage::Sent { link } if *link == id => self.finish_send(number),
            SendStage::Sending { link, acked } if *link == id && !*acked => *acked = true,
            _ => return Err(STRAY),
        }
        Ok(())
    }

    /// Gives a message to a receive that it fits since its sender has a name.
    #[cold]
    pub(super) fn give_renamed(&mut self, lane: usize, message: u32, receive: u32) {
        let Some(role) = self.receives.get(receive).map(|receive| receive.role) else { return };
        let Role::Multi(multi) = role else { return self.give(receive, message) };
        let Some((total, tag, src)) = self
            .unexpected
            .get(message as usize)
            .map(|message| (message.total(), message.label.tag.unwrap_or(0), message.src))
        else {
            return;
        };
        match self.carve(receive, multi, total) {
            Some(part) => self.give(part, message),
            // The buffer is full: another receive may fit.
            None => match self.match_posted(lane, tag, src, total) {
                Some(other) => self.give(other, message),
                None => self.lanes[lane].push_unexpected(tag, src, message),
            },
        }
    }

    /// Gives an unexpected message to a receive, both out of the matcher already.
    pub(super) fn give(&mut self, receive: u32, message: u32) {
        let Some(entry) = self.unexpected.get_mut(message as usize) else { return };
        match &mut entry.body {
            Body::Coming { link, claimed } => {
                *claimed = Some(receive);
                let link = *link;
                if let Some(receive) = self.receives.get_mut(receive) {
                    receive.stage = ReceiveStage::Arriving { link };
                }
            }
            Body::Requested { link, total } => {
                let (link, total) = (*link, *total);
                let entry = self.unexpected.remove(message as usize);
                self.pull(receive, link, entry.id, entry.label, total, entry.src);
            }
            Body::Here(_) => {
                let entry = self.unexpected.remove(message as usize);
                let Body::Here(bytes) = entry.body else { return };
                if let Some(mut receive) = self.receives.remove(receive) {
                    let placed = receive.buffer.as_mut().map_or(0, |buffer| buffer.write_at(0, &bytes));
                    let addr = entry.addr.filter(|_| self.tells_addr(entry.src)).map(Box::new);
                    self.finish_receive(
                        receive,
                        entry.label,
                        placed,
                        entry.len as u64,
                        Sender { src: entry.src, addr },
                    );
                }
                self.recycle(bytes);
                self.give_back(entry.link, cost_of(entry.len));
                if entry.label.wants(AckWanted::Match)
                    && let Some(link) = entry.link
                {
                    self.acknowledge(link, entry.id);
                }
            }
        }
    }
}
