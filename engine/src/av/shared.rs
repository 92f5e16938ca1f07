//! A table of addresses in memory that several processes share. A process that changes it holds a
//! lock that ends with the process; readers take none. Nothing read from the memory is trusted:
//! each index is checked against the capacity, each address is parsed.
//!
//! All words are 64 bits. Invariants, which [`Writer::repair`] restores after a writer was killed:
//! - Each entry is a seqlock. While its sequence number is odd it is being written; readers take it
//!   for a free one.
//! - The index is a hash table with open addressing, linear probing and tombstones. It has the
//!   entries in use by their canonical addresses, unless its own sequence number is odd.
//! - `VERSION` counts the changes; the log has the entry that each of the latest ones was about.

use core::fmt;
use core::ops::Range;
use ofi_core::addr::MAX_LEN;
use ofi_core::{Addr, Errno, FiAddr};
use ofi_sync::primitive::real::{AtomicU64, Ordering, fence};

/// Memory that several processes share.
pub trait SharedMemory: fmt::Debug + Send + Sync {
    /// All words of it. Those that were never written are zero.
    fn words(&self) -> &[AtomicU64];

    /// Whether this process may write them.
    fn is_writable(&self) -> bool;

    /// Makes a change while no other process and no other thread makes one.
    ///
    /// # Errors
    /// If the others do not end in time: `change` was not called.
    fn with_write_lock(&self, change: &mut dyn FnMut()) -> Result<(), Errno>;

    /// Allocates these words: without memory an error now, instead of a signal at the first access.
    ///
    /// # Errors
    /// ENOMEM or ENOSPC.
    fn allocate(&self, words: Range<usize>) -> Result<(), Errno>;
}

/// Indices of the words of the head.
mod word {
    /// [`super::MAGIC`].
    pub(super) const MAGIC: usize = 0;
    /// Seed of the hash, chosen by the process that made the table.
    pub(super) const SEED: usize = 1;
    /// Not zero while a writer changes the table.
    pub(super) const DIRTY: usize = 2;
    /// Counts the changes.
    pub(super) const VERSION: usize = 3;
    /// Entries that were ever in use: the words of these are allocated.
    pub(super) const LEN: usize = 4;
    /// Entries in use.
    pub(super) const USED: usize = 5;
    /// No entry below this one is free.
    pub(super) const FIRST_FREE: usize = 6;
    /// Sequence number of the index (a seqlock): odd while it is built anew.
    pub(super) const INDEX: usize = 7;
    /// The index has two to the power of this many slots.
    pub(super) const BITS: usize = 8;
    /// Slots that were ever filled since the index was built.
    pub(super) const FILLED: usize = 9;
}

/// Marks a table of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"ofi-av-2");
/// The latest changes: an entry's number shifted by one, and 1 if it was removed.
const LOG: Range<usize> = 64..64 + 1024;
const LOGGED: u64 = 1024;
/// Where the entries begin: behind the log, at the next page.
const ENTRIES: usize = 1536;
/// Words of an entry: sequence number, use, address.
const ENTRY: usize = 2 + MAX_LEN / 8;
/// Entries whose words are allocated at once.
const CHUNK: usize = 64;
/// Slots of the smallest index, as a power of two.
const FEWEST_BITS: u32 = 9;
/// A slot that was never filled, which ends a search, and one whose entry was removed, which does
/// not. Others have an entry's number plus [`FIRST`].
const EMPTY: u64 = 0;
const TOMBSTONE: u64 = 1;
const FIRST: u64 = 2;
/// How often a reader tries again if a writer interferes.
const TRIES: usize = 16;

/// The words that a table for this many entries takes. The largest index has two slots for each.
pub const fn words_for(capacity: usize) -> usize {
    handles_at(capacity) + capacity
}

/// Behind the largest index: the handle of each entry that was ever in use, for programs that look
/// for handles at fi_av_attr.map_addr.
const fn handles_at(capacity: usize) -> usize {
    index_at(capacity) + 2 * capacity
}

