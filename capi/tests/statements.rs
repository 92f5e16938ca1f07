//! The cases of `tests/c/cases`: every one is a test, compiled with our headers and with Debian's of an older release, over
//! the library under test, and, where it tests the manual rather than this library, over the reference too.
//! `OFI_TEST_LIBRARY` and `OFI_TEST_ASAN` as in `c_programs.rs`; `OFI_TEST_REFERENCE` names the reference's folder.

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn asan() -> bool {
    std::env::var_os("OFI_TEST_ASAN").is_some()
}

/// The folder with the library as loaders look for it.
fn library() -> Result<PathBuf, String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(if asan() { "cases-asan" } else { "cases" });
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let built = match std::env::var_os("OFI_TEST_LIBRARY") {
        Some(path) => PathBuf::from(path),
        None => {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let status = Command::new(cargo).args(["build", "-p", "ofi-capi"]).current_dir(HERE).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err("the library does not build".into());
            }
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debug/libfabric.so")
        }
    };
    std::fs::copy(&built, dir.join("libfabric.so.1")).map_err(|error| format!("{}: {error}", built.display()))?;
    Ok(dir)
}

/// The reference, if a client's package that brings it has been set up.
fn reference() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let named = std::env::var_os("OFI_TEST_REFERENCE").map(PathBuf::from);
    let known = ["clients/mpich/lib/mpich", "bench/venv/lib/mpich"].map(|place| target.join(place));
    named.into_iter().chain(known).find(|dir| dir.join("libfabric.so.1").exists())
}

/// Where the reference does not do what its manual says, or leaves open; these cases are not run on it.
const REFERENCE_DIFFERS: &[(&str, &str)] = &[
    ("eq_close_rules", "aborts when an event queue with events is closed"),
    ("caps_local_remote_comm", "names loopback as able to reach other nodes"),
    ("max_msg_size_enforced", "takes a message that is larger than max_msg_size"),
    ("ep_close_discards_pending", "completes what was pending when its endpoint is closed"),
    ("av_open_rules", "an address vector does not carry its context"),
    ("av_insertsvc_resolves", "accepts a service that has no number"),
    ("ep_enable_missing_binds", "enables an endpoint that has no address vector"),
    ("cq_truncated_receive", "the error entry has no tag"),
    ("rdm_unreachable_send_error", "answers EAGAIN for ever for a peer that refuses"),
    ("cq_error_without_completion", "as rdm_unreachable_send_error"),
    ("cq_strerror_text", "has no text for an error of its own"),
    ("cq_sread_without_wait_object", "crashes"),
    ("trywait_before_blocking", "takes a queue that has no wait object"),
    ("poll_set_rules", "takes flags that there are none of"),
    ("cq_fd_polls_readable", "a descriptor may follow its queue only at the next look"),
    ("cq_sread_wakes_on_entry", "a reader blocked without a peer's progress sleeps for ever"),
];

/// Which headers a program is compiled with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Headers {
    Ours,
    Debian,
}

fn compile(source: &Path, dir: &Path, headers: Headers) -> Result<PathBuf, String> {
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let suffix = if headers == Headers::Ours { "ours" } else { "debian" };
    let out = dir.join(format!("{stem}-{suffix}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable"]);
    cc.arg("-Wno-deprecated-declarations");
    if headers == Headers::Ours {
        cc.arg("-I").arg(Path::new(HERE).join("include"));
    }
    cc.arg(source).arg("-o").arg(&out).arg(dir.join("libfabric.so.1")).args(["-ldl", "-lpthread"]);
    if asan() {
        cc.arg("-fsanitize=address");
    }
    match cc.status() {
        Ok(status) if status.success() => Ok(out),
        Ok(_) => Err(format!("{} does not compile with {suffix} headers", source.display())),
        Err(error) => Err(format!("a C compiler is missing: {error}")),
    }
}

/// `must_run`: that the case finds what it needs is part of the test.
fn run(program: &Path, case: &str, library: &Path, provider: &str, must_run: bool) -> Result<(), Failed> {
    let output = Command::new("timeout")
        .args(["--kill-after=5", "60"])
        .arg(program)
        .arg(case)
        .env("LD_LIBRARY_PATH", library)
        .env("OFI_TEST_PROVIDER", provider)
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .env("FI_LOG_LEVEL", "warn")
        .output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => Ok(()),
        // What the case needs is not in these headers or not in that library.
        Some(77) if !must_run => Ok(()),
        _ => Err(format!("{}: {}\n{text}", program.display(), output.status).into()),
    }
}

/// The cases of a program, and whether each is about this library only.
fn list(program: &Path, library: &Path) -> Result<Vec<(String, bool)>, String> {
    let output = Command::new(program).arg("--list").env("LD_LIBRARY_PATH", library).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parse = |line: &str| line.split_once(' ').map(|(name, kind)| (name.to_owned(), kind == "ours"));
    Ok(text.lines().filter_map(parse).collect())
}

/// Files whose cases say nothing of a provider, so that they run over shm too.
const OVER_ANY: &[&str] = &["queues", "messages", "levels", "waits", "events", "objects", "progress"];
/// Cases of those files that work with addresses of IP.
const OVER_IP: &[&str] = &[
    "cq_error_without_completion",
    "rdm_unreachable_send_error",
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
    "av_user_id_handles",
];

fn differs(case: &str) -> bool {
    REFERENCE_DIFFERS.iter().any(|(name, _)| *name == case)
}

fn trials() -> Result<Vec<Trial>, String> {
    let dir = Arc::new(library()?);
    let folder = Path::new(HERE).join("tests/c/cases");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|error| error.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "c"))
        .collect();
    sources.sort();
    let debian = Path::new("/usr/include/rdma/fabric.h").exists();
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    if !debian {
        eprintln!("the headers of libfabric-dev are missing: cases run with our own headers only");
    }
    let reference = reference().map(Arc::new);
    let mut out = Vec::new();
    if in_ci && !debian {
        out.push(Trial::test("libfabric_dev_is_installed", || Err("the package libfabric-dev is missing".into())));
    }
    for source in &sources {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let ours = compile(source, &dir, Headers::Ours)?;
        let cases = list(&ours, &dir)?;
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
        add("ours", &ours, &dir, &cases);
        if OVER_ANY.contains(&stem.as_str()) {
            let any = cases.iter().filter(|(name, _)| !OVER_IP.contains(&name.as_str())).cloned().collect::<Vec<_>>();
            add("shm", &ours, &dir, &any);
        }
        if debian {
            let old = compile(source, &dir, Headers::Debian)?;
            add("debian_headers", &old, &dir, &cases);
        }
        if let Some(reference) = reference.as_ref().filter(|_| !asan()) {
            let any: Vec<(String, bool)> =
                cases.iter().filter(|(name, ours)| !ours && !differs(name)).cloned().collect();
            add("reference", &ours, reference, &any);
        }
    }
    Ok(out)
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
