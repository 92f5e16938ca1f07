//! Address vectors (fi_av(3)).

use super::absent;
use crate::abi::{FI_MORE, FI_SYNC_ERR, fi_addr_t, fi_av_attr, fi_ops, fi_ops_av, fid, fid_av};
use crate::guard::{put_text, refuse, socket_addr, text};
use crate::object::{self, AvObj, DomainObj};
use core::ffi::{c_char, c_int, c_void};
use ofi_core::error::{Error, Result};
use ofi_core::{Addr, AvType, Errno, FiAddr};
use ofi_engine::AddressVector;
use std::sync::Arc;

pub(crate) static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind: absent::bind,
    control: absent::control,
    ops_open: absent::ops_open,
    tostr: absent::tostr,
    ops_set: absent::ops_set,
};

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert,
    insertsvc,
    insertsym: absent::absent,
    remove,
    lookup,
    straddr,
    av_set: absent::absent,
    insert_auth_key: absent::absent,
    lookup_auth_key: absent::absent,
    set_user_id: absent::absent,
    lookup2: absent::absent,
};

/// FI_SYMMETRIC: a hint.
const SYMMETRIC: u64 = 1 << 59;

/// Opens an address vector; its resolved type is written back.
pub(crate) fn open(domain: &DomainObj, attr: &mut fi_av_attr, context: *mut c_void) -> Result<*mut fid_av> {
    if !attr.name.is_null() {
        return Err(Error::new(Errno::ENOSYS, "open a shared address vector"));
    }
    if attr.flags & !SYMMETRIC != 0 || attr.r#type > AvType::TABLE.0 {
        return Err(Error::new(Errno::EINVAL, format!("open an address vector with flags {:#x}", attr.flags)));
    }
    if attr.r#type == AvType::UNSPEC.0 {
        attr.r#type = domain.av_type;
    }
    let universe = || usize::try_from(ofi_registry::UNIVERSE_SIZE.number(1024)).unwrap_or(1024);
    let count = if attr.count == 0 { universe() } else { attr.count };
    let c = fid_av { fid: object::header::<AvObj>(context), ops: &OPS };
    let av = Arc::new(AddressVector::new(count));
    Ok(object::install(AvObj { c, av, format: domain.format, domain, parent: domain.children.add() }).cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { object::close::<AvObj>(fid, |av| av.av.users.count() > 0) }
}

/// Where results of an insertion go.
struct Results {
    handles: *mut fi_addr_t,
    errors: *mut c_int,
}

impl Results {
    /// # Safety
    /// Both arrays are null or have an element `index`.
    unsafe fn put(&self, index: usize, result: core::result::Result<FiAddr, Errno>) {
        if !self.handles.is_null() {
            // SAFETY: the array has an element `index` by this function's contract.
            unsafe { self.handles.wrapping_add(index).write(result.unwrap_or(FiAddr::UNSPEC).0) };
        }
        if !self.errors.is_null() {
            // SAFETY: the array has an element `index` by this function's contract.
            unsafe { self.errors.wrapping_add(index).write(result.err().map_or(0, Errno::raw)) };
        }
    }
}

