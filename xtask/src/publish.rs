//! Whether the crates could be published.

use crate::disk;
use crate::run::{Outcome, cargo, json, run};
use std::path::{Path, PathBuf};

/// Builds each crate from its package, with the packages of the crates that it depends on.
pub(crate) fn publish() -> Outcome {
    let metadata = json(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let names: Vec<String> = packages
        .iter()
        .filter_map(|package| Some(format!("{}-{}", package["name"].as_str()?, package["version"].as_str()?)))
        .collect();
    forget(&cargo_home()?.join("registry/src"), &names)?;
    let folder = disk::target().join("publish");
    if folder.is_dir() {
        disk::remove(&folder)?;
    }
    run(cargo(&["publish", "--workspace", "--dry-run", "--allow-dirty", "--target-dir"]).arg(&folder))?;
    disk::remove(&folder)
}

/// Removes what cargo has unpacked of these packages from registries on this machine.
///
/// The dry run keeps the new packages in such a registry. Cargo takes a package that it has
/// unpacked or built once for unchanged as long as its version is, so without this, and a target
/// folder of its own, a crate is built with its siblings as the first dry run found them.
fn forget(unpacked: &Path, names: &[String]) -> Outcome {
    if !unpacked.is_dir() {
        return Ok(());
    }
    for registry in disk::list(unpacked)? {
        // A folder is named by the registry's host, which one on this machine lacks, and a hash.
        if registry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('-')) {
            for package in names.iter().map(|name| registry.join(name)).filter(|package| package.is_dir()) {
                disk::remove(package)?;
            }
        }
    }
    Ok(())
}

/// Cargo's home folder, found as cargo finds it.
fn cargo_home() -> Result<PathBuf, String> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    std::env::home_dir().map(|home| home.join(".cargo")).ok_or_else(|| "no home folder: set CARGO_HOME".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unpacked_packages_of_local_registries_are_forgotten() {
        let root = disk::target().join("publish-test");
        let (local, remote) = (root.join("-0123"), root.join("index.example.com-4567"));
        let kept = [local.join("serde-1.0.0"), local.join("ofi-0.0.1"), remote.join("ofi-0.1.0")];
        for folder in kept.iter().chain([&local.join("ofi-0.1.0")]) {
            disk::make(folder).unwrap();
        }
        forget(&root, &["ofi-0.1.0".to_owned(), "ofi-tcp-0.1.0".to_owned()]).unwrap();
        assert!(kept.iter().all(|folder| folder.is_dir()));
        assert!(!local.join("ofi-0.1.0").exists());
        disk::remove(&root).unwrap();
        forget(&root, &["ofi-0.1.0".to_owned()]).unwrap();
    }
}
