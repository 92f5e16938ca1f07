//! What a context needs of its scalable endpoint (`scalable.rs`).

use crate::av::AddressVector;
use crate::progress::set::Pollable;
use crate::wire::hello::Contexts;
use ofi_core::error::Result;
use std::sync::Arc;

/// A scalable endpoint, as its contexts know it. Polling it accepts connect requests.
pub(crate) trait Portal: Pollable {
    /// The address vector of all contexts.
    fn av(&self) -> Option<Arc<AddressVector>>;
    /// A context has joined its queues: they make progress for its partners from now on, and the
    /// partners' queues for it. These are the context of the other kind with the same index, or,
    /// where there are fewer of a kind, those whose index has the same remainder by their number.
    fn pair(&self, contexts: Contexts) -> Result<()>;
    /// A context has been enabled, and takes connect requests if it receives.
    fn handle_enabled(&self, contexts: Contexts);
    /// A context takes no connect requests any more; its index is free.
    fn handle_closed(&self, contexts: Contexts);
}
