//! Statistics as text for Prometheus.

use core::fmt::{Display, Write};
use ofi_engine::{Exchanged, Statistics, Traffic};
use std::collections::BTreeMap;

/// Writes metrics: each name once, with the samples of all endpoints below it.
struct Metrics<'a> {
    out: String,
    endpoints: &'a [(&'a str, &'a Statistics)],
}

/// A label's value in quotes.
fn quoted(value: impl Display) -> String {
    format!("\"{}\"", value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

impl Metrics<'_> {
    /// Writes a metric; `samples` gives each endpoint's further labels and values.
    fn add(&mut self, name: &str, kind: &str, help: &str, samples: impl Fn(&Statistics) -> Vec<(String, u64)>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "# HELP ofi_{name} {help}\n# TYPE ofi_{name} {kind}");
        for (endpoint, statistics) in self.endpoints {
            // Peers may share an address, or have none, but each sample may occur only once.
            let mut sums = BTreeMap::new();
            for (labels, value) in samples(statistics) {
                *sums.entry(labels).or_insert(0u64) += value;
            }
            for (labels, value) in sums {
                let _ = writeln!(self.out, "ofi_{name}{{endpoint={}{labels}}} {value}", quoted(endpoint));
            }
        }
    }

    fn add_one(&mut self, name: &str, kind: &str, help: &str, value: impl Fn(&Statistics) -> u64) {
        self.add(name, kind, help, |statistics| vec![(String::new(), value(statistics))]);
    }

    fn add_both_ways(&mut self, name: &str, help: &str, value: fn(&Traffic) -> u64) {
        let both = |labels: &str, Exchanged { sent, received }: &Exchanged| {
            [("sent", sent), ("received", received)]
                .map(|(way, traffic)| (format!("{labels},direction=\"{way}\""), value(traffic)))
        };
        self.add(&format!("{name}_total"), "counter", help, |statistics| both("", &statistics.exchanged).to_vec());
        let help = format!("{help}, by peer");
        self.add(&format!("peer_{name}_total"), "counter", &help, |statistics| {
            let peers = statistics.peers.iter();
            peers.flat_map(|peer| both(&label_of(peer.addr.as_ref()), &peer.exchanged)).collect()
        });
    }
}

fn label_of(addr: Option<&ofi_core::Addr>) -> String {
    format!(",peer={}", addr.map_or_else(|| quoted("unknown"), quoted))
}

/// The statistics of endpoints, each with a name for it, in the text format of Prometheus.
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// # let ep = RdmEndpoint::open(&domain, &info)?;
/// # let me = ep.peer(ep.local_addr()?)?;
/// # let receive = ep.receive([0u8; 16]);
/// # drop(ofi::block_on(ep.send(me, "hello")));
/// # drop(ofi::block_on(receive));
/// let text = ofi::prometheus(&[("storage", &ep.statistics())]);
/// assert!(text.contains("ofi_message_bytes_total{endpoint=\"storage\",direction=\"received\"} 5\n"));
/// # Ok::<(), ofi::Error>(())
/// ```
pub fn prometheus(endpoints: &[(&str, &Statistics)]) -> String {
    let mut all = Metrics { out: String::new(), endpoints };
    all.add_both_ways("messages", "Messages", |traffic| traffic.messages);
    all.add_both_ways("message_bytes", "Bytes of messages", |traffic| traffic.message_bytes);
    all.add_both_ways("accesses", "One-sided operations", |traffic| traffic.accesses);
    all.add_both_ways("access_bytes", "Bytes of one-sided operations", |traffic| traffic.access_bytes);
    all.add_one("operation_failures_total", "counter", "Operations that failed", |all| all.failures);
    all.add_one("connections_total", "counter", "Connections that were made", |all| all.connected);
    all.add("connections_ended_total", "counter", "Connections that ended, by cause", |all| {
        let ended = all.ended.iter();
        ended.map(|(cause, count)| (format!(",cause={}", quoted(cause.text())), *count)).collect()
    });
    all.add("connect_requests_refused_total", "counter", "Refused connect requests, by reason", |all| {
        let refused = all.refused.iter();
        refused.map(|(reason, count)| (format!(",reason={}", quoted(reason)), *count)).collect()
    });
    all.add_one("unexpected_messages", "gauge", "Messages that wait for a receive", |all| all.unexpected);
    all.add_one("peer_memory_bytes", "gauge", "Memory that is held for peers", |all| all.peer_memory);
    all.add_one("completion_queue_high_water", "gauge", "Most completions that waited to be read", |all| {
        all.queue_high_water
    });
    all.add("peer_waiting_operations", "gauge", "Operations that wait for a connection or for credit", |all| {
        all.peers.iter().map(|peer| (label_of(peer.addr.as_ref()), peer.waiting)).collect()
    });
    all.out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::Cause;
    use ofi_engine::PeerStatistics;

    #[test]
    fn each_metric_is_named_once_and_has_all_endpoints() {
        let peer = PeerStatistics {
            addr: None,
            connected: 1,
            is_connected: true,
            waiting: 3,
            exchanged: Exchanged::default(),
        };
        let statistics = Statistics {
            failures: 7,
            ended: vec![(Cause::Broken, 2)],
            refused: vec![("a \"reason\"", 1)],
            peers: vec![peer.clone(), peer],
            ..Statistics::default()
        };
        let text = prometheus(&[("a", &statistics), ("b\n\"", &Statistics::default())]);
        assert!(text.contains("ofi_operation_failures_total{endpoint=\"a\"} 7\n"));
        assert!(text.contains("ofi_operation_failures_total{endpoint=\"b\\n\\\"\"} 0\n"));
        assert!(text.contains("reason=\"a \\\"reason\\\"\"} 1\n"));
        assert!(text.contains("ofi_peer_waiting_operations{endpoint=\"a\",peer=\"unknown\"} 6\n"));
        assert!(text.contains("ofi_peer_messages_total{endpoint=\"a\",peer=\"unknown\",direction=\"sent\"} 0\n"));
        assert_eq!(text.matches("# TYPE ofi_messages_total counter\n").count(), 1);
        let is_sound = |line: &str| {
            line.starts_with("# ") || line.rsplit_once("} ").is_some_and(|(_, value)| value.parse::<u64>().is_ok())
        };
        assert!(text.lines().all(is_sound), "{text}");
    }
}
