//! Classes of sizes of payloads.

use super::LEAST;

/// A set of classes of sizes, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classes(pub(super) u8);

impl Classes {
    /// Classes of sizes: from [`LEAST`] on, each twice as long as the one before, the last without
    /// end.
    pub(super) const COUNT: usize = 8;
    pub(super) const ALL: Self = Self(u8::MAX >> (8 - Self::COUNT));

    /// The class of a size of at least [`LEAST`].
    pub(super) fn index(len: usize) -> usize {
        ((len / LEAST).max(1).ilog2() as usize).min(Self::COUNT - 1)
    }

    pub(super) fn has(self, len: usize) -> bool {
        self.0 >> Self::index(len) & 1 != 0
    }

    pub(super) const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    pub(super) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether all of these are in `others`.
    const fn are_in(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }

    pub(crate) fn code(self) -> u64 {
        u64::from(self.0)
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        let classes = Self(u8::try_from(code).ok()?);
        classes.are_in(Self::ALL).then_some(classes)
    }
}
