//! Logging calls (fi_provider(3), "LOGGING INTERFACE"), and the object "logging" of fi_open(3).

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{formatted, name_of, text};
use crate::fork;
use crate::state::log::{self, Callbacks, filter, imported, named, print};
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{FI_CLASS_LOG, fi_ops, fi_ops_log, fi_provider, fid, fid_logging};
use ofi_core::Errno;

/// The object "logging" of fi_open(3).
#[repr(C)]
pub(crate) struct LogObj {
    pub(crate) fid: fid,
}

// SAFETY: the struct is `repr(C)`, is its fid, and is made only by `install` with `header::<Self>`.
unsafe impl crate::ffi::handle::Object for LogObj {
    const CLASS: usize = FI_CLASS_LOG;
    const OPS: &'static fi_ops = &FID_OPS;

    /// Does nothing: each process has its own log.
    fn disable(&mut self) {}
}

/// Binding an application's object imports its callbacks (fi_import_fid).
pub(crate) static FID_OPS: fi_ops = fi_ops { bind: import, ..enosys::fid_ops(close_logging) };

unsafe extern "C" fn close_logging(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time.
    unsafe { handle::close::<LogObj>(fid, |_| false) }
}

/// fi_import_fid: installs the callbacks of the application's object. Closing that object removes
/// them.
unsafe extern "C" fn import(fid: *mut fid, theirs: *mut fid, flags: u64) -> c_int {
    ours!(LogObj, fid);
    if flags != 0 {
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: null or an object by fi_import_fid(3).
    match unsafe { theirs.as_ref() } {
        Some(header) if header.fclass == FI_CLASS_LOG => {}
        _ => return Errno::EINVAL.negative(),
    }
    // SAFETY: an object of that class is a `fid_logging`.
    let Some(logging) = (unsafe { theirs.cast::<fid_logging>().as_mut() }) else { return Errno::EINVAL.negative() };
    // SAFETY: the table lives until the application ends the import by closing the object.
    let Some(ops) = (unsafe { logging.ops.as_ref() }) else { return Errno::EINVAL.negative() };
    if ops.size < size_of::<fi_ops_log>() {
        return Errno::EINVAL.negative();
    }
    if !log::import(Callbacks(ops)) {
        return Errno::EALREADY.negative();
    }
    logging.fid.ops = &RETURN_OPS;
    0
}

/// Operations of an imported object: closing it ends the import.
static RETURN_OPS: fi_ops = enosys::fid_ops(close_import);

unsafe extern "C" fn close_import(_fid: *mut fid) -> c_int {
    log::end_import();
    0
}

/// fi_provider(3).
pub(crate) unsafe extern "C" fn fi_log_enabled(provider: *const fi_provider, level: c_int, subsystem: c_int) -> c_int {
    let Ok(subsystem) = usize::try_from(subsystem) else { return 0 };
    if level < 0 {
        return 0;
    }
    fork::try_watch();
    if let Some(callbacks) = imported() {
        let provider = if provider.is_null() { named("") } else { provider };
        return c_int::from(callbacks.enabled(provider, level, subsystem));
    }
    // SAFETY: null or valid by fi_provider(3).
    let name = unsafe { name_of(provider) }.unwrap_or_default();
    c_int::from(filter().wants(&name, level, subsystem))
}

/// fi_provider(3).
pub(crate) unsafe extern "C" fn fi_log_ready(
    provider: *const fi_provider,
    level: c_int,
    subsystem: c_int,
    showtime: *mut u64,
) -> c_int {
    // SAFETY: the arguments are those of that function.
    if unsafe { fi_log_enabled(provider, level, subsystem) } == 0 {
        return 0;
    }
    // SAFETY: null or valid by fi_provider(3).
    let Some(showtime) = (unsafe { showtime.as_mut() }) else { return 0 };
    let now = ofi_os::clock::now().nanos() / 1_000_000;
    if now < *showtime {
        return 0;
    }
    *showtime = now + filter().interval_ms;
    1
}

/// fi_provider(3), variadic. Stable Rust cannot define variadic functions, so this stub lays the
/// arguments out by the x86-64 calling convention and passes them on as a `va_list`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn fi_log() {
    core::arch::naked_asm!(
        "sub rsp, 216",
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
        // The va_list at rsp + 16: six named arguments fill all registers for integers.
        "mov dword ptr [rsp + 16], 48",
        "mov dword ptr [rsp + 20], 48",
        "lea rax, [rsp + 224]",
        "mov [rsp + 24], rax",
        "lea rax, [rsp + 40]",
        "mov [rsp + 32], rax",
        "lea rax, [rsp + 16]",
        "mov [rsp], rax",
        "call {log}",
        "add rsp, 216",
        "ret",
        log = sym log_formatted,
    )
}

unsafe extern "C" fn log_formatted(
    provider: *const fi_provider,
    level: c_int,
    subsystem: c_int,
    function: *const c_char,
    line: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) {
    let Ok(subsystem) = usize::try_from(subsystem) else { return };
    if format.is_null() || level < 0 {
        return;
    }
    fork::try_watch();
    // SAFETY: null or valid by fi_provider(3).
    let name = unsafe { name_of(provider) }.unwrap_or_default();
    // SAFETY: null or ends with NUL by fi_provider(3).
    let function = unsafe { text(function) }.unwrap_or_default();
    // SAFETY: not null, and the caller's arguments go with it.
    let text = unsafe { formatted(format, arguments) };
    let source = if provider.is_null() { named(&name) } else { provider };
    let name = if name.is_empty() { "core" } else { &name };
    print(source, name, level, subsystem, &function, line, &text);
}
