//! Operation descriptors: the many calls of the interface that transfer data as four structs.

use core::ops::Deref;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_memory::{Buffer, Span};

/// The most ranges of a peer's memory that one operation names (rma_iov_limit, fi_endpoint(3)).
pub const MOST_REMOTE_RANGES: usize = 8;

/// What a member does in its group (fi_join(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// It sends data.
    pub send: bool,
    /// It receives data.
    pub receive: bool,
}

impl Ways {
    /// It does both.
    pub const BOTH: Self = Self { send: true, receive: true };
    /// It only sends.
    pub const SEND: Self = Self { send: true, receive: false };
    /// It only receives.
    pub const RECEIVE: Self = Self { send: false, receive: true };
}

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

/// A collective operation (fi_collective(3)). The values are the interface's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CollectiveKind {
    /// Waits for all members.
    Barrier = 0,
    /// The root's elements for all.
    Broadcast = 1,
    /// A block of each member for each other.
    Alltoall = 2,
    /// The combined elements for all.
    Allreduce = 3,
    /// The elements of all for all.
    Allgather = 4,
    /// A block of the combined elements for each.
    ReduceScatter = 5,
    /// The combined elements for the root.
    Reduce = 6,
    /// A block of the root's elements for each.
    Scatter = 7,
    /// The elements of all for the root.
    Gather = 8,
}

impl CollectiveKind {
    /// All, by value.
    pub const ALL: [Self; 9] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Alltoall,
        Self::Allreduce,
        Self::Allgather,
        Self::ReduceScatter,
        Self::Reduce,
        Self::Scatter,
        Self::Gather,
    ];

    /// Whether it combines elements.
    pub const fn combines(self) -> bool {
        matches!(self, Self::Allreduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether one member is its root.
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Scatter | Self::Gather)
    }
}

/// The most bytes of elements that a collective call names: those that a member contributes or
/// gets, or one block of them where it names a block for each member.
pub const MOST_COLLECTIVE: usize = 1 << 30;

/// The elements of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// Their type.
    pub datatype: Datatype,
    /// How an operation combines them; `None` (FI_NOOP) keeps the first member's.
    pub op: Option<AtomicOp>,
    /// How many: of each member's block in alltoall, allgather, reduce-scatter, scatter and gather,
    /// otherwise in all.
    pub count: usize,
}

impl Elements {
    /// Whether an operation of that kind can have them (fi_query_collective).
    pub fn suit(&self, kind: CollectiveKind) -> bool {
        let exists = AtomicOp::Write.goes_with(self.datatype);
        let op = self.op.is_none_or(|op| match op {
            AtomicOp::Diff => false,
            AtomicOp::Read => true,
            op => op.is_valid(AtomicKind::Base, self.datatype),
        });
        exists && (op || !kind.combines())
    }

    /// Whether the members' operands may be combined in any order.
    pub const fn commute(&self) -> bool {
        !matches!(self.op, None | Some(AtomicOp::Read | AtomicOp::Write))
    }
}

/// A call of a collective operation.
#[derive(Debug)]
pub struct CollectiveCall {
    /// The operation.
    pub kind: CollectiveKind,
    /// The group: what [`crate::erased::EndpointControl::join_group`] returned.
    pub group: FiAddr,
    /// The root, where there is one.
    pub root: FiAddr,
    /// The elements; `None` for a barrier.
    pub elements: Option<Elements>,
    /// The application's input, and the result of a broadcast. Only read as far as the operation
    /// needs it of this member.
    pub buffer: Input,
    /// Takes the result.
    pub result: Input,
    /// The application's context.
    pub context: usize,
    /// Flags of the call, or the endpoint's defaults.
    pub flags: OpFlags,
}

/// A buffer whose length follows from the operation and the group: given its bytes, the buffer.
pub struct Input(Box<dyn FnOnce(usize) -> Buffer>);

impl Input {
    /// A buffer that is made once its length is known.
    pub fn new(make: impl FnOnce(usize) -> Buffer + 'static) -> Self {
        Self(Box::new(make))
    }

    /// No buffer.
    pub fn none() -> Self {
        Self::new(|_| Buffer::empty())
    }

    /// The buffer with that many bytes.
    pub fn of_len(self, len: usize) -> Buffer {
        if len == 0 { Buffer::empty() } else { (self.0)(len) }
    }
}

impl core::fmt::Debug for Input {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Input")
    }
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
    /// Sends one piece of memory if that is done when the call returns: true if so. Then nothing
    /// reports its completion, and the memory is not used any more. On false nothing has happened,
    /// perhaps because [`Self::send`] would fail.
    fn try_send(&self, span: Span, dest: FiAddr, tag: Option<u64>, data: Option<u64>) -> bool {
        let _ = (span, dest, tag, data);
        false
    }
    /// Posts a receive.
    fn receive(&self, op: RecvOp) -> Result<(), Errno>;
    /// [`Self::receive`] into one piece of memory, without flags. Its arguments are words, which
    /// registers pass: the fields of a structure would be loaded while their stores are in flight.
    fn receive_into(&self, span: Span, context: usize, src: FiAddr, tag: Option<(u64, u64)>) -> Result<(), Errno> {
        self.receive(RecvOp { src, buffer: Buffer::One(span), context, tag, flags: OpFlags::empty() })
    }
}
