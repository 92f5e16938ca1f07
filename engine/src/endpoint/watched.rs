//! Counters of deferred work (fi_trigger(3)) and of memory regions (fi_mr(3)): readers of a counter
//! make progress on the endpoints whose operations it may count, although it is not bound to them.

use super::Endpoint;
use crate::completion::counter::Counter;
use crate::transport::Transport;
use ofi_core::error::Result;
use ofi_sync::lock::LockKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A counter, and the keys in its progress set of what has joined that for the endpoint.
type Entry<K> = (Arc<Counter<K>>, Vec<usize>);

/// The counters. This lock comes before those of progress sets.
pub(super) struct Watched<K: LockKind>(Mutex<Vec<Entry<K>>>);

impl<K: LockKind> Default for Watched<K> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<K: LockKind> Watched<K> {
    fn list(&self) -> MutexGuard<'_, Vec<Entry<K>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// Makes progress whenever this counter is read. A progress thread makes that unnecessary.
    ///
    /// # Errors
    /// Those of watching the endpoint's descriptor. An error changes nothing.
    pub fn watch_counter(self: &Arc<Self>, counter: &Arc<Counter<K>>) -> Result<()> {
        let mut list = self.watched.list();
        let is_known = list.iter().any(|(known, _)| Arc::ptr_eq(known, counter));
        if self.auto.is_some() || is_known || K::lock(&self.inner).core.out.sinks.has_counter(counter) {
            return Ok(());
        }
        let keys = if self.is_joined() { self.join_counter(counter)? } else { Vec::new() };
        list.push((counter.clone(), keys));
        Ok(())
    }

    /// The counter is bound or is about to close. True if it was watched.
    pub fn unwatch_counter(&self, counter: &Arc<Counter<K>>) -> bool {
        let mut list = self.watched.list();
        let before = list.len();
        list.retain(|(known, keys)| {
            let goes = Arc::ptr_eq(known, counter);
            if goes {
                keys.iter().for_each(|key| known.leave(*key));
            }
            !goes
        });
        list.len() < before
    }

    /// Joins the progress sets of the counters: the endpoint is enabled.
    pub(super) fn join_watched(self: &Arc<Self>) -> Result<()> {
        for (counter, keys) in self.watched.list().iter_mut() {
            if keys.is_empty() {
                *keys = self.join_counter(counter)?;
            }
        }
        Ok(())
    }

    /// Joins a counter's progress set, with all that its links come from.
    fn join_counter(self: &Arc<Self>, counter: &Arc<Counter<K>>) -> Result<Vec<usize>> {
        let mut keys = Vec::new();
        for pollable in self.pollables() {
            match counter.join(pollable) {
                Ok(key) => keys.push(key),
                Err(error) => {
                    keys.into_iter().for_each(|key| counter.leave(key));
                    return Err(error);
                }
            }
        }
        Ok(keys)
    }

    /// Leaves the progress sets again.
    pub(super) fn leave_watched(&self) {
        for (counter, keys) in self.watched.list().iter_mut() {
            keys.drain(..).for_each(|key| counter.leave(key));
        }
    }
}
