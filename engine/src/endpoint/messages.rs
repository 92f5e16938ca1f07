//! Posting sends and receives, and canceling them (fi_msg(3), fi_tagged(3), fi_endpoint(3)).

use super::Endpoint;
use super::inner::Inner;
use super::life::Life;
use crate::av::Reader;
use crate::op::{AtomicCall, MessageOps, OneSidedOps, RecvOp, RmaOp, SendOp};
use crate::rx::shared::Notified;
use crate::transport::Transport;
use crate::tx::{Admitted, How};
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_memory::{Buffer, Span};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::Ordering;

impl<T: Transport, K: LockKind> MessageOps for Endpoint<T, K> {
    #[inline(always)]
    fn send(&self, op: SendOp) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return Err(Errno::EOPBADSTATE) };
        let admitted = core.admit(&op)?;
        if T::INLINE_MAX > 0 && core.try_send_fast(transport, &op, admitted) {
            drop(inner);
            // Sent. Polling looks for the peer's answer.
            self.ready_flag.mark_ready();
            return Ok(());
        }
        self.send_admitted(inner, op, admitted)
    }

    fn try_send(&self, span: Span, dest: FiAddr, tag: Option<u64>, data: Option<u64>) -> bool {
        // A transport without fast sends has none of empty messages either.
        if T::INLINE_MAX == 0 || span.len() > T::INLINE_MAX {
            return false;
        }
        let (buffer, flags) = (Buffer::One(span), OpFlags::empty());
        let op = SendOp { dest, buffer, context: 0, tag, data, flags, inject: false };
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return false };
        let Ok(admitted) = core.admit(&op) else { return false };
        let sent = core.try_send_fast(transport, &op, admitted.silent());
        drop(inner);
        if sent {
            // As in `send`.
            self.ready_flag.mark_ready();
        }
        sent
    }

    #[inline(always)]
    fn receive(&self, op: RecvOp) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        match inner.core.try_post_fast(op) {
            Ok(()) => Ok(()),
            Err(op) => self.receive_any(inner, op),
        }
    }
}

