//! Why a peer's frame or hello breaks the protocol.

/// A peer's protocol violation. It costs that peer its link and affects no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);
