//! Registration of memory that this crate does not own.
#![allow(unsafe_code)]

use crate::fabric::Domain;
use crate::region::{MemoryRegion, check};
use ofi_core::caps::MrAccess;
use ofi_core::error::Result;
use ofi_core::{Errno, Error};
use ofi_memory::{Reach, Region};

impl Domain {
    /// Registers memory that this crate does not own (fi_mr_reg): a mapped file, memory of another
    /// library, a program's own allocation. [`MemoryRegion::read`] and [`MemoryRegion::write`] of
    /// the region are the only safe ways to it.
    ///
    /// # Errors
    /// As for [`Self::register`].
    ///
    /// # Safety
    /// Until [`MemoryRegion::try_close`] is true, or the region is dropped and every endpoint that
    /// the domain had until then has finished closing ([`RdmEndpoint::close`](crate::RdmEndpoint::close)):
    /// - the `len` bytes at `base` stay mapped, readable, and writable if `access` has
    ///   [`MrAccess::REMOTE_WRITE`];
    /// - no reference to them exists, and other code touches them by atomic accesses only, or by
    ///   none: peers read and change them at any time.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, MrAccess};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// let memory = Box::leak(vec![7u8; 4096].into_boxed_slice());
    /// // SAFETY: the memory is never freed, and from here on only the region reaches it.
    /// let region = unsafe { domain.register_foreign(memory.as_mut_ptr(), memory.len(), MrAccess::REMOTE)? };
    /// let mut first = [0];
    /// region.read(0, &mut first)?;
    /// assert_eq!(first, [7]);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub unsafe fn register_foreign(&self, base: *mut u8, len: usize, access: MrAccess) -> Result<MemoryRegion> {
        let all = self.0.regions.as_ref();
        let all = all.ok_or_else(|| Error::new(Errno::ENOSYS, "register memory of a datagram domain"))?;
        let access = check(len, access)?;
        // Its owner may change it by `write` if peers may.
        let changes = if access.contains(MrAccess::REMOTE_WRITE) { MrAccess::READ } else { MrAccess::empty() };
        // SAFETY: this function's contract: all of the memory is there until the region is closed.
        let region = unsafe { Region::new(&[(base, len)], 0, access | changes, Reach::Mapped) };
        MemoryRegion::of(all, region.map_err(|why| Error::new(why.errno(), "register memory"))?, access)
    }
}
