//! Sends: checked once, then sent at once within credit, or queued in order.

use super::ack::ack_of;
use super::{Body, Outgoing, SendStage, Tx};
use crate::completion::deferred::DEFERRED;
use crate::completion::reporter::Reporter;
use crate::limits::{Kind, Limits};
use crate::op::SendOp;
use crate::peer::Peers;
use crate::peer::credit::{LEAST_EAGER, cost_of};
use crate::peer::link::{Arrivals, Link};
use crate::peer::table::{Peer, PeerId, PeerState};
use crate::transport::{ControlSubmitted, LinkId, Payload, Submitted, Token, Transport, Urgency};
use crate::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_core::{Errno, OpFlags};
use ofi_memory::{Lent, Ticket};
use ofi_sync::lock::LockKind;

/// Flags that no operation supports.
const UNSUPPORTED: OpFlags =
    OpFlags::COMMIT_COMPLETE.union(OpFlags::TRIGGER).union(OpFlags::MULTICAST).union(OpFlags::AUTH_KEY);

/// The result of checking a send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    /// The length of its payload.
    len: usize,
    ack: AckMode,
    /// Success leaves no entry in the queue.
    suppress: bool,
    /// The buffer is the application's again when the call returns.
    inject: bool,
    fenced: bool,
    /// Flags of the completion.
    class: OpFlags,
}

impl Admitted {
    /// The send is deferred work, which reports to a notice.
    pub(crate) const fn deferred(self) -> Self {
        Self { suppress: true, class: self.class.union(DEFERRED), ..self }
    }

    /// The send succeeds without an entry in the queue.
    pub(crate) const fn silent(self) -> Self {
        Self { suppress: true, ..self }
    }
}

impl Tx {
    /// Checks a send, whether it goes at once or not.
    ///
    /// # Errors
    /// ENOCQ, EBADFLAGS, EMSGSIZE, and AGAIN if too many sends are outstanding (fi_msg(3)).
    #[inline(always)]
    pub(crate) fn admit<K: LockKind>(
        &self,
        out: &Reporter<K>,
        limits: &Limits,
        op: &SendOp,
    ) -> Result<Admitted, Errno> {
        let selective = out.sinks.tx.as_ref().ok_or(Errno::ENOCQ)?.selective;
        if op.flags.intersects(UNSUPPORTED) {
            return Err(Errno::EBADFLAGS);
        }
        let len = op.buffer.len();
        let inject = op.inject || op.flags.contains(OpFlags::INJECT);
        if len > limits.least() && !limits.allow(len, Kind::of_message(op.tag.is_some()), inject) {
            return Err(Errno::EMSGSIZE);
        }
        if self.sends.len() >= self.size {
            return Err(Errno::AGAIN);
        }
        let suppress = op.inject || selective && !op.flags.contains(OpFlags::COMPLETION);
        let fenced = op.flags.contains(OpFlags::FENCE);
        let class = if op.tag.is_some() { OpFlags::TAGGED } else { OpFlags::MSG }.union(OpFlags::SEND);
        Ok(Admitted { len, ack: ack_of(op.flags, op.inject, fenced), suppress, inject, fenced, class })
    }

    /// Fast path: a short message to a peer with an open link and credit, for which nothing must be
    /// remembered. On false nothing has changed, and [`Self::send`] handles the operation.
    #[inline(always)]
    pub(crate) fn try_send_fast<T: Transport, K: LockKind>(
        &self,
        peers: &mut Peers,
        out: &Reporter<K>,
        transport: &mut T,
        (peer, op, admitted): (PeerId, &SendOp, Admitted),
    ) -> bool {
        let len = admitted.len;
        if len > T::INLINE_MAX || admitted.ack != AckMode::No || admitted.fenced {
            return false;
        }
        let Some(peer) = peers.table.get(peer) else { return false };
        let PeerState::Open(id) = peer.state else { return false };
        if !peer.waiting.is_empty() {
            return false;
        }
        let Some(link) = peers.links.get_mut(id) else { return false };
        if !link.tx.credit.can_send(len) {
            return false;
        }
        // It needs no id, because it is not acknowledged.
        let info = MessageInfo { tag: op.tag, data: op.data, ack: AckMode::No, fenced: false, group: false };
        if !transport.try_submit_fast(id, &Frame::Eager { id: 0, info }.encode(), &op.buffer, len) {
            return false;
        }
        link.tx.credit.take_tx(cost_of(len));
        out.sinks.sent(ticket(op, admitted).finish(), admitted.suppress, len);
        true
    }

