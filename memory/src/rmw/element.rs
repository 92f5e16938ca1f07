//! The computations of the operations: one function of target, operand and compare value, over the
//! arithmetic of each datatype.
//!
//! Integers wrap. Real and complex numbers follow C: a comparison with a NaN is false, so that MIN,
//! MAX and the ordered swaps leave the target as it is, and CSWAP_NE swaps; -0 equals 0, is not
//! smaller, and is false; a NaN is true. Results that are NaN are quiet, with any sign and payload.
//! Values that are only moved keep their bits.

use super::word::{Half, Word};
use ofi_core::AtomicOp;

/// A value of a datatype.
pub(super) trait Element: Copy {
    /// Its bits in memory.
    type Bits: Word;
    /// Sums, differences and equality are those of the bits.
    const INTEGER: bool = false;

    /// The value with these bits.
    fn from_bits(bits: Self::Bits) -> Self;
    /// Its bits.
    fn to_bits(self) -> Self::Bits;
    /// 1 or 0.
    fn truth(truth: bool) -> Self;
    /// Whether it is not 0.
    fn is_true(self) -> bool;
    /// `self` + `other`.
    fn sum(self, other: Self) -> Self;
    /// `self` - `other`.
    fn difference(self, other: Self) -> Self;
    /// `self` * `other`.
    fn product(self, other: Self) -> Self;
    /// `self` == `other`.
    fn equals(self, other: Self) -> bool;
    /// `self` < `other`. Complex numbers have no order.
    fn less(self, other: Self) -> bool;
}

/// The target's new value, or `None` if it stays as it is. The caller has checked that the
/// operation goes with the datatype.
#[inline]
pub(super) fn step<T: Element>(op: AtomicOp, target: T, operand: T, compare: T) -> Option<T> {
    let bits = |combine: fn(T::Bits, T::Bits) -> T::Bits| T::from_bits(combine(target.to_bits(), operand.to_bits()));
    match op {
        AtomicOp::Min => operand.less(target).then_some(operand),
        AtomicOp::Max => target.less(operand).then_some(operand),
        AtomicOp::Sum => Some(target.sum(operand)),
        AtomicOp::Diff => Some(target.difference(operand)),
        AtomicOp::Prod => Some(target.product(operand)),
        AtomicOp::Lor => Some(T::truth(target.is_true() || operand.is_true())),
        AtomicOp::Land => Some(T::truth(target.is_true() && operand.is_true())),
        AtomicOp::Lxor => Some(T::truth(target.is_true() != operand.is_true())),
        AtomicOp::Bor => Some(bits(T::Bits::or)),
        AtomicOp::Band => Some(bits(T::Bits::and)),
        AtomicOp::Bxor => Some(bits(T::Bits::xor)),
        AtomicOp::Read => None,
        AtomicOp::Write => Some(operand),
        AtomicOp::Cswap => compare.equals(target).then_some(operand),
        AtomicOp::CswapNe => (!compare.equals(target)).then_some(operand),
        AtomicOp::CswapLe => (compare.less(target) || compare.equals(target)).then_some(operand),
        AtomicOp::CswapLt => compare.less(target).then_some(operand),
        AtomicOp::CswapGe => (target.less(compare) || compare.equals(target)).then_some(operand),
        AtomicOp::CswapGt => target.less(compare).then_some(operand),
        AtomicOp::Mswap => {
            let mask = compare.to_bits();
            Some(T::from_bits(operand.to_bits().and(mask).or(target.to_bits().and(mask.not()))))
        }
    }
}

