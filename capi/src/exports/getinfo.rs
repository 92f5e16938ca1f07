//! Discovery, opening, and error texts: fi_getinfo(3), fi_fabric(3), fi_open(3), fi_version(3),
//! fi_strerror(3).

use crate::exports::logging::LogObj;
use crate::ffi::handle;
use crate::ffi::ptr::{make, out_of_memory, refuse, text};
use crate::reserve::Watch;
use crate::state::{log, open_objects, texts};
use crate::{convert, fork};
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{FI_NUMERICHOST, FI_PROV_ATTR_ONLY, FI_RESCAN, FI_SOURCE, fi_fabric_attr, fi_info, fid_fabric, fid_t};
use ofi_core::{Errno, Error, Version};
use ofi_registry::Query;
use std::ffi::CString;

/// Initialization for calls that may be a program's first.
fn begin() -> Result<(), Error> {
    log::init();
    fork::watch().map_err(|errno| Error::new(errno, "register fork handlers (pthread_atfork)"))
}

/// fi_getinfo(3).
pub(crate) unsafe extern "C" fn fi_getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    if info.is_null() {
        return Errno::EINVAL.negative();
    }
    // The caller may free the result after an error, too. As in libfabric, the result is left as it
    // is for a caller that requests a newer interface.
    if Version(version) <= Version::API {
        // SAFETY: not null, so valid by fi_getinfo(3).
        unsafe { info.write(core::ptr::null_mut()) };
    }
    if let Err(error) = begin() {
        return refuse(&error);
    }
    if flags & !(FI_SOURCE | FI_NUMERICHOST | FI_PROV_ATTR_ONLY | FI_RESCAN) != 0 {
        let what = format!("fi_getinfo with undefined flags {flags:#x}");
        return refuse(&Error::new(Errno::EBADFLAGS, what));
    }
    let watch = Watch::begin();
    // SAFETY: null or ends with NUL by fi_getinfo(3).
    let node = unsafe { text(node) };
    // SAFETY: null or ends with NUL by fi_getinfo(3).
    let service = unsafe { text(service) };
    // SAFETY: null or a valid info by fi_getinfo(3).
    let given = unsafe { hints.as_ref() };
    let handle = given.map_or(core::ptr::null_mut(), |hints| hints.handle);
    let source = flags & FI_SOURCE != 0;
    let hints = given.map(|hints| {
        // Ignored addresses are not read, and neither are their lengths (fi_getinfo(3)).
        let mut counting = *hints;
        if source {
            counting.src_addr = core::ptr::null_mut();
        } else if node.is_some() || service.is_some() {
            counting.dest_addr = core::ptr::null_mut();
        }
        // SAFETY: a valid info has valid members.
        let mut wanted = unsafe { convert::hints(&counting) };
        // SAFETY: as above.
        unsafe { open_objects::narrow(&counting, &mut wanted) };
        wanted
    });
    let query = Query {
        version: Version(version),
        node,
        service,
        source,
        numeric: flags & FI_NUMERICHOST != 0,
        names_only: flags == FI_PROV_ATTR_ONLY,
        hints,
    };
    let found = match ofi_registry::discover(&query) {
        Ok((found, _)) => found,
        Err(_) if watch.ran_out() => return out_of_memory("look for providers"),
        Err(error) => return refuse(&error),
    };
    let list = match convert::list_to_c(&found) {
        Ok(list) if !watch.ran_out() => list,
        _ => return out_of_memory("look for providers"),
    };
    // SAFETY: the list was made above and is not handed out yet.
    unsafe { open_objects::complete(list.as_ptr(), handle) };
    if watch.ran_out() {
        return out_of_memory("look for providers");
    }
    let list = list.into_raw();
    // SAFETY: not null, so valid by fi_getinfo(3).
    unsafe { info.write(list) };
    if list.is_null() { Errno::ENODATA.negative() } else { 0 }
}

/// fi_getinfo(3).
pub(crate) unsafe extern "C" fn fi_freeinfo(info: *mut fi_info) {
    // SAFETY: null or a list from this library (fi_getinfo(3)).
    unsafe { convert::free_list(info) };
}

