//! The lists of what the manuals state (`testing/statements`): every statement has a verdict, and every test that one names exists, ran
//! and passed.

use crate::run::{Outcome, cargo, output, root};
use std::collections::BTreeSet;
use std::fs;

/// Where nothing may be unmet.
const STRICT: &[&str] = &["fi_getinfo.txt", "discovery.txt", "fi_cq.txt", "queues.txt"];
/// What may be unmet elsewhere, in percent.
const MOST_UNMET: usize = 3;

/// How many statements there are of a kind.
#[derive(Default)]
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
}

/// Reads the lists, runs the cases, and compares.
pub(crate) fn verify() -> Outcome {
    let passed = passed()?;
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    let (mut strict, mut rest) = (Tally::default(), Tally::default());
    let folder = root().join("testing/statements");
    let mut lists: Vec<_> = fs::read_dir(&folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"))
        .collect();
    lists.sort();
    for path in lists {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let tally = if STRICT.contains(&name.as_str()) { &mut strict } else { &mut rest };
        tally.add(&list(&name, &text, &passed, &mut seen, &mut problems));
    }
    if strict.unmet > 0 {
        problems.push(format!("{} statements about fi_getinfo and queues are not met", strict.unmet));
    }
    if rest.unmet * 100 > rest.all() * MOST_UNMET {
        problems.push(format!("{} of {} statements are not met", rest.unmet, rest.all()));
    }
    let mut all = strict;
    all.add(&rest);
    println!(
        "statements: {} in all, {} tested, {} not applicable, {} later, {} not met; {} cases passed",
        all.all(),
        all.tested,
        all.not_applicable,
        all.later,
        all.unmet,
        passed.len()
    );
    if problems.is_empty() { Ok(()) } else { Err(format!("statements:\n  {}", problems.join("\n  "))) }
}

/// One list's statements.
fn list(
    name: &str,
    text: &str,
    passed: &BTreeSet<String>,
    seen: &mut BTreeSet<String>,
    problems: &mut Vec<String>,
) -> Tally {
    let mut tally = Tally::default();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let place = format!("{name}:{}", number + 1);
        let Some(((id, _), verdict)) = line.split_once(" | ").zip(line.rsplit_once(" | ").map(|(_, verdict)| verdict))
        else {
            problems.push(format!("{place}: no verdict"));
            continue;
        };
        if !seen.insert(id.to_owned()) {
            problems.push(format!("{place}: {id} is there twice"));
        }
        match verdict.split_once(": ") {
            Some(("test", cases)) => {
                tally.tested += 1;
                let missing = cases.split(", ").filter(|case| !passed.contains(*case));
                problems.extend(missing.map(|case| format!("{place}: {id}: the case {case} did not run and pass")));
            }
            Some(("not applicable", reason)) if !reason.is_empty() => tally.not_applicable += 1,
            Some(("later", reason)) if !reason.is_empty() => tally.later += 1,
            Some(("not met", reason)) if !reason.is_empty() => tally.unmet += 1,
            _ => problems.push(format!("{place}: {id}: \"{verdict}\" is no verdict")),
        }
    }
    tally
}

/// The cases that passed on the library, compiled with its own headers.
fn passed() -> Result<BTreeSet<String>, String> {
    let text = output(&mut cargo(&[
        "test",
        "-q",
        "-p",
        "ofi-capi",
        "--test",
        "statements",
        "--",
        "ours::",
        "--color=never",
        "--format=pretty",
    ]))?;
    let of = |line: &str| {
        let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
        (end == "ok").then(|| name.trim().rsplit("::").next().unwrap_or_default().to_owned())
    };
    Ok(text.lines().filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_without_its_test_is_a_problem() {
        let passed = BTreeSet::from(["good".to_owned()]);
        let check = |text: &str| {
            let mut problems = Vec::new();
            let tally = list("x", text, &passed, &mut BTreeSet::new(), &mut problems);
            (tally.all(), problems.len())
        };
        assert_eq!(check("# a | b | c\n\na.1 | said | with a bar | test: good\na.2 | s | later: because"), (2, 0));
        assert_eq!(check("a.1 | said | test: good, bad"), (1, 1));
        assert_eq!(check("a.1 | said | test: good\na.1 | said | not met: why"), (2, 1));
        assert_eq!(check("a.1 | said | nonsense\na.2 said"), (0, 2));
    }
}
