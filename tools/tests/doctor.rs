//! Runs `ofi doctor` under limits set by a shell.

use std::process::Command;

/// The output of `ofi doctor` after the shell commands `limits`.
fn doctor(limits: &str) -> String {
    let command = format!("{limits}; exec '{}' doctor", env!("CARGO_BIN_EXE_ofi"));
    let output = Command::new("timeout").args(["60", "sh", "-c", &command]).output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The hard limit of descriptors of this process, which the shell inherits.
fn hard_limit() -> u64 {
    let output = Command::new("sh").args(["-c", "ulimit -Hn"]).output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(u64::MAX)
}

#[test]
fn a_low_limit_of_descriptors_is_reported_with_the_value_to_set() {
    let out = doctor("ulimit -Sn 256");
    assert!(out.contains("open descriptors: 256 (may be raised to "), "{out}");
    if hard_limit() >= 4096 {
        assert!(out.contains(&format!("`ulimit -n {}`", hard_limit().min(65_536))), "{out}");
        let enough = doctor("ulimit -Sn 4096");
        assert!(enough.contains("open descriptors: 4096") && !enough.contains("`ulimit -n"), "{enough}");
    }
}

#[test]
fn a_hard_limit_that_is_low_is_a_problem() {
    let out = doctor("ulimit -Sn 128; ulimit -Hn 128");
    assert!(out.lines().any(|line| line.starts_with("problem") && line.contains("open descriptors: 128")), "{out}");
}
