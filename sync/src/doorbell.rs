//! Wakes all who sleep over one descriptor, and costs a load when nobody does.
//!
//! A sleeper arms the bell, then looks at what it waits for, then sleeps on the descriptor; the waker makes its change,
//! then rings. One of the two sees the other: that is the store-load pattern, so both sides fence, unless the change
//! and the look are made under one lock. The descriptor stays readable until somebody arms the bell while nobody else
//! sleeps, so that one ring wakes all.

use crate::primitive::{AtomicU32, Mutex, Ordering, fence};
use std::sync::PoisonError;

/// The descriptor was written since it was last drained.
const RUNG: u32 = 1;
/// Somebody outside may sleep on the descriptor at any time.
const WATCHED: u32 = 2;
/// One sleeper; the bits from here on count them.
const SLEEPER: u32 = 4;

/// The sleepers that can be woken through a descriptor.
#[derive(Debug)]
pub struct Doorbell {
    state: AtomicU32,
    /// Held while the descriptor is drained: no sleeper begins meanwhile.
    gate: Mutex<()>,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl Doorbell {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Self { state: AtomicU32::new(0), gate: Mutex::new(()) }
    }

    /// Announces that the caller will look once more and then sleep, until it calls [`Self::disarm`]. `drain` makes the
    /// descriptor unreadable, written or not.
    pub fn arm(&self, drain: impl FnOnce()) {
        self.announce(drain, |state| state + SLEEPER);
    }

    /// Announces that somebody may sleep on the descriptor from now on, of whose waking nobody will tell.
    pub fn watch(&self, drain: impl FnOnce()) {
        self.announce(drain, |state| state | WATCHED);
    }

