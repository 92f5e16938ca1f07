//! Folders with providers, and the programs that see them.

use ofi_harness::{Headers, Program, Run, fabric};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

pub(crate) fn client() -> &'static Path {
    static CLIENT: OnceLock<PathBuf> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let program = Program::new(Path::new(HERE).join("tests/c/loaded.c")).include(Path::new(HERE).join("include"));
        program.link(fabric()).compile().unwrap()
    })
}

/// The provider, built with these arguments and headers.
pub(crate) fn wrong(name: &str, arguments: &[&str], headers: Headers) -> PathBuf {
    let mut program = Program::new(Path::new(HERE).join("../testing/providers/wrong.c")).named(name).shared();
    if headers == Headers::Ours {
        program = program.include(Path::new(HERE).join("include"));
    }
    for argument in arguments {
        program = program.argument(*argument);
    }
    program.link(fabric()).compile().unwrap()
}

/// A folder with providers, and a cache of its own.
pub(crate) struct Place(pub(crate) tempfile::TempDir);

impl Place {
    /// Copies of the provider under these names, without the ending `-fi.so`.
    pub(crate) fn with(names: &[&str]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.add(&wrong("wrong.so", &[], Headers::Ours), names);
        place
    }

    pub(crate) fn add(&self, provider: &Path, names: &[&str]) {
        for name in names {
            std::fs::copy(provider, self.file(name)).unwrap();
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}-fi.so"))
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        let run = Run::new(client(), 120).on(fabric()).arguments(arguments);
        run.variable("FI_PROVIDER_PATH", self.0.path()).variable("XDG_CACHE_HOME", self.0.path().join("cache"))
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        text(&self.run(arguments))
    }

    /// The answer and the log.
    pub(crate) fn log(&self, arguments: &[&str]) -> (String, String) {
        both(&self.run(arguments).variable("FI_LOG_LEVEL", "info"))
    }
}

pub(crate) fn text(run: &Run) -> String {
    both(run).0
}

pub(crate) fn both(run: &Run) -> (String, String) {
    let output = run.output().unwrap().expect("nothing is missing");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr))
}

/// The names in a list of infos, each once in order; all built-in ones are "built in".
pub(crate) fn names(list: &str) -> Vec<String> {
    let built_in = ["tcp", "tcp;ofi_rxm", "shm", "udp", "verbs", "verbs;ofi_rxm"];
    let name = |line: &str| {
        let name = line.split(' ').next().unwrap_or_default();
        if built_in.contains(&name) { "built in".to_owned() } else { name.to_owned() }
    };
    let mut all: Vec<String> = list.lines().map(name).collect();
    all.dedup();
    all
}
