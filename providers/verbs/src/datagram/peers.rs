//! How packets reach peers: the connection manager tells the queue pair behind an address. Pure: a
//! route is whatever the device makes of that.

use ofi_core::Instant;
use ofi_engine::transport::Down;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A route is asked for anew after this long, because another program may have the address now.
const FRESH: Duration = Duration::from_secs(2);
/// A peer that was not found is looked for again after this long.
const PAUSE: Duration = Duration::from_secs(1);

/// The peers that packets were sent to.
#[derive(Debug)]
pub(crate) struct Peers<R> {
    known: HashMap<SocketAddr, Peer<R>>,
    /// How long a peer may take to be found.
    patience: Duration,
}

/// A peer. Without a route, and not asked for, it is lost.
#[derive(Debug)]
struct Peer<R> {
    route: Option<R>,
    /// Since when the connection manager looks for it.
    asked: Option<Instant>,
    /// When that ended the last time.
    answered: Instant,
    /// Another queue pair has sent from its address.
    is_stale: bool,
    why: Option<Down>,
}

/// What to do with a packet.
#[derive(Debug)]
pub(crate) enum Way<'a, R> {
    /// Send it.
    Route(&'a R),
    /// Try again later: the peer is being looked for.
    Wait,
    /// It cannot be sent.
    Lost(&'a Down),
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
        let new = || Peer { route: None, asked: Some(now), answered: now, is_stale: false, why: None };
        let mut is_new = false;
        let peer = self.known.entry(to).or_insert_with(|| {
            is_new = true;
            new()
        });
        if is_new {
            return Ask::Start;
        }
        match peer.asked {
            Some(since) if now.since(since) >= self.patience => Ask::Stop,
            Some(_) => Ask::Nothing,
            None => {
                let pause = if peer.route.is_some() { FRESH } else { PAUSE };
                if !peer.is_stale && now.since(peer.answered) < pause {
                    return Ask::Nothing;
                }
                (peer.asked, peer.is_stale) = (Some(now), false);
                Ask::Start
            }
        }
    }

    /// How a packet reaches `to`, for which [`Self::ask`] was called.
    pub(crate) fn way(&self, to: &SocketAddr) -> Way<'_, R> {
        match self.known.get(to) {
            Some(Peer { route: Some(route), .. }) => Way::Route(route),
            Some(Peer { asked: None, why: Some(why), .. }) => Way::Lost(why),
            _ => Way::Wait,
        }
    }

    /// The peer is found; returns its earlier route.
    pub(crate) fn found(&mut self, to: &SocketAddr, route: R, now: Instant) -> Option<R> {
        let Some(peer) = self.known.get_mut(to) else { return Some(route) };
        (peer.asked, peer.answered, peer.why) = (None, now, None);
        peer.route.replace(route)
    }

    /// The peer is not found. If that is certain (`is_final`), as when its host says that nothing
    /// listens there, its earlier route, which it returns, is no longer used.
    pub(crate) fn lost(&mut self, to: &SocketAddr, why: Down, is_final: bool, now: Instant) -> Option<R> {
        let peer = self.known.get_mut(to)?;
        (peer.asked, peer.answered, peer.why) = (None, now, Some(why));
        if is_final { peer.route.take() } else { None }
    }

    /// A packet has come from that address. If the route leads elsewhere, it is asked for anew.
    pub(crate) fn heard(&mut self, from: &SocketAddr, is_same: impl FnOnce(&R) -> bool) {
        if let Some(peer) = self.known.get_mut(from)
            && peer.route.as_ref().is_some_and(|route| !is_same(route))
        {
            peer.is_stale = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::{Cause, Errno};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn peer() -> SocketAddr {
        ([10, 9, 0, 1], 7000).into()
    }

    fn down() -> Down {
        Down::new(Cause::Connect, Errno::ECONNREFUSED, "nothing listens there")
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
        peers.lost(&peer(), down(), false, at(10));
        assert_eq!(peers.ask(peer(), at(10)), Ask::Nothing);
        assert!(matches!(peers.way(&peer()), Way::Lost(why) if why.errno == Errno::ECONNREFUSED));
        assert_eq!(peers.ask(peer(), at(11)), Ask::Start);
        assert!(matches!(peers.way(&peer()), Way::Wait));
    }

    #[test]
    fn a_route_serves_while_a_newer_one_is_asked_for() {
        let mut peers = found();
        assert_eq!(peers.ask(peer(), at(2)), Ask::Start);
        assert!(matches!(peers.way(&peer()), Way::Route(1)));
        // Nobody has answered: the peer may be busy.
        assert_eq!(peers.ask(peer(), at(12)), Ask::Stop);
        assert_eq!(peers.lost(&peer(), down(), false, at(12)), None);
        assert!(matches!(peers.way(&peer()), Way::Route(1)));
        assert_eq!(peers.ask(peer(), at(14)), Ask::Start);
        assert_eq!(peers.found(&peer(), 2, at(14)), Some(1));
        assert!(matches!(peers.way(&peer()), Way::Route(2)));
    }

    #[test]
    fn a_peer_that_has_gone_loses_its_route() {
        let mut peers = found();
        peers.ask(peer(), at(2));
        assert_eq!(peers.lost(&peer(), down(), true, at(2)), Some(1));
        assert!(matches!(peers.way(&peer()), Way::Lost(_)));
    }

    #[test]
    fn a_packet_from_another_queue_pair_makes_a_route_stale() {
        let mut peers = found();
        peers.heard(&peer(), |route| *route == 1);
        assert_eq!(peers.ask(peer(), at(0)), Ask::Nothing);
        peers.heard(&peer(), |route| *route == 2);
        assert_eq!(peers.ask(peer(), at(0)), Ask::Start);
        // Addresses that nothing was sent to are not kept.
        peers.heard(&([10, 9, 0, 2], 1).into(), |_| false);
        assert_eq!(peers.known.len(), 1);
    }

    #[test]
    fn an_answer_for_an_unknown_peer_is_given_back() {
        let mut peers = Peers::new(PATIENCE);
        assert_eq!(peers.found(&peer(), 3, at(0)), Some(3));
        assert_eq!(peers.lost(&peer(), down(), true, at(0)), None);
    }
}
