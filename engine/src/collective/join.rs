//! Joining a group (fi_join_collective). Members that call it for the same addresses in the same
//! order form a group. Along a binomial tree they tell rank 0 that they have called; it chooses the
//! group's tag and tells them; they confirm that they know it, and are told that all do. So no
//! message of the group arrives at a member that does not know its tag.

use super::Work;
use super::rounds::{self, Inbound, Outbound, Rank, Round, Then};
use super::word::Word;
use ofi_core::Addr;

/// Marks the tags of joins; the tags of groups lack it.
const JOIN: u64 = 1 << 63;
/// Steps of a join, each of which has a tag of its own: a member that is ahead may send messages of
/// the next join of the same members, which begins when this one is over.
const STEPS: u64 = 4;
/// The step in which the tag is told.
const TOLD: usize = 1;

/// A join under way.
#[derive(Debug)]
pub(super) struct Join {
    /// The tag of its first step.
    pub(super) tag: u64,
    /// The group's tag, once it is chosen.
    pub(super) id: u64,
    pub(super) rounds: Vec<Round>,
    /// The step that each round belongs to.
    steps: Vec<usize>,
    parent: Option<Rank>,
    children: Vec<Rank>,
}

/// What all members compute alike from the addresses and the group that they belong to already.
pub(super) fn fingerprint(parent: u64, members: &[Addr]) -> u64 {
    // FNV-1a, which is the same in all processes. The addresses are the application's own.
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
            // Without the scope, which hosts number as they like.
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
        let receive = |from: Rank| Inbound { from, part: 0..0, then: Then::Store };
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
        Self { tag, id: 0, rounds: all, steps, parent, children }
    }

    fn step(&self, round: usize) -> usize {
        self.steps.get(round).copied().unwrap_or(0)
    }

    pub(super) fn tag_of(&self, round: usize) -> u64 {
        self.tag | self.step(round) as u64
    }

    pub(super) fn word_of(&self, round: usize) -> Word {
        Word::of_number(if self.step(round) == TOLD { self.id } else { 0 })
    }

    /// A round begins: rank 0 chooses the tag before it tells it.
    pub(super) fn begin(&mut self, round: usize, work: &mut Work) {
        if self.parent.is_none() && self.id == 0 && self.step(round) >= TOLD {
            self.id = work.choose_tag();
        }
    }

    /// The parent has told the tag.
    pub(super) fn take(&mut self, round: usize, word: u64, work: &mut Work) -> Result<(), &'static str> {
        if self.step(round) != TOLD || self.parent.is_none() {
            return Ok(());
        }
        if word == 0 || !work.reserve_tag(word) {
            return Err("the group's tag is in use");
        }
        self.id = word;
        Ok(())
    }

    /// The neighbors in the tree that wait for a message of this member, with the tag of the first
    /// that has not been sent. `current` is the round that has begun.
    pub(super) fn neighbors_that_wait(&self, current: Option<usize>) -> Vec<(Rank, u64)> {
        let neighbors = self.parent.iter().chain(&self.children);
        let next = |rank: &Rank| {
            let ahead = self.rounds.iter().enumerate().skip(current.map_or(0, |round| round + 1));
            let (round, _) = ahead.into_iter().find(|(_, round)| round.sends.iter().any(|send| send.to == *rank))?;
            Some((*rank, self.tag_of(round)))
        };
        neighbors.filter_map(next).collect()
    }
}

/// Whether a tag is that of a join.
pub(super) const fn is_join(tag: u64) -> bool {
    tag & JOIN != 0
}
