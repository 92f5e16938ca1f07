//! Errors, one to one with the codes of rdma_getaddrinfo(3).

use ofi_core::Errno;
use ofi_os::fallible;
use ofi_os::resolve::Failure;
use std::borrow::Cow;
use std::fmt;

/// Result of a resolution.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error code, as in the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `EAI_ADDRFAMILY`: the node has no address of the wanted family.
    AddrFamily,
    /// `EAI_AGAIN`: the name server did not answer; a later attempt may succeed.
    Again,
    /// `EAI_BADFLAGS`: unknown flags.
    BadFlags,
    /// `EAI_FAIL`: the name server reported a permanent failure.
    Fail,
    /// `EAI_FAMILY`: the address family is not supported.
    Family,
    /// `EAI_MEMORY`: out of memory.
    Memory,
    /// `EAI_NODATA`: the node exists but has no address.
    NoData,
    /// `EAI_NONAME`: the node is unknown, or neither node nor service nor hints were given.
    NoName,
    /// `EAI_SERVICE`: the service is unknown in the port space.
    Service,
    /// `EAI_QPTYPE`: the queue pair type or the port space is not supported, or they do not go
    /// together. No header defines the name; its value is that of `EAI_SOCKTYPE`.
    QpType,
    /// `EAI_SYSTEM`: another system error, with its errno.
    System(Errno),
}

impl Kind {
    /// The return value of the C function (`<netdb.h>`); always negative.
    pub const fn code(self) -> i32 {
        match self {
            Self::BadFlags => -1,
            Self::NoName => -2,
            Self::Again => -3,
            Self::Fail => -4,
            Self::NoData => -5,
            Self::Family => -6,
            Self::QpType => -7,
            Self::Service => -8,
            Self::AddrFamily => -9,
            Self::Memory => -10,
            Self::System(_) => -11,
        }
    }

    /// The name in the manual.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadFlags => "EAI_BADFLAGS",
            Self::NoName => "EAI_NONAME",
            Self::Again => "EAI_AGAIN",
            Self::Fail => "EAI_FAIL",
            Self::NoData => "EAI_NODATA",
            Self::Family => "EAI_FAMILY",
            Self::QpType => "EAI_QPTYPE",
            Self::Service => "EAI_SERVICE",
            Self::AddrFamily => "EAI_ADDRFAMILY",
            Self::Memory => "EAI_MEMORY",
            Self::System(_) => "EAI_SYSTEM",
        }
    }

    /// Converts the code of the system's resolver.
    pub(crate) fn of(failure: &Failure) -> Self {
        let all = [
            Self::BadFlags,
            Self::NoName,
            Self::Again,
            Self::Fail,
            Self::NoData,
            Self::Family,
            Self::QpType,
            Self::Service,
            Self::AddrFamily,
            Self::Memory,
            Self::System(failure.errno.unwrap_or(Errno::EIO)),
        ];
        all.into_iter().find(|kind| kind.code() == failure.code).unwrap_or(Self::Fail)
    }
}

/// An error code with a message that names the wrong input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    why: Cow<'static, str>,
}

impl Error {
    /// Creates an error; `why` names the wrong input.
    #[cold]
    pub fn new(kind: Kind, why: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, why: why.into() }
    }

    /// Converts the resolver's failure for `input`.
    #[cold]
    pub(crate) fn resolver(failure: &Failure, input: impl fmt::Display) -> Self {
        let kind = Kind::of(failure);
        match kind {
            Kind::System(errno) => Self::new(kind, fallible::message(format_args!("{input}: {errno}"))),
            _ => Self::new(kind, fallible::message(format_args!("{input}: {}", failure.text))),
        }
    }

    /// The error code.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The message without the name of the code.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.why, self.kind.name())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_resolver_are_those_of_the_manual() {
        for code in -11..0 {
            let failure = Failure { code, text: "", errno: None };
            assert_eq!(Kind::of(&failure).code(), code);
        }
        let odd = Failure { code: -105, text: "Interrupted", errno: None };
        assert_eq!(Error::resolver(&odd, "the node \"x\"").to_string(), "the node \"x\": Interrupted (EAI_FAIL)");
    }
}
