//! Buffers that the application lent or that we own, as bytes to copy from and to.
//! Invariant: the caller of [`Span::new`] vouches for the memory for as long as the buffer exists.
//! We never form references to the bytes: the application may look at its memory while the library
//! fills it, so all access is by raw copies and by system calls.
#![allow(unsafe_code)]

use crate::copy::{copy, copy_many};
use crate::region::{Reach, Region, RegionUse};
use core::marker::PhantomData;
use core::ptr;

/// Memory that the application lends for an operation.
#[derive(Debug)]
pub struct Span {
    base: *mut u8,
    len: usize,
}

// SAFETY: a span is an address and a length; `Span::new` obliges its caller to keep the memory
// valid for every thread, and only one buffer owns the span.
unsafe impl Send for Span {}

impl Span {
    /// The `len` bytes at `base`. `base` may be anything if `len` is 0.
    ///
    /// # Safety
    /// Until the buffer made of it is dropped or handed back, the memory must be readable, for a
    /// receive writable, and the application must not rely on its content (receive) or change it
    /// (send).
    pub const unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self { base, len }
    }

    /// Length in bytes.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to offset `at`; returns how many fit.
    #[inline(always)]
    pub fn write_at(&mut self, at: usize, bytes: &[u8]) -> usize {
        let at = at.min(self.len);
        let count = bytes.len().min(self.len - at);
        // SAFETY: `count` bytes from `at` lie within the span.
        let target = unsafe { self.base.add(at) };
        // SAFETY: they are writable by `Span::new`; `copy` allows overlap with the source.
        unsafe { copy(bytes.as_ptr(), target, count) };
        count
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.base.addr()
    }

    /// `len` bytes from offset `at` on, as far as there are any.
    pub(crate) fn chunk(&self, at: usize, len: usize) -> Chunk<'_> {
        let at = at.min(self.len);
        Chunk { base: self.base.wrapping_add(at), len: len.min(self.len - at), life: PhantomData }
    }
}

/// Bytes to send from, or to receive into.
#[derive(Debug)]
pub enum Buffer {
    /// One piece of the application's memory.
    One(Span),
    /// Several pieces, and their total length.
    Many(Box<[Span]>, usize),
    /// Memory that we own.
    Owned(Vec<u8>),
    /// A range of registered memory.
    Registered(Registered),
}

/// A range of registered memory, all of it mapped, that is in use until this is dropped.
#[derive(Debug)]
pub struct Registered(RegionUse<Region>);

/// A piece of readable memory, laid out like a `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Chunk<'a> {
    pub(crate) base: *const u8,
    pub(crate) len: usize,
    life: PhantomData<&'a [u8]>,
}

/// A piece of writable memory, laid out like a `struct iovec`.
#[derive(Debug)]
#[repr(C)]
pub struct ChunkMut<'a> {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
    life: PhantomData<&'a mut [u8]>,
}

/// Iterates over a short piece of memory in words; zeros fill up the last one.
#[derive(Debug)]
pub struct Words<'a> {
    base: *const u8,
    left: usize,
    life: PhantomData<&'a [u8]>,
}

impl Iterator for Words<'_> {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        if self.left >= WORD {
            // SAFETY: `left` bytes from `base` on are readable by `Span::new`, or of a vector's.
            let word = unsafe { self.base.cast::<u64>().read_unaligned() };
            self.base = self.base.wrapping_add(WORD);
            self.left -= WORD;
            return Some(word);
        }
        if self.left == 0 { None } else { Some(self.last()) }
    }
}

impl Words<'_> {
    fn last(&mut self) -> u64 {
        let mut word = [0; WORD];
        let count = core::mem::take(&mut self.left).min(WORD);
        // SAFETY: `count` bytes from `base` on are readable as in `next`, and fit into a word.
        unsafe { ptr::copy(self.base, word.as_mut_ptr(), count) };
        u64::from_ne_bytes(word)
    }
}

impl<'a> Chunk<'a> {
    /// The bytes of a slice.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { base: bytes.as_ptr(), len: bytes.len(), life: PhantomData }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, for system calls.
    pub const fn base(&self) -> *const u8 {
        self.base
    }

