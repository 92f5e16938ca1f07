use super::*;
use crate::Buffer;
use crate::pages::{PAGE, Pages, everything, without_process_vm};
use core::ptr;
use ofi_sync::primitive::real::{AtomicU64, Ordering};
use proptest::prelude::*;

const ANY: MrAccess = MrAccess::empty();
const FAULT: RegionError = RegionError::Unreachable(Errno::EFAULT);

fn bytes(len: usize) -> Vec<u8> {
    (0..=250u8).cycle().take(len).collect()
}

/// A region of several pieces of one allocation, in reverse order.
fn scattered(memory: &mut [u8], sizes: &[usize], first: u64) -> Region {
    let mut end = memory.len();
    let mut ranges = Vec::new();
    for size in sizes {
        end -= size;
        ranges.push((memory.as_mut_ptr().wrapping_add(end), *size));
    }
    // SAFETY: the tests look at the memory only when the region is not in use.
    unsafe { Region::new(&ranges, first, MrAccess::all(), Reach::Mapped) }.unwrap()
}

proptest! {
    #[test]
    fn exactly_the_ranges_within_the_region_are_resolved(
        sizes in proptest::collection::vec(0usize..40, 0..5),
        first in prop_oneof![Just(0u64), any::<u64>(), Just(u64::MAX - 100)],
        skip in prop_oneof![-3i64..200, any::<i64>()],
        len in prop_oneof![0usize..200, any::<usize>(), Just(usize::MAX)],
    ) {
        let mut memory = vec![0u8; 200];
        let total: usize = sizes.iter().sum();
        let ranges: Vec<_> = sizes.iter().map(|size| (memory.as_mut_ptr(), *size)).collect();
        // SAFETY: nothing is read or written.
        let region = unsafe { Region::new(&ranges, first, MrAccess::all(), Reach::Mapped) };
        prop_assert_eq!(region.is_ok(), first.checked_add(total as u64).is_some());
        let Ok(region) = region else { return Ok(()) };
        let address = first.wrapping_add_signed(skip);
        let fits = address >= first && u128::from(address) + len as u128 <= u128::from(first) + total as u128;
        match region.resolve(address, len, ANY) {
            Ok(range) => {
                prop_assert!(fits);
                let mut parts = Vec::new();
                range.for_each_part(0, len, |_, len| parts.push(len));
                prop_assert!(parts.len() <= sizes.len() && parts.iter().all(|part| *part > 0));
                prop_assert_eq!(parts.iter().sum::<usize>(), len);
            }
            Err(error) => prop_assert!(!fits && error == RegionError::OutOfRange),
        }
    }

    #[test]
    fn bytes_land_where_they_are_named(
        sizes in proptest::collection::vec(0usize..200, 1..5),
        at in 0usize..300,
        len in 0usize..400,
        skew in 0usize..8,
    ) {
        let total: usize = sizes.iter().sum();
        let mut memory = vec![0u8; total + skew];
        let region = scattered(&mut memory[..total + skew - skew / 2], &sizes, 7);
        let (at, written) = (at.min(total), bytes(len.min(total - at.min(total))));
        let range = region.resolve(7, total, ANY).unwrap();
        range.write(at, &written).unwrap();
        let mut all = vec![9; total];
        range.read(0, &mut all).unwrap();
        let mut expected = vec![0; total];
        expected[at..at + written.len()].copy_from_slice(&written);
        prop_assert_eq!(&all, &expected);
        let mut part = vec![9; written.len()];
        range.read(at, &mut part).unwrap();
        prop_assert_eq!(&part, &written);
        prop_assert_eq!(range.write(at + 1, &vec![0; total - at]), Err(RegionError::OutOfRange));
        drop(range);
        // The pieces, in reverse order, are all that was written.
        let mut end = total + skew - skew / 2;
        let mut seen = Vec::new();
        for size in &sizes {
            seen.extend_from_slice(&memory[end - size..end]);
            end -= size;
        }
        prop_assert_eq!(seen, expected);
        prop_assert!(memory[..end].iter().chain(&memory[total + skew - skew / 2..]).all(|byte| *byte == 0));
    }
}

#[test]
fn rights_are_needed_and_come_before_bounds() {
    let mut memory = [0u8; 8];
    let access = MrAccess::REMOTE_READ | MrAccess::SEND;
    // SAFETY: nothing is read or written.
    let region = unsafe { Region::new(&[(memory.as_mut_ptr(), 8)], 0, access, Reach::Mapped) }.unwrap();
    assert!(region.resolve(8, 0, MrAccess::REMOTE_READ).is_ok());
    assert_eq!(region.resolve(9, 0, MrAccess::REMOTE_READ).err(), Some(RegionError::OutOfRange));
    assert_eq!(region.resolve(9, 0, MrAccess::REMOTE).err(), Some(RegionError::NoRight));
    assert_eq!(RegionError::NoRight.errno(), Errno::EACCES);
}

