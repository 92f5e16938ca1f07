//! Event queue (fi_eq(3)): events of objects rather than of operations.
//! An event carries its object as an opaque number, chosen by the C API when it opened the object.

use crate::progress::set::{Pollable, ProgressSet, Watcher};
use crate::progress::wait::{Outcome, Sleep, Spin, Waiting, ringer, write};
use crate::transport::ConnectRequest;
use core::any::Any;
use core::fmt;
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_core::{Cause, Errno, Info};
use ofi_sync::busy::{Child, Children};
use ofi_sync::doorbell::Doorbell;
use ofi_sync::lock::{LockKind, Park};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The object of an event, by the C API's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub usize);

/// A request for a connection, until it is accepted or refused.
pub struct ConnectionRequest {
    /// The [`ConnectRequest`] of the passive endpoint's transport.
    pub asked: Box<dyn Any + Send>,
    /// The passive endpoint's info with the peer's address in it.
    pub info: Info,
    /// The peer's connection data.
    pub data: Vec<u8>,
    /// Counts against the backlog as long as it exists.
    pub(crate) _waits: Child,
}

impl fmt::Debug for ConnectionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionRequest").field("data", &self.data).finish_non_exhaustive()
    }
}

impl ConnectionRequest {
    /// The connect request, if it is one of that transport.
    pub fn into_asked<R: Send + 'static>(self) -> Option<ConnectRequest<R>> {
        self.asked.downcast::<ConnectRequest<R>>().ok().map(|asked| *asked)
    }
}

/// What happened.
#[derive(Debug)]
pub enum EventKind {
    /// A peer requests a connection.
    ConnectionRequest(Box<ConnectionRequest>),
    /// The connection is established; with the acceptor's data.
    Connected(Vec<u8>),
    /// The connection has ended.
    Shutdown,
    /// A multicast group has been joined.
    Joined,
    /// A call that inserts addresses has ended (fi_av(3)).
    Inserted {
        /// The call's context.
        context: usize,
        /// How many addresses it inserted.
        count: usize,
    },
    /// An address could not be inserted.
    InsertionFailed {
        /// The call's context.
        context: usize,
        /// The address's index among those of the call.
        index: usize,
        /// The error.
        errno: Errno,
    },
    /// Something failed.
    Failed {
        /// The error.
        errno: Errno,
        /// The provider error code.
        cause: Cause,
        /// The reason in words.
        text: Arc<str>,
        /// Data of the peer that refused.
        data: Vec<u8>,
    },
    /// Written by the application: its event number and data.
    User(u32, Vec<u8>),
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// The object that it is about.
    pub owner: Owner,
    /// What happened.
    pub kind: EventKind,
}

impl Event {
    const fn is_failure(&self) -> bool {
        matches!(self.kind, EventKind::Failed { .. } | EventKind::InsertionFailed { .. })
    }
}

/// The result of a read.
#[derive(Debug)]
pub enum Found {
    /// The oldest event.
    Event(Event),
    /// The oldest event is an error: read it as such.
    Error,
    /// Nothing.
    Nothing,
}

/// An object's binding to an event queue, which it keeps open.
#[derive(Debug)]
pub(crate) struct BoundEq {
    pub(crate) eq: Arc<EventQueue>,
    /// The object's key in the queue's progress set, if it has joined that.
    key: Option<usize>,
    _user: Child,
}

impl BoundEq {
    fn new(eq: &Arc<EventQueue>) -> Self {
        Self { eq: eq.clone(), key: None, _user: eq.users.add() }
    }

    /// Binds an object to another queue in the place of the one in `bound`. `object`: reading the
    /// queue polls it. `take_over` moves the object's events out of the earlier queue.
    ///
    /// # Errors
    /// Those of watching the object's descriptor. An error changes nothing.
    pub(crate) fn rebind(
        bound: &mut Option<Self>,
        eq: &Arc<EventQueue>,
        object: Option<Arc<dyn Pollable>>,
        take_over: impl FnOnce(Option<&EventQueue>),
    ) -> Result<()> {
        if bound.as_ref().is_some_and(|bound| Arc::ptr_eq(&bound.eq, eq)) {
            return Ok(());
        }
        let mut new = Self::new(eq);
        if let Some(object) = object {
            new.follow(object)?;
        }
        let old = bound.replace(new);
        take_over(old.as_ref().map(|old| &*old.eq));
        // Without the object's lock: the lock of the queue's progress set comes before it.
        if let Some(mut old) = old {
            old.leave();
        }
        Ok(())
    }

    /// Whether reading the queue polls the object.
    pub(crate) const fn is_followed(&self) -> bool {
        self.key.is_some()
    }

    /// Reading the queue polls the object from now on.
    pub(crate) fn follow(&mut self, object: Arc<dyn Pollable>) -> Result<()> {
        if self.key.is_none() {
            self.key = Some(self.eq.join(object)?);
        }
        Ok(())
    }

    /// Reading the queue no longer polls the object.
    pub(crate) fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            self.eq.leave(key);
        }
    }
}

