//! Whether large payloads use cross-memory attach.

/// When large payloads use cross-memory attach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CmaMode {
    /// Never: all payloads go through the pool, and the receiver chooses how it copies them.
    Never,
    /// The same, and the receiver reads what is there.
    Close,
    /// The same, and the receiver stays behind the sender.
    Behind,
    /// The same, and the receiver copies what is there with vector instructions.
    Vector,
    /// Where the system allows it and it is measured to be faster.
    #[default]
    IfFaster,
    /// Where the system allows it.
    IfAllowed,
    /// The same, and the receiver reads alone.
    Read,
    /// The same, and both sides copy where that is possible.
    Both,
}

impl CmaMode {
    /// All of them, for tests.
    pub const ALL: [Self; 8] =
        [Self::Never, Self::Close, Self::Behind, Self::Vector, Self::IfFaster, Self::IfAllowed, Self::Read, Self::Both];

    /// Whether payloads may use it.
    pub const fn is_allowed(self) -> bool {
        !matches!(self, Self::Never | Self::Close | Self::Behind | Self::Vector)
    }
}
