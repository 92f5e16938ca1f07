//! What each member of a group does in a collective operation: a list of rounds, computed from the
//! operation, the member's rank and the sizes alone. Tests run the plans of all members against
//! each other, without any transport.
//!
//! Each member has a workspace. In a round it sends parts of the workspace and receives messages;
//! once all have arrived, it stores them in the workspace or combines them with it, and begins the
//! next round. Two members exchange messages in the order of their rounds, so that matching needs
//! no numbers.

use super::rounds::{self, Inbound, Outbound, Rank, Round, Then};
use crate::op::CollectiveKind;
use core::ops::Range;

/// Elements to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) len: usize,
}

/// A member's part in an operation. All numbers are elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Size of the workspace.
    pub(super) work: usize,
    /// From the application's buffer to the workspace.
    pub(super) input: Vec<Copied>,
    pub(super) rounds: Vec<Round>,
    /// From the workspace to the result buffer.
    pub(super) output: Vec<Copied>,
    /// The workspace is the result and, behind it, the contribution, to which nothing is written:
    /// the application's buffers can serve as it. No message is sent while a part of it changes.
    pub(super) in_place: bool,
}

/// An operation as all members know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: CollectiveKind,
    /// Number of members.
    pub(super) members: usize,
    /// The root's rank; 0 for operations without a root.
    pub(super) root: Rank,
    /// Elements of the call.
    pub(super) count: usize,
    /// Size of an element in bytes.
    pub(super) size: usize,
    /// Whether the operation commutes, so that operands may be swapped.
    pub(super) commutes: bool,
}

/// Largest payload, in bytes, for which the number of messages matters more than their length.
const SHORT: usize = 32 << 10;

impl Shape {
    /// Whether this many elements are a short message.
    const fn is_short(&self, count: usize) -> bool {
        count.saturating_mul(self.size) <= SHORT
    }

    /// Elements of the input and of the result of a member; `None` if there are too many.
    pub(super) fn lens(&self, rank: Rank) -> Option<(usize, usize)> {
        let (one, root) = (self.count, rank == self.root);
        let all = self.count.checked_mul(self.members)?;
        // The workspace has at most twice as many bytes.
        all.checked_mul(self.size)?.checked_mul(2)?;
        Some(match self.kind {
            CollectiveKind::Barrier => (0, 0),
            CollectiveKind::Broadcast if root => (one, 0),
            CollectiveKind::Broadcast => (0, one),
            CollectiveKind::Alltoall => (all, all),
            CollectiveKind::Allreduce => (one, one),
            CollectiveKind::Allgather => (one, all),
            CollectiveKind::ReduceScatter => (all, one),
            CollectiveKind::Reduce => (one, if root { one } else { 0 }),
            CollectiveKind::Scatter => (if root { all } else { 0 }, one),
            CollectiveKind::Gather => (one, if root { all } else { 0 }),
        })
    }

    /// The part of one member.
    pub(super) fn plan(&self, rank: Rank) -> Plan {
        match self.kind {
            CollectiveKind::Barrier => Plan { rounds: rounds::barrier(self.members, rank), ..Plan::default() },
            CollectiveKind::Broadcast => self.broadcast(rank),
            CollectiveKind::Alltoall => self.alltoall(rank),
            CollectiveKind::Allreduce => self.allreduce(rank),
            CollectiveKind::Allgather => self.allgather(rank),
            CollectiveKind::ReduceScatter => self.reduce_scatter(rank),
            CollectiveKind::Reduce => self.reduce(rank),
            CollectiveKind::Scatter => self.scatter(rank),
            CollectiveKind::Gather => self.gather(rank),
        }
    }

    /// A member's rank relative to the root's, modulo the number of members.
    const fn distance_of(&self, rank: Rank) -> usize {
        (rank + self.members - self.root) % self.members
    }