#[test]
fn memory_without_a_right_to_change_it_is_not_written() {
    let pages = Pages::new(1);
    pages.protect(0, libc::PROT_READ);
    let access = MrAccess::REMOTE_READ | MrAccess::SEND | MrAccess::WRITE;
    // SAFETY: the pages are readable and outlive the region.
    let region = unsafe { Region::new(&[(pages.at(0), PAGE)], 0, access, Reach::Mapped) }.unwrap();
    let range = region.resolve(0, 8, ANY).unwrap();
    assert_eq!(range.write(0, &[1; 8]), Err(RegionError::NoRight));
    let mut buffer = Buffer::registered(range.into_owned()).unwrap();
    assert_eq!(buffer.write_at(0, b"1"), 0);
    buffer.for_each_mut(0, 8, |_| panic!("handed out to be written"));
    assert_eq!(buffer.read_at(0, &mut [9; 8]), 8);
}

#[test]
fn a_range_beyond_the_address_space_is_no_region() {
    let new = |len, first| {
        // SAFETY: nothing is read or written.
        unsafe { Region::new(&[(ptr::without_provenance_mut(16), len)], first, ANY, Reach::Probed) }
    };
    assert_eq!(new(usize::MAX, 0).err(), Some(RegionError::OutOfRange));
    assert_eq!(new(usize::MAX - 16, 17).err(), Some(RegionError::OutOfRange));
    assert!(new(usize::MAX - 16, 16).is_ok());
}

#[test]
fn a_closed_region_is_idle_when_the_last_use_has_ended() {
    let mut memory = vec![0u8; 64];
    let region = scattered(&mut memory, &[30, 34], 0);
    let short = region.resolve(0, 8, ANY).unwrap();
    let long = region.resolve(20, 20, ANY).unwrap().into_owned();
    let buffer = Buffer::registered(long).unwrap();
    region.close();
    assert_eq!(region.resolve(0, 8, ANY).err(), Some(RegionError::Closed));
    drop(short);
    assert!(!region.is_idle());
    drop(buffer);
    assert!(region.is_idle());
    region.reopen();
    assert!(region.resolve(0, 8, ANY).is_ok());
}

#[test]
fn a_buffer_of_a_region_is_its_memory() {
    let mut memory = vec![0u8; 64];
    let region = scattered(&mut memory, &[30, 34], 100);
    let range = region.resolve(120, 20, ANY).unwrap().into_owned();
    let mut buffer = Buffer::registered(range).unwrap();
    assert_eq!((buffer.len(), buffer.address()), (20, memory.as_ptr().addr() + 34 + 20));
    assert!(buffer.as_one().is_none() && buffer.words(8).is_none() && buffer.split_front(1).is_none());
    assert_eq!(buffer.write_at(8, b"12345678"), 8);
    assert_eq!(buffer.write_at(18, b"abc"), 2);
    assert_eq!(buffer.write_at(21, b"abc"), 0);
    let mut lens = Vec::new();
    buffer.for_each_mut(4, 99, |mut chunk| lens.push(chunk.write(b"xyzw")));
    assert_eq!(lens, [4, 4]);
    let mut out = [9; 24];
    assert_eq!(buffer.read_at(6, &mut out), 14);
    assert_eq!(&out[..14], b"zw12xyzw78\0\0ab");
    drop(buffer);
    assert_eq!(&memory[34 + 24..], b"xyzw12");
    assert_eq!(&memory[..10], b"xyzw78\0\0ab");
}

#[test]
fn registered_memory_may_be_kept_by_any_thread() {
    fn sent<T: Send + Sync>() {}
    sent::<Region>();
    sent::<RegionUse<Region>>();
    assert_eq!(size_of::<Buffer>(), 32);
}

