//! Runs other programs, and the checks that do little else.

use crate::disk;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A task's result, with a message on failure.
pub(crate) type Outcome = Result<(), String>;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Runs a command in the repository's root; its output goes to the terminal.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let shown = format!("{command:?}").replace('"', "");
    println!("$ {shown}");
    let status = command.current_dir(root()).status().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// Runs a command in the repository's root and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}").replace('"', "");
    let output = command.current_dir(root()).output().map_err(|error| format!("{shown}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        // Test programs report failures on standard output.
        Err(format!("{shown}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

/// `cargo` with arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Files with this extension that git tracks or does not ignore.
pub(crate) fn files(ending: &str) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", &format!("*.{ending}")]);
    let list = output(&mut git)?;
    Ok(list.lines().filter(|path| root().join(path).is_file()).map(str::to_owned).collect())
}

/// Runs the loom models of the lock-free code.
pub(crate) fn loom() -> Outcome {
    let arguments = ["test", "-p", "ofi-sync", "--lib", "--release", "--target-dir"];
    run(cargo(&arguments).arg(disk::target().join("loom")).env("RUSTFLAGS", "--cfg loom"))
}

/// Runs the C programs on libraries built with AddressSanitizer.
pub(crate) fn asan() -> Outcome {
    let (target, folder) = ("x86_64-unknown-linux-gnu", disk::target().join("asan"));
    let mut build = cargo(&["build", "-p", "ofi-capi", "-p", "ofi-rdma-ffi", "--target", target, "--target-dir"]);
    run(build.arg(&folder).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address"))?;
    let built = folder.join(target).join("debug");
    run(cargo(&["test", "-p", "ofi-capi", "-p", "ofi-rdma-ffi", "--test", "c_programs", "--test", "statements"])
        .env("OFI_TEST_LIBRARY", built.join("libfabric.so"))
        .env("OFI_TEST_RDMA_LIBRARY", built.join("librdmaaddrinfo.so"))
        .env("OFI_TEST_ASAN", "1"))
}

/// Instruction limits for posting, sending, matching, completing and reading an 8-byte tagged
/// message, both sides together: "memory" is the engine alone, "tcp" excludes the kernel. Each is
/// the measured count plus a margin for other compilers, and may only decrease.
const MOST_INSTRUCTIONS: [(&str, u64); 2] = [("memory", 1260), ("tcp", 1860)];

/// Counts instructions of the message path and enforces the limits.
pub(crate) fn cost() -> Outcome {
    run(&mut cargo(&["build", "--release", "-p", "ofi-sim", "--bin", "message_cost"]))?;
    for (over, most) in MOST_INSTRUCTIONS {
        let each = cost_of_message(over)?;
        println!("an 8-byte tagged message takes {each} instructions over {over} (limit {most})");
        if each > most {
            return Err(format!("{each} instructions over {over} are more than {most}"));
        }
    }
    Ok(())
}

fn cost_of_message(over: &str) -> Result<u64, String> {
    let program = disk::target().join("release/message_cost");
    let count = |messages: &str| -> Result<u64, String> {
        let out = disk::target().join(format!("callgrind.{over}.{messages}"));
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", &format!("--callgrind-out-file={}", out.display())]);
        valgrind.arg(&program).args([over, messages]);
        output(&mut valgrind).map_err(|error| format!("{error} (needs valgrind)"))?;
        let text = disk::read(&out)?;
        let line =
            text.lines().find_map(|line| line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")));
        line.and_then(|line| line.trim().parse().ok()).ok_or_else(|| "callgrind printed no total".to_owned())
    };
    // The difference of two runs cancels startup and shutdown.
    let (few, many) = (1000u64, 11_000u64);
    Ok(count(&many.to_string())?.saturating_sub(count(&few.to_string())?) / (many - few))
}
