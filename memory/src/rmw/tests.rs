//! Tests of atomic operations: against C's arithmetic (`oracle`), against the formats of 8-bit
//! floats (`small`), against threads, holes and callers that ask for nonsense (here).

mod oracle;
mod small;

use super::*;
use crate::pages::{PAGE, Pages, everything};
use crate::region::Reach;
use core::time::Duration;
use ofi_core::MrAccess;
use ofi_sync::primitive::real::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Barrier;

const FAULT: RmwError = RmwError::Region(RegionError::Unreachable(Errno::EFAULT));

/// A call without compare values.
fn call<'a>(datatype: Datatype, op: AtomicOp, operand: &'a [u8]) -> AtomicCall<'a> {
    AtomicCall { datatype, op, operand, compare: operand }
}

/// The `len` bytes at an offset of pages.
fn range(region: &Region, offset: usize, len: usize) -> RegionUse<&Region> {
    region.resolve(offset as u64, len, MrAccess::empty()).unwrap()
}

/// One of each datatype.
fn one(datatype: Datatype) -> Vec<u8> {
    let mut one = vec![0; datatype.size()];
    let bits: &[u8] = match datatype {
        Datatype::Float | Datatype::FloatComplex => &1f32.to_ne_bytes(),
        Datatype::Double | Datatype::DoubleComplex => &1f64.to_ne_bytes(),
        Datatype::LongDouble | Datatype::LongDoubleComplex => &(0x3fff_8000_0000_0000_0000u128).to_ne_bytes(),
        Datatype::Float16 => &0x3c00u16.to_ne_bytes(),
        Datatype::Bfloat16 => &0x3f80u16.to_ne_bytes(),
        Datatype::Float8E4M3 => &[0x38],
        Datatype::Float8E5M2 => &[0x3c],
        _ => &[1],
    };
    one[..bits.len()].copy_from_slice(bits);
    one
}

#[test]
fn exactly_the_pairs_of_the_table_are_carried_out() {
    let pages = Pages::new(1);
    let region = pages.region();
    for datatype in Datatype::ALL {
        for op in AtomicOp::ALL {
            let one = one(datatype);
            let target = range(&region, 64, datatype.size());
            let outcome = apply(&target, &call(datatype, op, &one), Some(&mut vec![0; one.len()]));
            assert_eq!(outcome, if op.goes_with(datatype) { Ok(()) } else { Err(RmwError::Unsupported) });
        }
    }
}

#[test]
fn a_logical_operation_yields_one() {
    let pages = Pages::new(1);
    let region = pages.region();
    for datatype in Datatype::ALL {
        let one = one(datatype);
        for offset in [64, 65] {
            let target = range(&region, offset, datatype.size());
            target.write(0, &vec![0; one.len()]).unwrap();
            apply(&target, &call(datatype, AtomicOp::Lor, &one), None).unwrap();
            assert_eq!(pages.copy(offset, one.len()), one, "{datatype:?}");
        }
    }
}

#[test]
fn lengths_must_agree() {
    let (pages, bytes) = (Pages::new(1), [0; 24]);
    let region = pages.region();
    let outcome = |len, op, operand, compare, result| {
        let target = range(&region, 0, len);
        let call = AtomicCall { datatype: Datatype::Int64, op, operand: &bytes[..operand], compare: &bytes[..compare] };
        apply(&target, &call, Some(&mut vec![0; result]))
    };
    assert_eq!(outcome(16, AtomicOp::Sum, 16, 0, 16), Ok(()));
    assert_eq!(outcome(16, AtomicOp::Read, 0, 0, 16), Ok(()));
    assert_eq!(outcome(16, AtomicOp::Cswap, 16, 16, 16), Ok(()));
    assert_eq!(outcome(0, AtomicOp::Sum, 0, 0, 0), Ok(()));
    for wrong in [8, 15, 17, 24] {
        assert_eq!(outcome(16, AtomicOp::Sum, wrong, 0, 16), Err(RmwError::Count));
        assert_eq!(outcome(16, AtomicOp::Cswap, 16, wrong, 16), Err(RmwError::Count));
        assert_eq!(outcome(16, AtomicOp::Read, 0, 0, wrong), Err(RmwError::Count));
    }
    assert_eq!(outcome(15, AtomicOp::Sum, 15, 0, 15), Err(RmwError::Count));
}

