//! How packets reach peers: the connection manager tells the queue pair behind an address. Pure: a
//! route is whatever the device makes of that.

use ofi_core::Instant;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// A route is asked for anew after this long, because another program may have the address now.
const FRESH: Duration = Duration::from_secs(2);
/// A peer that was not found is looked for again after this long.
const PAUSE: Duration = Duration::from_secs(1);
/// Packets that wait for a peer to be found at most.
const MOST_HELD: usize = 16;

/// The peers that packets were sent to.
#[derive(Debug)]
pub(crate) struct Peers<R> {
    known: HashMap<SocketAddr, Peer<R>>,
    /// How long a peer may take to be found.
    patience: Duration,
}

#[derive(Debug)]
struct Peer<R> {
    state: State<R>,
    /// It is a group, whose route lasts as long as the membership.
    is_group: bool,
    /// The log says that its packets are dropped.
    is_told: bool,
    /// Packets that wait for it to be found, or then for room; lost if it is not.
    held: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
enum State<R> {
    /// The connection manager looks for it.
    Sought { since: Instant, earlier: Earlier<R> },
    /// Stale: another queue pair has sent from its address.
    Found { route: R, since: Instant, is_stale: bool },
    /// It was not found.
    Lost { since: Instant },
}

/// The route of a peer that is looked for again.
#[derive(Debug)]
enum Earlier<R> {
    None,
    /// Packets go there meanwhile.
    Serves(R),
    /// Packets wait, and go there only if the answer brings nothing better.
    Stale(R),
}

/// What to do with a packet.
#[derive(Debug)]
pub(crate) enum Way<'a, R> {
    /// Send it behind the packets that wait.
    Route(&'a R),
    /// The peer is being looked for.
    Wait,
    /// Drop it: the peer was not found.
    Lost,
}

/// What to do about a peer before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Look for it.
    Start,
    /// Stop looking: it has taken too long.
    Stop,
    Nothing,
}

impl<R> Peers<R> {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { known: HashMap::new(), patience }
    }

    /// A packet is to be sent to `to`: what to do about the peer first.
    pub(crate) fn ask(&mut self, to: SocketAddr, now: Instant) -> Ask {
        let peer = match self.known.entry(to) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let state = State::Sought { since: now, earlier: Earlier::None };
                entry.insert(Peer { state, is_group: false, is_told: false, held: VecDeque::new() });
                return Ask::Start;
            }
        };
        let is_due = match peer.state {
            _ if peer.is_group => false,
            State::Sought { since, .. } if now.since(since) >= self.patience => return Ask::Stop,
            State::Sought { .. } => false,
            State::Found { since, is_stale, .. } => is_stale || now.since(since) >= FRESH,
            State::Lost { since } => now.since(since) >= PAUSE,
        };
        if !is_due {
            return Ask::Nothing;
        }
        let earlier = match core::mem::replace(&mut peer.state, State::Lost { since: now }) {
            State::Found { route, is_stale: true, .. } => Earlier::Stale(route),
            State::Found { route, .. } => Earlier::Serves(route),
            State::Sought { .. } | State::Lost { .. } => Earlier::None,
        };
        peer.state = State::Sought { since: now, earlier };
        Ask::Start
    }

    /// A group is being joined: packets wait for it as for a peer that is looked for.
    pub(crate) fn join(&mut self, group: SocketAddr, now: Instant) {
        let state = State::Sought { since: now, earlier: Earlier::None };
        self.known.insert(group, Peer { state, is_group: true, is_told: false, held: VecDeque::new() });
    }

    /// A group is left; returns its route.
    pub(crate) fn leave(&mut self, group: &SocketAddr) -> Option<R> {
        self.known.remove(group)?.state.into_route()
    }

    /// How a packet reaches `to`, for which [`Self::ask`] was called.
    pub(crate) fn way(&self, to: &SocketAddr) -> Way<'_, R> {
        self.known.get(to).map_or(Way::Wait, |peer| peer.state.way())
    }

    /// Keeps a packet until the peer is found; false if too many wait.
    pub(crate) fn hold(&mut self, to: &SocketAddr, packet: Vec<u8>) -> bool {
        let Some(peer) = self.known.get_mut(to).filter(|peer| peer.held.len() < MOST_HELD) else { return false };
        peer.held.push_back(packet);
        true
    }

    /// The first packet that waits for a peer, and the way there.
    pub(crate) fn first_held(&self, to: &SocketAddr) -> Option<(&[u8], &R)> {
        let peer = self.known.get(to)?;
        match peer.state.way() {
            Way::Route(route) => Some((peer.held.front()?, route)),
            Way::Wait | Way::Lost => None,
        }
    }

    /// That packet was sent.
    pub(crate) fn drop_first_held(&mut self, to: &SocketAddr) {
        if let Some(peer) = self.known.get_mut(to) {
            peer.held.pop_front();
        }
    }

    /// The peer is found; returns its earlier route.
    pub(crate) fn found(&mut self, to: &SocketAddr, route: R, now: Instant) -> Option<R> {
        let Some(peer) = self.known.get_mut(to) else { return Some(route) };
        peer.is_told = false;
        let state = State::Found { route, since: now, is_stale: false };
        core::mem::replace(&mut peer.state, state).into_route()
    }

    /// The peer is not found. If that is certain (`is_final`), as when its host says that nothing
    /// listens there, its earlier route, which it returns, is no longer used.
    pub(crate) fn lost(&mut self, to: &SocketAddr, is_final: bool, now: Instant) -> Option<R> {
        let peer = self.known.get_mut(to)?;
        match core::mem::replace(&mut peer.state, State::Lost { since: now }).into_route() {
            Some(route) if !is_final => {
                peer.state = State::Found { route, since: now, is_stale: false };
                None
            }
            earlier => {
                peer.held.clear();
                earlier
            }
        }
    }

    /// Whether to tell that packets to a peer are dropped: once, until it is found.
    pub(crate) fn tells_of(&mut self, to: &SocketAddr) -> bool {
        let lost = self.known.get_mut(to).filter(|peer| matches!(peer.state, State::Lost { .. }));
        lost.is_some_and(|peer| !core::mem::replace(&mut peer.is_told, true))
    }

    /// A packet has come from that address. If the route leads elsewhere, it is stale.
    pub(crate) fn heard(&mut self, from: &SocketAddr, is_same: impl FnOnce(&R) -> bool) {
        if let Some(Peer { state: State::Found { route, is_stale, .. }, is_group: false, .. }) =
            self.known.get_mut(from)
            && !is_same(route)
        {
            *is_stale = true;
        }
    }
}