    /// Appends the bytes to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len);
        let at = out.len();
        // SAFETY: `reserve` made room for `len` bytes behind `at`.
        let end = unsafe { out.as_mut_ptr().add(at) };
        // SAFETY: the chunk's bytes are readable by `Span::new` or by its slice, the room is ours
        // and fresh.
        unsafe { copy_many(self.base, end, self.len) };
        // SAFETY: those bytes were just written.
        unsafe { out.set_len(at + self.len) };
    }
}

impl<'a> ChunkMut<'a> {
    /// The bytes of a slice.
    pub const fn of(bytes: &'a mut [u8]) -> Self {
        Self { base: bytes.as_mut_ptr(), len: bytes.len(), life: PhantomData }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address, for system calls that write to it.
    pub const fn base(&mut self) -> *mut u8 {
        self.base
    }

    /// Copies `bytes` to the front; returns how many fit.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.len);
        // SAFETY: the chunk has `len >= count` writable bytes by `Span::new` or by its slice;
        // `copy` allows that a caller's slice overlaps them.
        unsafe { copy_many(bytes.as_ptr(), self.base, count) };
        count
    }
}

const WORD: usize = size_of::<u64>();
/// A range of bytes within a sequence of pieces.
struct Cut {
    /// Bytes before the range.
    from: usize,
    /// Bytes in the range.
    len: usize,
}

impl Cut {
    /// The offset and length of the range's part in the next piece, which has `size` bytes.
    #[inline(always)]
    fn of(&mut self, size: usize) -> (usize, usize) {
        let at = self.from.min(size);
        let len = (size - at).min(self.len);
        self.from -= at;
        self.len -= len;
        (at, len)
    }
}

impl Buffer {
    /// No bytes.
    pub const fn empty() -> Self {
        // SAFETY: a span of no bytes is never dereferenced.
        Self::One(unsafe { Span::new(ptr::null_mut(), 0) })
    }

    /// Joins several pieces into one buffer.
    pub fn gather(spans: impl IntoIterator<Item = Span>) -> Self {
        let mut spans: Vec<Span> = spans.into_iter().collect();
        if spans.len() == 1
            && let Some(span) = spans.pop()
        {
            return Self::One(span);
        }
        let len = spans.iter().map(|span| span.len).sum();
        Self::Many(spans.into_boxed_slice(), len)
    }