    fn announce(&self, drain: impl FnOnce(), change: impl Fn(u32) -> u32) {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: sleepers come under the gate, and one that goes needs no ring.
        let mut state = self.state.load(Ordering::Relaxed);
        // Others may have been rung for and not be awake yet: then it is not for this one to drain.
        let alone = state < SLEEPER;
        if alone {
            // Always, for a waker writes only after it has set RUNG, and perhaps long after.
            drain();
        }
        loop {
            let kept = if alone { state & !RUNG } else { state };
            // Acquire and Release: whoever rings for this sleeper writes the descriptor after it was drained.
            match self.state.compare_exchange_weak(state, change(kept), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        drop(gate);
        // Pairs with the fence in `ring`: either the load there sees this, or the look that follows sees the change.
        fence(Ordering::SeqCst);
    }

    /// To be called after the change: true if the caller must write the descriptor now.
    pub fn ring(&self) -> bool {
        // Pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        self.ring_after_lock()
    }

    /// [`Self::ring`] where the change was made under the lock under which sleepers look.
    #[inline]
    pub fn ring_after_lock(&self) -> bool {
        // Relaxed: see `ring`; the lock orders it otherwise.
        self.state.load(Ordering::Relaxed) > RUNG && self.ring_somebody()
    }

    #[cold]
    fn ring_somebody(&self) -> bool {
        // Acquire pairs with the Release in `announce`. Of several wakers one writes.
        let change = |state: u32| (state > RUNG && state & RUNG == 0).then_some(state | RUNG);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change).is_ok()
    }

    /// The sleeper is awake.
    pub fn disarm(&self) {
        // Relaxed: it only counts.
        self.state.fetch_sub(SLEEPER, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rings_once_for_all_who_sleep() {
        let bell = Doorbell::new();
        assert!(!bell.ring());
        bell.arm(|| ());
        bell.arm(|| ());
        assert!(bell.ring());
        assert!(!bell.ring());
        bell.disarm();
        // The other has not woken yet: the descriptor stays as it is.
        bell.arm(|| panic!("drained too early"));
        bell.disarm();
        bell.disarm();
        assert!(!bell.ring());
        let mut drained = false;
        bell.arm(|| drained = true);
        assert!(drained && bell.ring());
    }

    #[test]
    fn one_who_gives_up_leaves_the_others_to_be_woken() {
        let bell = Doorbell::new();
        bell.arm(|| ());
        bell.arm(|| ());
        bell.disarm();
        assert!(bell.ring());
    }

    #[test]
    fn who_watches_is_rung_for_ever_after() {
        let bell = Doorbell::new();
        bell.watch(|| ());
        assert!(bell.ring() && !bell.ring());
        bell.watch(|| ());
        assert!(bell.ring());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::{Arc, AtomicBool};

    /// A bell over a descriptor, with something to wait for.
    #[derive(Default)]
    struct Place {
        bell: Doorbell,
        descriptor: AtomicBool,
        ready: Mutex<u32>,
    }

    impl Place {
        fn push(&self) {
            *self.ready.lock().unwrap() += 1;
            if self.bell.ring_after_lock() {
                self.descriptor.store(true, Ordering::Relaxed);
            }
        }

        /// One reader's visit: true if it sleeps now, false if it took something, or came too late for it and will be
        /// back.
        fn sleeps(&self) -> bool {
            let sleeps = !self.prepare();
            if !sleeps {
                let mut ready = self.ready.lock().unwrap();
                *ready = ready.saturating_sub(1);
            }
            sleeps
        }

        /// Up to the sleep: true if there was something instead.
        fn prepare(&self) -> bool {
            self.bell.arm(|| self.descriptor.store(false, Ordering::Relaxed));
            let some = *self.ready.lock().unwrap() > 0;
            if some {
                self.bell.disarm();
                if self.bell.ring() {
                    self.descriptor.store(true, Ordering::Relaxed);
                }
            }
            some
        }
    }

    #[test]
    fn no_wakeup_is_lost() {
        loom::model(|| {
            let place = Arc::new((Doorbell::new(), AtomicBool::new(false), AtomicBool::new(false)));
            let waker = {
                let place = place.clone();
                loom::thread::spawn(move || {
                    let (bell, ready, descriptor) = &*place;
                    ready.store(true, Ordering::Relaxed);
                    if bell.ring() {
                        descriptor.store(true, Ordering::Relaxed);
                    }
                })
            };
            let (bell, ready, descriptor) = &*place;
            bell.arm(|| descriptor.store(false, Ordering::Relaxed));
            let saw = ready.load(Ordering::Relaxed);
            waker.join().unwrap();
            assert!(saw || descriptor.load(Ordering::Relaxed), "would sleep for ever");
        });
    }

    #[test]
    fn no_wakeup_is_lost_under_a_lock() {
        loom::model(|| {
            let place = Arc::new(Place::default());
            let waker = {
                let place = place.clone();
                loom::thread::spawn(move || place.push())
            };
            let saw = place.prepare();
            waker.join().unwrap();
            assert!(saw || place.descriptor.load(Ordering::Relaxed), "would sleep for ever");
        });
    }

    #[test]
    fn of_two_sleepers_one_drains_and_none_is_forgotten() {
        let mut model = loom::model::Builder::new();
        // Without a bound it takes minutes.
        model.preemption_bound = Some(3);
        model.check(|| {
            let place = Arc::new(Place::default());
            let other = {
                let place = place.clone();
                loom::thread::spawn(move || place.sleeps())
            };
            let waker = {
                let place = place.clone();
                loom::thread::spawn(move || {
                    place.push();
                    place.push();
                })
            };
            let mine = place.sleeps();
            let other = other.join().unwrap();
            waker.join().unwrap();
            // Whoever sleeps while there is something has a descriptor that wakes it.
            if (mine || other) && *place.ready.lock().unwrap() > 0 {
                assert!(place.descriptor.load(Ordering::Relaxed), "would sleep for ever");
            }
        });
    }

    #[test]
    fn two_wakers_write_once() {
        loom::model(|| {
            let bell = Arc::new(Doorbell::new());
            bell.arm(|| ());
            let other = {
                let bell = bell.clone();
                loom::thread::spawn(move || u32::from(bell.ring()))
            };
            let mine = u32::from(bell.ring());
            assert_eq!(mine + other.join().unwrap(), 1);
        });
    }
}
