//! The futures of operations.

use crate::av::Peer;
use crate::buf::{GivenUp, Small};
use crate::entries::{Done, Outcome};
use crate::inner::Inner;
use crate::operations::Operations;
use crate::parker;
use crate::reactor;
use crate::table::Found;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use ofi_core::{Cause, Errno, Error, Failure, FiAddr, OpFlags};
use ofi_memory::Erased;
use std::sync::Arc;
use std::time::Duration;

/// What a finished operation reports (fi_cq(3), `struct fi_cq_tagged_entry`).
///
/// ```no_run
/// # async fn example(ep: &ofi::RdmEndpoint) -> Result<(), ofi::OperationError> {
/// let (result, buf) = ep.receive(vec![0; 1024]).await;
/// let message = &buf[..result?.len()];
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    flags: OpFlags,
    len: usize,
    data: u64,
    tag: u64,
    source: Option<Peer>,
}

#[allow(clippy::len_without_is_empty, reason = "a length of 0 is nothing special")]
impl Completion {
    /// Bytes of a received message; for other operations, of the buffer.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The tag of a received message; `None` for one without (fi_tagged(3)).
    pub fn tag(&self) -> Option<u64> {
        self.flags.contains(OpFlags::TAGGED).then_some(self.tag)
    }

    /// The data that the sender gave for the completion (FI_REMOTE_CQ_DATA, fi_cq(3)).
    pub fn data(&self) -> Option<u64> {
        self.flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(self.data)
    }

    /// The sender of a received message, if the address vector has its address and the endpoint
    /// has the capability [`Caps::SOURCE`](crate::Caps::SOURCE) (fi_cq_readfrom).
    pub const fn source(&self) -> Option<Peer> {
        self.source
    }

    /// What the operation was, and which values are valid, as the interface's flags.
    pub const fn flags(&self) -> OpFlags {
        self.flags
    }
}

/// Why an operation failed (fi_cq(3), `struct fi_cq_err_entry`).
///
/// ```
/// # use ofi::{EndpointType, Errno, Fabric, Info, RdmEndpoint};
/// let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// let domain = Fabric::open(&info)?.domain(&info)?;
/// let ep = RdmEndpoint::open(&domain, &info)?;
/// let receive = ep.receive(vec![0; 8]);
/// receive.cancel();
/// let (result, _buf) = ofi::block_on(receive);
/// assert_eq!(result.unwrap_err().errno(), Errno::ECANCELED);
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationError(Box<Failure>);

impl OperationError {
    /// The error number: ECANCELED after [`Operation::cancel`], ETIMEDOUT after
    /// [`Operation::timeout`], ETRUNC for a message that is longer than its buffer.
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// What the provider says about the cause.
    pub fn cause(&self) -> Cause {
        self.0.cause
    }

    /// How many bytes of a message were cut off, because its receive buffer was too short.
    pub fn cut_off(&self) -> usize {
        self.0.olen
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.text, self.0.errno)
    }
}

impl core::error::Error for OperationError {}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        Self::new(error.0.errno, &*error.0.text)
    }
}

/// An operation that was posted: a future of its result and its buffer.
///
/// It is posted by the call that returns it, not by its first poll, so that a program can have many
/// in progress. The endpoint posts what it has no room for later, in order. The operation owns its
/// buffer until it ends, and then gives it back.
///
/// - Dropping it cancels the operation: a receive no longer takes a message, unless it has one
///   already, which is lost. A send or an access that has begun goes on. The buffer is freed when
///   the endpoint no longer uses it.
/// - Forgetting it (`mem::forget`) leaves the operation and its buffer to the endpoint, which frees
///   the buffer when it closes.
///
/// It can be awaited in any executor if ofi is built with the feature `async-io`, in a tokio
/// runtime with `tokio`, and always in [`block_on`](crate::block_on).
///
/// # Panics
/// If it is polled elsewhere, where no reactor would wake it.
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// let ep = RdmEndpoint::open(&domain, &info)?;
/// let me = ep.peer(ep.local_addr()?)?;
/// let receive = ep.receive([0u8; 5]);
/// let send = ep.send(me, "hello");
/// let (received, sent) = ofi::block_on(async { (receive.await, send.await) });
/// assert_eq!((received.0?.len(), &received.1, sent.1), (5, b"hello", "hello"));
/// # Ok::<(), ofi::Error>(())
/// ```
#[must_use = "dropping an operation cancels it"]
pub struct Operation<'a, B> {
    /// Its endpoint.
    on: &'a Inner,
    /// What names it to the table of operations; 0 once its result was taken. Two words in all,
    /// which registers return.
    context: usize,
    buffer: PhantomData<B>,
}

/// The buffer is never pinned.
impl<B> Unpin for Operation<'_, B> {}

impl<B> fmt::Debug for Operation<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("context", &self.context).finish_non_exhaustive()
    }
}

