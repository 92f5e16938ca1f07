//! Polling with a time limit, so that no test hangs.

use crate::side::{Kind, Side};
use ofi_core::{FiAddr, Instant};
use ofi_engine::transport::Transport;
use std::time::Duration;

/// The time that passes between polls: real or virtual.
pub trait Watch {
    /// Time limit of a condition.
    const LIMIT: Duration;

    /// The time.
    fn now(&self) -> Instant;
    /// Lets time pass between two polls.
    fn pass(&self);
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealTime;

impl Watch for RealTime {
    const LIMIT: Duration = Duration::from_secs(20);

    fn now(&self) -> Instant {
        ofi_os::clock::now()
    }

    fn pass(&self) {
        std::thread::yield_now();
    }
}

/// Polls sides and lets time pass until a condition holds. False if the limit passes before.
pub fn until<T: Transport, W: Watch>(
    watch: &W,
    sides: &mut [&mut Side<T>],
    mut is_so: impl FnMut(&mut [&mut Side<T>]) -> bool,
) -> bool {
    let end = watch.now() + W::LIMIT;
    while watch.now() < end {
        sides.iter_mut().for_each(|side| {
            side.progress();
        });
        if is_so(sides) {
            return true;
        }
        watch.pass();
    }
    false
}

/// The same for a condition that must hold in the end.
///
/// # Panics
/// If the limit passes before, with a description of the sides.
#[track_caller]
pub fn expect<T: Transport, W: Watch>(
    watch: &W,
    sides: &mut [&mut Side<T>],
    what: &str,
    is_so: impl FnMut(&mut [&mut Side<T>]) -> bool,
) {
    if !until(watch, sides, is_so) {
        let all: Vec<String> =
            sides.iter().map(|side| format!("{:?}\n{}", side.pending(), side.ep.describe())).collect();
        panic!("{what}: did not happen in time\n{}", all.join("\n"));
    }
}

/// Polls after everything has completed: any further completion is a second one.
const POLLS: usize = 20;

/// Cancels the receives that are still posted, and checks that every accepted operation completes
/// exactly once.
///
/// # Panics
/// If one does not.
#[track_caller]
pub fn finish<T: Transport, W: Watch>(watch: &W, sides: &mut [&mut Side<T>]) {
    for side in sides.iter_mut() {
        for context in side.unfinished(&[Kind::Receive, Kind::MultiRecv]) {
            side.ep.cancel(context);
        }
    }
    expect(watch, sides, "every operation completes", |sides| sides.iter().all(|side| side.pending().is_empty()));
    for _ in 0..POLLS {
        for side in sides.iter_mut() {
            assert!(!side.progress(), "an operation completed twice");
        }
        watch.pass();
    }
}

/// Exchanges one message in each direction.
///
/// # Panics
/// If one of them does not arrive.
#[track_caller]
pub fn ping_pong<T: Transport>(watch: &impl Watch, a: &mut Side<T>, b: &mut Side<T>, to_b: FiAddr, to_a: FiAddr) {
    let tag = 0xabba;
    let (ping, pong) = (b.receive(FiAddr::UNSPEC, tag, 8), a.receive(FiAddr::UNSPEC, tag, 8));
    a.send(to_b, tag, vec![1; 8]);
    b.send(to_a, tag, vec![2; 8]);
    expect(watch, &mut [a, b], "a ping-pong", |sides| sides[0].is_done(pong) && sides[1].is_done(ping));
}
