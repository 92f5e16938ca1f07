//! `fi_info --explain` names everything that no provider supports.

use std::process::Command;

fn explained(arguments: &[&str]) -> (String, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_fi_info")).args(arguments).output().expect("fi_info runs");
    (String::from_utf8_lossy(&run.stdout).into_owned(), String::from_utf8_lossy(&run.stderr).into_owned())
}

#[test]
fn explain_prints_the_page_of_what_is_refused() {
    let (_, text) = explained(&["--explain"]);
    let (json, _) = explained(&["--explain", "--json"]);
    for (what, answer) in [("FI_GET_VAL, FI_SET_VAL (fi_control)", "-FI_ENOSYS"), ("FI_REG_MR", "-FI_EBADFLAGS")] {
        let line = text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what} is not in {text}"));
        assert!(line.contains(answer) && line.ends_with('.'), "{line}");
        assert!(json.contains(what), "{json}");
    }
    let (_, plain) = explained(&["--json"]);
    assert!(!plain.contains("FI_GET_VAL"));
}