    /// A range of registered memory, which transports read from and receive into without a copy;
    /// without any right to change it, nothing is received there.
    /// Refuses one whose memory may be unmapped: its bytes are copied by [`RegionUse::read`] and
    /// [`RegionUse::write`].
    ///
    /// # Errors
    /// The range itself.
    pub fn registered(range: RegionUse<Region>) -> Result<Self, RegionUse<Region>> {
        match range.region().reach() {
            Reach::Mapped => Ok(Self::Registered(Registered(range))),
            Reach::Probed => Err(range),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::One(span) => span.len,
            Self::Many(_, len) => *len,
            Self::Owned(bytes) => bytes.len(),
            Self::Registered(range) => range.0.len(),
        }
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the first byte, for alignment and for completions.
    pub fn address(&self) -> usize {
        match self {
            Self::One(span) => span.address(),
            Self::Many(spans, _) => spans.first().map_or(0, Span::address),
            Self::Owned(bytes) => bytes.as_ptr().addr(),
            Self::Registered(range) => range.0.place(0).0.addr(),
        }
    }

    /// Address and length of the application's memory if it is one piece, for system calls.
    #[inline]
    pub const fn as_one(&self) -> Option<(*const u8, usize)> {
        match self {
            Self::One(span) => Some((span.base.cast_const(), span.len)),
            Self::Many(..) | Self::Owned(_) | Self::Registered(_) => None,
        }
    }

    /// Whether the bytes lie one behind the other in memory.
    pub fn is_one_piece(&self) -> bool {
        match self {
            Self::One(_) | Self::Owned(_) => true,
            Self::Many(spans, _) => spans.len() == 1,
            Self::Registered(range) => range.0.place(0).1 == range.0.len(),
        }
    }

    /// Whether the two buffers share bytes.
    pub fn overlaps(&self, other: &Self) -> bool {
        let mut found = false;
        self.for_each(0, self.len(), |one| {
            other.for_each(0, other.len(), |two| {
                let (first, second) = (one.base.addr(), two.base.addr());
                found |= first < second + two.len && second < first + one.len;
            });
        });
        found
    }

    /// Splits off the first `len` bytes, at most all, as a buffer of their own. `None` unless the
    /// buffer is one piece of the application's memory.
    pub fn split_front(&mut self, len: usize) -> Option<Self> {
        let Self::One(span) = self else { return None };
        let len = len.min(span.len);
        let front = Span { base: span.base, len };
        *span = Span { base: span.base.wrapping_add(len), len: span.len - len };
        Some(Self::One(front))
    }

    /// Calls `take` with the pieces of the `len` bytes from `from` on, in order.
    pub fn for_each<'a>(&'a self, from: usize, len: usize, mut take: impl FnMut(Chunk<'a>)) {
        let mut cut = Cut { from, len };
        let mut piece = |base: *const u8, size| {
            let (at, len) = cut.of(size);
            if len > 0 {
                take(Chunk { base: base.wrapping_add(at), len, life: PhantomData });
            }
        };
        match self {
            Self::One(span) => piece(span.base, span.len),
            Self::Many(spans, _) => spans.iter().for_each(|span| piece(span.base, span.len)),
            Self::Owned(bytes) => piece(bytes.as_ptr(), bytes.len()),
            Self::Registered(range) => range.0.for_each_part(0, range.0.len(), |base, size| piece(base, size)),
        }
    }

    /// Calls `take` with the pieces of the `len` bytes from `from` on, to be written.
    pub fn for_each_mut<'a>(&'a mut self, from: usize, len: usize, mut take: impl FnMut(ChunkMut<'a>)) {
        let mut cut = Cut { from, len };
        let mut piece = |base: *mut u8, size| {
            let (at, len) = cut.of(size);
            if len > 0 {
                take(ChunkMut { base: base.wrapping_add(at), len, life: PhantomData });
            }
        };
        match self {
            Self::One(span) => piece(span.base, span.len),
            Self::Many(spans, _) => spans.iter().for_each(|span| piece(span.base, span.len)),
            Self::Owned(bytes) => piece(bytes.as_mut_ptr(), bytes.len()),
            Self::Registered(range) => {
                if range.0.check_writable().is_ok() {
                    range.0.for_each_part(0, range.0.len(), piece);
                }
            }
        }
    }

    /// Copies `bytes` to offset `at`; returns how many fit.
    #[inline(always)]
    pub fn write_at(&mut self, at: usize, bytes: &[u8]) -> usize {
        match self {
            Self::One(span) => span.write_at(at, bytes),
            _ => self.write_pieces(at, bytes),
        }
    }

    fn write_pieces(&mut self, at: usize, bytes: &[u8]) -> usize {
        if let Self::Registered(range) = self {
            // In the order that it promises.
            let fits = bytes.len().min(range.0.len().saturating_sub(at));
            return range.0.write(at, &bytes[..fits]).map_or(0, |()| fits);
        }
        let mut done = 0;
        self.for_each_mut(at, bytes.len(), |mut chunk| done += chunk.write(&bytes[done..]));
        done
    }

    /// Copies the bytes from offset `from` on to `out`; returns their number.
    #[inline]
    pub fn read_at(&self, from: usize, out: &mut [u8]) -> usize {
        if let Self::One(span) = self {
            let count = out.len().min(span.len.saturating_sub(from));
            // SAFETY: `count` bytes from `from` lie within the span.
            let source = unsafe { span.base.add(from.min(span.len)) };
            // SAFETY: they are readable by `Span::new`; `copy` allows overlap with the target.
            unsafe { copy(source, out.as_mut_ptr(), count) };
            return count;
        }
        let mut done = 0;
        self.for_each(from, out.len(), |chunk| {
            // SAFETY: `for_each` hands out `out.len()` bytes at most in all, readable by
            // `Span::new`.
            unsafe { copy_many(chunk.base, out[done..].as_mut_ptr(), chunk.len) };
            done += chunk.len;
        });
        done
    }

    /// The first `len` bytes, at most all, as words; zeros fill up the last one. `None` unless the
    /// buffer is one piece of the application's memory, or of ours.
    #[inline(always)]
    pub fn words(&self, len: usize) -> Option<Words<'_>> {
        let (base, whole) = match self {
            Self::One(span) => (span.base.cast_const(), span.len),
            Self::Owned(bytes) => (bytes.as_ptr(), bytes.len()),
            Self::Many(..) | Self::Registered(_) => return None,
        };
        Some(Words { base, left: len.min(whole), life: PhantomData })
    }

