//! `ofi top`: rates of the endpoints of this user's processes.

use crate::dump::{age, size};
use ofi::published::{self, Process, Published};
use ofi::{Error, Traffic};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Duration;

/// How often to look.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Seconds between two looks
    #[arg(long, short = 'd', default_value_t = 2.0, value_parser = seconds)]
    delay: f64,
    /// Looks so often, then ends [default: until interrupted]
    #[arg(long, short = 'n')]
    count: Option<u32>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // The processes publish once a second.
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("not between 0.1 and 3600".to_owned()) }
}

/// An endpoint at one look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sent: Traffic,
    received: Traffic,
    /// When that was, in nanoseconds.
    at: u64,
}

/// The process and the endpoint's number.
type Key = (u32, u64);

/// What is shown of an endpoint.
struct Row {
    id: u32,
    command: String,
    provider: String,
    addr: String,
    age: String,
    pending: u64,
    /// The most completions that waited to be read.
    most_queued: u64,
    peers: u64,
    /// Operations and bytes a second, sent and received; `None` until it was seen twice.
    rates: Option<[f64; 4]>,
}

const fn sums(traffic: Traffic) -> [u64; 2] {
    let Traffic { messages, message_bytes, accesses, access_bytes } = traffic;
    [messages.saturating_add(accesses), message_bytes.saturating_add(access_bytes)]
}

#[allow(clippy::cast_precision_loss, reason = "rates are rounded")]
fn rates(before: &Seen, now: &Seen) -> Option<[f64; 4]> {
    let time = now.at.checked_sub(before.at).filter(|time| *time > 0)? as f64 / 1e9;
    let per_second = |old: u64, new: u64| new.saturating_sub(old) as f64 / time;
    let [[a, b], [c, d]] = [sums(before.sent), sums(before.received)];
    let [[e, f], [g, h]] = [sums(now.sent), sums(now.received)];
    Some([per_second(a, e), per_second(b, f), per_second(c, g), per_second(d, h)])
}

/// Compares with what was seen before, and remembers what is seen now.
fn rows(processes: &[Process], seen: &mut HashMap<Key, Seen>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut fresh = HashMap::new();
    for process in processes {
        for endpoint in &process.endpoints {
            let Published { number, time, provider, addr, pending, peers, exchanged, held, .. } = endpoint;
            let key = (process.id, *number);
            let latest = Seen { sent: exchanged.sent, received: exchanged.received, at: *time };
            let before = seen.get(&key);
            // Published only once since: nothing can be said of its rate, so the old look stays.
            let rates = before.and_then(|before| rates(before, &latest));
            fresh.insert(key, before.filter(|_| rates.is_none()).copied().unwrap_or(latest));
            rows.push(Row {
                id: process.id,
                command: process.command.clone(),
                provider: provider.clone(),
                addr: addr.clone(),
                age: age(endpoint),
                pending: *pending,
                most_queued: held.queue_high_water,
                peers: peers.known,
                rates,
            });
        }
    }
    *seen = fresh;
    rows
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are rounded")]
fn print(rows: &[Row]) {
    line!(
        "{:>8} {:<16} {:>6} {:<5} {:>6} {:>7} {:>6} {:>10} {:>12} {:>10} {:>12}  address",
        "PID",
        "COMMAND",
        "AGE",
        "PROV",
        "PEERS",
        "PENDING",
        "QUEMAX",
        "SENT/s",
        "BYTES/s",
        "RECV/s",
        "BYTES/s"
    );
    for Row { id, command, provider, addr, age, pending, most_queued, peers, rates } in rows {
        let [sent, received] = match rates {
            Some([a, b, c, d]) => [(a, b), (c, d)].map(|(count, bytes)| (format!("{count:.0}"), size(*bytes as u64))),
            None => [("-".to_owned(), "-".to_owned()), ("-".to_owned(), "-".to_owned())],
        };
        let ((sent, sent_bytes), (received, received_bytes)) = (&sent, &received);
        line!(
            "{id:>8} {command:<16} {age:>6} {provider:<5} {peers:>6} {pending:>7} {most_queued:>6} {sent:>10} \
             {sent_bytes:>12} {received:>10} {received_bytes:>12}  {addr}"
        );
    }
    if rows.is_empty() {
        line!("no process of this user has published the state of endpoints");
    }
}

/// Prints the rates again and again.
///
/// # Errors
/// None: processes that cannot be read are left out.
#[allow(clippy::disallowed_methods, reason = "the delay is what it is asked for")]
pub fn run(options: &Options) -> Result<bool, Error> {
    let mut seen = HashMap::new();
    let mut looks = 0;
    loop {
        let rows = rows(&published::processes(), &mut seen);
        if std::io::stdout().is_terminal() {
            // Clears the screen (ECMA-48).
            crate::text!("\x1b[H\x1b[2J");
        }
        print(&rows);
        looks += 1;
        if options.count.is_some_and(|count| looks >= count) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_secs_f64(options.delay));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi::Exchanged;

    fn process(second: u64, messages: u64) -> Process {
        let sent = Traffic { messages, message_bytes: 10 * messages, ..Traffic::default() };
        let exchanged = Exchanged { sent, received: Traffic::default() };
        let endpoint = Published { number: 1, time: second * 1_000_000_000, exchanged, ..Published::default() };
        Process { id: 7, command: "c".to_owned(), endpoints: vec![endpoint] }
    }

    #[test]
    fn rates_are_those_between_the_publications() {
        let mut seen = HashMap::new();
        let mut look = |second, messages| rows(&[process(second, messages)], &mut seen).remove(0).rates;
        assert_eq!(look(1, 100), None);
        assert_eq!(look(1, 100), None, "nothing new");
        assert_eq!(look(5, 500), Some([100.0, 1000.0, 0.0, 0.0]));
        assert_eq!(look(6, 500), Some([0.0; 4]));
        assert_eq!(look(7, u64::MAX / 10).map(|rates| rates[0] > 1e18), Some(true));
    }

    #[test]
    fn delays_are_checked() {
        assert_eq!(seconds("2"), Ok(2.0));
        for wrong in ["", "0", "-1", "NaN", "inf", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
