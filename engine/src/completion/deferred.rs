//! Deferred operations that have started: each reports to its completion counter, not to the
//! endpoint's queue and counters (fi_trigger(3)). Their tickets have the flag [`DEFERRED`], and as
//! context the number of a notice.

use super::threshold::Tally;
use ofi_core::OpFlags;
use ofi_sync::busy::Child;
use slab::Slab;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Marks the ticket of a deferred operation. Operations that the application posts never have it:
/// they are refused, or wait and lose it when they start.
pub(crate) const DEFERRED: OpFlags = OpFlags::TRIGGER;

/// Numbers of notices begin here, at no address that an application could use as a context.
const FIRST: usize = usize::MAX ^ (usize::MAX >> 1);

/// Where a deferred operation reports that it has completed.
#[derive(Debug)]
pub struct Notice {
    /// The application's context.
    pub context: usize,
    /// FI_COMPLETION: the operation also reports to the endpoint's queue and counters.
    pub reports: bool,
    /// Counts the completion, as a success or as an error.
    pub counter: Option<Arc<dyn Tally>>,
    /// Keep the counters of the operation open.
    pub users: Vec<Child>,
}

impl Notice {
    /// The counter to change. It may be closed from now on: an application that reads the change
    /// may close it at once.
    pub(super) fn release(self) -> Option<Arc<dyn Tally>> {
        drop(self.users);
        self.counter
    }
}

/// The deferred operations of an endpoint that have started and have not completed.
#[derive(Debug, Default)]
pub(crate) struct Started(Mutex<Slab<Notice>>);

impl Started {
    /// Adds an operation that starts. Returns the context for its ticket.
    pub(crate) fn add(&self, notice: Notice) -> usize {
        FIRST + self.notices().insert(notice)
    }

    /// Removes an operation that completes.
    pub(crate) fn take(&self, context: usize) -> Option<Notice> {
        self.notices().try_remove(context.wrapping_sub(FIRST))
    }

    /// The tickets' contexts of the operations that the application posted with that context.
    pub(crate) fn find(&self, context: usize) -> Vec<usize> {
        let notices = self.notices();
        let found = notices.iter().filter(|(_, notice)| notice.context == context);
        found.map(|(number, _)| FIRST + number).collect()
    }

    fn notices(&self) -> MutexGuard<'_, Slab<Notice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
