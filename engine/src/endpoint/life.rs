//! Life of an endpoint of either type.

use super::connected::Connected;
use super::connectionless::Connectionless;
use ofi_core::Errno;

/// Type of an endpoint, and how far its life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Connectionless(Connectionless),
    Connected(Connected),
}

impl Life {
    /// Whether operations may be posted.
    #[inline(always)]
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Connectionless(Connectionless::Enabled) | Self::Connected(Connected::Open))
    }

    pub(super) fn accepts(self) -> Result<(), Errno> {
        match self {
            Self::Connectionless(life) => life.accepts(),
            Self::Connected(life) => life.accepts(),
        }
    }

    pub(super) const fn is_closing(self) -> bool {
        matches!(self, Self::Connectionless(Connectionless::Closing) | Self::Connected(Connected::Closing))
    }

    /// Whether this side has shut down or is closing. Its operations have ended: it ignores frames
    /// about them.
    pub(super) const fn is_ending(self) -> bool {
        self.is_closing() || matches!(self, Self::Connected(Connected::ShutDown))
    }

    /// Whether the endpoint is not enabled, or a connected one that is not connected yet.
    pub(super) const fn is_new(self) -> bool {
        matches!(self, Self::Connectionless(Connectionless::New) | Self::Connected(Connected::New))
    }

    pub(super) const fn closing(self) -> Self {
        match self {
            Self::Connectionless(_) => Self::Connectionless(Connectionless::Closing),
            Self::Connected(_) => Self::Connected(Connected::Closing),
        }
    }
}
