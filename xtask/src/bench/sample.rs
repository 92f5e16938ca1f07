//! Takes a sample: runs a benchmark program under a time limit, on given cores and a given library.

use crate::bench::case::{Buffers, Case, Counted, Interface};
use crate::bench::stats::Sample;
use crate::disk;
use crate::run::within;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Repetitions of two runs, whose difference cancels startup and shutdown of the process.
const COUNTS: (usize, usize) = (50, 550);

/// The benchmark programs.
#[derive(Debug)]
pub(crate) struct Programs {
    /// `benches/fabric.c`, which loads a libfabric.
    pub(crate) fabric: PathBuf,
    /// `benches/futures.rs`, which uses the crate.
    pub(crate) futures: PathBuf,
    /// `benches/bare.c`, which uses no library.
    pub(crate) bare: PathBuf,
    /// The folder for temporary files.
    pub(crate) work: PathBuf,
}

/// Settings of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The cores of the two processes.
    pub(crate) cores: [usize; 2],
    /// Seconds that a sample may take.
    pub(crate) limit: u32,
    /// Divides the duration of samples.
    pub(crate) share: u32,
}

/// Duration of a sample of the bare media, in milliseconds.
const BARE_MILLISECONDS: u32 = 250;

impl Settings {
    /// The cores, swapped in every second pair of rounds.
    pub(crate) fn cores_in(&self, round: usize) -> [usize; 2] {
        let [a, b] = self.cores;
        if (round / 2).is_multiple_of(2) { [a, b] } else { [b, a] }
    }
}

