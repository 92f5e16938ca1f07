//! The pump of a fabric's event queue: events of connections, each for the task that waits for it.

use crate::drivers::Drivers;
use crate::pump::{OF_OPERATIONS, Pump, Timed};
use crate::reactor;
use crate::table::wake;
use core::fmt;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Errno, Error, Instant};
use ofi_engine::completion::eq::{EventKind, Found, Owner};
use ofi_engine::{EventQueue as Queue, Waiting};
use ofi_sync::primitive::{AtomicUsize, Ordering};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The events of one endpoint or listener that no task has taken.
#[derive(Debug, Default)]
struct PendingEvents {
    events: VecDeque<Result<EventKind>>,
    wakers: Vec<Waker>,
}

#[derive(Debug, Default)]
struct Subscribers {
    by_owner: HashMap<usize, PendingEvents>,
    last: usize,
    /// When tasks give up, and for whose events they wait.
    deadlines: BTreeSet<(Instant, usize)>,
}

/// The events of a fabric.
pub(crate) struct Events {
    /// First: reactors stop before the descriptor is closed.
    drivers: Drivers,
    subscribers: Mutex<Subscribers>,
    queue: Arc<Queue>,
    timed: Arc<Timed>,
    /// How many domains' threads turn it.
    threads: AtomicUsize,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// A thread turns the events.
pub(crate) struct Turned(Arc<Events>);

impl Drop for Turned {
    fn drop(&mut self) {
        // Relaxed: a task adds its waker, under the lock, before it looks for a thread. So either
        // it is woken here, or it comes later to the lock and sees that the thread is gone.
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
        self.0.wake_all();
    }
}

/// The right to take the events of one endpoint or listener.
#[derive(Debug)]
pub(crate) struct Subscription {
    events: Arc<Events>,
    owner: usize,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.events.queue.discard_events_of(self.owner());
        let gone = self.events.subscribers().by_owner.remove(&self.owner);
        // Without the lock: requests and wakers run other code.
        drop(gone);
    }
}

impl Events {
    pub(crate) fn new() -> Result<Self> {
        let timed = Arc::new(Timed::new()?);
        let queue = Arc::new(Queue::new(timed.clone(), Waiting::Sleeping));
        let (subscribers, threads) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self { drivers: Drivers::default(), subscribers, queue, timed, threads })
    }

    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A domain's thread turns it until the result is dropped.
    pub(crate) fn turned(self: &Arc<Self>) -> Turned {
        // Relaxed: a task that still finds no thread has another reactor turn it.
        self.threads.fetch_add(1, Ordering::Relaxed);
        Turned(self.clone())
    }

    pub(crate) fn subscribe(self: &Arc<Self>) -> Subscription {
        let mut subscribers = self.subscribers();
        subscribers.last += 1;
        let owner = subscribers.last;
        subscribers.by_owner.insert(owner, PendingEvents::default());
        Subscription { events: self.clone(), owner }
    }
}

impl Subscription {
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.events.queue
    }

    pub(crate) const fn owner(&self) -> Owner {
        Owner(self.owner)
    }

    /// The next event; ETIMEDOUT if there is none within `limit`.
    pub(crate) async fn next(&self, limit: Option<Duration>) -> Result<EventKind> {
        let deadline = limit.map(|limit| self.events.timed.now() + limit);
        let event = poll_fn(|context| {
            self.events.turn();
            let late = deadline.is_some_and(|deadline| deadline <= self.events.timed.now());
            let mut subscribers = self.events.subscribers();
            let Subscribers { by_owner, deadlines, .. } = &mut *subscribers;
            if let Some(pending) = by_owner.get_mut(&self.owner) {
                if let Some(Ok(EventKind::Shutdown)) = pending.events.front() {
                    // It stays: each task that asks learns that the connection has ended.
                    return Poll::Ready(Ok(EventKind::Shutdown));
                }
                if let Some(event) = pending.events.pop_front() {
                    return Poll::Ready(event);
                }
                if late {
                    return Poll::Ready(Err(Error::new(Errno::ETIMEDOUT, "wait for an event")));
                }
                if !pending.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    pending.wakers.push(context.waker().clone());
                }
            }
            if let Some(deadline) = deadline {
                deadlines.insert((deadline, self.owner));
                self.events.timed.set(OF_OPERATIONS, deadlines.first().map(|(when, _)| *when));
            }
            drop(subscribers);
            reactor::watch(&self.events, context.waker());
            Poll::Pending
        })
        .await;
        if let Some(deadline) = deadline {
            self.events.subscribers().deadlines.remove(&(deadline, self.owner));
        }
        event
    }
}

impl Events {
    /// Wakes the tasks whose deadline has passed.
    fn expire(&self) {
        let mut subscribers = self.subscribers();
        if subscribers.deadlines.is_empty() {
            return;
        }
        let now = self.timed.now();
        let mut wakers = Vec::new();
        while let Some((when, owner)) = subscribers.deadlines.first().copied()
            && when <= now
        {
            subscribers.deadlines.pop_first();
            wakers
                .extend(subscribers.by_owner.get_mut(&owner).into_iter().flat_map(|pending| pending.wakers.drain(..)));
        }
        self.timed.set(OF_OPERATIONS, subscribers.deadlines.first().map(|(when, _)| *when));
        drop(subscribers);
        wake(wakers);
    }
}

impl Pump for Events {
    fn turn(&self) {
        self.expire();
        loop {
            let event = match self.queue.read(|_| false) {
                Found::Nothing => return,
                Found::Event(event) => (event.owner, Ok(event.kind)),
                Found::Error => match self.queue.read_error() {
                    Some(event) => {
                        let error = match event.kind {
                            EventKind::Failed { errno, text, .. } => Error::new(errno, &*text),
                            _ => Errno::EOTHER.into(),
                        };
                        (event.owner, Err(error))
                    }
                    None => continue,
                },
            };
            let mut wakers = Vec::new();
            if let Some(pending) = self.subscribers().by_owner.get_mut(&event.0.0) {
                pending.events.push_back(event.1);
                wakers = core::mem::take(&mut pending.wakers);
            }
            wake(wakers);
        }
    }

    fn prepare(&self) -> bool {
        self.turn();
        self.queue.try_wait().is_ok()
    }

    fn wake_all(&self) {
        let wakers: Vec<Waker> =
            self.subscribers().by_owner.values_mut().flat_map(|pending| pending.wakers.drain(..)).collect();
        wake(wakers);
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
        // Relaxed: see `Turned::drop`.
        self.threads.load(Ordering::Relaxed) > 0
    }
}
