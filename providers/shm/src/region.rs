//! The memory of a link, shared only by its two endpoints: a page of words that each
//! side writes for the other, and in each direction a ring of lines and a pool for payloads that
//! do not fit into lines. The initiator creates it.
//!
//! ```text
//!        pool of side 0
//! 0      side 0: lines read u64 @0 · asleep u64 @64 · gone u64 @128
//!        4 windows of 2 × u64 each @192, @256, @320, @384 (`window.rs`)
//! 512    side 1: the same
//! 1024   bounce buffer of side 0: filled u64 @0 · 1 KiB @128
//!        written by side 1: drained u64 @64 · wanted u64 @72
//!        that of the acceptor first has its answer to the connect request, a hello
//! 2560   bounce buffer of side 1: the same
//! 4096   32 lines of the ring from side 0 to side 1 · 32 lines of that from side 1 to side 0
//!        the next 32 of each @8192, @12288, @16384
//! 20480  pool of side 1
//! ```
//!
//! The pools are equally long, and grow away from what is between them: side 0 first uses the end
//! of its pool, side 1 the beginning. So the pages that every link uses are one range. The
//! initiator allocates two of them before it asks the other side, which is all that a link with few
//! messages touches, and the rest meanwhile. They are zeroed and mapped as they are touched.
#![allow(unsafe_code)]

use crate::fifo_allocator::SMALLEST;
use crate::window::{WINDOWS, Words};
use core::ops::Range;
use core::ptr::NonNull;
use ofi_engine::wire::hello;
use ofi_memory::{Shared, prefetch};
use ofi_os::descriptor::PrivateFd;
use ofi_os::shm::{self, Mapping, PAGE};
use ofi_sync::lines::{LINES, Memory, WORDS, set_ready, take_ready};
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

const LINE: usize = WORDS * size_of::<u64>();
#[allow(clippy::cast_possible_truncation, reason = "a small constant")]
const RING: usize = LINES as usize * LINE;
const RINGS: usize = PAGE;
/// Lines of a ring that share a page with as many of the other one.
const IN_PAGE: usize = PAGE / 2 / LINE;
/// Bytes between the pools.
const MIDDLE: usize = RINGS + 2 * RING;
const SIDE: usize = 512;
/// The smallest and the largest pool that this side makes or accepts, in bytes.
const POOL: core::ops::RangeInclusive<usize> = 64 << 10..=64 << 20;

/// One of the two sides of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Sent the connect request.
    Initiator = 0,
    /// Accepted it.
    Acceptor = 1,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Acceptor,
            Self::Acceptor => Self::Initiator,
        }
    }
}

/// The mapped memory of a link.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: Mapping,
    pool: usize,
}

/// A word that one side writes for the other.
#[derive(Clone, Copy, Debug)]
enum Word {
    Consumed = 0,
    Asleep = 64,
    Gone = 128,
    /// The first window's; the others follow at [`WINDOW`] each.
    Claims = 192,
    Finished = 200,
}

/// Bytes from one window to the next: a line of a cache, as both sides write to it.
const WINDOW: usize = 64;

/// Where the bounce buffers begin, and bytes from one to the next.
const BOUNCES: usize = 2 * SIDE;
const BOUNCE: usize = (PAGE - BOUNCES) / 2;
/// What a bounce buffer has: the words of each side, in a line of a cache of its own, and then the
/// bytes.
const FILLED: usize = 0;
const DRAINED: usize = 64;
const WANTED: usize = 72;
const BOUNCED: usize = 128;
/// Bytes that a bounce buffer takes at a time.
pub(crate) const BOUNCE_LEN: usize = 1 << 10;
const _: () = assert!(BOUNCED + BOUNCE_LEN <= BOUNCE, "the bounce buffers fit into the page");
const _: () = assert!(hello::MAX_LEN <= BOUNCE_LEN, "a hello fits into a bounce buffer");
const _: () = assert!(SMALLEST.is_multiple_of(PAGE), "what every link uses are whole pages");
const _: () = assert!(IN_PAGE.is_power_of_two() && (RING.is_multiple_of(PAGE / 2) || cfg!(ofi_loom)), "whole pages");

/// What opening a link touches, where the pools have this length, in bytes.
const fn touched(pool: usize) -> Range<usize> {
    pool..pool + RINGS + PAGE
}

