//! `xtask verbs`: the suites of transports and endpoints, fi_pingpong, MPICH and the C cases, over
//! the verbs provider on a software RDMA device in a virtual machine.

use crate::bench::guest;
use crate::clients::mpich_rounds;
use crate::disk;
use crate::rdma_vm::{boot, cc, needs};
use crate::run::{Outcome, build_all, cargo, output, root, run, test_programs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Runs fewer random scripts, and the cases of testing/rdma-vm/cases.txt only
    #[arg(long)]
    quick: bool,
    /// Runs one part only
    #[arg(long)]
    only: Option<Part>,
    /// Runs only the rows of the suites, or the cases, whose names contain this
    #[arg(long)]
    rows: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The suites of transports and endpoints
    Suites,
    /// The reference's fi_pingpong
    Pingpong,
    /// The C cases
    Cases,
    /// A C case with a limit of locked memory that is too low for a connection
    Limits,
    /// A port that goes down, and a device that goes away
    Faults,
    /// Two processes of MPICH
    Mpi,
    /// Times beside those of the reference and of perftest; not in a quick run
    Rivals,
}

/// Cases that one boot of the guest has time for.
const MOST_CASES: usize = 150;
/// The files of cases that a whole run leaves out, because their cases name the provider.
const OF_OTHERS: &[&str] = &[
    "addresses",
    "compat",
    "environment",
    "fabric",
    "getinfo",
    "getinfo_addr",
    "getinfo_attrs",
    "getinfo_caps",
    "getinfo_hints",
    "headers",
    "offers",
    "text",
    "traffic",
    "unrequested",
    "within_host",
];
/// Cases that a whole run leaves out: they use the addresses of tcp, or test what this provider
/// does not do (`providers/verbs/README.md`); the comments say which.
const EXCEPT: &[&str] = &[
    "buffered_receive_contexts",
    "tclass_hint_accepted",
    // Of 127.0.0.1, where no device is.
    "cm_connects_from_its_port",
    "cntr_counts_failed_sends",
    "cq_error_without_completion",
    "mr_mode_is_a_permission",
    "rdm_unreachable_send_error",
    "rma_commit_needs_persistent_memory",
    "sep_contexts_are_offered",
    "shared_contexts_are_offered",
    "tag_format_rules",
    // In processes that are forked from one that uses devices.
    "cq_transmit_complete_outlives_the_sender",
    "matrix_of_killed_peers",
    // The port of a connected endpoint is known once it connects.
    "cm_connects_from_its_address",
];
/// The cases of a quick run; with a "#" in front, a comment.
const QUICK: &str = "testing/rdma-vm/cases.txt";

/// Builds the guest and runs the tests in it.
pub(crate) fn verbs(options: &Options) -> Outcome {
    let folder = disk::target().join("rdma-vm");
    let share = folder.join("share");
    disk::make(share.join("cases"))?;
    needs(run(Command::new("testing/rdma-vm/prepare.sh").arg(&folder)))?;
    let is_asked = |part| options.only.is_none_or(|only| only == part);
    if options.only == Some(Part::Rivals) || (options.only.is_none() && !options.quick) {
        guest::compare(&folder, &disk::target().join("bench"))?;
    }
    if options.only == Some(Part::Rivals) {
        return Ok(());
    }
    let mut runs = Vec::new();
    if is_asked(Part::Suites) {
        for suite in ["transports", "endpoints"] {
            strip(&suite_program(suite)?, &share.join(suite))?;
        }
        runs.push("suites");
    }
    build_all()?;
    strip(&disk::target().join("debug/libfabric.so"), &share.join("libfabric.so.1"))?;
    if is_asked(Part::Pingpong) {
        runs.push("pingpong");
    }
    if is_asked(Part::Limits) {
        compile("messages", &share)?;
        compile("rma", &share)?;
        compile("hub", &share)?;
        runs.push("limits");
    }
    if is_asked(Part::Faults) {
        compile_to("testing/rdma-vm/faults.c", &share.join("faults"), &share)?;
        runs.push("faults");
    }
    if is_asked(Part::Mpi) {
        mpi(&share.join("mpi"))?;
        runs.push("mpi");
    }
    let mut cases = if is_asked(Part::Cases) { cases(options, &share)? } else { Vec::new() };
    let rest = cases.split_off(cases.len().min(MOST_CASES));
    if !cases.is_empty() {
        runs.push("cases");
    }
    let rows = format!("ROWS={}", options.rows.as_deref().unwrap_or("verbs::"));
    let scripts = if options.quick { "SCRIPTS=5" } else { "SCRIPTS=50" };
    let list = share.join("cases/list");
    disk::write(&list, cases.join("\n") + "\n")?;
    boot(&folder, &["verbs", scripts, &rows, &format!("RUNS={}", runs.join(","))])?;
    for cases in rest.chunks(MOST_CASES) {
        disk::write(&list, cases.join("\n") + "\n")?;
        boot(&folder, &["verbs", scripts, &rows, "RUNS=cases"])?;
    }
    Ok(())
}

