//! `xtask bench`: runs one C program on two libraries in turn, and compares with UCX and the bare
//! media. `case.rs` and `cases.rs` define the cases, `sample.rs` and `ucx.rs` take a sample,
//! `stats.rs` compares samples, `report.rs` and `plots.rs` present them.

mod bars;
mod case;
mod cases;
pub(crate) mod guest;
mod imb;
mod machine;
mod mpich;
mod plots;
mod report;
mod rival;
mod sample;
mod stats;
mod ucx;

use crate::disk;
use crate::run::{Outcome, build_release, cargo, root};
use case::{Case, Counted, Interface};
use imb::Imb;
use mpich::Mpich;
use report::{Entry, Report, Tool};
use rival::Library;
use sample::{Programs, Settings};
use stats::Sample;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Minimum number of rounds for a claim about speed.
const ROUNDS: usize = 5;

/// Share of the cores that other processes may use without a warning in the report.
const BUSY: f64 = 0.05;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; each measures both libraries, UCX and the bare medium [default: 5, with --quick 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// Folder of the other library, such as an installation or an older build [default: the
    /// reference inside PyPI's mpich wheel, fetched into target/]
    #[arg(long)]
    rival: Option<PathBuf>,
    /// Only cases whose name contains this; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Runs a few short cases to check that everything works
    #[arg(long)]
    quick: bool,
    /// Prints the cases' names and measures nothing
    #[arg(long)]
    list: bool,
    /// The cores of the two processes, such as 0,1
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Time limit of a sample in seconds [default: 60, with --quick 20]
    #[arg(long)]
    limit: Option<u32>,
    /// Writes all samples as JSON here
    #[arg(long)]
    json: Option<PathBuf>,
    /// Writes the report as Markdown here
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Writes plots as SVG into this folder [default: docs/benchmarks beside the Markdown]
    #[arg(long)]
    plots: Option<PathBuf>,
}

impl Options {
    fn wants(&self, case: &Case) -> bool {
        let name = case.name();
        (!self.quick || case.is_quick()) && (self.only.is_empty() || self.only.iter().any(|part| name.contains(part)))
    }

    /// How this run differs from a full one, if it does.
    fn partial(&self) -> Option<String> {
        let mut parts = Vec::new();
        parts.extend(self.quick.then(|| "--quick".to_owned()));
        parts.extend(self.only.iter().map(|part| format!("--only {part:?}")));
        let rounds = self.rounds();
        parts.extend((rounds < ROUNDS).then(|| format!("rounds: {rounds}")));
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }).max(1)
    }
}

/// The prepared programs and libraries of a run.
struct Bench {
    programs: Programs,
    settings: Settings,
    ours: Library,
    rival: Option<Library>,
    mpich: Option<Mpich>,
    imb: Option<Imb>,
    ucx: bool,
    /// Quantities whose counting program is not installed.
    uncounted: Vec<Counted>,
}

/// Runs the benchmark and writes the report.
pub(crate) fn run(options: &Options) -> Outcome {
    let chosen: Vec<Case> = cases::all().into_iter().filter(|case| options.wants(case)).collect();
    if chosen.is_empty() {
        return Err("no case has such a name; --list prints all names".into());
    }
    if options.list {
        chosen.iter().for_each(|case| println!("{}", case.name()));
        return Ok(());
    }
    let (bench, remarks) = prepare(options, &chosen)?;
    let rounds = options.rounds();
    let mut report = Report {
        date: machine::first_line("date", &["+%F"]).unwrap_or_default(),
        machine: machine::look(&bench.programs, &bench.settings)?,
        ours: our_name(&bench.ours),
        rival: rival_name(options, bench.rival.as_ref()),
        rounds,
        partial: options.partial(),
        remarks,
        entries: Vec::new(),
    };
    println!("{}", report.head());
    for case in chosen {
        let entry = measure(&bench, case, rounds);
        println!("{}", report.row(&entry));
        report.entries.push(entry);
    }
    report.remarks.extend(busy("after"));
    write(options, &report)?;
    let failures = report.failures_of_ours();
    if failures.is_empty() { Ok(()) } else { Err(format!("our library failed:\n  {}", failures.join("\n  "))) }
}

