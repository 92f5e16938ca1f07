//! The lists of statements in the manual pages (`testing/statements`). Every statement has a
//! verdict, every test that a verdict names runs and passes, a verdict names every case, and
//! `COUNTS` records the number of verdicts of each kind per list.

use crate::disk;
use crate::run::{Outcome, cargo, json, root, test_programs};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The header of `COUNTS`.
const HEAD: &str = "\
# How many statements of each list are tested, not applicable, later and not met. `cargo xtask check` fails if a list differs,
# so that a review sees it; `cargo xtask statements --write` writes the numbers of the lists as they are.
";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Writes the counts of the lists to testing/statements/COUNTS instead of comparing them
    #[arg(long)]
    write: bool,
}

/// Number of statements by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    tested: usize,
    not_applicable: usize,
    later: usize,
    unmet: usize,
}

impl Tally {
    fn all(&self) -> usize {
        self.tested + self.not_applicable + self.later + self.unmet
    }

    fn add(&mut self, other: &Self) {
        self.tested += other.tested;
        self.not_applicable += other.not_applicable;
        self.later += other.later;
        self.unmet += other.unmet;
    }

    /// The verdicts with their counts, in the order of `COUNTS`.
    fn columns(&self) -> [(&'static str, usize); 4] {
        [
            ("tested", self.tested),
            ("not applicable", self.not_applicable),
            ("later", self.later),
            ("not met", self.unmet),
        ]
    }

    fn row(&self, name: &str) -> String {
        let numbers = self.columns().map(|(_, number)| number.to_string()).join(" ");
        format!("{name} {numbers}")
    }
}

/// A test that a verdict names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    /// A C program of `capi/tests/c/cases`.
    Case(String),
    /// `rust::CRATE::NAME`, the name as cargo prints it.
    Rust(String, String),
}

impl Test {
    fn parse(text: &str) -> Self {
        let parts = text.strip_prefix("rust::").and_then(|rest| rest.split_once("::"));
        parts.map_or_else(|| Self::Case(text.to_owned()), |(of, name)| Self::Rust(of.to_owned(), name.to_owned()))
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Case(name) => write!(f, "the case {name}"),
            Self::Rust(of, name) => write!(f, "the test {name} of {of}"),
        }
    }
}

/// A verdict's position: list, line and the statement's identifier.
type Place = String;

/// The contents of all lists.
#[derive(Debug, Default)]
struct Lists {
    tallies: BTreeMap<String, Tally>,
    identifiers: BTreeSet<String>,
    /// Tests of "test" verdicts.
    named: Vec<(Place, Test)>,
    /// Cases of "not met" verdicts that wait for the library.
    waiting: Vec<(Place, String)>,
    problems: Vec<String>,
}

