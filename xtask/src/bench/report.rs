//! The results, as rows on the terminal, as Markdown and as JSON.

use crate::bench::bars::Bar;
use crate::bench::case::{Case, Section};
use crate::bench::machine::Machine;
use crate::bench::stats::{Ratios, Sample, median_of};
use serde_json::{Value, json};
use std::fmt::Write;

/// The source of a series of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Ours,
    Rival,
    Bare,
    UcxTagged,
    UcxPut,
    /// Our own message, for bars that name it.
    Message,
    /// MPICH's collective operation over our library.
    Mpich,
    /// Our C interface, for futures.
    C,
}

impl Tool {
    pub(crate) const ALL: [Self; 8] =
        [Self::Ours, Self::Rival, Self::Bare, Self::UcxTagged, Self::UcxPut, Self::Message, Self::Mpich, Self::C];

    /// Its name in JSON.
    fn key(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Rival => "rival",
            Self::Bare => "bare",
            Self::UcxTagged => "ucx_tag",
            Self::UcxPut => "ucx_put",
            Self::Message => "message",
            Self::Mpich => "mpich",
            Self::C => "c",
        }
    }
}

/// Whether a limit is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// In every pair.
    Met,
    /// By the median, but not by the worst pair.
    MedianOnly,
    Missed,
    /// The bare medium misses it too.
    OutOfReach,
}

impl Verdict {
    pub(crate) fn of(median: f64, worst: f64, limit: f64, at_most: bool) -> Self {
        let keeps = |value: f64| if at_most { value <= limit } else { value >= limit };
        match (keeps(median), keeps(worst)) {
            (true, true) => Self::Met,
            (true, false) => Self::MedianOnly,
            (false, _) => Self::Missed,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::MedianOnly => "met by the median only",
            Self::Missed => "missed",
            Self::OutOfReach => "missed, by the bare medium too",
        }
    }
}

/// A case with its samples.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) case: Case,
    series: [Vec<Sample>; 8],
    /// Sources that failed, with the reason.
    pub(crate) failures: Vec<(Tool, String)>,
}

impl Entry {
    pub(crate) fn new(case: Case) -> Self {
        Self { case, series: Default::default(), failures: Vec::new() }
    }

