//! The seeds of a random test: `OFI_SIM_SEED=s` runs seed s alone, `OFI_SIM_SEEDS=n` the first n.

use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seeds to run: by default the first `default`.
pub fn all(default: u64) -> Range<u64> {
    some(default, 1)
}

fn some(default: u64, every: u64) -> Range<u64> {
    match number("OFI_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("OFI_SIM_SEEDS").unwrap_or(default) / every,
    }
}

/// Runs a test with each seed, and says which one failed. True unless a seed was chosen.
pub fn run(default: u64, test: impl FnMut(u64)) -> bool {
    run_some(default, 1, test)
}

/// The same with one seed for every `every` seeds requested.
pub fn run_some(default: u64, every: u64, mut test: impl FnMut(u64)) -> bool {
    for seed in some(default, every) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("seed {seed} failed; OFI_SIM_SEED={seed} runs it alone");
            resume_unwind(panic);
        }
    }
    number("OFI_SIM_SEED").is_none()
}
