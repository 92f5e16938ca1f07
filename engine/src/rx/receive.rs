//! Receives: posted, or with their message arriving.

use super::match_queue::QueueKind;
use crate::transport::{Down, LinkId};
use crate::wire::frame::MessageInfo;
use ofi_core::FiAddr;
use ofi_memory::{Buffer, Ticket};

/// Receiver side of a rendezvous: `at` of `want` bytes have arrived, of a message of `total` bytes.
#[derive(Debug)]
pub(super) struct RendezvousRecv {
    pub(super) link: LinkId,
    /// The sender's number for the message.
    pub(super) id: u32,
    pub(super) info: MessageInfo,
    pub(super) at: usize,
    pub(super) want: usize,
    pub(super) total: u64,
    pub(super) src: FiAddr,
    /// Its sequence number on the link.
    pub(super) seq: u32,
    /// Its place in the link's list.
    pub(super) place: u32,
}

/// Progress of a receive.
#[derive(Debug)]
pub(super) enum ReceiveStage {
    /// In its match queue.
    Posted,
    /// It has a message, whose payload is arriving in its buffer or in an unexpected message.
    Matched,
    /// The CTS is sent, or the transport brings the payload of an offer or is about to be asked to.
    /// Boxed, so that the receives of short messages stay small.
    Rendezvous(Box<RendezvousRecv>),
}

/// Kind of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A receive of one message.
    Plain,
    /// A multi-receive buffer, by its index in `multi_recvs`.
    MultiRecv(u32),
    /// The part of a multi-receive buffer that holds one message; `base` is its address.
    Part { parent: u32, base: usize },
    /// Drops its message (FI_DISCARD).
    Discard,
    /// A collective operation's; the application does not know of it.
    Group,
    /// Notifies the application of a buffered message (FI_BUFFERED_RECV): a posted tag, or for an
    /// untagged message that needs no receive.
    Notice { posted: bool },
}

/// A receive: posted, or with its message arriving.
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) ticket: Ticket,
    /// `None` while the transport fills it, or is about to be asked to.
    pub(super) buffer: Option<Buffer>,
    pub(super) stage: ReceiveStage,
    pub(super) role: Role,
    pub(super) queue: QueueKind,
    /// Its place among all operations of the endpoint.
    pub(super) seq: u64,
}

/// Whether a multi-receive buffer accepts more messages.
#[derive(Clone, Debug)]
pub(super) enum Intake {
    /// It does.
    Open,
    /// It is full.
    Full,
    /// It has failed.
    Failed(Down),
}

/// State of a multi-receive buffer (FI_MULTI_RECV). The buffer of its receive is the free part.
#[derive(Debug)]
pub(super) struct MultiRecv {
    /// Free space, in bytes, below which it is released.
    pub(super) least: usize,
    /// Number of messages that are arriving in it.
    pub(super) parts: u32,
    /// It has received a message.
    pub(super) used: bool,
    pub(super) intake: Intake,
}

/// A message that a peek reserved (FI_CLAIM), or why it is lost.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) context: usize,
    pub(super) message: Result<u32, Down>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_structures_keep_their_size() {
        assert!(size_of::<Receive>() <= 112, "{}", size_of::<Receive>());
    }
}