    pub(crate) fn samples(&self, tool: Tool) -> &[Sample] {
        self.series.get(tool as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds a sample or a failure; a source that failed is not measured again.
    pub(crate) fn add(&mut self, tool: Tool, sample: Result<Sample, String>) {
        match (sample, self.series.get_mut(tool as usize)) {
            (Ok(sample), Some(series)) => series.push(sample),
            (Ok(_), None) => {}
            (Err(why), _) => self.failures.push((tool, why)),
        }
    }

    pub(crate) fn has_failed(&self, tool: Tool) -> bool {
        self.failures.iter().any(|(failed, _)| *failed == tool)
    }

    pub(crate) fn median(&self, tool: Tool) -> Option<f64> {
        median_of(self.samples(tool))
    }

    /// Ratios of ours to another source.
    pub(crate) fn ratios(&self, tool: Tool) -> Option<Ratios> {
        Ratios::of(self.samples(Tool::Ours), self.samples(tool), self.case.unit())
    }

    /// Whether the bare medium misses a limit of the ratio to the rival.
    fn is_out_of_reach(&self, limit: f64) -> bool {
        let unit = self.case.unit();
        let ratios = Ratios::of(self.samples(Tool::Bare), self.samples(Tool::Rival), unit);
        let verdict = |found: Ratios| Verdict::of(found.median, found.worst, limit, unit.less_is_better);
        ratios.is_some_and(|ratios| verdict(ratios) == Verdict::Missed)
    }

    /// The limits of the case with their verdicts; None where samples are missing.
    fn bars(&self) -> Vec<(Bar, Option<Verdict>)> {
        let less = self.case.unit().less_is_better;
        let judge = |tool: Tool, limit: f64| {
            self.ratios(tool).map(|ratios| Verdict::of(ratios.median, ratios.worst, limit, less))
        };
        let verdict = |bar: &Bar| match *bar {
            Bar::Rival(limit) => match judge(Tool::Rival, limit) {
                Some(Verdict::Missed) if self.is_out_of_reach(limit) => Some(Verdict::OutOfReach),
                verdict => verdict,
            },
            Bar::Bare(limit) => judge(Tool::Bare, limit),
            Bar::Message(limit) => judge(Tool::Message, limit),
            Bar::Mpich(limit) => judge(Tool::Mpich, limit),
            Bar::C(limit) => judge(Tool::C, limit),
            Bar::Value(limit) => {
                let values = || self.samples(Tool::Ours).iter().map(|sample| sample.value);
                let worst = if less { values().max_by(f64::total_cmp) } else { values().min_by(f64::total_cmp) };
                Some(Verdict::of(self.median(Tool::Ours)?, worst?, limit, less))
            }
            Bar::ValueOrRival(limit) => {
                let worst = |tool: Tool| self.samples(tool).iter().map(|sample| sample.value).max_by(f64::total_cmp);
                let limit = worst(Tool::Rival).map_or(limit, |rival| rival.max(limit));
                Some(Verdict::of(self.median(Tool::Ours)?, worst(Tool::Ours)?, limit, less))
            }
        };
        self.case.bars().into_iter().map(|bar| (bar, verdict(&bar))).collect()
    }

    fn bars_text(&self) -> String {
        let sign = if self.case.unit().less_is_better { "≤" } else { "≥" };
        let text = |(bar, verdict): &(Bar, Option<Verdict>)| {
            let limit = match bar {
                Bar::Rival(limit) => format!("{sign} {limit}"),
                Bar::Bare(limit) => format!("{sign} {limit} × bare"),
                Bar::Message(limit) => {
                    format!("{sign} {limit} × our message of {}", or_dash(self.median(Tool::Message)))
                }
                Bar::Mpich(limit) => {
                    let ratios = median_and_worst(self.ratios(Tool::Mpich));
                    format!("{sign} {limit} × MPICH over ours of {}, {ratios}", or_dash(self.median(Tool::Mpich)))
                }
                Bar::C(limit) => {
                    let (limit, ratios) = (number(*limit), median_and_worst(self.ratios(Tool::C)));
                    format!("{sign} {limit} × our C interface of {}, {ratios}", or_dash(self.median(Tool::C)))
                }
                Bar::Value(limit) => format!("{sign} {limit} {}", self.case.unit().name),
                Bar::ValueOrRival(limit) => format!("{sign} {limit} {} or their worst", self.case.unit().name),
            };
            format!("{limit}: {}", verdict.map_or("not judged", Verdict::word))
        };
        self.bars().iter().map(text).collect::<Vec<_>>().join("; ")
    }
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) date: String,
    pub(crate) machine: Machine,
    /// Version and commit of our library.
    pub(crate) ours: String,
    /// Name and version of the other library.
    pub(crate) rival: String,
    pub(crate) rounds: usize,
    /// How this run differs from a full one, if it does.
    pub(crate) partial: Option<String>,
    /// Remarks on the run, such as why columns are empty.
    pub(crate) remarks: Vec<String>,
    pub(crate) entries: Vec<Entry>,
}

/// Formats a number with about three significant digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.1.. => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

fn spread(ratios: &Ratios) -> String {
    format!("{}–{} ({})", number(ratios.low), number(ratios.high), ratios.pairs)
}

fn median_and_worst(ratios: Option<Ratios>) -> String {
    ratios.map_or_else(|| "-".to_owned(), |ratios| format!("{}, {}", number(ratios.median), number(ratios.worst)))
}

impl Report {
    pub(crate) fn name_of(&self, tool: Tool) -> &str {
        match tool {
            Tool::Ours => "ours",
            Tool::Rival => &self.rival,
            Tool::Bare => "bare",
            Tool::UcxTagged => "UCX tag",
            Tool::UcxPut => "UCX put",
            Tool::Message => "our message",
            Tool::Mpich => "MPICH over ours",
            Tool::C => "our C interface",
        }
    }

