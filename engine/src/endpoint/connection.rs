//! The connection of a connected endpoint: made, shut down, ended (fi_cm(3)).

use super::connected::{Connected, PEER};
use super::core::Core;
use super::life::Life;
use crate::completion::eq::EventKind;
use crate::peer::link::Coming;
use crate::peer::table::PeerState;
use crate::transport::{ConnectRequest, Down, LinkId, Transport};
use crate::wire::hello::Hello;
use ofi_core::error::Result;
use ofi_core::{Addr, Cause, Errno};
use ofi_sync::lock::LockKind;

impl<K: LockKind> Core<K> {
    /// Starts to connect. An error changes nothing, and the application may try again.
    pub(super) fn connect<T: Transport>(&mut self, transport: &mut T, to: Addr, data: &[u8]) -> Result<()> {
        let mut rx = self.rx.lock();
        let peer = self.peers.add_only_peer(to, &mut *rx);
        let begun = self.peers.connect(transport, peer, data.to_vec());
        if begun.is_err() {
            self.peers.drop_peer(peer, &mut *rx);
        }
        begun
    }

    /// Accepts a connection request of a passive endpoint. An error changes nothing, and another
    /// request may be accepted.
    pub(super) fn accept<T: Transport>(
        &mut self,
        transport: &mut T,
        asked: ConnectRequest<T::Request>,
        data: &[u8],
    ) -> Result<()> {
        self.peers.accept(transport, asked, data.to_vec(), &mut *self.rx.lock())?;
        self.life = Life::Connected(Connected::Open);
        self.event(EventKind::Connected(Vec::new()));
        Ok(())
    }

    /// The peer has accepted the connection.
    pub(super) fn connection_made(&mut self, hello: Hello) {
        self.life = Life::Connected(Connected::Open);
        self.event(EventKind::Connected(hello.data));
    }

    /// The peer's application has rejected the connection, with data.
    pub(super) fn connection_rejected(&mut self, why: &Down, data: Vec<u8>) {
        let Down { cause, errno, text } = why.clone();
        self.event(EventKind::Failed { errno, cause, text, data });
        if self.life != Life::Connected(Connected::Closing) {
            self.life = Life::Connected(Connected::Ended);
        }
    }

    /// The link has ended: everything posted on the endpoint ends too.
    pub(super) fn connection_ended(&mut self, state: Connected, why: &Down) {
        if state == Connected::Closing {
            return;
        }
        let is_finished = state == Connected::ShutDown;
        self.life = Life::Connected(if is_finished { Connected::Finished } else { Connected::Ended });
        self.rx.lock().fail_all_posted(&mut self.out, why);
        if let Some(event) = state.end_event(why) {
            self.event(event);
        }
    }

    /// Begins to shut a connection down (fi_shutdown(3)): sends within credit leave, then Bye; the
    /// rest fails. An event reports the peer's shutdown.
    pub(super) fn shut_down<T: Transport>(&mut self, transport: &mut T) -> core::result::Result<(), Errno> {
        let id = match self.life {
            Life::Connectionless(_) => return Err(Errno::ENOSYS),
            // The peer shut down first.
            Life::Connected(Connected::Ended | Connected::Finished) => {
                self.life = Life::Connected(Connected::Finished);
                return Ok(());
            }
            Life::Connected(Connected::ShutDown) => return Err(Errno::ENOTCONN),
            Life::Connected(_) => self.connection().ok_or(Errno::ENOTCONN)?,
        };
        let Self { peers, tx, out, .. } = self;
        tx.pump(peers, out, transport, id);
        let why = Down::new(Cause::LocalClosed, Errno::ECANCELED, Cause::LocalClosed.text());
        self.life = Life::Connected(Connected::ShutDown);
        let Self { peers, tx, rx, out, .. } = self;
        rx.lock().fail_all_posted(out, &why);
        tx.fail_waiting(peers, out, PEER, &why);
        tx.fail_unanswered(peers, out, &why);
        rx.lock().fail_rendezvous(peers, out, id, &why);
        let _ = peers.shut_down(transport, id);
        Ok(())
    }

    /// Ends a connection that was shut down if the transport still holds memory of operations:
    /// what fi_shutdown cancels it reports before it returns, and then the memory is the
    /// program's. The peer's part of these operations fails.
    pub(super) fn end_unfinished(&mut self) {
        let Some(id) = self.connection().filter(|_| self.life == Life::Connected(Connected::ShutDown)) else { return };
        let Some(link) = self.peers.links.get(id) else { return };
        let arrives = match link.rx.coming {
            Some(Coming::Receive { .. }) => true,
            // The library's own memory, but a receive may wait for it.
            Some(Coming::Unexpected { key }) => self.rx.lock().is_claimed(key),
            Some(Coming::Data { .. } | Coming::Dropped | Coming::Response { .. } | Coming::Access) | None => false,
        };
        if arrives || !link.tx.sends.is_empty() || !link.rx.rendezvous.is_empty() {
            let text = "the connection was shut down in the middle of a message";
            self.peers.abort_link(id, Some(Down::new(Cause::LocalClosed, Errno::ECANCELED, text)));
        }
    }

    /// The link, while the endpoint is connected.
    fn connection(&self) -> Option<LinkId> {
        match self.peers.state_of(PEER) {
            PeerState::Open(id) => Some(id),
            PeerState::Idle | PeerState::Connecting(_) | PeerState::Yielding(_) => None,
        }
    }

    /// The peer's address, while the endpoint is connected.
    pub(super) fn connected_peer(&self) -> Option<Addr> {
        self.connection()?;
        self.peers.addr_of(PEER)
    }
}
