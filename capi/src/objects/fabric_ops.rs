//! Opens fabrics, and the objects in them: domains, passive endpoints, event queues and wait sets
//! (fi_fabric(3)); and fi_trywait(3).

use crate::convert;
use crate::endpoint::passive;
use crate::ffi::handle;
use crate::ffi::handle::ours;
use crate::ffi::ptr::make;
use crate::objects::cntr::CntrObj;
use crate::objects::cq::CqObj;
use crate::objects::eq::EqObj;
use crate::objects::fabric::FabricObj;
use crate::objects::signaler::Signaler;
use crate::objects::wait::WaitObj;
use crate::objects::{domain_ops, eq, wait};
use crate::reserve::Watch;
use crate::state::open_objects::Listed;
use core::ffi::{c_int, c_void};
use ofi_abi::{
    fi_eq_attr, fi_info, fi_ops_fabric, fi_wait_attr, fid, fid_domain, fid_eq, fid_fabric, fid_pep, fid_wait,
};
use ofi_core::{Errno, Version};
use ofi_sync::busy::Children;

static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: open_domain,
    passive_ep: open_passive,
    eq_open,
    wait_open,
    trywait,
    domain2: open_domain2,
};

/// Opens a fabric of a provider that exists.
pub(crate) fn open(provider: String, name: String, api: Version, context: *mut c_void) -> *mut fid_fabric {
    let c = fid_fabric { fid: handle::header::<FabricObj>(context), ops: &OPS, api_version: api.0 };
    let fabric = handle::install(FabricObj {
        c,
        provider,
        listed: None,
        signaler: Signaler::default(),
        children: Children::new(),
    });
    fabric.expose_provenance();
    // SAFETY: made above and not handed out yet.
    let object = unsafe { &mut *fabric };
    object.listed = Some(Listed::new(fabric.cast(), None, &object.provider, &name));
    fabric.cast()
}

unsafe extern "C" fn open_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are those of this function.
    unsafe { open_domain2(fabric, info, out, 0, context) }
}

unsafe extern "C" fn open_domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let fabric = ours!(FabricObj, fabric.cast());
    // SAFETY: null or a valid info by fi_domain(3).
    let (Some(info), 0) = (unsafe { info.as_ref() }, flags) else { return Errno::EINVAL.negative() };
    let open = |_: &Watch| {
        // SAFETY: the info is valid, so are its parts.
        let info = unsafe { convert::info(info, &fabric.provider) };
        domain_ops::open(fabric, &info, context)
    };
    // SAFETY: `out` is null or valid by fi_domain(3), and the domain is new.
    unsafe { make(out, "open a domain", open) }
}

unsafe extern "C" fn open_passive(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_pep,
    context: *mut c_void,
) -> c_int {
    let fabric = ours!(FabricObj, fabric.cast());
    // SAFETY: null or a valid info by fi_passive_ep(3).
    let Some(info) = (unsafe { info.as_ref() }) else { return Errno::EINVAL.negative() };
    let open = |_: &Watch| {
        // SAFETY: the info is valid, so are its parts.
        let info = unsafe { convert::info(info, &fabric.provider) };
        passive::open(fabric, info, context)
    };
    // SAFETY: `out` is null or valid by fi_passive_ep(3), and the passive endpoint is new.
    unsafe { make(out, "open a passive endpoint", open) }
}

unsafe extern "C" fn eq_open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    out: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    let fabric = ours!(FabricObj, fabric.cast());
    // SAFETY: null or valid attributes by fi_eq_open(3).
    let attr = unsafe { attr.as_ref() };
    // SAFETY: fi_eq_open(3) passes an open wait set with FI_WAIT_SET.
    let open = |_: &Watch| unsafe { eq::open(fabric, attr, context) };
    // SAFETY: `out` is null or valid by fi_eq_open(3), and the queue is new.
    unsafe { make(out, "open an event queue", open) }
}

unsafe extern "C" fn trywait(_fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    let Ok(count) = usize::try_from(count) else { return Errno::EINVAL.negative() };
    if count > 0 && fids.is_null() {
        return Errno::EINVAL.negative();
    }
    for index in 0..count {
        // SAFETY: fi_trywait(3) passes `count` objects.
        let fid = unsafe { *fids.wrapping_add(index) };
        // SAFETY: as above: each is null or an open object, ours or another library's.
        let result = match unsafe { waits(fid) } {
            Some(result) => result,
            // SAFETY: as above.
            None => Err(unsafe { handle::unfit(fid) }),
        };
        if let Err(errno) = result {
            return errno.negative();
        }
    }
    0
}

/// Whether a caller may sleep on that object now; `None` if it cannot be waited on.
///
/// # Safety
/// `fid` is null or an open object, ours or another library's.
unsafe fn waits(fid: *mut fid) -> Option<core::result::Result<(), Errno>> {
    // SAFETY: this function's contract.
    if let Ok(cq) = unsafe { handle::borrow::<CqObj>(fid) } {
        return Some(cq.control.try_wait());
    }
    // SAFETY: this function's contract.
    if let Ok(eq) = unsafe { handle::borrow::<EqObj>(fid) } {
        return Some(eq.eq.try_wait());
    }
    // SAFETY: this function's contract.
    if let Ok(cntr) = unsafe { handle::borrow::<CntrObj>(fid) } {
        return Some(cntr.control.try_wait());
    }
    // SAFETY: this function's contract.
    unsafe { handle::borrow::<WaitObj>(fid) }.ok().map(|wait| wait.set.try_wait())
}

unsafe extern "C" fn wait_open(fabric: *mut fid_fabric, attr: *mut fi_wait_attr, out: *mut *mut fid_wait) -> c_int {
    let fabric = ours!(FabricObj, fabric.cast());
    // SAFETY: null or valid attributes by fi_wait_open(3).
    let attr = unsafe { attr.as_ref() };
    // SAFETY: `out` is null or valid by fi_wait_open(3), and the set is new.
    unsafe { make(out, "open a wait set", |_| wait::open(fabric, attr)) }
}
