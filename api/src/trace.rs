//! The feature `tracing`: the library's log messages as events of the crate tracing.

use ofi_core::log::{self, Level, Sink, Subsystem};

/// The destination of log messages. A text that no subscriber wants is never formatted.
struct Tracing;

/// `$macro` of the crate tracing with the level as a constant, as its call sites need it.
macro_rules! at_level {
    ($level:expr, $macro:ident, $($args:tt)*) => {
        match $level {
            Level::Error => tracing::$macro!(target: "ofi", tracing::Level::ERROR, $($args)*),
            Level::Warn => tracing::$macro!(target: "ofi", tracing::Level::WARN, $($args)*),
            Level::Info => tracing::$macro!(target: "ofi", tracing::Level::INFO, $($args)*),
            Level::Debug => tracing::$macro!(target: "ofi", tracing::Level::DEBUG, $($args)*),
            Level::Trace => tracing::$macro!(target: "ofi", tracing::Level::TRACE, $($args)*),
        }
    };
}

impl Sink for Tracing {
    fn enabled(&self, _provider: &str, level: Level, _subsystem: Subsystem) -> bool {
        at_level!(level, enabled, { provider, subsystem })
    }

    fn log(&self, provider: &str, level: Level, subsystem: Subsystem, text: &str) {
        at_level!(level, event, provider, subsystem = ?subsystem, "{text}");
    }
}

/// From now on messages become events. Called before anything that may log; the first call counts.
pub(crate) fn install() {
    log::install(Box::new(Tracing));
}
