//! Parameters (fi_provider(3), fi_getparams(3)): this library's own, and those that providers
//! define at run time.

use crate::ffi::ptr::formatted;
use crate::ffi::ptr::{name_of, text};
use crate::fork;
use crate::state::params::{Defined, defined, values};
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{fi_param, fi_provider};
use ofi_core::Errno;
use ofi_core::param::parse_bool;
use std::ffi::CString;

/// The environment variable: FI_NAME, or FI_PROVIDER_NAME.
fn variable(provider: Option<&str>, name: &str) -> String {
    match provider {
        Some(provider) => format!("FI_{provider}_{name}").to_ascii_uppercase(),
        None => format!("FI_{name}").to_ascii_uppercase(),
    }
}

/// fi_provider(3): variadic, see [`crate::exports::logging::fi_log`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn fi_param_define() {
    core::arch::naked_asm!(
        "sub rsp, 216",
        "mov [rsp + 72], r8",
        "mov [rsp + 80], r9",
        "test al, al",
        "je 2f",
        "movups [rsp + 88], xmm0",
        "movups [rsp + 104], xmm1",
        "movups [rsp + 120], xmm2",
        "movups [rsp + 136], xmm3",
        "movups [rsp + 152], xmm4",
        "movups [rsp + 168], xmm5",
        "movups [rsp + 184], xmm6",
        "movups [rsp + 200], xmm7",
        "2:",
        // The va_list at rsp + 16: four named arguments, two registers for integers are left.
        "mov dword ptr [rsp + 16], 32",
        "mov dword ptr [rsp + 20], 48",
        "lea rax, [rsp + 224]",
        "mov [rsp + 24], rax",
        "lea rax, [rsp + 40]",
        "mov [rsp + 32], rax",
        "lea r8, [rsp + 16]",
        "call {define}",
        "add rsp, 216",
        "ret",
        define = sym define_formatted,
    )
}

unsafe extern "C" fn define_formatted(
    provider: *const fi_provider,
    name: *const c_char,
    kind: c_int,
    help: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    if let Err(errno) = fork::watch() {
        return errno.negative();
    }
    // SAFETY: null or ends with NUL by fi_provider(3).
    let (Some(name), false) = (unsafe { text(name) }, help.is_null()) else { return Errno::EINVAL.negative() };
    // SAFETY: not null, and the caller's arguments go with it.
    let help = unsafe { formatted(help, arguments) };
    let Ok(kind) = u32::try_from(kind) else { return Errno::EINVAL.negative() };
    if help.is_empty() {
        return Errno::EINVAL.negative();
    }
    let owner = provider.addr();
    // SAFETY: null or valid by fi_provider(3).
    let provider = unsafe { name_of(provider) };
    let help = match &provider {
        Some(provider) => format!("{provider}: {help}"),
        None => help,
    };
    let name = variable(provider.as_deref(), &name);
    defined().push(Defined { name, kind, help, owner });
    0
}

/// fi_provider(3).
pub(crate) unsafe extern "C" fn fi_param_get(
    provider: *mut fi_provider,
    name: *const c_char,
    value: *mut c_void,
) -> c_int {
    if let Err(errno) = fork::watch() {
        return errno.negative();
    }
    // SAFETY: null or ends with NUL by fi_provider(3).
    let (Some(name), false) = (unsafe { text(name) }, value.is_null()) else { return Errno::EINVAL.negative() };
    let owner = provider.addr();
    // SAFETY: null or valid by fi_provider(3).
    let provider = unsafe { name_of(provider) };
    let name = variable(provider.as_deref(), &name);
    // A loaded provider may share its name with another, or with a built-in one, which gave the
    // parameter another type: only what the caller has defined is written to its place.
    let named =
        |list: &[Defined]| list.iter().find(|param| param.name == name && param.owner == owner).map(|param| param.kind);
    let Some(kind) = named(&defined()) else {
        return Errno::ENOENT.negative();
    };
    let Some(set) = ofi_core::param::value(&name) else { return Errno::ENODATA.negative() };
    let found = intern(&name, set.clone());
    // SAFETY: the string ends with NUL; base 0 accepts C's number prefixes.
    let number = || unsafe { libc::strtol(found, core::ptr::null_mut(), 0) };
    match kind {
        // SAFETY: a string parameter has a place for a pointer.
        0 => unsafe { value.cast::<*const c_char>().write(found) },
        1 => {
            let number = c_int::try_from(number()).unwrap_or(0);
            // SAFETY: an int parameter has a place for an int.
            unsafe { value.cast::<c_int>().write(number) };
        }
        2 => match parse_bool(&set) {
            // SAFETY: a bool parameter has a place for an int.
            Some(set) => unsafe { value.cast::<c_int>().write(c_int::from(set)) },
            None => return Errno::EINVAL.negative(),
        },
        _ => {
            // Stored as strtol returns it: -1 is the largest size.
            #[allow(clippy::cast_possible_truncation, reason = "64 bits both")]
            let number = number().cast_unsigned() as usize;
            // SAFETY: a size parameter has a place for a size_t.
            unsafe { value.cast::<usize>().write(number) };
        }
    }
    0
}

