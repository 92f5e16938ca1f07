//! The operations of a domain: each with its buffer and the task that waits for it, from the call
//! to the completion. An entry's context names it to the engine, and carries a generation, so that
//! a completion that an endpoint left behind when it closed meets no later operation.
//! Lock order: the table, an endpoint, a completion queue. Wakers and buffers of the application
//! run its code: they leave in an [`After`], which ends when the lock is released.
//! Invariant: a state other than `Posted` and `Abandoned` means that the engine has no buffer of
//! the operation, and only operations of an open endpoint are in these two.
#![allow(unsafe_code)]

use crate::buf::Kept;
use crate::engine::{Engine, Post};
use core::any::Any;
use core::task::Waker;
use ofi_core::{Cause, Completion, Errno, Failure, Instant};
use ofi_memory::{Buffer, Erased};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// How an operation ended.
pub(crate) type Outcome = Result<Completion, Box<Failure>>;

/// An operation that has ended, and its buffer.
pub(crate) type Ended = (Outcome, Erased);

/// Where an operation stands.
#[derive(Debug)]
enum State {
    /// The engine has no room for it yet.
    Held(Box<Post>),
    /// The engine has it.
    Posted,
    /// It has ended.
    Ended(Outcome),
    /// The engine has it; its future is gone.
    Abandoned,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    /// It waits for room among the receives, not among the sends.
    is_receive: bool,
    /// The deadline has passed: a cancellation is a timeout.
    late: bool,
    endpoint: usize,
    kept: Kept,
    state: State,
    waker: Option<Waker>,
    deadline: Option<Instant>,
}

impl Entry {
    /// The operation if it waits for room.
    fn held(&mut self) -> Option<(&mut Self, Post)> {
        let State::Held(post) = &self.state else { return None };
        let post = **post;
        Some((self, post))
    }

    /// Takes its waker, to be woken.
    #[inline]
    fn wake(&mut self, awaited: &mut usize, after: &mut After) {
        if let Some(waker) = self.waker.take() {
            *awaited -= 1;
            after.wakers.push(waker);
        }
    }
}

/// An endpoint of the domain.
#[derive(Debug)]
struct Slot {
    engine: Arc<Engine>,
    /// Operations that wait for room, oldest first: sends and accesses, receives.
    held: [VecDeque<usize>; 2],
    /// How many of either kind the engine has: their completions report that there is room.
    posted: [usize; 2],
}

/// The operations.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Slab<Entry>,
    generation: u32,
    slots: Slab<Slot>,
    /// How many operations wait for room.
    held: usize,
    /// How many operations have a task that waits.
    awaited: usize,
    deadlines: BTreeSet<(Instant, usize)>,
    /// The timer is set for them, or to post what waits for room.
    pub(crate) has_timer: bool,
    /// When the timer has a turn post again what waits for room.
    pub(crate) retry: Option<Instant>,
}

/// The tasks that one turn wakes, of which there is usually one.
pub(crate) type Wakers = SmallVec<[Waker; 2]>;

/// What is left to do without the lock.
#[derive(Debug, Default)]
#[must_use = "tasks wait for it"]
pub(crate) struct After {
    wakers: Wakers,
    /// Of operations whose future is gone: only dropped. They may be the last ones of tasks that
    /// own operations.
    stale: Wakers,
    ended: SmallVec<[Erased; 1]>,
    late: Vec<(Arc<Engine>, usize)>,
}

impl After {
    /// Wakes the tasks, and drops the buffers of abandoned operations.
    ///
    /// # Panics
    /// If a waker or a buffer does; after all others.
    #[inline]
    pub(crate) fn run(self) {
        if !self.is_empty() {
            self.run_all();
        }
    }

    /// Whether there is nothing to do.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let Self { wakers, stale, ended, late } = self;
        wakers.is_empty() && stale.is_empty() && ended.is_empty() && late.is_empty()
    }

    fn run_all(self) {
        let Self { wakers, stale, ended, late } = self;
        for (engine, context) in late {
            engine.control.cancel(context);
        }
        let mut panics = Panics::default();
        panics.run(wakers, Waker::wake);
        panics.run(stale, drop);
        panics.run(ended, drop);
        panics.resume();
    }
}

/// Wakes tasks.
///
/// # Panics
/// If a waker does; after all others.
pub(crate) fn wake(wakers: Wakers) {
    let mut panics = Panics::default();
    panics.run(wakers, Waker::wake);
    panics.resume();
}

