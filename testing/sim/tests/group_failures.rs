//! Groups over the simulated network when a member fails at any point of a join or an operation:
//! at every other member, each join and each operation ends, with a result or an error.

mod party;

use ofi_core::{Addr, FiAddr};
use ofi_engine::av_set::{AvSet, Selection};
use ofi_engine::completion::eq::{EventKind, Found, Owner};
use ofi_engine::op::{CollectiveKind, Ways};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_engine::wire::hello::Handshake;
use ofi_sim::node::{Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, Received, connect_hello};
use ofi_sim::{Faults, World};
use party::{Member, Party, Step, bytes, element, expected, seeds, step};
use std::time::Duration;

/// What happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// Its connections break.
    Breaks,
    /// It leaves the group (fi_close of the multicast object).
    Leaves,
    /// It closes its endpoint.
    Closes,
    /// It removes the other members from its address vector.
    Forgets,
    /// The same, and its connections break.
    ForgetsAndBreaks,
}

const FAILURES: [Failure; 5] =
    [Failure::Breaks, Failure::Leaves, Failure::Closes, Failure::Forgets, Failure::ForgetsAndBreaks];

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Joining,
    Joined,
    /// Its join has failed.
    Failed,
    /// It has left, or has closed its endpoint.
    Gone,
}

/// A member's progress through the operations of its group.
#[derive(Clone, Copy)]
struct Actor {
    stage: Stage,
    posted: usize,
}

impl Actor {
    fn read_events(&mut self, member: &Member) {
        if self.stage != Stage::Joining {
            return;
        }
        match member.eq.read(|_| false) {
            Found::Event(event) => {
                assert!(matches!(event.kind, EventKind::Joined));
                self.stage = Stage::Joined;
            }
            Found::Error => {
                let failure = member.eq.read_error().expect("there is an error");
                let EventKind::Failed { text, .. } = &failure.kind else { panic!("{failure:?}") };
                assert!(!text.is_empty(), "an error has a cause");
                self.stage = Stage::Failed;
            }
            Found::Nothing => {}
        }
    }

    fn is_over(&self, member: &Member, steps: usize) -> bool {
        match self.stage {
            Stage::Joining => false,
            Stage::Joined => self.posted == steps && member.running.is_empty(),
            Stage::Failed | Stage::Gone => true,
        }
    }
}

fn join(member: &mut Member) {
    member.group = member.node.ep.join_group(&member.set, None, Ways::BOTH, Owner(2)).expect("it is a member");
}

fn post(member: &mut Member, (rank, size): (usize, usize), step: Step, context: usize) {
    let input = bytes((0..step.count * size).map(|at| element(rank, at)));
    member.post(step, context, &input, expected(step, size, rank).len());
}

fn happen(party: &mut Party, victim: usize, failure: Failure, actor: &mut Actor) {
    let member = &mut party.members[victim];
    match failure {
        Failure::Breaks => {}
        Failure::Leaves => {
            member.node.ep.leave_group(member.group, Owner(2));
            actor.stage = Stage::Gone;
        }
        Failure::Closes => {
            member.node.close();
            member.running.drain().for_each(|(_, (contribution, result))| drop((contribution.end(), result.end())));
            actor.stage = Stage::Gone;
        }
        Failure::Forgets | Failure::ForgetsAndBreaks => {
            for other in member.set.members() {
                let own = Addr::from(addr(u8::try_from(victim).unwrap() + 1, 1000));
                if member.node.av.lookup(other) != Some(own) {
                    assert!(member.node.av.remove(other));
                }
            }
        }
    }
    if matches!(failure, Failure::Breaks | Failure::ForgetsAndBreaks) {
        party.world.break_connections_of(ip(u8::try_from(victim).unwrap() + 1));
    }
}

