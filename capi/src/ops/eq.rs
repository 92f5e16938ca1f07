//! Event queues (fi_eq(3)).

use super::absent;
use super::wait::Choice;
use crate::abi::{
    FI_AFFINITY, FI_CONNECTED, FI_CONNREQ, FI_JOIN_COMPLETE, FI_PEEK, FI_SHUTDOWN, fi_eq_attr, fi_eq_cm_entry,
    fi_eq_err_entry, fi_info, fi_ops, fi_ops_eq, fid, fid_eq,
};
use crate::convert;
use crate::guard::put_text;
use crate::object::{self, ConnReqObj, EqObj, FabricObj, Waits, ours};
use core::ffi::{c_char, c_int, c_void};
use ofi_core::error::{Error, Result};
use ofi_core::{Errno, Version, WaitObject};
use ofi_engine::EventQueue;
use ofi_engine::eq::{Event, EventKind, Found, Owner};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind: absent::bind,
    control,
    ops_open: absent::ops_open,
    tostr: absent::tostr,
    ops_set: absent::ops_set,
};

pub(crate) static REQUEST_FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: close_request,
    bind: absent::bind,
    control: absent::control,
    ops_open: absent::ops_open,
    tostr: absent::tostr,
    ops_set: absent::ops_set,
};

static OPS: fi_ops_eq = fi_ops_eq { size: size_of::<fi_ops_eq>(), read, readerr, write, sread, strerror };

const FI_WRITE: u64 = 1 << 9;

/// Opens an event queue.
///
/// # Safety
/// The attribute's wait set is open where its kind is FI_WAIT_SET.
pub(crate) unsafe fn open(fabric: &FabricObj, attr: Option<&fi_eq_attr>, context: *mut c_void) -> Result<*mut fid_eq> {
    let refuse = |errno, what: String| Err(Error::new(errno, format!("open an event queue with {what}")));
    let (flags, wait_obj, wait_set) =
        attr.map_or((0, 0, core::ptr::null_mut()), |attr| (attr.flags, attr.wait_obj, attr.wait_set));
    if flags & !(FI_AFFINITY | FI_WRITE) != 0 {
        return refuse(Errno::EINVAL, format!("flags {flags:#x}"));
    }
    // A blocking read works whatever was asked for.
    let kind = if wait_obj == WaitObject::NONE.0 { WaitObject::FD.0 } else { wait_obj };
    // SAFETY: this function's contract. An event queue belongs to no domain, so to no thread of ours.
    let mut choice = unsafe { Choice::new(kind, wait_set, None) }?;
    choice.called(WaitObject(wait_obj));
    let queue = Arc::new(EventQueue::new(choice.port.clone(), choice.how));
    let wait = choice.settle(Arc::new(Waiter(queue.clone())))?;
    let c = fid_eq { fid: object::header::<EqObj>(context), ops: &OPS };
    let object = EqObj {
        c,
        eq: queue,
        wait,
        api: Version(fabric.c.api_version),
        error_data: Mutex::default(),
        parent: fabric.children.add(),
    };
    Ok(object::install(object).cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { object::close::<EqObj>(fid, |eq| eq.eq.users.count() > 0) }
}

unsafe extern "C" fn close_request(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, and gives the request up, and with it the connection.
    unsafe { object::close::<ConnReqObj>(fid, |_| false) }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let eq = ours!(EqObj, fid);
    // SAFETY: fi_eq(3) passes what the kind of the wait object calls for.
    unsafe { eq.wait.control(command, arg, Some(eq.eq.descriptor())) }
}

/// An event queue as a member of a wait set.
struct Waiter(Arc<EventQueue>);

impl Waits for Waiter {
    fn descriptor(&self) -> Option<i32> {
        Some(self.0.descriptor())
    }
    fn try_wait(&self) -> core::result::Result<(), Errno> {
        self.0.try_wait()
    }
}

/// The context of an object that an event is about.
fn context_of(owner: Owner) -> *mut c_void {
    let fid: *mut fid = core::ptr::with_exposed_provenance_mut(owner.0);
    // SAFETY: closing an object drops its events (fi_close(3)), so the owner of an event that is read is alive.
    unsafe { fid.as_ref() }.map_or(core::ptr::null_mut(), |fid| fid.context)
}

/// The event's number and its bytes in C. A connection request becomes an info with a handle.
fn render(event: &mut Event) -> (u32, Vec<u8>) {
    let fid: *mut fid = core::ptr::with_exposed_provenance_mut(event.owner.0);
    let (number, info, data): (u32, *mut fi_info, Vec<u8>) = match &mut event.kind {
        EventKind::ConnectionRequest(request) => {
            let info = convert::to_c(&request.info);
            (FI_CONNREQ, info, request.data.clone())
        }
        EventKind::Connected(data) => (FI_CONNECTED, core::ptr::null_mut(), core::mem::take(data)),
        EventKind::Shutdown => (FI_SHUTDOWN, core::ptr::null_mut(), Vec::new()),
        EventKind::Joined => return (FI_JOIN_COMPLETE, joined(event.owner)),
        EventKind::User(number, bytes) => return (*number, core::mem::take(bytes)),
        EventKind::Failed { .. } => return (0, Vec::new()),
    };
    let entry = fi_eq_cm_entry { fid, info };
    let mut out = Vec::with_capacity(size_of::<fi_eq_cm_entry>() + data.len());
    out.extend(entry.fid.expose_provenance().to_ne_bytes());
    out.extend(entry.info.expose_provenance().to_ne_bytes());
    out.extend(data);
    (number, out)
}

/// A `fi_eq_entry` for a group: the group, its context, no data.
fn joined(owner: Owner) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    out.extend(owner.0.to_ne_bytes());
    out.extend(context_of(owner).expose_provenance().to_ne_bytes());
    out.extend(0u64.to_ne_bytes());
    out
}

