//! Triggered operations (fi_trigger(3)): the calls with FI_TRIGGER among their flags, on endpoints
//! with that capability. An operation waits in the domain's queue until its counter has reached the
//! threshold; then it is posted as if the application did.

use crate::endpoint::data_path::{DataPath, PlainTables, Triggers};
use crate::endpoint::{atomic, message, rma};
use crate::ffi::handle;
use crate::ffi::ptr::posted;
use crate::objects::cntr::CntrObj;
use crate::objects::domain::DomainObj;
use crate::objects::work::DomainWork;
use core::ffi::c_void;
use ofi_abi::{
    FI_TRIGGER_THRESHOLD, fi_ioc, fi_msg, fi_msg_atomic, fi_msg_rma, fi_msg_tagged, fi_ops_atomic, fi_ops_msg,
    fi_ops_rma, fi_ops_tagged, fi_trigger_threshold, fi_triggered_context, fid_ep,
};
use ofi_core::{Caps, Errno, OpFlags};
use ofi_engine::erased::CounterControl;
use ofi_engine::op::RmaKind;
use ofi_engine::trigger::{Action, Initiator, Operation, Tally, Transfer, Work};
use std::sync::Arc;

mod of_alias;

const TRIGGER: u64 = OpFlags::TRIGGER.bits();

impl Triggers {
    /// The tables of an endpoint that has those of `plain` otherwise.
    pub(crate) fn new(
        domain: &DomainObj,
        (initiator, work): (Arc<dyn Initiator>, Arc<DomainWork>),
        caps: Caps,
        plain: PlainTables,
    ) -> Self {
        Self {
            domain: core::ptr::from_ref(domain).addr(),
            initiator,
            work,
            caps,
            plain,
            msg: fi_ops_msg { recvmsg, sendmsg, ..*plain.msg },
            tagged: fi_ops_tagged { recvmsg: trecvmsg, sendmsg: tsendmsg, ..*plain.tagged },
            rma: fi_ops_rma { readmsg, writemsg, ..*plain.rma },
            atomic: fi_ops_atomic {
                writemsg: atomicmsg,
                readwritemsg: fetch_atomicmsg,
                compwritemsg: compare_atomicmsg,
                ..*plain.atomic
            },
        }
    }

    /// The same for an alias with FI_TRIGGER among its flags: calls without flags have those.
    pub(crate) fn of_alias(&self) -> Self {
        Self {
            domain: self.domain,
            initiator: self.initiator.clone(),
            work: self.work.clone(),
            caps: self.caps,
            plain: self.plain,
            msg: of_alias::msg(&self.msg),
            tagged: of_alias::tagged(&self.tagged),
            rma: of_alias::rma(&self.rma),
            atomic: of_alias::atomic(&self.atomic),
        }
    }

    /// Whether the endpoint has the calls for messages, or for tagged ones.
    pub(crate) fn sends(&self, tagged: bool) -> bool {
        let kinds = message::kinds(self.caps);
        if tagged { kinds.1 } else { kinds.0 }
    }

    /// Whether the endpoint has the calls of `kind` that read, or those that write.
    pub(crate) fn accesses(&self, kind: Caps, reads: bool) -> bool {
        let (read, write) = rma::directions(self.caps, kind);
        if reads { read } else { write }
    }

    /// Queues an operation until its context's condition holds.
    ///
    /// # Safety
    /// `context` is null or a valid fi_triggered_context.
    unsafe fn submit(&self, mut operation: Operation, context: *mut c_void) -> Result<(), Errno> {
        // SAFETY: this function's contract.
        let context = unsafe { context.cast::<fi_triggered_context>().as_ref() }.ok_or(Errno::EINVAL)?;
        if context.event_type != FI_TRIGGER_THRESHOLD {
            return Err(Errno::ENOSYS);
        }
        let fi_trigger_threshold { cntr, threshold } = context.trigger.threshold;
        // SAFETY: the context names an open counter by fi_trigger(3), or null.
        let cntr = unsafe { handle::borrow::<CntrObj>(cntr.cast()) }?;
        if cntr.domain.addr() != self.domain {
            return Err(Errno::EDOMAIN);
        }
        self.initiator.admit(&operation)?;
        operation.prepare();
        self.work.followed.add_counter(&cntr.control).map_err(|error| error.errno())?;
        let transfer = Transfer { endpoint: self.initiator.clone(), operation, notice: None };
        let action = Action::Transfer(Box::new(transfer));
        let work = Work { id: 0, action, users: vec![cntr.control.users().add()] };
        self.work.queue.submit(&tally(&cntr.control), threshold as u64, work);
        self.work.queue.run();
        Ok(())
    }
}

/// A counter as deferred work sees it.
pub(crate) fn tally(counter: &Arc<dyn CounterControl>) -> Arc<dyn Tally> {
    counter.clone()
}

