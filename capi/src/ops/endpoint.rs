//! Endpoints off the data path (fi_endpoint(3)).

use super::{absent, cm};
use crate::abi::{
    FI_ENABLE, FI_GETOPSFLAG, FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT, FI_SETOPSFLAG, fi_info, fi_ops, fi_ops_ep, fid,
    fid_ep,
};
use crate::convert;
use crate::guard::status;
use crate::object::{self, AvObj, ConnReqObj, CqObj, DomainObj, EpObj, EqObj};
use core::ffi::{c_int, c_void};
use ofi_core::error::{Error, Result};
use ofi_core::{BindFlags, EndpointType, Errno, OpFlags};
use ofi_engine::eq::Owner;
use ofi_engine::hello::MAX_USER_DATA;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub(crate) static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind,
    control,
    ops_open: absent::ops_open,
    tostr: absent::tostr,
    ops_set: absent::ops_set,
};

pub(super) static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: absent::absent,
    rx_ctx: absent::absent,
    rx_size_left: absent::absent,
    tx_size_left: absent::absent,
    export_xpu: absent::absent,
};

/// Opens an endpoint.
///
/// # Safety
/// `info` is valid with all its parts (fi_endpoint(3)).
pub(crate) unsafe fn open(domain: &DomainObj, info: &fi_info, context: *mut c_void) -> Result<*mut fid_ep> {
    let (handle, provider) = (info.handle, domain.control.as_ref());
    // SAFETY: the info is valid by this function's contract.
    let info = unsafe { convert::info(info, "") };
    if !matches!(info.ep.kind, EndpointType::RDM | EndpointType::MSG) {
        return Err(Error::new(Errno::ENOSYS, format!("open an endpoint of type {}", info.ep.kind)));
    }
    let request = if handle.is_null() {
        None
    } else {
        // SAFETY: the handle is that of an info, so an object of ours or of another library.
        let request = unsafe { object::borrow::<ConnReqObj>(handle) }
            .map_err(|errno| Error::new(errno, "open an endpoint for a handle that is no connection request"))?;
        // The handle has done its part: it is freed with the endpoint, or by fi_reject.
        let taken = request.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some(taken.ok_or_else(|| Error::new(Errno::EINVAL, "open an endpoint for a request that was used"))?)
    };
    let connected = info.ep.kind == EndpointType::MSG;
    // The connection has this side's address already; another endpoint must not try to bind it.
    let mut info = info;
    if request.is_some() {
        info.src_addr = None;
    }
    let opened = match provider.endpoint(&info) {
        Ok(opened) => opened,
        Err(error) => {
            // The request is as it was: the application may try again, or reject it.
            // SAFETY: the handle was checked above.
            if let (Some(request), Ok(object)) = (request, unsafe { object::borrow::<ConnReqObj>(handle) }) {
                *object.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
            }
            return Err(error);
        }
    };
    let c = fid_ep {
        fid: object::header::<EpObj>(context),
        ops: &OPS,
        cm: if connected { &cm::CONNECTED } else { &cm::CONNECTIONLESS },
        msg: opened.msg,
        rma: &absent::RMA,
        tagged: opened.tagged,
        atomic: &absent::ATOMIC,
        collective: &absent::COLLECTIVE,
    };
    let object = EpObj {
        c,
        hot: opened.hot,
        tx_flags: AtomicU64::new(info.tx.op_flags.bits()),
        rx_flags: AtomicU64::new(info.rx.op_flags.bits()),
        control: opened.control,
        connected,
        request: Mutex::new(request),
        handle,
        domain,
        parent: domain.children.add(),
    };
    Ok(object::install(object).cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table.
    let ep = match unsafe { object::borrow::<EpObj>(fid) } {
        Ok(ep) => ep,
        Err(errno) => return errno.negative(),
    };
    ep.control.close();
    if !ep.handle.is_null() {
        // SAFETY: the handle was one of ours when the endpoint was opened, and its request belongs to the endpoint.
        drop(unsafe { object::reclaim::<ConnReqObj>(ep.handle) });
    }
    // SAFETY: the engine no longer refers to it, and fi_close(3) forbids its use from now on.
    drop(unsafe { object::reclaim::<EpObj>(fid) });
    0
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: C passes the object that holds this table.
    let ep = match unsafe { object::borrow::<EpObj>(fid) } {
        Ok(ep) => ep,
        Err(errno) => return errno.negative(),
    };
    // SAFETY: fi_ep_bind(3) passes an object, ours or another library's.
    if let Ok(cq) = unsafe { object::borrow::<CqObj>(other) } {
        if !core::ptr::eq(cq.domain, ep.domain) {
            return Errno::EDOMAIN.negative();
        }
        return status(ep.control.bind_cq(cq.control.as_any(), BindFlags::from_bits_retain(flags)));
    }
    // SAFETY: as above.
    if let Ok(av) = unsafe { object::borrow::<AvObj>(other) } {
        return match flags {
            0 if core::ptr::eq(av.domain, ep.domain) => status(ep.control.bind_av(&av.av)),
            0 => Errno::EDOMAIN.negative(),
            _ => Errno::EBADFLAGS.negative(),
        };
    }
    // SAFETY: as above.
    if let Ok(eq) = unsafe { object::borrow::<EqObj>(other) } {
        if flags != 0 {
            return Errno::EBADFLAGS.negative();
        }
        ep.control.bind_eq(&eq.eq, Owner(fid.addr()));
        return 0;
    }
    Errno::EINVAL.negative()
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: C passes the object that holds this table.
    let ep = match unsafe { object::borrow::<EpObj>(fid) } {
        Ok(ep) => ep,
        Err(errno) => return errno.negative(),
    };
    match command {
        FI_ENABLE => status(ep.control.enable()),
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: fi_control(3) passes a valid u64 for these commands, or null.
            let Some(arg) = (unsafe { arg.cast::<u64>().as_mut() }) else { return Errno::EINVAL.negative() };
            ops_flag(ep, command == FI_SETOPSFLAG, arg)
        }
        _ => Errno::ENOSYS.negative(),
    }
}

