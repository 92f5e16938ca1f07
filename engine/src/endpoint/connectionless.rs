//! State of connectionless endpoints (FI_EP_RDM): any number of peers, named by the address vector.

use ofi_core::Errno;

/// Life of a connectionless endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connectionless {
    /// Not enabled.
    New,
    /// Enabled.
    Enabled,
    /// Being closed.
    Closing,
}

impl Connectionless {
    /// Whether operations may be posted.
    pub(super) const fn accepts(self) -> Result<(), Errno> {
        match self {
            Self::Enabled => Ok(()),
            Self::New | Self::Closing => Err(Errno::EOPBADSTATE),
        }
    }

    /// Whether a peer may connect; otherwise why not.
    pub(super) const fn admits(self) -> Result<(), &'static str> {
        match self {
            Self::Enabled => Ok(()),
            Self::New | Self::Closing => Err("the endpoint is closing"),
        }
    }
}
