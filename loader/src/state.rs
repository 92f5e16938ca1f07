//! The providers of this process: loaded at the first call that needs them, and kept.

use crate::choose::is_layer;
use crate::places::{Candidate, Found, Settings, candidates};
use crate::table::{Provider, load};
use crate::trial::{self, Around, LIMIT, Verdict, try_files};
use crate::verdicts::{Verdicts, key, place};
use core::cell::Cell;
use ofi_core::log::{self, Level, Subsystem};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// A file that is not used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The file.
    pub file: PathBuf,
    /// Why, as a sentence about "it".
    pub reason: String,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The providers in use, in the order of their registration.
    pub providers: Vec<Provider>,
    /// Names of built-in providers that loaded ones have taken.
    pub replaced: Vec<String>,
    /// Files that are not used.
    pub refused: Vec<Refused>,
    /// The process that has loaded them.
    process: u32,
}

static NONE: Loaded = Loaded { providers: Vec::new(), replaced: Vec::new(), refused: Vec::new(), process: 0 };

impl Loaded {
    /// Whether no folder has a file.
    pub const fn is_empty(&self) -> bool {
        self.providers.is_empty() && self.refused.is_empty()
    }

    /// The provider of that name; of a layered name, the last layer's.
    pub fn named(&self, name: &str) -> Option<&Provider> {
        let last = name.rsplit(';').next().unwrap_or(name);
        self.providers.iter().find(|provider| provider.name.eq_ignore_ascii_case(last))
    }

    /// Whether a loaded provider serves the full name instead of a built-in one: it has the core's
    /// name, and every layer is loaded too.
    pub fn serves(&self, name: &str) -> bool {
        let mut layers = name.split(';');
        let core = layers.next().unwrap_or_default();
        !is_layer(core) && self.named(core).is_some() && layers.all(|layer| self.named(layer).is_some())
    }
}

