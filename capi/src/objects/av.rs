//! Address vectors (fi_av(3)).

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{put_text, refuse, socket_addr, text};
use crate::objects::domain::DomainObj;
use crate::reserve::Watch;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::FI_CLASS_AV;
use ofi_abi::{FI_MORE, FI_SYNC_ERR, fi_addr_t, fi_av_attr, fi_ops, fi_ops_av, fid, fid_av};
use ofi_core::error::{Error, Result};
use ofi_core::{Addr, AddrFormat, AvType, Errno, FiAddr};
use ofi_engine::AddressVector;
use ofi_sync::busy::Child;
use std::sync::Arc;

/// An address vector.
#[repr(C)]
pub(crate) struct AvObj {
    pub(crate) c: fid_av,
    pub(crate) av: Arc<AddressVector>,
    /// Entries get their user ids by fi_av_set_user_id(3).
    pub(crate) ids: bool,
    pub(crate) format: AddrFormat,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

object!(AvObj, FI_CLASS_AV, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = enosys::fid_ops(close);

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set: enosys::enosys,
    insert_auth_key: enosys::enosys,
    lookup_auth_key: enosys::enosys,
    set_user_id,
    lookup2: enosys::enosys,
};

/// FI_SYMMETRIC: a hint.
const SYMMETRIC: u64 = 1 << 59;
/// FI_EVENT: asynchronous insertion, which is not supported.
const EVENT: u64 = 1 << 24;
/// FI_AV_USER_ID.
const USER_ID: u64 = 1 << 41;

/// Opens an address vector; writes its resolved type back to `attr`.
pub(crate) fn open(domain: &DomainObj, attr: &mut fi_av_attr, context: *mut c_void) -> Result<*mut fid_av> {
    let refuse = |errno, what: &str| Err(Error::new(errno, format!("open an address vector {what}")));
    if !attr.name.is_null() {
        return refuse(Errno::ENOSYS, "with a name: shared address vectors are not supported");
    }
    if attr.flags & EVENT != 0 {
        return refuse(Errno::ENOSYS, "with FI_EVENT: insertions are synchronous");
    }
    let ids = attr.flags & USER_ID != 0;
    if attr.flags & !(SYMMETRIC | USER_ID) != 0 {
        return refuse(Errno::EINVAL, &format!("with flags {:#x}", attr.flags));
    }
    if ids && !domain.user_ids() {
        return refuse(Errno::EINVAL, "with FI_AV_USER_ID: not enabled for the domain");
    }
    if attr.r#type > AvType::TABLE.0
        || domain.av_type != AvType::UNSPEC.0 && attr.r#type != AvType::UNSPEC.0 && attr.r#type != domain.av_type
    {
        return refuse(Errno::EINVAL, &format!("of type {}", AvType(attr.r#type)));
    }
    if !(0..64).contains(&attr.rx_ctx_bits) {
        return refuse(Errno::EINVAL, &format!("with {} bits for receive contexts", attr.rx_ctx_bits));
    }
    if attr.r#type == AvType::UNSPEC.0 {
        attr.r#type = if domain.av_type == AvType::UNSPEC.0 { AvType::TABLE.0 } else { domain.av_type };
    }
    let universe = || usize::try_from(ofi_registry::UNIVERSE_SIZE.number(1024)).unwrap_or(1024);
    let count = if attr.count == 0 { universe() } else { attr.count };
    let c = fid_av { fid: handle::header::<AvObj>(context), ops: &OPS };
    let av = Arc::new(AddressVector::new(count, ids));
    Ok(handle::install(AvObj { c, av, ids, format: domain.format, domain, parent: domain.children.add() }).cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<AvObj>(fid, |av| av.av.users.count() > 0) }
}

/// The output arrays of an insertion; null if not requested.
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

/// Checks the flags. The array for errors with FI_SYNC_ERR, otherwise null.
fn error_place(av: &AvObj, flags: u64, context: *mut c_void) -> core::result::Result<*mut c_int, Errno> {
    // SAFETY: the domain stays open while it has address vectors.
    let ids = unsafe { &*av.domain }.user_ids();
    if flags & !(FI_MORE | FI_SYNC_ERR | USER_ID) != 0 || flags & USER_ID != 0 && !ids {
        return Err(Errno::EBADFLAGS);
    }
    if flags & USER_ID != 0 && av.ids {
        // A vector opened with FI_AV_USER_ID gets its ids by fi_av_set_user_id(3) only.
        return Err(Errno::EINVAL);
    }
    if flags & FI_SYNC_ERR == 0 {
        return Ok(core::ptr::null_mut());
    }
    if context.is_null() { Err(Errno::EINVAL) } else { Ok(context.cast()) }
}

/// Reads the string to which the pointer at `place` points.
///
/// # Safety
/// There is a pointer at `place`, null or to a string.
unsafe fn string_addr(place: *const u8) -> Option<Addr> {
    // SAFETY: this function's contract.
    let text = unsafe { place.cast::<*const c_char>().read_unaligned() };
    // SAFETY: null or a string by this function's contract.
    unsafe { socket_addr(text.cast()) }
}

/// Reads the address at `place`.
///
/// # Safety
/// There is an address.
unsafe fn first_addr(place: *const u8) -> Option<Addr> {
    // SAFETY: this function's contract.
    unsafe { socket_addr(place.cast()) }
}

/// Inserts the address that `read` returns. Removes it again if that used the memory reserve:
/// entries live long, while the reserve is for short-lived allocations.
fn insert_one(
    av: &AvObj,
    read: impl FnOnce() -> core::result::Result<Addr, Errno>,
) -> core::result::Result<FiAddr, Errno> {
    let watch = Watch::begin();
    let inserted = read().and_then(|addr| av.av.try_insert(addr));
    if !watch.verdict() {
        return inserted;
    }
    if let Ok(handle) = inserted {
        av.av.remove(handle);
    }
    Err(Errno::ENOMEM)
}

/// Resolves a node and a service in the vector's format.
fn resolve(av: &AvObj, node: Option<&str>, service: Option<&str>) -> Result<Option<Addr>> {
    if av.format == AddrFormat::ADDR_STR {
        return Ok(ofi_registry::local::lookup(node, service));
    }
    ofi_registry::inet::lookup(node, service, false, false, &mut av.format.clone())
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    addrs: *const c_void,
    count: usize,
    handles: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let av = ours!(AvObj, av.cast());
    let results = match error_place(av, flags, context) {
        Ok(errors) => Results { handles, errors },
        Err(errno) => return errno.negative(),
    };
    if count > 0 && (addrs.is_null() || flags & USER_ID != 0 && handles.is_null()) {
        return Errno::EINVAL.negative();
    }
    if c_int::try_from(count).is_err() {
        return Errno::EINVAL.negative();
    }
    let (mut at, mut inserted, mut lacking) = (addrs.cast::<u8>(), 0, false);
    // Programs pass strings as an array of pointers (fi_av(3)), or packed as fi_getname returned
    // them. The high bytes of a pointer are zero; a string has no zero in its first eight bytes.
    let has_zero = || {
        (0..size_of::<*const c_char>()).any(|byte| {
            // SAFETY: `count` is not 0, so there is a pointer, or a string that ends with its first
            // zero.
            unsafe { at.wrapping_add(byte).read() == 0 }
        })
    };
    let strings = av.format == AddrFormat::ADDR_STR && count > 0 && has_zero();
    for index in 0..count {
        let read = if strings { string_addr } else { first_addr };
        // SAFETY: fi_av_insert(3) passes `count` addresses in the domain's format, one behind the
        // other.
        let addr = unsafe { read(at) };
        let result = insert_one(av, || addr.ok_or(Errno::EINVAL));
        match result {
            Ok(handle) => {
                inserted += 1;
                if flags & USER_ID != 0 {
                    // SAFETY: with FI_AV_USER_ID the array holds `count` ids to begin with
                    // (fi_av(3)).
                    let id = FiAddr(unsafe { *handles.wrapping_add(index) });
                    av.av.set_user_id(handle, id);
                }
            }
            Err(errno) => lacking |= errno == Errno::ENOMEM,
        }
        // SAFETY: fi_av_insert(3) passes arrays of `count` elements, or null.
        unsafe { results.put(index, result) };
        let stride = match av.format {
            ofi_core::AddrFormat::SOCKADDR_IN6 => ofi_core::addr::SOCKADDR_IN6_LEN,
            ofi_core::AddrFormat::SOCKADDR_IN => ofi_core::addr::SOCKADDR_IN_LEN,
            _ if strings => size_of::<*const c_char>(),
            _ => addr.map_or(ofi_core::addr::SOCKADDR_IN_LEN, |addr| addr.encoded_len()),
        };
        at = at.wrapping_add(stride);
    }
    if inserted == 0 && lacking { Errno::ENOMEM.negative() } else { inserted }
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    handle: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let av = ours!(AvObj, av.cast());
    let results = match error_place(av, flags, context) {
        Ok(errors) => Results { handles: handle, errors },
        Err(errno) => return errno.negative(),
    };
    let read = || {
        // SAFETY: fi_av_insertsvc(3) passes strings, or null; that holds for both.
        let (node, service) = (unsafe { text(node) }, unsafe { text(service) });
        if node.is_none() || service.is_none() && !node.as_deref().is_some_and(|node| node.contains("://")) {
            return Err(Errno::EINVAL);
        }
        match resolve(av, node.as_deref(), service.as_deref()) {
            Ok(addr) => addr.ok_or(Errno::EINVAL),
            Err(error) => {
                refuse(&error);
                Err(error.errno())
            }
        }
    };
    let result = insert_one(av, read);
    // SAFETY: fi_av_insertsvc(3) passes places for one element, or null.
    unsafe { results.put(0, result) };
    result.map_or_else(Errno::negative, |_| 1)
}

/// Consecutive names of nodes or services: addresses and numbers count up, other names count in the
/// number at their end.
enum Series<'a> {
    V4(u32),
    V6(u128),
    Numbered { stem: &'a str, start: u64, width: usize },
    Single(&'a str),
}

impl<'a> Series<'a> {
    /// The series of `count` names that begins with `first`. `EINVAL` if there is none.
    fn new(first: &'a str, count: usize) -> core::result::Result<Self, Errno> {
        use std::net::{Ipv4Addr, Ipv6Addr};
        let last = u32::try_from(count).map_err(|_| Errno::EINVAL)?.saturating_sub(1);
        let (stem, digits) = first.split_at(first.trim_end_matches(|c: char| c.is_ascii_digit()).len());
        let series = if let Ok(ip) = first.parse::<Ipv4Addr>() {
            ip.to_bits().checked_add(last).map(|_| Self::V4(ip.to_bits()))
        } else if let Ok(ip) = first.parse::<Ipv6Addr>() {
            ip.to_bits().checked_add(u128::from(last)).map(|_| Self::V6(ip.to_bits()))
        } else if last == 0 {
            Some(Self::Single(first))
        } else {
            let start = digits.parse::<u64>().ok().filter(|start| start.checked_add(u64::from(last)).is_some());
            start.map(|start| Self::Numbered { stem, start, width: digits.len() })
        };
        series.ok_or(Errno::EINVAL)
    }

    /// The name at an index.
    fn name(&self, at: u32) -> String {
        use std::net::{Ipv4Addr, Ipv6Addr};
        match *self {
            Self::V4(first) => Ipv4Addr::from(first.wrapping_add(at)).to_string(),
            Self::V6(first) => Ipv6Addr::from(first.wrapping_add(u128::from(at))).to_string(),
            Self::Numbered { stem, start, width } => format!("{stem}{:0width$}", start.wrapping_add(u64::from(at))),
            Self::Single(name) => name.to_owned(),
        }
    }
}

unsafe extern "C" fn insertsym(
    av: *mut fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    handles: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let av = ours!(AvObj, av.cast());
    let results = match error_place(av, flags & !USER_ID, context) {
        Ok(errors) => Results { handles, errors },
        Err(errno) => return errno.negative(),
    };
    if flags & USER_ID != 0 {
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: fi_av_insertsym(3) passes strings, or null; that holds for both.
    let (Some(node), Some(service)) = (unsafe { text(node) }, unsafe { text(service) }) else {
        return Errno::EINVAL.negative();
    };
    let in_range = nodes.checked_mul(services).is_some_and(|count| c_int::try_from(count).is_ok());
    let (Ok(node), Ok(service), true) = (Series::new(&node, nodes), Series::new(&service, services), in_range) else {
        return Errno::EINVAL.negative();
    };
    let (mut inserted, mut lacking) = (0, false);
    for index in 0..nodes * services {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let result = insert_one(av, || {
            let (node, service) = (node.name(place(index / services)), service.name(place(index % services)));
            resolve(av, Some(&node), Some(&service)).map_err(|error| error.errno())?.ok_or(Errno::EINVAL)
        });
        inserted += c_int::from(result.is_ok());
        lacking |= result == Err(Errno::ENOMEM);
        // SAFETY: fi_av_insertsym(3) passes arrays of nodes times services elements, or null.
        unsafe { results.put(index, result) };
    }
    if inserted == 0 && lacking { Errno::ENOMEM.negative() } else { inserted }
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
        if !av.av.remove(handle) {
            result = Errno::EINVAL.negative();
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

#[cfg(test)]
mod tests {
    use super::Series;

    fn names(first: &str, count: u32) -> Option<Vec<String>> {
        let series = Series::new(first, count as usize).ok()?;
        Some((0..count).map(|at| series.name(at)).collect())
    }

    #[test]
    fn names_count_up() {
        assert_eq!(names("10.0.0.254", 3).unwrap(), ["10.0.0.254", "10.0.0.255", "10.0.1.0"]);
        assert_eq!(names("host09", 2).unwrap(), ["host09", "host10"]);
        assert_eq!(names("::1", 2).unwrap(), ["::1", "::2"]);
        assert_eq!(names("7000", 2).unwrap(), ["7000", "7001"]);
        assert_eq!(names("localhost", 1).unwrap(), ["localhost"]);
        assert!(names("localhost", 2).is_none());
        assert!(names("255.255.255.255", 2).is_none());
        assert!(names("18446744073709551615", 2).is_none());
        assert!(names("localhost", 0).unwrap().is_empty());
    }
}
