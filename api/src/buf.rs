//! Buffers of operations: lent to the engine from the call to the completion.

use ofi_core::{Completion, Failure, OpFlags};
use ofi_memory::{Buffer, Loan};
use slab::Slab;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A finished operation and its buffer.
#[derive(Debug)]
pub struct Done {
    /// The buffer; empty for operations that had none, the word's bytes for atomic ones.
    pub buf: Vec<u8>,
    /// The completion. Its context is internal.
    pub completion: Completion,
}

impl Done {
    /// The previous value of the word that an atomic operation changed; `None` for other
    /// operations.
    pub fn word(&self) -> Option<u64> {
        let is_atomic = self.completion.flags.contains(OpFlags::ATOMIC);
        self.buf.first_chunk().filter(|_| is_atomic).map(|word| u64::from_ne_bytes(*word))
    }
}

/// A failed operation and its buffer.
#[derive(Debug)]
pub struct Failed {
    /// The buffer.
    pub buf: Vec<u8>,
    /// Why it failed.
    pub failure: Failure,
}

/// The buffers of one domain's operations, by context. Each endpoint of the domain has a handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loans(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table(Slab<Loan>);

impl Drop for Table {
    fn drop(&mut self) {
        // The last handle is gone: every endpoint is closed and no longer uses its buffers.
        self.0.drain().for_each(|loan| drop(loan.end()));
    }
}

impl Loans {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a buffer to an operation until [`Self::take_back`] with the returned context, which is
    /// never 0.
    pub(crate) fn lend(&self, bytes: Vec<u8>) -> (usize, Buffer) {
        let (loan, buffer) = Loan::new(bytes);
        (self.lock().0.insert(loan) + 1, buffer)
    }

    /// Takes the buffer of that context back; empty if there is none.
    pub(crate) fn take_back(&self, context: usize) -> Vec<u8> {
        let loan = context.checked_sub(1).and_then(|key| self.lock().0.try_remove(key));
        loan.map(Loan::end).unwrap_or_default()
    }
}