const fn index_at(capacity: usize) -> usize {
    (ENTRIES + capacity * ENTRY).next_multiple_of(512)
}

/// The words that [`initialize`] writes, to be allocated before.
pub const HEAD: Range<usize> = 0..ENTRIES;

/// Makes an empty table of memory whose words are zero, before another process sees it.
pub fn initialize(words: &[AtomicU64], seed: u64) {
    // Relaxed: the memory is published afterwards, by whatever gives it a name.
    words[word::SEED].store(seed, Ordering::Relaxed);
    words[word::MAGIC].store(MAGIC, Ordering::Relaxed);
}

/// A table of addresses in shared memory.
#[derive(Debug)]
pub(super) struct SharedTable {
    memory: Box<dyn SharedMemory>,
    capacity: usize,
}

/// An entry, as far as it could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    addr: Addr,
    /// How often the address was inserted.
    insertions: u64,
}

impl SharedTable {
    /// The table for `capacity` entries, a power of two, in that memory.
    ///
    /// # Errors
    /// EINVAL if the memory has no such table.
    pub(super) fn new(memory: Box<dyn SharedMemory>, capacity: usize) -> Result<Self, Errno> {
        let words = memory.words();
        let fits = capacity.is_power_of_two() && words.len() >= words_for(capacity);
        if !fits || words[word::MAGIC].load(Ordering::Relaxed) != MAGIC {
            return Err(Errno::EINVAL);
        }
        Ok(Self { memory, capacity })
    }

    fn load(&self, at: usize) -> u64 {
        // Acquire pairs with the Release in `store`.
        self.memory.words()[at].load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u64) {
        #[cfg(test)]
        tests::STORES.with_borrow_mut(|stores| stores.push((at, value)));
        // Release pairs with the Acquire in `load`: a reader of the value sees all earlier stores.
        self.memory.words()[at].store(value, Ordering::Release);
    }

    /// Counts the changes of all processes. Out of line: every call on an endpoint of a private
    /// address vector would have it within otherwise.
    #[cold]
    pub(super) fn version(&self) -> u64 {
        self.load(word::VERSION)
    }