    /// Sends a message to a peer, or queues it with the peer. `seq` is the operation's place among
    /// all operations of the endpoint.
    ///
    /// # Errors
    /// EOPBADSTATE if there is no such peer; AGAIN for an injected message that would have to wait
    /// for room on its link, and that no completion reports.
    pub(crate) fn send<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        transport: &mut T,
        (peer, op, admitted): (PeerId, SendOp, Admitted),
        seq: u64,
    ) -> Result<(), Errno> {
        let Admitted { len, ack, suppress, inject, fenced, .. } = admitted;
        let fenced_on_wire = fenced && ack != AckMode::No;
        let info = MessageInfo { tag: op.tag, data: op.data, ack, fenced: fenced_on_wire, group: false };
        let entry = peers.table.get_mut(peer).ok_or(Errno::EOPBADSTATE)?;
        // Not if a trigger starts it: no call would post it again.
        if inject && suppress && !op.flags.contains(OpFlags::TRIGGER) && !takes_at_once(entry, transport, len) {
            return Err(Errno::AGAIN);
        }
        let ticket = ticket(&op, admitted);
        let (mut buffer, mut stage) = (Some(op.buffer), SendStage::Waiting);
        if let PeerState::Open(id) = entry.state
            && !fenced
            && entry.waiting.is_empty()
            && let Some(link) = peers.links.get_mut(id)
            && link.tx.credit.can_send(len)
            && (len as u64 <= LEAST_EAGER
                || !buffer.as_ref().is_some_and(|buffer| transport.prefers_offer(id, buffer, len)))
        {
            let number = super::key(self.sends.vacant_key());
            let header = Frame::Eager { id: number, info }.encode();
            let payload = Payload { buffer: &mut buffer, from: 0, len, token: Token(number), inject };
            let urgency = Urgency::of_posted(op.flags.contains(OpFlags::MORE), !suppress || self.is_backed);
            let outcome = transport.submit(id, &header, payload, urgency);
            if outcome == Submitted::Done && ack == AckMode::No {
                link.tx.credit.take_tx(cost_of(len));
                out.sinks.sent(ticket.finish(), suppress, len);
                return Ok(());
            }
            if let Some(submitted) = link.submitted(outcome, id, len, number, ack) {
                stage = submitted;
            }
        }
        let (lent, body) = (Lent { ticket, buffer }, Body::Message);
        let send = Outgoing { lent, peer, stage, place: 0, info, len, seq, inject, fenced, body };
        match stage {
            SendStage::Waiting => self.queue(peers, out, transport, send),
            _ => drop(self.insert(peers, send)),
        }
        Ok(())
    }

    /// Queues a send with its peer.
    #[inline(never)]
    pub(super) fn queue<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        transport: &mut T,
        mut send: Outgoing,
    ) {
        let peer = send.peer;
        if send.inject {
            send.lent.buffer = send.lent.buffer.map(|buffer| buffer.to_owned_copy());
        }
        self.fences += usize::from(send.fenced);
        let number = self.insert(peers, send);
        if let Some(entry) = peers.table.get_mut(peer) {
            entry.waiting.push_back(number);
        }
        self.move_on(peers, out, transport, peer);
    }

    /// Takes the next step for a peer's waiting sends: connect, or send.
    pub(super) fn move_on<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        transport: &mut T,
        peer: PeerId,
    ) {
        match peers.state_of(peer) {
            PeerState::Idle => self.begin_connect(peers, out, transport, (peer, 0)),
            PeerState::Open(id) => self.pump(peers, out, transport, id),
            PeerState::Connecting(_) | PeerState::Yielding(_) => {}
        }
    }

    /// Connects to a peer that has been `asked` that often about claims to its name. Its waiting
    /// sends fail if the connect cannot start.
    pub(crate) fn begin_connect<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        transport: &mut T,
        (peer, asked): (PeerId, u8),
    ) {
        if let Err(why) = peers.begin_connect(transport, peer, asked) {
            self.fail_waiting(peers, out, peer, &why);
        }
    }

    /// Sends what waits on a link: control frames, waiting messages within credit, then data
    /// frames. Under back-pressure nothing leaves: pending answers stay here, bounded by the credit
    /// that the peer does not get back.
    pub(crate) fn pump<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        transport: &mut T,
        id: LinkId,
    ) {
        if send_control(peers, transport, id) && self.pump_waiting(peers, out, transport, id) {
            self.pump_data(peers, out, transport, id);
        }
    }

    /// Sends waiting messages within credit. False if the link takes nothing more.
    fn pump_waiting<T: Transport, K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        transport: &mut T,
        id: LinkId,
    ) -> bool {
        loop {
            let Peers { table, links, .. } = peers;
            let Some(link) = links.get_mut(id) else { return false };
            let Some(peer) = table.get_mut(link.peer).filter(|peer| peer.state == PeerState::Open(id)) else {
                return true;
            };
            let Some(&number) = peer.waiting.front() else { return true };
            let Some(send) = self.sends.get_mut(number as usize) else {
                peer.waiting.pop_front();
                continue;
            };
            if send.fenced && send.stage == SendStage::Waiting && !link.tx.is_idle() {
                // It leaves when everything sent to the peer before it is done (FI_FENCE).
                return true;
            }
            if let Body::OneSided(_) = send.body {
                if !self.issue_first(link, transport, id, number) {
                    return !link.tx.full;
                }
                peer.waiting.pop_front();
                continue;
            }
            let len = send.len;
            // Every link sends the shortest messages eagerly: buffered receives depend on it.
            let prefers_offer = len as u64 > LEAST_EAGER
                && !self.is_closing
                && send.lent.buffer.as_ref().is_some_and(|buffer| transport.prefers_offer(id, buffer, len));
            let eager = len <= link.tx.credit.eager() && !prefers_offer;
            let preview = if eager || send.info.group { 0 } else { link.tx.credit.preview(len) };
            let cost = cost_of(if eager { len } else { preview });
            if !link.tx.credit.can_afford(cost) {
                // The peer may wait for this message: tell it how much credit is needed.
                return link.tx.credit.has_said_blocked()
                    || link.submit(transport, id, Frame::Blocked { bytes: cost }, |link| {
                        link.tx.credit.note_said_blocked();
                    });
            }
            let stage = if eager {
                let header = Frame::Eager { id: number, info: send.info }.encode();
                let token = Token(number);
                let urgency = Urgency::of_posted(false, !send.is_unreported() || self.is_backed);
                let payload = Payload { buffer: &mut send.lent.buffer, from: 0, len, token, inject: false };
                let outcome = transport.submit(id, &header, payload, urgency);
                link.submitted(outcome, id, len, number, send.info.ack)
            } else {
                if send.info.ack == AckMode::Arrival {
                    // A rendezvous has arrived when all its data is in place.
                    send.info.ack = AckMode::Delivery;
                }
                let header = Frame::Rts { id: number, len: len as u64, info: send.info }.encode();
                let (buffer, token) = (&mut send.lent.buffer, Token(number));
                let stage = if preview == 0
                    && (1..=T::MAX_OFFER).contains(&len)
                    && transport.offer(id, &header, Payload { buffer, from: 0, len, token, inject: false })
                {
                    Some(SendStage::Offered { link: id })
                } else {
                    let submitted = if preview == 0 {
                        transport.submit_control(id, &header, Urgency::Posted)
                    } else {
                        // The transport copies what it cannot send now: the message stays here.
                        let payload = Payload { buffer, from: 0, len: preview, token, inject: true };
                        transport.submit(id, &header, payload, Urgency::Posted).into()
                    };
                    match submitted {
                        ControlSubmitted::Taken => Some(SendStage::RtsSent { link: id }),
                        ControlSubmitted::Broken => Some(SendStage::LinkFailed { link: id }),
                        ControlSubmitted::Full => None,
                    }
                };
                link.tx.full = stage.is_none();
                if stage.is_some() {
                    link.tx.credit.take_tx(cost);
                }
                stage
            };
            let Some(stage) = stage else { return false };
            peer.waiting.pop_front();
            send.place = link.tx.sends.add(number);
            send.leave(stage, &mut self.unreported);
            if matches!(stage, SendStage::Sent { .. }) && send.info.ack == AckMode::No {
                self.finish(peers, out, number);
            }
        }
    }
}

