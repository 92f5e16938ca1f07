use super::*;
use std::time::Duration;

/// Runs a link of one class, where a payload takes so many nanoseconds by its number and its
/// way. Returns the way of each payload.
fn run(len: usize, length: Length, payloads: usize, time: impl Fn(usize, Way) -> u64) -> Vec<Way> {
    let (mut chooser, mut sent) =
        (Chooser::new(if length == Length::Long { len.max(Length::LONG) } else { len }), Sent::default());
    let (mut granted, mut more) = (true, 0);
    let mut now = Instant::from_nanos(1);
    let mut ways = Vec::new();
    for at in 0..payloads {
        sent.add(length);
        if !granted {
            more -= 1;
            if more == 0 {
                granted = true;
                chooser.try_again();
            }
        }
        let is_lent = granted && !sent.is_for_pool(length);
        let way = if is_lent { chooser.next_lent() } else { chooser.next_pooled() };
        now = now + Duration::from_nanos(time(at, way));
        ways.push(way);
        if chooser.note(way, || now, len) && granted {
            (granted, more) = (false, ROUND);
        }
    }
    ways
}

/// Half round trips measured on three kinds of machine, in nanoseconds: length, pool,
/// receiver's read, both. Whether programs rewrite their buffers differs too.
const MEASURED: [(usize, [u64; 3]); 23] = [
    // 2 MiB of private cache, 120 to 170 ns a line.
    (16 << 10, [2_700, 4_400, 3_200]),
    (64 << 10, [7_700, 11_900, 7_900]),
    (256 << 10, [23_000, 34_000, 19_000]),
    (1 << 20, [78_000, 118_000, 71_000]),
    (16 << 10, [2_800, 1_800, 1_600]),
    (64 << 10, [7_700, 3_900, 2_800]),
    (256 << 10, [22_000, 14_000, 7_900]),
    (1 << 20, [90_000, 64_000, 35_000]),
    // 44 to 75 ns a line.
    (64 << 10, [6_400, 15_600, 6_900]),
    (256 << 10, [22_400, 37_400, 17_400]),
    (1 << 20, [105_000, 139_000, 67_000]),
    (64 << 10, [5_400, 3_300, 3_200]),
    (256 << 10, [17_800, 9_300, 6_600]),
    (1 << 20, [55_000, 53_000, 29_500]),
    // 2 MiB of private cache, 155 ns a line: kept, rewritten, rewritten and read.
    (64 << 10, [6_900, 4_300, 3_800]),
    (256 << 10, [22_200, 12_100, 8_700]),
    (1 << 20, [109_000, 96_000, 53_600]),
    (64 << 10, [9_400, 17_700, 8_600]),
    (256 << 10, [27_900, 45_200, 20_500]),
    (1 << 20, [148_000, 202_000, 112_000]),
    (64 << 10, [9_700, 19_300, 13_900]),
    (256 << 10, [31_300, 48_600, 35_600]),
    (1 << 20, [168_500, 240_000, 172_000]),
];

/// What a receiver loses that waits in vain for more, in nanoseconds.
const PAUSE: u64 = 3_000;

fn cost(ways: &[Way], [pool, read, both]: [u64; 3]) -> u64 {
    cost_in_bursts(ways, [pool, pool + PAUSE, pool, read, both])
}

/// The same where the times of all ways through the pool were measured.
fn cost_in_bursts(ways: &[Way], [pool, behind, vector, read, both]: [u64; 5]) -> u64 {
    let one = |way: &Way| match way {
        Way::Pool => pool,
        Way::Behind => behind,
        Way::Vector => vector,
        Way::Read => read,
        Way::Both => both,
    };
    ways.iter().map(one).sum()
}

#[test]
fn lands_within_a_tenth_of_the_best_way_on_each_kind_of_machine() {
    for (len, times) in MEASURED {
        let middle = (len == 64 << 10).then_some(Length::Middle);
        for length in [Length::Short, Length::Long].into_iter().chain(middle) {
            let ways = run(len, length, 20_000, |_, way| cost(&[way], times));
            let fastest = *times.iter().min().unwrap() * 20_000;
            let took = cost(&ways, times);
            assert!(took <= fastest + fastest / 10, "{len} {length:?} {times:?}: {took} of {fastest}");
        }
    }
}

