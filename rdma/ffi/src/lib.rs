//! `librdmaaddrinfo.so.1`: rdma_getaddrinfo(3) and rdma_freeaddrinfo for C programs, at the version node where librdmacm has
//! them, so that the library can be preloaded in its place or linked alone.
//!
//! `FI_LOG_LEVEL=warn` (or more) has each refusal explained on standard error.

mod list;

use core::ffi::{CStr, c_char, c_int};
use list::rdma_addrinfo;
use ofi_core::log::Level;
use ofi_rdma::{AddrInfo, Errno, Error, Kind, Result};
use std::io::Write as _;

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
/// error, and EAI_BADFLAGS to EINVAL, since its value is the -1 with which other functions announce an errno; otherwise errno
/// stays as it was.
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: the place is this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    // SAFETY: null or ends with NUL by rdma_getaddrinfo(3).
    let node = unsafe { text(node) };
    // SAFETY: null or ends with NUL by rdma_getaddrinfo(3).
    let service = unsafe { text(service) };
    // SAFETY: null or a valid entry by rdma_getaddrinfo(3).
    let hints = unsafe { hints.as_ref() };
    let found = match resolve(node, service, hints) {
        Ok(_) if res.is_null() => Err(list::invalid("there is no place for the result")),
        found => found,
    };
    let kind = match found {
        Ok(found) => {
            // SAFETY: not null, so a place for a pointer by rdma_getaddrinfo(3).
            unsafe { res.write(list::from(found)) };
            None
        }
        Err(error) => {
            explain(&error);
            Some(error.kind())
        }
    };
    let after = match kind {
        Some(Kind::System(errno)) => errno.raw(),
        Some(Kind::BadFlags) => Errno::EINVAL.raw(),
        _ => before,
    };
    // SAFETY: as above.
    unsafe { errno.write(after) };
    kind.map_or(0, Kind::code)
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

/// Says why, to those who want to know.
#[cold]
fn explain(error: &Error) {
    if Level::wanted() >= Some(Level::Warn) {
        // Where nobody listens, nothing is lost; the caller has the code.
        drop(writeln!(std::io::stderr(), "librdmaaddrinfo: rdma_getaddrinfo: {error}"));
    }
}

/// Frees a list from [`rdma_getaddrinfo`], or the entries of one in any order in which the caller has linked them. Lists that
/// librdmacm made (rdma_query_addrinfo(3)) are its to free: this library may stand before it.
unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: null or a list that nobody uses any more, by rdma_getaddrinfo(3).
    let foreign = unsafe { list::free(res) };
    if foreign.is_null() {
        return;
    }
    // SAFETY: the name ends with NUL.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"rdma_freeaddrinfo".as_ptr()) };
    if next.is_null() {
        explain(&list::invalid(
            "rdma_freeaddrinfo was given an entry that this library has not made, or has freed before",
        ));
        return;
    }
    // SAFETY: that is the type of the function of this name (`<rdma/rdma_cma.h>`), wherever it is found.
    let next: unsafe extern "C" fn(*mut rdma_addrinfo) = unsafe { core::mem::transmute(next) };
    // SAFETY: the caller vouches for the list.
    unsafe { next(foreign) };
}
