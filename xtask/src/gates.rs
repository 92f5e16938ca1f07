//! Gates that do little else than run programs: loom models, AddressSanitizer, instruction counts.

use crate::disk;
use crate::run::{Outcome, cargo, output, run};
use std::process::Command;

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
