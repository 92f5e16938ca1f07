//! Address vector (fi_av(3)): handles for addresses. Table and map are the same: dense indices from
//! 0, the lowest free one first; equal addresses share a handle, which counts its insertions.
//! Control calls lock it at every threading level. Endpoints cache lookups and check
//! [`AddressVector::epoch`], one atomic load, before they rely on them. The addresses of a shared
//! address vector are in memory that several processes have (`av/shared.rs`), and so is its epoch.

pub mod shared;

use crate::hash::HashMap;
use core::cmp::Reverse;
use ofi_core::{Addr, Errno, FiAddr, RxBits};
use ofi_sync::busy::Children;
use ofi_sync::primitive::{AtomicU64, Ordering};
use shared::{SharedMemory, SharedTable};
use slab::Slab;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An endpoint that looks addresses up.
pub trait Reader: Send + Sync {
    /// Called after the insertion of an address if this endpoint waits for one.
    fn learn(&self);
}

/// An address vector.
#[derive(Debug, Default)]
pub struct AddressVector {
    table: Mutex<Table>,
    epoch: AtomicU64,
    /// Opened with FI_AV_USER_ID: the application sets an id for every entry.
    ids: bool,
    /// The bits of a handle that name a receive context of the peer.
    rx_bits: RxBits,
    /// Where the addresses are if other processes have them too; the table has none then.
    shared: Option<SharedTable>,
    /// The endpoints that are bound to it, and its sets.
    pub users: Children,
}

/// Latest changes that an address vector remembers for its endpoints.
const MOST_CHANGES: usize = 1024;

/// A change of the address vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The handle got an address.
    Inserted(FiAddr, Addr),
    /// The handle lost that address.
    Removed(FiAddr, Addr),
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Option<Entry>>,
    free: BinaryHeap<Reverse<usize>>,
    by_addr: HashMap<Addr, usize>,
    readers: Slab<Bound>,
    /// How many readers wait for an address that is not inserted yet.
    awaited: usize,
    /// The latest changes: the last one made the present epoch.
    changes: VecDeque<Change>,
}

#[derive(Debug)]
struct Bound {
    reader: Weak<dyn Reader>,
    awaits: bool,
}

#[derive(Debug)]
struct Entry {
    /// As it was inserted.
    addr: Addr,
    times: usize,
    /// The source that completions report instead of the handle (FI_AV_USER_ID).
    user: Option<FiAddr>,
}

impl Table {
    fn waiting(&self) -> Vec<Arc<dyn Reader>> {
        let waiting = self.readers.iter().filter(|(_, bound)| bound.awaits);
        waiting.filter_map(|(_, bound)| bound.reader.upgrade()).collect()
    }

    /// Reserves room for another address, and for a free-list entry per address so that removal
    /// never allocates. False if there is no memory.
    fn make_room(&mut self) -> bool {
        let Self { entries, free, by_addr, changes, .. } = self;
        // For this insertion and its removal. Without memory, endpoints learn everything anew.
        drop(changes.try_reserve(2.min(MOST_CHANGES - changes.len())));
        let entered = !free.is_empty() || entries.try_reserve(1).is_ok();
        entered && free.try_reserve(entries.len() + 1 - free.len()).is_ok() && by_addr.try_reserve(1).is_ok()
    }
}

impl AddressVector {
    /// An empty address vector, with room for `count` addresses if there is memory. With `ids`,
    /// completions report [`FiAddr::UNSPEC`] for an entry until [`Self::set_user_id`].
    pub fn new(count: usize, ids: bool) -> Self {
        let av = Self { ids, ..Self::default() };
        // A hint: insertion reserves again.
        drop(av.lock().entries.try_reserve(count.min(1 << 16)));
        av
    }

    /// An address vector whose addresses are in memory made for `capacity` of them, a power of two.
    ///
    /// # Errors
    /// EINVAL if the memory has no such table.
    pub fn shared(memory: Box<dyn SharedMemory>, capacity: usize) -> Result<Self, Errno> {
        Ok(Self { shared: Some(SharedTable::new(memory, capacity)?), ..Self::default() })
    }

    /// Keeps bits of the handles free for the indices of receive contexts (fi_rx_addr).
    #[must_use]
    pub const fn with_rx_bits(mut self, rx_bits: RxBits) -> Self {
        self.rx_bits = rx_bits;
        self
    }

    /// The bits of a handle that name a receive context of the peer.
    pub const fn rx_bits(&self) -> RxBits {
        self.rx_bits
    }

