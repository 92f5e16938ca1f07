//! `ofi selftest`: two processes exchange messages of several sizes over every provider and
//! endpoint type, and access each other's memory where the provider can.

use crate::one_sided::Access;
use crate::pair::{self, Measured, Step};
use crate::side::Side;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use ofi::{EndpointType, Errno, Error, Query, Version};
use serde::Serialize;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Time limit of one provider and endpoint type.
const LIMIT: Duration = Duration::from_secs(60);

/// Selection and output options.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Prints JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Only providers whose name contains this
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    provider: String,
    endpoint: String,
    operation: &'static str,
    size_bytes: usize,
    time_p50_us: f64,
    time_p99_us: f64,
    bandwidth_mb_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Failure {
    provider: String,
    endpoint: String,
    error: String,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    rows: Vec<Row>,
    failures: Vec<Failure>,
}

const MESSAGES: [Step; 5] = [
    step(None, 8, 2000, 20_000),
    step(None, 64, 2000, 20_000),
    step(None, 4096, 1000, 10_000),
    step(None, 65_536, 500, 2000),
    step(None, 1 << 20, 100, 200),
];

const ACCESSES: [Step; 7] = [
    step(Some(Access::Write), 8, 2000, 20_000),
    step(Some(Access::Write), 65_536, 500, 2000),
    step(Some(Access::Write), 1 << 20, 100, 200),
    step(Some(Access::Read), 8, 2000, 20_000),
    step(Some(Access::Read), 65_536, 500, 2000),
    step(Some(Access::Read), 1 << 20, 100, 200),
    step(Some(Access::FetchAdd), 8, 2000, 20_000),
];

const fn step(access: Option<Access>, size: usize, trips: usize, stream: usize) -> Step {
    Step { access, size, trips, stream }
}

/// The plan for an endpoint type. Datagrams skip sizes beyond their limit, streams, which may lose
/// packets, and memory accesses, which they lack.
fn plan(endpoint: &str) -> Vec<Step> {
    if endpoint != "dgram" {
        return MESSAGES.into_iter().chain(ACCESSES).collect();
    }
    MESSAGES.iter().filter(|step| step.size < 65_000).map(|step| Step { stream: 0, ..*step }).collect()
}

