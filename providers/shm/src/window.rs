//! A window into the receive buffer of one payload: the receiver reads the payload out of the
//! sender's memory from the front, while the sender writes it from the back, until they meet. Each
//! claims a part of what is left before it copies it, so that a side that sleeps or is late holds
//! nothing up, both end at about the same time, and the memory is free once no claimed part is
//! unfinished.
//!
//! When several payloads wait, the receiver opens windows for the next ones before it reads its
//! part of the first, so that neither side waits for the other between two of them.
//!
//! Two words of the link's memory, on the receiver's side. They count units ([`unit_of`]):
//!
//! ```text
//! claims    number of the payload u32 · units claimed by the receiver u16 · end of those free u16
//! finished  number of the payload u32 · units that the sender has written u16 · and could not u16
//! ```

use core::ops::Range;
use ofi_engine::wire::frame::Violation;
use ofi_sync::primitive::{AtomicU64, Ordering};

/// Windows that a side may have open at a time. A payload's number says which it uses, and the
/// number in the words keeps a sender that is late out of another payload's window.
pub(crate) const WINDOWS: u32 = 4;

/// The least that a side claims, in bytes, while there is as much: a system call takes a small part
/// of the copy's time.
const LEAST: usize = 32 << 10;
/// The most that a side claims at a time, in bytes: a sender that is stopped has at most as much to
/// write afterwards, and the sides of a long payload end close to each other.
const MOST: usize = 1 << 20;
/// The longest payload for which the receiver opens a window before its turn. The sender claims all
/// that is left of one that is no longer: another system call would take more time than one side
/// spends waiting for the other.
pub(crate) const SHORT: usize = 256 << 10;

/// Attempts to claim a part. Each side claims some twenty parts of a payload at most, so one that
/// keeps the other from it for longer is hostile.
const ATTEMPTS: u32 = 64;

/// Bytes that a unit stands for in a payload of `len` bytes: a page, or more so that the words can
/// count them.
fn unit_of(len: usize) -> usize {
    len.div_ceil(usize::from(u16::MAX - 1)).next_power_of_two().max(4 << 10)
}

/// The number of units of a payload.
fn count_of(len: usize) -> u16 {
    u16::try_from(len.div_ceil(unit_of(len))).unwrap_or(u16::MAX)
}

/// Units that stand for at least [`LEAST`] bytes.
fn least_of(len: usize) -> u16 {
    u16::try_from(LEAST.div_ceil(unit_of(len))).unwrap_or(u16::MAX)
}

/// Units that stand for at most [`MOST`] bytes.
fn most_of(len: usize) -> u16 {
    u16::try_from(MOST / unit_of(len)).unwrap_or(u16::MAX).max(1)
}

/// How many of `free` units the sender claims: a short payload's rest at once.
fn share_of_sender(free: u16, len: usize) -> u16 {
    let share = if len <= SHORT { free } else { free - free / 8 };
    share.max(least_of(len)).min(most_of(len)).min(free)
}

/// The part of a payload that the receiver claims first. It follows what makes both sides end at
/// the same time, and then stays: each change moves lines of both buffers from one core's cache to
/// the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// In 64ths.
    part: u8,
    /// Payloads since the last decision, and those for which this side waited.
    count: u8,
    waits: u8,
    /// Decisions since the last change, and how many of them until a smaller part is tried.
    calm: u16,
    patience: u16,
    /// The part is on trial: it was larger before.
    tried: bool,
}

impl Default for Share {
    /// A little more than half, as the sender begins later.
    fn default() -> Self {
        Self { part: 36, count: 0, waits: 0, calm: 0, patience: 1, tried: false }
    }
}

impl Share {
    /// Payloads of a decision.
    const DECIDES: u8 = 32;
    /// The least and the largest part.
    const PARTS: (u8, u8) = (8, 56);
    /// The most decisions until a smaller part is tried.
    const PATIENCE: u16 = 256;

