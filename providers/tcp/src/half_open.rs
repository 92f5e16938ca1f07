//! Half-open connections (accepted, but without a hello), oldest first. They stay while there is
//! room, since their peer may be busy. When descriptors or memory run out, those older than
//! [`PATIENCE`] give way; if there are none, accepting pauses, so that a slow peer is not turned
//! away. Some stay even when memory has run out, since an honest peer sends its hello at once.

use ofi_core::Instant;
use ofi_core::log::{self, Level, Repeated, Subsystem};
use ofi_sync::account::Account;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Bytes charged to the account for a half-open connection: its entry, and the start of a first
/// record, which need not be a hello.
const COST: usize = 4096;
/// Half-open connections that may exist while the account is over its limit.
const BEYOND: usize = 256;
/// How long a connection may be half-open before it gives way to others.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long accepting pauses, unless a connection ends earlier.
const PAUSE: Duration = Duration::from_millis(100);

/// The logged reason for a pause when memory is short.
pub(crate) const FULL: &str = "half-open connections fill the memory limit for peers (FI_OFI_PEER_MEMORY)";

/// The logged reason for a pause when accepting failed.
pub(crate) fn no_descriptor(error: &io::Error) -> String {
    format!("{error}; raise the descriptor limit with ulimit -n")
}

/// The half-open connections of a listening socket.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    /// Slot and time of arrival of each connection by serial number, so oldest first.
    queue: BTreeMap<u64, (usize, Instant)>,
    serial: u64,
    account: Arc<Account>,
    /// When accepting resumes, if it is paused.
    paused: Option<Instant>,
    notices: Repeated,
}

impl HalfOpen {
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self { queue: BTreeMap::new(), serial: 0, account, paused: None, notices: Repeated::default() }
    }

    /// Adds a connection; returns its serial number.
    pub(crate) fn add(&mut self, slot: usize, now: Instant) -> u64 {
        self.serial += 1;
        self.account.charge(COST);
        self.queue.insert(self.serial, (slot, now));
        self.serial
    }

    /// Removes a connection that sent its hello or ended.
    pub(crate) fn remove(&mut self, serial: u64) {
        if self.queue.remove(&serial).is_some() {
            self.account.release(COST);
        }
    }

    /// The slot of the oldest connection if it must give way at `now`: half-open for [`PATIENCE`]
    /// while memory or descriptors (`pressed`) are short.
    pub(crate) fn victim(&self, now: Instant, pressed: bool) -> Option<usize> {
        let (_, &(slot, since)) = self.queue.first_key_value()?;
        let short = self.account.used() > self.account.limit();
        ((pressed || short) && now.since(since) >= PATIENCE).then_some(slot)
    }

    /// Whether lack of memory forbids accepting at `now`.
    pub(crate) fn is_full(&self, now: impl FnOnce() -> Instant) -> bool {
        let short = self.queue.len() >= BEYOND && self.account.used() > self.account.limit();
        short && self.victim(now(), false).is_none()
    }

    /// Pauses accepting and logs the reason.
    pub(crate) fn pause(&mut self, now: Instant, why: impl FnOnce() -> String) {
        self.paused = Some(now + PAUSE);
        self.notices.add(|| format!("not accepting connections for now: {}", why()));
        if let Some(text) = self.notices.take(now) {
            log::log("tcp", Level::Warn, Subsystem::EpCtrl, || text);
        }
    }

    /// Ends a pause early: a descriptor or memory may be free.
    pub(crate) fn hurry(&mut self) {
        if let Some(until) = &mut self.paused {
            *until = Instant::from_nanos(0);
        }
    }

    /// When accepting resumes, if it is paused.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.paused
    }

    pub(crate) const fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Ends a pause that is over at `now`; true if there was one.
    pub(crate) fn resumes(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let over = self.paused.is_some_and(|until| until == Instant::from_nanos(0) || now() >= until);
        if over {
            self.paused = None;
        }
        over
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.account.release(COST * self.queue.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_oldest_gives_way_and_only_if_it_must() {
        let account = Arc::new(Account::new(2 * COST));
        let mut half_open = HalfOpen::new(account.clone());
        let first = half_open.add(7, at(0));
        let second = half_open.add(8, at(5));
        assert_eq!(half_open.victim(at(100), false), None, "there is room");
        assert_eq!(half_open.victim(at(9), true), None, "its peer may be busy");
        assert_eq!(half_open.victim(at(10), true), Some(7));
        half_open.add(7, at(6));
        assert_eq!(half_open.victim(at(10), false), Some(7), "memory is short");
        half_open.remove(first);
        half_open.remove(first);
        assert_eq!((half_open.victim(at(15), true), account.used()), (Some(8), 2 * COST));
        half_open.remove(second);
        drop(half_open);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn some_wait_beyond_the_limit_and_no_more() {
        let mut half_open = HalfOpen::new(Arc::new(Account::new(COST)));
        for slot in 0..BEYOND {
            assert!(!half_open.is_full(|| at(9)), "{slot}");
            half_open.add(slot, at(0));
        }
        assert!(half_open.is_full(|| at(9)));
        assert!(!half_open.is_full(|| at(10)), "one of them gives way");
        let mut roomy = HalfOpen::new(Arc::new(Account::new(COST * 2 * BEYOND)));
        (0..2 * BEYOND).for_each(|slot| assert!(roomy.add(slot, at(0)) > 0 && !roomy.is_full(|| at(9))));
    }

    #[test]
    fn accepting_goes_on_after_a_while_or_when_a_descriptor_is_free() {
        let mut half_open = HalfOpen::new(Arc::new(Account::new(0)));
        assert!(!half_open.resumes(|| at(0)));
        half_open.pause(at(1), || "no descriptor".to_owned());
        assert_eq!(half_open.deadline(), Some(at(1) + PAUSE));
        assert!(!half_open.resumes(|| at(1)));
        assert!(half_open.resumes(|| at(2)) && half_open.deadline().is_none());
        half_open.pause(at(2), || "no descriptor".to_owned());
        half_open.hurry();
        assert!(half_open.resumes(|| at(2)));
    }
}