/// A parameter's value as a C string that is never freed; each distinct value is stored once.
fn intern(name: &str, value: String) -> *const c_char {
    let mut values = values();
    let text = CString::new(value.clone()).unwrap_or_default();
    values.entry((name.to_owned(), value)).or_insert(text).as_ptr()
}

fn duplicate(text: &str) -> *const c_char {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the text ends with NUL.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// fi_getparams(3).
pub(crate) unsafe extern "C" fn fi_getparams(params: *mut *mut fi_param, count: *mut c_int) -> c_int {
    if params.is_null() || count.is_null() {
        return Errno::EINVAL.negative();
    }
    if let Err(errno) = fork::watch() {
        return errno.negative();
    }
    // Loaded providers define parameters of their own.
    crate::exports::loaded::all();
    let list = defined();
    // SAFETY: calloc takes any sizes.
    let array = unsafe { libc::calloc(list.len() + 1, size_of::<fi_param>()) }.cast::<fi_param>();
    if array.is_null() {
        return Errno::ENOMEM.negative();
    }
    for (index, param) in list.iter().enumerate() {
        let value = std::env::var(&param.name).ok();
        let entry = fi_param {
            name: duplicate(&param.name),
            r#type: param.kind,
            help_string: duplicate(&param.help),
            value: value.as_deref().map_or(core::ptr::null(), duplicate),
        };
        let whole =
            !entry.name.is_null() && !entry.help_string.is_null() && (value.is_none() || !entry.value.is_null());
        // SAFETY: `index` is within the array.
        unsafe { array.wrapping_add(index).write(entry) };
        if !whole {
            // SAFETY: the array is from above, and not handed out.
            unsafe { free_params(array, list.len()) };
            return Errno::ENOMEM.negative();
        }
    }
    // SAFETY: not null.
    unsafe { count.write(c_int::try_from(list.len()).unwrap_or(c_int::MAX)) };
    // SAFETY: not null.
    unsafe { params.write(array) };
    0
}

/// fi_getparams(3).
pub(crate) unsafe extern "C" fn fi_freeparams(params: *mut fi_param) {
    let mut count = 0;
    // SAFETY: null, or an array from `fi_getparams`, which ends with a name that is null.
    while unsafe { params.wrapping_add(count).as_ref() }.is_some_and(|param| !param.name.is_null()) {
        count += 1;
    }
    // SAFETY: as above.
    unsafe { free_params(params, count) };
}

/// Frees an array and the texts of its first `count` entries.
///
/// # Safety
/// `params` is null, or an array from `fi_getparams` that is no longer used.
unsafe fn free_params(params: *mut fi_param, count: usize) {
    for index in 0..count {
        // SAFETY: the array has `count` entries by this function's contract; unfilled ones are
        // zero.
        let param = unsafe { &*params.wrapping_add(index) };
        for text in [param.name, param.help_string, param.value] {
            // SAFETY: null or from `strdup`.
            unsafe { libc::free(text.cast_mut().cast()) };
        }
    }
    // SAFETY: null or from `calloc`.
    unsafe { libc::free(params.cast()) };
}
