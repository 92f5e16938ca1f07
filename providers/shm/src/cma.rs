//! Cross-memory attach (CMA): the receiver reads a large payload out of the sender's memory, one
//! copy instead of two, where the system allows it and it is faster than the pool. The sender asks
//! first, by a control message with its process id and the address of a secret; the receiver tries
//! to read the secret and grants or refuses. It then measures, and revokes the permission if the
//! pool is faster. It reads the secret again with every payload, which proves that the bytes are
//! those of that process.
//!
//! Only for payloads of more than [`MOST_EAGER`] bytes. Those are data frames of a rendezvous, and
//! each waits for the one before, so a payload that cannot be read after all may come later
//! through the pool, or be reported as absent.

use ofi_core::Instant;
use ofi_engine::transport::{RecvTarget, Token};
use ofi_engine::wire::frame::{Header, MOST_EAGER};
use ofi_memory::{Buffer, ChunkMut};
use ofi_os::process::Process;
use std::time::Duration;

/// Large payloads after which asking for permission pays.
const ASK_AFTER: u32 = 16;
/// The same before asking again after a refusal.
const ASK_AGAIN_AFTER: u32 = 4096;
/// Payloads to time, either way, before the two are compared.
const TRIALS: u32 = 4;
/// Outcomes that may wait for room: more payloads than a peer that reads them has under way.
const REPLIES: usize = 4096;

/// When large payloads use cross-memory attach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CmaMode {
    /// Never: all payloads go through the pool.
    Never,
    /// Where the system allows it and it is measured to be faster.
    #[default]
    IfFaster,
    /// Where the system allows it.
    IfAllowed,
}

/// Whether the other side may read our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CmaPermission {
    /// No; ask (again) after `more` payloads.
    No {
        more: u32,
    },
    /// Asked, not answered yet.
    Requested,
    Yes,
}

/// A payload lent to the other side, which reads it.
#[derive(Debug)]
pub(crate) struct CmaLoan {
    number: u32,
    pub(crate) header: Header,
    pub(crate) buffer: Buffer,
    pub(crate) from: usize,
    pub(crate) len: usize,
    pub(crate) token: Token,
}

/// The result of reading a lent payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver has read it.
    Taken,
    /// The receiver could not read it: send it through the pool.
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

/// The best time over the latest payloads: the last [`TRIALS`] or more, once there are that many.
#[derive(Debug, Default)]
struct Best {
    count: u32,
    /// Nanoseconds per MiB, of the current [`TRIALS`] payloads and of those before.
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

/// Cross-memory attach on a link, in both directions.
#[derive(Debug)]
pub(crate) struct Cma {
    how: CmaMode,
    permission: CmaPermission,
    lent: Vec<CmaLoan>,
    next: u32,
    /// The process whose memory may be read.
    peer: Option<Process>,
    pooled: Best,
    read: Best,
    /// Outcomes not sent to the other side yet.
    untold: usize,
    /// The answer to the other side's last offer is not sent yet.
    answering: bool,
}

impl Default for Cma {
    fn default() -> Self {
        Self {
            how: CmaMode::Never,
            permission: CmaPermission::No { more: ASK_AFTER },
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
        Self { how, permission: CmaPermission::No { more }, ..Self::default() }
    }

    /// Counts a large payload that is about to be sent. True if it is time to ask for permission.
    pub(crate) const fn is_time_to_ask(&mut self) -> bool {
        match &mut self.permission {
            CmaPermission::No { more } if !matches!(self.how, CmaMode::Never) => {
                *more = more.saturating_sub(1);
                *more == 0
            }
            _ => false,
        }
    }

    /// Permission has been asked for.
    pub(crate) const fn asked(&mut self) {
        self.permission = CmaPermission::Requested;
    }

    /// Takes the other side's answer. False if it grants without having been asked; a refusal is
    /// valid at any time, even twice.
    pub(crate) fn answered(&mut self, yes: bool) -> bool {
        match (self.permission, yes) {
            (CmaPermission::Requested, true) => self.permission = CmaPermission::Yes,
            (_, true) => return false,
            (CmaPermission::No { .. }, false) => {}
            (_, false) => self.permission = CmaPermission::No { more: ASK_AGAIN_AFTER },
        }
        true
    }

    /// The address of a part of a contiguous buffer, if the other side may read it.
    pub(crate) fn place_of(&self, buffer: &Buffer, from: usize) -> Option<u64> {
        (self.permission == CmaPermission::Yes && buffer.is_one_piece()).then(|| (buffer.address() + from) as u64)
    }

    /// Lends a payload to the other side. Returns the number under which it reports the outcome.
    pub(crate) fn lend(&mut self, header: Header, buffer: Buffer, from: usize, len: usize, token: Token) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.lent.push(CmaLoan { number: self.next, header, buffer, from, len, token });
        self.next
    }

