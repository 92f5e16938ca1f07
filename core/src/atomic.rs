//! Atomic operations and their datatypes (fi_atomic(3)): the numbers of the interface, and which
//! operation goes with which datatype.

use crate::caps::MrAccess;
use crate::errno::Errno;

/// The datatype of an atomic operation. The values are the interface's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Datatype {
    /// Signed, 8 bits.
    Int8 = 0,
    /// Unsigned, 8 bits.
    Uint8 = 1,
    /// Signed, 16 bits.
    Int16 = 2,
    /// Unsigned, 16 bits.
    Uint16 = 3,
    /// Signed, 32 bits.
    Int32 = 4,
    /// Unsigned, 32 bits.
    Uint32 = 5,
    /// Signed, 64 bits.
    Int64 = 6,
    /// Unsigned, 64 bits.
    Uint64 = 7,
    /// C's `float`.
    Float = 8,
    /// C's `double`.
    Double = 9,
    /// C's `float _Complex`.
    FloatComplex = 10,
    /// C's `double _Complex`.
    DoubleComplex = 11,
    /// C's `long double`.
    LongDouble = 12,
    /// C's `long double _Complex`.
    LongDoubleComplex = 13,
    /// Signed, 128 bits.
    Int128 = 14,
    /// Unsigned, 128 bits.
    Uint128 = 15,
    /// IEEE 754 binary16.
    Float16 = 16,
    /// The upper half of a `float`.
    Bfloat16 = 17,
    /// OCP 8-bit float with 4 bits of exponent.
    Float8E4M3 = 18,
    /// OCP 8-bit float with 5 bits of exponent.
    Float8E5M2 = 19,
}

/// The class of a datatype: the operations that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeClass {
    /// Integers: every operation.
    Integer,
    /// Real numbers: no operations on bits.
    Real,
    /// Complex numbers: no order either.
    Complex,
}

/// An atomic operation. The values are the interface's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AtomicOp {
    /// The smaller one.
    Min = 0,
    /// The larger one.
    Max = 1,
    /// Target plus operand.
    Sum = 2,
    /// Target times operand.
    Prod = 3,
    /// Logical or: 0 or 1.
    Lor = 4,
    /// Logical and: 0 or 1.
    Land = 5,
    /// Bitwise or.
    Bor = 6,
    /// Bitwise and.
    Band = 7,
    /// Logical exclusive or: 0 or 1.
    Lxor = 8,
    /// Bitwise exclusive or.
    Bxor = 9,
    /// The target stays as it is.
    Read = 10,
    /// The operand.
    Write = 11,
    /// The operand, if compare value == target.
    Cswap = 12,
    /// The operand, if compare value != target.
    CswapNe = 13,
    /// The operand, if compare value <= target.
    CswapLe = 14,
    /// The operand, if compare value < target.
    CswapLt = 15,
    /// The operand, if compare value >= target.
    CswapGe = 16,
    /// The operand, if compare value > target.
    CswapGt = 17,
    /// The operand in the bits that are set in the compare value.
    Mswap = 18,
    /// Target minus operand.
    Diff = 19,
}

/// The three groups of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicKind {
    /// fi_atomic: changes the target.
    Base,
    /// fi_fetch_atomic: also returns the target's previous value.
    Fetch,
    /// fi_compare_atomic: also has a compare value.
    Compare,
}

/// `long double` has the 80-bit format of the x87, which is the only one that we implement.
const X87: bool = cfg!(target_arch = "x86_64");

impl Datatype {
    /// All datatypes, by value.
    pub const ALL: [Self; 20] = [
        Self::Int8,
        Self::Uint8,
        Self::Int16,
        Self::Uint16,
        Self::Int32,
        Self::Uint32,
        Self::Int64,
        Self::Uint64,
        Self::Float,
        Self::Double,
        Self::FloatComplex,
        Self::DoubleComplex,
        Self::LongDouble,
        Self::LongDoubleComplex,
        Self::Int128,
        Self::Uint128,
        Self::Float16,
        Self::Bfloat16,
        Self::Float8E4M3,
        Self::Float8E5M2,
    ];

