//! The addresses of a datagram endpoint's peers by handle, without a lock for each packet.

use crate::av::AddressVector;
use ofi_core::{Addr, Errno, FiAddr};
use std::sync::Arc;

/// An address vector, and the addresses that were looked up since its latest change.
pub(super) struct CachedAv {
    pub(super) av: Arc<AddressVector>,
    epoch: u64,
    /// By handle.
    addrs: Vec<Option<Addr>>,
}

impl CachedAv {
    pub(super) fn new(av: &Arc<AddressVector>) -> Self {
        Self { av: av.clone(), epoch: av.epoch(), addrs: Vec::new() }
    }

    /// The address of a handle.
    #[inline]
    pub(super) fn lookup(&mut self, handle: FiAddr) -> core::result::Result<Addr, Errno> {
        if self.av.epoch() != self.epoch {
            self.epoch = self.av.epoch();
            self.addrs.clear();
        }
        match handle.index().and_then(|index| self.addrs.get(index).copied().flatten()) {
            Some(addr) => Ok(addr),
            None => self.look_up_anew(handle),
        }
    }

    #[cold]
    fn look_up_anew(&mut self, handle: FiAddr) -> core::result::Result<Addr, Errno> {
        let addr = self.av.lookup(handle).ok_or(Errno::EINVAL)?;
        if let Some(index) = handle.index() {
            if self.addrs.len() <= index {
                self.addrs.resize(index + 1, None);
            }
            self.addrs[index] = Some(addr);
        }
        Ok(addr)
    }
}
