//! `docs/refused.md` says what the C cases check: each of its rows is checked by a `REFUSED` with
//! the same answer, and each `REFUSED` names a row.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The first two columns of the page's table.
fn rows() -> BTreeSet<(String, String)> {
    let page = fs::read_to_string(Path::new(HERE).join("../docs/refused.md")).expect("the page is there");
    let columns = |line: &str| {
        let mut columns = line.strip_prefix("| ")?.split(" | ");
        Some((columns.next()?.to_owned(), columns.next()?.strip_prefix('-')?.to_owned()))
    };
    page.lines().filter_map(columns).collect()
}

/// The first two arguments of each `REFUSED` in a source of cases.
fn refusals(source: &str) -> Vec<(String, String)> {
    let parse = |call: &str| {
        let (row, rest) = call.split_once("\",")?;
        let (answer, _) = rest.trim_start().split_once(',')?;
        Some((row.replace("\\\"", "\""), answer.to_owned()))
    };
    // A row may contain quotes, but none before a comma.
    source.split("REFUSED(\"").skip(1).map(|call| parse(call).expect("REFUSED has a row and an answer")).collect()
}

#[test]
fn the_page_of_refusals_agrees_with_the_cases() {
    let (rows, mut checked) = (rows(), BTreeSet::new());
    assert!(rows.len() > 40, "{rows:?}");
    for file in fs::read_dir(Path::new(HERE).join("tests/c/cases")).expect("the cases are there") {
        let path = file.expect("the folder can be read").path();
        if path.extension().is_some_and(|ending| ending == "c") {
            checked.extend(refusals(&fs::read_to_string(path).expect("cases are text")));
        }
    }
    let unchecked: Vec<_> = rows.difference(&checked).collect();
    assert!(unchecked.is_empty(), "no case checks these rows of docs/refused.md: {unchecked:#?}");
    let unlisted: Vec<_> = checked.difference(&rows).collect();
    assert!(unlisted.is_empty(), "docs/refused.md has no such rows: {unlisted:#?}");
}
