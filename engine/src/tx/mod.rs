//! Transmitting: sends and one-sided operations that did not complete within their call, until they
//! do.
//! Neighbours: [`Peers`] has the links and their credit, [`Reporter`] takes completions. Knows
//! nothing of receives.
//! Invariant: a send in progress on a link is listed with the link, any other with its peer; a
//! one-sided operation with frames that have left and frames that have not is listed with both.

mod ack;
mod answers;
mod fetch;
pub(crate) mod group;
mod one_sided;
mod rendezvous;
mod send;

use crate::cancel::Cancelable;
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::peer::link::Link;
use crate::peer::table::{PeerId, PeerState};
use crate::transport::{Down, LinkId};
use crate::wire::frame::{AckMode, MessageInfo};
use ofi_memory::Lent;
use ofi_sync::lock::LockKind;
use one_sided::OneSided;
pub(crate) use one_sided::{Access, How};
pub(crate) use send::{Admitted, send_control};
use slab::Slab;

/// Progress of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendStage {
    /// Waits for a link or for credit.
    Waiting,
    /// The transport holds its payload. `acked`: the acknowledgment has overtaken the report that
    /// it was sent.
    Sending { link: LinkId, acked: bool },
    /// The RTS is sent, and the transport offers the payload along with it.
    Offered { link: LinkId },
    /// The RTS is sent; waits for the CTS.
    RtsSent { link: LinkId },
    /// The CTS has arrived: the bytes from `at` to `end` are still to be sent, `flying` of them are
    /// with the transport.
    SendingData { link: LinkId, token: u32, at: usize, end: usize, flying: usize },
    /// Sent; waits for the acknowledgment.
    Sent { link: LinkId },
    /// One-sided: some of its frames have left; the transport holds `flying` payloads of them.
    Issuing { link: LinkId, flying: usize },
    /// One-sided: all of its frames have left. `held`: the transport holds the payload of the last.
    /// `answered`: the answer has overtaken the report that the payload was sent.
    Issued { link: LinkId, held: bool, answered: bool },
    /// Submitted to a broken link; fails when the link goes down.
    LinkFailed { link: LinkId },
}

impl SendStage {
    const fn link(self) -> Option<LinkId> {
        match self {
            Self::Waiting => None,
            Self::Sending { link, .. }
            | Self::Offered { link }
            | Self::RtsSent { link }
            | Self::SendingData { link, .. }
            | Self::Sent { link }
            | Self::Issuing { link, .. }
            | Self::Issued { link, .. }
            | Self::LinkFailed { link } => Some(link),
        }
    }
}

impl SendStage {
    /// Whether it is listed with a link.
    const fn is_listed(self) -> bool {
        self.link().is_some()
    }

    /// Whether only the peer has something to do: all has left.
    const fn has_left(self) -> bool {
        matches!(self, Self::Sent { .. } | Self::Issued { held: false, .. } | Self::LinkFailed { .. })
    }
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// A message.
    Message,
    /// A one-sided operation, by its index in the table of these.
    OneSided(u32),
    /// A message of a collective operation.
    Group,
}

/// A send or one-sided operation that did not complete within its call.
#[derive(Debug)]
struct Outgoing {
    lent: Lent,
    peer: PeerId,
    stage: SendStage,
    /// Its place in the list of the link that its stage names.
    place: u32,
    info: MessageInfo,
    len: usize,
    seq: u64,
    /// FI_INJECT: the buffer is this endpoint's copy.
    inject: bool,
    /// FI_FENCE: leaves when everything sent to the peer before it is done.
    fenced: bool,
    body: Body,
}

impl Outgoing {
    /// Whether the application does not hear of its end, so that it need not call again, but this
    /// side has something to do for it.
    #[inline(always)]
    fn is_unreported(&self) -> bool {
        self.lent.ticket.is_suppressed() && !self.stage.has_left()
    }

    /// It reaches a stage in which there may be nothing left to do; `unreported` counts those for
    /// which there is.
    #[inline(always)]
    fn leave(&mut self, stage: SendStage, unreported: &mut usize) {
        let before = self.is_unreported();
        self.stage = stage;
        *unreported -= usize::from(before && !self.is_unreported());
    }
}

