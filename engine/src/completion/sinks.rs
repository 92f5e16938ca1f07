//! Where an endpoint's completions go: its bound queues and counters (fi_ep_bind, fi_endpoint(3)).

use crate::completion::counter::{Count, Counter};
use crate::completion::cq::CompletionQueue;
use crate::completion::deferred::{DEFERRED, Notice, Started};
use crate::progress::set::Pollable;
use ofi_core::error::Result;
use ofi_core::{BindFlags, Caps, Completion, Errno, Error, Failure, OpFlags};
use ofi_sync::busy::Child;
use ofi_sync::lock::LockKind;
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds of one-sided operations, by the order of their counters.
const ACCESSES: [BindFlags; 4] = [BindFlags::READ, BindFlags::WRITE, BindFlags::REMOTE_READ, BindFlags::REMOTE_WRITE];

/// Whether a completion is that of a one-sided operation, or of a collective one, which counts as
/// an atomic operation that returns nothing.
const fn is_access(flags: OpFlags) -> bool {
    flags.intersects(OpFlags::RMA.union(OpFlags::ATOMIC).union(OpFlags::COLLECTIVE))
}

/// The kind of operation that a counter of our own one-sided operations is bound for.
const fn access_of(flags: OpFlags) -> BindFlags {
    if flags.contains(OpFlags::READ) { BindFlags::READ } else { BindFlags::WRITE }
}

/// The queues and counters of an endpoint, each once.
pub(crate) struct BoundQueues<K: LockKind> {
    queues: Vec<Arc<CompletionQueue<K>>>,
    counters: Vec<Arc<Counter<K>>>,
}

impl<K: LockKind> BoundQueues<K> {
    /// Makes another endpoint progress with these queues and counters, until one of the two
    /// endpoints leaves its own.
    pub(crate) fn join_other(&self, other: &Arc<dyn Pollable>, both: [&Bindings; 2]) -> Result<()> {
        for cq in &self.queues {
            let (cq, key) = (cq.clone(), cq.join(other.clone())?);
            Bindings::add_to_both(both, move || cq.leave(key));
        }
        for counter in &self.counters {
            let (counter, key) = (counter.clone(), counter.join(other.clone())?);
            Bindings::add_to_both(both, move || counter.leave(key));
        }
        Ok(())
    }
}

/// An endpoint's binding to a completion queue.
#[derive(Debug)]
pub(crate) struct CqBinding<K: LockKind> {
    pub(crate) cq: Arc<CompletionQueue<K>>,
    /// Only operations with FI_COMPLETION report success (FI_SELECTIVE_COMPLETION).
    pub(crate) selective: bool,
}

/// The queues and counters to which an endpoint reports completions.
#[derive(Debug)]
pub(crate) struct CompletionSinks<K: LockKind> {
    pub(crate) tx: Option<CqBinding<K>>,
    pub(crate) rx: Option<CqBinding<K>>,
    counted: BindFlags,
    sent: Option<Arc<Counter<K>>>,
    received: Option<Arc<Counter<K>>>,
    /// Counters of one-sided operations: ours that read and write, and those of peers.
    accesses: [Option<Arc<Counter<K>>>; 4],
    /// All counters, of every kind.
    counters: Vec<Arc<Counter<K>>>,
    /// Deferred operations that have started: they report to counters of their own.
    pub(crate) started: Started,
}

impl<K: LockKind> Default for CompletionSinks<K> {
    fn default() -> Self {
        let counted = BindFlags::empty();
        Self {
            tx: None,
            rx: None,
            counted,
            sent: None,
            received: None,
            accesses: [const { None }; 4],
            counters: Vec::new(),
            started: Started::default(),
        }
    }
}

impl<K: LockKind> CompletionSinks<K> {
    /// Binds a completion queue. A second one for a direction is refused.
    pub(crate) fn bind_cq(&mut self, cq: &Arc<CompletionQueue<K>>, flags: BindFlags) -> Result<Child> {
        let known = BindFlags::TRANSMIT | BindFlags::RECV | BindFlags::SELECTIVE_COMPLETION;
        if !known.contains(flags) {
            return Err(Error::new(Errno::EBADFLAGS, "bind a completion queue with unsupported flags"));
        }
        let selective = flags.contains(BindFlags::SELECTIVE_COMPLETION);
        let (transmit, receive) = (flags.contains(BindFlags::TRANSMIT), flags.contains(BindFlags::RECV));
        if transmit && self.tx.is_some() || receive && self.rx.is_some() {
            return Err(Error::new(Errno::EINVAL, "bind a second completion queue for the same direction"));
        }
        if transmit {
            self.tx = Some(CqBinding { cq: cq.clone(), selective });
        }
        if receive {
            self.rx = Some(CqBinding { cq: cq.clone(), selective });
        }
        Ok(cq.users.add())
    }

