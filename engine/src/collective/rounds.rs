//! Algorithms from which plans are built: trees, rings, and exchanges at doubling distances.

use core::ops::Range;

/// Rank of a member: its place in the set.
pub(super) type Rank = usize;

/// What a member does with a message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The message replaces the part.
    Store,
    /// The part becomes message ∘ base: the message comes from lower ranks.
    Before,
    /// The part becomes base ∘ message: the message comes from higher ranks.
    After,
}

/// A part of the workspace for another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outbound {
    pub(super) to: Rank,
    pub(super) part: Range<usize>,
}

/// A message of another member for a part of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inbound {
    pub(super) from: Rank,
    pub(super) part: Range<usize>,
    pub(super) then: Then,
    /// Where the elements begin with which the message is combined; mostly those of the part.
    pub(super) base: usize,
}

impl Inbound {
    pub(super) const fn new(from: Rank, part: Range<usize>, then: Then) -> Self {
        let base = part.start;
        Self { from, part, then, base }
    }
}

/// Messages that are in flight at once. A member sends the contents that the workspace has when the
/// round begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) sends: Vec<Outbound>,
    pub(super) receives: Vec<Inbound>,
}

impl Round {
    /// Maps the ranks of the algorithm to ranks of the group.
    pub(super) fn rename(&mut self, name: impl Fn(Rank) -> Rank) {
        self.sends.iter_mut().for_each(|send| send.to = name(send.to));
        self.receives.iter_mut().for_each(|receive| receive.from = name(receive.from));
    }
}

fn send(to: Rank, part: Range<usize>) -> Round {
    Round { sends: vec![Outbound { to, part }], receives: Vec::new() }
}

fn receive(from: Rank, part: Range<usize>, then: Then) -> Round {
    Round { sends: Vec::new(), receives: vec![Inbound::new(from, part, then)] }
}

fn exchange(to: Rank, out: Range<usize>, from: Rank, part: Range<usize>, then: Then) -> Round {
    Round { sends: vec![Outbound { to, part: out }], receives: vec![Inbound::new(from, part, then)] }
}

/// The powers of two below `n`.
fn powers(n: usize) -> impl DoubleEndedIterator<Item = usize> {
    let bits = n.checked_sub(1).map_or(0, |last| usize::BITS - last.leading_zeros());
    (0..bits).map(|bit| 1 << bit)
}

/// Dissemination: after it, each member has a message that depends on every other one.
pub(super) fn barrier(n: usize, me: Rank) -> Vec<Round> {
    powers(n).map(|k| exchange((me + k) % n, 0..0, (me + n - k) % n, 0..0, Then::Store)).collect()
}

/// A member's children in the binomial tree with root 0, each with the ranks of its subtree.
fn children(n: usize, me: Rank) -> impl DoubleEndedIterator<Item = (Rank, Range<usize>)> {
    let below = if me == 0 { n } else { 1 << me.trailing_zeros() };
    powers(below.min(n)).map(move |k| (me + k, me + k..(me + 2 * k).min(n))).filter(move |(child, _)| *child < n)
}

/// The ranks of a member's subtree.
fn subtree(n: usize, me: Rank) -> Range<usize> {
    if me == 0 { 0..n } else { me..(me + (1 << me.trailing_zeros())).min(n) }
}

/// A member's parent in the tree.
const fn parent(me: Rank) -> Option<Rank> {
    if me == 0 { None } else { Some(me & (me - 1)) }
}

/// Down the binomial tree from member 0; `part` is the part that a subtree needs.
pub(super) fn spread(n: usize, me: Rank, part: impl Fn(Range<usize>) -> Range<usize>) -> Vec<Round> {
    let mut rounds = Vec::new();
    if let Some(parent) = parent(me) {
        rounds.push(receive(parent, part(subtree(n, me)), Then::Store));
    }
    // The largest subtree first.
    let sends: Vec<Outbound> =
        children(n, me).rev().map(|(to, members)| Outbound { to, part: part(members) }).collect();
    if !sends.is_empty() {
        rounds.push(Round { sends, receives: Vec::new() });
    }
    rounds
}

/// Up the binomial tree to member 0; `part` is the part that a subtree has.
pub(super) fn collect(n: usize, me: Rank, part: impl Fn(Range<usize>) -> Range<usize>, then: Then) -> Vec<Round> {
    let receives: Vec<Inbound> =
        children(n, me).map(|(from, members)| Inbound::new(from, part(members), then)).collect();
    let mut rounds = Vec::new();
    if !receives.is_empty() {
        rounds.push(Round { sends: Vec::new(), receives });
    }
    if let Some(parent) = parent(me) {
        rounds.push(send(parent, part(subtree(n, me))));
    }
    rounds
}

/// Member 0 sends each of the others its block.
pub(super) fn deal(n: usize, me: Rank, count: usize) -> Vec<Round> {
    let block = |block: usize| block * count..(block + 1) * count;
    match me {
        0 => vec![Round { sends: (1..n).map(|to| Outbound { to, part: block(to) }).collect(), receives: Vec::new() }],
        _ => vec![receive(0, block(me), Then::Store)],
    }
}

/// Each of the others sends its block to member 0.
pub(super) fn pick(n: usize, me: Rank, count: usize) -> Vec<Round> {
    let block = |block: usize| block * count..(block + 1) * count;
    let inbound = |from| Inbound::new(from, block(from), Then::Store);
    match me {
        0 => vec![Round { sends: Vec::new(), receives: (1..n).map(inbound).collect() }],
        _ => vec![send(0, block(me))],
    }
}