macro_rules! integer {
    ($($type:ty: $bits:ty),*) => {$(
        impl Element for $type {
            type Bits = $bits;
            const INTEGER: bool = true;

            fn from_bits(bits: $bits) -> Self {
                Self::from_ne_bytes(bits.to_ne_bytes())
            }

            fn to_bits(self) -> $bits {
                <$bits>::from_ne_bytes(self.to_ne_bytes())
            }

            fn truth(truth: bool) -> Self {
                Self::from(truth)
            }

            fn is_true(self) -> bool {
                self != 0
            }

            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn difference(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn equals(self, other: Self) -> bool {
                self == other
            }

            fn less(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}

integer!(i8: u8, u8: u8, i16: u16, u16: u16, i32: u32, u32: u32, i64: u64, u64: u64, i128: u128, u128: u128);

/// A real number: a part of a complex one.
pub(super) trait Real: Element {
    /// Without end.
    const INFINITY: Self;

    /// Whether it is not a number.
    fn is_nan(self) -> bool;
    /// Whether it is infinite.
    fn is_infinite(self) -> bool;
    /// The value with the sign of another.
    fn with_sign_of(self, other: Self) -> Self;
}

macro_rules! float {
    ($($type:ty: $bits:ty),*) => {$(
        impl Element for $type {
            type Bits = $bits;

            fn from_bits(bits: $bits) -> Self {
                Self::from_bits(bits)
            }

            fn to_bits(self) -> $bits {
                self.to_bits()
            }

            fn truth(truth: bool) -> Self {
                Self::from(truth)
            }

            fn is_true(self) -> bool {
                self != 0.0
            }

            fn sum(self, other: Self) -> Self {
                self + other
            }

            fn difference(self, other: Self) -> Self {
                self - other
            }

            fn product(self, other: Self) -> Self {
                self * other
            }

            fn equals(self, other: Self) -> bool {
                self == other
            }

            fn less(self, other: Self) -> bool {
                self < other
            }
        }

        impl Real for $type {
            const INFINITY: Self = Self::INFINITY;

            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_infinite(self) -> bool {
                self.is_infinite()
            }

            fn with_sign_of(self, other: Self) -> Self {
                self.copysign(other)
            }
        }
    )*};
}

float!(f32: u32, f64: u64);

/// A complex number: its real and its imaginary part.
#[derive(Clone, Copy)]
pub(super) struct Complex<R>(R, R);

impl<R: Real> Complex<R> {
    /// The value of a product whose parts are both NaN: infinite if a factor is, or if a part of
    /// the product overflowed (C11, annex G.5.1).
    fn recovered(self, other: Self, overflowed: bool) -> Option<Self> {
        let (zero, one) = (R::truth(false), R::truth(true));
        // A corner of the square that stands for all infinite numbers, and a factor without NaN.
        let corner = |part: R| if part.is_infinite() { one } else { zero }.with_sign_of(part);
        let defined = |part: R| if part.is_nan() { zero.with_sign_of(part) } else { part };
        let (mut left, mut right) = (self, other);
        let is_infinite = |number: Self| number.0.is_infinite() || number.1.is_infinite();
        if is_infinite(left) {
            left = Self(corner(left.0), corner(left.1));
            right = Self(defined(right.0), defined(right.1));
        }
        if is_infinite(right) {
            right = Self(corner(right.0), corner(right.1));
            left = Self(defined(left.0), defined(left.1));
        }
        if !is_infinite(self) && !is_infinite(other) {
            if !overflowed {
                return None;
            }
            left = Self(defined(left.0), defined(left.1));
            right = Self(defined(right.0), defined(right.1));
        }
        let real = left.0.product(right.0).difference(left.1.product(right.1));
        let imaginary = left.0.product(right.1).sum(left.1.product(right.0));
        Some(Self(R::INFINITY.product(real), R::INFINITY.product(imaginary)))
    }
}

impl<R: Real> Element for Complex<R>
where
    R::Bits: Half,
{
    type Bits = <R::Bits as Half>::Pair;

    fn from_bits(bits: Self::Bits) -> Self {
        let (real, imaginary) = R::Bits::split(bits);
        Self(R::from_bits(real), R::from_bits(imaginary))
    }

    fn to_bits(self) -> Self::Bits {
        R::Bits::join(self.0.to_bits(), self.1.to_bits())
    }

    fn truth(truth: bool) -> Self {
        Self(R::truth(truth), R::truth(false))
    }

    fn is_true(self) -> bool {
        self.0.is_true() || self.1.is_true()
    }

    fn sum(self, other: Self) -> Self {
        Self(self.0.sum(other.0), self.1.sum(other.1))
    }

    fn difference(self, other: Self) -> Self {
        Self(self.0.difference(other.0), self.1.difference(other.1))
    }

    fn product(self, other: Self) -> Self {
        let (reals, imaginaries) = (self.0.product(other.0), self.1.product(other.1));
        let (outer, inner) = (self.0.product(other.1), self.1.product(other.0));
        let product = Self(reals.difference(imaginaries), outer.sum(inner));
        if !product.0.is_nan() || !product.1.is_nan() {
            return product;
        }
        let overflowed = [reals, imaginaries, outer, inner].into_iter().any(R::is_infinite);
        self.recovered(other, overflowed).unwrap_or(product)
    }

    fn equals(self, other: Self) -> bool {
        self.0.equals(other.0) && self.1.equals(other.1)
    }

    fn less(self, _other: Self) -> bool {
        false
    }
}
