//! Error numbers: the kernel's plus the sixteen that libfabric adds (fi_errno(3)).
//! An [`Errno`] is never zero, so `Result<(), Errno>` is one register on the data path.

use core::fmt;
use core::num::NonZeroI32;

/// A positive error number. Its negative is what the C interface returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(NonZeroI32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self::known($value);)*

            /// The symbolic name, such as `ECONNREFUSED`, if this library uses the number.
            pub const fn name(self) -> Option<&'static str> {
                match self.0.get() { $($value => Some(stringify!($name)),)* _ => None }
            }

            /// A short text for the number, if this library uses it.
            pub const fn text(self) -> Option<&'static str> {
                match self.0.get() { $($value => Some($text),)* _ => None }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file descriptor";
    AGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    ENODEV = 19, "No such device";
    EINVAL = 22, "Invalid argument";
    EMFILE = 24, "Too many open files";
    ENOSPC = 28, "No space left on device";
    ENOSYS = 38, "Function not implemented";
    ENOMSG = 42, "No message of desired type";
    ENODATA = 61, "No data available";
    EPROTO = 71, "Protocol error";
    EOVERFLOW = 75, "Value too large for defined data type";
    EMSGSIZE = 90, "Message too long";
    ENOPROTOOPT = 92, "Protocol not available";
    EOPNOTSUPP = 95, "Operation not supported";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETDOWN = 100, "Network is down";
    ENETUNREACH = 101, "Network is unreachable";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTDOWN = 112, "Host is down";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ESTALE = 116, "Stale file handle";
    EREMOTEIO = 121, "Remote I/O error";
    ECANCELED = 125, "Operation canceled";
    EKEYREJECTED = 129, "Key was rejected by service";
    EOTHER = 256, "Unspecified error";
    ETOOSMALL = 257, "Provided buffer is too small";
    EOPBADSTATE = 258, "Operation not permitted in current state";
    EAVAIL = 259, "Error available";
    EBADFLAGS = 260, "Flags not supported";
    ENOEQ = 261, "Missing or unavailable event queue";
    EDOMAIN = 262, "Invalid resource domain";
    ENOCQ = 263, "Missing or unavailable completion queue";
    ECRC = 264, "CRC error";
    ETRUNC = 265, "Truncation error";
    ENOKEY = 266, "Required key not available";
    ENOAV = 267, "Missing or unavailable address vector";
    EOVERRUN = 268, "Queue has been overrun";
    ENORX = 269, "Receiver not ready, no receive buffers available";
    ENOMR = 270, "Memory registration limit exceeded";
    EFIREWALLADDR = 271, "Host unreachable due to firewall";
}

impl Errno {
    const fn known(value: i32) -> Self {
        match NonZeroI32::new(value) {
            Some(value) => Self(value),
            None => panic!("an error number is not zero"),
        }
    }

    /// The error for a positive number from the system; zero and negatives become [`Self::EOTHER`].
    pub const fn from_raw(value: i32) -> Self {
        if value > 0 { Self::known(value) } else { Self::EOTHER }
    }

    /// The error number, always positive.
    pub const fn raw(self) -> i32 {
        self.0.get()
    }

    /// The return value of a C call that fails with this error.
    pub const fn negative(self) -> i32 {
        -self.0.get()
    }

    /// True for back-pressure: nothing was queued, make progress and try again.
    pub const fn is_again(self) -> bool {
        self.0.get() == Self::AGAIN.0.get()
    }
}

/// The system's number; [`Errno::EIO`] for an error that has none.
impl From<&std::io::Error> for Errno {
    fn from(error: &std::io::Error) -> Self {
        Self::from_raw(error.raw_os_error().unwrap_or(Self::EIO.raw()))
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self::from(&error)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "{}", std::io::Error::from_raw_os_error(self.raw())),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.raw()),
        }
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_without_value_is_one_register() {
        assert_eq!(size_of::<Result<(), Errno>>(), 4);
    }

    #[test]
    fn numbers_and_names_agree_with_the_system() {
        assert_eq!(Errno::AGAIN.negative(), -11);
        assert_eq!(Errno::ETRUNC.raw(), 265);
        assert_eq!(format!("{:?}", Errno::ECONNREFUSED), "ECONNREFUSED");
        assert_eq!(Errno::from_raw(0), Errno::EOTHER);
        assert_eq!(Errno::from(std::io::Error::from_raw_os_error(11)), Errno::AGAIN);
        assert_eq!(Errno::from(&std::io::Error::other("no number")), Errno::EIO);
    }
}
