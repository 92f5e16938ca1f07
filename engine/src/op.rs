//! Operation descriptors: the many calls of the interface that transfer data as four structs.

use core::ops::Deref;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_memory::Buffer;

/// The most ranges of a peer's memory that one operation names (rma_iov_limit, fi_endpoint(3)).
pub const MOST_REMOTE_RANGES: usize = 8;

/// A message to send.
#[derive(Debug)]
pub struct SendOp {
    /// The receiver; ignored on connected endpoints.
    pub dest: FiAddr,
    /// The payload.
    pub buffer: Buffer,
    /// The application's context.
    pub context: usize,
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Completion data for the receiver.
    pub data: Option<u64>,
    /// Flags of the call, or the endpoint's defaults.
    pub flags: OpFlags,
    /// An inject call: its success is never reported.
    pub inject: bool,
}

/// A buffer to receive into.
#[derive(Debug)]
pub struct RecvOp {
    /// The sender, or [`FiAddr::UNSPEC`] for any.
    pub src: FiAddr,
    /// The receive buffer.
    pub buffer: Buffer,
    /// The application's context.
    pub context: usize,
    /// Tag and ignored bits of a tagged receive.
    pub tag: Option<(u64, u64)>,
    /// Flags of the call, or the endpoint's defaults.
    pub flags: OpFlags,
}

/// The most bytes of elements that one atomic operation changes.
pub const MOST_ATOMIC: usize = 4096;

/// A range of a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// Its first byte: an offset into the region, or a virtual address (FI_MR_VIRT_ADDR).
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Key of the region.
    pub key: u64,
}

/// The ranges of a peer's memory that an operation names, at most [`MOST_REMOTE_RANGES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// One range.
    One([RemoteRange; 1]),
    /// Several, or none.
    Many(Box<[RemoteRange]>),
}

impl Remote {
    /// One range.
    #[inline(always)]
    pub const fn one(addr: u64, len: u64, key: u64) -> Self {
        Self::One([RemoteRange { addr, len, key }])
    }
}

impl Deref for Remote {
    type Target = [RemoteRange];
    #[inline(always)]
    fn deref(&self) -> &[RemoteRange] {
        match self {
            Self::One(range) => range,
            Self::Many(ranges) => ranges,
        }
    }
}

/// Direction of a remote memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaKind {
    /// From the local buffer to the peer's memory.
    Write,
    /// From the peer's memory to the local buffer.
    Read,
}

/// A remote memory access (fi_rma(3)).
#[derive(Debug)]
pub struct RmaOp {
    /// Direction.
    pub kind: RmaKind,
    /// The peer; ignored on connected endpoints.
    pub peer: FiAddr,
    /// The local bytes, as many as the remote ranges have together.
    pub buffer: Buffer,
    /// The peer's memory.
    pub remote: Remote,
    /// The application's context.
    pub context: usize,
    /// Completion data for the peer; only with a write.
    pub data: Option<u64>,
    /// Flags of the call, or the endpoint's defaults.
    pub flags: OpFlags,
    /// An inject call: its success is never reported.
    pub inject: bool,
}

/// An atomic operation on a peer's memory (fi_atomic(3)). Buffers have as many bytes as the remote
/// ranges have together, or none where the operation takes none.
#[derive(Debug)]
pub struct AtomicCall {
    /// Group of calls.
    pub kind: AtomicKind,
    /// What is done with each element.
    pub op: AtomicOp,
    /// Type of the elements.
    pub datatype: Datatype,
    /// The peer; ignored on connected endpoints.
    pub peer: FiAddr,
    /// The operands; unused by [`AtomicOp::Read`].
    pub operands: Buffer,
    /// The values to compare with, for [`AtomicKind::Compare`].
    pub compare: Buffer,
    /// Takes the previous values, but for [`AtomicKind::Base`].
    pub result: Buffer,
    /// The peer's elements.
    pub remote: Remote,
    /// The application's context.
    pub context: usize,
    /// Completion data for the peer.
    pub data: Option<u64>,
    /// Flags of the call, or the endpoint's defaults.
    pub flags: OpFlags,
    /// An inject call: its success is never reported.
    pub inject: bool,
}

/// Access to a peer's memory, without a receive on its side.
pub trait OneSidedOps: Send + Sync + 'static {
    /// Reads or writes a peer's memory (fi_rma(3)).
    fn rma(&self, op: RmaOp) -> Result<(), Errno>;
    /// Carries out an atomic operation on a peer's memory (fi_atomic(3)).
    fn atomic(&self, call: AtomicCall) -> Result<(), Errno>;
}

/// Posting of sends and receives, common to all kinds of endpoints.
pub trait MessageOps: Send + Sync + 'static {
    /// Sends a message.
    fn send(&self, op: SendOp) -> Result<(), Errno>;
    /// Posts a receive.
    fn receive(&self, op: RecvOp) -> Result<(), Errno>;
}
