//! What an endpoint has done since it was opened, in all and with each peer. The data path adds to
//! counts of its links, under the endpoint's lock; `Endpoint::statistics` adds them up.

use core::ops::AddAssign;
use ofi_core::{Addr, Cause};

/// What has crossed links in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages, of applications and of collective operations.
    pub messages: u64,
    /// Their bytes. The beginning of a long message for a buffered receive (FI_BUFFERED_RECV)
    /// crosses twice, and counts twice.
    pub message_bytes: u64,
    /// One-sided operations: those whose memory is at the receiving end of this direction.
    pub accesses: u64,
    /// The bytes that they have read or written.
    pub access_bytes: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        let Self { messages, message_bytes, accesses, access_bytes } = other;
        self.messages += messages;
        self.message_bytes += message_bytes;
        self.accesses += accesses;
        self.access_bytes += access_bytes;
    }
}

/// Both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// From this endpoint.
    pub sent: Traffic,
    /// To this endpoint.
    pub received: Traffic,
}

impl AddAssign for Exchanged {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

/// What an endpoint has done with a peer that it still knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatistics {
    /// The peer's address; `None` if it has not proven one.
    pub addr: Option<Addr>,
    /// How often a connection to it, or from it, was made.
    pub connected: u64,
    /// Whether there is one now.
    pub is_connected: bool,
    /// Operations that wait for a connection or for credit.
    pub waiting: u64,
    /// What was exchanged with it.
    pub exchanged: Exchanged,
}

/// What an endpoint has done since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// What was exchanged with all peers, also with those that are gone.
    pub exchanged: Exchanged,
    /// Operations that have failed.
    pub failures: u64,
    /// Connections that were made.
    pub connected: u64,
    /// Connections that have ended or could not be made, by cause, without those that gave way to
    /// another connection with the same peer.
    pub ended: Vec<(Cause, u64)>,
    /// Connect requests that were refused, by the reason that the peer was given.
    pub refused: Vec<(&'static str, u64)>,
    /// Messages that wait for a receive.
    pub unexpected: u64,
    /// Bytes of memory that is held for peers: unexpected messages, and credit beyond what each
    /// peer always has.
    pub peer_memory: u64,
    /// The most completions that waited to be read at a time, in the longer one of its queues.
    pub queue_high_water: u64,
    /// The peers that it knows.
    pub peers: Vec<PeerStatistics>,
}

/// Adds one to the count of a key.
pub(crate) fn count<K: PartialEq>(counts: &mut Vec<(K, u64)>, key: K) {
    match counts.iter_mut().find(|(other, _)| *other == key) {
        Some((_, count)) => *count += 1,
        None => counts.push((key, 1)),
    }
}