/// Whether an injected payload would leave for this peer at once, unless it has to wait for a link
/// or for credit, where it is kept.
pub(super) fn takes_at_once<T: Transport>(peer: &Peer, transport: &mut T, len: usize) -> bool {
    match peer.state {
        PeerState::Open(id) if peer.waiting.is_empty() => transport.takes_at_once(id, len),
        _ => true,
    }
}

/// Sends a link's control frames. False if the link takes nothing more.
pub(crate) fn send_control<T: Transport>(peers: &mut Peers, transport: &mut T, id: LinkId) -> bool {
    let Some(link) = peers.link(id) else { return false };
    while let Some(&frame) = link.tx.control.front() {
        let taken = |link: &mut Link| {
            link.tx.control.pop_front();
        };
        if !link.submit(transport, id, frame, taken) {
            return false;
        }
    }
    let Arrivals { count, performed, .. } = link.rx.arrivals;
    let bytes = link.rx.credit.due();
    if performed > 0
        && !link.submit(transport, id, Frame::Performed { count: performed }, |link| link.rx.arrivals.performed = 0)
    {
        return false;
    }
    if count > 0 && !link.submit(transport, id, Frame::Arrived { count }, |link| link.rx.arrivals.count = 0) {
        return false;
    }
    if bytes > 0 && !link.submit(transport, id, Frame::Credit { bytes }, |link| link.rx.credit.grant_due()) {
        return false;
    }
    true
}