/// All ways to touch a byte that is not there, or may not be changed.
fn touch_holes() {
    let (pages, region) = (Pages::new(5), everything());
    pages.protect(1, libc::PROT_NONE);
    pages.protect(3, libc::PROT_READ);
    let range = |offset, len| region.resolve(pages.at(offset).addr() as u64, len, ANY).unwrap();
    for len in [1, 2, 7, 8, 9, 63, 64, 1000, PAGE] {
        let (written, mut got) = (bytes(len), vec![0; len]);
        // Mapped bytes.
        range(PAGE - len, len).write(0, &written).unwrap();
        range(PAGE - len, len).read(0, &mut got).unwrap();
        assert_eq!((&pages.copy(PAGE - len, len), &got), (&written, &written));
        // A hole, at its begin, at its end, and before and behind it.
        for offset in [PAGE, 2 * PAGE - len, PAGE - len / 2, 2 * PAGE - len.div_ceil(2)] {
            assert_eq!(range(offset, len).write(0, &written), Err(FAULT), "{len} at {offset}");
            assert_eq!(range(offset, len).read(0, &mut got), Err(FAULT), "{len} at {offset}");
        }
        // Bytes that may only be read.
        range(3 * PAGE, len).read(0, &mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == 0));
        assert_eq!(range(3 * PAGE + 3, len).write(0, &written[..len.min(PAGE - 3)]), Err(FAULT));
        assert_eq!(range(3 * PAGE - len / 2, len).write(0, &written), Err(FAULT));
    }
    assert_eq!(region.resolve(16, 8, ANY).unwrap().write(0, &[0; 8]), Err(FAULT));
    assert_eq!(region.resolve(u64::MAX - 8, 8, ANY).unwrap().read(0, &mut [0; 8]), Err(FAULT));
    assert_eq!(range(PAGE - 8, 16).try_pages(true), Err(FAULT));
    assert_eq!(range(PAGE - 8, 16).try_pages(false), Err(FAULT));
    assert_eq!(range(2 * PAGE, PAGE + 1).try_pages(true), Err(FAULT));
    assert_eq!(range(2 * PAGE, 2 * PAGE).try_pages(false), Ok(()));
    assert_eq!(range(2 * PAGE, PAGE).try_pages(true), Ok(()));
    assert!(Buffer::registered(range(0, 8).into_owned()).is_err());
    let file = Pages::of_short_file(2);
    for (offset, outcome) in [(PAGE - 8, Ok(())), (PAGE, Err(FAULT)), (PAGE - 4, Err(FAULT))] {
        let range = region.resolve(file.at(offset).addr() as u64, 8, ANY).unwrap();
        assert_eq!(range.write(0, &[1; 8]), outcome);
        assert_eq!(range.read(0, &mut [0; 8]), outcome);
        assert_eq!(range.try_pages(true), outcome);
    }
}

#[test]
fn holes_answer_efault_also_where_direct_copies_are_forbidden() {
    // In this order: what the process finds out stays.
    assert!(!kernel::FORBIDDEN.load(Ordering::Relaxed));
    touch_holes();
    without_process_vm(touch_holes);
    assert!(kernel::FORBIDDEN.load(Ordering::Relaxed));
}

#[test]
fn a_pipe_copies_as_much_as_one_wants() {
    let (from, pages) = (bytes(3 * PAGE - 11), Pages::new(4));
    let copy = |from: &[u8], to, len| {
        assert!(len <= from.len());
        // SAFETY: the pages are the test's.
        unsafe { kernel::through_pipe(from.as_ptr(), to, len) }
    };
    copy(&from, pages.at(5), from.len()).unwrap();
    assert_eq!(pages.copy(5, from.len()), from);
    pages.protect(3, libc::PROT_NONE);
    assert_eq!(copy(&from, pages.at(PAGE), from.len()), Err(Errno::EFAULT));
    copy(&[], pages.at(3 * PAGE), 0).unwrap();
}

#[test]
fn populating_a_page_tells_whether_it_is_writable() {
    let pages = Pages::new(2);
    pages.protect(1, libc::PROT_READ);
    // SAFETY: the pages are the test's.
    let populate = |offset: usize| unsafe { kernel::populate(pages.at(offset)) };
    assert_eq!(populate(5), Ok(()));
    assert_eq!(populate(PAGE + 5), Err(Errno::EFAULT));
    pages.protect(1, libc::PROT_NONE);
    assert_eq!(populate(PAGE), Err(Errno::EFAULT));
}

#[test]
fn trying_a_page_changes_nothing_and_loses_no_addition_of_others() {
    let (pages, region) = (Pages::new(1), everything());
    // SAFETY: the word lives as long as the pages, and is only accessed atomically.
    let word = unsafe { AtomicU64::from_ptr(pages.at(64).cast()) };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..100_000).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed)));
        let range = region.resolve(pages.at(64).addr() as u64, 8, ANY).unwrap();
        (0..20_000).for_each(|_| range.try_pages(true).unwrap());
    });
    assert_eq!(word.load(Ordering::Relaxed), 100_000);
}

#[test]
fn a_short_aligned_write_is_one_store_and_a_read_one_load() {
    const ROUNDS: u64 = 100_000;
    for region in [everything(), Pages::new(1).region()] {
        let pages = Pages::new(1);
        let region = if region.reach() == Reach::Mapped { pages.region() } else { region };
        let address = if region.reach() == Reach::Mapped { 4096 } else { pages.at(4096).addr() as u64 };
        let rounds = if region.reach() == Reach::Mapped { ROUNDS } else { ROUNDS / 10 };
        let range = region.resolve(address, 8, ANY).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..=rounds).for_each(|n| range.write(0, &(n * 0x1_0000_0001).to_ne_bytes()).unwrap()));
            let mut last = 0;
            while last < rounds {
                let mut seen = [0; 8];
                range.read(0, &mut seen).unwrap();
                let seen = u64::from_ne_bytes(seen);
                assert_eq!(seen >> 32, seen & 0xffff_ffff, "torn");
                last = seen & 0xffff_ffff;
            }
        });
    }
}