    /// The inverse of [`Self::distance_of`].
    const fn rank_of(&self, distance: usize) -> Rank {
        (distance + self.root) % self.members
    }

    fn broadcast(&self, rank: Rank) -> Plan {
        let (n, count) = (self.members, self.count);
        let me = self.distance_of(rank);
        let mut rounds = if self.is_short(count) || n < 4 {
            rounds::spread(n, me, |_| 0..count)
        } else {
            // Scatter a part to each member down the tree, then allgather the parts in a ring.
            let part = |range: Range<usize>| range.start * count / n..range.end * count / n;
            let mut rounds = rounds::spread(n, me, part);
            rounds.extend(rounds::ring(n, me, |block| part(block..block + 1)));
            rounds
        };
        rounds.iter_mut().for_each(|round| round.rename(|distance| self.rank_of(distance)));
        // The root may not complete before all others have called.
        rounds.extend(rounds::barrier(n, rank));
        let whole = vec![Copied { from: 0, to: 0, len: count }];
        let (input, output) = if me == 0 { (whole, Vec::new()) } else { (Vec::new(), whole) };
        Plan { work: count, input, rounds, output, in_place: me != 0 && !self.is_short(count) }
    }

    fn alltoall(&self, rank: Rank) -> Plan {
        let (n, count) = (self.members, self.count);
        let all = n * count;
        let block = |block: usize| block * count..(block + 1) * count;
        let contribution = |rank: Rank| all + block(rank).start..all + block(rank).end;
        let exchange = |distance: usize| {
            let (to, from) = ((rank + distance) % n, (rank + n - distance) % n);
            (Outbound { to, part: contribution(to) }, Inbound::new(from, block(from), Then::Store))
        };
        let in_place = !self.is_short(all);
        let rounds = if !in_place {
            let (sends, receives) = (1..n).map(exchange).unzip();
            if n > 1 { vec![Round { sends, receives }] } else { Vec::new() }
        } else {
            let round = |(send, receive)| Round { sends: vec![send], receives: vec![receive] };
            (1..n).map(exchange).map(round).collect()
        };
        let mine = block(rank).start;
        let input = vec![Copied { from: 0, to: all, len: all }, Copied { from: mine, to: mine, len: count }];
        Plan { work: 2 * all, input, rounds, output: vec![Copied { from: 0, to: 0, len: all }], in_place }
    }

    fn allreduce(&self, rank: Rank) -> Plan {
        let halves = self.commutes && !self.is_short(self.count) && self.count >= self.members;
        let mut rounds = rounds::allreduce(self.members, rank, self.count, halves);
        let whole = Copied { from: 0, to: 0, len: self.count };
        let in_place = halves && self.members > 1;
        let (mut input, mut work) = (whole, self.count);
        if in_place {
            (input.to, work) = (self.count, 2 * self.count);
            rounds::read_in_place(&mut rounds, self.count);
        }
        Plan { work, input: vec![input], rounds, output: vec![whole], in_place }
    }

    fn allgather(&self, rank: Rank) -> Plan {
        let (n, count) = (self.members, self.count);
        let all = n * count;
        if self.is_short(all) {
            // The workspace begins with the member's own block.
            let rounds = rounds::bruck(n, rank, count);
            let input = vec![Copied { from: 0, to: 0, len: count }];
            return Plan { work: all, input, rounds, output: rotated(n, rank, count), in_place: false };
        }
        let rounds = rounds::ring(n, rank, |block| block * count..(block + 1) * count);
        let own = |to: usize| Copied { from: 0, to, len: count };
        let output = vec![Copied { from: 0, to: 0, len: all }];
        Plan { work: all + count, input: vec![own(all), own(rank * count)], rounds, output, in_place: true }
    }

