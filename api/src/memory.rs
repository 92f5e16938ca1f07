//! Registered memory, which peers access by one-sided operations.

use ofi_core::caps::MrAccess;
use ofi_core::error::Result;
use ofi_core::{Errno, Error};
use ofi_engine::target::mr::{KeyChoice, MemoryRegion as Region, Regions};
use ofi_memory::RegionError;
use std::sync::Arc;

/// A place in a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// Offset in the region, in bytes.
    pub offset: u64,
    /// The key of the region: see [`MemoryRegion::key`].
    pub key: u64,
}

/// Registered memory. Peers that know its key access it until it is dropped; the memory is freed
/// when the last access in progress has ended.
///
/// Peers may change it at any time. A [`Self::read`] of up to 8 bytes within one aligned word is
/// one load: if it sees the word that a peer wrote last, the peer's earlier writes are visible too.
#[derive(Debug)]
pub struct MemoryRegion {
    region: Arc<Region>,
    all: Arc<Regions>,
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.all.remove(&self.region);
    }
}

impl MemoryRegion {
    pub(crate) fn register(all: &Arc<Regions>, memory: Vec<u8>, access: MrAccess) -> Result<Self> {
        let invalid = |why: &str| Error::new(Errno::EINVAL, format!("register memory: {why}"));
        if memory.is_empty() {
            return Err(invalid("no bytes"));
        }
        let access = access & MrAccess::REMOTE;
        if access.is_empty() {
            return Err(invalid("peers may neither read nor write it"));
        }
        // The owner may always change the memory.
        let region = ofi_memory::Region::owned(memory, access | MrAccess::READ);
        let mut random = || u64::from_ne_bytes(ofi_os::random());
        let region = all.register(region, access, KeyChoice::Random(&mut random), true)?;
        Ok(Self { region, all: all.clone() })
    }

    /// The key by which peers name it: a random number.
    pub fn key(&self) -> u64 {
        self.region.key()
    }

    /// Length in bytes, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> u64 {
        self.region.region().len()
    }

    /// Copies the bytes from `offset` on to `out`.
    ///
    /// # Errors
    /// EACCES if the region ends before.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Errno> {
        let region = self.region.region();
        let range = region.resolve(offset, out.len(), MrAccess::empty());
        range.and_then(|range| range.read(0, out)).map_err(RegionError::errno)
    }

    /// Copies `bytes` to the region at `offset`.
    ///
    /// # Errors
    /// EACCES if the region ends before.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let region = self.region.region();
        let range = region.resolve(offset, bytes.len(), MrAccess::empty());
        range.and_then(|range| range.write(0, bytes)).map_err(RegionError::errno)
    }
}
