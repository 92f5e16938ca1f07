//! The hook `profile`: how often which call was made, how it ended, and how many bytes it handed
//! over, as a table at the end of the process.

use crate::hook::{Call, Hook, Outcome};
use crate::totals::Totals;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::fmt::Write as _;

/// Counts of calls.
#[derive(Default)]
pub(crate) struct Profile {
    counts: Totals<Counts>,
}

/// Of one call of one provider.
#[derive(Debug, Default)]
struct Counts {
    good: AtomicU64,
    again: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

impl Hook for Profile {
    fn called(&self, call: &Call<'_>) {
        self.counts.of(call, |counts| {
            let count = match call.outcome {
                Outcome::Good(_) => &counts.good,
                _ if call.outcome.is_again() => &counts.again,
                Outcome::Failed(_) => &counts.failed,
            };
            // Relaxed, here and below: it counts, and orders nothing.
            count.fetch_add(1, Ordering::Relaxed);
            if matches!(call.outcome, Outcome::Good(_)) {
                counts.bytes.fetch_add(call.bytes, Ordering::Relaxed);
            }
        });
    }

    fn report(&self) -> String {
        let mut out = format!(
            "ofi profile: calls, those that returned -FI_EAGAIN, those that failed, and bytes handed over\n\
             {:<16} {:<20} {:>10} {:>10} {:>10} {:>16}\n",
            "provider", "call", "good", "again", "failed", "bytes"
        );
        self.counts.each(|provider, call, counts| {
            let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let (good, again, failed) = (count(&counts.good), count(&counts.again), count(&counts.failed));
            if good + again + failed > 0 {
                let bytes = count(&counts.bytes);
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{provider:<16} {call:<20} {good:>10} {again:>10} {failed:>10} {bytes:>16}");
            }
        });
        out
    }
}
