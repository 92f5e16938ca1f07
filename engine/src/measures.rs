//! What fi_profile(3) reports of an endpoint: states that it has anyway and counts that are always
//! on, read when they are asked for.

use crate::statistics::{Exchanged, Statistics};
use ofi_core::{Completion, Errno};

/// The measures of an endpoint, or of all endpoints of a domain together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// How many messages wait for a receive.
    pub unexpected: u64,
    /// These messages, if they were asked for: those without a tag first, each kind oldest first.
    pub messages: Vec<Completion>,
    /// Open connections.
    pub connections: u64,
    /// Bytes of memory that is held for peers.
    pub peer_memory: u64,
    /// What has happened so far.
    pub counts: Counts,
    /// The most completions that waited to be read at a time.
    pub queue_high_water: u64,
}

/// Counts, which only rise; those of a domain are of the endpoints that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What was exchanged with all peers.
    pub exchanged: Exchanged,
    /// Operations that have failed.
    pub failures: u64,
    /// Connections that were made.
    pub connected: u64,
    /// Connections that have ended, or could not be made.
    pub ended: u64,
    /// Connect requests that were refused.
    pub refused: u64,
}

impl Counts {
    pub(crate) fn of(statistics: &Statistics) -> Self {
        let Statistics { exchanged, failures, connected, ended, refused, .. } = statistics;
        let ended = ended.iter().map(|(_, count)| count).sum();
        let refused = refused.iter().map(|(_, count)| count).sum();
        Self { exchanged: *exchanged, failures: *failures, connected: *connected, ended, refused }
    }

    /// Adds those of another endpoint.
    fn add(&mut self, other: Self) {
        let Self { exchanged, failures, connected, ended, refused } = other;
        self.exchanged += exchanged;
        self.failures += failures;
        self.connected += connected;
        self.ended += ended;
        self.refused += refused;
    }
}

impl Measures {
    /// Adds those of another endpoint.
    ///
    /// # Errors
    /// ENOMEM if there is no memory for its messages.
    pub fn add(&mut self, other: Self) -> Result<(), Errno> {
        let Self { unexpected, messages, connections, peer_memory, counts, queue_high_water } = other;
        self.messages.try_reserve(messages.len()).map_err(|_| Errno::ENOMEM)?;
        self.messages.extend(messages);
        self.unexpected += unexpected;
        self.connections += connections;
        self.peer_memory += peer_memory;
        self.counts.add(counts);
        self.queue_high_water = self.queue_high_water.max(queue_high_water);
        Ok(())
    }
}
