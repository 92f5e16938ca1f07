//! The state shared by the threads of a world: the rules of its messages, and its rounds.

use crate::watch::Watch;
use fastrand::Rng;
use ofi_engine::CompletionQueue;
use ofi_rig::Accesses;
use ofi_sync::lock::Park;
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) const ENDPOINTS: usize = 4;
/// The endpoint that is closed last and shared by two threads. It does not send to itself, because
/// the link to itself would remain.
pub(crate) const LAST: usize = 0;
/// The author's number of the thread that shares [`LAST`].
pub(crate) const GUEST: usize = ENDPOINTS;
/// Threads of a world.
pub(crate) const THREADS: usize = 4;
pub(crate) const TAGS: u64 = 3;
/// The longest message and region, in bytes.
pub(crate) const MOST: usize = 300_000;
/// The longest message of an inject call, in bytes.
pub(crate) const MOST_INJECTED: usize = 4096;
/// Receives that a node keeps posted during a round.
pub(crate) const MOST_POSTED: usize = 64;
/// Marks the data of one-sided operations.
pub(crate) const ACCESS: u64 = 1 << 62;

/// A message's identity, sent as its data. Its length, tag and bytes follow from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) author: usize,
    pub(crate) dest: usize,
    pub(crate) number: u32,
}

impl Name {
    pub(crate) fn data(self) -> u64 {
        (self.author as u64) << 40 | (self.dest as u64) << 32 | u64::from(self.number)
    }

    pub(crate) fn of(data: u64) -> Self {
        let part = |from: u32| usize::try_from(data >> from & 0xff).expect("8 bits");
        Self { author: part(40), dest: part(32), number: u32::try_from(data & 0xffff_ffff).expect("32 bits") }
    }

    pub(crate) fn tag_and_bytes(self, seed: u64) -> (Option<u64>, Vec<u8>) {
        let mut rng = Rng::with_seed(seed ^ self.data());
        let tag = rng.bool().then(|| rng.u64(0..TAGS));
        let len = match rng.u8(0..40) {
            _ if self.author == GUEST => rng.usize(0..=MOST_INJECTED),
            0..=25 => rng.usize(0..200),
            26..=36 => rng.usize(0..8000),
            37..=38 => rng.usize(0..60_000),
            _ => rng.usize(0..MOST),
        };
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        (tag, bytes)
    }
}

/// Counts of all rounds of a world.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Messages that were accepted and not canceled.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Threads that have finished all their sends and accesses, in each round.
    pub(crate) settled: usize,
    /// The latest context of [`LAST`], for the thread that shares it.
    pub(crate) latest: usize,
    /// Endpoints that have been closed.
    pub(crate) closed: usize,
}

/// The state shared by the threads of a world.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) rounds: usize,
    pub(crate) steps: usize,
    /// One-sided operations by initiator and target.
    pub(crate) accesses: [[Mutex<Accesses>; ENDPOINTS]; ENDPOINTS],
    pub(crate) tally: Mutex<Tally>,
    pub(crate) barrier: Barrier,
    pub(crate) watch: Arc<Watch>,
}

impl World {
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().expect("a panic ends the process")
    }

    pub(crate) fn accesses(&self, initiator: usize, target: usize) -> MutexGuard<'_, Accesses> {
        self.accesses[initiator][target].lock().expect("a panic ends the process")
    }

    /// Whether all operations of a round have completed and all messages have arrived.
    pub(crate) fn is_quiet(&self, round: usize) -> bool {
        let tally = self.tally();
        tally.settled == THREADS * (round + 1) && tally.sent == tally.received
    }
}

/// The endpoints that an endpoint sends to.
pub(crate) const fn reached_by(number: usize) -> std::ops::Range<usize> {
    if number == LAST { LAST + 1..ENDPOINTS } else { 0..ENDPOINTS }
}

pub(crate) fn wait(cq: &CompletionQueue<Park>, most: Duration) {
    cq.wait(1, Some(most)).expect("the queue can sleep");
}