    /// Whether other processes have the same addresses.
    pub const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Where a shared address vector has its handles, in the order in which they were first used.
    pub fn shared_handles(&self) -> Option<usize> {
        self.shared.as_ref().map(SharedTable::handles)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change. Under the lock, so that the latest changes are those of the latest epochs.
    fn changed(&self, table: &mut Table, change: Change) {
        if table.changes.len() >= MOST_CHANGES {
            table.changes.pop_front();
        }
        // `make_room` reserves: without memory, endpoints look everything up anew.
        if table.changes.len() < table.changes.capacity() {
            table.changes.push_back(change);
        } else {
            table.changes.clear();
        }
        // Release pairs with the Acquire in `epoch`: a reader of the new epoch sees the change once
        // it takes the lock.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The present epoch, and the changes since an earlier one, oldest first; `None` if the address
    /// vector does not remember all of them.
    pub fn changes_since(&self, epoch: u64) -> (u64, Option<Vec<Change>>) {
        if let Some(shared) = &self.shared {
            let (now, insertions) = shared.insertions_since(epoch);
            let changed = |(handle, addr)| Change::Inserted(handle, addr);
            return (now, insertions.map(|insertions| insertions.into_iter().map(changed).collect()));
        }
        let table = self.lock();
        let now = self.epoch();
        let known = usize::try_from(now.wrapping_sub(epoch)).ok().filter(|count| *count <= table.changes.len());
        let changes = known.map(|count| table.changes.iter().skip(table.changes.len() - count).copied().collect());
        (now, changes)
    }

    /// Grows with every change.
    #[inline]
    pub fn epoch(&self) -> u64 {
        match &self.shared {
            // Acquire pairs with the Release in `changed`.
            None => self.epoch.load(Ordering::Acquire),
            Some(shared) => shared.version(),
        }
    }

    /// Inserts an address and returns its handle, new or existing.
    pub fn insert(&self, addr: Addr) -> FiAddr {
        self.try_insert(addr).expect("there is memory for an address")
    }

    /// [`Self::insert`] where the application chooses the number of addresses.
    ///
    /// # Errors
    /// ENOMEM if there is no memory for another address or no handle that leaves the bits for
    /// receive contexts free, EACCES if this process may only read the addresses, EAGAIN if another
    /// one holds the lock and is stopped.
    pub fn try_insert(&self, addr: Addr) -> Result<FiAddr, Errno> {
        if let Some(shared) = &self.shared {
            let (handle, is_new) = shared.insert(addr)?;
            if !self.rx_bits.leaves(handle) {
                // If another process holds the lock, the address stays, at the cost of an entry.
                let _ = shared.remove(handle);
                return Err(Errno::ENOMEM);
            }
            if is_new {
                let table = self.lock();
                let waiting = if table.awaited > 0 { table.waiting() } else { Vec::new() };
                drop(table);
                waiting.iter().for_each(|reader| reader.learn());
            }
            return Ok(handle);
        }
        let mut table = self.lock();
        let key = addr.canonical();
        if let Some(&index) = table.by_addr.get(&key) {
            if let Some(Some(entry)) = table.entries.get_mut(index) {
                entry.times += 1;
            }
            return Ok(FiAddr(index as u64));
        }
        let is_last = table.free.is_empty() && !self.rx_bits.leaves(FiAddr(table.entries.len() as u64));
        if is_last || !table.make_room() {
            return Err(Errno::ENOMEM);
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
        let waiting = if table.awaited > 0 { table.waiting() } else { Vec::new() };
        // Under the lock: a reader that calls `set_awaits` later finds the new epoch.
        let handle = FiAddr(index as u64);
        self.changed(&mut table, Change::Inserted(handle, key));
        drop(table);
        waiting.iter().for_each(|reader| reader.learn());
        Ok(handle)
    }

    /// Registers a bound endpoint and returns its number.
    pub fn add_reader(&self, reader: Weak<dyn Reader>) -> usize {
        self.lock().readers.insert(Bound { reader, awaits: false })
    }

    /// Removes a bound endpoint.
    pub fn remove_reader(&self, number: usize) {
        let mut table = self.lock();
        let bound = table.readers.try_remove(number);
        table.awaited -= usize::from(bound.is_some_and(|bound| bound.awaits));
    }

    /// Sets whether an endpoint waits for addresses that are not inserted yet. It must check
    /// [`Self::epoch`] afterwards: earlier insertions are not reported.
    pub fn set_awaits(&self, number: usize, awaits: bool) {
        let mut table = self.lock();
        let Some(bound) = table.readers.get_mut(number) else { return };
        let before = core::mem::replace(&mut bound.awaits, awaits);
        table.awaited = table.awaited - usize::from(before) + usize::from(awaits);
    }

    /// Undoes one insertion; false if that fails.
    pub fn remove(&self, handle: FiAddr) -> bool {
        self.try_remove(handle).is_ok()
    }

    /// Undoes one insertion.
    ///
    /// # Errors
    /// EINVAL if there is no such handle, EACCES and EAGAIN as for [`Self::try_insert`].
    pub fn try_remove(&self, handle: FiAddr) -> Result<(), Errno> {
        if let Some(shared) = &self.shared {
            return shared.remove(handle);
        }
        let mut table = self.lock();
        let index = handle.index().ok_or(Errno::EINVAL)?;
        let Some(Some(entry)) = table.entries.get_mut(index) else { return Err(Errno::EINVAL) };
        entry.times -= 1;
        if entry.times == 0 {
            let key = entry.addr.canonical();
            table.entries[index] = None;
            table.by_addr.remove(&key);
            table.free.push(Reverse(index));
            self.changed(&mut table, Change::Removed(handle, key));
        }
        Ok(())
    }

    /// The address of a handle, or of a handle from fi_rx_addr.
    pub fn lookup(&self, handle: FiAddr) -> Option<Addr> {
        let (handle, _) = self.rx_bits.split(handle);
        if let Some(shared) = &self.shared {
            return shared.lookup(handle);
        }
        let table = self.lock();
        table.entries.get(handle.index()?)?.as_ref().map(|entry| entry.addr)
    }

    /// The handles that have an address, of `first`, `first` + `stride` and so on up to `last`.
    ///
    /// # Errors
    /// ENOMEM if there is no memory for the list.
    pub fn handles(&self, first: FiAddr, last: FiAddr, stride: u64) -> Result<Vec<FiAddr>, Errno> {
        let table = self.lock();
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let len = self.shared.as_ref().map_or(table.entries.len(), SharedTable::len);
        let is_used = |index: &usize| match &self.shared {
            None => table.entries[*index].is_some(),
            Some(shared) => shared.lookup(FiAddr(*index as u64)).is_some(),
        };
        let range = number(first.0)..len.min(number(last.0).saturating_add(1));
        let mut out = Vec::new();
        out.try_reserve(range.len() / number(stride.max(1)) + 1).map_err(|_| Errno::ENOMEM)?;
        out.extend(range.step_by(number(stride.max(1))).filter(is_used).map(|index| FiAddr(index as u64)));
        Ok(out)
    }

    /// Sets the source that completions report instead of the handle; false if there is no such
    /// handle, or the address vector is shared.
    pub fn set_user_id(&self, handle: FiAddr, user: FiAddr) -> bool {
        let mut table = self.lock();
        let entry = handle.index().and_then(|index| table.entries.get_mut(index)).and_then(Option::as_mut);
        entry.map(|entry| entry.user = Some(user)).is_some()
    }

    /// The source that completions report for a handle: until it is set, the handle itself or, with
    /// FI_AV_USER_ID, [`FiAddr::UNSPEC`].
    pub fn user_id(&self, handle: FiAddr) -> FiAddr {
        let table = self.lock();
        let entry = handle.index().and_then(|index| table.entries.get(index)).and_then(Option::as_ref);
        let initial = if self.ids { FiAddr::UNSPEC } else { handle };
        entry.and_then(|entry| entry.user).unwrap_or(initial)
    }

    /// The handle of an address, [`FiAddr::UNSPEC`] if it has none.
    pub fn find(&self, addr: &Addr) -> FiAddr {
        if let Some(shared) = &self.shared {
            return shared.find(&addr.canonical()).unwrap_or(FiAddr::UNSPEC);
        }
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
        av.remove(FiAddr(0));
        let (of_1, to_0) = (addr(1).canonical(), FiAddr(0));
        let both = vec![Change::Inserted(to_0, of_1), Change::Removed(to_0, of_1)];
        assert_eq!(av.changes_since(before), (av.epoch(), Some(both)));
        assert_eq!(av.changes_since(av.epoch()), (av.epoch(), Some(vec![])));
        (1..2001).map(addr).for_each(|addr| assert!(av.insert(addr).index().is_some()));
        assert_eq!(av.changes_since(before).1, None);
        assert_eq!(av.changes_since(av.epoch() - 1000).1.map(|changes| changes.len()), Some(1000));
    }
}