impl Region {
    /// Creates a region, and the descriptor that the peer attaches. What opening the link does not
    /// touch is still to be allocated.
    pub(crate) fn create(pool: usize) -> io::Result<(Arc<Self>, PrivateFd)> {
        let pool = pool.next_multiple_of(PAGE).clamp(*POOL.start(), *POOL.end());
        let len = MIDDLE + 2 * pool;
        let fd = shm::create(len, touched(pool))?;
        let mapping = Mapping::new(fd.as_fd(), len)?;
        Ok((Arc::new(Self { mapping, pool }), fd))
    }

    /// Allocates the other pages that every link uses, of the region with this descriptor.
    pub(crate) fn allocate_rest(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let touched = touched(self.pool);
        shm::allocate(fd, touched.end..self.pool + MIDDLE + SMALLEST)?;
        shm::allocate(fd, self.pool - SMALLEST..touched.start)
    }

    /// Maps a region that a peer created, and whose pages it allocates. One that does not, or frees
    /// them again, has this side's accesses allocate them.
    pub(crate) fn attach(fd: BorrowedFd<'_>) -> io::Result<Arc<Self>> {
        let len = shm::sealed_len(fd)?;
        let pools = len.checked_sub(MIDDLE).filter(|pools| pools.is_multiple_of(2 * PAGE));
        let pool = pools.map(|pools| pools / 2).filter(|pool| POOL.contains(pool));
        let pool =
            pool.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unsupported shared memory layout"))?;
        Ok(Arc::new(Self { mapping: Mapping::new(fd, len)?, pool }))
    }

    /// The page of words.
    fn words(&self) -> NonNull<u8> {
        // SAFETY: it lies behind the pool of side 0, within the mapping.
        unsafe { self.mapping.base().add(self.pool) }
    }

    fn word(&self, side: Side, word: Word) -> NonNull<AtomicU64> {
        let at = side as usize * SIDE + word as usize;
        // SAFETY: `at` lies in the page of words, and is a multiple of 8.
        unsafe { self.words().add(at) }.cast()
    }

    /// The word in which that side announces its sleep state.
    pub(crate) fn asleep(&self, side: Side) -> &AtomicU64 {
        // SAFETY: mapped as long as `self`, aligned, and only accessed as an atomic, by both
        // processes.
        unsafe { self.word(side, Word::Asleep).as_ref() }
    }

    /// The word that is nonzero once that side has left.
    pub(crate) fn gone(&self, side: Side) -> &AtomicU64 {
        // SAFETY: mapped as long as `self`, aligned, and only accessed as an atomic, by both
        // processes.
        unsafe { self.word(side, Word::Gone).as_ref() }
    }

    /// Whether that side has left.
    pub(crate) fn has_left(&self, side: Side) -> bool {
        // Acquire pairs with the Release with which it says so.
        self.gone(side).load(Ordering::Acquire) != 0
    }

    /// The words of the window that a side opens for the payload of that number.
    pub(crate) fn window(&self, side: Side, number: u32) -> Words<'_> {
        let at = (number % WINDOWS) as usize * WINDOW;
        let [claims, finished] = [Word::Claims, Word::Finished].map(|word| {
            // SAFETY: the words of each window lie in the page of words.
            let word = unsafe { self.word(side, word).byte_add(at) };
            // SAFETY: mapped as long as `self`, aligned, and only accessed as an atomic, by both
            // processes.
            unsafe { word.as_ref() }
        });
        Words { claims, finished }
    }

    /// The bounce buffer that a side fills. It keeps the region mapped.
    pub(crate) fn bounce(self: &Arc<Self>, writer: Side) -> Bounce {
        let at = BOUNCES + writer as usize * BOUNCE;
        // SAFETY: the bounce buffers lie in the page of words.
        let base = unsafe { self.words().add(at + BOUNCED) };
        // SAFETY: its bytes are mapped, and stay so while the region exists, which it keeps.
        let bytes = unsafe { Shared::new(base, BOUNCE_LEN) };
        Bounce { bytes, at, region: self.clone() }
    }

    /// The ring that a side writes.
    pub(crate) fn ring(self: &Arc<Self>, writer: Side) -> Ring {
        // SAFETY: the rings lie within the mapping.
        let lines = unsafe { self.words().add(RINGS + writer as usize * IN_PAGE * LINE) }.cast();
        Ring { lines, consumed: self.word(writer.other(), Word::Consumed), _region: self.clone() }
    }

    /// The pool that a side fills. It keeps the region mapped.
    pub(crate) fn pool(self: &Arc<Self>, writer: Side) -> Pool {
        let at = writer as usize * (self.pool + MIDDLE);
        // SAFETY: the pools lie within the mapping.
        let base = unsafe { self.mapping.base().add(at) };
        // SAFETY: the pool is mapped, and stays so while the region exists, which the pool keeps.
        let bytes = unsafe { Shared::new(base, self.pool) };
        Pool { bytes, writer, region: self.clone() }
    }
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) bytes: Shared,
    writer: Side,
    region: Arc<Region>,
}

