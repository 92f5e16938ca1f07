//! What becomes of a lent payload.

/// The result of reading a lent payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver has read it.
    Taken,
    /// The receiver could not read it: send it as its [`Kind`](super::Kind) says. Not of an ordered
    /// payload, for which the receiver asks.
    Refused,
    /// The receiver takes the offered message later.
    Declined,
}

impl Outcome {
    pub(crate) const fn code(self) -> u64 {
        match self {
            Self::Taken => 0,
            Self::Refused => 1,
            Self::Declined => 2,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        [Self::Taken, Self::Refused, Self::Declined].into_iter().find(|outcome| outcome.code() == code)
    }
}
