//! Blocking on a queue: spin while that pays, then sleep on the port without missing what comes.

use crate::progress::set::ProgressSet;
use crate::transport::Flush;
use ofi_core::wait::WaitObject;
use ofi_core::{Errno, Instant};
use ofi_sync::doorbell::{Bed, Doorbell, Due};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{Arc, AtomicU32, Ordering};
use ofi_sync::ready_list::Waker;
use std::time::Duration;

/// How a queue may be waited on (fi_cq(3), `wait_obj`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Not at all.
    Never,
    /// By sleeping on its port.
    Sleeping,
    /// By giving the processor to others until there is something (FI_WAIT_YIELD).
    Yielding,
}

/// How long to spin before sleeping, if recent waits were shorter than that.
const SPIN: Duration = Duration::from_micros(50);

/// Whether spinning has paid lately.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    /// Waits in a row that were too long for spinning.
    long: AtomicU32,
}

impl Spin {
    fn pays(&self) -> bool {
        // Relaxed: a guess. Every eighth wait tries again.
        let long = self.long.load(Ordering::Relaxed);
        long < 3 || long.is_multiple_of(8)
    }

    fn learn(&self, short: bool) {
        let long = if short { 0 } else { self.long.load(Ordering::Relaxed).saturating_add(1) };
        self.long.store(long, Ordering::Relaxed);
    }
}

/// Wakes those who sleep on a port over a bell.
pub(crate) fn ringer(bell: &Arc<Doorbell>, port: Arc<dyn WaitObject>) -> Waker {
    let bell = bell.clone();
    Box::new(move || write(bell.ring(), &*port))
}

/// Writes the descriptors that a bell calls for.
#[inline]
pub(crate) fn write(due: Due, port: &dyn WaitObject) {
    if due.is_any() {
        write_some(due, port);
    }
}

#[cold]
fn write_some(due: Due, port: &dyn WaitObject) {
    if due.has(Bed::Shared) {
        port.signal();
    }
    // There is one where somebody sleeps on it.
    if due.has(Bed::Apart)
        && let Some(apart) = port.apart()
    {
        apart.signal();
    }
}

/// What a sleeper needs.
#[derive(Debug)]
pub(crate) struct Sleep<'a, K: LockKind> {
    pub(crate) group: &'a ProgressSet<K>,
    pub(crate) bell: &'a Doorbell,
    pub(crate) spin: &'a Spin,
    pub(crate) how: Waiting,
}

impl<K: LockKind> Sleep<'_, K> {
    /// Returns true when `ready`, false when the timeout is over.
    pub(crate) fn until(&self, ready: impl Fn() -> bool, timeout: Option<Duration>) -> bool {
        let found = self.wait(ready, timeout);
        if !found {
            // The caller may go away for long.
            self.group.flush(Flush::All);
        }
        found
    }

    fn wait(&self, ready: impl Fn() -> bool, timeout: Option<Duration>) -> bool {
        self.group.progress();
        if ready() {
            return true;
        }
        if timeout == Some(Duration::ZERO) {
            return false;
        }
        let port = self.group.wait_object();
        let start = port.now();
        let end = timeout.map(|timeout| start + timeout);
        if self.how == Waiting::Yielding {
            loop {
                self.group.progress();
                if ready() {
                    return true;
                }
                if expired(end, port.now()) {
                    return false;
                }
                std::thread::yield_now();
            }
        }
        if self.spin.pays() {
            loop {
                for _ in 0..8 {
                    self.group.progress();
                    if ready() {
                        self.spin.learn(true);
                        return true;
                    }
                }
                let now = port.now();
                if now.since(start) >= SPIN || end.is_some_and(|end| now >= end) {
                    break;
                }
            }
        }
        let is_ready = loop {
            let _sleeper = self.group.sleeper();
            let (bed, place) = if self.bell.is_watched() {
                let Some(apart) = port.apart() else {
                    // No descriptor is left to sleep on.
                    std::thread::yield_now();
                    self.group.progress();
                    if ready() || expired(end, port.now()) {
                        break ready();
                    }
                    continue;
                };
                (Bed::Apart, apart)
            } else {
                (Bed::Shared, port)
            };
            let mut armed = true;
            match self.announce(&ready, || armed = self.bell.arm(bed, || place.drain())) {
                // Somebody has begun to watch: it sleeps elsewhere.
                Ok(()) if !armed => continue,
                Ok(()) => {}
                Err(_) if ready() => break true,
                // Something moved: look again before sleeping.
                Err(_) => {
                    if expired(end, port.now()) {
                        break false;
                    }
                    continue;
                }
            }
            if ready() {
                // Who else sleeps is to hear of it: the descriptor may have been drained.
                self.bell.disarm(bed);
                self.ring();
                break true;
            }
            place.set_timer(self.group.next_deadline());
            let now = port.now();
            if expired(end, now) {
                self.bell.disarm(bed);
                break false;
            }
            let mut keys = Vec::new();
            place.ready(end.map(|end| end.since(now)), &mut keys);
            self.bell.disarm(bed);
            self.group.progress();
            if ready() {
                break true;
            }
        };
        self.spin.learn(port.now().since(start) < SPIN);
        is_ready
    }

    fn ring(&self) {
        write(self.bell.ring(), self.group.wait_object());
    }

    /// What comes before a sleep. `AGAIN` if there is something to do first.
    fn announce(&self, ready: impl Fn() -> bool, announce: impl FnOnce()) -> Result<(), Errno> {
        if self.group.progress() {
            // What arrived may have more behind it that no descriptor will tell of.
            self.group.flush(Flush::All);
            return Err(Errno::AGAIN);
        }
        self.group.flush(Flush::All);
        if self.group.before_sleep() || ready() {
            return Err(Errno::AGAIN);
        }
        announce();
        Ok(())
    }

    /// Announces that somebody will sleep on the port's descriptor. `AGAIN` if there is something to do first.
    pub(crate) fn prepare(&self, ready: impl Fn() -> bool) -> Result<(), Errno> {
        self.group.watch();
        self.announce(&ready, || self.bell.watch(|| self.group.wait_object().drain()))?;
        if ready() {
            self.ring();
            return Err(Errno::AGAIN);
        }
        self.group.wait_object().set_timer(self.group.next_deadline());
        Ok(())
    }
}

fn expired(end: Option<Instant>, now: Instant) -> bool {
    end.is_some_and(|end| now >= end)
}
