//! A task that runs where its waker is called: in the thread of async-io.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, TryLockError};
use std::task::Wake;

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The task that drives a pump.
pub(crate) struct Task {
    work: Mutex<Option<Work>>,
    again: AtomicBool,
    ended: AtomicBool,
}

impl core::fmt::Debug for Task {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Task")
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // SeqCst: a thread that fails to take the lock has announced itself to the one inside.
        self.again.store(true, Ordering::SeqCst);
        let waker = Waker::from(self.clone());
        while self.again.load(Ordering::SeqCst) {
            let mut work = match self.work.try_lock() {
                Ok(work) => work,
                Err(TryLockError::Poisoned(work)) => work.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            self.again.store(false, Ordering::SeqCst);
            let Some(future) = work.as_mut() else { return };
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
            // A task whose waker panics ends this one, which is polled no more.
            if !matches!(polled, Ok(Poll::Pending)) {
                self.ended.store(true, Ordering::SeqCst);
                let ended = work.take();
                drop(work);
                // Without the lock: it wakes the pump's tasks.
                drop(ended);
                return polled.map_or_else(|panic| resume_unwind(panic), drop);
            }
        }
    }
}

impl Task {
    /// A task that does nothing before [`Self::start`].
    pub(crate) fn new(work: Work) -> Arc<Self> {
        let (again, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { work: Mutex::new(Some(work)), again, ended })
    }

    /// Starts it on the calling thread.
    pub(crate) fn start(self: Arc<Self>) {
        self.wake();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Ends it, at the latest when it next wakes: the pump is gone.
    pub(crate) fn stop(self: Arc<Self>) {
        if let Ok(mut work) = self.work.try_lock() {
            let ended = work.take();
            drop(work);
            drop(ended);
        }
    }
}
