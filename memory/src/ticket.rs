//! The right to complete an operation, once.
//! A ticket is neither `Clone` nor silently dropped: it is finished, which yields the completion,
//! or discarded, which exists for fi_close(3) alone.

use crate::Buffer;
use core::mem;
use ofi_core::{Completion, FiAddr, OpFlags};

/// The right to complete an operation.
#[derive(Debug)]
#[must_use = "every accepted operation completes exactly once"]
pub struct Ticket {
    context: usize,
    flags: OpFlags,
    /// Success is not reported (an inject call, or selective completion).
    suppressed: bool,
}

impl Ticket {
    /// The ticket of an operation with that context, whose completion gets `flags`.
    #[inline]
    pub const fn new(context: usize, flags: OpFlags, suppress: bool) -> Self {
        Self { context, flags, suppressed: suppress }
    }

    /// The application's context.
    pub const fn context(&self) -> usize {
        self.context
    }

    /// True if success is not reported.
    pub const fn is_suppressed(&self) -> bool {
        self.suppressed
    }

    /// A ticket for one message in this one's multi-receive buffer; it completes on its own.
    pub const fn part(&self) -> Self {
        Self { context: self.context, flags: self.flags, suppressed: self.suppressed }
    }

    /// Ends the operation: returns its completion, for the caller to fill in.
    #[inline]
    pub fn finish(self) -> Completion {
        let (context, flags) = (self.context, self.flags);
        mem::forget(self);
        Completion { context, flags, len: 0, buf: 0, data: 0, tag: 0, src: FiAddr::UNSPEC }
    }

    /// The same in place; the finished ticket may be dropped.
    #[inline(always)]
    pub const fn finish_here(&mut self) -> Completion {
        let (context, flags) = (self.context, self.flags);
        self.flags = OpFlags::empty();
        Completion { context, flags, len: 0, buf: 0, data: 0, tag: 0, src: FiAddr::UNSPEC }
    }

    /// Ends the operation without a completion. Only for closing an endpoint.
    pub const fn discard(self) {
        mem::forget(self);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A lost ticket is an operation that never completes: debug builds panic, release builds go
        // on. Without flags, the ticket has been finished in place.
        debug_assert!(
            self.flags.is_empty() || std::thread::panicking(),
            "an operation was dropped without completing (context {:#x})",
            self.context
        );
    }
}

/// A buffer and the ticket of its operation.
#[derive(Debug)]
pub struct Lent {
    /// The right to complete.
    pub ticket: Ticket,
    /// The bytes; `None` while a transport works on them.
    pub buffer: Option<Buffer>,
}

impl Lent {
    /// A buffer lent for an operation.
    pub const fn new(ticket: Ticket, buffer: Buffer) -> Self {
        Self { ticket, buffer: Some(buffer) }
    }

    /// Ends the operation; the buffer belongs to the application again.
    pub fn finish(self) -> Completion {
        self.ticket.finish()
    }

    /// Ends the operation without a completion. Only for closing an endpoint.
    pub fn discard(self) {
        self.ticket.discard();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finishing_gives_the_context_back() {
        let lent = Lent::new(Ticket::new(7, OpFlags::SEND, false), Buffer::empty());
        assert_eq!(lent.finish().context, 7);
        Ticket::new(1, OpFlags::SEND, true).discard();
        let mut ticket = Ticket::new(8, OpFlags::SEND, true);
        assert_eq!(ticket.finish_here().context, 8);
    }

    #[test]
    #[should_panic(expected = "without completing")]
    #[cfg(debug_assertions)]
    fn a_lost_ticket_is_noticed() {
        drop(Ticket::new(7, OpFlags::SEND, false));
    }
}
