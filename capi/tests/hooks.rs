//! Hooks (FI_HOOK): C cases pass under each of them, over this library's providers and a loaded
//! one, and each reports what it should.

use ofi_harness::{Program, Run, fabric, missing, target};
use std::path::{Path, PathBuf};
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const HOOKS: [&str; 6] = ["noop", "trace", "perf", "profile", "debug", "perf;profile;debug;noop"];

fn program(path: &str) -> PathBuf {
    let program = Program::new(Path::new(HERE).join(path)).include(Path::new(HERE).join("include"));
    program.link(fabric()).compile().unwrap()
}

/// A program under a hook; no variable without one.
fn hooked(program: PathBuf, hook: Option<&str>) -> Run {
    let run = Run::new(program, 60).on(fabric()).variable("FI_LOG_LEVEL", "warn");
    match hook {
        Some(hook) => run.variable("FI_HOOK", hook),
        None => run,
    }
}

/// What it prints, and what it says to the standard error.
fn both(run: &Run) -> (String, String) {
    let output = run.output().unwrap().expect("nothing is missing");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr))
}

/// The cases of a file that run with any library.
fn general(program: &Path) -> Vec<String> {
    let list = Command::new(program).arg("--list").env("LD_LIBRARY_PATH", fabric().folder()).output().unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let general =
        list.lines().filter_map(|line| line.split_once(' ')).filter(|(_, kind)| !["ours", "helper"].contains(kind));
    general.map(|(case, _)| case.to_owned()).collect()
}

/// Runs some cases of a file under each hook.
fn cases(file: &str, provider: &str, wanted: &[&str], prepare: impl Fn(Run) -> Run) {
    let program = program(&format!("tests/c/cases/{file}.c"));
    let all = general(&program);
    for case in wanted {
        assert!(all.iter().any(|known| known == case), "{case}: {all:?}");
        for hook in HOOKS {
            let run = hooked(program.clone(), Some(hook)).argument(*case).variable("OFI_TEST_PROVIDER", provider);
            let (_, said) = both(&prepare(run).finds_everything());
            let reports = |name: &str| said.contains(&format!("ofi {name}: "));
            assert_eq!(reports("perf"), hook.contains("perf"), "{case} {hook}: {said}");
            assert_eq!(reports("profile"), hook.contains("profile"), "{case} {hook}: {said}");
            assert_eq!(reports("trace"), hook.contains("trace"), "{case} {hook}: {said}");
        }
    }
}

/// A few of each kind; sockets of 2021.4.0 passes them too.
const FILES: [(&str, &[&str]); 5] = [
    ("messages", &["msg_receives_in_order", "ep_iov_limits", "ep_message_boundaries"]),
    ("tagged", &["tagged_match_rule", "cancel_pending_receive"]),
    ("rma", &["rma_vectors_gather_and_scatter", "rma_on_connected_endpoints"]),
    ("atomics", &["atomic_results_of_swaps", "atomic_base_calls"]),
    ("counters", &["cntr_wait_reaches_threshold", "cntr_add_and_set"]),
];

macro_rules! providers {
    ($($name:ident $provider:literal;)*) => {$(
        #[test]
        fn $name() {
            for (file, wanted) in FILES {
                cases(file, $provider, wanted, |run| run);
            }
        }
    )*};
}

providers! {
    cases_pass_under_hooks_over_tcp "tcp";
    cases_pass_under_hooks_over_shm "shm";
}

/// sockets of impi-rt 2021.4.0, which was built for 1.13.
#[test]
fn cases_pass_under_hooks_over_a_loaded_provider() {
    let root = target().join("clients/impi-2021.4.0");
    if !root.join("complete").exists() {
        missing("impi-2021.4.0 (cargo xtask providers)");
        return;
    }
    let older = Program::new(Path::new(HERE).join("tests/c/older.c")).include(Path::new(HERE).join("include"));
    let older = older.shared().named("older.so").compile().unwrap();
    let prepare = |run: Run| {
        let run = run.variable("FI_PROVIDER_PATH", root.join("lib/libfabric/prov")).variable("LD_PRELOAD", &older);
        run.variable("OLDER_API", "1.13").variable("XDG_CACHE_HOME", target().join("clients/cache"))
    };
    for (file, wanted) in FILES {
        cases(file, "sockets", wanted, prepare);
    }
}

/// What `hooked.c` prints of tables.
fn tables(provider: &str, hook: Option<&str>) -> Vec<String> {
    let run = hooked(program("tests/c/hooked.c"), hook).arguments(["tables", provider]);
    both(&run).0.lines().map(str::to_owned).collect()
}

#[test]
fn without_a_hook_every_table_is_the_original_and_with_one_none_is() {
    for provider in ["tcp", "shm"] {
        for hook in [None, Some(""), Some("no_such_hook")] {
            let lines = tables(provider, hook);
            assert!(lines.len() >= 8, "{lines:?}");
            for line in lines {
                let (own, all) = line.split_once(' ').and_then(|(_, rest)| rest.split_once(" of ")).unwrap();
                assert_eq!(own, all, "{provider} {hook:?}: {line}");
            }
        }
        for hook in HOOKS {
            let lines = tables(provider, Some(hook));
            assert!(lines.iter().all(|line| line.contains(" 0 of ")), "{provider} {hook}: {lines:?}");
        }
    }
}

#[test]
fn perf_prints_percentiles_of_each_call() {
    let run = hooked(program("tests/c/hooked.c"), Some("perf")).arguments(["noop", "tcp", "1000"]);
    let (_, said) = both(&run);
    let row = said.lines().find(|line| line.contains("cq.read (again)")).unwrap_or_else(|| panic!("{said}"));
    let numbers: Vec<u64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [calls, total, half, most, nearly_all, largest] = numbers[..] else { panic!("{row}") };
    assert_eq!(calls, 1000);
    assert!(total >= largest && half <= most && most <= nearly_all && nearly_all <= largest, "{row}");
    assert!(said.contains("fabric.domain") && said.contains("fid.close"), "{said}");
}

#[test]
fn profile_counts_calls_by_their_end() {
    let run = hooked(program("tests/c/hooked.c"), Some("ofi_hook_profile")).arguments(["noop", "shm", "500"]);
    let (_, said) = both(&run);
    let row = said.lines().find(|line| line.contains("cq.read ")).unwrap_or_else(|| panic!("{said}"));
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["shm", "cq.read", "0", "500", "0", "0"], "{said}");
}

#[test]
fn debug_names_failed_calls_and_what_is_left_open() {
    let run = hooked(program("tests/c/hooked.c"), Some("debug")).arguments(["leak", "tcp"]);
    let (_, said) = both(&run);
    assert!(said.contains("ofi debug: tcp domain ") && said.contains(": fid.close fails: "), "{said}");
    for class in ["fabric", "domain", "completion queue"] {
        let left = said.lines().filter(|line| line.contains(class) && line.ends_with("was never closed"));
        assert_eq!(left.count(), 1, "{class}: {said}");
    }
    let run = hooked(program("tests/c/hooked.c"), Some("debug")).arguments(["tables", "tcp"]);
    let (_, said) = both(&run);
    assert!(!said.contains("never closed"), "{said}");
}

#[test]
fn an_unknown_hook_is_named() {
    let run = hooked(program("tests/c/hooked.c"), Some("perv")).arguments(["noop", "tcp"]);
    let (_, said) = both(&run);
    assert!(said.contains("no hook is called perv"), "{said}");
}