    /// The terminal's header above the rows.
    pub(crate) fn head(&self) -> String {
        let Self { machine, ours, rival, rounds, .. } = self;
        let mut text = String::new();
        for (name, value) in &machine.facts {
            let _ = writeln!(text, "{name}: {value}");
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "{remark}");
        }
        let _ = writeln!(text, "ours {ours}, compared with {rival}; rounds: {rounds}\n");
        let _ = write!(
            text,
            "{:<74} {:>12} {:>9} {:>9}  {:>7} {:>7}  {:<20} {:>9} {:>14} {:>9} {:>9}  bar",
            "case", "", "ours", "rival", "median", "worst", "spread (pairs)", "bare", "to bare", "UCX tag", "UCX put"
        );
        text
    }

    /// A row on the terminal.
    pub(crate) fn row(&self, entry: &Entry) -> String {
        let to_rival = entry.ratios(Tool::Rival);
        let mut text = format!(
            "{:<74} {:>12} {:>9} {:>9}  {:>7} {:>7}  {:<20} {:>9} {:>14} {:>9} {:>9}  {}",
            entry.case.name(),
            entry.case.unit().name,
            or_dash(entry.median(Tool::Ours)),
            or_dash(entry.median(Tool::Rival)),
            or_dash(to_rival.map(|ratios| ratios.median)),
            or_dash(to_rival.map(|ratios| ratios.worst)),
            to_rival.as_ref().map_or_else(|| "-".to_owned(), spread),
            or_dash(entry.median(Tool::Bare)),
            median_and_worst(entry.ratios(Tool::Bare)),
            or_dash(entry.median(Tool::UcxTagged)),
            or_dash(entry.median(Tool::UcxPut)),
            entry.bars_text(),
        );
        text.truncate(text.trim_end().len());
        for (tool, why) in &entry.failures {
            let _ = write!(text, "\n    {}: {why}", self.name_of(*tool));
        }
        text
    }

    /// Cases in which our library failed, with the reason.
    pub(crate) fn failures_of_ours(&self) -> Vec<String> {
        let ours = |entry: &Entry| {
            let failure = entry.failures.iter().find(|(tool, _)| *tool == Tool::Ours)?;
            Some(format!("{}: {}", entry.case.name(), failure.1))
        };
        self.entries.iter().filter_map(ours).collect()
    }

    /// The report as Markdown; `plots` are links and titles.
    pub(crate) fn markdown(&self, plots: &[(String, String)]) -> String {
        let mut text = String::from("# Benchmarks\n\n");
        if let Some(part) = &self.partial {
            let _ = writeln!(
                text,
                "**This is a part of the bench only ({part}). It shows that the bench works; claim nothing by it.**\n"
            );
        }
        let Self { date, ours, rival, rounds, .. } = self;
        let _ = writeln!(
            text,
            "Written by `cargo xtask bench --markdown BENCHMARKS.md` on {date}: ours {ours}, compared with {rival}."
        );
        let _ = writeln!(text, "\n{METHOD}");
        let _ = writeln!(text, "Rounds of this run: {rounds}.\n\n## The machine\n\n| | |\n|---|---|");
        for (name, value) in &self.machine.facts {
            let _ = writeln!(text, "| {name} | {value} |");
        }
        let _ = writeln!(text, "\n{}", self.summary());
        for remark in &self.remarks {
            let _ = writeln!(text, "\n{remark}");
        }
        for section in Section::ALL {
            self.markdown_section(*section, &mut text);
        }
        if !plots.is_empty() {
            text.push_str("\n## Plots\n");
            for (path, title) in plots {
                let _ = write!(text, "\n![{title}]({path})\n");
            }
        }
        text
    }

