//! Counters that are bound to no endpoint but count what endpoints do: a read of such a counter
//! makes progress on them (fi_domain(3), FI_PROGRESS_MANUAL).

use core::ptr::addr_eq;
use ofi_core::error::Result;
use ofi_engine::erased::{CounterControl, EndpointControl};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Counters, and the endpoints with which each of them makes progress.
#[derive(Default)]
pub(crate) struct Followed(Mutex<Members>);

#[derive(Default)]
struct Members {
    counters: Vec<Arc<dyn CounterControl>>,
    endpoints: Vec<Weak<dyn EndpointControl>>,
}

impl Followed {
    /// From now on a read of the counter makes progress on the endpoints.
    ///
    /// # Errors
    /// Those of watching the endpoints' descriptors.
    pub(crate) fn add_counter(&self, counter: &Arc<dyn CounterControl>) -> Result<()> {
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
    pub(crate) fn remove_counter(&self, counter: &Arc<dyn CounterControl>) {
        let mut members = self.members();
        members.counters.retain(|known| !addr_eq(Arc::as_ptr(known), Arc::as_ptr(counter)));
        for endpoint in members.endpoints.iter().filter_map(Weak::upgrade) {
            endpoint.unwatch_counter(counter.clone());
        }
    }

    /// A new endpoint.
    ///
    /// # Errors
    /// As for [`Self::add_counter`].
    pub(crate) fn add_endpoint(&self, endpoint: &Arc<dyn EndpointControl>) -> Result<()> {
        let mut members = self.members();
        for counter in &members.counters {
            endpoint.clone().watch_counter(counter.clone())?;
        }
        // Those of calls that failed afterwards have no object that removes them.
        members.endpoints.retain(|known| known.strong_count() > 0);
        members.endpoints.push(Arc::downgrade(endpoint));
        Ok(())
    }

    /// The endpoint is closed.
    pub(crate) fn remove_endpoint(&self, endpoint: &Arc<dyn EndpointControl>) {
        self.members().endpoints.retain(|known| !addr_eq(known.as_ptr(), Arc::as_ptr(endpoint)));
    }

    /// The endpoints that are open.
    pub(crate) fn endpoints(&self) -> Vec<Arc<dyn EndpointControl>> {
        self.members().endpoints.iter().filter_map(Weak::upgrade).collect()
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
