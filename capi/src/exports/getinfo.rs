//! Discovery, opening, and error texts: fi_getinfo(3), fi_fabric(3), fi_open(3), fi_version(3),
//! fi_strerror(3).

use crate::exports::loaded::{self, Answer, Ask};
use crate::exports::logging::LogObj;
use crate::ffi::handle;
use crate::ffi::ptr::{make, out_of_memory, refuse, text};
use crate::reserve::Watch;
use crate::state::{log, open_objects, texts};
use crate::{convert, fork};
use core::ffi::{c_char, c_int, c_void};
use core::ptr::NonNull;
use ofi_abi::{
    FI_NUMERICHOST, FI_PROV_ATTR_ONLY, FI_RESCAN, FI_SOURCE, OFI_CORE_PROV_ONLY, OFI_OFFLOAD_PROV_ONLY, fi_fabric_attr,
    fi_info, fid_fabric, fid_t,
};
use ofi_core::info::Info;
use ofi_core::{Errno, Error, Version};
use ofi_registry::{Query, Refusals};
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
    let loaded = loaded::all();
    // Layers among loaded providers ask for what is below them.
    let internal = if loaded.providers.is_empty() { 0 } else { OFI_CORE_PROV_ONLY | OFI_OFFLOAD_PROV_ONLY };
    if flags & !(FI_SOURCE | FI_NUMERICHOST | FI_PROV_ATTR_ONLY | FI_RESCAN | internal) != 0 {
        let what = format!("fi_getinfo with undefined flags {flags:#x}");
        return refuse(&Error::new(Errno::EBADFLAGS, what));
    }
    let watch = Watch::begin();
    // SAFETY: null or a valid info by fi_getinfo(3).
    let given = unsafe { hints.as_ref() };
    let handle = given.map_or(core::ptr::null_mut(), |hints| hints.handle);
    let source = flags & FI_SOURCE != 0;
    let wanted = given.map(|hints| {
        // Ignored addresses are not read, and neither are their lengths (fi_getinfo(3)).
        let mut counting = *hints;
        if source {
            counting.src_addr = core::ptr::null_mut();
        } else if !node.is_null() || !service.is_null() {
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
        // SAFETY: null or ends with NUL by fi_getinfo(3).
        node: unsafe { text(node) },
        // SAFETY: null or ends with NUL by fi_getinfo(3).
        service: unsafe { text(service) },
        source,
        numeric: flags & FI_NUMERICHOST != 0,
        names_only: flags == FI_PROV_ATTR_ONLY,
        hints: wanted,
    };
    let (mut found, mut refusals) = if flags & internal == 0 {
        match ofi_registry::search(&query) {
            Ok(found) => found,
            Err(_) if watch.ran_out() => return out_of_memory("look for providers"),
            Err(error) => return refuse(&error),
        }
    } else {
        (Vec::new(), Refusals::default())
    };
    let mut others = Answer::empty();
    if query.names_only {
        loaded::add_names(loaded, &mut found);
    } else if !loaded.providers.is_empty() {
        let name = |info: &Info| info.fabric.prov_name.clone().unwrap_or_default();
        found.retain(|info| !loaded.serves(&name(info)));
        // SAFETY: null or valid by fi_getinfo(3).
        let ours = given.is_some_and(|hints| unsafe { open_objects::are_named_in(hints) });
        if !ours {
            // SAFETY: a valid info has valid members.
            let wanted = given.map(|hints| unsafe { convert::hints(hints) });
            let version = Version(version);
            let ask = Ask { version, node, service, flags, hints, wanted: wanted.as_ref() };
            // SAFETY: the arguments are this function's.
            match unsafe { loaded::ask(loaded, &ask) } {
                Ok(answer) => others = answer,
                Err(_) => return out_of_memory("look for providers"),
            }
        }
    }
    if found.is_empty() && others.has_no_infos() {
        refusals.0.append(&mut others.refusals);
        refusals.log();
    }
    let list = match convert::list_to_c(&found) {
        Ok(list) if !watch.ran_out() => list,
        _ => return out_of_memory("look for providers"),
    };
    // SAFETY: the list was made above and is not handed out yet.
    unsafe { open_objects::complete(list.as_ptr(), handle) };
    if watch.ran_out() {
        return out_of_memory("look for providers");
    }
    let mut whole = others.before;
    whole.append(list);
    whole.append(others.after);
    let list = whole;
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
    given: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    if let Err(error) = begin() {
        return refuse(&error);
    }
    // SAFETY: null or valid by fi_fabric(3).
    let Some(attr) = (unsafe { given.as_ref() }) else { return Errno::EINVAL.negative() };
    // SAFETY: null or ends with NUL by fi_fabric(3).
    let provider = unsafe { text(attr.prov_name) };
    let (Some(provider), false) = (provider, attr.name.is_null()) else { return Errno::EINVAL.negative() };
    if let Some(loaded) = loaded::opener(&provider) {
        // SAFETY: valid by fi_fabric(3).
        let code = unsafe { loaded::open(loaded, given, fabric, context) };
        if code == 0 {
            // SAFETY: the call has written the fabric.
            unsafe { watch(fabric, &provider, loaded.api) };
        }
        return code;
    }
    if !ofi_registry::has_provider(&provider) {
        return Errno::ENODEV.negative();
    }
    let open = |_: &Watch| {
        // SAFETY: not null, and ends with NUL by fi_fabric(3).
        let name = unsafe { text(attr.name) }.unwrap_or_default();
        Ok(crate::objects::fabric_ops::open(provider.clone(), name, Version(attr.api_version), context))
    };
    // SAFETY: `fabric` is null or valid by fi_fabric(3), and the fabric is new.
    let code = unsafe { make(fabric, "open a fabric", open) };
    if code == 0 {
        // SAFETY: the call has written the fabric.
        unsafe { watch(fabric, &provider, Version::API) };
    }
    code
}

/// Has hooks watch a new fabric, if FI_HOOK names any.
///
/// # Safety
/// A new fabric of that provider is at `fabric`.
unsafe fn watch(fabric: *mut *mut fid_fabric, provider: &str, api: Version) {
    if !ofi_hooks::is_on(|| ofi_registry::HOOK.text()) {
        return;
    }
    // SAFETY: this function's contract.
    if let Some(fabric) = NonNull::new(unsafe { *fabric }) {
        // SAFETY: as above.
        unsafe { ofi_hooks::hook_fabric(fabric, provider, api) };
    }
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
/// "mr_cache" is not supported, because providers that are loaded have monitors of their own.
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
