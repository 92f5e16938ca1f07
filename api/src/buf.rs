//! Buffers of operations: which types may be one, and how the engine borrows their bytes.
//! An operation owns its buffer: [`Kept`] holds it where nothing touches it until the engine has
//! given the bytes back. Invariant: only [`Kept::end`] and [`Kept::end_in_place`] give the buffer
//! up, once; their callers, all in `table.rs`, promise that the operation has completed, was
//! refused, or its endpoint is closed. A `Kept` that is dropped leaks its buffer, because the
//! engine may still use it.
#![allow(unsafe_code)]

use crate::element::Element;
use crate::engine::Engine;
use core::mem::ManuallyDrop;
use ofi_core::FiAddr;
use ofi_memory::{Erased, Span};
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

/// Sends a buffer if that is done when the call returns; otherwise false, and nothing has happened.
#[inline(always)]
pub(crate) fn try_send<B: IoBuf>(
    engine: &Engine,
    dest: FiAddr,
    (tag, data): (Option<u64>, Option<u64>),
    buf: &B,
) -> bool {
    let bytes = buf.bytes();
    // SAFETY: the call only reads the bytes, and keeps no buffer of them.
    let span = unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) };
    engine.messages.try_send(span, dest, tag, data)
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
#[derive(Debug)]
pub(crate) struct Kept(ManuallyDrop<Erased>);

/// Where the bytes of a buffer lie that is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    base: *mut u8,
    len: usize,
}

// SAFETY: the buffer is `Send`; its bytes are reached only by what is made of this address, once it
// is lent.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Length in bytes.
    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// The bytes, for a buffer of the engine.
    ///
    /// # Safety
    /// No other buffer of these bytes exists, and this one is no longer used once the [`Kept`] has
    /// been given up.
    pub(crate) const unsafe fn lend(self) -> Span {
        // SAFETY: the bytes stay where they are until then, after which the caller uses the buffer
        // no more.
        unsafe { Span::new(self.base, self.len) }
    }
}

impl Kept {
    /// Keeps a buffer to send from.
    #[inline(always)]
    pub(crate) fn to_send<B: IoBuf>(buf: B) -> (Self, Bytes) {
        // Transports only read from the buffer of a send.
        let bytes = |buf: &mut B| {
            let bytes = buf.bytes();
            (bytes.as_ptr().cast_mut(), bytes.len())
        };
        Self::of(buf, bytes)
    }

    /// Keeps a buffer to fill.
    #[inline(always)]
    pub(crate) fn to_fill<B: IoBufMut>(buf: B) -> (Self, Bytes) {
        let bytes = |buf: &mut B| {
            let bytes = buf.bytes_mut();
            (bytes.as_mut_ptr(), bytes.len())
        };
        Self::of(buf, bytes)
    }

    /// Keeps a buffer; `bytes` says where its bytes lie. From here on nothing makes a reference to
    /// it before it is given up.
    #[inline(always)]
    fn of<B: Send + 'static>(buf: B, bytes: impl Fn(&mut B) -> (*mut u8, usize)) -> (Self, Bytes) {
        let (owner, (base, len)) = Erased::new(buf, bytes);
        (Self(ManuallyDrop::new(owner)), Bytes { base, len })
    }

    /// The same buffer once more; only one of the two is to be given up.
    pub(crate) fn duplicate(&self) -> Self {
        // SAFETY: neither drops the value, and `end` obliges its caller to give up only one.
        Self(ManuallyDrop::new(unsafe { self.0.duplicate() }))
    }

    /// Gives the buffer up.
    ///
    /// # Safety
    /// No buffer that [`Bytes::lend`] has returned is used any more, and the buffer has not been
    /// given up before, nor will be again.
    pub(crate) unsafe fn end(self) -> Erased {
        ManuallyDrop::into_inner(self.0)
    }

    /// Gives the buffer up, from where it lies.
    ///
    /// # Panics
    /// If it is of another type than is asked for.
    ///
    /// # Safety
    /// As for [`Self::end`].
    #[inline(always)]
    pub(crate) unsafe fn end_in_place<G: GivenUp>(&self) -> G {
        // SAFETY: this function's contract; this drops nothing.
        unsafe { G::read(&self.0) }
    }
}

/// A form in which a buffer is given up.
pub(crate) trait GivenUp: Sized {
    /// Reads it from where it lies.
    ///
    /// # Safety
    /// From here on nothing uses or drops `owner`.
    unsafe fn read(owner: &Erased) -> Self;
}

/// A small buffer by itself, whose words are read at once.
pub(crate) struct Small<B>(pub(crate) B);

impl<B: 'static> GivenUp for Small<B> {
    #[inline(always)]
    unsafe fn read(owner: &Erased) -> Self {
        // SAFETY: this function's contract.
        Self(unsafe { owner.read() })
    }
}

/// Any buffer as it was kept: a large one is not moved about.
impl GivenUp for Erased {
    #[inline(always)]
    unsafe fn read(owner: &Erased) -> Self {
        // SAFETY: this function's contract.
        unsafe { owner.duplicate() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_memory::Buffer;

    #[test]
    fn a_buffer_comes_back_as_the_operation_left_it() {
        let (kept, bytes) = Kept::to_fill([1u8; 8]);
        // SAFETY: it is the only buffer, and dropped before the end.
        let mut buffer = Buffer::One(unsafe { bytes.lend() });
        assert_eq!((bytes.len(), buffer.len(), buffer.write_at(6, b"abc")), (8, 8, 2));
        drop(buffer);
        // SAFETY: the buffer is dropped.
        let back = unsafe { kept.end() }.take::<[u8; 8]>();
        assert_eq!(back, *b"\x01\x01\x01\x01\x01\x01ab");
    }

    #[test]
    fn a_shared_slice_is_sent_from_where_it_is() {
        let shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
        let (kept, bytes) = Kept::to_send(shared.clone());
        // SAFETY: it is the only buffer, and dropped at once.
        assert_eq!(Buffer::One(unsafe { bytes.lend() }).address(), shared.as_ptr().addr());
        assert_eq!(Arc::strong_count(&shared), 2);
        // SAFETY: the buffer is dropped.
        drop(unsafe { kept.end() });
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn a_buffer_that_is_not_given_up_leaks() {
        let shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
        {
            let _kept = Kept::to_send(shared.clone());
        }
        assert_eq!(Arc::strong_count(&shared), 2, "the engine may still read it");
        // SAFETY: the other one has leaked, and nothing uses it.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&shared)) };
    }
}
