//! The bits of an element as the CPU handles them: how they lie in memory, and their atomic
//! updates where the CPU has such.

use ofi_core::AtomicOp;
use ofi_sync::primitive::real::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The bits of an element.
pub(super) trait Word: Copy + Eq {
    /// The bits at an offset in memory; zeros if the bytes end before.
    fn take(bytes: &[u8], at: usize) -> Self;
    /// Writes them to an offset in memory, unless the bytes end before.
    fn put(self, bytes: &mut [u8], at: usize);
    /// Bits that are set in either.
    fn or(self, other: Self) -> Self;
    /// Bits that are set in both.
    fn and(self, other: Self) -> Self;
    /// Bits that are set in one.
    fn xor(self, other: Self) -> Self;
    /// Bits that are not set.
    fn not(self) -> Self;

    /// Replaces the word by what `step` makes of it, atomically with the CPU's own accesses; leaves
    /// it if that is `None`. Returns the word before; `None` if the CPU cannot do it there.
    ///
    /// # Safety
    /// The word is readable and, if `step` returns any, writable.
    unsafe fn update(place: *mut u8, step: impl FnMut(Self) -> Option<Self>) -> Option<Self>;

    /// Carries out an operation on integers by one instruction. Returns the word before; `None` if
    /// the CPU has no such instruction, or not there.
    ///
    /// # Safety
    /// The word is readable and writable.
    unsafe fn fetch(_place: *mut u8, _op: AtomicOp, _operand: Self, _compare: Self) -> Option<Self> {
        None
    }
}

/// A word whose pairs are words: the parts of a complex number.
pub(super) trait Half: Word {
    /// Two of them.
    type Pair: Word;

    /// The two, in the order in which they lie in memory.
    fn join(first: Self, second: Self) -> Self::Pair;
    /// The two of a pair.
    fn split(pair: Self::Pair) -> (Self, Self);
}

// The first part of a pair is its lower half.
const _: () = assert!(cfg!(target_endian = "little"));

/// Implements what the unsigned integers have in common.
macro_rules! bits_of_integer {
    () => {
        #[inline]
        fn take(bytes: &[u8], at: usize) -> Self {
            bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| Self::from_ne_bytes(*bytes))
        }

        #[inline]
        fn put(self, bytes: &mut [u8], at: usize) {
            if let Some(bytes) = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
                *bytes = self.to_ne_bytes();
            }
        }

        fn or(self, other: Self) -> Self {
            self | other
        }

        fn and(self, other: Self) -> Self {
            self & other
        }

        fn xor(self, other: Self) -> Self {
            self ^ other
        }

        fn not(self) -> Self {
            !self
        }
    };
}

macro_rules! native_word {
    ($($word:ty: $atomic:ty),*) => {$(
        impl Word for $word {
            bits_of_integer!();

            #[inline]
            unsafe fn update(place: *mut u8, mut step: impl FnMut(Self) -> Option<Self>) -> Option<Self> {
                if !place.addr().is_multiple_of(size_of::<Self>()) {
                    return None;
                }
                // SAFETY: it is aligned, and accessible by this function's contract.
                let word = unsafe { <$atomic>::from_ptr(place.cast()) };
                // Acquire and Release, here and below: for the application's own atomics.
                let mut seen = word.load(Ordering::Acquire);
                while let Some(next) = step(seen) {
                    match word.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => break,
                        Err(now) => seen = now,
                    }
                }
                Some(seen)
            }

            #[inline]
            unsafe fn fetch(place: *mut u8, op: AtomicOp, operand: Self, compare: Self) -> Option<Self> {
                if !place.addr().is_multiple_of(size_of::<Self>()) {
                    return None;
                }
                // SAFETY: it is aligned, and accessible by this function's contract.
                let word = unsafe { <$atomic>::from_ptr(place.cast()) };
                Some(match op {
                    AtomicOp::Sum => word.fetch_add(operand, Ordering::AcqRel),
                    AtomicOp::Diff => word.fetch_sub(operand, Ordering::AcqRel),
                    AtomicOp::Bor => word.fetch_or(operand, Ordering::AcqRel),
                    AtomicOp::Band => word.fetch_and(operand, Ordering::AcqRel),
                    AtomicOp::Bxor => word.fetch_xor(operand, Ordering::AcqRel),
                    AtomicOp::Write => word.swap(operand, Ordering::AcqRel),
                    AtomicOp::Cswap => {
                        let swapped = word.compare_exchange(compare, operand, Ordering::AcqRel, Ordering::Acquire);
                        swapped.unwrap_or_else(|seen| seen)
                    }
                    AtomicOp::Min | AtomicOp::Max | AtomicOp::Prod | AtomicOp::Lor | AtomicOp::Land => return None,
                    AtomicOp::Lxor | AtomicOp::Read | AtomicOp::Mswap | AtomicOp::CswapNe => return None,
                    AtomicOp::CswapLe | AtomicOp::CswapLt | AtomicOp::CswapGe | AtomicOp::CswapGt => return None,
                })
            }
        }
    )*};
}

