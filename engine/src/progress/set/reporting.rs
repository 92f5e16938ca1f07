//! When a progress set publishes the reports of its endpoints.

use super::ProgressSet;
use crate::progress::publish::{PERIOD, Reports, reports};
use ofi_core::Instant;
use ofi_sync::lock::LockKind;

impl<K: LockKind> ProgressSet<K> {
    /// Publishes what its endpoints have done and wait for, if it is time.
    pub(in crate::progress) fn publish_if_due(&self, now: Instant) {
        if let Some(reports) = reports()
            && self.published.is_due(now)
        {
            self.publish(reports, now, false);
        }
    }

    /// The same for a thread that is about to sleep. Returns when it has to wake up to publish, if
    /// it has to: what is published now stays true while all threads sleep.
    pub(in crate::progress) fn publish_before_sleep(&self, now: Instant) -> Option<Instant> {
        let reports = reports()?;
        if !self.published.is_due(now) {
            return Some(self.published.time() + PERIOD);
        }
        self.publish(reports, now, true);
        reports.watches_stalls().then(|| now + PERIOD)
    }

    #[cold]
    fn publish(&self, reports: &Reports, now: Instant, sleeps: bool) {
        self.for_each(|pollable| {
            if let Some(report) = pollable.report() {
                reports.take(now, core::ptr::from_ref(pollable.ready_flag()).addr(), &report);
            }
        });
        reports.write(now, sleeps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::publish::{self, Publisher};
    use crate::report::Report;
    use crate::still::{Quiet, Still};
    use core::time::Duration;
    use ofi_core::error::Result;
    use ofi_sync::lock::Park;
    use ofi_sync::primitive::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    type Log = Arc<Mutex<Vec<String>>>;

    /// Keeps what is published.
    #[derive(Debug)]
    struct Kept(Log);

    impl Publisher for Kept {
        fn publish(&self, text: &str) -> Result<()> {
            self.0.lock().unwrap().push(text.to_owned());
            Ok(())
        }
        fn retract(&self) {
            self.0.lock().unwrap().push("nothing".to_owned());
        }
        fn process(&self) -> u32 {
            0
        }
        fn stall(&self) -> Option<Duration> {
            None
        }
        fn stalled(&self, _report: &str, _still: Duration) {}
    }

    #[test]
    fn a_thread_that_polls_publishes_once_a_second() {
        let published = Log::default();
        publish::publish(Box::new(Kept(published.clone())));
        let clock = Arc::new(Still { now: AtomicU64::new(1), ..Still::default() });
        let set = ProgressSet::new(Park::default(), clock.clone());
        let report = Some(Report { pending: 77, ..Report::default() });
        let key = set.join(Arc::new(Quiet { report, ..Quiet::default() })).expect("it has no descriptor");
        let count = || published.lock().unwrap().iter().filter(|text| text.contains(" 77 ")).count();
        // A millisecond between two passes.
        for _ in 0..5_500 {
            clock.now.fetch_add(1_000_000, Ordering::Relaxed);
            set.passed(set.progress());
        }
        assert_eq!(count(), 5);
        set.leave(key);
        assert_eq!(published.lock().unwrap().last().unwrap(), "nothing", "it has left");
    }
}
