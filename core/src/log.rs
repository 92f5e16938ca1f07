//! Log messages as values: the library's layers report, the shell (C or Rust) decides where the text goes.

use crate::param::{Param, ParamKind};
use crate::time::Instant;
use core::time::Duration;
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

/// How long what repeats itself is counted before it is printed again.
const QUIET: Duration = Duration::from_secs(1);

/// Events of one kind that may come by the hundred: the first is printed, those that follow are counted and summed up.
#[derive(Debug, Default)]
pub struct Repeated {
    /// When it was printed last.
    printed: Option<Instant>,
    /// The first text that has not been printed, and how many events there were since.
    waits: Option<(String, usize)>,
}

impl Repeated {
    /// It happened again.
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        match &mut self.waits {
            Some((_, count)) => *count += 1,
            None => self.waits = Some((text(), 1)),
        }
    }

    /// Whether something has not been printed.
    pub const fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// What is to be printed at `now`: all that came since the last time, in one line, unless that was just before.
    pub fn take(&mut self, now: Instant) -> Option<String> {
        if self.printed.is_some_and(|printed| now.since(printed) < QUIET) {
            return None;
        }
        let text = self.take_rest()?;
        self.printed = Some(now);
        Some(text)
    }

    /// The same whenever the last time was: nothing will follow.
    pub fn take_rest(&mut self) -> Option<String> {
        let (text, count) = self.waits.take()?;
        Some(if count == 1 { text } else { format!("{text} (and {} more like it)", count - 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_itself_is_summed_up() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut repeated = Repeated::default();
        assert_eq!(repeated.take(at(1)), None);
        repeated.add(|| "one".to_owned());
        assert_eq!(repeated.take(at(1)).as_deref(), Some("one"));
        (0..476).for_each(|number| repeated.add(|| format!("reset {number}")));
        assert!(repeated.is_waiting());
        assert_eq!(repeated.take(at(900)), None);
        assert_eq!(repeated.take(at(1001)).as_deref(), Some("reset 0 (and 475 more like it)"));
        repeated.add(|| "last".to_owned());
        assert_eq!((repeated.take(at(1002)), repeated.take_rest().as_deref()), (None, Some("last")));
    }

    #[test]
    fn levels_have_names_in_any_case() {
        assert_eq!(Level::named(" Off "), None);
        assert_eq!(Level::named("ERROR"), Some(Level::Error));
        assert_eq!(Level::named("Debug"), Some(Level::Debug));
        assert_eq!(Level::named("loud"), Some(Level::Warn));
    }
}
