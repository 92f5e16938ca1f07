//! Opens endpoints (fi_endpoint(3)), also for connection requests and from passive endpoints
//! (fi_cm(3)).

use crate::convert;
use crate::endpoint::cm;
use crate::endpoint::collective;
use crate::endpoint::data_path::{DataPath, DefaultFlags, PlainTables, Triggers};
use crate::endpoint::object::{EpObj, SharedContexts};
use crate::endpoint::options;
use crate::endpoint::passive::PepObj;
use crate::enosys;
use crate::ffi::handle;
use crate::objects::domain::{DomainObj, Opened};
use crate::objects::eq::ConnReqObj;
use crate::reserve::Watch;
use core::ffi::c_void;
use ofi_abi::{fi_info, fi_ops_cm, fi_ops_ep, fid, fid_ep};
use ofi_core::error::{Error, Result};
use ofi_core::negotiate::SHARED_CONTEXT;
use ofi_core::{AddrFormat, Caps, EndpointType, Errno, Info, Version};
use ofi_engine::completion::eq::{ConnectionRequest, Owner};
use ofi_sync::busy::Children;
use std::sync::{Arc, Mutex, PoisonError};

/// Whether the endpoint joins groups (FI_COLLECTIVE).
fn joins_groups(info: &Info) -> bool {
    info.ep.kind == EndpointType::RDM && info.caps.contains(Caps::COLLECTIVE)
}

static OPS: fi_ops_ep = options::endpoint_table();

