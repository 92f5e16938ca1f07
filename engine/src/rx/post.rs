//! Posting of receives (fi_msg(3), fi_tagged(3)).

use super::match_queue::{Pattern, QueueKind, Source};
use super::receive::Role;
use super::{RxContext, multi_recv};
use crate::completion::deferred::DEFERRED;
use crate::completion::reporter::Reporter;
use crate::op::RecvOp;
use crate::peer::Peers;
use ofi_core::{Caps, Errno, FiAddr, OpFlags};
use ofi_memory::Ticket;
use ofi_sync::lock::LockKind;

/// Flags of a receive call that acts on an unexpected message.
const LOOKS: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM).union(OpFlags::DISCARD);

/// Flags that no receive supports.
const UNSUPPORTED: OpFlags = OpFlags::AUTH_KEY.union(OpFlags::TRIGGER);

/// A receive call with what [`RxContext::sort`] finds out about it.
#[derive(Debug)]
pub(crate) struct Posting {
    pub(super) op: RecvOp,
    pub(super) pattern: Pattern,
    pub(super) queue: QueueKind,
    pub(super) kind: OpFlags,
    pub(super) suppress: bool,
    /// Its place among all operations of the endpoint.
    pub(super) seq: u64,
}

impl Posting {
    /// Whether it acts on an unexpected message.
    pub(crate) const fn looks(&self) -> bool {
        self.op.flags.intersects(LOOKS)
    }

    /// The receive is deferred work, which reports to a notice.
    pub(crate) fn deferred(self) -> Self {
        Self { kind: self.kind | DEFERRED, suppress: true, ..self }
    }

    /// The sender whose messages it wants; `None` for any.
    pub(crate) fn source(&self) -> Source {
        self.pattern.src
    }

    /// The right to complete it.
    pub(super) const fn ticket(&self) -> Ticket {
        Ticket::new(self.op.context, self.kind, self.suppress)
    }
}

/// An unexpected message and the receive that takes it; both have left their queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(super) receive: u32,
    pub(super) message: u32,
}

/// Tag, ignored bits and completion flags of a receive, and whether it is directed.
#[inline(always)]
fn sort(op: &RecvOp, caps: Caps) -> (u64, u64, OpFlags, bool) {
    let (tag, ignore, kind, directed) = match op.tag {
        Some((tag, ignore)) => {
            let directed = Caps::DIRECTED_RECV.union(Caps::TAGGED_DIRECTED_RECV);
            (tag, ignore, OpFlags::TAGGED.union(OpFlags::RECV), directed)
        }
        None => (0, u64::MAX, OpFlags::MSG.union(OpFlags::RECV), Caps::DIRECTED_RECV),
    };
    (tag, ignore, kind, op.src != FiAddr::UNSPEC && caps.intersects(directed))
}

impl RxContext {
    /// Fast path: a receive of one message that fits no unexpected one. Otherwise nothing has
    /// changed, and the operation is returned. `sender` finds the number of a directed receive's
    /// source.
    #[inline(always)]
    pub(crate) fn try_post_fast(
        &mut self,
        peers: &Peers,
        selective: bool,
        op: RecvOp,
        seq: &mut u64,
        sender: impl FnOnce(FiAddr) -> Option<u32>,
    ) -> Result<(), RecvOp> {
        const UNUSUAL: OpFlags = LOOKS.union(OpFlags::MULTI_RECV).union(UNSUPPORTED);
        let queue = QueueKind::of(op.tag);
        if op.flags.intersects(UNUSUAL) || self.receives.len() >= self.legacy.fast_until || peers.watches_receives() {
            return Err(op);
        }
        let suppress = selective && !op.flags.contains(OpFlags::COMPLETION);
        let (tag, ignore, kind, directed) = sort(&op, self.settings.caps);
        let src = match directed.then(|| sender(op.src)) {
            None => Source::ANY,
            Some(Some(sender)) => Source::peer(sender),
            // A directed receive fails when its peer's link breaks, so its peer must be known.
            Some(None) => return Err(op),
        };
        let pattern = Pattern { tag, ignore, src };
        if !self.queues[queue].only_queues(&pattern) {
            return Err(op);
        }
        *seq += 1;
        let ticket = Ticket::new(op.context, kind, suppress);
        let key = self.add(ticket, Some(op.buffer), Role::Plain, (queue, *seq));
        self.queues[queue].post(pattern, key);
        Ok(())
    }

    /// Sorts a receive call; `sender` finds the number of a directed receive's source, if there is
    /// one yet.
    ///
    /// # Errors
    /// EBADFLAGS for flags that no receive supports.
    pub(crate) fn sort(
        &mut self,
        op: RecvOp,
        (selective, seq): (bool, u64),
        sender: impl FnOnce(&mut Self, FiAddr) -> Option<u32>,
    ) -> Result<Posting, Errno> {
        if op.flags.intersects(UNSUPPORTED) {
            return Err(Errno::EBADFLAGS);
        }
        let (tag, ignore, kind, directed) = sort(&op, self.settings.caps);
        let src = if directed {
            // The address vector may get an entry for this handle later.
            sender(self, op.src).map_or_else(|| Source::handle(op.src), Source::peer)
        } else {
            Source::ANY
        };
        let suppress = selective && !op.flags.contains(OpFlags::COMPLETION);
        let (pattern, queue) = (Pattern { tag, ignore, src }, QueueKind::of(op.tag));
        Ok(Posting { op, pattern, queue, kind, suppress, seq })
    }

