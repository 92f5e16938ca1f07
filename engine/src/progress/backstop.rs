//! Backstop: sends what endpoints hold back for the application's next call, if that call does not
//! come. A burst of injected messages is held so that it leaves in few packets, and acknowledgments
//! so that a reply takes them along; the application may be done with both, and wait for something
//! else.
//!
//! An injected message may also wait for a link to its peer, which progress opens.
//!
//! Its thread starts when something is first held. It looks every [`PERIOD`] while endpoints hold
//! something now and then, without taking their locks, less often while nothing that is held can
//! leave, and sleeps otherwise.
//! Lock order: an endpoint, the backstop. The thread calls endpoints without its own lock.

use super::set::Pollable;
use core::fmt;
use ofi_sync::held::HeldMark;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Between two looks: what is held leaves after one to two of them.
const PERIOD: Duration = Duration::from_micros(500);
/// The same while nothing that is held can leave.
const LONGEST: Duration = Duration::from_millis(16);
/// Looks at which an endpoint holds nothing before the thread forgets it, or the same before the
/// thread looks less often.
const PATIENCE: u32 = 20;

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
    is_running: bool,
    is_stopping: bool,
    /// The thread looks less often.
    is_slow: bool,
}

struct Watched {
    endpoint: Weak<dyn Pollable>,
    mark: Arc<HeldMark>,
    /// What it held when the thread last looked.
    seen: Option<u32>,
    /// Looks in a row at which nothing had changed.
    idle: u32,
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
        if !state.is_running && !state.is_stopping {
            state.is_running = (self.start)(self.clone());
        }
        if !state.is_running {
            return false;
        }
        state.watched.push(Watched { endpoint, mark, seen: None, idle: 0 });
        if state.watched.len() == 1 || state.is_slow {
            self.news.notify_one();
        }
        true
    }

    /// The thread's main loop: returns after [`Self::stop`].
    pub fn run(&self) {
        let _running = Running(self);
        let (mut state, mut pause) = (self.state(), PERIOD);
        while !state.is_stopping {
            if state.watched.is_empty() {
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state = self.news.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
            let stragglers = state.look();
            if !stragglers.is_empty() {
                drop(state);
                let moved: Vec<_> = stragglers.into_iter().filter_map(Straggler::send).collect();
                state = self.state();
                moved.iter().for_each(|(mark, is_active)| state.note_sent(mark, *is_active));
            }
            pause = if state.is_stuck() { LONGEST.min(2 * pause) } else { PERIOD };
            state.is_slow = pause > PERIOD;
        }
    }

    /// Ends [`Self::run`]. From now on nothing is watched.
    pub fn stop(&self) {
        let mut state = self.state();
        (state.is_stopping, state.is_running) = (true, false);
        drop(state);
        self.news.notify_one();
    }
}

/// An endpoint that holds what it held at the last look.
struct Straggler {
    endpoint: Arc<dyn Pollable>,
    mark: Arc<HeldMark>,
}

impl Straggler {
    /// Sends what it holds. Returns its mark if it still holds something, and whether anything
    /// moved.
    fn send(self) -> Option<(Arc<HeldMark>, bool)> {
        let is_active = self.endpoint.send_held();
        self.mark.held().map(|_| (self.mark, is_active))
    }
}

/// The thread runs: a new one starts after a panic.
struct Running<'a>(&'a Backstop);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().is_running = false;
    }
}

impl State {
    /// The endpoints that hold what they held at the last look.
    fn look(&mut self) -> Vec<Straggler> {
        let mut stragglers = Vec::new();
        self.watched.retain_mut(|watched| {
            let held = watched.mark.held();
            let is_same = core::mem::replace(&mut watched.seen, held) == held;
            watched.idle = if is_same { watched.idle + 1 } else { 0 };
            if held.is_none() {
                return watched.idle < PATIENCE || !watched.mark.unwatch();
            }
            let Some(endpoint) = watched.endpoint.upgrade() else { return false };
            if is_same {
                stragglers.push(Straggler { endpoint, mark: watched.mark.clone() });
            }
            true
        });
        stragglers
    }

