//! `xtask install`: the library with the links that linkers and loaders look for, headers, pkg-config, tools.

use crate::run::{Outcome, cargo, files, root, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The file behind the links; the numbers are those of the interface's library history.
const FILE: &str = "libfabric.so.1.32.0";

fn io<T>(result: std::io::Result<T>, path: &Path) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

fn link(target: &str, path: &Path) -> Outcome {
    if path.is_symlink() || path.exists() {
        io(fs::remove_file(path), path)?;
    }
    io(symlink(target, path), path)
}

/// The manual page of a tool, made from the definition of its options, and those of its subcommands.
fn manual_pages(command: clap::Command, folder: &Path) -> Outcome {
    clap_mangen::generate_to(command, folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Installs everything under `prefix`.
pub(crate) fn install(prefix: &Path) -> Outcome {
    io(fs::create_dir_all(prefix), prefix)?;
    let prefix = io(prefix.canonicalize(), prefix)?;
    run(&mut cargo(&["build", "--release", "-p", "ofi-capi", "-p", "ofi-tools"]))?;
    let (lib, bin, include) = (prefix.join("lib"), prefix.join("bin"), prefix.join("include"));
    let pkgconfig = lib.join("pkgconfig");
    for dir in [&lib, &bin, &pkgconfig] {
        io(fs::create_dir_all(dir), dir)?;
    }
    let release = root().join("target/release");
    let library = lib.join(FILE);
    io(fs::copy(release.join("libfabric.so"), &library), &library)?;
    link(FILE, &lib.join("libfabric.so.1"))?;
    link("libfabric.so.1", &lib.join("libfabric.so"))?;
    let manual = prefix.join("share/man/man1");
    io(fs::create_dir_all(&manual), &manual)?;
    for command in ofi_tools::commands() {
        let name = command.get_name().to_owned();
        let tool = bin.join(&name);
        io(fs::copy(release.join(&name), &tool), &tool)?;
        manual_pages(command, &manual)?;
    }
    for header in files("h")?.iter().filter_map(|path| path.strip_prefix("capi/include/")) {
        let target = include.join(header);
        if let Some(dir) = target.parent() {
            io(fs::create_dir_all(dir), dir)?;
        }
        io(fs::copy(root().join("capi/include").join(header), &target), &target)?;
    }
    let description = format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: libfabric\nDescription: OpenFabrics Interfaces, by ofi\nVersion: 2.6.0\n\
         Libs: -L${{libdir}} -lfabric\nCflags: -I${{includedir}}\n",
        prefix.display()
    );
    let file = pkgconfig.join("libfabric.pc");
    io(fs::write(&file, description), &file)?;
    println!("installed into {}", prefix.display());
    Ok(())
}