    /// Ends the loan of that number.
    pub(crate) fn take_back(&mut self, number: u64) -> Option<CmaLoan> {
        let at = self.lent.iter().position(|lent| u64::from(lent.number) == number)?;
        Some(self.lent.swap_remove(at))
    }

    /// Whether the other side may still be reading a payload.
    pub(crate) const fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Counts an outcome to send. False if the other side leaves too many unread.
    pub(crate) const fn reply(&mut self) -> bool {
        self.untold += 1;
        self.untold <= REPLIES
    }

    /// An outcome has been sent.
    pub(crate) const fn replied(&mut self) {
        self.untold -= 1;
    }

    /// The answer to the other side's offer has been sent.
    pub(crate) const fn has_answered(&mut self) {
        self.answering = false;
    }

    /// Ends all loans.
    pub(crate) fn take_all_back(&mut self) -> impl Iterator<Item = CmaLoan> {
        self.lent.drain(..)
    }

    /// The peer could not read our memory; use the pool and ask again later.
    pub(crate) const fn refused(&mut self) {
        self.permission = CmaPermission::No { more: ASK_AGAIN_AFTER };
    }

    /// Tests whether this side can read the memory of a process: its secret must be at `at`.
    /// Returns the answer to send, or `None` if the previous one still waits.
    pub(crate) fn try_process(&mut self, pid: i32, at: usize, secret: [u8; 16]) -> Option<bool> {
        if core::mem::replace(&mut self.answering, true) {
            // The peer asks again without having made room for the last answer.
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

    /// Records how long a payload took through the pool.
    pub(crate) fn note_pooled(&mut self, took: Duration, len: usize) {
        self.pooled.note(took, len);
    }

    /// Records how long reading a payload took. True if the pool is faster: revoke the permission.
    pub(crate) fn note_read(&mut self, took: Duration, len: usize) -> bool {
        self.read.note(took, len);
        let judged = self.how == CmaMode::IfFaster && self.read.count == TRIALS && self.pooled.count >= TRIALS;
        judged && self.read.time() > self.pooled.time()
    }
}

/// Whether a payload of `len` bytes may use cross-memory attach.
pub(crate) const fn is_large(len: usize) -> bool {
    len > MOST_EAGER
}

/// Reads from address `from` of a process into the receive target. False if the memory cannot be
/// read, or not without waiting for its pages.
pub(crate) fn read(process: &Process, from: usize, target: &mut RecvTarget) -> bool {
    if !process.is_present(from, target.take) {
        return false;
    }
    let mut pieces = arrayvec::ArrayVec::<ChunkMut<'_>, { Process::PIECES }>::new();
    let mut fits = true;
    target.buffer.for_each_mut(target.at, target.take, |piece| fits &= pieces.try_push(piece).is_ok());
    fits && process.read(from, &mut pieces)
}

pub(crate) fn since(start: Instant) -> Duration {
    ofi_os::clock::now().since(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_is_requested_after_some_payloads_and_again_after_many() {
        let mut direct = Cma::new(CmaMode::IfFaster);
        assert!((1..ASK_AFTER).all(|_| !direct.is_time_to_ask()));
        assert!(direct.is_time_to_ask());
        direct.asked();
        assert!(!direct.is_time_to_ask());
        assert!(direct.answered(true));
        assert!(direct.place_of(&Buffer::Owned(vec![1]), 0).is_some());
        // Later the other side revokes the permission.
        assert!(direct.answered(false));
        assert!(direct.place_of(&Buffer::Owned(vec![1]), 0).is_none());
        assert!(direct.answered(false));
        assert!((1..ASK_AGAIN_AFTER).all(|_| !direct.is_time_to_ask()));
        assert!(direct.is_time_to_ask());
        // A permission that was not asked for.
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
    fn a_side_that_reads_no_answers_gets_no_more_of_them() {
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
