//! Atomics and locks, from the standard library or, for model checking (`--cfg loom`), from loom.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::{Arc, Condvar, Mutex};
#[cfg(not(loom))]
#[allow(clippy::disallowed_types, reason = "this module is the replacement")]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::{Arc, Condvar, Mutex};
