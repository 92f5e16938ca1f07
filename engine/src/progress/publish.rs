//! Publishes reports of endpoints, for `ofi dump` and `ofi top` in other processes, and says when
//! an endpoint's operations do not move. Progress sets call it about once a second, when passes
//! find nothing or before a thread sleeps, so that the data path pays nothing. A thread that has
//! gone to sleep sooner wakes once for it. Without a publisher nothing happens.

use crate::progress::set::ProgressSet;
use crate::report::Report;
use core::fmt::Write;
use ofi_core::Instant;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

/// Time between two reports of a progress set.
const PERIOD: Duration = Duration::from_secs(1);

/// Where reports go.
pub struct Publisher {
    /// Takes the reports of all endpoints of the process; `None` if there are none any more.
    pub publish: Box<dyn Fn(Option<&str>) + Send + Sync>,
    /// An endpoint whose pending operations do not move for this long is stalled.
    pub stall: Option<Duration>,
    /// Takes the report of a stalled endpoint, once for each stall, and for how long nothing has
    /// moved.
    pub stalled: Box<dyn Fn(&str, Duration) + Send + Sync>,
}

impl core::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Publisher").field("stall", &self.stall).finish_non_exhaustive()
    }
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
    publisher: Publisher,
    sections: Mutex<BTreeMap<usize, Section>>,
}

static REPORTS: OnceLock<Reports> = OnceLock::new();

/// Publishes reports from now on. The first call of a process counts.
pub fn publish(publisher: Publisher) {
    // A second copy of the caller says the same.
    drop(REPORTS.set(Reports { publisher, sections: Mutex::default() }));
}

/// The process's reports, if they are published.
pub(super) fn reports() -> Option<&'static Reports> {
    REPORTS.get()
}

impl Reports {
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
            if self.publisher.stall.is_some_and(|stall| still >= stall) && !was_stalled {
                was_stalled = true;
                stalled.push((text.clone(), still));
            }
            sections.insert(id, Section { text, moved, since, was_stalled });
        }
        self.write(&sections, now);
        drop(sections);
        for (text, still) in stalled {
            (self.publisher.stalled)(&text, still);
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
            return (self.publisher.publish)(None);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "time {}", now.nanos());
        sections.values().for_each(|section| text.push_str(&section.text));
        (self.publisher.publish)(Some(&text));
    }
}

/// When a progress set last published, in nanoseconds; 0: never.
#[derive(Debug, Default)]
pub(super) struct LastPublished(AtomicU64);

impl LastPublished {
    /// Whether it is time again. The first second of a set does not count.
    fn is_due(&self, now: Instant) -> bool {
        // Relaxed: two threads may both publish.
        let last = self.0.load(Ordering::Relaxed);
        let due = last > 0 && now.since(Instant::from_nanos(last)) >= PERIOD;
        if due || last == 0 {
            self.0.store(now.nanos(), Ordering::Relaxed);
        }
        due
    }

    fn time(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl<K: LockKind> ProgressSet<K> {
    /// Publishes what its endpoints have done and wait for, if it is time.
    pub(super) fn publish_if_due(&self, now: Instant) {
        if let Some(reports) = reports()
            && self.last_published().is_due(now)
        {
            self.publish(reports, now);
        }
    }

    /// The same for a thread that is about to sleep. Returns when it has to wake up to publish, if it
    /// has to: what is published now stays true while all threads sleep.
    pub(super) fn publish_before_sleep(&self, now: Instant) -> Option<Instant> {
        let reports = reports()?;
        if !self.last_published().is_due(now) {
            return Some(self.last_published().time() + PERIOD);
        }
        self.publish(reports, now);
        reports.publisher.stall.map(|_| now + PERIOD)
    }

    #[cold]
    fn publish(&self, reports: &Reports, now: Instant) {
        let mut all = Vec::new();
        self.for_each(|pollable| {
            let id = core::ptr::from_ref(pollable.ready_flag()).addr();
            all.extend(pollable.report().map(|report| (id, report)));
        });
        reports.update(now, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::set::{PollOutcome, Pollable, ReadyFlag};
    use crate::report::Published;
    use crate::statistics::Statistics;
    use crate::transport::Flush;
    use ofi_core::wait::{Descriptor, WaitObject};
    use ofi_sync::lock::Park;
    use std::sync::Arc;

    /// A wait object whose clock a test sets.
    #[derive(Debug, Default)]
    struct Clock(AtomicU64);

    impl WaitObject for Clock {
        fn add(&self, _fd: Descriptor, _key: u64) -> ofi_core::error::Result<()> {
            Ok(())
        }
        fn remove(&self, _fd: Descriptor) {}
        fn ready(&self, _timeout: Option<Duration>, _keys: &mut Vec<u64>) {}
        fn signal(&self) {}
        fn drain(&self) {}
        fn set_timer(&self, _when: Option<Instant>) {}
        fn descriptor(&self) -> Descriptor {
            -1
        }
        fn now(&self) -> Instant {
            Instant::from_nanos(self.0.load(Ordering::Relaxed))
        }
    }

    /// An endpoint that waits for something.
    #[derive(Debug, Default)]
    struct Waiting(ReadyFlag);

    impl Pollable for Waiting {
        fn poll(&self) -> PollOutcome {
            PollOutcome { active: false, busy: false }
        }
        fn flush(&self, _how: Flush) {}
        fn report(&self) -> Option<Report> {
            Some(report(77, 1))
        }
        fn next_deadline(&self) -> Option<Instant> {
            None
        }
        fn descriptor(&self) -> Option<Descriptor> {
            None
        }
        fn ready_flag(&self) -> &ReadyFlag {
            &self.0
        }
    }

    #[test]
    fn a_thread_that_polls_publishes_once_a_second() {
        let published = Log::default();
        let to_published = published.clone();
        publish(Publisher {
            publish: Box::new(move |text| to_published.lock().unwrap().push(text.unwrap_or("nothing").to_owned())),
            stall: None,
            stalled: Box::new(|_, _| ()),
        });
        let clock = Arc::new(Clock(AtomicU64::new(1)));
        let set = ProgressSet::new(Park::default(), clock.clone());
        let key = set.join(Arc::new(Waiting::default())).expect("it has no descriptor");
        let count = || published.lock().unwrap().iter().filter(|text| text.contains(" 77 ")).count();
        // A millisecond between two passes.
        for _ in 0..5_500 {
            clock.0.fetch_add(1_000_000, Ordering::Relaxed);
            set.passed(set.progress());
        }
        assert_eq!(count(), 5);
        set.leave(key);
        assert_eq!(published.lock().unwrap().last().unwrap(), "nothing", "it has left");
    }

    type Log = Arc<Mutex<Vec<String>>>;

    fn reports() -> (Reports, Log, Log) {
        let (published, stalled) = (Log::default(), Log::default());
        let (to_published, to_stalled) = (published.clone(), stalled.clone());
        let publisher = Publisher {
            publish: Box::new(move |text| to_published.lock().unwrap().push(text.unwrap_or("nothing").to_owned())),
            stall: Some(Duration::from_secs(5)),
            stalled: Box::new(move |_, still| to_stalled.lock().unwrap().push(format!("{still:?}"))),
        };
        (Reports { publisher, sections: Mutex::default() }, published, stalled)
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
        let (reports, published, _) = reports();
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
        let (reports, _, stalled) = reports();
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
