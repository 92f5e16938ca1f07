//! Event queues (fi_eq(3)).

use crate::convert;
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::put_text;
use crate::objects::fabric::FabricObj;
use crate::objects::wait::Wait;
use crate::objects::wait::WaitConfig;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::FI_CLASS_CONNREQ;
use ofi_abi::FI_CLASS_EQ;
use ofi_abi::{
    FI_AFFINITY, FI_AV_COMPLETE, FI_CONNECTED, FI_CONNREQ, FI_JOIN_COMPLETE, FI_PEEK, FI_SHUTDOWN, fi_eq_attr,
    fi_eq_cm_entry, fi_eq_err_entry, fi_ops, fi_ops_eq, fid, fid_eq,
};
use ofi_core::error::{Error, Result};
use ofi_core::{Errno, Version, WaitObjectKind};
use ofi_engine::EventQueue;
use ofi_engine::completion::eq::ConnectionRequest;
use ofi_engine::completion::eq::{Event, EventKind, Found, Owner};
use ofi_sync::busy::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A connection request: `info->handle` of an FI_CONNREQ event.
#[repr(C)]
pub(crate) struct ConnReqObj {
    pub(crate) fid: fid,
    /// `None` once an endpoint has it, which keeps the handle until it closes.
    pub(crate) request: Mutex<Option<Box<ConnectionRequest>>>,
}

object!(ConnReqObj, FI_CLASS_CONNREQ, REQUEST_FID_OPS, fid []);

/// An event queue.
#[repr(C)]
pub(crate) struct EqObj {
    pub(crate) c: fid_eq,
    pub(crate) eq: Arc<EventQueue>,
    pub(crate) wait: Wait,
    pub(crate) api: Version,
    /// Error data that the last error entry points to.
    pub(crate) error_data: Mutex<Vec<u8>>,
    pub(crate) parent: Child,
}