fn our_name(ours: &Library) -> String {
    let commit = machine::first_line("git", &["describe", "--always", "--dirty"]);
    commit.map_or_else(|| ours.version.clone(), |commit| format!("{} at {commit}", ours.version))
}

fn rival_name(options: &Options, rival: Option<&Library>) -> String {
    let kind = if options.rival.is_some() { "rival" } else { "reference" };
    rival.map_or_else(|| kind.to_owned(), |rival| format!("{kind} {}", rival.version))
}

/// Builds the programs and finds the libraries; also returns remarks, such as on missing tools.
fn prepare(options: &Options, chosen: &[Case]) -> Result<(Bench, Vec<String>), String> {
    let [a, b] = match options.cores[..] {
        [] => machine::two_cores()?,
        [a, b] if a != b => [a, b],
        _ => return Err("--cores takes two different cores".into()),
    };
    let settings = Settings {
        cores: [a, b],
        limit: options.limit.unwrap_or(if options.quick { 20 } else { 60 }),
        share: if options.quick { 5 } else { 1 },
    };
    let work = disk::target().join("bench");
    let (folder, fabric) = build_fabric(&work)?;
    if chosen.iter().any(|case| case.interface == Interface::Futures) {
        crate::run::run(&mut cargo(&["build", "--release", "-p", "ofi", "-p", "ofi-tools", "--example", "futures"]))?;
    }
    let programs = Programs {
        futures: disk::target().join("release/examples/futures"),
        fabric,
        bare: build(&work, &["bare", "bench", "relay"], None)?,
        work,
    };
    let ours = Library::open(&programs.fabric, &folder)?;
    sample::prove_that_wrong_bytes_are_detected(&programs, &settings, &ours.folder)?;
    let mut remarks = Vec::new();
    remarks.extend(busy("before"));
    let rival = match options.rival.as_deref() {
        // A library named by --rival must exist.
        Some(folder) => Some(Library::open(&programs.fabric, &rival::named(folder)?)?),
        None => rival::reference()
            .and_then(|folder| Library::open(&programs.fabric, &folder))
            .map_err(|why| remarks.push(format!("No reference, only our library and the bare media: {why}.")))
            .ok(),
    };
    let mpich = rival::reference()
        .and_then(|reference| Mpich::open(&programs.work, &reference))
        .map_err(|why| remarks.push(format!("No MPICH to compare collective operations with: {why}.")))
        .ok();
    let imb = chosen.iter().any(Case::is_program).then(|| Imb::open(&programs.work)).transpose();
    let imb = imb.unwrap_or_else(|why| {
        remarks.push(format!("No Intel MPI Benchmarks: {why}."));
        None
    });
    let ucx = works("ucx_perftest", "-h");
    if !ucx {
        remarks.push("No UCX: ucx_perftest (Debian's package ucx-utils) is not installed.".to_owned());
    }
    let mut uncounted = Vec::new();
    for counted in [Counted::SystemCalls, Counted::Instructions] {
        if let Some((program, _)) = counted.counter().filter(|(program, option)| !works(program, option)) {
            remarks.push(format!("Cases that count with {program} are empty: it is not installed."));
            uncounted.push(counted);
        }
    }
    Ok((Bench { programs, settings, ours, rival, mpich, imb, ucx, uncounted }, remarks))
}

/// A remark if other processes use the cores.
fn busy(when: &str) -> Option<String> {
    let percent = machine::load_of_others().filter(|load| *load > BUSY)? * 100.0;
    Some(format!(
        "**Other processes used {percent:.0}% of the cores {when} the run: few pairs are comparable, and spreads are wide.**"
    ))
}

