//! Posting of receives: for one message, multi-receive buffers (FI_MULTI_RECV), and peeking at
//! unexpected messages (FI_PEEK, FI_CLAIM, FI_DISCARD) (fi_msg(3), fi_tagged(3)).

use super::dispatch::key;
use super::engine::{Engine, Phase, failure};
use super::state::{Claim, MultiRecv, PeerId, Receive, ReceiveStage, Role};
use crate::match_queue::{Pattern, QueueKind, Source};
use crate::op::RecvOp;
use crate::transport::{Down, Transport};
use crate::wire::hello::EndpointKind;
use ofi_core::{Caps, Cause, Completion, Errno, FiAddr, OpFlags};
use ofi_memory::{Buffer, Ticket};
use ofi_sync::lock::LockKind;

/// Flags of a receive call that acts on an unexpected message.
const LOOKS: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM).union(OpFlags::DISCARD);

/// A receive call with what [`Engine::sort`] finds out about it.
#[derive(Debug)]
struct Posting {
    op: RecvOp,
    pattern: Pattern,
    queue: QueueKind,
    kind: OpFlags,
    suppress: bool,
}

impl<K: LockKind> Engine<K> {
    /// Fast path: a receive of one message while no unexpected message waits. Otherwise nothing has
    /// changed, and the operation is returned.
    #[inline(always)]
    pub(super) fn try_post_fast(&mut self, op: RecvOp) -> Result<(), RecvOp> {
        const UNUSUAL: OpFlags = LOOKS.union(OpFlags::MULTI_RECV).union(OpFlags::AUTH_KEY);
        let (Phase::Enabled, Some(target)) = (self.phase, &self.out.rx) else { return Err(op) };
        let queue = QueueKind::of(op.tag);
        if op.flags.intersects(UNUSUAL)
            || self.receives.len() >= self.config.rx_size
            || !self.match_queues[queue].is_idle()
            // A directed receive fails when its peer's link breaks, so its peer must be known.
            || op.src != FiAddr::UNSPEC && !self.av_is_known()
        {
            return Err(op);
        }
        let suppress = target.selective && !op.flags.contains(OpFlags::COMPLETION);
        let (tag, ignore, kind, directed) = self.sort(&op);
        let src = match directed.then(|| self.known_peer(op.src)) {
            None => Source::ANY,
            Some(Some(peer)) => Source::peer(peer),
            Some(None) => return Err(op),
        };
        let pattern = Pattern { tag, ignore, src };
        let number = self.add_receive(Ticket::new(op.context, kind, suppress), Some(op.buffer), Role::Plain, queue);
        self.match_queues[queue].post(pattern, number);
        Ok(())
    }

    /// Tag, ignored bits and completion flags of a receive, and whether it is directed.
    #[inline(always)]
    fn sort(&self, op: &RecvOp) -> (u64, u64, OpFlags, bool) {
        let (tag, ignore, kind, directed) = match op.tag {
            Some((tag, ignore)) => {
                let directed = Caps::DIRECTED_RECV.union(Caps::TAGGED_DIRECTED_RECV);
                (tag, ignore, OpFlags::TAGGED.union(OpFlags::RECV), directed)
            }
            None => (0, u64::MAX, OpFlags::MSG.union(OpFlags::RECV), Caps::DIRECTED_RECV),
        };
        (tag, ignore, kind, op.src != FiAddr::UNSPEC && self.config.caps.intersects(directed))
    }

    pub(super) fn receive<T: Transport>(&mut self, transport: &mut T, op: RecvOp) -> Result<(), Errno> {
        match self.phase {
            Phase::New if matches!(self.config.kind, EndpointKind::Msg) => {}
            _ => self.accepts()?,
        }
        let selective = self.out.rx.as_ref().ok_or(Errno::ENOCQ)?.selective;
        if op.flags.contains(OpFlags::AUTH_KEY) {
            return Err(Errno::EBADFLAGS);
        }
        self.check_av();
        let suppress = selective && !op.flags.contains(OpFlags::COMPLETION);
        let queue = QueueKind::of(op.tag);
        let (tag, ignore, kind, directed) = self.sort(&op);
        let src = if directed {
            // The address vector may get an entry for this handle later.
            self.peer_of(op.src).map_or_else(|_| Source::handle(op.src), Source::peer)
        } else {
            Source::ANY
        };
        let pattern = Pattern { tag, ignore, src };
        let result = self.receive_sorted(transport, Posting { op, pattern, queue, kind, suppress });
        if self.match_queues[queue].is_pending() {
            self.note_awaited();
            // The address may have been inserted meanwhile.
            self.check_av();
            self.settle(transport);
        }
        result
    }

