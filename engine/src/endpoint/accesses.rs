//! One-sided operations that the application posts.

use super::core::Core;
use super::life::Life;
use crate::op::{AtomicCall, RmaOp};
use crate::transport::Transport;
use crate::tx::{Access, How, send_control};
use ofi_core::Errno;
use ofi_sync::lock::LockKind;

impl<K: LockKind> Core<K> {
    /// Checks a read or write of a peer's memory.
    #[inline(always)]
    pub(super) fn admit_rma(&self, op: &RmaOp) -> Result<How, Errno> {
        if !self.life.is_open() {
            self.life.accepts()?;
        }
        self.tx.admit_rma(&self.out, &self.limits, op)
    }

    /// Fast path: a short write that leaves at once. On false the operation is as it was, and
    /// [`Self::rma`] carries it out.
    #[inline(always)]
    pub(super) fn try_write_fast<T: Transport>(&mut self, transport: &mut T, op: &mut RmaOp, how: How) -> bool {
        let left = self.take_most_acks_along(transport, op.peer);
        if let Some(peer) = self.known_peer(op.peer)
            && self.tx.try_write_fast(&mut self.peers, transport, (peer, op, how), self.seq + 1)
        {
            self.seq += 1;
            return true;
        }
        if let Some(link) = left {
            send_control(&mut self.peers, transport, link);
        }
        false
    }

    /// Reads or writes a peer's memory.
    pub(super) fn rma<T: Transport>(&mut self, transport: &mut T, op: RmaOp, how: How) -> Result<(), Errno> {
        self.start(transport, Access::of(op, how))
    }

    /// Fast path: a short atomic operation with a result that leaves at once. On false the
    /// operation is as it was, and [`Self::atomic`] carries it out.
    #[inline(always)]
    pub(super) fn try_fetch_fast<T: Transport>(&mut self, transport: &mut T, call: &mut AtomicCall) -> bool {
        if !self.life.is_open() || !self.tx.is_plain_fetch(&self.out, &self.limits, call) {
            return false;
        }
        self.take_acks_along(transport, call.peer);
        let Some(peer) = self.known_peer(call.peer) else { return false };
        let Self { peers, tx, out, seq, .. } = self;
        let sent = tx.try_fetch_fast(peers, out, transport, (peer, call), *seq + 1);
        *seq += u64::from(sent);
        sent
    }

    /// Carries out an atomic operation on a peer's memory.
    pub(super) fn atomic<T: Transport>(&mut self, transport: &mut T, call: AtomicCall) -> Result<(), Errno> {
        self.life.accepts()?;
        let access = self.tx.admit_atomic(&self.out, &self.limits, call)?;
        self.take_acks_along(transport, access.peer);
        self.start(transport, access)
    }

    pub(super) fn start<T: Transport>(&mut self, transport: &mut T, access: Access) -> Result<(), Errno> {
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
