//! The identity of the calling thread.
#![allow(unsafe_code)]

/// A number of the calling thread, unique among the running ones: not 0, and a multiple of
/// [`OWNERS`](crate::bias::OWNERS). A later thread may have it again.
#[cfg(all(not(ofi_loom), target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn id() -> usize {
    let id;
    // The block holds pointers, so its address is a multiple of 8.
    // SAFETY: on Linux each x86-64 thread has a thread control block, whose first word is its own
    // address (System V ABI, thread-local storage); reading it changes nothing.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) id, options(pure, readonly, nostack, preserves_flags)) };
    id
}

/// A number of the calling thread, unique among the running ones: not 0, and a multiple of
/// [`OWNERS`](crate::bias::OWNERS). A later thread may have it again.
#[cfg(all(not(ofi_loom), target_arch = "aarch64"))]
#[inline(always)]
pub(crate) fn id() -> usize {
    let id;
    // The block holds pointers, so its address is a multiple of 8.
    // SAFETY: on Linux the register holds the address of the thread's control block; reading it
    // changes nothing.
    unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) id, options(pure, nomem, nostack, preserves_flags)) };
    id
}

/// A number of the calling thread, unique among the running ones: not 0, and a multiple of
/// [`OWNERS`](crate::bias::OWNERS). A later thread may have it again.
#[cfg(all(not(ofi_loom), not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn id() -> usize {
    #[repr(align(8))]
    struct Own(#[expect(dead_code, reason = "only its address matters")] u8);
    std::thread_local! {
        static OWN: Own = const { Own(0) };
    }
    OWN.with(|own| core::ptr::from_ref(own).addr())
}

/// Identifies the calling thread of a model.
#[cfg(ofi_loom)]
pub(crate) fn id() -> usize {
    use core::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    (hasher.finish() as usize | 1) * crate::bias::OWNERS
}

#[cfg(all(test, not(ofi_loom)))]
mod tests {
    use super::id;

    #[test]
    fn threads_differ() {
        let own = id();
        assert_ne!(own, 0);
        assert_eq!(own % crate::bias::OWNERS, 0);
        assert_eq!(own, id());
        std::thread::scope(|scope| {
            let other = scope.spawn(id).join().unwrap();
            assert_ne!(own, other);
        });
    }
}