    fn reduce_scatter(&self, rank: Rank) -> Plan {
        let (n, count) = (self.members, self.count);
        let block = |block: usize| block * count..(block + 1) * count;
        let rounds = if !self.commutes {
            rounds::allreduce(n, rank, n * count, false)
        } else if n.is_power_of_two() {
            rounds::halve(n, rank, |blocks| blocks.start * count..blocks.end * count)
        } else {
            rounds::ring_reduce(n, rank, block)
        };
        let input = vec![Copied { from: 0, to: 0, len: n * count }];
        Plan {
            work: n * count,
            input,
            rounds,
            output: vec![Copied { from: rank * count, to: 0, len: count }],
            in_place: false,
        }
    }

    fn reduce(&self, rank: Rank) -> Plan {
        let (n, count) = (self.members, self.count);
        // If the order of the operands matters, rank 0 must be the first.
        let center = if self.commutes { self.root } else { 0 };
        let tree = Self { root: center, ..*self };
        let me = tree.distance_of(rank);
        let mut rounds = rounds::collect(n, me, |_| 0..count, Then::After);
        rounds.iter_mut().for_each(|round| round.rename(|distance| tree.rank_of(distance)));
        if center != self.root {
            let mut round = Round::default();
            if rank == center {
                round.sends.push(Outbound { to: self.root, part: 0..count });
            } else if rank == self.root {
                round.receives.push(Inbound::new(center, 0..count, Then::Store));
            }
            rounds.push(round);
        }
        rounds.extend(self.release(rank));
        let whole = Copied { from: 0, to: 0, len: count };
        let output = if rank == self.root { vec![whole] } else { Vec::new() };
        Plan { work: count, input: vec![whole], rounds, output, in_place: false }
    }

    fn scatter(&self, rank: Rank) -> Plan {
        let (n, count) = (self.members, self.count);
        let me = self.distance_of(rank);
        let mut rounds = if self.is_short(n * count) {
            rounds::spread(n, me, |blocks| blocks.start * count..blocks.end * count)
        } else {
            rounds::deal(n, me, count)
        };
        rounds.iter_mut().for_each(|round| round.rename(|distance| self.rank_of(distance)));
        rounds.extend(rounds::barrier(n, rank));
        // Blocks lie in the order of the distance from the root.
        let back = |Copied { from, to, len }: Copied| Copied { from: to, to: from, len };
        let input = if me == 0 { rotated(n, self.root, count).into_iter().map(back).collect() } else { Vec::new() };
        Plan {
            work: n * count,
            input,
            rounds,
            output: vec![Copied { from: me * count, to: 0, len: count }],
            in_place: false,
        }
    }

    fn gather(&self, rank: Rank) -> Plan {
        let (n, count) = (self.members, self.count);
        let me = self.distance_of(rank);
        let mut rounds = if self.is_short(n * count) {
            rounds::collect(n, me, |blocks| blocks.start * count..blocks.end * count, Then::Store)
        } else {
            rounds::pick(n, me, count)
        };
        rounds.iter_mut().for_each(|round| round.rename(|distance| self.rank_of(distance)));
        rounds.extend(self.release(rank));
        let input = vec![Copied { from: 0, to: me * count, len: count }];
        let output = if me == 0 { rotated(n, self.root, count) } else { Vec::new() };
        Plan { work: n * count, input, rounds, output, in_place: false }
    }

    /// The root has a message from every member, and lets them complete.
    fn release(&self, rank: Rank) -> Vec<Round> {
        let mut rounds = rounds::spread(self.members, self.distance_of(rank), |_| 0..0);
        rounds.iter_mut().for_each(|round| round.rename(|distance| self.rank_of(distance)));
        rounds
    }
}

/// Copies `n` blocks in the order of ranks from `first` on, modulo `n`, to their places by rank.
fn rotated(n: usize, first: Rank, count: usize) -> Vec<Copied> {
    vec![
        Copied { from: 0, to: first * count, len: (n - first) * count },
        Copied { from: (n - first) * count, to: 0, len: first * count },
    ]
}

#[cfg(test)]
mod tests;
