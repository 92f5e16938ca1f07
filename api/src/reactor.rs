//! Which reactor turns a pump while tasks sleep: the thread of [`block_on`](crate::block_on), a
//! task of the tokio runtime, or the reactor of async-io. Each sleeps on the pump's descriptor.

use crate::pump::Pump;
use core::task::Waker;
use std::sync::Arc;
#[cfg(any(feature = "tokio", feature = "async-io"))]
use {
    ofi_engine::Watcher,
    ofi_sync::primitive::real::{AtomicU64, Ordering},
    std::sync::{PoisonError, Weak},
};

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

/// A driver's hold on its pump. When the driver ends, it sleeps no more, and the pump's tasks wake
/// to find another one.
#[cfg(any(feature = "tokio", feature = "async-io"))]
struct Driven {
    pump: Weak<dyn Pump>,
    watcher: Watcher,
}

#[cfg(any(feature = "tokio", feature = "async-io"))]
impl Driven {
    fn new<P: Pump + 'static>(pump: &Arc<P>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let weak: Weak<P> = Arc::downgrade(pump);
        // Relaxed: only the numbers must differ.
        Self { pump: weak, watcher: Watcher::Reactor(NEXT.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Makes progress and prepares for sleeping on the descriptor: false if there is something to
    /// do first, `None` if the pump is gone.
    fn prepare(&self) -> Option<bool> {
        let strong = self.pump.upgrade()?;
        strong.unwatch(self.watcher);
        // tokio learns of changes only: what is readable already it does not report again.
        let quiet = strong.prepare(self.watcher) && !strong.is_readable();
        drop(strong);
        (self.pump.strong_count() > 0).then_some(quiet)
    }
}

#[cfg(any(feature = "tokio", feature = "async-io"))]
impl Drop for Driven {
    fn drop(&mut self) {
        if let Some(pump) = self.pump.upgrade() {
            pump.unwatch(self.watcher);
            pump.wake_all();
        }
    }
}

/// What was posted since the driver's last look leaves now. A pump that stays busy is turned again
/// when the task is polled again.
#[cfg(any(feature = "tokio", feature = "async-io"))]
fn settle<P: Pump>(pump: &Arc<P>, watcher: Watcher, waker: &Waker) {
    const MOST: usize = 64;
    if !(0..MOST).any(|_| pump.prepare(watcher)) {
        waker.wake_by_ref();
    }
}

/// A task of a tokio runtime.
#[cfg(feature = "tokio")]
mod tokio_task {
    use super::{Arc, Driven, PoisonError, Pump, Waker, Watcher, settle};
    use crate::drivers::TokioDriver;
    use std::os::fd::OwnedFd;
    use std::sync::MutexGuard;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use tokio::runtime::{Handle, Id};

    fn drivers<P: Pump>(pump: &Arc<P>) -> MutexGuard<'_, Vec<TokioDriver>> {
        let mut drivers = pump.drivers().tokio.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|driver| !driver.task.is_finished());
        drivers
    }

    fn driver_of(drivers: &[TokioDriver], runtime: Id) -> Option<Watcher> {
        drivers.iter().find(|driver| driver.runtime == runtime).map(|driver| driver.watcher)
    }

