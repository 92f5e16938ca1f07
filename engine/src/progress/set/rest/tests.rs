//! Which pollables a progress thread leaves to the application, and for how long.

use super::*;
use crate::progress::set::FEW;
use crate::still::{Quiet, Still};
use ofi_sync::lock::Park;
use ofi_sync::primitive::{AtomicU32, Ordering};
use std::sync::Arc;

/// A progress thread's set, and the endpoint in it.
struct Thread {
    set: ProgressSet<Park>,
    endpoint: Arc<Quiet>,
    key: usize,
    now: Instant,
    wakes: Arc<AtomicU32>,
}

impl Thread {
    fn new() -> Self {
        let (endpoint, wakes) = (Arc::new(Quiet::default()), Arc::new(AtomicU32::new(0)));
        let counter = wakes.clone();
        let waker = Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let set = ProgressSet::with_bell(Park::default(), Arc::new(Still::default()), waker);
        let key = set.join(endpoint.clone()).expect("it has no descriptor");
        let thread = Self { set, endpoint, key, now: Instant::from_nanos(1_000_000_000), wakes };
        thread.set.rest(thread.now);
        thread
    }

    /// Sleeps for some time, in which the application polls so often; then looks.
    fn sleeps(&mut self, time: Duration, polls: u32) {
        let sleeper = self.set.sleeper();
        self.set.before_sleep();
        self.endpoint.polls.fetch_add(polls, Ordering::SeqCst);
        self.now = self.now + time;
        drop(sleeper);
        self.set.rest(self.now);
    }

    /// Whether it leaves the endpoint to the application: it neither polls nor arms it, and work
    /// that is posted neither wakes it nor sees a sleeper.
    fn leaves(&self) -> bool {
        let before = self.endpoint.polls.load(Ordering::SeqCst);
        self.set.progress();
        let polled = self.endpoint.polls.load(Ordering::SeqCst) > before;
        let sleeper = self.set.sleeper();
        self.set.before_sleep();
        let (armed, seen) = (self.endpoint.armed.load(Ordering::SeqCst), self.endpoint.flag.is_slept_on());
        let kept = !self.endpoint.left.load(Ordering::SeqCst);
        let wakes = self.wakes.load(Ordering::SeqCst);
        self.endpoint.flag.wake();
        let woken = self.wakes.load(Ordering::SeqCst) > wakes;
        drop(sleeper);
        let all = [armed, seen, woken, kept];
        assert!(all.iter().all(|all| *all == polled), "polled {polled}; armed, seen, woken, kept {all:?}");
        self.set.rest(self.now);
        !polled
    }
}

#[test]
fn an_endpoint_that_the_application_polls_rests() {
    let mut thread = Thread::new();
    assert!(!thread.leaves());
    thread.sleeps(SHORTEST / 2, DENSE);
    assert!(thread.leaves());
}

#[test]
fn polls_of_several_short_sleeps_add_up() {
    let mut thread = Thread::new();
    for _ in 0..DENSE {
        assert!(!thread.leaves());
        thread.sleeps(SHORTEST / 16, 1);
    }
    assert!(thread.leaves());
}

#[test]
fn an_endpoint_that_is_polled_now_and_then_does_not_rest() {
    let mut thread = Thread::new();
    for _ in 0..100 {
        thread.sleeps(SHORTEST, DENSE - 1);
        assert!(!thread.leaves());
        thread.sleeps(SHORTEST * 10, DENSE * 10 - 1);
        assert!(!thread.leaves());
    }
}

#[test]
fn the_sets_own_polls_do_not_count() {
    let mut thread = Thread::new();
    for _ in 0..100 {
        for _ in 0..DENSE {
            thread.set.progress();
        }
        thread.now = thread.now + SHORTEST / 4;
        thread.set.rest(thread.now);
        assert!(!thread.leaves());
    }
}

#[test]
fn an_endpoint_is_cared_for_again_when_the_application_stops_polling() {
    let mut thread = Thread::new();
    thread.sleeps(SHORTEST / 2, DENSE);
    let until = thread.set.next_look().expect("one rests");
    assert_eq!(until, thread.now + SHORTEST);
    thread.sleeps(SHORTEST / 2, 0);
    assert!(thread.leaves(), "not before the look");
    thread.sleeps(SHORTEST / 2, 0);
    assert!(!thread.leaves());
    assert_eq!(thread.set.next_look(), None);
}

