//! Blocking on a queue: spin while that pays, then sleep on the wait object without missing events.

use crate::progress::set::{ProgressSet, Watcher};
use crate::progress::yield_pace::{LONG_TURN, TURN};
use crate::transport::Flush;
use ofi_core::wait::WaitObject;
use ofi_core::{Errno, Instant};
use ofi_sync::doorbell::{Bed, Doorbell, Due};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicU32, Ordering};
use ofi_sync::ready_list::Waker;
use std::sync::Arc;
use std::time::Duration;

/// How a queue may be waited on (fi_cq(3), `wait_obj`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Not at all.
    Never,
    /// By sleeping on its wait object.
    Sleeping,
    /// By polling and yielding the processor (FI_WAIT_YIELD).
    Yielding,
}

/// How long to spin before sleeping, if recent waits were shorter than that.
const SPIN: Duration = Duration::from_micros(50);

/// How long to spin before offering the core to other threads.
const ALONE: Duration = Duration::from_micros(3);
/// Turns that others may have on the core before this thread sleeps: a peer that does not answer
/// after them waits for something else.
const TURNS: u32 = 16;
/// Consecutive turns of threads that compute ([`LONG_TURN`]) after which others get none in the
/// next waits: at first in [`WITHOUT_TURNS`], and twice as many each time that the turns after them
/// take as long. Such threads come between a waiting thread and its message, so it sleeps instead:
/// the system runs a thread that wakes before them.
const LONG_TURNS: u32 = 3;
const WITHOUT_TURNS: u32 = 64;
const MOST_WITHOUT_TURNS: u32 = 1 << 16;

/// Decides from recent waits whether to spin.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    /// Consecutive waits that were longer than [`SPIN`].
    long: AtomicU32,
    /// Consecutive turns of others that were long.
    long_turns: AtomicU32,
    /// In how many waits others got no turns last time.
    penalty: AtomicU32,
    /// In how many more waits they get none.
    without_turns: AtomicU32,
}

impl Spin {
    fn pays(&self) -> bool {
        // Relaxed: a guess. Every eighth wait tries again.
        let long = self.long.load(Ordering::Relaxed);
        long < 3 || long.is_multiple_of(8)
    }

    /// How many turns others may have in a wait.
    fn turns(&self) -> u32 {
        // Relaxed: a guess.
        let without = self.without_turns.load(Ordering::Relaxed);
        if without == 0 {
            return TURNS;
        }
        self.without_turns.store(without - 1, Ordering::Relaxed);
        0
    }

    /// Another thread has had a turn. False if this wait gives no more.
    fn had_turn(&self, long: bool) -> bool {
        // Relaxed: guesses.
        if !long {
            self.long_turns.store(0, Ordering::Relaxed);
            self.penalty.store(0, Ordering::Relaxed);
            return true;
        }
        let turns = (self.long_turns.load(Ordering::Relaxed) + 1) % LONG_TURNS;
        self.long_turns.store(turns, Ordering::Relaxed);
        if turns == 0 {
            let penalty = self.penalty.load(Ordering::Relaxed);
            let penalty = (2 * penalty).clamp(WITHOUT_TURNS, MOST_WITHOUT_TURNS);
            self.penalty.store(penalty, Ordering::Relaxed);
            self.without_turns.store(penalty, Ordering::Relaxed);
        }
        false
    }

    fn learn(&self, short: bool) {
        let long = if short { 0 } else { self.long.load(Ordering::Relaxed).saturating_add(1) };
        self.long.store(long, Ordering::Relaxed);
    }
}

/// A waker that rings a wait object's doorbell.
pub(crate) fn ringer(bell: &Arc<Doorbell>, wait_object: Arc<dyn WaitObject>) -> Waker {
    let bell = bell.clone();
    Box::new(move || write(bell.ring(), &*wait_object))
}

/// Signals the descriptors that a ring has made due.
#[inline]
pub(crate) fn write(due: Due, wait_object: &dyn WaitObject) {
    if due.is_any() {
        write_some(due, wait_object);
    }
}

