//! `xtask bench --shm`: messages within a host over two libraries in turn, with the bare cache line and memcpy in the same
//! table. Each sample is bracketed by the cache line's half round trip, and only samples of one class are compared: the
//! cores of a virtual machine move.

use crate::bench::{median, spread};
use crate::run::{Outcome, output};
use std::path::Path;
use std::process::Command;

/// What to measure: how, bytes, repetitions, and the ratio to the other library that is wanted, of times at most, of rates
/// at least.
const CASES: &[(&str, usize, usize, f64)] = &[
    ("lat", 8, 300_000, 0.65),
    ("lat", 64, 300_000, f64::NAN),
    ("lat", 4096, 150_000, 0.9),
    ("lat", 65_536, 20_000, 0.45),
    ("lat", 1 << 20, 1500, 0.55),
    ("stream", 8, 20_000, 2.0),
    ("stream", 65_536, 400, 2.5),
    ("stream", 1 << 20, 80, 2.0),
    ("cold", 1 << 20, 800, 0.83),
    ("links", 8, 300_000, f64::NAN),
    ("links", 4096, 150_000, f64::NAN),
    ("late", 8, 10_000, f64::NAN),
    ("late", 4096, 5000, f64::NAN),
    ("sleep", 8, 10_000, f64::NAN),
];

/// Many processes: who sends to whom, how many they are, rounds of 8-byte messages, reads that find nothing before a process gives
/// its processor away, and the ratio of rates that is wanted.
const CROWDS: &[(&str, usize, usize, usize, f64)] = &[
    ("all", 64, 1000, 1, 1.0),
    ("all", 64, 1000, 50, 1.0),
    ("all", 64, 1000, 1000, 1.0),
    ("all", 64, 10, 1_000_000_000, 1.0),
    ("pairs", 2, 20_000, 50, f64::NAN),
    ("pairs", 8, 5000, 50, f64::NAN),
    ("pairs", 64, 500, 50, f64::NAN),
];

/// How far apart the two cores are, by half a round trip of a cache line in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Same,
    Near,
    Far,
}

impl Class {
    fn of(line: f64) -> Self {
        match line {
            ..0.04 => Self::Same,
            ..0.075 => Self::Near,
            _ => Self::Far,
        }
    }
}

struct Sample {
    value: f64,
    /// None if the cores moved meanwhile.
    class: Option<Class>,
}

fn sample(program: &Path, library: &Path, what: &str, size: usize, count: usize) -> Result<Sample, String> {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args([what, &size.to_string(), &count.to_string()]);
    let text = output(command.env("LD_LIBRARY_PATH", library))?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [value, before, after] = numbers[..] else { return Err(format!("{what}: printed {text:?}")) };
    let (before, after) = (Class::of(before), Class::of(after));
    Ok(Sample { value, class: (before == after).then_some(before) })
}

/// Measures and prints.
pub(crate) fn run(program: &Path, crowd: &Path, ours: &Path, rival: &Path, rounds: usize) -> Outcome {
    let line = sample(program, ours, "line", 0, 1_000_000)?;
    let copy = sample(program, ours, "copy", 1 << 20, 3000)?;
    println!(
        "cache line half round trip {:.3} us ({:?}), memcpy of 1 MiB {:.0} MB/s",
        line.value, line.class, copy.value
    );
    println!("{:<22} {:>10} {:>10}   {:>24}  bar", "shm", "rival", "ours", "ours/rival (spread)");
    for &(what, size, count, bar) in CASES {
        if let Err(why) = sample(program, rival, what, size, 100) {
            // What it does not offer can be measured here alone.
            let mut mine = Vec::new();
            for _ in 0..rounds {
                mine.push(sample(program, ours, what, size, count)?.value);
            }
            let why = why.lines().last().unwrap_or_default();
            println!("{:<22} {:>10} {:>10.3}   {why}", format!("{what} {size}"), "-", median(&mut mine));
            continue;
        }
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            let (a, b) = (sample(program, rival, what, size, count)?, sample(program, ours, what, size, count)?);
            if a.class.is_some() && a.class == b.class {
                pairs.push((a.value, b.value));
            }
        }
        report(&format!("{what} {size}"), &pairs, bar);
    }
    for &(what, processes, count, reads, bar) in CROWDS {
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            let rate = |library| rate(crowd, library, what, processes, count, reads);
            pairs.push((rate(rival)?, rate(ours)?));
        }
        report(&format!("{what} {processes}, {reads} reads"), &pairs, bar);
    }
    Ok(())
}

/// Thousands of messages a second that many processes exchange.
fn rate(crowd: &Path, library: &Path, what: &str, processes: usize, count: usize, reads: usize) -> Result<f64, String> {
    let numbers = [processes, 8, count, reads].map(|number| number.to_string());
    let mut command = Command::new("timeout");
    command.arg("60").arg(crowd).arg(what).args(numbers).env("LD_LIBRARY_PATH", library);
    let text = output(&mut command)?;
    text.trim().parse().map_err(|_| format!("{what}: printed {text:?}"))
}

/// Prints what pairs of the rival's and our samples say.
fn report(case: &str, pairs: &[(f64, f64)], bar: f64) {
    let (mut theirs, mut mine): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let mut ratios: Vec<f64> = pairs.iter().map(|(theirs, mine)| mine / theirs).collect();
    let range = if ratios.is_empty() { "no pair of one class".into() } else { spread(&ratios) };
    let kept = ratios.len();
    println!(
        "{case:<22} {:>10.3} {:>10.3}   {:>24}  {bar}",
        median(&mut theirs),
        median(&mut mine),
        format!("{:.2} ({range}; {kept})", median(&mut ratios)),
    );
}
