//! The pump of a domain's operations: posts them, and reads the queue that reports their ends.

#[cfg(all(test, ofi_loom))]
mod models;

use crate::buf::{Bytes, GivenUp, Kept};
use crate::counting::Counting;
use crate::drivers::Drivers;
use crate::engine::{Engine, Post, What};
use crate::entries::Done;
use crate::pump::{OF_OPERATIONS, Pump, Timed};
use crate::table::{After, Ended, Found, Table};
use arrayvec::ArrayVec;
use core::fmt;
use core::task::Waker;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_engine::{CompletionQueue as Queue, Waiting, Watcher};
use ofi_memory::Span;
use ofi_os::membarrier;
use ofi_sync::lock::{LockKind, Park};
use ofi_sync::park::ParkCell;
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How often a send that its socket had no room for is tried again.
const RETRY: Duration = Duration::from_millis(1);
/// Completions that are read at once.
const BATCH: usize = 16;

/// Contexts of operations that have completed, and what is told of them.
type Read = ArrayVec<(usize, Done), BATCH>;

/// What a turn for one operation has found.
pub(crate) enum Turn<G> {
    /// The operation has completed; its buffer.
    Ended(Done, G),
    /// Something else, which may have ended it otherwise.
    Other,
    Nothing,
}

/// The pump of a domain's operations.
pub(crate) struct Operations {
    /// First: reactors stop before the descriptor is closed.
    drivers: Drivers,
    table: ParkCell<Table>,
    queue: Arc<Queue<Park>>,
    timed: Arc<Timed>,
    /// Operations wait for room or have a deadline: a turn looks at them also if nothing has ended.
    /// Written under the table's lock.
    is_due: AtomicBool,
    counting: Arc<Counting>,
    automatic: bool,
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").field("count", &Park::lock(&self.table).len()).finish_non_exhaustive()
    }
}

impl Operations {
    /// `automatic`: a thread turns it.
    pub(crate) fn new(automatic: bool) -> Result<Self> {
        Ok(Self::over(Timed::new()?, automatic))
    }

    /// Over this wait object.
    pub(crate) fn over(timed: Timed, automatic: bool) -> Self {
        let timed = Arc::new(timed);
        let queue = Queue::unbounded(membarrier::locks(), 256, timed.clone(), Waiting::Sleeping);
        let table = membarrier::locks().cell(Table::default());
        let (is_due, counting) = (AtomicBool::new(false), Arc::new(Counting::new(timed.clone())));
        Self { drivers: Drivers::default(), table, queue: Arc::new(queue), timed, is_due, counting, automatic }
    }

    pub(crate) const fn queue(&self) -> &Arc<Queue<Park>> {
        &self.queue
    }

    pub(crate) const fn timed(&self) -> &Arc<Timed> {
        &self.timed
    }

    /// The tasks that wait for counters.
    pub(crate) const fn counting(&self) -> &Arc<Counting> {
        &self.counting
    }

    pub(crate) fn add_endpoint(&self, engine: Arc<Engine>) -> usize {
        Park::lock(&self.table).add_endpoint(engine)
    }

    /// Closes an endpoint, and gives up the buffers of its operations.
    pub(crate) fn close_endpoint(&self, endpoint: usize, engine: &Engine) {
        engine.control.close();
        let after = Park::lock(&self.table).remove_endpoint(endpoint);
        after.run();
    }

    /// Starts a send or an access; returns its context.
    pub(crate) fn start(&self, endpoint: usize, engine: &Engine, post: &Post, kept: (Kept, Bytes)) -> usize {
        self.add((endpoint, false), kept, || *post, |context, span| post.issue(engine, context, span))
    }

    /// Adds a send that was done when its call returned; returns its context.
    #[inline(always)]
    pub(crate) fn sent(&self, endpoint: usize, tagged: bool, kept: (Kept, Bytes)) -> usize {
        Park::lock(&self.table).add_sent(endpoint, tagged, kept)
    }

    /// Starts a receive; returns its context. Always inlined: arguments that are passed in memory
    /// would be loaded in other widths than they were stored in.
    #[inline(always)]
    pub(crate) fn receive(
        &self,
        endpoint: usize,
        engine: &Engine,
        (peer, tag): (FiAddr, Option<(u64, u64)>),
        kept: (Kept, Bytes),
    ) -> usize {
        let post = || Post { what: What::Receive { tag }, peer, flags: OpFlags::empty() };
        let issue = |context, span| engine.messages.receive_into(span, context, peer, tag);
        self.add((endpoint, true), kept, post, issue)
    }