/// The available pairs of provider and endpoint type, each once.
fn candidates(filter: Option<&str>) -> Result<Vec<(String, &'static str)>, Error> {
    let (infos, refusals) = ofi::discover(&Query { version: Version::API, ..Query::default() })?;
    let mut out: Vec<(String, &'static str)> = Vec::new();
    for info in infos {
        let name = info.fabric.prov_name.clone().unwrap_or_default();
        let endpoint = match info.ep.kind {
            EndpointType::RDM => "rdm",
            EndpointType::MSG => "msg",
            EndpointType::DGRAM => "dgram",
            _ => continue,
        };
        let wanted = filter.is_none_or(|filter| name.contains(filter));
        if wanted && !out.iter().any(|(known, kind)| *known == name && *kind == endpoint) {
            out.push((name, endpoint));
        }
    }
    match filter {
        _ if !out.is_empty() => Ok(out),
        Some(filter) => {
            Err(Error::new(Errno::ENODATA, format!("no provider that carries messages is called {filter}")))
        }
        None => Err(Error::new(Errno::ENODATA, refusals.to_string())),
    }
}

/// Runs the selftest; false if any pair fails.
///
/// # Errors
/// ENODATA if no provider matches.
pub fn run(options: &Options) -> Result<bool, Error> {
    let candidates = candidates(options.provider.as_deref())?;
    let bar = if std::io::stderr().is_terminal() && !options.json {
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        let steps: usize = candidates.iter().map(|(_, endpoint)| plan(endpoint).len()).sum();
        ProgressBar::new(steps as u64).with_style(style)
    } else {
        ProgressBar::hidden()
    };
    let mut report = Report::default();
    for (provider, endpoint) in candidates {
        let result = pair_up(&provider, endpoint, &bar);
        match result {
            Ok(rows) => report.rows.extend(rows.into_iter().map(|measured| row(&provider, endpoint, measured))),
            Err(error) => report.failures.push(Failure {
                provider: provider.clone(),
                endpoint: endpoint.to_owned(),
                error: error.to_string(),
            }),
        }
    }
    bar.finish_and_clear();
    let ok = report.failures.is_empty();
    if options.json {
        crate::line!("{}", crate::json(&report)?);
    } else {
        print(&report);
    }
    Ok(ok)
}

fn row(provider: &str, endpoint: &str, measured: Measured) -> Row {
    let Measured { step, p50, p99, bandwidth } = measured;
    Row {
        provider: provider.to_owned(),
        endpoint: endpoint.to_owned(),
        operation: step.operation(),
        size_bytes: step.size,
        time_p50_us: p50,
        time_p99_us: p99,
        bandwidth_mb_s: bandwidth,
    }
}

/// The echoing process, killed on drop.
struct Partner(Child);

impl Drop for Partner {
    fn drop(&mut self) {
        // After success it has exited already, and neither call has an effect.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Measures over one provider and endpoint type, within [`LIMIT`].
fn pair_up(provider: &str, endpoint: &'static str, bar: &ProgressBar) -> Result<Vec<Measured>, Error> {
    let this = std::env::current_exe().map_err(|error| Error::os(error, "find this program"))?;
    let child = Command::new(this)
        .args(["echo", "--provider", provider, "--endpoint", endpoint, "--plan", &pair::plan_text(&plan(endpoint))])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Error::os(error, "start the other process"))?;
    let mut partner = Partner(child);
    let (Some(mut input), Some(output)) = (partner.0.stdin.take(), partner.0.stdout.take()) else {
        return Err(Error::new(Errno::EOTHER, "open the pipes to the other process"));
    };
    let (result, arrival) = mpsc::channel();
    let (name, bar) = (provider.to_owned(), bar.clone());
    // A separate thread turns a hang into a failure after the limit.
    std::thread::spawn(move || {
        let work = || -> Result<Vec<Measured>, Error> {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map_err(|error| Error::os(error, "read the peer's address"))?;
            let addr = line
                .trim()
                .parse()
                .map_err(|_| Error::new(Errno::EOTHER, "the echo process printed no valid address"))?;
            let (link, mine) = pair::meet(&name, endpoint, addr)?;
            if let Some(mine) = mine {
                writeln!(input, "{mine}").map_err(|error| Error::os(error, "send the address to the peer"))?;
            }
            let mut side = Side::new(&link, true);
            let mut rows = Vec::new();
            for step in plan(endpoint) {
                bar.set_message(format!("{name} {endpoint} {} {} bytes", step.operation(), step.size));
                rows.push(pair::measure(&mut side, step)?);
                bar.inc(1);
            }
            Ok(rows)
        };
        // The receiver is gone if the limit has expired.
        drop(result.send(work()));
    });
    arrival
        .recv_timeout(LIMIT)
        .unwrap_or_else(|_| Err(Error::new(Errno::ETIMEDOUT, format!("no result within {LIMIT:?}"))))
}

fn print(report: &Report) {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["provider", "endpoint", "operation", "size (B)", "p50 (us)", "p99 (us)", "bandwidth (MB/s)"]);
    for row in &report.rows {
        table.add_row([
            row.provider.clone(),
            row.endpoint.clone(),
            row.operation.to_owned(),
            row.size_bytes.to_string(),
            format!("{:.2}", row.time_p50_us),
            format!("{:.2}", row.time_p99_us),
            row.bandwidth_mb_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    crate::line!("{table}");
    crate::line!("us: half a round trip of messages; from the call to the completion of other operations");
    for Failure { provider, endpoint, error } in &report.failures {
        crate::line!("{provider} {endpoint} FAILED: {error}");
    }
}
