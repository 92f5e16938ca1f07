//! Runs the plans of all members against each other over queues, and checks the results.

use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

/// x ↦ a·x + b modulo 65521: composition keeps no order but its own.
fn compose(first: u64, second: u64) -> u64 {
    const P: u64 = 65521;
    let ((a, b), (c, d)) = ((first >> 32, first & 0xffff_ffff), (second >> 32, second & 0xffff_ffff));
    ((a * c % P) << 32) | ((c * b + d) % P)
}

fn combine(shape: &Shape, first: u64, second: u64) -> u64 {
    if shape.commutes { first.wrapping_add(second) } else { compose(first, second) }
}

struct Actor {
    plan: Plan,
    work: Vec<u64>,
    round: usize,
    begun: bool,
}

/// What the application's buffers as the workspace require of a round.
fn check_memory(shape: &Shape, plan: &Plan, round: &Round, rank: Rank) {
    if !plan.in_place {
        return;
    }
    let (input, output) = shape.lens(rank).unwrap();
    assert_eq!(plan.work, output + input, "{shape:?}");
    let meet = |one: &Range<usize>, two: &Range<usize>| one.start < two.end && two.start < one.end;
    let whole = |part: &Range<usize>| part.is_empty() || part.end <= output || part.start >= output;
    for (at, receive) in round.receives.iter().enumerate() {
        assert!(receive.part.end <= output, "{shape:?}: receives into the contribution");
        assert!(whole(&(receive.base..receive.base + receive.part.len())), "{shape:?}: a part in both buffers");
        if receive.then == Then::Store {
            assert!(!round.sends.iter().any(|send| meet(&send.part, &receive.part)), "{shape:?}: sends what arrives");
            let others = round.receives[at + 1..].iter();
            assert!(!others.clone().any(|other| meet(&other.part, &receive.part)), "{shape:?}: two in one place");
        }
    }
    assert!(round.sends.iter().all(|send| whole(&send.part)), "{shape:?}: a part in both buffers");
}

/// Runs all members except `absent`; returns the results of those that complete.
fn run(shape: &Shape, inputs: &[Vec<u64>], absent: Option<Rank>) -> Vec<Option<Vec<u64>>> {
    let mut members: Vec<Actor> = (0..shape.members)
        .map(|rank| {
            let plan = shape.plan(rank);
            let mut work = vec![0; plan.work];
            for Copied { from, to, len } in &plan.input {
                work[*to..to + len].copy_from_slice(&inputs[rank][*from..from + len]);
            }
            Actor { plan, work, round: 0, begun: false }
        })
        .collect();
    let mut flying: HashMap<(Rank, Rank), VecDeque<Vec<u64>>> = HashMap::new();
    loop {
        let mut moved = false;
        for rank in (0..shape.members).filter(|rank| Some(*rank) != absent) {
            let member = &mut members[rank];
            let Some(round) = member.plan.rounds.get(member.round) else { continue };
            if !core::mem::replace(&mut member.begun, true) {
                moved = true;
                for Outbound { to, part } in &round.sends {
                    assert_ne!(*to, rank, "no member sends to itself");
                    flying.entry((rank, *to)).or_default().push_back(member.work[part.clone()].to_vec());
                }
            }
            check_memory(shape, &member.plan, round, rank);
            let mut sources: Vec<Rank> = round.receives.iter().map(|receive| receive.from).collect();
            sources.sort_unstable();
            sources.dedup();
            assert_eq!(sources.len(), round.receives.len(), "one message of a member in a round");
            if !sources.iter().all(|from| flying.get(&(*from, rank)).is_some_and(|queue| !queue.is_empty())) {
                continue;
            }
            for Inbound { from, part, then, base } in &round.receives {
                let message = flying.get_mut(&(*from, rank)).and_then(VecDeque::pop_front).unwrap();
                assert_eq!(message.len(), part.len(), "{shape:?}: {from} to {rank}");
                for ((place, base), element) in part.clone().zip(*base..).zip(message) {
                    member.work[place] = match then {
                        Then::Store => element,
                        Then::Before => combine(shape, element, member.work[base]),
                        Then::After => combine(shape, member.work[base], element),
                    };
                }
            }
            (member.round, member.begun, moved) = (member.round + 1, false, true);
        }
        if !moved {
            break;
        }
    }
    if absent.is_none() {
        assert!(flying.values().all(VecDeque::is_empty), "{shape:?}: each message is received");
    }
    let result = |(rank, member): (Rank, &Actor)| {
        let done = Some(rank) != absent && member.round == member.plan.rounds.len();
        done.then(|| {
            let mut result = vec![0; shape.lens(rank).unwrap().1];
            for Copied { from, to, len } in &member.plan.output {
                result[*to..to + len].copy_from_slice(&member.work[*from..from + len]);
            }
            result
        })
    };
    members.iter().enumerate().map(result).collect()
}