/// The state of the data calls of an endpoint or of a context of a scalable endpoint, with the
/// tables of `triggers` if it has triggered operations.
pub(crate) fn data_path(
    fid: fid,
    cm: &'static fi_ops_cm,
    info: &Info,
    opened: &Opened,
    triggers: Option<Arc<Triggers>>,
) -> DataPath {
    let (msg, tagged, rma, atomic) = match triggers.as_deref() {
        None => (opened.msg, opened.tagged, opened.rma, opened.atomic),
        Some(Triggers { msg, tagged, rma, atomic, .. }) => (msg, tagged, rma, atomic),
    };
    DataPath {
        c: fid_ep { fid, ops: &OPS, cm, msg, rma, tagged, atomic, collective: &enosys::COLLECTIVE },
        engine_ptr: opened.engine_ptr,
        defaults: DefaultFlags::new(info.tx.op_flags.bits(), info.rx.op_flags.bits(), info.caps),
        triggers,
    }
}

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
    for count in [info.ep.tx_ctx_cnt, info.ep.rx_ctx_cnt] {
        if count > 1 && count != SHARED_CONTEXT {
            let what = format!("open an endpoint with {count} contexts of a kind: that takes a scalable endpoint");
            return Err(Error::new(Errno::EINVAL, what));
        }
    }
    let joins_groups = joins_groups(&info);
    if joins_groups && info.ep.rx_ctx_cnt == SHARED_CONTEXT {
        let what = "open an endpoint with FI_COLLECTIVE and a shared receive context: it cannot join groups";
        return Err(Error::new(Errno::EINVAL, what));
    }
    if joins_groups && info.caps.contains(Caps::TRIGGER) {
        let what = "open an endpoint with FI_COLLECTIVE and FI_TRIGGER: collective operations cannot be triggered";
        return Err(Error::new(Errno::EINVAL, what));
    }
    // SAFETY: an info's handle is null or an object, ours or another library's.
    let passive = unsafe { handle::borrow::<PepObj>(handle) }.ok();
    let request =
        if handle.is_null() || passive.is_some() {
            None
        } else {
            // SAFETY: an info's handle is null or an object, ours or another library's.
            let request = unsafe { handle::borrow::<ConnReqObj>(handle) }
                .map_err(|errno| Error::new(errno, "open an endpoint: info->handle is not a connection request"))?;
            // From here on the endpoint owns the request and frees the handle; fi_reject frees it
            // if opening fails.
            let taken = request.request.lock().unwrap_or_else(PoisonError::into_inner).take();
            Some(taken.ok_or_else(|| {
                Error::new(Errno::EINVAL, "open an endpoint: the connection request was already used")
            })?)
        };
    let connected = info.ep.kind == EndpointType::MSG;
    // An accepted connection has its local address already; the endpoint must not bind it again.
    let mut info = info;
    info.domain.tclass = domain.class;
    if request.is_some() {
        info.src_addr = None;
    }
    if let Some(passive) = passive {
        // The address passes to this endpoint.
        info.src_addr = Some(passive.control.local_addr()?);
    }
    // If opening fails the handle gets its request back: the application may try again or reject
    // it.
    let restore = |request: Option<Box<ConnectionRequest>>| {
        // SAFETY: the handle was checked above where there is a request.
        if let (Some(request), Ok(object)) = (request, unsafe { handle::borrow::<ConnReqObj>(handle) }) {
            *object.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
        }
    };
    let opened = match provider.endpoint(&info) {
        Ok(opened) => opened,
        Err(error) => {
            restore(request);
            return Err(error);
        }
    };
    let followed = domain.memory.followed.add_endpoint(&opened.control);
    let triggers = match followed.and_then(|()| triggers(domain, &info, &opened)) {
        Ok(triggers) => triggers,
        Err(error) => {
            opened.control.close();
            restore(request);
            return Err(error);
        }
    };
    let cm = match info.ep.kind {
        EndpointType::MSG => &cm::CONNECTED,
        EndpointType::DGRAM if info.caps.contains(Caps::MULTICAST) => &cm::MULTICAST,
        _ if joins_groups => &cm::COLLECTIVE,
        _ => &cm::CONNECTIONLESS,
    };
    let mut data = data_path(handle::header::<EpObj>(context), cm, &info, &opened, triggers);
    if joins_groups {
        data.c.collective = &collective::TABLE;
    }
    let object = EpObj {
        data,
        control: opened.control,
        dependents: Children::new(),
        alias_of: None,
        connected,
        caps: info.caps,
        joins_groups,
        handle: if request.is_some() { handle } else { core::ptr::null_mut() },
        request: Mutex::new(request),
        format: if info.addr_format == AddrFormat::FORMAT_UNSPEC { domain.format } else { info.addr_format },
        owner: Owner(0),
        domain,
        contexts: Mutex::new(SharedContexts::of(&info.ep)),
        parent: domain.children.add(),
    };
    let ep = handle::install(object);
    // SAFETY: made above and not handed out yet.
    let object = unsafe { &mut *ep };
    object.owner = Owner(ep.expose_provenance());
    object.serve_legacy(legacy(domain, &info));
    if watch.verdict() {
        object.handle = core::ptr::null_mut();
        restore(object.request.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    } else if let Some(passive) = passive {
        // Nothing can fail anymore, so the passive endpoint releases its address; it can only be
        // closed from now on.
        passive.control.close();
    }
    Ok(ep.cast())
}

/// Whether an endpoint of this info is a caller's of 1.x, and if so, whether its receives are
/// buffered.
pub(crate) fn legacy(domain: &DomainObj, info: &Info) -> Option<bool> {
    (domain.api < Version::new(2, 0)).then(|| info.is_buffered(domain.api))
}

/// The additional state of an endpoint with FI_TRIGGER.
///
/// # Errors
/// ENOSYS unless its domain has FI_TRIGGER too, and its type has triggered operations.
pub(crate) fn triggers(domain: &DomainObj, info: &Info, opened: &Opened) -> Result<Option<Arc<Triggers>>> {
    if !info.caps.contains(Caps::TRIGGER) {
        return Ok(None);
    }
    let lacks = |what| Error::new(Errno::ENOSYS, format!("open an endpoint with FI_TRIGGER {what}"));
    let work = domain.control.work().ok_or_else(|| lacks("in a domain that was opened without it"))?;
    let initiator = opened.control.clone().initiator().ok_or_else(|| lacks("of this type"))?;
    work.followed.add_endpoint(&opened.control)?;
    let Opened { msg, tagged, rma, atomic, .. } = *opened;
    let plain = PlainTables { msg, tagged, rma, atomic };
    Ok(Some(Arc::new(Triggers::new(domain, (initiator, work.clone()), info.caps, plain))))
}
