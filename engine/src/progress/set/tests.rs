//! Threads that may sleep on a queue's descriptor keep its endpoints armed, and no others do.

use super::*;
use crate::still::{Quiet, Still};
use crate::{CompletionQueue, Waiting};
use ofi_core::Errno;
use ofi_sync::lock::Park;
use ofi_sync::primitive::{AtomicU32, Ordering};
use std::sync::Barrier;

fn queue_of(pollable: &Arc<Quiet>) -> CompletionQueue<Park> {
    let cq = CompletionQueue::new(Park::default(), 64, Arc::new(Still::default()), Waiting::Sleeping);
    cq.join(pollable.clone()).expect("it has no descriptor");
    cq
}

/// Whether the pollable is armed, and whether calls that post to it see a sleeper.
fn state(pollable: &Quiet) -> (bool, bool) {
    (pollable.armed.load(Ordering::SeqCst), pollable.flag.is_slept_on())
}

fn read(cq: &CompletionQueue<Park>) {
    assert_eq!(cq.read(1, |_| ()), Err(Errno::AGAIN));
}

#[test]
fn a_thread_that_reads_after_trywait_is_awake() {
    let quiet = Arc::new(Quiet::default());
    let cq = queue_of(&quiet);
    read(&cq);
    assert_eq!(state(&quiet), (false, false));
    for _ in 0..3 {
        assert_eq!(cq.try_wait(), Ok(()));
        assert_eq!(state(&quiet), (true, true));
        read(&cq);
        assert_eq!(state(&quiet), (false, false));
    }
}

#[test]
fn a_pollable_that_joins_while_a_thread_may_sleep_is_armed_until_the_thread_is_awake() {
    let (first, second) = (Arc::new(Quiet::default()), Arc::new(Quiet::default()));
    let cq = queue_of(&first);
    assert_eq!(cq.try_wait(), Ok(()));
    let key = cq.join(second.clone()).expect("it has no descriptor");
    assert_eq!((state(&first), state(&second)), ((true, true), (true, true)));
    cq.leave(key);
    assert_eq!(state(&second), (false, false));
    cq.join(second.clone()).expect("it has no descriptor");
    read(&cq);
    assert_eq!((state(&first), state(&second)), ((false, false), (false, false)));
}

#[test]
fn a_pollable_that_has_events_when_it_joins_wakes_the_thread_that_sleeps() {
    let rings = Arc::new(AtomicU32::new(0));
    let bell = rings.clone();
    let ring: Waker = Box::new(move || {
        bell.fetch_add(1, Ordering::SeqCst);
    });
    let set = ProgressSet::with_bell(Park::default(), Arc::new(Still::default()), ring);
    let sleeper = set.sleeper();
    set.join(Arc::new(Quiet::default())).expect("it has no descriptor");
    assert_eq!(rings.load(Ordering::SeqCst), 0);
    set.join(Arc::new(Quiet { has_events: true, ..Quiet::default() })).expect("it has no descriptor");
    assert_eq!(rings.load(Ordering::SeqCst), 1);
    drop(sleeper);
}

#[test]
fn a_thread_that_reads_proves_nothing_about_others() {
    let quiet = Arc::new(Quiet::default());
    let (cq, turn) = (queue_of(&quiet), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(cq.try_wait(), Ok(()));
            turn.wait();
            // Here it would sleep.
            turn.wait();
            read(&cq);
        });
        turn.wait();
        read(&cq);
        assert_eq!(state(&quiet), (true, true), "the other thread may sleep");
        assert_eq!(cq.try_wait(), Ok(()));
        read(&cq);
        assert_eq!(state(&quiet), (true, true), "the other thread may still sleep");
        turn.wait();
    });
    assert_eq!(state(&quiet), (false, false));
}

#[test]
fn a_trywait_that_fails_leaves_nothing_armed() {
    let quiet = Arc::new(Quiet::default());
    let cq = queue_of(&quiet);
    cq.signal().expect("its readers may sleep");
    assert_eq!(cq.try_wait(), Err(Errno::AGAIN));
    assert_eq!(state(&quiet), (false, false));
}

#[test]
fn a_sleeper_that_leaves_does_not_disarm_a_watcher() {
    let quiet = Arc::new(Quiet::default());
    let set = ProgressSet::new(Park::default(), Arc::new(Still::default()));
    set.join(quiet.clone()).expect("it has no descriptor");
    let sleeper = set.sleeper();
    assert!(!set.before_sleep());
    set.watch(Watcher::ThisThread);
    drop(sleeper);
    assert_eq!(state(&quiet), (true, true));
    drop(set.sleeper());
    assert_eq!(state(&quiet), (true, true));
    set.progress();
    assert_eq!(state(&quiet), (false, false));
}

/// The pollables of a set of so many, and a pass of a thread that goes to sleep and wakes up.
fn set_of(count: usize) -> (ProgressSet<Park>, Vec<Arc<Quiet>>) {
    set_of_all(count, Quiet::default)
}

fn set_of_all(count: usize, make: impl Fn() -> Quiet) -> (ProgressSet<Park>, Vec<Arc<Quiet>>) {
    let set = ProgressSet::new(Park::default(), Arc::new(Still::default()));
    let pollables: Vec<_> = (0..count).map(|_| Arc::new(make())).collect();
    pollables.iter().for_each(|pollable| assert!(set.join(pollable.clone()).is_ok()));
    (set, pollables)
}

