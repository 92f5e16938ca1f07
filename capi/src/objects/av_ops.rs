//! Opens address vectors, and looks up, shows and removes their addresses (fi_av(3)).

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{put_text, socket_addr, text};
use crate::objects::av::{AvObj, Reports, USER_ID};
use crate::objects::av_insert::{insert, insertsvc, insertsym};
use crate::objects::av_set;
use crate::objects::domain::DomainObj;
use crate::state::open_objects::Listed;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{fi_addr_t, fi_av_attr, fi_ops_av, fid_av};
use ofi_core::error::{Error, Result};
use ofi_core::{Addr, AvType, Errno, FiAddr, RxBits};
use ofi_engine::AddressVector;
use std::sync::{Arc, OnceLock};

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set: av_set::open,
    insert_auth_key: enosys::enosys,
    lookup_auth_key: enosys::enosys,
    set_user_id,
    lookup2: enosys::enosys,
};

/// FI_SYMMETRIC: a hint.
const SYMMETRIC: u64 = 1 << 59;
/// FI_EVENT: insertions report to an event queue.
const EVENT: u64 = 1 << 24;
/// FI_READ: a shared address vector is opened for reading only.
const READ: u64 = 1 << 8;

/// Opens an address vector; writes its resolved type back to `attr`, and the address of a shared
/// one.
///
/// # Safety
/// The attribute's name is null or ends with NUL.
pub(crate) unsafe fn open(domain: &DomainObj, attr: &mut fi_av_attr, context: *mut c_void) -> Result<*mut fid_av> {
    let refuse = |errno, what: &str| Err(Error::new(errno, format!("open an address vector {what}")));
    // SAFETY: this function's contract.
    let name = unsafe { text(attr.name) };
    let (ids, read_only) = (attr.flags & USER_ID != 0, attr.flags & READ != 0);
    if attr.flags & !(EVENT | SYMMETRIC | USER_ID | READ) != 0 || read_only && name.is_none() {
        return refuse(Errno::EINVAL, &format!("with flags {:#x}", attr.flags));
    }
    if ids && name.is_some() {
        return refuse(Errno::ENOSYS, "with a name and FI_AV_USER_ID: shared ones have no user ids");
    }
    if ids && !domain.user_ids() {
        return refuse(Errno::EINVAL, "with FI_AV_USER_ID: not enabled for the domain");
    }
    if attr.r#type > AvType::TABLE.0
        || domain.av_type != AvType::UNSPEC.0 && attr.r#type != AvType::UNSPEC.0 && attr.r#type != domain.av_type
    {
        return refuse(Errno::EINVAL, &format!("of type {}", AvType(attr.r#type)));
    }
    let Some(rx_bits) = u32::try_from(attr.rx_ctx_bits).ok().and_then(RxBits::new) else {
        return refuse(Errno::EINVAL, &format!("with {} bits for receive contexts", attr.rx_ctx_bits));
    };
    if attr.r#type == AvType::UNSPEC.0 {
        attr.r#type = if domain.av_type == AvType::UNSPEC.0 { AvType::TABLE.0 } else { domain.av_type };
    }
    let vector = match name {
        None => private(attr.count, ids),
        Some(name) => {
            let of_domain = |name: fn(&Listed) -> String| domain.listed.as_ref().map(name).unwrap_or_default();
            let (provider, domain_name) = (of_domain(Listed::provider), of_domain(Listed::name));
            ofi_registry::open_shared_av((&provider, &domain_name), domain.format, &name, read_only)?
        }
    };
    if let (Some(base), true) = (vector.shared_handles(), attr.map_addr.is_null()) {
        // They are indices wherever it is mapped; some programs look here for them.
        attr.map_addr = core::ptr::without_provenance_mut(base);
    }
    let reports = if attr.flags & EVENT == 0 { Reports::ToCaller } else { Reports::ToQueue(OnceLock::new()) };
    let av = AvObj {
        c: fid_av { fid: handle::header::<AvObj>(context), ops: &OPS },
        av: Arc::new(vector.with_rx_bits(rx_bits)),
        ids,
        reports,
        format: domain.format,
        kind: AvType(attr.r#type),
        domain,
        parent: domain.children.add(),
    };
    let av = handle::install(av);
    // Its events name it by its address.
    av.expose_provenance();
    Ok(av.cast())
}

/// An address vector of this process, for `count` addresses.
fn private(count: usize, ids: bool) -> AddressVector {
    let universe = || usize::try_from(ofi_registry::UNIVERSE_SIZE.number(1024)).unwrap_or(1024);
    AddressVector::new(if count == 0 { universe() } else { count }, ids)
}

unsafe extern "C" fn set_user_id(av: *mut fid_av, handle: fi_addr_t, id: fi_addr_t, flags: u64) -> c_int {
    let av = ours!(AvObj, av.cast());
    if flags != 0 {
        // Authorization keys are not supported.
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: the domain stays open while it has address vectors.
    if !unsafe { &*av.domain }.user_ids() {
        return Errno::EINVAL.negative();
    }
    if av.av.is_shared() {
        // The ids would be other processes' as well.
        return Errno::ENOSYS.negative();
    }
    if av.av.set_user_id(FiAddr(handle), FiAddr(id)) { 0 } else { Errno::EINVAL.negative() }
}

unsafe extern "C" fn remove(av: *mut fid_av, handles: *mut fi_addr_t, count: usize, flags: u64) -> c_int {
    let av = ours!(AvObj, av.cast());
    if flags != 0 || count > 0 && handles.is_null() {
        return Errno::EINVAL.negative();
    }
    let mut result = 0;
    // Back to front, so that the lowest handle is the first to be reused.
    for index in (0..count).rev() {
        // SAFETY: fi_av_remove(3) passes `count` handles.
        let handle = FiAddr(unsafe { *handles.wrapping_add(index) });
        if let Err(errno) = av.av.try_remove(handle) {
            result = errno.negative();
            // Every other one would wait as long for the process that is stopped.
            if errno.is_again() {
                break;
            }
        }
    }
    result
}

unsafe extern "C" fn lookup(av: *mut fid_av, handle: fi_addr_t, addr: *mut c_void, len: *mut usize) -> c_int {
    let av = ours!(AvObj, av.cast());
    let Some(found) = av.av.lookup(FiAddr(handle)) else { return Errno::EINVAL.negative() };
    // SAFETY: fi_av_lookup(3) passes a buffer of `*len` bytes, or null.
    match unsafe { crate::ffi::ptr::put_addr(&found, addr, len) } {
        // A short buffer is filled as far as it goes, which is not an error here.
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
