use super::*;
use crate::av::AddressVector;
use core::cell::RefCell;
use core::net::SocketAddr;
use ofi_core::RxBits;
use ofi_sync::primitive::real::AtomicBool;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const CAPACITY: usize = 64;

/// Memory that the tables of one process share, as if they were those of several.
#[derive(Clone, Debug)]
struct Heap {
    words: Arc<[AtomicU64]>,
    writing: Arc<Mutex<()>>,
    is_writable: bool,
    capacity: usize,
    /// No more memory can be allocated.
    is_full: Arc<AtomicBool>,
}

impl Heap {
    fn new() -> Self {
        Self::of(CAPACITY)
    }

    fn of(capacity: usize) -> Self {
        let words: Arc<[AtomicU64]> = (0..words_for(capacity)).map(|_| AtomicU64::new(0)).collect();
        initialize(&words, 0x1234_5678);
        Self { words, writing: Arc::default(), is_writable: true, capacity, is_full: Arc::default() }
    }

    fn table(&self) -> SharedTable {
        SharedTable::new(Box::new(self.clone()), self.capacity).unwrap()
    }
}

impl SharedMemory for Heap {
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn with_write_lock(&self, change: &mut dyn FnMut()) -> Result<(), Errno> {
        let _writing = self.writing.lock().unwrap();
        change();
        Ok(())
    }

    fn allocate(&self, words: Range<usize>) -> Result<(), Errno> {
        assert!(words.end <= self.words.len());
        if self.is_full.load(Ordering::Relaxed) { Err(Errno::ENOMEM) } else { Ok(()) }
    }
}

/// An address of one of the three formats.
fn addr(number: u16) -> Addr {
    match number % 3 {
        0 => format!("fi_shm://name-{number}").parse().unwrap(),
        1 => Addr::from(SocketAddr::from(([0x2001, 0xdb8, 0, 0, 1, 2, 3, 4], number))),
        _ => Addr::from(SocketAddr::from(([10, 0, 0, 1], number))),
    }
}

fn insert(table: &SharedTable, number: u16) -> u64 {
    table.insert(addr(number)).unwrap().0.0
}

#[test]
fn tables_of_the_same_memory_have_the_same_handles() {
    let memory = Heap::new();
    let (one, other) = (memory.table(), memory.table());
    assert_eq!((insert(&one, 1), insert(&other, 2), insert(&one, 3)), (0, 1, 2));
    assert_eq!(other.insert(addr(1)), Ok((FiAddr(0), false)), "another insertion of the same address");
    assert_eq!(other.lookup(FiAddr(2)), Some(addr(3)));
    assert_eq!((other.find(&addr(3)), other.find(&addr(4))), (Some(FiAddr(2)), None));
    assert_eq!(one.remove(FiAddr(0)), Ok(()));
    assert_eq!(other.lookup(FiAddr(0)), Some(addr(1)), "inserted twice");
    assert_eq!((one.remove(FiAddr(0)), one.remove(FiAddr(0))), (Ok(()), Err(Errno::EINVAL)));
    assert_eq!((other.lookup(FiAddr(0)), other.find(&addr(1))), (None, None));
    assert_eq!(insert(&other, 9), 0, "the lowest free one");
    assert_eq!(insert(&other, 10), 3);
    assert_eq!(other.remove(FiAddr::UNSPEC), Err(Errno::EINVAL));
}

#[test]
fn addresses_are_found_in_any_form() {
    let table = Heap::new().table();
    let mapped: Addr = "fi_sockaddr_in6://[::ffff:10.0.0.1]:7".parse().unwrap();
    assert_eq!(table.insert(mapped), Ok((FiAddr(0), true)));
    assert_eq!((table.lookup(FiAddr(0)), table.find(&mapped.canonical())), (Some(mapped), Some(FiAddr(0))));
    assert_eq!(table.insert(mapped.canonical()), Ok((FiAddr(0), false)));
}

#[test]
fn a_full_table_takes_no_more() {
    let table = Heap::new().table();
    assert!((0..64).all(|number| insert(&table, number) == u64::from(number)));
    assert_eq!(table.insert(addr(64)), Err(Errno::ENOMEM));
    assert_eq!(table.remove(FiAddr(20)), Ok(()));
    assert_eq!(insert(&table, 64), 20);
    assert_eq!(table.find(&addr(64)), Some(FiAddr(20)));
}

#[test]
fn a_reader_changes_nothing() {
    let memory = Heap::new();
    insert(&memory.table(), 1);
    let reader = Heap { is_writable: false, ..memory }.table();
    assert_eq!(reader.insert(addr(2)), Err(Errno::EACCES));
    assert_eq!(reader.remove(FiAddr(0)), Err(Errno::EACCES));
    assert_eq!(reader.find(&addr(1)), Some(FiAddr(0)));
}

