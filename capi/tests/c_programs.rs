//! C programs against the built library: each is compiled with our headers, linked to the library
//! under test, and run with a time limit.

use ofi_harness::{Program, Run, fabric, is_instrumented, is_sanitized};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Compiles a program; returns its path.
fn compile(name: &str) -> PathBuf {
    let source = Path::new(HERE).join("tests/c").join(name);
    let program = Program::new(source).include(Path::new(HERE).join("include")).link(fabric());
    program.compile().unwrap_or_else(|why| panic!("{why}"))
}

/// Scenarios that load the machine, or measure times that load would distort.
const ALONE: &[&str] = &["storm", "crowd", "thousand", "kill", "spinning"];

/// Scenarios that mostly wait for a deadline.
const IDLE: &[&str] = &["blackhole", "stopped"];

/// Runs a program over a provider; it must exit with 0 within `seconds`.
fn run(provider: &str, program: &Path, arguments: &[&str], seconds: u32) {
    let run = Run::new(program, seconds).arguments(arguments).on(fabric()).variable("OFI_TEST_PROVIDER", provider);
    let is_one_of = |list: &[&str]| arguments.iter().any(|argument| list.contains(argument));
    let run = if is_one_of(ALONE) { run.alone() } else { run };
    let run = if is_one_of(IDLE) { run.idle() } else { run };
    run.check();
}

#[test]
fn every_version_takes_its_own_layout() {
    run("tcp", &compile("surface.c"), &[], 60);
}

#[test]
fn an_instrumented_library_is_one() {
    assert_eq!(is_instrumented(fabric()), is_sanitized());
}

#[test]
fn layouts_are_those_of_the_public_headers() {
    run("tcp", &compile("layout.c"), &[], 10);
}

#[test]
fn headers_are_good_cpp() {
    let ways: [(&str, &[&str]); 2] =
        [("c++", &["-std=c++17", "-x", "c++", "-Wno-invalid-offsetof"]), ("cc", &["-std=c11", "-Wpedantic"])];
    for (compiler, arguments) in ways {
        let mut check = Command::new(compiler);
        check.args(arguments).args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
        check.arg(Path::new(HERE).join("include")).arg(Path::new(HERE).join("tests/c/layout.c"));
        assert!(check.status().expect("a compiler").success(), "{check:?}");
    }
}