    /// The sender has claimed a part of a payload of `len` bytes, and `waits`: has not finished it
    /// when the receiver has finished its own. Nothing changes if the receiver begins such a
    /// payload with as much as it may claim at once ([`MOST`]).
    pub(crate) fn adapt(&mut self, len: usize, waits: bool) {
        if self.units(count_of(len)) > most_of(len) {
            return;
        }
        self.count += 1;
        self.waits += u8::from(waits);
        // Fewer of them while there is much to change.
        let decides = u16::from(Self::DECIDES).min(u16::from(Self::DECIDES / 4) * self.patience);
        if u16::from(self.count) < decides {
            return;
        }
        // To wait costs more than to have copied a little more.
        let waits = 4 * self.waits > self.count;
        (self.count, self.waits) = (0, 0);
        // At least a unit.
        let step = u8::try_from(64 / count_of(len).max(1)).unwrap_or(u8::MAX).max(2);
        let (least, largest) = Self::PARTS;
        let was_tried = core::mem::take(&mut self.tried);
        if waits {
            // A try in vain is made again after twice as long.
            self.patience =
                if was_tried { (2 * self.patience).min(Self::PATIENCE) } else { (self.patience / 2).max(1) };
            (self.part, self.calm) = ((self.part + step).min(largest), 0);
            return;
        }
        if was_tried {
            self.patience = 1;
        }
        self.calm = self.calm.saturating_add(1);
        if self.calm >= self.patience && self.part > least {
            (self.part, self.calm, self.tried) = (self.part.saturating_sub(step).max(least), 0, true);
        }
    }

    fn units(self, count: u16) -> u16 {
        u16::try_from(u32::from(count) * u32::from(self.part) / 64).unwrap_or(count)
    }
}

/// The bytes of units.
fn bytes_of(units: Range<u16>, len: usize) -> Range<usize> {
    let [start, end] = [units.start, units.end].map(|at| (usize::from(at) * unit_of(len)).min(len));
    start..end
}

const DAMAGED: Violation = Violation("the words of a window are corrupt");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    number: u32,
    first: u16,
    second: u16,
}

impl Word {
    #[allow(clippy::cast_possible_truncation, reason = "each has its bits")]
    const fn of(word: u64) -> Self {
        Self { number: (word >> 32) as u32, first: (word >> 16) as u16, second: word as u16 }
    }

    const fn pack(self) -> u64 {
        (self.number as u64) << 32 | (self.first as u64) << 16 | self.second as u64
    }
}

/// The two words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    pub(crate) claims: &'a AtomicU64,
    pub(crate) finished: &'a AtomicU64,
}

/// The receiver's part of a window.
#[derive(Debug)]
pub(crate) struct OpenWindow {
    number: u32,
    len: usize,
    /// Units that this side has claimed.
    claimed: u16,
    /// The units from this one on are the sender's, once none is free.
    rest: u16,
    /// No unit is free any more, whatever the words say.
    is_closed: bool,
}

impl OpenWindow {
    /// Opens a window for the payload of that number, of `len` bytes, and claims the first bytes.
    /// The caller tells the sender.
    pub(crate) fn open(words: Words<'_>, number: u32, len: usize, share: Share) -> (Self, Range<usize>) {
        let rest = count_of(len);
        let claimed = share.units(rest).max(1).min(most_of(len));
        words.finished.store(Word { number, first: 0, second: 0 }.pack(), Ordering::Relaxed);
        // Release: a sender that sees the claims sees the other word.
        words.claims.store(Word { number, first: claimed, second: rest }.pack(), Ordering::Release);
        (Self { number, len, claimed, rest, is_closed: false }, bytes_of(0..claimed, len))
    }