#[test]
fn the_fastest_way_through_the_pool_is_found() {
    // A second kind of machine: 512 KiB of private cache, 72 ns a line, and 290 ns. Streams, in
    // nanoseconds a payload: pool, behind, vector, receiver's read, both.
    let measured = [
        (64 << 10, Length::Short, [7_850, 3_680, 7_850, 17_600, 10_200]),
        (64 << 10, Length::Short, [7_700, 8_600, 7_700, 18_000, 11_000]),
        (64 << 10, Length::Middle, [7_850, 3_680, 7_850, 17_600, 10_200]),
        (64 << 10, Length::Middle, [7_700, 8_600, 7_700, 18_000, 11_000]),
        (64 << 10, Length::Short, [9_800, 8_000, 3_650, 17_600, 10_200]),
        (64 << 10, Length::Middle, [9_800, 8_000, 3_650, 17_600, 10_200]),
        (1 << 20, Length::Long, [125_000, 44_000, 125_000, 130_000, 74_000]),
        (1 << 20, Length::Long, [140_000, 150_000, 140_000, 180_000, 120_000]),
    ];
    for (len, length, times) in measured {
        // The first two thousand middle ones do not see the pool, and each visit of long ones tries
        // one of its ways.
        let payloads = if length == Length::Short { 40_000 } else { 200_000 };
        let ways = run(len, length, payloads, |_, way| cost_in_bursts(&[way], times));
        let fastest = *times.iter().min().unwrap() * payloads as u64;
        let took = cost_in_bursts(&ways, times);
        assert!(took <= fastest + fastest / 10, "{len} {times:?}: {took} of {fastest}");
    }
}

#[test]
fn a_backlog_that_is_read_fast_does_not_make_staying_behind_look_fast() {
    // Bursts of 64: the receiver waits for 24 payloads, and reads those without the sender.
    let time = |at: usize, way| match way {
        Way::Behind if at.is_multiple_of(64) => 1_000 + 24 * 3_000,
        _ => 3_000,
    };
    let ways = run(32 << 10, Length::Short, 40_000, time);
    let behind = ways.iter().filter(|way| **way == Way::Behind).count();
    assert!(behind < 4_000, "{behind}");
}

#[test]
fn groups_that_had_piled_up_do_not_make_the_pool_look_fast() {
    // Windows of 16: through the pool, the first payload of each takes as long as the receiver
    // waits for it.
    let time = |at: usize, way| match way {
        Way::Both => 100_000,
        Way::Read => 130_000,
        _ if at.is_multiple_of(16) => 1_040_000,
        _ => 80_000,
    };
    let ways = run(1 << 20, Length::Long, 20_000, time);
    let pooled = ways.iter().filter(|way| matches!(way, Way::Pool | Way::Behind)).count();
    assert!(pooled < 1_000, "{pooled}");
}

#[test]
fn payloads_that_come_one_at_a_time_are_not_waited_for() {
    let mut chooser = Chooser::new(Length::MIDDLE);
    let mut now = Instant::from_nanos(1);
    let mut behind = 0;
    for at in 0..2 * ROUND {
        let way = chooser.next_pooled();
        if way == Way::Behind {
            behind += 1;
            chooser.note_burst(false);
        }
        // As if it were faster.
        let time = if way == Way::Behind { 3_000 } else { 5_000 + u64::from(at % 7) };
        now = now + Duration::from_nanos(time);
        chooser.note(way, || now, 64 << 10);
    }
    assert!((ALONE..8 * ALONE).contains(&behind), "{behind}");
}

#[test]
fn looking_for_the_best_way_costs_long_payloads_little() {
    // They begin with the best way here, so that all that the others take is for the search.
    for (_, times) in MEASURED.into_iter().filter(|(len, times)| *len == 1 << 20 && times.is_sorted_by(|a, b| a >= b)) {
        let ways = run(1 << 20, Length::Long, 2000, |_, way| cost(&[way], times));
        let (took, least) = (cost(&ways, times), times[2] * 2000);
        assert!(took <= least + least / 20, "{times:?}: {took} of {least}");
    }
}

#[test]
fn a_ping_pong_finds_a_way_that_is_a_little_faster() {
    // Both directions have their turns at different times, so that each sees half of the gain.
    let times = [31_300, 48_600, 35_600];
    let (mut sides, mut now) =
        ([0; 2].map(|_| (Chooser::new(Length::LONG), Sent::default(), true)), Instant::from_nanos(1));
    for at in 0..2 * 2000 {
        let (chooser, sent, granted) = &mut sides[at % 2];
        if at % 2 == 0 || at > 2 * 1000 {
            sent.add(Length::Long);
        }
        let is_lent = *granted && !sent.is_for_pool(Length::Long);
        let way = if is_lent { chooser.next_lent() } else { chooser.next_pooled() };
        now = now + Duration::from_nanos(cost(&[way], times));
        *granted &= !chooser.note(way, || now, 256 << 10);
    }
    assert_eq!(sides.map(|(_, _, granted)| granted), [false; 2], "both take the pool");
}

