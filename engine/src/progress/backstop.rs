//! Backstop: sends what endpoints hold back for the application's next call, if that call does not
//! come. A burst of injected messages is held so that it leaves in few packets, and acknowledgments
//! so that a reply takes them along; the application may be done with both, and wait for something
//! else.
//!
//! An injected message may also wait for a link to its peer, which progress opens.
//!
//! Its thread starts when something is first held. It looks every [`PERIOD`] while endpoints hold
//! something now and then, without taking their locks, less often while nothing that is held can
//! leave, and sleeps otherwise. It sends what an endpoint has held for a period, unless the
//! application has called meanwhile.
//! Lock order: an endpoint, the backstop. The thread calls endpoints without its own lock.

use super::set::Pollable;
use core::fmt;
use ofi_sync::held::HeldMark;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// What is held leaves after one to two of them.
const PERIOD: Duration = Duration::from_micros(500);
/// Periods between two tries to send what cannot leave, at most.
const LONGEST: u32 = 32;
/// Periods for which an endpoint holds nothing before the thread forgets it.
const PATIENCE: u32 = 20;
/// Calls after a failure to start the thread that do not try again: it is expensive.
const REFUSALS: u32 = 1000;

/// Starts a thread that runs [`Backstop::run`]; false if the system has no room for it.
pub type Start = Box<dyn Fn(Arc<Backstop>) -> bool + Send + Sync>;

/// What sends the stragglers of a domain's endpoints.
pub struct Backstop {
    state: Mutex<State>,
    news: Condvar,
    start: Start,
}

#[derive(Default)]
struct State {
    watched: Vec<Watched>,
    stage: Stage,
    /// Calls that do not try to start it again.
    refusals: u32,
}

/// What the thread does.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// It has not started.
    #[default]
    Unneeded,
    Running,
    /// It runs while the process ends.
    Ending,
    /// It ends, or will never start.
    Stopped,
}

struct Watched {
    endpoint: Weak<dyn Pollable>,
    mark: Arc<HeldMark>,
    /// What it held when the thread last looked.
    seen: Option<u32>,
    /// Calls that had come by then while it held something.
    calls: u32,
    /// Periods until the next try to send what it holds.
    left: u32,
    /// Periods from one try to the next.
    pause: u32,
    /// Periods for which it has held nothing.
    idle: u32,
    /// What it held when the process began to end.
    last: Option<u32>,
}

impl fmt::Debug for Backstop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backstop").field("watched", &self.state().watched.len()).finish_non_exhaustive()
    }
}

impl Backstop {
    /// A backstop whose thread `start` starts, the first time that one is needed.
    pub fn new(start: Start) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), news: Condvar::new(), start })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at an endpoint's mark from now on. False if there is no thread to do it.
    pub(crate) fn watch(self: &Arc<Self>, endpoint: Weak<dyn Pollable>, mark: Arc<HeldMark>) -> bool {
        let mut state = self.state();
        if state.stage == Stage::Unneeded {
            if state.refusals > 0 {
                state.refusals -= 1;
                return false;
            }
            if !(self.start)(self.clone()) {
                state.refusals = REFUSALS;
                return false;
            }
            state.stage = Stage::Running;
        }
        if state.stage == Stage::Stopped {
            return false;
        }
        let (is_first, is_slow, calls) = (state.watched.is_empty(), state.periods() > 1, mark.calls());
        state.watched.push(Watched { endpoint, mark, seen: None, calls, left: 1, pause: 1, idle: 0, last: None });
        if is_first || is_slow {
            self.news.notify_one();
        }
        true
    }

    /// The thread's main loop: returns after [`Self::stop`].
    pub fn run(&self) {
        let (mut state, mut periods) = (self.state(), 1);
        while state.stage != Stage::Stopped {
            if state.watched.is_empty() {
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                periods = 1;
                continue;
            }
            let waited = self.news.wait_timeout(state, periods * PERIOD).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            // If a new endpoint cut the wait short, little has passed for the others.
            let stragglers = state.look(if waited.1.timed_out() { periods } else { 0 });
            if !stragglers.is_empty() {
                drop(state);
                let moved: Vec<_> = stragglers.into_iter().map(Straggler::send).collect();
                state = self.state();
                moved.iter().for_each(|(mark, is_active)| state.note_sent(mark, *is_active));
            }
            periods = state.periods();
        }
    }

    /// The process ends: the thread sends at once what endpoints held at the first of these calls.
    /// True while they hold it, or may. Does not block: the thread that ends the process may have
    /// been interrupted by a signal while it had any lock.
    pub fn hurry(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return true };
        match state.stage {
            Stage::Unneeded | Stage::Stopped => return false,
            Stage::Running => {
                state.stage = Stage::Ending;
                state.watched.iter_mut().for_each(|watched| watched.last = watched.mark.held());
            }
            Stage::Ending => {}
        }
        let holds = state.watched.iter().any(|watched| watched.last.is_some() && watched.last == watched.mark.held());
        if holds {
            self.news.notify_one();
        }
        holds
    }

    /// Ends [`Self::run`]. From now on nothing is watched.
    pub fn stop(&self) {
        self.state().stage = Stage::Stopped;
        self.news.notify_one();
    }
}

