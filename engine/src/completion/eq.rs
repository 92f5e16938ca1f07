//! Event queue (fi_eq(3)): what happens to objects rather than to operations.
//! An event carries its object as an opaque number that the shell chose when it opened the object.

use crate::progress::set::{Pollable, ProgressSet};
use crate::progress::wait::{Sleep, Spin, Waiting, ringer, write};
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

/// An object that events are about, by the shell's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub usize);

/// A request for a connection, until it is accepted or refused.
pub struct ConnectionRequest {
    /// What the transport needs, as an [`ConnectRequest`] of the passive endpoint's transport.
    pub asked: Box<dyn Any + Send>,
    /// The passive endpoint's info with the peer's address in it.
    pub info: Info,
    /// The peer's connection data.
    pub data: Vec<u8>,
    /// Counted among those that wait, as long as it exists.
    pub(crate) _waits: Child,
}

impl fmt::Debug for ConnectionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionRequest").field("data", &self.data).finish_non_exhaustive()
    }
}

impl ConnectionRequest {
    /// What the transport needs, if it is of that transport.
    pub fn into_asked<R: Send + 'static>(self) -> Option<ConnectRequest<R>> {
        self.asked.downcast::<ConnectRequest<R>>().ok().map(|asked| *asked)
    }
}

/// What happened.
#[derive(Debug)]
pub enum EventKind {
    /// Somebody asks for a connection.
    ConnectionRequest(Box<ConnectionRequest>),
    /// The connection is there; with the accepting side's data.
    Connected(Vec<u8>),
    /// The connection has ended.
    Shutdown,
    /// A multicast group has been joined.
    Joined,
    /// Something failed.
    Failed {
        /// The error.
        errno: Errno,
        /// Why.
        cause: Cause,
        /// Why, in a sentence.
        text: Arc<str>,
        /// Data of the peer that refused.
        data: Vec<u8>,
    },
    /// Written by the application: its number and its bytes.
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
        matches!(self.kind, EventKind::Failed { .. })
    }
}

/// What a read found.
#[derive(Debug)]
pub enum Found {
    /// The oldest event.
    Event(Event),
    /// The oldest event is an error: read it as such.
    Error,
    /// Nothing.
    Nothing,
}

/// An event queue.
pub struct EventQueue {
    queue: Mutex<VecDeque<Event>>,
    group: ProgressSet<Park>,
    bell: Arc<Doorbell>,
    spin: Spin,
    how: Waiting,
    last_error: Mutex<Option<(i32, Arc<str>)>>,
    /// The objects that are bound to it.
    pub users: Children,
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").field("group", &self.group).finish_non_exhaustive()
    }
}

impl EventQueue {
    /// An empty queue over a port that can sleep. `how`: how blocking reads wait.
    pub fn new(port: Arc<dyn WaitObject>, how: Waiting) -> Self {
        let bell = Arc::new(Doorbell::new());
        Self {
            queue: Mutex::default(),
            group: ProgressSet::with_bell(Park, port.clone(), ringer(&bell, port)),
            bell,
            spin: Spin::default(),
            how,
            last_error: Mutex::new(None),
            users: Children::new(),
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Event>> {
        Park::lock(&self.queue)
    }

    /// Adds an event.
    pub fn push(&self, event: Event) {
        self.queue().push_back(event);
        write(self.bell.ring_after_lock(), self.group.wait_object());
    }

    /// The oldest event, removed unless it is an error or `peek` is wanted by `keep`. `keep` sees the event first.
    pub fn read(&self, keep: impl FnOnce(&Event) -> bool) -> Found {
        if self.queue().is_empty() {
            self.group.look_in();
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

    /// The error that is the oldest event, removed.
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

    /// What a provider's error number means.
    pub fn strerror(&self, code: i32) -> String {
        let last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((last, text)) if *last == code => text.to_string(),
            _ => Cause::from_code(code).map_or_else(|| "no provider error".to_owned(), |cause| cause.text().to_owned()),
        }
    }

    /// Blocks until there is an event or the timeout is over (`None`: without end). False if it is over; another reader
    /// may have been faster otherwise.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        Sleep { group: &self.group, bell: &self.bell, spin: &self.spin, how: self.how }
            .until(|| !self.queue().is_empty(), timeout)
    }

    /// Whether a caller may block on the descriptor now (fi_trywait(3)).
    pub fn try_wait(&self) -> Result<(), Errno> {
        Sleep { group: &self.group, bell: &self.bell, spin: &self.spin, how: self.how }
            .prepare(|| !self.queue().is_empty())
    }

    /// The descriptor that is readable when there is news.
    pub fn descriptor(&self) -> i32 {
        self.group.wait_object().descriptor()
    }

    /// Hands the events of an object over to the queue that takes this one's place for it.
    pub(crate) fn hand_over(&self, owner: Owner, to: &Self) {
        let mut queue = self.queue();
        let (moved, kept): (VecDeque<Event>, _) = queue.drain(..).partition(|event| event.owner == owner);
        *queue = kept;
        drop(queue);
        moved.into_iter().for_each(|event| to.push(event));
    }

    /// Drops the events of an object that is being closed.
    pub fn forget(&self, owner: Owner) {
        self.queue().retain(|event| event.owner != owner);
    }

    /// Makes an object progress whenever this queue is read.
    pub fn join(&self, member: Arc<dyn Pollable>) -> Result<usize> {
        self.group.join(member)
    }

    /// The object no longer progresses with this queue.
    pub fn leave(&self, key: usize) {
        self.group.leave(key);
    }
}
