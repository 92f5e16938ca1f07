//! The handshake between a thread that sleeps on a descriptor and those that wake it: a wake-up
//! costs a system call only if the thread sleeps, and none is lost.

use crate::primitive::{AtomicBool, Ordering};

/// A thread's wake-ups.
#[derive(Debug)]
pub struct Nap {
    woken: AtomicBool,
    asleep: AtomicBool,
}

impl Default for Nap {
    fn default() -> Self {
        Self { woken: AtomicBool::new(false), asleep: AtomicBool::new(false) }
    }
}

impl Nap {
    /// Wakes the thread; on true the caller makes its descriptor readable, for it may sleep.
    #[inline]
    #[must_use = "on true the thread sleeps until its descriptor is readable"]
    pub fn wake(&self) -> bool {
        // SeqCst, as in `lie_down`: either this sees the sleeper, or the sleeper sees this.
        set(&self.woken, true);
        get(&self.asleep)
    }

    /// Whether the thread was woken since [`Self::begin`].
    #[inline]
    pub fn is_woken(&self) -> bool {
        get(&self.woken)
    }

    /// The thread is about to look at what it may be woken for. Only the thread itself calls this,
    /// and the functions below.
    #[inline]
    pub fn begin(&self) {
        // A swap, not a store: it acquires what a waker has done whose wake-up it takes back.
        self.woken.swap(false, Ordering::SeqCst);
    }

    /// The thread goes to sleep on its descriptor; not if this is false: it was woken.
    #[must_use = "on false the thread was woken"]
    pub fn lie_down(&self) -> bool {
        set(&self.asleep, true);
        !self.is_woken()
    }

    /// The thread is up again, or has not slept. It clears its descriptor after this: wakers that
    /// have not seen this make it readable once more.
    pub fn get_up(&self) {
        set(&self.asleep, false);
    }
}

/// Sequentially consistent accesses have one order. Loom does not know that, nor that a store
/// cannot come between the two halves of a swap, so it gets swaps only: they see the latest value.
#[inline(always)]
fn set(word: &AtomicBool, value: bool) {
    #[cfg(ofi_loom)]
    word.swap(value, Ordering::SeqCst);
    #[cfg(not(ofi_loom))]
    word.store(value, Ordering::SeqCst);
}

/// The same for a look at a word.
#[inline(always)]
fn get(word: &AtomicBool) -> bool {
    #[cfg(ofi_loom)]
    return word.fetch_or(false, Ordering::SeqCst);
    #[cfg(not(ofi_loom))]
    word.load(Ordering::SeqCst)
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeping_thread_needs_a_signal() {
        let nap = Nap::default();
        nap.begin();
        assert!(!nap.is_woken() && nap.lie_down());
        assert!(nap.wake() && nap.is_woken());
        nap.get_up();
        assert!(!nap.wake(), "it is up");
        assert!(!nap.lie_down(), "it was woken");
    }
}

#[cfg(all(test, ofi_loom))]
mod models {
    use super::*;
    use crate::primitive::Arc;
    use loom::sync::Notify;

    /// A thread waits until another one has finished two pieces of work, each of which wakes it.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let all = Arc::new((Nap::default(), AtomicBool::new(false), Notify::new()));
            let worker = {
                let all = all.clone();
                loom::thread::spawn(move || {
                    let (nap, done, descriptor) = &*all;
                    for last in [false, true] {
                        done.store(last, Ordering::Relaxed);
                        if nap.wake() {
                            descriptor.notify();
                        }
                    }
                })
            };
            let (nap, done, descriptor) = &*all;
            loop {
                nap.begin();
                if done.load(Ordering::Relaxed) {
                    break;
                }
                while !nap.is_woken() {
                    if nap.lie_down() {
                        // Loom fails if the thread sleeps for ever.
                        descriptor.wait();
                    }
                    nap.get_up();
                }
            }
            worker.join().unwrap();
        });
    }
}