/// The first panic of the application's code: one task's panic is no reason to leave others asleep.
#[derive(Debug, Default)]
struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    fn run<T>(&mut self, items: impl IntoIterator<Item = T>, work: impl Fn(T)) {
        for item in items {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(item))) {
                self.0.get_or_insert(panic);
            }
        }
    }

    fn resume(self) {
        if let Some(panic) = self.0 {
            resume_unwind(panic);
        }
    }
}

const fn context_of(generation: u32, key: usize) -> usize {
    (generation as usize) << 32 | (key + 1)
}

/// The failure of an operation that this library refused.
pub(crate) fn failure(context: usize, errno: Errno, cause: Cause, text: &str) -> Box<Failure> {
    let completion = Completion {
        context,
        flags: ofi_core::OpFlags::empty(),
        len: 0,
        buf: 0,
        data: 0,
        tag: 0,
        src: ofi_core::FiAddr::UNSPEC,
    };
    Box::new(Failure { completion, errno, olen: 0, cause, text: text.into(), sender: None })
}

impl Table {
    /// Adds an endpoint; returns its number.
    pub(crate) fn add_endpoint(&mut self, engine: Arc<Engine>) -> usize {
        self.slots.insert(Slot { engine, held: Default::default(), posted: [0; 2] })
    }

    /// Removes an endpoint that its engine has closed, with its operations, which only forgotten
    /// futures still name.
    pub(crate) fn remove_endpoint(&mut self, endpoint: usize) -> After {
        let mut after = After::default();
        let of_it = |(key, entry): (usize, &Entry)| (entry.endpoint == endpoint).then_some(key);
        let keys: Vec<usize> = self.entries.iter().filter_map(of_it).collect();
        for key in keys {
            let context = context_of(self.entries[key].generation, key);
            if let Some(entry) = self.remove(context) {
                after.stale.extend(entry.waker);
                // SAFETY: the endpoint is closed, and touches no buffer any more.
                after.ended.push(unsafe { entry.kept.end() });
            }
        }
        if let Some(slot) = self.slots.try_remove(endpoint) {
            self.held -= slot.held.iter().map(VecDeque::len).sum::<usize>();
        }
        after
    }

    /// Adds an operation. Returns its context, and the buffer if the caller shall post it now: not
    /// if others wait for room before it.
    #[inline]
    pub(crate) fn add(&mut self, endpoint: usize, post: &Post, kept: Kept) -> (usize, Option<Buffer>) {
        let slot = &mut self.slots[endpoint];
        let is_receive = post.is_receive();
        if !slot.held[usize::from(is_receive)].is_empty() {
            let context = self.insert(endpoint, is_receive, kept, State::Posted);
            self.hold(context, post);
            return (context, None);
        }
        slot.posted[usize::from(is_receive)] += 1;
        // SAFETY: it is the only buffer of the operation; the entry keeps the bytes until the
        // engine has given it up.
        let buffer = unsafe { kept.lend() };
        (self.insert(endpoint, is_receive, kept, State::Posted), Some(buffer))
    }

    /// Adds an operation that has ended before it was posted.
    pub(crate) fn add_refused(&mut self, endpoint: usize, kept: Kept, (errno, why): (Errno, &str)) -> usize {
        let refused = failure(0, errno, Cause::NotStarted, why);
        self.insert(endpoint, false, kept, State::Ended(Err(refused)))
    }

    #[inline]
    fn insert(&mut self, endpoint: usize, is_receive: bool, kept: Kept, state: State) -> usize {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let entry = Entry { generation, is_receive, late: false, endpoint, kept, state, waker: None, deadline: None };
        context_of(generation, self.entries.insert(entry))
    }

    #[cold]
    fn hold(&mut self, context: usize, post: &Post) {
        let Some(entry) = self.get_mut(context) else { return };
        entry.state = State::Held(Box::new(*post));
        let (endpoint, is_receive) = (entry.endpoint, entry.is_receive);
        self.slots[endpoint].held[usize::from(is_receive)].push_back(context);
        self.held += 1;
    }

    /// The engine refused an operation that [`Self::add`] had its caller post: without room it
    /// waits, otherwise it has ended. Returns whether it waits.
    pub(crate) fn refused(&mut self, context: usize, post: &Post, errno: Errno, after: &mut After) -> bool {
        let Some(entry) = self.get_mut(context) else { return false };
        let (endpoint, direction, abandoned) =
            (entry.endpoint, usize::from(entry.is_receive), matches!(entry.state, State::Abandoned));
        if errno == Errno::AGAIN && !abandoned {
            self.slots[endpoint].posted[direction] -= 1;
            self.hold(context, post);
            return true;
        }
        self.end(context, Err(refusal(context, errno)), after);
        false
    }

