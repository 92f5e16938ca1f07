//! Looking at unexpected messages: FI_PEEK, FI_CLAIM, FI_DISCARD (fi_tagged(3)). Nothing is posted.

use super::match_queue::{MatchQueue, Pattern};
use super::post::{Match, Posting};
use super::receive::{Claim, Role};
use super::unexpected::{Body, Unexpected};
use super::{QueueKind, RxContext};
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::transport::Down;
use ofi_core::{Cause, Completion, Errno, FiAddr, OpFlags};
use ofi_memory::{Buffer, Ticket};
use ofi_sync::lock::LockKind;

/// A peek, and the message that it found.
#[derive(Debug)]
pub(crate) enum Peek {
    Found(u32),
    /// No message waits.
    Nothing,
}

impl RxContext {
    /// Whether a peek finds a message. `None` if the call claims a message instead.
    ///
    /// # Errors
    /// EINVAL for FI_DISCARD alone.
    pub(crate) fn begin_look(&mut self, posting: &Posting) -> Result<Option<Peek>, Errno> {
        let flags = posting.op.flags;
        if flags.contains(OpFlags::PEEK) {
            let found = self.queues[posting.queue].find_unexpected(&posting.pattern);
            return Ok(Some(found.map_or(Peek::Nothing, Peek::Found)));
        }
        // Discarding alone is for buffered messages.
        let claims = flags.contains(OpFlags::CLAIM) || self.names_notice(posting)?;
        if claims { Ok(None) } else { Err(Errno::EINVAL) }
    }

    /// Completes a peek: reports the message or that there is none; reserves or drops the message
    /// if asked.
    pub(crate) fn peek<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        posting: &mut Posting,
        found: Peek,
    ) {
        let Posting { op, pattern, queue, kind, .. } = posting;
        // The result of a peek is always reported, even with selective completion.
        let ticket = Ticket::new(op.context, *kind, false);
        let message = match found {
            Peek::Found(message) => message,
            Peek::Nothing => {
                let why = Down::new(Cause::NoMessage, Errno::ENOMSG, Cause::NoMessage.text());
                return report_miss(out, ticket.finish(), *pattern, &why);
            }
        };
        if op.flags.contains(OpFlags::DISCARD) {
            self.queues[*queue].drop_unexpected(message);
            self.throw_away(peers, out, ticket, message, (*queue, posting.seq));
            return;
        }
        self.report_peek(peers, out, (ticket.finish(), &mut op.buffer), message);
        if op.flags.contains(OpFlags::CLAIM) {
            self.queues[*queue].drop_unexpected(message);
            self.claims.push(Claim { context: op.context, message: Ok(message) });
        }
    }

    /// Receives or discards the message that an earlier peek has reserved.
    ///
    /// # Errors
    /// EINVAL if there is none with this context; AGAIN if too many receives are posted.
    pub(crate) fn claim<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        posting: Posting,
    ) -> Result<(), Errno> {
        if self.names_notice(&posting)? {
            self.end_notice(peers, out, posting);
            return Ok(());
        }
        let discard = posting.op.flags.contains(OpFlags::DISCARD);
        // Contexts may repeat: take the oldest claim.
        let at = self.claims.iter().position(|claim| claim.context == posting.op.context).ok_or(Errno::EINVAL)?;
        if !discard && self.receives.len() >= self.settings.size {
            return Err(Errno::AGAIN);
        }
        let ticket = posting.ticket();
        let Posting { op, pattern, queue, seq, .. } = posting;
        match self.claims.remove(at).message {
            Ok(message) if discard => self.throw_away(peers, out, ticket, message, (queue, seq)),
            Ok(message) => {
                let receive = self.add(ticket, Some(op.buffer), Role::Plain, (queue, seq));
                self.deliver(peers, out, Match { receive, message });
            }
            Err(why) => report_miss(out, ticket.finish(), pattern, &why),
        }
        Ok(())
    }

    pub(super) fn throw_away<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        ticket: Ticket,
        message: u32,
        place: (QueueKind, u64),
    ) {
        let receive = self.add(ticket, Some(Buffer::empty()), Role::Discard, place);
        self.deliver(peers, out, Match { receive, message });
    }

    fn report_peek<K: LockKind>(
        &self,
        peers: &Peers,
        out: &Reporter<K>,
        (mut completion, buffer): (Completion, &mut Buffer),
        message: u32,
    ) {
        let Some(message) = self.unexpected.get(message) else { return };
        describe(message, peers, out, &mut completion);
        if let (true, Body::Here(kept)) = (self.legacy.peek_copies && !buffer.is_empty(), &message.body) {
            buffer.write_at(0, kept.bytes());
            completion.buf = buffer.address();
        }
        out.sinks.report(completion);
    }

    /// How many messages of this endpoint wait for a receive.
    pub(crate) fn waiting_len(&self, peers: &Peers) -> usize {
        if self.participants.is_shared() {
            return self.waiting(peers).count();
        }
        self.queues.of_application().map(MatchQueue::unexpected_len).sum()
    }

    /// The messages of this endpoint that wait for a receive, as entries of a queue.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn describe_waiting<K: LockKind>(
        &self,
        peers: &Peers,
        out: &Reporter<K>,
    ) -> Result<Vec<Completion>, Errno> {
        let mut entries = Vec::new();
        entries.try_reserve_exact(self.waiting_len(peers)).map_err(|_| Errno::ENOMEM)?;
        entries.extend(self.waiting(peers).map(|message| {
            let class = if message.info().tag.is_some() { OpFlags::TAGGED } else { OpFlags::MSG };
            let flags = class | OpFlags::RECV;
            let mut entry = Completion { context: 0, flags, len: 0, buf: 0, data: 0, tag: 0, src: FiAddr::UNSPEC };
            describe(message, peers, out, &mut entry);
            entry
        }));
        Ok(entries)
    }

    fn waiting(&self, peers: &Peers) -> impl Iterator<Item = &Unexpected> {
        let mine = if self.participants.is_shared() { Some(peers.participant()) } else { None };
        let keys = self.queues.of_application().flat_map(MatchQueue::unexpected);
        let messages = keys.filter_map(|(key, _)| self.unexpected.get(key));
        messages.filter(move |message| mine.is_none_or(|mine| message.participant == mine))
    }
}

/// Writes what is known of a message before it is received.
pub(super) fn describe<K: LockKind>(
    message: &Unexpected,
    peers: &Peers,
    out: &Reporter<K>,
    completion: &mut Completion,
) {
    let info = message.info();
    completion.len = usize::try_from(message.total()).unwrap_or(usize::MAX);
    completion.tag = info.tag.unwrap_or(0);
    completion.src = out.source(peers.handle_of(message.peer));
    if let Some(data) = info.data {
        completion.data = data;
        completion.flags |= OpFlags::REMOTE_CQ_DATA;
    }
}

fn report_miss<K: LockKind>(out: &Reporter<K>, mut completion: Completion, pattern: Pattern, why: &Down) {
    completion.tag = pattern.tag;
    out.missed(completion, why);
}
