//! What all kinds of endpoints share: posting operations.

use crate::atomic::Fetch;
use crate::buf::{self, Bytes, IoBuf, IoBufMut, Kept};
use crate::element::Element;
use crate::engine::{Place, Post, What};
use crate::inner::{Inner, NO_PEER, To};
use crate::operation::Operation;
use crate::region::RemoteKey;
use ofi_core::atomic::{AtomicKind, AtomicOp};
use ofi_core::error::Result;
use ofi_core::{Errno, Error, FiAddr, MrAccess, OpFlags};
use ofi_engine::op::{Remote, RmaKind, RmaOp, SendOp};
use ofi_memory::Buffer;

impl Inner {
    fn start<B: 'static>(&self, peer: To, what: What, flags: OpFlags, kept: (Kept, Bytes)) -> Operation<'_, B> {
        let post = Post { what, peer: peer.unwrap_or(FiAddr::UNSPEC), flags };
        let context = match peer {
            Ok(_) => self.pump().start(self.parts().number, self.engine(), &post, kept),
            Err(()) => self.pump().refuse(self.parts().number, kept.0, Errno::EINVAL, NO_PEER),
        };
        Operation::new(self, context)
    }

    /// Always inlined, as [`Operations::receive`](crate::operations::Operations::receive) and for
    /// the same reason.
    #[inline(always)]
    pub(crate) fn send<B: IoBuf>(
        &self,
        peer: To,
        (tag, data): (Option<u64>, Option<u64>),
        flags: OpFlags,
        buf: B,
    ) -> Operation<'_, B> {
        // Not if others wait for room: they come first.
        if let Ok(dest) = peer
            && !self.pump().is_due()
            && flags.is_empty()
            && buf::try_send(self.engine(), dest, (tag, data), &buf)
        {
            return Operation::new(self, self.pump().sent(self.parts().number, tag.is_some(), Kept::to_send(buf)));
        }
        self.start(peer, What::Send { tag, data }, flags, Kept::to_send(buf))
    }

    /// Always inlined, as [`Self::send`].
    #[inline(always)]
    pub(crate) fn receive<B: IoBufMut>(&self, from: To, tag: Option<(u64, u64)>, buf: B) -> Operation<'_, B> {
        let (pump, number, kept) = (self.pump(), self.parts().number, Kept::to_fill(buf));
        let context = match from {
            Ok(peer) => pump.receive(number, self.engine(), (peer, tag), kept),
            Err(()) => pump.refuse(number, kept.0, Errno::EINVAL, NO_PEER),
        };
        Operation::new(self, context)
    }

    /// Sends bytes that are copied by the call; no completion reports the end.
    pub(crate) fn inject(&self, peer: To, tag: Option<u64>, bytes: &[u8]) -> Result<()> {
        let dest = peer.map_err(|()| Error::new(Errno::EINVAL, NO_PEER))?;
        let (buffer, flags) = (Buffer::Owned(bytes.to_vec()), OpFlags::empty());
        let op = SendOp { dest, buffer, context: 0, tag, data: None, flags, inject: true };
        self.injected(self.engine().messages.send(op))
    }

    /// The same into a peer's memory.
    pub(crate) fn inject_write(&self, peer: To, key: RemoteKey, bytes: &[u8]) -> Result<()> {
        let peer = peer.map_err(|()| Error::new(Errno::EINVAL, NO_PEER))?;
        if let Some(why) = Self::check(key, bytes.len(), MrAccess::REMOTE_WRITE) {
            return Err(Error::new(Errno::EACCES, why));
        }
        let one_sided = self.engine().one_sided.as_ref().ok_or(Errno::ENOSYS)?;
        let (buffer, flags) = (Buffer::Owned(bytes.to_vec()), OpFlags::empty());
        let remote = Remote::one(key.first(), bytes.len() as u64, key.key());
        let kind = RmaKind::Write;
        self.injected(one_sided.rma(RmaOp { kind, peer, buffer, remote, context: 0, data: None, flags, inject: true }))
    }

    fn injected(&self, result: Result<(), Errno>) -> Result<()> {
        let why = |errno| match errno {
            Errno::AGAIN => "inject: there is no room now; the peer or the end of an operation makes some",
            Errno::EMSGSIZE => "inject: more than `tx.inject_size` bytes",
            _ => "inject",
        };
        // The caller may wait for nothing, or do nothing but inject: what is held back leaves now.
        self.engine().control.make_progress();
        result.map_err(|errno| Error::new(errno, why(errno)))
    }

    /// Why `len` bytes of a key's range cannot be accessed with this right.
    fn check(key: RemoteKey, len: usize, right: MrAccess) -> Option<&'static str> {
        if len as u64 > key.len() {
            return Some("the buffer is longer than the range of the remote key");
        }
        (!key.access().contains(right)).then_some("the remote key does not grant this access")
    }

    fn access<B: 'static>(&self, peer: To, key: RemoteKey, kind: RmaKind, kept: (Kept, Bytes)) -> Operation<'_, B> {
        let right = match kind {
            RmaKind::Write => MrAccess::REMOTE_WRITE,
            RmaKind::Read => MrAccess::REMOTE_READ,
        };
        let what = What::Access { kind, place: Place { key: key.key(), at: key.first() }, data: None };
        match Self::check(key, kept.1.len(), right) {
            None => self.start(peer, what, OpFlags::empty(), kept),
            Some(why) => self.deny(kept.0, why),
        }
    }

    fn deny<B: 'static>(&self, kept: Kept, why: &str) -> Operation<'_, B> {
        let context = self.pump().refuse(self.parts().number, kept, Errno::EACCES, why);
        Operation::new(self, context)
    }

    pub(crate) fn write<B: IoBuf>(&self, peer: To, key: RemoteKey, buf: B) -> Operation<'_, B> {
        self.access(peer, key, RmaKind::Write, Kept::to_send(buf))
    }

    pub(crate) fn read<B: IoBufMut>(&self, peer: To, key: RemoteKey, buf: B) -> Operation<'_, B> {
        self.access(peer, key, RmaKind::Read, Kept::to_fill(buf))
    }

    pub(crate) fn atomic<T: Element>(
        &self,
        peer: To,
        key: RemoteKey,
        (kind, op): (AtomicKind, AtomicOp),
        (operand, compare): (T, T),
    ) -> Fetch<'_, T> {
        let place = Place { key: key.key(), at: key.first() };
        let (operand, compare) = (operand.to_word(), compare.to_word());
        let what = What::Atomic { kind, op, datatype: T::DATATYPE, place, operand, compare };
        let kept = Kept::to_fill(vec![0; size_of::<T>()]);
        let right = op.target_access(kind);
        Fetch::new(match Self::check(key, kept.1.len(), right) {
            None => self.start(peer, what, OpFlags::empty(), kept),
            Some(why) => self.deny(kept.0, why),
        })
    }
}
