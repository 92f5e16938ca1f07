//! Deferred operations that wait for room on an endpoint.

use crate::trigger::RoomWatch;
use std::sync::Weak;

/// Deferred operations that have found no room.
#[derive(Debug, Default)]
pub(super) struct Stalled {
    pub(super) watch: Option<Weak<dyn RoomWatch>>,
    pub(super) transmits: bool,
    pub(super) receives: bool,
}
