//! Progress without a thread: a pump reads a queue, hands what it finds to the tasks that wait, and
//! says when a thread may sleep on the queue's descriptor. `block_on.rs` and `reactor.rs` sleep.

use crate::buf::Kept;
use crate::engine::{Engine, Post};
use crate::reactor::Drivers;
use crate::table::{After, Ended, Table};
use core::fmt;
use core::task::Waker;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Completion, Errno, Instant};
use ofi_engine::{CompletionQueue as Queue, Waiting};
use ofi_os::membarrier;
use ofi_os::wait_fd::FdWaitObject;
use ofi_sync::lock::{LockKind, Park};
use ofi_sync::park::ParkCell;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a send that its socket had no room for is tried again.
const RETRY: Duration = Duration::from_millis(1);
/// Completions that are read at once.
const BATCH: usize = 16;

/// A source of wake-ups that a thread or a reactor sleeps on.
pub(crate) trait Pump: Send + Sync + fmt::Debug {
    /// Makes progress, and wakes the tasks whose operations have ended.
    fn turn(&self);
    /// Prepares for sleeping on the descriptor; false if there is something to do first.
    fn prepare(&self) -> bool;
    /// Wakes all tasks that wait.
    fn wake_all(&self);
    /// The descriptor that is readable when there is something to do.
    fn descriptor(&self) -> Descriptor;
    /// A descriptor of the same, for a reactor that outlives the pump.
    fn share(&self) -> Result<OwnedFd>;
    /// Whether the descriptor is readable now.
    fn is_readable(&self) -> bool;
    /// The reactors that drive it.
    fn drivers(&self) -> &Drivers;
    /// Whether a thread of the library turns it.
    fn is_automatic(&self) -> bool;
}

/// A wait object whose timer also goes off at the operations' deadlines.
#[derive(Debug)]
pub(crate) struct Timed {
    inner: FdWaitObject,
    /// When the engine, and when the operations want to wake up.
    timers: Mutex<[Option<Instant>; 2]>,
}

const OF_ENGINE: usize = 0;
pub(crate) const OF_OPERATIONS: usize = 1;

impl Timed {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { inner: FdWaitObject::new(true)?, timers: Mutex::default() })
    }

    /// A second descriptor of the wait object.
    pub(crate) fn share(&self) -> Result<OwnedFd> {
        self.inner.share()
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.inner.is_readable()
    }

    pub(crate) fn set(&self, whose: usize, when: Option<Instant>) {
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        timers[whose] = when;
        self.inner.set_timer(timers.iter().flatten().min().copied());
    }
}

impl WaitObject for Timed {
    fn add(&self, fd: Descriptor, key: u64) -> Result<()> {
        self.inner.add(fd, key)
    }
    fn remove(&self, fd: Descriptor) {
        self.inner.remove(fd);
    }
    fn ready(&self, timeout: Option<Duration>, keys: &mut Vec<u64>) {
        self.inner.ready(timeout, keys);
    }
    fn signal(&self) {
        self.inner.signal();
    }
    fn drain(&self) {
        self.inner.drain();
    }
    fn set_timer(&self, when: Option<Instant>) {
        self.set(OF_ENGINE, when);
    }
    fn apart(&self) -> Option<&dyn WaitObject> {
        self.inner.apart()
    }
    fn descriptor(&self) -> Descriptor {
        self.inner.descriptor()
    }
    fn now(&self) -> Instant {
        self.inner.now()
    }
}

/// The pump of a domain's operations.
pub(crate) struct Operations {
    /// First: reactors stop before the descriptor is closed.
    drivers: Drivers,
    table: ParkCell<Table>,
    queue: Arc<Queue<Park>>,
    timed: Arc<Timed>,
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
        let timed = Arc::new(Timed::new()?);
        let queue = Queue::new(membarrier::locks(), 256, timed.clone(), Waiting::Sleeping);
        let table = membarrier::locks().cell(Table::default());
        Ok(Self { drivers: Drivers::default(), table, queue: Arc::new(queue), timed, automatic })
    }

    pub(crate) const fn queue(&self) -> &Arc<Queue<Park>> {
        &self.queue
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

    /// Starts an operation; returns its context.
    pub(crate) fn start(&self, endpoint: usize, engine: &Engine, post: Post, kept: Kept) -> usize {
        let buffer = kept.lend();
        let (context, now) = Park::lock(&self.table).add(endpoint, post, kept);
        if now && let Err(errno) = post.issue(engine, context, buffer) {
            Park::lock(&self.table).refused(context, errno);
        }
        context
    }

    /// Refuses an operation, which then has ended.
    pub(crate) fn refuse(&self, endpoint: usize, post: Post, kept: Kept, errno: Errno, text: &str) -> usize {
        let mut table = Park::lock(&self.table);
        let (context, _) = table.add(endpoint, post, kept);
        table.refuse(context, errno, text);
        context
    }

    /// As [`Table::take`].
    pub(crate) fn take(&self, context: usize, waker: Option<&Waker>) -> Option<Ended> {
        let (ended, stale) = Park::lock(&self.table).take(context, waker);
        // Without the lock: it may be the last one of a task.
        drop(stale);
        ended
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

    /// Sets the deadline of an operation, from now.
    pub(crate) fn set_timeout(&self, context: usize, timeout: Duration) {
        let deadline = self.timed.now() + timeout;
        let mut table = Park::lock(&self.table);
        table.set_deadline(context, deadline);
        table.has_timer = true;
        self.timed.set(OF_OPERATIONS, table.next_deadline());
    }

    /// How many operations have not ended, or wait to be polled.
    pub(crate) fn pending(&self) -> usize {
        Park::lock(&self.table).len()
    }

    /// Posts what waits for room, and cancels what is late.
    fn settle(&self, table: &mut Table, after: &mut After) {
        let again = table.post_held(after);
        if !table.has_timer && !again {
            return;
        }
        let now = self.timed.now();
        table.expire(now, after);
        let retry = again.then(|| now + RETRY);
        let next = table.next_deadline().into_iter().chain(retry).min();
        table.has_timer = next.is_some();
        self.timed.set(OF_OPERATIONS, next);
    }
}

impl Pump for Operations {
    fn turn(&self) {
        loop {
            let mut read = [const { None::<Completion> }; BATCH];
            let mut count = 0;
            let result = self.queue.read(BATCH, |completion| {
                read[count] = Some(*completion);
                count += 1;
            });
            let mut after = After::default();
            let mut table = Park::lock(&self.table);
            for completion in read.into_iter().take(count).flatten() {
                table.end(completion.context, Ok(completion), &mut after);
            }
            if result == Err(Errno::EAVAIL)
                && let Ok(failure) = self.queue.read_error()
            {
                table.end(failure.completion.context, Err(Box::new(failure)), &mut after);
                count += 1;
            }
            self.settle(&mut table, &mut after);
            drop(table);
            after.run();
            if count == 0 {
                return;
            }
        }
    }

    fn prepare(&self) -> bool {
        self.turn();
        self.queue.try_wait().is_ok()
    }

    fn wake_all(&self) {
        let after = Park::lock(&self.table).wake_all();
        after.run();
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