/// In place of the message of an operation that is none.
const NO_MESSAGE: MessageInfo = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };

/// The sends of an endpoint.
#[derive(Debug)]
pub(crate) struct Tx {
    sends: Slab<Outgoing>,
    /// The additional state of one-sided operations.
    one_sided: Slab<OneSided>,
    /// Number of writes on all links that wait for the peer's acknowledgment outside the table.
    left: usize,
    /// Maximum number of outstanding sends.
    size: usize,
    /// Number of fenced sends that wait or are in progress.
    fences: usize,
    cancelable: Cancelable,
    /// Messages of collective operations that have left or failed.
    group_left: Vec<group::Left>,
    /// The endpoint closes: messages leave so that they arrive without this side.
    is_closing: bool,
    /// A backstop sends what the transport holds back.
    is_backed: bool,
    /// Number of sends whose end no completion reports and for which this side has something to do.
    unreported: usize,
}

impl Tx {
    pub(crate) fn new(size: usize) -> Self {
        let cancelable = Cancelable::default();
        Self {
            sends: Slab::new(),
            one_sided: Slab::new(),
            left: 0,
            size,
            fences: 0,
            cancelable,
            group_left: Vec::new(),
            is_closing: false,
            is_backed: false,
            unreported: 0,
        }
    }

    /// From now on a backstop sends what the transport holds back.
    pub(crate) const fn set_backed(&mut self) {
        self.is_backed = true;
    }

    pub(crate) const fn is_backed(&self) -> bool {
        self.is_backed
    }

    /// Whether there is something to do for operations whose end no completion reports.
    pub(crate) const fn has_unreported(&self) -> bool {
        self.unreported > 0
    }

    /// How many more operations can be posted now.
    pub(crate) fn size_left(&self) -> usize {
        self.size.saturating_sub(self.sends.len() + self.left)
    }

    /// Adds a send in progress on a link.
    #[inline(never)]
    fn insert(&mut self, peers: &mut Peers, mut send: Outgoing) -> u32 {
        let number = key(self.sends.vacant_key());
        if let Some(link) = send.stage.link().and_then(|id| peers.link(id)) {
            send.place = link.tx.sends.add(number);
        }
        self.unreported += usize::from(send.is_unreported());
        self.sends.insert(send);
        number
    }

    /// Removes a send from its table and from the list of its link.
    fn remove(&mut self, peers: &mut Peers, number: u32) -> Option<Outgoing> {
        let send = self.sends.try_remove(number as usize)?;
        self.unreported -= usize::from(send.is_unreported());
        debug_assert!(self.unreported == 0 || !self.sends.is_empty(), "it counts sends of the table");
        if let Body::OneSided(op) = send.body {
            self.one_sided.try_remove(op as usize);
            if let SendStage::Issuing { .. } = send.stage
                && let Some(peer) = peers.table.get_mut(send.peer)
                && peer.waiting.front() == Some(&number)
            {
                peer.waiting.pop_front();
            }
        }
        if let Some(link) = send.stage.link().and_then(|id| peers.link(id))
            && let Some(moved) = link.tx.sends.remove(number, send.place)
            && let Some(moved) = self.sends.get_mut(moved as usize)
        {
            moved.place = send.place;
        }
        Some(send)
    }

    /// Completes a send successfully.
    fn finish<K: LockKind>(&mut self, peers: &mut Peers, out: &Reporter<K>, number: u32) {
        let Some(send) = self.remove(peers, number) else { return };
        let suppress = send.lent.ticket.is_suppressed();
        self.after_fence(peers, send.peer, send.fenced);
        match send.body {
            Body::Message => out.sinks.sent(send.lent.finish(), suppress, send.len),
            Body::OneSided(_) => out.sinks.accessed(send.lent.finish(), suppress, send.len),
            Body::Group => self.end_group(send.lent, Ok(())),
        }
    }

