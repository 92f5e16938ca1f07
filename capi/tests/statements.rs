//! The cases of `tests/c/cases`: each is a test, compiled with our headers and with Debian's older
//! ones, over the library under test, and over the reference too if the case tests the manual.
//! `OFI_TEST_REFERENCE` names the reference's folder.

use libtest_mimic::{Arguments, Failed, Trial};
use ofi_harness::{Headers, Program, Run, fabric, in_ci, is_sanitized, target};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The reference, if a client package that contains it is installed.
fn reference() -> Option<PathBuf> {
    let named = std::env::var_os("OFI_TEST_REFERENCE").map(PathBuf::from);
    let known = ["clients/mpich/lib/mpich", "bench/venv/lib/mpich"].map(|place| target().join(place));
    named.into_iter().chain(known).find(|dir| dir.join("libfabric.so.1").exists())
}

/// Cases that are not run on the reference, because it deviates from its manual or the manual
/// leaves room. The text says what the reference does.
const REFERENCE_DIFFERS: &[(&str, &str)] = &[
    ("eq_close_rules", "aborts when an event queue with events is closed"),
    ("caps_local_remote_comm", "names loopback as able to reach other nodes"),
    ("getinfo_secondary_caps_rules", "an info of tcp;ofi_rxm lacks the requested FI_REMOTE_COMM"),
    ("caps_sides_need_rma_or_atomic", "offers FI_READ and the like without FI_RMA and FI_ATOMIC"),
    ("caps_rma_event_needs_a_target", "offers FI_RMA_EVENT without FI_REMOTE_READ and FI_REMOTE_WRITE"),
    ("caps_directed_recv_of_messages", "a directed receive matches an untagged message from any peer"),
    ("max_msg_size_enforced", "accepts a message that is larger than max_msg_size"),
    ("ep_close_discards_pending", "reports pending operations when their endpoint is closed"),
    ("av_open_rules", "an address vector does not carry its context"),
    ("av_insertsvc_resolves", "accepts a service that has no number"),
    ("ep_enable_missing_binds", "enables an endpoint that has no address vector"),
    ("cq_truncated_receive", "the error entry has no tag"),
    ("rdm_unreachable_send_error", "returns -FI_EAGAIN forever for a peer that refuses connections"),
    ("cq_error_without_completion", "as rdm_unreachable_send_error"),
    ("ep_selective_receives", "reports receives whose flags lack FI_COMPLETION, if the default has it"),
    ("caps_directed_recv_of_untagged", "gives an untagged message to a receive that names another sender"),
    ("tagged_peek_source", "a peek does not report the source"),
    ("domain_reports_directed_recv", "FI_DIRECTED_RECV is not among the capabilities of its domains"),
    ("cq_error_fields_unknown", "the error entry of a truncated message has no lengths"),
    ("cntr_counts_failed_sends", "as rdm_unreachable_send_error"),
    ("cq_strerror_text", "has no text for its own errors"),
    ("cq_sread_without_wait_object", "crashes"),
    ("trywait_before_blocking", "accepts a queue without a wait object"),
    ("poll_set_rules", "accepts undefined flags"),
    ("cq_fd_polls_readable", "a descriptor may reflect its queue only after the next read"),
    ("cq_sread_wakes_on_entry", "a blocked reader sleeps forever without the peer's progress"),
    ("atomic_valid_calls_hold", "accepts one more element than its valid calls report"),
    ("atomic_flags_of_calls", "an operation with these flags does not complete"),
    ("atomic_inject_is_limited", "accepts more than inject_size bytes"),
    ("rma_inject_buffer_is_reusable_at_once", "accepts more than inject_size bytes"),
    ("mr_registers_and_closes", "frees a region twice"),
    ("mr_bad_arguments_are_refused", "registers 0 bytes"),
    ("mr_offsets_span_several_buffers", "a region of several buffers covers only the first"),
];

/// Missing features, each with the case that shows it. The case must fail: as soon as it passes,
/// this test demands that it is enabled. Until then the statement's verdict is "not met: ... (case
/// NAME waits for the library)".
const WAITS: &[(&str, &str)] = &[];

fn compile(source: &Path, headers: Headers) -> Result<PathBuf, String> {
    let program = Program::new(source).link(fabric());
    match headers {
        Headers::Ours => program.include(Path::new(HERE).join("include")).compile(),
        Headers::Installed => program.named(&format!("{}-installed", stem(source))).compile(),
    }
}

