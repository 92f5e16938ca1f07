//! Endpoints off the data path (fi_endpoint(3)).

use crate::abi::FI_CLASS_EP;
use crate::abi::{
    FI_ALIAS, FI_CLASS_CNTR, FI_CLASS_CQ, FI_ENABLE, FI_GETOPSFLAG, FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT,
    FI_OPT_INJECT_MSG_SIZE, FI_OPT_INJECT_TAGGED_SIZE, FI_OPT_MAX_MSG_SIZE, FI_OPT_MAX_TAGGED_SIZE,
    FI_OPT_MIN_MULTI_RECV, FI_SETOPSFLAG, fi_alias, fi_info, fi_ops, fi_ops_ep, fid, fid_ep,
};
use crate::convert;
use crate::endpoint::cm;
use crate::endpoint::passive::PepObj;
use crate::enosys;
use crate::erased::EpControl;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{make, status};
use crate::objects::av::AvObj;
use crate::objects::cntr::CntrObj;
use crate::objects::cq::CqObj;
use crate::objects::domain::DomainObj;
use crate::objects::eq::ConnReqObj;
use crate::objects::eq::EqObj;
use crate::reserve::Watch;
use core::ffi::{c_int, c_void};
use ofi_core::error::{Error, Result};
use ofi_core::{AddrFormat, BindFlags, Caps, EndpointType, Errno, OpFlags};
use ofi_engine::completion::eq::{ConnectionRequest, Owner};
use ofi_engine::limits::SizeLimit;
use ofi_engine::wire::hello::MAX_USER_DATA;
use ofi_sync::busy::Child;
use ofi_sync::busy::Children;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

/// An endpoint.
#[repr(C)]
pub(crate) struct EpObj {
    pub(crate) c: fid_ep,
    /// The endpoint of the engine for which the message tables were made.
    pub(crate) engine_ptr: *const c_void,
    pub(crate) tx_flags: AtomicU64,
    pub(crate) rx_flags: AtomicU64,
    pub(crate) control: Arc<dyn EpControl>,
    /// Other names of this endpoint, and groups that it has joined.
    pub(crate) dependents: Children,
    /// This is another name of an endpoint, which it keeps open.
    pub(crate) alias_of: Option<Child>,
    pub(crate) connected: bool,
    /// It takes several messages into one buffer.
    pub(crate) multi_recv: bool,
    /// It takes tagged messages.
    pub(crate) tagged: bool,
    /// The request that this endpoint will accept.
    pub(crate) request: Mutex<Option<ConnectionRequest>>,
    /// The handle that the request came with, freed with the endpoint; null if there was none.
    pub(crate) handle: *mut fid,
    pub(crate) format: AddrFormat,
    /// What events call it: the endpoint itself, also where this is another name of it.
    pub(crate) owner: Owner,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

object!(EpObj, FI_CLASS_EP, FID_OPS, c.fid [ops cm msg rma tagged atomic collective]);

pub(crate) static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind,
    control,
    ops_open: enosys::ops_open,
    tostr: enosys::tostr,
    ops_set: enosys::ops_set,
};

pub(super) static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: enosys::enosys,
    rx_ctx: enosys::enosys,
    rx_size_left: enosys::enosys,
    tx_size_left: enosys::enosys,
    export_xpu: enosys::enosys,
};

