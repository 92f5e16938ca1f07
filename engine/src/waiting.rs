//! Blocking on a queue: spin while that pays, then sleep on the port without missing what comes.

use crate::group::Group;
use crate::transport::Flush;
use ofi_core::wait::Port;
use ofi_core::{Errno, Instant};
use ofi_sync::doorbell::Doorbell;
use ofi_sync::heat::Waker;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{Arc, AtomicU32, Ordering};
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

/// Wakes whoever sleeps on a port over a bell.
pub(crate) fn ringer(bell: &Arc<Doorbell>, port: Arc<dyn Port>) -> Waker {
    let bell = bell.clone();
    Box::new(move || {
        if bell.ring() {
            port.ring();
        }
    })
}

/// What a sleeper needs.
#[derive(Debug)]
pub(crate) struct Sleep<'a, K: LockKind> {
    pub(crate) group: &'a Group<K>,
    pub(crate) bell: &'a Doorbell,
    pub(crate) spin: &'a Spin,
    pub(crate) how: Waiting,
}

impl<K: LockKind> Sleep<'_, K> {
    /// Returns true when `ready`, false when the timeout is over.
    pub(crate) fn until(&self, ready: impl Fn() -> bool, timeout: Option<Duration>) -> bool {
        self.group.progress();
        if ready() {
            return true;
        }
        if timeout == Some(Duration::ZERO) {
            return false;
        }
        let port = self.group.port();
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
            match self.announce(&ready, || self.bell.arm(|| port.quiet())) {
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
                self.bell.disarm();
                self.ring();
                break true;
            }
            self.alarm();
            let now = port.now();
            if expired(end, now) {
                self.bell.disarm();
                break false;
            }
            let mut keys = Vec::new();
            port.ready(end.map(|end| end.since(now)), &mut keys);
            self.bell.disarm();
            self.group.progress();
            if ready() {
                break true;
            }
        };
        self.spin.learn(port.now().since(start) < SPIN);
        is_ready
    }

    fn ring(&self) {
        if self.bell.ring() {
            self.group.port().ring();
        }
    }

    fn alarm(&self) {
        self.group.port().alarm(self.group.next_deadline());
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
        self.announce(&ready, || self.bell.watch(|| self.group.port().quiet()))?;
        if ready() {
            self.ring();
            return Err(Errno::AGAIN);
        }
        self.alarm();
        Ok(())
    }
}

fn expired(end: Option<Instant>, now: Instant) -> bool {
    end.is_some_and(|end| now >= end)
}