    fn receive_sorted<T: Transport>(&mut self, transport: &mut T, posting: Posting) -> Result<(), Errno> {
        let Posting { op, pattern, queue, kind, suppress } = posting;
        if op.flags.intersects(LOOKS) {
            return self.peek_or_claim(transport, Posting { op, pattern, queue, kind, suppress });
        }
        if self.receives.len() >= self.config.rx_size {
            return Err(Errno::AGAIN);
        }
        if op.flags.contains(OpFlags::MULTI_RECV) {
            return self.post_multi_recv(transport, Posting { op, pattern, queue, kind, suppress });
        }
        let number = self.add_receive(Ticket::new(op.context, kind, suppress), Some(op.buffer), Role::Plain, queue);
        if self.match_queues[queue].has_unexpected() && self.take_waiting(transport, queue, pattern, number) {
            return Ok(());
        }
        self.match_queues[queue].post(pattern, number);
        self.tell_wanted(transport, pattern.src);
        Ok(())
    }

    /// A receive was posted: a blocked peer, or a link that only claims the peer's name, may have a
    /// message for it.
    fn tell_wanted<T: Transport>(&mut self, transport: &mut T, src: Source) {
        if !self.match_queues[QueueKind::Untagged].watched {
            return;
        }
        if let Some(peer) = src.one() {
            self.await_peer(peer);
        }
        self.relieve_for(src);
        self.settle(transport);
    }

    /// Delivers the oldest matching unexpected message to a new receive. False if there is none.
    fn take_waiting<T: Transport>(
        &mut self,
        transport: &mut T,
        queue: QueueKind,
        pattern: Pattern,
        number: u32,
    ) -> bool {
        let Some(message) = self.match_queues[queue].take_unexpected(&pattern) else { return false };
        self.deliver_unexpected(number, message);
        self.settle(transport);
        true
    }

    #[inline(always)]
    fn add_receive(&mut self, ticket: Ticket, buffer: Option<Buffer>, role: Role, queue: QueueKind) -> u32 {
        let seq = self.next_seq();
        self.receives.insert(Receive { ticket, buffer, stage: ReceiveStage::Posted, role, queue, seq })
    }

    /// Posts a multi-receive buffer.
    #[cold]
    fn post_multi_recv<T: Transport>(&mut self, transport: &mut T, posting: Posting) -> Result<(), Errno> {
        let Posting { op, pattern, queue, kind, suppress } = posting;
        let caps = if queue == QueueKind::Tagged { Caps::TAGGED_MULTI_RECV } else { Caps::MULTI_RECV };
        if !self.config.caps.contains(caps) {
            return Err(Errno::EBADFLAGS);
        }
        let mut buffer = op.buffer;
        if buffer.split_front(0).is_none() {
            // A completion reports a message's place as one address, which a buffer in pieces
            // lacks.
            return Err(Errno::EINVAL);
        }
        let least = self.min_multi_recv;
        let multi = MultiRecv { least, parts: 0, used: false, open: true, ended: None };
        let multi = key(self.multi_recvs.insert(multi));
        let ticket = Ticket::new(op.context, kind, suppress);
        let parent = self.add_receive(ticket, Some(buffer), Role::MultiRecv(multi), queue);
        self.match_queues[queue].post_persistent(pattern, parent);
        while self.is_open(multi)
            && let Some(message) = self.match_queues[queue].find_unexpected(&pattern)
        {
            let Some(total) = self.unexpected.get(message).map(super::state::Unexpected::total) else { break };
            let Some(part) = self.alloc_multi_recv_slot(parent, multi, total) else { break };
            self.match_queues[queue].drop_unexpected(message);
            self.deliver_unexpected(part, message);
        }
        self.settle(transport);
        self.tell_wanted(transport, pattern.src);
        Ok(())
    }

