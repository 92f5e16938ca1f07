//! Copies of any bytes from one address to another.
#![allow(unsafe_code)]

use crate::fresh::fresh_word_at;
use core::ptr;

const WORD: usize = size_of::<u64>();
/// Bytes of a line of the caches, and of a page.
const LINE: usize = 64;
const PAGE: usize = 4 << 10;
/// At most the bytes that glibc copies by itself on any processor: from 2,112 on it may not.
const PIECE: usize = 2 << 10;
/// The longest copy that is done word by word: of what fits into two lines of a ring.
const SHORT: usize = 128;

/// Copies `len` bytes, which may overlap. Short ones without a call.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len == WORD {
        // SAFETY: a word is readable.
        let word = unsafe { from.cast::<u64>().read_unaligned() };
        // SAFETY: a word is writable.
        return unsafe { to.cast::<u64>().write_unaligned(word) };
    }
    // SAFETY: this function's contract.
    unsafe { copy_any(from, to, len) }
}

/// The same for less common lengths.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_any(from: *const u8, to: *mut u8, len: usize) {
    if !(WORD..=4 * WORD).contains(&len) {
        // SAFETY: this function's contract.
        return unsafe { copy_longer(from, to, len) };
    }
    let from = from.cast::<u64>();
    let to = to.cast::<u64>();
    // Reads everything before it writes anything. The words in the middle may coincide.
    let at = |word: usize| (word * WORD).min(len - WORD);
    // SAFETY: each word lies within the `len` bytes, which are at least a word.
    let words: [u64; 4] = core::array::from_fn(|word| unsafe { from.wrapping_byte_add(at(word)).read_unaligned() });
    for (word, value) in words.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { to.wrapping_byte_add(at(word)).write_unaligned(value) };
    }
}

/// The same for less than a word, or more than four.
///
/// # Safety
/// As for [`copy`].
#[inline(never)]
unsafe fn copy_longer(from: *const u8, to: *mut u8, len: usize) {
    if (WORD..=SHORT).contains(&len) && from.addr().abs_diff(to.addr()) >= len {
        // SAFETY: this function's contract; the two do not overlap.
        unsafe { copy_words(from, to, len) }
    } else {
        // SAFETY: this function's contract.
        unsafe { copy_many(from, to, len) }
    }
}

/// The same for many bytes: memmove(3), where that is fast. From 2 KiB on, glibc may leave a copy
/// to the processor (`rep movsb`). An AMD EPYC of family 25 then takes twenty times as long if the
/// target begins 1 to 31 bytes behind the source, counted from the beginnings of their pages, as a
/// buffer of malloc(3) does behind a page of ours; the rest of the line is taken in to be safe.
/// Shorter copies glibc makes by itself.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub(crate) unsafe fn copy_many(from: *const u8, to: *mut u8, len: usize) {
    if len > PIECE {
        // SAFETY: this function's contract.
        unsafe { copy_long(from, to, len) }
    } else {
        // SAFETY: this function's contract.
        unsafe { ptr::copy(from, to, len) }
    }
}

/// The same for more than a piece.
///
/// # Safety
/// As for [`copy`].
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    if is_close_behind(from, to) {
        // SAFETY: this function's contract.
        unsafe { copy_in_pieces(from, to, len) }
    } else {
        // SAFETY: this function's contract.
        unsafe { ptr::copy(from, to, len) }
    }
}

/// Whether the target begins up to a line behind the source, counted from the beginnings of their
/// pages.
#[inline]
fn is_close_behind(from: *const u8, to: *mut u8) -> bool {
    cfg!(target_arch = "x86_64") && (1..LINE).contains(&(to.addr().wrapping_sub(from.addr()) % PAGE))
}

