//! Log messages as values: the library's layers report, the shell (C or Rust) decides where the text goes.

use crate::param::{Param, ParamKind};
use std::sync::OnceLock;

/// How much is printed.
pub const LOG_LEVEL: Param = Param {
    name: "FI_LOG_LEVEL",
    kind: ParamKind::String,
    help: "What is logged: none, error, warn, trace, info, debug (default: error)",
};
/// Which providers are heard.
pub const LOG_PROV: Param = Param {
    name: "FI_LOG_PROV",
    kind: ParamKind::String,
    help: "Log only for these providers, separated by commas; with ^ in front, for all others (default: all)",
};
/// Which parts are heard.
pub const LOG_SUBSYS: Param = Param {
    name: "FI_LOG_SUBSYS",
    kind: ParamKind::String,
    help: "Log only these parts: core, fabric, domain, ep_ctrl, ep_data, av, cq, eq, mr, cntr (default: all)",
};
/// How often sparse messages may come.
pub const LOG_INTERVAL: Param = Param {
    name: "FI_LOG_INTERVAL",
    kind: ParamKind::Int,
    help: "Milliseconds between messages that are rate-limited (default: 2000)",
};
/// What the environment says of logging.
pub const PARAMS: [Param; 4] = [LOG_LEVEL, LOG_PROV, LOG_SUBSYS, LOG_INTERVAL];

/// How important a message is. The order is that of FI_LOG_LEVEL: each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// An operation or an object failed: once for each root cause. On unless it is turned off.
    Error,
    /// Something is wrong or was refused.
    Warn,
    /// Operations one by one.
    Trace,
    /// Objects and connections.
    Info,
    /// Everything.
    Debug,
}

impl Level {
    /// The level of that name; `None` for none at all. An unknown word means warn, as it always did.
    fn named(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "none" | "off" => None,
            "error" => Some(Self::Error),
            "trace" => Some(Self::Trace),
            "info" => Some(Self::Info),
            "debug" => Some(Self::Debug),
            _ => Some(Self::Warn),
        }
    }

    /// The most that the environment wants to see; `None` if nothing.
    pub fn wanted() -> Option<Self> {
        LOG_LEVEL.text().map_or(Some(Self::Error), |name| Self::named(&name))
    }
}

/// The part of the library that speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subsystem {
    /// The library as such.
    Core,
    /// Fabrics.
    Fabric,
    /// Domains.
    Domain,
    /// Endpoints: connecting and closing.
    EpCtrl,
    /// Endpoints: data.
    EpData,
    /// Address vectors.
    Av,
    /// Completion queues.
    Cq,
    /// Event queues.
    Eq,
    /// Memory regions.
    Mr,
    /// Counters.
    Cntr,
}

/// Who takes messages.
pub trait Sink: Send + Sync {
    /// Whether a message of that kind would be printed.
    fn enabled(&self, provider: &str, level: Level, subsystem: Subsystem) -> bool;
    /// Takes a message.
    fn log(&self, provider: &str, level: Level, subsystem: Subsystem, text: &str);
}

static SINK: OnceLock<Box<dyn Sink>> = OnceLock::new();

/// Installs who takes messages. The first one stays.
pub fn install(sink: Box<dyn Sink>) {
    // A second installation is harmless: both copies of a library in a process would log alike.
    drop(SINK.set(sink));
}

/// Reports a message; the text is made only if somebody wants it. Not for the data path.
pub fn log(provider: &str, level: Level, subsystem: Subsystem, text: impl FnOnce() -> String) {
    if let Some(sink) = SINK.get()
        && sink.enabled(provider, level, subsystem)
    {
        sink.log(provider, level, subsystem, &text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names_in_any_case() {
        assert_eq!(Level::named(" Off "), None);
        assert_eq!(Level::named("ERROR"), Some(Level::Error));
        assert_eq!(Level::named("Debug"), Some(Level::Debug));
        assert_eq!(Level::named("loud"), Some(Level::Warn));
    }
}