    #[inline(always)]
    fn add(
        &self,
        queue: (usize, bool),
        kept: (Kept, Bytes),
        post: impl Fn() -> Post,
        issue: impl FnOnce(usize, Span) -> Result<(), Errno>,
    ) -> usize {
        let bytes = kept.1;
        let (context, span) = Park::lock(&self.table).add(queue, kept, &post);
        if let Some(span) = span
            && let Err(errno) = issue(context, span)
        {
            self.refused(context, (post(), bytes), errno);
        }
        context
    }

    /// The engine has refused an operation.
    #[cold]
    fn refused(&self, context: usize, post: (Post, Bytes), errno: Errno) {
        let mut after = After::default();
        let mut table = Park::lock(&self.table);
        if table.refused(context, post, errno, &mut after) {
            // Another thread may have read the completions that made room before this operation was
            // seen to wait for it.
            self.settle(&mut table, &mut after);
        }
        drop(table);
        after.run();
    }

    /// Refuses an operation, which then has ended.
    pub(crate) fn refuse(&self, endpoint: usize, kept: Kept, errno: Errno, why: &str) -> usize {
        Park::lock(&self.table).add_refused(endpoint, kept, (errno, why))
    }

    /// As [`Table::take`].
    pub(crate) fn take(&self, context: usize, waker: &Waker) -> Option<Ended> {
        let (ended, stale) = Park::lock(&self.table).take(context, waker);
        // Without the lock: it may be the last one of a task.
        drop(stale);
        ended
    }

    /// As [`Table::try_take`].
    #[inline]
    pub(crate) fn try_take(&self, context: usize) -> Option<Ended> {
        Park::lock(&self.table).try_take(context)
    }

    /// As [`Table::look_at`].
    #[inline(always)]
    pub(crate) fn look_at<G: GivenUp>(&self, context: usize) -> Found<G> {
        Park::lock(&self.table).look_at(context)
    }

