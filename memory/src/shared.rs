//! Memory that another process maps too and may change at any time: copied, never referenced.
#![allow(unsafe_code)]

use crate::copy::{copy_in_pieces, copy_many};
use crate::{Buffer, prefetch};
use core::ptr::NonNull;

/// A piece of shared memory.
#[derive(Debug)]
pub struct Shared {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length; by `Shared::new` the memory is valid for every thread.
unsafe impl Send for Shared {}

impl Shared {
    /// The `len` bytes at `base`.
    ///
    /// # Safety
    /// They are mapped, readable, writable and not referenced for as long as the value exists.
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if the memory has `len` bytes from `at` on.
    #[inline]
    pub const fn holds(&self, at: usize, len: usize) -> bool {
        at <= self.len && len <= self.len - at
    }

    #[inline]
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(self.holds(at, len), "a copy beyond the end of shared memory");
        // SAFETY: `at` is at most `len`, within the one mapping.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Copies `len` bytes of a buffer, from `from` on, to offset `at`; fewer if the buffer ends.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn fill(&self, at: usize, buffer: &Buffer, from: usize, len: usize) {
        let mut place = self.place(at, len);
        buffer.for_each(from, len, |chunk| {
            // SAFETY: the chunks are readable by `Span::new` and together at most `len` bytes, for
            // which there is room.
            unsafe { copy_many(chunk.base, place, chunk.len) };
            place = place.wrapping_add(chunk.len);
        });
    }

    /// Prefetches the `len` bytes at offset `at` for writing.
    ///
    /// # Panics
    /// If the memory has fewer.
    #[inline]
    pub fn fetch_to_write(&self, at: usize, len: usize) {
        let first = self.place(at, len);
        for line in (0..len).step_by(64) {
            prefetch::to_write(first.wrapping_add(line));
        }
    }

    /// Copies bytes to offset `at`.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: a slice is readable, and there is room for it at `place`.
        unsafe { copy_many(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Copies the `len` bytes at offset `at` to a buffer, from `to` on; fewer if the buffer ends.
    ///
    /// # Panics
    /// If the memory has fewer.
    #[inline]
    pub fn drain(&self, at: usize, buffer: &mut Buffer, to: usize, len: usize) {
        self.drain_by(copy_many, at, buffer, to, len);
    }

    /// The same with vector instructions, however many bytes there are. Lines that are in another
    /// core's cache come several times as fast so on some processors.
    ///
    /// # Panics
    /// As for [`Self::drain`].
    pub fn drain_by_vectors(&self, at: usize, buffer: &mut Buffer, to: usize, len: usize) {
        self.drain_by(copy_in_pieces, at, buffer, to, len);
    }

    /// The same by one of the functions of `copy.rs`.
    #[inline(always)]
    fn drain_by(
        &self,
        copy: unsafe fn(*const u8, *mut u8, usize),
        at: usize,
        buffer: &mut Buffer,
        to: usize,
        len: usize,
    ) {
        let mut place = self.place(at, len).cast_const();
        buffer.for_each_mut(to, len, |chunk| {
            // SAFETY: the chunks are writable by `Span::new` and together at most `len` bytes,
            // which are there.
            unsafe { copy(place, chunk.base, chunk.len) };
            place = place.wrapping_add(chunk.len);
        });
    }

    /// Copies the bytes at offset `at` to `bytes`.
    ///
    /// # Panics
    /// If the memory has fewer.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: the bytes are there, and the slice is writable.
        unsafe { copy_many(place, bytes.as_mut_ptr(), bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_out() {
        let mut memory = vec![0u8; 64];
        // SAFETY: the vector outlives the value and is not looked at meanwhile.
        let shared = unsafe { Shared::new(NonNull::new(memory.as_mut_ptr()).unwrap(), 64) };
        shared.fill(10, &Buffer::Owned((0..20).collect()), 5, 10);
        let mut out = Buffer::Owned(vec![0; 12]);
        shared.drain(10, &mut out, 2, 10);
        let Buffer::Owned(bytes) = out else { unreachable!() };
        assert_eq!(bytes, [0, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        assert!(shared.holds(64, 0) && !shared.holds(64, 1) && !shared.holds(usize::MAX, 2));
    }

    #[test]
    fn vectors_copy_the_same_bytes() {
        let mut memory: Vec<u8> = (0..=250).cycle().take(20_000).collect();
        let expected = memory.clone();
        // SAFETY: the vector outlives the value and is not looked at meanwhile.
        let shared = unsafe { Shared::new(NonNull::new(memory.as_mut_ptr()).unwrap(), memory.len()) };
        for (at, len) in [(0, 0), (3, 1), (7, 2048), (1, 2049), (4096, 8191), (5, 19_995)] {
            let mut out = Buffer::Owned(vec![0; len + 2]);
            shared.drain_by_vectors(at, &mut out, 1, len);
            let Buffer::Owned(bytes) = out else { unreachable!() };
            assert_eq!((bytes[0], &bytes[1..=len], bytes[len + 1]), (0, &expected[at..at + len], 0));
        }
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn nothing_is_copied_beyond_the_end() {
        let mut memory = vec![0u8; 8];
        // SAFETY: the vector outlives the value and is not looked at meanwhile.
        let shared = unsafe { Shared::new(NonNull::new(memory.as_mut_ptr()).unwrap(), 8) };
        shared.write(4, &[0; 5]);
    }
}
