//! One-sided operations that the application posts.

use super::core::Core;
use super::life::Life;
use crate::op::{AtomicCall, RmaOp};
use crate::transport::Transport;
use crate::tx::{Access, send_control};
use ofi_core::Errno;
use ofi_sync::lock::LockKind;

impl<K: LockKind> Core<K> {
    /// Reads or writes a peer's memory.
    #[inline]
    pub(super) fn rma<T: Transport>(&mut self, transport: &mut T, mut op: RmaOp) -> Result<(), Errno> {
        if !self.life.is_open() {
            self.life.accepts()?;
        }
        let how = self.tx.admit_rma(&self.out, &self.limits, &op)?;
        let left = self.take_most_acks_along(transport, op.peer);
        if let Some(peer) = self.known_peer(op.peer)
            && self.tx.try_write_fast(&mut self.peers, transport, (peer, &mut op, how), self.seq + 1)
        {
            self.seq += 1;
            return Ok(());
        }
        if let Some(link) = left {
            send_control(&mut self.peers, transport, link);
        }
        self.start(transport, Access::of(op, how))
    }

    /// Carries out an atomic operation on a peer's memory.
    #[inline]
    pub(super) fn atomic<T: Transport>(&mut self, transport: &mut T, call: AtomicCall) -> Result<(), Errno> {
        self.life.accepts()?;
        let access = self.tx.admit_atomic(&self.out, &self.limits, call)?;
        self.take_acks_along(transport, access.peer);
        self.start(transport, access)
    }

    fn start<T: Transport>(&mut self, transport: &mut T, access: Access) -> Result<(), Errno> {
        let peer = match self.known_peer(access.peer) {
            Some(peer) => peer,
            None => self.find_peer(access.peer)?,
        };
        if let Life::Connected(_) = self.life {
            self.check_connection(peer)?;
        }
        self.seq += 1;
        let Self { peers, tx, out, seq, .. } = self;
        tx.start(peers, out, transport, (peer, access), *seq)
    }
}
