//! Floating-point formats that Rust does not have, computed with integers: exactly, then rounded
//! once to nearest, ties to even, whatever the CPU's rounding mode.
//!
//! For the formats of up to 16 bits that is what computing in `float` and rounding the result
//! gives, because a `float` has more than twice their precision. Results that are too large are
//! infinite, but in the 8-bit formats the largest finite number, also for infinite operands: that
//! is how OCP's specification of these formats converts from `float` with saturation.

use super::element::{Element, Real};
use super::word::Word;
use core::cmp::Ordering;
use core::marker::PhantomData;

/// How a format uses the bits of its largest exponent, and how it represents results that are too
/// large.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Top {
    /// Infinities and NaNs; too large is infinite.
    Infinite,
    /// Infinities and NaNs; too large is the largest finite number.
    Saturating,
    /// Numbers, except for one NaN; too large is the largest finite number.
    Numbers,
}

/// A binary format: sign, exponent, significand.
pub(super) trait Format: Copy {
    /// Its bits in memory, which may be more than the format has.
    type Bits: Word + Into<u128> + TryFrom<u128>;
    /// Bits of the exponent.
    const EXPONENT: u32;
    /// Bits of the significand behind the point.
    const FRACTION: u32;
    /// The bit before the point is stored.
    const EXPLICIT: bool = false;
    /// The largest exponent.
    const TOP: Top = Top::Infinite;
}

/// 80 bits of the x87, in 16 bytes.
#[derive(Clone, Copy)]
pub(super) struct X87;
/// IEEE 754 binary16.
#[derive(Clone, Copy)]
pub(super) struct F16;
/// The upper half of a `float`.
#[derive(Clone, Copy)]
pub(super) struct Bf16;
/// OCP E4M3.
#[derive(Clone, Copy)]
pub(super) struct E4M3;
/// OCP E5M2.
#[derive(Clone, Copy)]
pub(super) struct E5M2;

impl Format for X87 {
    type Bits = u128;
    const EXPONENT: u32 = 15;
    const FRACTION: u32 = 63;
    const EXPLICIT: bool = true;
}

impl Format for F16 {
    type Bits = u16;
    const EXPONENT: u32 = 5;
    const FRACTION: u32 = 10;
}

impl Format for Bf16 {
    type Bits = u16;
    const EXPONENT: u32 = 8;
    const FRACTION: u32 = 7;
}

impl Format for E4M3 {
    type Bits = u8;
    const EXPONENT: u32 = 4;
    const FRACTION: u32 = 3;
    const TOP: Top = Top::Numbers;
}

impl Format for E5M2 {
    type Bits = u8;
    const EXPONENT: u32 = 5;
    const FRACTION: u32 = 2;
    const TOP: Top = Top::Saturating;
}

/// A number in a format, by its bits without those that the format does not have.
#[derive(Clone, Copy)]
pub(super) struct Soft<F: Format>(u128, PhantomData<F>);

/// What a number's bits mean, apart from the sign.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Magnitude {
    /// Not a number.
    Nan,
    /// Infinite.
    Infinite,
    /// `significand` * 2^`exponent`; the uppermost bit of the significand is set, unless it is 0.
    Finite { significand: u64, exponent: i32 },
}

/// The meaning of a number's bits.
#[derive(Clone, Copy)]
struct Value {
    negative: bool,
    magnitude: Magnitude,
}

/// The bits below a significand in sums, which keep them exact enough to round.
const GUARD: u32 = 62;

/// Shifts right; if bits are lost that are set, the lowest bit of the result is.
fn shift_right_sticky(bits: u128, count: u32) -> u128 {
    let kept = bits.checked_shr(count).unwrap_or(0);
    let lost = kept.checked_shl(count).unwrap_or(0) != bits;
    kept | u128::from(lost)
}

/// Shifts right and rounds to nearest, ties to even.
fn shift_right_rounded(bits: u128, count: u32) -> u128 {
    // Two bits more tell below, at and above a half apart.
    let quarters = match count {
        0 => bits << 2,
        1 => bits << 1,
        _ => shift_right_sticky(bits, count - 2),
    };
    let (kept, rest) = (quarters >> 2, quarters & 3);
    kept + u128::from(rest == 3 || rest == 2 && kept & 1 == 1)
}

