//! Address vector objects (fi_av(3)). `av_ops` opens them and has the calls on addresses that they
//! have already; `av_insert` has the insertions.

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::objects::domain::DomainObj;
use crate::objects::eq::EqObj;
use core::ffi::c_int;
use ofi_abi::FI_CLASS_AV;
use ofi_abi::{fi_ops, fid, fid_av};
use ofi_core::{AddrFormat, AvType, Errno};
use ofi_engine::completion::eq::Owner;
use ofi_engine::{AddressVector, EventQueue};
use ofi_sync::busy::Child;
use std::sync::{Arc, OnceLock};

/// FI_AV_USER_ID.
pub(crate) const USER_ID: u64 = 1 << 41;

/// An address vector.
#[repr(C)]
pub(crate) struct AvObj {
    pub(crate) c: fid_av,
    pub(crate) av: Arc<AddressVector>,
    /// Entries get their user ids by fi_av_set_user_id(3).
    pub(crate) ids: bool,
    pub(crate) reports: Reports,
    pub(crate) format: AddrFormat,
    /// FI_AV_TABLE or FI_AV_MAP.
    pub(crate) kind: AvType,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

object!(AvObj, FI_CLASS_AV, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = fi_ops { bind, ..enosys::fid_ops(close) };

/// Where insertions report what became of them.
#[derive(Debug)]
pub(crate) enum Reports {
    /// To the caller.
    ToCaller,
    /// To the event queue, once one is bound and so kept open: opened with FI_EVENT.
    ToQueue(OnceLock<(Arc<EventQueue>, Child)>),
}

impl AvObj {
    /// The event queue to which insertions report, if they do not report to the caller.
    ///
    /// # Errors
    /// ENOEQ if insertions report to an event queue and none is bound.
    pub(crate) fn event_queue(&self) -> Result<Option<&Arc<EventQueue>>, Errno> {
        match &self.reports {
            Reports::ToCaller => Ok(None),
            Reports::ToQueue(queue) => queue.get().map(|(queue, _)| Some(queue)).ok_or(Errno::ENOEQ),
        }
    }

    /// This object as the owner of events. `av_ops::open` exposed its address.
    pub(crate) fn owner(&self) -> Owner {
        Owner(core::ptr::from_ref(self).addr())
    }
}

/// fi_av_bind(3).
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let av = ours!(AvObj, fid);
    // SAFETY: fi_av_bind(3) passes an object, ours or another library's, or null.
    let eq = match unsafe { handle::borrow::<EqObj>(other) } {
        Ok(eq) => eq,
        Err(errno) => return errno.negative(),
    };
    if flags != 0 {
        return Errno::EBADFLAGS.negative();
    }
    // Without FI_EVENT nothing would ever be reported to the queue.
    let Reports::ToQueue(queue) = &av.reports else { return Errno::EINVAL.negative() };
    match queue.set((eq.eq.clone(), eq.eq.users.add())) {
        Ok(()) => 0,
        Err(_) => Errno::EINVAL.negative(),
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<AvObj>(fid, |av| av.av.users.count() > 0) }
}