    /// Claims the next bytes from the front, or `None` if none are free.
    ///
    /// # Errors
    /// A violation if the sender has written what it must not.
    pub(crate) fn claim(&mut self, words: Words<'_>) -> Result<Option<Range<usize>>, Violation> {
        if self.is_closed {
            return Ok(None);
        }
        for _ in 0..ATTEMPTS {
            let word = words.claims.load(Ordering::Relaxed);
            let Word { number, first, second } = Word::of(word);
            if number != self.number || first != self.claimed || second < first || second > self.rest {
                return Err(DAMAGED);
            }
            self.rest = second;
            if first == second {
                return Ok(None);
            }
            let free = second - first;
            let share = free.div_ceil(2).max(least_of(self.len));
            let end = first + share.min(most_of(self.len)).min(free);
            let next = Word { number, first: end, second };
            // Relaxed: the part is this side's memory.
            if words.claims.compare_exchange(word, next.pack(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.claimed = end;
                return Ok(Some(bytes_of(first..end, self.len)));
            }
        }
        Err(DAMAGED)
    }

    /// Whether both sides have claimed all.
    pub(crate) fn is_taken(&self, words: Words<'_>) -> bool {
        let Word { first, second, .. } = Word::of(words.claims.load(Ordering::Relaxed));
        first >= second
    }

    /// Lets the sender claim nothing more.
    pub(crate) fn close(&mut self, words: Words<'_>) {
        if core::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let closed = Word { number: self.number, first: self.claimed, second: self.claimed };
        // A swap, as a sender that keeps changing the word could hold a comparison up.
        let Word { number, second, .. } = Word::of(words.claims.swap(closed.pack(), Ordering::Relaxed));
        // What the sender must not have written changes nothing here: it waits for itself.
        if number == self.number && (self.claimed..=self.rest).contains(&second) {
            self.rest = second;
        }
    }

    /// The sender's parts, once none is free: `None` while it has not finished them all, and
    /// whether all are written.
    pub(crate) fn outcome(&self, words: Words<'_>) -> Option<bool> {
        // Acquire: the sender's writes come first.
        let Word { number, first, second } = Word::of(words.finished.load(Ordering::Acquire));
        let theirs = count_of(self.len) - self.rest;
        let finished = number == self.number && u32::from(first) + u32::from(second) >= u32::from(theirs);
        (theirs == 0 || finished).then_some(second == 0 || theirs == 0)
    }

    /// Where the sender's part begins, in bytes.
    pub(crate) fn sender_from(&self) -> usize {
        bytes_of(self.rest..self.rest, self.len).start
    }

    /// Whether the sender has claimed a part, once none is free.
    pub(crate) fn has_sender(&self) -> bool {
        self.rest < count_of(self.len)
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }
}

/// Bytes that the sender has claimed.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) bytes: Range<usize>,
    units: u16,
}

/// The sender's part of a window.
#[derive(Debug)]
pub(crate) struct PeerWindow {
    number: u32,
    len: usize,
    /// Where its last claim began.
    end: u16,
}

impl PeerWindow {
    /// The window that the receiver has opened for the payload of that number, of `len` bytes.
    pub(crate) fn new(number: u32, len: usize) -> Self {
        Self { number, len, end: count_of(len) }
    }

