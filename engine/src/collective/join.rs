//! Joining a group (fi_join_collective). Members that call it for the same addresses in the same
//! order form a group. A join has four steps over a binomial tree with rank 0 as its root: gather
//! (all members have called), broadcast of the tag that rank 0 chooses, gather (all members know
//! the tag), release. So no message of the group arrives at a member that does not know its tag.

use super::Work;
use super::plan::Plan;
use super::rounds::{self, Inbound, Outbound, Rank, Round, Then};
use super::word::Word;
use ofi_core::Addr;
use std::sync::Arc;

/// Marks the tags of joins; the tags of groups lack it.
const JOIN: u64 = 1 << 63;
/// Number of steps, and so of tags: each step has its own, because a member that has completed this
/// join may send messages of the next join of the same members while others have not.
const STEPS: u64 = 4;
/// The step that broadcasts the group's tag.
const BROADCAST: usize = 1;

/// A member's part in a join.
#[derive(Debug)]
pub(super) struct Join {
    /// The tag of its first step.
    pub(super) tag: u64,
    /// The group's tag, once it is chosen.
    pub(super) id: u64,
    /// Its rounds, whose messages carry no elements.
    pub(super) plan: Arc<Plan>,
    /// The step that each round belongs to.
    steps: Vec<usize>,
    parent: Option<Rank>,
    children: Vec<Rank>,
}

/// A hash of the members' addresses and the parent group's tag, the same at all members.
pub(super) fn fingerprint<'a>(parent: u64, members: impl Iterator<Item = &'a Addr>) -> u64 {
    // FNV-1a, because all processes have to compute the same. It needs no secret: the
    // application chooses the addresses, not a peer.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(&parent.to_le_bytes());
    for member in members {
        match member.name() {
            Some(name) => add(name.as_bytes()),
            // Without the scope, because each host numbers its interfaces itself.
            None => {
                let socket = member.canonical().socket();
                add(format!("{} {}", socket.ip(), socket.port()).as_bytes());
            }
        }
        add(&[0]);
    }
    hash
}

impl Join {
    /// The part of one member.
    pub(super) fn new(fingerprint: u64, members: usize, rank: Rank) -> Self {
        let (parent, children) = rounds::tree(members, rank);
        let (mut all, mut steps) = (Vec::new(), Vec::new());
        let send = |to: Rank| Outbound { to, part: 0..0 };
        let receive = |from: Rank| Inbound::new(from, 0..0, Then::Store);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        if !children.is_empty() {
            let receives = children.iter().copied().map(receive).collect();
            up.push(Round { sends: Vec::new(), receives });
        }
        if let Some(parent) = parent {
            up.push(Round { sends: vec![send(parent)], receives: Vec::new() });
            down.push(Round { sends: Vec::new(), receives: vec![receive(parent)] });
        }
        if !children.is_empty() {
            down.push(Round { sends: children.iter().copied().map(send).collect(), receives: Vec::new() });
        }
        for step in 0..4 {
            let rounds = if step % 2 == 0 { &up } else { &down };
            all.extend(rounds.iter().cloned());
            steps.extend(rounds.iter().map(|_| step));
        }
        let tag = JOIN | fingerprint & !(STEPS - 1);
        let plan = Arc::new(Plan { rounds: all, ..Plan::default() });
        Self { tag, id: 0, plan, steps, parent, children }
    }

    fn step(&self, round: usize) -> usize {
        self.steps.get(round).copied().unwrap_or(0)
    }

    pub(super) fn tag_of(&self, round: usize) -> u64 {
        self.tag | self.step(round) as u64
    }

    pub(super) fn word_of(&self, round: usize) -> Word {
        Word::of_number(if self.step(round) >= BROADCAST { self.id } else { 0 })
    }

    /// Begins a round: rank 0 chooses the group's tag before it broadcasts it.
    pub(super) fn begin(&mut self, round: usize, work: &mut Work) {
        if self.parent.is_none() && self.id == 0 && self.step(round) >= BROADCAST {
            self.id = work.choose_tag();
        }
    }

    /// Takes the word of a message that has arrived. From the broadcast on it carries the group's
    /// tag: a message of an earlier join, which failed, has another one.
    pub(super) fn take(&mut self, round: usize, word: u64, work: &mut Work) -> Result<(), &'static str> {
        match self.step(round) {
            step if step < BROADCAST => Ok(()),
            BROADCAST if word != 0 && work.reserve_tag(word) => {
                self.id = word;
                Ok(())
            }
            BROADCAST => Err("the group's tag is in use"),
            _ if word == self.id => Ok(()),
            _ => Err("the message belongs to an earlier join"),
        }
    }

    /// The neighbors in the tree that may wait for a message of this member, each with the tag of
    /// the first one that this member has not sent; or of all, if its link has ended, since those
    /// that were sent may be lost. `current` is the round that has begun.
    pub(super) fn neighbors_that_wait(
        &self,
        current: Option<usize>,
        is_gone: impl Fn(Rank) -> bool,
    ) -> Vec<(Rank, u64)> {
        let neighbors = self.parent.iter().chain(&self.children);
        let waits = |rank: &Rank| {
            let rank = *rank;
            let (first, most) = if is_gone(rank) { (0, usize::MAX) } else { (current.map_or(0, |at| at + 1), 1) };
            let sends = move |round: &Round| round.sends.iter().any(|send| send.to == rank);
            let ahead = self.plan.rounds.iter().enumerate().skip(first).filter(move |(_, round)| sends(round));
            ahead.take(most).map(move |(at, _)| (rank, self.tag_of(at)))
        };
        neighbors.flat_map(waits).collect()
    }
}

/// Whether a tag belongs to the joins that begin with the tag `first`.
pub(super) const fn is_of(tag: u64, first: u64) -> bool {
    tag & !(STEPS - 1) == first
}

/// Whether a tag is that of a join.
pub(super) const fn is_join(tag: u64) -> bool {
    tag & JOIN != 0
}