    /// Appends `len` bytes from offset `from` on to `out`.
    pub fn append_to(&self, from: usize, len: usize, out: &mut Vec<u8>) {
        self.for_each(from, len, |chunk| chunk.append_to(out));
    }

    /// A copy of the bytes, in memory that we own.
    pub fn to_owned_copy(&self) -> Self {
        let mut out = Vec::with_capacity(self.len());
        self.append_to(0, self.len(), &mut out);
        Self::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::MrAccess;

    fn lend(bytes: &mut [u8]) -> Span {
        // SAFETY: the tests keep the array until the buffer is gone, and look at it only then.
        unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    #[test]
    fn bytes_are_scattered_and_gathered() {
        let (mut a, mut b) = ([0u8; 3], [0u8; 4]);
        let mut buffer = Buffer::gather([lend(&mut a), lend(&mut b)]);
        assert_eq!(buffer.len(), 7);
        assert_eq!((buffer.write_at(2, b"xyz"), buffer.write_at(5, b"long")), (3, 2));
        let mut out = Vec::new();
        buffer.append_to(1, 5, &mut out);
        assert_eq!(out, b"\0xyzl");
        drop(buffer);
        assert_eq!((&a, &b), (b"\0\0x", b"yzlo"));
    }

    #[test]
    fn buffers_know_whether_they_share_bytes_and_are_one_piece() {
        let mut bytes = [0u8; 12];
        let [a, b, c] = [0, 4, 8].map(|at| Buffer::One(lend(&mut bytes[at..at + 4])));
        let both = Buffer::gather([lend(&mut bytes[0..4]), lend(&mut bytes[8..12])]);
        assert!(both.overlaps(&a) && c.overlaps(&both) && a.overlaps(&a));
        assert!(!both.overlaps(&b) && !a.overlaps(&b) && !a.overlaps(&Buffer::empty()));
        assert!(a.is_one_piece() && Buffer::Owned(vec![1]).is_one_piece() && !both.is_one_piece());
        for (buffer, whole) in [(both, false), (b, true)] {
            let (len, region) = (buffer.len(), Region::lent(buffer, MrAccess::SEND));
            let part = |from, len| region.resolve(from, len, MrAccess::SEND).unwrap().into_owned();
            assert!(region.resolve(0, 1, MrAccess::RECV).is_err(), "nothing is written to what is sent");
            assert_eq!(Buffer::registered(part(0, len)).unwrap().is_one_piece(), whole);
            assert!(Buffer::registered(part(1, 2)).unwrap().is_one_piece());
        }
    }

    #[test]
    fn a_single_span_refuses_what_does_not_fit() {
        let mut a = [0u8; 4];
        let mut buffer = Buffer::One(lend(&mut a));
        assert_eq!(buffer.write_at(0, b"123456"), 4);
        assert_eq!((buffer.write_at(4, b"1"), buffer.write_at(9, b"1")), (0, 0));
        drop(buffer);
        assert_eq!(&a, b"1234");
    }

    #[test]
    fn parts_of_memory_of_ours_are_written_in_place() {
        let mut buffer = Buffer::Owned(vec![0; 8]);
        assert_eq!((buffer.write_at(3, b"abc"), buffer.write_at(7, b"xyz")), (3, 1));
        let mut out = [9; 10];
        assert_eq!((buffer.read_at(0, &mut out), &out), (8, b"\0\0\0abc\0x\x09\x09"));
    }

    #[test]
    fn words_are_the_bytes() {
        let mut bytes: Vec<u8> = (1..=60).collect();
        for buffer in [Buffer::Owned(bytes.clone()), Buffer::One(lend(&mut bytes))] {
            for len in 0..=64 {
                let mut expected = Vec::new();
                buffer.append_to(0, len, &mut expected);
                expected.resize(expected.len().next_multiple_of(WORD), 0);
                let got: Vec<u8> = buffer.words(len).unwrap().flat_map(u64::to_ne_bytes).collect();
                assert_eq!(got, expected, "{len}");
            }
        }
        assert!(Buffer::Many(Box::default(), 0).words(1).is_none());
    }

    #[test]
    fn nothing_is_copied_from_an_empty_buffer() {
        let mut out = Vec::new();
        Buffer::empty().append_to(0, 10, &mut out);
        assert!(out.is_empty() && Buffer::empty().is_empty());
    }
}