/// fi_getinfo(3).
pub(crate) unsafe extern "C" fn fi_dupinfo(info: *const fi_info) -> *mut fi_info {
    // SAFETY: null or a valid info (fi_getinfo(3)).
    unsafe { convert::duplicate(info) }.map_or(core::ptr::null_mut(), convert::Infos::into_raw)
}

/// fi_fabric(3).
pub(crate) unsafe extern "C" fn fi_fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    if let Err(error) = begin() {
        return refuse(&error);
    }
    // SAFETY: null or valid by fi_fabric(3).
    let Some(attr) = (unsafe { attr.as_ref() }) else { return Errno::EINVAL.negative() };
    // SAFETY: null or ends with NUL by fi_fabric(3).
    let provider = unsafe { text(attr.prov_name) };
    let (Some(provider), false) = (provider, attr.name.is_null()) else { return Errno::EINVAL.negative() };
    if !ofi_registry::has_provider(&provider) {
        return Errno::ENODEV.negative();
    }
    let open = |_: &Watch| {
        // SAFETY: not null, and ends with NUL by fi_fabric(3).
        let name = unsafe { text(attr.name) }.unwrap_or_default();
        Ok(crate::objects::fabric_ops::open(provider, name, Version(attr.api_version), context))
    };
    // SAFETY: `fabric` is null or valid by fi_fabric(3), and the fabric is new.
    unsafe { make(fabric, "open a fabric", open) }
}

/// fi_fabric(3).
pub(crate) unsafe extern "C" fn fi_fabric2(
    info: *mut fi_info,
    fabric: *mut *mut fid_fabric,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: null or valid by fi_fabric2(3).
    match unsafe { info.as_ref() } {
        // SAFETY: the arguments are those of that function.
        Some(info) if flags == 0 => unsafe { fi_fabric(info.fabric_attr, fabric, context) },
        _ => Errno::EINVAL.negative(),
    }
}

/// fi_version(3).
pub(crate) unsafe extern "C" fn fi_version() -> u32 {
    Version::API.0
}

/// fi_open(3): opens a named object of the library. "logging" imports an application's callbacks;
/// "mr_cache" is not supported, because host memory needs no registration worth caching.
pub(crate) unsafe extern "C" fn fi_open(
    version: u32,
    name: *const c_char,
    _attr: *mut c_void,
    attr_len: usize,
    flags: u64,
    fid: *mut fid_t,
    context: *mut c_void,
) -> c_int {
    if let Err(error) = begin() {
        return refuse(&error);
    }
    // SAFETY: null or ends with NUL by fi_open(3).
    let Some(name) = (unsafe { text(name) }) else { return Errno::EINVAL.negative() };
    let known = ["mr_cache", "logging"].iter().any(|known| name.eq_ignore_ascii_case(known));
    if known && (Version(version) < Version::new(1, 13) || attr_len != 0) {
        Errno::EINVAL.negative()
    } else if known && flags != 0 {
        Errno::EBADFLAGS.negative()
    } else if !name.eq_ignore_ascii_case("logging") {
        Errno::ENOSYS.negative()
    } else if log::is_imported() {
        Errno::EALREADY.negative()
    } else {
        let open = |_: &Watch| Ok(handle::install(LogObj { fid: handle::header::<LogObj>(context) }).cast());
        // SAFETY: `fid` is null or valid by fi_open(3), and the object is new.
        unsafe { make(fid, "open the log", open) }
    }
}

/// fi_strerror(3).
pub(crate) unsafe extern "C" fn fi_strerror(errnum: c_int) -> *const c_char {
    let errnum = errnum.checked_abs().unwrap_or(c_int::MAX);
    if errnum < Errno::EOTHER.raw() {
        // SAFETY: strerror takes any number.
        return unsafe { libc::strerror(errnum) };
    }
    static_text(Errno::from_raw(errnum).text().or_else(|| Errno::EOTHER.text()).unwrap_or_default())
}

/// The text as a C string that is never freed.
fn static_text(text: &'static str) -> *const c_char {
    fork::try_watch();
    let mut texts = texts::texts();
    let entry = texts.entry(text).or_insert_with(|| CString::new(text).unwrap_or_default());
    // The map only grows, and a CString's bytes do not move with it.
    entry.as_ptr()
}
