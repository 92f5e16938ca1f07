//! The operations of a domain: each with its buffer and the task that waits for it, from the call
//! to the completion.
//! Lock order: the table, an endpoint, a completion queue. Wakers and buffers of the application
//! run its code: they leave in an [`After`], which ends when the lock is released.
//! Invariant: a state other than `Posted` and `Abandoned` means that the engine has no buffer of
//! the operation, and only operations of an open endpoint are in these two.
#![allow(unsafe_code)]

use crate::buf::{Bytes, GivenUp, Kept};
use crate::engine::{Engine, Post};
use crate::entries::{Done, Entries, Outcome, State};
use crate::wakers::{Panics, Wakers};
use core::task::Waker;
use ofi_core::{Cause, Completion, Errno, Failure, FiAddr, Instant, OpFlags};
use ofi_memory::{Erased, Span};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// An operation that has ended, and its buffer.
pub(crate) type Ended = (Outcome, Erased);

/// What the first look at an operation has found.
pub(crate) enum Found<G> {
    /// It has completed; its buffer.
    Ended(Done, G),
    /// [`Table::is_alone`].
    Alone,
    /// Anything else, which may be its end.
    Other,
}

/// An endpoint of the domain.
#[derive(Debug)]
struct Slot {
    engine: Arc<Engine>,
    /// Operations that wait for room, oldest first: sends and accesses, receives.
    held: [VecDeque<usize>; 2],
    /// Where one of either kind was found that the engine has.
    posted: [usize; 2],
}