/// The place for errors that the flags ask for.
fn error_place(flags: u64, context: *mut c_void) -> core::result::Result<*mut c_int, Errno> {
    if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
        return Err(Errno::EBADFLAGS);
    }
    if flags & FI_SYNC_ERR == 0 {
        return Ok(core::ptr::null_mut());
    }
    if context.is_null() { Err(Errno::EINVAL) } else { Ok(context.cast()) }
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    addrs: *const c_void,
    count: usize,
    handles: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C passes the address vector that holds this table.
    let av = match unsafe { object::borrow::<AvObj>(av.cast()) } {
        Ok(av) => av,
        Err(errno) => return errno.negative(),
    };
    let results = match error_place(flags, context) {
        Ok(errors) => Results { handles, errors },
        Err(errno) => return errno.negative(),
    };
    if count > 0 && addrs.is_null() {
        return Errno::EINVAL.negative();
    }
    let (mut at, mut inserted) = (addrs.cast::<u8>(), 0);
    for index in 0..count {
        // SAFETY: fi_av_insert(3) passes `count` addresses in the domain's format, one behind the other.
        let addr = unsafe { socket_addr(at.cast()) };
        let result = match addr {
            Some(addr) => {
                inserted += 1;
                Ok(av.av.insert(addr))
            }
            None => Err(Errno::EINVAL),
        };
        // SAFETY: fi_av_insert(3) passes arrays of `count` elements, or null.
        unsafe { results.put(index, result) };
        let stride = match av.format {
            ofi_core::AddrFormat::SOCKADDR_IN6 => ofi_core::addr::SOCKADDR_IN6_LEN,
            ofi_core::AddrFormat::SOCKADDR_IN => ofi_core::addr::SOCKADDR_IN_LEN,
            _ => addr.map_or(ofi_core::addr::SOCKADDR_IN_LEN, |addr| addr.encoded_len()),
        };
        at = at.wrapping_add(stride);
    }
    inserted
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    handle: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C passes the address vector that holds this table.
    let av = match unsafe { object::borrow::<AvObj>(av.cast()) } {
        Ok(av) => av,
        Err(errno) => return errno.negative(),
    };
    let results = match error_place(flags, context) {
        Ok(errors) => Results { handles: handle, errors },
        Err(errno) => return errno.negative(),
    };
    // SAFETY: fi_av_insertsvc(3) passes strings, or null; that holds for both.
    let (node, service) = (unsafe { text(node) }, unsafe { text(service) });
    if node.is_none() || service.is_none() && node.as_deref().and_then(ofi_registry::inet::parse_scheme).is_none() {
        return Errno::EINVAL.negative();
    }
    match ofi_registry::inet::lookup(node.as_deref(), service.as_deref(), false, false, av.format) {
        Ok(Some(addr)) => {
            // SAFETY: fi_av_insertsvc(3) passes places for one element, or null.
            unsafe { results.put(0, Ok(av.av.insert(addr))) };
            1
        }
        Ok(None) => Errno::EINVAL.negative(),
        Err(error) => refuse(&error),
    }
}

unsafe extern "C" fn remove(av: *mut fid_av, handles: *mut fi_addr_t, count: usize, flags: u64) -> c_int {
    // SAFETY: C passes the address vector that holds this table.
    let av = match unsafe { object::borrow::<AvObj>(av.cast()) } {
        Ok(av) => av,
        Err(errno) => return errno.negative(),
    };
    if flags != 0 || count > 0 && handles.is_null() {
        return Errno::EINVAL.negative();
    }
    let mut result = 0;
    // Back to front, so that the lowest of them is the first to be used again.
    for index in (0..count).rev() {
        // SAFETY: fi_av_remove(3) passes `count` handles.
        let handle = FiAddr(unsafe { *handles.wrapping_add(index) });
        if !av.av.remove(handle) {
            result = Errno::EINVAL.negative();
        }
    }
    result
}

unsafe extern "C" fn lookup(av: *mut fid_av, handle: fi_addr_t, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: C passes the address vector that holds this table.
    let av = match unsafe { object::borrow::<AvObj>(av.cast()) } {
        Ok(av) => av,
        Err(errno) => return errno.negative(),
    };
    let Some(found) = av.av.lookup(FiAddr(handle)) else { return Errno::EINVAL.negative() };
    // SAFETY: fi_av_lookup(3) passes a buffer of `*len` bytes, or null.
    match unsafe { crate::guard::put_addr(&found, addr, len) } {
        // A short buffer is filled as far as it goes, and that is no error here.
        code if code == Errno::ETOOSMALL.negative() => 0,
        code => code,
    }
}

unsafe extern "C" fn straddr(
    _av: *mut fid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: fi_av_straddr(3) passes an address in the domain's format.
    let shown = unsafe { socket_addr(addr) }.map(|addr: Addr| addr.to_string()).unwrap_or_default();
    // SAFETY: null or valid by fi_av_straddr(3).
    let Some(len) = (unsafe { len.as_mut() }) else { return core::ptr::null() };
    // SAFETY: `buf` has `*len` bytes, or is null.
    unsafe { put_text(&shown, buf, *len) };
    *len = shown.len() + 1;
    buf
}
