//! Wakes all threads that sleep on a descriptor, and costs one load when none does.
//!
//! A sleeper arms the doorbell, checks its condition, then sleeps on the descriptor; a waker makes
//! its change, then rings. One of the two sees the other: that is the store-load pattern, so both
//! sides fence, unless change and check happen under one lock. The descriptor stays readable until
//! a sleeper arms the doorbell while no other sleeps, so one ring wakes all.
//! Watchers (application threads) sleep on the descriptor without reporting when they wake, so it
//! must stay readable for them: beside watchers, sleepers use a separate descriptor.

use crate::primitive::{AtomicU32, Mutex, Ordering, fence};
use std::sync::PoisonError;

/// The shared descriptor was written since it was last drained.
const RUNG: u32 = 1;
/// The same for the separate descriptor.
const RUNG_APART: u32 = 2;
/// The application may sleep on the shared descriptor at any time.
const WATCHED: u32 = 4;
/// One sleeper on the shared descriptor; 15 bits count them.
const SLEEPER: u32 = 8;
const SLEEPERS: u32 = APART - SLEEPER;
/// One sleeper on the separate descriptor; the bits from here on count them.
const APART: u32 = 1 << 18;
const APARTS: u32 = !(APART - 1);

/// The descriptor that a sleeper sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bed {
    /// The one shared with watchers.
    Shared,
    /// A separate one, for sleepers beside watchers: an event that is too little for a sleeper may
    /// be what a watcher waits for, so a sleeper must not drain the watchers' descriptor.
    Apart,
}

/// The descriptors that a waker must write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Due(u32);

impl Due {
    const NONE: Self = Self(0);

    /// Whether there is a descriptor to write.
    #[inline(always)]
    pub const fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Whether this descriptor must be written.
    pub const fn has(self, bed: Bed) -> bool {
        let bit = match bed {
            Bed::Shared => RUNG,
            Bed::Apart => RUNG_APART,
        };
        self.0 & bit != 0
    }
}