#[test]
fn changes_of_others_are_known_if_they_are_insertions() {
    let memory = Heap::new();
    let (one, other) = (memory.table(), memory.table());
    let version = one.version();
    insert(&other, 1);
    insert(&other, 2);
    insert(&other, 2);
    let inserted = vec![(FiAddr(0), addr(1)), (FiAddr(1), addr(2))];
    assert_eq!(one.insertions_since(version), (version + 2, Some(inserted)));
    assert_eq!(one.insertions_since(version + 2), (version + 2, Some(vec![])));
    assert_eq!(one.insertions_since(version + 3), (version + 2, None), "a version that never was");
    other.remove(FiAddr(0)).unwrap();
    assert_eq!(one.insertions_since(version), (version + 3, None));
    for _ in 0..LOGGED {
        insert(&other, 3);
        other.remove(FiAddr(0)).unwrap();
    }
    assert_eq!(one.insertions_since(version + 3).1, None, "more than it remembers");
    let now = one.version();
    insert(&other, 3);
    assert_eq!(one.insertions_since(now).1, Some(vec![(FiAddr(0), addr(3))]));
}

#[test]
fn other_memory_is_refused() {
    let memory = Heap::new();
    assert_eq!(SharedTable::new(Box::new(memory.clone()), 63).err(), Some(Errno::EINVAL));
    assert_eq!(SharedTable::new(Box::new(memory.clone()), 128).err(), Some(Errno::EINVAL));
    memory.words[word::MAGIC].store(1, Ordering::Relaxed);
    assert_eq!(SharedTable::new(Box::new(memory), CAPACITY).err(), Some(Errno::EINVAL));
}

/// The contents by handle.
fn contents(table: &SharedTable) -> BTreeMap<u64, Addr> {
    (0..CAPACITY as u64).filter_map(|index| Some((index, table.lookup(FiAddr(index))?))).collect()
}

/// Everything that readers can ask agrees.
fn check(table: &SharedTable, model: &BTreeMap<u64, Addr>) {
    assert_eq!(contents(table), *model);
    for (handle, addr) in model {
        assert_eq!(table.find(&addr.canonical()), Some(FiAddr(*handle)));
    }
}

thread_local!(pub(super) static STORES: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) });

/// A writer is killed after each of its stores. The table has `count` entries, and one of them is
/// removed; the index is built anew if they fill the table.
fn killed_writers(count: u16, removes: bool) {
    for step in 0.. {
        let memory = Heap::new();
        let table = memory.table();
        (0..count).for_each(|number| assert_eq!(insert(&table, number), u64::from(number)));
        table.remove(FiAddr(5)).unwrap();
        let before = contents(&table);
        let stores = recorded(&memory, |table| {
            if removes { table.remove(FiAddr(7)).unwrap() } else { assert_eq!(insert(table, 97), 5) }
        });
        let Some(done) = stores.get(..step) else { break };
        for (at, value) in done {
            memory.words[*at].store(*value, Ordering::Relaxed);
        }
        let mut after = before.clone();
        let touched = if removes { 7 } else { 5 };
        let changed = if removes { after.remove(&7) } else { after.insert(5, addr(97)) };
        assert_eq!(changed.is_some(), removes);
        // Readers see all other entries although no process has repaired anything.
        let seen = contents(&table);
        assert!(seen == before || seen == after, "step {step}");
        for (handle, addr) in before.iter().filter(|(handle, _)| **handle != touched) {
            assert_eq!(table.find(&addr.canonical()), Some(FiAddr(*handle)), "step {step}");
        }
        // The next writer repairs it; this one inserts an address again.
        assert_eq!(insert(&table, 0), 0);
        let seen = contents(&table);
        assert!(seen == before || seen == after, "step {step}");
        check(&table, &seen);
        assert_eq!(table.load(word::USED), seen.len() as u64);
        assert_eq!(table.find(&addr(97)).is_some(), seen.values().any(|other| *other == addr(97)));
    }
}

#[test]
fn a_writer_killed_at_any_step_loses_no_other_entry() {
    killed_writers(20, false);
    killed_writers(20, true);
}

#[test]
fn a_writer_killed_while_it_builds_the_index_loses_no_entry() {
    let memory = Heap::new();
    (0..64).for_each(|number| assert!(insert(&memory.table(), number) < 64));
    memory.table().remove(FiAddr(5)).unwrap();
    let stores = recorded(&memory, |table| assert_eq!(insert(table, 97), 5));
    assert!(stores.iter().any(|(at, _)| *at == word::INDEX), "the index is built anew");
    killed_writers(64, false);
}

#[test]
fn a_killed_writer_is_repaired_without_memory_for_a_larger_index() {
    let memory = Heap::of(1024);
    let table = memory.table();
    // As many as the smallest index takes. Built anew, it would get more slots.
    (0..256).for_each(|number| assert_eq!(insert(&table, number), u64::from(number)));
    memory.words[word::DIRTY].store(1, Ordering::Relaxed);
    memory.is_full.store(true, Ordering::Relaxed);
    assert_eq!(table.remove(FiAddr(7)), Ok(()));
    assert!((0..256).all(|number| table.find(&addr(number)).is_some() == (number != 7)));
    // What was removed makes room, although its slots are not empty.
    assert_eq!(insert(&table, 300), 7);
    assert_eq!(table.find(&addr(300)), Some(FiAddr(7)));
    assert_eq!(table.insert(addr(301)), Err(Errno::ENOMEM));
    assert_eq!(table.remove(FiAddr(8)), Ok(()));
}

