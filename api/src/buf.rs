//! Buffers of operations: which types may be one, and how the engine borrows their bytes.
//! An operation owns its buffer: [`Kept`] holds it where nothing touches it until the engine has
//! given the bytes back. Invariant: only [`Kept::end`] gives the buffer up; its callers, all in
//! `table.rs`, promise that the operation has completed, was refused, or its endpoint is closed. A
//! `Kept` that is dropped leaks its buffer, because the engine may still use it.
#![allow(unsafe_code)]

use crate::element::Element;
use crate::engine::Engine;
use core::fmt;
use core::mem::ManuallyDrop;
use ofi_core::{FiAddr, OpFlags};
use ofi_engine::op::SendOp;
use ofi_memory::{Buffer, Erased, Span};
use std::sync::Arc;

/// A buffer whose bytes an operation may send or write to a peer.
///
/// The operation keeps the value, and the address of its bytes, until it ends, and nothing touches
/// the value meanwhile. It may move a value whose bytes lie elsewhere, as those of a vector.
///
/// ```
/// use ofi::IoBuf;
/// struct Record { header: [u8; 4], _id: u64 }
/// impl IoBuf for Record {
///     fn bytes(&self) -> &[u8] {
///         &self.header
///     }
/// }
/// assert_eq!(Record { header: *b"head", _id: 1 }.bytes(), b"head");
/// ```
pub trait IoBuf: Send + 'static {
    /// The bytes to send.
    fn bytes(&self) -> &[u8];
}

/// A buffer into which an operation may receive, or read a peer's memory.
///
/// All of [`Self::bytes_mut`] is used: a vector receives as many bytes as its length says, not its
/// capacity.
///
/// ```
/// use ofi::IoBufMut;
/// let mut buf = vec![0; 16];
/// assert_eq!(buf.bytes_mut().len(), 16);
/// ```
pub trait IoBufMut: Send + 'static {
    /// The bytes to fill.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Types that own bytes which can be changed.