impl<T: Transport, K: LockKind> OneSidedOps for Endpoint<T, K> {
    #[inline]
    fn rma(&self, mut op: RmaOp) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return Err(Errno::EOPBADSTATE) };
        let how = core.admit_rma(&op)?;
        // The operation is not moved: copying what was just stored in other widths would wait until
        // all earlier stores are done, those to shared memory included.
        if core.try_write_fast(transport, &mut op, how) {
            self.hand_on(inner);
            return Ok(());
        }
        self.rma_admitted(inner, op, how)
    }

    #[inline]
    fn atomic(&self, mut call: AtomicCall) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return Err(Errno::EOPBADSTATE) };
        if core.try_fetch_fast(transport, &mut call) {
            self.hand_on(inner);
            return Ok(());
        }
        self.carry_out_atomic(inner, call)
    }
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    #[inline(never)]
    fn send_admitted(&self, mut inner: K::Guard<'_, Inner<T, K>>, op: SendOp, admitted: Admitted) -> Result<(), Errno> {
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return Err(Errno::EOPBADSTATE) };
        let result = core.send(transport, op, admitted);
        self.hand_on(inner);
        result
    }

    #[inline(never)]
    fn rma_admitted(&self, mut inner: K::Guard<'_, Inner<T, K>>, op: RmaOp, how: How) -> Result<(), Errno> {
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return Err(Errno::EOPBADSTATE) };
        let result = core.rma(transport, op, how);
        self.hand_on(inner);
        result
    }

    #[inline(never)]
    fn carry_out_atomic(&self, mut inner: K::Guard<'_, Inner<T, K>>, call: AtomicCall) -> Result<(), Errno> {
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return Err(Errno::EOPBADSTATE) };
        let result = core.atomic(transport, call);
        self.hand_on(inner);
        result
    }

    /// Finishes a call that left work for the next poll. With automatic progress it is sent now,
    /// unless the application polls the endpoint: it need not call again. A sleeping thread is
    /// woken if the work is due earlier than it knows.
    pub(super) fn hand_on(&self, mut inner: K::Guard<'_, Inner<T, K>>) {
        if inner.prompt {
            inner.flush_all();
        }
        let wants_poll = inner.transport.as_ref().is_some_and(Transport::wants_poll);
        if inner.holds() != inner.is_marked {
            self.note_held(inner);
        } else {
            drop(inner);
        }
        if wants_poll {
            self.poll_once();
        }
        self.mark_ready();
    }

    /// Has the endpoint polled. A sleeping thread is woken if what was posted is not sent, or the
    /// endpoint's next deadline is earlier than it knows.
    pub(super) fn mark_ready(&self) {
        // Relaxed, after the endpoint's lock was released: a flush that clears the flag without
        // knowing of the work holds the lock before the work is done.
        self.unflushed.store(true, Ordering::Relaxed);
        self.ready_flag.mark_ready();
        if self.ready_flag.is_slept_on() {
            self.wake_progress_thread();
        }
    }

    #[cold]
    #[inline(never)]
    fn receive_the_rest(&self, mut guard: K::Guard<'_, Inner<T, K>>, op: RecvOp) -> Result<(), Errno> {
        let Inner { transport: Some(transport), core, .. } = &mut *guard else { return Err(Errno::EOPBADSTATE) };
        let result = core.receive_the_rest(transport, op);
        self.hand_on_answers(guard);
        result
    }

    #[inline(never)]
    fn receive_any(&self, mut guard: K::Guard<'_, Inner<T, K>>, op: RecvOp) -> Result<(), Errno> {
        let inner = &mut *guard;
        if inner.core.has_ended() {
            return self.receive_the_rest(guard, op);
        }
        if inner.transport.is_none() && matches!(inner.core.life, Life::Connected(_)) {
            // Receives may be posted before connecting, when the transport is not open yet.
            inner.open().map_err(|error| error.errno())?;
        }
        let Inner { transport: Some(transport), core, .. } = inner else { return Err(Errno::EOPBADSTATE) };
        let result = core.receive(transport, op, false);
        // An unexpected message may have matched: its answer (CTS, acknowledgment or credit) must
        // be sent.
        let answers = transport.is_busy() || core.peers.agenda.is_any();
        if inner.prompt || inner.holds_posted() {
            self.hand_on_answers(guard);
        } else {
            drop(guard);
        }
        if answers {
            self.mark_ready();
        }
        result
    }

    /// Finishes a receive that may have answered a message that was there already: the next poll
    /// sends the answer, or a backstop.
    #[cold]
    #[inline(never)]
    fn hand_on_answers(&self, mut inner: K::Guard<'_, Inner<T, K>>) {
        if inner.prompt || inner.told.is_none() && inner.holds_posted() {
            inner.flush_all();
        }
        if inner.holds() != inner.is_marked {
            self.note_held(inner);
        }
    }

    /// Cancels the oldest cancelable operation with this context (fi_cancel(3)).
    pub fn cancel(&self, context: usize) {
        let mut inner = K::lock(&self.inner);
        inner.core.cancel(context);
        if !inner.core.peers.agenda.is_any() {
            return;
        }
        // The sends behind it may leave; send them now, since no other call may come.
        inner.flush_all();
        drop(inner);
        self.mark_ready();
    }
}

impl<T: Transport, K: LockKind> Reader for Endpoint<T, K> {
    /// An address was inserted: unexpected messages of its peer may match receives posted by
    /// handle.
    fn learn(&self) {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return };
        core.check_av();
        core.settle(transport);
        self.hand_on(inner);
    }
}

impl<T: Transport, K: LockKind> Notified for Endpoint<T, K> {
    /// A receive of the shared context has matched a message of this endpoint. Under manual
    /// progress the next poll delivers it; a progress thread or a sleeping thread is woken for it.
    fn notify(&self) {
        self.ready_flag.mark_ready_and_wake();
    }
}