fn works(program: &str, option: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(option).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Builds the library and `benches/fabric.c`; returns the library's folder and the program.
pub(crate) fn build_fabric(work: &Path) -> Result<(PathBuf, PathBuf), String> {
    build_with_library(
        work,
        &[
            "fabric",
            "bench",
            "side",
            "exchange",
            "rma",
            "life",
            "crowd",
            "start",
            "solo",
            "scale",
            "collective",
            "contexts",
            "relay",
        ],
    )
}

/// The same with `benches/near.c`.
pub(crate) fn build_near(work: &Path) -> Result<(PathBuf, PathBuf), String> {
    build_with_library(work, &["near"])
}

fn build_with_library(work: &Path, sources: &[&str]) -> Result<(PathBuf, PathBuf), String> {
    build_release()?;
    let folder = work.join("ours");
    disk::make(&folder)?;
    let library = folder.join("libfabric.so.1");
    disk::copy(disk::target().join("release/libfabric.so"), &library)?;
    let program = build(work, sources, Some(&library))?;
    Ok((folder, program))
}

/// Compiles a program of `benches/` and links it with a library.
fn build(work: &Path, sources: &[&str], library: Option<&Path>) -> Result<PathBuf, String> {
    let program = work.join(sources.first().copied().unwrap_or_default());
    let mut cc = Command::new("cc");
    cc.args(["-O3", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    cc.arg("-I").arg(root().join("capi/include")).arg("-o").arg(&program);
    cc.args(sources.iter().map(|source| root().join("benches").join(source).with_extension("c")));
    crate::run::run(cc.args(library))?;
    Ok(program)
}

/// Measures a case until `rounds` pairs with the rival are comparable, in at most twice as many
/// rounds.
fn measure(bench: &Bench, case: Case, rounds: usize) -> Entry {
    let mut entry = Entry::new(case);
    let is_missing = bench.uncounted.contains(&case.counted) || case.is_program() && bench.imb.is_none();
    let wanted = if is_missing { 0 } else { rounds.min(case.most_rounds()) };
    for round in 0..2 * wanted {
        let pairs = entry.ratios(Tool::Rival).map_or(0, |ratios| ratios.pairs);
        let lacks_pairs = bench.rival.is_some() && !entry.has_failed(Tool::Rival) && pairs < wanted;
        if entry.has_failed(Tool::Ours) || (round >= wanted && !lacks_pairs) {
            break;
        }
        measure_round(bench, &mut entry, round);
    }
    entry
}

fn measure_round(bench: &Bench, entry: &mut Entry, round: usize) {
    let (case, Bench { programs, settings, .. }) = (entry.case, bench);
    let began = SystemTime::now();
    let through_c = case.through_c();
    let library = |tool: Tool, library: &Library| {
        let case = if tool == Tool::Ours { &case } else { through_c.as_ref().unwrap_or(&case) };
        let take = || sample::of_library(programs, settings, &library.folder, case, round);
        // Turns follow one another within seconds; those of C bring their latencies along.
        if case.is_bracketed() || case.turns() > 1 { take() } else { bracketed(bench, round, take) }
    };
    let mut sides = vec![(Tool::Ours, &bench.ours, Vec::new())];
    sides.extend(through_c.map(|_| (Tool::C, &bench.ours, Vec::new())));
    let rival = bench.rival.as_ref().filter(|_| bench.mpich.is_some() || !case.is_collective());
    sides.extend(rival.map(|rival| (Tool::Rival, rival, Vec::new())));
    if round % 2 == 1 {
        sides.reverse();
    }
    for _ in 0..case.turns() {
        for (tool, of, taken) in &mut sides {
            if entry.has_failed(*tool) {
                continue;
            }
            let sample = match (&bench.mpich, &bench.imb) {
                (Some(mpich), _) if *tool == Tool::Rival && case.is_collective() => {
                    through_mpich(bench, mpich, &case, of, round)
                }
                (_, Some(imb)) if case.is_program() => {
                    bracketed(bench, round, || imb.sample(settings, &of.folder, &case, round))
                }
                _ => library(*tool, of),
            };
            match sample {
                Ok(sample) => taken.push(sample),
                failed => entry.add(*tool, failed),
            }
        }
        sides.reverse();
    }
    for (tool, _, taken) in sides {
        if let Some(sample) = stats::middle(&taken).filter(|_| !entry.has_failed(tool)) {
            entry.add(tool, Ok(sample));
        }
    }
    rival::sweep(began);
    if let Some(mpich) = bench.mpich.as_ref().filter(|_| case.is_collective() && !entry.has_failed(Tool::Mpich)) {
        entry.add(Tool::Mpich, through_mpich(bench, mpich, &case, &bench.ours, round));
    }
    if let (Some((message, halves)), false) = (case.message(), entry.has_failed(Tool::Message)) {
        let sample = sample::of_library(programs, settings, &bench.ours.folder, &message, round);
        entry.add(Tool::Message, sample.map(|sample| Sample { value: halves * sample.value, ..sample }));
    }
    let ways = case.bare();
    if !ways.is_empty() && !entry.has_failed(Tool::Bare) {
        let less = case.unit().less_is_better;
        entry.add(Tool::Bare, sample::of_bare(programs, settings, &ways, less, round));
    }
    let guess = entry.median(Tool::Ours).filter(|value| *value > 0.0);
    if let (true, Some(ucx), Some(guess)) = (bench.ucx, case.ucx(), guess) {
        for (tool, test) in [(Tool::UcxTagged, ucx.tagged), (Tool::UcxPut, ucx.put)] {
            if !entry.has_failed(tool) {
                let sample = bracketed(bench, round, || ucx::sample(settings, &case, &ucx, test, guess, round));
                entry.add(tool, sample);
            }
        }
    }
}

/// Measures MPICH's operation over a library.
fn through_mpich(bench: &Bench, mpich: &Mpich, case: &Case, library: &Library, round: usize) -> Result<Sample, String> {
    bracketed(bench, round, || mpich.sample(&bench.settings, &library.folder, case, round))
}

/// Brackets a sample with cache-line latencies, for a program that does not measure them itself.
fn bracketed(bench: &Bench, round: usize, take: impl FnOnce() -> Result<Sample, String>) -> Result<Sample, String> {
    let line = || sample::line(&bench.programs, &bench.settings, round);
    let before = line()?;
    let sample = take()?;
    Ok(Sample { before, after: line()?, ..sample })
}

/// Writes the requested files.
fn write(options: &Options, report: &Report) -> Outcome {
    if let Some(path) = &options.json {
        disk::write(path, serde_json::to_string_pretty(&report.json()).map_err(|error| error.to_string())?)?;
    }
    let beside = |path: &PathBuf| path.parent().map(|folder| folder.join("docs/benchmarks"));
    let folder = options.plots.clone().or_else(|| options.markdown.as_ref().and_then(beside));
    let plots = folder.as_deref().map(|folder| plots::write(report, folder)).transpose()?.unwrap_or_default();
    let Some(path) = &options.markdown else { return Ok(()) };
    let from = path.parent().unwrap_or_else(|| Path::new(""));
    let link = |file: String| {
        let place = folder.as_deref().unwrap_or(from);
        place.strip_prefix(from).unwrap_or(place).join(file).display().to_string()
    };
    let plots: Vec<(String, String)> = plots.into_iter().map(|(file, title)| (link(file), title)).collect();
    disk::write(path, report.markdown(&plots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Options {
        Line::parse_from(std::iter::once(&"bench").chain(arguments)).options
    }

    #[test]
    fn a_full_run_has_all_cases_and_five_rounds() {
        let full = options(&[]);
        assert_eq!((full.rounds(), full.partial()), (5, None));
        assert!(cases::all().iter().all(|case| full.wants(case)));
    }

    #[test]
    fn a_run_of_less_says_so() {
        assert_eq!(options(&["--quick"]).partial().as_deref(), Some("--quick, rounds: 1"));
        assert_eq!(options(&["--only", "8 B", "--rounds", "7"]).partial().as_deref(), Some("--only \"8 B\""));
    }

    #[test]
    fn cases_are_chosen_by_parts_of_their_names() {
        let some = options(&["--only", "tcp 8 B half", "--only", "shm 8 B rate"]);
        let names: Vec<String> = cases::all().iter().filter(|case| some.wants(case)).map(Case::name).collect();
        assert!(names.len() > 4 && names.iter().all(|name| name.contains("8 B half") || name.contains("8 B rate")));
    }
}
