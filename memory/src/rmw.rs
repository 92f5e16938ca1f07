//! Atomic operations on registered memory (fi_atomic(3)): read, modify, write. `rmw/element.rs` has
//! what each operation computes.
//!
//! Each element is updated atomically, and only that. Elements of up to 8 bytes that are aligned
//! to their size are updated by the CPU's own atomics, and so also atomically with those of the
//! application; so are aligned ones of 16 bytes, where the CPU can. All others are updated under
//! one of the process's locks: atomically with all other operations of this library on elements of
//! that size at that address.
#![allow(unsafe_code)]

mod element;
mod lock;
mod soft;
#[cfg(test)]
mod tests;
mod word;

pub use lock::{Held, hold};

use crate::region::{Region, RegionError, RegionUse};
use core::borrow::Borrow;
use core::fmt;
use element::{Complex, Element, step};
use ofi_core::{AtomicKind, AtomicOp, Datatype, Errno};
use soft::{Bf16, E4M3, E5M2, F16, Soft, X87};
use word::Word;

/// An operation, with an operand for each element of its target and, for the operations of
/// [`AtomicKind::Compare`], a compare value for each. All lie as in memory.
#[derive(Clone, Copy, Debug)]
pub struct AtomicCall<'a> {
    /// The datatype.
    pub datatype: Datatype,
    /// The operation.
    pub op: AtomicOp,
    /// The operands; not looked at by [`AtomicOp::Read`].
    pub operand: &'a [u8],
    /// The compare values; not looked at by other operations.
    pub compare: &'a [u8],
}

/// Why an atomic operation was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmwError {
    /// The operation does not go with the datatype.
    Unsupported,
    /// Target, operands, compare values and results are not as many elements each.
    Count,
    /// The target cannot be accessed.
    Region(RegionError),
}

impl RmwError {
    /// The error that the initiator reports.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Unsupported => Errno::EOPNOTSUPP,
            Self::Count => Errno::EINVAL,
            Self::Region(error) => error.errno(),
        }
    }
}

impl From<RegionError> for RmwError {
    fn from(error: RegionError) -> Self {
        Self::Region(error)
    }
}

impl fmt::Display for RmwError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the atomic operation does not go with the datatype"),
            Self::Count => f.write_str("the buffers of an atomic operation are not as many elements each"),
            Self::Region(error) => error.fmt(f),
        }
    }
}

/// Carries out an operation on all elements of the target, and copies their previous values to
/// `result`, if there is one. Trusts nothing but the rights, which the caller has requested
/// ([`AtomicOp::target_access`]).
///
/// # Errors
/// With [`RegionError::Unreachable`] some elements may have been updated; otherwise none are.
pub fn apply<H: Borrow<Region>>(
    target: &RegionUse<H>,
    call: &AtomicCall<'_>,
    result: Option<&mut [u8]>,
) -> Result<(), RmwError> {
    let (datatype, op, len) = (call.datatype, call.op, target.len());
    if !op.goes_with(datatype) {
        return Err(RmwError::Unsupported);
    }
    let compares = op.has_kind(AtomicKind::Compare);
    if !len.is_multiple_of(datatype.size())
        || op.has_operand() && call.operand.len() != len
        || compares && call.compare.len() != len
        || result.as_ref().is_some_and(|result| result.len() != len)
    {
        return Err(RmwError::Count);
    }
    if op.has_operand() {
        target.check_writable()?;
    }
    target.try_pages(op.has_operand())?;
    let done = match datatype {
        Datatype::Int8 => run::<i8, H>(target, call, result),
        Datatype::Uint8 => run::<u8, H>(target, call, result),
        Datatype::Int16 => run::<i16, H>(target, call, result),
        Datatype::Uint16 => run::<u16, H>(target, call, result),
        Datatype::Int32 => run::<i32, H>(target, call, result),
        Datatype::Uint32 => run::<u32, H>(target, call, result),
        Datatype::Int64 => run::<i64, H>(target, call, result),
        Datatype::Uint64 => run::<u64, H>(target, call, result),
        Datatype::Int128 => run::<i128, H>(target, call, result),
        Datatype::Uint128 => run::<u128, H>(target, call, result),
        Datatype::Float => run::<f32, H>(target, call, result),
        Datatype::Double => run::<f64, H>(target, call, result),
        Datatype::LongDouble => run::<Soft<X87>, H>(target, call, result),
        Datatype::FloatComplex => run::<Complex<f32>, H>(target, call, result),
        Datatype::DoubleComplex => run::<Complex<f64>, H>(target, call, result),
        Datatype::LongDoubleComplex => run::<Complex<Soft<X87>>, H>(target, call, result),
        Datatype::Float16 => run::<Soft<F16>, H>(target, call, result),
        Datatype::Bfloat16 => run::<Soft<Bf16>, H>(target, call, result),
        Datatype::Float8E4M3 => run::<Soft<E4M3>, H>(target, call, result),
        Datatype::Float8E5M2 => run::<Soft<E5M2>, H>(target, call, result),
    };
    done.map_err(RmwError::Region)
}

