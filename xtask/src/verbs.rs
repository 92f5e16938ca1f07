//! `xtask verbs`: the suites of transports and endpoints, and fi_pingpong, over the verbs provider
//! on a software RDMA device in a virtual machine.

use crate::disk;
use crate::rdma_vm::{boot, needs};
use crate::run::{Outcome, cargo, output, run};
use std::path::Path;
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Runs fewer random scripts
    #[arg(long)]
    quick: bool,
    /// Runs only the rows of the suites whose names contain this, or "pingpong"
    #[arg(long)]
    rows: Option<String>,
}

/// Builds the guest and runs the tests in it.
pub(crate) fn verbs(options: &Options) -> Outcome {
    let folder = disk::target().join("rdma-vm");
    let share = folder.join("share");
    disk::make(&share)?;
    needs(run(Command::new("testing/rdma-vm/prepare.sh").arg(&folder)))?;
    for suite in ["transports", "endpoints"] {
        strip(&suite_program(suite)?, &share.join(suite))?;
    }
    run(&mut cargo(&["build", "-p", "ofi-capi", "--features", "verbs"]))?;
    strip(&disk::target().join("debug/libfabric.so").to_string_lossy(), &share.join("libfabric.so.1"))?;
    let scripts = if options.quick { "SCRIPTS=5" } else { "SCRIPTS=50" };
    let rows = format!("ROWS={}", options.rows.as_deref().unwrap_or("verbs::"));
    boot(&folder, &["verbs", scripts, &rows])
}

/// The program of a suite, as cargo reports it.
fn suite_program(suite: &str) -> Result<String, String> {
    let mut build = cargo(&["test", "-p", "ofi-conformance", "--test", suite, "--no-run", "--message-format", "json"]);
    let said = output(&mut build)?;
    let messages = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = messages
        .filter(|message| message["target"]["name"] == suite)
        .find_map(|message| message["executable"].as_str().map(str::to_owned));
    program.ok_or_else(|| format!("cargo names no program for the suite {suite}"))
}

/// Copies a program without debug information: the guest reads it over a slow share.
fn strip(from: &str, to: &Path) -> Outcome {
    run(Command::new("strip").args(["-g", "-o"]).arg(to).arg(from))
}
