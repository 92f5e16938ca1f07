//! `testing/capabilities.txt`: each capability has cases in C that run over tcp and shm, a test
//! over the simulated network, and an example in C. This test compares the list with the sources;
//! the tests themselves run elsewhere.

use ofi_core::Caps;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A line of the list.
struct Row {
    capability: String,
    cases: Vec<String>,
    tests: Vec<String>,
    examples: Vec<String>,
}

fn rows() -> Vec<Row> {
    let text = read("testing/capabilities.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.split(" | ");
            let mut next = || fields.next().unwrap_or_else(|| panic!("too few fields: {line}")).trim().to_owned();
            let capability = next();
            let mut names = || next().split(", ").map(str::to_owned).collect::<Vec<_>>();
            Row { capability, cases: names(), tests: names(), examples: names() }
        })
        .collect()
}

/// What is not applicable, with its reason.
fn excuse(names: &[String]) -> bool {
    names.first().is_some_and(|name| name.strip_prefix("none: ").is_some_and(|why| !why.is_empty()))
}

/// The names in a Rust list of strings, such as `OVER_ANY`.
fn strings(source: &str, list: &str) -> BTreeSet<String> {
    let start = source.find(&format!("const {list}: &[&str] = &[")).unwrap_or_else(|| panic!("no list {list}"));
    let body = source[start..].split_once("];").expect("an end").0;
    body.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_capability_is_listed_once() {
    let listed: Vec<String> = rows().into_iter().map(|row| row.capability).collect();
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "{listed:?}");
    for bit in (0..64).map(|shift| Caps::from_bits_retain(1 << shift)) {
        for name in bit.names() {
            assert!(unique.contains(&name.to_owned()), "testing/capabilities.txt lacks {name}");
        }
    }
}

#[test]
fn every_case_exists_and_runs_over_both_media() {
    let runner = read("capi/tests/statements.rs");
    let (files, elsewhere) = (strings(&runner, "OVER_ANY"), strings(&runner, "OVER_IP"));
    for row in rows().iter().filter(|row| !excuse(&row.cases)) {
        let mut both = false;
        for case in &row.cases {
            let (file, name) = case.split_once("::").unwrap_or_else(|| panic!("{case}: not FILE::CASE"));
            let source = read(&format!("capi/tests/c/cases/{file}.c"));
            let there = ["CASE", "CASE_OURS"].iter().any(|kind| source.contains(&format!("\n{kind}({name})")));
            assert!(there, "{}: there is no case {case}", row.capability);
            both |= files.contains(file) && !elsewhere.contains(name);
        }
        assert!(both || row.capability == "FI_MULTICAST", "{}: no case runs over tcp and shm", row.capability);
    }
}

#[test]
fn every_test_exists() {
    for row in rows().iter().filter(|row| !excuse(&row.tests)) {
        for test in &row.tests {
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{test}: not FILE::TEST"));
            let source = read(&format!("{file}.rs"));
            let there = source.contains(&format!("#[test]\nfn {name}()"))
                || source.contains(&format!("#[test]\n    fn {name}()"));
            assert!(there, "{}: there is no test {test}", row.capability);
        }
    }
}

#[test]
fn every_example_asks_for_its_capability_and_runs() {
    let runner = read("capi/tests/examples.rs");
    for row in rows().iter().filter(|row| !excuse(&row.examples)) {
        for example in &row.examples {
            let source = read(&format!("examples/c/{example}"));
            assert!(source.contains(&row.capability), "{example} does not name {}", row.capability);
            assert!(runner.contains(&format!("\"{example}\"")), "no test runs {example}");
        }
    }
}
