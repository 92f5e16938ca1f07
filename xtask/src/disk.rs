//! File system helpers whose errors name the file.

use crate::run::{cargo, json, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Cargo's target folder: from CARGO_TARGET_DIR, cargo's configuration, or `target`.
pub(crate) fn target() -> PathBuf {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    let find = || target_of(cargo(&["metadata", "--format-version", "1", "--no-deps"]));
    TARGET.get_or_init(|| find().unwrap_or_else(|_| root().join("target"))).clone()
}

fn target_of(mut metadata: Command) -> Result<PathBuf, String> {
    let metadata = json(&mut metadata)?;
    let folder = metadata["target_directory"].as_str().ok_or("cargo metadata has no target_directory")?;
    Ok(PathBuf::from(folder))
}

fn about<T>(result: std::io::Result<T>, path: &Path) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, String> {
    about(fs::read_to_string(path.as_ref()), path.as_ref())
}

pub(crate) fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Result<(), String> {
    about(fs::write(path.as_ref(), text), path.as_ref())
}

/// Creates a folder and its parents.
pub(crate) fn make(folder: impl AsRef<Path>) -> Result<(), String> {
    about(fs::create_dir_all(folder.as_ref()), folder.as_ref())
}

pub(crate) fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), String> {
    let (from, to) = (from.as_ref(), to.as_ref());
    fs::copy(from, to).map(drop).map_err(|error| format!("copy {} to {}: {error}", from.display(), to.display()))
}

/// Removes a folder and its contents.
pub(crate) fn remove(folder: impl AsRef<Path>) -> Result<(), String> {
    about(fs::remove_dir_all(folder.as_ref()), folder.as_ref())
}

/// A file's size, in bytes.
pub(crate) fn size(path: impl AsRef<Path>) -> Result<u64, String> {
    about(fs::metadata(path.as_ref()), path.as_ref()).map(|data| data.len())
}

/// The entries of a folder, sorted.
pub(crate) fn list(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>, String> {
    let folder = folder.as_ref();
    let entries = about(fs::read_dir(folder), folder)?;
    let mut out = entries.map(|entry| about(entry, folder).map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    out.sort();
    Ok(out)
}

/// Creates a symbolic link to `to` at `path`, replacing an existing file.
pub(crate) fn link(to: &str, path: &Path) -> Result<(), String> {
    if path.is_symlink() || path.exists() {
        about(fs::remove_file(path), path)?;
    }
    about(std::os::unix::fs::symlink(to, path), path)
}

/// A path with symbolic links resolved.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf, String> {
    about(path.canonicalize(), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_folder_is_where_cargo_builds_to() {
        let mut metadata = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
        metadata.env("CARGO_TARGET_DIR", "/nowhere/else");
        assert_eq!(target_of(metadata), Ok(PathBuf::from("/nowhere/else")));
    }

    #[test]
    fn errors_name_the_file() {
        let absent = Path::new("/no/such/file");
        for error in [
            read(absent).unwrap_err(),
            write(absent, "").unwrap_err(),
            copy(absent, "/no/such/place").unwrap_err(),
            remove(absent).unwrap_err(),
            list(absent).unwrap_err(),
            link("x", absent).unwrap_err(),
            canonical(absent).unwrap_err(),
        ] {
            assert!(error.contains("/no/such/file"), "{error}");
        }
    }
}
