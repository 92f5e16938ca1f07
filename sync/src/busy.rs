//! Counts an object's children: fi_close(3) fails with -FI_EBUSY while there are any.

use crate::primitive::{Arc, AtomicUsize, Ordering};

/// A parent's count of children.
#[derive(Debug, Default)]
pub struct Children(Arc<AtomicUsize>);

/// A child: keeps its parent busy until dropped.
#[derive(Debug)]
pub struct Child(Arc<AtomicUsize>);

impl Children {
    /// A count of zero.
    pub fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    /// Adds a child.
    pub fn add(&self) -> Child {
        // Relaxed: the count orders nothing; a close that races with an open is the application's
        // own race.
        self.0.fetch_add(1, Ordering::Relaxed);
        Child(self.0.clone())
    }

    /// The number of children.
    pub fn count(&self) -> usize {
        // Acquire pairs with the Release in `Child::drop`: a child's accesses are over once it is
        // no longer counted.
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `Children::count`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::*;

    #[test]
    fn children_are_counted() {
        let children = Children::new();
        let (a, b) = (children.add(), children.add());
        assert_eq!(children.count(), 2);
        drop(a);
        drop(b);
        assert_eq!(children.count(), 0);
    }
}