    /// Whether a counter is bound, for any kind of operation.
    pub(crate) fn has_counter(&self, counter: &Arc<Counter<K>>) -> bool {
        self.counters.iter().any(|other| Arc::ptr_eq(other, counter))
    }

    /// Checks the kinds of operations for which a counter is to be bound.
    ///
    /// # Errors
    /// EBADFLAGS, and EINVAL for a second counter for a kind.
    pub(crate) fn admit_counter(&self, flags: BindFlags) -> Result<()> {
        let remote = BindFlags::REMOTE_READ | BindFlags::REMOTE_WRITE;
        let known = BindFlags::TRANSMIT | BindFlags::RECV | BindFlags::READ | BindFlags::WRITE | remote;
        if !known.contains(flags) {
            return Err(Error::new(Errno::EBADFLAGS, "bind a counter with unsupported flags"));
        }
        if self.counted.intersects(flags) {
            return Err(Error::new(Errno::EINVAL, "bind a second counter for the same kind of operation"));
        }
        Ok(())
    }

    /// Binds a counter for some kinds of operations. A second one for a kind is refused.
    pub(crate) fn bind_counter(&mut self, counter: &Arc<Counter<K>>, flags: BindFlags) -> Result<Child> {
        self.admit_counter(flags)?;
        self.counted |= flags;
        if flags.contains(BindFlags::TRANSMIT) {
            self.sent = Some(counter.clone());
        }
        if flags.contains(BindFlags::RECV) {
            self.received = Some(counter.clone());
        }
        for (kind, slot) in ACCESSES.into_iter().zip(&mut self.accesses) {
            if flags.contains(kind) {
                *slot = Some(counter.clone());
            }
        }
        if !self.has_counter(counter) {
            self.counters.push(counter.clone());
        }
        Ok(counter.users.add())
    }

    /// Checks that the completion queues which these capabilities need are bound.
    pub(crate) fn check(&self, caps: Caps) -> Result<()> {
        let missing = |direction| {
            Error::new(Errno::ENOCQ, format!("enable an endpoint without a completion queue for {direction}"))
        };
        if self.tx.is_none() && caps.contains(Caps::SEND) {
            return Err(missing("transmitting"));
        }
        if self.rx.is_none() && caps.contains(Caps::RECV) {
            return Err(missing("receiving"));
        }
        Ok(())
    }

    /// The most entries that one of the queues had at a time.
    pub(crate) fn queue_high_water(&self) -> u64 {
        let most = |target: &CqBinding<K>| target.cq.high_water() as u64;
        [&self.tx, &self.rx].into_iter().flatten().map(most).max().unwrap_or(0)
    }

    /// The queues, each once, and the counters: reading one makes progress on the endpoint.
    pub(crate) fn all(&self) -> BoundQueues<K> {
        let mut queues: Vec<Arc<CompletionQueue<K>>> = Vec::new();
        for target in [&self.tx, &self.rx].into_iter().flatten() {
            if !queues.iter().any(|cq| Arc::ptr_eq(cq, &target.cq)) {
                queues.push(target.cq.clone());
            }
        }
        BoundQueues { queues, counters: self.counters.clone() }
    }

    /// A send of `len` bytes has succeeded: an entry unless it is suppressed, and a count always.
    #[inline(always)]
    pub(crate) fn sent(&self, completion: Completion, suppress: bool, len: usize) {
        if suppress {
            if completion.flags.contains(DEFERRED) {
                return self.deferred_done(completion, len);
            }
        } else if let Some(tx) = &self.tx {
            tx.cq.push(completion);
        }
        if let Some(counter) = &self.sent {
            counter.count(len);
        }
    }

    /// A send or a one-sided operation has failed.
    #[cold]
    pub(crate) fn send_failed(&self, mut failure: Failure) {
        let notice = self.take_notice(&mut failure.completion);
        let flags = failure.completion.flags;
        let counter = if is_access(flags) { self.access_counter(access_of(flags)) } else { self.sent.as_ref() };
        if let Some(counter) = counter.filter(|_| notice.as_ref().is_none_or(|notice| notice.reports)) {
            counter.add_errors(1);
        }
        if let Some(tx) = &self.tx {
            tx.cq.push_failure(failure);
        }
        count_failure(notice);
    }

    /// A deferred operation on `len` bytes has succeeded.
    #[cold]
    fn deferred_done(&self, mut completion: Completion, len: usize) {
        let Some(notice) = self.take_notice(&mut completion) else { return };
        let flags = completion.flags;
        match notice.reports {
            true if flags.contains(OpFlags::RECV) => self.received(completion, false),
            true if is_access(flags) => self.accessed(completion, false, len),
            true => self.sent(completion, false, len),
            false => {}
        }
        if let Some(counter) = notice.release() {
            counter.add(1);
        }
    }

    /// The notice of a completion, if it is that of a deferred operation. The completion gets what
    /// the application knows.
    fn take_notice(&self, completion: &mut Completion) -> Option<Notice> {
        if !completion.flags.contains(DEFERRED) {
            return None;
        }
        let notice = self.started.take(completion.context)?;
        completion.flags -= DEFERRED;
        completion.context = notice.context;
        Some(notice)
    }

