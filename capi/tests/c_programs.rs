//! C programs against the built library: each is compiled with our headers, linked to the library under test, and run
//! under a time limit. `OFI_TEST_LIBRARY` names another build of it, `OFI_TEST_ASAN=1` says that it is instrumented.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{OnceLock, PoisonError, RwLock};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The folder with the library as loaders look for it.
fn library() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(if asan() { "lib-asan" } else { "lib" });
        std::fs::create_dir_all(&dir).unwrap();
        let built = match std::env::var_os("OFI_TEST_LIBRARY") {
            Some(path) => PathBuf::from(path),
            None => {
                let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
                let built = Command::new(cargo).args(["build", "-p", "ofi-capi"]).current_dir(HERE).status().unwrap();
                assert!(built.success(), "the library does not build");
                let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
                target.join("debug/libfabric.so")
            }
        };
        std::fs::copy(&built, dir.join("libfabric.so.1"))
            .unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        dir
    })
}

fn asan() -> bool {
    std::env::var_os("OFI_TEST_ASAN").is_some()
}

/// Compiles a program; its path.
fn compile(name: &str) -> PathBuf {
    let out = library().join(name.trim_end_matches(".c"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(Path::new(HERE).join("include"));
    cc.args(["-Wno-deprecated-declarations", "-Wno-unused-function", "-Wno-unused-variable"]);
    cc.arg(Path::new(HERE).join("tests/c").join(name)).arg("-o").arg(&out);
    cc.arg(library().join("libfabric.so.1")).args(["-ldl", "-lpthread"]);
    if asan() {
        cc.arg("-fsanitize=address");
    }
    let status = cc.status().expect("a C compiler");
    assert!(status.success(), "{name} does not compile");
    out
}

/// Runs a program with arguments; it must end with 0 within so many seconds.
fn run(program: &Path, arguments: &[&str], seconds: u32) {
    run_over("tcp", program, arguments, seconds);
}

/// Scenarios that fill the machine, or measure a time that a full one would spoil: nothing else runs meanwhile.
const ALONE: &[&str] = &["storm", "crowd", "thousand", "kill", "spinning"];
static OTHERS: RwLock<()> = RwLock::new(());

/// The same over that provider.
fn run_over(provider: &str, program: &Path, arguments: &[&str], seconds: u32) {
    if arguments.iter().any(|argument| ALONE.contains(argument)) {
        return run_alone(provider, program, arguments, seconds);
    }
    let _among_others = OTHERS.read().unwrap_or_else(PoisonError::into_inner);
    run_now(provider, program, arguments, seconds);
}

fn run_alone(provider: &str, program: &Path, arguments: &[&str], seconds: u32) {
    let _alone = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    run_now(provider, program, arguments, seconds);
}

fn run_now(provider: &str, program: &Path, arguments: &[&str], seconds: u32) {
    let output = Command::new("timeout")
        .args(["--kill-after=5", &seconds.to_string()])
        .arg(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", library())
        .env("OFI_TEST_PROVIDER", provider)
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .output()
        .expect("the program runs");
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    if output.status.code() == Some(77) && !in_ci {
        // What it needs is not to be had here, as it says.
        eprintln!("{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}: {}\n{text}", program.display(), output.status);
    assert!(!text.contains("no version information"), "the loader warns: {text}");
}

#[test]
fn every_version_takes_its_own_layout() {
    run(&compile("surface.c"), &[], 60);
}

#[test]
fn an_instrumented_library_is_one() {
    let bytes = std::fs::read(library().join("libfabric.so.1")).unwrap();
    let needle = b"__asan_report_load";
    let instrumented = bytes.windows(needle.len()).any(|window| window == needle);
    assert_eq!(instrumented, asan());
}

#[test]
fn layouts_are_those_of_the_public_headers() {
    run(&compile("layout.c"), &[], 10);
}

#[test]
fn headers_are_good_cpp() {
    {
        let file = "layout.c";
        let status = Command::new("c++")
            .args([
                "-std=c++17",
                "-x",
                "c++",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-invalid-offsetof",
                "-fsyntax-only",
                "-I",
            ])
            .arg(Path::new(HERE).join("include"))
            .arg(Path::new(HERE).join("tests/c").join(file))
            .status()
            .expect("a C++ compiler");
        assert!(status.success());
    }
    let status = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
        .arg(Path::new(HERE).join("include"))
        .arg(Path::new(HERE).join("tests/c/layout.c"))
        .status()
        .expect("a C compiler");
    assert!(status.success());
}

#[test]
fn exactly_the_versioned_names_are_visible() {
    let output = Command::new("objdump").arg("-T").arg(library().join("libfabric.so.1")).output().expect("objdump");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut names: Vec<String> = text
        .lines()
        .filter(|line| !line.contains("*UND*") && line.starts_with('0'))
        .filter_map(|line| {
            let mut words = line.split_whitespace().rev();
            let name = words.next()?;
            Some(format!("{name}@{}", words.next()?.trim_matches(['(', ')'])))
        })
        .collect();
    names.sort();
    let mut expected: Vec<String> = Vec::new();
    for name in ["fi_getinfo", "fi_freeinfo", "fi_dupinfo"] {
        expected.extend(["1.0", "1.1", "1.2", "1.3", "1.7", "1.8", "1.9"].map(|node| format!("{name}@FABRIC_{node}")));
    }
    for (name, node) in [
        ("fi_fabric", "1.0"),
        ("fi_fabric", "1.1"),
        ("fi_fabric2", "1.8"),
        ("fi_version", "1.0"),
        ("fi_strerror", "1.0"),
        ("fi_tostr", "1.0"),
        ("fi_tostr_r", "1.4"),
        ("fi_open", "1.5"),
        ("fi_log_enabled", "1.0"),
        ("fi_log_ready", "1.6"),
        ("fi_log", "1.0"),
        ("fi_param_define", "1.0"),
        ("fi_param_get", "1.0"),
        ("fi_getparams", "1.0"),
        ("fi_freeparams", "1.0"),
    ] {
        expected.push(format!("{name}@FABRIC_{node}"));
    }
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(names.len(), 36);
}

macro_rules! peers {
    ($($name:ident: $scenario:literal, $seconds:literal;)*) => {$(
        #[test]
        fn $name() {
            run(&peers(), &[$scenario], $seconds);
        }
    )*};
}

fn peers() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("peers.c")).clone()
}

peers! {
    messages_of_every_call_arrive: "calls", 60;
    connected_endpoints_meet_and_part: "connect", 60;
    a_killed_peer_is_an_error_with_a_cause: "kill", 120;
    nobody_listening_is_an_error_at_once: "refused", 30;
    a_black_hole_is_an_error_by_the_deadline: "blackhole", 60;
    a_stopped_peer_is_no_error: "stopped", 120;
    nothing_injected_before_closing_is_lost: "inject_close", 60;
    sixty_four_endpoints_in_four_processes_reach_each_other: "all_to_all", 120;
    blocked_readers_wake_each_time: "wake", 300;
}

/// The same over shm, where a peer is another memory and not another address.
macro_rules! peers_over_shm {
    ($($name:ident: $scenario:literal, $seconds:literal;)*) => {$(
        #[test]
        fn $name() {
            run_over("shm", &peers(), &[$scenario], $seconds);
        }
    )*};
}

peers_over_shm! {
    messages_of_every_call_arrive_within_a_host: "calls", 60;
    connected_endpoints_meet_and_part_within_a_host: "connect", 60;
    a_killed_process_is_an_error_with_a_cause: "kill", 120;
    a_stopped_process_is_no_error: "stopped", 120;
    nothing_injected_before_closing_is_lost_within_a_host: "inject_close", 60;
    endpoints_of_four_processes_reach_each_other_within_a_host: "all_to_all", 120;
    blocked_readers_wake_each_time_within_a_host: "wake", 300;
}

/// What only endpoints of one host do.
fn within(scenario: &str, seconds: u32) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    run(PROGRAM.get_or_init(|| compile("within.c")), &[scenario], seconds);
}

#[test]
fn killed_processes_leave_nothing_behind() {
    within("storm", 600);
}

#[test]
fn a_thousand_endpoints_reach_each_other() {
    within("thousand", 120);
}

#[test]
fn sixty_four_processes_reach_each_other() {
    within("crowd", 120);
}

#[test]
fn a_spinning_reader_costs_the_sender_no_system_call() {
    within("spinning", 60);
}

#[test]
fn idle_endpoints_are_small_and_change_no_signal_handler() {
    // Shadow memory is not the library's.
    if !asan() {
        within("quiet", 60);
    }
}

#[test]
fn processes_of_other_namespaces_are_reached() {
    within("other_pids", 60);
    within("other_net", 60);
}

/// Readers and writers at random; `OFI_WAKES` says how many events.
fn wakes(kind: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compile("wakes.c"));
    // Four threads that yield: two such programs on two cores starve each other's readers and take ten times as long.
    run_alone("tcp", program, &[kind], 900);
}

macro_rules! wakes {
    ($($name:ident: $kind:literal;)*) => {$(
        #[test]
        fn $name() {
            wakes($kind);
        }
    )*};
}

wakes! {
    no_wakeup_is_missed_by_blocking_reads: "cq_unspec";
    no_wakeup_is_missed_on_a_descriptor: "cq_fd";
    no_wakeup_is_missed_on_poll_descriptors: "cq_pollfd";
    no_wakeup_is_missed_while_yielding: "cq_yield";
    no_wakeup_is_missed_in_a_wait_set: "cq_set";
    no_wakeup_is_missed_on_a_condition: "cq_mutex_cond";
    no_wakeup_is_missed_by_blocking_reads_of_events: "eq_unspec";
    no_wakeup_is_missed_on_a_descriptor_of_events: "eq_fd";
    no_wakeup_is_missed_while_yielding_for_events: "eq_yield";
    no_wakeup_is_missed_in_a_wait_set_of_events: "eq_set";
}
