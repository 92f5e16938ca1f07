//! What deferred work does when its condition holds.

use super::{Notice, Tally};
use crate::op::{AtomicCall, RecvOp, RmaKind, RmaOp, SendOp};
use core::fmt::Debug;
use ofi_core::atomic::AtomicKind;
use ofi_core::{Completion, Errno, FiAddr, OpFlags};
use ofi_sync::busy::Child;
use std::sync::{Arc, Weak};

/// A data transfer that waits.
#[derive(Debug)]
pub enum Operation {
    /// A send.
    Send(SendOp),
    /// A receive.
    Receive(RecvOp),
    /// A remote memory access.
    Rma(RmaOp),
    /// An atomic operation.
    Atomic(AtomicCall),
}

impl Operation {
    /// Whether it posts a receive; all others transmit.
    pub(crate) const fn receives(&self) -> bool {
        matches!(self, Self::Receive(_))
    }

    /// The application's context.
    pub const fn context(&self) -> usize {
        match self {
            Self::Send(op) => op.context,
            Self::Receive(op) => op.context,
            Self::Rma(op) => op.context,
            Self::Atomic(op) => op.context,
        }
    }

    pub(crate) const fn set_context(&mut self, context: usize) {
        match self {
            Self::Send(op) => op.context = context,
            Self::Receive(op) => op.context = context,
            Self::Rma(op) => op.context = context,
            Self::Atomic(op) => op.context = context,
        }
    }

    /// Copies the payload of an operation with FI_INJECT: the application may change its buffers
    /// when the call that queues it returns.
    pub fn prepare(&mut self) {
        let (flags, buffers) = match self {
            Self::Send(op) => (op.flags, [Some(&mut op.buffer), None]),
            Self::Rma(op) if op.kind == RmaKind::Write => (op.flags, [Some(&mut op.buffer), None]),
            Self::Atomic(op) => (op.flags, [Some(&mut op.operands), Some(&mut op.compare)]),
            Self::Receive(_) | Self::Rma(_) => return,
        };
        if flags.contains(OpFlags::INJECT) {
            for buffer in buffers.into_iter().flatten() {
                *buffer = buffer.to_owned_copy();
            }
        }
    }

    /// Its completion, if it ends before it starts.
    pub(crate) fn completion(&self) -> Completion {
        let message = |tagged: bool| if tagged { OpFlags::TAGGED } else { OpFlags::MSG };
        let (flags, len, data, tag) = match self {
            Self::Send(op) => (message(op.tag.is_some()) | OpFlags::SEND, op.buffer.len(), op.data, op.tag),
            Self::Receive(op) => (message(op.tag.is_some()) | OpFlags::RECV, 0, None, None),
            Self::Rma(op) => {
                let way = if op.kind == RmaKind::Read { OpFlags::READ } else { OpFlags::WRITE };
                (OpFlags::RMA | way, op.buffer.len(), op.data, None)
            }
            Self::Atomic(op) => {
                let reads = op.kind != AtomicKind::Base;
                (OpFlags::ATOMIC | if reads { OpFlags::READ } else { OpFlags::WRITE }, op.operands.len(), op.data, None)
            }
        };
        let (data, tag) = (data.unwrap_or(0), tag.unwrap_or(0));
        Completion { context: self.context(), flags, len, buf: 0, data, tag, src: FiAddr::UNSPEC }
    }
}

/// An operation that cannot start now, because too many are outstanding.
pub type NotStarted = (Operation, Option<Notice>);