    /// Posts operations that wait for room, as far as there is room again. True if some still wait
    /// although their endpoint has no other operation whose completion would report room: they are
    /// to be tried again.
    pub(crate) fn post_held(&mut self, after: &mut After) -> bool {
        let mut again = false;
        if self.held == 0 {
            return again;
        }
        let Self { entries, slots, held, awaited, .. } = self;
        for (_, slot) in slots {
            for (queue, posted) in slot.held.iter_mut().zip(&mut slot.posted) {
                while let Some(context) = queue.front().copied() {
                    let Some((entry, post)) = entry_of(entries, context).and_then(Entry::held) else {
                        queue.pop_front();
                        *held -= 1;
                        continue;
                    };
                    // SAFETY: no other buffer of the operation exists, because the engine has
                    // refused it or has not had it; the entry keeps the bytes until the engine has
                    // given this one up.
                    let buffer = unsafe { entry.kept.lend() };
                    match post.issue(&slot.engine, context, buffer) {
                        Ok(()) => {
                            entry.state = State::Posted;
                            *posted += 1;
                        }
                        Err(Errno::AGAIN) => {
                            again |= *posted == 0;
                            break;
                        }
                        Err(errno) => {
                            entry.state = State::Ended(Err(refusal(context, errno)));
                            entry.wake(awaited, after);
                        }
                    }
                    queue.pop_front();
                    *held -= 1;
                }
            }
        }
        again
    }

    fn get_mut(&mut self, context: usize) -> Option<&mut Entry> {
        entry_of(&mut self.entries, context)
    }