impl<'a, B: 'static> Operation<'a, B> {
    pub(crate) const fn new(on: &'a Inner, context: usize) -> Self {
        Self { on, context, buffer: PhantomData }
    }

    /// Asks for the end of the operation: it then fails with ECANCELED, unless it completes before
    /// (fi_cancel(3)). Awaiting it gives the buffer back.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// let receive = ep.receive(vec![0; 8]);
    /// receive.cancel();
    /// let (result, buf) = ofi::block_on(receive);
    /// assert!(result.is_err() && buf.len() == 8);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.on.pump().cancel(self.context);
    }

    /// Cancels the operation if it has not ended within this time from now; it then fails with
    /// ETIMEDOUT. One that can no longer be cancelled, such as a send whose bytes are on their way,
    /// ends when the peer takes it or is found to be gone.
    ///
    /// ```
    /// # use ofi::{EndpointType, Errno, Fabric, Info, RdmEndpoint};
    /// # use std::time::Duration;
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// let receive = ep.receive(vec![0; 8]).timeout(Duration::from_millis(10));
    /// let (result, _buf) = ofi::block_on(receive);
    /// assert_eq!(result.unwrap_err().errno(), Errno::ETIMEDOUT);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn timeout(self, limit: Duration) -> Self {
        self.on.pump().set_timeout(self.context, limit);
        self
    }

    /// The result and the buffer if the operation has ended, without waiting. Makes progress.
    /// Afterwards only dropping the operation is left to do.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// let mut receive = ep.receive(vec![0; 8]);
    /// assert!(receive.try_finish().is_none(), "there is no message");
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn try_finish(&mut self) -> Option<(Result<Completion, OperationError>, B)> {
        let pump = self.on.pump();
        let (outcome, owner) = pump.try_take(self.context).or_else(|| pump.turn_for(self.context))?;
        Some(self.finish(outcome, owner.take()))
    }

    /// Whether it is an operation of this pump.
    pub(crate) fn is_of(&self, pump: &Arc<Operations>) -> bool {
        Arc::ptr_eq(self.on.pump(), pump)
    }

    /// Whether its result was taken.
    pub(crate) const fn is_taken(&self) -> bool {
        self.context == 0
    }

    /// The result and the buffer if the operation has ended. Makes no progress.
    pub(crate) fn take_ended(&mut self) -> Option<(Result<Completion, OperationError>, B)> {
        let (outcome, owner) = self.on.pump().try_take(self.context)?;
        Some(self.finish(outcome, owner.take()))
    }

    /// The same; otherwise the turn that finds its end will wake `waker`.
    pub(crate) fn take_or_wake(&mut self, waker: &Waker) -> Option<(Result<Completion, OperationError>, B)> {
        let (outcome, owner) = self.on.pump().take(self.context, waker)?;
        Some(self.finish(outcome, owner.take()))
    }

    /// The first look of a poll, and perhaps a moment's wait.
    #[inline(always)]
    fn look<G: GivenUp>(&self) -> Option<(Done, G)> {
        let pump = self.on.pump();
        match pump.look_at(self.context) {
            Found::Ended(done, buffer) => Some((done, buffer)),
            Found::Alone => parker::moment(pump, self.context),
            Found::Other => None,
        }
    }

    /// The rest of a poll.
    #[inline(never)]
    fn poll_on(&mut self, context: &mut Context<'_>) -> Poll<(Result<Completion, OperationError>, B)> {
        let pump = self.on.pump();
        let ended = pump.try_take(self.context).or_else(|| pump.turn_for(self.context));
        // The waker only now: most operations that do not wait for the peer have ended.
        if let Some((outcome, owner)) = ended.or_else(|| pump.take(self.context, context.waker())) {
            return Poll::Ready(self.finish(outcome, owner.take()));
        }
        reactor::watch(pump, context.waker());
        Poll::Pending
    }

    #[inline(always)]
    fn finish(&mut self, outcome: Outcome, buffer: B) -> (Result<Completion, OperationError>, B) {
        self.context = 0;
        let av = &self.on.av;
        let source = |handle| if handle == FiAddr::UNSPEC { None } else { av.peer_of(handle) };
        let result = match outcome {
            Ok(Done { flags, len, data, tag, src }) => Ok(Completion { flags, len, data, tag, source: source(src) }),
            Err(failure) => Err(OperationError(failure)),
        };
        (result, buffer)
    }
}

impl<B: 'static> Future for Operation<'_, B> {
    type Output = (Result<Completion, OperationError>, B);

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!this.is_taken(), "an operation was polled after its end");
        let ended = if Erased::has_room_for::<B>() {
            this.look().map(|(done, Small(buffer))| (done, buffer))
        } else {
            this.look().map(|(done, owner): (_, Erased)| (done, owner.take()))
        };
        match ended {
            Some((done, buffer)) => Poll::Ready(this.finish(Ok(done), buffer)),
            None => this.poll_on(context),
        }
    }
}

impl<B> Drop for Operation<'_, B> {
    fn drop(&mut self) {
        if self.context != 0 {
            self.on.pump().abandon(self.context);
        }
    }
}
