//! Large payloads past the pool: the receiver reads them out of the sender's memory, one copy instead of two, where the system
//! lets it and where that is faster. The side that sends asks first, by a message that tells its process's number and where a
//! secret of its lies; the other side tries, and says yes or no. It goes on to measure, and says no later if the pool does better.
//! The secret is read with every payload, so that what came is that process's and no other's.
//!
//! Only payloads of more than [`MOST_EAGER`] bytes: those are data frames of a rendezvous, of which each waits for the one before, so
//! that one which cannot be read in this way after all comes through the pool later, or is said to be absent.

use ofi_core::Instant;
use ofi_engine::transport::{RecvTarget, Token};
use ofi_engine::wire::frame::{Header, MOST_EAGER};
use ofi_memory::{Buffer, ChunkMut};
use ofi_os::process::Process;
use std::time::Duration;

/// Payloads that must have gone through the pool before it is worth asking.
const ASK_AFTER: u32 = 16;
/// The same before asking again, where the answer was no.
const ASK_AGAIN_AFTER: u32 = 4096;
/// Payloads by which either way is judged.
const TRIALS: u32 = 4;
/// Outcomes that may wait for room: more than anybody has under way who reads what is said.
const REPLIES: usize = 4096;

/// Whether payloads may go past the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CmaMode {
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
enum CmaPermission {
    /// Not now; it is asked after so many payloads more.
    No { more: u32 },
    /// It has been asked.
    Asked,
    /// It can.
    Yes,
}

/// A payload that the other side reads.
#[derive(Debug)]
pub(crate) struct CmaLoan {
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
    /// It could not be: it is to come through the pool.
    Refused,
}

impl Outcome {
    pub(crate) const fn code(self) -> u64 {
        match self {
            Self::Taken => 0,
            Self::Refused => 1,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        [Self::Taken, Self::Refused].into_iter().find(|outcome| outcome.code() == code)
    }
}

/// The best time of the latest payloads, of [`TRIALS`] at least once there were so many.
#[derive(Debug, Default)]
struct Best {
    count: u32,
    /// Nanoseconds of a MiB: of those since, and of the [`TRIALS`] before.
    now: u64,
    before: u64,
}

impl Best {
    fn note(&mut self, took: Duration, len: usize) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let time = nanos.saturating_mul(1 << 20) / (len as u64).max(1);
        if self.count.is_multiple_of(TRIALS) {
            self.before = if self.count == 0 { u64::MAX } else { self.now };
            self.now = time;
        }
        self.now = self.now.min(time);
        self.count = self.count.saturating_add(1);
    }

    fn time(&self) -> u64 {
        self.now.min(self.before)
    }
}

/// What a link knows about going past the pool, in both directions.
#[derive(Debug)]
pub(crate) struct Cma {
    how: CmaMode,
    leave: CmaPermission,
    lent: Vec<CmaLoan>,
    next: u32,
    /// The process whose memory may be read.
    peer: Option<Process>,
    pooled: Best,
    read: Best,
    /// Outcomes that the other side has not been told.
    untold: usize,
    /// It has not been told the answer to its last request.
    answering: bool,
}

impl Default for Cma {
    fn default() -> Self {
        Self {
            how: CmaMode::Never,
            leave: CmaPermission::No { more: ASK_AFTER },
            lent: Vec::new(),
            next: 0,
            peer: None,
            pooled: Best::default(),
            read: Best::default(),
            untold: 0,
            answering: false,
        }
    }
}

impl Cma {
    pub(crate) fn new(how: CmaMode) -> Self {
        let more = if how == CmaMode::IfAllowed { 1 } else { ASK_AFTER };
        Self { how, leave: CmaPermission::No { more }, ..Self::default() }
    }

    /// A large payload is to be sent. True if it is time to ask whether the other side may read such ones.
    pub(crate) const fn is_time_to_ask(&mut self) -> bool {
        match &mut self.leave {
            CmaPermission::No { more } if !matches!(self.how, CmaMode::Never) => {
                *more = more.saturating_sub(1);
                *more == 0
            }
            _ => false,
        }
    }

    /// It has been asked.
    pub(crate) const fn asked(&mut self) {
        self.leave = CmaPermission::Asked;
    }

    /// The other side's word. False if it says yes without having been asked; a no may come at any time, and be known already.
    pub(crate) fn answered(&mut self, yes: bool) -> bool {
        match (self.leave, yes) {
            (CmaPermission::Asked, true) => self.leave = CmaPermission::Yes,
            (_, true) => return false,
            (CmaPermission::No { .. }, false) => {}
            (_, false) => self.leave = CmaPermission::No { more: ASK_AGAIN_AFTER },
        }
        true
    }

    /// Where a part of a buffer lies, if the other side may read it there.
    pub(crate) fn place_of(&self, buffer: &Buffer, from: usize) -> Option<u64> {
        let whole = matches!(buffer, Buffer::One(_) | Buffer::Owned(_));
        (self.leave == CmaPermission::Yes && whole).then(|| (buffer.address() + from) as u64)
    }

