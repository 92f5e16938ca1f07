//! Runs a future on the calling thread: spins while operations are short, then sleeps on the
//! descriptors of the queues that the future waits for.

use crate::buf::GivenUp;
use crate::entries::Done;
use crate::operations::{Operations, Turn};
use crate::pump::Pump;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use ofi_core::wait::WaitObject;
use ofi_engine::Watcher;
use ofi_os::clock;
use ofi_os::wait_fd::FdWaitObject;
use ofi_sync::nap::Nap;
#[cfg(feature = "sim")]
use ofi_sync::primitive::{AtomicBool, Ordering};
use smallvec::SmallVec;
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::time::Duration;

/// How long to spin before sleeping, while recent waits were shorter than that. It must be longer
/// than a thread takes to wake another one and to be woken by it (90 us where it was measured), or
/// two threads that have slept once sleep in turn for ever.
const SPIN: Duration = Duration::from_micros(200);
/// Turns before an operation's task is registered: some microseconds over shm, about a hundred over
/// tcp, where a turn is a system call.
const MOMENT: u32 = 128;
/// Turns between two looks at whether the task was woken.
const LOOK_EVERY: u32 = 16;
/// Longer waits in a row after which only every eighth spins.
const MOST_LONG: u32 = 3;

/// Wakes a thread in [`block_on`].
#[derive(Debug)]
struct Parker {
    bed: FdWaitObject,
    nap: Nap,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.nap.wake() {
            self.bed.signal();
        }
    }
}

/// The pumps that the futures of a thread's [`block_on`] wait for. It does not keep them: a future
/// may run for ever, and open and close domains.
#[derive(Debug, Default)]
struct Here {
    pumps: Vec<Weak<dyn Pump>>,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
    /// What wakes the thread in [`block_on`]; `None` in a simulated network.
    static PARKER: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
    static SPARE: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
    /// Waits in a row that were longer than [`SPIN`].
    static LONG: Cell<u32> = const { Cell::new(0) };
}

/// A future waits for this pump: if the thread is in [`block_on`], true, and it will turn the pump.
pub(crate) fn join<P: Pump + 'static>(pump: &Arc<P>) -> bool {
    HERE.with_borrow_mut(|here| {
        let Some(here) = here else { return false };
        let known = here.pumps.iter().any(|known| known.as_ptr().addr() == Arc::as_ptr(pump).addr());
        if !known {
            here.pumps.retain(|known| known.strong_count() > 0);
            let weak: Weak<P> = Arc::downgrade(pump);
            here.pumps.push(weak);
        }
        true
    })
}

/// Restores what the thread was in before.
struct Leave {
    before: (Option<Here>, Option<Arc<Parker>>),
}

impl Leave {
    /// The thread is in another future.
    fn enter(parker: Option<Arc<Parker>>) -> Self {
        let here = HERE.with_borrow_mut(|here| here.replace(Here::default()));
        Self { before: (here, PARKER.replace(parker)) }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let (before, parker) = core::mem::take(&mut self.before);
        let here = HERE.with_borrow_mut(|here| core::mem::replace(here, before));
        if let Some(parker) = PARKER.replace(parker) {
            SPARE.set(Some(parker));
        }
        // Nothing turns the pumps for the operations that still wait: their tasks, in another
        // thread's future or in one that is polled again later, find the next reactor. A set of
        // futures polls only those that were woken.
        for pump in here.iter().flat_map(|here| &here.pumps).filter_map(Weak::upgrade) {
            pump.wake_all();
        }
    }
}

/// Strong references to the pumps of the thread's future. Most futures have one.
fn pumps() -> SmallVec<[Arc<dyn Pump>; 2]> {
    HERE.with_borrow(|here| here.iter().flat_map(|here| &here.pumps).filter_map(Weak::upgrade).collect())
}

/// Runs a future to its end on the calling thread, which makes progress for the domains whose
/// operations the future awaits.
///
/// For programs without an executor. The thread spins for up to 200 µs if recent waits were that
/// short, and then sleeps until an operation can go on, without using the processor.
///
/// # Panics
/// If the process has no descriptor left for the thread to sleep on.
///
/// ```
/// assert_eq!(ofi::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let parker = SPARE.take().unwrap_or_else(|| {
        let bed = FdWaitObject::new(true).expect("the process has no descriptor left to sleep on");
        Arc::new(Parker { bed, nap: Nap::default() })
    });
    let waker = Waker::from(parker.clone());
    let _leave = Leave::enter(Some(parker.clone()));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        parker.nap.begin();
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        parker.wait();
    }
}

