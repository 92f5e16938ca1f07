//! Gives other threads turns on a core where this one polls without finding anything: on a machine
//! with more busy threads than cores, the peer that it waits for may be one of them.

use ofi_core::Instant;
use ofi_sync::primitive::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// An offer of the core that takes as long was accepted.
pub(super) const TURN: Duration = Duration::from_micros(5);
/// An offer that takes as long was accepted by a thread that computes: less than the scheduler
/// leaves a thread on a core for which others wait. Threads that poll give the core back sooner,
/// unless there are dozens.
pub(super) const LONG_TURN: Duration = Duration::from_millis(1);
/// Idle passes between two looks at the clock.
const LOOK_EVERY: u32 = 64;
/// Bounds of the pause between two offers. A thread that nobody competes with makes hardly any; on
/// a core of threads that poll the pause shrinks with each turn.
const LEAST_PAUSE: Duration = Duration::from_micros(5);
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const MOST_PAUSE: Duration = Duration::from_millis(4);

/// When a polling thread offers its core. Everything is a guess that threads may overwrite for each
/// other, so all accesses are relaxed.
#[derive(Debug)]
pub(super) struct YieldPace {
    /// Passes that found nothing.
    idle: AtomicU32,
    /// Calls that found something, at the last look.
    busy: AtomicU32,
    /// Since when passes have found nothing, as far as looks have shown; 0: unknown.
    since: AtomicU64,
    /// Nanoseconds until the next offer.
    pause: AtomicU64,
    /// Others have just had a turn, which took so many nanoseconds; 0: they have had none.
    turn: AtomicU64,
}

impl Default for YieldPace {
    fn default() -> Self {
        Self {
            idle: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            since: AtomicU64::new(0),
            pause: AtomicU64::new(nanos(FIRST_PAUSE)),
            turn: AtomicU64::new(0),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl YieldPace {
    /// Counts a pass that found nothing. True if it is time for a [look](Self::look).
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        let idle = self.idle.load(Ordering::Relaxed).wrapping_add(1);
        self.idle.store(idle, Ordering::Relaxed);
        idle.is_multiple_of(LOOK_EVERY)
    }

    /// A pass found something.
    pub(super) fn interrupt(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Offers the core, by `offer`, if passes have found nothing for long enough. `busy` counts the
    /// calls that found something. Returns the time.
    pub(super) fn look(&self, busy: u32, clock: impl Fn() -> Instant, offer: impl FnOnce()) -> Instant {
        let now = clock();
        let since = self.since.load(Ordering::Relaxed);
        let turn = self.turn.swap(0, Ordering::Relaxed);
        if self.busy.swap(busy, Ordering::Relaxed) != busy || since == 0 {
            if turn > 0 {
                self.set_pause(|pause| pause / 4);
            }
            self.since.store(now.nanos(), Ordering::Relaxed);
            return now;
        }
        if turn >= nanos(LONG_TURN) {
            self.set_pause(|pause| pause.saturating_mul(2));
        } else if turn > 0 {
            self.set_pause(|pause| pause / 2);
        }
        if now.since(Instant::from_nanos(since)) < Duration::from_nanos(self.pause.load(Ordering::Relaxed)) {
            return now;
        }
        offer();
        let after = clock();
        let turn = after.since(now);
        if turn < TURN {
            self.set_pause(|pause| pause.saturating_mul(2));
        } else {
            self.turn.store(nanos(turn), Ordering::Relaxed);
        }
        self.since.store(after.nanos(), Ordering::Relaxed);
        after
    }

    fn set_pause(&self, change: impl Fn(u64) -> u64) {
        let pause = change(self.pause.load(Ordering::Relaxed));
        self.pause.store(pause.clamp(nanos(LEAST_PAUSE), nanos(MOST_PAUSE)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A thread that polls: looks each microsecond, until `until` microseconds have passed. Other
    /// threads keep the core for `turn` microseconds. Returns the number of turns; after one of
    /// them the thread finds something if `pays`.
    fn poll(turns: &YieldPace, clock: &Cell<u64>, until: u64, (turn, pays): (u64, bool)) -> u64 {
        let (count, mut busy) = (Cell::new(0), turns.busy.load(Ordering::Relaxed));
        let end = clock.get() + until;
        while clock.get() < end {
            let before = count.get();
            let offer = || {
                clock.set(clock.get() + turn);
                count.set(count.get() + 1);
            };
            turns.look(busy, || Instant::from_nanos(clock.get() * 1000), offer);
            busy += u32::from(pays && count.get() > before);
            clock.set(clock.get() + 1);
        }
        count.get()
    }

    #[test]
    fn a_thread_that_is_alone_offers_its_core_rarely() {
        let (turns, clock) = (YieldPace::default(), Cell::new(1));
        let first = poll(&turns, &clock, 10_000, (0, false));
        assert!((1..=10).contains(&first), "{first}");
        let later = poll(&turns, &clock, 100_000, (0, false));
        assert!((20..=26).contains(&later), "{later}");
    }

    #[test]
    fn turns_that_bring_something_come_soon() {
        let (turns, clock) = (YieldPace::default(), Cell::new(1));
        poll(&turns, &clock, 10_000, (100, true));
        let more = poll(&turns, &clock, 10_000, (100, true));
        assert!((85..=100).contains(&more), "{more}");
    }

    #[test]
    fn turns_of_threads_that_give_the_core_back_come_soon_though_they_bring_nothing() {
        let (turns, clock) = (YieldPace::default(), Cell::new(1));
        // Alone at first.
        poll(&turns, &clock, 100_000, (0, false));
        poll(&turns, &clock, 10_000, (100, false));
        let more = poll(&turns, &clock, 10_000, (100, false));
        assert!((85..=100).contains(&more), "{more}");
    }

    #[test]
    fn long_turns_that_bring_nothing_become_rare() {
        let (turns, clock) = (YieldPace::default(), Cell::new(1));
        poll(&turns, &clock, 100_000, (3000, false));
        let more = poll(&turns, &clock, 700_000, (3000, false));
        assert!((90..=110).contains(&more), "{more}");
    }

    #[test]
    fn a_thread_that_finds_something_gives_no_turn() {
        let (turns, clock) = (YieldPace::default(), Cell::new(1));
        for busy in 1..10_000 {
            clock.set(clock.get() + 30);
            turns.look(busy, || Instant::from_nanos(clock.get() * 1000), || panic!("the thread is busy"));
        }
        // The same if passes find something that completes nothing.
        for _ in 1..10_000 {
            clock.set(clock.get() + 30);
            turns.interrupt();
            turns.look(9_999, || Instant::from_nanos(clock.get() * 1000), || panic!("the thread is busy"));
        }
    }

    #[test]
    fn few_passes_look_at_the_clock() {
        let turns = YieldPace::default();
        let looks = (0..64 * 100).filter(|_| turns.is_due()).count();
        assert_eq!(looks, 100);
    }
}