/// Tracks the sleepers and watchers of a wait object's descriptors.
#[derive(Debug)]
pub struct Doorbell {
    state: AtomicU32,
    /// Held while a descriptor is drained, so that no sleeper arms meanwhile.
    gate: Mutex<()>,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl Doorbell {
    /// A doorbell without sleepers or watchers.
    pub fn new() -> Self {
        Self { state: AtomicU32::new(0), gate: Mutex::new(()) }
    }

    /// Whether there has been a watcher: sleepers use the separate descriptor from then on.
    pub fn is_watched(&self) -> bool {
        // Relaxed: `arm` checks again under the gate.
        self.state.load(Ordering::Relaxed) & WATCHED != 0
    }

    /// Announces that the caller will check once more and then sleep, until it calls
    /// [`Self::disarm`]. `drain` makes the descriptor unreadable, written or not. False, without
    /// effect, if the descriptor has a watcher.
    #[must_use]
    pub fn arm(&self, bed: Bed, drain: impl FnOnce()) -> bool {
        match bed {
            Bed::Shared => self.announce((SLEEPERS, RUNG, WATCHED), drain, |state| state + SLEEPER),
            Bed::Apart => self.announce((APARTS, RUNG_APART, 0), drain, |state| state + APART),
        }
    }

    /// Announces that the application may sleep on the shared descriptor from now on, without
    /// reporting when it wakes.
    pub fn watch(&self, drain: impl FnOnce()) {
        let announced = self.announce((SLEEPERS, RUNG, 0), drain, |state| state | WATCHED);
        debug_assert!(announced, "watch() must always succeed");
    }

    /// The bits: other sleepers on the descriptor, descriptor written, sleep forbidden.
    fn announce(
        &self,
        (others, rung, forbidden): (u32, u32, u32),
        drain: impl FnOnce(),
        change: impl Fn(u32) -> u32,
    ) -> bool {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: sleepers and watchers are added under the gate, and one that leaves needs no
        // ring.
        let mut state = self.state.load(Ordering::Relaxed);
        if state & forbidden != 0 {
            return false;
        }
        // Others may have been rung for but not be awake yet: then this one must not drain.
        let alone = state & others == 0;
        if alone {
            // Even if the bit is clear: a waker writes after it sets the bit, perhaps long after.
            drain();
        }
        loop {
            let kept = if alone { state & !rung } else { state };
            // Acquire and Release: a waker that rings for this sleeper writes the descriptor after
            // the drain.
            match self.state.compare_exchange_weak(state, change(kept), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        drop(gate);
        // Pairs with the fence in `ring`: either the load there sees this, or the check that
        // follows sees the change.
        fence(Ordering::SeqCst);
        true
    }

    /// Call after the change: returns the descriptors that the caller must write now.
    pub fn ring(&self) -> Due {
        // Pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        self.ring_after_lock()
    }

    /// [`Self::ring`] for a change made under the lock under which sleepers check.
    #[inline]
    pub fn ring_after_lock(&self) -> Due {
        // Relaxed: see `ring`; the lock orders it otherwise.
        if self.state.load(Ordering::Relaxed) < WATCHED { Due::NONE } else { self.ring_now() }
    }

    #[cold]
    fn ring_now(&self) -> Due {
        const fn due(state: u32) -> u32 {
            let shared = if state & (WATCHED | SLEEPERS) != 0 { RUNG } else { 0 };
            let apart = if state & APARTS != 0 { RUNG_APART } else { 0 };
            (shared | apart) & !state
        }
        // Acquire pairs with the Release in `announce`. Only one of several wakers writes.
        let change = |state: u32| (due(state) != 0).then_some(state | due(state));
        let rung = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
        rung.map_or(Due::NONE, |state| Due(due(state)))
    }

    /// Whether a waker has rung since the descriptor was last drained. A sleeper that was woken by
    /// anything else, such as its timer, may sleep on without arming again.
    pub fn is_rung(&self, bed: Bed) -> bool {
        let bit = match bed {
            Bed::Shared => RUNG,
            Bed::Apart => RUNG_APART,
        };
        // Relaxed: a ring that is missed makes the descriptor readable, so the next sleep ends.
        self.state.load(Ordering::Relaxed) & bit != 0
    }

    /// Removes a sleeper, which is awake.
    pub fn disarm(&self, bed: Bed) {
        let one = match bed {
            Bed::Shared => SLEEPER,
            Bed::Apart => APART,
        };
        // Relaxed: it only counts.
        self.state.fetch_sub(one, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;
    use Bed::{Apart, Shared};

    const SHARED: Due = Due(RUNG);
    const BOTH: Due = Due(RUNG | RUNG_APART);

    #[test]
    fn one_ring_wakes_all_sleepers() {
        for bed in [Shared, Apart] {
            let bell = Doorbell::new();
            assert!(!bell.ring().is_any());
            assert!(bell.arm(bed, || ()) && bell.arm(bed, || ()));
            assert!(!bell.is_rung(bed));
            assert!(bell.ring().has(bed));
            assert!(bell.is_rung(bed));
            assert!(!bell.ring().is_any());
            bell.disarm(bed);
            // The other has not woken yet: the descriptor stays as it is.
            assert!(bell.arm(bed, || panic!("drained too early")));
            bell.disarm(bed);
            bell.disarm(bed);
            assert!(!bell.ring().is_any());
            let mut drained = false;
            assert!(bell.arm(bed, || drained = true));
            assert!(drained && !bell.is_rung(bed) && bell.ring().has(bed));
        }
    }

    #[test]
    fn a_sleeper_that_gives_up_leaves_the_others_to_be_woken() {
        let bell = Doorbell::new();
        assert!(bell.arm(Shared, || ()) && bell.arm(Shared, || ()));
        bell.disarm(Shared);
        assert_eq!(bell.ring(), SHARED);
    }

    #[test]
    fn a_watcher_is_rung_for_ever_after() {
        let bell = Doorbell::new();
        bell.watch(|| ());
        assert_eq!(bell.ring(), SHARED);
        assert!(!bell.ring().is_any());
        bell.watch(|| ());
        assert_eq!(bell.ring(), SHARED);
    }

    #[test]
    fn beside_a_watcher_sleepers_use_the_separate_descriptor() {
        let bell = Doorbell::new();
        assert!(!bell.is_watched() && bell.arm(Shared, || ()));
        bell.watch(|| panic!("drained too early"));
        assert!(bell.is_watched() && !bell.arm(Shared, || panic!("drained for another")));
        bell.disarm(Shared);
        assert!(bell.arm(Apart, || ()));
        assert_eq!(bell.ring(), BOTH);
        assert!(!bell.ring().is_any());
        bell.disarm(Apart);
        // The watcher's descriptor stays readable.
        assert!(bell.arm(Apart, || ()));
        assert_eq!(bell.ring(), Due(RUNG_APART));
    }
}

#[cfg(all(test, ofi_loom))]
mod models {
    use super::*;
    use crate::primitive::{Arc, AtomicBool};

    /// A doorbell with its descriptors, and items to wait for.
    #[derive(Default)]
    struct Place {
        bell: Doorbell,
        descriptor: AtomicBool,
        apart: AtomicBool,
        ready: Mutex<u32>,
    }

    impl Place {
        fn push(&self) {
            *self.ready.lock().unwrap() += 1;
            self.write(self.bell.ring_after_lock());
        }

        fn write(&self, due: Due) {
            if due.has(Bed::Shared) {
                self.descriptor.store(true, Ordering::Relaxed);
            }
            if due.has(Bed::Apart) {
                self.apart.store(true, Ordering::Relaxed);
            }
        }

        /// One reader's attempt: true if it now sleeps; false if it took an item, or lost it to
        /// another reader and would retry.
        fn sleeps(&self) -> bool {
            let sleeps = !self.prepare();
            if !sleeps {
                let mut ready = self.ready.lock().unwrap();
                *ready = ready.saturating_sub(1);
            }
            sleeps
        }

        /// The steps before a sleep: true if there was an item instead.
        fn prepare(&self) -> bool {
            assert!(self.bell.arm(Bed::Shared, || self.descriptor.store(false, Ordering::Relaxed)));
            let some = *self.ready.lock().unwrap() > 0;
            if some {
                self.bell.disarm(Bed::Shared);
                self.write(self.bell.ring());
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
                    if bell.ring().is_any() {
                        descriptor.store(true, Ordering::Relaxed);
                    }
                })
            };
            let (bell, ready, descriptor) = &*place;
            assert!(bell.arm(Bed::Shared, || descriptor.store(false, Ordering::Relaxed)));
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
        // Unbounded, the model takes minutes.
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
            // A reader that sleeps although there is an item has a readable descriptor.
            if (mine || other) && *place.ready.lock().unwrap() > 0 {
                assert!(place.descriptor.load(Ordering::Relaxed), "would sleep for ever");
            }
        });
    }

    /// A reader that waits for two items: true if it now sleeps on the separate descriptor, false
    /// if on the shared one, `None` if it could not arm.
    fn sleeps_for_two(place: &Place) -> Option<bool> {
        let bed = if place.bell.is_watched() { Bed::Apart } else { Bed::Shared };
        let descriptor = if bed == Bed::Apart { &place.apart } else { &place.descriptor };
        place.bell.arm(bed, || descriptor.store(false, Ordering::Relaxed)).then_some(bed == Bed::Apart)
    }

    #[test]
    fn a_sleeper_that_waits_for_more_leaves_a_watcher_its_news() {
        loom::model(|| {
            let place = Arc::new(Place::default());
            let waker = {
                let place = place.clone();
                loom::thread::spawn(move || place.push())
            };
            let sleeper = {
                let place = place.clone();
                loom::thread::spawn(move || {
                    sleeps_for_two(&place);
                })
            };
            place.bell.watch(|| place.descriptor.store(false, Ordering::Relaxed));
            let saw = *place.ready.lock().unwrap() > 0;
            waker.join().unwrap();
            sleeper.join().unwrap();
            assert!(saw || place.descriptor.load(Ordering::Relaxed), "would sleep for ever");
        });
    }

    #[test]
    fn a_sleeper_beside_a_watcher_is_woken() {
        loom::model(|| {
            let place = Arc::new(Place::default());
            place.bell.watch(|| place.descriptor.store(false, Ordering::Relaxed));
            let waker = {
                let place = place.clone();
                loom::thread::spawn(move || {
                    place.push();
                    place.push();
                })
            };
            let mut asleep = None;
            for _ in 0..2 {
                asleep = sleeps_for_two(&place);
                if *place.ready.lock().unwrap() >= 2 {
                    asleep = None;
                    break;
                }
                if place.apart.load(Ordering::Relaxed) {
                    // Woken for fewer items than it waits for.
                    place.bell.disarm(Bed::Apart);
                    continue;
                }
                break;
            }
            waker.join().unwrap();
            assert!(place.descriptor.load(Ordering::Relaxed), "the watcher would sleep for ever");
            if asleep == Some(true) {
                assert!(place.apart.load(Ordering::Relaxed), "the sleeper would sleep for ever");
            }
        });
    }

    #[test]
    fn two_wakers_write_once() {
        loom::model(|| {
            let bell = Arc::new(Doorbell::new());
            assert!(bell.arm(Bed::Shared, || ()));
            let other = {
                let bell = bell.clone();
                loom::thread::spawn(move || u32::from(bell.ring().is_any()))
            };
            let mine = u32::from(bell.ring().is_any());
            assert_eq!(mine + other.join().unwrap(), 1);
        });
    }
}