#[test]
fn a_writer_killed_before_the_first_insertion_is_repaired_without_memory() {
    let memory = Heap::new();
    memory.words[word::DIRTY].store(1, Ordering::Relaxed);
    memory.is_full.store(true, Ordering::Relaxed);
    assert_eq!(memory.table().remove(FiAddr(0)), Err(Errno::EINVAL));
    assert_eq!(memory.table().insert(addr(1)), Err(Errno::ENOMEM));
    memory.is_full.store(false, Ordering::Relaxed);
    assert_eq!(insert(&memory.table(), 1), 0);
}

/// The stores that a change makes, in order, without their effect on `memory`.
fn recorded(memory: &Heap, change: impl FnOnce(&SharedTable)) -> Vec<(usize, u64)> {
    let copy = Heap::new();
    for (to, from) in copy.words.iter().zip(memory.words.iter()) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    STORES.with_borrow_mut(Vec::clear);
    change(&copy.table());
    STORES.take()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16),
    Remove(u64),
}

proptest! {
    #[test]
    fn it_is_a_table_of_the_lowest_free_indices(
        steps in proptest::collection::vec(
            prop_oneof![3 => (0..90u16).prop_map(Step::Insert), 2 => (0..70u64).prop_map(Step::Remove)], 0..300)
    ) {
        let memory = Heap::new();
        let tables = [memory.table(), memory.table()];
        let mut model: BTreeMap<u64, (Addr, u64)> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            let table = &tables[number % 2];
            match step {
                Step::Insert(which) => {
                    let known = model.iter_mut().find(|(_, entry)| entry.0 == addr(which));
                    if let Some((handle, entry)) = known {
                        entry.1 += 1;
                        prop_assert_eq!(table.insert(addr(which)), Ok((FiAddr(*handle), false)));
                    } else {
                        let free = (0..).find(|index| !model.contains_key(index)).unwrap_or(0);
                        if free < CAPACITY as u64 {
                            prop_assert_eq!(table.insert(addr(which)), Ok((FiAddr(free), true)));
                            model.insert(free, (addr(which), 1));
                        } else {
                            prop_assert_eq!(table.insert(addr(which)), Err(Errno::ENOMEM));
                        }
                    }
                }
                Step::Remove(handle) => {
                    let times = model.get_mut(&handle).map(|entry| { entry.1 -= 1; entry.1 });
                    if times == Some(0) {
                        model.remove(&handle);
                    }
                    prop_assert_eq!(table.remove(FiAddr(handle)).is_ok(), times.is_some());
                }
            }
        }
        check(&tables[1], &model.iter().map(|(handle, (addr, _))| (*handle, *addr)).collect());
    }

    #[test]
    fn garbage_is_no_panic(words in proptest::collection::vec((0..words_for(CAPACITY), any::<u64>()), 1..200), which in 0..20u16) {
        let memory = Heap::new();
        let table = memory.table();
        (0..20).for_each(|number| assert!(insert(&table, number) < 20));
        for (at, value) in words {
            memory.words[at].store(value, Ordering::Relaxed);
            // Small numbers do more harm.
            memory.words[at % 16].store(value % 70, Ordering::Relaxed);
        }
        drop(contents(&table));
        let _ = (table.find(&addr(which)), table.insertions_since(3), table.insert(addr(50)), table.remove(FiAddr(2)));
        let _ = (table.insert(addr(51)), table.find(&addr(51)));
    }
}

#[test]
fn an_insertion_without_a_handle_for_it_leaves_nothing() {
    let memory = Heap::new();
    let open = || AddressVector::shared(Box::new(memory.clone()), CAPACITY).unwrap();
    let (narrow, other) = (open().with_rx_bits(RxBits::new(63).unwrap()), open());
    assert_eq!([0, 1].map(|number| narrow.try_insert(addr(number))), [Ok(FiAddr(0)), Ok(FiAddr(1))]);
    assert_eq!(narrow.try_insert(addr(2)), Err(Errno::ENOMEM), "only two handles leave 63 bits");
    assert_eq!(other.lookup(FiAddr(2)), None);
}

#[test]
fn readers_meet_writers() {
    let memory = Heap::new();
    let (writer, reader) = (memory.table(), memory.table());
    (0..8).for_each(|number| assert!(insert(&writer, number) < 8));
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            for round in 0..20_000u16 {
                // Names and socket addresses of different lengths take turns in entry 8.
                let handle = insert(&writer, 100 + round % 50);
                writer.remove(FiAddr(handle)).unwrap();
            }
        });
        while !busy.is_finished() {
            for number in 0..8 {
                assert_eq!(reader.find(&addr(number)), Some(FiAddr(number.into())));
            }
            if let Some(seen) = reader.lookup(FiAddr(8)) {
                assert!((100..150).any(|number| addr(number) == seen), "{seen}");
            }
        }
    });
}
