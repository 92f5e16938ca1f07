//! Reports: what an endpoint has done and what it waits for, as text that another process can
//! read. `progress/publish.rs` collects them.

use crate::statistics::{Exchanged, PeerStatistics, Statistics, Traffic};
use core::fmt;
use ofi_core::Addr;

/// The most peers, and lines of pending operations, in a report.
pub(crate) const MOST: usize = 64;

/// A report of an endpoint of this process.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The name of its provider.
    pub provider: &'static str,
    /// Its address, if it has one.
    pub addr: Option<Addr>,
    /// What it has done, in all and with its first peers.
    pub statistics: Statistics,
    /// The number of peers that it knows.
    pub known_peers: u64,
    /// Operations that have not ended.
    pub pending: u64,
    /// What they wait for, a line for each link and operation.
    pub details: String,
}

impl Report {
    /// A number that changes when anything moves.
    pub(crate) fn moved(&self) -> u64 {
        let Exchanged { sent, received } = self.statistics.exchanged;
        let sum = |Traffic { messages, message_bytes, accesses, access_bytes }| {
            [messages, message_bytes, accesses, access_bytes].into_iter().fold(0, u64::wrapping_add)
        };
        [sum(sent), sum(received), self.statistics.failures, self.statistics.connected, self.pending]
            .into_iter()
            .fold(0, |all, one| all.wrapping_mul(31).wrapping_add(one))
    }
}

fn write_exchanged(f: &mut fmt::Formatter<'_>, exchanged: Exchanged) -> fmt::Result {
    for Traffic { messages, message_bytes, accesses, access_bytes } in [exchanged.sent, exchanged.received] {
        write!(f, " {messages} {message_bytes} {accesses} {access_bytes}")?;
    }
    writeln!(f)
}

/// Text on one line.
struct Line<T>(T);

impl<T: fmt::Display> fmt::Display for Line<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string().replace(['\n', '\r'], " "))
    }
}

/// As [`Published::parse`] reads it, after the word `endpoint`, the endpoint's number and the time.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, addr, statistics, known_peers, pending, details } = self;
        let Statistics { exchanged, failures, connected, ended, refused, unexpected, peer_memory, .. } = statistics;
        let name = addr.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        writeln!(f, "{provider} {}", Line(name))?;
        writeln!(f, "state {pending} {unexpected} {peer_memory} {failures} {connected} {known_peers}")?;
        writeln!(f, "queue {}", statistics.queue_high_water)?;
        f.write_str("all")?;
        write_exchanged(f, *exchanged)?;
        for (cause, count) in ended {
            writeln!(f, "ended {count} {}", Line(cause.text()))?;
        }
        for (reason, count) in refused {
            writeln!(f, "refused {count} {}", Line(reason))?;
        }
        for PeerStatistics { addr, connected, is_connected, waiting, exchanged } in &statistics.peers {
            let name = addr.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            write!(f, "peer {} {connected} {} {waiting}", Line(name), u8::from(*is_connected))?;
            write_exchanged(f, *exchanged)?;
        }
        details.lines().try_for_each(|line| writeln!(f, "| {line}"))
    }
}

/// What waits for the program of an endpoint of another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedHeld {
    /// Messages that wait for a receive.
    pub unexpected: u64,
    /// Bytes of memory that is held for peers.
    pub peer_memory: u64,
    /// The most completions that waited to be read at a time.
    pub queue_high_water: u64,
}

/// A report of an endpoint of another process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Identifies it among the endpoints of its process.
    pub number: u64,
    /// When the report was made, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// The name of its provider.
    pub provider: String,
    /// Its address, or "-".
    pub addr: String,
    /// Operations that have not ended.
    pub pending: u64,
    /// What waits for its program.
    pub held: PublishedHeld,
    /// Operations that have failed.
    pub failures: u64,
    /// Its connections.
    pub connections: PublishedConnections,
    /// What was exchanged with all peers.
    pub exchanged: Exchanged,
    /// Its peers.
    pub peers: PublishedPeers,
    /// What its operations wait for.
    pub details: String,
}

/// The connections of such an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedConnections {
    /// How many were made.
    pub made: u64,
    /// How many have ended, by cause.
    pub ended: Vec<(String, u64)>,
    /// Connect requests that were refused, by reason.
    pub refused: Vec<(String, u64)>,
}

/// The peers of such an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedPeers {
    /// How many it knows.
    pub known: u64,
    /// The first of them.
    pub first: Vec<PublishedPeer>,
}

/// A peer of such an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedPeer {
    /// Its address, or "-".
    pub addr: String,
    /// How often a connection was made.
    pub connected: u64,
    /// Whether there is one.
    pub is_connected: bool,
    /// Operations that wait for a connection or for credit.
    pub waiting: u64,
    /// What was exchanged with it.
    pub exchanged: Exchanged,
}

