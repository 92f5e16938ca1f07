//! Publishes reports of endpoints, for `ofi dump` and `ofi top` in other processes, and says when
//! an endpoint's operations do not move. Progress sets call it about once a second, when passes
//! find nothing or before a thread sleeps, so that the data path pays nothing. A thread that has
//! gone to sleep sooner wakes once for it. Without a publisher nothing happens.

use crate::report::Report;
use core::fmt::{self, Write};
use ofi_core::Instant;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

/// Time between two reports of a progress set.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// Where reports go.
pub trait Publisher: fmt::Debug + Send + Sync {
    /// Takes the reports of all endpoints of the process; `None` if there are none any more. One
    /// thread at a time calls it.
    fn publish(&self, text: Option<&str>);
    /// An endpoint whose pending operations do not move for this long is stalled.
    fn stall(&self) -> Option<Duration>;
    /// Takes the report of a stalled endpoint, once for each stall, and for how long nothing has
    /// moved.
    fn stalled(&self, report: &str, still: Duration);
}

/// The latest report of an endpoint.
#[derive(Debug)]
struct Section {
    text: String,
    moved: u64,
    /// Since when it has not moved.
    since: Instant,
    was_stalled: bool,
}

/// The process's reports.
#[derive(Debug)]
pub(super) struct Reports {
    publisher: Box<dyn Publisher>,
    sections: Mutex<BTreeMap<usize, Section>>,
}

static REPORTS: OnceLock<Reports> = OnceLock::new();

/// Publishes reports from now on. The first call of a process counts.
pub fn publish(publisher: Box<dyn Publisher>) {
    // A second copy of the caller says the same.
    drop(REPORTS.set(Reports { publisher, sections: Mutex::default() }));
}

/// The process's reports, if they are published.
pub(super) fn reports() -> Option<&'static Reports> {
    REPORTS.get()
}

impl Reports {
    /// Whether somebody waits for stalls: then sleepers wake up to publish.
    pub(super) fn watches_stalls(&self) -> bool {
        self.publisher.stall().is_some()
    }

    /// Takes the latest reports of a progress set, by the endpoints' identities.
    pub(super) fn update(&self, now: Instant, reports: Vec<(usize, Report)>) {
        // A thread that holds the lock publishes anyway; and one that held it during a fork does
        // not exist in the child.
        let mut sections = match self.sections.try_lock() {
            Ok(sections) => sections,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut stalled = Vec::new();
        for (id, report) in reports {
            let (moved, text) = (report.moved(), report.to_string());
            let before = sections.get(&id).filter(|section| section.moved == moved && report.pending > 0);
            let (since, mut was_stalled) = before.map_or((now, false), |section| (section.since, section.was_stalled));
            let still = now.since(since);
            if self.publisher.stall().is_some_and(|stall| still >= stall) && !was_stalled {
                was_stalled = true;
                stalled.push((text.clone(), still));
            }
            sections.insert(id, Section { text, moved, since, was_stalled });
        }
        self.write(&sections, now);
        drop(sections);
        for (text, still) in stalled {
            self.publisher.stalled(&text, still);
        }
    }

    /// An endpoint is gone.
    pub(super) fn forget(&self, id: usize, now: Instant) {
        if let Ok(mut sections) = self.sections.try_lock()
            && sections.remove(&id).is_some()
        {
            self.write(&sections, now);
        }
    }

    fn write(&self, sections: &BTreeMap<usize, Section>, now: Instant) {
        if sections.is_empty() {
            return self.publisher.publish(None);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "time {}", now.nanos());
        sections.values().for_each(|section| text.push_str(&section.text));
        self.publisher.publish(Some(&text));
    }
}

/// When a progress set last published, in nanoseconds; 0: never.
#[derive(Debug, Default)]
pub(super) struct LastPublished(AtomicU64);

impl LastPublished {
    /// Whether it is time again. The first second of a set does not count.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        // Relaxed: two threads may both publish.
        let last = self.0.load(Ordering::Relaxed);
        let due = last > 0 && now.since(Instant::from_nanos(last)) >= PERIOD;
        if due || last == 0 {
            self.0.store(now.nanos(), Ordering::Relaxed);
        }
        due
    }

    /// When that was.
    pub(super) fn time(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Published;
    use crate::statistics::Statistics;
    use std::sync::Arc;

    type Log = Arc<Mutex<Vec<String>>>;

    /// Keeps what it is told.
    #[derive(Clone, Debug, Default)]
    struct Kept {
        published: Log,
        stalled: Log,
        stall: Option<Duration>,
    }

    impl Publisher for Kept {
        fn publish(&self, text: Option<&str>) {
            self.published.lock().unwrap().push(text.unwrap_or("nothing").to_owned());
        }
        fn stall(&self) -> Option<Duration> {
            self.stall
        }
        fn stalled(&self, _report: &str, still: Duration) {
            self.stalled.lock().unwrap().push(format!("{still:?}"));
        }
    }

    fn reports() -> (Reports, Kept) {
        let kept = Kept { stall: Some(Duration::from_secs(5)), ..Kept::default() };
        (Reports { publisher: Box::new(kept.clone()), sections: Mutex::default() }, kept)
    }

    fn report(failures: u64, pending: u64) -> Report {
        let statistics = Statistics { failures, ..Statistics::default() };
        Report { provider: "tcp", statistics, pending, ..Report::default() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn all_endpoints_are_published_until_they_are_gone() {
        let (reports, Kept { published, .. }) = reports();
        reports.update(at(1), vec![(1, report(1, 0)), (2, report(2, 0))]);
        reports.update(at(2), vec![(1, report(3, 0))]);
        reports.forget(2, at(3));
        reports.forget(2, at(4));
        reports.forget(1, at(5));
        let failures = |text: &String| Published::parse(text).iter().map(|one| one.failures).collect::<Vec<_>>();
        let all = published.lock().unwrap();
        assert_eq!(all.iter().map(failures).collect::<Vec<_>>(), [vec![1, 2], vec![3, 2], vec![3], vec![]]);
        assert!(all[2].starts_with("time 3000000000\n"));
    }

    #[test]
    fn a_stall_is_reported_once() {
        let (reports, Kept { stalled, .. }) = reports();
        let count = || stalled.lock().unwrap().len();
        for second in 0..20 {
            reports.update(at(second), vec![(1, report(1, 3)), (2, report(second, 3)), (3, report(1, 0))]);
            assert_eq!(count(), usize::from(second >= 5), "second {second}");
        }
        assert_eq!(*stalled.lock().unwrap(), ["5s"]);
        // It moves, and stalls again.
        for second in 20..40 {
            reports.update(at(second), vec![(1, report(2, 3))]);
        }
        assert_eq!(count(), 2);
    }
}