impl Pool {
    /// Where in the pool its side uses `len` bytes: at the end next to what is between the pools.
    pub(crate) fn place_of(&self, len: usize) -> usize {
        match self.writer {
            Side::Initiator => self.bytes.len() - len,
            Side::Acceptor => 0,
        }
    }

    /// Allocates the pages of `len` bytes there.
    pub(crate) fn provide(&self, len: usize) -> io::Result<()> {
        let pool = self.writer as usize * (self.region.pool + MIDDLE);
        self.region.mapping.populate(pool + self.place_of(len), len)
    }
}

/// A bounce buffer in a region ([`crate::conn`]).
#[derive(Debug)]
pub(crate) struct Bounce {
    pub(crate) bytes: Shared,
    at: usize,
    region: Arc<Region>,
}

impl Bounce {
    fn word(&self, word: usize) -> &AtomicU64 {
        // SAFETY: the words of the bounce buffer lie in the page of words.
        let word = unsafe { self.region.words().add(self.at + word) }.cast();
        // SAFETY: mapped while the region exists, aligned, and only accessed as an atomic, by both
        // processes.
        unsafe { word.as_ref() }
    }

    /// The word of the side that fills it.
    pub(crate) fn filled(&self) -> &AtomicU64 {
        self.word(FILLED)
    }

    /// The word in which the side that drains it counts pieces.
    pub(crate) fn drained(&self) -> &AtomicU64 {
        self.word(DRAINED)
    }

    /// The word in which that side asks for payloads.
    pub(crate) fn wanted(&self) -> &AtomicU64 {
        self.word(WANTED)
    }
}

/// Where a line of a ring lies, in lines from its first one.
#[inline(always)]
const fn place(index: usize) -> usize {
    index + (index & !(IN_PAGE - 1))
}

/// A ring in a region.
#[derive(Debug)]
pub(crate) struct Ring {
    lines: NonNull<[AtomicU64; WORDS]>,
    consumed: NonNull<AtomicU64>,
    _region: Arc<Region>,
}

// SAFETY: the addresses are those of atomics that are mapped while the region exists, which the
// ring keeps.
unsafe impl Send for Ring {}

impl Memory for Ring {
    #[inline]
    fn line(&self, index: usize) -> &[AtomicU64; WORDS] {
        assert!(index < RING / LINE, "a line of the ring");
        // SAFETY: within the ring by the line above.
        let line = unsafe { self.lines.add(place(index)) };
        // SAFETY: mapped while the region exists, aligned, and only accessed as atomics, by both
        // processes.
        unsafe { line.as_ref() }
    }

    #[inline(always)]
    fn fetch(&self, index: usize) {
        prefetch::to_read(self.lines.as_ptr().wrapping_add(place(index)));
    }

    #[inline(always)]
    fn fetch_to_write(&self, index: usize) {
        prefetch::to_write(self.lines.as_ptr().wrapping_add(place(index)));
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: mapped while the region exists, aligned, and only accessed as an atomic, by both
        // processes.
        unsafe { self.consumed.as_ref() }
    }
}

/// Begins nothing later before earlier loads are done, on x86-64; elsewhere a pause. For loops that
/// look at a line: while a look waits for the line, the processor does not go on as if nothing had
/// come.
#[inline(always)]
pub(crate) fn await_loads() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    core::hint::spin_loop();
}

/// Ready bitmap of an endpoint with many links: a page with a bit per link, which the peer sets
/// when it writes to the link. A hostile peer can only make the owner poll in vain.
#[derive(Debug)]
pub(crate) struct ReadyBitmap(Mapping);

impl ReadyBitmap {
    /// Bits in the bitmap. A place beyond them uses the bit of its remainder.
    pub(crate) const BITS: usize = PAGE * 8;

    /// Creates an empty bitmap, and the descriptor that peers attach.
    pub(crate) fn create() -> io::Result<(Self, PrivateFd)> {
        let fd = shm::create(PAGE, 0..PAGE)?;
        Ok((Self(Mapping::new(fd.as_fd(), PAGE)?), fd))
    }

