//! `ofi doctor`.

use ofi::Error;
use ofi::doctor::{Finding, Grade, examine};
use serde::Serialize;

/// Output options.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    area: &'a str,
    grade: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'a str>,
}

const fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "good",
        Grade::Notice => "notice",
        Grade::Problem => "problem",
    }
}

/// Prints the findings; false if there is a problem.
///
/// # Errors
/// Only if the result cannot be written as JSON.
pub fn run(options: &Options) -> Result<bool, Error> {
    let findings = examine();
    let line = |f: &'_ Finding| (f.area, word(f.grade));
    if options.json {
        let lines: Vec<Line<'_>> = findings
            .iter()
            .map(|f| Line { area: f.area, grade: word(f.grade), text: &f.text, advice: f.advice.as_deref() })
            .collect();
        crate::line!("{}", crate::json(&lines)?);
    } else {
        for finding in &findings {
            let (area, grade) = line(finding);
            crate::line!("{grade:<8}{area:<14} {}", finding.text);
            if let Some(advice) = &finding.advice {
                crate::line!("{:<23}-> {advice}", "");
            }
        }
    }
    Ok(findings.iter().all(|finding| finding.grade != Grade::Problem))
}
