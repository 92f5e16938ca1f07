//! A ring of 64-byte lines that one process writes and another reads, in memory that both map.
//! Each line begins with a word that carries its lap number and is stored last: a reader sees a
//! whole line or none, and stale bytes never look new. The reader publishes its position in a word
//! of its own.
//! Neither side trusts the other: each shared word is read once and checked, and positions are kept
//! privately.

use crate::primitive::{AtomicU64, Ordering, fence};

/// Words per line.
pub const WORDS: usize = 8;
/// Words per line after the first.
pub const BODY: usize = WORDS - 1;
/// Lines per ring.
#[cfg(not(ofi_loom))]
pub const LINES: u64 = 128;
/// Lines per ring.
#[cfg(ofi_loom)]
pub const LINES: u64 = 4;
/// Lines that the reader consumes before it publishes its position.
const TELL_EVERY: u64 = LINES / 4;
/// Lines that the writer prefetches ahead.
#[cfg(not(ofi_loom))]
const AHEAD: u64 = 8;
#[cfg(ofi_loom)]
const AHEAD: u64 = 1;
/// The bits of a line's first word that are free for the writer.
pub const HEAD: u64 = (1 << 48) - 1;

/// The memory of a ring.
pub trait Memory {
    /// The line at `index`, which is less than [`LINES`].
    fn line(&self, index: usize) -> &[AtomicU64; WORDS];
    /// The number of lines read, as the reader publishes it.
    fn consumed(&self) -> &AtomicU64;
    /// Prefetches a line.
    #[inline(always)]
    fn fetch(&self, _index: usize) {}
    /// Prefetches a line for writing.
    #[inline(always)]
    fn fetch_to_write(&self, _index: usize) {}
}

/// The other side wrote a value that no correct program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

#[inline(always)]
const fn stamp(number: u64) -> u64 {
    ((number / LINES + 1) & 0xffff) << 48
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "less than LINES")]
const fn index(number: u64) -> usize {
    (number % LINES) as usize
}

/// Fills in the words after the first of a line.
#[derive(Clone, Copy, Debug)]
pub struct SlotWriter<'a>(&'a [AtomicU64; BODY]);

impl SlotWriter<'_> {
    /// Sets a word.
    ///
    /// # Panics
    /// If `at` is not less than [`BODY`].
    #[inline(always)]
    pub fn set(self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::Relaxed);
    }
}

/// The writing side of a ring.
#[derive(Debug)]
pub struct Writer<M> {
    memory: M,
    /// Lines written.
    next: u64,
    /// Lines known to have been read.
    consumed: u64,
}

impl<M: Memory> Writer<M> {
    /// The writer of a zeroed ring.
    pub const fn new(memory: M) -> Self {
        Self { memory, next: 0, consumed: 0 }
    }

    /// Whether there is room for `lines` more lines.
    #[inline(always)]
    pub fn has_room(&mut self, lines: u64) -> Result<bool, Damaged> {
        if LINES - (self.next - self.consumed) >= lines {
            return Ok(true);
        }
        self.has_room_now(lines)
    }

    fn has_room_now(&mut self, lines: u64) -> Result<bool, Damaged> {
        self.look()?;
        Ok(LINES - (self.next - self.consumed) >= lines)
    }

    /// Loads and checks the reader's position.
    pub fn look(&mut self) -> Result<u64, Damaged> {
        // Acquire pairs with the Release in `Reader::tell`: lines that it has read may be
        // overwritten.
        let consumed = self.memory.consumed().load(Ordering::Acquire);
        if consumed < self.consumed || consumed > self.next {
            return Err(Damaged);
        }
        self.consumed = consumed;
        Ok(consumed)
    }

    /// Prefetches the line that is written next.
    #[inline(always)]
    pub fn fetch(&self) {
        self.memory.fetch_to_write(index(self.next));
    }

    /// The number of lines written.
    pub const fn written(&self) -> u64 {
        self.next
    }

    /// The number of lines known to have been read.
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Writes a line. The caller has checked for room ([`Self::has_room`]).
    #[inline]
    pub fn write(&mut self, head: u64, body: &[u64; BODY]) {
        let line = self.slot();
        for (at, value) in body.iter().enumerate() {
            line.set(at, *value);
        }
        self.publish(head);
    }