impl Lists {
    fn read() -> Result<Self, String> {
        let mut lists = Self::default();
        let paths = disk::list(folder())?.into_iter();
        for path in paths.filter(|path| path.extension().is_some_and(|ending| ending == "txt")) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            lists.take(&name, &disk::read(&path)?);
        }
        Ok(lists)
    }

    /// Parses one list.
    fn take(&mut self, name: &str, text: &str) {
        let mut tally = Tally::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let place = format!("{name}:{}", number + 1);
            let Some(((id, _), (_, verdict))) = line.split_once(" | ").zip(line.rsplit_once(" | ")) else {
                self.problems.push(format!("{place}: no verdict"));
                continue;
            };
            let place = format!("{place}: {id}");
            if !self.identifiers.insert(id.to_owned()) {
                self.problems.push(format!("{place} is listed twice"));
            }
            match verdict.split_once(": ") {
                Some(("test", tests)) => {
                    tally.tested += 1;
                    self.named.extend(tests.split(", ").map(|test| (place.clone(), Test::parse(test))));
                }
                Some(("not applicable", reason)) if !reason.is_empty() => tally.not_applicable += 1,
                Some(("later", reason)) if !reason.is_empty() => tally.later += 1,
                Some(("not met", reason)) if !reason.is_empty() => {
                    tally.unmet += 1;
                    self.waiting.extend(waiting_cases(reason).into_iter().map(|case| (place.clone(), case)));
                }
                _ => self.problems.push(format!("{place}: \"{verdict}\" is no verdict")),
            }
        }
        self.tallies.insert(name.to_owned(), tally);
    }

    /// Compares the counts with those recorded in `COUNTS`.
    fn compare(&mut self, recorded: &str) {
        let rows: BTreeMap<&str, Vec<usize>> = recorded
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let (name, numbers) = line.split_once(' ')?;
                Some((name, numbers.split(' ').filter_map(|number| number.parse().ok()).collect()))
            })
            .collect();
        for (name, tally) in &self.tallies {
            let Some(Ok(row)) = rows.get(name.as_str()).map(|row| <[usize; 4]>::try_from(row.clone())) else {
                self.problems.push(format!("{name}: COUNTS has no line with four numbers for it"));
                continue;
            };
            for ((verdict, now), before) in tally.columns().into_iter().zip(row) {
                if now > before && verdict != "tested" {
                    self.problems.push(format!("{name}: {now} statements are \"{verdict}\", {before} in COUNTS"));
                } else if now != before {
                    let advice = format!("write the new count into COUNTS, which has {before}");
                    self.problems.push(format!("{name}: {now} statements are \"{verdict}\": {advice}"));
                }
            }
        }
        let gone = rows.keys().filter(|name| !self.tallies.contains_key(**name));
        self.problems.extend(gone.map(|name| format!("{name}: COUNTS has a line for a list that does not exist")));
    }

    /// Compares the verdicts with the test results.
    fn judge(&mut self, ran: &Ran) {
        for (place, test) in &self.named {
            let passed = match test {
                Test::Case(name) => ran.passed.contains(name),
                Test::Rust(of, name) => ran.rust.contains(&(of.clone(), name.clone())),
            };
            if !passed {
                self.problems.push(format!("{place}: {test} did not run and pass"));
            }
        }
        for (place, case) in &self.waiting {
            if !ran.failing.contains(case) {
                self.problems.push(format!("{place}: the case {case} is not among those that wait for the library"));
            }
        }
        let known = |case: &&String| {
            let tested = self.named.iter().any(|(_, test)| *test == Test::Case((*case).clone()));
            tested || self.waiting.iter().any(|(_, waiting)| waiting == *case)
        };
        let nameless = ran.passed.iter().chain(&ran.failing).filter(|case| !known(case));
        let nameless: Vec<String> = nameless.map(|case| format!("no verdict names the case {case}")).collect();
        self.problems.extend(nameless);
    }

    /// The Rust tests that verdicts name, by crate.
    fn rust(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut out: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (_, test) in &self.named {
            if let Test::Rust(of, name) = test {
                out.entry(of).or_default().insert(name);
            }
        }
        out
    }

    fn table(&self) -> String {
        let mut out =
            format!("{:24}{:>8}{:>16}{:>8}{:>9}\n", "statements", "tested", "not applicable", "later", "not met");
        let mut row = |name: &str, tally: &Tally| {
            let [tested, not_applicable, later, unmet] = tally.columns().map(|(_, number)| number);
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:24}{tested:>8}{not_applicable:>16}{later:>8}{unmet:>9}");
        };
        let mut all = Tally::default();
        for (name, tally) in &self.tallies {
            row(name, tally);
            all.add(tally);
        }
        row(&format!("{} in all", all.all()), &all);
        out
    }

    fn counts(&self) -> String {
        let rows: Vec<String> = self.tallies.iter().map(|(name, tally)| tally.row(name) + "\n").collect();
        HEAD.to_owned() + &rows.concat()
    }
}

/// The cases in a reason such as "it is not compared (case a waits for the library)".
fn waiting_cases(reason: &str) -> Vec<String> {
    let one = reason.split_once("(case ").and_then(|(_, rest)| rest.split_once(" waits for the library)"));
    let several = reason.split_once("(cases ").and_then(|(_, rest)| rest.split_once(" wait for the library)"));
    let names = one.or(several).map(|(names, _)| names.split(", ").map(str::to_owned).collect());
    names.unwrap_or_default()
}

fn folder() -> PathBuf {
    root().join("testing/statements")
}

/// `xtask statements`.
pub(crate) fn statements(options: &Options) -> Outcome {
    if !options.write {
        return verify();
    }
    let lists = Lists::read()?;
    print!("{}", lists.table());
    disk::write(folder().join("COUNTS"), lists.counts())?;
    finish(&lists.problems)
}

/// Reads the lists, runs the tests that they name, and compares.
pub(crate) fn verify() -> Outcome {
    let mut lists = Lists::read()?;
    lists.compare(&disk::read(folder().join("COUNTS"))?);
    let ran = Ran::now(&lists.rust())?;
    lists.judge(&ran);
    print!("{}", lists.table());
    println!("{} cases and {} Rust tests passed; {} cases wait", ran.passed.len(), ran.rust.len(), ran.failing.len());
    finish(&lists.problems)
}

fn finish(problems: &[String]) -> Outcome {
    if problems.is_empty() { Ok(()) } else { Err(format!("statements:\n  {}", problems.join("\n  "))) }
}

/// Test results.
#[derive(Debug, Default)]
struct Ran {
    /// Cases that passed on the library, compiled with its own headers.
    passed: BTreeSet<String>,
    /// Cases that wait for the library and fail, as expected.
    failing: BTreeSet<String>,
    /// Rust tests that passed: crate and name.
    rust: BTreeSet<(String, String)>,
}

