//! Address vectors: handles of peers' addresses.

use crate::fabric::Domain;
use ahash::RandomState;
use core::fmt;
use ofi_core::error::Result;
use ofi_core::{Addr, Errno, Error, FiAddr};
use ofi_os::membarrier;
use ofi_sync::handles::Handles;
use ofi_sync::primitive::real::{AtomicU64, Ordering};
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
    /// Which insertion of the address vector it stems from.
    insertion: u64,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&self.handle.0).finish()
    }
}

impl Peer {
    /// The handle, if it is one of that address vector and its address is still there.
    pub(crate) fn of(self, av: &AddressVector) -> Option<FiAddr> {
        (self.av == av.id && av.handles.has(self.handle, self.insertion)).then_some(self.handle)
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
    /// The engine gives the handle of a removed address to a later one: the insertions tell them
    /// apart.
    handles: Arc<Handles<FiAddr, RandomState>>,
    id: u64,
}

impl AddressVector {
    /// An empty address vector for endpoints of the domain (fi_av_open).
    pub fn open(_domain: &Domain) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers must differ.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let handles = Arc::new(Handles::new(membarrier::locks(), RandomState::new()));
        Self { engine: Arc::new(ofi_engine::AddressVector::new(0, false)), handles, id }
    }

    /// The peer that a handle of the engine stands for now.
    pub(crate) fn peer_of(&self, handle: FiAddr) -> Option<Peer> {
        let insertion = self.handles.lock().insertion(handle)?;
        Some(Peer { handle, av: self.id, insertion })
    }

    /// The handle of an address (fi_av_insert). An address that is already there keeps its handle.
    ///
    /// # Errors
    /// ENOMEM if there is no memory for it.
    pub fn insert(&self, addr: Addr) -> Result<Peer> {
        let mut known = self.handles.lock();
        let handle = self.engine.try_insert(addr).map_err(|errno| Error::new(errno, format!("insert {addr}")))?;
        Ok(Peer { handle, av: self.id, insertion: known.inserted(handle) })
    }

    /// Removes an address, once for each time that it was inserted (fi_av_remove). Then endpoints
    /// refuse its handle with EINVAL, also if the address or another one is inserted later.
    ///
    /// ```
    /// # use ofi::{AddressVector, EndpointType, Errno, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// let ep = RdmEndpoint::open(&domain, &info)?;
    /// let peer = ep.peer(ep.local_addr()?)?;
    /// ep.av().remove(peer)?;
    /// let _again = ep.peer(ep.local_addr()?)?;
    /// let (result, _buf) = ofi::block_on(ep.send(peer, "to a removed address"));
    /// assert_eq!(result.unwrap_err().errno(), Errno::EINVAL);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    ///
    /// # Errors
    /// EINVAL for a handle of another address vector, or that is removed already.
    pub fn remove(&self, peer: Peer) -> Result<()> {
        let invalid = || Error::new(Errno::EINVAL, "remove an address that the address vector does not have");
        let handle = peer.of(self).ok_or_else(invalid)?;
        let mut known = self.handles.lock();
        // Another thread may have removed it meanwhile.
        if known.insertion(handle) != Some(peer.insertion) {
            return Err(invalid());
        }
        self.engine.try_remove(handle).map_err(|_| invalid())?;
        self.handles.removed(&mut known, handle);
        Ok(())
    }

    /// The address of a handle (fi_av_lookup); `None` if it is not one of this address vector.
    pub fn address_of(&self, peer: Peer) -> Option<Addr> {
        self.engine.lookup(peer.of(self)?)
    }
}