/// Allgather in a ring: each member's block reaches all others.
pub(super) fn ring(n: usize, me: Rank, block: impl Fn(usize) -> Range<usize>) -> Vec<Round> {
    let round = |step: usize| {
        let (mine, theirs) = ((me + n - step) % n, (me + 2 * n - step - 1) % n);
        exchange((me + 1) % n, block(mine), (me + n - 1) % n, block(theirs), Then::Store)
    };
    (0..n - 1).map(round).collect()
}

/// Reduce-scatter in a ring: the members combine each block on its way to its member.
pub(super) fn ring_reduce(n: usize, me: Rank, block: impl Fn(usize) -> Range<usize>) -> Vec<Round> {
    let round = |step: usize| {
        let (mine, theirs) = ((me + 2 * n - step - 1) % n, (me + 2 * n - step - 2) % n);
        exchange((me + 1) % n, block(mine), (me + n - 1) % n, block(theirs), Then::Before)
    };
    (0..n - 1).map(round).collect()
}

/// Bruck's algorithm: a member's blocks lie in the order of their distance from it.
pub(super) fn bruck(n: usize, me: Rank, count: usize) -> Vec<Round> {
    let round = |k: usize| {
        let blocks = k.min(n - k);
        exchange((me + n - k) % n, 0..blocks * count, (me + k) % n, k * count..(k + blocks) * count, Then::Store)
    };
    powers(n).map(round).collect()
}

/// Recursive halving among a power of two of members: each gets its combined block. `part` is the
/// part of a range of blocks.
pub(super) fn halve(n: usize, me: Rank, part: impl Fn(Range<usize>) -> Range<usize>) -> Vec<Round> {
    let mut held = 0..n;
    let mut rounds = Vec::new();
    for distance in powers(n).rev() {
        let (low, high) = (held.start..held.start + distance, held.start + distance..held.end);
        let (kept, given, then) = if me & distance == 0 { (low, high, Then::After) } else { (high, low, Then::Before) };
        let partner = me ^ distance;
        rounds.push(exchange(partner, part(given), partner, part(kept.clone()), then));
        held = kept;
    }
    rounds
}

/// Recursive doubling among a power of two of members: each block reaches all members.
fn double(n: usize, me: Rank, part: impl Fn(Range<usize>) -> Range<usize>) -> Vec<Round> {
    let round = |distance: usize| {
        let partner = me ^ distance;
        let held = |member: Rank| member & !(distance - 1)..(member & !(distance - 1)) + distance;
        exchange(partner, part(held(me)), partner, part(held(partner)), Then::Store)
    };
    powers(n).map(round).collect()
}

/// Recursive doubling of `count` elements, which keeps the order of the operands; or, with
/// `halves`, recursive halving and doubling, which does not. If the number of members is no power
/// of two, one member of each of the first pairs only contributes to the other and takes its
/// result.
pub(super) fn allreduce(n: usize, me: Rank, count: usize, halves: bool) -> Vec<Round> {
    let most = 1 << n.ilog2();
    let pairs = n - most;
    let mut rounds = Vec::new();
    let active = match me {
        _ if me >= 2 * pairs => me - pairs,
        _ if me % 2 == 1 => {
            rounds.push(receive(me - 1, 0..count, Then::Before));
            me / 2
        }
        _ => {
            rounds.push(send(me + 1, 0..count));
            rounds.push(receive(me + 1, 0..count, Then::Store));
            return rounds;
        }
    };
    let name = |active: Rank| if active < pairs { 2 * active + 1 } else { active + pairs };
    let mut among = if halves {
        let part = |blocks: Range<usize>| blocks.start * count / most..blocks.end * count / most;
        let mut rounds = halve(most, active, part);
        rounds.extend(double(most, active, part));
        rounds
    } else {
        let round = |distance: usize| {
            let partner = active ^ distance;
            let then = if partner < active { Then::Before } else { Then::After };
            exchange(partner, 0..count, partner, 0..count, then)
        };
        powers(most).map(round).collect()
    };
    for round in &mut among {
        round.sends.iter_mut().for_each(|send| send.to = name(send.to));
        round.receives.iter_mut().for_each(|receive| receive.from = name(receive.from));
    }
    rounds.extend(among);
    if me < 2 * pairs {
        rounds.push(send(me - 1, 0..count));
    }
    rounds
}

/// Lets the rounds of an allreduce take from `contribution` on what is not yet in the result at the
/// workspace's beginning, instead of from a copy of the contribution there.
pub(super) fn read_in_place(rounds: &mut [Round], contribution: usize) {
    // The part of the result that is there.
    let mut here = 0..0;
    let is_here = |here: &Range<usize>, part: &Range<usize>| here.start <= part.start && part.end <= here.end;
    for round in rounds {
        for Outbound { part, .. } in round.sends.iter_mut().filter(|send| !is_here(&here, &send.part)) {
            *part = contribution + part.start..contribution + part.end;
        }
        for Inbound { part, then, base, .. } in &mut round.receives {
            if is_here(&here, part) {
                continue;
            }
            if *then != Then::Store {
                *base += contribution;
            }
            let is_next = part.start == here.end || part.end == here.start;
            here = if is_next { here.start.min(part.start)..here.end.max(part.end) } else { part.clone() };
        }
    }
}

/// The binomial tree of a join: each member's parent and children.
pub(super) fn tree(n: usize, me: Rank) -> (Option<Rank>, Vec<Rank>) {
    (parent(me), children(n, me).map(|(child, _)| child).collect())
}
