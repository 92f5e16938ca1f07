//! Atomics and locks of the standard library, or of loom for model checking (`--cfg ofi_loom`).

#[cfg(ofi_loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(ofi_loom)]
pub use loom::sync::{Arc, Condvar, Mutex};
#[cfg(not(ofi_loom))]
#[allow(clippy::disallowed_types, reason = "this module is the replacement")]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(ofi_loom))]
pub use std::sync::{Arc, Condvar, Mutex};

/// The processor's own, also in a model: for statics, which are there before it begins, and for
/// words of memory that the caller has not made, such as the application's.
pub mod real {
    #[allow(clippy::disallowed_types, reason = "this module is the replacement")]
    pub use std::sync::Mutex;
    #[allow(clippy::disallowed_types, reason = "this module is the replacement")]
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
}
