//! A lack of memory is EAI_MEMORY.

use crate::error::{Error, Kind, Result};
use ofi_os::fallible;
use std::collections::TryReserveError;

/// EAI_MEMORY.
#[cold]
pub(crate) fn exhausted() -> Error {
    Error::new(Kind::Memory, "out of memory")
}

impl From<TryReserveError> for Error {
    fn from(_: TryReserveError) -> Self {
        exhausted()
    }
}

/// The results of `make` for each element.
///
/// # Errors
/// [`Kind::Memory`], or an error of `make`.
pub(crate) fn map<T, U>(from: Vec<T>, mut make: impl FnMut(T) -> Result<U>) -> Result<Vec<U>> {
    let mut out = fallible::room(from.len())?;
    for element in from {
        out.push(make(element)?);
    }
    Ok(out)
}