/// Combines two arrays of this process, element by element: `op` replaces each target by its
/// result with the operand. Collective operations (fi_collective(3)) reduce with it.
///
/// # Errors
/// [`RmwError::Unsupported`] unless the operation goes with the datatype and compares nothing,
/// [`RmwError::Count`] unless both hold the same number of whole elements. An error changes
/// nothing.
pub fn combine(datatype: Datatype, op: AtomicOp, target: &mut [u8], operand: &[u8]) -> Result<(), RmwError> {
    if !op.goes_with(datatype) || op.has_kind(AtomicKind::Compare) {
        return Err(RmwError::Unsupported);
    }
    if target.len() != operand.len() || !target.len().is_multiple_of(datatype.size()) {
        return Err(RmwError::Count);
    }
    match datatype {
        Datatype::Int8 => combine_all::<i8>(op, target, operand),
        Datatype::Uint8 => combine_all::<u8>(op, target, operand),
        Datatype::Int16 => combine_all::<i16>(op, target, operand),
        Datatype::Uint16 => combine_all::<u16>(op, target, operand),
        Datatype::Int32 => combine_all::<i32>(op, target, operand),
        Datatype::Uint32 => combine_all::<u32>(op, target, operand),
        Datatype::Int64 => combine_all::<i64>(op, target, operand),
        Datatype::Uint64 => combine_all::<u64>(op, target, operand),
        Datatype::Int128 => combine_all::<i128>(op, target, operand),
        Datatype::Uint128 => combine_all::<u128>(op, target, operand),
        Datatype::Float => combine_all::<f32>(op, target, operand),
        Datatype::Double => combine_all::<f64>(op, target, operand),
        Datatype::LongDouble => combine_all::<Soft<X87>>(op, target, operand),
        Datatype::FloatComplex => combine_all::<Complex<f32>>(op, target, operand),
        Datatype::DoubleComplex => combine_all::<Complex<f64>>(op, target, operand),
        Datatype::LongDoubleComplex => combine_all::<Complex<Soft<X87>>>(op, target, operand),
        Datatype::Float16 => combine_all::<Soft<F16>>(op, target, operand),
        Datatype::Bfloat16 => combine_all::<Soft<Bf16>>(op, target, operand),
        Datatype::Float8E4M3 => combine_all::<Soft<E4M3>>(op, target, operand),
        Datatype::Float8E5M2 => combine_all::<Soft<E5M2>>(op, target, operand),
    }
    Ok(())
}

fn combine_all<T: Element>(op: AtomicOp, target: &mut [u8], operand: &[u8]) {
    match op {
        // The usual operations have loops of their own, which the compiler can vectorize.
        AtomicOp::Sum => each::<T>(target, operand, |before, with| Some(before.sum(with))),
        AtomicOp::Min => each::<T>(target, operand, |before, with| step(AtomicOp::Min, before, with, before)),
        AtomicOp::Max => each::<T>(target, operand, |before, with| step(AtomicOp::Max, before, with, before)),
        _ => each::<T>(target, operand, |before, with| step(op, before, with, before)),
    }
}

#[inline]
fn each<T: Element>(target: &mut [u8], operand: &[u8], step: impl Fn(T, T) -> Option<T>) {
    let size = size_of::<T::Bits>();
    for (target, operand) in target.chunks_exact_mut(size).zip(operand.chunks_exact(size)) {
        let (before, with) = (T::from_bits(T::Bits::take(target, 0)), T::from_bits(T::Bits::take(operand, 0)));
        if let Some(after) = step(before, with) {
            after.to_bits().put(target, 0);
        }
    }
}

/// [`apply`] for elements of one type, which has found that lengths and pages are good.
fn run<T: Element, H: Borrow<Region>>(
    target: &RegionUse<H>,
    call: &AtomicCall<'_>,
    mut result: Option<&mut [u8]>,
) -> Result<(), RegionError> {
    for at in (0..target.len()).step_by(size_of::<T::Bits>()) {
        let (operand, compare) = (T::Bits::take(call.operand, at), T::Bits::take(call.compare, at));
        let before = update::<T, H>(target, at, call.op, operand, compare)?;
        if let Some(result) = &mut result {
            before.put(result, at);
        }
    }
    Ok(())
}

/// Updates the element at offset `at`; returns what it was.
#[inline]
fn update<T: Element, H: Borrow<Region>>(
    target: &RegionUse<H>,
    at: usize,
    op: AtomicOp,
    operand: T::Bits,
    compare: T::Bits,
) -> Result<T::Bits, RegionError> {
    let step = |target: T::Bits| {
        let stepped = step(op, T::from_bits(target), T::from_bits(operand), T::from_bits(compare));
        stepped.map(T::to_bits)
    };
    let (place, contiguous) = target.place(at);
    if contiguous >= size_of::<T::Bits>() {
        if T::INTEGER && op.has_operand() {
            // SAFETY: as many bytes are there, accessible by `Region::new` as long as the use
            // exists; of an address space, the pages have been tried.
            let before = unsafe { T::Bits::fetch(place, op, operand, compare) };
            if let Some(before) = before {
                return Ok(before);
            }
        }
        // SAFETY: as above.
        let before = unsafe { T::Bits::update(place, step) };
        if let Some(before) = before {
            return Ok(before);
        }
    }
    locked(target, at, place.addr(), step)
}

/// Updates the element at offset `at`, whose address is this, under its lock.
#[cold]
fn locked<W: Word, H: Borrow<Region>>(
    target: &RegionUse<H>,
    at: usize,
    address: usize,
    step: impl FnOnce(W) -> Option<W>,
) -> Result<W, RegionError> {
    let mut bytes = [0; MOST];
    let bytes = &mut bytes[..size_of::<W>()];
    let _lock = lock::lock(address);
    target.read(at, bytes)?;
    let before = W::take(bytes, 0);
    if let Some(after) = step(before) {
        after.put(bytes, 0);
        target.write(at, bytes)?;
    }
    Ok(before)
}

/// Size of the largest element.
const MOST: usize = Datatype::LongDoubleComplex.size();
