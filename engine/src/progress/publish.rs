//! Publishes reports of endpoints, for `ofi dump` and `ofi top` in other processes, and says when
//! an endpoint's operations do not move. Progress sets call it about once a second, when passes
//! find nothing or before a thread sleeps, so that the data path pays nothing. A thread that has
//! gone to sleep sooner wakes once for it. Without a publisher nothing happens.

use crate::report::Report;
use core::fmt;
use ofi_core::Instant;
use ofi_core::error::Result;
use ofi_core::log::{self, Level, Subsystem};
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Time between two reports of a progress set.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// Where reports go.
pub trait Publisher: fmt::Debug + Send + Sync {
    /// Replaces the published reports by those of all endpoints of the process. One thread at a
    /// time calls it, or [`Self::retract`], and holds a lock that others may need to close an
    /// endpoint: it must not wait for anything.
    ///
    /// # Errors
    /// The system's.
    fn publish(&self, text: &str) -> Result<()>;
    /// There are no endpoints any more.
    fn retract(&self);
    /// The number of this process: a forked child leaves the reports of its parent's endpoints.
    fn process(&self) -> u32;
    /// An endpoint whose pending operations do not move for this long is stalled.
    fn stall(&self) -> Option<Duration>;
    /// Takes the report of a stalled endpoint, once for each stall, and for how long nothing has
    /// moved.
    fn stalled(&self, report: &str, still: Duration);
}