    /// Whether a message has arrived for the receive or peek, or may have been claimed for it.
    pub(crate) fn has_message_for(&mut self, posting: &Posting) -> bool {
        let flags = posting.op.flags;
        !flags.contains(OpFlags::PEEK) && flags.intersects(OpFlags::CLAIM | OpFlags::DISCARD)
            || self.queues[posting.queue].find_unexpected(&posting.pattern).is_some()
    }

    /// Posts a receive, or calls `matched` with the unexpected messages that it takes at once: one,
    /// or several for a multi-receive buffer. True if it is posted.
    ///
    /// # Errors
    /// AGAIN if too many receives are posted, and EINVAL or EBADFLAGS for a multi-receive buffer
    /// that cannot be one, or for a receive that is no tag where messages are buffered. Nothing has
    /// changed then.
    pub(crate) fn post<K: LockKind>(
        &mut self,
        out: &mut Reporter<K>,
        posting: Posting,
        mut matched: impl FnMut(&mut Self, &mut Reporter<K>, Match),
    ) -> Result<bool, Errno> {
        if self.receives.len() >= self.settings.size {
            return Err(Errno::AGAIN);
        }
        let mut role = Role::Plain;
        if self.legacy.is_buffered() {
            // Messages without tags need no receive, none takes several messages, and deferred work
            // could not claim its message.
            let unfit = posting.op.flags.contains(OpFlags::MULTI_RECV) || posting.kind.contains(DEFERRED);
            if posting.queue != QueueKind::Tagged || unfit {
                return Err(Errno::EINVAL);
            }
            role = Role::Notice { posted: true };
        }
        if posting.op.flags.contains(OpFlags::MULTI_RECV) {
            return self.post_multi_recv(out, posting, matched);
        }
        let ticket = posting.ticket();
        let Posting { op, pattern, queue, seq, .. } = posting;
        let receive = self.add(ticket, Some(op.buffer), role, (queue, seq));
        let Some(message) = self.queues[queue].take_unexpected(&pattern) else {
            self.queues[queue].post(pattern, receive);
            return Ok(true);
        };
        matched(self, out, Match { receive, message });
        Ok(false)
    }

    /// Posts a receive for which a message has arrived, off the path of all others: what it does
    /// not take stays posted.
    ///
    /// # Errors
    /// As for [`Self::post`]; EINVAL too where messages are buffered.
    #[cold]
    pub(crate) fn take_kept<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        posting: Posting,
    ) -> Result<(), Errno> {
        if self.receives.len() >= self.settings.size {
            return Err(Errno::AGAIN);
        }
        if self.legacy.is_buffered() {
            return Err(Errno::EINVAL);
        }
        if posting.op.flags.contains(OpFlags::MULTI_RECV) {
            return self.post_multi_recv(out, posting, |rx, out, found| rx.deliver(peers, out, found)).map(drop);
        }
        let ticket = posting.ticket();
        let Posting { op, pattern, queue, seq, .. } = posting;
        let receive = self.add(ticket, Some(op.buffer), Role::Plain, (queue, seq));
        self.queues[queue].post(pattern, receive);
        self.rematch(peers, out);
        Ok(())
    }

    /// Posts a multi-receive buffer.
    #[cold]
    fn post_multi_recv<K: LockKind>(
        &mut self,
        out: &mut Reporter<K>,
        posting: Posting,
        mut matched: impl FnMut(&mut Self, &mut Reporter<K>, Match),
    ) -> Result<bool, Errno> {
        let caps = if posting.queue == QueueKind::Tagged { Caps::TAGGED_MULTI_RECV } else { Caps::MULTI_RECV };
        if !self.settings.caps.contains(caps) {
            return Err(Errno::EBADFLAGS);
        }
        let ticket = posting.ticket();
        let Posting { op, pattern, queue, seq, .. } = posting;
        let mut buffer = op.buffer;
        if buffer.split_front(0).is_none() {
            // A completion reports a message's place as one address, which a buffer in pieces
            // lacks.
            ticket.discard();
            return Err(Errno::EINVAL);
        }
        let multi = self.add_multi_recv();
        let parent = self.add(ticket, Some(buffer), Role::MultiRecv(multi), (queue, seq));
        self.queues[queue].post_persistent(pattern, parent);
        while multi_recv::is_open(&self.multi_recvs, multi)
            && let Some(message) = self.queues[queue].find_unexpected(&pattern)
        {
            let Some(total) = self.unexpected.get(message).map(super::Unexpected::total) else { break };
            let Some(receive) = self.alloc_multi_recv_slot(out, parent, multi, total) else { break };
            self.queues[queue].drop_unexpected(message);
            matched(self, out, Match { receive, message });
        }
        Ok(true)
    }
}
