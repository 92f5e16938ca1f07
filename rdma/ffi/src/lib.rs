//! `librdmaaddrinfo.so.1`: rdma_getaddrinfo(3) and rdma_freeaddrinfo for C programs, with
//! librdmacm's symbol version, so that the library can be preloaded before librdmacm or linked
//! alone.
//!
//! `FI_LOG_LEVEL=warn` (or more verbose) logs the reason of each failure to standard error.

mod list;

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use list::rdma_addrinfo;
use ofi_core::log::Level;
use ofi_os::fallible;
use ofi_rdma::{AddrInfo, Errno, Error, Kind, Result};

macro_rules! export {
    ($($target:path => $name:literal;)*) => {$(
        // No unversioned name may be exported: the function itself is hidden, and a stub has the
        // name.
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

/// rdma_getaddrinfo(3). On failure, returns the EAI code and leaves `res` unchanged. EAI_SYSTEM
/// sets errno to the system's error. EAI_BADFLAGS sets it to EINVAL, because its value is -1, by
/// which other functions announce an errno. Otherwise errno is unchanged.
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: no requirements; the pointer is to this thread's errno.
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
        Ok(_) if res.is_null() => Err(list::invalid("the result pointer is null")),
        found => found.and_then(list::from),
    };
    let kind = match found {
        Ok(list) => {
            // SAFETY: not null, so a place for a pointer by rdma_getaddrinfo(3).
            unsafe { res.write(list) };
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
        let refused =
            |text| Error::new(kind, fallible::message(format_args!("the {what} {text:?} is not valid UTF-8")));
        text.transpose().map_err(refused)
    };
    let node = utf8(node, Kind::NoName, "node")?;
    let service = utf8(service, Kind::Service, "service")?;
    match hints.map(list::hints).transpose()? {
        // Even all-zero hints are completed: the caller passed them.
        Some(hints) if node.is_none() && service.is_none() => Ok(fallible::one(ofi_rdma::complete(&hints)?)?),
        hints => ofi_rdma::resolve(node, service, &hints.unwrap_or_default()),
    }
}

/// Converts a C string; `Err` returns it if it is not UTF-8. `None` for null.
///
/// # Safety
/// `string` is null, or ends with NUL and is not changed for `'a`.
unsafe fn text<'a>(string: *const c_char) -> Option<Result<&'a str, &'a CStr>> {
    // SAFETY: not null, so the caller vouches for it.
    let string = (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) });
    string.map(|string| string.to_str().map_err(|_| string))
}

/// Logs the reason of a failure, if the log level asks for it.
#[cold]
fn explain(function: &str, why: impl fmt::Display) {
    // Not std's environment, which copies values: without memory that would end the process.
    // SAFETY: the name ends with NUL. A program that changes its environment meanwhile breaks
    // getenv(3) everywhere.
    let level = unsafe { libc::getenv(c"FI_LOG_LEVEL".as_ptr()) };
    if level.is_null() {
        return;
    }
    // SAFETY: not null, so it ends with NUL (getenv(3)).
    if unsafe { CStr::from_ptr(level) }.to_str().map_or(Some(Level::Warn), Level::named) < Some(Level::Warn) {
        return;
    }
    let line = fallible::message(format_args!("librdmaaddrinfo: {function}: {why}\n"));
    // Not std's stderr: a fork could leave its lock held forever in the child. A failed write is
    // ignored: the log is optional.
    // SAFETY: the pointer and length are those of a string.
    let _written = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Frees a list from [`rdma_getaddrinfo`], or entries that the caller has relinked in any order.
/// Entries made by librdmacm (rdma_query_addrinfo(3)) are passed on to it: this library may be
/// preloaded before it.
unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: null or a list no longer in use, by rdma_getaddrinfo(3).
    unsafe { list::free(res, hand_on) };
}

/// Passes an entry to the next rdma_freeaddrinfo in the link order, or else to librdmacm if it is
/// loaded.
fn hand_on(entry: *mut rdma_addrinfo) {
    const NAME: &CStr = c"rdma_freeaddrinfo";
    // SAFETY: the name ends with NUL.
    let mut free = unsafe { libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr()) };
    if free.is_null() {
        // The program may have loaded it with RTLD_LOCAL.
        // SAFETY: the name ends with NUL.
        let library = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !library.is_null() {
            // SAFETY: the handle is open, and the name ends with NUL.
            free = unsafe { libc::dlsym(library, NAME.as_ptr()) };
            // SAFETY: closed once. The library stays loaded: the owner of the entry has loaded it.
            unsafe { libc::dlclose(library) };
        }
    }
    if free.is_null() {
        explain("rdma_freeaddrinfo", "the entry was not allocated by this library or is already freed; ignored");
        return;
    }
    // SAFETY: every library's function of this name has this type (`<rdma/rdma_cma.h>`).
    let free: unsafe extern "C" fn(*mut rdma_addrinfo) = unsafe { core::mem::transmute(free) };
    // SAFETY: the caller vouches for the entry.
    unsafe { free(entry) };
}
