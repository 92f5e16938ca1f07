//! The verbs provider beside the reference's and perftest, on the software RDMA device of the
//! guest: one boot, alternating rounds.

use super::build_fabric;
use super::case::Unit;
use super::report::Verdict;
use super::stats::{Ratios, Sample, median_of};
use crate::disk;
use crate::rdma_vm::boot;
use crate::run::Outcome;
use std::path::Path;

const ROUNDS: usize = 7;

const TIME: Unit = Unit { name: "us", less_is_better: true };
const RATE: Unit = Unit { name: "MiB/s", less_is_better: false };

/// What is compared: as the guest's script calls it, and in words; whose; and our bar.
const COMPARISONS: &[(What, &str, f64)] = &[
    (What { key: "latency", text: "64 B, half a round trip", unit: TIME }, "reference", 1.0),
    (What { key: "latency", text: "64 B, half a round trip", unit: TIME }, "perftest", 1.15),
    (What { key: "stream-65536", text: "64 KiB, one way", unit: RATE }, "perftest", 0.95),
    (What { key: "stream-1048576", text: "1 MiB, one way", unit: RATE }, "perftest", 0.95),
];

#[derive(Clone, Copy, Debug)]
struct What {
    key: &'static str,
    text: &'static str,
    unit: Unit,
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
    for (what, whose, bar) in COMPARISONS {
        println!("{}", row(&lines, *what, whose, *bar)?);
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

fn row(lines: &str, what: What, whose: &str, bar: f64) -> Result<String, String> {
    let What { key, text, unit } = what;
    let (ours, theirs) = (samples(lines, "ours", key), samples(lines, whose, key));
    let lack = || format!("{key}: no sample of ours and of {whose} in one round");
    let Ratios { median, worst, low, high, pairs } = Ratios::of(&ours, &theirs, unit).ok_or_else(lack)?;
    let (mine, other) = (median_of(&ours).ok_or_else(lack)?, median_of(&theirs).ok_or_else(lack)?);
    let verdict = Verdict::of(median, worst, bar, unit.less_is_better).word();
    let sign = if unit.less_is_better { "≤" } else { "≥" };
    let ratio = format!("{median:.2} (worst {worst:.2}, from {low:.2} to {high:.2}, {pairs} pairs)");
    Ok(format!("{text}, {}: ours {mine:.1}, {whose} {other:.1}, ratio {ratio}, {sign} {bar}: {verdict}", unit.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_samples_of_one_round() {
        let lines = "ours latency 1 50\nreference latency 1 100\nreference latency 2 60\nours latency 2 90\n\
                     ours latency 3 1\nperftest latency 1 50\nours other 1 7\nreference latency 4\n";
        let of = |key| What { key, text: "64 B", unit: TIME };
        let row = row(lines, of("latency"), "reference", 1.0).unwrap();
        assert_eq!(
            row,
            "64 B, us: ours 50.0, reference 80.0, ratio 1.00 (worst 1.50, from 0.50 to 1.50, 2 pairs), ≤ 1: \
             met by the median only"
        );
        assert!(super::row(lines, of("stream"), "perftest", 1.0).is_err());
    }
}
