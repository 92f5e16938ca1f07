//! One suite for the behaviour of endpoints, run over any [`EndpointMedium`]: the rules of the
//! manual pages for matching, completion levels, peeking, multi-receive, remote memory access and
//! atomic operations, for all sizes.
//! `pair.rs` opens two endpoints with the rig of `testing/rig`; the other files hold the cases.

mod levels;
mod matching;
mod multi_recv;
mod one_sided;
mod pair;
mod peek;

use crate::medium::Need;
use crate::runner::{LOUD, first_of_seeds, number, verdict};
use fastrand::Rng;
use libtest_mimic::Trial;
use ofi_engine::transport::Transport;
use ofi_rig::{Options, Side, Watch};

/// Opens endpoints that can reach each other.
pub trait EndpointMedium: Sized + 'static {
    /// The transport below the endpoints.
    type Carrier: Transport;
    /// The time that passes between polls.
    type Watch: Watch;

    /// The first part of the names of its tests.
    const NAME: &'static str;
    /// Number of seeds that each case runs with. They determine faults and settings.
    const SEEDS: u64;
    /// The needs that it does not meet, with the reasons.
    const LACKS: &'static [(Need, &'static str)] = &[];

    /// A medium; `rng` determines its faults.
    fn new(rng: &mut Rng) -> Self;
    /// Opens an endpoint.
    fn open(&mut self, options: Options, rng: &mut Rng) -> Side<Self::Carrier>;
    /// The time.
    fn watch(&self) -> &Self::Watch;
    /// Closes an endpoint whose operations have all completed.
    fn close(&self, mut side: Side<Self::Carrier>) {
        side.close();
    }
}

/// A case.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The properties that the medium must have.
    needs: &'static [Need],
    /// Runs it with a seed.
    run: fn(u64),
}

/// Cases named after their functions.
macro_rules! cases {
    ($needs:expr; $($case:ident),* $(,)?) => {
        vec![$($crate::endpoint::Case { name: stringify!($case), needs: $needs, run: $case::<M> }),*]
    };
}
use cases;

/// All cases over a medium. A case whose needs the medium does not meet is ignored, and its
/// name gives the reason. `OFI_CONFORMANCE_SEED=s` runs only seed s.
pub fn endpoint_trials<M: EndpointMedium>() -> Vec<Trial> {
    let messages = [matching::cases::<M>(), levels::cases::<M>(), peek::cases::<M>(), multi_recv::cases::<M>()];
    let all = messages.into_iter().chain([one_sided::cases::<M>()]);
    all.flatten().map(trial::<M>).collect()
}

fn trial<M: EndpointMedium>(case: Case) -> Trial {
    let title = format!("{}::{}", M::NAME, case.name);
    if let Some((_, reason)) = M::LACKS.iter().find(|(lacks, _)| case.needs.contains(lacks)) {
        return Trial::test(format!("{title} (skipped: {reason})"), || Ok(())).with_ignored_flag(true);
    }
    Trial::test(title.clone(), move || {
        let seeds = number("OFI_CONFORMANCE_SEED").map_or(0..M::SEEDS, |seed| seed..seed + 1);
        verdict(first_of_seeds(case.run, 1, seeds, LOUD), &title)
    })
}