/// The same in pieces that are short enough for glibc to copy them with vector instructions.
///
/// # Safety
/// As for [`copy`].
#[inline(never)]
pub(crate) unsafe fn copy_in_pieces(from: *const u8, to: *mut u8, len: usize) {
    if from.addr().abs_diff(to.addr()) < len {
        // A piece could overwrite the source of the next.
        // SAFETY: this function's contract.
        return unsafe { ptr::copy(from, to, len) };
    }
    for at in (0..len).step_by(PIECE) {
        let piece = PIECE.min(len - at);
        // SAFETY: this function's contract: it lies within both ranges, which do not overlap.
        unsafe { ptr::copy_nonoverlapping(from.wrapping_add(at), to.wrapping_add(at), piece) };
    }
}

/// The same for a few words: one by one, because the source is often a message that was read from a
/// ring word by word a moment ago ([`crate::fresh()`]).
///
/// # Safety
/// As for [`copy`]; there is at least one word, and the two ranges do not overlap.
unsafe fn copy_words(from: *const u8, to: *mut u8, len: usize) {
    let (last, mut at) = (len - WORD, 0);
    loop {
        // SAFETY: a word is readable there, because `at` is at most `last`.
        let word = unsafe { fresh_word_at(from.wrapping_add(at)) };
        // SAFETY: as above, and writable.
        unsafe { to.wrapping_add(at).cast::<u64>().write_unaligned(word) };
        if at == last {
            return;
        }
        // The last word may coincide with a part of the one before.
        at = last.min(at + WORD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_copies_copy_every_byte_and_no_other() {
        for len in 0..140 {
            let source: Vec<u8> = (1..=len).collect();
            let mut target = [0u8; 150];
            // SAFETY: both have `source.len()` bytes.
            unsafe { copy(source.as_ptr(), target[4..].as_mut_ptr(), source.len()) };
            assert_eq!(&target[4..4 + source.len()], &source[..]);
            assert!(target[..4].iter().chain(&target[4 + source.len()..]).all(|byte| *byte == 0));
        }
        for len in [20, 60] {
            let mut bytes: Vec<u8> = (0..80).collect();
            let base = bytes.as_mut_ptr();
            // SAFETY: within the vector; overlapping is what is tested.
            unsafe { copy(base, base.wrapping_add(3), len) };
            assert!((0..len).all(|at| usize::from(bytes[3 + at]) == at), "{len} bytes that overlap");
        }
    }

    #[test]
    fn long_copies_copy_every_byte_and_no_other() {
        // Both in pages, so that they begin at any distance behind each other's beginnings.
        let mut memory = vec![0u8; 20 * PAGE];
        let pages = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(PAGE));
        let (from, to) = (pages, pages.wrapping_add(9 * PAGE));
        for (behind, len) in [0, 1, 16, 63, 64, PAGE - 1]
            .into_iter()
            .flat_map(|behind| [PIECE, PIECE + 1, 2 * PIECE, 8 * PIECE, 8 * PIECE + 7].map(|len| (behind, len)))
        {
            assert_eq!(is_close_behind(from, to.wrapping_add(behind)), (1..64).contains(&behind));
            for at in 0..19 * PAGE {
                let byte = if at < 9 * PAGE { u8::try_from(at % 251).unwrap() } else { 255 };
                // SAFETY: within the vector.
                unsafe { pages.wrapping_add(at).write(byte) };
            }
            // SAFETY: both are within the vector, and do not overlap.
            unsafe { copy(from, to.wrapping_add(behind), len) };
            for at in 0..10 * PAGE {
                // SAFETY: within the vector.
                let byte = unsafe { to.wrapping_add(at).read() };
                let copied = at.checked_sub(behind).filter(|at| *at < len);
                let expected = copied.map_or(255, |at| u8::try_from(at % 251).unwrap());
                assert_eq!(byte, expected, "{behind} {len} {at}");
            }
        }
    }

    #[test]
    fn long_copies_may_overlap() {
        for behind in [1, 16, 63, 64, 100] {
            let bytes: Vec<u8> = (0..10 * PIECE).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let (mut target, len) = (bytes.clone(), 9 * PIECE);
            let base = target.as_mut_ptr();
            // SAFETY: within the vector; overlapping is what is tested.
            unsafe { copy(base, base.wrapping_add(behind), len) };
            assert!(target[behind..behind + len] == bytes[..len], "{behind}");
        }
    }
}
