//! Completions of connections.

use super::layout::WorkCompletion;
use super::pool::Arrived;
use crate::device::SLOT;

/// A completion. It is claimed once, because it can be neither copied nor made elsewhere.
#[derive(Debug)]
pub struct Done {
    pub(crate) key: u64,
    pub(super) number: u64,
    pub(super) status: i32,
    pub(super) len: usize,
    /// Where a segment has arrived.
    pub(super) arrived: Option<Arrived>,
    /// The key of the window that it has ended.
    pub(super) ended: Option<u32>,
}

impl Done {
    /// A completion of the connection with that key, as the device reports it, with the slot in
    /// which a segment has arrived and the key of the window that it has ended.
    pub(super) fn new(done: &WorkCompletion, key: u64, arrived: Option<(Arrived, Option<u32>)>) -> Self {
        let len = usize::try_from(done.byte_len).unwrap_or(usize::MAX).min(SLOT);
        let (arrived, ended) = arrived.map_or((None, None), |(arrived, ended)| (Some(arrived), ended));
        Self { key, number: done.wr_id, status: done.status, len, arrived, ended }
    }
}
