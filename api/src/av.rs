//! Address vectors: handles of peers' addresses.

use crate::fabric::Domain;
use core::fmt;
use ofi_core::error::Result;
use ofi_core::{Addr, Errno, Error, FiAddr};
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::sync::Arc;

/// A peer, by its handle in an address vector (`fi_addr_t`, fi_av(3)).
///
/// Endpoints of other address vectors refuse it.
///
/// ```
/// # use ofi::{EndpointType, Errno, Fabric, Info, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// let (one, two) = (RdmEndpoint::open(&domain, &info)?, RdmEndpoint::open(&domain, &info)?);
/// let peer = one.peer(two.local_addr()?)?;
/// let (result, _buf) = ofi::block_on(two.send(peer, "not with this endpoint's handle"));
/// assert_eq!(result.unwrap_err().errno(), Errno::EINVAL);
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    handle: FiAddr,
    av: u64,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&self.handle.0).finish()
    }
}

impl Peer {
    pub(crate) const fn new(handle: FiAddr, av: u64) -> Self {
        Self { handle, av }
    }

    /// The handle, if it is one of that address vector.
    pub(crate) fn of(self, av: &AddressVector) -> Option<FiAddr> {
        (self.av == av.id).then_some(self.handle)
    }
}

/// Addresses of peers (fi_av(3)). Clones are handles of the same address vector, which several
/// endpoints may have.
///
/// ```
/// # use ofi::{AddressVector, EndpointType, Fabric, Info, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// let av = AddressVector::open(&domain);
/// let one = RdmEndpoint::open_with(&domain, &info, &av)?;
/// let two = RdmEndpoint::open_with(&domain, &info, &av)?;
/// let peer = av.insert(two.local_addr()?)?;
/// assert_eq!(av.address_of(peer), Some(two.local_addr()?));
/// drop(one.send(peer, "either endpoint may use the handle"));
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AddressVector {
    pub(crate) engine: Arc<ofi_engine::AddressVector>,
    id: u64,
}

impl AddressVector {
    /// An empty address vector for endpoints of the domain (fi_av_open).
    pub fn open(_domain: &Domain) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers must differ.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { engine: Arc::new(ofi_engine::AddressVector::new(0, false)), id }
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// The handle of an address (fi_av_insert). An address that is already there keeps its handle.
    ///
    /// # Errors
    /// ENOMEM if there is no memory for it.
    pub fn insert(&self, addr: Addr) -> Result<Peer> {
        let handle = self.engine.try_insert(addr).map_err(|errno| Error::new(errno, format!("insert {addr}")))?;
        Ok(Peer::new(handle, self.id))
    }

    /// Removes an address, as often as it was inserted (fi_av_remove). Its handle may then come to
    /// stand for another address that is inserted later.
    ///
    /// # Errors
    /// EINVAL for a handle of another address vector, or that is removed already.
    pub fn remove(&self, peer: Peer) -> Result<()> {
        let invalid = || Error::new(Errno::EINVAL, "remove an address that the address vector does not have");
        let handle = peer.of(self).ok_or_else(invalid)?;
        self.engine.try_remove(handle).map_err(|_| invalid())
    }

    /// The address of a handle (fi_av_lookup); `None` if it is not one of this address vector.
    pub fn address_of(&self, peer: Peer) -> Option<Addr> {
        self.engine.lookup(peer.of(self)?)
    }
}
