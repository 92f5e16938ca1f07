//! What no provider supports, with the answer and the reason: the table of `docs/refused.md`.
//! A test of the C library compares it with the cases that check the answers.

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The call, command or flag.
    pub(crate) what: &'static str,
    /// What it returns, by name.
    pub(crate) answer: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
}

const PAGE: &str = include_str!("../refused.md");

/// The rows, in the page's order.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    let lines = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = lines.filter_map(|line| {
        let (what, rest) = line.split_once(" | ")?;
        let (answer, reason) = rest.split_once(" | ")?;
        Some(Row { what, answer, reason })
    });
    // The first is the head of the table.
    rows.skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_an_answer_and_a_reason() {
        let lines = PAGE.lines().filter(|line| line.starts_with("| ")).count();
        assert_eq!(rows().count(), lines - 1);
        assert!(lines > 40);
        for Row { what, answer, reason } in rows() {
            assert!(answer.starts_with("-FI_E") && !what.is_empty() && reason.ends_with('.'), "{what}");
        }
    }
}
