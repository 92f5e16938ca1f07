//! C programs of the tests, compiled when they or their headers have changed.

use crate::build::{Library, is_sanitized, target};
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which libfabric headers a program is compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Headers {
    /// This tree's.
    Ours,
    /// The installed ones of an older release (Debian's libfabric-dev).
    Installed,
}

/// A C program to compile.
#[derive(Debug)]
pub struct Program<'a> {
    source: PathBuf,
    name: String,
    arguments: Vec<OsString>,
    includes: Vec<PathBuf>,
    libraries: Vec<&'a Library>,
    shared: bool,
}

impl<'a> Program<'a> {
    /// A program of one source file. It may include the headers of `testing/harness/c`.
    pub fn new(source: impl Into<PathBuf>) -> Self {
        let source = source.into();
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let includes = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("c")];
        Self { source, name, arguments: Vec::new(), includes, libraries: Vec::new(), shared: false }
    }

    /// Sets the name of the output, for a source that builds several programs.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Adds a folder of headers.
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.includes.push(folder.into());
        self
    }

    /// Links a library of this tree.
    pub fn link(mut self, library: &'a Library) -> Self {
        self.libraries.push(library);
        self
    }

    /// Adds a compiler argument.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Builds a shared object.
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    fn command(&self, out: &Path) -> Command {
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]);
        // Test headers define more than each program uses, and deprecated calls are tested too.
        cc.args(["-Wno-deprecated-declarations", "-Wno-unused-function", "-Wno-unused-variable"]);
        if is_sanitized() {
            cc.arg("-fsanitize=address");
        }
        if self.shared {
            cc.args(["-shared", "-fPIC"]);
        }
        for folder in &self.includes {
            cc.arg("-I").arg(folder);
        }
        cc.arg(&self.source).arg("-o").arg(out);
        cc.args(self.libraries.iter().map(|library| library.file()));
        cc.args(&self.arguments).args(["-ldl", "-lpthread"]);
        cc
    }

    /// Hashes every input of the output except the libraries, which the loader finds at startup.
    fn hash(&self) -> u64 {
        let mut state = DefaultHasher::new();
        (&self.arguments, &self.includes, is_sanitized(), self.shared).hash(&mut state);
        let beside = self.source.parent().map(Path::to_path_buf);
        let above = beside.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        let folders = self.includes.iter().cloned().chain(beside).chain(above);
        let mut headers: Vec<PathBuf> = folders.flat_map(|folder| headers_in(&folder)).collect();
        headers.sort();
        for file in std::iter::once(&self.source).chain(&headers) {
            (file, std::fs::read(file).unwrap_or_default()).hash(&mut state);
        }
        state.finish()
    }

    /// Compiles the program if its output is missing; returns its path or an error message.
    pub fn compile(&self) -> Result<PathBuf, String> {
        let folder = target().join("harness/programs");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let out = folder.join(format!("{}-{:016x}", self.name, self.hash()));
        if out.exists() {
            return Ok(out);
        }
        // Other threads and processes may compile the same program at the same time.
        let thread = std::thread::current().id();
        let fresh = out.with_extension(format!("{}-{thread:?}", std::process::id()));
        let output = self.command(&fresh).output().map_err(|error| format!("a C compiler is missing: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} does not compile:\n{said}", self.source.display()));
        }
        std::fs::rename(&fresh, &out).map_err(|error| format!("{}: {error}", out.display()))?;
        Ok(out)
    }
}

/// The headers in a folder, recursively.
fn headers_in(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "h") {
            out.push(path);
        } else if path.is_dir() {
            out.extend(headers_in(&path));
        }
    }
    out
}
