//! The pump of a fabric's event queue: events of connections, each for the task that waits for it.

use crate::drivers::Drivers;
use crate::pump::{OF_OPERATIONS, Pump, Timed};
use crate::reactor;
use core::fmt;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Errno, Error, Instant};
use ofi_engine::completion::eq::{EventKind, Found, Owner};
use ofi_engine::{EventQueue as Queue, Waiting};
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The events of one endpoint or listener that no task has taken.
#[derive(Debug, Default)]
struct Mailbox {
    events: VecDeque<Result<EventKind>>,
    wakers: Vec<Waker>,
}

#[derive(Debug, Default)]
struct Boxes {
    by_owner: HashMap<usize, Mailbox>,
    last: usize,
    /// When tasks give up, and for whose events they wait.
    deadlines: BTreeSet<(Instant, usize)>,
}

/// The events of a fabric.
pub(crate) struct Events {
    /// First: reactors stop before the descriptor is closed.
    drivers: Drivers,
    boxes: Mutex<Boxes>,
    queue: Arc<Queue>,
    timed: Arc<Timed>,
    /// A domain's thread turns it.
    automatic: AtomicBool,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
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
        let gone = self.events.boxes().by_owner.remove(&self.owner);
        // Without the lock: requests and wakers run other code.
        drop(gone);
    }
}

impl Events {
    pub(crate) fn new() -> Result<Self> {
        let timed = Arc::new(Timed::new()?);
        let queue = Arc::new(Queue::new(timed.clone(), Waiting::Sleeping));
        let (boxes, automatic) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { drivers: Drivers::default(), boxes, queue, timed, automatic })
    }

    fn boxes(&self) -> MutexGuard<'_, Boxes> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_automatic(&self) {
        // Relaxed: set before anything waits.
        self.automatic.store(true, Ordering::Relaxed);
    }

    pub(crate) fn subscribe(self: &Arc<Self>) -> Subscription {
        let mut boxes = self.boxes();
        boxes.last += 1;
        let owner = boxes.last;
        boxes.by_owner.insert(owner, Mailbox::default());
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
            let mut boxes = self.events.boxes();
            let Boxes { by_owner, deadlines, .. } = &mut *boxes;
            if let Some(mailbox) = by_owner.get_mut(&self.owner) {
                if let Some(event) = mailbox.events.pop_front() {
                    return Poll::Ready(event);
                }
                if late {
                    return Poll::Ready(Err(Error::new(Errno::ETIMEDOUT, "wait for an event")));
                }
                if !mailbox.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    mailbox.wakers.push(context.waker().clone());
                }
            }
            if let Some(deadline) = deadline {
                deadlines.insert((deadline, self.owner));
                self.events.timed.set(OF_OPERATIONS, deadlines.first().map(|(when, _)| *when));
            }
            drop(boxes);
            reactor::watch(&self.events, context.waker());
            Poll::Pending
        })
        .await;
        if let Some(deadline) = deadline {
            self.events.boxes().deadlines.remove(&(deadline, self.owner));
        }
        event
    }
}

impl Events {
    /// Wakes the tasks whose deadline has passed.
    fn expire(&self) {
        let mut boxes = self.boxes();
        if boxes.deadlines.is_empty() {
            return;
        }
        let now = self.timed.now();
        let mut wakers = Vec::new();
        while let Some((when, owner)) = boxes.deadlines.first().copied()
            && when <= now
        {
            boxes.deadlines.pop_first();
            wakers.extend(boxes.by_owner.get_mut(&owner).into_iter().flat_map(|mailbox| mailbox.wakers.drain(..)));
        }
        self.timed.set(OF_OPERATIONS, boxes.deadlines.first().map(|(when, _)| *when));
        drop(boxes);
        wakers.into_iter().for_each(Waker::wake);
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
            if let Some(mailbox) = self.boxes().by_owner.get_mut(&event.0.0) {
                mailbox.events.push_back(event.1);
                wakers = core::mem::take(&mut mailbox.wakers);
            }
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn prepare(&self) -> bool {
        self.turn();
        self.queue.try_wait().is_ok()
    }

    fn wake_all(&self) {
        let wakers: Vec<Waker> =
            self.boxes().by_owner.values_mut().flat_map(|mailbox| mailbox.wakers.drain(..)).collect();
        wakers.into_iter().for_each(Waker::wake);
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
        // Relaxed: see `set_automatic`.
        self.automatic.load(Ordering::Relaxed)
    }
}
