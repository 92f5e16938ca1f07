//! Links whose peers claim a name without proof. `handshake.rs` says when a name is proven.

use super::Peers;
use super::handshake::COOKIE;
use super::link::Link;
use super::table::{PeerId, PeerState, Yielding};
use crate::hash::HashMap;
use crate::transport::LinkId;
use crate::wire::hello::MAX_USER_DATA;
use ofi_core::Addr;

/// Maximum number of claims to one name: as many cookies as fit into one Verify hello.
const MOST_CLAIMS: usize = MAX_USER_DATA / COOKIE;

/// For each name the latest claim of each host.
#[derive(Debug, Default)]
pub(crate) struct Claims(HashMap<Addr, Vec<LinkId>>);

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a link claims the name.
    pub(crate) fn has(&self, name: &Addr) -> bool {
        self.0.contains_key(name)
    }

    /// The links that claim the name.
    pub(crate) fn of(&self, name: &Addr) -> &[LinkId] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Adds a claim, unless there are too many.
    pub(crate) fn add(&mut self, name: Addr, id: LinkId) {
        let claims = self.0.entry(name).or_default();
        if claims.len() < MOST_CLAIMS {
            claims.push(id);
        }
    }

    fn retain(&mut self, name: Addr, stays: impl Fn(LinkId) -> bool) {
        let Some(claims) = self.0.get_mut(&name) else { return };
        claims.retain(|id| stays(*id));
        if claims.is_empty() {
            self.0.remove(&name);
        }
    }
}

impl Peers {
    /// Whether posted receives take the slow path: a blocked peer or a claim may depend on them.
    pub(crate) fn watches_receives(&self) -> bool {
        self.shortage.is_any() || !self.claims.is_empty()
    }

    /// Whether a link claims a peer's name.
    pub(crate) fn is_claimed(&self, peer: PeerId) -> bool {
        self.addr_of(peer).is_some_and(|name| self.claims.has(&name))
    }

    /// Drops claims to a name. Their links stay, without a source.
    pub(crate) fn drop_claims(&mut self, name: Addr, which: impl Fn(LinkId, &Link) -> bool) {
        let Self { claims, links, .. } = self;
        claims.retain(name, |id| links.get(id).is_some_and(|link| !which(id, link)));
    }

    /// [`Self::await_peer`] for all owners of claimed names from which a receive `is_awaited`.
    pub(crate) fn await_claimed(&mut self, is_awaited: impl Fn(u32) -> bool) {
        let owners = self.claims.0.keys().filter_map(|name| self.table.at(name));
        let owners: Vec<PeerId> =
            owners.filter(|peer| self.table.get(*peer).is_some_and(|peer| is_awaited(peer.sender))).collect();
        owners.into_iter().for_each(|peer| self.await_peer(peer));
    }

    /// A receive was posted that only this peer can fill. A link that claims the peer's name may
    /// carry the message, so ask the peer, once about each claim.
    #[cold]
    pub(crate) fn await_peer(&mut self, peer: PeerId) {
        let Some(name) = self.addr_of(peer) else { return };
        let is_new = |id: &LinkId| self.links.get(*id).is_some_and(|link| !link.identity.asked);
        if self.claims.of(&name).iter().any(is_new) && self.state_of(peer) == PeerState::Idle {
            self.yield_to(peer, Yielding::Over);
        }
    }
}
