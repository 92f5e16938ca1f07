//! Runs the cases over a medium as rows of tests, each with many seeds.
//! `OFI_CONFORMANCE_SCRIPTS=n` runs n random scripts, and a fraction of the smaller of n and
//! [`MOST_DIRECTED`] scripts of each directed case. `OFI_CONFORMANCE_SEED=s` runs only seed s.

use crate::cases::{self, Case};
use crate::medium::Medium;
use libtest_mimic::{Failed, Trial};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The names of threads whose failures are expected, and of others.
const QUIET: &str = "expected to fail";
pub(crate) const LOUD: &str = "conformance";

/// The number of random scripts above which directed cases run no more scripts: those differ less
/// and are longer.
const MOST_DIRECTED: u64 = 3000;

/// The seeds of a case.
fn seeds(case: &Case, scripts: u64) -> Range<u64> {
    let count = if case.share == 1 { scripts } else { (scripts.min(MOST_DIRECTED) / case.share).max(1) };
    0..count
}

/// A case that a transport is known to fail. It must fail, so that the entry is removed when the
/// transport is corrected.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedFailure {
    /// [`Medium::NAME`].
    pub medium: &'static str,
    /// The name of the case.
    pub case: &'static str,
    /// What is wrong.
    pub why: &'static str,
}

pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// All cases over a medium. A case whose needs the medium does not meet is ignored, and its
/// name gives the reason.
pub fn trials<M: Medium>(expected: &[ExpectedFailure]) -> Vec<Trial> {
    cases::all::<M>().into_iter().map(|case| trial::<M>(case, expected)).collect()
}

fn trial<M: Medium>(case: Case, expected: &[ExpectedFailure]) -> Trial {
    let Case { name, needs, .. } = case;
    let lack = M::LACKS.iter().find(|(lacks, _)| needs.contains(lacks));
    if let Some((_, reason)) = lack {
        let title = format!("{}::{name} (skipped: {reason})", M::NAME);
        return Trial::test(title, || Ok(())).with_ignored_flag(true);
    }
    let known = expected.iter().find(|known| (known.medium, known.case) == (M::NAME, name)).copied();
    let mark = if known.is_some() { " (expected to fail)" } else { "" };
    Trial::test(format!("{}::{name}{mark}", M::NAME), move || match (run::<M>(&case, known.is_some()), known) {
        (Err(_), Some(_)) => Ok(()),
        (Ok(()), Some(known)) => Err(format!("passes now, so remove its entry: {}", known.why).into()),
        (result, None) => result,
    })
}

/// The name of the first case that fails over a medium, except `expected` ones. A test uses it to
/// check that the suite detects a fault.
pub fn first_failure<M: Medium>(expected: &[&str]) -> Option<&'static str> {
    let lacks = |case: &Case| M::LACKS.iter().any(|(lacks, _)| case.needs.contains(lacks));
    let fits = |case: &Case| !lacks(case) && !expected.contains(&case.name);
    let mut cases = cases::all::<M>().into_iter().filter(fits);
    cases
        .find(|case| first_of_seeds(case.run, M::WORKERS, seeds(case, M::SCRIPTS), QUIET).is_some())
        .map(|case| case.name)
}

/// Runs all seeds of a case. An error names a seed that fails.
fn run<M: Medium>(case: &Case, fails: bool) -> Result<(), Failed> {
    let scripts = number("OFI_CONFORMANCE_SCRIPTS").unwrap_or(M::SCRIPTS);
    let seeds = match number("OFI_CONFORMANCE_SEED") {
        Some(seed) => seed..seed + 1,
        None => seeds(case, scripts),
    };
    let failed = first_of_seeds(case.run, M::WORKERS, seeds, if fails { QUIET } else { LOUD });
    verdict(failed, &format!("{}::{}", M::NAME, case.name))
}

/// The result of a row, with the seed that failed.
pub(crate) fn verdict(failed: Option<(u64, String)>, title: &str) -> Result<(), Failed> {
    failed.map_or(Ok(()), |(seed, text)| {
        Err(format!("{text}\nrun it alone: OFI_CONFORMANCE_SEED={seed} cargo test -p ofi-conformance -- {title}")
            .into())
    })
}

/// Runs seeds until one fails; returns that seed and its message.
pub(crate) fn first_of_seeds(run: fn(u64), workers: usize, seeds: Range<u64>, thread: &str) -> Option<(u64, String)> {
    hush();
    let (seeds, failed) = (Mutex::new(seeds), Mutex::new(None::<(u64, String)>));
    let work = || {
        while lock(&failed).is_none()
            && let Some(seed) = { lock(&seeds).next() }
        {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
                let text = text_of(&*panic);
                let mut failed = lock(&failed);
                if failed.as_ref().is_none_or(|(before, _)| seed < *before) {
                    *failed = Some((seed, text));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let builder = std::thread::Builder::new().name(thread.to_owned());
            builder.spawn_scoped(scope, work).expect("the system has threads");
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the panics of threads named [`QUIET`] off the terminal.
fn hush() {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some(QUIET) {
                report(panic);
            }
        }));
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    let text = owned.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "it panicked".to_owned())
}
