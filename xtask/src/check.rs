//! `xtask check`: the checks that every commit must pass.

use crate::abi;
use crate::api;
use crate::disk;
use crate::run::{Outcome, cargo, files, output, root, run};
use crate::statements;
use crate::structure;
use std::process::Command;

/// The workspace crates that each crate may depend on: lower layers only.
const LAYERS: &[(&str, &[&str])] = &[
    ("ofi-abi", &[]),
    ("ofi-core", &[]),
    ("ofi-sync", &["ofi-core"]),
    ("ofi-memory", &["ofi-core", "ofi-sync", "ofi-harness"]),
    ("ofi-os", &["ofi-core", "ofi-memory", "ofi-sync"]),
    ("ofi-engine", &["ofi-core", "ofi-memory", "ofi-sync"]),
    ("ofi-tcp", &["ofi-core", "ofi-memory", "ofi-sync", "ofi-engine", "ofi-os"]),
    ("ofi-shm", &["ofi-core", "ofi-memory", "ofi-sync", "ofi-engine", "ofi-os", "ofi-rig"]),
    ("ofi-udp", &["ofi-core", "ofi-memory", "ofi-engine", "ofi-os"]),
    ("ofi-verbs", &["ofi-core", "ofi-memory", "ofi-sync", "ofi-engine", "ofi-os"]),
    ("ofi-registry", &["ofi-core", "ofi-engine", "ofi-os", "ofi-sync", "ofi-tcp", "ofi-shm", "ofi-udp", "ofi-verbs"]),
    ("ofi-loader", &["ofi-abi", "ofi-core", "ofi-os"]),
    ("ofi-hooks", &["ofi-abi", "ofi-core", "ofi-os", "ofi-sync"]),
    ("ofi", &["ofi-core", "ofi-memory", "ofi-sync", "ofi-engine", "ofi-os", "ofi-registry", "ofi-sim", "ofi-tcp"]),
    (
        "ofi-capi",
        &[
            "ofi-abi",
            "ofi-core",
            "ofi-memory",
            "ofi-sync",
            "ofi-engine",
            "ofi-os",
            "ofi-registry",
            "ofi-loader",
            "ofi-hooks",
            "ofi-harness",
        ],
    ),
    ("ofi-rdma", &["ofi-core", "ofi-os"]),
    ("ofi-rdma-ffi", &["ofi-core", "ofi-os", "ofi-sync", "ofi-rdma", "ofi-harness"]),
    ("ofi-tools", &["ofi", "ofi-rdma"]),
    ("ofi-harness", &[]),
    ("ofi-rig", &["ofi-core", "ofi-memory", "ofi-sync", "ofi-engine", "ofi-os"]),
    ("ofi-loopback", &["ofi-core", "ofi-memory", "ofi-sync", "ofi-engine", "ofi-os"]),
    ("ofi-sim", &["ofi-core", "ofi-memory", "ofi-sync", "ofi-engine", "ofi-os", "ofi-rig", "ofi-tcp", "ofi-shm"]),
    (
        "ofi-conformance",
        &[
            "ofi-core",
            "ofi-memory",
            "ofi-sync",
            "ofi-engine",
            "ofi-os",
            "ofi-tcp",
            "ofi-shm",
            "ofi-verbs",
            "ofi-rig",
            "ofi-sim",
            "ofi-loopback",
        ],
    ),
    ("xtask", &["ofi-tools"]),
];

/// Paths that may contain unsafe code; `UNSAFE.md` gives the reasons.
const UNSAFE: &[&str] = &[
    "memory/src/",
    "sync/src/",
    "os/src/",
    "providers/shm/src/region.rs",
    "providers/shm/tests/",
    "providers/verbs/src/ffi",
    "loader/src/table.rs",
    "loader/src/trial.rs",
    "hooks/src/call.rs",
    "hooks/src/copies.rs",
    "hooks/src/fabric.rs",
    "hooks/src/stubs.rs",
    "capi/src/",
    "rdma/ffi/src/",
    "testing/sim/tests/",
    "api/src/buf.rs",
    "api/src/foreign.rs",
    "api/tests/queues.rs",
    "api/src/table.rs",
    "benches/",
];

/// Maximum size of the stripped library in bytes, so that growth does not go unnoticed.
const MOST_BYTES: u64 = 133 << 15;

