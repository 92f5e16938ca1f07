//! Completion queues: the ends of many operations, in the order in which they come.

use crate::fabric::Domain;
use crate::operation::{Completion, Operation, OperationError};
use crate::operations::Operations;
use crate::pump::Pump;
use crate::reactor;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use ofi_core::error::Result;
use ofi_core::{Errno, Error};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

/// A queue of operations' ends (fi_cq(3)), for programs that keep many operations in progress and
/// handle whichever ends first: each operation has a context `T`, and its buffer comes back with
/// its completion. The operations may be of several endpoints of one domain.
///
/// It needs no executor: [`Self::read`] makes progress and never waits. [`Self::next`] waits, in
/// any task or in [`block_on`](crate::block_on). Dropping the queue cancels its operations.
///
/// ```
/// # use ofi::{CompletionQueue, EndpointType, Fabric, Info, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// # let ep = RdmEndpoint::open(&domain, &info)?;
/// # let me = ep.peer(ep.local_addr()?)?;
/// let mut queue = CompletionQueue::open(&domain);
/// for context in 0..4 {
///     queue.push(context, ep.receive(vec![0u8; 64]))?;
/// }
/// drop(ofi::block_on(ep.send(me, "hello")));
/// let entry = ofi::block_on(queue.next()).expect("operations are in progress");
/// assert_eq!((entry.context, entry.result?.len(), &entry.buffer[..5]), (0, 5, &b"hello"[..]));
/// # Ok::<(), ofi::Error>(())
/// ```
pub struct CompletionQueue<'a, T, B: 'static> {
    pump: Arc<Operations>,
    entries: Slab<Entry<'a, T, B>>,
    ready: Arc<Ready>,
    /// Ends that were returned since the last turn.
    since_turn: u32,
}

enum Entry<'a, T, B: 'static> {
    Running(T, Operation<'a, B>),
    Ended(QueueEntry<T, B>),
}

/// Ends that are returned without a turn in between: short sends alone could go on for long.
const MOST: u32 = 16;

impl<T, B> fmt::Debug for CompletionQueue<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The end of an operation, from a [`CompletionQueue`].
///
/// ```
/// # use ofi::QueueEntry;
/// fn report(entry: QueueEntry<&str, Vec<u8>>) -> Vec<u8> {
///     match entry.result {
///         Ok(completion) => println!("{}: {} bytes", entry.context, completion.len()),
///         Err(why) => println!("{}: {why}", entry.context),
///     }
///     entry.buffer
/// }
/// ```
#[derive(Debug)]
pub struct QueueEntry<T, B> {
    /// What was given with the operation.
    pub context: T,
    /// The completion, or why the operation failed.
    pub result: Result<Completion, OperationError>,
    /// The operation's buffer.
    pub buffer: B,
}

/// The operations that may have ended, by their places, and the task that waits for one.
#[derive(Debug, Default)]
struct Ready(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    places: VecDeque<usize>,
    task: Option<Waker>,
}

impl Ready {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the end of the operation at a place.
struct Report {
    place: usize,
    ready: Arc<Ready>,
}

impl Wake for Report {
    fn wake(self: Arc<Self>) {
        let mut found = self.ready.found();
        found.places.push_back(self.place);
        let task = found.task.take();
        drop(found);
        task.into_iter().for_each(Waker::wake);
    }
}

impl<'a, T, B: 'static> CompletionQueue<'a, T, B> {
    /// An empty queue for operations of the domain (fi_cq_open). It has room for any number.
    pub fn open(domain: &Domain) -> Self {
        Self { pump: domain.0.pump.clone(), entries: Slab::new(), ready: Arc::default(), since_turn: 0 }
    }

    /// Adds an operation, whose end [`Self::read`] will return.
    ///
    /// # Errors
    /// EINVAL for an operation of another domain, which is cancelled, and for one whose result was
    /// taken.
    pub fn push(&mut self, context: T, operation: Operation<'a, B>) -> Result<()> {
        if !operation.is_of(&self.pump) || operation.is_taken() {
            return Err(Error::new(Errno::EINVAL, "push an operation that is not the queue's domain's, or was taken"));
        }
        self.insert(context, operation);
        Ok(())
    }

    fn insert(&mut self, context: T, mut operation: Operation<'a, B>) {
        let place = self.entries.vacant_key();
        let report = Waker::from(Arc::new(Report { place, ready: self.ready.clone() }));
        let entry = match operation.take_or_wake(&report) {
            Some((result, buffer)) => {
                self.ready.found().places.push_back(place);
                Entry::Ended(QueueEntry { context, result, buffer })
            }
            None => Entry::Running(context, operation),
        };
        self.entries.insert(entry);
    }

    /// How many operations it has: in progress, or ended and not read.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no operation.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes progress, at the latest after a few ends; the oldest end that was not read, if there
    /// is one (fi_cq_read).
    pub fn read(&mut self) -> Option<QueueEntry<T, B>> {
        if self.since_turn < MOST
            && let Some(entry) = self.take()
        {
            self.since_turn += 1;
            return Some(entry);
        }
        self.since_turn = 0;
        self.pump.turn();
        self.take()
    }

    fn take(&mut self) -> Option<QueueEntry<T, B>> {
        loop {
            let place = self.ready.found().places.pop_front()?;
            match self.entries.try_remove(place) {
                Some(Entry::Ended(entry)) => return Some(entry),
                Some(Entry::Running(context, mut operation)) => match operation.take_ended() {
                    Some((result, buffer)) => return Some(QueueEntry { context, result, buffer }),
                    // A reactor has stopped, and has woken all tasks: the operation reports again.
                    None => self.insert(context, operation),
                },
                // The operation has reported twice.
                None => {}
            }
        }
    }

    /// Waits for the end of an operation (fi_cq_sread); `None` if there is none in progress.
    /// Dropping the future loses none.
    ///
    /// # Panics
    /// As an [`Operation`] that is awaited where no reactor would wake it.
    pub async fn next(&mut self) -> Option<QueueEntry<T, B>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Self::next`], for futures that are written by hand.
    ///
    /// # Panics
    /// As for [`Self::next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<QueueEntry<T, B>>> {
        let waker = context.waker().clone();
        let mut found = loop {
            if let Some(entry) = self.read() {
                return Poll::Ready(Some(entry));
            }
            if self.entries.is_empty() {
                return Poll::Ready(None);
            }
            let found = self.ready.found();
            if found.places.is_empty() {
                break found;
            }
        };
        let replaced = found.task.replace(waker);
        drop(found);
        // Without the lock: it may be the last one of a task.
        drop(replaced);
        reactor::watch(&self.pump, context.waker());
        Poll::Pending
    }
}