macro_rules! thunks {
    ($($name:ident = $table:ident.$slot:ident, $enabled:expr,
        ($msg:ident: $kind:ty $(, $arg:ident: $of:ty)*), |$object:ident, $flags:ident| $operation:expr;)*) => {$(
        unsafe extern "C" fn $name(ep: *mut fid_ep, $msg: *const $kind, $($arg: $of,)* flags: u64) -> isize {
            // SAFETY: C calls this thunk through the table of the endpoint that it passes, which
            // begins with a `DataPath`, and fi_close(3) forbids calls after it.
            let $object = unsafe { &*ep.cast::<DataPath>() };
            let Some(triggers) = &$object.triggers else { return posted(Err(Errno::ENOSYS)) };
            if flags & TRIGGER == 0 {
                // SAFETY: the arguments are those of this call.
                return unsafe { (triggers.plain.$table.$slot)(ep, $msg, $($arg,)* flags) };
            }
            let enabled: fn(&Triggers) -> bool = $enabled;
            if !enabled(triggers) {
                return posted(Err(Errno::ENOSYS));
            }
            let $flags = flags & !TRIGGER;
            let call = || {
                let operation = $operation?;
                // SAFETY: not null, or there is no operation.
                let context = unsafe { (*$msg).context };
                // SAFETY: with FI_TRIGGER the context is a fi_triggered_context by fi_trigger(3).
                unsafe { triggers.submit(operation, context) }
            };
            posted(call())
        }
    )*};
}

thunks! {
    sendmsg = msg.sendmsg, |triggers| triggers.sends(false), (msg: fi_msg), |object, flags| {
        // SAFETY: null or a valid message by fi_sendmsg(3).
        unsafe { message::send_op(object, msg, flags) }.map(Operation::Send)
    };
    tsendmsg = tagged.sendmsg, |triggers| triggers.sends(true), (msg: fi_msg_tagged), |object, flags| {
        // SAFETY: null or a valid message by fi_tsendmsg(3).
        unsafe { message::tagged_send_op(object, msg, flags) }.map(Operation::Send)
    };
    recvmsg = msg.recvmsg, |triggers| triggers.sends(false), (msg: fi_msg), |_object, flags| {
        // SAFETY: null or a valid message by fi_recvmsg(3).
        unsafe { message::receive_op(msg, flags) }.map(Operation::Receive)
    };
    trecvmsg = tagged.recvmsg, |triggers| triggers.sends(true), (msg: fi_msg_tagged), |_object, flags| {
        // SAFETY: null or a valid message by fi_trecvmsg(3).
        unsafe { message::tagged_receive_op(msg, flags) }.map(Operation::Receive)
    };
    readmsg = rma.readmsg, |triggers| triggers.accesses(Caps::RMA, true), (msg: fi_msg_rma), |object, flags| {
        // SAFETY: null or a valid message by fi_readmsg(3).
        unsafe { rma::access_op(object, RmaKind::Read, msg, flags) }.map(Operation::Rma)
    };
    writemsg = rma.writemsg, |triggers| triggers.accesses(Caps::RMA, false), (msg: fi_msg_rma), |object, flags| {
        // SAFETY: null or a valid message by fi_writemsg(3).
        unsafe { rma::access_op(object, RmaKind::Write, msg, flags) }.map(Operation::Rma)
    };
    atomicmsg = atomic.writemsg, |triggers| triggers.accesses(Caps::ATOMIC, false), (msg: fi_msg_atomic),
        |object, flags| {
            // SAFETY: null or a valid message by fi_atomicmsg(3).
            unsafe { atomic::base_op(object, msg, flags) }.map(Operation::Atomic)
        };
    fetch_atomicmsg = atomic.readwritemsg, |triggers| triggers.accesses(Caps::ATOMIC, true),
        (msg: fi_msg_atomic, results: *mut fi_ioc, desc: *mut *mut c_void, count: usize), |object, flags| {
            // SAFETY: null or a valid message by fi_fetch_atomicmsg(3).
            unsafe { atomic::fetch_op(object, msg, (results.cast_const(), count), flags) }.map(Operation::Atomic)
        };
    compare_atomicmsg = atomic.compwritemsg, |triggers| triggers.accesses(Caps::ATOMIC, true),
        (msg: fi_msg_atomic, compares: *const fi_ioc, compare_desc: *mut *mut c_void, compare_count: usize,
            results: *mut fi_ioc, desc: *mut *mut c_void, count: usize), |object, flags| {
            let (results, compares) = ((results.cast_const(), count), (compares, compare_count));
            // SAFETY: null or a valid message by fi_compare_atomicmsg(3).
            unsafe { atomic::compare_op(object, msg, results, compares, flags) }.map(Operation::Atomic)
        };
}