    /// A send has ended: a fenced one that waits for it may leave.
    #[inline]
    fn after_fence(&mut self, peers: &mut Peers, peer: PeerId, fenced: bool) {
        let fences = self.fences;
        self.fences -= usize::from(fenced);
        if fences > 0
            && let PeerState::Open(id) = peers.state_of(peer)
        {
            peers.mark_pending(id);
        }
    }

    /// Completes a send with an error.
    #[cold]
    fn fail<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, number: u32, why: &Down) {
        let Some(send) = self.remove(peers, number) else { return };
        let handle = peers.handle_of(send.peer);
        self.after_fence(peers, send.peer, send.fenced);
        if send.body == Body::Group {
            return self.end_group(send.lent, Err(why.clone()));
        }
        let mut completion = send.lent.finish();
        completion.tag = send.info.tag.unwrap_or(0);
        completion.data = send.info.data.unwrap_or(0);
        completion.len = send.len;
        completion.src = out.source(handle);
        out.send_failed(completion, why);
    }

    /// Fails the sends that wait for a peer's link or credit.
    pub(crate) fn fail_waiting<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        peer: PeerId,
        why: &Down,
    ) {
        let Some(entry) = peers.table.get_mut(peer) else { return };
        for number in core::mem::take(&mut entry.waiting) {
            self.fail(peers, out, number, why);
        }
    }

    /// Fails the sends in progress on a link, which has been removed.
    pub(crate) fn end_link<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        link: &mut Link,
        why: &Down,
    ) {
        let seq = |number: &u32| self.sends.get(*number as usize).map(|send| send.seq);
        let mut failed: Vec<(Option<u64>, u32)> = link.tx.sends.iter().map(|number| (seq(&number), number)).collect();
        failed.sort_unstable();
        let mut left = link.take_left().peekable();
        for (seq, number) in failed {
            while let Some(writes) = left.next_if(|writes| Some(writes.seq) < seq) {
                self.fail_left(peers, out, link.peer, writes, why);
            }
            self.fail(peers, out, number, why);
        }
        left.for_each(|writes| self.fail_left(peers, out, link.peer, writes, why));
    }

    /// Fails sends that wait for the peer's answer: frames about them are ignored from now on.
    /// Those whose memory the transport holds end with the link.
    pub(crate) fn fail_unanswered<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, why: &Down) {
        let ends = |send: &Outgoing| match send.stage {
            SendStage::RtsSent { .. } | SendStage::Sent { .. } => true,
            SendStage::Issued { held, .. } => !held && !self.is_being_filled(send),
            SendStage::Issuing { flying, .. } => flying == 0 && !self.is_being_filled(send),
            SendStage::SendingData { flying, .. } => flying == 0,
            SendStage::Waiting
            | SendStage::Sending { .. }
            | SendStage::Offered { .. }
            | SendStage::LinkFailed { .. } => false,
        };
        let sends: Vec<u32> = self.sends.iter().filter(|(_, send)| ends(send)).map(|(number, _)| key(number)).collect();
        sends.into_iter().for_each(|number| self.fail(peers, out, number, why));
        for id in peers.links.ids() {
            let Some(link) = peers.link(id) else { continue };
            let (peer, left) = (link.peer, link.take_left());
            left.for_each(|writes| self.fail_left(peers, out, peer, writes, why));
        }
    }

    /// Starts closing: of the sends that wait, only those accepted for inject or within the eager
    /// limit still leave.
    pub(crate) fn begin_close(&mut self, peers: &mut Peers) {
        self.is_closing = true;
        let Peers { table, links, .. } = peers;
        for (_, peer) in table.iter_mut() {
            let state = peer.state;
            peer.waiting.retain(|number| {
                let Some(send) = self.sends.get(*number as usize) else { return false };
                if matches!(send.stage, SendStage::Issuing { .. }) {
                    // The peer takes the frames that follow for the rest of it.
                    return true;
                }
                if let Body::OneSided(op) = send.body
                    && !self.one_sided.get(op as usize).is_some_and(OneSided::leaves_at_close)
                {
                    return false;
                }
                match state {
                    PeerState::Open(id) => links.get(id).is_some_and(|link| send.len <= link.tx.credit.eager()),
                    PeerState::Idle | PeerState::Connecting(_) | PeerState::Yielding(_) => send.inject,
                }
            });
        }
        links.iter_mut().for_each(|(_, link)| link.tx.data_queue.clear());
    }

    /// Drops all sends without completions. Only for closing.
    pub(crate) fn discard_all(&mut self, peers: &mut Peers) {
        for send in self.sends.drain() {
            send.lent.discard();
        }
        self.one_sided.clear();
        peers.links.iter_mut().for_each(|(_, link)| link.take_left().for_each(|writes| writes.ticket.discard()));
        (self.fences, self.left, self.unreported) = (0, 0, 0);
        peers.table.iter_mut().for_each(|(_, peer)| peer.waiting.clear());
    }

    /// The oldest send with this context that has not left, as sequence number and number.
    pub(crate) fn oldest_cancelable(&mut self, peers: &Peers, context: usize) -> Option<(u64, u32)> {
        let up_to = self.cancelable.known_up_to(self.sends.len());
        let mut fresh = Vec::new();
        for (_, peer) in peers.table.iter() {
            // The latest are at the end.
            let waiting = peer.waiting.iter().rev();
            let waiting = waiting.filter_map(|number| Some((*number, self.sends.get(*number as usize)?)));
            let waiting = waiting.take_while(|(_, send)| send.seq > up_to);
            let waiting = waiting.filter(|(_, send)| send.body != Body::Group);
            fresh.extend(waiting.map(|(number, send)| (send.seq, send.lent.ticket.context(), number)));
        }
        self.cancelable.add(fresh);
        let sends = &self.sends;
        self.cancelable.oldest(context, |seq, number| {
            sends.get(number as usize).is_some_and(|send| send.seq == seq && send.stage == SendStage::Waiting)
        })
    }

    /// Cancels a send that has not left.
    pub(crate) fn cancel<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, number: u32, why: &Down) {
        let Some(send) = self.sends.get(number as usize) else { return };
        let sends = &self.sends;
        if let Some(peer) = peers.table.get_mut(send.peer) {
            // The queue is in the order of sequence numbers.
            let earlier = |other: &u32| sends.get(*other as usize).is_some_and(|other| other.seq < send.seq);
            let at = peer.waiting.partition_point(earlier);
            if peer.waiting.get(at) == Some(&number) {
                peer.waiting.remove(at);
            }
            if let PeerState::Open(link) = peer.state {
                // The credit may suffice for the send behind it.
                peers.mark_pending(link);
            }
        }
        self.fail(peers, out, number, why);
    }

    /// For tests: whether the first send that waits for a peer could leave on this link.
    pub(crate) fn could_leave(&self, number: u32, link: &Link) -> bool {
        let Some(send) = self.sends.get(number as usize) else { return false };
        if let Body::OneSided(op) = send.body {
            let flies = matches!(send.stage, SendStage::Issuing { flying, .. } if flying > 0);
            return !flies && !send.fenced && self.one_sided.get(op as usize).is_some_and(|op| op.can_leave(link));
        }
        !link.tx.full && link.tx.credit.can_afford(link.tx.credit.cost_of(send.len)) && !send.fenced
    }

    /// How many operations have not ended.
    pub(crate) fn pending(&self) -> usize {
        self.sends.len() + self.left
    }

    /// Describes sends and what they wait for.
    pub(crate) fn describe(&self, most: usize) -> String {
        let line = |(number, send): (usize, &Outgoing)| {
            format!("send {number} of {} bytes, {:?}: {:?}\n", send.len, send.info, send.stage)
        };
        let left = (self.left > 0).then(|| format!("{} writes wait to be acknowledged\n", self.left));
        self.sends.iter().take(most).map(line).chain(left).collect()
    }
}

/// A number as the wire carries it.
fn key(index: usize) -> u32 {
    u32::try_from(index).expect("queue sizes are far below 2^32")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_structures_keep_their_size() {
        assert!(size_of::<Outgoing>() <= 184, "{}", size_of::<Outgoing>());
    }
}
