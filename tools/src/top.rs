//! `ofi top`: rates of the endpoints of this user's processes.

use crate::dump::{age, size};
use ofi::published::{self, Process, Published};
use ofi::{Error, Traffic};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

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
    /// When it was published, in seconds since the first look.
    at: f64,
}

type Key = (u32, String, String);

/// What is shown of an endpoint.
struct Row {
    key: Key,
    command: String,
    age: String,
    pending: u64,
    peers: u64,
    /// Operations and bytes a second, sent and received; `None` until it was seen twice.
    rates: Option<[f64; 4]>,
}

const fn sums(traffic: Traffic) -> [u64; 2] {
    [traffic.messages + traffic.accesses, traffic.message_bytes + traffic.access_bytes]
}

#[allow(clippy::cast_precision_loss, reason = "rates are rounded")]
fn rates(before: &Seen, now: &Seen) -> Option<[f64; 4]> {
    let time = now.at - before.at;
    if time < 0.001 {
        return None;
    }
    let per_second = |old: u64, new: u64| new.saturating_sub(old) as f64 / time;
    let [[a, b], [c, d]] = [sums(before.sent), sums(before.received)];
    let [[e, f], [g, h]] = [sums(now.sent), sums(now.received)];
    Some([per_second(a, e), per_second(b, f), per_second(c, g), per_second(d, h)])
}

/// Compares with what was seen before, and remembers what is seen now, in seconds since the first
/// look.
fn rows(processes: &[Process], seen: &mut HashMap<Key, Seen>, now: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut fresh = HashMap::new();
    for process in processes {
        for endpoint in &process.endpoints {
            let Published { provider, addr, pending, known_peers, exchanged, .. } = endpoint;
            let key = (process.id, provider.clone(), addr.clone());
            let at = now - process.age.as_secs_f64();
            let latest = Seen { sent: exchanged.sent, received: exchanged.received, at };
            let before = seen.get(&key);
            // Published only once since: nothing can be said of its rate, so the old look stays.
            let rates = before.and_then(|before| rates(before, &latest));
            fresh.insert(key.clone(), before.filter(|_| rates.is_none()).copied().unwrap_or(latest));
            let (command, age) = (process.command.clone(), age(process));
            rows.push(Row { key, command, age, pending: *pending, peers: *known_peers, rates });
        }
    }
    *seen = fresh;
    rows
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are rounded")]
fn print(rows: &[Row]) {
    line!(
        "{:>8} {:<16} {:>6} {:<5} {:>6} {:>7} {:>10} {:>12} {:>10} {:>12}  address",
        "PID",
        "COMMAND",
        "AGE",
        "PROV",
        "PEERS",
        "PENDING",
        "SENT/s",
        "BYTES/s",
        "RECV/s",
        "BYTES/s"
    );
    for Row { key: (id, provider, addr), command, age, pending, peers, rates } in rows {
        let [sent, received] = match rates {
            Some([a, b, c, d]) => [(a, b), (c, d)].map(|(count, bytes)| (format!("{count:.0}"), size(*bytes as u64))),
            None => [("-".to_owned(), "-".to_owned()), ("-".to_owned(), "-".to_owned())],
        };
        let ((sent, sent_bytes), (received, received_bytes)) = (&sent, &received);
        line!(
            "{id:>8} {command:<16} {age:>6} {provider:<5} {peers:>6} {pending:>7} {sent:>10} {sent_bytes:>12} \
             {received:>10} {received_bytes:>12}  {addr}"
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
#[allow(clippy::disallowed_methods, reason = "rates are those of real time, and the delay is what it is asked for")]
pub fn run(options: &Options) -> Result<bool, Error> {
    let mut seen = HashMap::new();
    let (start, mut looks) = (Instant::now(), 0);
    loop {
        let rows = rows(&published::processes(), &mut seen, start.elapsed().as_secs_f64());
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

    fn process(age: u64, messages: u64) -> Process {
        let sent = Traffic { messages, message_bytes: 10 * messages, ..Traffic::default() };
        let exchanged = Exchanged { sent, received: Traffic::default() };
        let endpoint =
            Published { provider: "tcp".to_owned(), addr: "x".to_owned(), exchanged, ..Published::default() };
        Process { id: 7, command: "c".to_owned(), age: Duration::from_secs(age), endpoints: vec![endpoint] }
    }

    #[test]
    fn rates_are_those_between_the_publications() {
        let mut seen = HashMap::new();
        let mut look = |second, age, messages| rows(&[process(age, messages)], &mut seen, second).remove(0).rates;
        assert_eq!(look(0.0, 0, 100), None);
        assert_eq!(look(1.0, 1, 100), None, "nothing new");
        assert_eq!(look(5.0, 1, 500), Some([100.0, 1000.0, 0.0, 0.0]));
        assert_eq!(look(6.0, 0, 500), Some([0.0; 4]));
    }

    #[test]
    fn delays_are_checked() {
        assert_eq!(seconds("2"), Ok(2.0));
        for wrong in ["", "0", "-1", "NaN", "inf", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
