//! Multicast groups of datagram endpoints.

use crate::av::{AddressVector, Peer};
use crate::dgram::DatagramEndpoint;
use crate::events::Subscription;
use core::fmt;
use ofi_core::error::Result;
use ofi_core::{Addr, FiAddr};
use ofi_engine::completion::eq::EventKind;
use ofi_engine::erased::EndpointControl;
use ofi_engine::op::Ways;
use std::sync::Arc;

/// A membership of a [`DatagramEndpoint`] in a multicast group (fi_join, fi_cm(3)). Dropping it
/// leaves the group.
///
/// ```
/// # use ofi::{Addr, DatagramEndpoint, EndpointType, Fabric, Info, Ways};
/// # use std::net::SocketAddr;
/// # let query = Info::builder().provider("udp").endpoint(EndpointType::DGRAM);
/// # let info = query.node("127.0.0.1").source().query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// # let ep = DatagramEndpoint::open(&domain, &info)?;
/// let addr = Addr::from(SocketAddr::from(([239, 7, 7, 8], 7000)));
/// let group = ofi::block_on(ep.join(addr, Ways::RECEIVE))?;
/// assert_eq!(group.addr(), addr);
/// drop(group); // What is sent to it later is not received.
/// # Ok::<(), ofi::Error>(())
/// ```
pub struct Group {
    control: Arc<dyn EndpointControl>,
    av: AddressVector,
    events: Subscription,
    addr: Addr,
    ways: Ways,
    /// What the engine calls the group, once it has let the endpoint join.
    handle: FiAddr,
    peer: Peer,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("addr", &self.addr).field("ways", &self.ways).finish_non_exhaustive()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.control.leave(&self.addr, self.ways, self.handle, self.events.owner());
        // Fails only if the program has removed it.
        drop(self.av.remove(self.peer));
    }
}

impl Group {
    /// The group as a receiver of [`DatagramEndpoint::send`].
    pub const fn peer(&self) -> Peer {
        self.peer
    }

    /// The address by which it was joined.
    pub const fn addr(&self) -> Addr {
        self.addr
    }
}

impl DatagramEndpoint {
    /// Joins a multicast group (fi_join, fi_cm(3)), to send to it, to receive from it, or both.
    /// [`Self::receive`] gets its datagrams, beside those to the endpoint's own address. Ends when
    /// the endpoint is a member; dropping the future gives up.
    ///
    /// # Errors
    /// EADDRNOTAVAIL if the address is no multicast address, or of another family than the
    /// endpoint's; the network's error.
    ///
    /// ```
    /// # use ofi::{Addr, DatagramEndpoint, EndpointType, Fabric, Info, Ways};
    /// # use std::net::SocketAddr;
    /// # let query = Info::builder().provider("udp").endpoint(EndpointType::DGRAM);
    /// # let info = query.node("127.0.0.1").source().query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// let one = DatagramEndpoint::open(&domain, &info)?;
    /// let two = DatagramEndpoint::open(&domain, &info)?;
    /// # let port = one.local_addr()?.socket().port();
    /// let addr = Addr::from(SocketAddr::from(([239, 7, 7, 7], port)));
    /// let _member = ofi::block_on(two.join(addr, Ways::BOTH))?;
    /// let group = ofi::block_on(one.join(addr, Ways::SEND))?;
    /// let receive = two.receive(vec![0; 64]);
    /// ofi::block_on(one.send(group.peer(), "to all")).0?;
    /// let (received, buf) = ofi::block_on(receive);
    /// assert_eq!(&buf[..received?.len()], b"to all");
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub async fn join(&self, addr: Addr, ways: Ways) -> Result<Group> {
        let group = self.begin_to_join(addr, ways)?;
        loop {
            if let EventKind::Joined = group.events.next(None).await? {
                return Ok(group);
            }
        }
    }

    fn begin_to_join(&self, addr: Addr, ways: Ways) -> Result<Group> {
        let (control, events) = self.for_groups()?;
        let av = self.av().clone();
        let mut handle = FiAddr::UNSPEC;
        control.clone().join(addr, ways, events.owner(), &mut |joined| handle = joined)?;
        let peer = av.insert(addr).inspect_err(|_| control.leave(&addr, ways, handle, events.owner()))?;
        Ok(Group { control, av, events, addr, ways, handle, peer })
    }
}
