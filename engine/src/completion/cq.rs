//! Completion queue (fi_cq(3)): entries in order, errors among them. Its size is a hint, and no
//! entry is ever lost, unless the application asks for a bounded one. Reading it makes progress on
//! the endpoints that are bound to it.

use crate::progress::set::{Pollable, ProgressSet, Watcher};
use crate::progress::wait::{Outcome, Sleep, Spin, Waiting, ringer, write};
use crate::transport::Flush;
use core::fmt;
use ofi_core::error::Result;
use ofi_core::param::{Param, ParamKind};
use ofi_core::wait::WaitObject;
use ofi_core::{Cause, Completion, Errno, Failure, FiAddr, OpFlags};
use ofi_memory::fresh;
use ofi_sync::busy::Children;
use ofi_sync::doorbell::Doorbell;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An entry: a completion, or an error that hides the entries behind it until it is read.
#[derive(Debug)]
struct Entry {
    done: Completion,
    failed: Option<Box<Failure>>,
}

const _: () = assert!(size_of::<Entry>() == 64);

const FREE: Entry = Entry {
    done: Completion { context: 0, flags: OpFlags::empty(), len: 0, buf: 0, data: 0, tag: 0, src: FiAddr::UNSPEC },
    failed: None,
};

/// Parameter: whether the size of a completion queue bounds it.
pub const CQ_BOUNDED: Param = Param {
    name: "FI_OFI_CQ_BOUNDED",
    kind: ParamKind::Bool,
    help: "A completion queue holds no more entries than its size, rounded up to a power of two (1024 if the size is \
           0): a further one overruns the queue, which then reports FI_EOVERRUN when its entries have been read, and \
           nothing else. Otherwise queues grow and lose nothing (default: no)",
};

/// Size of a bounded queue if the application leaves the size to the library.
const BOUNDED_SIZE: usize = 1024;

/// How many entries a queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// Any number.
    None,
    /// This many, a power of two.
    Entries(usize),
    /// No more: it was full, and had to drop an entry.
    Overrun,
}

/// Entries, oldest first. A custom ring writes an entry in place, word by word: copying a fresh
/// entry with wider loads would stall on the stores that wrote it.
#[derive(Debug)]
struct Queue {
    /// A power of two in length; unused entries have no error.
    entries: Vec<Entry>,
    /// Index of the oldest, modulo the length; restarts at 0 when the queue is empty.
    head: usize,
    len: usize,
    /// The number of entries from which a further one is a matter for [`Queue::make_room`]: the
    /// most that there were, or 0 after an overrun.
    room: usize,
    bound: Bound,
}

impl Queue {
    fn new(size: usize, bound: Bound) -> Self {
        let mut entries = Vec::new();
        entries.resize_with(size.next_power_of_two(), || FREE);
        Self { room: 0, entries, head: 0, len: 0, bound }
    }

    fn unbounded(size: usize) -> Self {
        Self::new(size.clamp(64, 4096), Bound::None)
    }

    fn bounded(size: usize) -> Self {
        let size = if size == 0 { BOUNDED_SIZE } else { size };
        let most = size.checked_next_power_of_two().unwrap_or(usize::MAX);
        Self::new(size.min(4096), Bound::Entries(most))
    }

    #[inline(always)]
    fn entry(&mut self, at: usize) -> &mut Entry {
        let mask = self.entries.len() - 1;
        &mut self.entries[at & mask]
    }

    #[inline(always)]
    fn push(&mut self, done: Completion, failed: Option<Box<Failure>>) {
        if self.len >= self.room && !self.make_room() {
            return;
        }
        let entry = self.entry(self.head.wrapping_add(self.len));
        // Two words are loaded by themselves, because those beside them may have been stored
        // together with others: a load of both would wait, and a reader for it ([`fresh()`]).
        entry.done = Completion { len: fresh(&done.len), tag: fresh(&done.tag), ..done };
        if failed.is_some() {
            entry.failed = failed;
        }
        self.len += 1;
    }

    /// There is one entry more than there ever was. False if the queue is overrun: it drops the
    /// entry, as it will drop all further ones.
    #[cold]
    fn make_room(&mut self) -> bool {
        if self.len < self.entries.len() && self.bound != Bound::Overrun {
            self.room = self.len + 1;
            return true;
        }
        match self.bound {
            Bound::None => {}
            Bound::Entries(most) if self.entries.len() < most => {}
            Bound::Entries(_) | Bound::Overrun => {
                (self.bound, self.room) = (Bound::Overrun, 0);
                return false;
            }
        }
        let (size, oldest) = (self.entries.len(), self.head & (self.entries.len() - 1));
        self.entries.rotate_left(oldest);
        self.entries.resize_with(2 * size, || FREE);
        (self.head, self.room) = (0, self.len + 1);
        true
    }

