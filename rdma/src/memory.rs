//! Allocation that may fail. What depends on the caller's input or on a name server's answer is
//! allocated here, so that a lack of memory is EAI_MEMORY and not the end of the process.

use crate::error::{Error, Kind, Result};
use std::collections::TryReserveError;

/// EAI_MEMORY.
#[cold]
pub fn exhausted() -> Error {
    Error::new(Kind::Memory, "out of memory")
}

impl From<TryReserveError> for Error {
    fn from(_: TryReserveError) -> Self {
        exhausted()
    }
}

/// An empty list with room for `count` elements.
///
/// # Errors
/// [`Kind::Memory`]; the same for the other functions.
pub fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(count)?;
    Ok(out)
}

/// A list of one element.
pub fn one<T>(element: T) -> Result<Vec<T>> {
    let mut out = room(1)?;
    out.push(element);
    Ok(out)
}

/// A copy of bytes.
pub fn bytes(from: &[u8]) -> Result<Vec<u8>> {
    let mut out = room(from.len())?;
    out.extend_from_slice(from);
    Ok(out)
}

/// A copy of text.
pub fn string(from: &str) -> Result<String> {
    let mut out = String::new();
    out.try_reserve_exact(from.len())?;
    out.push_str(from);
    Ok(out)
}

/// A copy of a name, if there is one.
pub fn name(from: Option<&str>) -> Result<Option<String>> {
    from.map(string).transpose()
}

/// The results of `make` for each element.
pub fn map<T, U>(from: Vec<T>, mut make: impl FnMut(T) -> Result<U>) -> Result<Vec<U>> {
    let mut out = room(from.len())?;
    for element in from {
        out.push(make(element)?);
    }
    Ok(out)
}