    /// The number of entries that may be in use.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.load(word::LEN)).unwrap_or(usize::MAX).min(self.capacity)
    }

    /// Where the handles lie.
    pub(super) fn handles(&self) -> usize {
        self.memory.words()[handles_at(self.capacity)..].as_ptr().addr()
    }

    fn entry_at(index: usize) -> usize {
        ENTRIES + index * ENTRY
    }

    /// The entry of that index; `None` if it is free, is being written or makes no sense.
    fn entry(&self, index: usize) -> Option<Entry> {
        if index >= self.len() {
            return None;
        }
        let at = Self::entry_at(index);
        for _ in 0..TRIES {
            let sequence = self.load(at);
            let usage = self.load(at + 1);
            let (insertions, len) = (usage >> 8, usize::try_from(usage & 0xff).ok()?);
            if sequence % 2 == 1 || insertions == 0 {
                return None;
            }
            let mut bytes = [0; MAX_LEN];
            for (place, chunk) in bytes.chunks_exact_mut(8).enumerate() {
                // Relaxed: the fence below orders it before the second look at the sequence number.
                let word = self.memory.words()[at + 2 + place].load(Ordering::Relaxed);
                chunk.copy_from_slice(&word.to_ne_bytes());
            }
            // Acquire pairs with the Release fence in `Writer::write_entry`: a reader of one of its
            // words sees the odd sequence number.
            fence(Ordering::Acquire);
            if self.memory.words()[at].load(Ordering::Relaxed) == sequence {
                return Some(Entry { addr: Addr::decode(bytes.get(..len)?)?, insertions });
            }
        }
        None
    }

    /// The address of a handle.
    pub(super) fn lookup(&self, handle: FiAddr) -> Option<Addr> {
        self.entry(handle.index()?).map(|entry| entry.addr)
    }

    /// The slots of an index of this size.
    fn slots_of(&self, bits: u32) -> Range<usize> {
        let most = self.capacity.trailing_zeros() + 1;
        // 0 in a table without entries.
        let count = if bits == 0 { 0 } else { 1 << bits.min(most) };
        let first = index_at(self.capacity);
        first..first + count
    }

    /// The slots of the index at present, and the one at which the search for this key begins.
    fn slots(&self, key: &Addr) -> (Range<usize>, usize) {
        let slots = self.slots_of(u32::try_from(self.load(word::BITS)).unwrap_or(u32::MAX));
        let begin = usize::try_from(self.hash(key)).unwrap_or_default() & slots.len().saturating_sub(1);
        (slots, begin)
    }

    fn hash(&self, key: &Addr) -> u64 {
        let (bytes, len) = key.encode();
        let mut hash = self.memory.words()[word::SEED].load(Ordering::Relaxed);
        for chunk in bytes[..len.next_multiple_of(8)].chunks_exact(8) {
            let word = chunk.try_into().map_or(0, u64::from_ne_bytes);
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    }

    /// The slots in the order in which they are searched for a key.
    fn probe(&self, key: &Addr) -> impl Iterator<Item = usize> + use<> {
        let (slots, begin) = self.slots(key);
        let len = slots.len();
        (0..len).map(move |step| slots.start + ((begin + step) & (len - 1)))
    }

    /// The handle of a canonical address.
    pub(super) fn find(&self, key: &Addr) -> Option<FiAddr> {
        for _ in 0..TRIES {
            let sequence = self.load(word::INDEX);
            let found = if sequence.is_multiple_of(2) { self.find_slot(key).map(|(_, index)| index) } else { None };
            fence(Ordering::Acquire);
            // A change of the index cannot make another address appear as this one.
            if found.is_some() || sequence.is_multiple_of(2) && self.load(word::INDEX) == sequence {
                return found.map(|index| FiAddr(index as u64));
            }
        }
        // A writer builds the index, or was killed while it did.
        let same = |index: &usize| self.entry(*index).is_some_and(|entry| entry.addr.canonical() == *key);
        (0..self.len()).find(same).map(|index| FiAddr(index as u64))
    }

    /// The slot of a canonical address, and its entry.
    fn find_slot(&self, key: &Addr) -> Option<(usize, usize)> {
        for slot in self.probe(key) {
            match self.load(slot) {
                EMPTY => return None,
                TOMBSTONE => {}
                number => {
                    let index = usize::try_from(number - FIRST).unwrap_or(usize::MAX);
                    if self.entry(index).is_some_and(|entry| entry.addr.canonical() == *key) {
                        return Some((slot, index));
                    }
                }
            }
        }
        None
    }

    /// The present version, and the insertions since an earlier one, oldest first; `None` if there
    /// were other changes, or too many.
    pub(super) fn insertions_since(&self, version: u64) -> (u64, Option<Vec<(FiAddr, Addr)>>) {
        let now = self.version();
        if now.wrapping_sub(version) >= LOGGED {
            return (now, None);
        }
        let place = |version: u64| LOG.start + usize::try_from(version % LOGGED).unwrap_or_default();
        // Versions wrap like their difference.
        let versions = (0..now.wrapping_sub(version)).map(|step| version.wrapping_add(step));
        let numbers: Vec<u64> = versions.map(|version| self.load(place(version))).collect();
        fence(Ordering::Acquire);
        // The writer of the next change overwrites the oldest one before it counts.
        if self.version().wrapping_sub(version) >= LOGGED {
            return (now, None);
        }
        let insertion = |number: u64| {
            let handle = FiAddr(number >> 1);
            let addr = if number.is_multiple_of(2) { self.lookup(handle) } else { None };
            addr.map(|addr| (handle, addr.canonical()))
        };
        (now, numbers.into_iter().map(insertion).collect())
    }

    /// Makes a change while nothing else changes the table.
    fn change<T>(&self, mut make: impl FnMut(&Writer<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        if !self.memory.is_writable() {
            return Err(Errno::EACCES);
        }
        let mut made = None;
        self.memory.with_write_lock(&mut || {
            let writer = Writer { table: self };
            made = Some(writer.repair().and_then(|()| make(&writer)));
        })?;
        made.unwrap_or(Err(Errno::AGAIN))
    }

    /// Inserts an address and returns its handle, and whether it is new.
    ///
    /// # Errors
    /// EACCES in a table that this process may only read, ENOMEM if there is no memory or the table
    /// is full, or that of [`SharedMemory::with_write_lock`].
    pub(super) fn insert(&self, addr: Addr) -> Result<(FiAddr, bool), Errno> {
        self.change(|writer| writer.insert(addr))
    }

    /// Undoes one insertion.
    ///
    /// # Errors
    /// As for [`Self::insert`], and EINVAL if there is no such handle.
    pub(super) fn remove(&self, handle: FiAddr) -> Result<(), Errno> {
        self.change(|writer| writer.remove(handle))
    }
}

/// The process that has the lock.
struct Writer<'a> {
    table: &'a SharedTable,
}

