//! Memory that a test lends to an endpoint.
//! Invariant: [`crate::Side`] ends a loan only when the operation has completed, was refused, or
//! its endpoint is closed. A loan that never ends is leaked.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use ofi_core::MrAccess;
use ofi_memory::{Buffer, Reach, Region, Span};

/// Lent memory.
#[derive(Debug)]
pub(crate) struct Loan(NonNull<[u8]>);

// SAFETY: the loan owns its memory, whichever thread it is on.
unsafe impl Send for Loan {}
// SAFETY: shared references only copy bytes that the endpoint no longer writes (`copy`).
unsafe impl Sync for Loan {}

impl Loan {
    /// Lends these bytes; returns the loan and the buffer for the endpoint.
    pub(crate) fn new(bytes: Vec<u8>) -> (Self, Buffer) {
        let memory = NonNull::from(Box::leak(bytes.into_boxed_slice()));
        // SAFETY: the memory is freed by `end` only, whose callers keep the invariant of this
        // module.
        let span = unsafe { Span::new(memory.as_ptr().cast(), memory.len()) };
        (Self(memory), Buffer::One(span))
    }

    /// Lends these bytes as a region whose bytes offsets name.
    pub(crate) fn exposed(bytes: Vec<u8>, access: MrAccess, reach: Reach) -> (Self, Region) {
        let memory = NonNull::from(Box::leak(bytes.into_boxed_slice()));
        let range = (memory.as_ptr().cast::<u8>(), memory.len());
        // SAFETY: the memory is freed by `end` only, whose callers have closed the region.
        let region = unsafe { Region::new(&[range], 0, access, reach) };
        (Self(memory), region.expect("memory of ours has addresses"))
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// A copy of a message in the memory, which the endpoint has completed and no longer writes.
    pub(crate) fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at <= self.0.len() && len <= self.0.len() - at, "a message lies in its buffer");
        let mut out = vec![0; len];
        // SAFETY: `at` lies within the memory, as asserted above.
        let from = unsafe { self.0.cast::<u8>().add(at) };
        // SAFETY: `len` bytes from there lie within the memory, and `out` is as long.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(out.as_mut_slice()).cast(), len) };
        out
    }

    /// Takes the memory back.
    pub(crate) fn end(self) -> Vec<u8> {
        // SAFETY: `new` took the memory from a box, and the endpoint has given it back.
        unsafe { Box::from_raw(self.0.as_ptr()) }.into_vec()
    }
}
