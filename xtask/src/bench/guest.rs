//! The verbs provider beside the reference's and perftest, on the software RDMA device of the
//! guest: one boot, alternating rounds.

use super::build_fabric;
use super::case::Unit;
use super::stats::{Ratios, Sample, median_of};
use crate::disk;
use crate::rdma_vm::boot;
use crate::run::Outcome;
use std::path::Path;

const ROUNDS: usize = 7;

/// What is compared: as the guest's script calls it, in words, whose, and our bar.
const COMPARISONS: &[(&str, &str, &str, Bar)] = &[
    ("latency", "64 B, half a round trip, us", "reference", Bar::AtMost(1.0)),
    ("latency", "64 B, half a round trip, us", "perftest", Bar::AtMost(1.15)),
    ("stream-65536", "64 KiB, one way, MiB/s", "perftest", Bar::AtLeast(0.95)),
    ("stream-1048576", "1 MiB, one way, MiB/s", "perftest", Bar::AtLeast(0.95)),
];

/// A limit of the ratio of ours to another's.
#[derive(Clone, Copy, Debug)]
enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

impl Bar {
    const fn less_is_better(self) -> bool {
        matches!(self, Self::AtMost(_))
    }

    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("at most {most}"),
            Self::AtLeast(least) => format!("at least {least}"),
        }
    }
}

/// Builds the programs, runs them in the guest of `folder`, and prints the ratios.
pub(crate) fn compare(folder: &Path, work: &Path) -> Outcome {
    let share = folder.join("share");
    let (ours, fabric) = build_fabric(work)?;
    disk::copy(ours.join("libfabric.so.1"), share.join("libfabric.so.1"))?;
    disk::copy(fabric, share.join("fabric"))?;
    let rounds = format!("ROUNDS={ROUNDS}");
    boot(folder, &["rivals", &rounds, "TRIPS=1000", "MILLISECONDS=400", "STREAM=67108864"])?;
    let lines = disk::read(share.join("rivals"))?;
    for (what, text, whose, bar) in COMPARISONS {
        println!("{}", row(&lines, (*what, *text), whose, *bar)?);
    }
    Ok(())
}

/// The samples of a program: each line names it, what it measured, the round, and the value.
fn samples(lines: &str, whose: &str, what: &str) -> Vec<Sample> {
    let sample = |line: &str| {
        let [program, measured, round, value] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        let (round, value) = (round.parse().ok()?, value.parse().ok()?);
        (program == whose && measured == what).then_some(Sample { round, value, before: 0.0, after: 0.0 })
    };
    lines.lines().filter_map(sample).collect()
}

fn row(lines: &str, (what, text): (&str, &str), whose: &str, bar: Bar) -> Result<String, String> {
    let (ours, theirs) = (samples(lines, "ours", what), samples(lines, whose, what));
    let unit = Unit { name: "", less_is_better: bar.less_is_better() };
    let lack = || format!("{what}: no sample of ours and of {whose} in one round");
    let Ratios { median, worst, low, high, pairs } = Ratios::of(&ours, &theirs, unit).ok_or_else(lack)?;
    let (mine, other) = (median_of(&ours).ok_or_else(lack)?, median_of(&theirs).ok_or_else(lack)?);
    let said = match (bar.is_met(median), bar.is_met(worst)) {
        (true, true) => "met in every pair",
        (true, false) => "met by the median",
        _ => "missed",
    };
    let ratio = format!("{median:.2} (worst {worst:.2}, from {low:.2} to {high:.2}, {pairs} pairs)");
    Ok(format!("{text}: ours {mine:.1}, {whose} {other:.1}, ratio {ratio}, bar {}: {said}", bar.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_samples_of_one_round() {
        let lines = "ours latency 1 50\nreference latency 1 100\nreference latency 2 60\nours latency 2 90\n\
                     ours latency 3 1\nperftest latency 1 50\nours other 1 7\nreference latency 4\n";
        let row = row(lines, ("latency", "64 B"), "reference", Bar::AtMost(1.0)).unwrap();
        assert_eq!(
            row,
            "64 B: ours 50.0, reference 80.0, ratio 1.00 (worst 1.50, from 0.50 to 1.50, 2 pairs), bar at most 1: \
             met by the median"
        );
        assert!(super::row(lines, ("stream", "64 KiB"), "perftest", Bar::AtLeast(1.0)).is_err());
    }
}