impl<R> State<R> {
    const fn way(&self) -> Way<'_, R> {
        match self {
            Self::Sought { earlier: Earlier::Serves(route), .. } | Self::Found { route, is_stale: false, .. } => {
                Way::Route(route)
            }
            Self::Sought { .. } | Self::Found { .. } => Way::Wait,
            Self::Lost { .. } => Way::Lost,
        }
    }

    fn into_route(self) -> Option<R> {
        match self {
            Self::Found { route, .. }
            | Self::Sought { earlier: Earlier::Serves(route) | Earlier::Stale(route), .. } => Some(route),
            Self::Sought { earlier: Earlier::None, .. } | Self::Lost { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn peer() -> SocketAddr {
        ([10, 9, 0, 1], 7000).into()
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    fn found() -> Peers<u32> {
        let mut peers = Peers::new(PATIENCE);
        assert_eq!(peers.ask(peer(), at(0)), Ask::Start);
        assert_eq!(peers.found(&peer(), 1, at(0)), None);
        peers
    }

    #[test]
    fn packets_wait_until_the_peer_is_found() {
        let mut peers = Peers::new(PATIENCE);
        assert_eq!(peers.ask(peer(), at(0)), Ask::Start);
        assert!(matches!(peers.way(&peer()), Way::Wait));
        assert_eq!(peers.ask(peer(), at(1)), Ask::Nothing);
        assert_eq!(peers.found(&peer(), 1, at(2)), None);
        assert!(matches!(peers.way(&peer()), Way::Route(1)));
        assert_eq!(peers.ask(peer(), at(3)), Ask::Nothing);
    }

    #[test]
    fn a_peer_that_is_not_found_is_looked_for_again_after_a_pause() {
        let mut peers = Peers::<u32>::new(PATIENCE);
        peers.ask(peer(), at(0));
        assert_eq!(peers.ask(peer(), at(10)), Ask::Stop);
        peers.lost(&peer(), false, at(10));
        assert_eq!(peers.ask(peer(), at(10)), Ask::Nothing);
        assert!(matches!(peers.way(&peer()), Way::Lost));
        assert_eq!(peers.ask(peer(), at(11)), Ask::Start);
        assert!(matches!(peers.way(&peer()), Way::Wait));
    }

    #[test]
    fn a_route_serves_while_a_newer_one_is_asked_for() {
        let mut peers = found();
        assert_eq!(peers.ask(peer(), at(2)), Ask::Start);
        assert!(matches!(peers.way(&peer()), Way::Route(1)));
        // The peer does not answer; it may be busy.
        assert_eq!(peers.ask(peer(), at(12)), Ask::Stop);
        assert_eq!(peers.lost(&peer(), false, at(12)), None);
        assert!(matches!(peers.way(&peer()), Way::Route(1)));
        assert_eq!(peers.ask(peer(), at(14)), Ask::Start);
        assert_eq!(peers.found(&peer(), 2, at(14)), Some(1));
        assert!(matches!(peers.way(&peer()), Way::Route(2)));
    }

    #[test]
    fn a_peer_that_has_gone_loses_its_route() {
        let mut peers = found();
        peers.ask(peer(), at(2));
        assert!(!peers.tells_of(&peer()), "it has its route");
        assert_eq!(peers.lost(&peer(), true, at(2)), Some(1));
        assert!(matches!(peers.way(&peer()), Way::Lost));
        assert!(peers.tells_of(&peer()));
        assert!(!peers.tells_of(&peer()), "once");
        peers.found(&peer(), 2, at(3));
        peers.lost(&peer(), true, at(5));
        assert!(peers.tells_of(&peer()));
    }

    #[test]
    fn a_packet_from_another_queue_pair_makes_a_route_stale() {
        let mut peers = found();
        peers.heard(&peer(), |route| *route == 1);
        assert_eq!(peers.ask(peer(), at(0)), Ask::Nothing);
        peers.heard(&peer(), |route| *route == 2);
        assert_eq!(peers.ask(peer(), at(0)), Ask::Start);
        assert!(matches!(peers.way(&peer()), Way::Wait));
        assert_eq!(peers.lost(&peer(), false, at(1)), None);
        assert!(matches!(peers.way(&peer()), Way::Route(1)), "no other route is known");
        // Addresses that nothing was sent to are not kept.
        peers.heard(&([10, 9, 0, 2], 1).into(), |_| false);
        assert_eq!(peers.known.len(), 1);
    }

    #[test]
    fn packets_wait_for_a_peer_in_order_and_are_lost_with_it() {
        let mut peers = Peers::new(PATIENCE);
        peers.ask(peer(), at(0));
        assert!([0; MOST_HELD].iter().zip(0..).all(|(_, number)| peers.hold(&peer(), vec![number])));
        assert!(!peers.hold(&peer(), Vec::new()), "too many wait");
        assert_eq!(peers.first_held(&peer()), None);
        peers.found(&peer(), 1, at(1));
        assert_eq!(peers.first_held(&peer()), Some((&[0][..], &1)));
        peers.drop_first_held(&peer());
        assert_eq!(peers.first_held(&peer()), Some((&[1][..], &1)));
        peers.lost(&peer(), true, at(2));
        assert_eq!(peers.first_held(&peer()), None);
        peers.found(&peer(), 2, at(3));
        assert_eq!(peers.first_held(&peer()), None);
    }

    #[test]
    fn the_route_to_a_group_lasts_until_it_is_left() {
        let mut peers = Peers::new(PATIENCE);
        peers.join(peer(), at(0));
        assert_eq!(peers.ask(peer(), at(20)), Ask::Nothing, "the network has all the time that it needs");
        assert!(peers.hold(&peer(), vec![1]));
        peers.found(&peer(), 1, at(20));
        assert_eq!(peers.first_held(&peer()), Some((&[1][..], &1)));
        assert_eq!(peers.ask(peer(), at(90)), Ask::Nothing);
        // A packet may lie about its sender.
        peers.heard(&peer(), |_| false);
        assert!(matches!(peers.way(&peer()), Way::Route(1)));
        assert_eq!(peers.leave(&peer()), Some(1));
        assert_eq!(peers.leave(&peer()), None);
    }

    #[test]
    fn an_answer_for_an_unknown_peer_is_given_back() {
        let mut peers = Peers::new(PATIENCE);
        assert_eq!(peers.found(&peer(), 3, at(0)), Some(3));
        assert_eq!(peers.lost(&peer(), true, at(0)), None);
    }
}