    /// Counts the verdicts.
    fn summary(&self) -> String {
        let verdicts: Vec<Option<Verdict>> =
            self.entries.iter().flat_map(|entry| entry.bars().into_iter().map(|(_, verdict)| verdict)).collect();
        let count = |wanted: Option<Verdict>| verdicts.iter().filter(|verdict| **verdict == wanted).count();
        format!(
            "Of {} bars {} are met in every pair, {} by the median only, {} are missed, {} more by the bare medium too, and {} \
             could not be judged.",
            verdicts.len(),
            count(Some(Verdict::Met)),
            count(Some(Verdict::MedianOnly)),
            count(Some(Verdict::Missed)),
            count(Some(Verdict::OutOfReach)),
            count(None),
        )
    }

    fn markdown_section(&self, section: Section, text: &mut String) {
        let entries: Vec<&Entry> = self.entries.iter().filter(|entry| entry.case.section == section).collect();
        if entries.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n## {}\n", section.title());
        let _ = writeln!(
            text,
            "| case | unit | ours | {} | median ratio | worst ratio | spread (pairs) | bar | bare | to bare: median, worst | UCX tag | to it | UCX put |",
            self.rival
        );
        text.push_str("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        for entry in &entries {
            let to_rival = entry.ratios(Tool::Rival);
            let cells = [
                entry.case.name(),
                entry.case.unit().name.to_owned(),
                or_dash(entry.median(Tool::Ours)),
                or_dash(entry.median(Tool::Rival)),
                or_dash(to_rival.map(|ratios| ratios.median)),
                or_dash(to_rival.map(|ratios| ratios.worst)),
                to_rival.as_ref().map_or_else(|| "-".to_owned(), spread),
                entry.bars_text(),
                or_dash(entry.median(Tool::Bare)),
                median_and_worst(entry.ratios(Tool::Bare)),
                or_dash(entry.median(Tool::UcxTagged)),
                median_and_worst(entry.ratios(Tool::UcxTagged)),
                or_dash(entry.median(Tool::UcxPut)),
            ];
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        let notes: Vec<String> = entries
            .iter()
            .flat_map(|entry| entry.failures.iter().map(|(tool, why)| (entry.case.name(), self.name_of(*tool), why)))
            .map(|(name, tool, why)| format!("- {name}, {tool}: {}\n", why.replace('|', "\\|")))
            .collect();
        if !notes.is_empty() {
            let _ = write!(text, "\nWhat failed:\n\n{}", notes.concat());
        }
    }

    /// The report as JSON, with all samples.
    pub(crate) fn json(&self) -> Value {
        let facts: serde_json::Map<String, Value> =
            self.machine.facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "date": self.date,
            "machine": facts,
            "ours": self.ours,
            "rival": self.rival,
            "rounds": self.rounds,
            "partial": self.partial,
            "remarks": self.remarks,
            "cases": self.entries.iter().map(Entry::json).collect::<Vec<_>>(),
        })
    }
}

