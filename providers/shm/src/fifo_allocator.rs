//! FIFO allocator for the bytes of a pool: it reuses a byte as late as possible, when the byte has
//! left the reader's cache. Small at first; it grows on a link that moves much data.

use ofi_sync::lines::LINES;

/// The initial size, in bytes: that of the pages that a region has from the start.
pub(crate) const SMALLEST: usize = 4 << 10;
/// A size that costs nothing of the budget.
pub(crate) const SMALL: usize = 16 << 10;
/// Sizes before the whole pool is used, and the bytes that must have moved before the next size,
/// unless a payload is long.
const STEPS: [(usize, usize); 2] = [(SMALLEST, 8 << 10), (SMALL, 1 << 20)];
/// The shortest payload that the pool grows for at once: where processes share cores, each time
/// that the pool is full takes as long as a time slice.
const LONG: usize = 32 << 10;
#[allow(clippy::cast_possible_truncation, reason = "a small constant")]
const SLOTS: usize = LINES as usize;

/// The allocator of a pool.
#[derive(Debug)]
pub(crate) struct FifoAllocator {
    /// Where in the pool it allocates.
    start: usize,
    /// The current size, in bytes.
    limit: usize,
    /// The largest size, in bytes.
    most: usize,
    /// Offset of the next piece.
    head: usize,
    /// Bytes that the reader has not read, including those skipped at the end.
    used: usize,
    /// Bytes allocated for each line of the ring.
    taken: Box<[u32; SLOTS]>,
    /// The bytes of lines before this one are free.
    freed: u64,
    /// Bytes allocated so far.
    moved: usize,
}

impl FifoAllocator {
    pub(crate) fn new(most: usize) -> Self {
        Self { start: 0, limit: 0, most, head: 0, used: 0, taken: Box::new([0; SLOTS]), freed: 0, moved: 0 }
    }

    /// The size to grow to now, for a payload of `total` bytes, if any. It can only grow while it
    /// is empty.
    pub(crate) fn wanted(&self, total: usize) -> Option<usize> {
        if self.used > 0 || self.limit == self.most {
            return None;
        }
        let step = STEPS.iter().find(|(_, moves)| self.moved < *moves);
        let step = step.map_or(self.most, |(size, _)| *size);
        let wanted = if total < LONG { step } else { step.max(total.next_power_of_two()) }.min(self.most);
        (wanted > self.limit).then_some(wanted)
    }

    /// True if it is worth draining, so that it can grow to the whole pool, or to a size that a
    /// payload of `total` bytes fits into.
    pub(crate) fn is_cramped(&self, total: usize) -> bool {
        self.limit < self.most
            && (STEPS.iter().all(|(_, moves)| self.moved >= *moves) || total >= LONG && total > self.limit)
    }

    /// Sets the size, and where in the pool it begins. Nothing may be allocated.
    pub(crate) fn grow(&mut self, limit: usize, start: usize) {
        debug_assert!(self.used == 0, "nothing is in it");
        (self.limit, self.start) = (limit, start);
        self.head = 0;
    }

    /// The small size to grow to although something is in it, if nothing of that lies across the
    /// end.
    pub(crate) fn wider(&self) -> Option<usize> {
        let wide = SMALL.min(self.most);
        (wide > self.limit && self.used <= self.head).then_some(wide)
    }

    /// Grows around what is in it.
    pub(crate) fn widen(&mut self, limit: usize, start: usize) {
        debug_assert!(start <= self.start && start + limit >= self.start + self.limit, "it stays where it is");
        self.head += self.start - start;
        (self.limit, self.start) = (limit, start);
    }

