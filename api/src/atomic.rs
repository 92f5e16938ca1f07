//! The future of atomic operations on a peer's memory.

use crate::element::Element;
use crate::operation::{Operation, OperationError};
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

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
