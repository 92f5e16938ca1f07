//! Atomic operations on a peer's memory: their element types and their future.

use crate::operation::{Operation, OperationError};
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use ofi_core::atomic::Datatype;

/// A type of elements that atomic operations change (fi_atomic(3)): integers and floating-point
/// numbers of 8 to 64 bits, in the byte order of the machine.
///
/// ```
/// fn is_element<T: ofi::Element>() {}
/// is_element::<u64>();
/// is_element::<f32>();
/// ```
pub trait Element: Copy + Send + sealed::Sealed + 'static {
    /// The interface's name of the type.
    #[doc(hidden)]
    const DATATYPE: Datatype;
    /// The element in the low bytes of a word.
    #[doc(hidden)]
    fn to_word(self) -> u64;
    /// The element that has these bytes.
    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty as $bits:ty: $datatype:ident;)*) => {$(
        impl sealed::Sealed for $element {}
        impl Element for $element {
            const DATATYPE: Datatype = Datatype::$datatype;
            fn to_word(self) -> u64 {
                u64::from(<$bits>::from_ne_bytes(self.to_ne_bytes()))
            }
            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_ne_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}

elements! {
    u8 as u8: Uint8;
    u16 as u16: Uint16;
    u32 as u32: Uint32;
    u64 as u64: Uint64;
    i8 as u8: Int8;
    i16 as u16: Int16;
    i32 as u32: Int32;
    i64 as u64: Int64;
    f32 as u32: Float;
    f64 as u64: Double;
}

/// An atomic operation that returns the previous value of an element: a future of it.
///
/// Dropping it cancels the operation, as [`Operation`], only if its request has not left: a request
/// that has left is carried out, and its result is lost.
///
/// ```no_run
/// # use ofi::{Error, Peer, RdmEndpoint, RemoteKey};
/// # async fn example(ep: &RdmEndpoint, peer: Peer, counter: RemoteKey) -> Result<(), Error> {
/// let ticket: u64 = ep.fetch_add(peer, counter, 1).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping an operation cancels it"]
pub struct Fetch<'a, T> {
    operation: Operation<'a, Vec<u8>>,
    element: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Fetch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fetch").field(&self.operation).finish()
    }
}

impl<'a, T: Element> Fetch<'a, T> {
    pub(crate) const fn new(operation: Operation<'a, Vec<u8>>) -> Self {
        Self { operation, element: PhantomData }
    }

    /// As [`Operation::timeout`].
    pub fn timeout(self, limit: std::time::Duration) -> Self {
        Self::new(self.operation.timeout(limit))
    }

    /// As [`Operation::cancel`].
    pub fn cancel(&self) {
        self.operation.cancel();
    }

    /// As [`Operation::try_finish`].
    pub fn try_finish(&mut self) -> Option<Result<T, OperationError>> {
        let (result, bytes) = self.operation.try_finish()?;
        Some(element_of(result, &bytes))
    }
}

fn element_of<T: Element, C>(result: Result<C, OperationError>, bytes: &[u8]) -> Result<T, OperationError> {
    result.map(|_| T::from_bytes(bytes).expect("the buffer has the size of the element"))
}

impl<T: Element> Future for Fetch<'_, T> {
    type Output = Result<T, OperationError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let operation = Pin::new(&mut self.get_mut().operation);
        operation.poll(context).map(|(result, bytes)| element_of(result, &bytes))
    }
}