impl Writer<'_> {
    /// Marks the table as being changed: the next writer repairs it if this one is killed.
    fn begin(&self) {
        self.table.store(word::DIRTY, 1);
        // Release orders the mark before the stores of the change.
        fence(Ordering::Release);
    }

    fn end(&self) {
        self.table.store(word::DIRTY, 0);
    }

    fn usage(&self, index: usize) -> u64 {
        self.table.load(SharedTable::entry_at(index) + 1)
    }

    /// Writes an entry. Readers that meet this see a free one.
    fn write_entry(&self, index: usize, entry: Option<&Addr>) {
        let (table, at) = (self.table, SharedTable::entry_at(index));
        // A killed writer may have left it odd.
        let sequence = table.load(at) | 1;
        table.store(at, sequence);
        // Pairs with the Acquire fence in `SharedTable::entry`.
        fence(Ordering::Release);
        let (bytes, len) = entry.map_or(([0; MAX_LEN], 0), Addr::encode);
        table.store(at + 1, if entry.is_some() { (1 << 8) | len as u64 } else { 0 });
        for (place, chunk) in bytes.chunks_exact(8).enumerate() {
            table.store(at + 2 + place, chunk.try_into().map_or(0, u64::from_ne_bytes));
        }
        table.store(at, sequence.wrapping_add(1));
    }

    /// Counts a change of an entry.
    fn log(&self, index: usize, removed: bool) {
        let version = self.table.version();
        let place = LOG.start + usize::try_from(version % LOGGED).unwrap_or_default();
        self.table.store(place, ((index as u64) << 1) | u64::from(removed));
        self.table.store(word::VERSION, version.wrapping_add(1));
    }

    /// Restores the invariants after a writer was killed.
    fn repair(&self) -> Result<(), Errno> {
        let table = self.table;
        if table.load(word::DIRTY) == 0 {
            return Ok(());
        }
        let mut used = 0;
        for index in 0..table.len() {
            let at = SharedTable::entry_at(index);
            let is_whole = table.load(at).is_multiple_of(2) && table.entry(index).is_some();
            if is_whole {
                used += 1;
            } else {
                self.write_entry(index, None);
            }
        }
        table.store(word::USED, used);
        table.store(word::FIRST_FREE, 0);
        self.build_index(0)?;
        // More than the log has: readers learn everything anew.
        table.store(word::VERSION, table.version().wrapping_add(LOGGED));
        self.end();
        Ok(())
    }

    /// Builds the index anew, with room for this many entries more. Without memory for one of the
    /// size that is best, it gets its present size again if that has room.
    fn build_index(&self, more: usize) -> Result<(), Errno> {
        let (table, len) = (self.table, self.table.len());
        // A quarter full at most, unless it is the largest.
        let wanted = ((len + more) * 4).next_power_of_two().trailing_zeros();
        let mut bits = wanted.max(FEWEST_BITS).min(table.capacity.trailing_zeros() + 1);
        if let Err(errno) = table.memory.allocate(table.slots_of(bits)) {
            bits = u32::try_from(table.load(word::BITS)).unwrap_or(u32::MAX);
            let used = table.load(word::USED).saturating_add(more as u64);
            if used > table.slots_of(bits).len() as u64 / 2 {
                return Err(errno);
            }
        }
        let sequence = table.load(word::INDEX) | 1;
        table.store(word::INDEX, sequence);
        // Pairs with the Acquire fence in `find`.
        fence(Ordering::Release);
        table.slots_of(bits).for_each(|slot| table.store(slot, EMPTY));
        table.store(word::BITS, u64::from(bits));
        table.store(word::FILLED, 0);
        for index in 0..len {
            if let Some(entry) = table.entry(index) {
                self.fill_slot(&entry.addr.canonical(), index);
            }
        }
        table.store(word::INDEX, sequence.wrapping_add(1));
        Ok(())
    }

    /// Enters an entry into the index, which has room.
    fn fill_slot(&self, key: &Addr, index: usize) {
        let table = self.table;
        let free = table.probe(key).find(|slot| table.load(*slot) < FIRST);
        if let Some(slot) = free {
            if table.load(slot) == EMPTY {
                table.store(word::FILLED, table.load(word::FILLED).saturating_add(1));
            }
            table.store(slot, index as u64 + FIRST);
        }
    }

    /// The lowest free entry.
    fn free_entry(&self) -> Result<usize, Errno> {
        let (table, len) = (self.table, self.table.len());
        if table.load(word::USED) < len as u64 {
            let first_free = usize::try_from(table.load(word::FIRST_FREE)).unwrap_or(0).min(len);
            if let Some(free) = (first_free..len).find(|index| self.usage(*index) >> 8 == 0) {
                return Ok(free);
            }
        }
        if len == table.capacity {
            return Err(Errno::ENOMEM);
        }
        if len.is_multiple_of(CHUNK) {
            let end = (len + CHUNK).min(table.capacity);
            table.memory.allocate(SharedTable::entry_at(len)..SharedTable::entry_at(end))?;
            let handles = handles_at(table.capacity);
            table.memory.allocate(handles + len..handles + end)?;
        }
        Ok(len)
    }

    fn insert(&self, addr: Addr) -> Result<(FiAddr, bool), Errno> {
        let (table, key) = (self.table, addr.canonical());
        if let Some((_, index)) = table.find_slot(&key) {
            let usage = self.usage(index);
            table.store(SharedTable::entry_at(index) + 1, usage.wrapping_add(1 << 8));
            return Ok((FiAddr(index as u64), false));
        }
        let index = self.free_entry()?;
        let slots = table.slots(&key).0.len() as u64;
        self.begin();
        if table.load(word::FILLED) >= slots / 2
            && let Err(errno) = self.build_index(1)
        {
            self.end();
            return Err(errno);
        }
        self.write_entry(index, Some(&addr));
        if index == table.len() {
            table.store(handles_at(table.capacity) + index, index as u64);
            table.store(word::LEN, index as u64 + 1);
        }
        self.fill_slot(&key, index);
        table.store(word::USED, table.load(word::USED).wrapping_add(1));
        table.store(word::FIRST_FREE, index as u64 + 1);
        self.log(index, false);
        self.end();
        Ok((FiAddr(index as u64), true))
    }

    fn remove(&self, handle: FiAddr) -> Result<(), Errno> {
        let (table, index) = (self.table, handle.index().ok_or(Errno::EINVAL)?);
        let entry = table.entry(index).ok_or(Errno::EINVAL)?;
        if entry.insertions > 1 {
            let usage = self.usage(index);
            table.store(SharedTable::entry_at(index) + 1, usage.wrapping_sub(1 << 8));
            return Ok(());
        }
        self.begin();
        if let Some((slot, _)) = table.find_slot(&entry.addr.canonical()) {
            table.store(slot, TOMBSTONE);
        }
        self.write_entry(index, None);
        table.store(word::USED, table.load(word::USED).saturating_sub(1));
        table.store(word::FIRST_FREE, table.load(word::FIRST_FREE).min(index as u64));
        self.log(index, true);
        self.end();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