    /// A one-sided operation of ours on `len` bytes has succeeded: an entry unless it is
    /// suppressed, and a count always.
    #[inline]
    pub(crate) fn accessed(&self, completion: Completion, suppress: bool, len: usize) {
        let kind = access_of(completion.flags);
        if suppress {
            if completion.flags.contains(DEFERRED) {
                return self.deferred_done(completion, len);
            }
        } else if let Some(tx) = &self.tx {
            tx.cq.push(completion);
        }
        if let Some(counter) = self.access_counter(kind) {
            counter.count(len);
        }
    }

    /// A peer has read or written `len` bytes of our memory: counts that.
    #[inline]
    pub(crate) fn accessed_by_peer(&self, kind: BindFlags, len: usize) {
        if let Some(counter) = self.access_counter(kind) {
            counter.count(len);
        }
    }

    #[inline]
    fn access_counter(&self, kind: BindFlags) -> Option<&Arc<Counter<K>>> {
        let at = ACCESSES.into_iter().position(|other| other == kind)?;
        self.accesses[at].as_ref()
    }

    /// A receive has succeeded: an entry unless it is suppressed, and a count always.
    #[inline(always)]
    pub(crate) fn received(&self, completion: Completion, suppress: bool) {
        let len = completion.len;
        if suppress {
            if completion.flags.contains(DEFERRED) {
                return self.deferred_done(completion, len);
            }
        } else if let Some(rx) = &self.rx {
            rx.cq.push(completion);
        }
        if let Some(counter) = &self.received {
            counter.count(len);
        }
    }

    /// A receive has failed.
    #[cold]
    pub(crate) fn receive_failed(&self, mut failure: Failure) {
        let notice = self.take_notice(&mut failure.completion);
        if let Some(rx) = &self.rx {
            rx.cq.push_failure(failure);
        }
        let counts = notice.as_ref().is_none_or(|notice| notice.reports);
        if let Some(counter) = self.received.as_ref().filter(|_| counts) {
            counter.add_errors(1);
        }
        count_failure(notice);
    }

    /// Reports an entry that is not a received message: a released multi-receive buffer or a peeked
    /// message.
    pub(crate) fn report(&self, completion: Completion) {
        if let Some(rx) = &self.rx {
            rx.cq.push(completion);
        }
    }
}

/// Counts the failure of a deferred operation.
fn count_failure(notice: Option<Notice>) {
    if let Some(counter) = notice.and_then(Notice::release) {
        counter.add_errors(1);
    }
}

/// Actions that undo an endpoint's bindings and memberships when it is closed.
#[derive(Default)]
pub(crate) struct Bindings(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

impl Bindings {
    pub(crate) fn add(&self, undo: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(undo));
    }

    /// Adds an action to the bindings of two endpoints: the first of the two that leaves runs it.
    fn add_to_both(both: [&Self; 2], undo: impl FnOnce() + Send + 'static) {
        let undo = Arc::new(Mutex::new(Some(undo)));
        for bindings in both {
            let undo = undo.clone();
            bindings.add(move || {
                let undo = undo.lock().unwrap_or_else(PoisonError::into_inner).take();
                undo.into_iter().for_each(|undo| undo());
            });
        }
    }

    /// Runs all actions, the last first.
    pub(crate) fn undo(&self) {
        let all = core::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for undo in all.into_iter().rev() {
            undo();
        }
    }

    /// Makes pollables progress with the queues and counters of their endpoint.
    pub(crate) fn join<K: LockKind>(
        &self,
        pollables: &[Arc<dyn Pollable>],
        BoundQueues { queues, counters }: BoundQueues<K>,
    ) -> Result<()> {
        for pollable in pollables {
            for cq in &queues {
                let (cq, key) = (cq.clone(), cq.join(pollable.clone())?);
                self.add(move || cq.leave(key));
            }
            for counter in &counters {
                let (counter, key) = (counter.clone(), counter.join(pollable.clone())?);
                self.add(move || counter.leave(key));
            }
        }
        Ok(())
    }

    /// Binds a counter and adds `pollables` to its progress set. `register` runs after that has
    /// succeeded; if it fails, nothing has changed.
    pub(crate) fn bind_counter<K: LockKind>(
        &self,
        pollables: Vec<Arc<dyn Pollable>>,
        counter: &Arc<Counter<K>>,
        register: impl FnOnce() -> Result<Child>,
    ) -> Result<Child> {
        let mut keys = Vec::new();
        let joined = pollables.into_iter().try_for_each(|pollable| counter.join(pollable).map(|key| keys.push(key)));
        let registered = joined.and_then(|()| register());
        for key in keys {
            let counter = counter.clone();
            match registered {
                Ok(_) => self.add(move || counter.leave(key)),
                Err(_) => counter.leave(key),
            }
        }
        registered
    }
}
