//! Finds the oldest operation with a context (fi_cancel(3)).

use crate::hash::HashMap;
use std::collections::VecDeque;

/// Operations that may be stale beside as many that are not.
const SLACK: usize = 1024;

/// Cancelable operations by context, oldest first, as of the last cancellation. Each cancellation
/// adds those that were posted since, so that many of them do not search all operations each.
#[derive(Debug, Default)]
pub(crate) struct Cancelable {
    /// Sequence number and key of each operation.
    by_context: HashMap<usize, VecDeque<(u64, u32)>>,
    /// The sequence number of the latest operation in here.
    up_to: u64,
    /// Operations added, also those that have completed since.
    added: usize,
}

impl Cancelable {
    /// Only operations with a later sequence number are new. Starts anew if there are many more
    /// entries than the `live` operations.
    pub(crate) fn known_up_to(&mut self, live: usize) -> u64 {
        if self.added > 2 * live + SLACK {
            *self = Self::default();
        }
        self.up_to
    }

    /// Adds operations as (sequence number, context, key).
    pub(crate) fn add(&mut self, mut fresh: Vec<(u64, usize, u32)>) {
        fresh.sort_unstable_by_key(|(seq, ..)| *seq);
        self.added += fresh.len();
        for (seq, context, key) in fresh {
            self.by_context.entry(context).or_default().push_back((seq, key));
            self.up_to = seq;
        }
    }

    /// The oldest operation with this context that `is_open` says may be canceled. Drops those
    /// before it.
    pub(crate) fn oldest(&mut self, context: usize, is_open: impl Fn(u64, u32) -> bool) -> Option<(u64, u32)> {
        let list = self.by_context.get_mut(&context)?;
        while let Some(&(seq, key)) = list.front() {
            if is_open(seq, key) {
                return Some((seq, key));
            }
            list.pop_front();
        }
        self.by_context.remove(&context);
        None
    }
}