/// The latest report of an endpoint.
#[derive(Debug)]
struct Section {
    /// Identifies the endpoint among those of the process.
    number: u64,
    text: String,
    moved: u64,
    /// Since when it has not moved.
    since: Instant,
    /// A stall is reported once.
    stalled: Stalled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stalled {
    No,
    /// To be reported, after so long.
    For(Duration),
    Reported,
}

/// The latest reports of all endpoints.
#[derive(Debug, Default)]
struct Sections {
    by_id: BTreeMap<usize, Section>,
    /// The number of the latest endpoint.
    latest: u64,
    /// When they were published.
    written: Instant,
    /// The process whose endpoints they are.
    process: u32,
}

/// The process's reports.
#[derive(Debug)]
pub(super) struct Reports {
    publisher: Box<dyn Publisher>,
    /// Comes after all locks of endpoints and progress sets.
    sections: Mutex<Sections>,
}

/// The lock of the reports, held while the process forks.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is held")] Option<MutexGuard<'static, Sections>>);

/// Locks the reports, so that no other thread holds their lock during a fork. Comes before the
/// locks that [`Publisher::publish`] takes.
pub fn hold() -> Held {
    Held(REPORTS.get().map(Reports::lock))
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
    /// Whether stalls are to be reported: then sleepers wake up to publish.
    pub(super) fn watches_stalls(&self) -> bool {
        self.publisher.stall().is_some()
    }

    /// Takes the latest report of an endpoint. The caller holds the lock of a progress set that it
    /// is in, so that it cannot be [forgotten](Self::forget) before.
    pub(super) fn take(&self, now: Instant, id: usize, report: &Report) {
        let mut sections = self.lock();
        let before = sections.by_id.remove(&id);
        let number = before.as_ref().map_or_else(
            || {
                sections.latest += 1;
                sections.latest
            },
            |section| section.number,
        );
        let moved = report.moved();
        let still = before.filter(|section| section.moved == moved && report.pending > 0);
        let (since, mut stalled) = still.map_or((now, Stalled::No), |section| (section.since, section.stalled));
        let time = now.since(since);
        if stalled == Stalled::No && self.publisher.stall().is_some_and(|stall| time >= stall) {
            stalled = Stalled::For(time);
        }
        let text = format!("endpoint {number} {} {report}", now.nanos());
        sections.by_id.insert(id, Section { number, text, moved, since, stalled });
    }

    /// Publishes what was taken, unless another thread has just published; `sleeps`: even then,
    /// because this thread may not call again.
    pub(super) fn write(&self, now: Instant, sleeps: bool) {
        /// Many threads, each with a progress set, publish together at most so often.
        const PAUSE: Duration = Duration::from_millis(250);
        let mut sections = self.lock();
        if !sleeps && now.since(sections.written) < PAUSE && !self.watches_stalls() {
            return;
        }
        sections.written = now;
        if sections.by_id.is_empty() {
            // The set has no endpoints, and the process has no others.
            return;
        }
        let text: String = sections.by_id.values().map(|section| section.text.as_str()).collect();
        let published = self.publisher.publish(&text);
        let mut stalled = Vec::new();
        for section in sections.by_id.values_mut() {
            if let Stalled::For(time) = section.stalled {
                section.stalled = Stalled::Reported;
                stalled.push((section.text.clone(), time));
            }
        }
        // Writing to a terminal or a log may take as long as its reader likes.
        drop(sections);
        if let Err(error) = published {
            log::log("core", Level::Info, Subsystem::Core, || error.to_string());
        }
        stalled.into_iter().for_each(|(text, time)| self.publisher.stalled(&text, time));
    }

    /// An endpoint is gone. The next report of another one publishes that; if there is none,
    /// nothing is published any more.
    pub(super) fn forget(&self, id: usize) {
        let mut sections = self.lock();
        if sections.by_id.remove(&id).is_some() && sections.by_id.is_empty() {
            self.publisher.retract();
        }
    }

    /// The latest reports of this process's endpoints.
    fn lock(&self) -> MutexGuard<'_, Sections> {
        // No holder leaves them inconsistent.
        let mut sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        let process = self.publisher.process();
        if sections.process != process {
            *sections = Sections { process, ..Sections::default() };
        }
        sections
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
    use std::sync::{Arc, Weak};

    type Log = Arc<Mutex<Vec<String>>>;

    /// Keeps what it is told.
    #[derive(Clone, Debug, Default)]
    struct Kept {
        published: Log,
        stalled: Log,
        process: Arc<Mutex<u32>>,
        stall: Option<Duration>,
        reports: Arc<Mutex<Weak<Reports>>>,
    }

    impl Publisher for Kept {
        fn publish(&self, text: &str) -> Result<()> {
            self.published.lock().unwrap().push(text.to_owned());
            Ok(())
        }
        fn retract(&self) {
            self.published.lock().unwrap().push("nothing".to_owned());
        }
        fn process(&self) -> u32 {
            *self.process.lock().unwrap()
        }
        fn stall(&self) -> Option<Duration> {
            self.stall
        }
        fn stalled(&self, _report: &str, still: Duration) {
            let reports = self.reports.lock().unwrap().upgrade().expect("the test has them");
            assert!(reports.sections.try_lock().is_ok(), "an endpoint can be closed meanwhile");
            self.stalled.lock().unwrap().push(format!("{still:?}"));
        }
    }

    fn reports_to(kept: Kept) -> (Arc<Reports>, Kept) {
        let reports = Arc::new(Reports { publisher: Box::new(kept.clone()), sections: Mutex::default() });
        *kept.reports.lock().unwrap() = Arc::downgrade(&reports);
        (reports, kept)
    }

    fn reports() -> (Arc<Reports>, Kept) {
        reports_to(Kept { stall: Some(Duration::from_secs(5)), ..Kept::default() })
    }

    fn report(failures: u64, pending: u64) -> Report {
        let statistics = Statistics { failures, ..Statistics::default() };
        Report { provider: "tcp", statistics, pending, ..Report::default() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn update(reports: &Reports, now: Instant, all: &[(usize, Report)]) {
        all.iter().for_each(|(id, report)| reports.take(now, *id, report));
        reports.write(now, false);
    }

    #[test]
    fn all_endpoints_are_published_until_they_are_gone() {
        let (reports, Kept { published, .. }) = reports();
        update(&reports, at(1), &[(1, report(1, 0)), (2, report(2, 0))]);
        update(&reports, at(2), &[(1, report(3, 0))]);
        reports.forget(2);
        reports.forget(2);
        update(&reports, at(3), &[(1, report(4, 0))]);
        reports.forget(1);
        let failures = |text: &String| Published::parse(text).iter().map(|one| one.failures).collect::<Vec<_>>();
        let all = published.lock().unwrap();
        assert_eq!(all.iter().map(failures).collect::<Vec<_>>(), [vec![1, 2], vec![3, 2], vec![4], vec![]]);
        let numbers =
            |text: &String| Published::parse(text).iter().map(|one| (one.number, one.time)).collect::<Vec<_>>();
        assert_eq!(numbers(&all[1]), [(1, 2_000_000_000), (2, 1_000_000_000)]);
    }

    #[test]
    fn threads_that_go_on_polling_publish_together() {
        let (reports, Kept { published, .. }) = reports_to(Kept::default());
        let count = || published.lock().unwrap().len();
        update(&reports, at(1), &[(1, report(1, 0))]);
        update(&reports, at(1), &[(2, report(2, 0))]);
        assert_eq!(count(), 1);
        reports.take(at(1), 3, &report(3, 0));
        reports.write(at(1), true);
        assert_eq!((count(), Published::parse(&published.lock().unwrap()[1]).len()), (2, 3));
    }

    #[test]
    fn a_forked_child_publishes_its_own_endpoints_alone() {
        let (reports, Kept { published, process, .. }) = reports();
        update(&reports, at(1), &[(1, report(1, 0))]);
        *process.lock().unwrap() = 77;
        update(&reports, at(2), &[(2, report(2, 0))]);
        let last = published.lock().unwrap().pop().unwrap();
        assert_eq!(Published::parse(&last).iter().map(|one| one.failures).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn nothing_is_published_of_a_process_without_endpoints() {
        let (reports, Kept { published, .. }) = reports();
        reports.write(at(1), true);
        assert_eq!(*published.lock().unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn a_stall_is_reported_once() {
        let (reports, Kept { stalled, .. }) = reports();
        let count = || stalled.lock().unwrap().len();
        for second in 0..20 {
            update(&reports, at(second), &[(1, report(1, 3)), (2, report(second, 3)), (3, report(1, 0))]);
            assert_eq!(count(), usize::from(second >= 5), "second {second}");
        }
        assert_eq!(*stalled.lock().unwrap(), ["5s"]);
        // It moves, and stalls again.
        for second in 20..40 {
            update(&reports, at(second), &[(1, report(2, 3))]);
        }
        assert_eq!(count(), 2);
    }
}
