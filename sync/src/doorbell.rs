//! Wakes all who sleep over one descriptor, and costs a load when nobody does.
//!
//! A sleeper arms the bell, then looks at what it waits for, then sleeps on the descriptor; the waker makes its change,
//! then rings. One of the two sees the other: that is the store-load pattern, so both sides fence, unless the change
//! and the look are made under one lock. The descriptor stays readable until somebody arms the bell while nobody else
//! sleeps, so that one ring wakes all.
//! Watchers sleep on the descriptor without telling when they wake, so that what they are rung for must stay: where there
//! are any, sleepers have a descriptor apart.

use crate::primitive::{AtomicU32, Mutex, Ordering, fence};
use std::sync::PoisonError;

/// The shared descriptor was written since it was last drained.
const RUNG: u32 = 1;
/// The same of the descriptor apart.
const RUNG_APART: u32 = 2;
/// Somebody outside may sleep on the shared descriptor at any time.
const WATCHED: u32 = 4;
/// One sleeper on the shared descriptor; 15 bits count them.
const SLEEPER: u32 = 8;
const SLEEPERS: u32 = APART - SLEEPER;
/// One sleeper on the descriptor apart; the bits from here on count them.
const APART: u32 = 1 << 18;
const APARTS: u32 = !(APART - 1);

/// Which of two descriptors a sleeper sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bed {
    /// The one that watchers sleep on, too.
    Shared,
    /// One beside it, for sleepers where there are watchers: what wakes a sleeper for less than it waits for may be what a
    /// watcher waits for, so a sleeper must not drain the watchers' descriptor.
    Apart,
}

/// Which descriptors a waker must write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Due(u32);

impl Due {
    const NONE: Self = Self(0);

    /// Whether there is any.
    #[inline(always)]
    pub const fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Whether it is due.
    pub const fn has(self, bed: Bed) -> bool {
        let bit = match bed {
            Bed::Shared => RUNG,
            Bed::Apart => RUNG_APART,
        };
        self.0 & bit != 0
    }
}

/// The sleepers that can be woken through a descriptor.
#[derive(Debug)]
pub struct Doorbell {
    state: AtomicU32,
    /// Held while a descriptor is drained: no sleeper begins meanwhile.
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

    /// Whether somebody has watched: sleepers sleep apart from then on.
    pub fn is_watched(&self) -> bool {
        // Relaxed: `arm` looks again under the gate.
        self.state.load(Ordering::Relaxed) & WATCHED != 0
    }

    /// Announces that the caller will look once more and then sleep, until it calls [`Self::disarm`]. `drain` makes the
    /// descriptor unreadable, written or not. False if it cannot sleep there, because somebody watches the descriptor;
    /// then nothing has happened.
    #[must_use]
    pub fn arm(&self, bed: Bed, drain: impl FnOnce()) -> bool {
        match bed {
            Bed::Shared => self.announce((SLEEPERS, RUNG, WATCHED), drain, |state| state + SLEEPER),
            Bed::Apart => self.announce((APARTS, RUNG_APART, 0), drain, |state| state + APART),
        }
    }

    /// Announces that somebody may sleep on the shared descriptor from now on, of whose waking nobody will tell.
    pub fn watch(&self, drain: impl FnOnce()) {
        let announced = self.announce((SLEEPERS, RUNG, 0), drain, |state| state | WATCHED);
        debug_assert!(announced, "nothing keeps one from watching");
    }

    /// `bits`: who else sleeps there, whether it was written, and what forbids it.
    fn announce(
        &self,
        (others, rung, forbidden): (u32, u32, u32),
        drain: impl FnOnce(),
        change: impl Fn(u32) -> u32,
    ) -> bool {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: sleepers and watchers come under the gate, and one that goes needs no ring.
        let mut state = self.state.load(Ordering::Relaxed);
        if state & forbidden != 0 {
            return false;
        }
        // Others may have been rung for and not be awake yet: then it is not for this one to drain.
        let alone = state & others == 0;
        if alone {
            // Always, for a waker writes only after it has set the bit, and perhaps long after.
            drain();
        }
        loop {
            let kept = if alone { state & !rung } else { state };
            // Acquire and Release: whoever rings for this sleeper writes the descriptor after it was drained.
            match self.state.compare_exchange_weak(state, change(kept), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        drop(gate);
        // Pairs with the fence in `ring`: either the load there sees this, or the look that follows sees the change.
        fence(Ordering::SeqCst);
        true
    }

    /// To be called after the change: which descriptors the caller must write now.
    pub fn ring(&self) -> Due {
        // Pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        self.ring_after_lock()
    }

    /// [`Self::ring`] where the change was made under the lock under which sleepers look.
    #[inline]
    pub fn ring_after_lock(&self) -> Due {
        // Relaxed: see `ring`; the lock orders it otherwise.
        if self.state.load(Ordering::Relaxed) < WATCHED { Due::NONE } else { self.ring_somebody() }
    }

    #[cold]
    fn ring_somebody(&self) -> Due {
        const fn due(state: u32) -> u32 {
            let shared = if state & (WATCHED | SLEEPERS) != 0 { RUNG } else { 0 };
            let apart = if state & APARTS != 0 { RUNG_APART } else { 0 };
            (shared | apart) & !state
        }
        // Acquire pairs with the Release in `announce`. Of several wakers one writes.
        let change = |state: u32| (due(state) != 0).then_some(state | due(state));
        let rung = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
        rung.map_or(Due::NONE, |state| Due(due(state)))
    }

    /// The sleeper is awake.
    pub fn disarm(&self, bed: Bed) {
        let one = match bed {
            Bed::Shared => SLEEPER,
            Bed::Apart => APART,
        };
        // Relaxed: it only counts.
        self.state.fetch_sub(one, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Bed::{Apart, Shared};

    const SHARED: Due = Due(RUNG);
    const BOTH: Due = Due(RUNG | RUNG_APART);

    #[test]
    fn rings_once_for_all_who_sleep() {
        for bed in [Shared, Apart] {
            let bell = Doorbell::new();
            assert!(!bell.ring().is_any());
            assert!(bell.arm(bed, || ()) && bell.arm(bed, || ()));
            assert!(bell.ring().has(bed));
            assert!(!bell.ring().is_any());
            bell.disarm(bed);
            // The other has not woken yet: the descriptor stays as it is.
            assert!(bell.arm(bed, || panic!("drained too early")));
            bell.disarm(bed);
            bell.disarm(bed);
            assert!(!bell.ring().is_any());
            let mut drained = false;
            assert!(bell.arm(bed, || drained = true));
            assert!(drained && bell.ring().has(bed));
        }
    }

    #[test]
    fn one_who_gives_up_leaves_the_others_to_be_woken() {
        let bell = Doorbell::new();
        assert!(bell.arm(Shared, || ()) && bell.arm(Shared, || ()));
        bell.disarm(Shared);
        assert_eq!(bell.ring(), SHARED);
    }

    #[test]
    fn who_watches_is_rung_for_ever_after() {
        let bell = Doorbell::new();
        bell.watch(|| ());
        assert_eq!(bell.ring(), SHARED);
        assert!(!bell.ring().is_any());
        bell.watch(|| ());
        assert_eq!(bell.ring(), SHARED);
    }

    #[test]
    fn where_somebody_watches_sleepers_sleep_apart() {
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

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::{Arc, AtomicBool};

    /// A bell over a descriptor, with something to wait for.
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

    /// A reader that sleeps until there are two: true if it sleeps now on the descriptor apart, None if it may sleep on
    /// neither yet.
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
                    // Woken for less than it waits for.
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
