//! Fallible allocation: lookups whose sizes depend on the caller's input or on the system's answer
//! allocate here, so that a lack of memory is an error and does not abort the process.

use std::borrow::Cow;
use std::collections::TryReserveError;
use std::fmt::{self, Write};

/// An empty list with room for `count` elements.
///
/// # Errors
/// No memory; the same for the other functions.
pub fn room<T>(count: usize) -> Result<Vec<T>, TryReserveError> {
    let mut out = Vec::new();
    out.try_reserve_exact(count)?;
    Ok(out)
}

/// A list of one element.
pub fn one<T>(element: T) -> Result<Vec<T>, TryReserveError> {
    let mut out = room(1)?;
    out.push(element);
    Ok(out)
}

/// A copy of bytes.
pub fn bytes(from: &[u8]) -> Result<Vec<u8>, TryReserveError> {
    let mut out = room(from.len())?;
    out.extend_from_slice(from);
    Ok(out)
}

/// A copy of bytes with a NUL behind them.
pub fn terminated(from: &[u8]) -> Result<Vec<u8>, TryReserveError> {
    let mut out = room(from.len() + 1)?;
    out.extend_from_slice(from);
    out.push(0);
    Ok(out)
}

/// A copy of text.
pub fn string(from: &str) -> Result<String, TryReserveError> {
    let mut out = String::new();
    out.try_reserve_exact(from.len())?;
    out.push_str(from);
    Ok(out)
}

/// A copy of a name, if there is one.
pub fn name(from: Option<&str>) -> Result<Option<String>, TryReserveError> {
    from.map(string).transpose()
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

/// The message of an error. If memory lacks for it, the error keeps only its code.
#[cold]
pub fn message(what: fmt::Arguments<'_>) -> Cow<'static, str> {
    let mut out = Growing(String::new());
    match out.write_fmt(what) {
        Ok(()) => Cow::Owned(out.0),
        Err(fmt::Error) => Cow::Borrowed("no memory for the message"),
    }
}