impl Entry {
    fn json(&self) -> Value {
        let mut tools = serde_json::Map::new();
        for tool in Tool::ALL {
            let failure = self.failures.iter().find(|(failed, _)| *failed == tool).map(|(_, why)| why);
            if self.samples(tool).is_empty() && failure.is_none() {
                continue;
            }
            let samples: Vec<Value> = self
                .samples(tool)
                .iter()
                .map(|sample| {
                    let Sample { round, value, before, after } = sample;
                    json!({ "round": round, "value": value, "line_before_us": before, "line_after_us": after })
                })
                .collect();
            let ratios = self.ratios(tool).filter(|_| tool != Tool::Ours).map(|ratios| {
                let Ratios { median, worst, low, high, pairs } = ratios;
                json!({ "median": median, "worst": worst, "low": low, "high": high, "pairs": pairs })
            });
            let value = json!({
                "median": self.median(tool), "samples": samples, "ours_to_it": ratios, "failure": failure,
            });
            tools.insert(tool.key().to_owned(), value);
        }
        let bar = |(bar, verdict): (Bar, Option<Verdict>)| {
            let (of, limit) = match bar {
                Bar::Rival(limit) => ("rival", limit),
                Bar::Bare(limit) => ("bare", limit),
                Bar::Message(limit) => ("message", limit),
                Bar::Mpich(limit) => ("mpich", limit),
                Bar::C(limit) => ("c", limit),
                Bar::Value(limit) => ("value", limit),
                Bar::ValueOrRival(limit) => ("value or rival", limit),
            };
            json!({ "of": of, "limit": limit, "verdict": verdict.map(Verdict::word) })
        };
        json!({
            "name": self.case.name(),
            "unit": self.case.unit().name,
            "less_is_better": self.case.unit().less_is_better,
            "options": self.case.arguments(),
            "bars": self.bars().into_iter().map(bar).collect::<Vec<_>>(),
            "tools": tools,
        })
    }
}