#[test]
fn one_that_was_in_the_pool_already_does_not_make_the_pool_unknown() {
    let mut chooser = Chooser::new(Length::MIDDLE);
    let mut now = Instant::from_nanos(1);
    let mut pass = |chooser: &mut Chooser, way, nanos| {
        now = now + Duration::from_nanos(nanos);
        chooser.note(way, || now, 64 << 10)
    };
    for _ in 0..500 {
        chooser.next_pooled();
        assert!(!pass(&mut chooser, Way::Pool, 5_000));
    }
    // The sender lends again. One that it sent before comes after the first.
    assert!(!pass(&mut chooser, Way::Both, 10_000));
    chooser.next_pooled();
    assert!(!pass(&mut chooser, Way::Pool, 5_000));
    let withdraws = (0..400).any(|_| {
        let way = chooser.next_lent();
        pass(&mut chooser, way, 10_000)
    });
    assert!(withdraws, "the pool is faster");
}

#[test]
fn noise_and_interruptions_do_not_matter() {
    let rng = core::cell::RefCell::new(fastrand::Rng::with_seed(7));
    for (len, times) in MEASURED {
        let noisy = |_: usize, way: Way| {
            let mut rng = rng.borrow_mut();
            // Some payloads are interrupted for as long as a time slice.
            let slice = if rng.u32(0..400) == 0 { 3_000_000 } else { 0 };
            cost(&[way], times) * rng.u64(85..130) / 100 + slice
        };
        let ways = run(len, Length::Short, 40_000, noisy);
        let fastest = *times.iter().min().unwrap() * 40_000;
        let took = cost(&ways, times);
        assert!(took <= fastest + fastest / 6, "{len} {times:?}: {took} of {fastest}");
    }
}

#[test]
fn another_load_is_noticed_within_a_round_or_two() {
    let (before, after) = ([22_000, 14_000, 7_900], [23_000, 34_000, 60_000]);
    for (before, after) in [(before, after), (after, before)] {
        let half = 20_000;
        let ways =
            run(256 << 10, Length::Long, 2 * half, |at, way| cost(&[way], if at < half { before } else { after }));
        let settled = &ways[half + 3 * ROUND as usize..];
        let fastest = *after.iter().min().unwrap() * settled.len() as u64;
        let took = cost(settled, after);
        assert!(took <= fastest + fastest / 10, "{took} of {fastest}");
    }
}

#[test]
fn about_as_fast_is_no_reason_to_change() {
    assert!(!is_faster(97, 100) && is_faster(90, 100));
    for (times, expected) in [([100, 97, 100], Way::Both), ([100, 90, 100], Way::Read), ([97, 110, 100], Way::Both)] {
        let ways = run(1 << 20, Length::Short, 20_000, |_, way| 1000 * cost(&[way], times));
        let count = ways.iter().filter(|way| **way == expected).count();
        assert!(count > 18_000, "{times:?}: {count} of {expected:?}");
    }
}

#[test]
fn two_sides_of_a_ping_pong_find_the_same_way() {
    // Each sees the time of its own way and of the other side's, which is some payloads ahead.
    for (_, [_, read, both]) in MEASURED {
        for ahead in [1, 20, 70, 150] {
            let mut sides = [Chooser::new(Length::LONG), Chooser::new(Length::LONG)];
            let mut now = Instant::from_nanos(1);
            let time = |way| if way == Way::Read { read } else { both };
            let mut ways = Vec::new();
            for at in 0..20_000 {
                let mut trip = |side: &mut Chooser| {
                    let way = side.next_lent();
                    now = now + Duration::from_nanos(time(way));
                    side.note(way, || now, 1 << 20);
                    way
                };
                ways.push(trip(&mut sides[0]));
                if at >= ahead {
                    ways.push(trip(&mut sides[1]));
                }
            }
            let fastest = read.min(both) * ways.len() as u64;
            let took = cost(&ways, [0, read, both]);
            assert!(took <= fastest + fastest / 8, "{read} {both}, {ahead}: {took} of {fastest}");
        }
    }
}

#[test]
fn the_receiver_does_not_stay_behind_for_the_shortest() {
    // As if it were faster.
    let times = [2_800, 1_000, 2_800, 4_400, 3_200];
    for (len, expected) in [(16 << 10, false), (LEAST_BEHIND, true)] {
        let ways = run(len, Length::Short, 10_000, |_, way| cost_in_bursts(&[way], times));
        assert_eq!(ways.contains(&Way::Behind), expected, "{len}");
    }
}

#[test]
fn programs_of_a_thousand_middle_payloads_do_not_see_the_pool() {
    let ways = run(64 << 10, Length::Middle, 2000, |_, way| cost(&[way], [6_900, 4_300, 3_800]));
    assert!(ways.iter().all(|way| matches!(way, Way::Read | Way::Both)));
    assert_eq!([true, false].map(|is_fast| Length::of(64 << 10, is_fast)), [Length::Middle, Length::Short]);
    assert_eq!([true, false].map(|is_fast| Length::of((64 << 10) - 1, is_fast)), [Length::Short; 2]);
    assert_eq!([true, false].map(|is_fast| Length::of(256 << 10, is_fast)), [Length::Long; 2]);
}
