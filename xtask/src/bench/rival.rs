//! The libraries under comparison, with a check that the loader takes the right one.

use crate::bench::sample::{limited, printed};
use crate::disk;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A folder with a libfabric.so.1.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    pub(crate) folder: PathBuf,
    /// The version that the library reports.
    pub(crate) version: String,
}

impl Library {
    /// Reads the library's version through the program that will measure it.
    ///
    /// # Errors
    /// If the loader takes another library: the run would compare that one with itself.
    pub(crate) fn open(program: &Path, folder: &Path) -> Result<Self, String> {
        let folder = disk::canonical(folder)?;
        let mut command = limited(program, 20);
        let text = printed(command.args(["--pattern", "version"]).env("LD_LIBRARY_PATH", &folder), 20)?;
        let mut lines = text.lines();
        let (path, version) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let found = disk::canonical(Path::new(path))?;
        if found.parent() != disk::canonical(&folder.join("libfabric.so.1"))?.parent() {
            return Err(format!("{}: the loader took {} instead", folder.display(), found.display()));
        }
        Ok(Self { folder, version: version.to_owned() })
    }
}

/// Removes the shared memory that processes of the reference have left behind since then, named
/// after their pid: in a folder of thousands of such files, other programs take long to open their
/// own.
pub(crate) fn sweep(since: SystemTime) {
    for file in disk::list("/dev/shm").unwrap_or_default() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_new = || fs::metadata(&file).and_then(|status| status.modified()).is_ok_and(|at| at >= since);
        if owner_of(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) && is_new() {
            // If it is gone or another user's, there is nothing to do.
            drop(fs::remove_file(&file));
        }
    }
}

/// The process that made a file of shared memory, if the name is one that the reference gives.
fn owner_of(name: &str) -> Option<u32> {
    let (pid, rest) = name.split_once(':')?;
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    (rest.contains(':') && rest.split(':').all(is_number)).then(|| pid.parse().ok()).flatten()
}

/// The folder of the reference inside PyPI's mpich wheel, which is installed below target/ once.
pub(crate) fn reference() -> Result<PathBuf, String> {
    let venv = disk::target().join("bench/venv");
    let found = |venv: &Path| -> Option<PathBuf> {
        let lib = fs::read_dir(venv.join("lib")).ok()?;
        let mut places = vec![venv.join("lib/mpich")];
        places.extend(lib.filter_map(|entry| Some(entry.ok()?.path().join("site-packages/lib/mpich"))));
        places.into_iter().find(|dir| dir.join("libfabric.so.1").exists())
    };
    if let Some(dir) = found(&venv) {
        return Ok(dir);
    }
    crate::run::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut pip = crate::run::within(300, venv.join("bin/pip"));
    crate::run::run(pip.args(["install", "--quiet", "mpich==5.0.2"]))?;
    found(&venv).ok_or_else(|| "the mpich wheel holds no lib/mpich/libfabric.so.1".into())
}

/// The folder given by `--rival`: an installation, or a build folder, whose libfabric.so is copied
/// to its versioned name.
pub(crate) fn named(folder: &Path) -> Result<PathBuf, String> {
    if folder.join("libfabric.so.1").exists() {
        return Ok(folder.to_owned());
    }
    let built = folder.join("libfabric.so");
    if !built.exists() {
        return Err(format!("{} holds neither libfabric.so.1 nor libfabric.so", folder.display()));
    }
    let copy = disk::target().join("bench/rival");
    disk::make(&copy)?;
    disk::copy(built, copy.join("libfabric.so.1"))?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_named_after_a_process_have_an_owner() {
        assert_eq!((owner_of("8437:0:0"), owner_of("8437:0:0:1")), (Some(8437), Some(8437)));
        for name in ["8437", "8437:0", "8437:0:x", "ofi:0:0", ":0:0", "8437::0", "fi_shm://1:2:3"] {
            assert_eq!(owner_of(name), None, "{name}");
        }
    }
}
