//! Log messages: the library's layers report them, the API layer (C or Rust) outputs the text.

use crate::time::Instant;
use core::time::Duration;
use std::sync::OnceLock;

/// Severity of a message. The order is that of FI_LOG_LEVEL: each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// An operation or an object failed: logged once for each root cause. On by default.
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
    /// The level of that name; `None` for "none" and "off". Unknown words mean warn (as libfabric).
    pub fn named(name: &str) -> Option<Self> {
        let is = |word: &str| name.trim().eq_ignore_ascii_case(word);
        let levels = [("error", Self::Error), ("trace", Self::Trace), ("info", Self::Info), ("debug", Self::Debug)];
        if is("none") || is("off") {
            return None;
        }
        Some(levels.into_iter().find(|(word, _)| is(word)).map_or(Self::Warn, |(_, level)| level))
    }
}

/// The part of the library that logs.
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

/// The destination of log messages.
pub trait Sink: Send + Sync {
    /// Whether a message of that kind would be printed.
    fn enabled(&self, provider: &str, level: Level, subsystem: Subsystem) -> bool;
    /// Logs a message.
    fn log(&self, provider: &str, level: Level, subsystem: Subsystem, text: &str);
}

static SINK: OnceLock<Box<dyn Sink>> = OnceLock::new();

/// Installs the destination of log messages. The first one stays.
pub fn install(sink: Box<dyn Sink>) {
    // A second installation is harmless: both copies of a library in a process would log alike.
    drop(SINK.set(sink));
}

/// Logs a message; `text` is called only if the message is enabled. Not for the data path.
pub fn log(provider: &str, level: Level, subsystem: Subsystem, text: impl FnOnce() -> String) {
    if let Some(sink) = SINK.get()
        && sink.enabled(provider, level, subsystem)
    {
        sink.log(provider, level, subsystem, &text());
    }
}

/// How long repeated events are counted before the next line.
const QUIET: Duration = Duration::from_secs(1);

/// Rate limiter for frequent events of one kind: logs the first, then counts and sums up the rest.
#[derive(Debug, Default)]
pub struct Repeated {
    /// When the last line was logged.
    printed: Option<Instant>,
    /// The first text that is not logged yet, and the number of such events.
    waits: Option<(String, usize)>,
}

impl Repeated {
    /// Records an event.
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        match &mut self.waits {
            Some((_, count)) => *count += 1,
            None => self.waits = Some((text(), 1)),
        }
    }

    /// Whether an event is not logged yet.
    pub const fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// The line to log at `now` for all events since the last line; `None` within a second of it.
    pub fn take(&mut self, now: Instant) -> Option<String> {
        if self.printed.is_some_and(|printed| now.since(printed) < QUIET) {
            return None;
        }
        let text = self.take_rest()?;
        self.printed = Some(now);
        Some(text)
    }

    /// The same without the rate limit, for when no events will follow.
    pub fn take_rest(&mut self) -> Option<String> {
        let (text, count) = self.waits.take()?;
        Some(if count == 1 { text } else { format!("{text} (and {} more like it)", count - 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_events_are_summed_up() {
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
