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
