//! Registered memory, which peers access by one-sided operations.

use crate::buf::bytes_of;
use crate::element::Element;
use core::fmt;
use core::str::FromStr;
use ofi_core::caps::MrAccess;
use ofi_core::error::Result;
use ofi_core::{Errno, Error};
use ofi_engine::target::mr::{KeyChoice, MemoryRegion as Region, Regions};
use ofi_memory::RegionError;
use std::sync::Arc;

/// The right to access a range of a peer's registered memory (fi_mr(3)): the region's key, the
/// range, and what may be done. Send its [bytes](Self::to_bytes) or its text to the peers that
/// shall have it.
///
/// Keys are random 64-bit numbers, but travel as plain bytes: a reader of one can use it. The
/// range and the rights in it save a round trip for what the target would refuse anyway; the target
/// checks every access itself.
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, MrAccess, RemoteKey};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// let region = domain.register(vec![0; 4096], MrAccess::REMOTE)?;
/// let key = region.remote_key();
/// assert_eq!(RemoteKey::from_bytes(&key.to_bytes()), Some(key));
/// assert_eq!(key.to_string().parse(), Ok(key));
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteKey {
    key: u64,
    first: u64,
    len: u64,
    access: MrAccess,
}

#[allow(clippy::len_without_is_empty, reason = "an empty range is of no use")]
impl RemoteKey {
    /// Length of [`Self::to_bytes`].
    pub const BYTES: usize = 4 * size_of::<u64>();

    /// Length of the range in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// What may be done: [`MrAccess::REMOTE_READ`], [`MrAccess::REMOTE_WRITE`] or both.
    pub const fn access(&self) -> MrAccess {
        self.access
    }

    pub(crate) const fn key(&self) -> u64 {
        self.key
    }

    /// Offset of the range in its region.
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// The part of the range from this offset on, in bytes; an empty one beyond its end, to which
    /// every access fails with EACCES.
    ///
    /// ```no_run
    /// # use ofi::{Error, Peer, RdmEndpoint, RemoteKey};
    /// # async fn example(ep: &RdmEndpoint, peer: Peer, table: RemoteKey) -> Result<(), Error> {
    /// let (result, row) = ep.read(peer, table.at(7 * 64), vec![0; 64]).await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn at(&self, offset: u64) -> Self {
        let skip = if offset < self.len { offset } else { self.len };
        Self { key: self.key, first: self.first + skip, len: self.len - skip, access: self.access }
    }

    /// At most the first `len` bytes of the range.
    #[must_use]
    pub const fn up_to(&self, len: u64) -> Self {
        Self { len: if len < self.len { len } else { self.len }, ..*self }
    }

    /// The key as bytes for a message, little-endian on every machine.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let words = [self.key, self.first, self.len, self.access.bits()];
        for (bytes, word) in out.chunks_exact_mut(size_of::<u64>()).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The key with these bytes; `None` unless they are a key.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::BYTES {
            return None;
        }
        let mut words = bytes.chunks_exact(size_of::<u64>()).map(|word| word.try_into().map(u64::from_le_bytes));
        let mut next = || words.next()?.ok();
        let (key, first, len) = (next()?, next()?, next()?);
        let access = MrAccess::from_bits(next()?).filter(|access| MrAccess::REMOTE.contains(*access))?;
        first.checked_add(len)?;
        Some(Self { key, first, len, access })
    }
}

impl fmt::Display for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for RemoteKey {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let digits = text.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = digits
            .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2))
            .collect();
        let key = bytes.and_then(|bytes| Self::from_bytes(&bytes));
        key.ok_or_else(|| Error::new(Errno::EINVAL, "parse a remote key"))
    }
}

/// Registered memory (fi_mr(3)). Peers that have its key access it until it is dropped; the memory
/// is freed when the last access in progress has ended.
///
/// Peers may change it at any time, so it has no references to its bytes. A [`Self::read`] of up to
/// 8 bytes within one aligned word is one load: if it sees the word that a peer wrote last, the
/// peer's earlier writes are visible too.
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, MrAccess, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// let ep = RdmEndpoint::open(&domain, &info)?;
/// let me = ep.peer(ep.local_addr()?)?;
/// let region = domain.register(vec![0; 64], MrAccess::REMOTE)?;
/// let (written, _) = ofi::block_on(ep.write(me, region.remote_key().at(8), *b"one-sided"));
/// written?;
/// let mut bytes = [0; 9];
/// region.read(8, &mut bytes)?;
/// assert_eq!(&bytes, b"one-sided");
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryRegion {
    region: Arc<Region>,
    all: Arc<Regions>,
    access: MrAccess,
}

