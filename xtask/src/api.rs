//! `xtask api`: the public interface of the crate ofi. Its listing is in the repository, so that
//! each change of it is seen in review; a release may not take away what an earlier one of the same
//! compatibility had; and every public item has an example.

use crate::disk;
use crate::run::{Outcome, cargo, root, run};
use public_api::Builder;
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Writes the listings anew, and with --release also those of a release
    #[arg(long)]
    write: bool,
    /// Keeps the listings as those of the version that the workspace has now
    #[arg(long, requires = "write")]
    release: bool,
}

/// The crates whose items users see: ofi, and the one whose types it re-exports most.
const CRATES: [&str; 2] = ["ofi", "ofi-core"];

/// Kinds of items that have an example of their own; methods are in those of their types.
const WITH_EXAMPLES: [&str; 5] = ["struct", "enum", "trait", "function", "macro"];

/// Checks the interface, or writes its listings.
///
/// # Errors
/// A listing that differs from the code; an item that a release of the same compatibility had; an
/// item without an example.
pub(crate) fn api(options: &Options) -> Outcome {
    let folder = root().join("docs/api");
    for name in CRATES {
        let json = document(name)?;
        let current = listing(&json, name)?;
        if name == "ofi" {
            check_examples(&disk::read(&json)?)?;
        }
        let file = folder.join(format!("{name}.txt"));
        if options.write {
            disk::make(&folder)?;
            disk::write(&file, lines(&current))?;
        } else if disk::read(&file).unwrap_or_default() != lines(&current) {
            return Err(format!(
                "{} is not the interface of {name}; `cargo xtask api --write` writes it, and the change is for review",
                file.display()
            ));
        }
        if options.release {
            disk::write(folder.join(format!("{name}-{}.txt", env!("CARGO_PKG_VERSION"))), lines(&current))?;
        }
        check_releases(&folder, name, &current)?;
    }
    Ok(())
}

/// The crate's interface in rustdoc's JSON.
fn document(name: &str) -> Result<PathBuf, String> {
    let target = disk::target().join("api");
    let mut rustdoc = cargo(&["rustdoc", "--quiet", "--lib", "--all-features", "-p", name, "--target-dir"]);
    rustdoc.arg(&target).args(["--", "-Zunstable-options", "--output-format=json", "--cap-lints=allow"]);
    run(rustdoc.env("RUSTC_BOOTSTRAP", "1"))?;
    Ok(target.join("doc").join(name.replace('-', "_")).with_extension("json"))
}

/// The interface, an item a line. Which types of ofi may go to other threads is a part of it.
fn listing(json: &Path, name: &str) -> Result<Vec<String>, String> {
    let builder = Builder::from_rustdoc_json(json);
    let builder = builder.omit_blanket_impls(true).omit_auto_derived_impls(true);
    let builder = builder.omit_auto_trait_impls(name != "ofi");
    let api = builder.build().map_err(|error| {
        format!("read {}: {error}; another version of the crate public-api may know this toolchain", json.display())
    })?;
    Ok(api.items().map(ToString::to_string).collect())
}

fn lines(items: &[String]) -> String {
    items.iter().map(|item| format!("{item}\n")).collect()
}

/// Names the items without an example.
fn check_examples(json: &str) -> Outcome {
    let document: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let index = document["index"].as_object().ok_or("the document has no items")?;
    let members: HashSet<&Value> = index
        .values()
        .flat_map(|item| ["impl", "trait"].map(|kind| &item["inner"][kind]["items"]))
        .filter_map(Value::as_array)
        .flatten()
        .collect();
    let lacks = |item: &&Value| {
        let is_own = item["crate_id"] == 0 && item["visibility"] == "public" && !members.contains(&item["id"]);
        let kind = WITH_EXAMPLES.iter().any(|kind| !item["inner"][kind].is_null());
        // Users can neither name nor implement this trait.
        let hidden = item["name"] == "Sealed";
        is_own && kind && !hidden && !item["docs"].as_str().is_some_and(|docs| docs.contains("```"))
    };
    let mut names: Vec<&str> = index.values().filter(lacks).filter_map(|item| item["name"].as_str()).collect();
    names.sort_unstable();
    if names.is_empty() { Ok(()) } else { Err(format!("public items without an example: {}", names.join(", "))) }
}