    /// Maps a peer's bitmap.
    pub(crate) fn attach(fd: BorrowedFd<'_>) -> io::Result<Self> {
        if shm::sealed_len(fd)? != PAGE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a bitmap of another size"));
        }
        let mapping = Mapping::new(fd, PAGE)?;
        mapping.map_pages(0..PAGE)?;
        Ok(Self(mapping))
    }

    fn word(&self, place: usize) -> &AtomicU64 {
        let at = place % Self::BITS / 64 * size_of::<u64>();
        // SAFETY: `at` lies in the page that is mapped.
        let word = unsafe { self.0.base().add(at) }.cast::<AtomicU64>();
        // SAFETY: mapped as long as `self`, aligned, and only accessed as an atomic, by all
        // processes.
        unsafe { word.as_ref() }
    }

    /// Prefetches what [`Self::set`] changes.
    #[inline(always)]
    pub(crate) fn fetch_to_set(&self, place: usize) {
        prefetch::to_write(core::ptr::from_ref(self.word(place)));
    }

    /// Marks the link at `place` as ready.
    pub(crate) fn set(&self, place: usize) {
        set_ready(self.word(place), 1 << (place % 64));
    }

    /// Whether a bit below `end` is set.
    #[inline]
    pub(crate) fn any_set(&self, end: usize) -> bool {
        // Relaxed: `take` orders its own accesses.
        (0..end.min(Self::BITS)).step_by(64).any(|first| self.word(first).load(Ordering::Relaxed) != 0)
    }

    /// Clears the bits below `end`, and passes each that was set to `each`. A bit stands for its
    /// own place and for every place a multiple of [`Self::BITS`] further on.
    pub(crate) fn take(&self, end: usize, mut each: impl FnMut(usize)) {
        for first in (0..end.min(Self::BITS)).step_by(64) {
            let mut notes = take_ready(self.word(first));
            while notes != 0 {
                each(first + notes.trailing_zeros() as usize);
                notes &= notes - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_bit_is_taken_once() {
        let (mine, fd) = ReadyBitmap::create().unwrap();
        let theirs = ReadyBitmap::attach(fd.as_fd()).unwrap();
        for place in [0, 63, 64, 200, ReadyBitmap::BITS + 5] {
            theirs.set(place);
        }
        let mut places = Vec::new();
        mine.take(128, |place| places.push(place));
        assert_eq!(places, [0, 5, 63, 64]);
        mine.take(usize::MAX, |place| places.push(place));
        assert_eq!(places, [0, 5, 63, 64, 200]);
        mine.take(usize::MAX, |_| panic!("taken twice"));
        assert!(ReadyBitmap::attach(shm::create(2 * PAGE, 0..0).unwrap().as_fd()).is_err());
    }
    use ofi_sync::lines::{BODY, Reader, Writer};

    #[test]
    fn two_mappings_are_one_memory() {
        let (mine, fd) = Region::create(1 << 20).unwrap();
        let theirs = Region::attach(fd.as_fd()).unwrap();
        for (from, to, side) in [(&mine, &theirs, Side::Initiator), (&theirs, &mine, Side::Acceptor)] {
            let (mut writer, reader) = (Writer::new(from.ring(side)), Reader::new(to.ring(side)));
            assert!(writer.has_room(1).unwrap());
            writer.write(5, &[6; BODY]);
            assert_eq!(reader.read(), Some((5, [6; BODY])));
            from.pool(side).bytes.write(100, b"hello");
            let mut out = [0; 5];
            to.pool(side).bytes.read(100, &mut out);
            assert_eq!(&out, b"hello");
        }
    }

    #[test]
    fn the_lines_of_both_rings_lie_apart_and_the_first_in_one_page() {
        let (region, _fd) = Region::create(1 << 20).unwrap();
        let rings = [Side::Initiator, Side::Acceptor].map(|side| region.ring(side));
        let at = |ring: &Ring, index: usize| ring.line(index).as_ptr().addr() - region.words().addr().get();
        let mut all: Vec<_> = rings.iter().flat_map(|ring| (0..RING / LINE).map(|index| at(ring, index))).collect();
        assert!(rings.iter().all(|ring| touched(0).contains(&at(ring, 0)) && at(ring, IN_PAGE - 1) < touched(0).end));
        all.sort_unstable();
        assert!(all.iter().copied().eq((RINGS..MIDDLE).step_by(LINE)), "they fill what is between the pools");
    }

    #[test]
    fn memory_of_another_layout_is_refused() {
        for len in [PAGE, MIDDLE, MIDDLE + PAGE, MIDDLE + 2 * PAGE] {
            let fd = shm::create(len, 0..0).unwrap();
            assert!(Region::attach(fd.as_fd()).is_err(), "{len}");
        }
    }
}