/// Reads or replaces the default flags of one direction (fi_endpoint(3)).
fn ops_flag(ep: &EpObj, set: bool, arg: &mut u64) -> c_int {
    let (transmit, receive) = (OpFlags::SEND.bits(), OpFlags::RECV.bits());
    let place = match *arg & (transmit | receive) {
        direction if direction == transmit => &ep.tx_flags,
        direction if direction == receive => &ep.rx_flags,
        _ => return Errno::EINVAL.negative(),
    };
    // Relaxed: a control call, which the application orders before the calls that it is for.
    if set {
        place.store(*arg & !(transmit | receive), Ordering::Relaxed);
    } else {
        *arg = place.load(Ordering::Relaxed);
    }
    0
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    // SAFETY: C passes the object that holds this table.
    match unsafe { object::borrow::<EpObj>(fid) } {
        Ok(ep) => {
            ep.control.cancel(context.addr());
            0
        }
        Err(errno) => errno.negative() as isize,
    }
}

/// Options that can be read (fi_endpoint(3)); shared with passive endpoints.
pub(super) unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: C passes the object that holds this table; a passive endpoint shares the header.
    let connected = match unsafe { object::borrow::<EpObj>(fid) } {
        Ok(ep) => ep.connected,
        Err(_) => true,
    };
    if level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE || !connected {
        return Errno::ENOPROTOOPT.negative();
    }
    // SAFETY: null or valid by fi_getopt(3).
    let Some(len) = (unsafe { len.as_mut() }) else { return Errno::EINVAL.negative() };
    let room = core::mem::replace(len, size_of::<usize>());
    if value.is_null() || room < size_of::<usize>() {
        return Errno::ETOOSMALL.negative();
    }
    // SAFETY: there is room for a size_t.
    unsafe { value.cast::<usize>().write_unaligned(MAX_USER_DATA) };
    0
}

/// Options that can be set: none yet.
pub(super) unsafe extern "C" fn setopt(_: *mut fid, _: c_int, _: c_int, _: *const c_void, _: usize) -> c_int {
    Errno::ENOPROTOOPT.negative()
}