    /// The most entries that there were at a time.
    const fn high_water(&self) -> usize {
        match self.bound {
            Bound::Overrun => self.entries.len(),
            Bound::None | Bound::Entries(_) => self.room,
        }
    }

    /// What a read of the empty queue answers.
    #[cold]
    fn nothing(&self) -> Errno {
        if self.bound == Bound::Overrun { Errno::EAVAIL } else { Errno::AGAIN }
    }

    #[inline(always)]
    fn first(&mut self) -> Option<&mut Entry> {
        if self.len == 0 { None } else { Some(self.entry(self.head)) }
    }

    /// True if the oldest entry is an error, or there will be no more.
    #[inline(always)]
    fn is_failed(&mut self) -> bool {
        match self.first() {
            Some(entry) => entry.failed.is_some(),
            None => self.bound == Bound::Overrun,
        }
    }

    #[inline(always)]
    fn drop_first(&mut self) {
        self.len -= 1;
        // An empty queue restarts at 0 to reuse the same few cache lines.
        self.head = if self.len == 0 { 0 } else { self.head.wrapping_add(1) };
    }
}

/// The error that an overrun queue reports.
fn overrun() -> Failure {
    let cause = Cause::Overrun;
    Failure { completion: FREE.done, errno: Errno::EOVERRUN, olen: 0, cause, text: cause.text().into(), sender: None }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There were entries; another reader may have taken them.
    Ready,
    /// The queue was signaled.
    Signalled,
    /// The timeout expired.
    Expired,
}

/// A completion queue.
pub struct CompletionQueue<K: LockKind> {
    queue: K::Cell<Queue>,
    progress: ProgressSet<K>,
    bell: Arc<Doorbell>,
    /// How often it was signaled, and how many of those signals have ended a wait.
    signals: AtomicU64,
    seen: AtomicU64,
    how: Waiting,
    spin: Spin,
    last_error: Mutex<Option<(i32, Arc<str>)>>,
    /// The endpoints that are bound to it.
    pub users: Children,
}

impl<K: LockKind> fmt::Debug for CompletionQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("group", &self.progress).finish_non_exhaustive()
    }
}

impl<K: LockKind> CompletionQueue<K> {
    /// An empty queue with room for `size` entries; it grows, unless [`CQ_BOUNDED`] is set. `how`:
    /// whether and how blocking reads wait.
    pub fn new(kind: K, size: usize, wait_object: Arc<dyn WaitObject>, how: Waiting) -> Self {
        let queue = if CQ_BOUNDED.flag(false) { Queue::bounded(size) } else { Queue::unbounded(size) };
        Self::over(kind, queue, wait_object, how)
    }

    /// The same, but it grows in any case: for a reader that takes all entries, and could do
    /// nothing about an overrun.
    pub fn unbounded(kind: K, size: usize, wait_object: Arc<dyn WaitObject>, how: Waiting) -> Self {
        Self::over(kind, Queue::unbounded(size), wait_object, how)
    }

    fn over(kind: K, queue: Queue, wait_object: Arc<dyn WaitObject>, how: Waiting) -> Self {
        let bell = Arc::new(Doorbell::new());
        Self {
            queue: kind.cell(queue),
            progress: ProgressSet::with_bell(kind, wait_object.clone(), ringer(&bell, wait_object)),
            bell,
            signals: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            how,
            spin: Spin::default(),
            last_error: Mutex::new(None),
            users: Children::new(),
        }
    }

    /// Adds a completion.
    #[inline(always)]
    pub fn push(&self, completion: Completion) {
        K::lock(&self.queue).push(completion, None);
        if self.how != Waiting::Never {
            self.wake();
        }
    }

    /// Adds an error.
    #[cold]
    pub fn push_failure(&self, failure: Failure) {
        K::lock(&self.queue).push(FREE.done, Some(Box::new(failure)));
        if self.how != Waiting::Never {
            self.wake();
        }
    }

    /// The most entries that it had at a time.
    pub fn high_water(&self) -> usize {
        K::lock(&self.queue).high_water()
    }

    #[inline]
    fn wake(&self) {
        // The entry was added under the lock that a sleeper takes for its last check.
        write(self.bell.ring_after_lock(), self.progress.wait_object());
    }

