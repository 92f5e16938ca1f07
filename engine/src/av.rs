//! Address vector: handles for addresses (fi_av(3)). Table and map are the same: dense indices from 0, the lowest
//! free one first, equal addresses share a handle and count.
//! Control calls lock it at every threading level. Endpoints keep what they looked up and check [`AddressVector::epoch`],
//! one atomic load, before they rely on it.

use crate::hash::HashMap;
use core::cmp::Reverse;
use ofi_core::{Addr, FiAddr};
use ofi_sync::busy::Children;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An address vector.
#[derive(Debug, Default)]
pub struct AddressVector {
    table: Mutex<Table>,
    epoch: AtomicU64,
    /// Every entry will get an id (FI_AV_USER_ID when it was opened).
    ids: bool,
    /// The endpoints that are bound to it.
    pub users: Children,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Option<Entry>>,
    free: BinaryHeap<Reverse<usize>>,
    by_addr: HashMap<Addr, usize>,
}

#[derive(Debug)]
struct Entry {
    /// As it was inserted.
    addr: Addr,
    times: usize,
    /// What completions say instead of the handle (FI_AV_USER_ID).
    user: Option<FiAddr>,
}

impl AddressVector {
    /// An empty one, with room for `count` addresses. With `ids` an entry has no name in completions until
    /// [`Self::set_user_id`].
    pub fn new(count: usize, ids: bool) -> Self {
        let av = Self { ids, ..Self::default() };
        av.lock().entries.reserve(count.min(1 << 16));
        av
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        // Release pairs with the Acquire in `epoch`: who sees the number sees the change when it takes the lock.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Grows with every change.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // Acquire pairs with the Release in `changed`.
        self.epoch.load(Ordering::Acquire)
    }

    /// The handle of an address, new or the one it has.
    pub fn insert(&self, addr: Addr) -> FiAddr {
        let mut table = self.lock();
        let key = addr.canonical();
        if let Some(&index) = table.by_addr.get(&key) {
            if let Some(Some(entry)) = table.entries.get_mut(index) {
                entry.times += 1;
            }
            return FiAddr(index as u64);
        }
        let entry = Some(Entry { addr, times: 1, user: None });
        let index = match table.free.pop() {
            Some(Reverse(index)) => {
                table.entries[index] = entry;
                index
            }
            None => {
                table.entries.push(entry);
                table.entries.len() - 1
            }
        };
        table.by_addr.insert(key, index);
        drop(table);
        self.changed();
        FiAddr(index as u64)
    }

    /// Takes back one insertion; false if there is no such handle.
    pub fn remove(&self, handle: FiAddr) -> bool {
        let mut table = self.lock();
        let Some(index) = handle.index() else { return false };
        let Some(Some(entry)) = table.entries.get_mut(index) else { return false };
        entry.times -= 1;
        if entry.times == 0 {
            let key = entry.addr.canonical();
            table.entries[index] = None;
            table.by_addr.remove(&key);
            table.free.push(Reverse(index));
            drop(table);
            self.changed();
        }
        true
    }

    /// The address of a handle.
    pub fn lookup(&self, handle: FiAddr) -> Option<Addr> {
        let table = self.lock();
        table.entries.get(handle.index()?)?.as_ref().map(|entry| entry.addr)
    }

    /// Sets what completions say instead of the handle; false if there is no such handle.
    pub fn set_user_id(&self, handle: FiAddr, user: FiAddr) -> bool {
        let mut table = self.lock();
        let entry = handle.index().and_then(|index| table.entries.get_mut(index)).and_then(Option::as_mut);
        entry.map(|entry| entry.user = Some(user)).is_some()
    }

    /// What completions say instead of the handle: until it is set the handle, or, where ids were announced,
    /// [`FiAddr::UNSPEC`].
    pub fn user_id(&self, handle: FiAddr) -> FiAddr {
        let table = self.lock();
        let entry = handle.index().and_then(|index| table.entries.get(index)).and_then(Option::as_ref);
        let initial = if self.ids { FiAddr::UNSPEC } else { handle };
        entry.and_then(|entry| entry.user).unwrap_or(initial)
    }

    /// The handle of an address, [`FiAddr::UNSPEC`] if it has none.
    pub fn find(&self, addr: &Addr) -> FiAddr {
        self.lock().by_addr.get(&addr.canonical()).map_or(FiAddr::UNSPEC, |&index| FiAddr(index as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;

    fn addr(port: u16) -> Addr {
        Addr::from(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    #[test]
    fn handles_are_sequential_and_used_again_lowest_first() {
        let av = AddressVector::new(0, false);
        assert_eq!((0..4).map(|port| av.insert(addr(port + 1)).0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(av.remove(FiAddr(2)) && av.remove(FiAddr(1)));
        assert_eq!(av.insert(addr(9)), FiAddr(1));
        assert_eq!(av.insert(addr(10)), FiAddr(2));
        assert_eq!(av.lookup(FiAddr(1)), Some(addr(9)));
    }

    #[test]
    fn equal_addresses_share_a_handle() {
        let av = AddressVector::new(0, false);
        assert_eq!(av.insert(addr(1)), av.insert(addr(1)));
        assert!(av.remove(FiAddr(0)));
        assert_eq!(av.lookup(FiAddr(0)), Some(addr(1)));
        assert!(av.remove(FiAddr(0)));
        assert!(!av.remove(FiAddr(0)));
        assert_eq!(av.find(&addr(1)), FiAddr::UNSPEC);
        assert!(!av.remove(FiAddr::UNSPEC));
    }

    #[test]
    fn ids_stand_for_handles() {
        let av = AddressVector::new(0, false);
        let handle = av.insert(addr(1));
        assert_eq!(av.user_id(handle), handle);
        assert!(av.set_user_id(handle, FiAddr(77)));
        assert_eq!(av.user_id(handle), FiAddr(77));
        assert!(!av.set_user_id(FiAddr(9), FiAddr(1)));
        let announced = AddressVector::new(0, true);
        let handle = announced.insert(addr(1));
        assert_eq!(announced.user_id(handle), FiAddr::UNSPEC);
    }

    #[test]
    fn changes_are_noticed() {
        let av = AddressVector::new(0, false);
        let before = av.epoch();
        av.insert(addr(1));
        assert_ne!(av.epoch(), before);
    }
}