    /// Size of an element in bytes: 1, 2, 4, 8, 16 or 32.
    pub const fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 | Self::Float8E4M3 | Self::Float8E5M2 => 1,
            Self::Int16 | Self::Uint16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double | Self::FloatComplex => 8,
            Self::Int128 | Self::Uint128 | Self::DoubleComplex | Self::LongDouble => 16,
            Self::LongDoubleComplex => 32,
        }
    }

    /// Its class.
    pub const fn class(self) -> TypeClass {
        match self {
            Self::Int8 | Self::Uint8 | Self::Int16 | Self::Uint16 | Self::Int32 | Self::Uint32 => TypeClass::Integer,
            Self::Int64 | Self::Uint64 | Self::Int128 | Self::Uint128 => TypeClass::Integer,
            Self::Float | Self::Double | Self::LongDouble => TypeClass::Real,
            Self::Float16 | Self::Bfloat16 | Self::Float8E4M3 | Self::Float8E5M2 => TypeClass::Real,
            Self::FloatComplex | Self::DoubleComplex | Self::LongDoubleComplex => TypeClass::Complex,
        }
    }

    /// Whether this machine has the type.
    const fn exists(self) -> bool {
        X87 || !matches!(self, Self::LongDouble | Self::LongDoubleComplex)
    }
}

impl AtomicOp {
    /// All operations, by value.
    pub const ALL: [Self; 20] = [
        Self::Min,
        Self::Max,
        Self::Sum,
        Self::Prod,
        Self::Lor,
        Self::Land,
        Self::Bor,
        Self::Band,
        Self::Lxor,
        Self::Bxor,
        Self::Read,
        Self::Write,
        Self::Cswap,
        Self::CswapNe,
        Self::CswapLe,
        Self::CswapLt,
        Self::CswapGe,
        Self::CswapGt,
        Self::Mswap,
        Self::Diff,
    ];

    /// Whether a call of that kind can have this operation.
    pub const fn has_kind(self, kind: AtomicKind) -> bool {
        match self {
            Self::Min | Self::Max | Self::Sum | Self::Prod | Self::Diff | Self::Write => {
                matches!(kind, AtomicKind::Base | AtomicKind::Fetch)
            }
            Self::Lor | Self::Land | Self::Lxor | Self::Bor | Self::Band | Self::Bxor => {
                matches!(kind, AtomicKind::Base | AtomicKind::Fetch)
            }
            Self::Read => matches!(kind, AtomicKind::Fetch),
            Self::Cswap | Self::CswapNe | Self::CswapLe | Self::CswapLt | Self::CswapGe | Self::CswapGt => {
                matches!(kind, AtomicKind::Compare)
            }
            Self::Mswap => matches!(kind, AtomicKind::Compare),
        }
    }

    /// Whether the operation goes with the datatype, on this machine.
    pub const fn goes_with(self, datatype: Datatype) -> bool {
        let fits = match self {
            Self::Sum | Self::Prod | Self::Lor | Self::Land | Self::Lxor => true,
            Self::Read | Self::Write | Self::Cswap | Self::CswapNe => true,
            Self::Min | Self::Max | Self::Diff => !matches!(datatype.class(), TypeClass::Complex),
            Self::CswapLe | Self::CswapLt | Self::CswapGe | Self::CswapGt => {
                !matches!(datatype.class(), TypeClass::Complex)
            }
            Self::Bor | Self::Band | Self::Bxor | Self::Mswap => matches!(datatype.class(), TypeClass::Integer),
        };
        fits && datatype.exists()
    }

    /// Whether a call of that kind can have this operation on that datatype: what
    /// fi_query_atomic(3) answers.
    pub const fn is_valid(self, kind: AtomicKind, datatype: Datatype) -> bool {
        self.has_kind(kind) && self.goes_with(datatype)
    }

