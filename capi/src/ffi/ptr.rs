//! Conversions at the boundary: results to return values, pointers from C to values.

use crate::reserve::Watch;
use core::ffi::{CStr, c_char, c_int, c_void};
use ofi_abi::{fi_provider, fid};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{Addr, Errno, Error};

/// The return value of a control call: 0 or a negative error number. Logs the error.
pub(crate) fn status(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => refuse(&error),
    }
}

/// Logs an error and returns its negative number.
#[cold]
pub(crate) fn refuse(error: &Error) -> c_int {
    // Only a warning: programs try unsupported calls that they can do without.
    let level = if error.errno() == Errno::ENOSYS { Level::Warn } else { Level::Error };
    log::log("", level, Subsystem::Core, || error.to_string());
    error.errno().negative()
}

/// Opens an object for C: writes the result of `open` to `out`. If that used the memory reserve,
/// closes the object and returns -FI_ENOMEM. `what` names the operation in the log.
///
/// # Safety
/// `out` is null or valid, and `open` returns a new object of this library or fails.
pub(crate) unsafe fn make<T>(
    out: *mut *mut T,
    what: &'static str,
    open: impl FnOnce(&Watch) -> Result<*mut T, Error>,
) -> c_int {
    if out.is_null() {
        return Errno::EINVAL.negative();
    }
    let watch = Watch::begin();
    match open(&watch) {
        Ok(object) if watch.verdict() => {
            let header = object.cast::<fid>();
            // SAFETY: the object begins with its header.
            let ops = unsafe { (*header).ops };
            // SAFETY: the header names the object's table, which is a static.
            let close = unsafe { (*ops).close };
            // SAFETY: the object's own function, for the object, which is not handed out yet.
            unsafe { close(header) };
            out_of_memory(what)
        }
        Ok(object) => {
            // SAFETY: not null, so valid by this function's contract.
            unsafe { out.write(object) };
            0
        }
        Err(_) if watch.verdict() => out_of_memory(what),
        Err(error) => refuse(&error),
    }
}

/// A current structure from the first `size` bytes of an older one.
///
/// # Safety
/// `from` is null or has `size` readable bytes, and zeroes are a valid `T`.
pub(crate) unsafe fn widen<T>(from: *const T, size: usize) -> Option<T> {
    if from.is_null() {
        return None;
    }
    let mut out = core::mem::MaybeUninit::<T>::zeroed();
    let count = size.min(size_of::<T>());
    // SAFETY: `count` bytes are readable, and `out` has that many.
    unsafe { core::ptr::copy_nonoverlapping(from.cast::<u8>(), out.as_mut_ptr().cast::<u8>(), count) };
    // SAFETY: zeroes are a valid `T`, and so are the bytes that were one.
    Some(unsafe { out.assume_init() })
}

/// Writes the first `size` bytes of a current structure to an older one.
///
/// # Safety
/// `to` is null or has `size` writable bytes.
pub(crate) unsafe fn narrow<T>(value: &T, to: *mut T, size: usize) {
    if !to.is_null() {
        let count = size.min(size_of::<T>());
        // SAFETY: `count` bytes of both are valid, and the caller's are its own.
        unsafe { core::ptr::copy_nonoverlapping(core::ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), count) };
    }
}

/// -FI_ENOMEM for an operation that used the memory reserve or found no memory. Logs it.
#[cold]
pub(crate) fn out_of_memory(what: &'static str) -> c_int {
    refuse(&Error::new(Errno::ENOMEM, what))
}

/// The return value of a data call.
#[inline]
pub(crate) fn posted(result: Result<(), Errno>) -> isize {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.negative() as isize,
    }
}

/// The return value of a call that counts.
pub(crate) fn counted(count: Result<usize, Errno>) -> isize {
    count.map_or_else(|errno| errno.negative() as isize, |count| isize::try_from(count).unwrap_or(isize::MAX))
}

/// The text of a C string; `None` for null.
///
/// # Safety
/// `text` is null or ends with NUL.
pub(crate) unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so it ends with NUL by this function's contract.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The provider's name; `None` for the library itself.
///
/// # Safety
/// `provider` is null or valid with a name.
pub(crate) unsafe fn name_of(provider: *const fi_provider) -> Option<String> {
    // SAFETY: null or valid by this function's contract.
    let provider = unsafe { provider.as_ref() }?;
    // SAFETY: a provider's name ends with NUL.
    unsafe { text(provider.name) }
}

/// The bytes at `data`, as a copy.
///
/// # Safety
/// `data` is null or has `len` readable bytes.
pub(crate) unsafe fn bytes(data: *const c_void, len: usize) -> Vec<u8> {
    if data.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: not null, so `len` bytes are readable by this function's contract.
    unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec()
}