    /// The other side reads that payload from now on; the number under which it says what became of it.
    pub(crate) fn lend(&mut self, header: Header, buffer: Buffer, from: usize, len: usize, token: Token) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.lent.push(CmaLoan { number: self.next, header, buffer, from, len, token });
        self.next
    }

    /// The other side is done with a payload.
    pub(crate) fn take_back(&mut self, number: u64) -> Option<CmaLoan> {
        let at = self.lent.iter().position(|lent| u64::from(lent.number) == number)?;
        Some(self.lent.swap_remove(at))
    }

    /// Whether the other side still reads something.
    pub(crate) const fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// The other side is to be told what became of a payload. False if it lets too many wait.
    pub(crate) const fn reply(&mut self) -> bool {
        self.untold += 1;
        self.untold <= REPLIES
    }

    /// It has been told of one.
    pub(crate) const fn replied(&mut self) {
        self.untold -= 1;
    }

    /// It has been told whether its memory is read.
    pub(crate) const fn has_answered(&mut self) {
        self.answering = false;
    }

    /// All that the other side has not said to be done with.
    pub(crate) fn take_all_back(&mut self) -> impl Iterator<Item = CmaLoan> {
        self.lent.drain(..)
    }

    /// May this side not read it in this way any more: the pool it is.
    pub(crate) const fn refused(&mut self) {
        self.leave = CmaPermission::No { more: ASK_AGAIN_AFTER };
    }

    /// Tries whether the memory of a process can be read: its secret must be where it says. Returns what the other side is to
    /// be told.
    pub(crate) fn try_process(&mut self, pid: i32, at: usize, secret: [u8; 16]) -> Option<bool> {
        if core::mem::replace(&mut self.answering, true) {
            // It has not read the answer to its last request.
            return None;
        }
        self.peer = if self.how == CmaMode::Never { None } else { Process::find(pid, at, secret) };
        self.read = Best::default();
        Some(self.peer.is_some())
    }

    /// The process whose memory may be read.
    pub(crate) const fn peer(&self) -> Option<&Process> {
        self.peer.as_ref()
    }

    /// A payload came through the pool in that time.
    pub(crate) fn note_pooled(&mut self, took: Duration, len: usize) {
        self.pooled.note(took, len);
    }

    /// A payload was read in that time. True if the other side is to be told that the pool does better.
    pub(crate) fn note_read(&mut self, took: Duration, len: usize) -> bool {
        self.read.note(took, len);
        let judged = self.how == CmaMode::IfFaster && self.read.count == TRIALS && self.pooled.count >= TRIALS;
        judged && self.read.time() > self.pooled.time()
    }
}

/// Whether a payload of so many bytes may go past the pool.
pub(crate) const fn is_large(len: usize) -> bool {
    len > MOST_EAGER
}

/// Reads what lies at `from` in a process to where it belongs. False if it could not be, or not at once.
pub(crate) fn read(process: &Process, from: usize, target: &mut RecvTarget) -> bool {
    if !process.is_present(from, target.take) {
        return false;
    }
    let mut pieces = arrayvec::ArrayVec::<ChunkMut<'_>, { Process::PIECES }>::new();
    let mut fits = true;
    target.buffer.for_each_mut(target.at, target.take, |piece| fits &= pieces.try_push(piece).is_ok());
    fits && process.read(from, &mut pieces)
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
        let mut direct = Cma::new(CmaMode::IfFaster);
        assert!((1..ASK_AFTER).all(|_| !direct.is_time_to_ask()));
        assert!(direct.is_time_to_ask());
        direct.asked();
        assert!(!direct.is_time_to_ask());
        assert!(direct.answered(true));
        assert!(direct.place_of(&Buffer::Owned(vec![1]), 0).is_some());
        // Later the other side thinks better of it.
        assert!(direct.answered(false));
        assert!(direct.place_of(&Buffer::Owned(vec![1]), 0).is_none());
        assert!(direct.answered(false));
        assert!((1..ASK_AGAIN_AFTER).all(|_| !direct.is_time_to_ask()));
        assert!(direct.is_time_to_ask());
        // Nobody was asked.
        assert!(!Cma::new(CmaMode::IfFaster).answered(true));
        assert!(!Cma::new(CmaMode::Never).is_time_to_ask());
    }

    #[test]
    fn the_faster_way_wins() {
        for (pooled, read, worse) in [(100, 50, false), (50, 100, true)] {
            let mut direct = Cma::new(CmaMode::IfFaster);
            let micros = Duration::from_micros;
            (0..10).for_each(|at| direct.note_pooled(micros(pooled + at), 1 << 20));
            let told = (0..TRIALS).map(|at| direct.note_read(micros(read + u64::from(at)), 1 << 20));
            assert_eq!(told.filter(|worse| *worse).count(), usize::from(worse));
            assert!(!direct.note_read(micros(1000), 1 << 20), "once");
        }
    }

    #[test]
    fn whoever_is_not_heard_is_not_asked_again() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let secret: Box<[u8; 16]> = Box::new(ofi_os::random());
        let at = secret.as_ptr().addr();
        for (how, yes) in [(CmaMode::IfFaster, true), (CmaMode::Never, false)] {
            let mut direct = Cma::new(how);
            assert_eq!(direct.try_process(pid, at, *secret), Some(yes));
            assert_eq!(direct.try_process(pid, 8, *secret), None);
            direct.has_answered();
            assert_eq!(direct.try_process(pid, 8, *secret), Some(false));
        }
        let mut direct = Cma::default();
        assert!((0..REPLIES).all(|_| direct.reply()));
        direct.replied();
        assert!(direct.reply() && !direct.reply());
    }
}