    /// Claims the last free bytes.
    pub(crate) fn claim(&mut self, words: Words<'_>) -> Option<Claim> {
        for _ in 0..ATTEMPTS {
            // Acquire pairs with the Release in `OpenWindow::open`.
            let word = words.claims.load(Ordering::Acquire);
            let Word { number, first, second } = Word::of(word);
            // A receiver that moves the end gets nothing: the sender copies each byte once.
            if number != self.number || first >= second || second != self.end {
                return None;
            }
            let units = share_of_sender(second - first, self.len);
            let start = second - units;
            let next = Word { number, first, second: start };
            // Relaxed: only the peer's memory is accessed, by system calls.
            if words.claims.compare_exchange(word, next.pack(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.end = start;
                return Some(Claim { bytes: bytes_of(start..second, self.len), units });
            }
        }
        None
    }

    /// Reports a claimed part.
    pub(crate) fn finish(&self, words: Words<'_>, claim: &Claim, written: bool) {
        let Word { first, second, .. } = Word::of(words.finished.load(Ordering::Relaxed));
        let (first, second) =
            if written { (first.wrapping_add(claim.units), second) } else { (first, second.wrapping_add(claim.units)) };
        // Release: the write comes first.
        words.finished.store(Word { number: self.number, first, second }.pack(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> [AtomicU64; 2] {
        [AtomicU64::new(0), AtomicU64::new(0)]
    }

    fn both(words: &[AtomicU64; 2]) -> Words<'_> {
        Words { claims: &words[0], finished: &words[1] }
    }

    fn share(part: u8) -> Share {
        Share { part, ..Share::default() }
    }

    #[test]
    fn units_cover_a_payload() {
        for len in [16 << 10, (64 << 10) + 1, 1 << 20, (9 << 20) + 77, 1 << 30, (1 << 32) - 1] {
            let count = count_of(len);
            assert!(count < u16::MAX);
            assert_eq!(bytes_of(0..count, len), 0..len);
            assert!(!bytes_of(count - 1..count, len).is_empty());
        }
    }

    #[test]
    fn each_side_claims_its_share() {
        let memory = words();
        let kib = |range: Range<usize>| range.start >> 10..range.end >> 10;
        let (mut window, first) = OpenWindow::open(both(&memory), 7, 1 << 20, share(32));
        assert_eq!(kib(first), 0..512);
        let mut sender = PeerWindow::new(7, 1 << 20);
        let mut last = || sender.claim(both(&memory)).map(|claim| kib(claim.bytes));
        assert_eq!((last(), last()), (Some(576..1024), Some(520..576)));
        assert_eq!(window.claim(both(&memory)).unwrap().map(kib), Some(512..520));
        assert_eq!(window.claim(both(&memory)), Ok(None));
        assert!(window.has_sender());
        for len in [64, 256] {
            let (_, first) = OpenWindow::open(both(&memory), 7, len << 10, share(40));
            assert_eq!(kib(first), 0..len / 8 * 5);
            let last = PeerWindow::new(7, len << 10).claim(both(&memory));
            assert_eq!(last.map(|claim| kib(claim.bytes)), Some(len / 8 * 5..len));
        }
        // A sender that does not come.
        let (mut window, first) = OpenWindow::open(both(&memory), 7, 256 << 10, share(32));
        let claims = Vec::from_iter(std::iter::from_fn(|| window.claim(both(&memory)).unwrap().map(kib)));
        assert_eq!((kib(first), &claims[..]), (0..128, &[128..192, 192..224, 224..256][..]));
        assert!(!window.has_sender());
    }

    #[test]
    fn a_side_claims_little_of_a_long_payload_at_a_time() {
        for len in [(9 << 20) + 77, 1 << 30] {
            let memory = words();
            let (mut window, first) = OpenWindow::open(both(&memory), 7, len, share(56));
            assert!(first.len() <= MOST, "{first:?} of {len}");
            let mut sender = PeerWindow::new(7, len);
            let mut claims = std::iter::from_fn(|| {
                let theirs = sender.claim(both(&memory)).map(|claim| claim.bytes);
                let own = window.claim(both(&memory)).unwrap();
                let [theirs, own] = [theirs, own].map(|bytes| bytes.map_or(0, |bytes| bytes.len()));
                assert!(theirs.max(own) <= MOST, "{theirs} and {own} of {len}");
                Some(theirs + own).filter(|claimed| *claimed > 0)
            });
            assert_eq!(first.len() + claims.by_ref().sum::<usize>(), len);
        }
    }

    #[test]
    fn a_share_follows_the_side_that_is_late() {
        let mut share = Share::default();
        (0..100).for_each(|_| share.adapt(16 << 20, true));
        assert_eq!(share, Share::default(), "it does not matter there");
        (0..100).for_each(|_| share.adapt(1 << 20, true));
        assert_eq!(share.part, 56);
        // However many there are.
        for payloads in [500, 600_000] {
            (0..payloads).for_each(|_| share.adapt(1 << 20, false));
            assert_eq!(share.part, 8);
        }
    }

    #[test]
    fn a_share_stays_where_both_sides_end_at_the_same_time() {
        for (len, best) in [(64 << 10, 28), (64 << 10, 44), (256 << 10, 20)] {
            let mut share = Share::default();
            // The receiver waits if it begins with less; sometimes the sender was interrupted.
            let parts = Vec::from_iter((0..4000).map(|at| {
                share.adapt(len, share.part < best || at % 10 == 0);
                share.part
            }));
            let settled = &parts[1000..];
            let changes = settled.windows(2).filter(|pair| pair[0] != pair[1]).count();
            let away = settled.iter().filter(|part| !(best..best + 4).contains(part)).count();
            assert!(changes < 40 && away < settled.len() / 10, "{len} {best}: {changes} changes, {away} away");
        }
    }

    #[test]
    fn each_byte_is_claimed_once() {
        let memory = words();
        let len = (1 << 20) + 5;
        let (mut window, first) = OpenWindow::open(both(&memory), 7, len, Share::default());
        assert!(PeerWindow::new(6, len).claim(both(&memory)).is_none());
        let (mut front, mut back) = (vec![first], Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sender = PeerWindow::new(7, len);
                while let Some(claim) = sender.claim(both(&memory)) {
                    sender.finish(both(&memory), &claim, true);
                    back.push(claim.bytes);
                }
            });
            while let Some(bytes) = window.claim(both(&memory)).unwrap() {
                front.push(bytes);
            }
        });
        assert_eq!(window.outcome(both(&memory)), Some(true));
        assert_eq!(window.sender_from(), front.last().map_or(0, |bytes| bytes.end));
        back.reverse();
        front.extend(back);
        let mut next = 0;
        for bytes in front {
            assert!(bytes.start == next && !bytes.is_empty());
            next = bytes.end;
        }
        assert_eq!(next, len);
    }

