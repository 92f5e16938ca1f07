//! A reader of the pool that stays behind the writer.
//!
//! Between some processors' cores (512 KiB of private cache, 72 ns a line), a line that is still in
//! the cache of the core that has written it takes longer to read than one that has left for the
//! cache that they share, and a reader's prefetches take lines that the writer is about to write. A
//! reader right behind the writer then moves 8 GB/s, and 24 GB/s three quarters of a megabyte
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
    pause: Duration,
    /// The number of a line; those before it were there when the writer waited, and are read.
    drain_to: u64,
}

impl Distance {
    /// For a pool of that many bytes: half of it, half as much again as a core's own cache holds.
    pub(super) const fn of(pool: usize) -> Self {
        Self { bytes: pool / 2, pause: PAUSE, drain_to: 0 }
    }

    /// The same in lines that have pieces of `len` bytes: at most [`MOST`], which is less where a
    /// core's own cache is larger than a megabyte.
    pub(super) fn in_lines(&self, len: usize) -> u64 {
        ((self.bytes / len.max(1)) as u64).clamp(1, MOST)
    }

    /// Before the piece of the next line is copied: waits until the line that many lines ahead is
    /// there, or the writer waits.
    pub(super) fn keep(&mut self, reader: &Reader<Ring>, lines: u64) {
        let next = reader.position();
        if next >= self.drain_to
            && !reader.has_line(lines)
            && let Some(count) = self.lines_when_writer_waits(reader, lines)
        {
            self.drain_to = next + count;
        }
    }

    /// Waits until the line that far ahead is there. If the writer stops before, how many lines are
    /// there.
    #[cold]
    fn lines_when_writer_waits(&self, reader: &Reader<Ring>, far: u64) -> Option<u64> {
        let (mut count, mut last) = (1, clock::now());
        while !reader.has_line(far) {
            let now = clock::now();
            let known = count;
            while count < far && reader.has_line(count) {
                count += 1;
            }
            if count > known {
                last = now;
            } else if now.since(last) > self.pause {
                return Some(count);
            }
            core::hint::spin_loop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Region, Side};
    use ofi_sync::lines::{BODY, Writer};

    const BYTES: usize = 48 << 10;
    const LINE: [u64; BODY] = [0; BODY];

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
    fn what_was_there_when_the_writer_waited_is_read_and_then_it_stays_behind_again() {
        let ((mut writer, mut reader), mut distance) = (ring(), Distance::of(0));
        (0..5).for_each(|_| writer.write(1, &LINE));
        for _ in 0..2 {
            distance.keep(&reader, 8);
            assert_eq!(distance.drain_to, 5, "the writer waits behind the fifth");
            reader.advance(1);
        }
        // It goes on.
        (0..3).for_each(|_| writer.write(1, &LINE));
        for _ in 0..3 {
            distance.keep(&reader, 8);
            assert_eq!(distance.drain_to, 5, "those that were there are read at once");
            reader.advance(1);
        }
        distance.keep(&reader, 8);
        assert_eq!(distance.drain_to, 8, "it has waited for more than the three");
        (0..6).for_each(|_| writer.write(1, &LINE));
        (0..3).for_each(|_| reader.advance(1));
        distance.keep(&reader, 5);
        assert_eq!(distance.drain_to, 8, "five more are there: nothing to wait for");
    }

    #[test]
    fn while_the_writer_goes_on_the_reader_waits() {
        let (mut writer, reader) = ring();
        // No test should take longer.
        let mut distance = Distance { pause: Duration::from_secs(60), ..Distance::of(0) };
        writer.write(1, &LINE);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..16 {
                    std::thread::yield_now();
                    writer.write(1, &LINE);
                }
            });
            distance.keep(&reader, 16);
            assert!(distance.drain_to == 0 && reader.has_line(16));
        });
    }
}
