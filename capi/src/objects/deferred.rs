//! The deferred work queue of a domain: fi_control(3) with FI_QUEUE_WORK, FI_CANCEL_WORK and
//! FI_FLUSH_WORK (fi_trigger(3)). Reads the structures when the work is queued; its buffers are
//! untouched until it starts.

use crate::endpoint::data_path::Triggers;
use crate::endpoint::object::{self, EpObj};
use crate::endpoint::trigger::tally;
use crate::endpoint::{atomic, message, rma};
use crate::ffi::handle;
use crate::ffi::ptr::status;
use crate::objects::cntr::CntrObj;
use crate::objects::domain::DomainObj;
use crate::objects::work::DomainWork;
use core::ffi::{c_int, c_void};
use ofi_abi::{
    FI_CANCEL_WORK, FI_CLASS_SRX_CTX, FI_FLUSH_WORK, FI_OP_ATOMIC, FI_OP_CNTR_ADD, FI_OP_CNTR_SET,
    FI_OP_COMPARE_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_READ, FI_OP_RECV, FI_OP_SEND, FI_OP_TRECV, FI_OP_TSEND,
    FI_OP_WRITE, fi_deferred_work, fi_op_atomic, fi_op_cntr, fi_op_compare_atomic, fi_op_fetch_atomic, fi_op_msg,
    fi_op_rma, fi_op_tagged, fid, fid_cntr, fid_ep,
};
use ofi_core::error::{Error, Result};
use ofi_core::{Caps, Errno, OpFlags};
use ofi_engine::op::RmaKind;
use ofi_engine::trigger::{Action, Notice, Operation, Transfer, Work};
use std::sync::Arc;

/// Queues, cancels or flushes work.
///
/// # Safety
/// `arg` is null, or valid for the command by fi_trigger(3).
pub(super) unsafe fn control(
    (domain, work): (&DomainObj, &Arc<DomainWork>),
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    status(match command {
        FI_CANCEL_WORK if arg.is_null() => Err(Error::new(Errno::EINVAL, "cancel deferred work that is null")),
        FI_CANCEL_WORK if work.queue.cancel(arg.addr()) => Ok(()),
        // Not logged: work may start while the application cancels it.
        FI_CANCEL_WORK => return Errno::ENOENT.negative(),
        FI_FLUSH_WORK if arg.is_null() => {
            work.queue.flush_work(None);
            Ok(())
        }
        FI_FLUSH_WORK => {
            // SAFETY: a counter by fi_trigger(3).
            unsafe { counter(domain, arg.cast()) }
                .map(|counter| work.queue.flush_work(Some(tally(&counter.control).id())))
        }
        // SAFETY: null or valid work by fi_trigger(3), with the structures that it names.
        _ => match unsafe { arg.cast::<fi_deferred_work>().as_ref() } {
            // SAFETY: as above.
            Some(queued) => unsafe { queue((domain, work), queued) },
            None => Err(Error::new(Errno::EINVAL, "queue deferred work that is null")),
        },
    })
}

/// # Safety
/// The work is valid with the structures that it names.
unsafe fn queue((domain, work): (&DomainObj, &Arc<DomainWork>), queued: &fi_deferred_work) -> Result<()> {
    // SAFETY: this function's contract.
    let trigger = unsafe { counter(domain, queued.triggering_cntr) }?;
    let completion = if queued.completion_cntr.is_null() {
        None
    } else {
        // SAFETY: this function's contract.
        Some(unsafe { counter(domain, queued.completion_cntr) }?)
    };
    let mut users = vec![trigger.control.users().add()];
    let action = if let FI_OP_CNTR_SET | FI_OP_CNTR_ADD = queued.op_type {
        if completion.is_some() {
            return Err(Error::new(Errno::EINVAL, "queue deferred work on a counter with a completion counter"));
        }
        // SAFETY: the work's operation has the type that it names, or is null.
        let Some(op) = (unsafe { queued.op.cast::<fi_op_cntr>().as_ref() }) else { return Err(no_operation()) };
        // SAFETY: this function's contract.
        let target = unsafe { counter(domain, op.cntr) }?;
        users.push(target.control.users().add());
        work.followed.add_counter(&target.control)?;
        let add = queued.op_type == FI_OP_CNTR_ADD;
        if add { Action::Add(tally(&target.control), op.value) } else { Action::Set(tally(&target.control), op.value) }
    } else {
        // SAFETY: this function's contract.
        let Described { triggers, operation, flags } = unsafe { transfer(domain, queued) }?;
        if let Some(completion) = completion {
            work.followed.add_counter(&completion.control)?;
        }
        let notice = Notice {
            context: operation.context(),
            reports: flags & OpFlags::COMPLETION.bits() != 0,
            counter: completion.map(|completion| tally(&completion.control)),
            users: completion.map(|completion| completion.control.users().add()).into_iter().collect(),
        };
        let endpoint = triggers.initiator.clone();
        Action::Transfer(Box::new(Transfer { endpoint, operation, notice: Some(notice) }))
    };
    work.followed.add_counter(&trigger.control)?;
    let id = core::ptr::from_ref(queued).addr();
    work.queue.submit(&tally(&trigger.control), queued.threshold, Work { id, action, users });
    work.queue.run();
    Ok(())
}

