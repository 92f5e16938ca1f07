//! Error of the control path: a number, what was attempted, and why it failed.

use crate::errno::Errno;
use core::fmt;

/// Result of a control call.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// An error number and a sentence about what was attempted and why it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    errno: Errno,
    doing: String,
}

impl Error {
    /// An error that this library detects.
    #[cold]
    pub fn new(errno: Errno, doing: impl Into<String>) -> Self {
        Self { errno, doing: doing.into() }
    }

    /// An error that the system reported while `doing` something.
    #[cold]
    pub fn os(error: std::io::Error, doing: impl Into<String>) -> Self {
        Self { errno: error.into(), doing: doing.into() }
    }

    /// The number for the C interface.
    pub const fn errno(&self) -> Errno {
        self.errno
    }

    /// What was attempted.
    pub fn doing(&self) -> &str {
        &self.doing
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.errno)
    }
}

impl core::error::Error for Error {}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self { errno, doing: "operation".into() }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        error.errno
    }
}