fn stem(source: &Path) -> String {
    source.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// `must_run`: a missing prerequisite of the case is a failure.
fn run(program: &Path, case: &str, library: &Path, provider: &str, must_run: bool) -> Result<(), Failed> {
    let run = Run::new(program, 60).argument(case).variable("LD_LIBRARY_PATH", library);
    let run = run.variable("OFI_TEST_PROVIDER", provider).variable("FI_LOG_LEVEL", "warn");
    // Otherwise these headers or that library may lack a prerequisite.
    let run = if must_run { run.finds_everything() } else { run.may_find_nothing() };
    run.output().map(drop).map_err(Failed::from)
}

/// A waiting case must fail; when it passes, this test fails.
fn run_waiting(program: &Path, case: &str, library: &Path) -> Result<(), Failed> {
    match run(program, case, library, "tcp", true) {
        Ok(()) => Err(format!("{case} passes: remove it from WAITS and name it in a verdict").into()),
        Err(_) => Ok(()),
    }
}

/// The cases of a program, without helpers, and whether each applies only to this library.
fn list(program: &Path, library: &Path) -> Result<Vec<(String, bool)>, String> {
    let output = Command::new(program).arg("--list").env("LD_LIBRARY_PATH", library).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parse = |line: &str| line.split_once(' ').map(|(name, kind)| (name.to_owned(), kind == "ours"));
    let cases = text.lines().filter(|line| !line.ends_with(" helper"));
    Ok(cases.filter_map(parse).collect())
}

/// Files whose cases do not depend on the provider, so that they run over shm too.
const OVER_ANY: &[&str] = &[
    "atomics",
    "attributes",
    "av",
    "av_sets",
    "binding",
    "bounded",
    "buffered",
    "capabilities",
    "completions",
    "connections",
    "cntr_kinds",
    "collectives",
    "counters",
    "edges",
    "effects",
    "errors",
    "events",
    "groups",
    "levels",
    "limits",
    "matrix",
    "messages",
    "monitors",
    "mr",
    "objects",
    "order",
    "persistent",
    "profile",
    "progress",
    "queues",
    "rma",
    "scalable",
    "sets",
    "shared",
    "shared_avs",
    "sources",
    "tagged",
    "threads",
    "trigger",
    "waits",
    "watchers",
];
/// Cases of those files that need IP addresses.
const OVER_IP: &[&str] = &[
    "multicast_in_one_direction",
    "cntr_counts_failed_sends",
    "cq_error_without_completion",
    "rdm_unreachable_send_error",
    "cm_connects_from_its_port",
    "cm_setname_rules",
    "av_open_rules",
    "compat_av_map_accepted",
    "av_table_index_order",
    "av_lowest_free_index",
    "av_insert_failures_reported",
    "av_insert_flag_rules",
    "av_insert_duplicate_handle",
    "av_remove_rules",
    "av_lookup_rules",
    "av_insertsvc_resolves",
    "av_insertsvc_of_strings",
    "av_insertsym_ranges",
    "av_insertsym_names",
    "straddr_uri_form_v6",
    "av_user_id_handles",
    "av_event_insertions",
];

fn waits(case: &str) -> bool {
    WAITS.iter().any(|(name, _)| *name == case)
}

fn differs(case: &str) -> bool {
    REFERENCE_DIFFERS.iter().any(|(name, _)| *name == case)
}

fn trials() -> Result<Vec<Trial>, String> {
    let library = Arc::new(fabric().folder().to_owned());
    let folder = Path::new(HERE).join("tests/c/cases");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|error| error.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "c"))
        .collect();
    sources.sort();
    let debian = Path::new("/usr/include/rdma/fabric.h").exists();
    if !debian {
        eprintln!("the headers of libfabric-dev are missing: cases run with our own headers only");
    }
    let reference = reference().map(Arc::new);
    let mut out = Vec::new();
    if in_ci() && !debian {
        out.push(Trial::test("libfabric_dev_is_installed", || Err("the package libfabric-dev is missing".into())));
    }
    for source in &sources {
        let stem = stem(source);
        let ours = compile(source, Headers::Ours)?;
        let all = list(&ours, &library)?;
        let (waiting, cases): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|(name, _)| waits(name));
        for (case, _) in waiting {
            let (program, library) = (ours.clone(), library.clone());
            let name = format!("waits_for_ours::{stem}::{case}");
            out.push(Trial::test(name, move || run_waiting(&program, &case, &library)));
        }
        let mut add = |label: &str, program: &Path, library: &Arc<PathBuf>, cases: &[(String, bool)]| {
            for (case, _) in cases {
                let (program, library, name) = (program.to_owned(), library.clone(), case.clone());
                let must_run = label == "ours";
                let provider = if label == "shm" { "shm" } else { "tcp" };
                out.push(Trial::test(format!("{label}::{stem}::{case}"), move || {
                    run(&program, &name, &library, provider, must_run)
                }));
            }
        };
        add("ours", &ours, &library, &cases);
        if OVER_ANY.contains(&stem.as_str()) {
            let any = cases.iter().filter(|(name, _)| !OVER_IP.contains(&name.as_str())).cloned().collect::<Vec<_>>();
            add("shm", &ours, &library, &any);
        }
        if debian {
            let old = compile(source, Headers::Installed)?;
            add("debian_headers", &old, &library, &cases);
        }
        if let Some(reference) = reference.as_ref().filter(|_| !is_sanitized()) {
            let any: Vec<(String, bool)> = all.iter().filter(|(name, ours)| !ours && !differs(name)).cloned().collect();
            add("reference", &ours, reference, &any);
        }
    }
    Ok(out)
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A case waits as much as it runs.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    arguments.test_threads.get_or_insert(2 * cores);
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
