//! Counters of operations.

use crate::counting::{Goal, Waiter};
use crate::fabric::Domain;
use crate::operations::Operations;
use crate::pump::{Pump, Timed};
use crate::reactor;
use core::future::poll_fn;
use core::task::{Context, Poll};
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Errno, Error, Instant};
use ofi_engine::completion::threshold::{CounterWatch, Tally};
use ofi_engine::{Counter as Engine, CounterUnit, Waiting};
use ofi_os::membarrier;
use ofi_sync::lock::Park;
use std::sync::Arc;
use std::time::Duration;

/// Counts operations of endpoints that succeed and fail (fi_cntr(3)), besides their completions:
/// those of this program, and those of peers on its memory, which complete nowhere else. Clones are
/// handles of the same counter.
///
/// An endpoint has it from [`RdmEndpoint::bind_counter`](crate::RdmEndpoint::bind_counter) and its
/// like.
///
/// ```
/// # use ofi::{BindFlags, Counter, EndpointType, Fabric, Info, MrAccess, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// let written = Counter::open(&domain);
/// let ep = RdmEndpoint::open(&domain, &info)?;
/// ep.bind_counter(&written, BindFlags::REMOTE_WRITE)?;
/// let region = domain.register(vec![0; 64], MrAccess::REMOTE)?;
/// # let me = ep.peer(ep.local_addr()?)?;
/// # drop(ofi::block_on(ep.write(me, region.remote_key(), [1u8; 8])));
/// // Peers have the region's key, and write without a message.
/// ofi::block_on(written.wait(1))?;
/// assert_eq!(written.read(), 1);
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Counter {
    pub(crate) engine: Arc<Engine<Park>>,
    pub(crate) pump: Arc<Operations>,
}

impl Counter {
    /// A counter at zero, for endpoints of the domain (fi_cntr_open). It counts each operation.
    pub fn open(domain: &Domain) -> Self {
        Self::of_unit(domain, CounterUnit::Operations)
    }

    /// A counter of the bytes of operations that succeed (FI_CNTR_EVENTS_BYTES); of those that fail
    /// it counts each.
    pub fn open_for_bytes(domain: &Domain) -> Self {
        Self::of_unit(domain, CounterUnit::Bytes)
    }

    fn of_unit(domain: &Domain, unit: CounterUnit) -> Self {
        let pump = domain.0.pump.clone();
        let clock = Arc::new(Unwatched(pump.timed().clone()));
        let engine = Arc::new(Engine::new(membarrier::locks(), unit, clock, Waiting::Never));
        let watch: Arc<dyn CounterWatch> = pump.counting().clone();
        engine.begin_watch(&watch);
        Self { engine, pump }
    }

    /// Makes progress; how many operations, or bytes, have succeeded (fi_cntr_read).
    pub fn read(&self) -> u64 {
        self.pump.turn();
        self.engine.peek().0
    }

    /// Makes progress; how many operations have failed (fi_cntr_readerr).
    pub fn read_errors(&self) -> u64 {
        self.pump.turn();
        self.engine.peek().1
    }

    /// Adds to the successes (fi_cntr_add).
    pub fn add(&self, count: u64) {
        self.engine.add(count);
    }

    /// Sets the successes (fi_cntr_set), usually to zero.
    pub fn set(&self, value: u64) {
        self.engine.set(value);
    }

    /// Waits until so many operations, or bytes, have succeeded (fi_cntr_wait). Dropping the future
    /// ends the wait.
    ///
    /// # Errors
    /// EAVAIL if an operation fails meanwhile: [`Self::read_errors`] has changed.
    ///
    /// # Panics
    /// As an [`Operation`](crate::Operation) that is awaited where no reactor would wake it.
    pub async fn wait(&self, threshold: u64) -> Result<()> {
        self.wait_within(threshold, None).await
    }