/// An event queue.
pub struct EventQueue {
    queue: <Park as LockKind>::Cell<VecDeque<Event>>,
    progress: ProgressSet<Park>,
    bell: Arc<Doorbell>,
    spin: Spin,
    how: Waiting,
    last_error: Mutex<Option<(i32, Arc<str>)>>,
    /// The objects that are bound to it.
    pub users: Children,
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").field("group", &self.progress).finish_non_exhaustive()
    }
}

impl EventQueue {
    /// An empty queue over a wait object that can sleep. `how`: how blocking reads wait.
    pub fn new(wait_object: Arc<dyn WaitObject>, how: Waiting) -> Self {
        let bell = Arc::new(Doorbell::new());
        Self {
            queue: Park::default().cell(VecDeque::new()),
            progress: ProgressSet::with_bell(Park::default(), wait_object.clone(), ringer(&bell, wait_object)),
            bell,
            spin: Spin::default(),
            how,
            last_error: Mutex::new(None),
            users: Children::new(),
        }
    }

    fn queue(&self) -> <Park as LockKind>::Guard<'_, VecDeque<Event>> {
        Park::lock(&self.queue)
    }

    /// Adds an event.
    pub fn push(&self, event: Event) {
        self.queue().push_back(event);
        write(self.bell.ring_after_lock(), self.progress.wait_object());
    }

    /// Removes the oldest event and returns it, unless it is an error. `keep` sees the event first;
    /// if `keep` returns true, the event stays and the result is [`Found::Nothing`].
    pub fn read(&self, keep: impl FnOnce(&Event) -> bool) -> Found {
        if self.queue().is_empty() {
            self.progress.look_in();
        }
        let mut queue = self.queue();
        match queue.pop_front() {
            None => Found::Nothing,
            Some(event) if event.is_failure() => {
                queue.push_front(event);
                Found::Error
            }
            Some(event) => {
                if keep(&event) {
                    queue.push_front(event);
                    return Found::Nothing;
                }
                Found::Event(event)
            }
        }
    }

    /// Removes the oldest event and returns it if it is an error.
    pub fn read_error(&self) -> Option<Event> {
        let mut queue = self.queue();
        if !queue.front()?.is_failure() {
            return None;
        }
        let event = queue.pop_front()?;
        if let EventKind::Failed { cause, text, .. } = &event.kind {
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some((cause.code(), text.clone()));
        }
        Some(event)
    }

    /// The text of a provider error code: the last error's own text if it has that code.
    pub fn strerror(&self, code: i32) -> String {
        let last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((last, text)) if *last == code => text.to_string(),
            _ => Cause::from_code(code).map_or_else(|| "no provider error".to_owned(), |cause| cause.text().to_owned()),
        }
    }

    /// Blocks until there is an event or the timeout (`None`: never). False on timeout; otherwise
    /// another reader may already have taken the event.
    ///
    /// # Errors
    /// EINTR if a signal to the process (signal(7)) has ended the sleep.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let sleep = Sleep { progress: &self.progress, bell: &self.bell, spin: &self.spin, how: self.how };
        match sleep.until(|| !self.queue().is_empty(), timeout) {
            Outcome::Ready => Ok(true),
            Outcome::Expired => Ok(false),
            Outcome::Interrupted => Err(Errno::EINTR),
        }
    }

    /// Whether a caller may block on the descriptor now (fi_trywait(3)).
    pub fn try_wait(&self) -> Result<(), Errno> {
        self.try_wait_as(Watcher::ThisThread)
    }

    /// [`Self::try_wait`] for any watcher.
    pub fn try_wait_as(&self, watcher: Watcher) -> Result<(), Errno> {
        Sleep { progress: &self.progress, bell: &self.bell, spin: &self.spin, how: self.how }
            .prepare(watcher, || !self.queue().is_empty())
    }

    /// A reactor that was allowed to sleep is awake.
    pub fn unwatch(&self, watcher: Watcher) {
        self.progress.unwatch(watcher);
    }

    /// The wait object's descriptor.
    pub fn descriptor(&self) -> i32 {
        self.progress.wait_object().descriptor()
    }

    /// Moves the events of an object to the queue that replaces this one for it.
    pub(crate) fn hand_over(&self, owner: Owner, to: &Self) {
        let mut queue = self.queue();
        let (moved, kept): (VecDeque<Event>, _) = queue.drain(..).partition(|event| event.owner == owner);
        *queue = kept;
        drop(queue);
        moved.into_iter().for_each(|event| to.push(event));
    }

    /// Drops the events of an object that is being closed.
    pub fn discard_events_of(&self, owner: Owner) {
        self.queue().retain(|event| event.owner != owner);
    }

    /// Makes an object progress whenever this queue is read.
    pub fn join(&self, pollable: Arc<dyn Pollable>) -> Result<usize> {
        self.progress.join(pollable)
    }

    /// The object no longer progresses with this queue.
    pub fn leave(&self, key: usize) {
        self.progress.leave(key);
    }
}
