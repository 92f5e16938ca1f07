//! Which way large payloads of a class of sizes take: the fastest of those that have been timed in
//! use. What is fastest depends on the machine's caches, on whether the program rewrites its
//! buffers, and on the load, so each way gets its turn again now and then.
//!
//! The receiver times the ways. It chooses between reading alone and copying together, and in the
//! pool how far it stays behind the sender, and with which instructions it copies. When the pool is
//! faster than the other two it withdraws its permission for the class. The sender asks again
//! later, and sends some payloads through the pool even while the permission stands ([`Sent`]).

use crate::window::WINDOWS;
use ofi_core::Instant;

mod sent;

pub(crate) use sent::{Length, Sent};

/// The ways of a large payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Both sides copy, through the pool, the receiver at once.
    Pool,
    /// The same, and the receiver stays behind the sender.
    Behind,
    /// The same as through the pool at once, and the receiver copies with vector instructions.
    Vector,
    /// The receiver reads the sender's memory.
    Read,
    /// Both sides copy a part each, between the two buffers.
    Both,
}

/// The ways of payloads that are lent, and of those that come through the pool; the first is the
/// one to begin with.
const LENT: &[Way] = &[Way::Both, Way::Read];
const POOLED: &[Way] = &[Way::Pool, Way::Vector, Way::Behind];

/// The smallest payload for which a receiver may stay behind its sender: where a line takes 150 ns,
/// streams of shorter ones were as fast without, and the trials left some of them slower.
const LEAST_BEHIND: usize = 32 << 10;

/// The latest groups that count.
const GROUPS: usize = 3;
/// Payloads of a trial that tell whether the rest of it is worth the time: after as many, a way
/// that takes a quarter longer than the current one is given up until the next round. An
/// interruption may do that to a faster one, which costs a round.
const TELLING: u32 = 8;
/// Payloads in a row, of those that the receiver stayed behind for, that nothing follows, after
/// which it does so no longer.
const ALONE: u32 = 4;
/// Payloads of a round. The first rounds are shorter: the other side may have been trying its own
/// ways at the same time, which makes this side's look slow.
const ROUND: u32 = 4096;
const FIRST_ROUND: u32 = 512;

/// Payloads of a class that are timed together, because they come in bursts: fewer `long` ones, of
/// which each takes its time.
const fn group(long: bool) -> u32 {
    if long { 16 } else { 32 }
}

/// The same through the pool, where the first payloads of a burst wait and the others come out of
/// what has piled up: whole bursts. Of long ones few wait, and no more are looked at than cost the
/// first two thousand a twentieth.
const fn pooled_group(long: bool) -> u32 {
    if long { 14 } else { 64 }
}

/// Payloads of a trial: the chooser times two groups (see [`Pace::time`]). The first payload
/// only starts the clock, and before it those end whose windows are open already.
const fn trial(group: u32) -> u32 {
    2 * group + WINDOWS
}

/// Groups of the pool's current way that a visit begins with. The first one is slow, as its memory
/// is in no cache, or fast, as the sender copied its first payloads while others were still lent.
const FIRST_GROUPS: u32 = 2;

/// Payloads that the sender sends through the pool for comparison: these groups, and one of
/// another way. The first of each way only starts the clock.
const fn visit(long: bool) -> u32 {
    (FIRST_GROUPS + 1) * pooled_group(long) + 2
}

/// What the payloads are that a contest times together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Groups {
    /// Any: each tells something of its way.
    Any,
    /// Whole bursts, whose first payloads wait for the others: no trial is given up as slow before
    /// it has timed a group.
    Bursts,
    /// Likewise, but parts of bursts: what has piled up makes some of them fast.
    PartsOfBursts,
}

/// How fast payloads of a class follow each other, one way. That includes what the way costs the
/// sender: memory that another core has read takes longer to write again.
#[derive(Debug, Default)]
struct Pace {
    /// Nanoseconds per MiB in each of the latest groups.
    groups: [u64; GROUPS],
    /// How many groups have been timed.
    timed: usize,
    /// They were timed long ago: the next one replaces them all.
    is_old: bool,
    /// When the current group began, its payloads so far, and their bytes.
    began: Option<Instant>,
    count: u32,
    bytes: u64,
}

impl Pace {
    /// A payload has arrived. True if it ends a group of that many.
    fn note(&mut self, now: impl FnOnce() -> Instant, len: usize, group: u32) -> bool {
        let Some(began) = self.began else {
            (self.began, self.count, self.bytes) = (Some(now()), 0, 0);
            return false;
        };
        self.count += 1;
        self.bytes += len as u64;
        let ended = self.count == group;
        if ended {
            let now = now();
            if core::mem::take(&mut self.is_old) {
                self.timed = 0;
            }
            self.groups[self.timed % GROUPS] = self.since(began, now);
            self.timed += 1;
            (self.began, self.count, self.bytes) = (Some(now), 0, 0);
        }
        ended
    }

