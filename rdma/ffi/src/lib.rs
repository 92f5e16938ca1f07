//! `librdmaaddrinfo.so.1`: rdma_getaddrinfo(3) and rdma_freeaddrinfo for C programs, at the version node where librdmacm has
//! them, so that the library can be preloaded in its place or linked alone.
//!
//! `FI_LOG_LEVEL=warn` (or more) has each refusal explained on standard error.

mod list;

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use list::rdma_addrinfo;
use ofi_core::log::Level;
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
            explain("rdma_getaddrinfo", &error);
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
fn explain(function: &str, why: impl fmt::Display) {
    if Level::wanted() < Some(Level::Warn) {
        return;
    }
    let line = format!("librdmaaddrinfo: {function}: {why}\n");
    // Not by std: its lock would be held for ever in a child of a fork. Where nobody listens, nothing is lost.
    // SAFETY: so many bytes are there.
    let _written = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Frees a list from [`rdma_getaddrinfo`], or the entries of one in any order in which the caller has linked them. Entries
/// that librdmacm made (rdma_query_addrinfo(3)) are its to free: this library may stand before it.
unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: null or a list that nobody uses any more, by rdma_getaddrinfo(3).
    unsafe { list::free(res, hand_on) };
}

/// Has an entry freed by the library that stands behind this one, or by librdmacm if it is there at all.
fn hand_on(entry: *mut rdma_addrinfo) {
    const NAME: &CStr = c"rdma_freeaddrinfo";
    // SAFETY: the name ends with NUL.
    let mut free = unsafe { libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr()) };
    if free.is_null() {
        // Somebody may have loaded it for itself.
        // SAFETY: the name ends with NUL.
        let library = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !library.is_null() {
            // SAFETY: the handle is open, and the name ends with NUL.
            free = unsafe { libc::dlsym(library, NAME.as_ptr()) };
            // SAFETY: closed once. The library stays: whoever has an entry of it has loaded it.
            unsafe { libc::dlclose(library) };
        }
    }
    if free.is_null() {
        explain(
            "rdma_freeaddrinfo",
            "the entry was not made by this library, or has been freed before; it is left alone",
        );
        return;
    }
    // SAFETY: that is the type of the function of this name (`<rdma/rdma_cma.h>`), wherever it is found.
    let free: unsafe extern "C" fn(*mut rdma_addrinfo) = unsafe { core::mem::transmute(free) };
    // SAFETY: the caller vouches for the entry.
    unsafe { free(entry) };
}
