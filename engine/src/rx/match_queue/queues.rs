//! The two match queues of a receive context.

use super::MatchQueue;
use core::ops::{Index, IndexMut};
use ofi_sync::account::Account;
use std::sync::Arc;

/// Which of a receive context's two match queues: a tagged message never meets an untagged receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Messages without a tag.
    Untagged,
    /// Tagged messages.
    Tagged,
}

impl QueueKind {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Untagged, Self::Tagged];

    /// The queue for an operation with this tag.
    #[inline(always)]
    pub(crate) const fn of<T: Copy>(tag: Option<T>) -> Self {
        if tag.is_some() { Self::Tagged } else { Self::Untagged }
    }
}

/// The untagged and the tagged match queue.
#[derive(Debug)]
pub(crate) struct MatchQueues([MatchQueue; 2]);

impl MatchQueues {
    /// Empty queues. Their indexes of unexpected messages are charged to the account.
    pub(crate) fn new(account: &Arc<Account>) -> Self {
        Self([MatchQueue::new(account), MatchQueue::new(account)])
    }

    /// Both queues.
    pub(crate) fn iter(&self) -> core::slice::Iter<'_, MatchQueue> {
        self.0.iter()
    }

    /// Both queues, mutably.
    pub(crate) fn iter_mut(&mut self) -> core::slice::IterMut<'_, MatchQueue> {
        self.0.iter_mut()
    }
}

impl Index<QueueKind> for MatchQueues {
    type Output = MatchQueue;
    #[inline(always)]
    fn index(&self, kind: QueueKind) -> &MatchQueue {
        &self.0[kind as usize]
    }
}

impl IndexMut<QueueKind> for MatchQueues {
    #[inline(always)]
    fn index_mut(&mut self, kind: QueueKind) -> &mut MatchQueue {
        &mut self.0[kind as usize]
    }
}