    /// Whether the operation uses its operand.
    pub const fn has_operand(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// The rights that the target's region must have.
    pub const fn target_access(self, kind: AtomicKind) -> MrAccess {
        match (self, kind) {
            (_, AtomicKind::Base) => MrAccess::REMOTE_WRITE,
            (Self::Read, AtomicKind::Fetch) => MrAccess::REMOTE_READ,
            (_, AtomicKind::Fetch | AtomicKind::Compare) => MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE),
        }
    }
}

/// The entry of a table that is ordered by value.
fn by_value<T: Copy>(all: &[T], value: u32) -> Result<T, Errno> {
    usize::try_from(value).ok().and_then(|value| all.get(value)).copied().ok_or(Errno::EOPNOTSUPP)
}

impl TryFrom<u32> for Datatype {
    type Error = Errno;

    /// The datatype with that value, unless it is FI_VOID or unknown.
    fn try_from(value: u32) -> Result<Self, Errno> {
        by_value(&Self::ALL, value)
    }
}

impl TryFrom<u32> for AtomicOp {
    type Error = Errno;

    /// The operation with that value, unless it is FI_NOOP or unknown.
    fn try_from(value: u32) -> Result<Self, Errno> {
        by_value(&Self::ALL, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AtomicKind::{Base, Compare, Fetch};

    #[test]
    fn numbers_are_those_of_the_interface() {
        for value in 0..300u32 {
            let known = value < 20;
            assert_eq!(Datatype::try_from(value).map(|it| it as u32), known.then_some(value).ok_or(Errno::EOPNOTSUPP));
            assert_eq!(AtomicOp::try_from(value).map(|it| it as u32), known.then_some(value).ok_or(Errno::EOPNOTSUPP));
        }
        assert_eq!(Datatype::Float8E5M2 as u8, 19);
        assert_eq!((AtomicOp::Read as u8, AtomicOp::Cswap as u8, AtomicOp::Diff as u8), (10, 12, 19));
    }

    /// The number of datatypes that go with an operation, by kind of call.
    fn counts(op: AtomicOp) -> [usize; 3] {
        [Base, Fetch, Compare].map(|kind| Datatype::ALL.into_iter().filter(|it| op.is_valid(kind, *it)).count())
    }

    #[test]
    fn every_operation_goes_with_its_datatypes_and_no_other() {
        // 10 integers, 7 real and 3 complex types.
        let (bits, ordered, all) = if X87 { (10, 17, 20) } else { (10, 16, 18) };
        for op in [AtomicOp::Min, AtomicOp::Max, AtomicOp::Diff] {
            assert_eq!(counts(op), [ordered, ordered, 0], "{op:?}");
        }
        for op in [AtomicOp::Sum, AtomicOp::Prod, AtomicOp::Lor, AtomicOp::Land, AtomicOp::Lxor, AtomicOp::Write] {
            assert_eq!(counts(op), [all, all, 0], "{op:?}");
        }
        for op in [AtomicOp::Bor, AtomicOp::Band, AtomicOp::Bxor] {
            assert_eq!(counts(op), [bits, bits, 0], "{op:?}");
        }
        for op in [AtomicOp::CswapLe, AtomicOp::CswapLt, AtomicOp::CswapGe, AtomicOp::CswapGt] {
            assert_eq!(counts(op), [0, 0, ordered], "{op:?}");
        }
        assert_eq!(counts(AtomicOp::Read), [0, all, 0]);
        assert_eq!(counts(AtomicOp::Cswap), [0, 0, all]);
        assert_eq!(counts(AtomicOp::CswapNe), [0, 0, all]);
        assert_eq!(counts(AtomicOp::Mswap), [0, 0, bits]);
    }

    #[test]
    fn a_base_operation_needs_no_right_to_read() {
        assert_eq!(AtomicOp::Sum.target_access(Base), MrAccess::REMOTE_WRITE);
        assert_eq!(AtomicOp::Read.target_access(Fetch), MrAccess::REMOTE_READ);
        let both = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        assert_eq!((AtomicOp::Write.target_access(Fetch), AtomicOp::Mswap.target_access(Compare)), (both, both));
    }
}
