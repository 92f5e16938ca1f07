//! Reads of values that were stored a moment ago.
#![allow(unsafe_code)]

/// The value at a place, loaded by itself. For words that were just stored one by one: the compiler
/// would load several of them at once, and such a load waits until their stores have left the
/// processor's store buffer, with all earlier ones, those to other processors' lines among them.
#[inline(always)]
pub fn fresh<T: Copy>(place: &T) -> T {
    // SAFETY: a reference is valid for reads.
    unsafe { core::ptr::from_ref(place).read_volatile() }
}

/// A word in memory order.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(u64);

/// The same for the bytes of a word, wherever they lie.
#[inline(always)]
pub fn fresh_word(place: &[u8; 8]) -> u64 {
    // SAFETY: a reference is valid for reads.
    unsafe { fresh_word_at(place.as_ptr()) }
}

/// The same for bytes that no reference may name.
///
/// # Safety
/// Eight bytes are readable there.
#[inline(always)]
pub(crate) unsafe fn fresh_word_at(place: *const u8) -> u64 {
    // SAFETY: they are readable, and a packed word needs no alignment.
    let Word(word) = unsafe { place.cast::<Word>().read_volatile() };
    word
}