#[test]
fn all_elements_are_updated_and_their_old_values_returned() {
    let pages = Pages::new(1);
    // Ranges that end within elements.
    let at = |offset| pages.at(offset);
    let ranges = [(at(0), 4), (at(100), 20), (at(200), 3), (at(203), 1), (at(300), 4)];
    // SAFETY: the pages outlive the region and are used through it alone.
    let region = unsafe { Region::new(&ranges, 0, MrAccess::all(), Reach::Mapped) }.unwrap();
    let bytes = |values: [u64; 4]| values.map(u64::to_ne_bytes).concat();
    let (first, second) = ([1, u64::MAX, 1 << 40, 7], [2, 2, 3, 4]);
    let target = range(&region, 0, 32);
    apply(&target, &call(Datatype::Uint64, AtomicOp::Write, &bytes(first)), None).unwrap();
    let mut before = vec![0; 32];
    apply(&target, &call(Datatype::Uint64, AtomicOp::Sum, &bytes(second)), Some(&mut before)).unwrap();
    assert_eq!(before, bytes(first));
    apply(&target, &call(Datatype::Uint64, AtomicOp::Read, &[]), Some(&mut before)).unwrap();
    assert_eq!(before, bytes([3, 1, (1 << 40) + 3, 11]));
}

/// Two threads add 1 by atomic operations to the element at an offset, and this one by `other`;
/// returns the sum of what all added.
fn hammer(pages: &Pages, offset: usize, datatype: Datatype, rounds: usize, other: impl FnOnce()) -> Vec<u8> {
    let (regions, one, start) = ([pages.region(), pages.region()], one(datatype), Barrier::new(3));
    std::thread::scope(|scope| {
        for region in &regions {
            scope.spawn(|| {
                start.wait();
                let target = range(region, offset, datatype.size());
                let call = call(datatype, AtomicOp::Sum, &one);
                (0..rounds).for_each(|_| apply(&target, &call, None).unwrap());
            });
        }
        start.wait();
        other();
    });
    pages.copy(offset, datatype.size())
}

#[test]
fn operations_are_atomic_with_those_of_the_application() {
    const ROUNDS: usize = 40_000;
    let pages = Pages::new(1);
    macro_rules! check {
        ($datatype:ident, $atomic:ty, $word:ty, $bits:expr) => {
            // SAFETY: the word lives as long as the pages, and is only accessed atomically.
            let word = unsafe { <$atomic>::from_ptr(pages.at(64).cast()) };
            word.store(0, Ordering::Relaxed);
            hammer(&pages, 64, Datatype::$datatype, ROUNDS, || {
                (0..ROUNDS).for_each(|_| {
                    // As an application adds to the type.
                    let next = |word: $word| Some($bits(word));
                    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap();
                });
            });
            let expected = (0..3 * ROUNDS).fold(0, |word: $word, _| $bits(word));
            assert_eq!(word.load(Ordering::Relaxed), expected, stringify!($datatype));
        };
    }
    check!(Uint8, AtomicU8, u8, |word: u8| word.wrapping_add(1));
    check!(Int16, AtomicU16, u16, |word: u16| word.wrapping_add(1));
    check!(Int32, AtomicU32, u32, |word: u32| word.wrapping_add(1));
    check!(Uint64, AtomicU64, u64, |word: u64| word.wrapping_add(1));
    check!(Float, AtomicU32, u32, |word: u32| (f32::from_bits(word) + 1.0).to_bits());
    check!(Double, AtomicU64, u64, |word: u64| (f64::from_bits(word) + 1.0).to_bits());
    check!(FloatComplex, AtomicU64, u64, |word: u64| {
        let (real, _) = <u32 as word::Half>::split(word);
        <u32 as word::Half>::join((f32::from_bits(real) + 1.0).to_bits(), 0)
    });
}

#[test]
fn elements_that_the_cpu_cannot_update_are_atomic_too() {
    const ROUNDS: usize = 40_000;
    let sum = 2.0 * ROUNDS as f64;
    let element = |datatype, offset| {
        let pages = Pages::new(1);
        hammer(&pages, offset, datatype, ROUNDS, || ())
    };
    for offset in [64, 66, 72] {
        let integer = u128::take(&element(Datatype::Uint128, offset), 0);
        assert_eq!(integer, 2 * ROUNDS as u128, "at {offset}");
        let complex = u64::take(&element(Datatype::DoubleComplex, offset), 0);
        assert_eq!(f64::from_bits(complex), sum, "at {offset}");
        // 80,000 is 1.22 * 2^16.
        let expected = (0x3fff + 16) << 64 | (2 * ROUNDS as u128) << (63 - 16);
        assert_eq!(u128::take(&element(Datatype::LongDouble, offset), 0), expected, "at {offset}");
        assert_eq!(u128::take(&element(Datatype::LongDoubleComplex, offset), 0), expected, "at {offset}");
    }
    for offset in [65, 68] {
        assert_eq!(u64::take(&element(Datatype::Uint64, offset), 0), 2 * ROUNDS as u64);
        assert_eq!(f64::from_bits(u64::take(&element(Datatype::Double, offset), 0)), sum);
    }
}

