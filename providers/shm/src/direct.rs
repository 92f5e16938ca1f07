//! Large payloads past the pool: the receiver reads them out of the sender's memory, one copy instead of two, where the system
//! lets it and where that is faster. The side that sends asks first, by a letter that tells its process's number and where a
//! secret of its lies; the other side tries, and says yes or no. It goes on to measure, and says no later if the pool does better.
//!
//! Only payloads of more than [`MOST_EAGER`] bytes: those are parts of pulled messages, of which each waits for the one before, so
//! that one which cannot be read in this way after all may come through the pool later.

use ofi_core::Instant;
use ofi_engine::frame::{Header, MOST_EAGER};
use ofi_engine::transport::{Landing, Token};
use ofi_memory::{Buffer, ChunkMut};
use ofi_os::process::{Process, Reading};
use std::collections::VecDeque;
use std::time::Duration;

/// Payloads that must have gone through the pool before it is worth asking.
const ASK_AFTER: u32 = 16;
/// The same before asking again, where the answer was no.
const ASK_AGAIN_AFTER: u32 = 4096;
/// Payloads by which either way is judged.
const TRIALS: u32 = 4;
/// Pieces of a buffer: more than any may have.
const PIECES: usize = 16;

/// Whether payloads may go past the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// No.
    Never,
    /// Where it is allowed and measured to be faster.
    #[default]
    IfFaster,
    /// Where it is allowed.
    IfAllowed,
}

/// Whether the other side may read our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// Not now; it is asked after so many payloads more.
    No { more: u32 },
    /// It has been asked.
    Asked,
    /// It can.
    Yes,
}

/// A payload that the other side reads.
#[derive(Debug)]
pub(crate) struct Lent {
    number: u32,
    pub(crate) header: Header,
    pub(crate) buffer: Buffer,
    pub(crate) from: usize,
    pub(crate) len: usize,
    pub(crate) token: Token,
}

/// What became of a payload that was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was read.
    Taken,
    /// It is not there: its memory is none.
    Absent,
    /// It may not be read: it is to come through the pool.
    Refused,
}

impl Outcome {
    pub(crate) const fn code(self) -> u64 {
        match self {
            Self::Taken => 0,
            Self::Absent => 1,
            Self::Refused => 2,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        [Self::Taken, Self::Absent, Self::Refused].into_iter().find(|outcome| outcome.code() == code)
    }
}

/// The best time of the latest payloads.
#[derive(Debug, Default)]
struct Best {
    count: u32,
    /// Nanoseconds of a MiB.
    time: u64,
}

impl Best {
    fn note(&mut self, took: Duration, len: usize) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let time = nanos.saturating_mul(1 << 20) / (len as u64).max(1);
        self.time = if self.count.is_multiple_of(TRIALS) { time } else { self.time.min(time) };
        self.count += 1;
    }
}

/// What a link knows about going past the pool, in both directions.
#[derive(Debug)]
pub(crate) struct Direct {
    how: Use,
    leave: Leave,
    lent: Vec<Lent>,
    next: u32,
    /// The process whose memory may be read.
    peer: Option<Process>,
    pooled: Best,
    read: Best,
    /// What the other side is to hear when there is room: kinds and words of lines.
    pub(crate) replies: VecDeque<(u64, u64, u64)>,
}

impl Default for Direct {
    fn default() -> Self {
        Self {
            how: Use::Never,
            leave: Leave::No { more: ASK_AFTER },
            lent: Vec::new(),
            next: 0,
            peer: None,
            pooled: Best::default(),
            read: Best::default(),
            replies: VecDeque::new(),
        }
    }
}

impl Direct {
    pub(crate) fn new(how: Use) -> Self {
        let more = if how == Use::IfAllowed { 1 } else { ASK_AFTER };
        Self { how, leave: Leave::No { more }, ..Self::default() }
    }

    /// A large payload is to be sent. True if it is time to ask whether the other side may read such ones.
    pub(crate) const fn is_time_to_ask(&mut self) -> bool {
        match &mut self.leave {
            Leave::No { more } if !matches!(self.how, Use::Never) => {
                *more = more.saturating_sub(1);
                *more == 0
            }
            _ => false,
        }
    }

    /// It has been asked.
    pub(crate) const fn asked(&mut self) {
        self.leave = Leave::Asked;
    }

    /// The other side's word. False if it was not asked, and cannot go back on anything either.
    pub(crate) fn answered(&mut self, yes: bool) -> bool {
        let was = self.leave;
        self.leave = if yes { Leave::Yes } else { Leave::No { more: ASK_AGAIN_AFTER } };
        was == Leave::Asked || was == Leave::Yes && !yes
    }

    /// Where a part of a buffer lies, if the other side may read it there.
    pub(crate) fn place_of(&self, buffer: &Buffer, from: usize) -> Option<u64> {
        let whole = matches!(buffer, Buffer::One(_) | Buffer::Owned(_));
        (self.leave == Leave::Yes && whole).then(|| (buffer.address() + from) as u64)
    }

