//! Buffers in flight: owned by this table from the call to the completion, so that the engine may
//! work on them.
#![allow(unsafe_code)]

use ofi_core::{Completion, Failure};
use ofi_memory::{Buffer, Span};
use slab::Slab;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A finished operation and its buffer.
#[derive(Debug)]
pub struct Done {
    /// The buffer; empty for operations that had none.
    pub buf: Vec<u8>,
    /// The completion. Its context is internal.
    pub completion: Completion,
}

/// A failed operation and its buffer.
#[derive(Debug)]
pub struct Failed {
    /// The buffer.
    pub buf: Vec<u8>,
    /// Why it failed.
    pub failure: Failure,
}

/// The buffers of one domain's operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flights(Arc<Mutex<Slab<Vec<u8>>>>);

impl Flights {
    fn lock(&self) -> MutexGuard<'_, Slab<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a buffer until [`Self::arrive`] with the returned context, which is never 0.
    pub(crate) fn depart(&self, mut buf: Vec<u8>) -> (usize, Buffer) {
        // SAFETY: the bytes are on the heap and stay where they are until `arrive` takes the vector
        // out, which happens only with the operation's completion or its refusal; no other code can
        // reach them meanwhile.
        let span = unsafe { Span::new(buf.as_mut_ptr(), buf.len()) };
        (self.lock().insert(buf) + 1, Buffer::One(span))
    }

    /// Takes the buffer of that context out; empty if there is none.
    pub(crate) fn arrive(&self, context: usize) -> Vec<u8> {
        context.checked_sub(1).and_then(|key| self.lock().try_remove(key)).unwrap_or_default()
    }
}
