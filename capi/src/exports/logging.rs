//! Where log messages go (fi_provider(3), "LOGGING INTERFACE"): to stderr, a line each, in the format that people's
//! scripts know; or to the callbacks of an application (fi_import_log). Without FI_LOG_LEVEL only errors are printed: one
//! line for each failed operation or object, by its root cause.

use crate::abi::{FI_CLASS_LOG, fi_ops, fi_ops_log, fi_provider, fid, fid_logging};
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{name_of, text};
use crate::fork;
use core::ffi::{c_char, c_int, c_void};
use ofi_core::Errno;
use ofi_core::Version;
use ofi_core::log::{self, LOG_INTERVAL, LOG_PROV, LOG_SUBSYS, Level, Sink, Subsystem};
use ofi_core::param::{Param, parse_number};
use std::ffi::CString;
use std::sync::{Once, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// The library's log, into which an application imports its callbacks.
#[repr(C)]
pub(crate) struct LogObj {
    pub(crate) fid: fid,
}

// SAFETY: the struct is `repr(C)`, is its fid, and is made only by `install` with `header::<Self>`.
unsafe impl crate::ffi::handle::Object for LogObj {
    const CLASS: usize = FI_CLASS_LOG;
    const OPS: &'static fi_ops = &FID_OPS;

    /// The log is each process's own.
    fn bury(&mut self) {}
}

const SUBSYSTEMS: [&str; 10] = ["core", "fabric", "domain", "ep_ctrl", "ep_data", "av", "cq", "eq", "mr", "cntr"];
const LEVELS: [&str; 4] = ["warn", "trace", "info", "debug"];

/// Names, or all but those.
#[derive(Debug)]
struct Names {
    listed: Option<Vec<String>>,
    negated: bool,
}

impl Names {
    /// A list such as "tcp,udp" or "^tcp"; without a text, all.
    fn parse(text: Option<&str>) -> Self {
        let list = |text: &str| text.split(',').map(|part| part.trim().to_owned()).collect();
        let negated = text.is_some_and(|text| text.starts_with('^'));
        Self { listed: text.map(|text| list(text.trim_start_matches('^'))), negated }
    }

    fn contain(&self, name: &str) -> bool {
        let Some(listed) = &self.listed else { return true };
        listed.iter().any(|entry| entry.eq_ignore_ascii_case(name)) != self.negated
    }
}

/// What the environment wants to see.
#[derive(Debug)]
struct Filter {
    level: Option<i32>,
    subsystems: Names,
    providers: Names,
    interval_ms: u64,
}

impl Filter {
    fn from_environment() -> Self {
        let var = |param: &Param| param.text();
        Self {
            level: Level::wanted().map(level_number),
            subsystems: Names::parse(var(&LOG_SUBSYS).as_deref()),
            providers: Names::parse(var(&LOG_PROV).as_deref()),
            // Not `number`: that reports what is no number to the log, which is not there yet.
            interval_ms: var(&LOG_INTERVAL).as_deref().and_then(parse_number).unwrap_or(2000),
        }
    }

    fn wants(&self, provider: &str, level: i32, subsystem: usize) -> bool {
        let (Some(most), Some(name)) = (self.level, SUBSYSTEMS.get(subsystem)) else { return false };
        level <= most && self.subsystems.contain(name) && (provider.is_empty() || self.providers.contain(provider))
    }
}

/// Below the levels of the interface: it has none for errors.
const ERROR: i32 = -1;

fn filter() -> &'static Filter {
    static FILTER: OnceLock<Filter> = OnceLock::new();
    FILTER.get_or_init(Filter::from_environment)
}

const fn level_number(level: Level) -> i32 {
    match level {
        Level::Error => ERROR,
        Level::Warn => 0,
        Level::Trace => 1,
        Level::Info => 2,
        Level::Debug => 3,
    }
}

const fn subsystem_number(subsystem: Subsystem) -> usize {
    match subsystem {
        Subsystem::Core => 0,
        Subsystem::Fabric => 1,
        Subsystem::Domain => 2,
        Subsystem::EpCtrl => 3,
        Subsystem::EpData => 4,
        Subsystem::Av => 5,
        Subsystem::Cq => 6,
        Subsystem::Eq => 7,
        Subsystem::Mr => 8,
        Subsystem::Cntr => 9,
    }
}

/// What callbacks of an application are told of who speaks: they look at its name.
struct Speaker(fi_provider);

// SAFETY: the names are literals, and nothing changes.
unsafe impl Sync for Speaker {}

const fn speaker(name: &'static core::ffi::CStr) -> Speaker {
    let null = core::ptr::null();
    let (version, fi_version) = (Version::new(206, 0).0, Version::API.0);
    let (getinfo, fabric, cleanup) = (null, null, null);
    Speaker(fi_provider { version, fi_version, context: [0; 4], name: name.as_ptr(), getinfo, fabric, cleanup })
}

/// The provider of that name as callbacks see it; the library itself is "core".
fn named(provider: &str) -> *const fi_provider {
    static SPEAKERS: [Speaker; 4] = [speaker(c"core"), speaker(c"tcp"), speaker(c"udp"), speaker(c"shm")];
    let of = |name: &Speaker| {
        // SAFETY: a literal of this function.
        unsafe { core::ffi::CStr::from_ptr(name.0.name) }.to_bytes() == provider.as_bytes()
    };
    &SPEAKERS.iter().find(|speaker| of(speaker)).unwrap_or(&SPEAKERS[0]).0
}

struct Stderr;

impl Sink for Stderr {
    fn enabled(&self, provider: &str, level: Level, subsystem: Subsystem) -> bool {
        let (level, subsystem) = (level_number(level), subsystem_number(subsystem));
        match imported() {
            Some(callbacks) => callbacks.enabled(named(provider), level, subsystem),
            None => filter().wants(provider, level, subsystem),
        }
    }