/// An endpoint that starts deferred operations.
pub trait Initiator: Debug + Send + Sync {
    /// Checks an operation that is to be deferred, before it is copied.
    ///
    /// # Errors
    /// ENOCQ for a direction without a completion queue, ENOSYS for a receive of an endpoint with a
    /// shared receive context, EMSGSIZE for a payload that is too long.
    fn admit(&self, operation: &Operation) -> Result<(), Errno>;
    /// Starts an operation. With a notice it reports to that, otherwise as if it were posted now.
    /// If it cannot start, it completes with the error.
    ///
    /// # Errors
    /// Gives the operation back if it has to wait until others have completed. The endpoint then
    /// notifies `room`, once, when there may be room for it.
    fn start(
        &self,
        operation: Operation,
        notice: Option<Notice>,
        room: Option<&Weak<dyn RoomWatch>>,
    ) -> Result<(), Box<NotStarted>>;
    /// An operation ends before it starts, because the application has cancelled it: reports that.
    fn cancel_deferred(&self, operation: &Operation);
    /// Whether it takes its receives from a shared context, so that it can post none itself.
    fn shares_receives(&self) -> bool;
}

/// Observer of endpoints that had no room for an operation.
pub trait RoomWatch: Debug + Send + Sync {
    /// An endpoint has room again. The caller may hold its lock.
    fn handle_room(&self);
}

/// A data transfer on an endpoint.
#[derive(Debug)]
pub struct Transfer {
    /// The endpoint.
    pub endpoint: Arc<dyn Initiator>,
    /// What it does.
    pub operation: Operation,
    /// Where it reports; as usual if there is none.
    pub notice: Option<Notice>,
}

/// What deferred work does.
#[derive(Debug)]
pub enum Action {
    /// Starts a data transfer.
    Transfer(Box<Transfer>),
    /// Adds to a counter's successes.
    Add(Arc<dyn Tally>, u64),
    /// Sets a counter's successes.
    Set(Arc<dyn Tally>, u64),
}

/// Deferred work.
#[derive(Debug)]
pub struct Work {
    /// By which the application names it, to cancel it; 0 for a triggered operation, which is
    /// cancelled by its context.
    pub id: usize,
    /// What it does.
    pub action: Action,
    /// Keep the counters open that it waits for or changes, until it starts.
    pub users: Vec<Child>,
}

/// The half of an endpoint, transmitting or receiving, that limits its outstanding operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Half {
    /// The [`address`] of the endpoint.
    pub(super) endpoint: usize,
    receives: bool,
}

impl Work {
    /// The half of an endpoint that a data transfer uses.
    pub(super) fn half(&self) -> Option<Half> {
        match &self.action {
            Action::Transfer(transfer) => {
                let Transfer { endpoint, operation, .. } = &**transfer;
                Some(Half { endpoint: address(endpoint), receives: operation.receives() })
            }
            Action::Add(..) | Action::Set(..) => None,
        }
    }

    /// Whether it is a triggered operation of an endpoint, with that context.
    pub(super) fn is_triggered(&self, of: usize, context: usize) -> bool {
        match &self.action {
            Action::Transfer(transfer) => {
                let Transfer { endpoint, operation, notice } = &**transfer;
                notice.is_none() && address(endpoint) == of && operation.context() == context
            }
            Action::Add(..) | Action::Set(..) => false,
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// Gives it back if it has to wait; its endpoint then notifies `room`.
    pub(super) fn start(self, room: Option<&Weak<dyn RoomWatch>>) -> Result<(), Self> {
        let Self { id, action, users } = self;
        // An application that sees an effect of the work may close its counters.
        drop(users);
        match action {
            Action::Add(counter, value) => counter.add(value),
            Action::Set(counter, value) => counter.set(value),
            Action::Transfer(transfer) => {
                let Transfer { endpoint, operation, notice } = *transfer;
                if let Err(back) = endpoint.start(operation, notice, room) {
                    let (operation, notice) = *back;
                    let action = Action::Transfer(Box::new(Transfer { endpoint, operation, notice }));
                    return Err(Self { id, action, users: Vec::new() });
                }
            }
        }
        Ok(())
    }
}

/// A number that no other open endpoint has.
pub(super) fn address(endpoint: &Arc<dyn Initiator>) -> usize {
    Arc::as_ptr(endpoint).addr()
}
