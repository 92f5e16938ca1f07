//! What fi_profile(3) reports of an endpoint: states that it has anyway, read when they are asked
//! for. No operation counts for them.

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
}

impl Measures {
    /// Adds those of another endpoint.
    ///
    /// # Errors
    /// ENOMEM if there is no memory for its messages.
    pub fn add(&mut self, other: Self) -> Result<(), Errno> {
        let Self { unexpected, messages, connections, peer_memory } = other;
        self.messages.try_reserve(messages.len()).map_err(|_| Errno::ENOMEM)?;
        self.messages.extend(messages);
        self.unexpected += unexpected;
        self.connections += connections;
        self.peer_memory += peer_memory;
        Ok(())
    }
}
