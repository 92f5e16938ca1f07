//! The pump of a fabric's event queue: events of connections, each for the task that waits for it.

use crate::drivers::Drivers;
use crate::pump::{OF_OPERATIONS, Pump, Timed};
use crate::reactor;
use crate::wakers::{Wakers, wake};
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Errno, Error, Instant};
use ofi_engine::completion::eq::{EventKind, Found, Owner};
use ofi_engine::{EventQueue as Queue, Waiting, Watcher};
use ofi_sync::primitive::{AtomicUsize, Ordering};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The events of one endpoint or listener that no task has taken.
#[derive(Debug, Default)]
struct PendingEvents {
    events: VecDeque<Result<EventKind>>,
    /// The tasks that wait for one, each by the number of its wait.
    wakers: BTreeMap<u64, Waker>,
}

impl PendingEvents {
    /// The oldest event. The end of a connection stays: each task that asks learns of it.
    fn take(&mut self) -> Option<Result<EventKind>> {
        if let Some(Ok(EventKind::Shutdown)) = self.events.front() {
            return Some(Ok(EventKind::Shutdown));
        }
        self.events.pop_front()
    }

    fn take_wakers(&mut self) -> impl Iterator<Item = Waker> + use<> {
        core::mem::take(&mut self.wakers).into_values()
    }
}

#[derive(Debug, Default)]
struct Subscribers {
    by_owner: HashMap<usize, PendingEvents>,
    last: usize,
    /// How many waits there have been.
    waits: u64,
    /// When tasks give up, and which wait for whose events that is.
    deadlines: BTreeSet<(Instant, u64, usize)>,
}

/// The events of a fabric.
pub(crate) struct Events {
    /// First: reactors stop before the descriptor is closed.
    drivers: Drivers,
    subscribers: Mutex<Subscribers>,
    /// Held from the read of an event until its subscriber has it: two threads keep their order.
    reading: Mutex<()>,
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
        Ok(Self { drivers: Drivers::default(), subscribers, reading: Mutex::default(), queue, timed, threads })
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
        let wait = self.wait(limit);
        poll_fn(|context| wait.poll(Some(context))).await
    }

    /// Begins a wait for events, for as long as `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Wait<'_> {
        let deadline = limit.map(|limit| self.events.timed.now() + limit);
        Wait { subscription: self, number: self.events.new_wait(), deadline }
    }
}

/// A task's wait for events; dropping it removes all traces of it.
pub(crate) struct Wait<'a> {
    subscription: &'a Subscription,
    number: u64,
    deadline: Option<Instant>,
}

impl Wait<'_> {
    /// The next event. Without a context no task is woken for it.
    pub(crate) fn poll(&self, context: Option<&mut Context<'_>>) -> Poll<Result<EventKind>> {
        let Subscription { events, owner } = self.subscription;
        events.turn();
        let late = self.deadline.is_some_and(|deadline| deadline <= events.timed.now());
        let mut subscribers = events.subscribers();
        let Subscribers { by_owner, deadlines, .. } = &mut *subscribers;
        let Some(pending) = by_owner.get_mut(owner) else { return Poll::Pending };
        if let Some(event) = pending.take() {
            return Poll::Ready(event);
        }
        if late {
            return Poll::Ready(Err(Error::new(Errno::ETIMEDOUT, "wait for an event")));
        }
        let Some(context) = context else { return Poll::Pending };
        let replaced = pending.wakers.insert(self.number, context.waker().clone());
        if let Some(deadline) = self.deadline {
            deadlines.insert((deadline, self.number, *owner));
            events.timed.set(OF_OPERATIONS, deadlines.first().map(|(when, ..)| *when));
        }
        drop(subscribers);
        // Without the lock: it may be the last one of a task.
        drop(replaced);
        reactor::watch(events, context.waker());
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Subscription { events, owner } = self.subscription;
        let mut subscribers = events.subscribers();
        let Subscribers { by_owner, deadlines, .. } = &mut *subscribers;
        let waker = by_owner.get_mut(owner).and_then(|pending| pending.wakers.remove(&self.number));
        if let Some(deadline) = self.deadline {
            deadlines.remove(&(deadline, self.number, *owner));
        }
        drop(subscribers);
        drop(waker);
    }
}