/// Waits without giving the processor away, unless it takes long: the other thread may need it.
fn spin(mut is_over: impl FnMut() -> bool) {
    while !(0..500).any(|_| is_over()) {
        std::thread::yield_now();
    }
}

#[test]
fn the_last_word_is_written_last() {
    const ROUNDS: u64 = 10_000;
    for len in [16, 64, 128, 136, 1024, 8192] {
        let pages = Pages::new(1);
        let region = pages.region();
        let range = region.resolve(0, len, ANY).unwrap();
        // SAFETY: the word lives as long as the pages, and is only accessed atomically.
        let word = |at: usize| unsafe { AtomicU64::from_ptr(pages.at(at).cast()) };
        let (go, mut late) = (AtomicU64::new(0), false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    spin(|| go.load(Ordering::Acquire) + 1 >= round);
                    let words = vec![round; len / 8];
                    let written: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
                    range.write(0, &written).unwrap();
                }
            });
            for round in 1..=ROUNDS {
                spin(|| word(len - 8).load(Ordering::Acquire) >= round);
                late |= (0..len / 8).any(|at| word(at * 8).load(Ordering::Relaxed) < round);
                go.store(round, Ordering::Release);
            }
        });
        assert!(!late, "{len} bytes");
    }
}

#[test]
fn a_flush_reports_pages_that_are_not_mapped() {
    let pages = Pages::new(1);
    pages.region().resolve(100, 5000, ANY).unwrap().flush().unwrap();
    let hole = everything();
    assert_eq!(hole.resolve(16, 8, ANY).unwrap().flush(), Err(FAULT));
}

#[test]
fn short_regions_are_populated_and_others_looked_up() {
    let reach = |pages: &Pages, from: usize, len: usize, access, mapped: Option<bool>| {
        let looked = core::cell::Cell::new(false);
        // SAFETY: the pages are the test's.
        let reach = unsafe {
            Reach::of(&[(pages.at(from), len)], access, |_| {
                looked.set(true);
                mapped.unwrap_or_default()
            })
        };
        assert_eq!(looked.get(), mapped.is_some(), "{len} bytes, {access:?}");
        reach
    };
    let (pages, everything) = (Pages::new(8), MrAccess::all());
    let local = MrAccess::SEND | MrAccess::RECV | MrAccess::READ | MrAccess::WRITE;
    assert_eq!(reach(&pages, 0, 8 * PAGE, local, None), Reach::Probed, "no peer reaches it");
    assert_eq!(reach(&pages, 100, POPULATE_MAX - 100, everything, None), Reach::Mapped);
    assert_eq!(reach(&pages, 0, POPULATE_MAX + 1, everything, Some(true)), Reach::Mapped);
    assert_eq!(reach(&pages, 0, POPULATE_MAX + 1, everything, Some(false)), Reach::Probed);
    pages.protect(2, libc::PROT_READ);
    assert_eq!(reach(&pages, PAGE, 2 * PAGE, MrAccess::REMOTE_READ, None), Reach::Mapped);
    // The kernel does not say whether a right or its own support is missing.
    assert_eq!(reach(&pages, PAGE, 2 * PAGE, everything, Some(false)), Reach::Probed);
    let short = Pages::of_short_file(2);
    assert_eq!(reach(&short, 0, PAGE, everything, None), Reach::Mapped);
    assert_eq!(reach(&short, 0, 2 * PAGE, everything, None), Reach::Probed, "a touch would raise SIGBUS");
    let at = pages.at(5 * PAGE);
    drop(pages);
    // SAFETY: nothing is read or written; the pages may be those of another test by now.
    let gone = unsafe { Reach::of(&[(at, 0)], everything, |_| unreachable!("no bytes")) };
    assert_eq!(gone, Reach::Mapped);
}

#[test]
fn content_survives_being_populated() {
    let pages = Pages::new(1);
    let bytes = bytes(300);
    let region = pages.region();
    region.resolve(50, 300, ANY).unwrap().write(0, &bytes).unwrap();
    // SAFETY: the pages are the test's.
    let reach = unsafe { Reach::of(&[(pages.at(50), 300)], MrAccess::all(), |_| unreachable!("short")) };
    assert_eq!((reach, pages.copy(50, 300)), (Reach::Mapped, bytes));
}