    /// Passes up to `count` entries to `take`, oldest first. `EAVAIL` if the oldest is an error,
    /// `AGAIN` if there is none. With a `count` of 0 it only makes progress.
    #[inline(always)]
    pub fn read(&self, count: usize, mut take: impl FnMut(&Completion)) -> Result<usize, Errno> {
        // Return existing entries before making progress.
        if count > 0 {
            let taken = self.pop(count, &mut take);
            if taken != Err(Errno::AGAIN) {
                // While entries remain, sends may be held back; a caller that empties the queue may
                // not call again soon, so everything is flushed.
                let emptied = matches!(taken, Ok((_, 0)));
                self.progress.nudge(if emptied { Flush::All } else { Flush::ByRule });
                return taken.map(|(count, _)| count);
            }
        }
        let outcome = self.progress.pass();
        let active = outcome.is_active();
        // After an idle pass, entries that other threads add meanwhile wait for the next read.
        if active || count == 0 {
            let taken = self.pop(count, &mut take);
            if taken != Err(Errno::AGAIN) {
                // A peer may wait for the acknowledgment, and the caller may not read again.
                if outcome.defers() {
                    self.flush_deferred(taken);
                }
                return taken.map(|(count, _)| count);
            }
        }
        if active {
            // The pass may have deferred acknowledgements, and the caller may not read again soon.
            self.progress.flush(Flush::All);
        }
        self.progress.passed(active);
        Err(Errno::AGAIN)
    }

    /// After a pass: the caller may not read again, or not soon.
    #[cold]
    #[inline(never)]
    fn flush_deferred(&self, taken: Result<(usize, usize), Errno>) {
        self.progress.flush(if matches!(taken, Ok((_, 0))) { Flush::All } else { Flush::ByRule });
    }

    /// Returns how many entries were taken, and how many are left.
    #[inline(always)]
    fn pop(&self, count: usize, take: &mut impl FnMut(&Completion)) -> Result<(usize, usize), Errno> {
        let mut queue = K::lock(&self.queue);
        match queue.first() {
            None => return Err(queue.nothing()),
            Some(entry) if entry.failed.is_some() => return Err(Errno::EAVAIL),
            Some(_) => {}
        }
        let mut done = 0;
        while done < count
            && let Some(Entry { done: completion, failed: None }) = queue.first()
        {
            take(completion);
            queue.drop_first();
            done += 1;
        }
        Ok((done, queue.len))
    }

    /// Removes the oldest entry and returns it if it is an error; otherwise `AGAIN`. The error of
    /// an overrun stays.
    pub fn read_error(&self) -> Result<Failure, Errno> {
        let mut queue = K::lock(&self.queue);
        if queue.len == 0 {
            drop(queue);
            self.progress.look_in();
            queue = K::lock(&self.queue);
        }
        let failure = if queue.len == 0 && queue.bound == Bound::Overrun {
            Box::new(overrun())
        } else {
            let failure = queue.first().and_then(|entry| entry.failed.take()).ok_or(Errno::AGAIN)?;
            queue.drop_first();
            failure
        };
        drop(queue);
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((failure.cause.code(), failure.text.clone()));
        Ok(*failure)
    }

