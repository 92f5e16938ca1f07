//! Registered memory of a domain (fi_mr(3)): regions by key, which the endpoints of the domain look
//! up for their peers.
//! Lock order: the table's lock is the last one taken; nothing is called under it.

use crate::completion::counter::Count;
use crate::hash::HashMap;
use core::fmt;
use ofi_core::caps::MrAccess;
use ofi_core::error::Result;
use ofi_core::{BindFlags, Errno, Error};
use ofi_memory::Region;
use ofi_sync::primitive::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The key of a region that peers cannot access (FI_KEY_NOTAVAIL).
pub const NO_KEY: u64 = u64::MAX;

/// Who chooses the key of a region.
pub enum KeyChoice<'a> {
    /// The application.
    Application(u64),
    /// The provider, from these random numbers (FI_MR_PROV_KEY).
    Random(&'a mut dyn FnMut() -> u64),
}

/// The registered memory of a domain.
#[derive(Debug, Default)]
pub struct Regions {
    by_key: RwLock<HashMap<u64, Arc<MemoryRegion>>>,
    /// Changes whenever a region is removed: an endpoint's earlier lookup may be stale.
    epoch: AtomicU64,
}

/// A registered region.
pub struct MemoryRegion {
    region: Region,
    key: u64,
    access: MrAccess,
    /// The application has registered it as persistent memory (FI_RMA_PMEM).
    persistent: bool,
    enabled: AtomicBool,
    /// Counters of peers' operations on it, each with the kinds that it counts.
    counters: Mutex<Vec<(Arc<dyn Count>, BindFlags)>>,
    counted: AtomicBool,
}

impl fmt::Debug for KeyChoice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application(key) => f.debug_tuple("Application").field(key).finish(),
            Self::Random(_) => f.debug_tuple("Random").finish_non_exhaustive(),
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion").field("key", &self.key).field("access", &self.access).finish_non_exhaustive()
    }
}

impl Regions {
    /// Registers memory. A region that waits for its counters is not `enabled` yet.
    ///
    /// # Errors
    /// ENOKEY if another region has the application's key.
    pub fn register(
        &self,
        region: Region,
        access: MrAccess,
        key: KeyChoice<'_>,
        enabled: bool,
    ) -> Result<Arc<MemoryRegion>> {
        self.register_as(region, access, key, (enabled, false))
    }

    /// Registers persistent memory, whose bytes peers may have made durable.
    ///
    /// # Errors
    /// As for [`Self::register`].
    pub fn register_persistent(
        &self,
        region: Region,
        access: MrAccess,
        key: KeyChoice<'_>,
        enabled: bool,
    ) -> Result<Arc<MemoryRegion>> {
        self.register_as(region, access, key, (enabled, true))
    }

    fn register_as(
        &self,
        region: Region,
        access: MrAccess,
        key: KeyChoice<'_>,
        (enabled, persistent): (bool, bool),
    ) -> Result<Arc<MemoryRegion>> {
        let new = |key| {
            Arc::new(MemoryRegion {
                region,
                key,
                access,
                persistent,
                enabled: AtomicBool::new(enabled),
                counters: Mutex::default(),
                counted: AtomicBool::new(false),
            })
        };
        if !access.intersects(MrAccess::REMOTE) {
            return Ok(new(NO_KEY));
        }
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        let key = match key {
            KeyChoice::Application(key) if by_key.contains_key(&key) => {
                return Err(Error::new(Errno::ENOKEY, format!("register memory with key {key:#x}, which is in use")));
            }
            KeyChoice::Application(key) => key,
            KeyChoice::Random(random) => loop {
                let key = random();
                if key != NO_KEY && !by_key.contains_key(&key) {
                    break key;
                }
            },
        };
        let new = new(key);
        by_key.insert(key, new.clone());
        Ok(new)
    }

    /// Ends a registration: no access starts from now on. Those in progress go on until
    /// [`MemoryRegion::is_idle`]; before that the memory must not go.
    pub fn remove(&self, region: &Arc<MemoryRegion>) {
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        if by_key.get(&region.key).is_some_and(|other| Arc::ptr_eq(other, region)) {
            by_key.remove(&region.key);
        }
        // Release pairs with the Acquire in `epoch`: a thread that sees the old epoch after this
        // finds the region closed.
        self.epoch.fetch_add(1, Ordering::Release);
        drop(by_key);
        region.region.close();
    }

    /// Restores a registration whose removal has timed out.
    pub fn restore(&self, region: &Arc<MemoryRegion>) {
        region.region.reopen();
        if region.key != NO_KEY {
            let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
            by_key.entry(region.key).or_insert_with(|| region.clone());
        }
    }

    /// The region with this key that peers may access now.
    pub(crate) fn get(&self, key: u64) -> Option<Arc<MemoryRegion>> {
        let by_key = self.by_key.read().unwrap_or_else(PoisonError::into_inner);
        by_key.get(&key).filter(|region| region.is_enabled()).cloned()
    }

    /// Changes whenever a region goes.
    pub(crate) fn epoch(&self) -> u64 {
        // Acquire pairs with the Release in `remove`.
        self.epoch.load(Ordering::Acquire)
    }
}

impl MemoryRegion {
    /// The key by which peers name it, or [`NO_KEY`].
    pub const fn key(&self) -> u64 {
        self.key
    }

    /// What it may be used for.
    pub const fn access(&self) -> MrAccess {
        self.access
    }

    /// Whether its bytes can be made durable.
    pub(crate) const fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Its memory.
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Peers may access it from now on (fi_mr_enable, fi_mr(3)).
    pub fn enable(&self) {
        // Release pairs with the Acquire in `is_enabled`: a thread that sees it enabled sees its
        // counters.
        self.enabled.store(true, Ordering::Release);
    }

    fn is_enabled(&self) -> bool {
        // Acquire pairs with the Release in `enable`.
        self.enabled.load(Ordering::Acquire)
    }

    /// Whether no access of a peer is in progress.
    pub fn is_idle(&self) -> bool {
        self.region.is_idle()
    }

    /// Binds a counter of what peers do to the region (FI_RMA_EVENT).
    ///
    /// # Errors
    /// EBADFLAGS for flags other than FI_REMOTE_READ and FI_REMOTE_WRITE.
    pub fn bind_counter(&self, counter: Arc<dyn Count>, flags: BindFlags) -> Result<()> {
        let known = BindFlags::REMOTE_READ | BindFlags::REMOTE_WRITE;
        if flags.is_empty() || !known.contains(flags) {
            return Err(Error::new(Errno::EBADFLAGS, "bind a counter to a memory region with unsupported flags"));
        }
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).push((counter, flags));
        // Release pairs with the Acquire in `count`.
        self.counted.store(true, Ordering::Release);
        Ok(())
    }

    /// Counts an operation of a peer on `len` bytes.
    #[inline]
    pub(crate) fn count(&self, kind: BindFlags, len: usize) {
        // Acquire pairs with the Release in `bind_counter`.
        if self.counted.load(Ordering::Acquire) {
            let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
            counters.iter().filter(|(_, flags)| flags.intersects(kind)).for_each(|(counter, _)| counter.count(len));
        }
    }
}