    /// The next line, to fill in word by word; words that are not set keep an earlier lap's values.
    /// The caller has checked for room ([`Self::has_room`]).
    #[inline(always)]
    pub fn slot(&self) -> SlotWriter<'_> {
        debug_assert!(self.next - self.consumed < LINES, "the caller must check has_room first");
        let [_, body @ ..] = self.memory.line(index(self.next));
        SlotWriter(body)
    }

    /// Publishes the filled line to the reader.
    #[inline(always)]
    pub fn publish(&mut self, head: u64) {
        let [first, ..] = self.memory.line(index(self.next));
        // Release pairs with the Acquire in `Reader::head`.
        first.store(stamp(self.next) | head & HEAD, Ordering::Release);
        self.next += 1;
        if LINES - (self.next - self.consumed) > AHEAD {
            // The reader has read it: in a burst, its line need not be fetched when it is written.
            self.memory.fetch_to_write(index(self.next + AHEAD));
        }
    }

    /// The line after [`Self::slot`]. The caller has checked for room for both.
    #[inline(always)]
    pub fn second_slot(&self) -> SlotWriter<'_> {
        debug_assert!(self.next + 1 - self.consumed < LINES, "the caller must check has_room first");
        let [_, body @ ..] = self.memory.line(index(self.next + 1));
        SlotWriter(body)
    }

    /// Publishes two filled lines that are read as one.
    #[inline(always)]
    pub fn publish_two(&mut self, head: u64) {
        let [second, ..] = self.memory.line(index(self.next + 1));
        // Relaxed: a reader that sees the first line sees both.
        second.store(stamp(self.next + 1), Ordering::Relaxed);
        self.publish(head);
        self.next += 1;
    }

    /// Writes two lines that are read as one. The caller has checked for room for both.
    #[inline]
    pub fn write_two(&mut self, head: u64, body: &[u64; BODY], more: &[u64; BODY]) {
        let (first, second) = (self.slot(), self.second_slot());
        for (at, (value, more)) in body.iter().zip(more).enumerate() {
            first.set(at, *value);
            second.set(at, *more);
        }
        self.publish_two(head);
    }
}

/// The reading side of a ring.
#[derive(Debug)]
pub struct Reader<M> {
    memory: M,
    /// Lines read.
    next: u64,
    /// Lines read, as last published to the writer.
    told: u64,
    /// The last two lines were read as one.
    pairs: bool,
}

impl<M: Memory> Reader<M> {
    /// The reader of a zeroed ring.
    pub const fn new(memory: M) -> Self {
        Self { memory, next: 0, told: 0, pairs: false }
    }

    /// Whether there is a line to read.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        if self.pairs {
            // The second line comes with the first, not after it.
            self.fetch(1);
        }
        let word = self.memory.line(index(self.next))[0].load(Ordering::Relaxed);
        word & !HEAD == stamp(self.next)
    }

    /// Whether the line `ahead` lines after the next one was written. A hint, for a reader that may
    /// as well wait: lines before it may not be visible yet. `ahead` is less than [`LINES`].
    #[inline(always)]
    pub fn has_line(&self, ahead: u64) -> bool {
        debug_assert!(ahead < LINES, "an earlier lap would look like a later one");
        let number = self.next + ahead;
        // Relaxed: `head` reads the lines.
        let word = self.memory.line(index(number))[0].load(Ordering::Relaxed);
        word & !HEAD == stamp(number)
    }

    #[inline(always)]
    fn words_of<const N: usize>(&self, number: u64) -> [u64; N] {
        const { assert!(N <= BODY) };
        let line = self.memory.line(index(number));
        core::array::from_fn(|at| line[at + 1].load(Ordering::Relaxed))
    }

    /// The number of lines read, as last published to the writer.
    #[inline(always)]
    pub const fn told(&self) -> u64 {
        self.told
    }

    /// The number of lines read.
    #[inline(always)]
    pub const fn position(&self) -> u64 {
        self.next
    }

    /// Prefetches the line `ahead` lines after the next.
    #[inline(always)]
    pub fn fetch(&self, ahead: u64) {
        self.memory.fetch(index(self.next + ahead));
    }

    /// The head (the writer's bits of the first word) of the next line, if the line is there. It
    /// stays until [`Self::advance`].
    #[inline(always)]
    pub fn head(&self) -> Option<u64> {
        // Acquire pairs with the Release in `Writer::publish`.
        let word = self.memory.line(index(self.next))[0].load(Ordering::Acquire);
        (word & !HEAD == stamp(self.next)).then_some(word & HEAD)
    }

    /// The first words after the head of the next line, whose head the caller has seen.
    #[inline(always)]
    pub fn front<const N: usize>(&self) -> [u64; N] {
        self.words_of(self.next)
    }

    /// The next line: its head and its body.
    #[inline]
    pub fn read(&self) -> Option<(u64, [u64; BODY])> {
        self.head().map(|head| (head, self.front()))
    }

    /// The second of two lines that are read as one.
    #[inline]
    pub fn read_second(&self) -> Result<[u64; BODY], Damaged> {
        let number = self.next + 1;
        let word = self.memory.line(index(number))[0].load(Ordering::Relaxed);
        if word & !HEAD == stamp(number) { Ok(self.words_of(number)) } else { Err(Damaged) }
    }

    /// Consumes `lines` lines. Publishes the position only every quarter of the ring.
    #[inline(always)]
    pub fn advance(&mut self, lines: u64) {
        self.pairs = lines > 1;
        self.next += lines;
        if self.next - self.told >= TELL_EVERY {
            self.tell();
        }
    }

    /// Publishes the position to the writer.
    #[inline]
    pub fn tell(&mut self) {
        self.told = self.next;
        // Release pairs with the Acquire in `Writer::look`.
        self.memory.consumed().store(self.next, Ordering::Release);
    }
}