/// A data transfer to queue.
struct Described<'a> {
    triggers: &'a Triggers,
    operation: Operation,
    flags: u64,
}

/// The data transfer that work describes.
///
/// # Safety
/// As for [`queue`].
unsafe fn transfer<'a>(domain: &DomainObj, queued: &fi_deferred_work) -> Result<Described<'a>> {
    let op = queued.op;
    if op.is_null() {
        return Err(no_operation());
    }
    macro_rules! described {
        ($of:ty, $enabled:expr, |$ep:ident, $op:ident, $flags:ident| $operation:expr) => {{
            // SAFETY: not null, and the work's operation has the type that it names.
            let $op = unsafe { &*op.cast::<$of>() };
            // SAFETY: this function's contract.
            let ($ep, triggers) = unsafe { endpoint(domain, $op.ep) }?;
            let enabled: fn(&Triggers) -> bool = $enabled;
            if !enabled(triggers) {
                return Err(Error::new(Errno::ENOSYS, "queue deferred work that the endpoint was not opened for"));
            }
            let $flags = $op.flags & !OpFlags::TRIGGER.bits();
            let operation = $operation.map_err(|errno| Error::new(errno, "queue deferred work"))?;
            let admitted = triggers.initiator.admit(&operation);
            admitted.map_err(|errno| Error::new(errno, "queue work that its endpoint could not start"))?;
            Ok(Described { triggers, operation, flags: $flags })
        }};
    }
    match queued.op_type {
        FI_OP_SEND => described!(fi_op_msg, |triggers| triggers.sends(false), |ep, op, flags| {
            // SAFETY: the message is valid with its vector by fi_trigger(3).
            unsafe { message::send_op(ep, &raw const op.msg, flags) }.map(Operation::Send)
        }),
        FI_OP_TSEND => described!(fi_op_tagged, |triggers| triggers.sends(true), |ep, op, flags| {
            // SAFETY: as above.
            unsafe { message::tagged_send_op(ep, &raw const op.msg, flags) }.map(Operation::Send)
        }),
        FI_OP_RECV => described!(fi_op_msg, |triggers| triggers.sends(false), |ep, op, flags| {
            receives(ep, flags)?;
            // SAFETY: as above.
            unsafe { message::receive_op(&raw const op.msg, flags) }.map(Operation::Receive)
        }),
        FI_OP_TRECV => described!(fi_op_tagged, |triggers| triggers.sends(true), |ep, op, flags| {
            receives(ep, flags)?;
            // SAFETY: as above.
            unsafe { message::tagged_receive_op(&raw const op.msg, flags) }.map(Operation::Receive)
        }),
        FI_OP_READ => described!(fi_op_rma, |triggers| triggers.accesses(Caps::RMA, true), |ep, op, flags| {
            // SAFETY: as above.
            unsafe { rma::access_op(ep, RmaKind::Read, &raw const op.msg, flags) }.map(Operation::Rma)
        }),
        FI_OP_WRITE => described!(fi_op_rma, |triggers| triggers.accesses(Caps::RMA, false), |ep, op, flags| {
            // SAFETY: as above.
            unsafe { rma::access_op(ep, RmaKind::Write, &raw const op.msg, flags) }.map(Operation::Rma)
        }),
        FI_OP_ATOMIC => described!(fi_op_atomic, |triggers| triggers.accesses(Caps::ATOMIC, false), |ep, op, flags| {
            // SAFETY: as above.
            unsafe { atomic::base_op(ep, &raw const op.msg, flags) }.map(Operation::Atomic)
        }),
        FI_OP_FETCH_ATOMIC => {
            described!(fi_op_fetch_atomic, |triggers| triggers.accesses(Caps::ATOMIC, true), |ep, op, flags| {
                let results = (op.fetch.msg_iov.cast_const(), op.fetch.iov_count);
                // SAFETY: as above.
                unsafe { atomic::fetch_op(ep, &raw const op.msg, results, flags) }.map(Operation::Atomic)
            })
        }
        FI_OP_COMPARE_ATOMIC => {
            described!(fi_op_compare_atomic, |triggers| triggers.accesses(Caps::ATOMIC, true), |ep, op, flags| {
                let results = (op.fetch.msg_iov.cast_const(), op.fetch.iov_count);
                let compares = (op.compare.msg_iov, op.compare.iov_count);
                // SAFETY: as above.
                unsafe { atomic::compare_op(ep, &raw const op.msg, results, compares, flags) }.map(Operation::Atomic)
            })
        }
        kind => Err(Error::new(Errno::ENOSYS, format!("queue deferred work of the unknown type {kind}"))),
    }
}