    /// Has a task of this thread's runtime turn the pump; false if there is no runtime.
    pub(super) fn watch<P: Pump + 'static>(pump: &Arc<P>, waker: &Waker) -> bool {
        let Ok(runtime) = Handle::try_current() else { return false };
        let known = driver_of(&drivers(pump), runtime.id());
        if let Some(watcher) = known {
            settle(pump, watcher, waker);
            return true;
        }
        let fd = pump.share().expect("the process has no descriptor left for the runtime to sleep on");
        // Here, not in the driver: a runtime without I/O panics in the task that awaits. A driver
        // that panics would wake that task, which would start the next driver.
        #[allow(deprecated, reason = "an OwnedFd is the descriptor that it says, and stays open")]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE);
        let fd = fd.expect("the runtime has room for a descriptor");
        let driven = Driven::new(pump);
        let watcher = driven.watcher;
        // Without the lock: a runtime that is shutting down drops the driver, which wakes tasks.
        let task = runtime.spawn(drive(fd, driven)).abort_handle();
        let mut drivers = drivers(pump);
        if let Some(other) = driver_of(&drivers, runtime.id()) {
            drop(drivers);
            task.abort();
            settle(pump, other, waker);
        } else {
            drivers.push(TokioDriver { runtime: runtime.id(), watcher, task });
        }
        true
    }

    async fn drive(fd: AsyncFd<OwnedFd>, pump: Driven) {
        while let Some(quiet) = pump.prepare() {
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
    use super::{Arc, Driven, PoisonError, Pump, Waker, settle};
    use crate::inline::Task;
    use async_io::{Async, Timer};
    use core::future::poll_fn;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    /// Looks in a row at a pump that stays busy, before the thread looks at its other descriptors.
    const MOST: usize = 16;
    /// How long the thread then has for them.
    const PAUSE: Duration = Duration::from_micros(20);

    /// Has the thread of async-io turn the pump.
    pub(super) fn watch<P: Pump + 'static>(pump: &Arc<P>, waker: &Waker) {
        let mut driver = pump.drivers().async_io.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((watcher, task)) = &*driver
            && !task.has_ended()
        {
            let watcher = *watcher;
            drop(driver);
            settle(pump, watcher, waker);
            return;
        }
        let fd = pump.share().expect("the process has no descriptor left for the reactor to sleep on");
        let fd = Async::new_nonblocking(fd).expect("async-io watches every kind of descriptor");
        let driven = Driven::new(pump);
        let watcher = driven.watcher;
        let task = Task::new(Box::pin(drive(fd, driven)));
        let ended = driver.replace((watcher, task.clone()));
        // Without the lock: the first look may wake tasks, which an executor may run in their
        // wakers.
        drop(driver);
        drop(ended);
        task.start();
    }

    async fn drive(fd: Async<OwnedFd>, pump: Driven) {
        let mut busy = 0;
        while let Some(quiet) = pump.prepare() {
            if quiet {
                busy = 0;
                if poll_fn(|context| fd.poll_readable(context)).await.is_err() {
                    return;
                }
                continue;
            }
            busy += 1;
            if busy == MOST {
                busy = 0;
                Timer::after(PAUSE).await;
            }
        }
    }
}

#[cfg(all(test, feature = "shm", any(feature = "tokio", feature = "async-io")))]
mod tests {
    use super::*;
    use crate::{Domain, EndpointType, Fabric, Info, RdmEndpoint};

    fn end(info: &Info) -> (Domain, RdmEndpoint) {
        let domain = Fabric::open(info).unwrap().domain(info).unwrap();
        let ep = RdmEndpoint::open(&domain, info).unwrap();
        (domain, ep)
    }

    /// Without this, an idle link's probes would make the descriptor readable, and tasks would
    /// wait for them: 250 ms over shm.
    #[test]
    fn a_message_makes_the_descriptor_readable_after_other_tasks_have_made_progress() {
        let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query().unwrap().remove(0);
        let ((domain, ep), (_other, peer)) = (end(&info), end(&info));
        let to = peer.peer(ep.local_addr().unwrap()).unwrap();
        let met = futures_lite::future::zip(peer.send(to, "met"), ep.receive([0; 3]));
        crate::block_on(met).1.0.unwrap();
        let pump = &domain.0.pump;
        let driven = Driven::new(pump);
        let mut receive = ep.receive([0; 4]);
        for _ in 0..4 {
            let mut looks = 0..1000;
            assert!(looks.any(|_| driven.prepare() == Some(true)), "the reactor sleeps");
            // A task of the same thread makes progress, and does not wait, as one that drops a send
            // whose bytes have left: the reactor does not look again.
            pump.turn();
            assert!(!pump.is_readable());
            let mut send = peer.send(to, "news");
            while send.try_finish().is_none() {}
            assert!(pump.is_readable(), "the reactor wakes");
            assert_eq!(receive.try_finish().map(|(result, buf)| (result.is_ok(), buf)), Some((true, *b"news")));
            receive = ep.receive([0; 4]);
        }
    }
}
