//! Counters of deferred work (fi_trigger(3)): readers of a counter make progress on the endpoints
//! whose operations it may count, although it is not bound to them.

use super::Endpoint;
use crate::completion::counter::Counter;
use crate::transport::Transport;
use ofi_core::error::Result;
use ofi_sync::lock::LockKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A counter, and the endpoint's key in its progress set if it has joined that.
type Entry<K> = (Arc<Counter<K>>, Option<usize>);

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
        let key = self.is_joined().then(|| counter.join(self.clone())).transpose()?;
        list.push((counter.clone(), key));
        Ok(())
    }

    /// The counter is bound or is about to close.
    pub fn unwatch_counter(&self, counter: &Arc<Counter<K>>) {
        let mut list = self.watched.list();
        list.retain(|(known, key)| {
            let goes = Arc::ptr_eq(known, counter);
            if let (true, Some(key)) = (goes, key) {
                known.leave(*key);
            }
            !goes
        });
    }

    /// Joins the progress sets of the counters: the endpoint is enabled.
    pub(super) fn join_watched(self: &Arc<Self>) -> Result<()> {
        for (counter, key) in self.watched.list().iter_mut() {
            if key.is_none() {
                *key = Some(counter.join(self.clone())?);
            }
        }
        Ok(())
    }

    /// Leaves the progress sets again.
    pub(super) fn leave_watched(&self) {
        for (counter, key) in self.watched.list().iter_mut() {
            if let Some(key) = key.take() {
                counter.leave(key);
            }
        }
    }
}
