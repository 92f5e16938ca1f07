//! Copies of any bytes from one address to another.
#![allow(unsafe_code)]

use crate::fresh::fresh_word_at;
use core::ptr;

const WORD: usize = size_of::<u64>();
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
        unsafe { ptr::copy(from, to, len) }
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
}
