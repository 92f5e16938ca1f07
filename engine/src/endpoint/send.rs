//! Sends, and frames to peers: sends within credit leave at once, the rest waits in order.

use super::credit::{OVERHEAD, cost_of};
use super::dispatch::key;
use super::engine::{Engine, Phase};
use super::state::{Outgoing, PeerId, PeerState, SendStage};
use crate::op::SendOp;
use crate::transport::{LinkId, Payload, Submitted, Token, Transport, Urgency};
use crate::wire::frame::{AckMode, Frame, MAX_PAYLOAD, MessageInfo};
use ofi_core::{Errno, OpFlags};
use ofi_memory::{Lent, Ticket};
use ofi_sync::lock::LockKind;

/// Flags that no operation supports.
const UNSUPPORTED: OpFlags =
    OpFlags::COMMIT_COMPLETE.union(OpFlags::TRIGGER).union(OpFlags::MULTICAST).union(OpFlags::AUTH_KEY);

/// Completion levels that need an acknowledgment.
const LEVELS: OpFlags = OpFlags::MATCH_COMPLETE.union(OpFlags::DELIVERY_COMPLETE).union(OpFlags::TRANSMIT_COMPLETE);

/// The acknowledgment for the highest completion level requested. Without one, and for inject
/// calls, an operation is done when the transport has the bytes.
#[inline(always)]
fn ack_of(flags: OpFlags, inject: bool, fenced: bool) -> AckMode {
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

impl<K: LockKind> Engine<K> {
    pub(super) fn accepts(&self) -> Result<(), Errno> {
        match self.phase {
            Phase::Enabled => Ok(()),
            Phase::New | Phase::Closing => Err(Errno::EOPBADSTATE),
            Phase::ShutDown | Phase::Ended => Err(Errno::ENOTCONN),
        }
    }

    /// Fast path: a short message to a peer with an open link and credit, for which nothing must be
    /// remembered. On false nothing has changed, and [`Self::send`] handles the operation.
    #[inline(always)]
    pub(super) fn try_send_fast<T: Transport>(&mut self, transport: &mut T, op: &SendOp) -> bool {
        const UNUSUAL: OpFlags = UNSUPPORTED.union(LEVELS).union(OpFlags::FENCE);
        let len = op.buffer.len();
        let (Phase::Enabled, Some(target)) = (self.phase, &self.out.tx) else { return false };
        if len > T::INLINE_MAX.min(self.config.limits.least())
            || op.flags.intersects(UNUSUAL)
            || self.sends.len() >= self.config.tx_size
        {
            return false;
        }
        let suppress = op.inject || target.selective && !op.flags.contains(OpFlags::COMPLETION);
        let Some(peer) = self.known_peer(op.dest).and_then(|peer| self.peers.get(peer)) else { return false };
        let PeerState::Open(id) = peer.state else { return false };
        if !peer.waiting.is_empty() {
            return false;
        }
        let Some(Some(link)) = self.links.get_mut(id.index()) else { return false };
        if len > link.eager || link.out < cost_of(len) {
            return false;
        }
        // It needs no id, because it is not acknowledged.
        let info = MessageInfo { tag: op.tag, data: op.data, ack: AckMode::No, fenced: false };
        if !transport.try_submit_fast(id, &Frame::Eager { id: 0, info }.encode(), &op.buffer, len) {
            return false;
        }
        link.out -= cost_of(len);
        let kind = if op.tag.is_some() { OpFlags::TAGGED } else { OpFlags::MSG };
        self.out.sent(Ticket::new(op.context, kind.union(OpFlags::SEND), suppress).finish(), suppress);
        true
    }

    pub(super) fn send<T: Transport>(&mut self, transport: &mut T, op: SendOp) -> Result<(), Errno> {
        self.accepts()?;
        let target = self.out.tx.as_ref().ok_or(Errno::ENOCQ)?;
        if op.flags.intersects(UNSUPPORTED) {
            return Err(Errno::EBADFLAGS);
        }
        let len = op.buffer.len();
        let inject = op.inject || op.flags.contains(OpFlags::INJECT);
        if !self.config.limits.allow(len, op.tag.is_some(), inject) {
            return Err(Errno::EMSGSIZE);
        }
        if self.sends.len() >= self.config.tx_size {
            return Err(Errno::AGAIN);
        }
        let suppress = op.inject || target.selective && !op.flags.contains(OpFlags::COMPLETION);
        let fenced = op.flags.contains(OpFlags::FENCE);
        let ack = ack_of(op.flags, op.inject, fenced);
        let urgency = if op.flags.contains(OpFlags::MORE) { Urgency::MoreFollows } else { Urgency::Posted };
        let info = MessageInfo { tag: op.tag, data: op.data, ack, fenced: fenced && ack != AckMode::No };
        let peer = self.peer_of(op.dest)?;
        let kind = if op.tag.is_some() { OpFlags::TAGGED } else { OpFlags::MSG };
        // A connected endpoint has a peer from fi_connect or fi_accept on.
        let entry = self.peers.get(peer).ok_or(Errno::EOPBADSTATE)?;
        let connected = matches!(self.config.kind, crate::wire::hello::EndpointKind::Msg);
        if connected && !matches!(entry.state, PeerState::Open(_)) {
            return Err(if entry.state == PeerState::Idle { Errno::ENOTCONN } else { Errno::EOPBADSTATE });
        }
        let ticket = Ticket::new(op.context, kind.union(OpFlags::SEND), suppress);
        if let PeerState::Open(id) = entry.state
            && !fenced
            && entry.waiting.is_empty()
            && let Some(Some(link)) = self.links.get_mut(id.index())
            && len <= link.eager
            && link.out >= cost_of(len)
            && !transport.is_backed_up(id)
        {
            link.out -= cost_of(len);
            let number = key(self.sends.vacant_key());
            let header = Frame::Eager { id: number, info }.encode();
            let mut buffer = Some(op.buffer);
            let payload = Payload { buffer: &mut buffer, from: 0, len, token: Token(number), inject };
            let outcome = transport.submit(id, &header, Some(payload), urgency);
            if outcome == Submitted::Done && ack == AckMode::No {
                let completion = ticket.finish();
                self.out.sent(completion, suppress);
                return Ok(());
            }
            let stage = match outcome {
                Submitted::Done => SendStage::Sent { link: id },
                Submitted::Kept => SendStage::Sending { link: id, acked: false },
                Submitted::Broken => SendStage::LinkFailed { link: id },
            };
            if ack == AckMode::Arrival {
                link.unarrived.push_back(number);
            }
            let lent = Lent { ticket, buffer };
            let seq = self.next_seq();
            self.sends.insert(Outgoing { lent, peer, stage, info, len, seq, inject, fenced });
            return Ok(());
        }
        let buffer = if inject { op.buffer.to_owned_copy() } else { op.buffer };
        let seq = self.next_seq();
        let lent = Lent::new(ticket, buffer);
        self.fences += usize::from(fenced);
        let waiting = Outgoing { lent, peer, stage: SendStage::Waiting, info, len, seq, inject, fenced };
        let number = self.sends.insert(waiting);
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.waiting.push_back(key(number));
        }
        self.move_on(transport, peer);
        Ok(())
    }

    /// Takes the next step for a peer's waiting sends: connect, or send.
    fn move_on<T: Transport>(&mut self, transport: &mut T, peer: PeerId) {
        match self.state_of(peer) {
            PeerState::Idle => self.begin_connect(transport, peer, 0),
            PeerState::Open(id) => self.pump(transport, id),
            PeerState::Connecting(_) | PeerState::Yielding(_) => {}
        }
    }

    /// Sends what waits on a link: control frames, waiting messages within credit, then data
    /// frames. Under back-pressure nothing leaves: pending answers stay here, bounded by the credit
    /// that the peer does not get back.
    pub(super) fn pump<T: Transport>(&mut self, transport: &mut T, id: LinkId) {
        if transport.is_backed_up(id) {
            return;
        }
        let Some(link) = self.link(id) else { return };
        let mut first = [None, None];
        if link.arrived > 0 {
            first[0] = Some(Frame::Arrived { count: core::mem::take(&mut link.arrived) });
        }
        if link.credit.is_due() {
            first[1] = Some(Frame::Credit { bytes: link.credit.take_due() });
        }
        for frame in first.into_iter().flatten() {
            if transport.submit(id, &frame.encode(), None, Urgency::Control) == Submitted::Broken {
                return;
            }
        }
        while let Some(frame) = self.link(id).and_then(|link| link.control.pop_front()) {
            let urgency = if matches!(frame, Frame::Cts { .. }) { Urgency::Posted } else { Urgency::Control };
            if transport.submit(id, &frame.encode(), None, urgency) == Submitted::Broken {
                return;
            }
        }
        self.pump_waiting(transport, id);
        self.pump_data(transport, id);
    }

    fn pump_waiting<T: Transport>(&mut self, transport: &mut T, id: LinkId) {
        loop {
            let Some(Some(link)) = self.links.get_mut(id.index()) else { return };
            let Some(peer) = self.peers.get_mut(link.peer).filter(|peer| peer.state == PeerState::Open(id)) else {
                return;
            };
            let Some(&number) = peer.waiting.front() else { return };
            if self.fences > 0 && self.is_fenced_off(id, number) {
                return;
            }
            let Some(Some(link)) = self.links.get_mut(id.index()) else { return };
            let Some(peer) = self.peers.get_mut(link.peer) else { return };
            let Some(send) = self.sends.get_mut(number as usize) else {
                peer.waiting.pop_front();
                continue;
            };
            let eager = send.len <= link.eager;
            let cost = if eager { cost_of(send.len) } else { OVERHEAD };
            if link.out < cost {
                // The peer may wait for this message: tell it how much credit is needed.
                if !core::mem::replace(&mut link.said_blocked, true) {
                    let frame = Frame::Blocked { bytes: cost };
                    let _: Submitted = transport.submit(id, &frame.encode(), None, Urgency::Posted);
                }
                return;
            }
            if transport.is_backed_up(id) {
                return;
            }
            link.out -= cost;
            peer.waiting.pop_front();
            if !eager {
                if send.info.ack == AckMode::Arrival {
                    // A rendezvous has arrived when all its data is in place.
                    send.info.ack = AckMode::Delivery;
                }
                let header = Frame::Rts { id: number, len: send.len as u64, info: send.info }.encode();
                send.stage = match transport.submit(id, &header, None, Urgency::Posted) {
                    Submitted::Broken => SendStage::LinkFailed { link: id },
                    Submitted::Done | Submitted::Kept => SendStage::RtsSent { link: id },
                };
                continue;
            }
            let header = Frame::Eager { id: number, info: send.info }.encode();
            let token = Token(number);
            if send.info.ack == AckMode::Arrival {
                link.unarrived.push_back(number);
            }
            let payload = Payload { buffer: &mut send.lent.buffer, from: 0, len: send.len, token, inject: false };
            match transport.submit(id, &header, Some(payload), Urgency::Posted) {
                Submitted::Done if send.info.ack == AckMode::No => self.finish_send(number),
                Submitted::Done => send.stage = SendStage::Sent { link: id },
                Submitted::Kept => send.stage = SendStage::Sending { link: id, acked: false },
                Submitted::Broken => send.stage = SendStage::LinkFailed { link: id },
            }
        }
    }

    /// Whether the first waiting send of a link must wait for what was sent before it (FI_FENCE).
    #[cold]
    fn is_fenced_off(&self, id: LinkId, number: u32) -> bool {
        let Some(send) = self.sends.get(number as usize).filter(|send| send.fenced) else { return false };
        let peer = send.peer;
        debug_assert!(self.links.get(id.index()).and_then(Option::as_ref).is_none_or(|link| link.peer == peer));
        self.sends.iter().any(|(_, other)| other.peer == peer && !matches!(other.stage, SendStage::Waiting))
    }

    fn pump_data<T: Transport>(&mut self, transport: &mut T, id: LinkId) {
        loop {
            let Some(Some(link)) = self.links.get_mut(id.index()) else { return };
            let Some(number) = link.data_queue.pop_front() else { return };
            let Some(send) = self.sends.get_mut(number as usize) else { continue };
            let SendStage::SendingData { link: _, token, at, end, .. } = send.stage else { continue };
            let len = (end - at).min(MAX_PAYLOAD);
            let header = Frame::Data { token }.encode();
            let payload = Payload { buffer: &mut send.lent.buffer, from: at, len, token: Token(number), inject: false };
            match transport.submit(id, &header, Some(payload), Urgency::Posted) {
                Submitted::Done => {
                    send.stage = SendStage::SendingData { link: id, token, at: at + len, end, flying: 0 };
                    if at + len == end {
                        self.data_is_sent(number, id);
                    } else if let Some(link) = self.link(id) {
                        link.data_queue.push_back(number);
                    }
                }
                Submitted::Kept => {
                    send.stage = SendStage::SendingData { link: id, token, at, end, flying: len };
                    // The transport holds one data frame of a link at a time, so that control
                    // frames can pass between.
                    return;
                }
                Submitted::Broken => {
                    send.stage = SendStage::LinkFailed { link: id };
                    return;
                }
            }
        }
    }

    /// Carries out pending work: credit for blocked peers, aborts, and sends on pending links.
    pub(super) fn settle<T: Transport>(&mut self, transport: &mut T) {
        if self.freed && !self.blocked.is_empty() {
            self.relieve_all();
        }
        while let Some((id, why)) = self.aborted.pop() {
            transport.abort(id, self);
            if let Some(why) = why {
                self.end_link(id, &why);
            }
        }
        while let Some(id) = self.todo.pop() {
            if let Some(link) = self.link(id) {
                link.pending = false;
                self.pump(transport, id);
            }
        }
    }
}