/// Reads an address of at most `len` bytes, and no more of them than its family has.
///
/// # Safety
/// `data` is null or has `len` readable bytes; those behind the address need not exist.
pub(crate) unsafe fn sized_addr(data: *const c_void, len: usize) -> Option<Addr> {
    if data.is_null() || len < size_of::<u16>() {
        return None;
    }
    // SAFETY: not null, so an address with at least its family by this function's contract.
    let family = unsafe { data.cast::<u16>().read_unaligned() };
    let whole = match i32::from(family) {
        libc::AF_INET => ofi_core::addr::SOCKADDR_IN_LEN.min(len),
        libc::AF_INET6 => ofi_core::addr::SOCKADDR_IN6_LEN.min(len),
        // SAFETY: "fi" is not a family, so this is a string of at most `len` bytes.
        _ if family == u16::from_ne_bytes(*b"fi") => unsafe {
            libc::strnlen(data.cast(), len.min(ofi_core::addr::MAX_LEN))
        },
        _ => return None,
    };
    // SAFETY: an address of that family has that many bytes by this function's contract.
    Addr::decode(unsafe { core::slice::from_raw_parts(data.cast::<u8>(), whole) })
}

/// Reads a socket address, whose length follows from its family, or a string.
///
/// # Safety
/// `addr` is null or points to a socket address of the length of its family, or to a string that
/// ends with NUL.
pub(crate) unsafe fn socket_addr(addr: *const c_void) -> Option<Addr> {
    // SAFETY: the length of its family, or a string that ends before that, by this function's
    // contract.
    unsafe { sized_addr(addr, ofi_core::addr::MAX_LEN) }
}

/// Copies an address out as fi_getname(3): as much as fits, and the full length. -FI_ETOOSMALL if
/// it does not fit.
///
/// # Safety
/// `len` is null or valid; `out` is null or has `*len` writable bytes.
pub(crate) unsafe fn put_addr(addr: &Addr, out: *mut c_void, len: *mut usize) -> c_int {
    let (bytes, full) = addr.encode();
    // SAFETY: null or valid by this function's contract.
    let Some(len) = (unsafe { len.as_mut() }) else { return Errno::EINVAL.negative() };
    let room = if out.is_null() { 0 } else { *len };
    let count = room.min(full);
    if count > 0 {
        // SAFETY: `out` has `*len >= count` writable bytes.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast::<u8>(), count) };
    }
    *len = full;
    if room < full { Errno::ETOOSMALL.negative() } else { 0 }
}

/// Writes a value through a pointer from C.
///
/// # Safety
/// `out` is null or valid for writing a `T`.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Errno> {
    if out.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, so valid by this function's contract; the old bytes are C's and need no
    // drop.
    unsafe { out.write(value) };
    Ok(())
}

/// Copies text into a C buffer, cut to fit and ended with NUL.
///
/// # Safety
/// `buf` is null or has `len` writable bytes.
pub(crate) unsafe fn put_text(text: &str, buf: *mut c_char, len: usize) {
    if buf.is_null() || len == 0 {
        return;
    }
    let count = text.len().min(len - 1);
    // SAFETY: `count < len` bytes are writable.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast::<u8>(), count) };
    // SAFETY: index `count` is within the `len` bytes.
    unsafe { buf.wrapping_add(count).write(0) };
}

unsafe extern "C" {
    fn vsnprintf(buf: *mut c_char, size: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// Formats as vsnprintf(3), cut at 1023 bytes.
///
/// # Safety
/// `format` ends with NUL, and `arguments` is a `va_list` that matches it.
pub(crate) unsafe fn formatted(format: *const c_char, arguments: *mut c_void) -> String {
    let mut buffer = [0u8; 1024];
    // SAFETY: the buffer has its size, the rest is this function's contract.
    let len = unsafe { vsnprintf(buffer.as_mut_ptr().cast(), buffer.len(), format, arguments) };
    let len = usize::try_from(len).unwrap_or(0).min(buffer.len() - 1);
    String::from_utf8_lossy(&buffer[..len]).into_owned()
}

/// Writes out an option whose value is a size_t.
///
/// # Safety
/// `len` is null or valid, and `value` is null or has room for that many bytes.
pub(crate) unsafe fn put_size(found: usize, value: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: this function's contract.
    let Some(len) = (unsafe { len.as_mut() }) else { return Errno::EINVAL.negative() };
    let room = core::mem::replace(len, size_of::<usize>());
    if value.is_null() || room < size_of::<usize>() {
        return Errno::ETOOSMALL.negative();
    }
    // SAFETY: there is room for a size_t.
    unsafe { value.cast::<usize>().write_unaligned(found) };
    0
}

/// Reads an option whose value is a size_t.
///
/// # Safety
/// `value` is null or has `len` bytes.
pub(crate) unsafe fn read_size(value: *const c_void, len: usize) -> Result<usize, Errno> {
    if value.is_null() || len != size_of::<usize>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: there is a size_t by this function's contract.
    Ok(unsafe { value.cast::<usize>().read_unaligned() })
}