impl Events {
    fn new_wait(&self) -> u64 {
        let mut subscribers = self.subscribers();
        subscribers.waits += 1;
        subscribers.waits
    }

    /// Wakes the tasks whose deadline has passed.
    fn expire(&self) {
        let mut subscribers = self.subscribers();
        if subscribers.deadlines.is_empty() {
            return;
        }
        let now = self.timed.now();
        let mut wakers = Wakers::new();
        while let Some((when, wait, owner)) = subscribers.deadlines.first().copied()
            && when <= now
        {
            subscribers.deadlines.pop_first();
            wakers.extend(subscribers.by_owner.get_mut(&owner).and_then(|pending| pending.wakers.remove(&wait)));
        }
        self.timed.set(OF_OPERATIONS, subscribers.deadlines.first().map(|(when, ..)| *when));
        drop(subscribers);
        wake(wakers);
    }

    /// Hands the oldest event to its subscriber; false if there is none.
    fn hand_on(&self) -> bool {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (owner, event) = match self.queue.read(|_| false) {
            Found::Nothing => return false,
            Found::Event(event) => (event.owner, Ok(event.kind)),
            Found::Error => match self.queue.read_error() {
                Some(event) => {
                    let error = match event.kind {
                        EventKind::Failed { errno, text, .. } => Error::new(errno, &*text),
                        _ => Errno::EOTHER.into(),
                    };
                    (event.owner, Err(error))
                }
                None => return true,
            },
        };
        let mut wakers = Wakers::new();
        if let Some(pending) = self.subscribers().by_owner.get_mut(&owner.0) {
            pending.events.push_back(event);
            wakers.extend(pending.take_wakers());
        }
        drop(reading);
        wake(wakers);
        true
    }
}

impl Pump for Events {
    fn turn(&self) {
        self.expire();
        while self.hand_on() {}
    }

    fn prepare(&self, watcher: Watcher) -> bool {
        self.turn();
        self.queue.try_wait_as(watcher).is_ok()
    }

    fn unwatch(&self, watcher: Watcher) {
        self.queue.unwatch(watcher);
    }

    fn wake_all(&self) {
        let wakers = self.subscribers().by_owner.values_mut().flat_map(PendingEvents::take_wakers).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parker::block_on;
    use core::future::Future;
    use ofi_engine::completion::eq::Event;
    use std::task::Wake;

    fn user(number: u32) -> EventKind {
        EventKind::User(number, Vec::new())
    }

    #[test]
    fn waits_that_are_dropped_leave_nothing_behind() {
        struct Task;
        impl Wake for Task {
            fn wake(self: Arc<Self>) {}
        }
        let events = Arc::new(Events::new().unwrap());
        let subscription = events.subscribe();
        for _ in 0..8 {
            // Each is another task.
            let waker = Waker::from(Arc::new(Task));
            block_on(poll_fn(|_| {
                let mut next = Box::pin(subscription.next(Some(Duration::from_secs(3600))));
                assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                Poll::Ready(())
            }));
            let subscribers = events.subscribers();
            assert!(subscribers.by_owner.values().all(|pending| pending.wakers.is_empty()));
            assert!(subscribers.deadlines.is_empty());
        }
    }

    #[test]
    fn two_threads_hand_events_on_in_order() {
        const COUNT: u32 = 20_000;
        let events = Arc::new(Events::new().unwrap());
        let subscription = events.subscribe();
        let owner = subscription.owner();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..COUNT).for_each(|number| events.queue.push(Event { owner, kind: user(number) })));
            for _ in 0..2 {
                scope.spawn(|| {
                    let handed = || events.subscribers().by_owner[&owner.0].events.len();
                    while handed() < COUNT as usize {
                        events.turn();
                    }
                });
            }
        });
        let mut expected = 0..COUNT;
        let mut subscribers = events.subscribers();
        for event in subscribers.by_owner.get_mut(&owner.0).unwrap().events.drain(..) {
            let EventKind::User(number, _) = event.unwrap() else { panic!("another event") };
            assert_eq!(Some(number), expected.next());
        }
    }
}
