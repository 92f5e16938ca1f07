//! Samples and the ratios of sample pairs.

use crate::bench::case::Unit;

/// The largest ratio of cache-line latencies within one state of the machine. When the hypervisor
/// moves a virtual core, the latency changes severalfold, and every other number with it. A ratio,
/// not fixed classes, because machines differ.
const MOST_DRIFT: f64 = 1.35;

/// One run of a benchmark program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) value: f64,
    /// Half a round trip of a cache line before and after, in microseconds; 0 where the sample has
    /// none.
    pub(crate) before: f64,
    pub(crate) after: f64,
}

/// One sample of those that a side took in its turns of a round: their middle value, between the
/// first latency and the last.
pub(crate) fn middle(samples: &[Sample]) -> Option<Sample> {
    let (first, last) = (samples.first()?, samples.last()?);
    Some(Sample { value: median_of(samples)?, after: last.after, ..*first })
}

fn alike(a: f64, b: f64) -> bool {
    a.max(b) <= a.min(b) * MOST_DRIFT
}

impl Sample {
    /// Parses the output of a benchmark program: the value and the two latencies.
    pub(crate) fn parse(text: &str, round: usize) -> Option<Self> {
        let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        let [value, before, after] = numbers?[..] else { return None };
        [value, before, after].iter().all(|number| number.is_finite()).then_some(Self { round, value, before, after })
    }

    /// Whether the machine was in the same state before and after the sample.
    fn is_steady(&self) -> bool {
        alike(self.before, self.after)
    }

    /// Whether the machine was in the same state during both samples. Samples within one process,
    /// which have no latencies, do not depend on it.
    fn compares_with(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.before + self.after, other.before + other.after);
        self.is_steady() && other.is_steady() && (mine == 0.0 || theirs == 0.0 || alike(mine, theirs))
    }
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

/// The median of samples.
pub(crate) fn median_of(samples: &[Sample]) -> Option<f64> {
    median(&samples.iter().map(|sample| sample.value).collect::<Vec<_>>())
}

/// Ratios of our samples to another's of the same rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratios {
    pub(crate) median: f64,
    /// The least favorable ratio for us.
    pub(crate) worst: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Comparable pairs.
    pub(crate) pairs: usize,
}

impl Ratios {
    /// Ratios of ours to theirs, round by round; None without a comparable pair.
    pub(crate) fn of(ours: &[Sample], theirs: &[Sample], unit: Unit) -> Option<Self> {
        let partner = |mine: &Sample| theirs.iter().find(|other| other.round == mine.round).copied();
        let ratios: Vec<f64> = ours
            .iter()
            .filter_map(|mine| {
                partner(mine).filter(|other| mine.compares_with(other)).map(|other| (mine.value, other.value))
            })
            .filter_map(|(mine, other)| ratio(mine, other))
            .collect();
        let low = ratios.iter().copied().min_by(f64::total_cmp)?;
        let high = ratios.iter().copied().max_by(f64::total_cmp)?;
        let worst = if unit.less_is_better { high } else { low };
        Some(Self { median: median(&ratios)?, worst, low, high, pairs: ratios.len() })
    }
}

/// Two values of 0, such as no system calls, count as equal.
fn ratio(mine: f64, other: f64) -> Option<f64> {
    match (mine == 0.0, other == 0.0) {
        (true, true) => Some(1.0),
        (false, true) => None,
        _ => Some(mine / other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Unit = Unit { name: "us", less_is_better: true };
    const RATE: Unit = Unit { name: "M/s", less_is_better: false };

    fn samples(values: &[f64]) -> Vec<Sample> {
        let sample = |(round, value): (usize, &f64)| Sample { round, value: *value, before: 0.06, after: 0.065 };
        values.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn a_line_of_three_numbers_is_a_sample() {
        let sample = Sample { round: 3, value: 1.5, before: 0.06, after: 0.07 };
        assert_eq!(Sample::parse("1.5 0.0600 0.0700\n", 3), Some(sample));
        for text in ["", "1.5", "1.5 0.06", "1.5 0.06 0.07 0.08", "nan 0.06 0.07", "1.5 us 0.07"] {
            assert_eq!(Sample::parse(text, 0), None, "{text:?}");
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn turns_of_a_round_become_one_sample() {
        let turn = |value, before, after| Sample { round: 2, value, before, after };
        let turns = [turn(1.0, 0.06, 0.07), turn(9.0, 0.5, 0.5), turn(2.0, 0.08, 0.09)];
        assert_eq!(middle(&turns), Some(turn(2.0, 0.06, 0.09)));
        assert_eq!(middle(&[]), None);
    }

    #[test]
    fn the_worst_is_the_largest_ratio_of_times_and_the_smallest_of_rates() {
        let (ours, theirs) = (samples(&[1.0, 2.0, 3.0]), samples(&[2.0, 2.0, 2.0]));
        let times = Ratios::of(&ours, &theirs, TIME);
        assert_eq!(times, Some(Ratios { median: 1.0, worst: 1.5, low: 0.5, high: 1.5, pairs: 3 }));
        let rates = Ratios::of(&ours, &theirs, RATE);
        assert_eq!(rates, Some(Ratios { median: 1.0, worst: 0.5, low: 0.5, high: 1.5, pairs: 3 }));
    }

    #[test]
    fn samples_of_one_round_are_paired() {
        let (mut ours, theirs) = (samples(&[1.0, 9.0, 3.0]), samples(&[1.0, 1.0, 1.0]));
        ours.remove(1);
        let ratios = Ratios::of(&ours, &theirs, TIME);
        assert_eq!(ratios, Some(Ratios { median: 2.0, worst: 3.0, low: 1.0, high: 3.0, pairs: 2 }));
    }

    #[test]
    fn pairs_between_which_the_cores_moved_are_dropped() {
        let (mut ours, theirs) = (samples(&[1.0, 1.0, 1.0]), samples(&[1.0, 1.0, 1.0]));
        ours[0].after = 0.2;
        (ours[1].before, ours[1].after) = (0.16, 0.16);
        assert_eq!(Ratios::of(&ours, &theirs, TIME).map(|ratios| ratios.pairs), Some(1));
        assert_eq!(Ratios::of(&ours[..2], &theirs, TIME), None);
    }

    #[test]
    fn samples_without_latencies_are_compared() {
        let sample = Sample { round: 0, value: 2.0, before: 0.0, after: 0.0 };
        assert_eq!(Ratios::of(&[sample], &[sample], TIME).map(|ratios| ratios.median), Some(1.0));
        let bracketed = Sample { value: 4.0, before: 0.06, after: 0.06, ..sample };
        assert_eq!(Ratios::of(&[bracketed], &[sample], TIME).map(|ratios| ratios.median), Some(2.0));
    }

    #[test]
    fn two_zeros_compare_equal() {
        let none = Sample { round: 0, value: 0.0, before: 0.0, after: 0.0 };
        let some = Sample { value: 2.0, ..none };
        assert_eq!(Ratios::of(&[none], &[none], TIME).map(|ratios| ratios.median), Some(1.0));
        assert_eq!(Ratios::of(&[none], &[some], TIME).map(|ratios| ratios.median), Some(0.0));
        assert_eq!(Ratios::of(&[some], &[none], TIME), None);
    }
}
