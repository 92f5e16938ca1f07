//! Frames of one-sided operations: their parts, and how these lie in a header.

use super::violation::Violation;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Cause, Errno};
use ofi_memory::fresh;

/// A place in a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// Key of the region.
    pub key: u64,
    /// Offset in the region, or virtual address.
    pub addr: u64,
}

/// The change that an atomic operation makes to each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Group of calls.
    pub kind: AtomicKind,
    /// Operation.
    pub op: AtomicOp,
    /// Type of the elements.
    pub datatype: Datatype,
}

impl Action {
    /// The flags and the code of a header.
    pub(super) fn encode(&self) -> (u8, u16) {
        let flags = match self.kind {
            AtomicKind::Base => 0,
            AtomicKind::Fetch => FETCH,
            AtomicKind::Compare => COMPARE,
        };
        // Loaded one by one: they were just stored so.
        (flags, fresh(&self.op) as u16 | (fresh(&self.datatype) as u16) << 8)
    }

    /// The action in a header; a violation if operation and datatype do not go together.
    pub(super) fn decode(flags: u8, code: u16) -> Result<Self, Violation> {
        const UNKNOWN: Violation = Violation("an unknown or invalid atomic operation");
        let kind = match flags & (FETCH | COMPARE) {
            0 => AtomicKind::Base,
            FETCH => AtomicKind::Fetch,
            COMPARE => AtomicKind::Compare,
            _ => return Err(UNKNOWN),
        };
        let [op, datatype] = code.to_le_bytes();
        let op = AtomicOp::try_from(u32::from(op)).map_err(|_| UNKNOWN)?;
        let datatype = Datatype::try_from(u32::from(datatype)).map_err(|_| UNKNOWN)?;
        if op.is_valid(kind, datatype) { Ok(Self { kind, op, datatype }) } else { Err(UNKNOWN) }
    }

    /// Whether the peer answers with the previous values.
    pub const fn has_result(self) -> bool {
        !matches!(self.kind, AtomicKind::Base)
    }

    /// How many values travel for each element: the operand, the one to compare with, both or none.
    pub const fn values(self) -> usize {
        match self.kind {
            AtomicKind::Compare => 2,
            AtomicKind::Base | AtomicKind::Fetch => self.op.has_operand() as usize,
        }
    }
}

/// The operation is complete with this frame.
pub(super) const LAST: u8 = 1;
/// Completion data follows.
pub(super) const WITH_DATA: u8 = 2;
/// More bytes of the range follow in other frames.
pub(super) const MORE: u8 = 4;
const FETCH: u8 = 8;
const COMPARE: u8 = 16;
/// The bytes are to be durable.
pub(super) const COMMIT: u8 = 32;
/// The flags of [`Action::encode`].
pub(super) const ACTION: u8 = FETCH | COMPARE;

/// Why a peer refuses access to its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No region has the key.
    Key,
    /// The region was not registered for that.
    Rights,
    /// The range is not within the region.
    Bounds,
    /// The memory is not there.
    Fault,
    /// The endpoint is not open to this kind of access.
    Closed,
    /// Persistent memory could not be written back.
    Flush,
    /// The endpoint may not hold the payload, which it has to copy.
    Memory,
}

impl Refusal {
    const ALL: [Self; 7] =
        [Self::Key, Self::Rights, Self::Bounds, Self::Fault, Self::Closed, Self::Flush, Self::Memory];

    pub(super) const fn code(self) -> u16 {
        match self {
            Self::Key => 1,
            Self::Rights => 2,
            Self::Bounds => 3,
            Self::Fault => 4,
            Self::Closed => 5,
            Self::Flush => 6,
            Self::Memory => 7,
        }
    }

    pub(super) fn decode(code: u16) -> Result<Self, Violation> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code).ok_or(Violation("a refusal for no known reason"))
    }

    /// The error of the initiator's operation.
    pub const fn outcome(self) -> (Cause, Errno) {
        match self {
            Self::Key => (Cause::RemoteKey, Errno::EINVAL),
            Self::Rights => (Cause::RemoteRights, Errno::EACCES),
            Self::Bounds => (Cause::RemoteBounds, Errno::EACCES),
            Self::Fault => (Cause::RemoteFault, Errno::EFAULT),
            Self::Closed => (Cause::RemoteClosed, Errno::EACCES),
            Self::Flush => (Cause::RemoteFlush, Errno::EIO),
            Self::Memory => (Cause::RemoteMemory, Errno::ENOBUFS),
        }
    }
}