/// Runs all checks.
pub(crate) fn all() -> Outcome {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    run(cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))?;
    features()?;
    layers()?;
    for (what, problems) in structure::problems()? {
        finish(what, problems)?;
    }
    unsafe_code()?;
    atomics()?;
    abi::verify()?;
    api::api(&api::Options::default())?;
    licences()?;
    statements::verify()?;
    library()
}

/// Every combination of tcp, shm and udp builds without warnings, and so do verbs alone and the
/// Rust library with each reactor.
fn features() -> Outcome {
    let providers = ["tcp", "shm", "udp"];
    let combinations = (0..1 << providers.len()).map(|chosen| {
        let of = |(bit, name): (usize, &&'static str)| (chosen >> bit & 1 == 1).then_some(*name);
        providers.iter().enumerate().filter_map(of).collect::<Vec<_>>()
    });
    for names in combinations.chain([vec!["verbs"]]) {
        let mut clippy = cargo(&["clippy", "-p", "ofi", "-p", "ofi-capi", "-p", "ofi-tools", "--quiet"]);
        clippy.args(["--no-default-features", "--features", &names.join(","), "--", "-D", "warnings"]);
        run(&mut clippy)?;
    }
    for reactors in ["tokio", "async-io", "tokio,async-io,bytes,sim,tracing"] {
        let mut clippy = cargo(&["clippy", "-p", "ofi", "--all-targets", "--quiet", "--features", reactors]);
        run(clippy.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

fn layers() -> Outcome {
    let text = output(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mut problems = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            problems.push(format!("{name} is missing from LAYERS"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = dependency["name"].as_str().unwrap_or_default();
            let ours = LAYERS.iter().any(|(layer, _)| *layer == other);
            if ours && !allowed.contains(&other) {
                problems.push(format!("{name} may not depend on {other}"));
            }
        }
    }
    finish("layers", problems)
}

fn unsafe_code() -> Outcome {
    let mut problems = Vec::new();
    for path in files("rs")? {
        let allowed = UNSAFE.iter().any(|place| path.starts_with(place));
        if allowed || path.starts_with("xtask/") {
            continue;
        }
        let text = disk::read(root().join(&path))?;
        for (number, line) in text.lines().enumerate() {
            // A function pointer type is not unsafe code.
            let code = line.split("//").next().unwrap_or_default().replace("unsafe extern \"C\" fn(", "");
            if ["{", "fn", "impl", "extern"].iter().any(|word| code.contains(&["unsafe", word].join(" "))) {
                problems.push(format!("{path}:{}: unsafe code outside the modules that may hold it", number + 1));
            }
        }
    }
    finish("unsafe code", problems)
}

fn atomics() -> Outcome {
    let mut problems = Vec::new();
    for path in files("rs")?.into_iter().filter(|path| !path.starts_with("sync/") && !path.starts_with("xtask/")) {
        let text = disk::read(root().join(&path))?;
        if text.contains("sync::atomic") {
            problems.push(format!("{path}: import atomics from ofi_sync::primitive"));
        }
    }
    finish("atomics", problems)
}

fn licences() -> Outcome {
    let mut deny = Command::new("cargo-deny");
    let installed = Command::new("cargo-deny").arg("--version").output().is_ok();
    if !installed {
        let missing = "cargo-deny is not installed: licences, sources and banned crates are not checked";
        return if std::env::var("CI").is_ok_and(|ci| ci == "true") { Err(missing.into()) } else { skip(missing) };
    }
    run(deny.args(["--log-level", "error", "check", "bans", "licenses", "sources"]))
}

fn skip(what: &str) -> Outcome {
    println!("skipped: {what}");
    Ok(())
}

/// Checks the size of the library without debug information. Built beside what other steps build:
/// from nothing, it would take two minutes.
fn library() -> Outcome {
    run(&mut cargo(&["build", "--release", "-p", "ofi-capi", "--quiet"]))?;
    let folder = disk::target().join("release");
    let stripped = folder.join("libfabric.stripped.so");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(folder.join("libfabric.so")))?;
    let size = disk::size(&stripped)?;
    println!("the library is {size} bytes without debug information");
    if size > MOST_BYTES { Err(format!("the library is larger than {MOST_BYTES} bytes")) } else { Ok(()) }
}

fn finish(what: &str, problems: Vec<String>) -> Outcome {
    if problems.is_empty() {
        println!("{what}: good");
        return Ok(());
    }
    Err(format!("{what}:\n  {}", problems.join("\n  ")))
}