/// Whether an endpoint can post this receive itself, as one operation that completes once.
fn receives(ep: &EpObj, flags: u64) -> Result<()> {
    let several = OpFlags::MULTI_RECV | OpFlags::PEEK | OpFlags::CLAIM | OpFlags::DISCARD;
    if OpFlags::from_bits_retain(flags).intersects(several) {
        let what = "queue a deferred receive with FI_MULTI_RECV, FI_PEEK, FI_CLAIM or FI_DISCARD";
        return Err(Error::new(Errno::ENOSYS, what));
    }
    if ep.triggers.as_ref().is_some_and(|triggers| triggers.initiator.shares_receives()) {
        let what = "queue a deferred receive on an endpoint whose receives are posted to a shared context";
        return Err(Error::new(Errno::ENOSYS, what));
    }
    if ep.control.buffered_limit().is_some() {
        let what = "queue a deferred receive on an endpoint whose messages are claimed, which no deferred work can do";
        return Err(Error::new(Errno::EINVAL, what));
    }
    Ok(())
}

fn no_operation() -> Error {
    Error::new(Errno::EINVAL, "queue deferred work without an operation")
}

/// A counter of the domain.
///
/// # Safety
/// `cntr` is null or an open object.
unsafe fn counter<'a>(domain: &DomainObj, cntr: *mut fid_cntr) -> Result<&'a CntrObj> {
    // SAFETY: this function's contract.
    let counter = unsafe { handle::borrow::<CntrObj>(cntr.cast()) }
        .map_err(|errno| Error::new(errno, "defer work by something that is no counter"))?;
    if core::ptr::eq(counter.domain, domain) {
        Ok(counter)
    } else {
        Err(Error::new(Errno::EDOMAIN, "defer work by a counter of another domain"))
    }
}

/// An endpoint of the domain, with FI_TRIGGER.
///
/// # Safety
/// `ep` is null or an open object.
unsafe fn endpoint<'a>(domain: &DomainObj, ep: *mut fid_ep) -> Result<(&'a EpObj, &'a Triggers)> {
    // SAFETY: this function's contract.
    let class = unsafe { ep.cast::<fid>().as_ref() }.map(|fid| fid.fclass);
    if class == Some(FI_CLASS_SRX_CTX) {
        return Err(Error::new(Errno::ENOSYS, "defer work on a shared receive context, which reports no completions"));
    }
    // SAFETY: this function's contract.
    let ep = unsafe { object::endpoint(ep.cast()) }
        .map_err(|errno| Error::new(errno, "defer work on something that is no endpoint"))?;
    if !core::ptr::eq(ep.domain, domain) {
        return Err(Error::new(Errno::EDOMAIN, "defer work on an endpoint of another domain"));
    }
    let triggers = ep.triggers.as_deref();
    let triggers =
        triggers.ok_or_else(|| Error::new(Errno::ENOSYS, "defer work on an endpoint opened without FI_TRIGGER"))?;
    Ok((ep, triggers))
}
