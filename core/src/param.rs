//! Parameters: each `FI_*` variable that has an effect is one constant, the source of its value,
//! description and documentation (fi_provider(7), "ENVIRONMENT").

use crate::log::{Level, Subsystem, log};
use core::fmt::Display;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Kind of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Text.
    String,
    /// A whole number.
    Int,
    /// yes or no, true or false, on or off, 1 or 0.
    Bool,
    /// A number of bytes or entries.
    Size,
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name in the environment, such as `FI_TCP_IFACE`.
    pub name: &'static str,
    /// Kind of its value.
    pub kind: ParamKind,
    /// What it changes, its unit and its default.
    pub help: &'static str,
}

/// The file with parameters that the environment does not set.
pub const CONFIG_FILE: Param = Param {
    name: "FI_CONFIG_FILE",
    kind: ParamKind::String,
    help: "A file of lines NAME=VALUE with parameters that are not in the environment (default: /etc/libfabric.conf)",
};
/// Whether the file overrides the environment.
pub const PREFER_SYSCONFIG: Param = Param {
    name: "FI_PREFER_SYSCONFIG",
    kind: ParamKind::Bool,
    help: "Parameters in the configuration file override those in the environment (default: no)",
};

/// Parses the lines NAME=VALUE of a configuration file: no comments, no trimming, later lines win.
fn parse_config(text: &str) -> HashMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The configuration file's value of a variable. The file is read once.
pub fn configured(name: &str) -> Option<&'static str> {
    static CONFIG: OnceLock<HashMap<String, String>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let path = std::env::var(CONFIG_FILE.name).unwrap_or_else(|_| "/etc/libfabric.conf".to_owned());
        // Most machines have no such file.
        std::fs::read_to_string(path).map_or_else(|_| HashMap::new(), |text| parse_config(&text))
    });
    config.get(name).map(String::as_str)
}

/// The value of a variable: from the environment, else from the configuration file; the other way
/// around with [`PREFER_SYSCONFIG`].
pub fn value(name: &str) -> Option<String> {
    let file = configured(name);
    let environment = std::env::var(name).ok();
    let reversed = file.is_some()
        && environment.is_some()
        && std::env::var(PREFER_SYSCONFIG.name)
            .ok()
            .as_deref()
            .or_else(|| configured(PREFER_SYSCONFIG.name))
            .and_then(parse_bool)
            .unwrap_or(false);
    if reversed { file.map(str::to_owned) } else { environment.or_else(|| file.map(str::to_owned)) }
}

impl Param {
    /// The text, if set.
    pub fn text(&self) -> Option<String> {
        value(self.name)
    }

    /// The value as a boolean; `default` if unset, or if invalid, which is logged.
    pub fn flag(&self, default: bool) -> bool {
        self.parsed(parse_bool, default)
    }

    /// The value as a number; `default` if unset, or if invalid, which is logged.
    pub fn number(&self, default: u64) -> u64 {
        self.parsed(parse_number, default)
    }

    fn parsed<T: Display>(&self, parse: impl FnOnce(&str) -> Option<T>, default: T) -> T {
        let Some(text) = self.text() else { return default };
        parse(&text).unwrap_or_else(|| {
            if first_time(self.name) {
                log("", Level::Warn, Subsystem::Core, || {
                    let wanted = if self.kind == ParamKind::Bool { "yes nor no" } else { "a number" };
                    let neither = if self.kind == ParamKind::Bool { "neither" } else { "not" };
                    format!("{}={text} is {neither} {wanted}: {default} is used instead", self.name)
                });
            }
            default
        })
    }
}

/// Parameters whose invalid values have been logged.
static SAID: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn said() -> MutexGuard<'static, Vec<&'static str>> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the parameter's invalid value has not been logged yet.
fn first_time(name: &'static str) -> bool {
    let mut said = said();
    let first = !said.contains(&name);
    if first {
        said.push(name);
    }
    first
}

/// The lock of the list of logged parameters, held while the process forks.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, Vec<&'static str>>);

/// Locks the list, so that no other thread holds its lock during a fork.
pub fn hold() -> Held {
    Held(said())
}

/// Parses a boolean in any of its spellings.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Parses a number: decimal with an optional unit k, m or g (powers of 1024), or hex with 0x.
pub fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file_are_names_and_values() {
        let config = parse_config("FI_PROVIDER=tcp\nno value\nFI_LOG_LEVEL= a=b\n");
        assert_eq!(config.get("FI_PROVIDER").map(String::as_str), Some("tcp"));
        assert_eq!(config.get("FI_LOG_LEVEL").map(String::as_str), Some(" a=b"));
        assert_eq!(config.len(), 2);
    }

    #[test]
    fn values_are_read_in_their_spellings() {
        assert_eq!(parse_bool("Yes"), Some(true));
        assert_eq!(parse_bool("off"), Some(false));
        assert_eq!(parse_bool("2"), None);
        assert_eq!(parse_number("0x10"), Some(16));
        assert_eq!(parse_number(" 7 "), Some(7));
        assert_eq!(parse_number("seven"), None);
        assert_eq!(parse_number("64k"), Some(64 << 10));
        assert_eq!((parse_number("32M"), parse_number("2g")), (Some(32 << 20), Some(2 << 30)));
        assert_eq!(
            (parse_number("k"), parse_number(""), parse_number("-1"), parse_number("1kk")),
            (None, None, None, None)
        );
        assert_eq!(parse_number("99999999999g"), None);
    }
}
