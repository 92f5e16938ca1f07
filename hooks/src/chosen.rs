//! Which hooks FI_HOOK names.

use crate::debug::Debug;
use crate::hook::Hook;
use crate::perf::Perf;
use crate::profile::Profile;
use crate::trace::Trace;
use ofi_core::log::{self, Level, Subsystem};
use std::sync::OnceLock;

/// The hooks of this process.
pub(crate) struct Chosen {
    pub(crate) hooks: Vec<Box<dyn Hook>>,
    pub(crate) is_timed: bool,
    /// The process that chose them: a child of fork(2) reports nothing.
    process: u32,
}

static CHOSEN: OnceLock<Option<Chosen>> = OnceLock::new();

/// Whether FI_HOOK, whose value `variable` reads once, names a hook.
pub fn is_on(variable: impl FnOnce() -> Option<String>) -> bool {
    CHOSEN.get_or_init(|| choose(&variable()?)).is_some()
}

/// The hooks, if there are any.
pub(crate) fn chosen() -> Option<&'static Chosen> {
    CHOSEN.get()?.as_ref()
}

fn choose(list: &str) -> Option<Chosen> {
    let mut hooks: Vec<Box<dyn Hook>> = Vec::new();
    let mut is_on = false;
    for name in names(list) {
        match name {
            "noop" => {}
            "trace" => hooks.push(Box::new(Trace)),
            "perf" => hooks.push(Box::new(Perf::default())),
            "profile" => hooks.push(Box::new(Profile::default())),
            "debug" => hooks.push(Box::new(Debug::default())),
            _ => {
                log::log("", Level::Warn, Subsystem::Core, || {
                    format!("FI_HOOK: no hook is called {name}; there are trace, perf, profile, debug and noop")
                });
                continue;
            }
        }
        is_on = true;
    }
    let is_timed = hooks.iter().any(|hook| hook.is_timed());
    is_on.then(|| Chosen { hooks, is_timed, process: std::process::id() })
}

/// The names of a list, each once, without the ending of a provider's name that fi_hook(7) gives
/// them.
fn names(list: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for name in list.split([';', ',']).map(str::trim).filter(|name| !name.is_empty()) {
        let name = name.strip_prefix("ofi_").unwrap_or(name);
        let name = name.strip_prefix("hook_").unwrap_or(name);
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

/// At the end of the process: hooks report to the standard error.
pub fn finish() {
    let Some(chosen) = chosen().filter(|chosen| chosen.process == std::process::id()) else { return };
    for hook in &chosen.hooks {
        let text = hook.report();
        if !text.is_empty() {
            eprint!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_manual_too() {
        assert_eq!(names("ofi_hook_perf; trace,hook_noop;;perf"), ["perf", "trace", "noop"]);
        assert!(choose("").is_none() && choose("no such hook").is_none());
        let noop = choose("noop").unwrap();
        assert!(noop.hooks.is_empty() && !noop.is_timed);
        assert!(choose("noop;perf").is_some_and(|chosen| chosen.hooks.len() == 1 && chosen.is_timed));
    }
}