unsafe extern "C" fn read(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> isize {
    let object = ours!(EqObj, eq.cast(), isize);
    let peek = flags & FI_PEEK != 0;
    let mut peeked = None;
    let found = object.eq.read(|event| {
        if peek {
            peeked = Some(glance(event));
        }
        peek
    });
    let (number, bytes, mut taken) = match (found, peeked) {
        (Found::Error, _) => return Errno::EAVAIL.negative() as isize,
        (_, Some((number, bytes))) => (number, bytes, None),
        (Found::Nothing, None) => return Errno::AGAIN.negative() as isize,
        (Found::Event(mut event), None) => {
            let (number, bytes) = render(&mut event);
            (number, bytes, Some(event))
        }
    };
    if let Some(Event { kind: EventKind::ConnectionRequest(request), .. }) = taken.take() {
        attach(&bytes, *request);
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

/// An event that stays in the queue: without its info, which belongs to whoever takes the event.
fn glance(event: &Event) -> (u32, Vec<u8>) {
    let mut out = Vec::new();
    out.extend(event.owner.0.to_ne_bytes());
    out.extend(0usize.to_ne_bytes());
    match &event.kind {
        EventKind::ConnectionRequest(request) => {
            out.extend(&request.data);
            (FI_CONNREQ, out)
        }
        EventKind::Connected(data) => {
            out.extend(data);
            (FI_CONNECTED, out)
        }
        EventKind::Shutdown => (FI_SHUTDOWN, out),
        EventKind::Joined => (FI_JOIN_COMPLETE, joined(event.owner)),
        EventKind::User(number, bytes) => (*number, bytes.clone()),
        EventKind::Failed { .. } => (0, Vec::new()),
    }
}

/// Puts a request behind `info->handle` of the entry that was rendered for it.
fn attach(bytes: &[u8], request: ofi_engine::eq::ConnectionRequest) {
    let Some(address) = bytes.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(usize::from_ne_bytes) else {
        return;
    };
    let info: *mut fi_info = core::ptr::with_exposed_provenance_mut(address);
    let fid = object::header::<ConnReqObj>(core::ptr::null_mut());
    let handle = object::install(ConnReqObj { fid, request: Mutex::new(Some(request)) });
    // SAFETY: `render` made the info and put its address there.
    if let Some(info) = unsafe { info.as_mut() } {
        info.handle = handle.cast();
    }
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
    match unsafe { object::borrow::<EqObj>(eq.cast()) } {
        Ok(object) if object.wait.is_shared() => Errno::ENOSYS.negative() as isize,
        Ok(object) => {
            let end = timeout.map(|timeout| ofi_os::clock::now() + timeout);
            loop {
                let came = object.eq.wait(end.map(|end| end.since(ofi_os::clock::now())));
                // SAFETY: the arguments are those of this function.
                let got = unsafe { read(eq, event, buf, len, flags) };
                // Another reader may have been faster: this one waits on.
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
    let Some(Event { owner, kind: EventKind::Failed { errno, cause, data, .. } }) = object.eq.read_error() else {
        return Errno::AGAIN.negative() as isize;
    };
    let (user, room) = (entry.err_data, entry.err_data_size);
    let mut filled = fi_eq_err_entry {
        fid: core::ptr::with_exposed_provenance_mut(owner.0),
        context: context_of(owner),
        data: 0,
        err: errno.raw(),
        prov_errno: cause.code(),
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
    let bytes = unsafe { crate::guard::bytes(buf, len) };
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
    let text = match unsafe { object::borrow::<EqObj>(eq.cast()) } {
        Ok(object) => object.eq.strerror(code),
        Err(errno) => errno.to_string(),
    };
    // SAFETY: fi_eq_strerror(3) passes `len` bytes, or null.
    unsafe { put_text(&text, buf, len) };
    if buf.is_null() || len == 0 { crate::exports::keep(text) } else { buf }
}