impl Link {
    /// Submits a control frame; `taken` notes that the transport has taken it. False if the link
    /// takes nothing more.
    fn submit<T: Transport>(
        &mut self,
        transport: &mut T,
        id: LinkId,
        frame: Frame,
        taken: impl FnOnce(&mut Self),
    ) -> bool {
        let urgency = match frame {
            Frame::Cts { .. } | Frame::Blocked { .. } => Urgency::Posted,
            _ => Urgency::Control,
        };
        let outcome = transport.submit_control(id, &frame.encode(), urgency);
        self.tx.full = outcome == ControlSubmitted::Full;
        if outcome == ControlSubmitted::Taken {
            taken(self);
        }
        outcome == ControlSubmitted::Taken
    }

    /// An eager message was submitted: takes its credit. Returns its stage; `None` under
    /// back-pressure.
    #[inline(always)]
    fn submitted(
        &mut self,
        outcome: Submitted,
        id: LinkId,
        len: usize,
        number: u32,
        ack: AckMode,
    ) -> Option<SendStage> {
        let stage = match outcome {
            Submitted::Done => SendStage::Sent { link: id },
            Submitted::Kept => SendStage::Sending { link: id, acked: false },
            Submitted::Broken => SendStage::LinkFailed { link: id },
            Submitted::Full => {
                self.tx.full = true;
                return None;
            }
        };
        self.tx.credit.take_tx(cost_of(len));
        if ack == AckMode::Arrival {
            self.tx.unarrived.push_back(number);
        }
        Some(stage)
    }
}

/// The right to complete a send.
#[inline(always)]
fn ticket(op: &SendOp, admitted: Admitted) -> Ticket {
    Ticket::new(op.context, admitted.class, admitted.suppress)
}