/// An endpoint that is to send what it holds.
struct Straggler {
    endpoint: Arc<dyn Pollable>,
    mark: Arc<HeldMark>,
}

impl Straggler {
    /// Sends what it holds. Returns its mark, and whether anything moved.
    fn send(self) -> (Arc<HeldMark>, bool) {
        (self.mark, self.endpoint.send_held())
    }
}

impl State {
    /// The endpoints that are to send what they hold, `periods` after the last look.
    fn look(&mut self, periods: u32) -> Vec<Straggler> {
        let mut stragglers = Vec::new();
        self.watched.retain_mut(|watched| {
            let (held, calls) = (watched.mark.held(), watched.mark.calls());
            let is_same = core::mem::replace(&mut watched.seen, held) == held;
            let has_called = core::mem::replace(&mut watched.calls, calls) != calls;
            if held.is_none() {
                watched.idle = if is_same { watched.idle + periods } else { 0 };
                return watched.idle < PATIENCE || !watched.mark.unwatch();
            }
            watched.idle = 0;
            let Some(endpoint) = watched.endpoint.upgrade() else { return false };
            if watched.last == held {
                watched.left = 0;
            } else if !is_same {
                (watched.left, watched.pause) = (1, 1);
            } else {
                watched.left = watched.left.saturating_sub(periods).max(u32::from(has_called));
            }
            if watched.left == 0 {
                stragglers.push(Straggler { endpoint, mark: watched.mark.clone() });
            }
            true
        });
        stragglers
    }

    /// The thread has tried to send what an endpoint holds. Its own calls are none of the
    /// application's.
    fn note_sent(&mut self, mark: &Arc<HeldMark>, is_active: bool) {
        if let Some(watched) = self.watched.iter_mut().find(|watched| Arc::ptr_eq(&watched.mark, mark)) {
            (watched.seen, watched.calls) = (mark.held(), mark.calls());
            watched.pause = if is_active { 1 } else { LONGEST.min(2 * watched.pause) };
            watched.left = watched.pause;
        }
    }

    /// Periods until the next look.
    fn periods(&self) -> u32 {
        let left = self.watched.iter().map(|watched| if watched.seen.is_some() { watched.left.max(1) } else { 1 });
        left.min().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::still::Quiet;
    use ofi_sync::primitive::{AtomicU32, Ordering};

    fn backstop(starts: bool) -> (Arc<Backstop>, Arc<AtomicU32>) {
        let started = Arc::new(AtomicU32::new(0));
        let count = started.clone();
        let start = move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            starts
        };
        (Backstop::new(Box::new(start)), started)
    }

    #[test]
    fn only_what_stays_held_is_sent() {
        let (backstop, started) = backstop(true);
        let (endpoint, mark) = (Arc::new(Quiet::default()), Arc::new(HeldMark::default()));
        assert!(mark.set(true));
        let weak: Weak<dyn Pollable> = Arc::downgrade(&(endpoint.clone() as Arc<dyn Pollable>));
        assert!(backstop.watch(weak, mark.clone()) && started.load(Ordering::Relaxed) == 1);
        let look = || backstop.state().look(1).len();
        assert_eq!(look(), 0, "it may have begun just now");
        assert_eq!(look(), 1);
        mark.set(false);
        mark.set(true);
        assert_eq!(look(), 0, "it holds something else");
        mark.note_call();
        assert_eq!((look(), look()), (0, 1), "calls still came");
        mark.set(false);
        assert!((0..PATIENCE).all(|_| look() == 0) && backstop.state().watched.len() == 1);
        assert_eq!((look(), backstop.state().watched.len()), (0, 0), "it has held nothing for long");
        assert!(mark.set(true), "the thread is to be told again");
        drop(endpoint);
        assert!(backstop.watch(Weak::<Quiet>::new(), mark) && started.load(Ordering::Relaxed) == 1);
        assert_eq!((look(), backstop.state().watched.len()), (0, 0), "the endpoint is gone");
    }

