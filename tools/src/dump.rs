//! `ofi dump`: what the endpoints of a process wait for.

use ofi::published::{self, Published, PublishedConnections, PublishedHeld, PublishedPeer};
use ofi::{Error, Exchanged, Traffic};

/// The process.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The process's number; without one, all processes of this user that have endpoints are listed
    process: Option<u32>,
}

/// A number of bytes in the unit in which it has up to four digits.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = UNITS.iter().enumerate().take_while(|(at, _)| *at == 0 || bytes >> (10 * at) >= 10).last();
    let (at, unit) = unit.unwrap_or((0, &"B"));
    format!("{} {unit}", bytes >> (10 * at))
}

fn traffic(Traffic { messages, message_bytes, accesses, access_bytes }: Traffic) -> String {
    let one_sided = if accesses == 0 {
        String::new()
    } else {
        format!(", {accesses} one-sided operations on {}", size(access_bytes))
    };
    format!("{messages} messages of {}{one_sided}", size(message_bytes))
}

fn print_exchanged(indent: &str, Exchanged { sent, received }: Exchanged) {
    line!("{indent}sent: {}", traffic(sent));
    line!("{indent}received: {}", traffic(received));
}

fn print_endpoint(endpoint: &Published) {
    let Published { provider, addr, pending, held, failures, connections, .. } = endpoint;
    let PublishedHeld { unexpected, peer_memory, queue_high_water: most } = *held;
    let PublishedConnections { made, ended, refused } = connections;
    line!("endpoint {addr} of {provider}, as it was {} ago", age(endpoint));
    line!("  {pending} operations pending, {failures} failed; {unexpected} messages wait for a receive");
    line!("  {made} connections were made; {} of memory are held for peers", size(peer_memory));
    line!("  at most {most} completions waited to be read at a time");
    print_exchanged("  ", endpoint.exchanged);
    for (cause, count) in ended {
        line!("  {count} connections ended: {cause}");
    }
    for (reason, count) in refused {
        line!("  {count} connect requests refused: {reason}");
    }
    for PublishedPeer { addr, connected, is_connected, waiting, exchanged } in &endpoint.peers.first {
        let now = if *is_connected { "connected" } else { "not connected" };
        line!("  peer {addr}: {now}, connected {connected} times, {waiting} operations wait");
        print_exchanged("    ", *exchanged);
    }
    let more = endpoint.peers.known.saturating_sub(endpoint.peers.first.len() as u64);
    if more > 0 {
        line!("  and {more} more peers");
    }
    endpoint.details.lines().for_each(|text| line!("  | {text}"));
}

/// The age of a report.
pub(crate) fn age(endpoint: &Published) -> String {
    format!("{:.1} s", published::age(endpoint).as_secs_f64())
}

/// Prints the state of a process, or the processes that have some.
///
/// # Errors
/// If the process has published nothing that this user can read.
pub fn run(options: &Options) -> Result<bool, Error> {
    let Some(id) = options.process else {
        let processes = published::processes();
        for process in &processes {
            line!("{} {}: {} endpoints", process.id, process.command, process.endpoints.len());
        }
        if processes.is_empty() {
            line!("no process of this user has published the state of endpoints");
        }
        return Ok(true);
    };
    let process = published::process(id)?;
    line!("process {} {}", process.id, process.command);
    process.endpoints.iter().for_each(print_endpoint);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_few_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (9_999, "9999 B"),
            (10_240, "10 KiB"),
            (10 << 20, "10 MiB"),
            ((10 << 20) - 1, "10239 KiB"),
            (u64::MAX, "16383 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
