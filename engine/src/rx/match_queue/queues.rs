//! The match queues of a receive context.

use super::MatchQueue;
use core::ops::{Index, IndexMut};
use ofi_sync::account::Account;
use std::sync::Arc;

/// Which of a receive context's match queues: a message never meets a receive of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Messages without a tag.
    Untagged,
    /// Tagged messages.
    Tagged,
    /// Messages of collective operations, which the application neither posts nor sees.
    Group,
}

impl QueueKind {
    /// All.
    pub(crate) const ALL: [Self; 3] = [Self::Untagged, Self::Tagged, Self::Group];

    /// The queue for an operation of the application with this tag.
    #[inline(always)]
    pub(crate) const fn of<T: Copy>(tag: Option<T>) -> Self {
        if tag.is_some() { Self::Tagged } else { Self::Untagged }
    }
}

/// A match queue of each kind.
#[derive(Debug)]
pub(crate) struct MatchQueues([MatchQueue; 3]);

impl MatchQueues {
    /// Empty queues. Their indexes of unexpected messages are charged to the account.
    pub(crate) fn new(account: &Arc<Account>) -> Self {
        Self(QueueKind::ALL.map(|_| MatchQueue::new(account)))
    }

    /// All queues.
    pub(crate) fn iter(&self) -> core::slice::Iter<'_, MatchQueue> {
        self.0.iter()
    }

    /// The queues of the application's operations.
    pub(crate) fn of_application(&self) -> impl Iterator<Item = &MatchQueue> {
        self.0.iter().take(QueueKind::Group as usize)
    }

    /// All queues, mutably.
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