/// This side sleeps and must be woken for lines.
const ASLEEP: u64 = 1;
/// This side also waits for room in the ring that it writes.
const FOR_ROOM: u64 = 2;
/// The link is idle for this side: lines must be set in its ready bitmap.
const IDLE: u64 = 4;

/// The sleep state that a side publishes in its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepState(u64);

impl SleepState {
    /// The side polls. `idle`: this link is idle, polled when its ready bit is set.
    pub const fn awake(idle: bool) -> Self {
        Self(if idle { IDLE } else { 0 })
    }

    /// The side sleeps. `for_room`: it also waits for room.
    pub const fn asleep(idle: bool, for_room: bool) -> Self {
        Self(Self::awake(idle).0 | ASLEEP | if for_room { FOR_ROOM } else { 0 })
    }

    /// Publishes the state. Before it sleeps, the side checks for the last time, and before that
    /// orders its accesses, by membarrier(2) or by [`order_own`].
    pub fn announce(self, word: &AtomicU64) {
        if word.load(Ordering::Relaxed) != self.0 {
            word.store(self.0, Ordering::Relaxed);
        }
    }
}

/// Whether the other side has ended an announced sleep.
pub fn was_woken(word: &AtomicU64) -> bool {
    // Relaxed: the caller then checks everything.
    word.load(Ordering::Relaxed) & ASLEEP == 0
}

/// A change that the other side may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A line was written.
    Line,
    /// Lines were read, and the position published.
    Room,
}

/// The action that a change requires for the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeAction {
    /// None: the other side polls.
    Nothing,
    /// Set the link in its ready bitmap.
    Note,
    /// Wake it; once per sleep.
    Wake,
}

/// How the two sides' memory accesses are ordered when a reader falls asleep: the writer's store of
/// a line before its load of the sleeper's word, the sleeper's store of its word before its last
/// check for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The reader orders both sides' accesses by membarrier(2); the writer does nothing.
    ByReader,
    /// Each side orders its own.
    ByBoth,
}

/// Orders the calling thread's own accesses.
pub fn order_own() {
    // SeqCst on both sides: one of the two sees the other's store.
    fence(Ordering::SeqCst);
}

/// The action that `news` requires, by the other side's word.
#[inline(always)]
pub fn wake_action(word: &AtomicU64, news: News, order: Order) -> WakeAction {
    if order == Order::ByBoth {
        order_own();
    } else {
        // The processor may still reorder, which the reader's membarrier undoes; the compiler may
        // not.
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    match word.load(Ordering::Relaxed) {
        0 => WakeAction::Nothing,
        state => wake_action_slow(word, state, news),
    }
}

/// Whether the other side, whose word this is, sleeps until it is woken; and whether it polls the
/// link only when its bit is set in the ready bitmap. For lines that it need not read soon.
pub fn sleep_hint(word: &AtomicU64) -> (bool, bool) {
    let state = word.load(Ordering::Relaxed);
    (state & ASLEEP != 0, state & IDLE != 0)
}

/// Attempts to update a word that keeps changing.
const ATTEMPTS: u32 = 4;

#[inline(never)]
fn wake_action_slow(word: &AtomicU64, mut state: u64, news: News) -> WakeAction {
    let wanted = match news {
        News::Line => ASLEEP,
        News::Room => FOR_ROOM,
    };
    for _ in 0..ATTEMPTS {
        if state & wanted == 0 {
            break;
        }
        match word.compare_exchange(state, state & IDLE, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return WakeAction::Wake,
            // The sleeper may have announced itself again, for another reason.
            Err(now) => state = now,
        }
    }
    if state & wanted != 0 {
        // A side that keeps changing its word gets a needless wakeup.
        return WakeAction::Wake;
    }
    if news == News::Line && state & IDLE != 0 { WakeAction::Note } else { WakeAction::Nothing }
}

/// Sets a link's bit in a word of a ready bitmap. A bit that is set too early or too late, because
/// the writer read an old [`SleepState`], costs only time: the bitmap's owner also polls unset
/// links, in turn.
pub fn set_ready(word: &AtomicU64, bit: u64) {
    // Release pairs with the Acquire in `take_ready`: a reader that sees the bit sees the line.
    word.fetch_or(bit, Ordering::Release);
}

/// Takes and clears the bits of one word of a ready bitmap.
#[inline]
pub fn take_ready(word: &AtomicU64) -> u64 {
    // Acquire pairs with the Release in `set_ready`. Mostly no bit is set, which a load finds out.
    if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::Acquire) }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests;

#[cfg(all(test, ofi_loom))]
mod models;
