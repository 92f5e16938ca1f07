//! When a payload was lent, as its line tells.

use core::time::Duration;
use ofi_core::Instant;

/// Bits of the clock's nanoseconds below a unit: units of 66 us, which wrap after 78 hours.
const UNIT: u32 = 16;

/// When a payload was lent: its sender lived then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LentAt(u32);

impl LentAt {
    #[allow(clippy::cast_possible_truncation, reason = "it wraps")]
    pub(crate) const fn new(now: Instant) -> Self {
        Self((now.nanos() >> UNIT) as u32)
    }

    /// Packs it with the payload's number.
    pub(crate) const fn pack(self, number: u32) -> u64 {
        (self.0 as u64) << 32 | number as u64
    }

    /// The reverse: the number and the time.
    #[allow(clippy::cast_possible_truncation, reason = "32 bits each")]
    pub(crate) const fn unpack(word: u64) -> (u32, Self) {
        (word as u32, Self((word >> 32) as u32))
    }

    /// How long ago that was at most. A time that is still to come was very long ago.
    pub(crate) fn age(self, now: Instant) -> Duration {
        let units = Self::new(now).0.wrapping_sub(self.0);
        Duration::from_nanos((u64::from(units) + 1) << UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_at_most_a_unit_too_long_and_wrap() {
        for start in [0, 5 << UNIT, (5 << UNIT) + 7, u64::from(u32::MAX) << UNIT, 1 << 60] {
            let lent = LentAt::new(Instant::from_nanos(start));
            assert_eq!(LentAt::unpack(lent.pack(77)), (77, lent));
            for passed in [0, 1, 1 << UNIT, 1_000_000, 10_000_000_000] {
                let age = lent.age(Instant::from_nanos(start + passed)).as_nanos();
                assert!((passed.into()..=u128::from(passed) + (2 << UNIT)).contains(&age), "{start} {passed}: {age}");
            }
            let before = Instant::from_nanos(start.wrapping_sub(1 << UNIT));
            assert!(lent.age(before) > Duration::from_secs(3600), "it is still to come");
        }
    }
}