    pub(super) fn is_open(&self, multi: u32) -> bool {
        self.multi_recvs.get(multi as usize).is_some_and(|multi| multi.open)
    }

    /// Takes the receive for an arriving message out of its match queue; a multi-receive buffer
    /// gives a slot.
    #[inline]
    pub(super) fn match_posted(&mut self, queue: QueueKind, tag: u64, peer: PeerId, len: u64) -> Option<u32> {
        loop {
            let found = self.match_queues[queue].take_posted(tag, peer)?;
            match self.receives.get(found).map(|receive| receive.role) {
                Some(Role::MultiRecv(multi)) => {
                    if let Some(part) = self.alloc_multi_recv_slot(found, multi, len) {
                        return Some(part);
                    }
                }
                _ => return Some(found),
            }
        }
    }

    /// Adds a receive for a message of `len` bytes in the free part of a multi-receive buffer.
    /// `None` if the message does not fit behind earlier ones: then the buffer takes no more.
    #[cold]
    pub(super) fn alloc_multi_recv_slot(&mut self, parent: u32, multi: u32, len: u64) -> Option<u32> {
        let receive = self.receives.get_mut(parent)?;
        let state = self.multi_recvs.get_mut(multi as usize)?;
        let buffer = receive.buffer.as_mut()?;
        let room = buffer.len();
        if state.used && len > room as u64 {
            self.retire(parent, multi);
            return None;
        }
        let base = buffer.address();
        let front = buffer.split_front(usize::try_from(len).unwrap_or(usize::MAX).min(room))?;
        let (ticket, queue) = (receive.ticket.part(), receive.queue);
        state.parts += 1;
        state.used = true;
        let left = room - front.len();
        if left < state.least.max(1) {
            self.retire(parent, multi);
        }
        Some(self.add_receive(ticket, Some(front), Role::Part { parent, base }, queue))
    }

    /// Closes a multi-receive buffer to further messages, and releases it if none is arriving.
    fn retire(&mut self, parent: u32, multi: u32) {
        if let Some(queue) = self.receives.get(parent).map(|receive| receive.queue) {
            self.match_queues[queue].withdraw(parent);
        }
        let Some(state) = self.multi_recvs.get_mut(multi as usize) else { return };
        state.open = false;
        if state.parts == 0 {
            self.release(parent, multi, false);
        }
    }

    /// A message in a multi-receive buffer has completed. True if its completion also releases the
    /// buffer.
    #[cold]
    pub(super) fn part_is_done(&mut self, parent: u32, suppress: bool) -> bool {
        let Some(Role::MultiRecv(multi)) = self.receives.get(parent).map(|receive| receive.role) else {
            return false;
        };
        let Some(state) = self.multi_recvs.get_mut(multi as usize) else { return false };
        state.parts -= 1;
        if state.open || state.parts > 0 {
            return false;
        }
        self.release(parent, multi, !suppress)
    }

    /// Releases a multi-receive buffer. With `joined` the completion of its last message reports
    /// that, unless there is an error to report. True if that completion does.
    fn release(&mut self, parent: u32, multi: u32, joined: bool) -> bool {
        let Some(receive) = self.receives.remove(parent) else { return false };
        let state = self.multi_recvs.remove(multi as usize);
        let mut completion = receive.ticket.finish();
        match state.ended {
            Some(why) => {
                completion.flags |= OpFlags::MULTI_RECV;
                self.out.receive_failed(failure(completion, &why, 0));
                false
            }
            None if joined => true,
            None => {
                // The release is always reported, and does not count as a message.
                completion.flags = OpFlags::MULTI_RECV;
                self.out.report(completion);
                false
            }
        }
    }

