//! A wait object and a pollable for unit tests.

use crate::progress::set::{PollOutcome, Pollable, ReadyFlag};
use crate::report::Report;
use crate::transport::Flush;
use ofi_core::Instant;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_sync::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A wait object on which nothing happens, with a clock that tests set, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Still {
    pub(crate) now: AtomicU64,
    /// How often somebody has looked for events.
    pub(crate) looks: AtomicU32,
}

impl WaitObject for Still {
    fn add(&self, _fd: Descriptor, _key: u64) -> Result<()> {
        Ok(())
    }
    fn remove(&self, _fd: Descriptor) {}
    fn ready(&self, _timeout: Option<Duration>, _keys: &mut Vec<u64>) -> bool {
        self.looks.fetch_add(1, Ordering::SeqCst);
        false
    }
    fn signal(&self) {}
    fn drain(&self) {}
    fn set_timer(&self, _when: Option<Instant>) {}
    fn descriptor(&self) -> Descriptor {
        -1
    }
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::SeqCst))
    }
}

/// A pollable without traffic, such as an endpoint whose peers send nothing.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    pub(crate) armed: AtomicBool,
    pub(crate) announced: AtomicBool,
    /// Memory barriers by which it has ordered what was announced.
    pub(crate) orders: AtomicU32,
    pub(crate) flag: ReadyFlag,
    /// A progress thread leaves it to the application.
    pub(crate) left: AtomicBool,
    /// How often it was polled.
    pub(crate) polls: AtomicU32,
    /// What it reports, if anything.
    pub(crate) report: Option<Report>,
    /// To poll it is a system call.
    pub(crate) costly: bool,
    /// It has events when it is armed.
    pub(crate) has_events: bool,
}

impl Pollable for Quiet {
    fn poll(&self) -> PollOutcome {
        self.polls.fetch_add(1, Ordering::SeqCst);
        PollOutcome::default()
    }
    fn polls(&self) -> Option<u32> {
        Some(self.polls.load(Ordering::SeqCst))
    }
    fn leave_to_application(&self, left: bool) {
        self.left.store(left, Ordering::SeqCst);
    }
    fn report(&self) -> Option<Report> {
        self.report.clone()
    }
    fn flush(&self, _how: Flush) {}
    fn is_polled(&self) -> bool {
        !self.costly
    }
    fn announce(&self, first: bool) -> bool {
        assert_eq!(self.announced.swap(true, Ordering::SeqCst), !first, "announced and disarmed in turn");
        true
    }
    fn order(&self) {
        self.orders.fetch_add(1, Ordering::SeqCst);
    }
    fn arm(&self) -> bool {
        assert!(self.announced.load(Ordering::SeqCst), "announced before it is armed");
        self.armed.store(true, Ordering::SeqCst);
        self.has_events
    }
    fn disarm(&self) {
        assert!(self.announced.swap(false, Ordering::SeqCst), "disarmed once");
        self.armed.store(false, Ordering::SeqCst);
    }
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
    fn descriptor(&self) -> Option<Descriptor> {
        None
    }
    fn ready_flag(&self) -> &ReadyFlag {
        &self.flag
    }
}
