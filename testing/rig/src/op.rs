//! Operations to post.

use ofi_core::{FiAddr, OpFlags};
use ofi_memory::Buffer;

/// The memory of an operation.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Memory of the rig.
    Ours(Vec<u8>),
    /// Memory of the caller.
    Theirs(Buffer),
}

/// A message to send.
#[derive(Debug)]
#[must_use]
pub struct Message {
    pub(crate) dest: FiAddr,
    pub(crate) memory: Memory,
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) flags: OpFlags,
    pub(crate) inject: bool,
}

impl Message {
    /// An untagged message of these bytes.
    pub const fn new(dest: FiAddr, bytes: Vec<u8>) -> Self {
        Self::with(dest, Memory::Ours(bytes))
    }

    /// An untagged message from the caller's memory.
    pub const fn lent(dest: FiAddr, buffer: Buffer) -> Self {
        Self::with(dest, Memory::Theirs(buffer))
    }

    const fn with(dest: FiAddr, memory: Memory) -> Self {
        Self { dest, memory, tag: None, data: None, flags: OpFlags::empty(), inject: false }
    }

    /// With a tag.
    pub fn tagged(self, tag: u64) -> Self {
        Self { tag: Some(tag), ..self }
    }

    /// With completion data for the receiver.
    pub fn data(self, data: u64) -> Self {
        Self { data: Some(data), ..self }
    }

    /// With flags, besides those that it has.
    pub fn flags(self, flags: OpFlags) -> Self {
        Self { flags: self.flags | flags, ..self }
    }

    /// By an inject call, which has no context and reports no success.
    pub fn injected(self) -> Self {
        Self { inject: true, ..self }
    }
}

/// A receive to post.
#[derive(Debug)]
#[must_use]
pub struct Receive {
    pub(crate) src: FiAddr,
    pub(crate) memory: Memory,
    pub(crate) tag: Option<(u64, u64)>,
    pub(crate) flags: OpFlags,
}

impl Receive {
    /// An untagged receive of up to `len` bytes from any source.
    pub fn new(len: usize) -> Self {
        Self::with(Memory::Ours(vec![0; len]))
    }

    /// An untagged receive from any source into the caller's memory.
    pub const fn lent(buffer: Buffer) -> Self {
        Self::with(Memory::Theirs(buffer))
    }

    const fn with(memory: Memory) -> Self {
        Self { src: FiAddr::UNSPEC, memory, tag: None, flags: OpFlags::empty() }
    }

    /// For messages with this tag.
    pub fn tagged(self, tag: u64) -> Self {
        self.matching(tag, 0)
    }

    /// For messages with a tag that differs from this one in `ignore` only.
    pub fn matching(self, tag: u64, ignore: u64) -> Self {
        Self { tag: Some((tag, ignore)), ..self }
    }

    /// For messages from this source.
    pub fn from(self, src: FiAddr) -> Self {
        Self { src, ..self }
    }

    /// With flags, besides those that it has.
    pub fn flags(self, flags: OpFlags) -> Self {
        Self { flags: self.flags | flags, ..self }
    }
}
