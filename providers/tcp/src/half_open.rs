//! Connections that were accepted and have not said who they are, the oldest first. They stay while there is room: their
//! peer may be busy. Where descriptors or memory run out, those that have been silent for long give way, and otherwise
//! accepting pauses: a peer that may only be slow is not turned away. Some wait even when memory has run out, since an honest
//! peer says who it is at once.

use ofi_core::Instant;
use ofi_core::log::{self, Level, Repeated, Subsystem};
use ofi_sync::account::Account;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What a silent connection takes of the account, in bytes: its entry, and what may have come of a first record, which need
/// be none of a hello.
const COST: usize = 4096;
/// Silent connections that may be there beyond the account's limit.
const BEYOND: usize = 256;
/// How long a connection may be silent before it gives way to others.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long accepting pauses when it found no descriptor, unless one becomes free.
const PAUSE: Duration = Duration::from_millis(100);

/// Why accepting pauses, where memory is short.
pub(crate) const FULL: &str = "connections that do not say who they are fill the memory for peers (FI_OFI_PEER_MEMORY)";

/// Why it does where accepting failed.
pub(crate) fn no_descriptor(error: &io::Error) -> String {
    format!("{error}; ulimit -n raises the limit")
}

/// The silent connections of a listening socket.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    /// Serial numbers, which grow, with the slots of their connections and when they came.
    queue: VecDeque<(u64, usize, Instant)>,
    serial: u64,
    account: Arc<Account>,
    /// Accepting goes on then.
    paused: Option<Instant>,
    notices: Repeated,
}

impl HalfOpen {
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self { queue: VecDeque::new(), serial: 0, account, paused: None, notices: Repeated::default() }
    }

    /// One more; its serial number.
    pub(crate) fn add(&mut self, slot: usize, now: Instant) -> u64 {
        self.serial += 1;
        self.account.charge(COST);
        self.queue.push_back((self.serial, slot, now));
        self.serial
    }

    /// One has said who it is, or has ended.
    pub(crate) fn remove(&mut self, serial: u64) {
        if let Ok(at) = self.queue.binary_search_by_key(&serial, |(serial, ..)| *serial) {
            self.queue.remove(at);
            self.account.release(COST);
        }
    }

    /// The slot of the one that is to give way at `now`, if one is: silent for long, while memory is short or descriptors are
    /// (`pressed`).
    pub(crate) fn victim(&self, now: Instant, pressed: bool) -> Option<usize> {
        let (_, slot, since) = *self.queue.front()?;
        let short = self.account.used() > self.account.limit();
        ((pressed || short) && now.since(since) >= PATIENCE).then_some(slot)
    }

    /// Whether no more may be accepted at `now`, for lack of memory.
    pub(crate) fn is_full(&self, now: impl FnOnce() -> Instant) -> bool {
        let short = self.queue.len() >= BEYOND && self.account.used() > self.account.limit();
        short && self.victim(now(), false).is_none()
    }

    /// Accepting cannot go on for that reason.
    pub(crate) fn pause(&mut self, now: Instant, why: impl FnOnce() -> String) {
        self.paused = Some(now + PAUSE);
        self.notices.add(|| format!("accepting connections pauses: {}", why()));
        if let Some(text) = self.notices.take(now) {
            log::log("tcp", Level::Warn, Subsystem::EpCtrl, || text);
        }
    }

    /// A descriptor may be free: there is no need to wait longer.
    pub(crate) fn hurry(&mut self) {
        if let Some(until) = &mut self.paused {
            *until = Instant::from_nanos(0);
        }
    }

    /// When accepting goes on, if it pauses.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.paused
    }

    /// Whether accepting has paused.
    pub(crate) const fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Whether accepting goes on at `now`, having paused.
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
        let mut silent = HalfOpen::new(account.clone());
        let first = silent.add(7, at(0));
        let second = silent.add(8, at(5));
        assert_eq!(silent.victim(at(100), false), None, "there is room");
        assert_eq!(silent.victim(at(9), true), None, "its peer may be busy");
        assert_eq!(silent.victim(at(10), true), Some(7));
        silent.add(7, at(6));
        assert_eq!(silent.victim(at(10), false), Some(7), "memory is short");
        silent.remove(first);
        silent.remove(first);
        assert_eq!((silent.victim(at(15), true), account.used()), (Some(8), 2 * COST));
        silent.remove(second);
        drop(silent);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn some_wait_beyond_the_limit_and_no_more() {
        let mut silent = HalfOpen::new(Arc::new(Account::new(COST)));
        for slot in 0..BEYOND {
            assert!(!silent.is_full(|| at(9)), "{slot}");
            silent.add(slot, at(0));
        }
        assert!(silent.is_full(|| at(9)));
        assert!(!silent.is_full(|| at(10)), "one of them gives way");
        let mut roomy = HalfOpen::new(Arc::new(Account::new(COST * 2 * BEYOND)));
        (0..2 * BEYOND).for_each(|slot| assert!(roomy.add(slot, at(0)) > 0 && !roomy.is_full(|| at(9))));
    }

    #[test]
    fn accepting_goes_on_after_a_while_or_when_a_descriptor_is_free() {
        let mut silent = HalfOpen::new(Arc::new(Account::new(0)));
        assert!(!silent.resumes(|| at(0)));
        silent.pause(at(1), || "no descriptor".to_owned());
        assert_eq!(silent.deadline(), Some(at(1) + PAUSE));
        assert!(!silent.resumes(|| at(1)));
        assert!(silent.resumes(|| at(2)) && silent.deadline().is_none());
        silent.pause(at(2), || "no descriptor".to_owned());
        silent.hurry();
        assert!(silent.resumes(|| at(2)));
    }
}
