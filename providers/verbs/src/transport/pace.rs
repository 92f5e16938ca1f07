//! What the next polls of a transport have to look at.

use ofi_core::Instant;

/// While links only carry frames, one of so many polls may look for the connection manager's
/// events, and does once in a tick of the clock: it takes several system calls.
const LOOK_EVERY: u32 = 16;

/// What the next polls have to look at.
#[derive(Debug)]
pub(super) struct Pace {
    polls: u32,
    /// Links that are not open; with any, each poll looks for events.
    pub(super) unsettled: usize,
    /// The next poll looks for events, because the descriptor may have reported one.
    pub(super) look: bool,
    /// The tick in which a poll last looked for events.
    looked: Instant,
    /// The last poll ended before the queues were empty.
    pub(super) more: bool,
    /// Links on which frames wait, perhaps for the completions of others, which a poll finds.
    pub(super) waiting: usize,
}

impl Pace {
    /// Of a transport whose first poll looks for events.
    pub(super) const fn new(tick: Instant) -> Self {
        Self { polls: 0, unsettled: 0, look: true, looked: tick, more: false, waiting: 0 }
    }

    /// Counts a link if frames wait on it; `counted` is whether it is.
    #[inline]
    pub(super) fn count_waiting(&mut self, counted: &mut bool, waits: bool) {
        if *counted != waits {
            *counted = waits;
            self.waiting = if waits { self.waiting + 1 } else { self.waiting - 1 };
        }
    }

    /// Whether this poll looks for the connection manager's events.
    pub(super) fn looks(&mut self, tick: impl FnOnce() -> Instant) -> bool {
        self.polls = self.polls.wrapping_add(1);
        let tick = self.polls.is_multiple_of(LOOK_EVERY).then(tick).filter(|tick| *tick != self.looked);
        self.looked = tick.unwrap_or(self.looked);
        core::mem::take(&mut self.look) || self.unsettled > 0 || tick.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_polls_look_once_in_a_tick() {
        let at = Instant::from_nanos;
        let mut pace = Pace::new(at(0));
        assert!(pace.looks(|| at(0)), "the first one");
        let looks = |pace: &mut Pace, tick| (0..10 * LOOK_EVERY).filter(|_| pace.looks(|| at(tick))).count();
        assert_eq!([0, 1, 1, 2].map(|tick| looks(&mut pace, tick)), [0, 1, 0, 1]);
        pace.unsettled = 1;
        assert_eq!(looks(&mut pace, 2), 160, "links wait for events");
    }
}
