//! Links from transmit contexts of scalable endpoints (fi_endpoint(3)). Such a link carries only
//! the operations of its context: this side's operations have a link of their own. All transmit
//! contexts of an address are one peer, so a receive that names it takes the messages of them all.

use super::Peers;
use super::handshake::Initiator;
use super::link::Purpose;
use super::table::{PeerId, Senders};
use crate::hash::HashMap;
use crate::transport::{Down, LinkId, Verdict};
use crate::wire::hello::{Contexts, Handshake, Hello};
use ofi_core::{Cause, Errno};

/// The links from transmit contexts, by peer and by [`Contexts::transmit`].
///
/// [`Contexts::transmit`]: crate::wire::hello::Contexts::transmit
#[derive(Debug, Default)]
pub(crate) struct ContextLinks(HashMap<(PeerId, u16), LinkId>);

impl ContextLinks {
    /// Forgets a link that is gone.
    pub(super) fn forget(&mut self, peer: PeerId, transmit: u16, id: LinkId) {
        if self.0.get(&(peer, transmit)) == Some(&id) {
            self.0.remove(&(peer, transmit));
        }
    }
}

impl Peers {
    /// Why this endpoint refuses a hello: it transmits only, or is another receive context.
    pub(crate) fn is_elsewhere(&self, hello: &Hello) -> Option<&'static str> {
        let Contexts { transmit, receive } = self.myself.contexts;
        (transmit > 0 || hello.contexts.receive != receive).then_some(NO_CONTEXT)
    }

    /// Accepts a link from a transmit context; it replaces an earlier link from the same context. A
    /// link from an earlier context of that index stays until it ends: it may carry messages that
    /// are complete at their sender. If the connection does not prove the context's name, the link
    /// gets a peer of its own, and its messages have no source.
    pub(crate) fn accept_context(
        &mut self,
        hello: &Hello,
        initiator: &Initiator,
        senders: &mut impl Senders,
    ) -> Verdict {
        let (id, name, transmit) = (initiator.link, initiator.name, hello.contexts.transmit);
        let purpose = if initiator.proven { Purpose::Carry } else { Purpose::Unproven(name) };
        let peer = if initiator.proven { self.peer_at(name, senders) } else { self.add_peer(None, senders) };
        if let Some(&old) = self.contexts.0.get(&(peer, transmit))
            && let Some(known) = self.link(old).map(|link| &link.identity)
            && known.nonce == hello.nonce
        {
            if hello.attempt <= known.attempt {
                return self.refuse(Handshake::Crossing, "a later connection of the context is used");
            }
            let text = format!("{name}: the peer's transmit context connected anew from {}", initiator.from);
            self.abort_link(old, Some(Down::new(Cause::Broken, Errno::ECONNRESET, text)));
        }
        let answer = self.add_accepted(id, peer, hello, &initiator.from, purpose);
        if let Some(link) = self.link(id) {
            link.identity.transmit = transmit;
        }
        self.contexts.0.insert((peer, transmit), id);
        self.mark_pending(id);
        Verdict::Accept(answer)
    }
}

/// The reason for the refusal if the endpoint has no such receive context.
pub(crate) const NO_CONTEXT: &str = "the endpoint has no receive context of that index";
