//! What a context needs of its scalable endpoint (`scalable.rs`).

use crate::av::AddressVector;
use crate::progress::set::Pollable;
use crate::wire::hello::Contexts;
use std::sync::Arc;

/// A scalable endpoint, as its contexts know it. Polling it accepts connect requests.
pub(crate) trait Portal: Pollable {
    /// The address vector of all contexts.
    fn av(&self) -> Option<Arc<AddressVector>>;
    /// A context has been enabled, and takes connect requests if it receives.
    fn handle_enabled(&self, contexts: Contexts);
    /// A context takes no connect requests any more; its index is free.
    fn handle_closed(&self, contexts: Contexts);
}