macro_rules! owners {
    ($($(#[$attr:meta])* [$($generics:tt)*] $owner:ty;)*) => {$(
        $(#[$attr])*
        impl<$($generics)*> IoBuf for $owner {
            fn bytes(&self) -> &[u8] {
                self.as_ref()
            }
        }
        $(#[$attr])*
        impl<$($generics)*> IoBufMut for $owner {
            fn bytes_mut(&mut self) -> &mut [u8] {
                self.as_mut()
            }
        }
    )*};
}

/// Types whose bytes can only be read.
macro_rules! readers {
    ($($(#[$attr:meta])* $reader:ty: $bytes:ident;)*) => {$(
        $(#[$attr])*
        impl IoBuf for $reader {
            fn bytes(&self) -> &[u8] {
                self.$bytes()
            }
        }
    )*};
}

owners! {
    [] Vec<u8>;
    [] Box<[u8]>;
    [const N: usize] [u8; N];
    [const N: usize] Box<[u8; N]>;
    #[cfg(feature = "bytes")]
    [] bytes::BytesMut;
}

readers! {
    &'static [u8]: as_ref;
    &'static str: as_bytes;
    String: as_bytes;
    Arc<[u8]>: as_ref;
    Arc<Vec<u8>>: as_slice;
    Arc<str>: as_bytes;
    #[cfg(feature = "bytes")]
    bytes::Bytes: as_ref;
}

impl IoBuf for () {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

impl IoBufMut for () {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }
}

impl<const N: usize> IoBuf for &'static [u8; N] {
    fn bytes(&self) -> &[u8] {
        *self
    }
}

/// The bytes of numbers.
pub(crate) fn bytes_of<T: Element>(numbers: &[T]) -> &[u8] {
    // SAFETY: an element is a primitive number (the trait is sealed): all of its bytes are
    // initialized, and there is nothing between two of them.
    unsafe { core::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The same, to be changed.
pub(crate) fn bytes_of_mut<T: Element>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above; and any bytes make a number.
    unsafe { core::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// A buffer that an operation owns.
pub(crate) struct Kept {
    owner: ManuallyDrop<Erased>,
    base: *mut u8,
    len: usize,
}

// SAFETY: the owner is `Send`; the address is one of its bytes, which only buffers made of it
// reach.
unsafe impl Send for Kept {}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the bytes, which the engine may be writing.
        f.debug_struct("Kept").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Kept {
    /// Keeps a buffer to send from.
    #[inline]
    pub(crate) fn to_send<B: IoBuf>(buf: B) -> Self {
        // Transports only read from the buffer of a send.
        let bytes = |buf: &mut B| {
            let bytes = buf.bytes();
            (bytes.as_ptr().cast_mut(), bytes.len())
        };
        Self::of(buf, bytes)
    }

    /// Keeps a buffer to fill.
    #[inline]
    pub(crate) fn to_fill<B: IoBufMut>(buf: B) -> Self {
        let bytes = |buf: &mut B| {
            let bytes = buf.bytes_mut();
            (bytes.as_mut_ptr(), bytes.len())
        };
        Self::of(buf, bytes)
    }

    /// Keeps a buffer whose bytes have this address and length. From here on only `end` makes a
    /// reference to it.
    #[inline]
    fn of<B: Send + 'static>(buf: B, bytes: impl Fn(&mut B) -> (*mut u8, usize)) -> Self {
        let (owner, (base, len)) = Erased::new(buf, bytes);
        Self { owner: ManuallyDrop::new(owner), base, len }
    }

    /// Length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes as a buffer of the engine.
    ///
    /// # Safety
    /// No other buffer of these bytes exists, and this one is no longer used once [`Self::end`] has
    /// been called.
    pub(crate) const unsafe fn lend(&self) -> Buffer {
        // SAFETY: the bytes stay where they are until `end`, after which the caller uses the buffer
        // no more.
        Buffer::One(unsafe { Span::new(self.base, self.len) })
    }

    /// Sends the bytes if that is done when the call returns; otherwise returns the buffer.
    #[inline]
    pub(crate) fn try_send(
        self,
        engine: &Engine,
        dest: FiAddr,
        (tag, data): (Option<u64>, Option<u64>),
        flags: OpFlags,
    ) -> Result<Erased, Self> {
        // SAFETY: it is the only buffer, and dropped below, before the end.
        let buffer = unsafe { self.lend() };
        let op = SendOp { dest, buffer, context: 0, tag, data, flags, inject: false };
        let sent = engine.messages.try_send(&op);
        drop(op);
        if sent {
            // SAFETY: the buffer is dropped, and `try_send` keeps none.
            return Ok(unsafe { self.end() });
        }
        Err(self)
    }

    /// Gives the buffer up.
    ///
    /// # Safety
    /// No buffer that [`Self::lend`] has returned is used any more.
    #[inline]
    pub(crate) unsafe fn end(self) -> Erased {
        ManuallyDrop::into_inner(self.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_as_the_operation_left_it() {
        let kept = Kept::to_fill([1u8; 8]);
        // SAFETY: it is the only buffer, and dropped before the end.
        let mut buffer = unsafe { kept.lend() };
        assert_eq!((kept.len(), buffer.len(), buffer.write_at(6, b"abc")), (8, 8, 2));
        drop(buffer);
        // SAFETY: the buffer is dropped.
        let back = unsafe { kept.end() }.take::<[u8; 8]>().unwrap();
        assert_eq!(back, *b"\x01\x01\x01\x01\x01\x01ab");
    }

    #[test]
    fn a_shared_slice_is_sent_from_where_it_is() {
        let shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
        let kept = Kept::to_send(shared.clone());
        // SAFETY: it is the only buffer, and dropped at once.
        assert_eq!(unsafe { kept.lend() }.address(), shared.as_ptr().addr());
        assert_eq!(Arc::strong_count(&shared), 2);
        // SAFETY: the buffer is dropped.
        drop(unsafe { kept.end() });
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn a_buffer_that_is_not_given_up_leaks() {
        let shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
        let _kept = Kept::to_send(shared.clone());
        assert_eq!(Arc::strong_count(&shared), 2, "the engine may still read it");
    }
}
