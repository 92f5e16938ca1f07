//! Connection management of connected endpoints (fi_cm(3)).

use super::Endpoint;
use super::life::Life;
use crate::transport::{ConnectRequest, Down, Transport, Verdict};
use crate::wire::hello::MAX_USER_DATA;
use ofi_core::error::Result;
use ofi_core::{Addr, Cause, Errno, Error};
use ofi_sync::lock::LockKind;
use std::sync::Arc;

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// The peer of a connected endpoint (fi_getpeer(3)).
    pub fn peer_addr(&self) -> Result<Addr> {
        let peer = K::lock(&self.inner).core.connected_peer();
        peer.ok_or_else(|| Error::new(Errno::ENOTCONN, "look up the peer of an endpoint that has none"))
    }

    /// Starts connecting (fi_connect(3)). An event reports the outcome.
    pub fn connect(self: &Arc<Self>, to: Addr, data: &[u8]) -> Result<()> {
        self.begin_connection(data)?;
        let mut inner = K::lock(&self.inner);
        let (transport, core) = inner.opened()?;
        core.connect(transport, to, data)?;
        drop(inner);
        self.mark_ready();
        Ok(())
    }

    /// Accepts a connection request of a passive endpoint (fi_accept(3)).
    pub fn accept(self: &Arc<Self>, asked: ConnectRequest<T::Request>, data: &[u8]) -> Result<()> {
        self.begin_connection(data)?;
        let mut inner = K::lock(&self.inner);
        let (transport, core) = inner.opened()?;
        core.accept(transport, asked, data)?;
        drop(inner);
        self.mark_ready();
        Ok(())
    }

    /// Answers a connect request that came to the scalable endpoint of this context. `vouches` is
    /// as for [`LinkEvents::handle_connect_request`].
    ///
    /// # Errors
    /// The refused request, and the hello that refuses it.
    ///
    /// [`LinkEvents::handle_connect_request`]: crate::transport::LinkEvents::handle_connect_request
    pub(crate) fn take_in(
        &self,
        asked: ConnectRequest<T::Request>,
        vouches: impl Fn(&Addr) -> bool,
    ) -> core::result::Result<(), (T::Request, Vec<u8>)> {
        let mut inner = K::lock(&self.inner);
        let ConnectRequest { request, hello, from, .. } = asked;
        // Closed meanwhile: the peer notices when the connection ends.
        let Ok((transport, core)) = inner.opened() else { return Ok(()) };
        let link = transport.next_link();
        match core.answer_connect_request(link, &hello, &from, vouches) {
            Verdict::Refuse(answer) => return Err((request, answer)),
            Verdict::Accept(answer) => {
                if let Err(error) = transport.accept(request, &answer) {
                    core.lose_link(link, Down::new(Cause::Broken, error.errno(), error.to_string()));
                }
            }
        }
        drop(inner);
        self.mark_ready();
        Ok(())
    }

    /// The first step of connecting and accepting: enables the endpoint. After it succeeds, only
    /// the connection itself can fail.
    ///
    /// # Errors
    /// EINVAL for more than [`MAX_USER_DATA`] bytes of data, ENOSYS for a connectionless endpoint,
    /// EOPBADSTATE for one that has been connected, and those of [`Self::enable`].
    pub fn begin_connection(self: &Arc<Self>, data: &[u8]) -> Result<()> {
        if data.len() > MAX_USER_DATA {
            return Err(Error::new(Errno::EINVAL, format!("connection data of more than {MAX_USER_DATA} bytes")));
        }
        self.enable()?;
        let inner = K::lock(&self.inner);
        if matches!(inner.core.life, Life::Connectionless(_)) {
            return Err(Error::new(Errno::ENOSYS, "connect an endpoint that is not of type FI_EP_MSG"));
        }
        if !inner.core.life.is_new() || inner.core.peers.table.len() > 0 {
            return Err(Error::new(Errno::EOPBADSTATE, "connect an endpoint twice"));
        }
        Ok(())
    }

    /// Shuts the connection down (fi_shutdown(3)): gracefully unless that would leave operations
    /// unfinished.
    pub fn shut_down(&self) -> core::result::Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        let Ok((transport, core)) = inner.opened() else { return Err(Errno::ENOTCONN) };
        core.shut_down(transport)?;
        inner.flush_all();
        inner.core.end_unfinished();
        inner.flush_all();
        drop(inner);
        // Keep polling for the peer's shutdown.
        self.mark_ready();
        Ok(())
    }
}