object!(EqObj, FI_CLASS_EQ, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = fi_ops { control, ..enosys::fid_ops(close) };

pub(crate) static REQUEST_FID_OPS: fi_ops = enosys::fid_ops(close_request);

static OPS: fi_ops_eq = fi_ops_eq { size: size_of::<fi_ops_eq>(), read, readerr, write, sread, strerror };

const FI_WRITE: u64 = 1 << 9;

/// Opens an event queue.
///
/// # Safety
/// The attribute's wait set is open where its kind is FI_WAIT_SET.
pub(crate) unsafe fn open(fabric: &FabricObj, attr: Option<&fi_eq_attr>, context: *mut c_void) -> Result<*mut fid_eq> {
    let refuse = |errno, what: String| Err(Error::new(errno, format!("open an event queue with {what}")));
    let (flags, wait_obj, vector, wait_set) = attr.map_or((0, 0, 0, core::ptr::null_mut()), |attr| {
        (attr.flags, attr.wait_obj, attr.signaling_vector, attr.wait_set)
    });
    if flags & !(FI_AFFINITY | FI_WRITE) != 0 {
        return refuse(Errno::EINVAL, format!("flags {flags:#x}"));
    }
    // Blocking reads work even with FI_WAIT_NONE.
    let kind = if wait_obj == WaitObjectKind::NONE.0 { WaitObjectKind::FD.0 } else { wait_obj };
    let cpu = (flags & FI_AFFINITY != 0).then(|| usize::try_from(vector).ok()).flatten();
    // SAFETY: this function's contract.
    let mut config = unsafe { WaitConfig::new(kind, wait_set, &fabric.signaler, cpu) }?;
    config.report_as(WaitObjectKind(wait_obj));
    let queue = Arc::new(EventQueue::new(config.wait_object.clone(), config.waiting));
    let wait = config.open(queue.clone())?;
    let c = fid_eq { fid: handle::header::<EqObj>(context), ops: &OPS };
    let object = EqObj {
        c,
        eq: queue,
        wait,
        api: Version(fabric.c.api_version),
        error_data: Mutex::default(),
        parent: fabric.children.add(),
    };
    Ok(handle::install(object).cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<EqObj>(fid, |eq| eq.eq.users.count() > 0) }
}

unsafe extern "C" fn close_request(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time. Closing it drops the
    // connection, too.
    unsafe { handle::close::<ConnReqObj>(fid, |_| false) }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let eq = ours!(EqObj, fid);
    // SAFETY: fi_eq(3) passes null or the type for the command and the kind of wait object.
    unsafe { eq.wait.control(command, arg, Some(eq.eq.descriptor())) }
}

/// The context of the object that an event is about.
///
/// # Safety
/// The owner is 0, or the exposed address of an object that is open.
unsafe fn context_of(owner: Owner) -> *mut c_void {
    let fid: *mut fid = core::ptr::with_exposed_provenance_mut(owner.0);
    // SAFETY: this function's contract.
    unsafe { fid.as_ref() }.map_or(core::ptr::null_mut(), |fid| fid.context)
}

/// The event's number and its bytes in C. Leaves out the info of a connection request, which
/// belongs to the reader that removes the event.
///
/// # Safety
/// As for [`context_of`], for the owner of an event that does not carry its context itself.
unsafe fn render(event: &Event) -> (u32, Vec<u8>) {
    let mut out = Vec::new();
    out.extend(event.owner.0.to_ne_bytes());
    let (number, data): (u32, &[u8]) = match &event.kind {
        EventKind::ConnectionRequest(request) => (FI_CONNREQ, &request.data),
        EventKind::Connected(data) => (FI_CONNECTED, data),
        EventKind::Shutdown => (FI_SHUTDOWN, &[]),
        // A `fi_eq_entry`: the object, a context, data.
        EventKind::Joined => {
            // SAFETY: this function's contract.
            out.extend(unsafe { context_of(event.owner) }.expose_provenance().to_ne_bytes());
            out.extend(0u64.to_ne_bytes());
            return (FI_JOIN_COMPLETE, out);
        }
        EventKind::Inserted { context, count } => {
            out.extend(context.to_ne_bytes());
            out.extend((*count as u64).to_ne_bytes());
            return (FI_AV_COMPLETE, out);
        }
        EventKind::User(number, bytes) => return (*number, bytes.clone()),
        EventKind::Failed { .. } | EventKind::InsertionFailed { .. } => return (0, Vec::new()),
    };
    // A `fi_eq_cm_entry`: the endpoint, no info, the peer's data.
    out.resize(size_of::<fi_eq_cm_entry>(), 0);
    out.extend(data);
    (number, out)
}

unsafe extern "C" fn read(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> isize {
    let object = ours!(EqObj, eq.cast(), isize);
    let peek = flags & FI_PEEK != 0;
    let mut seen = None;
    let mut info = None;
    let found = object.eq.read(|event| {
        if let (EventKind::ConnectionRequest(request), false) = (&event.kind, peek) {
            match convert::to_c(&request.info) {
                Ok(made) => info = Some(made),
                // Keep the event: a later read may find more memory.
                Err(errno) => {
                    seen = Some(Err(errno));
                    return true;
                }
            }
        }
        // SAFETY: closing an object drops its events (fi_close(3)), so the owner of an event that
        // is read is open; only address vectors leave theirs, and these carry their contexts.
        seen = Some(Ok(unsafe { render(event) }));
        peek
    });
    let (number, mut bytes) = match (&found, seen) {
        (Found::Error, _) => return Errno::EAVAIL.negative() as isize,
        (_, Some(Ok(seen))) => seen,
        (_, Some(Err(errno))) => return errno.negative() as isize,
        (_, None) => return Errno::AGAIN.negative() as isize,
    };
    if let (Found::Event(Event { kind: EventKind::ConnectionRequest(request), .. }), Some(mut info)) = (found, info) {
        let fid = handle::header::<ConnReqObj>(core::ptr::null_mut());
        let handle = handle::install(ConnReqObj { fid, request: Mutex::new(Some(request)) });
        info.set_handle(handle.cast());
        let place = core::mem::offset_of!(fi_eq_cm_entry, info);
        let info = info.into_raw().expose_provenance();
        bytes[place..place + size_of::<usize>()].copy_from_slice(&info.to_ne_bytes());
    }
    if !event.is_null() {
        // SAFETY: fi_eq_read(3) passes a place for the event's number.
        unsafe { event.write(number) };
    }
    let count = if buf.is_null() { 0 } else { bytes.len().min(len) };
    if count > 0 {
        // SAFETY: `buf` has `len >= count` bytes.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast::<u8>(), count) };
    }
    count.cast_signed()
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    // SAFETY: the arguments are those of this function.
    let first = unsafe { read(eq, event, buf, len, flags) };
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    if first != Errno::AGAIN.negative() as isize || timeout == Some(Duration::ZERO) {
        return first;
    }
    // SAFETY: C passes the event queue that holds this table.
    match unsafe { handle::borrow::<EqObj>(eq.cast()) } {
        Ok(object) => {
            let end = timeout.map(|timeout| ofi_os::clock::now() + timeout);
            loop {
                let came = match object.eq.wait(end.map(|end| end.since(ofi_os::clock::now()))) {
                    Ok(came) => came,
                    Err(errno) => return errno.negative() as isize,
                };
                // SAFETY: the arguments are those of this function.
                let got = unsafe { read(eq, event, buf, len, flags) };
                // Another reader was faster: wait again.
                if got != Errno::AGAIN.negative() as isize || !came {
                    return got;
                }
            }
        }
        Err(errno) => errno.negative() as isize,
    }
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, entry: *mut fi_eq_err_entry, _flags: u64) -> isize {
    let object = ours!(EqObj, eq.cast(), isize);
    // SAFETY: null or valid by fi_eq_readerr(3).
    let Some(entry) = (unsafe { entry.as_mut() }) else { return Errno::EINVAL.negative() as isize };
    let Some(Event { owner, kind }) = object.eq.read_error() else { return Errno::AGAIN.negative() as isize };
    let (errno, prov_errno, context, index, data) = match kind {
        // SAFETY: as in `read`.
        EventKind::Failed { errno, cause, data, .. } => (errno, cause.code(), unsafe { context_of(owner) }, 0, data),
        EventKind::InsertionFailed { context, index, errno } => {
            (errno, 0, core::ptr::with_exposed_provenance_mut(context), index, Vec::new())
        }
        // `read_error` returns only failures.
        EventKind::ConnectionRequest(_)
        | EventKind::Connected(_)
        | EventKind::Shutdown
        | EventKind::Joined
        | EventKind::Inserted { .. }
        | EventKind::User(..) => return Errno::AGAIN.negative() as isize,
    };
    let (user, room) = (entry.err_data, entry.err_data_size);
    let mut filled = fi_eq_err_entry {
        fid: core::ptr::with_exposed_provenance_mut(owner.0),
        context,
        data: index as u64,
        err: errno.raw(),
        prov_errno,
        err_data: core::ptr::null_mut(),
        err_data_size: 0,
    };
    if !data.is_empty() {
        if object.api >= Version::new(1, 5) && room > 0 && !user.is_null() {
            let count = room.min(data.len());
            // SAFETY: the caller's buffer has `room >= count` bytes (fi_eq(3)).
            unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), user.cast::<u8>(), count) };
            (filled.err_data, filled.err_data_size) = (user, count);
        } else {
            let mut kept = object.error_data.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = data;
            (filled.err_data, filled.err_data_size) = (kept.as_mut_ptr().cast(), kept.len());
        }
    }
    *entry = filled;
    size_of::<fi_eq_err_entry>().cast_signed()
}

unsafe extern "C" fn write(eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, _flags: u64) -> isize {
    let object = ours!(EqObj, eq.cast(), isize);
    if buf.is_null() && len > 0 {
        return Errno::EINVAL.negative() as isize;
    }
    // SAFETY: fi_eq_write(3) passes `len` bytes.
    let bytes = unsafe { crate::ffi::ptr::bytes(buf, len) };
    object.eq.push(Event { owner: Owner(0), kind: EventKind::User(event, bytes) });
    len.cast_signed()
}

unsafe extern "C" fn strerror(
    eq: *mut fid_eq,
    code: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: C passes the event queue that holds this table.
    let text = match unsafe { handle::borrow::<EqObj>(eq.cast()) } {
        Ok(object) => object.eq.strerror(code),
        Err(errno) => errno.to_string(),
    };
    // SAFETY: fi_eq_strerror(3) passes `len` bytes, or null.
    unsafe { put_text(&text, buf, len) };
    if buf.is_null() || len == 0 { crate::state::texts::keep(text) } else { buf }
}