/// The numbers of a line; `None` if it has others.
fn numbers<const N: usize>(words: &[&str]) -> Option<[u64; N]> {
    let numbers: Vec<u64> = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

const fn exchanged_of([a, b, c, d, e, f, g, h]: [u64; 8]) -> Exchanged {
    Exchanged {
        sent: Traffic { messages: a, message_bytes: b, accesses: c, access_bytes: d },
        received: Traffic { messages: e, message_bytes: f, accesses: g, access_bytes: h },
    }
}

impl Published {
    /// The reports in a text. Lines that it does not know, as those of later versions, are skipped;
    /// control characters, which a terminal might obey, are replaced.
    pub fn parse(text: &str) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for line in text.lines() {
            let line = &line.replace(|one: char| one.is_control(), "?");
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            if word == "endpoint" {
                let mut words = rest.splitn(4, ' ');
                let [number, time] = [0; 2].map(|_| words.next().and_then(|word| word.parse().ok()).unwrap_or(0));
                let [provider, addr] = [0; 2].map(|_| words.next().unwrap_or("-").to_owned());
                all.push(Self { number, time, provider, addr, ..Self::default() });
            } else if let Some(last) = all.last_mut() {
                last.take_line(word, rest);
            }
        }
        all
    }

    fn take_line(&mut self, word: &str, rest: &str) {
        let words: Vec<&str> = rest.split(' ').collect();
        let counted = || rest.split_once(' ').and_then(|(count, text)| Some((text.to_owned(), count.parse().ok()?)));
        match word {
            "state" => {
                if let Some([pending, unexpected, memory, failures, connected, peers]) = numbers(&words) {
                    (self.pending, self.held.unexpected, self.held.peer_memory) = (pending, unexpected, memory);
                    (self.failures, self.connections.made, self.peers.known) = (failures, connected, peers);
                }
            }
            "queue" => self.held.queue_high_water = numbers(&words).map_or(0, |[most]| most),
            "all" => self.exchanged = numbers(&words).map_or(self.exchanged, exchanged_of),
            "ended" => self.connections.ended.extend(counted()),
            "refused" => self.connections.refused.extend(counted()),
            "peer" => self.peers.first.extend(PublishedPeer::of(&words)),
            "|" => {
                self.details.push_str(rest);
                self.details.push('\n');
            }
            _ => {}
        }
    }
}

impl PublishedPeer {
    /// An address may have spaces, the numbers behind it have none.
    fn of(words: &[&str]) -> Option<Self> {
        let (addr, rest) = words.split_at_checked(words.len().checked_sub(11)?)?;
        let [connected, is_connected, waiting] = numbers(&rest[..3])?;
        let exchanged = exchanged_of(numbers(&rest[3..])?);
        Some(Self { addr: addr.join(" "), connected, is_connected: is_connected != 0, waiting, exchanged })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::Cause;
    use proptest::prelude::*;

    fn exchanged(seed: u64) -> Exchanged {
        exchanged_of(core::array::from_fn(|at| seed.wrapping_mul(at as u64 + 1)))
    }

    fn report(seed: u64, peers: usize) -> Report {
        let addr = Some(Addr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 7471))));
        let peer = |at| PeerStatistics {
            addr: (at % 3 > 0).then_some(addr).flatten(),
            connected: seed,
            is_connected: at % 2 == 0,
            waiting: at as u64,
            exchanged: exchanged(seed),
        };
        let statistics = Statistics {
            exchanged: exchanged(seed),
            failures: seed,
            connected: 2,
            ended: vec![(Cause::Broken, seed), (Cause::Silent, 1)],
            refused: vec![("the endpoint types do not match", 3)],
            unexpected: 4,
            peer_memory: seed,
            queue_high_water: 17,
            peers: (0..peers).map(peer).collect(),
        };
        let (known_peers, details) = (peers as u64 + 1, "a line\nanother\n".to_owned());
        Report { provider: "tcp", addr, statistics, known_peers, pending: 9, details }
    }

    #[test]
    fn what_is_written_is_read() {
        for (seed, peers) in [(0, 0), (1, 3), (u64::MAX, MOST)] {
            let ours = report(seed, peers);
            let text = format!("a later version\nendpoint 3 99 {ours}something new\nendpoint 4 9 {}", report(5, 1));
            let theirs = Published::parse(&text);
            assert_eq!(theirs.len(), 2);
            let Report { addr, statistics, pending, details, .. } = ours;
            let read = &theirs[0];
            assert_eq!((read.number, read.time), (3, 99));
            assert_eq!((&*read.provider, read.addr.clone()), ("tcp", addr.unwrap().to_string()));
            assert_eq!(read.pending, pending);
            assert_eq!(read.held, PublishedHeld { unexpected: 4, peer_memory: seed, queue_high_water: 17 });
            assert_eq!((read.failures, read.connections.made, read.peers.known), (seed, 2, peers as u64 + 1));
            assert_eq!((read.exchanged, &read.details), (statistics.exchanged, &details));
            assert_eq!(
                read.connections.ended,
                [(Cause::Broken.text().to_owned(), seed), (Cause::Silent.text().to_owned(), 1)]
            );
            assert_eq!(read.connections.refused, [("the endpoint types do not match".to_owned(), 3)]);
            assert_eq!(read.peers.first.len(), peers);
            for (read, peer) in read.peers.first.iter().zip(&statistics.peers) {
                assert_eq!(read.addr, peer.addr.map_or_else(|| "-".to_owned(), |addr| addr.to_string()));
                assert_eq!((read.connected, read.is_connected), (peer.connected, peer.is_connected));
                assert_eq!((read.waiting, read.exchanged), (peer.waiting, peer.exchanged));
            }
        }
    }

    #[test]
    fn control_characters_are_replaced() {
        let read = Published::parse("endpoint 1 2 tcp a\u{1b}[2Jb\n| c\u{7}\n").remove(0);
        assert_eq!((&*read.addr, &*read.details), ("a?[2Jb", "c?\n"));
    }

    #[test]
    fn a_report_changes_when_something_moves() {
        let mut now = report(3, 1);
        let before = now.moved();
        assert_eq!(report(3, 2).moved(), before);
        now.statistics.exchanged.received.accesses += 1;
        assert_ne!(now.moved(), before);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(endpoint|state|all|peer|ended|refused|\\||[a-z]){0,1}[ 0-9a-z\\n|-]{0,200}") {
            Published::parse(&text);
            Published::parse(&format!("endpoint 1 2 x\n{text}"));
        }
    }
}