    /// Whether operations wait for room, or have a deadline.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        // Relaxed: as in `settle`.
        self.is_due.load(Ordering::Relaxed)
    }

    /// As [`Table::is_alone`].
    pub(crate) fn is_alone(&self, context: usize) -> bool {
        Park::lock(&self.table).is_alone(context)
    }

    /// A turn for an operation that the engine has, and that nothing else waits for: cheaper than
    /// [`Self::turn_for`] if that ends, or nothing does.
    #[inline(always)]
    pub(crate) fn turn_only_for<G: GivenUp>(&self, context: usize) -> Turn<G> {
        let mut first = None;
        let result = self.queue.read(1, |completion| first = Some((completion.context, Done::from(completion))));
        if let Some((ended, done)) = &first
            && *ended == context
            && !self.is_due()
        {
            let buffer = Park::lock(&self.table).take_posted(context);
            if let Some(buffer) = buffer {
                return Turn::Ended(done.moved(), buffer);
            }
        }
        if result == Err(Errno::AGAIN) && !self.is_due() && !self.counting.is_due() {
            return Turn::Nothing;
        }
        self.turn_on(first, result);
        Turn::Other
    }

    /// The rest of a turn that has read this.
    #[inline(never)]
    fn turn_on(&self, first: Option<(usize, Done)>, result: Result<usize, Errno>) {
        let none = self.turn_with(0, first.into_iter().collect(), result);
        debug_assert!(none.is_none(), "no operation has the context 0");
    }

    /// Makes progress as [`Pump::turn`], but only until this operation has ended; its outcome and
    /// buffer then.
    pub(crate) fn turn_for(&self, context: usize) -> Option<Ended> {
        let mut read = Read::new();
        let result = self.read(&mut read);
        self.turn_with(context, read, result)
    }

    fn read(&self, read: &mut Read) -> Result<usize, Errno> {
        self.queue.read(BATCH, |completion| read.push((completion.context, Done::from(completion))))
    }

    /// A turn that has read this.
    fn turn_with(&self, context: usize, mut read: Read, mut result: Result<usize, Errno>) -> Option<Ended> {
        let mut some = false;
        loop {
            let is_empty = result == Err(Errno::AGAIN);
            if is_empty && !self.is_due() {
                break;
            }
            let mut after = After::default();
            let mut table = Park::lock(&self.table);
            for (ended, done) in read.drain(..) {
                table.end(ended, Ok(done), &mut after);
            }
            if result == Err(Errno::EAVAIL)
                && let Ok(failure) = self.queue.read_error()
            {
                table.end(failure.completion.context, Err(Box::new(failure)), &mut after);
            }
            self.settle(&mut table, &mut after);
            // Only if this turn wakes no task: a waker that panics would take the outcome along.
            let ended = if after.is_empty() { table.try_take(context) } else { None };
            drop(table);
            if ended.is_some() {
                return ended;
            }
            after.run();
            some = true;
            // Entries may be left behind a failure, and the read may have made no pass.
            if is_empty {
                break;
            }
            result = self.read(&mut read);
        }
        if self.counting.is_due() {
            self.counting.wake();
        }
        if some { self.try_take(context) } else { None }
    }

    /// Prepares for a sleep on the descriptor after a turn; false if there is something to do
    /// first.
    pub(crate) fn may_sleep(&self, watcher: Watcher) -> bool {
        // The look at the queue drains the descriptor: a counter's signal with it.
        self.queue.try_wait_as(watcher).is_ok() && !self.counting.signal_again()
    }

    /// The future of an operation is gone: cancels it.
    pub(crate) fn abandon(&self, context: usize) {
        let (after, engine) = Park::lock(&self.table).abandon(context);
        after.run();
        if let Some(engine) = engine {
            engine.control.cancel(context);
            // The engine may have given the buffer up already.
            self.turn();
        }
    }

    pub(crate) fn cancel(&self, context: usize) {
        let (after, engine) = Park::lock(&self.table).cancel(context);
        after.run();
        if let Some(engine) = engine {
            engine.control.cancel(context);
        }
    }

    /// Sets the deadline of an operation, from now; does nothing if it has ended.
    pub(crate) fn set_timeout(&self, context: usize, timeout: Duration) {
        let deadline = self.timed.now() + timeout;
        let mut table = Park::lock(&self.table);
        if !table.set_deadline(context, deadline) {
            return;
        }
        table.has_timer = true;
        self.is_due.store(true, Ordering::Relaxed);
        self.timed.set(OF_OPERATIONS, table.next_deadline().into_iter().chain(table.retry).min());
    }

    /// Whether it belongs to a simulated network, whose time the caller moves.
    pub(crate) fn is_simulated(&self) -> bool {
        self.timed.is_simulated()
    }

    /// How many operations have not ended, or wait to be polled.
    pub(crate) fn pending(&self) -> usize {
        Park::lock(&self.table).len()
    }

    /// Posts what waits for room, and cancels what is late.
    fn settle(&self, table: &mut Table, after: &mut After) {
        let again = table.post_held(after);
        if table.has_timer || again {
            let now = self.timed.now();
            table.expire(now, after);
            table.retry = again.then(|| now + RETRY);
            let next = table.next_deadline().into_iter().chain(table.retry).min();
            table.has_timer = next.is_some();
            self.timed.set(OF_OPERATIONS, next);
        }
        // Relaxed: a thread that does not see it yet may come before. The one that has set it makes
        // the next turn, or sleeps on the timer.
        self.is_due.store(table.has_timer || table.has_held(), Ordering::Relaxed);
    }
}

impl Pump for Operations {
    fn turn(&self) {
        let none = self.turn_for(0);
        debug_assert!(none.is_none(), "no operation has the context 0");
    }

    fn prepare(&self, watcher: Watcher) -> bool {
        self.turn();
        self.may_sleep(watcher)
    }

    fn unwatch(&self, watcher: Watcher) {
        self.queue.unwatch(watcher);
    }

    fn wake_all(&self) {
        let after = Park::lock(&self.table).wake_all();
        after.run();
        self.counting.wake_all();
    }

    fn descriptor(&self) -> Descriptor {
        self.timed.descriptor()
    }

    fn share(&self) -> Result<OwnedFd> {
        self.timed.share()
    }

    fn is_readable(&self) -> bool {
        self.timed.is_readable()
    }

    fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    fn is_automatic(&self) -> bool {
        self.automatic
    }
}