#[test]
fn memory_that_may_only_be_read_is_read() {
    let pages = Pages::new(2);
    let region = pages.region();
    // SAFETY: the pages are readable and outlive the region.
    let readable = unsafe { Region::new(&[(pages.at(0), 64)], 0, MrAccess::REMOTE_READ, Reach::Mapped) }.unwrap();
    for datatype in Datatype::ALL {
        let ones = one(datatype);
        apply(&range(&region, 0, datatype.size()), &call(datatype, AtomicOp::Write, &ones), None).unwrap();
        pages.protect(0, libc::PROT_READ);
        for offset in [0, 1, PAGE - datatype.size() / 2] {
            let mut before = vec![9; datatype.size()];
            let target = range(&region, offset, before.len());
            apply(&target, &call(datatype, AtomicOp::Read, &[]), Some(&mut before)).unwrap();
            assert_eq!(before, pages.copy(offset, before.len()), "{datatype:?} at {offset}");
        }
        let call = call(datatype, AtomicOp::Write, &ones);
        assert_eq!(
            apply(&range(&readable, 0, datatype.size()), &call, None),
            Err(RmwError::Region(RegionError::NoRight))
        );
        pages.protect(0, libc::PROT_READ | libc::PROT_WRITE);
    }
}

#[test]
fn holes_answer_efault() {
    let (pages, region) = (Pages::new(5), everything());
    pages.protect(1, libc::PROT_NONE);
    pages.protect(3, libc::PROT_READ);
    let range = |offset: usize, len| region.resolve(pages.at(offset).addr() as u64, len, MrAccess::empty()).unwrap();
    for datatype in Datatype::ALL {
        let (size, one) = (datatype.size(), one(datatype));
        let sum = |offset| apply(&range(offset, size), &call(datatype, AtomicOp::Sum, &one), None);
        let read = |offset| {
            let mut before = vec![9; size];
            let read = apply(&range(offset, size), &call(datatype, AtomicOp::Read, &[]), Some(&mut before));
            read.map(|()| before)
        };
        for offset in [0, 2 * PAGE, 3 * PAGE - size, 4 * PAGE + 3] {
            assert_eq!((sum(offset), read(offset)), (Ok(()), Ok(one.clone())), "{datatype:?} at {offset}");
        }
        for offset in [PAGE, 2 * PAGE - size, 2 * PAGE - 1, PAGE + 1 - size] {
            assert_eq!((sum(offset), read(offset)), (Err(FAULT), Err(FAULT)), "{datatype:?} at {offset}");
        }
        for offset in [3 * PAGE, 3 * PAGE + 1, 4 * PAGE - size] {
            assert_eq!((sum(offset), read(offset)), (Err(FAULT), Ok(vec![0; size])), "{datatype:?} at {offset}");
        }
        let clear = vec![0; size];
        for offset in [0, 2 * PAGE, 3 * PAGE - size, 4 * PAGE + 3] {
            apply(&range(offset, size), &call(datatype, AtomicOp::Write, &clear), None).unwrap();
        }
    }
}

#[test]
fn only_elements_that_the_cpu_cannot_update_wait_for_a_lock() {
    let pages = Pages::new(1);
    let region = pages.region();
    let wide = cfg!(target_arch = "x86_64") && std::arch::is_x86_feature_detected!("avx");
    let free = [(Datatype::Int8, 1), (Datatype::Float16, 2), (Datatype::Uint32, 4), (Datatype::FloatComplex, 8)];
    let free = free.into_iter().chain(wide.then_some((Datatype::Uint128, 16)));
    let (held, mut waited) = (hold(), false);
    std::thread::scope(|scope| {
        let (done, finished) = std::sync::mpsc::channel();
        scope.spawn(|| apply(&range(&region, 65, 8), &call(Datatype::Int64, AtomicOp::Write, &[1; 8]), None));
        for (datatype, offset) in free {
            let (done, region) = (done.clone(), &region);
            scope.spawn(move || {
                let target = range(region, offset, datatype.size());
                done.send(apply(&target, &call(datatype, AtomicOp::Sum, &one(datatype)), None)).unwrap();
            });
            let outcome = finished.recv_timeout(Duration::from_secs(20));
            waited |= outcome != Ok(Ok(()));
        }
        waited |= pages.copy(65, 8) != [0; 8];
        // Before anything is asserted: the threads of this scope end first.
        drop(held);
    });
    assert!(!waited);
    assert_eq!(pages.copy(65, 8), [1; 8]);
}
