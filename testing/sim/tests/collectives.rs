//! Groups over the simulated network: random operations of random groups complete with the right
//! results, and each operation ends exactly once when connections break. Messages that claim to be
//! a group's do no harm.

mod party;

use ofi_core::Addr;
use ofi_engine::op::CollectiveKind;
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_sim::Faults;
use ofi_sim::node::{addr, ip};
use ofi_sim::raw::{Raw, connect_hello};
use party::{Member, Party, Step, bytes, element, expected, seeds, step};
use std::time::Duration;

/// Posts random operations, each member at its own pace; `break_at`: breaks all connections then.
fn exchange(seed: u64, break_at: Option<usize>) -> Party {
    let mut rng = fastrand::Rng::with_seed(seed);
    let size = rng.usize(1..7);
    let faults = Faults { stall: rng.u8(..40), split: rng.bool() };
    let mut party = Party::new(seed, u8::try_from(size).unwrap(), faults);
    party.join();
    let steps: Vec<Step> = (0..12).map(|_| step(&mut rng, size)).collect();
    let mut posted = vec![0; size];
    let mut pass = 0;
    let inputs = |rank: usize, step: Step| bytes((0..step.count * size).map(move |at| element(rank, at)));
    party.until(|members| {
        for (rank, member) in members.iter_mut().enumerate() {
            if let Some(step) = steps.get(posted[rank])
                && rng.u8(..3) == 0
            {
                posted[rank] += 1;
                member.post(*step, posted[rank], &inputs(rank, *step), expected(*step, size, rank).len());
            }
        }
        pass += 1;
        break_at == Some(pass)
            || posted.iter().all(|posted| *posted == steps.len()) && members.iter().all(|one| one.running.is_empty())
    });
    if break_at.is_some() {
        party.world.break_connections();
        // The other members still post theirs.
        for (rank, member) in party.members.iter_mut().enumerate() {
            for step in &steps[posted[rank]..] {
                posted[rank] += 1;
                member.post(*step, posted[rank], &inputs(rank, *step), expected(*step, size, rank).len());
            }
        }
        party.until(|members| members.iter().all(|member| member.running.is_empty()));
    }
    // An endpoint that sleeps now has nothing left to do.
    let mut passes = 0;
    party.until(|_| {
        passes += 1;
        passes > 500
    });
    for (rank, member) in party.members.iter().enumerate() {
        assert_eq!(member.ended.len(), steps.len());
        for (context, result) in &member.ended {
            match result {
                Ok(result) => {
                    let step = steps[context - 1];
                    assert!(*result == expected(step, size, rank), "seed {seed}: {step:?} of {size} at {rank}");
                }
                Err(errno) => assert!(break_at.is_some(), "seed {seed}: {errno:?}"),
            }
        }
        assert_eq!(member.node.ep.unfinished(), None, "seed {seed}");
    }
    party
}

#[test]
fn random_operations_are_right() {
    for seed in seeds() {
        exchange(seed, None);
    }
}

#[test]
fn operations_end_once_when_connections_break() {
    for seed in seeds() {
        let party = exchange(seed, Some(1 + usize::try_from(seed % 40).unwrap()));
        // A member that fails notifies all others: the group works at none of them.
        if party.members.len() > 1 {
            let failed = |member: &Member| member.ended.values().any(Result::is_err);
            let all = party.members.iter().all(failed);
            assert!(all || !party.members.iter().any(failed), "seed {seed}: the members disagree");
        }
    }
}

#[test]
fn what_only_claims_to_be_of_a_group_is_dropped() {
    for seed in seeds() {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut party = Party::new(seed, 3, Faults { stall: 0, split: false });
        party.join();
        let mut raw = Raw::connect(&party.world, ip(66), addr(1, 1000));
        raw.hello(&connect_hello(Addr::from(addr(66, 7)), [7; 16]));
        for _ in 0..2000 {
            // A guess at a small part of all tags, and any word.
            let (tag, data) = (Some(rng.u64(..4) << 62 | rng.u64(..3)), Some(rng.u64(..)));
            let info = MessageInfo { tag, data, ack: AckMode::No, fenced: false, group: true };
            let len = rng.usize(..40);
            if rng.bool() {
                raw.frame(&Frame::Eager { id: 0, info }, &vec![7; len]);
            } else {
                raw.frame(&Frame::Rts { id: 0, len: rng.u64(..), info }, &[]);
            }
            raw.send();
            drop(raw.read());
            party.world.advance(Duration::from_micros(50));
            party.members[0].progress();
        }
        let allreduce = Step { kind: CollectiveKind::Allreduce, count: 5, root: 0 };
        for (rank, member) in party.members.iter_mut().enumerate() {
            member.post(allreduce, 1, &bytes((0..5).map(|at| element(rank, at))), 40);
        }
        party.until(|members| members.iter().all(|member| member.running.is_empty()));
        for member in &party.members {
            assert_eq!(member.ended[&1].as_ref().ok(), Some(&expected(allreduce, 3, 0)), "seed {seed}");
        }
    }
}