    /// The text of a provider error code: the last error's own text if it has that code.
    pub fn strerror(&self, code: i32) -> String {
        let last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((last, text)) if *last == code => text.to_string(),
            _ => Cause::from_code(code).map_or_else(|| "no provider error".to_owned(), |cause| cause.text().to_owned()),
        }
    }

    /// Blocks until there are `threshold` entries, an error, a signal, or the timeout
    /// (`None`: never).
    ///
    /// # Errors
    /// ENOSYS for a queue that cannot be waited on; EINTR if a signal to the process (signal(7))
    /// has ended the sleep.
    pub fn wait(&self, threshold: usize, timeout: Option<Duration>) -> Result<Waited, Errno> {
        if self.how == Waiting::Never {
            return Err(Errno::ENOSYS);
        }
        // A signal wakes all current waiters; with none, it is kept for the next.
        let (entered, seen) = self.signals_and_seen();
        let signalled = || entered != seen || self.signals_and_seen().0 != entered;
        let ready = || self.has(threshold) || signalled();
        let sleep = Sleep { progress: &self.progress, bell: &self.bell, spin: &self.spin, how: self.how };
        match sleep.until(ready, timeout) {
            Outcome::Ready => {}
            Outcome::Expired => return Ok(Waited::Expired),
            Outcome::Interrupted => return Err(Errno::EINTR),
        }
        if !signalled() {
            return Ok(Waited::Ready);
        }
        self.see_signals();
        Ok(Waited::Signalled)
    }

    fn has(&self, threshold: usize) -> bool {
        let mut queue = K::lock(&self.queue);
        queue.len >= threshold.max(1) || queue.is_failed()
    }

    fn signals_and_seen(&self) -> (u64, u64) {
        // Acquire pairs with the Release in `signal`. Relaxed: a stale count repeats a signal.
        (self.signals.load(Ordering::Acquire), self.seen.load(Ordering::Relaxed))
    }

    fn see_signals(&self) {
        // Relaxed: as above.
        self.seen.store(self.signals.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Wakes all current waiters; with none, the next one.
    pub fn signal(&self) -> Result<(), Errno> {
        if self.how == Waiting::Never {
            return Err(Errno::ENOSYS);
        }
        // Release pairs with the Acquire in `signals_and_seen`.
        self.signals.fetch_add(1, Ordering::Release);
        write(self.bell.ring(), self.progress.wait_object());
        Ok(())
    }

    /// Whether a caller may block on the descriptor now (fi_trywait(3)): `AGAIN` if there is
    /// something to read.
    pub fn try_wait(&self) -> Result<(), Errno> {
        self.try_wait_as(Watcher::ThisThread)
    }

    /// [`Self::try_wait`] for any watcher.
    pub fn try_wait_as(&self, watcher: Watcher) -> Result<(), Errno> {
        let ready = || {
            let (signals, seen) = self.signals_and_seen();
            if signals != seen {
                self.see_signals();
            }
            self.has(1) || signals != seen
        };
        Sleep { progress: &self.progress, bell: &self.bell, spin: &self.spin, how: self.how }.prepare(watcher, ready)
    }

    /// A reactor that was allowed to sleep is awake.
    pub fn unwatch(&self, watcher: Watcher) {
        self.progress.unwatch(watcher);
    }

    /// Whether blocking reads wait, and how.
    pub const fn waiting(&self) -> Waiting {
        self.how
    }

    /// Whether there is something to read; if not, makes progress and checks again.
    pub fn check(&self) -> bool {
        self.has(1) || {
            self.progress.look_in();
            self.has(1)
        }
    }

    /// The wait object's descriptor, if the queue has one.
    pub fn descriptor(&self) -> Option<i32> {
        (self.how == Waiting::Sleeping).then(|| self.progress.wait_object().descriptor())
    }

    /// Makes an endpoint progress whenever this queue is read.
    pub fn join(&self, pollable: Arc<dyn Pollable>) -> Result<usize> {
        self.progress.join(pollable)
    }

    /// The endpoint no longer progresses with this queue.
    pub fn leave(&self, key: usize) {
        self.progress.leave(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn entries_stay_in_order_whatever_the_queue_grows_to() {
        let mut queue = Queue::new(4, Bound::None);
        let mut model = VecDeque::new();
        let mut number = 0;
        for round in 0..200usize {
            for _ in 0..round % 13 {
                queue.push(Completion { context: number, ..FREE.done }, None);
                model.push_back(number);
                number += 1;
            }
            for _ in 0..round % 11 {
                let Some(expected) = model.pop_front() else { break };
                assert_eq!(queue.first().unwrap().done.context, expected);
                queue.drop_first();
            }
            assert_eq!(queue.len, model.len());
        }
        assert!(queue.entries.len() > 64);
    }

    fn push(queue: &mut Queue, context: usize) {
        queue.push(Completion { context, ..FREE.done }, None);
    }

    fn pop(queue: &mut Queue) -> Option<usize> {
        let context = queue.first()?.done.context;
        queue.drop_first();
        Some(context)
    }

    #[test]
    fn a_bounded_queue_takes_its_size_and_then_nothing_for_ever() {
        for (size, most) in [(1, 1), (4, 4), (5, 8), (0, BOUNDED_SIZE), (5000, 8192)] {
            let mut queue = Queue::bounded(size);
            // Entries that are read make room.
            for round in 0..3 {
                (0..most).for_each(|at| push(&mut queue, round + at));
                assert_eq!((queue.len, queue.nothing()), (most, Errno::AGAIN));
                (0..most).for_each(|at| assert_eq!(pop(&mut queue), Some(round + at)));
            }
            (0..most).for_each(|at| push(&mut queue, at));
            push(&mut queue, most);
            // The error comes behind the entries, which stay as they are.
            assert!(!queue.is_failed());
            for at in 0..most {
                assert_eq!(pop(&mut queue), Some(at));
                push(&mut queue, most);
            }
            assert!(pop(&mut queue).is_none() && queue.is_failed());
            assert_eq!(queue.nothing(), Errno::EAVAIL);
        }
        // A size that no machine has memory for bounds nothing, and costs nothing.
        let mut queue = Queue::bounded(usize::MAX);
        (0..10_000).for_each(|at| push(&mut queue, at));
        assert_eq!(queue.len, 10_000);
    }
}