    /// After how many periods each of the next tries comes, which move nothing until the last.
    fn tries(backstop: &Backstop, mark: &Arc<HeldMark>, count: usize) -> Vec<u32> {
        let mut state = backstop.state();
        let tries = (0..count).map(|number| {
            let mut periods = 0;
            loop {
                let next = state.periods();
                periods += next;
                if !state.look(next).is_empty() {
                    // The thread's own poll counts as a call.
                    mark.note_call();
                    state.note_sent(mark, number + 1 == count);
                    return periods;
                }
            }
        });
        tries.collect()
    }

    #[test]
    fn what_cannot_leave_is_tried_less_and_less_often() {
        let (backstop, _) = backstop(true);
        let endpoint: Arc<dyn Pollable> = Arc::new(Quiet::default());
        let mark = Arc::new(HeldMark::default());
        assert!(mark.set(true) && backstop.watch(Arc::downgrade(&endpoint), mark.clone()));
        assert_eq!(tries(&backstop, &mark, 8), [2, 2, 4, 8, 16, 32, 32, 32]);
        assert_eq!(tries(&backstop, &mark, 3), [1, 2, 4], "something has moved");
        mark.set(false);
        mark.set(true);
        assert_eq!(tries(&backstop, &mark, 1), [2], "something else is held");
    }

    #[test]
    fn an_endpoint_that_is_stuck_does_not_slow_another_one_down() {
        let (backstop, _) = backstop(true);
        let endpoint: Arc<dyn Pollable> = Arc::new(Quiet::default());
        let marks = [Arc::new(HeldMark::default()), Arc::new(HeldMark::default())];
        assert!(marks[0].set(true) && backstop.watch(Arc::downgrade(&endpoint), marks[0].clone()));
        tries(&backstop, &marks[0], 7);
        backstop.state().note_sent(&marks[0], false);
        assert!(backstop.state().periods() > 1, "the thread sleeps for long");
        assert!(marks[1].set(true) && backstop.watch(Arc::downgrade(&endpoint), marks[1].clone()));
        let mut state = backstop.state();
        assert_eq!((state.look(0).len(), state.periods()), (0, 1));
        assert_eq!(state.look(1).len(), 1, "the new one");
    }

    #[test]
    fn when_the_process_ends_all_that_is_held_leaves_at_once() {
        let (backstop, _) = backstop(true);
        let endpoint: Arc<dyn Pollable> = Arc::new(Quiet::default());
        let mark = Arc::new(HeldMark::default());
        assert!(!backstop.hurry(), "there is no thread yet");
        assert!(mark.set(true) && backstop.watch(Arc::downgrade(&endpoint), mark.clone()));
        assert!(backstop.hurry());
        mark.note_call();
        assert_eq!(backstop.state().look(0).len(), 1, "even if calls come");
        backstop.state().note_sent(&mark, false);
        assert_eq!(backstop.state().look(0).len(), 1, "again and again");
        let held = backstop.state();
        assert!(backstop.hurry(), "it does not wait for the lock");
        drop(held);
        mark.set(false);
        assert!(!backstop.hurry() && backstop.state().look(0).is_empty());
        mark.set(true);
        assert!(!backstop.hurry() && backstop.state().look(0).is_empty(), "it came later");
    }

    #[test]
    fn without_a_thread_nothing_is_watched() {
        let (backstop, started) = backstop(false);
        let watch = || backstop.watch(Weak::<Quiet>::new(), Arc::new(HeldMark::default()));
        assert!((0..=REFUSALS).all(|_| !watch()) && started.load(Ordering::Relaxed) == 1, "it is not tried each time");
        assert!(!watch() && started.load(Ordering::Relaxed) == 2, "it tries again");
        backstop.stop();
        backstop.state().refusals = 0;
        assert!(!watch() && started.load(Ordering::Relaxed) == 2);
    }
}
