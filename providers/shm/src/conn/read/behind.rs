//! A reader of the pool that stays behind the writer.
//!
//! Between some processors' cores (512 KiB of private cache, 72 ns a line), a line that is still in
//! the cache of the core that has written it takes longer to read than one that has left for the
//! cache that they share, and a reader's prefetches take lines that the writer is about to write. A
//! reader right behind the writer then moves 8 GB/s, and 20 GB/s three quarters of a megabyte
//! behind. Between others it only loses time, so the chooser tries it.

use crate::region::Ring;
use ofi_os::clock;
use ofi_sync::lines::{LINES, Reader};
use std::time::Duration;

/// How long a writer may take for the next piece before it counts as one that waits: it copies one
/// in half a microsecond to two.
const PAUSE: Duration = Duration::from_micros(3);
/// The most lines to stay behind: with more, the ring would be full.
const MOST: u64 = LINES * 3 / 4;

/// How far behind the writer the reader of a pool reads.
#[derive(Debug)]
pub(super) struct Distance {
    /// Bytes to stay behind.
    bytes: usize,
    /// The writer waits: what is there is read.
    drains: bool,
}

impl Distance {
    /// For a pool of that many bytes: half of it, half as much again as a core's own cache holds.
    pub(super) const fn of(pool: usize) -> Self {
        Self { bytes: pool / 2, drains: false }
    }

    /// The same in lines that have pieces of `len` bytes.
    pub(super) fn in_lines(&self, len: usize) -> u64 {
        ((self.bytes / len.max(1)) as u64).clamp(1, MOST)
    }

    /// Before the next line is read: waits until the one that many lines ahead is there, or the
    /// writer waits. False if the writer waits with no more than `payload` lines written.
    pub(super) fn keep(&mut self, reader: &Reader<Ring>, lines: u64, payload: u64) -> bool {
        let mut goes_on = true;
        if !self.drains && !reader.has_line(lines) {
            self.drains = Self::is_writer_waiting(reader, lines);
            goes_on = !self.drains || reader.has_line(payload.min(lines));
        }
        // The last that is there ends it.
        self.drains &= reader.has_line(1);
        goes_on
    }

    /// Waits until the line that far ahead is there; true if the writer stops before.
    #[cold]
    fn is_writer_waiting(reader: &Reader<Ring>, far: u64) -> bool {
        let (mut next, mut last) = (1, clock::now());
        while !reader.has_line(far) {
            let now = clock::now();
            let known = next;
            while next < far && reader.has_line(next) {
                next += 1;
            }
            if next > known {
                last = now;
            } else if now.since(last) > PAUSE {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Region, Side};
    use ofi_sync::lines::{BODY, Writer};

    const BYTES: usize = 48 << 10;

    fn ring() -> (Writer<Ring>, Reader<Ring>) {
        let (region, _fd) = Region::create(64 << 10).unwrap();
        (Writer::new(region.ring(Side::Initiator)), Reader::new(region.ring(Side::Initiator)))
    }

    #[test]
    fn half_of_the_pool_in_lines_leaves_room_in_the_ring() {
        let distance = Distance::of(2 * BYTES);
        assert_eq!([0, 1, 16 << 10, BYTES, usize::MAX].map(|len| distance.in_lines(len)), [MOST, MOST, 3, 1, 1]);
    }

    #[test]
    fn what_is_there_is_read_once_the_writer_waits_and_then_it_stays_behind_again() {
        let ((mut writer, mut reader), mut distance) = (ring(), Distance::of(0));
        for _ in 0..5 {
            writer.write(1, &[0; BODY]);
        }
        for left in (0..5).rev() {
            let goes_on = distance.keep(&reader, 8, 4);
            assert_eq!((distance.drains, goes_on), (left > 0, true), "{left} are left");
            reader.advance(1);
        }
        for _ in 0..9 {
            writer.write(1, &[0; BODY]);
        }
        assert!(distance.keep(&reader, 8, 4) && !distance.drains, "eight more are there");
    }

    #[test]
    fn a_payload_that_nothing_follows_is_noticed() {
        let ((mut writer, reader), mut distance) = (ring(), Distance::of(0));
        for _ in 0..4 {
            writer.write(1, &[0; BODY]);
        }
        assert!(!distance.keep(&reader, 8, 4));
        let mut distance = Distance::of(0);
        assert!(distance.keep(&reader, 8, 3));
    }

    #[test]
    fn while_the_writer_goes_on_the_reader_waits() {
        for _ in 0..1000 {
            let ((mut writer, reader), mut distance) = (ring(), Distance::of(0));
            // Two, so that the reader does not take the first for the last.
            writer.write(1, &[0; BODY]);
            writer.write(1, &[0; BODY]);
            std::thread::scope(|scope| {
                scope.spawn(move || (0..15).for_each(|_| writer.write(1, &[0; BODY])));
                distance.keep(&reader, 16, 1);
                assert!(distance.drains || reader.has_line(16));
            });
        }
    }
}