    /// Keeps the current size for good: there is no more memory.
    pub(crate) fn settle(&mut self) {
        self.most = self.limit;
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// The size of the pieces into which a payload is split, so that both sides copy at once.
    pub(crate) fn piece(&self, total: usize) -> usize {
        let most = (self.limit / 4).clamp(1 << 10, 16 << 10);
        (total / 4).next_multiple_of(64).clamp(2 << 10, 16 << 10).min(most)
    }

    /// Whether all pieces of a payload are free, although one may leave the end of the pool unused.
    pub(crate) fn fits_in_pieces(&self, total: usize) -> bool {
        self.used + total + self.piece(total) <= self.limit
    }

    /// The offset in the pool of the next `len` bytes, if they are free.
    #[inline]
    pub(crate) fn next(&self, len: usize) -> Option<usize> {
        let (at, _) = self.fit(len)?;
        Some(self.start + at)
    }

    /// Where the next `len` bytes begin, from the start, and the bytes that they use up, if they
    /// are free.
    #[inline]
    fn fit(&self, len: usize) -> Option<(usize, usize)> {
        let wraps = self.head + len > self.limit;
        // What is skipped of an empty pool costs nothing.
        let cost = if wraps && self.used > 0 { len + self.limit - self.head } else { len };
        let at = if wraps { 0 } else { self.head };
        (self.used + cost <= self.limit).then_some((at, cost))
    }

    /// Allocates `len` bytes, to be freed with the line of that number. Returns their offset in the
    /// pool.
    pub(crate) fn take(&mut self, line: u64, len: usize) -> Option<usize> {
        let (at, cost) = self.fit(len)?;
        self.head = at + len;
        self.used += cost;
        self.moved = self.moved.saturating_add(len);
        *self.slot(line) = u32::try_from(cost).ok()?;
        Some(self.start + at)
    }

    #[allow(clippy::cast_possible_truncation, reason = "less than LINES")]
    fn slot(&mut self, line: u64) -> &mut u32 {
        &mut self.taken[(line % LINES) as usize]
    }

    /// Frees the bytes of all lines before that number: the reader has read them.
    #[inline]
    pub(crate) fn free(&mut self, lines: u64) {
        if self.used == 0 {
            self.freed = lines;
            return;
        }
        while self.freed < lines {
            let line = self.freed;
            self.used -= core::mem::take(self.slot(line)) as usize;
            self.freed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_it_stays_where_it_is_when_it_grows_around_it() {
        // Down and up, as the pools of the two sides grow.
        for start in [12 << 10, 0] {
            let mut allocator = FifoAllocator::new(64 << 10);
            allocator.grow(SMALLEST, start);
            allocator.take(1, 1 << 10).unwrap();
            let kept = allocator.take(2, 1 << 10).unwrap();
            allocator.free(2);
            assert_eq!(allocator.wider(), Some(SMALL));
            allocator.widen(SMALL, 0);
            assert_eq!(allocator.wider(), None);
            let others: Vec<_> = (3..).map_while(|line| allocator.take(line, 1 << 10)).collect();
            assert!(others.len() == 15 && !others.contains(&kept), "{kept} is not among {others:?}");
        }
    }

    #[test]
    fn it_does_not_grow_around_what_lies_across_its_end() {
        let mut allocator = FifoAllocator::new(64 << 10);
        allocator.grow(SMALLEST, 0);
        assert!((1..=4).all(|line| allocator.take(line, 1 << 10).is_some()));
        assert_eq!(allocator.wider(), Some(SMALL));
        allocator.free(3);
        assert_eq!(allocator.take(5, 2 << 10), Some(0));
        assert_eq!(allocator.wider(), None);
    }

    #[test]
    fn an_empty_pool_takes_all_that_it_is_long_enough_for() {
        let mut allocator = FifoAllocator::new(SMALLEST);
        allocator.grow(SMALLEST, 0);
        allocator.take(1, 1000).unwrap();
        allocator.free(2);
        assert_eq!(allocator.take(2, SMALLEST), Some(0));
        assert_eq!(allocator.take(3, 1), None);
        allocator.free(3);
        assert_eq!(allocator.take(3, 1), Some(0));
    }

    #[test]
    fn pieces_never_overlap_and_come_back_in_order() {
        let mut allocator = FifoAllocator::new(1 << 20);
        allocator.grow(16 << 10, 100);
        let mut x = 1u64;
        let mut live = std::collections::VecDeque::new();
        let (mut line, mut read) = (0u64, 0u64);
        for _ in 0..100_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = 1 + usize::try_from(x >> 50).unwrap() % 5000;
            if line - read < LINES
                && let Some(at) = allocator.take(line, len)
            {
                assert!(at >= 100 && at + len <= 100 + (16 << 10));
                assert!(live.iter().all(|(_, from, to)| at + len <= *from || at >= *to), "overlaps");
                live.push_back((line, at, at + len));
                line += 1;
            } else {
                // Lines without bytes come between.
                read = (read + 1 + (x & 3)).min(line);
                allocator.free(read);
                live.retain(|(number, ..)| *number >= read);
            }
        }
        allocator.free(line);
        assert_eq!(allocator.used, 0);
    }

    #[test]
    fn it_grows_with_the_bytes_moved_and_only_while_empty() {
        let mut allocator = FifoAllocator::new(1 << 20);
        assert_eq!(allocator.wanted(0), Some(4 << 10));
        allocator.grow(4 << 10, 0);
        for line in 0..20 {
            assert!(allocator.take(line, 1024).is_some());
            assert_eq!(allocator.wanted(0), None);
            allocator.free(line + 1);
        }
        assert_eq!(allocator.wanted(0), Some(16 << 10));
        allocator.grow(16 << 10, 0);
        for line in 20..1100 {
            assert!(allocator.take(line, 1024).is_some());
            allocator.free(line + 1);
        }
        assert!(allocator.is_cramped(0));
        assert_eq!(allocator.wanted(0), Some(1 << 20));
        allocator.settle();
        assert_eq!((allocator.wanted(0), allocator.is_cramped(LONG)), (None, false));
    }

    #[test]
    fn it_grows_for_a_long_payload_at_once() {
        let mut allocator = FifoAllocator::new(1 << 20);
        allocator.grow(4 << 10, 0);
        assert!(allocator.take(0, 1024).is_some());
        assert!(!allocator.is_cramped(LONG - 1) && allocator.is_cramped(LONG));
        assert_eq!(allocator.wanted(LONG), None, "it is not empty");
        allocator.free(1);
        assert_eq!(allocator.wanted(LONG - 1), None);
        let sizes = [LONG, 100_000, 1 << 20, usize::MAX / 2].map(|total| allocator.wanted(total));
        assert_eq!(sizes, [Some(LONG), Some(128 << 10), Some(1 << 20), Some(1 << 20)]);
        allocator.grow(128 << 10, 0);
        assert!(!allocator.is_cramped(100_000) && allocator.is_cramped(200_000));
    }
}