    #[test]
    fn a_window_waits_for_what_the_sender_has_claimed() {
        for (written, expected) in [(true, Some(true)), (false, Some(false))] {
            let memory = words();
            let (mut window, _) = OpenWindow::open(both(&memory), 1, 256 << 10, Share::default());
            let mut sender = PeerWindow::new(1, 256 << 10);
            let claim = sender.claim(both(&memory)).unwrap();
            window.close(both(&memory));
            assert!(sender.claim(both(&memory)).is_none());
            assert_eq!((window.outcome(both(&memory)), window.claim(both(&memory))), (None, Ok(None)));
            sender.finish(both(&memory), &claim, written);
            assert_eq!(window.outcome(both(&memory)), expected);
        }
    }

    #[test]
    fn a_sender_cannot_take_what_is_claimed() {
        for word in [Word { number: 2, first: 32, second: 40 }, Word { number: 1, first: 33, second: 40 }] {
            let memory = words();
            let (mut window, _) = OpenWindow::open(both(&memory), 1, 256 << 10, share(32));
            memory[0].store(word.pack(), Ordering::Relaxed);
            assert!(window.claim(both(&memory)).is_err());
        }
        let memory = words();
        let (mut window, _) = OpenWindow::open(both(&memory), 1, 256 << 10, share(32));
        memory[0].store(Word { number: 1, first: 32, second: 50 }.pack(), Ordering::Relaxed);
        let first = window.claim(both(&memory)).unwrap().unwrap();
        let units = u16::try_from(first.end >> 12).unwrap();
        memory[0].store(Word { number: 1, first: units, second: 64 }.pack(), Ordering::Relaxed);
        assert!(window.claim(both(&memory)).is_err(), "what the sender has claimed is free again");
    }

    #[test]
    fn a_receiver_cannot_grant_more_than_the_payload() {
        let memory = words();
        memory[0].store(Word { number: 1, first: 0, second: 65 }.pack(), Ordering::Relaxed);
        assert!(PeerWindow::new(1, 256 << 10).claim(both(&memory)).is_none());
    }

    #[test]
    fn a_receiver_cannot_make_a_sender_copy_twice() {
        let memory = words();
        let whole = Word { number: 1, first: 0, second: 64 }.pack();
        let mut sender = PeerWindow::new(1, 256 << 10);
        memory[0].store(whole, Ordering::Relaxed);
        assert!(sender.claim(both(&memory)).is_some());
        memory[0].store(whole, Ordering::Relaxed);
        assert!(sender.claim(both(&memory)).is_none());
    }

    #[test]
    fn a_sender_that_damages_the_words_waits_for_itself() {
        for (word, rest) in [
            (Word { number: 2, first: 32, second: 40 }, 64),
            (Word { number: 1, first: 32, second: 65 }, 64),
            (Word { number: 1, first: 32, second: 31 }, 64),
            (Word { number: 1, first: 41, second: 40 }, 40),
        ] {
            let memory = words();
            let (mut window, _) = OpenWindow::open(both(&memory), 1, 256 << 10, share(32));
            memory[0].store(word.pack(), Ordering::Relaxed);
            window.close(both(&memory));
            assert_eq!(window.rest, rest);
        }
    }
}
