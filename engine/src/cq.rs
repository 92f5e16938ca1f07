//! Completion queue (fi_cq(3)): entries in order, errors among them, no entry ever lost. Its size is a hint.
//! Reading it moves on the endpoints that are bound to it.

use crate::group::{Group, Member};
use crate::transport::Flush;
use crate::waiting::{Sleep, Spin, Waiting, ringer};
use core::fmt;
use ofi_core::error::Result;
use ofi_core::wait::Port;
use ofi_core::{Cause, Completion, Errno, Failure};
use ofi_sync::busy::Children;
use ofi_sync::doorbell::Doorbell;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An entry: a completion, or an error that hides what is behind it until it is read.
#[derive(Debug)]
enum Entry {
    Done(Completion),
    Failed(Box<Failure>),
}

const _: () = assert!(size_of::<Entry>() == 64);

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
}

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There was something to read; another reader may have been faster.
    Ready,
    /// Somebody signalled.
    Signalled,
    /// The timeout is over.
    Expired,
}

/// A completion queue.
pub struct CompletionQueue<K: LockKind> {
    queue: K::Cell<Queue>,
    group: Group<K>,
    bell: Arc<Doorbell>,
    /// How often it was signalled, and how many of those have ended a wait.
    signals: AtomicU64,
    heard: AtomicU64,
    how: Waiting,
    spin: Spin,
    last_error: Mutex<Option<(i32, Arc<str>)>>,
    /// The endpoints that are bound to it.
    pub users: Children,
}

impl<K: LockKind> fmt::Debug for CompletionQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("group", &self.group).finish_non_exhaustive()
    }
}

impl<K: LockKind> CompletionQueue<K> {
    /// An empty queue with room for `size` entries; it grows. `how`: whether and how blocking reads wait.
    pub fn new(kind: K, size: usize, port: Arc<dyn Port>, how: Waiting) -> Self {
        let entries = VecDeque::with_capacity(size.clamp(64, 4096));
        let bell = Arc::new(Doorbell::new());
        Self {
            queue: kind.cell(Queue { entries }),
            group: Group::with_bell(kind, port.clone(), ringer(&bell, port)),
            bell,
            signals: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            how,
            spin: Spin::default(),
            last_error: Mutex::new(None),
            users: Children::new(),
        }
    }

    /// Adds a completion.
    #[inline]
    pub fn push(&self, completion: Completion) {
        K::lock(&self.queue).entries.push_back(Entry::Done(completion));
        if self.how != Waiting::Never {
            self.wake();
        }
    }

    /// Adds an error.
    #[cold]
    pub fn push_failure(&self, failure: Failure) {
        K::lock(&self.queue).entries.push_back(Entry::Failed(Box::new(failure)));
        if self.how != Waiting::Never {
            self.wake();
        }
    }

    #[inline]
    fn wake(&self) {
        // The entry was added under the lock that a sleeper takes to look.
        if self.bell.ring_after_lock() {
            self.group.port().ring();
        }
    }

    /// Gives up to `count` entries to `take`, oldest first. `AVAIL` if an error is the oldest, `AGAIN` if there is
    /// nothing. Zero entries drive progress.
    #[inline]
    pub fn read(&self, count: usize, mut take: impl FnMut(&Completion)) -> Result<usize, Errno> {
        // What is there is given first. A caller that finds more may be held back; one that leaves nothing may go away for
        // long, so that nothing may be held back then.
        if count > 0 {
            let taken = self.pop(count, &mut take);
            if taken != Err(Errno::AGAIN) {
                let emptied = matches!(taken, Ok((_, 0)));
                self.group.nudge(if emptied { Flush::All } else { Flush::ByRule });
                return taken.map(|(count, _)| count);
            }
        }
        // What others add meanwhile is found by the next read.
        if !self.group.progress() && count > 0 {
            return Err(Errno::AGAIN);
        }
        self.pop(count, &mut take).map(|(count, _)| count)
    }

    /// How many entries were taken, and how many are left.
    fn pop(&self, count: usize, take: &mut impl FnMut(&Completion)) -> Result<(usize, usize), Errno> {
        let mut queue = K::lock(&self.queue);
        let mut done = 0;
        match queue.entries.front() {
            None => return Err(Errno::AGAIN),
            Some(Entry::Failed(_)) => return Err(Errno::EAVAIL),
            Some(Entry::Done(_)) => {}
        }
        while done < count {
            let Some(Entry::Done(completion)) = queue.entries.front() else { break };
            take(completion);
            queue.entries.pop_front();
            done += 1;
        }
        Ok((done, queue.entries.len()))
    }