    /// The same; with a limit, it gives up after that time.
    ///
    /// # Errors
    /// ETIMEDOUT after the limit; as for [`Self::wait`].
    ///
    /// ```
    /// # use ofi::{Counter, EndpointType, Errno, Fabric, Info};
    /// # use std::time::Duration;
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// let counter = Counter::open(&domain);
    /// let waited = ofi::block_on(counter.wait_within(1, Duration::from_millis(10)));
    /// assert_eq!(waited.unwrap_err().errno(), Errno::ETIMEDOUT);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub async fn wait_within(&self, threshold: u64, limit: impl Into<Option<Duration>>) -> Result<()> {
        let deadline = limit.into().map(|limit| self.pump.timed().now() + limit);
        let (number, errors) = (self.pump.counting().new_wait(), self.engine.peek().1);
        let wait = Wait { counter: self, goal: Goal { threshold, errors }, deadline, number };
        poll_fn(|context| wait.poll(context)).await
    }
}

/// The wait object of a counter. Threads sleep on that of the domain's queue instead, which watches
/// the endpoints' descriptors.
#[derive(Debug)]
struct Unwatched(Arc<Timed>);

impl WaitObject for Unwatched {
    fn add(&self, _: Descriptor, _: u64) -> Result<()> {
        Ok(())
    }
    fn remove(&self, _: Descriptor) {}
    fn ready(&self, _: Option<Duration>, _: &mut Vec<u64>) -> bool {
        false
    }
    fn signal(&self) {}
    fn drain(&self) {}
    fn set_timer(&self, _: Option<Instant>) {}
    fn descriptor(&self) -> Descriptor {
        self.0.descriptor()
    }
    fn now(&self) -> Instant {
        self.0.now()
    }
}

/// A task's wait; dropping it removes all traces of it.
struct Wait<'a> {
    counter: &'a Counter,
    goal: Goal,
    deadline: Option<Instant>,
    number: u64,
}

impl Wait<'_> {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { counter: Counter { engine, pump }, goal, deadline, number } = self;
        pump.turn();
        if let Some(outcome) = goal.outcome(engine) {
            return Poll::Ready(outcome);
        }
        if deadline.is_some_and(|deadline| deadline <= pump.timed().now()) {
            return Poll::Ready(Err(Error::new(Errno::ETIMEDOUT, "wait for a counter")));
        }
        let (counter, waker) = (engine.clone(), context.waker().clone());
        pump.counting().add(Waiter { number: *number, counter, goal: *goal, deadline: *deadline, waker });
        // A change since the look above has not found the waiter. SeqCst in `total`: see `add`.
        let _changed = engine.total();
        if let Some(outcome) = goal.outcome(engine) {
            return Poll::Ready(outcome);
        }
        reactor::watch(pump, context.waker());
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.counter.pump.counting().remove(self.number);
    }
}

#[cfg(all(test, feature = "shm"))]
mod tests {
    use super::*;
    use crate::{EndpointType, Fabric, Info};
    use core::future::Future;
    use core::pin::pin;
    use core::task::Waker;
    use ofi_engine::Watcher;

    /// A thread that sleeps also wakes to publish the state of its endpoints, so that a test of the
    /// whole way would only be late without the signal.
    #[test]
    fn a_change_that_a_task_waits_for_makes_the_descriptor_readable() {
        let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query().unwrap().remove(0);
        let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
        let counter = Counter::open(&domain);
        let (timed, counting) = (counter.pump.timed(), counter.pump.counting());
        crate::block_on(async {
            counter.add(5);
            assert!(!timed.is_readable(), "no task waits");
            let mut wait = pin!(counter.wait(7));
            let mut context = Context::from_waker(Waker::noop());
            assert!(wait.as_mut().poll(&mut context).is_pending());
            counter.add(1);
            assert!(!timed.is_readable(), "not enough");
            counter.add(1);
            assert!(timed.is_readable() && counting.is_due());
            // Another thread had made its turn before the change, and goes to sleep.
            assert!(!counter.pump.may_sleep(Watcher::ThisThread) && timed.is_readable());
            counting.wake();
            assert_eq!(counting.len(), 0, "the task was woken");
            assert!(matches!(wait.poll(&mut context), Poll::Ready(Ok(()))));
        });
        crate::block_on(async {
            let mut wait = Box::pin(counter.wait_within(100, Duration::from_secs(3600)));
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(wait);
            assert_eq!(counting.len(), 0);
            let mut left = Box::pin(counter.wait(100));
            assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            counter.pump.wake_all();
            assert_eq!(counting.len(), 0, "its task looks for another reactor");
        });
    }
}