impl<F: Format> Soft<F> {
    /// Stored bits of the significand.
    const STORED: u32 = F::FRACTION + F::EXPLICIT as u32;
    const SIGN: u128 = 1 << (F::EXPONENT + Self::STORED);
    const MAX_EXPONENT: u128 = (1 << F::EXPONENT) - 1;
    const BIAS: i32 = (1 << (F::EXPONENT - 1)) - 1;
    /// The exponent of the lowest bit of the smallest numbers.
    const LOWEST: i32 = 1 - Self::BIAS - F::FRACTION as i32;
    /// The bit before the point.
    const ONE: u128 = 1 << F::FRACTION;
    /// The bits of the largest finite number.
    const LARGEST: u128 = match F::TOP {
        Top::Infinite | Top::Saturating => (Self::MAX_EXPONENT << Self::STORED) - 1,
        Top::Numbers => Self::SIGN - 2,
    };
    /// The bits of infinity; of the largest finite number if results saturate.
    const OVERFLOW: u128 = match F::TOP {
        Top::Infinite => Self::MAX_EXPONENT << Self::STORED | if F::EXPLICIT { Self::ONE } else { 0 },
        Top::Saturating | Top::Numbers => Self::LARGEST,
    };
    /// The bits of a quiet NaN.
    const QUIET: u128 = match F::TOP {
        Top::Infinite => Self::OVERFLOW | Self::ONE >> 1,
        Top::Saturating => Self::MAX_EXPONENT << Self::STORED | Self::ONE >> 1,
        Top::Numbers => Self::SIGN - 1,
    };

    fn value(self) -> Value {
        let stored = self.0 & ((1 << Self::STORED) - 1);
        let exponent = self.0 >> Self::STORED & Self::MAX_EXPONENT;
        let fraction = stored & (Self::ONE - 1);
        let is_top = exponent == Self::MAX_EXPONENT;
        // The x87 takes numbers for invalid that other formats do not have.
        let is_invalid = F::EXPLICIT && exponent > 0 && stored & Self::ONE == 0;
        let magnitude = match F::TOP {
            _ if is_invalid => Magnitude::Nan,
            Top::Infinite | Top::Saturating if is_top && fraction == 0 => Magnitude::Infinite,
            Top::Infinite | Top::Saturating if is_top => Magnitude::Nan,
            Top::Numbers if is_top && fraction == Self::ONE - 1 => Magnitude::Nan,
            Top::Infinite | Top::Saturating | Top::Numbers => {
                let implied = if exponent == 0 || F::EXPLICIT { 0 } else { Self::ONE };
                let significand = u64::try_from(stored | implied).expect("a significand has at most 64 bits");
                let lowest = Self::LOWEST + i32::try_from(exponent.max(1)).expect("an exponent is short") - 1;
                let spare = significand.leading_zeros();
                let significand = significand.checked_shl(spare).unwrap_or(0);
                Magnitude::Finite { significand, exponent: lowest - spare.cast_signed() }
            }
        };
        Value { negative: self.0 & Self::SIGN != 0, magnitude }
    }

    /// The number with these bits and that sign.
    fn signed(bits: u128, negative: bool) -> Self {
        Self(bits | if negative { Self::SIGN } else { 0 }, PhantomData)
    }

    /// `significand` * 2^`exponent`, rounded.
    fn rounded(negative: bool, significand: u128, exponent: i32) -> Self {
        if significand == 0 {
            return Self::signed(0, negative);
        }
        let length = (u128::BITS - significand.leading_zeros()).cast_signed();
        // The exponent of the lowest bit that the format keeps.
        let lowest = (exponent + length - 1 - F::FRACTION.cast_signed()).max(Self::LOWEST);
        let kept = match u32::try_from(lowest - exponent) {
            Ok(count) => shift_right_rounded(significand, count),
            // The number has fewer bits than the format keeps.
            Err(_) => significand << (exponent - lowest).unsigned_abs(),
        };
        // Without its bit before the point a number is subnormal: its exponent is 0. Rounding up
        // to the next power of two leaves a fraction of 0 and carries into the exponent.
        let above = u128::try_from(lowest - Self::LOWEST).expect("at least the lowest");
        let bits = if F::EXPLICIT {
            let (kept, above) = if kept == Self::ONE << 1 { (Self::ONE, above + 1) } else { (kept, above) };
            (above + u128::from(kept >= Self::ONE)) << Self::STORED | kept
        } else {
            (above << Self::STORED) + kept
        };
        Self::signed(if bits > Self::LARGEST { Self::OVERFLOW } else { bits }, negative)
    }