/// Opens an endpoint.
///
/// # Safety
/// `info` is valid with all its parts (fi_endpoint(3)).
pub(crate) unsafe fn open(
    domain: &DomainObj,
    info: &fi_info,
    context: *mut c_void,
    watch: &Watch,
) -> Result<*mut fid_ep> {
    let (handle, provider) = (info.handle, domain.control.as_ref());
    // SAFETY: the info is valid by this function's contract.
    let info = unsafe { convert::info(info, "") };
    if !matches!(info.ep.kind, EndpointType::RDM | EndpointType::MSG | EndpointType::DGRAM) {
        return Err(Error::new(Errno::ENOSYS, format!("open an endpoint of type {}", info.ep.kind)));
    }
    // SAFETY: the handle is null, or that of an info, so an object of ours or of another library.
    let passive = unsafe { handle::borrow::<PepObj>(handle) }.ok();
    let request = if handle.is_null() || passive.is_some() {
        None
    } else {
        // SAFETY: the handle is that of an info, so an object of ours or of another library.
        let request = unsafe { handle::borrow::<ConnReqObj>(handle) }
            .map_err(|errno| Error::new(errno, "open an endpoint for a handle that is no connection request"))?;
        // The handle has done its part: it is freed with the endpoint, or by fi_reject.
        let taken = request.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some(taken.ok_or_else(|| Error::new(Errno::EINVAL, "open an endpoint for a request that was used"))?)
    };
    let connected = info.ep.kind == EndpointType::MSG;
    // The connection has this side's address already; another endpoint must not try to bind it.
    let mut info = info;
    info.domain.tclass = domain.class;
    if request.is_some() {
        info.src_addr = None;
    }
    if let Some(passive) = passive {
        // The address passes to this endpoint.
        info.src_addr = Some(passive.control.local_addr()?);
    }
    // The request is as it was if this fails: the application may try again, or reject it.
    let give_back = |request: Option<ConnectionRequest>| {
        // SAFETY: the handle was checked above where there is a request.
        if let (Some(request), Ok(object)) = (request, unsafe { handle::borrow::<ConnReqObj>(handle) }) {
            *object.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
        }
    };
    let opened = match provider.endpoint(&info) {
        Ok(opened) => opened,
        Err(error) => {
            give_back(request);
            return Err(error);
        }
    };
    let c = fid_ep {
        fid: handle::header::<EpObj>(context),
        ops: &OPS,
        cm: match info.ep.kind {
            EndpointType::MSG => &cm::CONNECTED,
            EndpointType::DGRAM if info.caps.contains(Caps::MULTICAST) => &cm::MULTICAST,
            _ => &cm::CONNECTIONLESS,
        },
        msg: opened.msg,
        rma: &enosys::RMA,
        tagged: opened.tagged,
        atomic: &enosys::ATOMIC,
        collective: &enosys::COLLECTIVE,
    };
    let object = EpObj {
        c,
        engine_ptr: opened.engine_ptr,
        tx_flags: AtomicU64::new(info.tx.op_flags.bits()),
        rx_flags: AtomicU64::new(info.rx.op_flags.bits()),
        control: opened.control,
        dependents: Children::new(),
        alias_of: None,
        connected,
        multi_recv: info.caps.intersects(Caps::MULTI_RECV | Caps::TAGGED_MULTI_RECV),
        tagged: info.caps.contains(Caps::TAGGED),
        handle: if request.is_some() { handle } else { core::ptr::null_mut() },
        request: Mutex::new(request),
        format: if info.addr_format == AddrFormat::FORMAT_UNSPEC { domain.format } else { info.addr_format },
        owner: Owner(0),
        domain,
        parent: domain.children.add(),
    };
    let ep = handle::install(object);
    // SAFETY: made above and not given away yet.
    let object = unsafe { &mut *ep };
    object.owner = Owner(ep.expose_provenance());
    if watch.verdict() {
        object.handle = core::ptr::null_mut();
        give_back(object.request.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    } else if let Some(passive) = passive {
        // Nothing can fail any more. It can only be closed from now on.
        passive.control.close();
    }
    Ok(ep.cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let ep = ours!(EpObj, fid);
    if ep.dependents.count() > 0 {
        return Errno::EBUSY.negative();
    }
    if ep.alias_of.is_some() {
        // SAFETY: only the name goes, and fi_close(3) forbids its use from now on.
        drop(unsafe { handle::reclaim::<EpObj>(fid) });
        return 0;
    }
    ep.control.close();
    if !ep.handle.is_null() {
        // SAFETY: the handle was one of ours when the endpoint was opened, and its request belongs to the endpoint.
        drop(unsafe { handle::reclaim::<ConnReqObj>(ep.handle) });
    }
    // SAFETY: the engine no longer refers to it, and fi_close(3) forbids its use from now on.
    drop(unsafe { handle::reclaim::<EpObj>(fid) });
    0
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let ep = ours!(EpObj, fid);
    // SAFETY: fi_ep_bind(3) passes an object, ours or another library's.
    if let Ok(cq) = unsafe { handle::borrow::<CqObj>(other) } {
        if !core::ptr::eq(cq.domain, ep.domain) {
            return Errno::EDOMAIN.negative();
        }
        return status(ep.control.bind_cq(cq.control.as_any(), BindFlags::from_bits_retain(flags)));
    }
    // SAFETY: as above.
    if let Ok(cntr) = unsafe { handle::borrow::<CntrObj>(other) } {
        if !core::ptr::eq(cntr.domain, ep.domain) {
            return Errno::EDOMAIN.negative();
        }
        return status(ep.control.bind_counter(cntr.control.as_any(), BindFlags::from_bits_retain(flags)));
    }
    // SAFETY: as above.
    if let Ok(av) = unsafe { handle::borrow::<AvObj>(other) } {
        return match flags {
            0 if core::ptr::eq(av.domain, ep.domain) => status(ep.control.bind_av(&av.av)),
            0 => Errno::EDOMAIN.negative(),
            _ => Errno::EBADFLAGS.negative(),
        };
    }
    // SAFETY: as above.
    if let Ok(eq) = unsafe { handle::borrow::<EqObj>(other) } {
        if flags != 0 {
            return Errno::EBADFLAGS.negative();
        }
        return status(ep.control.bind_eq(&eq.eq, ep.owner));
    }
    // SAFETY: as above, and null is none.
    let class = unsafe { other.as_ref() }.map(|fid| fid.fclass);
    if flags != 0 && class.is_some_and(|class| !matches!(class, FI_CLASS_CQ | FI_CLASS_CNTR)) {
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: as above.
    unsafe { handle::unfit(other) }.negative()
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let ep = ours!(EpObj, fid);
    match command {
        FI_ENABLE => status(ep.default_eq().and_then(|()| ep.control.enable())),
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: fi_control(3) passes a valid u64 for these commands, or null.
            let Some(arg) = (unsafe { arg.cast::<u64>().as_mut() }) else { return Errno::EINVAL.negative() };
            ops_flag(ep, command == FI_SETOPSFLAG, arg)
        }
        FI_ALIAS => {
            // SAFETY: fi_ep_alias(3) passes a valid fi_alias.
            match unsafe { arg.cast::<fi_alias>().as_ref() } {
                // SAFETY: its place for the alias is null or valid.
                Some(wanted) => unsafe { alias(ep, wanted) },
                None => Errno::EINVAL.negative(),
            }
        }
        _ => Errno::ENOSYS.negative(),
    }
}

impl EpObj {
    /// Binds the domain's event queue to an endpoint that has none of its own (fi_domain(3)): where events may come from now
    /// on.
    pub(crate) fn default_eq(&self) -> Result<()> {
        // SAFETY: the domain stays open while it has endpoints.
        let eq = unsafe { &*self.domain }.eq.lock().unwrap_or_else(PoisonError::into_inner);
        match &*eq {
            Some((eq, _)) if !self.control.has_eq() => self.control.bind_eq(eq, self.owner),
            _ => Ok(()),
        }
    }
}

/// Another name for an endpoint, with flags of its own (fi_ep_alias(3)).
///
/// # Safety
/// The place for the alias is null or valid.
unsafe fn alias(ep: &EpObj, wanted: &fi_alias) -> c_int {
    let (transmit, receive) = (OpFlags::SEND.bits(), OpFlags::RECV.bits());
    let flags = wanted.flags & !(transmit | receive);
    // Relaxed: control calls, which the application orders.
    let (mut tx, mut rx) = (ep.tx_flags.load(Ordering::Relaxed), ep.rx_flags.load(Ordering::Relaxed));
    match wanted.flags & (transmit | receive) {
        direction if direction == transmit => tx = flags,
        direction if direction == receive => rx = flags,
        _ => return Errno::EINVAL.negative(),
    }
    // SAFETY: null or valid by this function's contract, and the alias is new.
    unsafe { make(wanted.fid, "open an alias", |_| Ok(new_alias(ep, tx, rx))) }
}

/// Another name for an endpoint, with those flags.
fn new_alias(ep: &EpObj, tx: u64, rx: u64) -> *mut fid {
    let c = &ep.c;
    let object = EpObj {
        c: fid_ep {
            fid: handle::header::<EpObj>(c.fid.context),
            ops: c.ops,
            cm: c.cm,
            msg: c.msg,
            rma: c.rma,
            tagged: c.tagged,
            atomic: c.atomic,
            collective: c.collective,
        },
        engine_ptr: ep.engine_ptr,
        tx_flags: AtomicU64::new(tx),
        rx_flags: AtomicU64::new(rx),
        control: ep.control.clone(),
        dependents: Children::new(),
        alias_of: Some(ep.dependents.add()),
        connected: ep.connected,
        multi_recv: ep.multi_recv,
        tagged: ep.tagged,
        request: Mutex::new(None),
        handle: core::ptr::null_mut(),
        format: ep.format,
        owner: ep.owner,
        domain: ep.domain,
        // SAFETY: the domain stays open while it has endpoints.
        parent: unsafe { &*ep.domain }.children.add(),
    };
    handle::install(object).cast()
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
    match unsafe { handle::borrow::<EpObj>(fid) } {
        Ok(ep) => {
            ep.control.cancel(context.addr());
            0
        }
        Err(errno) => errno.negative() as isize,
    }
}

/// An option whose value is a size_t: where it is kept, if the endpoint has it.
enum SizeOption {
    MinMultiRecv,
    ConnectionData,
    /// A limit that an application may lower.
    Limit(SizeLimit),
}

fn size_option(ep: Option<&EpObj>, level: c_int, name: c_int) -> core::result::Result<SizeOption, Errno> {
    if level != FI_OPT_ENDPOINT {
        return Err(Errno::ENOPROTOOPT);
    }
    let connected = ep.is_none_or(|ep| ep.connected);
    match (name, ep) {
        (FI_OPT_CM_DATA_SIZE, _) if connected => Ok(SizeOption::ConnectionData),
        (FI_OPT_MIN_MULTI_RECV, Some(ep)) if ep.multi_recv => Ok(SizeOption::MinMultiRecv),
        (FI_OPT_MAX_MSG_SIZE, Some(_)) => Ok(SizeOption::Limit(SizeLimit::Message)),
        (FI_OPT_MAX_TAGGED_SIZE, Some(ep)) if ep.tagged => Ok(SizeOption::Limit(SizeLimit::TaggedMessage)),
        (FI_OPT_INJECT_MSG_SIZE, Some(_)) => Ok(SizeOption::Limit(SizeLimit::Inject)),
        (FI_OPT_INJECT_TAGGED_SIZE, Some(ep)) if ep.tagged => Ok(SizeOption::Limit(SizeLimit::TaggedInject)),
        _ => Err(Errno::ENOPROTOOPT),
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
    let ep = unsafe { handle::borrow::<EpObj>(fid) }.ok();
    let found = match size_option(ep, level, name) {
        Ok(SizeOption::ConnectionData) => MAX_USER_DATA,
        Ok(SizeOption::MinMultiRecv) => ep.map_or(0, |ep| ep.control.min_multi_recv()),
        Ok(SizeOption::Limit(which)) => ep.map_or(0, |ep| ep.control.limit(which)),
        Err(errno) => return errno.negative(),
    };
    // SAFETY: null or valid by fi_getopt(3).
    let Some(len) = (unsafe { len.as_mut() }) else { return Errno::EINVAL.negative() };
    let room = core::mem::replace(len, size_of::<usize>());
    if value.is_null() || room < size_of::<usize>() {
        return Errno::ETOOSMALL.negative();
    }
    // SAFETY: there is room for a size_t.
    unsafe { value.cast::<usize>().write_unaligned(found) };
    0
}

/// Options that can be set (fi_endpoint(3)); shared with passive endpoints.
pub(super) unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: C passes the object that holds this table; a passive endpoint shares the header.
    let Ok(ep) = (unsafe { handle::borrow::<EpObj>(fid) }) else { return Errno::ENOPROTOOPT.negative() };
    let option = match size_option(Some(ep), level, name) {
        Ok(SizeOption::ConnectionData) => return Errno::ENOPROTOOPT.negative(),
        Ok(option) => option,
        Err(errno) => return errno.negative(),
    };
    if value.is_null() || len != size_of::<usize>() {
        return Errno::EINVAL.negative();
    }
    // SAFETY: there is a size_t by fi_setopt(3).
    let size = unsafe { value.cast::<usize>().read_unaligned() };
    match option {
        SizeOption::MinMultiRecv => ep.control.set_min_multi_recv(size),
        SizeOption::Limit(which) => return status(ep.control.set_limit(which, size)),
        SizeOption::ConnectionData => {}
    }
    0
}