native_word!(u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

impl Word for u128 {
    bits_of_integer!();

    unsafe fn update(place: *mut u8, mut step: impl FnMut(Self) -> Option<Self>) -> Option<Self> {
        let place = place.cast::<Self>();
        if !place.addr().is_multiple_of(size_of::<Self>()) || !wide::exists() {
            return None;
        }
        // SAFETY: it is aligned, and readable by this function's contract; the CPU has the
        // instructions.
        let mut seen = unsafe { wide::load(place) };
        while let Some(next) = step(seen) {
            // SAFETY: as above, and it is writable.
            let now = unsafe { wide::exchange(place, seen, next) };
            if now == seen {
                break;
            }
            seen = now;
        }
        Some(seen)
    }
}

/// Atomic accesses of 16 bytes.
#[cfg(target_arch = "x86_64")]
mod wide {
    use super::Half;
    use core::arch::asm;
    use core::arch::x86_64::__m128i;

    /// Whether the CPU has them. Those with AVX load aligned 16 bytes atomically, as their makers
    /// document: an exchange would need memory that is writable.
    #[inline]
    pub(super) fn exists() -> bool {
        is_x86_feature_detected!("cmpxchg16b") && is_x86_feature_detected!("avx")
    }

    /// Loads the word.
    ///
    /// # Safety
    /// It is aligned and readable, and the CPU has these accesses.
    #[inline]
    pub(super) unsafe fn load(place: *const u128) -> u128 {
        let word: __m128i;
        // SAFETY: reads 16 aligned bytes that are readable by this function's contract.
        unsafe {
            asm!("movdqa {}, xmmword ptr [{}]", out(xmm_reg) word, in(reg) place, options(nostack, preserves_flags));
        }
        // SAFETY: both are 16 bytes of bits.
        unsafe { core::mem::transmute::<__m128i, u128>(word) }
    }

    /// Replaces the word by `new` if it is `old`; returns what it was.
    ///
    /// # Safety
    /// It is aligned and writable, and the CPU has these accesses.
    #[inline]
    pub(super) unsafe fn exchange(place: *mut u128, old: u128, new: u128) -> u128 {
        let ((mut low, mut high), (new_low, new_high)) = (u64::split(old), u64::split(new));
        // SAFETY: accesses 16 aligned bytes that are writable by this function's contract. The
        // instruction wants the lower half in rbx, which the compiler keeps for itself.
        unsafe {
            asm!(
                "xchg {new_low}, rbx",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "mov rbx, {new_low}",
                new_low = inout(reg) new_low => _,
                in("rcx") new_high,
                in("rdi") place,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        u64::join(low, high)
    }
}

/// Other machines have none that we use.
#[cfg(not(target_arch = "x86_64"))]
mod wide {
    pub(super) fn exists() -> bool {
        false
    }

    pub(super) unsafe fn load(_place: *const u128) -> u128 {
        unreachable!("not without `exists`")
    }

    pub(super) unsafe fn exchange(_place: *mut u128, _old: u128, _new: u128) -> u128 {
        unreachable!("not without `exists`")
    }
}

/// Two words of 16 bytes: no CPU updates them at once.
impl Word for [u128; 2] {
    fn take(bytes: &[u8], at: usize) -> Self {
        [u128::take(bytes, at), u128::take(bytes, at.saturating_add(size_of::<u128>()))]
    }

    fn put(self, bytes: &mut [u8], at: usize) {
        self[0].put(bytes, at);
        self[1].put(bytes, at.saturating_add(size_of::<u128>()));
    }

    fn or(self, other: Self) -> Self {
        [self[0] | other[0], self[1] | other[1]]
    }

    fn and(self, other: Self) -> Self {
        [self[0] & other[0], self[1] & other[1]]
    }

    fn xor(self, other: Self) -> Self {
        [self[0] ^ other[0], self[1] ^ other[1]]
    }

    fn not(self) -> Self {
        self.map(|half| !half)
    }

    unsafe fn update(_place: *mut u8, _step: impl FnMut(Self) -> Option<Self>) -> Option<Self> {
        None
    }
}

macro_rules! half_of_integer {
    ($($half:ty: $pair:ty),*) => {$(
        impl Half for $half {
            type Pair = $pair;

            fn join(first: Self, second: Self) -> $pair {
                <$pair>::from(first) | <$pair>::from(second) << Self::BITS
            }

            #[allow(clippy::cast_possible_truncation, reason = "the lower half is one of the two")]
            fn split(pair: $pair) -> (Self, Self) {
                (pair as Self, (pair >> Self::BITS) as Self)
            }
        }
    )*};
}

half_of_integer!(u32: u64, u64: u128);

impl Half for u128 {
    type Pair = [Self; 2];

    fn join(first: Self, second: Self) -> [Self; 2] {
        [first, second]
    }

    fn split(pair: [Self; 2]) -> (Self, Self) {
        (pair[0], pair[1])
    }
}
