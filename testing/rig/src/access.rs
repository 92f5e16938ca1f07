//! One-sided operations of a side, and memory that it exposes to them.

use crate::op::Memory;
use crate::side::{INJECTED, Kind, Pending, Side, lend};
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Errno, FiAddr, MrAccess, OpFlags};
use ofi_engine::op::{AtomicCall, OneSidedOps, Remote, RemoteRange, RmaKind, RmaOp};
use ofi_engine::target::mr::{KeyChoice, MemoryRegion, Regions};
use ofi_engine::transport::Transport;
use ofi_memory::{Buffer, Loan, Reach, Region};
use std::sync::Arc;

/// Registered memory.
#[derive(Debug)]
pub struct Exposed {
    regions: Arc<Regions>,
    /// The registration.
    pub region: Arc<MemoryRegion>,
}

impl Exposed {
    /// The current contents.
    ///
    /// # Panics
    /// If it is closed.
    pub fn bytes(&self) -> Vec<u8> {
        let region = self.region.region();
        let len = usize::try_from(region.len()).expect("it is in memory");
        let mut bytes = vec![0; len];
        let all = region.resolve(0, len, MrAccess::empty()).expect("it is open");
        all.read(0, &mut bytes).expect("it is mapped");
        bytes
    }

    /// Ends the registration, even if accesses are in progress.
    pub fn retire(&self) {
        self.regions.remove(&self.region);
    }

    /// The contents after the registration has ended.
    ///
    /// # Panics
    /// If an access is still in progress.
    pub fn rest(&self) -> Vec<u8> {
        assert!(self.region.is_idle(), "an access is in progress");
        // Its key is gone, so no peer begins another access.
        self.region.region().reopen();
        let bytes = self.bytes();
        self.region.region().close();
        bytes
    }

    /// Ends the registration; returns the contents.
    pub fn close(self) -> Vec<u8> {
        let bytes = self.bytes();
        self.regions.remove(&self.region);
        bytes
    }
}

/// A peer's memory.
#[derive(Clone, Debug)]
pub struct Target {
    /// The peer.
    pub peer: FiAddr,
    /// Ranges of its memory.
    pub ranges: Vec<RemoteRange>,
}

impl Target {
    /// One range.
    pub fn new(peer: FiAddr, key: u64, addr: u64, len: usize) -> Self {
        Self { peer, ranges: vec![RemoteRange { addr, len: len as u64, key }] }
    }

    /// Another range, behind the others.
    #[must_use]
    pub fn and(mut self, key: u64, addr: u64, len: usize) -> Self {
        self.ranges.push(RemoteRange { addr, len: len as u64, key });
        self
    }

    fn remote(&self) -> Remote {
        match self.ranges[..] {
            [one] => Remote::One([one]),
            _ => Remote::Many(self.ranges.clone().into()),
        }
    }
}

impl<T: Transport> Side<T> {
    /// Registers memory with a key; peers address it by offsets.
    ///
    /// # Errors
    /// Those of [`Regions::register`].
    pub fn try_expose(&self, key: u64, bytes: Vec<u8>, access: MrAccess) -> ofi_core::error::Result<Exposed> {
        self.register(key, Region::owned(bytes, access), access)
    }

    /// Registers persistent memory (FI_RMA_PMEM) that peers may read and write.
    pub fn expose_persistent(&self, key: u64, bytes: Vec<u8>) -> Exposed {
        let (access, key) = (MrAccess::REMOTE, KeyChoice::Application(key));
        let region = self.regions.register_persistent(Region::owned(bytes, access), access, key, true);
        Exposed { regions: self.regions.clone(), region: region.expect("the key is free") }
    }

    /// Registers memory that peers may read and write, treated as if parts of it could be unmapped.
    pub fn expose_probed(&self, key: u64, bytes: Vec<u8>) -> Exposed {
        let region = Region::owned_with(bytes, MrAccess::REMOTE, Reach::Probed);
        self.register(key, region, MrAccess::REMOTE).expect("the key is free")
    }

    fn register(&self, key: u64, region: Region, access: MrAccess) -> ofi_core::error::Result<Exposed> {
        let region = self.regions.register(region, access, KeyChoice::Application(key), true)?;
        Ok(Exposed { regions: self.regions.clone(), region })
    }

    /// Registers memory that peers may read and write.
    pub fn expose(&self, key: u64, bytes: Vec<u8>) -> Exposed {
        self.try_expose(key, bytes, MrAccess::REMOTE).expect("the key is free")
    }

    /// Writes to a peer's memory; returns the context.
    ///
    /// # Errors
    /// Those of [`OneSidedOps::rma`].
    pub fn try_write(
        &mut self,
        target: &Target,
        bytes: Vec<u8>,
        data: Option<u64>,
        flags: OpFlags,
    ) -> Result<usize, Errno> {
        self.access(Memory::Ours(bytes), flags, |ep, buffer, context| {
            let (kind, remote) = (RmaKind::Write, target.remote());
            let inject = false;
            ep.rma(RmaOp { kind, peer: target.peer, buffer, remote, context, data, flags, inject })
        })
    }

    /// Writes to a peer's memory while few operations are outstanding.
    pub fn write(&mut self, target: &Target, bytes: Vec<u8>) -> usize {
        self.try_write(target, bytes, None, OpFlags::empty()).expect("few are outstanding")
    }

