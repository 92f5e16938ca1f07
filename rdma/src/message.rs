//! Messages of errors, which may be wanted where there is no memory.

use std::borrow::Cow;
use std::fmt::{self, Write};

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
pub fn compose(what: fmt::Arguments<'_>) -> Cow<'static, str> {
    let mut out = Growing(String::new());
    match out.write_fmt(what) {
        Ok(()) => Cow::Owned(out.0),
        Err(fmt::Error) => Cow::Borrowed("no memory for the message"),
    }
}
