//! Memory registration state of a domain (fi_mr(3)).

use crate::ffi::ptr::put;
use crate::objects::followed::Followed;
use ofi_abi::fi_mr_map_raw;
use ofi_core::{Caps, Errno, Info, MrMode};
use ofi_engine::endpoint::CLOSE_DEADLINE;
use ofi_engine::target::mr::{MemoryRegion, Regions};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of bytes in a raw key.
pub(super) const RAW_KEY_SIZE: usize = size_of::<u64>();

/// Memory registration state of a domain.
pub(crate) struct Memory {
    pub(crate) regions: Arc<Regions>,
    /// Peers use virtual addresses (FI_MR_VIRT_ADDR).
    pub(super) virtual_addresses: bool,
    /// The provider chooses keys (FI_MR_PROV_KEY).
    pub(super) provider_keys: bool,
    /// Regions with FI_RMA_EVENT are disabled until enabled with their counters.
    pub(super) waits_for_counters: bool,
    /// Regions are disabled until enabled with their endpoint (FI_MR_ENDPOINT).
    pub(super) waits_for_endpoint: bool,
    /// FI_RMA_EVENT is enabled: accesses are counted.
    pub(super) events: bool,
    /// Keys mapped from raw keys, with the number of mappings of each.
    mapped: Mutex<HashMap<u64, usize>>,
    /// The domain's endpoints, through which peers use regions, and the counters of regions.
    pub(crate) followed: Followed,
}

pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// For a domain opened with this info.
    pub(crate) fn new(info: &Info, regions: Arc<Regions>) -> Self {
        let mode = info.domain.mr_mode;
        let basic = mode == MrMode::BASIC;
        Self {
            regions,
            virtual_addresses: basic || mode.contains(MrMode::VIRT_ADDR),
            provider_keys: basic || mode.contains(MrMode::PROV_KEY),
            waits_for_counters: mode.contains(MrMode::RMA_EVENT),
            waits_for_endpoint: mode.contains(MrMode::ENDPOINT),
            events: (info.caps | info.domain.caps).contains(Caps::RMA_EVENT),
            mapped: Mutex::default(),
            followed: Followed::default(),
        }
    }

    /// Makes a key of a raw key (fi_mr_map_raw).
    ///
    /// # Safety
    /// The raw key has its size, and the place for the key is null or valid.
    pub(crate) unsafe fn map_raw(&self, map: &fi_mr_map_raw) -> core::result::Result<(), Errno> {
        if map.flags != 0 {
            return Err(Errno::EBADFLAGS);
        }
        if map.raw_key.is_null() || map.key_size != RAW_KEY_SIZE {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, so it has that size by this function's contract.
        let key = u64::from_le_bytes(unsafe { map.raw_key.cast::<[u8; RAW_KEY_SIZE]>().read() });
        // SAFETY: this function's contract.
        unsafe { put(map.key, key) }?;
        *locked(&self.mapped).entry(key).or_insert(0) += 1;
        Ok(())
    }

    /// Releases a key from [`Self::map_raw`].
    pub(crate) fn unmap(&self, key: u64) -> core::result::Result<(), Errno> {
        let mut mapped = locked(&self.mapped);
        let times = mapped.get_mut(&key).ok_or(Errno::EINVAL)?;
        *times -= 1;
        if *times == 0 {
            mapped.remove(&key);
        }
        Ok(())
    }

    /// Whether there are keys that have not been released.
    pub(crate) fn has_mapped_keys(&self) -> bool {
        !locked(&self.mapped).is_empty()
    }

    /// Waits until no peer uses the region any more, making progress; false after
    /// [`CLOSE_DEADLINE`].
    pub(super) fn wait_until_idle(&self, region: &MemoryRegion) -> bool {
        let end = ofi_os::clock::now() + CLOSE_DEADLINE;
        while !region.is_idle() {
            self.followed.endpoints().iter().for_each(|endpoint| endpoint.make_progress());
            if ofi_os::clock::now() >= end {
                return region.is_idle();
            }
            std::thread::yield_now();
        }
        true
    }
}
