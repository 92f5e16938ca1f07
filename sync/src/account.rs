//! Memory that an endpoint holds for its peers, charged against one limit. The engine and the
//! transport of an endpoint share an account.

use crate::primitive::{AtomicUsize, Ordering};

/// Bytes held for peers, and their limit.
#[derive(Debug)]
pub struct Account {
    limit: usize,
    used: AtomicUsize,
}

impl Account {
    /// An empty account.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
    }

    /// The limit in bytes.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes held. Only [`Self::charge`] exceeds the limit.
    pub fn used(&self) -> usize {
        // Relaxed, here and below: it counts, and orders nothing. An endpoint's parts change it
        // under the endpoint's lock.
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may still be charged.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    /// Charges bytes that are already held, even beyond the limit.
    pub fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Charges bytes if there is room for them.
    #[must_use]
    pub fn try_charge(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Releases charged bytes.
    pub fn release(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released {bytes} bytes, but only {before} are charged");
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_charges_for_held_memory_exceed_the_limit() {
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