/// `program` under a time limit, without environment variables that configure the libraries.
pub(crate) fn limited(program: impl AsRef<std::ffi::OsStr>, limit: u32) -> Command {
    let mut command = within(limit, program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["FI_", "OFI_", "UCX_", "LD_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// Runs a command and returns what it prints.
///
/// # Errors
/// The last line of its standard error, or that it exceeded the limit.
pub(crate) fn printed(command: &mut Command, limit: u32) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(reason(output.status.code(), &String::from_utf8_lossy(&output.stderr), limit))
}

/// `timeout` exits with 124, or with 137 if it had to kill the program.
fn reason(code: Option<i32>, errors: &str, limit: u32) -> String {
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    match code {
        Some(124 | 137) => format!("did not finish within {limit} s"),
        _ if !last.is_empty() => last.to_owned(),
        Some(code) => format!("exit status {code} without a message"),
        None => "killed by a signal".to_owned(),
    }
}

pub(crate) fn cores_option([a, b]: [usize; 2]) -> [String; 2] {
    ["--cores".to_owned(), format!("{a},{b}")]
}

/// Measures a case over the library in `folder`.
pub(crate) fn of_library(
    programs: &Programs,
    settings: &Settings,
    folder: &Path,
    case: &Case,
    round: usize,
) -> Result<Sample, String> {
    if case.interface == Interface::Futures {
        return of_futures(programs, settings, case, round);
    }
    let mut arguments = case.arguments();
    arguments.extend(cores_option(settings.cores_in(round)));
    if case.counted != Counted::Value {
        return counted(programs, settings, folder, case, &arguments).map(|value| unbracketed(round, value));
    }
    arguments.extend(["--milliseconds".to_owned(), (case.milliseconds / settings.share).to_string()]);
    let mut command = limited(&programs.fabric, settings.limit);
    take(command.args(&arguments).env("LD_LIBRARY_PATH", folder), settings.limit, round)
}

/// Measures a case through the crate's futures.
fn of_futures(programs: &Programs, settings: &Settings, case: &Case, round: usize) -> Result<Sample, String> {
    let [first, second] = settings.cores_in(round).map(|core| core.to_string());
    let mut command = limited("taskset", settings.limit);
    command.args(["-c", &first]).arg(&programs.futures).args(case.arguments_of_futures()).args(["--other", &second]);
    take(command.args(["--milliseconds", &(case.milliseconds / settings.share).to_string()]), settings.limit, round)
}

/// Flips a bit of a message with each kind of buffers, and fails unless the program detects it.
pub(crate) fn prove_that_wrong_bytes_are_detected(
    programs: &Programs,
    settings: &Settings,
    folder: &Path,
) -> Result<(), String> {
    for buffers in Buffers::ALL {
        let mut command = limited(&programs.fabric, settings.limit);
        command.args(["--size", "4096", "--milliseconds", "10", "--corrupt", "10", "--buffers", buffers.word()]);
        match take(command.args(cores_option(settings.cores)).env("LD_LIBRARY_PATH", folder), settings.limit, 0) {
            Err(why) if why.contains("wrong bytes") => {}
            other => {
                return Err(format!("a corrupt message was not detected with buffers {}: {other:?}", buffers.word()));
            }
        }
    }
    Ok(())
}

fn unbracketed(round: usize, value: f64) -> Sample {
    Sample { round, value, before: 0.0, after: 0.0 }
}

/// Runs a command that prints a sample.
pub(crate) fn take(command: &mut Command, limit: u32, round: usize) -> Result<Sample, String> {
    let text = printed(command, limit)?;
    Sample::parse(&text, round).ok_or_else(|| format!("printed {text:?}"))
}

/// Measures a bare medium: the best of several ways.
pub(crate) fn of_bare(
    programs: &Programs,
    settings: &Settings,
    ways: &[Vec<String>],
    less_is_better: bool,
    round: usize,
) -> Result<Sample, String> {
    let mut best: Option<Sample> = None;
    for way in ways {
        let mut command = limited(&programs.bare, settings.limit);
        command.args(way).args(cores_option(settings.cores_in(round)));
        command.args(["--milliseconds", &(BARE_MILLISECONDS / settings.share).to_string()]);
        let sample = take(&mut command, settings.limit, round)?;
        let better = best.is_none_or(|best| (sample.value < best.value) == less_is_better);
        if better {
            best = Some(sample);
        }
    }
    best.ok_or_else(|| "no way to do it".to_owned())
}

/// Half a round trip of a cache line, in microseconds.
pub(crate) fn line(programs: &Programs, settings: &Settings, round: usize) -> Result<f64, String> {
    let ways = [vec!["--pattern".to_owned(), "line".to_owned()]];
    of_bare(programs, settings, &ways, true, round).map(|sample| sample.value)
}

/// System calls or instructions per message.
fn counted(
    programs: &Programs,
    settings: &Settings,
    folder: &Path,
    case: &Case,
    arguments: &[String],
) -> Result<f64, String> {
    let count = |repetitions: usize| -> Result<f64, String> {
        let file = programs.work.join("counted");
        let mut command = match case.counted {
            Counted::Instructions => {
                let mut valgrind = limited("valgrind", settings.limit);
                let out = format!("--callgrind-out-file={}", file.display());
                valgrind.args(["--quiet", "--tool=callgrind", &out]);
                valgrind
            }
            _ => {
                let mut strace = limited("strace", settings.limit);
                strace.args(["-f", "-c", "-o"]).arg(&file);
                strace
            }
        };
        command.arg(&programs.fabric).args(arguments).args(["--count", &repetitions.to_string()]);
        printed(command.env("LD_LIBRARY_PATH", folder), settings.limit)?;
        let text = disk::read(&file)?;
        let total = if case.counted == Counted::Instructions { instructions(&text) } else { system_calls(&text) };
        total.ok_or_else(|| format!("{} has no total", file.display()))
    };
    let (few, many) = COUNTS;
    let messages = (many - few) * case.messages_per_repetition();
    let difference = count(many)? - count(few)?;
    Ok(difference.max(0.0) / f64::from(u32::try_from(messages).unwrap_or(u32::MAX)))
}

/// The total in callgrind's output file.
fn instructions(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")));
    line?.split_whitespace().next()?.parse().ok()
}

/// The total in strace's table: % time, seconds, usecs/call, calls, and errors if there are any.
fn system_calls(text: &str) -> Option<f64> {
    let total = text.lines().rev().find(|line| line.trim_end().ends_with(" total"))?;
    total.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_by_their_last_line() {
        assert_eq!(reason(Some(1), "first\nside.c:3: it does not hold\n\n", 60), "side.c:3: it does not hold");
        assert_eq!(reason(Some(124), "", 60), "did not finish within 60 s");
        assert_eq!(reason(Some(137), "output\n", 20), "did not finish within 20 s");
        assert_eq!(reason(Some(3), "", 60), "exit status 3 without a message");
        assert_eq!(reason(None, "", 60), "killed by a signal");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let mut sleeps = limited("sleep", 1);
        assert_eq!(printed(sleeps.arg("60"), 1), Err("did not finish within 1 s".to_owned()));
    }

    #[test]
    fn cores_are_exchanged_in_every_second_pair_of_rounds() {
        let settings = Settings { cores: [4, 6], limit: 1, share: 1 };
        let cores: Vec<_> = (0..6).map(|round| settings.cores_in(round)).collect();
        assert_eq!(cores, [[4, 6], [4, 6], [6, 4], [6, 4], [4, 6], [4, 6]]);
    }

    #[test]
    fn totals_are_found() {
        assert_eq!(instructions("events: Ir\nfn=(1)\n1 2\ntotals: 12345\n"), Some(12345.0));
        assert_eq!(instructions("summary: 77 \n"), Some(77.0));
        assert_eq!(instructions("events: Ir\n"), None);
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                      99.9    0.012345          12      1000        20 recvfrom\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.012345          11      1066        23 total\n";
        assert_eq!(system_calls(table), Some(1066.0));
        assert_eq!(system_calls(""), None);
    }
}
