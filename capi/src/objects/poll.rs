//! Poll sets (fi_poll(3)): report which members, queues and counters, have something to read.

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::objects::cntr::CntrObj;
use crate::objects::cq::CqObj;
use crate::objects::domain::DomainObj;
use core::ffi::{c_int, c_void};
use ofi_abi::FI_CLASS_POLL;
use ofi_abi::{fi_ops, fi_ops_poll, fi_poll_attr, fid, fid_poll};
use ofi_core::Errno;
use ofi_core::error::{Error, Result};
use ofi_engine::erased::{CounterControl, QueueControl};
use ofi_sync::busy::Child;
use std::sync::{Arc, Mutex, PoisonError};

/// A poll set.
#[repr(C)]
pub(crate) struct PollObj {
    pub(crate) c: fid_poll,
    pub(crate) members: Mutex<Vec<Member>>,
    pub(crate) parent: Child,
}

object!(PollObj, FI_CLASS_POLL, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = enosys::fid_ops(close);

static OPS: fi_ops_poll = fi_ops_poll { size: size_of::<fi_ops_poll>(), poll, poll_add, poll_del };

/// A member of a poll set, which cannot be closed while it is in the set.
pub(crate) struct Member {
    fid: *mut fid,
    pollable: Pollable,
    _held: Child,
}

enum Pollable {
    Queue(Arc<dyn QueueControl>),
    /// A counter with its values at the last poll.
    Counter(Arc<dyn CounterControl>, (u64, u64)),
}

impl Member {
    /// Makes progress; true if there is an entry or a change to report and `room` for it. Without
    /// room a counter's change is reported by the next poll.
    fn poll(&mut self, room: bool) -> bool {
        match &mut self.pollable {
            Pollable::Queue(queue) => queue.check() && room,
            Pollable::Counter(counter, last) => {
                let now = counter.check();
                room && core::mem::replace(last, now) != now
            }
        }
    }
}

/// Opens a poll set.
pub(crate) fn open(domain: &DomainObj, attr: Option<&fi_poll_attr>) -> Result<*mut fid_poll> {
    if attr.is_some_and(|attr| attr.flags != 0) {
        return Err(Error::new(Errno::EINVAL, "open a poll set with flags"));
    }
    let c = fid_poll { fid: handle::header::<PollObj>(core::ptr::null_mut()), ops: &OPS };
    Ok(handle::install(PollObj { c, members: Mutex::default(), parent: domain.children.add() }).cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time.
    unsafe { handle::close::<PollObj>(fid, |_| false) }
}

unsafe extern "C" fn poll(set: *mut fid_poll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    let set = ours!(PollObj, set.cast());
    let Ok(room) = usize::try_from(count) else { return Errno::EINVAL.negative() };
    if room > 0 && contexts.is_null() {
        return Errno::EINVAL.negative();
    }
    let mut members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = 0;
    for member in members.iter_mut() {
        // Every member makes progress, even without room to report it.
        if member.poll(found < room) {
            // SAFETY: a member stays open while it is in the set (-FI_EBUSY), so its header is
            // there.
            let context = unsafe { (*member.fid).context };
            // SAFETY: fi_poll(3) passes room for `count` contexts.
            unsafe { contexts.wrapping_add(found).write(context) };
            found += 1;
        }
    }
    c_int::try_from(found).unwrap_or(count)
}

unsafe extern "C" fn poll_add(set: *mut fid_poll, fid: *mut fid, flags: u64) -> c_int {
    let set = ours!(PollObj, set.cast());
    if flags != 0 {
        return Errno::EINVAL.negative();
    }
    // SAFETY: null or an open object, ours or another library's.
    let queue = unsafe { handle::borrow::<CqObj>(fid) };
    // SAFETY: as above.
    let counter = unsafe { handle::borrow::<CntrObj>(fid) };
    let member = match (queue, counter) {
        (Ok(cq), _) => Member { fid, pollable: Pollable::Queue(cq.control.clone()), _held: cq.control.users().add() },
        (_, Ok(cntr)) => {
            let now = cntr.control.check();
            Member { fid, pollable: Pollable::Counter(cntr.control.clone(), now), _held: cntr.control.users().add() }
        }
        // SAFETY: as above.
        _ => return unsafe { handle::unfit(fid) }.negative(),
    };
    let mut members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
    if !members.iter().any(|other| other.fid == fid) {
        members.push(member);
    }
    0
}

unsafe extern "C" fn poll_del(set: *mut fid_poll, fid: *mut fid, flags: u64) -> c_int {
    let set = ours!(PollObj, set.cast());
    let mut members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
    match members.iter().position(|member| member.fid == fid) {
        Some(at) if flags == 0 => {
            members.remove(at);
            0
        }
        _ => Errno::EINVAL.negative(),
    }
}
