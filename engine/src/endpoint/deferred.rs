//! Starts deferred operations (fi_trigger(3)).

use super::Endpoint;
use super::core::Core;
use super::inner::Inner;
use super::life::Life;
use crate::limits::Kind;
use crate::op::RmaKind;
use crate::peer::agenda::Work;
use crate::transport::{Down, Transport};
use crate::trigger::{Initiator, NotStarted, Notice, Operation, RoomWatch};
use crate::tx::Access;
use ofi_core::{Cause, Completion, Errno, OpFlags};
use ofi_sync::lock::LockKind;
use std::sync::Weak;

impl<T: Transport, K: LockKind> Initiator for Endpoint<T, K> {
    fn admit(&self, operation: &Operation) -> Result<(), Errno> {
        K::lock(&self.inner).core.admit_deferred(operation)
    }

    fn start(
        &self,
        operation: Operation,
        notice: Option<Notice>,
        room: Option<&Weak<dyn RoomWatch>>,
    ) -> Result<(), Box<NotStarted>> {
        let mut inner = K::lock(&self.inner);
        let receives = operation.receives();
        if !inner.core.has_room(receives) {
            inner.core.await_room(receives, room);
            return Err(Box::new((operation, notice)));
        }
        let takes_early = matches!(inner.core.life, Life::Connected(life) if life.accepts_receives().is_ok());
        if receives && inner.transport.is_none() && takes_early {
            // Receives may be posted before connecting. Without a transport starting fails.
            drop(inner.open());
        }
        let Inner { transport, core, .. } = &mut *inner;
        core.start_deferred(transport.as_mut(), operation, notice);
        self.hand_on(inner);
        Ok(())
    }

    fn cancel_deferred(&self, operation: &Operation) {
        let why = Down::new(Cause::Cancelled, Errno::ECANCELED, Cause::Cancelled.text());
        K::lock(&self.inner).core.fail_deferred(operation.receives(), operation.completion(), &why);
    }

    fn shares_receives(&self) -> bool {
        K::lock(&self.inner).core.rx.is_shared()
    }
}

impl<K: LockKind> Core<K> {
    /// Checks what an operation needs that no later event can give it.
    fn admit_deferred(&self, operation: &Operation) -> Result<(), Errno> {
        let sinks = &self.out.sinks;
        if operation.receives() {
            sinks.rx.as_ref().ok_or(Errno::ENOCQ)?;
            return if self.rx.is_shared() { Err(Errno::ENOSYS) } else { Ok(()) };
        }
        sinks.tx.as_ref().ok_or(Errno::ENOCQ)?;
        let (len, kind, flags) = match operation {
            Operation::Send(op) => (op.buffer.len(), Kind::of_message(op.tag.is_some()), op.flags),
            Operation::Rma(op) if op.kind == RmaKind::Read => (op.buffer.len(), Kind::Access, OpFlags::empty()),
            Operation::Rma(op) => (op.buffer.len(), Kind::Access, op.flags),
            Operation::Atomic(call) => (call.operands.len().max(call.compare.len()), Kind::Atomic, call.flags),
            Operation::Receive(_) => return Ok(()),
        };
        if self.limits.allow(len, kind, flags.contains(OpFlags::INJECT)) { Ok(()) } else { Err(Errno::EMSGSIZE) }
    }

    /// Whether an operation can start before others have completed.
    fn has_room(&mut self, receives: bool) -> bool {
        if receives {
            // Receives of a shared context are posted to the context; starting says so.
            return self.rx.is_shared() || self.rx.lock().size_left() > 0;
        }
        self.tx.size_left() > 0
    }

    /// Has [`Self::note_room`] notify `watch` when there is room.
    #[cold]
    fn await_room(&mut self, receives: bool, watch: Option<&Weak<dyn RoomWatch>>) {
        self.stalled.watch = watch.cloned();
        *(if receives { &mut self.stalled.receives } else { &mut self.stalled.transmits }) = true;
        self.peers.agenda.add(Work::ROOM);
    }

    /// Notifies the queue of deferred work if there is room for what it could not start: another
    /// thread may sleep until that work is done.
    #[cold]
    pub(super) fn note_room(&mut self) {
        let transmits = self.stalled.transmits && self.has_room(false);
        let receives = self.stalled.receives && self.has_room(true);
        if !transmits && !receives {
            return;
        }
        self.stalled.transmits &= !transmits;
        self.stalled.receives &= !receives;
        if !self.stalled.transmits && !self.stalled.receives {
            self.peers.agenda.remove(Work::ROOM);
        }
        if let Some(watch) = self.stalled.watch.as_ref().and_then(Weak::upgrade) {
            watch.handle_room();
        }
    }

    /// Starts an operation, or completes it with the error.
    fn start_deferred<T: Transport>(
        &mut self,
        transport: Option<&mut T>,
        mut operation: Operation,
        notice: Option<Notice>,
    ) {
        let deferred = notice.is_some();
        if let Some(notice) = notice {
            operation.set_context(self.out.sinks.started.add(notice));
        }
        let (mut completion, receives) = (operation.completion(), operation.receives());
        if deferred {
            completion.flags |= crate::completion::deferred::DEFERRED;
        }
        let result = transport.ok_or(Errno::EOPBADSTATE).and_then(|transport| match operation {
            Operation::Send(mut op) => {
                let admitted = self.admit(&op)?;
                op.flags |= OpFlags::TRIGGER;
                self.send(transport, op, if deferred { admitted.deferred() } else { admitted })
            }
            Operation::Receive(op) => self.receive(transport, op, deferred),
            Operation::Rma(op) => {
                let how = self.admit_rma(&op)?;
                self.start_access(transport, Access::of(op, how), deferred)
            }
            Operation::Atomic(call) => {
                self.life.accepts()?;
                let access = self.tx.admit_atomic(&self.out, &self.limits, call)?;
                self.start_access(transport, access, deferred)
            }
        });
        if let Err(errno) = result {
            let why = Down::new(Cause::NotStarted, errno, format!("start a deferred operation: {errno}"));
            self.fail_deferred(receives, completion, &why);
        }
    }

    fn start_access<T: Transport>(&mut self, transport: &mut T, access: Access, deferred: bool) -> Result<(), Errno> {
        self.take_acks_along(transport, access.peer);
        let access = access.triggered();
        self.start(transport, if deferred { access.deferred() } else { access })
    }

    /// Completes an operation that has not started.
    fn fail_deferred(&mut self, receives: bool, completion: Completion, why: &Down) {
        if receives {
            self.out.receive_failed(completion, why);
        } else {
            self.out.send_failed(completion, why);
        }
    }
}
