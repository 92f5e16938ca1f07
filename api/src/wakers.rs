//! Tasks to be woken: without a lock, and each although another one panics.

use core::any::Any;
use core::task::Waker;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Tasks to wake. A turn usually wakes one.
pub(crate) type Wakers = SmallVec<[Waker; 2]>;

/// Wakes tasks.
///
/// # Panics
/// If a waker does; after all others.
pub(crate) fn wake(wakers: Wakers) {
    let mut panics = Panics::default();
    panics.run(wakers, Waker::wake);
    panics.resume();
}

/// The first panic of the application's code: one task's panic is no reason to leave others asleep.
#[derive(Debug, Default)]
pub(crate) struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    /// Does something with each, whether or not that panics.
    pub(crate) fn run<T>(&mut self, items: impl IntoIterator<Item = T>, work: impl Fn(T)) {
        for item in items {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(item))) {
                self.0.get_or_insert(panic);
            }
        }
    }

    /// Goes on with it.
    pub(crate) fn resume(self) {
        if let Some(panic) = self.0 {
            resume_unwind(panic);
        }
    }
}
