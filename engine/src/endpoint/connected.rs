//! State of connected endpoints (FI_EP_MSG): one peer, and events that report the end of the
//! connection (fi_cm(3)).

use crate::completion::eq::EventKind;
use crate::peer::table::PeerId;
use crate::transport::Down;
use ofi_core::Errno;

/// The only peer of a connected endpoint.
pub(super) const PEER: PeerId = 0;

/// Life of a connected endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connected {
    /// Not connected yet.
    New,
    /// Connected.
    Open,
    /// This side has shut the connection down and waits for the peer to do so.
    ShutDown,
    /// The connection has ended. What had arrived can still be received.
    Ended,
    /// It has ended, and this side has shut it down.
    Finished,
    /// Being closed.
    Closing,
}

impl Connected {
    /// Whether operations may be posted.
    pub(super) const fn accepts(self) -> Result<(), Errno> {
        match self {
            Self::Open => Ok(()),
            Self::New | Self::Closing => Err(Errno::EOPBADSTATE),
            Self::ShutDown | Self::Ended | Self::Finished => Err(Errno::ENOTCONN),
        }
    }

    /// Whether receives may be posted: also before connecting.
    pub(super) const fn accepts_receives(self) -> Result<(), Errno> {
        match self {
            Self::New => Ok(()),
            Self::Open | Self::ShutDown | Self::Ended | Self::Finished | Self::Closing => self.accepts(),
        }
    }

    /// The event that reports the end of the connection; `None` if it has been reported.
    pub(super) fn end_event(self, why: &Down) -> Option<EventKind> {
        match self {
            Self::Open | Self::ShutDown => Some(EventKind::Shutdown),
            Self::New => {
                let Down { cause, errno, text } = why.clone();
                Some(EventKind::Failed { errno, cause, text, data: Vec::new() })
            }
            Self::Ended | Self::Finished | Self::Closing => None,
        }
    }
}