    /// The other side reads that payload from now on; the number under which it says what became of it.
    pub(crate) fn lend(&mut self, header: Header, buffer: Buffer, from: usize, len: usize, token: Token) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.lent.push(Lent { number: self.next, header, buffer, from, len, token });
        self.next
    }

    /// The other side is done with a payload.
    pub(crate) fn take_back(&mut self, number: u64) -> Option<Lent> {
        let at = self.lent.iter().position(|lent| u64::from(lent.number) == number)?;
        Some(self.lent.swap_remove(at))
    }

    /// Whether the other side still reads something.
    pub(crate) const fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Whether the other side is to hear something.
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// All that the other side has not said to be done with.
    pub(crate) fn take_all_back(&mut self) -> impl Iterator<Item = Lent> {
        self.lent.drain(..)
    }

    /// May this side not read it in this way any more: the pool it is.
    pub(crate) const fn refused(&mut self) {
        self.leave = Leave::No { more: ASK_AGAIN_AFTER };
    }

    /// Tries whether the memory of a process can be read: its secret must be where it says.
    pub(crate) fn try_process(&mut self, pid: i32, at: usize, secret: [u8; 16]) -> bool {
        self.peer = if self.how == Use::Never { None } else { Process::open(pid).ok() };
        self.peer = self.peer.take().filter(|process| {
            let mut found = [0; 16];
            process.read(at, &mut [ChunkMut::of(&mut found)]) == Reading::Bytes(found.len()) && found == secret
        });
        self.read = Best::default();
        self.peer.is_some()
    }

    /// The process whose memory may be read.
    pub(crate) const fn peer(&self) -> Option<&Process> {
        self.peer.as_ref()
    }

    /// That has turned out to be not so.
    pub(crate) fn forget_peer(&mut self) {
        self.peer = None;
    }

    /// A payload came through the pool in that time.
    pub(crate) fn note_pooled(&mut self, took: Duration, len: usize) {
        self.pooled.note(took, len);
    }

    /// A payload was read in that time. True if the other side is to be told that the pool does better.
    pub(crate) fn note_read(&mut self, took: Duration, len: usize) -> bool {
        self.read.note(took, len);
        let judged = self.how == Use::IfFaster && self.read.count == TRIALS && self.pooled.count >= TRIALS;
        judged && self.read.time > self.pooled.time
    }
}

/// Whether a payload of so many bytes may go past the pool.
pub(crate) const fn is_large(len: usize) -> bool {
    len > MOST_EAGER
}

/// Reads what lies at `from` in a process to where it belongs.
pub(crate) fn read(process: &Process, from: usize, landing: &mut Landing) -> Reading {
    let mut pieces = arrayvec::ArrayVec::<ChunkMut<'_>, PIECES>::new();
    let mut fits = true;
    landing.buffer.for_each_mut(landing.at, landing.take, |piece| fits &= pieces.try_push(piece).is_ok());
    debug_assert!(fits, "buffers have few pieces");
    process.read(from, &mut pieces)
}

/// Whether a process may be read.
pub(crate) fn may_read(process: &Process, from: usize) -> bool {
    process.read(from, &mut [ChunkMut::of(&mut [0])]) != Reading::Denied
}

/// How long it took.
pub(crate) fn since(start: Instant) -> Duration {
    ofi_os::clock::now().since(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_after_some_payloads_and_after_many_once_more() {
        let mut direct = Direct::new(Use::IfFaster);
        assert!((1..ASK_AFTER).all(|_| !direct.is_time_to_ask()));
        assert!(direct.is_time_to_ask());
        direct.asked();
        assert!(!direct.is_time_to_ask());
        assert!(direct.answered(true));
        assert!(direct.place_of(&Buffer::Owned(vec![1]), 0).is_some());
        // Later the other side thinks better of it.
        assert!(direct.answered(false));
        assert!(direct.place_of(&Buffer::Owned(vec![1]), 0).is_none());
        assert!((1..ASK_AGAIN_AFTER).all(|_| !direct.is_time_to_ask()));
        assert!(direct.is_time_to_ask());
        // Nobody was asked.
        assert!(!Direct::new(Use::IfFaster).answered(true));
        assert!(!Direct::new(Use::Never).is_time_to_ask());
    }

    #[test]
    fn the_faster_way_wins() {
        for (pooled, read, worse) in [(100, 50, false), (50, 100, true)] {
            let mut direct = Direct::new(Use::IfFaster);
            let micros = Duration::from_micros;
            (0..10).for_each(|at| direct.note_pooled(micros(pooled + at), 1 << 20));
            let told = (0..TRIALS).map(|at| direct.note_read(micros(read + u64::from(at)), 1 << 20));
            assert_eq!(told.filter(|worse| *worse).count(), usize::from(worse));
            assert!(!direct.note_read(micros(1000), 1 << 20), "once");
        }
    }

    #[test]
    fn a_secret_that_is_not_there_convinces_nobody() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let secret: [u8; 16] = ofi_os::random();
        let at = secret.as_ptr().addr();
        let mut direct = Direct::new(Use::IfFaster);
        assert!(direct.try_process(pid, at, secret));
        assert!(!direct.try_process(pid, at, [0; 16]));
        assert!(!direct.try_process(pid, 8, secret));
        assert!(!direct.try_process(0, at, secret));
        assert!(!Direct::new(Use::Never).try_process(pid, at, secret));
    }
}