/// Runs a future to its end on the calling thread, which calls `idle` instead of sleeping, with the
/// number of calls since a task was woken.
#[cfg(feature = "sim")]
pub(crate) fn run<F: Future>(future: F, mut idle: impl FnMut(u32)) -> F::Output {
    #[derive(Default)]
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    let _leave = Leave::enter(None);
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        // A swap, as in `Nap::begin`.
        flag.0.swap(false, Ordering::SeqCst);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        let (pumps, mut calls) = (pumps(), 0u32);
        while !flag.0.load(Ordering::SeqCst) {
            pumps.iter().for_each(|pump| pump.turn());
            if !flag.0.load(Ordering::SeqCst) {
                idle(calls);
                calls = calls.saturating_add(1);
            }
        }
    }
}

/// Whether the thread may spin before it sleeps: not if recent waits were longer.
fn may_spin() -> bool {
    let long = LONG.get();
    long < MOST_LONG || long.is_multiple_of(8)
}

/// Waits a moment for an operation that is alone ([`Operations::is_alone`]) to complete, without
/// registering its task, which costs more than the moment: in a thread of [`block_on`] whose future
/// waits for nothing else, as far as can be seen.
#[inline(always)]
pub(crate) fn moment<G: GivenUp>(pump: &Operations, context: usize) -> Option<(Done, G)> {
    if !may_spin() || !is_only(pump) || is_woken() {
        return None;
    }
    for turn in 1..=MOMENT {
        match pump.turn_only_for(context) {
            Turn::Ended(done, buffer) => {
                LONG.set(0);
                return Some((done, buffer));
            }
            Turn::Other if is_woken() || !pump.is_alone(context) => return None,
            Turn::Nothing if turn.is_multiple_of(LOOK_EVERY) && is_woken() => return None,
            Turn::Other | Turn::Nothing => {}
        }
    }
    None
}

/// Whether the thread's future was woken. True in a simulated network, where no thread may spin.
fn is_woken() -> bool {
    // Taken and put back, not cloned: an atomic count would wait until all earlier stores are done,
    // those to shared memory included.
    let parker = PARKER.take();
    let woken = parker.as_ref().is_none_or(|parker| parker.is_woken());
    PARKER.set(parker);
    woken
}

/// Whether the thread is in [`block_on`] and its future waits for no other pump.
fn is_only(pump: &Operations) -> bool {
    let is_pump = |known: &Weak<dyn Pump>| known.as_ptr().addr() == core::ptr::from_ref(pump).addr();
    HERE.with_borrow(|here| here.as_ref().is_some_and(|here| here.pumps.iter().all(is_pump)))
}

impl Parker {
    fn is_woken(&self) -> bool {
        self.nap.is_woken()
    }

    /// Makes progress, and sleeps, until the waker was called.
    fn wait(&self) {
        if self.is_woken() {
            return;
        }
        let pumps = pumps();
        let turns = |count: u32| {
            (0..count).any(|_| {
                pumps.iter().for_each(|pump| pump.turn());
                self.is_woken()
            })
        };
        let start = clock::now();
        let long = LONG.get();
        if may_spin() {
            while clock::now().since(start) < SPIN {
                if turns(8) {
                    LONG.set(0);
                    return;
                }
            }
        }
        while !self.is_woken() {
            if pumps.iter().all(|pump| pump.prepare(Watcher::ThisThread)) {
                self.sleep(&pumps);
            }
        }
        LONG.set(if clock::now().since(start) < SPIN { 0 } else { long.wrapping_add(1).max(1) });
    }

    fn sleep(&self, pumps: &[Arc<dyn Pump>]) {
        if self.nap.lie_down() {
            let mut keys = Vec::new();
            let all = pumps.iter().all(|pump| self.bed.add(pump.descriptor(), 0).is_ok());
            // Without memory to watch all, it looks again soon.
            self.bed.ready((!all).then_some(SPIN), &mut keys);
            pumps.iter().for_each(|pump| self.bed.remove(pump.descriptor()));
        }
        self.nap.get_up();
        self.bed.drain();
    }
}

#[cfg(all(test, feature = "shm"))]
mod tests {
    use super::*;
    use crate::{EndpointType, Fabric, Info, RdmEndpoint};

    #[test]
    fn a_thread_keeps_no_domain_that_its_future_has_closed() {
        let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query().unwrap().remove(0);
        block_on(async {
            for _ in 0..8 {
                let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
                let ep = RdmEndpoint::open(&domain, &info).unwrap();
                let (result, _) = ep.receive([0; 1]).timeout(Duration::from_millis(1)).await;
                assert!(result.is_err());
                let pump = Arc::downgrade(&domain.0.pump);
                drop((ep, domain));
                assert!(pump.upgrade().is_none(), "the domain is closed");
                assert!(HERE.with_borrow(|here| here.as_ref().is_some_and(|here| here.pumps.len() <= 1)));
            }
        });
    }
}