/// Compiles the C cases; returns those to run, each with its program in front.
fn cases(options: &Options, share: &Path) -> Result<Vec<String>, String> {
    let quick = disk::read(root().join(QUICK))?;
    let quick: Vec<&str> = quick.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut programs = BTreeSet::new();
    if options.quick {
        programs.extend(quick.iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())));
    } else {
        let sources = disk::list(root().join("capi/tests/c/cases"))?.into_iter();
        let sources = sources.filter(|path| path.extension().is_some_and(|ending| ending == "c"));
        let names = sources.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
        programs.extend(names.filter(|name| !OF_OTHERS.contains(&name.as_str())));
    }
    let mut out = Vec::new();
    for program in &programs {
        let built = compile(program, share)?;
        let list = output(Command::new(&built).arg("--list").env("LD_LIBRARY_PATH", share))?;
        let own = list.lines().filter_map(|line| line.split_once(' ')).filter(|(_, kind)| *kind != "helper");
        out.extend(own.map(|(case, _)| format!("{program} {case}")));
    }
    if let Some(unknown) = quick.iter().find(|line| options.quick && !out.iter().any(|case| case == *line)) {
        return Err(format!("{QUICK}: there is no case \"{unknown}\""));
    }
    let row = |case: &str| options.rows.as_ref().is_none_or(|rows| case.contains(rows.as_str()));
    let is_left_out = |case: &str| case.split_once(' ').is_some_and(|(_, name)| EXCEPT.contains(&name));
    out.retain(|case| row(case) && !is_left_out(case) && (!options.quick || quick.contains(&case.as_str())));
    Ok(out)
}

/// Compiles the program of a file of cases.
fn compile(program: &str, share: &Path) -> Result<PathBuf, String> {
    let built = share.join("cases").join(program);
    compile_to(&format!("capi/tests/c/cases/{program}.c"), &built, share)?;
    Ok(built)
}

fn compile_to(source: &str, built: &Path, share: &Path) -> Outcome {
    let mut cc = cc(built);
    cc.args(["-Icapi/include", "-Itesting/harness/c", "-Icapi/tests/c"]);
    cc.args(["-Wno-deprecated-declarations", "-Wno-unused-function", "-Wno-unused-variable"]);
    cc.arg(source).arg(share.join("libfabric.so.1")).args(["-lpthread", "-ldl"]);
    needs(run(&mut cc))
}

/// Copies MPICH, without its own libfabric, and a program to the share.
fn mpi(to: &Path) -> Outcome {
    let (from, program) = mpich_rounds()?;
    for folder in ["bin", "lib"] {
        disk::make(to.join(folder))?;
    }
    for file in ["bin/mpiexec.hydra", "bin/hydra_pmi_proxy", "lib/libmpi.so.12"] {
        disk::copy(from.join(file), to.join(file))?;
    }
    for library in disk::list(from.join("lib/mpich"))? {
        let name = library.file_name().unwrap_or_default();
        if library.is_file() && name != "libfabric.so.1" {
            disk::copy(&library, to.join("lib").join(name))?;
        }
    }
    disk::copy(program, to.join("rounds"))
}

/// The program of a suite, as cargo reports it.
fn suite_program(suite: &str) -> Result<PathBuf, String> {
    let built = test_programs(&mut cargo(&["test", "--workspace", "--test", suite]))?;
    let program = built.into_iter().find(|program| program.name == suite);
    program.map(|program| program.path).ok_or_else(|| format!("cargo names no program for the suite {suite}"))
}

/// Copies a program without debug information: the guest reads it over a slow share.
fn strip(from: &Path, to: &Path) -> Outcome {
    run(Command::new("strip").args(["-g", "-o"]).arg(to).arg(from))
}