/// The method, as the report describes it.
const METHOD: &str = include_str!("method.md");

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::case::{Pattern, Provider};
    use crate::bench::cases;

    fn series(values: &[f64]) -> Vec<Sample> {
        let sample = |(round, value): (usize, &f64)| Sample { round, value: *value, before: 0.06, after: 0.06 };
        values.iter().enumerate().map(sample).collect()
    }

    fn entry(size: usize, ours: &[f64], theirs: &[f64], bare: &[f64]) -> Entry {
        let wanted = |case: &Case| (case.provider, case.pattern, case.size) == (Provider::Tcp, Pattern::Latency, size);
        let case = cases::all().into_iter().find(|case| wanted(case)).expect("there is such a case");
        let mut entry = Entry::new(case);
        for (tool, values) in [(Tool::Ours, ours), (Tool::Rival, theirs), (Tool::Bare, bare)] {
            series(values).into_iter().for_each(|sample| entry.add(tool, Ok(sample)));
        }
        entry
    }

    pub(crate) fn report() -> Report {
        let mut failed = entry(64, &[5.0], &[], &[4.0]);
        failed.add(Tool::Rival, Err("did not finish within 60 s".into()));
        Report {
            date: "2026-01-02".into(),
            machine: Machine { facts: vec![("processor", "Some Processor".into())] },
            ours: "0.1.0".into(),
            rival: "reference 2.5.1".into(),
            rounds: 3,
            partial: None,
            remarks: vec!["UCX is missing.".into()],
            entries: vec![entry(8, &[1.0, 2.0, 3.0], &[4.0, 4.0, 2.0], &[1.0, 2.0, 2.0]), failed],
        }
    }

    #[test]
    fn a_row_shows_median_worst_and_spread() {
        let report = report();
        let row = report.row(&report.entries[0]);
        let words: Vec<&str> = row.split_whitespace().collect();
        let shown = "tcp 8 B half round trip us 2.00 4.00 0.500 1.50 0.250–1.50 (3) 2.00 1.00, 1.50 - - \
                     ≤ 0.95: met by the median only; ≤ 1.12 × bare: met by the median only";
        assert_eq!(words.join(" "), shown);
    }

    #[test]
    fn a_failure_shows_a_dash_and_its_reason() {
        let report = report();
        assert!(report.row(&report.entries[1]).ends_with("\n    reference 2.5.1: did not finish within 60 s"));
        let markdown = report.markdown(&[]);
        assert!(markdown.contains("| tcp 64 B half round trip | us | 5.00 | - | - | - | - |"), "{markdown}");
        assert!(
            markdown.contains("- tcp 64 B half round trip, reference 2.5.1: did not finish within 60 s\n"),
            "{markdown}"
        );
        assert!(report.failures_of_ours().is_empty());
    }

    #[test]
    fn failures_of_ours_are_failures_of_the_run() {
        let mut report = report();
        report.entries[1].add(Tool::Ours, Err("it broke".into()));
        assert_eq!(report.failures_of_ours(), ["tcp 64 B half round trip: it broke"]);
    }

    #[test]
    fn markdown_names_machine_method_remarks_and_plots() {
        let report = report();
        let markdown = report.markdown(&[("docs/benchmarks/a.svg".into(), "a title".into())]);
        for text in [
            "| processor | Some Processor |",
            "on 2026-01-02: ours 0.1.0, compared with reference 2.5.1.",
            "UCX is missing.",
            "## Half round trips",
            "| case | unit | ours | reference 2.5.1 | median ratio | worst ratio |",
            "![a title](docs/benchmarks/a.svg)",
            "Of 4 bars 0 are met in every pair, 2 by the median only, 1 are missed, 0 more by the bare medium too, and 1 could not be judged.",
        ] {
            assert!(markdown.contains(text), "no {text:?} in {markdown}");
        }
        assert!(!markdown.contains("a part of the bench only"));
        let partial = Report { partial: Some("--quick".into()), ..report };
        assert!(partial.markdown(&[]).contains("a part of the bench only (--quick)"));
    }

    #[test]
    fn a_verdict_looks_at_the_median_and_the_worst() {
        assert_eq!(Verdict::of(0.5, 0.9, 0.9, true), Verdict::Met);
        assert_eq!(Verdict::of(0.5, 1.0, 0.9, true), Verdict::MedianOnly);
        assert_eq!(Verdict::of(0.95, 1.0, 0.9, true), Verdict::Missed);
        assert_eq!(Verdict::of(2.0, 1.6, 1.5, false), Verdict::Met);
        assert_eq!(Verdict::of(2.0, 1.4, 1.5, false), Verdict::MedianOnly);
        assert_eq!(Verdict::of(1.0, 0.9, 1.5, false), Verdict::Missed);
    }

    #[test]
    fn a_limit_that_the_bare_medium_misses_too_is_marked() {
        let verdict = |bare: f64| entry(8, &[1.0; 3], &[1.0; 3], &[bare; 3]).bars()[0];
        assert_eq!(verdict(0.96), (Bar::Rival(0.95), Some(Verdict::OutOfReach)));
        assert_eq!(verdict(0.94), (Bar::Rival(0.95), Some(Verdict::Missed)));
        let met = entry(8, &[0.9; 3], &[1.0; 3], &[0.96; 3]);
        assert_eq!(met.bars()[0], (Bar::Rival(0.95), Some(Verdict::Met)));
    }

    #[test]
    fn json_has_every_sample_and_the_reasons() {
        let json = report().json();
        assert_eq!(json["machine"]["processor"], "Some Processor");
        let (first, second) = (&json["cases"][0], &json["cases"][1]);
        assert_eq!(
            first["tools"]["ours"]["samples"][2],
            json!({
                "round": 2, "value": 3.0, "line_before_us": 0.06, "line_after_us": 0.06,
            })
        );
        assert_eq!(
            first["tools"]["rival"]["ours_to_it"],
            json!({
                "median": 0.5, "worst": 1.5, "low": 0.25, "high": 1.5, "pairs": 3,
            })
        );
        assert_eq!(first["tools"]["ours"]["ours_to_it"], Value::Null);
        assert_eq!(first["bars"][0], json!({ "of": "rival", "limit": 0.95, "verdict": "met by the median only" }));
        assert_eq!(second["tools"]["rival"]["failure"], "did not finish within 60 s");
        assert_eq!(second["tools"].get("ucx_tag"), None);
    }

    #[test]
    fn numbers_have_three_digits_that_mean_something() {
        let shown = [0.0, 0.01234, 0.1234, 1.234, 12.34, 123.4, 12345.0].map(number);
        assert_eq!(shown, ["0", "0.0123", "0.123", "1.23", "12.3", "123", "12345"]);
    }
}
