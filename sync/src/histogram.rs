//! Counts of values by size, which threads add to without a lock. A bucket is an eighth of a power
//! of two wide, so a percentile is at most an eighth too large.

use crate::primitive::{AtomicU64, Ordering};

/// Buckets of each power of two.
const STEPS: u64 = 8;
/// Buckets: below `STEPS` one for each value, above it `STEPS` for each power of two.
const BUCKETS: usize = 62 * 8;

/// Counts of values.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    largest: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { buckets, sum: AtomicU64::new(0), largest: AtomicU64::new(0) }
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    if value < STEPS {
        return usize::try_from(value).unwrap_or(0);
    }
    // At least 3: the value has a bit above the eighths.
    let power = u64::from(value.ilog2());
    let eighth = (value >> (power - 3)) - STEPS;
    usize::try_from((power - 2) * STEPS + eighth).unwrap_or(BUCKETS - 1)
}

/// The largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (power, eighth) = (bucket / STEPS + 2, bucket % STEPS);
    // Wraps to the largest number for the last bucket.
    ((STEPS + eighth + 1) << (power - 3)).wrapping_sub(1)
}

impl Histogram {
    /// Adds a value.
    pub fn add(&self, value: u64) {
        // Relaxed, here and below: it counts, and orders nothing.
        self.buckets[bucket(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.largest.fetch_max(value, Ordering::Relaxed);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// The largest one; 0 without any.
    pub fn largest(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// The value that `percent` of all do not exceed, rounded up to the end of its bucket; 0
    /// without any.
    pub fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.count() * percent).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count.load(Ordering::Relaxed);
            if seen >= wanted {
                return top(index).min(self.largest());
            }
        }
        self.largest()
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_values_within_an_eighth() {
        let mut last = 0;
        for value in (0..5000).chain([1 << 40, (1 << 40) + 1, u64::MAX / 2, u64::MAX - 1, u64::MAX]) {
            let index = bucket(value);
            assert!(index >= last && index < BUCKETS, "{value}");
            assert!(top(index) >= value && top(index) - value <= value / STEPS, "{value}: {}", top(index));
            last = index;
        }
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let histogram = Histogram::default();
        assert_eq!((histogram.count(), histogram.percentile(99), histogram.largest()), (0, 0, 0));
        (1..=1000).for_each(|value| histogram.add(value));
        assert_eq!((histogram.count(), histogram.sum(), histogram.largest()), (1000, 500_500, 1000));
        for (percent, value) in [(50, 500), (90, 900), (99, 990), (100, 1000)] {
            let found = histogram.percentile(percent);
            assert!(found >= value && found <= value + value / 8, "{percent}: {found}");
        }
    }

    #[test]
    fn threads_add_together() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|value| histogram.add(value)));
            }
        });
        assert_eq!(histogram.count(), 4000);
    }
}
