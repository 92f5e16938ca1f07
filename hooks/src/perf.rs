//! The hook `perf`: how long calls take, as a table at the end of the process.

use crate::hook::{Call, Hook};
use crate::totals::Totals;
use ofi_sync::histogram::Histogram;
use std::fmt::Write as _;

/// Times of calls.
#[derive(Default)]
pub(crate) struct Perf {
    times: Totals<Times>,
}

/// Of one call of one provider.
#[derive(Debug, Default)]
struct Times {
    /// Calls that did something, in nanoseconds.
    done: Histogram,
    /// Calls that returned FI_EAGAIN, likewise: a loop of reads would hide the others.
    again: Histogram,
}

impl Hook for Perf {
    fn is_timed(&self) -> bool {
        true
    }

    fn called(&self, call: &Call<'_>) {
        self.times.of(call, |times| {
            let times = if call.outcome.is_again() { &times.again } else { &times.done };
            times.add(call.took);
        });
    }

    fn report(&self) -> String {
        let mut rows = Vec::new();
        self.times.each(|provider, call, times| {
            for (kind, times) in [("", &times.done), (" (again)", &times.again)] {
                if times.count() > 0 {
                    rows.push((times.sum(), row(provider, &format!("{call}{kind}"), times)));
                }
            }
        });
        // What takes most comes first.
        rows.sort_by(|a, b| b.cmp(a));
        let mut out = format!(
            "ofi perf: nanoseconds in calls; (again) returned -FI_EAGAIN\n{:<16} {:<28} {:>10} {:>14} {:>9} {:>9} {:>9} {:>11}\n",
            "provider", "call", "calls", "total", "50 %", "90 %", "99 %", "largest"
        );
        rows.iter().for_each(|(_, row)| out.push_str(row));
        out
    }
}

fn row(provider: &str, call: &str, times: &Histogram) -> String {
    let mut out = format!("{provider:<16} {call:<28} {:>10} {:>14}", times.count(), times.sum());
    for percent in [50, 90, 99] {
        // Writing to a string cannot fail.
        let _ = write!(out, " {:>9}", times.percentile(percent));
    }
    let _ = writeln!(out, " {:>11}", times.largest());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_counts_and_percentiles() {
        let times = Histogram::default();
        (0..100).for_each(|_| times.add(5));
        let row = row("tcp", "msg.send", &times);
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["tcp", "msg.send", "100", "500", "5", "5", "5", "5"]);
    }
}