/// A version: three numbers.
type Version = [u64; 3];

fn version(text: &str) -> Option<Version> {
    let numbers: Vec<u64> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// Whether a program for `old` may be built with `new`, as cargo decides it.
fn is_compatible(old: Version, new: Version) -> bool {
    let leading = |version: Version| version.iter().position(|part| *part > 0).unwrap_or(2);
    let upto = leading(old);
    new >= old && old[..=upto] == new[..=upto]
}

/// Names the items of compatible releases that are gone.
fn check_releases(folder: &Path, name: &str, current: &[String]) -> Outcome {
    let current: HashSet<&str> = current.iter().map(String::as_str).collect();
    let now = version(env!("CARGO_PKG_VERSION")).ok_or("the workspace has no version")?;
    for file in disk::list(folder)? {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some(release) = stem.strip_prefix(name).and_then(|rest| version(rest.strip_prefix('-')?)) else { continue };
        if is_compatible(release, now) {
            let had = disk::read(&file)?;
            let gone: Vec<&str> = had.lines().filter(|item| !current.contains(item)).collect();
            if !gone.is_empty() {
                let [major, minor, patch] = release;
                return Err(format!(
                    "{name} {major}.{minor}.{patch} had items that are gone or have changed; the next release needs \
                     another version:\n  {}",
                    gone.join("\n  ")
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compatible_as_cargo_takes_them() {
        let compatible = |old, new| is_compatible(version(old).unwrap(), version(new).unwrap());
        assert!(compatible("1.2.3", "1.4.0") && compatible("0.1.0", "0.1.7") && compatible("0.0.3", "0.0.3"));
        assert!(!compatible("1.2.3", "2.0.0") && !compatible("0.1.0", "0.2.0") && !compatible("0.0.3", "0.0.4"));
        assert!(!compatible("1.2.3", "1.2.2"), "an older one");
        assert!(version("1.2").is_none() && version("1.2.x").is_none());
    }

    #[test]
    fn an_item_that_a_release_had_may_not_go() {
        let folder = std::env::temp_dir().join(format!("ofi-api-{}", std::process::id()));
        disk::make(&folder).unwrap();
        disk::write(
            folder.join(format!("ofi-{}.txt", env!("CARGO_PKG_VERSION"))),
            "pub fn ofi::a()\npub fn ofi::b()\n",
        )
        .unwrap();
        disk::write(folder.join("ofi-core-0.0.1.txt"), "pub fn ofi_core::c()\n").unwrap();
        let check =
            |items: &[&str]| check_releases(&folder, "ofi", &items.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(check(&["pub fn ofi::a()", "pub fn ofi::b()", "pub fn ofi::new()"]), Ok(()));
        assert!(check(&["pub fn ofi::a(u32)", "pub fn ofi::b()"]).unwrap_err().ends_with("\n  pub fn ofi::a()"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn items_without_an_example_are_named() {
        let json = r#"{"index": {
            "1": {"id": 1, "crate_id": 0, "visibility": "public", "name": "With", "docs": "```\n```", "inner": {"struct": {}}},
            "2": {"id": 2, "crate_id": 0, "visibility": "public", "name": "Without", "docs": "text", "inner": {"struct": {}}},
            "3": {"id": 3, "crate_id": 0, "visibility": "public", "name": "method", "docs": null, "inner": {"function": {}}},
            "4": {"id": 4, "crate_id": 0, "visibility": "default", "name": null, "docs": null, "inner": {"impl": {"items": [3]}}},
            "5": {"id": 5, "crate_id": 7, "visibility": "public", "name": "Other", "docs": null, "inner": {"struct": {}}}
        }}"#;
        assert_eq!(check_examples(json), Err("public items without an example: Without".to_owned()));
    }
}
