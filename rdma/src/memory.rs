//! Allocation that may fail. What depends on the caller's input or on a name server's answer is
//! allocated here, so that a lack of memory is EAI_MEMORY and not the end of the process.

use crate::error::{Error, Kind, Result};
use std::borrow::Cow;
use std::collections::TryReserveError;
use std::fmt::{self, Write};

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

/// A string that grows only while there is memory.
struct Growing(String);

impl Write for Growing {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0.try_reserve(part.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(part);
        Ok(())
    }
}

/// The message of an error. Without memory for it, the message is lost, and the error's code
/// remains.
#[cold]
pub fn text(what: fmt::Arguments<'_>) -> Cow<'static, str> {
    let mut out = Growing(String::new());
    match out.write_fmt(what) {
        Ok(()) => Cow::Owned(out.0),
        Err(fmt::Error) => Cow::Borrowed("no memory for the message"),
    }
}
