//! Entries of match queues: what is compared, close together.

use super::Pattern;

#[derive(Debug)]
pub(super) struct Posted {
    pub(super) pattern: Pattern,
    pub(super) key: u32,
    pub(super) live: bool,
    /// Takes any number of messages until it is withdrawn (FI_MULTI_RECV).
    pub(super) persistent: bool,
}

#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) tag: u64,
    pub(super) peer: u32,
    pub(super) key: u32,
    pub(super) live: bool,
}
