//! Descriptors: the many calls of the interface as two values.

use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_memory::Buffer;

/// A message to send.
#[derive(Debug)]
pub struct SendOp {
    /// The receiver; ignored on connected endpoints.
    pub dest: FiAddr,
    /// The bytes.
    pub buffer: Buffer,
    /// The application's context.
    pub context: usize,
    /// The tag, if it is a tagged message.
    pub tag: Option<u64>,
    /// Completion data for the receiver.
    pub data: Option<u64>,
    /// Flags of the call, or the endpoint's defaults.
    pub flags: OpFlags,
    /// An inject call: success is never reported.
    pub inject: bool,
}

/// A buffer to receive into.
#[derive(Debug)]
pub struct RecvOp {
    /// The sender, or [`FiAddr::UNSPEC`] for any.
    pub src: FiAddr,
    /// Where the message goes.
    pub buffer: Buffer,
    /// The application's context.
    pub context: usize,
    /// Tag and ignored bits, if it is for tagged messages.
    pub tag: Option<(u64, u64)>,
    /// Flags of the call, or the endpoint's defaults.
    pub flags: OpFlags,
}

/// What messages are posted to: any kind of endpoint.
pub trait MessageOps: Send + Sync + 'static {
    /// Sends a message.
    fn send(&self, op: SendOp) -> Result<(), Errno>;
    /// Posts a receive.
    fn receive(&self, op: RecvOp) -> Result<(), Errno>;
}