    /// Writes from memory that the caller keeps; returns the context.
    pub fn write_lent(&mut self, target: &Target, buffer: Buffer) -> usize {
        let (kind, remote, flags) = (RmaKind::Write, target.remote(), OpFlags::empty());
        let written = self.access(Memory::Theirs(buffer), flags, |ep, buffer, context| {
            ep.rma(RmaOp { kind, peer: target.peer, buffer, remote, context, data: None, flags, inject: false })
        });
        written.expect("few are outstanding")
    }

    /// Writes by an inject call.
    ///
    /// # Errors
    /// Those of [`OneSidedOps::rma`].
    pub fn inject_write(&mut self, target: &Target, bytes: Vec<u8>, data: Option<u64>) -> Result<(), Errno> {
        self.try_inject_write(target, bytes, data, OpFlags::INJECT)
    }

    /// The same with flags.
    ///
    /// # Errors
    /// Those of [`OneSidedOps::rma`].
    pub fn try_inject_write(
        &mut self,
        target: &Target,
        bytes: Vec<u8>,
        data: Option<u64>,
        flags: OpFlags,
    ) -> Result<(), Errno> {
        let (loan, buffer) = Loan::new(bytes);
        let (kind, remote) = (RmaKind::Write, target.remote());
        let op = RmaOp { kind, peer: target.peer, buffer, remote, context: INJECTED, data, flags, inject: true };
        let result = self.ep.rma(op);
        // The peer must not see later writes.
        loan.end().fill(0xee);
        result
    }

    /// Reads a peer's memory; returns the context. The completion has the bytes.
    ///
    /// # Errors
    /// Those of [`OneSidedOps::rma`].
    pub fn try_read(&mut self, target: &Target, flags: OpFlags) -> Result<usize, Errno> {
        let len: u64 = target.ranges.iter().map(|range| range.len).sum();
        let room = vec![0xcc; usize::try_from(len).expect("tests read little")];
        self.access(Memory::Ours(room), flags, |ep, buffer, context| {
            let (kind, remote, data) = (RmaKind::Read, target.remote(), None);
            ep.rma(RmaOp { kind, peer: target.peer, buffer, remote, context, data, flags, inject: false })
        })
    }

    /// Reads a peer's memory while few operations are outstanding.
    pub fn read(&mut self, target: &Target) -> usize {
        self.try_read(target, OpFlags::empty()).expect("few are outstanding")
    }

    /// Carries out an atomic operation; returns the context. The completion has the previous
    /// values, if the operation fetches.
    ///
    /// # Errors
    /// Those of [`OneSidedOps::atomic`].
    pub fn try_atomic(
        &mut self,
        target: &Target,
        (kind, op, datatype): (AtomicKind, AtomicOp, Datatype),
        operands: &[u8],
        compare: &[u8],
        flags: OpFlags,
    ) -> Result<usize, Errno> {
        let returns = kind != AtomicKind::Base;
        let len: u64 = target.ranges.iter().map(|range| range.len).sum();
        let room = if returns { vec![0xcc; usize::try_from(len).expect("few elements")] } else { Vec::new() };
        // Operands live as long as the operation: the endpoint's copy does.
        let (operands, compare) = (Buffer::Owned(operands.to_vec()), Buffer::Owned(compare.to_vec()));
        self.access(Memory::Ours(room), flags, |ep, result, context| {
            let remote = target.remote();
            let peer = target.peer;
            ep.atomic(AtomicCall {
                kind,
                op,
                datatype,
                peer,
                operands,
                compare,
                result,
                remote,
                context,
                data: None,
                flags,
                inject: false,
            })
        })
    }

    /// Carries out an atomic operation without a result by an inject call.
    ///
    /// # Errors
    /// Those of [`OneSidedOps::atomic`].
    pub fn inject_atomic(
        &mut self,
        target: &Target,
        (kind, op, datatype): (AtomicKind, AtomicOp, Datatype),
        operands: &[u8],
        compare: &[u8],
        flags: OpFlags,
    ) -> Result<(), Errno> {
        let (loan, operands) = Loan::new(operands.to_vec());
        let posted = self.ep.atomic(AtomicCall {
            kind,
            op,
            datatype,
            peer: target.peer,
            operands,
            compare: Buffer::Owned(compare.to_vec()),
            result: Buffer::empty(),
            remote: target.remote(),
            context: INJECTED,
            data: None,
            flags,
            inject: true,
        });
        // The peer must not see later writes.
        loan.end().fill(0xee);
        posted
    }

    fn access(
        &mut self,
        memory: Memory,
        flags: OpFlags,
        post: impl FnOnce(&ofi_engine::Endpoint<T, ofi_sync::lock::Park>, Buffer, usize) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        let context = self.context();
        let (loan, buffer) = lend(memory);
        if let Err(errno) = post(&self.ep, buffer, context) {
            drop(loan.map(Loan::end));
            return Err(errno);
        }
        let loan = if flags.contains(OpFlags::INJECT) {
            // The peer must not see later writes.
            loan.map(Loan::end).iter_mut().for_each(|bytes| bytes.fill(0xee));
            None
        } else {
            loan
        };
        let suppressed = self.selective && !flags.contains(OpFlags::COMPLETION);
        self.pending.insert(context, Pending { kind: Kind::Access, suppressed, loan });
        Ok(context)
    }
}