#[test]
fn exactly_the_versioned_names_are_visible() {
    let output = Command::new("objdump").arg("-T").arg(fabric().file()).output().expect("objdump");
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

/// Each allocation of the calls that create something fails in turn.
fn without_memory(provider: &str) {
    // A program cannot replace AddressSanitizer's allocator.
    if !is_sanitized() {
        run(provider, &compile("nomem.c"), &[], 120);
    }
}

#[test]
fn without_memory_calls_say_so_and_leak_nothing() {
    without_memory("tcp");
}

#[test]
fn without_memory_calls_say_so_within_a_host() {
    without_memory("shm");
}

/// Processes that fork while they use the library.
fn forks(provider: &str, how: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    // AddressSanitizer's allocator does not survive a fork while another thread allocates: its
    // locks stay locked in the child.
    if is_sanitized() && matches!(how, "manual" | "auto" | "atomics" | "first") {
        return;
    }
    run(provider, PROGRAM.get_or_init(|| compile("forks.c")), &[how], 120);
}

macro_rules! forks {
    ($($name:ident: $provider:literal, $how:literal;)*) => {$(
        #[test]
        fn $name() {
            forks($provider, $how);
        }
    )*};
}

forks! {
    in_a_forked_process_what_was_inherited_is_dead: "tcp", "manual";
    in_a_forked_process_what_was_inherited_is_dead_within_a_host: "shm", "manual";
    a_process_with_a_thread_of_ours_forks: "tcp", "auto";
    a_process_with_a_thread_of_ours_forks_within_a_host: "shm", "auto";
    a_process_forks_while_a_thread_updates_long_elements: "tcp", "atomics";
    a_process_forks_while_a_thread_updates_long_elements_within_a_host: "shm", "atomics";
    a_process_forks_while_a_thread_makes_its_first_calls: "tcp", "first";
    an_executed_program_inherits_no_descriptor: "tcp", "exec";
    an_executed_program_inherits_no_descriptor_within_a_host: "shm", "exec";
    forked_processes_keep_nothing_alive: "tcp", "outlive";
    forked_processes_keep_nothing_alive_within_a_host: "shm", "outlive";
}

/// Two copies of the library in one process that is linked with neither.
fn copies(provider: &str) {
    let program = Program::new(Path::new(HERE).join("tests/c/copies.c")).include(Path::new(HERE).join("include"));
    run(provider, &program.compile().unwrap_or_else(|why| panic!("{why}")), &[], 60);
}

#[test]
fn two_copies_of_the_library_live_in_one_process() {
    copies("tcp");
}

#[test]
fn two_copies_of_the_library_speak_within_a_host() {
    copies("shm");
}

#[test]
fn large_messages_arrive_whole_whichever_way_they_take() {
    let program = compile("ways.c");
    run("tcp", &program, &[], 60);
    for way in ["auto", "off", "close", "behind", "on", "read", "both"] {
        let run = Run::new(&program, 60).on(fabric()).variable("OFI_TEST_PROVIDER", "shm");
        run.variable("FI_SHM_DIRECT", way).check();
    }
}

macro_rules! peers {
    ($($name:ident: $scenario:literal, $seconds:literal;)*) => {$(
        #[test]
        fn $name() {
            run("tcp", &peers(), &[$scenario], $seconds);
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
    no_listener_is_an_error_at_once: "refused", 30;
    a_black_hole_is_an_error_by_the_deadline: "blackhole", 60;
    a_stopped_peer_is_no_error: "stopped", 120;
    nothing_injected_before_closing_is_lost: "inject_close", 60;
    sixty_four_endpoints_in_four_processes_reach_each_other: "all_to_all", 120;
    blocked_readers_wake_each_time: "wake", 300;
}

/// The same over shm.
macro_rules! peers_over_shm {
    ($($name:ident: $scenario:literal, $seconds:literal;)*) => {$(
        #[test]
        fn $name() {
            run("shm", &peers(), &[$scenario], $seconds);
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

/// Scenarios of shm only.
fn within(scenario: &str, seconds: u32) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    run("shm", PROGRAM.get_or_init(|| compile("within.c")), &[scenario], seconds);
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
    // AddressSanitizer's shadow memory would count as the library's.
    if !is_sanitized() {
        within("quiet", 60);
    }
}

#[test]
fn processes_of_other_namespaces_are_reached() {
    within("other_pids", 60);
    within("other_net", 60);
}

/// Bounds on memory for peers, and delivery despite them.
fn bounds(provider: &str, scenario: &str, seconds: u32) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compile("bounds.c"));
    let count = if is_sanitized() { "100000" } else { "1000000" };
    Run::new(program, seconds)
        .argument(scenario)
        .on(fabric())
        .variable("OFI_TEST_PROVIDER", provider)
        .variable("OFI_TEST_UNWANTED", count)
        .check();
}

macro_rules! bounds {
    ($($name:ident: $provider:literal, $scenario:literal, $seconds:literal;)*) => {$(
        #[test]
        fn $name() {
            bounds($provider, $scenario, $seconds);
        }
    )*};
}

bounds! {
    what_is_wanted_arrives_behind_a_million_others: "tcp", "unwanted", 120;
    what_is_wanted_arrives_behind_a_million_others_by_the_old_name: "tcp;ofi_rxm", "unwanted", 120;
    what_is_wanted_arrives_behind_a_million_others_within_a_host: "shm", "unwanted", 120;
    a_receive_fails_when_the_memory_for_peers_is_full: "tcp", "limit", 60;
    a_receive_fails_when_the_memory_for_peers_is_full_by_the_old_name: "tcp;ofi_rxm", "limit", 60;
    a_receive_fails_when_the_memory_for_peers_is_full_within_a_host: "shm", "limit", 60;
    fifteen_hundred_endpoints_connect_at_once: "tcp", "together", 120;
    accepting_pauses_where_descriptors_are_short: "tcp", "few_descriptors", 120;
    a_crowd_asks_one_that_is_busy_within_a_host: "shm", "crowd_connects", 120;
    floods_neither_fill_the_memory_nor_stop_others: "tcp", "floods", 120;
    floods_neither_fill_the_memory_nor_stop_others_within_a_host: "shm", "floods", 120;
}

/// The log has errors for what is lost. Receives that wait when the peer closes its endpoint in
/// order fail, which their entries say.
#[test]
fn a_peer_that_closes_in_order_is_no_error_in_the_log() {
    let program = compile("cases/connections.c");
    for provider in ["tcp", "shm"] {
        let run = Run::new(&program, 60).argument("msg_peer_death_disables").on(fabric());
        let output = run.variable("OFI_TEST_PROVIDER", provider).output().unwrap_or_else(|why| panic!("{why}"));
        let output = output.expect("it needs nothing");
        // It also makes calls that are refused.
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("operations failed"), "{provider}: {said}");
    }
}

/// Which peers may have a link, from which address, and how it ends.
fn links(provider: &str, scenario: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    run(provider, PROGRAM.get_or_init(|| compile("links.c")), &[scenario], 60);
}

macro_rules! links {
    ($($name:ident: $provider:literal, $scenario:literal;)*) => {$(
        #[test]
        fn $name() {
            links($provider, $scenario);
        }
    )*};
}

links! {
    both_sides_of_a_connection_shut_down: "tcp", "both_shut";
    both_sides_of_a_connection_shut_down_within_a_host: "shm", "both_shut";
    connections_leave_from_the_address_that_was_given: "tcp", "source";
    a_call_that_failed_may_be_made_again: "tcp", "again";
    a_call_that_failed_may_be_made_again_within_a_host: "shm", "again";
    a_connected_endpoint_takes_no_other_peer: "tcp", "stranger";
    a_connected_endpoint_takes_no_other_peer_within_a_host: "shm", "stranger";
    a_process_that_takes_the_name_of_a_dead_one_does_not_get_its_links: "shm", "usurped";
    absent_memory_of_one_peer_does_not_stop_the_others: "shm", "frozen";
}

/// Applications that make no more calls, although peers wait for what they have posted or read.
fn silence(provider: &str, scenario: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    run(provider, PROGRAM.get_or_init(|| compile("silence.c")), &[scenario], 60);
}

macro_rules! silence {
    ($($name:ident: $provider:literal, $scenario:literal;)*) => {$(
        #[test]
        fn $name() {
            silence($provider, $scenario);
        }
    )*};
}

silence! {
    what_was_injected_arrives_without_another_call: "tcp", "injected";
    what_was_injected_arrives_without_another_call_within_a_host: "shm", "injected";
    the_first_message_arrives_without_another_call: "tcp", "first";
    the_first_message_arrives_without_another_call_within_a_host: "shm", "first";
    what_reports_nothing_arrives_without_another_call: "tcp", "unreported";
    what_reports_nothing_arrives_without_another_call_within_a_host: "shm", "unreported";
    what_was_read_is_acknowledged_without_another_call: "tcp", "transmitted";
    what_was_read_is_acknowledged_without_another_call_within_a_host: "shm", "transmitted";
    what_was_delivered_is_acknowledged_without_another_call: "tcp", "delivered";
    what_was_delivered_is_acknowledged_without_another_call_within_a_host: "shm", "delivered";
    what_was_matched_is_acknowledged_without_another_call: "tcp", "matched";
    what_was_matched_is_acknowledged_without_another_call_within_a_host: "shm", "matched";
    what_was_written_is_acknowledged_without_another_call: "tcp", "written";
    what_was_written_is_acknowledged_without_another_call_within_a_host: "shm", "written";
    what_is_long_and_reports_nothing_arrives_without_another_call: "tcp", "unreported_long";
    what_is_long_and_reports_nothing_arrives_without_another_call_within_a_host: "shm", "unreported_long";
    what_was_read_is_acknowledged_although_entries_are_left: "tcp", "unread_entries";
    what_was_read_is_acknowledged_although_entries_are_left_within_a_host: "shm", "unread_entries";
    what_was_there_already_is_acknowledged_without_another_call: "tcp", "matched_late";
    what_was_there_already_is_acknowledged_without_another_call_within_a_host: "shm", "matched_late";
    what_is_read_on_a_full_link_is_acknowledged_without_another_call: "tcp", "crowded";
    what_is_read_on_a_full_link_is_acknowledged_without_another_call_within_a_host: "shm", "crowded";
    what_the_kernel_has_taken_in_part_arrives_without_another_call: "tcp", "refused";
    nothing_wakes_an_application_that_sleeps_on_a_full_link: "tcp", "asleep";
    nothing_wakes_an_application_that_sleeps_on_a_full_link_within_a_host: "shm", "asleep";
    what_there_was_room_for_arrives_without_another_call_within_a_host: "shm", "refused";
    what_was_accepted_arrives_although_its_process_exits: "tcp", "exits";
    what_was_accepted_arrives_although_its_process_exits_within_a_host: "shm", "exits";
    an_exit_waits_for_a_peer_that_does_not_answer_but_not_for_long: "tcp", "exits_unheard";
    an_exit_waits_for_a_peer_that_does_not_answer_but_not_for_long_within_a_host: "shm", "exits_unheard";
    an_exit_sends_what_can_leave_beside_what_cannot: "tcp", "exits_beside";
    an_exit_sends_what_can_leave_beside_what_cannot_within_a_host: "shm", "exits_beside";
    a_forked_process_exits_without_waiting_for_what_its_parent_holds: "tcp", "exits_forked";
    a_forked_process_exits_without_waiting_for_what_its_parent_holds_within_a_host: "shm", "exits_forked";
}

/// Readers and writers with random timing; `OFI_WAKES` sets the number of events.
fn wakes(kind: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compile("wakes.c"));
    // Alone: two such programs of four yielding threads on two cores starve each other's readers
    // and take ten times as long.
    Run::new(program, 900).argument(kind).on(fabric()).alone().check();
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
    no_wakeup_is_missed_on_a_condition_with_a_progress_thread: "cq_mutex_cond_auto";
    no_wakeup_is_missed_on_the_condition_of_a_wait_set: "cq_mutex_cond_set";
    no_wakeup_is_missed_by_blocking_reads_of_events: "eq_unspec";
    no_wakeup_is_missed_on_a_descriptor_of_events: "eq_fd";
    no_wakeup_is_missed_while_yielding_for_events: "eq_yield";
    no_wakeup_is_missed_in_a_wait_set_of_events: "eq_set";
    no_wakeup_is_missed_on_a_condition_of_events: "eq_mutex_cond";
}
