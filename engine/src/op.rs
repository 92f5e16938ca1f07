//! Operation descriptors: the many send and receive calls of the interface as two structs.

use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_memory::Buffer;

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

/// Posting of sends and receives, common to all kinds of endpoints.
pub trait MessageOps: Send + Sync + 'static {
    /// Sends a message.
    fn send(&self, op: SendOp) -> Result<(), Errno>;
    /// Posts a receive.
    fn receive(&self, op: RecvOp) -> Result<(), Errno>;
}
