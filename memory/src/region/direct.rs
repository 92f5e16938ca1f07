//! Accesses to mapped memory that the application may look at or change at the same time. Accesses
//! within an aligned word are loads and stores of the CPU; of longer writes the last word comes
//! last.

use crate::copy::copy_many;
use ofi_sync::primitive::real::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Up to this length, writes are words in ascending order; longer ones copy all but the last word
/// in any order.
const ASCENDING: usize = 128;

/// How many of the `len` bytes at `address` lie before the last aligned word that they touch: 0 if
/// they touch only one.
pub(super) fn before_last_word(address: usize, len: usize) -> usize {
    let Some(last) = len.checked_sub(1).map(|last| address.wrapping_add(last)) else { return 0 };
    (last & !(WORD - 1)).saturating_sub(address)
}

/// The length of the longest access at `address` that is naturally aligned and has at most `len`
/// bytes; `len` is not 0.
fn step(address: usize, len: usize) -> usize {
    let aligned = 1 << address.trailing_zeros().min(WORD.trailing_zeros());
    let mut size = WORD;
    while size > len || size > aligned {
        size /= 2;
    }
    size
}

/// The first `N` bytes; the caller passes at least as many.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    core::array::from_fn(|at| bytes[at])
}

/// Writes the bytes as naturally aligned stores, in ascending order.
///
/// # Safety
/// The memory is writable.
unsafe fn store(mut to: *mut u8, mut bytes: &[u8]) {
    // Release: a thread that sees a store sees those before it.
    while !bytes.is_empty() {
        let size = step(to.addr(), bytes.len());
        match size {
            // SAFETY: `step` found it aligned and within the bytes; this function's contract.
            1 => unsafe { AtomicU8::from_ptr(to) }.store(bytes[0], Ordering::Release),
            2 => {
                let value = u16::from_ne_bytes(first(bytes));
                // SAFETY: as above.
                unsafe { AtomicU16::from_ptr(to.cast()) }.store(value, Ordering::Release);
            }
            4 => {
                let value = u32::from_ne_bytes(first(bytes));
                // SAFETY: as above.
                unsafe { AtomicU32::from_ptr(to.cast()) }.store(value, Ordering::Release);
            }
            _ => {
                let value = u64::from_ne_bytes(first(bytes));
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr(to.cast()) }.store(value, Ordering::Release);
            }
        }
        to = to.wrapping_add(size);
        bytes = &bytes[size..];
    }
}

/// Writes the bytes: the last aligned word, or as much of it as they have, after all others.
///
/// # Safety
/// The memory is writable.
#[inline]
pub(super) unsafe fn write(to: *mut u8, bytes: &[u8]) {
    if let Ok(word) = <[u8; WORD]>::try_from(bytes)
        && to.addr().is_multiple_of(WORD)
    {
        // SAFETY: it is aligned; this function's contract. Release: as in `store`.
        return unsafe { AtomicU64::from_ptr(to.cast()) }.store(u64::from_ne_bytes(word), Ordering::Release);
    }
    if bytes.len() <= ASCENDING {
        // SAFETY: this function's contract.
        return unsafe { store(to, bytes) };
    }
    let count = before_last_word(to.addr(), bytes.len());
    // SAFETY: this function's contract; a peer may have been given the whole address space, with
    // the source, so they may overlap.
    unsafe { copy_many(bytes.as_ptr(), to, count) };
    // SAFETY: this function's contract.
    unsafe { store(to.wrapping_add(count), &bytes[count..]) };
}

/// Reads into `out`: bytes that lie in one aligned word and are themselves aligned, by one load.
///
/// # Safety
/// The memory is readable.
#[inline]
pub(super) unsafe fn read(from: *const u8, out: &mut [u8]) {
    if before_last_word(from.addr(), out.len()) > 0 {
        // SAFETY: this function's contract; they may overlap as in `write`.
        return unsafe { copy_many(from, out.as_mut_ptr(), out.len()) };
    }
    let (mut from, mut out) = (from.cast_mut(), out);
    while !out.is_empty() {
        let size = step(from.addr(), out.len());
        let (now, later) = out.split_at_mut(size);
        match size {
            // SAFETY: `step` found it aligned and within the bytes; this function's contract. The
            // value is only loaded.
            1 => now[0] = unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Acquire),
            2 => {
                // SAFETY: as above.
                let value = unsafe { AtomicU16::from_ptr(from.cast()) }.load(Ordering::Acquire);
                now.copy_from_slice(&value.to_ne_bytes());
            }
            4 => {
                // SAFETY: as above.
                let value = unsafe { AtomicU32::from_ptr(from.cast()) }.load(Ordering::Acquire);
                now.copy_from_slice(&value.to_ne_bytes());
            }
            _ => {
                // SAFETY: as above.
                let value = unsafe { AtomicU64::from_ptr(from.cast()) }.load(Ordering::Acquire);
                now.copy_from_slice(&value.to_ne_bytes());
            }
        }
        from = from.wrapping_add(size);
        out = later;
    }
}