#[test]
fn looks_become_rare_while_the_application_keeps_polling() {
    let mut thread = Thread::new();
    thread.sleeps(SHORTEST / 2, DENSE);
    let (begin, mut span) = (thread.now, Duration::ZERO);
    while span < LONGEST {
        span = thread.set.next_look().expect("one rests").since(thread.now);
        let polled = thread.now.since(begin);
        assert_eq!(span, (polled / PART).clamp(SHORTEST, LONGEST), "{polled:?}");
        thread.sleeps(span, 40_000);
        assert!(thread.leaves());
    }
    thread.sleeps(LONGEST, 0);
    assert!(!thread.leaves());
    thread.sleeps(SHORTEST / 2, DENSE);
    assert_eq!(thread.set.next_look(), Some(thread.now + SHORTEST), "short again at first");
}

#[test]
fn looks_leave_a_sleeping_thread_and_other_endpoints_alone() {
    let mut thread = Thread::new();
    thread.sleeps(SHORTEST / 2, DENSE);
    let other = Arc::new(Quiet::default());
    thread.set.join(other.clone()).expect("it has no descriptor");
    let sleeper = thread.set.sleeper();
    thread.set.before_sleep();
    assert!(thread.set.may_sleep_on(thread.now), "too early for a look");
    for _ in 0..5 {
        thread.now = thread.set.next_look().expect("one rests");
        thread.endpoint.polls.fetch_add(100, Ordering::SeqCst);
        assert!(thread.set.may_sleep_on(thread.now));
        assert!(other.armed.load(Ordering::SeqCst) && other.polls.load(Ordering::SeqCst) == 0);
    }
    thread.now = thread.set.next_look().expect("one rests");
    assert!(!thread.set.may_sleep_on(thread.now), "the application has stopped polling");
    drop(sleeper);
    thread.set.rest(thread.now);
    assert!(!thread.leaves());
}

#[test]
fn an_endpoint_may_leave_while_it_rests() {
    let mut thread = Thread::new();
    thread.sleeps(SHORTEST / 2, DENSE);
    let sleeper = thread.set.sleeper();
    thread.set.leave(thread.key);
    drop(sleeper);
    assert_eq!(thread.set.next_look(), None);
    assert!(!thread.endpoint.flag.is_slept_on());
    thread.key = thread.set.join(thread.endpoint.clone()).expect("it has no descriptor");
    thread.set.rest(thread.now);
    assert!(!thread.leaves());
}

#[test]
fn an_endpoint_that_rests_anew_is_looked_at_only_after_the_thread_has_been_asleep() {
    let mut thread = Thread::new();
    thread.sleeps(SHORTEST / 2, DENSE);
    // The thread keeps the application from the core meanwhile.
    thread.now = thread.now + 10 * SHORTEST;
    thread.set.fall_asleep(thread.now);
    assert!(thread.set.may_sleep_on(thread.now), "the application had no time to poll");
    assert_eq!(thread.set.next_look(), Some(thread.now + SHORTEST));
    // Only once: a thread that is woken often still looks.
    thread.set.fall_asleep(thread.now + SHORTEST / 2);
    assert_eq!(thread.set.next_look(), Some(thread.now + SHORTEST));
    assert!(!thread.set.may_sleep_on(thread.now + SHORTEST));
}

#[test]
fn the_sets_own_polls_do_not_count_while_endpoints_become_idle_and_active_again() {
    let thread = Thread::new();
    let others: Vec<_> = (0..FEW).map(|_| Arc::new(Quiet::default())).collect();
    others.iter().for_each(|other| assert!(thread.set.join(other.clone()).is_ok()));
    for round in 0..1_000 {
        let sleeper = thread.set.sleeper();
        thread.set.progress();
        thread.set.before_sleep();
        thread.set.last_look();
        drop(sleeper);
        thread.set.rest(thread.now + (SHORTEST / 8) * round);
        assert!(!thread.endpoint.left.load(Ordering::SeqCst));
        others[round as usize % FEW].flag.mark_ready();
        thread.endpoint.flag.mark_ready();
    }
}
