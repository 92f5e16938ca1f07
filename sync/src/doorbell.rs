//! Wakes whoever is about to sleep, once, and costs a load when nobody is.
//!
//! The sleeper arms the bell, then looks at what it waits for, then sleeps on a descriptor; the waker makes its change,
//! then rings. One of the two sees the other: that is the store-load pattern, so both sides fence, unless the change
//! and the look are made under one lock.

use crate::primitive::{AtomicU32, Ordering, fence};

const IDLE: u32 = 0;
const ARMED: u32 = 1;
const RUNG: u32 = 2;

/// The state of a sleeper that can be woken through a descriptor.
#[derive(Debug)]
pub struct Doorbell(AtomicU32);

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl Doorbell {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// Announces that the caller will look once more and then sleep.
    pub fn arm(&self) {
        // Leaves RUNG alone: the descriptor is still to be drained, the sleep will end at once.
        // Relaxed: the fences order it.
        let _ = self.0.compare_exchange(IDLE, ARMED, Ordering::Relaxed, Ordering::Relaxed);
        // Pairs with the fence in `ring`: either the load there sees ARMED, or the look that follows sees the change.
        fence(Ordering::SeqCst);
    }

    /// To be called after the change: true if the caller must write the descriptor now.
    pub fn ring(&self) -> bool {
        // Pairs with the fence in `arm`.
        fence(Ordering::SeqCst);
        self.ring_after_lock()
    }

    /// Like [`Self::ring`], without a fence: for changes made under a lock that the sleeper takes to look.
    #[inline]
    pub fn ring_after_lock(&self) -> bool {
        // Relaxed: the lock orders it.
        self.0.load(Ordering::Relaxed) == ARMED
            && self.0.compare_exchange(ARMED, RUNG, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// After waking, or when the sleep is called off: true if the descriptor was or will be written and must be
    /// drained.
    pub fn disarm(&self) -> bool {
        // Relaxed: the descriptor's own system calls order what they tell.
        self.0.swap(IDLE, Ordering::Relaxed) == RUNG
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rings_once_for_each_sleep() {
        let bell = Doorbell::new();
        assert!(!bell.ring());
        bell.arm();
        assert!(bell.ring());
        assert!(!bell.ring());
        assert!(bell.disarm());
        assert!(!bell.disarm());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::{Arc, AtomicBool, Mutex};

    /// A sleeper that finds nothing and is not rung would sleep for ever.
    #[test]
    fn no_wakeup_is_lost() {
        loom::model(|| {
            let bell = Arc::new(Doorbell::new());
            let ready = Arc::new(AtomicBool::new(false));
            let descriptor = Arc::new(AtomicBool::new(false));
            let waker = {
                let (bell, ready, descriptor) = (bell.clone(), ready.clone(), descriptor.clone());
                loom::thread::spawn(move || {
                    ready.store(true, Ordering::Relaxed);
                    if bell.ring() {
                        descriptor.store(true, Ordering::Relaxed);
                    }
                })
            };
            bell.arm();
            let saw = ready.load(Ordering::Relaxed);
            waker.join().unwrap();
            assert!(saw || descriptor.load(Ordering::Relaxed), "would sleep for ever");
        });
    }

    /// The same with the change under a lock and no fence on the waker's side.
    #[test]
    fn no_wakeup_is_lost_under_a_lock() {
        loom::model(|| {
            let bell = Arc::new(Doorbell::new());
            let ready = Arc::new(Mutex::new(false));
            let descriptor = Arc::new(AtomicBool::new(false));
            let waker = {
                let (bell, ready, descriptor) = (bell.clone(), ready.clone(), descriptor.clone());
                loom::thread::spawn(move || {
                    *ready.lock().unwrap() = true;
                    if bell.ring_after_lock() {
                        descriptor.store(true, Ordering::Relaxed);
                    }
                })
            };
            bell.arm();
            let saw = *ready.lock().unwrap();
            waker.join().unwrap();
            assert!(saw || descriptor.load(Ordering::Relaxed), "would sleep for ever");
        });
    }

    /// Two wakers write the descriptor once, so one drain is enough.
    #[test]
    fn two_wakers_write_once() {
        loom::model(|| {
            let bell = Arc::new(Doorbell::new());
            bell.arm();
            let other = {
                let bell = bell.clone();
                loom::thread::spawn(move || u32::from(bell.ring()))
            };
            let mine = u32::from(bell.ring());
            assert_eq!(mine + other.join().unwrap(), 1);
            assert!(bell.disarm());
        });
    }
}
