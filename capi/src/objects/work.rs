//! Deferred work of a domain with FI_TRIGGER (fi_trigger(3)): the engine's queue, and which
//! endpoints progress with which counters.

use core::ptr::addr_eq;
use ofi_core::error::Result;
use ofi_engine::erased::{CounterControl, EndpointControl};
use ofi_engine::trigger::WorkQueue;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The deferred work of a domain.
#[derive(Default)]
pub(crate) struct DomainWork {
    pub(crate) queue: Arc<WorkQueue>,
    members: Mutex<Members>,
}

/// A read of a counter of deferred work makes progress on all endpoints that may have such work,
/// since the counter need not be bound to one.
#[derive(Default)]
struct Members {
    counters: Vec<Arc<dyn CounterControl>>,
    endpoints: Vec<Weak<dyn EndpointControl>>,
}

impl DomainWork {
    /// Work waits for the counter or changes it.
    ///
    /// # Errors
    /// Those of watching the endpoints' descriptors.
    pub(crate) fn engage(&self, counter: &Arc<dyn CounterControl>) -> Result<()> {
        let mut members = self.members();
        if members.counters.iter().any(|known| addr_eq(Arc::as_ptr(known), Arc::as_ptr(counter))) {
            return Ok(());
        }
        for endpoint in members.endpoints.iter().filter_map(Weak::upgrade) {
            endpoint.watch_counter(counter.clone())?;
        }
        members.counters.push(counter.clone());
        Ok(())
    }

    /// The counter is closed.
    pub(crate) fn forget_counter(&self, counter: &Arc<dyn CounterControl>) {
        let mut members = self.members();
        members.counters.retain(|known| !addr_eq(Arc::as_ptr(known), Arc::as_ptr(counter)));
        for endpoint in members.endpoints.iter().filter_map(Weak::upgrade) {
            endpoint.unwatch_counter(counter.clone());
        }
    }

    /// A new endpoint with FI_TRIGGER.
    ///
    /// # Errors
    /// As for [`Self::engage`].
    pub(crate) fn add_endpoint(&self, endpoint: &Arc<dyn EndpointControl>) -> Result<()> {
        let mut members = self.members();
        for counter in &members.counters {
            endpoint.clone().watch_counter(counter.clone())?;
        }
        members.endpoints.push(Arc::downgrade(endpoint));
        Ok(())
    }

    /// The endpoint is closed: its work goes.
    pub(crate) fn forget_endpoint(&self, endpoint: &Arc<dyn EndpointControl>) {
        self.members().endpoints.retain(|known| !addr_eq(known.as_ptr(), Arc::as_ptr(endpoint)));
        if let Some(initiator) = endpoint.clone().initiator() {
            self.queue.forget(&initiator);
        }
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