    /// Fails a posted receive: it was canceled, or no peer can fill it any more.
    #[cold]
    pub(super) fn fail_posted(&mut self, number: u32, why: &Down) {
        let Some(receive) = self.receives.get(number) else { return };
        self.match_queues[receive.queue].withdraw(number);
        if let Role::MultiRecv(multi) = receive.role {
            let Some(state) = self.multi_recvs.get_mut(multi as usize) else { return };
            state.open = false;
            state.ended = Some(why.clone());
            if state.parts == 0 {
                self.release(number, multi, false);
            }
        } else if let Some(receive) = self.receives.remove(number) {
            self.fail_receive(receive, why);
        }
    }

    /// FI_PEEK, FI_CLAIM, FI_DISCARD: acts on an unexpected message; nothing is posted.
    #[cold]
    fn peek_or_claim<T: Transport>(&mut self, transport: &mut T, posting: Posting) -> Result<(), Errno> {
        let Posting { op, pattern, queue, kind, suppress } = posting;
        let (peek, claim) = (op.flags.contains(OpFlags::PEEK), op.flags.contains(OpFlags::CLAIM));
        let discard = op.flags.contains(OpFlags::DISCARD);
        if !peek && !claim {
            return Err(Errno::EINVAL);
        }
        if peek {
            let mut found = self.match_queues[queue].find_unexpected(&pattern);
            if found.is_none() && transport.poll(self) {
                // The message may not have been read yet.
                found = self.match_queues[queue].find_unexpected(&pattern);
            }
            // The result of a peek is always reported, even with selective completion.
            let ticket = Ticket::new(op.context, kind, false);
            let Some(message) = found else {
                let why = Down::new(Cause::NoMessage, Errno::ENOMSG, Cause::NoMessage.text());
                self.report_miss(ticket.finish(), pattern, &why);
                // A blocked peer may have the message: with credit it sends it, and a later peek
                // finds it.
                self.tell_wanted(transport, pattern.src);
                self.settle(transport);
                return Ok(());
            };
            if discard {
                self.match_queues[queue].drop_unexpected(message);
                self.throw_away(ticket, message, queue);
            } else {
                let completion = ticket.finish();
                self.report_peek(completion, message);
                if claim {
                    self.match_queues[queue].drop_unexpected(message);
                    self.claims.push(Claim { context: op.context, message: Ok(message) });
                }
            }
            self.settle(transport);
            return Ok(());
        }
        // Contexts may repeat: take the oldest claim.
        let at = self.claims.iter().position(|claim| claim.context == op.context).ok_or(Errno::EINVAL)?;
        if !discard && self.receives.len() >= self.config.rx_size {
            return Err(Errno::AGAIN);
        }
        let claimed = self.claims.remove(at);
        let ticket = Ticket::new(op.context, kind, suppress);
        match claimed.message {
            Ok(message) if discard => self.throw_away(ticket, message, queue),
            Ok(message) => {
                let number = self.add_receive(ticket, Some(op.buffer), Role::Plain, queue);
                self.deliver_unexpected(number, message);
            }
            Err(why) => self.report_miss(ticket.finish(), pattern, &why),
        }
        self.settle(transport);
        Ok(())
    }

    fn throw_away(&mut self, ticket: Ticket, message: u32, queue: QueueKind) {
        let number = self.add_receive(ticket, Some(Buffer::empty()), Role::Discard, queue);
        self.deliver_unexpected(number, message);
    }

    fn report_miss(&self, mut completion: Completion, pattern: Pattern, why: &Down) {
        completion.tag = pattern.tag;
        self.out.receive_failed(failure(completion, why, 0));
    }

    fn report_peek(&self, mut completion: Completion, message: u32) {
        let Some(message) = self.unexpected.get(message) else { return };
        let info = message.info();
        completion.len = usize::try_from(message.total()).unwrap_or(usize::MAX);
        completion.tag = info.tag.unwrap_or(0);
        completion.src = self.reported_source(self.handle_of(message.peer));
        if let Some(data) = info.data {
            completion.data = data;
            completion.flags |= OpFlags::REMOTE_CQ_DATA;
        }
        self.out.report(completion);
    }
}
