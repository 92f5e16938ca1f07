//! `librdmaaddrinfo.so.1`: rdma_getaddrinfo(3) and rdma_freeaddrinfo for C programs, at the version node where librdmacm has
//! them, so that the library can be preloaded in its place or linked alone.
//!
//! `FI_LOG_LEVEL=warn` (or more) has each refusal explained on standard error.

mod list;

use core::ffi::{CStr, c_char, c_int};
use list::rdma_addrinfo;
use ofi_core::log::LOG_LEVEL;
use ofi_rdma::{AddrInfo, Errno, Error, Kind, Result};

macro_rules! export {
    ($($target:path => $name:literal;)*) => {$(
        // A name without a version must not appear: the function itself is invisible, and a stub carries the name.
        core::arch::global_asm!(
            concat!(".globl ofi.", $name),
            concat!(".type ofi.", $name, ",@function"),
            concat!("ofi.", $name, ":"),
            "jmp {target}",
            concat!(".symver ofi.", $name, ", ", $name, "@@RDMACM_1.0, remove"),
            target = sym $target,
        );
    )*};
}

export! {
    rdma_getaddrinfo => "rdma_getaddrinfo";
    rdma_freeaddrinfo => "rdma_freeaddrinfo";
}

/// rdma_getaddrinfo(3). Failures return the EAI code itself and leave `res` as it was. EAI_SYSTEM sets errno to the system's
/// error. EAI_BADFLAGS sets it to EINVAL, since its value is the -1 with which other functions announce an errno.
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: null or ends with NUL by rdma_getaddrinfo(3).
    let node = unsafe { text(node) };
    // SAFETY: null or ends with NUL by rdma_getaddrinfo(3).
    let service = unsafe { text(service) };
    // SAFETY: null or a valid entry by rdma_getaddrinfo(3).
    let hints = unsafe { hints.as_ref() };
    // SAFETY: null or a place for a pointer by rdma_getaddrinfo(3).
    let res = unsafe { res.as_mut() };
    let found = resolve(node, service, hints).and_then(|found| match res {
        Some(res) => Ok((found, res)),
        None => Err(list::invalid("there is no place for the result")),
    });
    match found {
        Ok((found, res)) => {
            *res = list::from(found);
            0
        }
        Err(error) => refuse(&error),
    }
}

fn resolve(
    node: Option<Result<&str, &CStr>>,
    service: Option<Result<&str, &CStr>>,
    hints: Option<&rdma_addrinfo>,
) -> Result<Vec<AddrInfo>> {
    let utf8 = |text: Option<Result<_, &CStr>>, kind, what| {
        text.transpose().map_err(|text| Error::new(kind, format!("the {what} {text:?} is not UTF-8, so it is no name")))
    };
    let node = utf8(node, Kind::NoName, "node")?;
    let service = utf8(service, Kind::Service, "service")?;
    match hints.map(list::hints).transpose()? {
        // Hints may be all zero: they were given, and the answer is what they say.
        Some(hints) if node.is_none() && service.is_none() => ofi_rdma::complete(&hints).map(|info| vec![info]),
        hints => ofi_rdma::resolve(node, service, &hints.unwrap_or_default()),
    }
}

/// The text that a C string is, or the string if it is not UTF-8. `None` for null.
///
/// # Safety
/// It is null, or ends with NUL and stays as it is for `'a`.
unsafe fn text<'a>(string: *const c_char) -> Option<Result<&'a str, &'a CStr>> {
    // SAFETY: not null, so the caller vouches for it.
    let string = (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) });
    string.map(|string| string.to_str().map_err(|_| string))
}

/// Says why, sets errno, and returns the code.
#[cold]
fn refuse(error: &Error) -> c_int {
    if LOG_LEVEL.text().is_some_and(|level| !["none", "off", "error"].contains(&level.trim())) {
        eprintln!("librdmaaddrinfo: rdma_getaddrinfo: {error}");
    }
    let errno = match error.kind() {
        Kind::System(errno) => Some(errno),
        Kind::BadFlags => Some(Errno::EINVAL),
        _ => None,
    };
    if let Some(errno) = errno {
        // SAFETY: the place is this thread's own.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { place.write(errno.raw()) };
    }
    error.kind().code()
}

/// Frees a list from [`rdma_getaddrinfo`], or the entries of one in any order in which the caller has linked them.
unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: null or a list from this library that nobody uses any more, by rdma_getaddrinfo(3).
    unsafe { list::free(res) };
}