/// Members join and post operations, and one of them fails after `at` passes.
fn fail_one(seed: u64, failure: Failure, at: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let size = rng.usize(2..7);
    let faults = Faults { stall: rng.u8(..40), split: rng.bool() };
    let mut party = Party::new(seed, u8::try_from(size).unwrap(), faults);
    let victim = rng.usize(..size);
    let steps: Vec<Step> = (0..4).map(|_| step(&mut rng, size)).collect();
    let mut actors = vec![Actor { stage: Stage::Joining, posted: 0 }; size];
    party.members.iter_mut().for_each(join);
    let mut pass = 0;
    let mut advance = |members: &mut [Member], actors: &mut [Actor]| {
        for (rank, (member, actor)) in members.iter_mut().zip(actors.iter_mut()).enumerate() {
            actor.read_events(member);
            if let (Stage::Joined, Some(step)) = (actor.stage, steps.get(actor.posted))
                && rng.u8(..4) == 0
            {
                actor.posted += 1;
                post(member, (rank, size), *step, actor.posted);
            }
        }
    };
    party.until(|members| {
        advance(members, &mut actors);
        pass += 1;
        pass > at
    });
    happen(&mut party, victim, failure, &mut actors[victim]);
    party.until_done(&format!("seed {seed}: {failure:?} of {victim} of {size} after {at}"), |members| {
        advance(members, &mut actors);
        members.iter().zip(&actors).all(|(member, actor)| actor.is_over(member, steps.len()))
    });
    for (rank, member) in party.members.iter().enumerate() {
        for (context, result) in &member.ended {
            let step = steps[context - 1];
            assert!(
                result.as_ref().map_or(true, |result| *result == expected(step, size, rank)),
                "seed {seed}: {step:?} of {size} at {rank}"
            );
        }
    }
    if failure == Failure::Closes {
        return;
    }
    // Stale messages of a failed join may fail the next ones, but no join hangs.
    for round in 0..3 {
        for (rank, member) in party.members.iter_mut().enumerate() {
            if rank != victim || failure != Failure::Leaves || round > 0 {
                member.node.ep.leave_group(member.group, Owner(2));
            }
            member.ended.clear();
            if matches!(failure, Failure::Forgets | Failure::ForgetsAndBreaks) && rank == victim && round == 0 {
                for host in 1..=u8::try_from(size).unwrap() {
                    member.node.know(addr(host, 1000));
                }
                member.set = AvSet::new(&member.node.av, Selection::Everything).expect("there is memory");
            }
        }
        actors.fill(Actor { stage: Stage::Joining, posted: 0 });
        if !party.members.iter().all(|member| member.set.members() == party.members[0].set.members()) {
            return;
        }
        party.members.iter_mut().for_each(join);
        party.until_done(&format!("seed {seed}: join {round} after {failure:?} of {victim} of {size}"), |members| {
            advance(members, &mut actors);
            members.iter().zip(&actors).all(|(member, actor)| actor.is_over(member, steps.len()))
        });
    }
}

#[test]
fn whatever_a_member_waits_for_ends_when_another_one_fails() {
    for seed in seeds() {
        for failure in FAILURES {
            let at = usize::try_from(seed).unwrap() * 2 % 90;
            fail_one(seed, failure, at);
        }
    }
}

/// Many members connect at once to one that has left, for messages that it will not send.
#[test]
fn each_of_many_members_hears_that_another_one_has_left() {
    const SIZE: usize = 90;
    let mut party = Party::new(1, u8::try_from(SIZE).unwrap(), Faults { stall: 0, split: false });
    party.join();
    let (root, owner) = (SIZE - 1, Owner(2));
    let leaver = &party.members[root];
    leaver.node.ep.leave_group(leaver.group, owner);
    // Each member but the root receives its large block from the root itself.
    let scatter = Step { kind: CollectiveKind::Scatter, count: 1000, root };
    for (rank, member) in party.members.iter_mut().enumerate().filter(|(rank, _)| *rank != root) {
        post(member, (rank, SIZE), scatter, 1);
    }
    // The root makes no progress while they connect, so that their messages arrive together.
    for _ in 0..50 {
        party.world.advance(Duration::from_micros(50));
        party.members[..root].iter_mut().for_each(Member::progress);
    }
    let waiting = party.members[..root].iter().filter(|member| !member.running.is_empty()).count();
    assert!(waiting > SIZE / 2, "{waiting} members wait for the root");
    party.until_done("a member waits for one that has left", |members| {
        members[..root].iter().all(|member| member.running.is_empty())
    });
    assert!(party.members[..root].iter().all(|member| member.ended[&1].is_err()));
}

/// A peer asks about ever more groups that do not exist, and takes no answers.
#[test]
fn a_peer_that_takes_no_answers_about_groups_is_dropped() {
    const MOST: u64 = 256;
    let world = World::new(1, Faults { stall: 0, split: false });
    let mut node = open_node(&world, &Options::at(addr(1, 1000)));
    let name = Addr::from(addr(66, 1000));
    node.know(name);
    let mut raw = Raw::connect(&world, ip(66), addr(1, 1000));
    let mut hello = connect_hello(name, [1; 16]);
    hello.credits.bytes = 0;
    raw.hello(&hello);
    let mut exchange = |raw: &mut Raw| {
        let mut received = Vec::new();
        for _ in 0..50 {
            raw.send();
            world.advance(Duration::from_micros(50));
            node.progress();
            received.extend(raw.read());
        }
        received
    };
    let ask = |group: u64| {
        let info = MessageInfo { tag: Some(group), data: Some(1), ack: AckMode::No, fenced: false, group: true };
        Frame::Eager { id: 0, info }
    };
    let accepted = exchange(&mut raw);
    assert!(matches!(&accepted[..], [Received::Hello(hello), ..] if hello.handshake == Handshake::Accept));
    // It may ask about the same group again.
    for group in (0..MOST).chain(0..MOST) {
        raw.frame(&ask(group << 8 | 1), &[]);
    }
    let answers = exchange(&mut raw);
    assert!(!answers.contains(&Received::End), "{answers:?}");
    raw.frame(&ask(MOST << 8 | 1), &[]);
    assert!(exchange(&mut raw).contains(&Received::End));
}