#[cold]
fn write_some(due: Due, wait_object: &dyn WaitObject) {
    if due.has(Bed::Shared) {
        wait_object.signal();
    }
    // It exists if a thread sleeps on it.
    if due.has(Bed::Apart)
        && let Some(apart) = wait_object.apart()
    {
        apart.signal();
    }
}

/// How a blocking wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// What it waited for is there.
    Ready,
    /// The time is over.
    Expired,
    /// A signal to the process has interrupted the sleep (signal(7)).
    Interrupted,
}

impl Outcome {
    fn of(is_ready: bool) -> Self {
        if is_ready { Self::Ready } else { Self::Expired }
    }
}

/// A blocking wait on a queue.
#[derive(Debug)]
pub(crate) struct Sleep<'a, K: LockKind> {
    pub(crate) progress: &'a ProgressSet<K>,
    pub(crate) bell: &'a Doorbell,
    pub(crate) spin: &'a Spin,
    pub(crate) how: Waiting,
}

impl<K: LockKind> Sleep<'_, K> {
    /// Waits until `ready`, the end of the timeout, or a signal to the process while it sleeps.
    pub(crate) fn until(&self, ready: impl Fn() -> bool, timeout: Option<Duration>) -> Outcome {
        let outcome = self.wait(ready, timeout);
        if outcome != Outcome::Ready {
            // The caller may not call again soon.
            self.progress.flush(Flush::All);
        }
        outcome
    }

    fn wait(&self, ready: impl Fn() -> bool, timeout: Option<Duration>) -> Outcome {
        self.progress.progress();
        if ready() {
            return Outcome::Ready;
        }
        if timeout == Some(Duration::ZERO) {
            return Outcome::Expired;
        }
        let wait_object = self.progress.wait_object();
        let start = wait_object.now();
        let end = timeout.map(|timeout| start + timeout);
        if self.how == Waiting::Yielding {
            loop {
                self.progress.progress();
                if ready() {
                    return Outcome::Ready;
                }
                let now = wait_object.now();
                if expired(end, now) {
                    return Outcome::Expired;
                }
                self.progress.publish_if_due(now);
                std::thread::yield_now();
            }
        }
        if self.spin.pays() && self.spin(&ready, wait_object, end) {
            self.spin.learn(true);
            return Outcome::Ready;
        }
        let outcome = loop {
            let _sleeper = self.progress.sleeper();
            let (bed, place) = if self.bell.is_watched() {
                let Some(apart) = wait_object.apart() else {
                    // No descriptor is left to sleep on.
                    std::thread::yield_now();
                    self.progress.progress();
                    if ready() || expired(end, wait_object.now()) {
                        break Outcome::of(ready());
                    }
                    continue;
                };
                (Bed::Apart, apart)
            } else {
                (Bed::Shared, wait_object)
            };
            let mut armed = true;
            match self.announce(&ready, || armed = self.bell.arm(bed, || place.drain())) {
                // A watcher has appeared: sleep on the separate descriptor instead.
                Ok(()) if !armed => continue,
                Ok(()) => {}
                Err(_) if ready() => break Outcome::Ready,
                // There was progress: check again before sleeping.
                Err(_) => {
                    if expired(end, wait_object.now()) {
                        break Outcome::Expired;
                    }
                    continue;
                }
            }
            if ready() {
                // Other sleepers must wake too: the descriptor may have been drained.
                self.bell.disarm(bed);
                self.ring();
                break Outcome::Ready;
            }
            let now = wait_object.now();
            place.set_timer(self.wake_at(now));
            if expired(end, now) {
                self.bell.disarm(bed);
                break Outcome::Expired;
            }
            let mut keys = Vec::new();
            let was_interrupted = place.ready(end.map(|end| end.since(now)), &mut keys);
            self.bell.disarm(bed);
            self.progress.note_events(&mut keys);
            self.progress.progress();
            if ready() {
                break Outcome::Ready;
            }
            if was_interrupted {
                break Outcome::Interrupted;
            }
        };
        self.spin.learn(wait_object.now().since(start) < SPIN);
        outcome
    }

    /// Polls for up to [`SPIN`]. True when `ready`. When that takes longer than [`ALONE`], other
    /// threads have the core in between: the peer may need it to send what this one waits for, and
    /// going to sleep costs more than handing the core over. Their time does not count.
    fn spin(&self, ready: &impl Fn() -> bool, wait_object: &dyn WaitObject, end: Option<Instant>) -> bool {
        let mut start = wait_object.now();
        let (mut alone, mut turns) = (start, self.spin.turns());
        loop {
            for _ in 0..8 {
                self.progress.progress();
                if ready() {
                    return true;
                }
            }
            let now = wait_object.now();
            if now.since(start) >= SPIN || end.is_some_and(|end| now >= end) {
                return false;
            }
            if now.since(alone) >= ALONE && turns > 0 {
                std::thread::yield_now();
                alone = wait_object.now();
                let others = alone.since(now);
                if others >= TURN {
                    turns = if self.spin.had_turn(others >= LONG_TURN) { turns - 1 } else { 0 };
                    start = start + others;
                }
            }
        }
    }

    /// When a thread that goes to sleep now has to wake up, if nothing happens before.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let due = self.progress.publish_before_sleep(now);
        [due, self.progress.next_deadline()].into_iter().flatten().min()
    }

    fn ring(&self) {
        write(self.bell.ring(), self.progress.wait_object());
    }

    /// Makes progress, flushes and arms the pollables, then calls `announce` to announce the sleep.
    /// `AGAIN` if there is something to do first.
    fn announce(&self, ready: impl Fn() -> bool, announce: impl FnOnce()) -> Result<(), Errno> {
        if self.progress.progress() {
            // More may have arrived behind it that no descriptor reports.
            self.progress.flush(Flush::All);
            return Err(Errno::AGAIN);
        }
        self.progress.flush(Flush::All);
        if self.progress.before_sleep() || ready() {
            return Err(Errno::AGAIN);
        }
        announce();
        Ok(())
    }

    /// Prepares for the watcher to sleep on the wait object's descriptor (fi_trywait(3)). `AGAIN`
    /// if there is something to do first.
    pub(crate) fn prepare(&self, watcher: Watcher, ready: impl Fn() -> bool) -> Result<(), Errno> {
        let _sleeper = self.progress.sleeper();
        self.announce(&ready, || self.bell.watch(|| self.progress.wait_object().drain()))?;
        if ready() {
            self.ring();
            return Err(Errno::AGAIN);
        }
        let wait_object = self.progress.wait_object();
        wait_object.set_timer(self.wake_at(wait_object.now()));
        // Last: the pass above has shown that this thread is awake.
        self.progress.watch(watcher);
        wait_object.watched();
        Ok(())
    }
}

fn expired(end: Option<Instant>, now: Instant) -> bool {
    end.is_some_and(|end| now >= end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_turns_of_others_end_the_turns_for_longer_each_time() {
        let spin = Spin::default();
        let mut before = 0;
        for _ in 0..5 {
            for turn in 1..=LONG_TURNS {
                assert_eq!(spin.turns(), TURNS, "turn {turn}");
                assert!(!spin.had_turn(true), "the wait gives no more turns");
            }
            let without = (0..).take_while(|_| spin.turns() == 0).count();
            assert!(without >= 2 * before && without >= WITHOUT_TURNS as usize, "{without} after {before}");
            before = without;
        }
        // A short one shows that the core is shared by threads that wait, too.
        assert!(spin.had_turn(false));
        (0..LONG_TURNS).for_each(|_| assert!(!spin.had_turn(true)));
        assert_eq!((0..).take_while(|_| spin.turns() == 0).count(), WITHOUT_TURNS as usize);
    }

    #[test]
    fn a_single_long_turn_among_short_ones_ends_nothing() {
        let spin = Spin::default();
        for _ in 0..100 {
            assert!(!spin.had_turn(true));
            assert!(spin.had_turn(false));
            assert_eq!(spin.turns(), TURNS);
        }
    }
}
