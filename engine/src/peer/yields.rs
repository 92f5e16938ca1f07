//! Peers to which this side's connect has given way, and when to stop waiting for their own
//! connections.

use super::table::{PeerId, PeerState, PeerTable, Yielding};
use ofi_core::Instant;
use std::time::Duration;

/// After this side's connect gives way to the peer's, how long to wait for the peer's connection
/// before trying again.
const YIELD: Duration = Duration::from_secs(1);

/// When a peer is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// The next poll has work.
    Now,
    /// At this time.
    At(Instant),
}

/// The yielding peers. May name peers that yield no longer.
#[derive(Debug, Default)]
pub(crate) struct Yields(Vec<PeerId>);

impl Yields {
    pub(crate) fn add(&mut self, peer: PeerId) {
        if !self.0.contains(&peer) {
            self.0.push(peer);
        }
    }

    /// Starts the waits that have begun. Returns the peers for which they are over, with the number
    /// of times that each was asked and denied the links that claim its name.
    pub(crate) fn tick(&mut self, peers: &mut PeerTable, now: Instant) -> Vec<(PeerId, u8)> {
        let mut over = Vec::new();
        self.0.retain(|&id| {
            let Some(PeerState::Yielding(until)) = peers.get_mut(id).map(|peer| &mut peer.state) else { return false };
            match *until {
                Yielding::Begun => *until = Yielding::Until(now + YIELD),
                Yielding::Until(end) if now < end => {}
                Yielding::Until(_) | Yielding::Over => over.push((id, 0)),
                Yielding::Denied(times) => over.push((id, times)),
            }
            matches!(until, Yielding::Until(end) if now < *end)
        });
        over
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When [`Self::tick`] next has work.
    pub(crate) fn next_due(&self, peers: &PeerTable) -> Option<Due> {
        let due = |id: &PeerId| match peers.get(*id)?.state {
            PeerState::Yielding(Yielding::Until(until)) => Some(Due::At(until)),
            PeerState::Yielding(Yielding::Begun | Yielding::Over | Yielding::Denied(_)) => Some(Due::Now),
            PeerState::Idle | PeerState::Connecting(_) | PeerState::Open(_) => None,
        };
        self.0.iter().filter_map(due).min()
    }
}