/// A member removes the address of another one, with which it has no connection, and leaves: the
/// other one, which cannot be named any more, hears of it.
#[test]
fn a_member_without_a_handle_hears_that_another_one_has_left() {
    let mut party = Party::new(1, 3, Faults { stall: 0, split: false });
    party.join();
    let leaver = &party.members[2];
    leaver.node.ep.leave_group(leaver.group, Owner(2));
    assert!(leaver.node.av.remove(FiAddr(1)));
    let scatter = Step { kind: CollectiveKind::Scatter, count: 10_000, root: 2 };
    post(&mut party.members[1], (1, 3), scatter, 1);
    party.until_done("a member waits for one that has left", |members| members[1].running.is_empty());
    assert!(party.members[1].ended[&1].is_err());
}

/// A member closes the second of two groups of the same members before the first one is joined: the
/// first join completes, and the second one fails at the others.
#[test]
fn closing_a_join_that_has_not_begun_spares_the_one_before_it() {
    for seed in seeds() {
        let faults = Faults { stall: u8::try_from(seed % 40).unwrap(), split: true };
        let mut party = Party::new(seed, 4, faults);
        let leaver = usize::try_from(seed % 4).unwrap();
        let mut outcomes = [[None; 2]; 4];
        for (rank, member) in party.members.iter_mut().enumerate() {
            join(member);
            let second = member.node.ep.join_group(&member.set, None, Ways::BOTH, Owner(3)).expect("a member");
            if rank == leaver {
                member.node.ep.leave_group(second, Owner(3));
                outcomes[rank][1] = Some(false);
            }
        }
        party.until_done(&format!("seed {seed}: a join"), |members| {
            for (member, outcomes) in members.iter().zip(&mut outcomes) {
                let event = match member.eq.read(|_| false) {
                    Found::Event(event) => event,
                    Found::Error => member.eq.read_error().expect("there is an error"),
                    Found::Nothing => continue,
                };
                let which = usize::from(event.owner == Owner(3));
                assert_eq!(outcomes[which].replace(matches!(event.kind, EventKind::Joined)), None, "seed {seed}");
            }
            outcomes.iter().flatten().all(Option::is_some)
        });
        assert_eq!(outcomes, [[Some(true), Some(false)]; 4], "seed {seed}");
    }
}

/// A connection that the application's messages have opened says nothing about the group.
#[test]
fn a_member_asks_over_an_open_connection_too() {
    let mut party = Party::new(1, 3, Faults { stall: 0, split: false });
    party.join();
    let leaver = &party.members[2];
    leaver.node.ep.leave_group(leaver.group, Owner(2));
    let sent = party.members[1].node.send(FiAddr(2), 1, vec![1; 8]);
    let received = party.members[2].node.receive(FiAddr(1), 1, 8);
    for _ in 0..1000 {
        party.world.advance(std::time::Duration::from_micros(50));
        party.members.iter_mut().for_each(|member| _ = member.node.progress());
    }
    assert!(party.members[1].node.is_done(sent) && party.members[2].node.is_done(received));
    let scatter = Step { kind: CollectiveKind::Scatter, count: 10_000, root: 2 };
    post(&mut party.members[1], (1, 3), scatter, 1);
    party.until_done("a member waits for one that has left", |members| members[1].running.is_empty());
    assert!(party.members[1].ended[&1].is_err());
}

/// Operations go on among members that remove each other's addresses.
#[test]
fn a_removed_address_stays_a_member() {
    let mut party = Party::new(1, 4, Faults { stall: 10, split: true });
    party.join();
    for (rank, member) in party.members.iter().enumerate() {
        let others = member.set.members().into_iter().enumerate().filter(|(other, _)| *other != rank);
        others.for_each(|(_, handle)| assert!(member.node.av.remove(handle)));
    }
    for (context, kind) in CollectiveKind::ALL.into_iter().enumerate() {
        let step = Step { kind, count: 100, root: 1 };
        for (rank, member) in party.members.iter_mut().enumerate() {
            post(member, (rank, 4), step, context);
        }
    }
    party.until_done("an operation", |members| members.iter().all(|member| member.running.is_empty()));
    for (rank, member) in party.members.iter().enumerate() {
        for (context, kind) in CollectiveKind::ALL.into_iter().enumerate() {
            let step = Step { kind, count: 100, root: 1 };
            assert_eq!(member.ended[&context].as_ref().ok(), Some(&expected(step, 4, rank)), "{kind:?} at {rank}");
        }
    }
}