/// The remote rights of memory to be registered.
pub(crate) fn check(len: usize, access: MrAccess) -> Result<MrAccess> {
    let invalid = |why: &str| Error::new(Errno::EINVAL, format!("register memory: {why}"));
    if len == 0 {
        return Err(invalid("no bytes"));
    }
    let access = access & MrAccess::REMOTE;
    if access.is_empty() {
        return Err(invalid("peers may neither read nor write it"));
    }
    Ok(access)
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.all.remove(&self.region);
    }
}

impl MemoryRegion {
    pub(crate) fn register(all: &Arc<Regions>, memory: Vec<u8>, access: MrAccess) -> Result<Self> {
        let access = check(memory.len(), access)?;
        // The owner may always change the memory.
        Self::of(all, ofi_memory::Region::owned(memory, access | MrAccess::READ), access)
    }

    pub(crate) fn of(all: &Arc<Regions>, region: ofi_memory::Region, access: MrAccess) -> Result<Self> {
        let mut random = || u64::from_ne_bytes(ofi_os::random());
        let region = all.register(region, access, KeyChoice::Random(&mut random), true)?;
        Ok(Self { region, all: all.clone(), access })
    }

    /// The right to access all of the region with all of its rights.
    pub fn remote_key(&self) -> RemoteKey {
        RemoteKey { key: self.region.key(), first: 0, len: self.len(), access: self.access }
    }

    /// Ends the registration without freeing the memory: no access begins any more, by peers or by
    /// [`Self::read`] and [`Self::write`]. True when none is in
    /// progress, after which no peer touches the memory; until then, make progress and ask again
    /// (fi_close(3), which fails with FI_EBUSY meanwhile).
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, MrAccess, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let region = domain.register(vec![0; 64], MrAccess::REMOTE)?;
    /// assert!(region.try_close());
    /// let (written, _buf) = ofi::block_on(ep.write(me, region.remote_key(), [1u8; 8]));
    /// assert!(written.is_err());
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn try_close(&self) -> bool {
        self.all.remove(&self.region);
        self.region.region().is_idle()
    }

    /// Length in bytes, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> u64 {
        self.region.region().len()
    }

    /// Copies the bytes from `offset` on to `out`.
    ///
    /// # Errors
    /// EACCES if the region ends before; EINVAL after [`Self::try_close`].
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Errno> {
        let region = self.region.region();
        let range = region.resolve(offset, out.len(), MrAccess::empty());
        range.and_then(|range| range.read(0, out)).map_err(RegionError::errno)
    }

    /// The number at `offset`, in the byte order of the machine. One load if it is aligned in
    /// memory.
    ///
    /// # Errors
    /// EACCES if the region ends before; EINVAL after [`Self::try_close`].
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, MrAccess};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// let region = domain.register(vec![0; 64], MrAccess::REMOTE)?;
    /// region.store(8, 0.5f64)?;
    /// assert_eq!((region.load::<f64>(8)?, region.load::<u64>(0)?), (0.5, 0));
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn load<T: Element>(&self, offset: u64) -> Result<T, Errno> {
        let mut bytes = [0; size_of::<u64>()];
        let bytes = &mut bytes[..size_of::<T>()];
        self.read(offset, bytes)?;
        T::from_bytes(bytes).ok_or(Errno::EINVAL)
    }

    /// Puts a number at `offset`, in the byte order of the machine. One store if it is aligned in
    /// memory.
    ///
    /// # Errors
    /// EACCES if the region ends before; EINVAL after [`Self::try_close`].
    pub fn store<T: Element>(&self, offset: u64, value: T) -> Result<(), Errno> {
        self.write(offset, bytes_of(&[value]))
    }

    /// Copies `bytes` to the region at `offset`.
    ///
    /// # Errors
    /// EACCES if the region ends before, or is foreign memory that peers may not write; EINVAL
    /// after [`Self::try_close`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let region = self.region.region();
        let range = region.resolve(offset, bytes.len(), MrAccess::empty());
        range.and_then(|range| range.write(0, bytes)).map_err(RegionError::errno)
    }
}