/// The operations.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Entries,
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
        for context in self.entries.of_endpoint(endpoint) {
            if let Some(entry) = self.entries.get(context) {
                self.awaited -= usize::from(entry.waker.is_some());
                after.stale.extend(entry.waker.take());
            }
            if let Some((_, kept)) = self.remove(context) {
                // SAFETY: the endpoint is closed, and touches no buffer any more; the entry is
                // removed, once.
                after.ended.push(unsafe { kept.end() });
            }
        }
        if let Some(slot) = self.slots.try_remove(endpoint) {
            self.held -= slot.held.iter().map(VecDeque::len).sum::<usize>();
        }
        after
    }

    /// Adds an operation of an endpoint, a receive or another one. Returns its context, and its
    /// bytes if the caller shall post it now: not if others wait for room before it.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        (endpoint, is_receive): (usize, bool),
        (kept, bytes): (Kept, Bytes),
        post: impl Fn() -> Post,
    ) -> (usize, Option<Span>) {
        // SAFETY: it is the only buffer of the operation; the entry keeps the bytes until the
        // engine has given it up.
        let span = unsafe { bytes.lend() };
        let context = self.entries.insert((endpoint, is_receive), kept, State::Posted);
        if self.held > 0 && !self.slots[endpoint].held[usize::from(is_receive)].is_empty() {
            self.hold(context, post(), bytes);
            return (context, None);
        }
        (context, Some(span))
    }

    /// Adds a send that is done.
    #[inline(always)]
    pub(crate) fn add_sent(&mut self, endpoint: usize, tagged: bool, (kept, bytes): (Kept, Bytes)) -> usize {
        let kind = if tagged { OpFlags::TAGGED } else { OpFlags::MSG };
        let done = Done { flags: kind | OpFlags::SEND, len: bytes.len(), data: 0, tag: 0, src: FiAddr::UNSPEC };
        self.entries.insert((endpoint, false), kept, State::Ended(Ok(done)))
    }

    /// Adds an operation that has ended before it was posted.
    pub(crate) fn add_refused(&mut self, endpoint: usize, kept: Kept, (errno, why): (Errno, &str)) -> usize {
        let refused = failure(0, errno, Cause::NotStarted, why);
        self.entries.insert((endpoint, false), kept, State::Ended(Err(refused)))
    }

    #[cold]
    fn hold(&mut self, context: usize, post: Post, bytes: Bytes) {
        let Some(entry) = self.entries.get(context) else { return };
        entry.state = State::Held(Box::new((post, bytes)));
        let (endpoint, is_receive) = (entry.endpoint, entry.is_receive);
        self.slots[endpoint].held[usize::from(is_receive)].push_back(context);
        self.held += 1;
    }

    /// The engine refused an operation that [`Self::add`] had its caller post: without room it
    /// waits, otherwise it has ended. Returns whether it waits.
    pub(crate) fn refused(
        &mut self,
        context: usize,
        (post, bytes): (Post, Bytes),
        errno: Errno,
        after: &mut After,
    ) -> bool {
        let Some(entry) = self.entries.get(context) else { return false };
        if errno == Errno::AGAIN && !matches!(entry.state, State::Abandoned) {
            self.hold(context, post, bytes);
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
        for (endpoint, slot) in slots {
            for ((queue, posted), is_receive) in slot.held.iter_mut().zip(&mut slot.posted).zip([false, true]) {
                while let Some(context) = queue.front().copied() {
                    let entry = entries.get(context).and_then(|entry| entry.held().map(|held| (entry, held)));
                    let Some((entry, (post, bytes))) = entry else {
                        queue.pop_front();
                        *held -= 1;
                        continue;
                    };
                    // SAFETY: no other buffer of the operation exists, because the engine has
                    // refused it or has not had it; the entry keeps the bytes until the engine has
                    // given this one up.
                    let span = unsafe { bytes.lend() };
                    match post.issue(&slot.engine, context, span) {
                        Ok(()) => entry.state = State::Posted,
                        Err(Errno::AGAIN) => {
                            again |= !entries.has_posted(endpoint, is_receive, posted);
                            break;
                        }
                        Err(errno) => {
                            entry.state = State::Ended(Err(refusal(context, errno)));
                            entry.wake(awaited, &mut after.wakers);
                        }
                    }
                    queue.pop_front();
                    *held -= 1;
                }
            }
        }
        again
    }

    /// Removes an operation for which no task waits: how it stood, and its buffer.
    fn remove(&mut self, context: usize) -> Option<(State, Kept)> {
        if let Some(deadline) = self.entries.get(context)?.deadline.take() {
            self.deadlines.remove(&(deadline, context));
        }
        self.entries.remove(context)
    }

    /// An operation has ended.
    #[inline]
    pub(crate) fn end(&mut self, context: usize, mut outcome: Outcome, after: &mut After) {
        let Some(entry) = self.entries.get(context) else { return };
        if matches!(entry.state, State::Abandoned) {
            // SAFETY: the operation has completed, or was refused: the engine has no buffer of it,
            // and its entry is removed, once.
            after.ended.extend(self.remove(context).map(|(_, kept)| unsafe { kept.end() }));
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
        entry.wake(&mut self.awaited, &mut after.wakers);
    }

    /// The outcome and the buffer of an operation if it has ended; otherwise `waker` will be woken.
    /// Also returns the waker that it replaces, to be dropped without the lock.
    pub(crate) fn take(&mut self, context: usize, waker: &Waker) -> (Option<Ended>, Option<Waker>) {
        let ended = self.try_take(context);
        if ended.is_some() {
            return (ended, None);
        }
        let Some(entry) = self.entries.get(context) else { return (None, None) };
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
        if !matches!(self.entries.get(context)?.state, State::Ended(_)) {
            return None;
        }
        let (State::Ended(outcome), kept) = self.remove(context)? else { return None };
        // SAFETY: the operation has ended: the engine has no buffer of it, and its entry is
        // removed, once.
        Some((outcome, unsafe { kept.end() }))
    }

    /// The same at less cost, only for an operation that has completed and has no deadline;
    /// otherwise, whether a moment's wait for it makes sense.
    #[inline(always)]
    pub(crate) fn look_at<G: GivenUp>(&mut self, context: usize) -> Found<G> {
        if let Some((done, kept)) = self.entries.remove_done(context) {
            // SAFETY: the operation has ended: the engine has no buffer of it, and its entry is
            // removed, once.
            return Found::Ended(done, unsafe { kept.end_in_place() });
        }
        if self.is_alone(context) { Found::Alone } else { Found::Other }
    }

    /// The engine has completed an operation: its buffer. `None`, and nothing has changed, if more
    /// is to be done than to give that to the caller, who awaits it.
    #[inline(always)]
    pub(crate) fn take_posted<G: GivenUp>(&mut self, context: usize) -> Option<G> {
        // The completion may have made room for others.
        if self.held > 0 {
            return None;
        }
        let kept = self.entries.remove_posted(context)?;
        // SAFETY: the operation has completed: the engine has no buffer of it, and its entry is
        // removed, once.
        Some(unsafe { kept.end_in_place() })
    }

    /// Whether the engine has this operation, and no operation has a task that waits, but perhaps
    /// this one.
    pub(crate) fn is_alone(&mut self, context: usize) -> bool {
        let Some(entry) = self.entries.get(context) else { return false };
        matches!(entry.state, State::Posted) && self.awaited == usize::from(entry.waker.is_some())
    }

    /// The future of an operation is gone. Returns the endpoint if its engine has the operation.
    pub(crate) fn abandon(&mut self, context: usize) -> (After, Option<Arc<Engine>>) {
        let mut after = After::default();
        let Some(entry) = self.entries.get(context) else { return (after, None) };
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
        let (endpoint, direction) = (entry.endpoint, usize::from(entry.is_receive));
        if let Some((state, kept)) = self.remove(context) {
            if matches!(state, State::Held(_)) {
                self.forget_held(endpoint, direction, context);
            }
            // SAFETY: the operation has ended, or has not been posted: the engine has no buffer of
            // it, and its entry is removed, once.
            after.ended.push(unsafe { kept.end() });
        }
        (after, None)
    }

    fn forget_held(&mut self, endpoint: usize, direction: usize, context: usize) {
        self.slots[endpoint].held[direction].retain(|held| *held != context);
        self.held -= 1;
    }

    /// Cancels an operation, which then ends with ECANCELED unless it completes first. Returns the
    /// endpoint if its engine has the operation.
    pub(crate) fn cancel(&mut self, context: usize) -> (After, Option<Arc<Engine>>) {
        let mut after = After::default();
        let Some(entry) = self.entries.get(context) else { return (after, None) };
        match entry.state {
            State::Posted => {
                let endpoint = entry.endpoint;
                return (after, Some(self.slots[endpoint].engine.clone()));
            }
            State::Held(_) => {
                let (endpoint, direction) = (entry.endpoint, usize::from(entry.is_receive));
                self.forget_held(endpoint, direction, context);
                let cancelled = failure(context, Errno::ECANCELED, Cause::Cancelled, Cause::Cancelled.text());
                self.end(context, Err(cancelled), &mut after);
            }
            State::Ended(_) | State::Abandoned => {}
        }
        (after, None)
    }

    /// Sets the deadline of an operation; false if it has ended.
    pub(crate) fn set_deadline(&mut self, context: usize, deadline: Instant) -> bool {
        let entry = self.entries.get(context).filter(|entry| !matches!(entry.state, State::Ended(_)));
        let Some(entry) = entry else { return false };
        if let Some(old) = entry.deadline.replace(deadline) {
            self.deadlines.remove(&(old, context));
        }
        self.deadlines.insert((deadline, context))
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
            let Some(entry) = self.entries.get(context) else { continue };
            (entry.deadline, entry.late) = (None, true);
            let (more, engine) = self.cancel(context);
            after.wakers.extend(more.wakers);
            after.late.extend(engine.map(|engine| (engine, context)));
        }
    }

    /// The tasks of all operations.
    pub(crate) fn wake_all(&mut self) -> After {
        self.awaited = 0;
        After { wakers: self.entries.iter_mut().filter_map(|entry| entry.waker.take()).collect(), ..After::default() }
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