/// The result of each member, computed from all inputs at once.
fn expected(shape: &Shape, inputs: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let (n, count) = (shape.members, shape.count);
    let block = |input: &[u64], block: usize| input[block * count..(block + 1) * count].to_vec();
    let folded = || {
        inputs[1..].iter().fold(inputs[0].clone(), |sum, input| {
            sum.iter().zip(input).map(|(first, second)| combine(shape, *first, *second)).collect()
        })
    };
    let at_root = |rank: Rank, result: Vec<u64>| if rank == shape.root { result } else { Vec::new() };
    let result = |rank: Rank| match shape.kind {
        CollectiveKind::Barrier => Vec::new(),
        CollectiveKind::Broadcast if rank == shape.root => Vec::new(),
        CollectiveKind::Broadcast => inputs[shape.root].clone(),
        CollectiveKind::Alltoall => inputs.iter().flat_map(|input| block(input, rank)).collect(),
        CollectiveKind::Allreduce => folded(),
        CollectiveKind::Allgather => inputs.concat(),
        CollectiveKind::ReduceScatter => block(&folded(), rank),
        CollectiveKind::Reduce => at_root(rank, folded()),
        CollectiveKind::Scatter => block(&inputs[shape.root], rank),
        CollectiveKind::Gather => at_root(rank, inputs.concat()),
    };
    (0..n).map(result).collect()
}

fn inputs(shape: &Shape, seed: u64) -> Vec<Vec<u64>> {
    let element = |rank: usize, at: usize| {
        let mixed = (seed ^ (rank as u64) << 20 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
        ((1 + mixed % 65520) << 32) | (mixed / 65521 % 65521)
    };
    (0..shape.members).map(|rank| (0..shape.lens(rank).unwrap().0).map(|at| element(rank, at)).collect()).collect()
}

fn check(shape: &Shape, seed: u64) {
    let inputs = inputs(shape, seed);
    let results: Vec<_> = run(shape, &inputs, None).into_iter().map(|result| result.expect("completes")).collect();
    assert_eq!(results, expected(shape, &inputs), "{shape:?}");
}

const KINDS: [CollectiveKind; 9] = CollectiveKind::ALL;

#[test]
fn every_operation_is_right_in_groups_of_1_to_17() {
    for kind in KINDS {
        for members in 1..=17 {
            for root in [0, members / 2, members - 1] {
                for (count, size) in [(0, 8), (1, 8), (5, 8), (40, 4096)] {
                    for commutes in [true, false] {
                        check(&Shape { kind, members, root, count, size, commutes }, 1);
                    }
                }
            }
        }
    }
}

#[test]
fn no_member_completes_before_all_have_called() {
    for kind in KINDS {
        for members in 2..=9 {
            for absent in 0..members {
                for (root, size) in [(0, 8), (members - 1, 4096)] {
                    let shape = Shape { kind, members, root, count: 20, size, commutes: true };
                    let results = run(&shape, &inputs(&shape, 2), Some(absent));
                    assert!(results.iter().all(Option::is_none), "{shape:?} without {absent}: {results:?}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn results_are_those_of_the_operation(
        kind in proptest::sample::select(&KINDS), members in 1usize..40, root in any::<proptest::sample::Index>(),
        count in 0usize..70, size in proptest::sample::select(vec![1usize, 8, 1024, 8192]), commutes: bool, seed: u64
    ) {
        check(&Shape { kind, members, root: root.index(members), count, size, commutes }, seed);
    }
}
