//! Gates that mainly run programs: loom models, AddressSanitizer, instruction counts.

use crate::disk;
use crate::run::{Outcome, cargo, output, root, run, test_programs, within};
use crate::waits::waits;

/// The module of the crate ofi with models for loom.
const MODELS: &str = "operations::models";

/// Runs the loom models of the lock-free code.
pub(crate) fn loom() -> Outcome {
    // Not the usual name of the flag, which changes what is built of other crates too.
    let models = |arguments: &[&str]| {
        let mut tests = cargo(&["test", "--lib", "--release", "--target-dir"]);
        run(tests.arg(disk::target().join("loom")).args(arguments).env("RUSTFLAGS", "--cfg ofi_loom"))
    };
    models(&["-p", "ofi-sync"])?;
    // The other tests of the crate are not for loom.
    models(&["-p", "ofi", "--no-default-features", "--features", "sim", MODELS])?;
    let file = root().join("api/src").join(MODELS.replace("::", "/")).with_extension("rs");
    if file.is_file() { Ok(()) } else { Err(format!("there is no {}", file.display())) }
}

/// Runs the C programs on libraries built with AddressSanitizer, and so built the tests of the Rust
/// library: of its modules, of the simulated network, and those that drop futures at random points,
/// and objects in every order.
pub(crate) fn asan() -> Outcome {
    let (target, folder) = ("x86_64-unknown-linux-gnu", disk::target().join("asan"));
    let sanitized = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        command.args(["--target", target, "--target-dir"]).arg(&folder);
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
        command
    };
    let names = ["drops", "operations", "one_sided", "queues", "reactors", "sim"];
    // Both builds with the tools' crate, which gives what they share the same features: it is built
    // once.
    let mut tests = sanitized(&["test", "-p", "ofi", "-p", "ofi-tools", "--features", "ofi/tokio,ofi/bytes,ofi/sim"]);
    let programs = test_programs(tests.arg("--lib").args(names.iter().flat_map(|name| ["--test", name])))?;
    let mut libraries = sanitized(&["build", "--lib", "-p", "ofi-capi", "-p", "ofi-rdma-ffi", "-p", "ofi-tools"]);
    // Some of the tests keep one core busy only, and so does the end of the build.
    std::thread::scope(|scope| {
        let building = scope.spawn(|| run(&mut libraries));
        for program in &programs {
            println!("{}{}", program.path.display(), program.output::<&str>([])?);
        }
        building.join().unwrap_or_else(|_| Err("the thread that built the libraries has panicked".to_owned()))
    })?;
    let built = folder.join(target).join("debug");
    // Of the whole workspace, as `cargo test --workspace` has built them: for these crates alone,
    // some of what they depend on has other features, and would be built again.
    run(cargo(&["test", "--workspace", "--test", "c_programs", "--test", "statements"])
        .env("OFI_TEST_LIBRARY", built.join("libfabric.so"))
        .env("OFI_TEST_RDMA_LIBRARY", built.join("librdmaaddrinfo.so"))
        .env("OFI_TEST_ASAN", "1"))
}

/// The receiver posts windows of receives after their messages (an argument of `message_cost`). A
/// window is longer than the part of a match queue that is searched linearly.
const UNEXPECTED: &str = "late=64";

/// Instruction limits for posting, sending, matching, completing and reading an 8-byte tagged
/// message, and for an 8-byte write and a fetch-add up to their completion, both sides together:
/// "memory" is the engine alone, "tcp" excludes the kernel. Each is the measured count plus a
/// margin for other compilers, and may only decrease. They rose seven times: when plain
/// instructions took the place of atomic ones, which count as little and cost much; by up to 2.6 %
/// for one-sided operations beside collective ones; by up to 1.7 % when each owner of a lock got a
/// flag of its own, without which two threads could hold a lock (docs/decisions/0021); by up to
/// 0.6 % when links began to count one-sided operations; by up to 0.4 % when two words of a
/// completion were loaded by themselves, which saved a wait (`waits.rs`); by 0.2 % for unexpected
/// messages when targets got the name of an offer, so that several are read at once; and by up to
/// 2 % when endpoints began to tell a backstop what they hold (docs/decisions/0035).
/// shm has no limit, because the work of its polls depends on the clock and the speed of the
/// machine.
const MOST_INSTRUCTIONS: [(&str, &str, Option<&str>, u64); 7] = [
    ("tagged message", "memory", None, 1325),
    ("tagged message", "tcp", None, 1870),
    ("unexpected message", "memory", Some(UNEXPECTED), 1990),
    ("write", "memory", Some("write"), 2435),
    ("write", "tcp", Some("write"), 4110),
    ("fetch-add", "memory", Some("fetch-add"), 3895),
    ("fetch-add", "tcp", Some("fetch-add"), 5660),
];

