//! `xtask bench`: one C program over two libraries in turn, with bare sockets in the same run.

use crate::run::{Outcome, cargo, output, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder of the other library; default: the reference inside PyPI's mpich wheel, fetched into target/
    #[arg(long)]
    rival: Option<PathBuf>,
    /// Rounds; each runs the bare socket, the other library and this one in turn
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Round trips of each sample
    #[arg(long, default_value_t = 20_000)]
    trips: usize,
    /// Messages within a host instead of those over sockets
    #[arg(long)]
    shm: bool,
    /// Writes the numbers as JSON here
    #[arg(long)]
    json: Option<PathBuf>,
}

fn rival() -> Result<PathBuf, String> {
    let venv = root().join("target/bench/venv");
    let found = |venv: &Path| -> Option<PathBuf> {
        let lib = fs::read_dir(venv.join("lib")).ok()?;
        let mut places = vec![venv.join("lib/mpich")];
        places.extend(lib.filter_map(|entry| Some(entry.ok()?.path().join("site-packages/lib/mpich"))));
        places.into_iter().find(|dir| dir.join("libfabric.so.1").exists())
    };
    if let Some(dir) = found(&venv) {
        return Ok(dir);
    }
    crate::run::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    crate::run::run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "mpich==5.0.2"]))?;
    found(&venv).ok_or_else(|| "the mpich wheel holds no lib/mpich/libfabric.so.1".into())
}

/// A sample in microseconds of half a round trip.
fn sample(program: &Path, library: &Path, mode: &str, trips: usize) -> Result<f64, String> {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args([mode, &trips.to_string()]).env("LD_LIBRARY_PATH", library);
    let text = output(&mut command)?;
    text.trim().parse().map_err(|_| format!("{mode}: printed {text:?}"))
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn spread(values: &[f64]) -> String {
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    format!("{low:.2}–{high:.2}")
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Outcome {
    crate::run::run(&mut cargo(&["build", "--release", "-p", "ofi-capi"]))?;
    let work = root().join("target/bench");
    let ours = work.join("ours");
    fs::create_dir_all(&ours).map_err(|error| error.to_string())?;
    fs::copy(root().join("target/release/libfabric.so"), ours.join("libfabric.so.1"))
        .map_err(|error| error.to_string())?;
    let rival = options.rival.clone().map_or_else(rival, Ok)?;
    let build = |source: &str| -> Result<PathBuf, String> {
        let program = work.join(source);
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-std=gnu11", "-Icapi/include", "-o"]).arg(&program).arg(format!("benches/{source}.c"));
        crate::run::run(cc.arg(ours.join("libfabric.so.1")))?;
        Ok(program)
    };
    if options.shm {
        return crate::bench_shm::run(&build("shm")?, &build("crowd")?, &ours, &rival, options.rounds);
    }
    let program = build("pingpong")?;
    let mut report = Vec::new();
    println!(
        "{:<14} {:>8} {:>8} {:>8}   {:>22} {:>22}",
        "64 B", "bare us", "rival us", "ours us", "ours/bare (spread)", "ours/rival (spread)"
    );
    for mode in ["rdm", "msg", "dgram"] {
        let (mut bare, mut theirs, mut mine) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            // The best of the ways to wait on a bare socket.
            let wire = if mode == "dgram" { "bare-udp" } else { "bare" };
            let busy = sample(&program, &ours, &format!("{wire}-busy"), options.trips)?;
            let blocking = sample(&program, &ours, &format!("{wire}-blocking"), options.trips)?;
            bare.push(busy.min(blocking));
            theirs.push(sample(&program, &rival, mode, options.trips)?);
            mine.push(sample(&program, &ours, mode, options.trips)?);
        }
        let ratios = |to: &[f64]| mine.iter().zip(to).map(|(a, b)| a / b).collect::<Vec<f64>>();
        let (mut to_bare, mut to_rival) = (ratios(&bare), ratios(&theirs));
        let (bare_spread, rival_spread) = (spread(&to_bare), spread(&to_rival));
        let (to_bare, to_rival) = (median(&mut to_bare), median(&mut to_rival));
        let (bare_us, rival_us, ours_us) = (median(&mut bare), median(&mut theirs), median(&mut mine));
        println!(
            "{:<14} {bare_us:>8.2} {rival_us:>8.2} {ours_us:>8.2}   {:>22} {:>22}",
            format!("{} {mode}", if mode == "dgram" { "udp" } else { "tcp" }),
            format!("{to_bare:.2} ({bare_spread})"),
            format!("{to_rival:.2} ({rival_spread})"),
        );
        report.push(serde_json::json!({
            "case": format!("tcp {mode} 64 B half round trip"),
            "bare_us": bare_us, "rival_us": rival_us, "ours_us": ours_us,
            "ours_to_bare": to_bare, "ours_to_rival": to_rival, "rounds": options.rounds,
        }));
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