    fn remove(&mut self, context: usize) -> Option<Entry> {
        self.get_mut(context)?;
        let entry = self.entries.remove(key_of(context)?);
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, context));
        }
        self.awaited -= usize::from(entry.waker.is_some());
        Some(entry)
    }

    /// An operation has ended.
    #[inline]
    pub(crate) fn end(&mut self, context: usize, mut outcome: Outcome, after: &mut After) {
        let Some(entry) = entry_of(&mut self.entries, context) else { return };
        if matches!(entry.state, State::Posted | State::Abandoned)
            && let Some(slot) = self.slots.get_mut(entry.endpoint)
        {
            slot.posted[usize::from(entry.is_receive)] -= 1;
        }
        if matches!(entry.state, State::Abandoned) {
            // SAFETY: the operation has completed, or was refused: the engine has no buffer of it.
            after.ended.extend(self.remove(context).map(|entry| unsafe { entry.kept.end() }));
            return;
        }
        if entry.late
            && let Err(failure) = &mut outcome
            && failure.errno == Errno::ECANCELED
        {
            failure.errno = Errno::ETIMEDOUT;
            failure.text = "the operation did not complete before its deadline".into();
        }
        entry.state = State::Ended(outcome);
        entry.wake(&mut self.awaited, after);
    }

    /// The outcome and the buffer of an operation if it has ended; otherwise `waker` will be woken.
    /// Also returns the waker that it replaces, to be dropped without the lock.
    pub(crate) fn take(&mut self, context: usize, waker: &Waker) -> (Option<Ended>, Option<Waker>) {
        let ended = self.try_take(context);
        if ended.is_some() {
            return (ended, None);
        }
        let Some(entry) = entry_of(&mut self.entries, context) else { return (None, None) };
        match &entry.waker {
            Some(old) if old.will_wake(waker) => (None, None),
            Some(_) => (None, entry.waker.replace(waker.clone())),
            None => {
                entry.waker = Some(waker.clone());
                self.awaited += 1;
                (None, None)
            }
        }
    }

    /// The outcome and the buffer of an operation if it has ended.
    #[inline]
    pub(crate) fn try_take(&mut self, context: usize) -> Option<Ended> {
        // An operation that has ended has no waker: it was woken.
        if !matches!(self.get_mut(context)?.state, State::Ended(_)) {
            return None;
        }
        let entry = self.remove(context)?;
        let State::Ended(outcome) = entry.state else { return None };
        // SAFETY: the operation has ended: the engine has no buffer of it.
        Some((outcome, unsafe { entry.kept.end() }))
    }

    /// Whether no operation has a task that waits, but perhaps this one.
    pub(crate) fn is_awaited_alone(&mut self, context: usize) -> bool {
        let own = self.get_mut(context).is_some_and(|entry| entry.waker.is_some());
        self.awaited == usize::from(own)
    }

    /// The future of an operation is gone. Returns the endpoint if its engine has the operation.
    pub(crate) fn abandon(&mut self, context: usize) -> (After, Option<Arc<Engine>>) {
        let mut after = After::default();
        let Some(entry) = entry_of(&mut self.entries, context) else { return (after, None) };
        self.awaited -= usize::from(entry.waker.is_some());
        after.stale.extend(entry.waker.take());
        if matches!(entry.state, State::Posted) {
            entry.state = State::Abandoned;
            let (endpoint, deadline) = (entry.endpoint, entry.deadline.take());
            if let Some(deadline) = deadline {
                self.deadlines.remove(&(deadline, context));
            }
            return (after, Some(self.slots[endpoint].engine.clone()));
        }
        if let Some(entry) = self.remove(context) {
            self.forget_held(&entry, context);
            // SAFETY: the operation has ended, or has not been posted: the engine has no buffer of
            // it.
            after.ended.push(unsafe { entry.kept.end() });
        }
        (after, None)
    }

    fn forget_held(&mut self, entry: &Entry, context: usize) {
        if matches!(entry.state, State::Held(_)) {
            self.slots[entry.endpoint].held[usize::from(entry.is_receive)].retain(|held| *held != context);
            self.held -= 1;
        }
    }

    /// Cancels an operation, which then ends with ECANCELED unless it completes first. Returns the
    /// endpoint if its engine has the operation.
    pub(crate) fn cancel(&mut self, context: usize) -> (After, Option<Arc<Engine>>) {
        let mut after = After::default();
        let Some(entry) = self.get_mut(context) else { return (after, None) };
        match entry.state {
            State::Posted => {
                let endpoint = entry.endpoint;
                return (after, Some(self.slots[endpoint].engine.clone()));
            }
            State::Held(_) => {
                let (endpoint, is_receive) = (entry.endpoint, entry.is_receive);
                self.slots[endpoint].held[usize::from(is_receive)].retain(|held| *held != context);
                self.held -= 1;
                let cancelled = failure(context, Errno::ECANCELED, Cause::Cancelled, Cause::Cancelled.text());
                self.end(context, Err(cancelled), &mut after);
            }
            State::Ended(_) | State::Abandoned => {}
        }
        (after, None)
    }

    /// Sets the deadline of an operation.
    pub(crate) fn set_deadline(&mut self, context: usize, deadline: Instant) {
        let Some(entry) = self.get_mut(context) else { return };
        if let Some(old) = entry.deadline.replace(deadline) {
            self.deadlines.remove(&(old, context));
        }
        self.deadlines.insert((deadline, context));
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(when, _)| *when)
    }

    /// Cancels the operations whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant, after: &mut After) {
        while let Some((when, context)) = self.deadlines.first().copied()
            && when <= now
        {
            self.deadlines.pop_first();
            let Some(entry) = self.get_mut(context) else { continue };
            (entry.deadline, entry.late) = (None, true);
            let (more, engine) = self.cancel(context);
            after.wakers.extend(more.wakers);
            after.late.extend(engine.map(|engine| (engine, context)));
        }
    }

    /// The tasks of all operations.
    pub(crate) fn wake_all(&mut self) -> After {
        self.awaited = 0;
        After {
            wakers: self.entries.iter_mut().filter_map(|(_, entry)| entry.waker.take()).collect(),
            ..After::default()
        }
    }

    /// Whether operations wait for room.
    pub(crate) const fn has_held(&self) -> bool {
        self.held > 0
    }

    /// How many operations there are, abandoned ones among them.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn refusal(context: usize, errno: Errno) -> Box<Failure> {
    let text = match errno {
        Errno::ENOSYS => "the provider has no such operation",
        Errno::EMSGSIZE => "the message is longer than the endpoint's max_msg_size",
        Errno::ENOTCONN => "the endpoint is not connected",
        Errno::EOPBADSTATE => "the connection has ended",
        _ => "the endpoint refused the operation",
    };
    failure(context, errno, Cause::NotStarted, text)
}

fn key_of(context: usize) -> Option<usize> {
    (context & u32::MAX as usize).checked_sub(1)
}

#[inline]
fn entry_of(entries: &mut Slab<Entry>, context: usize) -> Option<&mut Entry> {
    let entry = entries.get_mut(key_of(context)?)?;
    (entry.generation as usize == context >> 32).then_some(entry)
}