/// The program of the cases, which takes one filter only.
const CASES: &str = "statements";

/// Arguments that make a test program's output easy to parse.
const READABLE: [&str; 2] = ["--color=never", "--format=pretty"];

impl Ran {
    fn now(named: &BTreeMap<&str, BTreeSet<&str>>) -> Result<Self, String> {
        let mut ran = Self::default();
        // All at once, as `cargo test --workspace` builds them: with the features of one crate
        // alone, what it depends on would be built again.
        let programs = test_programs(&mut cargo(&["test", "--workspace"]))?;
        let folders = folders()?;
        for program in programs.iter().filter(|program| program.name == CASES) {
            ran.cases(&program.output(["ours::"].iter().chain(&READABLE))?);
        }
        for (of, names) in named {
            let folder = folder_of(of, &folders)?;
            for program in programs.iter().filter(|program| program.folder == *folder && program.name != CASES) {
                let text = program.output(["--exact", "--show-output"].iter().chain(&READABLE).chain(names))?;
                let without = skipped(&text);
                let passed = passed(&text).filter(|name| !without.contains(name));
                ran.rust.extend(passed.map(|name| ((*of).to_owned(), name.to_owned())));
            }
        }
        Ok(ran)
    }

    /// Parses the output of the program that runs the cases.
    fn cases(&mut self, text: &str) {
        for name in passed(text) {
            let case = name.rsplit("::").next().unwrap_or_default().to_owned();
            let set = if name.starts_with("ours::") { &mut self.passed } else { &mut self.failing };
            set.insert(case);
        }
    }
}

/// The names in the lines "test NAME ... ok".
fn passed(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
        (end == "ok").then(|| name.trim())
    })
}

/// The tests that passed without having run: a line of their output says what is missing. It stands
/// under "---- NAME stdout ----".
fn skipped(text: &str) -> BTreeSet<&str> {
    let mut of = None;
    let mut out = BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            of = Some(name);
        } else if line.starts_with("skipped: ") {
            out.extend(of);
        }
    }
    out
}

fn folder_of<'a>(of: &str, folders: &'a BTreeMap<String, PathBuf>) -> Result<&'a PathBuf, String> {
    folders.get(of).ok_or_else(|| format!("statements: a verdict names the crate {of}, which does not exist"))
}