    /// The error that is the oldest entry, removed; `AGAIN` if the oldest is none.
    pub fn read_error(&self) -> Result<Failure, Errno> {
        let mut queue = K::lock(&self.queue);
        if queue.entries.is_empty() {
            drop(queue);
            self.group.progress();
            queue = K::lock(&self.queue);
        }
        match queue.entries.pop_front() {
            Some(Entry::Failed(failure)) => {
                drop(queue);
                let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
                *last = Some((failure.cause.code(), failure.text.clone()));
                Ok(*failure)
            }
            Some(done) => {
                queue.entries.push_front(done);
                Err(Errno::AGAIN)
            }
            None => Err(Errno::AGAIN),
        }
    }

    /// What a provider's error number means: the last error's own words if it is that one.
    pub fn strerror(&self, code: i32) -> String {
        let last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((last, text)) if *last == code => text.to_string(),
            _ => Cause::from_code(code).map_or_else(|| "no provider error".to_owned(), |cause| cause.text().to_owned()),
        }
    }

    /// Blocks until there are `threshold` entries, an error, a signal, or the timeout (`None`: without end).
    pub fn wait(&self, threshold: usize, timeout: Option<Duration>) -> Result<Waited, Errno> {
        if self.how == Waiting::Never {
            return Err(Errno::ENOSYS);
        }
        // A signal wakes all who wait by now; one that nobody waited for, the next who does.
        let (entered, heard) = self.signals_and_heard();
        let signalled = || entered != heard || self.signals_and_heard().0 != entered;
        let ready = || self.has(threshold) || signalled();
        if !(Sleep { group: &self.group, bell: &self.bell, spin: &self.spin, how: self.how }).until(ready, timeout) {
            return Ok(Waited::Expired);
        }
        if !signalled() {
            return Ok(Waited::Ready);
        }
        self.hear();
        Ok(Waited::Signalled)
    }

    fn has(&self, threshold: usize) -> bool {
        let queue = K::lock(&self.queue);
        queue.entries.len() >= threshold.max(1) || matches!(queue.entries.front(), Some(Entry::Failed(_)))
    }

    fn signals_and_heard(&self) -> (u64, u64) {
        // Acquire pairs with the Release in `signal`. Relaxed: who hears too late hears once more.
        (self.signals.load(Ordering::Acquire), self.heard.load(Ordering::Relaxed))
    }

    fn hear(&self) {
        // Relaxed: as above.
        self.heard.store(self.signals.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Wakes all who wait, or the next who would.
    pub fn signal(&self) -> Result<(), Errno> {
        if self.how == Waiting::Never {
            return Err(Errno::ENOSYS);
        }
        // Release pairs with the Acquire in `signals_and_heard`.
        self.signals.fetch_add(1, Ordering::Release);
        if self.bell.ring() {
            self.group.port().ring();
        }
        Ok(())
    }

    /// Whether a caller may block on the descriptor now (fi_trywait(3)): `AGAIN` if there is something to read.
    pub fn try_wait(&self) -> Result<(), Errno> {
        let ready = || {
            let (signals, heard) = self.signals_and_heard();
            if signals != heard {
                self.hear();
            }
            self.has(1) || signals != heard
        };
        Sleep { group: &self.group, bell: &self.bell, spin: &self.spin, how: self.how }.prepare(ready)
    }

    /// Whether blocking reads wait, and how.
    pub const fn waiting(&self) -> Waiting {
        self.how
    }

    /// Whether there is something to read. Moves its endpoints on.
    pub fn check(&self) -> bool {
        self.has(1) || {
            self.group.progress();
            self.has(1)
        }
    }

    /// The descriptor that is readable when there is news, for a queue that can be waited on.
    pub fn descriptor(&self) -> Option<i32> {
        (self.how == Waiting::Sleeping).then(|| self.group.port().descriptor())
    }

    /// Makes an endpoint progress whenever this queue is read.
    pub fn join(&self, member: Arc<dyn Member>) -> Result<usize> {
        self.group.join(member)
    }

    /// The endpoint no longer progresses with this queue.
    pub fn leave(&self, key: usize) {
        self.group.leave(key);
    }
}