    /// Nanoseconds per MiB of the current group.
    fn since(&self, began: Instant, now: Instant) -> u64 {
        let nanos = u64::try_from(now.since(began).as_nanos()).unwrap_or(u64::MAX);
        nanos.saturating_mul(1 << 20) / self.bytes.max(1)
    }

    /// The same once the group tells something.
    fn so_far(&self, now: impl FnOnce() -> Instant) -> Option<u64> {
        self.began.filter(|_| self.count >= TELLING).map(|began| self.since(began, now()))
    }

    /// Nanoseconds per MiB in the latest groups. In the fastest of them, as the others may have
    /// been interrupted; of parts of bursts in the one in the middle, or the slower of two.
    fn time(&self, kind: Groups) -> Option<u64> {
        let timed = self.timed.min(GROUPS);
        let mut groups = self.groups;
        groups[..timed].sort_unstable();
        groups[..timed].get(if kind == Groups::PartsOfBursts { timed / 2 } else { 0 }).copied()
    }

    /// A payload has come another way: the current group is void.
    const fn interrupt(&mut self) {
        self.began = None;
    }
}

/// Whether a way that takes `time` is clearly faster than one that takes `other`: less than a
/// thirtieth is noise. Not more, as in a ping-pong only half of the time is that of this side's
/// way.
const fn is_faster(time: u64, other: u64) -> bool {
    time < other - other / 30
}

/// Which of some ways is the fastest: one that is not the current one has a trial in each round.
#[derive(Debug)]
struct Contest {
    ways: &'static [Way],
    /// Payloads that are timed together.
    group: u32,
    kind: Groups,
    paces: [Pace; POOLED.len()],
    /// The places of the current way, and of the one that is on trial, or will be next.
    current: usize,
    tried: usize,
    /// Payloads of the current round, and how many it has.
    count: u32,
    round: u32,
}

impl Contest {
    fn new(ways: &'static [Way], group: u32, kind: Groups) -> Self {
        let paces = Default::default();
        Self { ways, group, kind, paces, current: 0, tried: 1, count: 0, round: FIRST_ROUND }
    }

    /// Payloads of a round before its trial, when the current way has been timed, and with it.
    const fn before_and_after_trial(&self) -> (u32, u32) {
        let before = 3 * self.group + 1;
        (before, before + trial(self.group))
    }

    /// Whether payloads take a way that is not the current one.
    fn is_trying(&self) -> bool {
        let (before, after) = self.before_and_after_trial();
        (before..after).contains(&self.count)
    }

    /// The way of the next payload.
    fn next(&self) -> Way {
        self.ways[if self.is_trying() { self.tried } else { self.current }]
    }

    /// A few payloads come: some groups of the current way, then the trial. Those of the visit
    /// before were long ago.
    fn begin_visit(&mut self) {
        self.paces.iter_mut().for_each(|pace| pace.is_old = true);
        let (before, _) = self.before_and_after_trial();
        self.count = before - FIRST_GROUPS * self.group - 1;
    }

    /// No more come. A trial that has told nothing yet goes on in the next visit.
    fn end_visit(&mut self) {
        if self.is_trying() {
            (_, self.count) = self.before_and_after_trial();
            if self.paces[self.tried].timed > 0 {
                self.take_faster();
            }
        }
    }

    /// That way is of no use: its trial is over, or it is no longer the current one.
    fn give_up(&mut self, way: Way) {
        (_, self.count) = self.before_and_after_trial();
        if self.ways[self.current] == way {
            self.current = 0;
        }
        self.try_another();
    }

    /// After a trial: takes the faster way.
    fn take_faster(&mut self) {
        let (current, tried) = self.current_and_tried();
        // What is not known, such as copies by both sides where the other one cannot write here,
        // does not stay the current way.
        let is_better = |tried| current.is_none_or(|current| is_faster(tried, current));
        if tried.is_some_and(is_better) {
            self.current = self.tried;
        }
        self.try_another();
    }

    /// The next trial is that of another way.
    fn try_another(&mut self) {
        let mut others = (1..=self.ways.len()).map(|more| (self.tried + more) % self.ways.len());
        self.tried = others.find(|way| *way != self.current).unwrap_or(self.tried);
    }

    /// A payload has arrived that way. Returns whether it ends a group, and whether it ends a
    /// trial.
    fn note(&mut self, way: Way, now: impl Fn() -> Instant, len: usize) -> (bool, bool) {
        let mut ended = false;
        for (of, pace) in self.ways.iter().zip(&mut self.paces) {
            if *of == way {
                ended = pace.note(&now, len, self.group);
            } else {
                pace.interrupt();
            }
        }
        let was_trying = self.is_trying();
        self.count += 1;
        let (before, after) = self.before_and_after_trial();
        if was_trying && self.trial_is_hopeless(now) {
            self.count = after;
        }
        if self.count == before {
            self.paces[self.tried] = Pace::default();
        }
        if self.count >= self.round {
            (self.count, self.round) = (0, (2 * self.round).min(ROUND));
        }
        let ends_trial = was_trying && !self.is_trying();
        if ends_trial {
            self.take_faster();
        }
        (ended, ends_trial)
    }

