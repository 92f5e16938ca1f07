//! The right to complete an operation, once.
//! A ticket is neither `Clone` nor silently dropped: it is finished, which yields the completion, or discarded,
//! which exists for fi_close(3) alone.

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
    /// The ticket of an operation with that context. `flags` say in the completion what kind it was.
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

    /// A ticket for a message that goes to a part of this one's buffer (FI_MULTI_RECV): it completes by itself.
    pub const fn part(&self) -> Self {
        Self { context: self.context, flags: self.flags, suppressed: self.suppressed }
    }

    /// Ends the operation: its completion, to be filled in with what the operation found out.
    #[inline]
    pub fn finish(self) -> Completion {
        let (context, flags) = (self.context, self.flags);
        mem::forget(self);
        Completion { context, flags, len: 0, buf: 0, data: 0, tag: 0, src: FiAddr::UNSPEC }
    }

    /// The same for a ticket that stays where it is; what is left of it may be dropped.
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
        // A lost ticket is an operation that never completes: loud where tests run, harmless elsewhere.
        // One without flags has been finished where it was.
        debug_assert!(
            self.flags.is_empty() || std::thread::panicking(),
            "an operation was dropped without completing (context {:#x})",
            self.context
        );
    }
}

/// A buffer and the ticket of the operation that it is for.
#[derive(Debug)]
pub struct Lent {
    /// The right to complete.
    pub ticket: Ticket,
    /// The bytes; elsewhere while a transport works on them.
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