    /// The thread itself has made an endpoint move, or not: its calls are none of the
    /// application's.
    fn note_sent(&mut self, mark: &Arc<HeldMark>, is_active: bool) {
        if let Some(watched) = self.watched.iter_mut().find(|watched| Arc::ptr_eq(&watched.mark, mark)) {
            watched.seen = mark.held();
            watched.idle = if is_active { 0 } else { watched.idle };
        }
    }

    /// Whether nothing of what is held has left for some looks.
    fn is_stuck(&self) -> bool {
        !self.watched.is_empty() && self.watched.iter().all(|watched| watched.idle > PATIENCE && watched.seen.is_some())
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
    fn only_what_stays_held_is_a_straggler() {
        let (backstop, started) = backstop(true);
        let (endpoint, mark) = (Arc::new(Quiet::default()), Arc::new(HeldMark::default()));
        assert!(mark.set(true));
        let weak: Weak<dyn Pollable> = Arc::downgrade(&(endpoint.clone() as Arc<dyn Pollable>));
        assert!(backstop.watch(weak, mark.clone()) && started.load(Ordering::Relaxed) == 1);
        let look = || backstop.state().look().len();
        assert_eq!(look(), 0, "it may have begun just now");
        assert_eq!(look(), 1);
        mark.set(false);
        mark.set(true);
        assert_eq!(look(), 0, "it holds something else");
        mark.set(false);
        assert!((0..PATIENCE).all(|_| look() == 0) && backstop.state().watched.len() == 1);
        assert_eq!((look(), backstop.state().watched.len()), (0, 0), "it has held nothing for long");
        assert!(mark.set(true), "the thread is to be told again");
        drop(endpoint);
        assert!(backstop.watch(Weak::<Quiet>::new(), mark) && started.load(Ordering::Relaxed) == 1);
        assert_eq!((look(), backstop.state().watched.len()), (0, 0), "the endpoint is gone");
    }

    #[test]
    fn the_thread_looks_less_often_while_nothing_can_leave() {
        let (backstop, _) = backstop(true);
        let endpoint: Arc<dyn Pollable> = Arc::new(Quiet::default());
        let marks = [Arc::new(HeldMark::default()), Arc::new(HeldMark::default())];
        for mark in &marks {
            assert!(mark.set(true) && backstop.watch(Arc::downgrade(&endpoint), mark.clone()));
        }
        let looks = |count: u32| (0..count).map(|_| backstop.state().look().len()).sum::<usize>();
        assert_eq!(looks(PATIENCE + 2), 2 * (PATIENCE as usize + 1), "it goes on");
        assert!(backstop.state().is_stuck());
        marks[0].set(false);
        looks(1);
        assert!(!backstop.state().is_stuck(), "something has left");
    }

    #[test]
    fn the_threads_own_polls_are_none_of_the_applications() {
        let (backstop, _) = backstop(true);
        let endpoint: Arc<dyn Pollable> = Arc::new(Quiet::default());
        let mark = Arc::new(HeldMark::default());
        assert!(mark.set(true) && backstop.watch(Arc::downgrade(&endpoint), mark.clone()));
        let mut state = backstop.state();
        assert_eq!((state.look().len(), state.look().len()), (0, 1));
        mark.renew();
        assert_eq!(state.look().len(), 0, "the application has polled");
        for is_active in [false, true] {
            (0..=PATIENCE).for_each(|_| drop(state.look()));
            assert!(state.is_stuck());
            mark.renew();
            state.note_sent(&mark, is_active);
            assert_eq!((state.is_stuck(), state.look().len()), (!is_active, 1));
        }
    }

    #[test]
    fn without_a_thread_nothing_is_watched() {
        let (backstop, started) = backstop(false);
        let watch = || backstop.watch(Weak::<Quiet>::new(), Arc::new(HeldMark::default()));
        assert!(!watch() && !watch() && started.load(Ordering::Relaxed) == 2, "it tries again");
        backstop.stop();
        assert!(!watch() && started.load(Ordering::Relaxed) == 2);
    }
}
