//! Control messages that found a full socket, and when they are sent again.

use ofi_core::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// First and longest interval between attempts.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// Links with a control message to send again, and others that had such a slot.
#[derive(Debug)]
pub(super) struct Retries {
    /// Links whose connect request is not sent yet.
    pub(super) unasked: VecDeque<usize>,
    /// Links whose other side does not know this process yet.
    pub(super) unaware: VecDeque<usize>,
    at: Instant,
    interval: Duration,
}

impl Retries {
    pub(super) const fn new(now: Instant) -> Self {
        Self { unasked: VecDeque::new(), unaware: VecDeque::new(), at: now, interval: FIRST }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.at
    }

    /// After an attempt at `now`, in which something moved or not.
    pub(super) fn reschedule(&mut self, now: Instant, moved: bool) {
        self.interval = if moved { FIRST } else { (self.interval * 2).min(LONGEST) };
        self.at = now + self.interval;
    }

    /// A link was opened at `now`: begins with short intervals again.
    pub(super) fn hurry(&mut self, now: Instant) {
        (self.at, self.interval) = (self.at.min(now + FIRST), FIRST);
    }

    /// When something must be sent again, if there is anything.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.unasked.is_empty() || !self.unaware.is_empty()).then_some(self.at)
    }
}
