//! Samples of UCX, taken by ucx_perftest of Debian's package `ucx-utils`.

use crate::bench::case::{Case, Ucx};
use crate::bench::sample::{Settings, limited, printed};
use crate::bench::stats::Sample;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The results of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbers {
    /// Half a round trip, in microseconds.
    latency: f64,
    /// Messages per second.
    rate: f64,
}

/// A process that is killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // After a successful test it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(prefix: &[&str], ucx: &Ucx, settings: &Settings, core: usize, port: u16) -> Command {
    let mut command = limited(prefix.first().copied().unwrap_or("ucx_perftest"), settings.limit);
    command.args(prefix.iter().skip(1)).env("UCX_TLS", ucx.transport).env("UCX_WARN_UNUSED_ENV_VARS", "n");
    if ucx.transport == "tcp" {
        command.env("UCX_NET_DEVICES", "lo");
    }
    command.args(["-p", &port.to_string(), "-c", &core.to_string()]);
    command
}

#[allow(clippy::disallowed_types, reason = "the system knows a port that is free")]
fn free_port() -> Result<u16, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    listener.and_then(|listener| listener.local_addr()).map(|addr| addr.port()).map_err(|error| error.to_string())
}

/// Runs a test of a case. `guess` is our own value; it sets the number of messages.
pub(crate) fn sample(
    settings: &Settings,
    case: &Case,
    ucx: &Ucx,
    test: &str,
    guess: f64,
    round: usize,
) -> Result<Sample, String> {
    let [here, there] = settings.cores_in(round);
    let port = free_port()?;
    let mut listen = command(&["stdbuf", "-oL", "ucx_perftest"], ucx, settings, there, port);
    let child = listen.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut server = Server(child.map_err(|error| format!("ucx_perftest: {error}"))?);
    let mut lines = BufReader::new(server.0.stdout.take().ok_or("ucx_perftest has no output")?).lines();
    if !lines.by_ref().map_while(Result::ok).any(|line| line.contains("Waiting for connection")) {
        return Err("ucx_perftest did not begin to listen".into());
    }
    let count = messages(case, guess, case.milliseconds / settings.share);
    let mut client = command(&["ucx_perftest"], ucx, settings, here, port);
    client.args(["127.0.0.1", "-f", "-v", "-t", test, "-s", &case.size.to_string()]);
    client.args(["-n", &count.to_string(), "-w", &(count / 10 + 1).to_string()]);
    if case.unit().name != "us" {
        client.args(["-O", &case.window.to_string()]);
    }
    let text = printed(&mut client, settings.limit)?;
    let numbers = parse(&text).ok_or_else(|| format!("ucx_perftest printed {text:?}"))?;
    Ok(Sample { round, value: value(case, numbers), before: 0.0, after: 0.0 })
}

/// The number of messages that take `milliseconds` at the guessed speed.
fn messages(case: &Case, guess: f64, milliseconds: u32) -> u64 {
    let time = f64::from(milliseconds) * 1e3;
    let size = f64::from(u32::try_from(case.size).unwrap_or(u32::MAX));
    let count = match case.unit().name {
        "us" => time / guess / 2.0,
        "M/s" => time * guess,
        _ => time * guess / size,
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let count = count.clamp(20.0, 1e6) as u64;
    count
}

fn value(case: &Case, numbers: Numbers) -> f64 {
    let size = f64::from(u32::try_from(case.size).unwrap_or(u32::MAX));
    match case.unit().name {
        "us" => numbers.latency,
        "M/s" => numbers.rate / 1e6,
        _ => numbers.rate * size / 1e6,
    }
}

/// Parses the last line of ucx_perftest's comma-separated output: iterations, latency (median,
/// average, overall), bandwidth and message rate (average, overall).
fn parse(text: &str) -> Option<Numbers> {
    let line = text.lines().rev().map(str::trim).find(|line| line.starts_with(|first: char| first.is_ascii_digit()))?;
    let fields: Option<Vec<f64>> = line.split(',').map(|field| field.trim().parse().ok()).collect();
    let [_, _, _, latency, _, _, _, rate] = fields?[..] else { return None };
    Some(Numbers { latency, rate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::case::{Pattern, Provider};
    use crate::bench::cases;

    const TEXT: &str = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                        2000,0.861,5.890,5.895,10610.33,10610.33,169765,169770\n";

    fn plain(pattern: Pattern, size: usize) -> Case {
        let wanted = |case: &Case| (case.provider, case.pattern, case.size) == (Provider::Shm, pattern, size);
        cases::all().into_iter().find(|case| wanted(case) && case.ucx().is_some()).expect("there is such a case")
    }

    #[test]
    fn the_last_line_of_numbers_counts() {
        assert_eq!(parse(TEXT), Some(Numbers { latency: 5.895, rate: 169_770.0 }));
        assert_eq!(parse(" 20,6.0,44.1,44.2,0.1,0.2,22646,22647\n"), Some(Numbers { latency: 44.2, rate: 22_647.0 }));
        assert_eq!(parse("iterations,latency\n"), None);
        assert_eq!(parse("1,2,3\n"), None);
    }

    #[test]
    fn values_are_in_the_unit_of_the_case() {
        let numbers = Numbers { latency: 5.0, rate: 2e6 };
        assert_eq!(value(&plain(Pattern::Latency, 8), numbers), 5.0);
        assert_eq!(value(&plain(Pattern::Rate, 8), numbers), 2.0);
        assert_eq!(value(&plain(Pattern::Stream, 65_536), numbers), 131_072.0);
    }

    #[test]
    fn a_sample_has_as_many_messages_as_fit() {
        assert_eq!(messages(&plain(Pattern::Latency, 8), 1.0, 200), 100_000);
        assert_eq!(messages(&plain(Pattern::Rate, 8), 2.0, 200), 400_000);
        assert_eq!(messages(&plain(Pattern::Stream, 65_536), 65_536.0, 200), 200_000);
        assert_eq!(messages(&plain(Pattern::Latency, 8), 1e9, 200), 20);
    }
}
