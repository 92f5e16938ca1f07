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
pub(crate) fn run(program: &Path, ours: &Path, rival: &Path, rounds: usize) -> Outcome {
    let line = sample(program, ours, "line", 0, 1_000_000)?;
    let copy = sample(program, ours, "copy", 1 << 20, 3000)?;
    println!(
        "cache line half round trip {:.3} us ({:?}), memcpy of 1 MiB {:.0} MB/s",
        line.value, line.class, copy.value
    );
    println!("{:<18} {:>10} {:>10}   {:>24}  bar", "shm", "rival", "ours", "ours/rival (spread)");
    for &(what, size, count, bar) in CASES {
        let (mut theirs, mut mine, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (a, b) = (sample(program, rival, what, size, count)?, sample(program, ours, what, size, count)?);
            if a.class.is_some() && a.class == b.class {
                ratios.push(b.value / a.value);
                theirs.push(a.value);
                mine.push(b.value);
            }
        }
        let range = if ratios.is_empty() { "no pair of one class".into() } else { spread(&ratios) };
        let kept = ratios.len();
        println!(
            "{:<18} {:>10.3} {:>10.3}   {:>24}  {bar}",
            format!("{what} {size}"),
            median(&mut theirs),
            median(&mut mine),
            format!("{:.2} ({range}; {kept})", median(&mut ratios)),
        );
    }
    Ok(())
}
