//! What an endpoint holds for its peers, against one limit: the engine and the transport of an endpoint share an account.

use crate::primitive::{AtomicUsize, Ordering};

/// Bytes that are held, and how many may be.
#[derive(Debug)]
pub struct Account {
    limit: usize,
    used: AtomicUsize,
}

impl Account {
    /// An account of which nothing is used.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
    }

    /// Bytes that may be held.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are held. More than the limit only by what was held before it was charged.
    pub fn used(&self) -> usize {
        // Relaxed, here and below: it counts, and orders nothing. An endpoint's parts change it under the endpoint's lock.
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be charged.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    /// Charges bytes that are held already, whether or not there is room.
    pub fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Charges bytes if there is room for them.
    #[must_use]
    pub fn try_charge(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Bytes are held no longer.
    pub fn release(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes are released of {before}");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_held_already_exceeds_the_limit() {
        let account = Account::new(100);
        assert!(account.try_charge(60));
        assert!(!account.try_charge(41));
        assert!(!account.try_charge(usize::MAX));
        assert_eq!((account.used(), account.room()), (60, 40));
        account.charge(50);
        assert_eq!((account.used(), account.room()), (110, 0));
        account.release(110);
        assert!(account.try_charge(100));
    }
}
