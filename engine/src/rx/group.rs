//! Receives of collective operations, which the endpoint posts itself: they match only messages of
//! other members, and do not count as receives of the application.

use super::RxContext;
use super::match_queue::{Pattern, QueueKind, Source};
use super::post::Match;
use super::receive::{Receive, Role};
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::transport::Down;
use ofi_core::OpFlags;
use ofi_memory::{Buffer, Ticket};
use ofi_sync::lock::LockKind;

/// Number of a receive whose message is dropped.
pub(crate) const DROPPED: usize = usize::MAX;

/// A message of a member.
#[derive(Debug)]
pub(crate) struct Received {
    /// The data word.
    pub(crate) word: u64,
    /// Its length, which may exceed the buffer's: the rest is dropped.
    pub(crate) len: u64,
    /// The buffer, unless it was the application's.
    pub(crate) bytes: Vec<u8>,
}

/// A receive that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The number with which it was posted.
    pub(crate) number: usize,
    pub(crate) result: Result<Received, Down>,
}

impl RxContext {
    /// Posts a receive for a message as long as `buffer`, into it.
    pub(crate) fn post_group<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (sender, tag): (u32, u64),
        (number, buffer): (usize, Buffer),
        seq: u64,
    ) {
        let receive = self.add_group(number, buffer, seq);
        let pattern = Pattern { tag, ignore: 0, src: Source::peer(sender) };
        match self.queues[QueueKind::Group].take_unexpected(&pattern) {
            Some(message) => self.deliver(peers, out, Match { receive, message }),
            None => {
                self.queues[QueueKind::Group].post(pattern, receive);
                self.tell_wanted(peers, out, pattern.src);
            }
        }
    }

    fn add_group(&mut self, number: usize, buffer: Buffer, seq: u64) -> u32 {
        let ticket = Ticket::new(number, OpFlags::COLLECTIVE, true);
        self.settings.size += 1;
        self.add(ticket, Some(buffer), Role::Group, (QueueKind::Group, seq))
    }

    /// Whether a message of this sender waits for a receive.
    pub(crate) fn has_group_message(&mut self, sender: u32, tag: u64) -> bool {
        let pattern = Pattern { tag, ignore: 0, src: Source::peer(sender) };
        !self.queues[QueueKind::Group].only_queues(&pattern)
            && self.queues[QueueKind::Group].find_unexpected(&pattern).is_some()
    }

    /// Withdraws posted receives, and drops the messages that have arrived with this tag. Returns
    /// the receives that were still posted: the others end.
    pub(crate) fn drop_group<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        tag: u64,
        numbers: &[usize],
        seq: u64,
    ) -> Vec<usize> {
        let mut withdrawn = Vec::new();
        let posted: Vec<u32> = self.queues[QueueKind::Group].posted().collect();
        for key in posted {
            if self.receives.get(key).is_some_and(|receive| numbers.contains(&receive.ticket.context())) {
                self.queues[QueueKind::Group].withdraw(key);
                if let Some(receive) = self.receives.remove(key) {
                    self.settings.size -= 1;
                    withdrawn.push(receive.ticket.finish().context);
                }
            }
        }
        let waiting: Vec<(u32, u32)> = self.queues[QueueKind::Group].unexpected().collect();
        for (key, _) in waiting {
            if self.unexpected.get(key).is_some_and(|message| message.info().tag == Some(tag)) {
                self.queues[QueueKind::Group].drop_unexpected(key);
                let receive = self.add_group(DROPPED, Buffer::empty(), seq);
                self.deliver(peers, out, Match { receive, message: key });
            }
        }
        withdrawn
    }

    /// Fails the receives of collective operations that wait for this sender: a member whose link
    /// has ended sends no more, even if it closed in order.
    pub(crate) fn fail_group<K: LockKind>(&mut self, out: &mut Reporter<K>, sender: u32, why: &Down) {
        let keys: Vec<u32> = self.queues[QueueKind::Group].posted_from(sender).collect();
        keys.into_iter().for_each(|key| self.fail_posted(out, key, why));
    }

    /// Takes the receives that have ended.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        core::mem::take(&mut self.group_ended)
    }

    /// Whether receives have ended.
    pub(crate) const fn has_ended(&self) -> bool {
        !self.group_ended.is_empty()
    }

    /// A receive has its message, of `len` bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn finish_group(&mut self, key: u32, word: Option<u64>, len: u64) {
        let Some(receive) = self.receives.remove(key) else { return };
        let bytes = if let Some(Buffer::Owned(bytes)) = receive.buffer { bytes } else { Vec::new() };
        let received = Received { word: word.unwrap_or(0), len, bytes };
        self.end_group(receive.ticket, Ok(received));
    }

    /// A receive has failed.
    #[cold]
    pub(super) fn fail_group_receive(&mut self, receive: Receive, why: &Down) {
        self.end_group(receive.ticket, Err(why.clone()));
    }

    fn end_group(&mut self, ticket: Ticket, result: Result<Received, Down>) {
        self.settings.size -= 1;
        let number = ticket.finish().context;
        if number != DROPPED {
            self.group_ended.push(Ended { number, result });
        }
    }
}