    /// The sum of two numbers, each with a sign of its own.
    fn sum_of(left: Value, right: Value) -> Self {
        let ((left_bits, left_exponent), (right_bits, right_exponent)) = match (left.magnitude, right.magnitude) {
            (Magnitude::Nan, _) | (_, Magnitude::Nan) => return Self(Self::QUIET, PhantomData),
            (Magnitude::Infinite, Magnitude::Infinite) if left.negative != right.negative => {
                return Self(Self::QUIET, PhantomData);
            }
            (Magnitude::Infinite, _) => return Self::signed(Self::OVERFLOW, left.negative),
            (_, Magnitude::Infinite) => return Self::signed(Self::OVERFLOW, right.negative),
            (Magnitude::Finite { significand: a, exponent: b }, Magnitude::Finite { significand: c, exponent: d }) => {
                ((a, b), (c, d))
            }
        };
        if left_bits == 0 && right_bits == 0 {
            return Self::signed(0, left.negative && right.negative);
        }
        // Zero fits any exponent.
        let exponent = match (left_bits, right_bits) {
            (0, _) => right_exponent,
            (_, 0) => left_exponent,
            _ => left_exponent.max(right_exponent),
        };
        let aligned = |bits: u64, own: i32| {
            let behind = u32::try_from(exponent - own).unwrap_or(0);
            shift_right_sticky(u128::from(bits) << GUARD, behind)
        };
        let (a, b) = (aligned(left_bits, left_exponent), aligned(right_bits, right_exponent));
        let (negative, total) = match (left.negative == right.negative, a.cmp(&b)) {
            (true, _) => (left.negative, a + b),
            (false, Ordering::Greater) => (left.negative, a - b),
            (false, Ordering::Less) => (right.negative, b - a),
            (false, Ordering::Equal) => (false, 0),
        };
        Self::rounded(negative, total, exponent - GUARD.cast_signed())
    }

    fn order(self, other: Self) -> Option<Ordering> {
        // Ascending: a magnitude as class, exponent, significand.
        let rank = |magnitude| match magnitude {
            Magnitude::Nan => None,
            Magnitude::Infinite => Some((2, 0, 0)),
            Magnitude::Finite { significand: 0, .. } => Some((0, 0, 0)),
            Magnitude::Finite { significand, exponent } => Some((1, exponent, significand)),
        };
        let (left, right) = (self.value(), other.value());
        let (a, b) = (rank(left.magnitude)?, rank(right.magnitude)?);
        Some(match (left.negative, right.negative) {
            _ if a.0 == 0 && b.0 == 0 => Ordering::Equal,
            (false, false) => a.cmp(&b),
            (true, true) => b.cmp(&a),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        })
    }
}

impl<F: Format> Element for Soft<F> {
    type Bits = F::Bits;

    fn from_bits(bits: F::Bits) -> Self {
        Self(bits.into() & (Self::SIGN | (Self::SIGN - 1)), PhantomData)
    }

    fn to_bits(self) -> F::Bits {
        F::Bits::try_from(self.0).unwrap_or_else(|_| unreachable!("a format fits into its bits"))
    }

    fn truth(truth: bool) -> Self {
        Self::rounded(false, u128::from(truth), 0)
    }

    fn is_true(self) -> bool {
        !matches!(self.value().magnitude, Magnitude::Finite { significand: 0, .. })
    }

    fn sum(self, other: Self) -> Self {
        Self::sum_of(self.value(), other.value())
    }

    fn difference(self, other: Self) -> Self {
        let other = other.value();
        Self::sum_of(self.value(), Value { negative: !other.negative, ..other })
    }

    fn product(self, other: Self) -> Self {
        let (left, right) = (self.value(), other.value());
        let negative = left.negative != right.negative;
        match (left.magnitude, right.magnitude) {
            (Magnitude::Nan, _) | (_, Magnitude::Nan) => Self(Self::QUIET, PhantomData),
            (Magnitude::Infinite, Magnitude::Finite { significand: 0, .. })
            | (Magnitude::Finite { significand: 0, .. }, Magnitude::Infinite) => Self(Self::QUIET, PhantomData),
            (Magnitude::Infinite, _) | (_, Magnitude::Infinite) => Self::signed(Self::OVERFLOW, negative),
            (Magnitude::Finite { significand: a, exponent: b }, Magnitude::Finite { significand: c, exponent: d }) => {
                Self::rounded(negative, u128::from(a) * u128::from(c), b + d)
            }
        }
    }

    fn equals(self, other: Self) -> bool {
        self.order(other) == Some(Ordering::Equal)
    }

    fn less(self, other: Self) -> bool {
        self.order(other) == Some(Ordering::Less)
    }
}

impl<F: Format> Real for Soft<F> {
    const INFINITY: Self = Self(Self::OVERFLOW, PhantomData);

    fn is_nan(self) -> bool {
        self.value().magnitude == Magnitude::Nan
    }

    fn is_infinite(self) -> bool {
        self.value().magnitude == Magnitude::Infinite
    }

    fn with_sign_of(self, other: Self) -> Self {
        Self(self.0 & !Self::SIGN | other.0 & Self::SIGN, PhantomData)
    }
}
