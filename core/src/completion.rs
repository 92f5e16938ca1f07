//! Entries of a completion queue (fi_cq(3)).

use crate::addr::Addr;
use crate::caps::OpFlags;
use crate::errno::Errno;

/// A handle of an address vector, `fi_addr_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiAddr(pub u64);

impl FiAddr {
    /// No address, or any (`FI_ADDR_NOTAVAIL`, `FI_ADDR_UNSPEC`).
    pub const UNSPEC: Self = Self(u64::MAX);

    /// The table index; `None` for [`Self::UNSPEC`].
    pub fn index(self) -> Option<usize> {
        if self == Self::UNSPEC { None } else { usize::try_from(self.0).ok() }
    }
}

/// How many high bits of a handle name a receive context of the peer (`rx_ctx_bits`, fi_av(3)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxBits(u32);

impl RxBits {
    /// That many bits, below 64.
    pub const fn new(bits: u32) -> Option<Self> {
        if bits < 64 { Some(Self(bits)) } else { None }
    }

    /// A handle of the address vector, and the index of a receive context.
    #[inline]
    pub fn split(self, handle: FiAddr) -> (FiAddr, u64) {
        if self.0 == 0 || handle == FiAddr::UNSPEC {
            return (handle, 0);
        }
        let shift = 64 - self.0;
        (FiAddr(handle.0 & (u64::MAX >> self.0)), handle.0 >> shift)
    }

    /// The handle of a receive context (fi_rx_addr); `index` fits into the bits.
    #[inline]
    pub fn join(self, handle: FiAddr, index: u16) -> FiAddr {
        if index == 0 || self.0 == 0 || handle == FiAddr::UNSPEC {
            handle
        } else {
            FiAddr(u64::from(index) << (64 - self.0) | handle.0)
        }
    }

    /// Whether a handle leaves the bits free.
    pub const fn leaves(self, handle: FiAddr) -> bool {
        handle.0 <= u64::MAX >> self.0
    }
}

/// A successful operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The application's context.
    pub context: usize,
    /// Kind of the operation, and which fields are valid.
    pub flags: OpFlags,
    /// Bytes of the message.
    pub len: usize,
    /// Address of the message in a multi-receive buffer.
    pub buf: usize,
    /// Completion data of the peer.
    pub data: u64,
    /// Tag.
    pub tag: u64,
    /// The sender, if the address vector has it.
    pub src: FiAddr,
}

/// Why an operation failed, in the provider's words: `prov_errno` of an error entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Cause {
    /// The connection could not be made.
    Connect = 1,
    /// The connection could not be made in time.
    ConnectDeadline = 2,
    /// The peer refused the connection.
    Rejected = 3,
    /// The connection broke.
    Broken = 4,
    /// The peer closed its endpoint.
    PeerClosed = 5,
    /// A new endpoint has replaced the peer that the operation targeted.
    PeerRestarted = 6,
    /// The peer broke the protocol.
    Violation = 7,
    /// The receive buffer was too small.
    Truncated = 8,
    /// The application cancelled the operation.
    Cancelled = 9,
    /// The endpoint was closed or shut down.
    LocalClosed = 10,
    /// The peer's host does not acknowledge.
    Silent = 11,
    /// The address vector has no such entry.
    NoAddress = 12,
    /// The peer could no longer take the message.
    PeerDropped = 13,
    /// A peek found no message.
    NoMessage = 14,
    /// The sender is not in the address vector.
    UnknownSender = 15,
    /// The message's memory was unmapped before the message was sent.
    Absent = 16,
    /// The endpoint has used up the memory that it may hold for its peers.
    NoMemory = 17,
    /// No region of the peer has the key.
    RemoteKey = 18,
    /// The peer's region was not registered for this access.
    RemoteRights = 19,
    /// The range is not within the peer's region.
    RemoteBounds = 20,
    /// The peer's memory is not there.
    RemoteFault = 21,
    /// The peer's endpoint is not open to this access.
    RemoteClosed = 22,
    /// The peer could not make the bytes durable.
    RemoteFlush = 23,
    /// The peer's endpoint has used up the memory that it may hold for its peers.
    RemoteMemory = 24,
    /// The condition of a deferred operation held, but the operation could not start.
    NotStarted = 25,
    /// The completion queue had no room for an entry.
    Overrun = 26,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 26] = [
        Self::Connect,
        Self::ConnectDeadline,
        Self::Rejected,
        Self::Broken,
        Self::PeerClosed,
        Self::PeerRestarted,
        Self::Violation,
        Self::Truncated,
        Self::Cancelled,
        Self::LocalClosed,
        Self::Silent,
        Self::NoAddress,
        Self::PeerDropped,
        Self::NoMessage,
        Self::UnknownSender,
        Self::Absent,
        Self::NoMemory,
        Self::RemoteKey,
        Self::RemoteRights,
        Self::RemoteBounds,
        Self::RemoteFault,
        Self::RemoteClosed,
        Self::RemoteFlush,
        Self::RemoteMemory,
        Self::NotStarted,
        Self::Overrun,
    ];

    /// The number for `prov_errno`.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The cause with that number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.code() == code)
    }

    /// A text for the number alone.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Connect => "the connection could not be made",
            Self::ConnectDeadline => "the connection was not made within its deadline",
            Self::Rejected => "the peer refused the connection",
            Self::Broken => "the connection broke",
            Self::PeerClosed => "the peer closed its endpoint",
            Self::PeerRestarted => "the peer was restarted",
            Self::Violation => "the peer broke the protocol",
            Self::Truncated => "the message is longer than the receive buffer",
            Self::Cancelled => "the application cancelled the operation",
            Self::LocalClosed => "the endpoint was shut down",
            Self::Silent => "the peer's host does not acknowledge",
            Self::NoAddress => "the address vector has no such entry",
            Self::PeerDropped => "the peer dropped the message",
            Self::NoMessage => "no matching message",
            Self::UnknownSender => "the sender is not in the address vector",
            Self::Absent => "the memory of the message was unmapped before it had been sent",
            Self::NoMemory => "the memory that the endpoint may hold for its peers is used up",
            Self::RemoteKey => "the peer has no memory region with this key",
            Self::RemoteRights => "the peer's memory region was not registered for this access",
            Self::RemoteBounds => "the range is not within the peer's memory region",
            Self::RemoteFault => "the peer's memory is not there",
            Self::RemoteClosed => "the peer's endpoint does not take part in this kind of access",
            Self::RemoteFlush => "the peer could not make the bytes durable",
            Self::RemoteMemory => "the peer has used up the memory that it may hold for its peers",
            Self::NotStarted => "the deferred operation could not start",
            Self::Overrun => "the completion queue was full, and its size bounds it (FI_OFI_CQ_BOUNDED)",
        }
    }
}

/// A failed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The operation, as far as known.
    pub completion: Completion,
    /// The error.
    pub errno: Errno,
    /// Bytes that were cut off.
    pub olen: usize,
    /// Why.
    pub cause: Cause,
    /// Why, in a sentence: "connect to 127.0.0.1:7471: refused".
    pub text: std::sync::Arc<str>,
    /// The sender that the address vector does not have (FI_SOURCE_ERR).
    pub sender: Option<Addr>,
}
