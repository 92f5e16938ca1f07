//! Owned memory that is lent to an operation as a buffer, and taken back when the operation has
//! ended: completed, refused by its call, or closed with its endpoint.
//! Invariant: only [`Loan::end`] gives the memory up, and its callers call it only then. A loan
//! that is dropped leaks its memory, because the operation may still use it.
#![allow(unsafe_code)]

use crate::{Buffer, Span};
use core::fmt;
use core::mem::ManuallyDrop;

/// Lent memory, as its owner sees it.
#[must_use = "a loan that does not end leaks its memory"]
pub struct Loan {
    span: Span,
    memory: ManuallyDrop<Vec<u8>>,
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the bytes, which the operation may be writing.
        f.debug_tuple("Loan").field(&self.span).finish()
    }
}

impl Loan {
    /// Lends these bytes: returns the loan, and the buffer for the operation.
    pub fn new(mut bytes: Vec<u8>) -> (Self, Buffer) {
        let (base, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the bytes are on the heap, where the vector leaves them until `end` takes it out,
        // after the operation has ended; until then no code reaches them but through these spans.
        let span = || unsafe { Span::new(base, len) };
        (Self { span: span(), memory: ManuallyDrop::new(bytes) }, Buffer::One(span()))
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.span.address()
    }

    /// A copy of `len` bytes from offset `at` on, as far as there are any: a message that the
    /// operation no longer writes. It may still write other parts of the memory.
    pub fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.span.chunk(at, len).append_to(&mut out);
        out
    }

    /// Takes the memory back. Only after the operation has ended.
    pub fn end(self) -> Vec<u8> {
        ManuallyDrop::into_inner(self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_as_the_operation_left_it() {
        let (loan, mut buffer) = Loan::new(vec![1; 8]);
        let address = loan.address();
        assert_eq!((buffer.len(), buffer.address()), (8, address));
        assert_eq!(buffer.write_at(6, b"abc"), 2);
        drop(buffer);
        let bytes = loan.end();
        assert_eq!((bytes.as_ptr().addr(), &bytes[..]), (address, &b"\x01\x01\x01\x01\x01\x01ab"[..]));
    }

    #[test]
    fn one_message_can_be_copied_while_the_next_arrives() {
        let (loan, mut rest) = Loan::new(vec![0; 8]);
        let mut message = rest.split_front(3).expect("it is one piece");
        assert_eq!((message.write_at(0, b"one"), rest.write_at(0, b"tw")), (3, 2));
        assert_eq!(loan.copy(0, 3), b"one");
        assert_eq!((loan.copy(6, 3), loan.copy(9, 1)), (vec![0, 0], vec![]), "there are no more bytes");
        drop((message, rest));
        assert_eq!(loan.end(), b"onetw\0\0\0");
    }
}