    fn interrupt(&mut self) {
        self.paces.iter_mut().for_each(Pace::interrupt);
    }

    fn current(&self) -> &Pace {
        &self.paces[self.current]
    }

    /// The times of the current way, and of the one that is on trial or will be next.
    fn current_and_tried(&self) -> (Option<u64>, Option<u64>) {
        (self.current().time(self.kind), self.paces[self.tried].time(self.kind))
    }

    /// Whether the trial is so slow that more payloads tell nothing.
    fn trial_is_hopeless(&self, now: impl FnOnce() -> Instant) -> bool {
        let (current, tried) = self.current_and_tried();
        let tried = tried.or_else(|| if self.kind != Groups::Any { None } else { self.paces[self.tried].so_far(now) });
        current.zip(tried).is_some_and(|(current, tried)| tried / 5 > current / 4)
    }
}

/// The receiver's choice for a class of sizes on a link.
#[derive(Debug)]
pub(crate) struct Chooser {
    /// Both sides copy, or the receiver reads.
    lent: Contest,
    /// The receiver reads at once, stays behind, or copies with vector instructions.
    pooled: Contest,
    /// The last payload was lent.
    was_lent: bool,
    /// Payloads in a row for which the receiver stayed behind in vain.
    alone: u32,
}

impl Chooser {
    /// One that knows nothing, of the class whose shortest payloads have that length. Not inlined:
    /// all classes' at once would be kilobytes of code.
    #[inline(never)]
    pub(crate) fn new(len: usize) -> Self {
        let long = len >= Length::LONG;
        let kind = if long { Groups::PartsOfBursts } else { Groups::Bursts };
        let pooled: &[Way] = if len < LEAST_BEHIND { &[Way::Pool, Way::Vector] } else { POOLED };
        Self {
            lent: Contest::new(LENT, group(long), Groups::Any),
            pooled: Contest::new(pooled, pooled_group(long), kind),
            was_lent: false,
            alone: 0,
        }
    }

    /// The way of the next payload that the sender lends.
    pub(crate) fn next_lent(&self) -> Way {
        self.lent.next()
    }

    /// The way of the next payload that comes through the pool.
    pub(crate) fn next_pooled(&mut self) -> Way {
        if core::mem::take(&mut self.was_lent) {
            self.pooled.begin_visit();
        }
        self.pooled.next()
    }

    /// A payload has arrived that way. True if the pool turns out to be faster than the others. The
    /// clock is read where it counts only: that takes as long as to copy some hundred bytes.
    pub(crate) fn note(&mut self, way: Way, now: impl Fn() -> Instant, len: usize) -> bool {
        if LENT.contains(&way) {
            self.pooled.interrupt();
            let ends_visit = !core::mem::replace(&mut self.was_lent, true);
            if ends_visit {
                self.pooled.end_visit();
            }
            let (_, ends_trial) = self.lent.note(way, now, len);
            return (ends_visit || ends_trial) && self.pool_is_faster();
        }
        self.lent.interrupt();
        let (ends_group, ends_trial) = self.pooled.note(way, now, len);
        (ends_trial || ends_group && self.pooled.current().timed.is_multiple_of(2)) && self.pool_is_faster()
    }

    /// The receiver stayed behind for a payload: whether anything follows it. It does so no longer
    /// if payloads come one at a time.
    pub(crate) fn note_burst(&mut self, goes_on: bool) {
        self.alone = if goes_on { 0 } else { self.alone + 1 };
        if self.alone == ALONE {
            self.alone = 0;
            self.pooled.give_up(Way::Behind);
        }
    }

    /// What comes next has waited for something else: the current groups are void.
    pub(crate) fn interrupt(&mut self) {
        self.lent.interrupt();
        self.pooled.interrupt();
    }

    fn pool_is_faster(&self) -> bool {
        if self.pooled.kind == Groups::PartsOfBursts && self.pooled.current().timed < 2 {
            // One that was fast may have found all piled up.
            return false;
        }
        let (current, tried) = self.lent.current_and_tried();
        // If the other side cannot write here, all that it lends is read.
        let lent = current.or(tried);
        let (pool, _) = self.pooled.current_and_tried();
        pool.zip(lent).is_some_and(|(pool, lent)| is_faster(pool, lent))
    }

    /// The sender asks anew: forgets how fast the ways without the pool were.
    pub(crate) fn try_again(&mut self) {
        self.lent = Contest::new(LENT, self.lent.group, Groups::Any);
    }
}

#[cfg(test)]
mod tests;