/// The folder of each crate.
fn folders() -> Result<BTreeMap<String, PathBuf>, String> {
    let metadata = json(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let folder = |package: &serde_json::Value| {
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
        Some((package["name"].as_str()?.to_owned(), folder))
    };
    Ok(metadata["packages"].as_array().into_iter().flatten().filter_map(folder).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(text: &str) -> Lists {
        let mut lists = Lists::default();
        lists.take("x.txt", text);
        lists
    }

    fn ran(passed: &[&str], failing: &[&str]) -> Ran {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Ran { passed: set(passed), failing: set(failing), rust: BTreeSet::from([("c".to_owned(), "m::t".to_owned())]) }
    }

    /// The problems of a list beside another one that names case "good", which passes, and case
    /// "slow", which waits.
    fn problems(text: &str) -> Vec<String> {
        let mut lists = lists(text);
        lists.take("other.txt", "o.1 | s | test: good\no.2 | s | not met: why (case slow waits for the library)");
        lists.judge(&ran(&["good"], &["slow"]));
        lists.problems
    }

    #[test]
    fn a_statement_without_its_test_is_a_problem() {
        let none: [&str; 0] = [];
        assert_eq!(problems("# a | b | c\n\na.1 | said | with a bar | test: good\na.2 | s | later: because"), none);
        assert_eq!(problems("a.1 | s | test: good, bad"), ["x.txt:1: a.1: the case bad did not run and pass"]);
        assert_eq!(problems("a.1 | s | test: slow"), ["x.txt:1: a.1: the case slow did not run and pass"]);
        assert_eq!(problems("a.1 | s | test: good\na.1 | s | not met: why"), ["x.txt:2: a.1 is listed twice"]);
        assert_eq!(
            problems("a.1 | s | nonsense\na.2 said"),
            ["x.txt:1: a.1: \"nonsense\" is no verdict", "x.txt:2: no verdict"]
        );
        assert_eq!(problems("a.1 | s | later: "), ["x.txt:1: a.1: \"later: \" is no verdict"]);
    }

    #[test]
    fn a_rust_test_counts_if_it_passed_in_its_crate() {
        let none: [&str; 0] = [];
        assert_eq!(problems("a.1 | s | test: rust::c::m::t, good"), none);
        assert_eq!(
            problems("a.1 | s | test: rust::d::m::t"),
            ["x.txt:1: a.1: the test m::t of d did not run and pass"]
        );
        assert_eq!(problems("a.1 | s | test: rust::c::t"), ["x.txt:1: a.1: the test t of c did not run and pass"]);
        let lists = lists("a.1 | s | test: rust::c::m::t, good\na.2 | s | test: rust::c::u, rust::d::t");
        let expected = BTreeMap::from([("c", BTreeSet::from(["m::t", "u"])), ("d", BTreeSet::from(["t"]))]);
        assert_eq!(lists.rust(), expected);
    }

    #[test]
    fn a_test_that_misses_something_has_not_run() {
        let text = "test a ... ok\ntest m::b ... ok\n\nsuccesses:\n\n---- a stdout ----\nsaid\n\n\
            ---- m::b stdout ----\nsaid\nskipped: no namespace\n\n\nsuccesses:\n    a\n    m::b\n";
        assert_eq!(passed(text).collect::<Vec<_>>(), ["a", "m::b"]);
        assert_eq!(skipped(text), BTreeSet::from(["m::b"]));
    }

    #[test]
    fn a_case_that_waits_must_fail_and_be_named() {
        assert_eq!(waiting_cases("why (case a waits for the library)"), ["a"]);
        assert_eq!(waiting_cases("why (cases a, b wait for the library)"), ["a", "b"]);
        assert_eq!(waiting_cases("why (test_a)"), Vec::<String>::new());
        let waits = "x.txt:1: a.1: the case good is not among those that wait for the library";
        assert_eq!(problems("a.1 | s | not met: why (case good waits for the library)"), [waits]);
    }

    #[test]
    fn a_case_that_no_verdict_names_is_a_problem() {
        let mut lists = lists("a.1 | s | test: good\na.2 | s | later: RMA (idle)\na.3 | s | not met: why (slow)");
        lists.judge(&ran(&["good", "idle"], &["slow"]));
        assert_eq!(lists.problems, ["no verdict names the case idle", "no verdict names the case slow"]);
    }

    #[test]
    fn counts_are_compared_exactly() {
        let compare = |recorded: &str| {
            let mut lists = lists("a.1 | s | test: good\na.2 | s | later: because\na.3 | s | not met: why");
            lists.compare(recorded);
            lists.problems
        };
        let none: [&str; 0] = [];
        assert_eq!(compare("# tested not applicable later not met\nx.txt 1 0 1 1\n"), none);
        assert_eq!(compare("x.txt 1 0 1 0"), ["x.txt: 1 statements are \"not met\", 0 in COUNTS"]);
        assert_eq!(compare("x.txt 1 0 0 1"), ["x.txt: 1 statements are \"later\", 0 in COUNTS"]);
        let advice = "write the new count into COUNTS, which has";
        assert_eq!(compare("x.txt 1 2 1 1"), [format!("x.txt: 0 statements are \"not applicable\": {advice} 2")]);
        assert_eq!(compare("x.txt 0 0 1 1"), [format!("x.txt: 1 statements are \"tested\": {advice} 0")]);
        let missing = "x.txt: COUNTS has no line with four numbers for it";
        assert_eq!(compare(""), [missing]);
        assert_eq!(compare("x.txt 1 0 1"), [missing]);
        let gone = "y.txt: COUNTS has a line for a list that does not exist";
        assert_eq!(compare("x.txt 1 0 1 1\ny.txt 0 0 0 0"), [gone]);
    }

    #[test]
    fn what_is_written_compares_equal() {
        let mut lists = lists("a.1 | s | test: good\na.2 | s | not applicable: because\na.3 | s | not met: why");
        let written = lists.counts();
        assert!(written.ends_with("\nx.txt 1 1 0 1\n"), "{written}");
        lists.compare(&written);
        assert_eq!(lists.problems, Vec::<String>::new());
    }

    #[test]
    fn the_table_has_a_row_for_each_list_and_one_for_all() {
        let mut lists = lists("a.1 | s | test: good\na.2 | s | not met: why");
        lists.take("y.txt", "b.1 | s | test: good\nb.2 | s | later: because");
        let table = lists.table();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["x.txt", "1", "0", "0", "1"]);
        assert_eq!(rows[2], ["y.txt", "1", "0", "1", "0"]);
        assert_eq!(rows[3], ["4", "in", "all", "2", "0", "1", "1"]);
    }

    #[test]
    fn lines_of_test_programs_are_read() {
        let mut ran = Ran::default();
        ran.cases("running 3 tests\ntest ours::text::a ... ok\ntest waits_for_ours::text::b ... ok\ntest ours::c ... FAILED\n");
        assert_eq!(ran.passed, BTreeSet::from(["a".to_owned()]));
        assert_eq!(ran.failing, BTreeSet::from(["b".to_owned()]));
    }

    #[test]
    fn the_folder_of_each_crate_is_known() {
        let folders = folders().unwrap();
        assert_eq!(folder_of("ofi-capi", &folders), Ok(&root().join("capi")));
        assert!(folder_of("no-such-crate", &folders).is_err());
    }
}
