//! What becomes of a lent payload.

/// What the receiver says of a lent payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver has read it.
    Taken,
    /// The receiver could not read it: send it as its [`Kind`](super::Kind) says. Not of an ordered
    /// payload, for which the receiver asks.
    Refused,
    /// The receiver wants the offered message in data frames.
    Declined,
    /// The receiver reads the offered message once a receive matches it: it remains lent. Another
    /// outcome follows, unless the link ends before.
    Waits,
}

impl Outcome {
    pub(crate) const fn code(self) -> u64 {
        match self {
            Self::Taken => 0,
            Self::Refused => 1,
            Self::Declined => 2,
            Self::Waits => 3,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        [Self::Taken, Self::Refused, Self::Declined, Self::Waits].into_iter().find(|outcome| outcome.code() == code)
    }
}
