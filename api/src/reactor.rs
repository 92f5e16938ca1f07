//! Which reactor turns a pump while tasks sleep: the thread of [`block_on`](crate::block_on), a
//! task of the tokio runtime, or the reactor of async-io. Each sleeps on the pump's descriptor.

use crate::pump::Pump;
use core::task::Waker;
use std::sync::Arc;
#[cfg(any(feature = "tokio", feature = "async-io"))]
use std::sync::{PoisonError, Weak};

/// A task waits for this pump: makes sure that someone turns it.
///
/// # Panics
/// If there is no reactor, or the tokio runtime has no I/O: the task would sleep for ever.
pub(crate) fn watch<P: Pump + 'static>(pump: &Arc<P>, waker: &Waker) {
    if crate::parker::join(pump) || pump.is_automatic() {
        return;
    }
    #[cfg(feature = "tokio")]
    if tokio_task::watch(pump, waker) {
        return;
    }
    #[cfg(feature = "async-io")]
    async_io_task::watch(pump, waker);
    #[cfg(not(feature = "async-io"))]
    {
        let _ = waker;
        panic!(
            "an operation was awaited where nothing makes progress: run it in ofi::block_on, or build ofi with \
             feature tokio (in a tokio runtime) or async-io (in any other executor)"
        );
    }
}

/// Wakes the tasks of a pump when its driver ends, so that they find another one.
#[cfg(any(feature = "tokio", feature = "async-io"))]
struct Ends(Weak<dyn Pump>);

#[cfg(any(feature = "tokio", feature = "async-io"))]
impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(pump) = self.0.upgrade() {
            pump.wake_all();
        }
    }
}

/// What was posted since the driver's last look leaves now. A pump that stays busy is turned again
/// when the task is polled again.
#[cfg(any(feature = "tokio", feature = "async-io"))]
fn settle<P: Pump>(pump: &Arc<P>, waker: &Waker) {
    const MOST: usize = 64;
    if !(0..MOST).any(|_| pump.prepare()) {
        waker.wake_by_ref();
    }
}

/// A task of a tokio runtime.
#[cfg(feature = "tokio")]
mod tokio_task {
    use super::{Arc, Ends, PoisonError, Pump, Waker, Weak, settle};
    use std::os::fd::OwnedFd;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use tokio::runtime::Handle;

    /// Has a task of this thread's runtime turn the pump; false if there is no runtime.
    pub(super) fn watch<P: Pump + 'static>(pump: &Arc<P>, waker: &Waker) -> bool {
        let Ok(runtime) = Handle::try_current() else { return false };
        let mut drivers = pump.drivers().tokio.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|(_, task)| !task.is_finished());
        if drivers.iter().any(|(id, _)| *id == runtime.id()) {
            drop(drivers);
            settle(pump, waker);
            return true;
        }
        let fd = pump.share().expect("the process has no descriptor left for the runtime to sleep on");
        // Here, not in the driver: a runtime without I/O panics in the task that awaits. A driver
        // that panics would wake that task, which would start the next driver.
        #[allow(deprecated, reason = "an OwnedFd is the descriptor that it says, and stays open")]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE);
        let fd = fd.expect("the runtime has room for a descriptor");
        let weak: Weak<P> = Arc::downgrade(pump);
        let task = runtime.spawn(drive(fd, Ends(weak)));
        drivers.push((runtime.id(), task.abort_handle()));
        true
    }

    async fn drive(fd: AsyncFd<OwnedFd>, pump: Ends) {
        loop {
            let Some(strong) = pump.0.upgrade() else { return };
            // The runtime learns of changes only: what is readable already it does not report
            // again.
            let quiet = strong.prepare() && !strong.is_readable();
            drop(strong);
            if pump.0.strong_count() == 0 {
                return;
            }
            if !quiet {
                tokio::task::yield_now().await;
                continue;
            }
            // What becomes ready from here on is reported again.
            match fd.readable().await {
                Ok(mut guard) => guard.clear_ready(),
                Err(_) => return,
            }
        }
    }
}

/// A task in the thread of async-io.
#[cfg(feature = "async-io")]
mod async_io_task {
    use super::{Arc, Ends, PoisonError, Pump, Waker, Weak, settle};
    use crate::inline::Task;
    use async_io::Async;
    use core::future::{Future, poll_fn};
    use core::task::Poll;
    use std::os::fd::OwnedFd;

    /// Has the thread of async-io turn the pump.
    pub(super) fn watch<P: Pump + 'static>(pump: &Arc<P>, waker: &Waker) {
        let mut driver = pump.drivers().async_io.lock().unwrap_or_else(PoisonError::into_inner);
        if driver.as_ref().is_some_and(|task| !task.has_ended()) {
            drop(driver);
            settle(pump, waker);
            return;
        }
        let fd = pump.share().expect("the process has no descriptor left for the reactor to sleep on");
        let fd = Async::new_nonblocking(fd).expect("async-io watches every kind of descriptor");
        let weak: Weak<P> = Arc::downgrade(pump);
        *driver = Some(Task::start(Box::pin(drive(fd, Ends(weak)))));
    }

    async fn drive(fd: Async<OwnedFd>, pump: Ends) {
        loop {
            let Some(strong) = pump.0.upgrade() else { return };
            let quiet = strong.prepare();
            drop(strong);
            if pump.0.strong_count() == 0 {
                return;
            }
            if quiet {
                if poll_fn(|context| fd.poll_readable(context)).await.is_err() {
                    return;
                }
            } else {
                yield_once().await;
            }
        }
    }

    /// Lets the thread look at its other descriptors.
    fn yield_once() -> impl Future<Output = ()> {
        let mut polled = false;
        poll_fn(move |context| {
            if core::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }
}