fn sleep(set: &ProgressSet<Park>) {
    let sleeper = set.sleeper();
    assert!(!set.progress() && !set.before_sleep() && !set.last_look());
    drop(sleeper);
}

#[test]
fn pollables_without_traffic_stay_armed_when_a_thread_wakes_up() {
    let (set, pollables) = set_of(FEW + 1);
    sleep(&set);
    assert!(pollables.iter().all(|pollable| !pollable.armed.load(Ordering::SeqCst)), "there may be traffic soon");
    sleep(&set);
    sleep(&set);
    let polls = |pollable: &Arc<Quiet>| pollable.polls.load(Ordering::SeqCst);
    let before: Vec<_> = pollables.iter().map(polls).collect();
    sleep(&set);
    let armed = pollables.iter().filter(|pollable| pollable.armed.load(Ordering::SeqCst)).count();
    let unpolled = pollables.iter().zip(before).filter(|(pollable, before)| polls(pollable) == *before).count();
    assert_eq!((armed, unpolled), (1, 1), "all but a few are left to the descriptor");
    let woken = pollables.iter().find(|pollable| pollable.armed.load(Ordering::SeqCst)).expect("one is armed");
    woken.flag.mark_ready();
    set.progress();
    assert!(!woken.armed.load(Ordering::SeqCst), "it is polled again");
}

#[test]
fn few_pollables_are_disarmed_when_a_thread_wakes_up() {
    let (set, pollables) = set_of(FEW);
    for _ in 0..10 {
        sleep(&set);
        assert!(pollables.iter().all(|pollable| !pollable.armed.load(Ordering::SeqCst)));
    }
}

#[test]
fn one_barrier_orders_what_all_pollables_have_announced() {
    let (set, pollables) = set_of(FEW);
    let sleeper = set.sleeper();
    assert!(!set.before_sleep());
    let orders: u32 = pollables.iter().map(|pollable| pollable.orders.load(Ordering::SeqCst)).sum();
    assert_eq!(orders, 1);
    drop(sleeper);
}

/// How many passes leave the first pollable to its descriptor while the others have events.
fn passes_of_patience(set: &ProgressSet<Park>, pollables: &[Arc<Quiet>]) -> Option<usize> {
    (1..10_000).find(|_| {
        set.note_events(&mut (1..pollables.len() as u64).collect());
        assert!(!set.progress());
        pollables[0].armed.load(Ordering::SeqCst)
    })
}

#[test]
fn a_pollable_that_is_needed_again_soon_stays_active_longer() {
    let (set, pollables) = set_of(FEW + 1);
    let first = passes_of_patience(&set, &pollables);
    assert_eq!(first, Some(128));
    pollables[0].flag.mark_ready();
    assert_eq!(passes_of_patience(&set, &pollables), Some(256));
    for _ in 0..5000 {
        assert!(!set.progress());
    }
    pollables[0].flag.mark_ready();
    assert_eq!(passes_of_patience(&set, &pollables), first, "it was idle for long");
}

#[test]
fn where_a_poll_is_a_system_call_only_a_few_are_polled_without_traffic() {
    let costly = || Quiet { costly: true, ..Quiet::default() };
    let polls_of = |count| {
        let (set, pollables) = set_of_all(count, costly);
        (0..20).for_each(|_| assert!(!set.progress()));
        let mut polls: Vec<_> = pollables.iter().map(|pollable| pollable.polls.load(Ordering::SeqCst)).collect();
        polls.sort_unstable();
        polls
    };
    assert_eq!(polls_of(FEW), [20; FEW]);
    let many = polls_of(3 * FEW);
    // Twice in a pass, and once more before they are left to their descriptors.
    assert_eq!(many[..2 * FEW], [3; 2 * FEW]);
    assert_eq!(many[2 * FEW..], [20; FEW]);
}

#[test]
fn a_thread_that_may_have_slept_looks_for_events_only_where_a_poll_may_not_find_them() {
    let looks = |costly| {
        let (still, quiet) = (Arc::new(Still::default()), Arc::new(Quiet { costly, ..Quiet::default() }));
        let cq = CompletionQueue::new(Park::default(), 64, still.clone(), Waiting::Sleeping);
        cq.join(quiet).expect("it has no descriptor");
        assert_eq!(cq.try_wait(), Ok(()));
        let before = still.looks.load(Ordering::SeqCst);
        read(&cq);
        still.looks.load(Ordering::SeqCst) - before
    };
    assert_eq!(looks(false), 1, "the pollable learns that its descriptor is readable");
    assert_eq!(looks(true), 0, "the poll is the same system call");
}

#[test]
fn reads_that_find_entries_poll_less_often_where_that_is_a_system_call() {
    for (costly, every) in [(false, LOOK_EVERY), (true, NUDGES)] {
        let quiet = Arc::new(Quiet { costly, ..Quiet::default() });
        let set = ProgressSet::with_bell(Park::default(), Arc::new(Still::default()), Box::new(|| ()));
        set.join(quiet.clone()).expect("it has no descriptor");
        (0..NUDGES).for_each(|_| set.nudge(Flush::ByRule));
        assert_eq!(quiet.polls.load(Ordering::SeqCst), u32::from(NUDGES / every), "costly: {costly}");
    }
}
