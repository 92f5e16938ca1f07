//! Passive endpoints (fi_passive_ep(3), fi_listen(3)).

use crate::endpoint::cm;
use crate::endpoint::options;
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{bytes, status};
use crate::objects::eq::ConnReqObj;
use crate::objects::eq::EqObj;
use crate::objects::fabric::FabricObj;
use core::ffi::{c_int, c_void};
use ofi_abi::FI_CLASS_PEP;
use ofi_abi::{FI_BACKLOG, fi_ops, fi_ops_cm, fi_ops_ep, fid, fid_pep};
use ofi_core::AddrFormat;
use ofi_core::error::{Error, Result};
use ofi_core::{EndpointType, Errno, Info};
use ofi_engine::completion::eq::Owner;
use ofi_engine::erased::PassiveControl;
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_engine::wire::hello::MAX_USER_DATA;
use ofi_registry::DomainVisitor;
use ofi_sync::busy::Child;
use ofi_sync::lock::LockKind;
use std::sync::{Arc, PoisonError};

/// A passive endpoint.
#[repr(C)]
pub(crate) struct PepObj {
    pub(crate) c: fid_pep,
    pub(crate) control: Arc<dyn PassiveControl>,
    pub(crate) format: AddrFormat,
    pub(crate) parent: Child,
}

object!(PepObj, FI_CLASS_PEP, FID_OPS, c.fid [ops cm]);

pub(crate) static FID_OPS: fi_ops = fi_ops { bind, control, ..enosys::fid_ops(close) };

static OPS: fi_ops_ep = options::table(cancel);

static CM: fi_ops_cm = fi_ops_cm { listen, reject, ..enosys::cm_ops(setname, getname) };

/// Opens a passive endpoint.
pub(crate) fn open(fabric: &FabricObj, info: Info, context: *mut c_void) -> Result<*mut fid_pep> {
    if !matches!(info.ep.kind, EndpointType::MSG | EndpointType::UNSPEC) {
        return Err(Error::new(Errno::EINVAL, format!("open a passive endpoint of type {}", info.ep.kind)));
    }
    let format = info.addr_format;
    let control = ofi_registry::open(&info.clone(), None, Open(info))??;
    let c = fid_pep { fid: handle::header::<PepObj>(context), ops: &OPS, cm: &CM };
    Ok(handle::install(PepObj { c, control, format, parent: fabric.children.add() }).cast())
}

struct Open(Info);

impl DomainVisitor for Open {
    type Output = Result<Arc<dyn PassiveControl>>;
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        Ok(ofi_registry::open_passive_endpoint(provider, self.0)?)
    }

    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, _: P, _kind: K) -> Self::Output {
        let what = format!("open a passive endpoint: provider {} is connectionless", P::NAME);
        Err(Error::new(Errno::EINVAL, what))
    }
}

unsafe extern "C" fn getname(fid: *mut fid, addr: *mut c_void, len: *mut usize) -> c_int {
    let pep = ours!(PepObj, fid);
    // SAFETY: fi_getname(3) passes a buffer of `*len` bytes, or null.
    unsafe { cm::put_name(pep.control.local_addr(), addr, len) }
}

unsafe extern "C" fn setname(fid: *mut fid, addr: *mut c_void, len: usize) -> c_int {
    let pep = ours!(PepObj, fid);
    // SAFETY: fi_setname(3) passes an address of `len` bytes, or null.
    let set = unsafe { cm::name_of_format(addr, len, pep.format) };
    set.map_or_else(Errno::negative, |name| status(name.and_then(|name| pep.control.set_local_addr(name))))
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let pep = ours!(PepObj, fid);
    pep.control.close();
    // SAFETY: the engine no longer refers to it, and fi_close(3) forbids its use from now on.
    drop(unsafe { handle::reclaim::<PepObj>(fid) });
    0
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let pep = ours!(PepObj, fid);
    // SAFETY: fi_pep_bind(3) passes an object, ours or another library's.
    match unsafe { handle::borrow::<EqObj>(other) } {
        Ok(_) if flags != 0 => Errno::EBADFLAGS.negative(),
        Ok(eq) => status(pep.control.bind_eq(&eq.eq, Owner(fid.addr()))),
        Err(errno) => errno.negative(),
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let pep = ours!(PepObj, fid);
    if command != FI_BACKLOG {
        return Errno::ENOSYS.negative();
    }
    // SAFETY: with FI_BACKLOG the argument is an int, or null (fi_endpoint(3)).
    let backlog = unsafe { arg.cast::<c_int>().as_ref() }.copied();
    let Some(backlog) = backlog.and_then(|backlog| usize::try_from(backlog).ok()) else {
        return Errno::EINVAL.negative();
    };
    pep.control.set_backlog(backlog);
    0
}

unsafe extern "C" fn cancel(_: *mut fid, _: *mut c_void) -> isize {
    Errno::ENOSYS.negative() as isize
}

unsafe extern "C" fn listen(pep: *mut fid_pep) -> c_int {
    // SAFETY: C passes the passive endpoint that holds this table.
    match unsafe { handle::borrow::<PepObj>(pep.cast()) } {
        Ok(pep) => status(pep.control.clone().listen()),
        Err(errno) => errno.negative(),
    }
}

unsafe extern "C" fn reject(pep: *mut fid_pep, handle: *mut fid, param: *const c_void, len: usize) -> c_int {
    let pep = ours!(PepObj, pep.cast());
    // SAFETY: fi_reject(3) passes null or an object, ours or another library's.
    let request = match unsafe { handle::borrow::<ConnReqObj>(handle) } {
        Ok(request) => request.request.lock().unwrap_or_else(PoisonError::into_inner).take(),
        Err(errno) => return errno.negative(),
    };
    let Some(request) = request else { return Errno::EINVAL.negative() };
    // SAFETY: the request is taken, and fi_reject(3) forbids use of its handle from now on.
    drop(unsafe { handle::reclaim::<ConnReqObj>(handle) });
    // SAFETY: fi_reject(3) passes `len` bytes of data, or null.
    let data = unsafe { bytes(param, len.min(MAX_USER_DATA)) };
    status(pep.control.refuse(*request, &data))
}
