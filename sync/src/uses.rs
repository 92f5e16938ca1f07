//! Counts the uses of something that can be closed: once it is closed, no use begins, and the
//! closing thread learns when the last one has ended.

use crate::primitive::{AtomicUsize, Ordering};

/// Set once closed; the other bits are the number of uses.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// The uses of a thing, and whether it is closed.
#[derive(Debug)]
pub struct Uses(AtomicUsize);

impl Default for Uses {
    fn default() -> Self {
        Self::new()
    }
}

impl Uses {
    /// Open, and not in use.
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Begins a use. False if it is closed; otherwise [`Self::end`] must follow.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> bool {
        // Acquire pairs with the Release in `reopen`. As for `close`: this and the other changes
        // are read-modify-writes of one word, so either this one sees the closed bit, or the thread
        // that set it sees the use.
        if self.0.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
            return true;
        }
        self.end();
        false
    }

    /// Ends a use.
    #[inline]
    pub fn end(&self) {
        // Release pairs with the Acquire in `is_idle`: what the use did is over by then.
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert!(before & !CLOSED > 0, "a use ended that had not begun");
    }

    /// Lets no use begin any more.
    pub fn close(&self) {
        // Relaxed: it orders nothing by itself, see `begin` and `is_idle`.
        self.0.fetch_or(CLOSED, Ordering::Relaxed);
    }

    /// Lets uses begin again.
    pub fn reopen(&self) {
        // Release pairs with the Acquire in `begin`.
        self.0.fetch_and(!CLOSED, Ordering::Release);
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        // Relaxed: it may be closed right afterwards anyway.
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Whether no use is in progress. Once closed, this stays true, except for moments in which a
    /// use tries to begin.
    pub fn is_idle(&self) -> bool {
        // Acquire pairs with the Release in `end`.
        self.0.load(Ordering::Acquire) & !CLOSED == 0
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_use_begins_after_the_close() {
        let uses = Uses::new();
        assert!(uses.begin() && !uses.is_idle() && !uses.is_closed());
        uses.close();
        assert!(!uses.begin() && !uses.is_idle() && uses.is_closed());
        uses.end();
        assert!(uses.is_idle());
        uses.reopen();
        assert!(uses.begin());
        uses.end();
    }
}

#[cfg(all(test, ofi_loom))]
mod models {
    use super::*;
    use crate::primitive::{Arc, AtomicBool};

    /// A thread that finds it idle after closing it may free what the uses touch.
    #[test]
    fn nothing_is_touched_once_closed_and_idle() {
        loom::model(|| {
            let uses = Arc::new(Uses::new());
            let freed = Arc::new(AtomicBool::new(false));
            let user = {
                let (uses, freed) = (uses.clone(), freed.clone());
                loom::thread::spawn(move || {
                    if uses.begin() {
                        assert!(!freed.load(Ordering::Relaxed), "touched after it was freed");
                        uses.end();
                    }
                })
            };
            uses.close();
            if uses.is_idle() {
                freed.store(true, Ordering::Relaxed);
            }
            user.join().unwrap();
        });
    }
}
