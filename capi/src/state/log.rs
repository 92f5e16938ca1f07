//! The process-wide log: filter and output. Lines go to stderr, in libfabric's format because
//! scripts parse it, or to the callbacks of an application (fi_import_log). Without FI_LOG_LEVEL
//! only errors are logged: one line for each failed operation or object, with its root cause.

use core::ffi::c_int;
use ofi_abi::{fi_ops_log, fi_provider};
use ofi_core::Version;
use ofi_core::log::{self, Level, Sink, Subsystem};
use ofi_core::log_params::{self, LOG_INTERVAL, LOG_PROV, LOG_SUBSYS};
use ofi_core::param::{Param, parse_number};
use std::ffi::CString;
use std::sync::{Once, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

const SUBSYSTEMS: [&str; 10] = ["core", "fabric", "domain", "ep_ctrl", "ep_data", "av", "cq", "eq", "mr", "cntr"];
const LEVELS: [&str; 4] = ["warn", "trace", "info", "debug"];

/// Names to include, or to exclude if `negated`.
#[derive(Debug)]
struct Names {
    listed: Option<Vec<String>>,
    negated: bool,
}

impl Names {
    /// Parses a list such as "tcp,udp" or "^tcp"; without a text, includes all names.
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

/// The log filter from the environment.
#[derive(Debug)]
pub(crate) struct Filter {
    level: Option<i32>,
    subsystems: Names,
    providers: Names,
    pub(crate) interval_ms: u64,
}

impl Filter {
    fn from_environment() -> Self {
        let var = |param: &Param| param.text();
        Self {
            level: log_params::wanted().map(level_number),
            subsystems: Names::parse(var(&LOG_SUBSYS).as_deref()),
            providers: Names::parse(var(&LOG_PROV).as_deref()),
            // Not `number`: it logs invalid values, but the log is not installed yet.
            interval_ms: var(&LOG_INTERVAL).as_deref().and_then(parse_number).unwrap_or(2000),
        }
    }

    pub(crate) fn wants(&self, provider: &str, level: i32, subsystem: usize) -> bool {
        let (Some(most), Some(name)) = (self.level, SUBSYSTEMS.get(subsystem)) else { return false };
        level <= most && self.subsystems.contain(name) && (provider.is_empty() || self.providers.contain(provider))
    }
}

/// Below the levels of the interface, which has none for errors.
const ERROR: i32 = -1;

/// The filter, read from the environment once.
pub(crate) fn filter() -> &'static Filter {
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

/// A `fi_provider` with a name, for log callbacks.
struct LogProvider(fi_provider);

// SAFETY: the names are literals, and the value is immutable.
unsafe impl Sync for LogProvider {}

const fn log_provider(name: &'static core::ffi::CStr) -> LogProvider {
    let (version, fi_version) = (Version::new(206, 0).0, Version::API.0);
    let (getinfo, fabric, cleanup) = (None, None, None);
    LogProvider(fi_provider { version, fi_version, context: [0; 4], name: name.as_ptr(), getinfo, fabric, cleanup })
}

/// The `fi_provider` of that name; the library itself is "core".
pub(crate) fn named(provider: &str) -> *const fi_provider {
    static PROVIDERS: [LogProvider; 5] = [
        log_provider(c"core"),
        log_provider(c"tcp"),
        log_provider(c"udp"),
        log_provider(c"shm"),
        log_provider(c"verbs"),
    ];
    let of = |name: &LogProvider| {
        // SAFETY: the name is a literal.
        unsafe { core::ffi::CStr::from_ptr(name.0.name) }.to_bytes() == provider.as_bytes()
    };
    &PROVIDERS.iter().find(|known| of(known)).unwrap_or(&PROVIDERS[0]).0
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

/// An application's log callbacks (fi_import_log). They get errors at level 0, the interface's
/// lowest.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks(pub(crate) &'static fi_ops_log);

impl Callbacks {
    pub(crate) fn enabled(self, provider: *const fi_provider, level: i32, subsystem: usize) -> bool {
        let (Ok(level), Ok(subsystem)) = (u32::try_from(level.max(0)), u32::try_from(subsystem)) else { return false };
        // SAFETY: fi_import_log takes a table whose functions may be called with any provider.
        unsafe { (self.0.enabled)(provider, level, subsystem, 0) != 0 }
    }
}

static IMPORTED: RwLock<Option<Callbacks>> = RwLock::new(None);

/// The lock of the callbacks, held across fork(2).
pub(crate) struct Held(#[expect(dead_code, reason = "it is held")] RwLockWriteGuard<'static, Option<Callbacks>>);

/// Locks the callbacks.
pub(crate) fn hold() -> Held {
    Held(IMPORTED.write().unwrap_or_else(PoisonError::into_inner))
}

/// Completes the one-time initialization.
pub(crate) fn settle() {
    init();
    filter();
}

/// The application's callbacks, if installed.
pub(crate) fn imported() -> Option<Callbacks> {
    *IMPORTED.read().unwrap_or_else(PoisonError::into_inner)
}

/// Installs an application's callbacks. False if others are installed already.
pub(crate) fn import(callbacks: Callbacks) -> bool {
    let mut current = IMPORTED.write().unwrap_or_else(PoisonError::into_inner);
    let free = current.is_none();
    if free {
        *current = Some(callbacks);
    }
    free
}

/// Removes the application's callbacks.
pub(crate) fn end_import() {
    *IMPORTED.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Whether an application's callbacks are installed.
pub(crate) fn is_imported() -> bool {
    imported().is_some()
}

/// Installs this library's log sink. Calls that may be a program's first begin with this.
pub(crate) fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| log::install(Box::new(Stderr)));
}

/// Writes a line to stderr, or passes it to the application's callbacks.
pub(crate) fn print(
    source: *const fi_provider,
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
        unsafe { (ops.log)(source, level, subsystem, function.as_ptr(), line, text.as_ptr()) };
        return;
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let level = usize::try_from(level).map_or("error", |level| *LEVELS.get(level).unwrap_or(&"?"));
    let subsystem = SUBSYSTEMS.get(subsystem).unwrap_or(&"?");
    let pid = std::process::id();
    let text = text.trim_end();
    let line = format!("libfabric:{pid}:{seconds}::{provider}:{subsystem}:{function}():{line}<{level}> {text}\n");
    // Not through the standard library: at a fork, another thread may have held its lock. A failed
    // write cannot be reported.
    // SAFETY: the line has its bytes.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
