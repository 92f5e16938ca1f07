//! How often a poll does more than to look at the links: it reads the clock, the control sockets.

use ofi_core::Instant;
use std::time::Duration;

/// Polls between reads of the clock, at most.
const CLOCK_EVERY: u32 = 64;
/// How long that should take, at most.
const CLOCK_WITHIN: Duration = Duration::from_micros(32);
/// Interval between reads of the control sockets, at most and at least.
const MESSAGES_EVERY: Duration = Duration::from_micros(100);
const MESSAGES_SOON: Duration = Duration::from_micros(2);
/// The interval is this part of the time since the last message: peers connect in bursts, and a
/// message that waits for a read waits little longer than it was awaited.
const PART: u32 = 16;

/// The interval while another thread sleeps on them, which reads them as soon as there is
/// something. If it does not sleep after all, connecting to this endpoint takes some such
/// intervals.
const MESSAGES_EVERY_ASLEEP: Duration = Duration::from_millis(1);

/// Counts the polls, and keeps the time of what they do at times.
#[derive(Debug)]
pub(super) struct Pace {
    /// Polls between reads of the clock, and until the next read.
    every: u32,
    until: u32,
    /// The time that was last read.
    read_at: Instant,
    messages_at: Instant,
    /// When the last message came, or the endpoint was opened.
    news_at: Instant,
}

impl Pace {
    pub(super) const fn new(now: Instant) -> Self {
        Self { every: 1, until: 1, read_at: now, messages_at: now, news_at: now }
    }

    /// Whether the next poll need not read the clock.
    #[inline(always)]
    pub(super) const fn is_calm(&self) -> bool {
        self.until > 1
    }

    /// Counts a poll that need not read the clock.
    #[inline(always)]
    pub(super) const fn count_calm(&mut self) {
        self.until -= 1;
    }

    /// Counts a poll. True if it must read the clock.
    pub(super) const fn count(&mut self) -> bool {
        self.until = self.until.saturating_sub(1);
        self.until == 0
    }

    /// Takes the time that was just read.
    pub(super) fn note(&mut self, now: Instant) {
        let took = now.since(self.read_at);
        self.read_at = now;
        self.every = match took {
            // Polls are rare: the next ones read the clock too.
            took if took > CLOCK_WITHIN * self.every => 1,
            took if took > CLOCK_WITHIN => (self.every / 2).max(1),
            took if took < CLOCK_WITHIN / 4 => (self.every * 2).min(CLOCK_EVERY),
            _ => self.every,
        };
        self.until = self.every;
    }

    /// The next polls read the clock.
    pub(super) const fn hurry(&mut self) {
        (self.every, self.until) = (1, 1);
    }

    /// Whether the control sockets are read at `now`. `asleep`: another thread sleeps on them.
    pub(super) fn is_time_for_messages(&mut self, now: Instant, asleep: bool) -> bool {
        let is_time = now >= self.messages_at;
        if is_time {
            let awake = || (now.since(self.news_at) / PART).clamp(MESSAGES_SOON, MESSAGES_EVERY);
            self.messages_at = now + if asleep { MESSAGES_EVERY_ASLEEP } else { awake() };
        }
        is_time
    }

    /// A message has come.
    pub(super) const fn note_message(&mut self) {
        self.news_at = self.read_at;
    }

    /// No thread sleeps on the control sockets any more.
    pub(super) fn awake(&mut self) {
        self.messages_at = self.messages_at.min(self.read_at + MESSAGES_EVERY);
    }

    /// The next poll reads the control sockets.
    pub(super) const fn hurry_messages(&mut self) {
        (self.messages_at, self.until) = (self.read_at, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long after the last message the next read is, if that was so long ago at the last read.
    fn interval_after(quiet: Duration) -> Duration {
        let opened = Instant::default();
        let mut pace = Pace::new(opened);
        let now = opened + quiet;
        pace.note(now);
        assert!(pace.is_time_for_messages(now, false));
        pace.messages_at.since(now)
    }

    #[test]
    fn a_message_waits_little_longer_than_it_was_awaited() {
        let micros = Duration::from_micros;
        for (quiet, interval) in [(0, 2), (32, 2), (160, 10), (1600, 100), (1_000_000, 100)] {
            assert_eq!(interval_after(micros(quiet)), micros(interval), "{quiet} us");
        }
        let mut pace = Pace::new(Instant::default());
        let now = Instant::default() + Duration::from_secs(1);
        pace.note(now);
        pace.note_message();
        assert!(pace.is_time_for_messages(now, false) && !pace.is_time_for_messages(now + micros(1), false));
        assert!(pace.is_time_for_messages(now + micros(2), false), "another peer may connect too");
        assert!(pace.is_time_for_messages(now + micros(4), true), "a thread sleeps on them from now on");
        assert!(!pace.is_time_for_messages(now + micros(1003), true), "it reads them");
    }

    /// Polls between reads of the clock once they have found their pace, if each takes so long.
    fn polls_a_read(each: Duration) -> u32 {
        let mut now = Instant::default();
        let mut pace = Pace::new(now);
        for _ in 0..10_000 {
            now = now + each;
            if pace.count() {
                pace.note(now);
            }
        }
        pace.every
    }

    #[test]
    fn the_clock_is_read_about_as_often_whatever_a_poll_takes() {
        for (nanos, polls) in [(25, 64), (1600, 8), (10_000, 1), (100_000, 1)] {
            assert_eq!(polls_a_read(Duration::from_nanos(nanos)), polls, "{nanos} ns");
        }
    }
}