/// The state of this process.
#[derive(Debug)]
pub enum State {
    /// Nothing was looked for.
    Unloaded,
    /// A thread looks for files and tries them.
    Trying,
    /// A thread loads the file of that number.
    Loading(usize),
    /// Done for good.
    Loaded(&'static Loaded),
}

static STATE: Mutex<State> = Mutex::new(State::Unloaded);
static DONE: Condvar = Condvar::new();

thread_local! {
    /// Whether this thread is loading: calls of providers that it loads see no loaded provider.
    static LOADING: Cell<bool> = const { Cell::new(false) };
}

/// In a trial: what ends the process when its file waits for a thread that waits for the file.
static STUCK: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Begins the trial of a file by this process: threads that it starts wait for it as in an
/// application, and those that wait for half of the time limit call `stuck`.
fn begin_trial(stuck: Box<dyn Fn() + Send + Sync>) {
    drop(STUCK.set(stuck));
    *state() = State::Loading(0);
    LOADING.set(true);
}

/// Ends it: the file is loaded.
fn end_trial() {
    LOADING.set(false);
    stay_empty();
    DONE.notify_all();
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of the state, held across fork(2).
#[derive(Debug)]
pub struct Held(MutexGuard<'static, State>);

/// Takes that lock.
pub fn hold() -> Held {
    Held(state())
}

impl Held {
    /// In a child: what another thread of the parent was loading, the child has to load itself.
    pub fn restart(&mut self) {
        if matches!(*self.0, State::Trying | State::Loading(_)) && !LOADING.get() {
            *self.0 = State::Unloaded;
        }
    }
}

/// Ends the search for providers in this process: the helper process must not start helpers.
fn stay_empty() {
    *state() = State::Loaded(&NONE);
}

/// The work of the helper process: tries each file in a process of its own, and prints a line for
/// it.
pub fn serve(files: &[&Path]) {
    stay_empty();
    trial::serve(files, Around { begin: begin_trial, end: end_trial });
}

/// The loaded providers. The first call loads them, with what `settings` says; others wait for it.
/// `built_in` says whether a name is that of a built-in provider.
pub fn loaded(settings: impl FnOnce() -> Settings, built_in: impl Fn(&str) -> bool) -> &'static Loaded {
    if LOADING.get() {
        return &NONE;
    }
    let mut current = state();
    loop {
        match *current {
            State::Loaded(loaded) => return loaded,
            State::Trying => current = DONE.wait(current).unwrap_or_else(PoisonError::into_inner),
            State::Loading(file) => match wait_for(file, current) {
                Some(next) => current = next,
                None => return &NONE,
            },
            State::Unloaded => break,
        }
    }
    *current = State::Trying;
    drop(current);
    LOADING.set(true);
    let found: &'static Loaded = Box::leak(Box::new(load_all(&settings(), built_in)));
    LOADING.set(false);
    *state() = State::Loaded(found);
    DONE.notify_all();
    found
}

/// Waits until another thread has loaded that file; `None` after the time limit. The file may wait
/// for this thread, which it has started.
fn wait_for(file: usize, current: MutexGuard<'static, State>) -> Option<MutexGuard<'static, State>> {
    let stuck = STUCK.get();
    let limit = if stuck.is_some() { LIMIT / 2 } else { LIMIT };
    let same = |state: &mut State| matches!(*state, State::Loading(now) if now == file);
    let (current, waited) = DONE.wait_timeout_while(current, limit, same).unwrap_or_else(PoisonError::into_inner);
    if !waited.timed_out() {
        return Some(current);
    }
    drop(current);
    if let Some(stuck) = stuck {
        stuck();
    }
    log::log("", Level::Warn, Subsystem::Core, || {
        "a thread asks for providers while another one loads a file, which does not return: it gets the built-in ones"
            .to_owned()
    });
    None
}

/// At the end of the process: providers clean up, unless this is a child that has them from its
/// parent by fork(2). Functions of atexit(3) have run by then, in which an application may still
/// close its objects.
pub fn clean_up() {
    // The lock may be another thread's, which the end of the process does not wait for.
    let Ok(current) = STATE.try_lock() else { return };
    if let State::Loaded(found) = *current {
        drop(current);
        if found.process == std::process::id() {
            found.providers.iter().for_each(Provider::cleanup);
        }
    }
}

fn load_all(settings: &Settings, built_in: impl Fn(&str) -> bool) -> Loaded {
    let Found { files, first_wins, refused } = candidates(settings);
    if files.is_empty() && refused.is_empty() {
        return Loaded::default();
    }
    let mut out = Loaded { process: std::process::id(), ..Loaded::default() };
    out.refused.extend(refused.into_iter().map(|(file, reason)| Refused { file, reason: reason.to_owned() }));
    let harmful = harmful(&files, settings.library.as_deref());
    let mut registered = Vec::new();
    for (index, (candidate, harmful)) in files.into_iter().zip(harmful).enumerate() {
        *state() = State::Loading(index);
        DONE.notify_all();
        let Candidate { file, preferred } = candidate;
        let loaded = match harmful {
            Some(reason) => Err(reason),
            None => load(&file, preferred),
        };
        match loaded {
            Ok(provider) => register(&mut registered, provider),
            Err(reason) => out.refused.push(Refused { file, reason }),
        }
    }
    choose(registered, first_wins, settings.prefer.as_deref(), built_in, &mut out);
    for Refused { file, reason } in &out.refused {
        log::log("", Level::Info, Subsystem::Core, || format!("{} is not used: {reason}", file.display()));
    }
    out
}

/// Adds a provider, once: one that loses against itself would be cleaned up while it is in use.
fn register(registered: &mut Vec<Provider>, provider: Provider) {
    match registered.iter_mut().find(|known| known.is_same(&provider)) {
        Some(known) => known.preferred |= provider.preferred,
        None => registered.push(provider),
    }
}

/// For each file why it must not be loaded, if its trial failed. Files that were tried before, by
/// any process of this user, are not tried again.
fn harmful(files: &[Candidate], library: Option<&Path>) -> Vec<Option<String>> {
    let Some(library) = library else { return vec![None; files.len()] };
    let place = place();
    let mut verdicts = Verdicts::read(place.clone());
    let keys: Vec<Option<String>> = files.iter().map(|candidate| key(&candidate.file, library)).collect();
    let known =
        |verdicts: &Verdicts, key: &Option<String>| key.as_ref().and_then(|key| verdicts.of(key)).map(str::to_owned);
    let mut out: Vec<Option<String>> = keys
        .iter()
        .map(|key| known(&verdicts, key).filter(|verdict| !verdict.is_empty()))
        .map(|verdict| {
            let place = place.as_ref().map(|place| place.display().to_string()).unwrap_or_default();
            verdict.map(|why| format!("{why}; {place} remembers this until the file changes"))
        })
        .collect();
    let new: Vec<usize> = (0..files.len()).filter(|index| known(&verdicts, &keys[*index]).is_none()).collect();
    if new.is_empty() {
        return out;
    }
    let paths: Vec<PathBuf> = new.iter().map(|index| files[*index].file.clone()).collect();
    for (index, verdict) in new.into_iter().zip(try_files(library, &paths)) {
        let keep = match verdict {
            Verdict::Good => Some(String::new()),
            Verdict::Harmful(why) => {
                out[index] = Some(why.clone());
                Some(why)
            }
            // The next process tries it again.
            Verdict::Refused(why) => {
                out[index] = Some(why);
                None
            }
            Verdict::Unknown(why) => {
                let file = files[index].file.display().to_string();
                log::log("", Level::Warn, Subsystem::Core, || format!("{file} is loaded without a trial: {why}"));
                None
            }
        };
        if let (Some(verdict), Some(key)) = (keep, &keys[index]) {
            verdicts.add(key.clone(), &verdict);
        }
    }
    verdicts.write();
    out
}

/// Decides between providers of one name: preferred ones win, then newer ones, then earlier ones.
fn choose(
    registered: Vec<Provider>,
    first_wins: bool,
    prefer: Option<&str>,
    built_in: impl Fn(&str) -> bool,
    out: &mut Loaded,
) {
    let listed = |name: &str| {
        let same = |entry: &str| entry.trim().eq_ignore_ascii_case(name) || entry.trim().eq_ignore_ascii_case("all");
        prefer.is_some_and(|list| list.split(',').any(same))
    };
    let mut refuse = |provider: &Provider, reason: String| {
        provider.cleanup();
        out.refused.push(Refused { file: provider.file.clone(), reason });
    };
    for provider in registered {
        let name = provider.name.clone();
        // Layers are used over loaded providers, which built-in layers cannot serve.
        if built_in(&name) && !is_layer(&name) && !provider.preferred && !listed(&name) {
            refuse(&provider, format!("its name {name} is that of a built-in provider (FI_OFI_PREFER_LOADED)"));
            continue;
        }
        let same = |known: &Provider| known.name.eq_ignore_ascii_case(&name);
        let Some(index) = out.providers.iter().position(same) else {
            out.providers.push(provider);
            continue;
        };
        let known = &out.providers[index];
        let newer = !first_wins && provider.version > known.version;
        let wins = (provider.preferred, provider.preferred == known.preferred && newer) > (known.preferred, false);
        let (winner, loser) = if wins { (&provider, known) } else { (known, &provider) };
        let text = format!("{} has its name {name}, in version {}", winner.file.display(), winner.version);
        refuse(&loser.clone(), text);
        if wins {
            out.providers[index] = provider;
        }
    }
    out.replaced = out.providers.iter().map(|known| known.name.clone()).filter(|name| built_in(name)).collect();
    out.replaced.retain(|name| !is_layer(name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::provider;
    use ofi_core::Version;

    /// The chosen providers, each as its name and version, and the reasons for the others.
    fn chosen(
        all: &[(&'static core::ffi::CStr, u16, bool)],
        first: bool,
        prefer: Option<&str>,
    ) -> (Vec<String>, Loaded) {
        let all = all.iter().map(|(name, minor, preferred)| {
            let mut provider = provider(name, Version::new(1, *minor));
            provider.preferred = *preferred;
            provider
        });
        let mut out = Loaded::default();
        choose(all.collect(), first, prefer, |name| ["tcp", "ofi_rxm"].contains(&name), &mut out);
        let names = out.providers.iter().map(|known| format!("{} {}", known.name, known.version));
        (names.collect(), out)
    }

    #[test]
    fn of_one_name_the_preferred_one_wins_then_the_newer_then_the_first() {
        let names = |all: &[_], first| chosen(all, first, None).0;
        assert_eq!(names(&[(c"a", 1, false), (c"a", 2, false), (c"b", 1, false)], false), ["a 1.2", "b 1.1"]);
        assert_eq!(names(&[(c"a", 2, false), (c"A", 1, false)], false), ["a 1.2"]);
        assert_eq!(names(&[(c"a", 1, false), (c"a", 1, false)], false).len(), 1);
        assert_eq!(names(&[(c"a", 1, false), (c"a", 2, false)], true), ["a 1.1"]);
        assert_eq!(names(&[(c"a", 2, false), (c"a", 1, true)], false), ["a 1.1"]);
        assert_eq!(names(&[(c"a", 1, true), (c"a", 2, false)], false), ["a 1.1"]);
        assert_eq!(names(&[(c"a", 1, true), (c"a", 2, true)], false), ["a 1.2"]);
        assert_eq!(names(&[(c"a", 2, false), (c"a", 1, true)], true), ["a 1.1"]);
        let (_, loaded) = chosen(&[(c"a", 1, false), (c"a", 2, false)], false, None);
        assert!(loaded.refused[0].reason.contains("has its name a, in version 1.2"));
    }

    #[test]
    fn a_provider_registers_once() {
        let (one, other) = (provider(c"a", Version::new(1, 1)), provider(c"a", Version::new(1, 1)));
        let mut registered = Vec::new();
        register(&mut registered, one.clone());
        let mut again = one;
        again.preferred = true;
        register(&mut registered, again);
        register(&mut registered, other);
        assert_eq!(registered.iter().map(|known| known.preferred).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn built_in_names_stay_unless_a_loaded_provider_is_preferred() {
        let all = [(c"tcp", 9, false), (c"ofi_rxm", 9, false), (c"verbs", 1, false)];
        let (names, loaded) = chosen(&all, false, None);
        assert_eq!(names, ["ofi_rxm 1.9", "verbs 1.1"]);
        assert!(loaded.replaced.is_empty() && loaded.refused[0].reason.contains("built-in"));
        assert!(loaded.serves("verbs;ofi_rxm") && loaded.serves("VERBS"));
        assert!(!loaded.serves("tcp") && !loaded.serves("tcp;ofi_rxm") && !loaded.serves("ofi_rxm"));
        for prefer in ["tcp", "udp, TCP", "all"] {
            let (names, loaded) = chosen(&all, false, Some(prefer));
            assert_eq!(names.len(), 3);
            assert_eq!(loaded.replaced, ["tcp"]);
            assert!(loaded.serves("tcp") && loaded.serves("tcp;ofi_rxm"));
        }
        assert_eq!(chosen(&[(c"tcp", 1, true)], false, None).0, ["tcp 1.1"]);
    }

    #[test]
    fn a_thread_that_loads_sees_no_provider() {
        LOADING.set(true);
        assert!(loaded(Settings::default, |_| false).is_empty());
        LOADING.set(false);
        let seen = loaded(Settings::default, |_| unreachable!("there is no file"));
        assert!(seen.is_empty());
        let mut held = hold();
        held.restart();
        assert!(matches!(*held.0, State::Loaded(_)));
    }
}
