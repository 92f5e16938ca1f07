//! The pattern of a receive: its tag, the bits of the tag to ignore, and the sender.

use ofi_core::FiAddr;

/// The senders that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source(pub(super) u64);

impl Source {
    /// Any peer.
    pub(crate) const ANY: Self = Self(u64::MAX);
    /// Marks a handle whose peer is unknown: no peer number has the highest bit set.
    const HANDLE: u64 = 1 << 63;

    /// One peer.
    #[inline(always)]
    pub(crate) const fn peer(peer: u32) -> Self {
        Self(peer as u64)
    }

    /// The peer that a handle will stand for, once the address vector has it.
    pub(crate) const fn handle(handle: FiAddr) -> Self {
        Self(handle.0 | Self::HANDLE)
    }

    /// The peer, if the source is a single known peer.
    pub(crate) fn one(self) -> Option<u32> {
        u32::try_from(self.0).ok()
    }

    /// The handle, if its peer is unknown.
    pub(super) fn pending(self) -> Option<FiAddr> {
        (self != Self::ANY && self.0 & Self::HANDLE != 0).then_some(FiAddr(self.0 & !Self::HANDLE))
    }

    /// Whether the receive accepts messages from that peer.
    #[inline(always)]
    pub(crate) const fn covers(self, peer: u32) -> bool {
        self.0 == Self::ANY.0 || self.0 == peer as u64
    }
}

/// The tags and senders that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The tag.
    pub(crate) tag: u64,
    /// Bits of the tag to ignore.
    pub(crate) ignore: u64,
    /// The sender.
    pub(crate) src: Source,
}

impl Pattern {
    /// Whether a message fits.
    #[inline]
    pub(crate) const fn fits(&self, tag: u64, peer: u32) -> bool {
        (tag ^ self.tag) & !self.ignore == 0 && self.src.covers(peer)
    }
}
