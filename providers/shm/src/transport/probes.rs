//! Decides when each peer is probed: every link within the interval, a few in a poll, and spread
//! over the interval. A side that sleeps wakes for many at once, because it polls all links anyway.

use ofi_core::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Links probed in a poll: each takes system calls.
const A_POLL: u32 = 4;
/// The same in a poll of a side that sleeps.
const A_WAKEUP: usize = 64;

/// A link in the queue.
#[derive(Debug)]
struct Entry {
    slot: usize,
    serial: u64,
    /// When it was last probed, or opened.
    at: Instant,
}

/// The order in which links are probed. Links that have ended stay until it is their turn.
#[derive(Debug)]
pub(super) struct Probes {
    /// The one that was probed longest ago first.
    queue: VecDeque<Entry>,
    serial: u64,
    /// When a poll last probed some.
    step_at: Instant,
    /// The longest time between probes of a link.
    every: Duration,
}

impl Probes {
    pub(super) const fn new(now: Instant, every: Duration) -> Self {
        Self { queue: VecDeque::new(), serial: 0, step_at: now, every }
    }

    /// Adds a new link; returns its serial number.
    pub(super) fn add(&mut self, slot: usize, now: Instant) -> u64 {
        self.serial += 1;
        self.queue.push_back(Entry { slot, serial: self.serial, at: now });
        self.serial
    }

    /// When the next link must be probed.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.front().map(|first| first.at + self.every)
    }

    /// How many links a poll at `now` probes. `sleeps`: this side wakes only for the next deadline.
    pub(super) fn due(&mut self, now: Instant, sleeps: bool) -> usize {
        let Some(late) = self.next() else { return 0 };
        let count = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let pace = self.every * A_POLL / count;
        if sleeps && now >= late {
            // Those that would be due soon as well, so that wakeups are few.
            let old = |entry: &&Entry| now.since(entry.at) >= self.every / 2;
            self.step_at = now;
            return self.queue.iter().take(A_WAKEUP).take_while(old).count();
        }
        // With few links each is due at its time.
        if now >= late || count > A_POLL && now >= self.step_at + pace {
            self.step_at = now;
            return A_POLL.min(count) as usize;
        }
        0
    }

    /// Takes out the link whose turn it is: its slot and serial number.
    pub(super) fn take(&mut self) -> Option<(usize, u64)> {
        self.queue.pop_front().map(|entry| (entry.slot, entry.serial))
    }

    /// Puts a link back that was probed at `now`.
    pub(super) fn put_back(&mut self, slot: usize, serial: u64, now: Instant) {
        self.queue.push_back(Entry { slot, serial, at: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(250);
    const MILLISECOND: u64 = 1_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Probes links for a while, with a poll every `step`: the longest time between probes of a
    /// link, and most probes in a poll.
    fn run(links: usize, step: Duration, sleeps: bool) -> (Duration, usize) {
        let mut probes = Probes::new(at(0), EVERY);
        let mut last = vec![at(0); links];
        (0..links).for_each(|slot| assert_eq!(probes.add(slot, at(0)), slot as u64 + 1));
        let (mut longest, mut most, mut now) = (Duration::ZERO, 0, at(0));
        while now < at(1000 * MILLISECOND) {
            now = if sleeps { probes.next().map_or(now + step, |due| due.max(now + step)) } else { now + step };
            let due = probes.due(now, sleeps);
            most = most.max(due);
            for _ in 0..due {
                let Some((slot, serial)) = probes.take() else { break };
                longest = longest.max(now.since(last[slot]));
                last[slot] = now;
                probes.put_back(slot, serial, now);
            }
        }
        let oldest = last.iter().map(|last| now.since(*last)).max();
        (longest.max(oldest.unwrap_or_default()), most)
    }

    #[test]
    fn each_link_is_probed_in_time_and_few_in_a_poll() {
        for links in [1, 3, 4, 5, 64, 1000, 3000] {
            let (longest, most) = run(links, Duration::from_micros(50), false);
            assert!(longest < EVERY + Duration::from_millis(5), "{links} links: {longest:?}");
            assert_eq!(most, links.min(4), "{links} links");
        }
    }

    #[test]
    fn a_side_that_sleeps_probes_in_time_and_wakes_seldom() {
        for links in [1, 3, 64, 1000, 3000] {
            let (longest, most) = run(links, Duration::from_micros(50), true);
            assert!(longest < EVERY + Duration::from_millis(5), "{links} links: {longest:?}");
            assert_eq!(most, links.min(64), "{links} links");
        }
    }

    #[test]
    fn a_side_that_polled_before_it_sleeps_wakes_for_many_at_once() {
        let mut probes = Probes::new(at(0), EVERY);
        (0..64).for_each(|slot| assert!(probes.add(slot, at(slot as u64 * 4 * MILLISECOND)) > 0));
        let mut wakeups = 0;
        while let Some(now) = probes.next().filter(|due| *due < at(1250 * MILLISECOND)) {
            wakeups += 1;
            for _ in 0..probes.due(now, true) {
                let Some((slot, serial)) = probes.take() else { break };
                probes.put_back(slot, serial, now);
            }
        }
        assert!(wakeups <= 10, "{wakeups} wakeups in a second");
    }

    #[test]
    fn a_link_that_ended_leaves_the_queue_at_its_turn() {
        let mut probes = Probes::new(at(0), EVERY);
        let (first, second) = (probes.add(0, at(0)), probes.add(0, at(1)));
        assert_eq!(probes.next(), Some(at(0) + EVERY));
        assert_eq!(probes.due(at(0) + EVERY, false), 2);
        assert_eq!((probes.take(), probes.take()), (Some((0, first)), Some((0, second))));
        assert_eq!((probes.take(), probes.next()), (None, None));
    }
}