    fn log(&self, provider: &str, level: Level, subsystem: Subsystem, text: &str) {
        let (c, provider) = (named(provider), if provider.is_empty() { "core" } else { provider });
        print(c, provider, level_number(level), subsystem_number(subsystem), "ofi", 0, text);
    }
}

/// The callbacks of an application that takes the log (fi_import_log). Levels below the interface's first are given as
/// that.
#[derive(Clone, Copy)]
struct Callbacks(&'static fi_ops_log);

impl Callbacks {
    fn enabled(self, provider: *const fi_provider, level: i32, subsystem: usize) -> bool {
        let (Ok(level), Ok(subsystem)) = (u32::try_from(level.max(0)), u32::try_from(subsystem)) else { return false };
        // SAFETY: fi_import_log takes a table whose functions may be called with any provider.
        unsafe { (self.0.enabled)(provider, level, subsystem, 0) != 0 }
    }
}

static IMPORTED: RwLock<Option<Callbacks>> = RwLock::new(None);

/// The lock of the log, while the process is forked.
pub(crate) struct Held(#[expect(dead_code, reason = "it is held")] RwLockWriteGuard<'static, Option<Callbacks>>);

/// Keeps others out of [`imported`].
pub(crate) fn hold() -> Held {
    Held(IMPORTED.write().unwrap_or_else(PoisonError::into_inner))
}

/// Makes what is made once.
pub(crate) fn settle() {
    init();
    filter();
}

fn imported() -> Option<Callbacks> {
    *IMPORTED.read().unwrap_or_else(PoisonError::into_inner)
}

/// The object "logging" of fi_open(3): an application's callbacks are imported into it.
pub(crate) static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: close_logging,
    bind: import,
    control: enosys::control,
    ops_open: enosys::ops_open,
    tostr: enosys::tostr,
    ops_set: enosys::ops_set,
};

unsafe extern "C" fn close_logging(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time.
    unsafe { handle::close::<LogObj>(fid, |_| false) }
}

/// fi_import_fid: takes the log over. The application's object stays in use: closing it gives the log back.
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
    // SAFETY: its table lives as long as it is imported, which the application ends by closing the object.
    let Some(ops) = (unsafe { logging.ops.as_ref() }) else { return Errno::EINVAL.negative() };
    if ops.size < size_of::<fi_ops_log>() {
        return Errno::EINVAL.negative();
    }
    let mut current = IMPORTED.write().unwrap_or_else(PoisonError::into_inner);
    if current.is_some() {
        return Errno::EALREADY.negative();
    }
    *current = Some(Callbacks(ops));
    logging.fid.ops = &RETURN_OPS;
    0
}

/// What an imported object answers: closing it ends the import.
static RETURN_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: close_import,
    bind: enosys::bind,
    control: enosys::control,
    ops_open: enosys::ops_open,
    tostr: enosys::tostr,
    ops_set: enosys::ops_set,
};

unsafe extern "C" fn close_import(_fid: *mut fid) -> c_int {
    *IMPORTED.write().unwrap_or_else(PoisonError::into_inner) = None;
    0
}

/// Whether an application has taken the log over.
pub(crate) fn is_imported() -> bool {
    imported().is_some()
}

/// Installs this library's log. Called by everything that can be called first.
pub(crate) fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| log::install(Box::new(Stderr)));
}

fn print(
    speaker: *const fi_provider,
    provider: &str,
    level: i32,
    subsystem: usize,
    function: &str,
    line: c_int,
    text: &str,
) {
    if let Some(Callbacks(ops)) = imported() {
        let (Ok(level), Ok(subsystem)) = (u32::try_from(level.max(0)), u32::try_from(subsystem)) else { return };
        let c_string = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (function, text) = (c_string(function), c_string(text));
        // SAFETY: fi_import_log takes a table whose functions may be called with any provider.
        unsafe { (ops.log)(speaker, level, subsystem, function.as_ptr(), line, text.as_ptr()) };
        return;
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let level = usize::try_from(level).map_or("error", |level| *LEVELS.get(level).unwrap_or(&"?"));
    let subsystem = SUBSYSTEMS.get(subsystem).unwrap_or(&"?");
    let pid = std::process::id();
    let text = text.trim_end();
    let line = format!("libfabric:{pid}:{seconds}::{provider}:{subsystem}:{function}():{line}<{level}> {text}\n");
    // Not by the standard library, whose lock another thread may have held when this process was forked. A log that cannot
    // be written has nowhere to say so.
    // SAFETY: the line has its bytes.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
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

/// fi_provider(3): a variadic function. The compiler has none in stable Rust, so this one lays the arguments out as the
/// x86-64 calling convention says and passes them on as a `va_list`.
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

unsafe extern "C" {
    fn vsnprintf(buf: *mut c_char, size: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// The text of a format and its arguments, cut at 1023 bytes.
///
/// # Safety
/// `format` ends with NUL, and `arguments` is a `va_list` with what it asks for.
pub(crate) unsafe fn formatted(format: *const c_char, arguments: *mut c_void) -> String {
    let mut buffer = [0u8; 1024];
    // SAFETY: the buffer has its size, the rest is this function's contract.
    let len = unsafe { vsnprintf(buffer.as_mut_ptr().cast(), buffer.len(), format, arguments) };
    let len = usize::try_from(len).unwrap_or(0).min(buffer.len() - 1);
    String::from_utf8_lossy(&buffer[..len]).into_owned()
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
    let speaker = if provider.is_null() { named(&name) } else { provider };
    let name = if name.is_empty() { "core" } else { &name };
    print(speaker, name, level, subsystem, &function, line, &text);
}
