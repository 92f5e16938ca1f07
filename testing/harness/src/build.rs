//! Builds of this tree, made once and shared by all test programs of a run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// How long the libraries of earlier builds are kept: a test may still run on them.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// A shared library in a folder of its own, under the name that the loader looks for.
#[derive(Debug)]
pub struct Library {
    folder: PathBuf,
    soname: &'static str,
}

impl Library {
    /// The folder, for `LD_LIBRARY_PATH`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.folder.join(self.soname)
    }
}

/// True if the libraries under test are instrumented by AddressSanitizer (`OFI_TEST_ASAN`).
pub fn is_sanitized() -> bool {
    std::env::var_os("OFI_TEST_ASAN").is_some()
}

/// True if a library contains the calls that AddressSanitizer adds.
pub fn is_instrumented(library: &Library) -> bool {
    let bytes = std::fs::read(library.file()).unwrap_or_else(|error| panic!("{}: {error}", library.file().display()));
    let needle = b"__asan_report_load";
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// The profile folder that this test program was built into, such as `target/debug`.
fn profile() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let program = std::env::current_exe().expect("a test program knows its own path");
        let deps = program.ancestors().find(|folder| folder.ends_with("deps"));
        deps.and_then(Path::parent).expect("cargo builds test programs into a folder deps").to_path_buf()
    })
}

/// The target folder.
pub fn target() -> &'static Path {
    profile().parent().expect("a profile's folder is in the target folder")
}

/// A file of this tree's build, such as a tool, rebuilt if it is out of date.
pub fn built(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--workspace", "--lib", "--bins", "--target-dir"]);
        build.arg(target()).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile().ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().unwrap_or_else(|error| panic!("{build:?}: {error}"));
        assert!(status.success(), "{build:?}: {status}");
    });
    profile().join(name)
}

/// `libfabric.so.1`.
pub fn fabric() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| library("libfabric.so", "libfabric.so.1", "OFI_TEST_LIBRARY"))
}

/// `librdmaaddrinfo.so.1`.
pub fn rdma() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| library("librdmaaddrinfo.so", "librdmaaddrinfo.so.1", "OFI_TEST_RDMA_LIBRARY"))
}

/// Copies a build to a folder named after it, so that programs on an earlier build keep theirs.
fn library(name: &str, soname: &'static str, variable: &str) -> Library {
    let file = std::env::var_os(variable).map_or_else(|| built(name), PathBuf::from);
    let state = std::fs::metadata(&file).and_then(|data| Ok((data.len(), data.modified()?)));
    let (len, modified) = state.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let age = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let shelf = target().join("harness").join(soname);
    let folder = shelf.join(format!("{age:x}-{len:x}"));
    if !folder.join(soname).exists() {
        drop_old(&shelf);
        let fresh = shelf.join(format!("{age:x}-{}", std::process::id()));
        std::fs::create_dir_all(&fresh).unwrap_or_else(|error| panic!("{}: {error}", fresh.display()));
        std::fs::copy(&file, fresh.join(soname)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if std::fs::rename(&fresh, &folder).is_err() {
            // Another test program was faster.
            drop(std::fs::remove_dir_all(&fresh));
        }
    }
    Library { folder, soname }
}

fn drop_old(shelf: &Path) {
    let Ok(entries) = std::fs::read_dir(shelf) else { return };
    for entry in entries.flatten() {
        let old = entry.metadata().and_then(|data| data.modified()).is_ok_and(|time| {
            // If the clock was set back, no build counts as old.
            time.elapsed().is_ok_and(|age| age > KEPT)
        });
        if old {
            // Another test program may be doing the same.
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}
