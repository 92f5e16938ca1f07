//! Deferred work of a domain with FI_TRIGGER (fi_trigger(3)): the engine's queue, and which
//! endpoints progress with which counters.

use crate::objects::followed::Followed;
use ofi_engine::erased::EndpointControl;
use ofi_engine::trigger::WorkQueue;
use std::sync::Arc;

/// The deferred work of a domain.
#[derive(Default)]
pub(crate) struct DomainWork {
    pub(crate) queue: Arc<WorkQueue>,
    /// The counters of deferred work, and the endpoints that may have such work.
    pub(crate) followed: Followed,
}

impl DomainWork {
    /// The endpoint is closed: its work goes.
    pub(crate) fn forget_endpoint(&self, endpoint: &Arc<dyn EndpointControl>) {
        self.followed.remove_endpoint(endpoint);
        if let Some(initiator) = endpoint.clone().initiator() {
            self.queue.forget(&initiator);
        }
    }
}