/// The receiver's unrelated load, as an argument of `message_cost` and in words.
const QUEUES: (&str, &str) = ("queues=10000", "10,000 unexpected messages and 10,000 receives of other tags");
const CONNECTIONS: (&str, &str) = ("connections=2000", "2,000 idle connections");

/// Limits on the cost of a message under such a load, in percent of its cost without it. That of
/// shm has room for its polls, which follow the clock: its two counts vary by up to 7 % each. A
/// search of the queues would cost thousands of percent.
const MOST_PERCENT: [(&str, (&str, &str), u64); 4] =
    [("memory", QUEUES, 110), ("shm", QUEUES, 125), ("tcp", QUEUES, 110), ("tcp", CONNECTIONS, 110)];

/// Seconds that a count may take; most take one or two.
const MOST_SECONDS: u32 = 120;

/// Number of tries, because a hash seed may be unlucky.
const ATTEMPTS: usize = 4;

/// Counts instructions of the message path, and loads that wait for stores, and enforces the
/// limits.
pub(crate) fn cost() -> Outcome {
    run(&mut cargo(&["build", "--release", "--workspace", "--bin", "message_cost"]))?;
    for (what, over, receiver, most) in MOST_INSTRUCTIONS {
        let each = cost_of_message(over, receiver)?;
        let cost = format!("an 8-byte {what} takes {each} instructions over {over}");
        if each > most {
            return Err(format!("{cost}: the limit is {most}"));
        }
        println!("{cost} (limit {most})");
    }
    for (over, (beside, what), most) in MOST_PERCENT {
        let mut said = Err(String::new());
        // Hashes have random seeds: with one seed in fifty, the filter has a false positive for the
        // tag.
        for _ in 0..ATTEMPTS {
            said = verdict(over, what, (cost_of_message(over, None)?, cost_of_message(over, Some(beside))?), most);
            if said.is_ok() {
                break;
            }
        }
        println!("{}", said?);
    }
    waits()
}

/// The verdict on a message that takes `each` instructions under a load, and `alone` without it.
fn verdict(over: &str, what: &str, (alone, each): (u64, u64), most: u64) -> Result<String, String> {
    let costs =
        format!("an 8-byte tagged message over {over} takes {each} instructions beside {what}, {alone} without");
    let percent = (each * 100).div_ceil(alone.max(1));
    if percent > most {
        return Err(format!("{costs}: {percent} % are more than {most} %"));
    }
    Ok(format!("{costs}: {percent} % (limit {most} %)"))
}

fn cost_of_message(over: &str, receiver: Option<&str>) -> Result<u64, String> {
    let program = disk::target().join("release/message_cost");
    let count = |messages: &str| -> Result<u64, String> {
        let out = disk::target().join(format!("callgrind.{over}.{messages}"));
        let mut valgrind = within(MOST_SECONDS, "valgrind");
        valgrind.args(["--tool=callgrind", &format!("--callgrind-out-file={}", out.display())]);
        valgrind.arg(&program).args([over, messages]).args(receiver);
        output(&mut valgrind).map_err(|error| format!("{error} (needs valgrind)"))?;
        let text = disk::read(&out)?;
        let line =
            text.lines().find_map(|line| line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")));
        line.and_then(|line| line.trim().parse().ok()).ok_or_else(|| "callgrind printed no total".to_owned())
    };
    // The difference of two runs cancels startup and shutdown. Both are whole windows.
    let (few, many) = (1024u64, 11_264u64);
    Ok(count(&many.to_string())?.saturating_sub(count(&few.to_string())?) / (many - few))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_fails_names_case_cost_and_bar() {
        let said = verdict("tcp", "2,000 idle connections", (1000, 1101), 110);
        let expected = "an 8-byte tagged message over tcp takes 1101 instructions beside 2,000 idle connections, 1000 \
                        without: 111 % are more than 110 %";
        assert_eq!(said, Err(expected.to_owned()));
        assert!(verdict("tcp", "2,000 idle connections", (1000, 1100), 110).is_ok());
    }
}
