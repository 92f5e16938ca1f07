//! `xtask install`: libraries with their soname and linker links, headers, pkg-config files, tools.

use crate::disk;
use crate::run::{Outcome, cargo, files, root, run};
use std::path::Path;

/// A library for C programs.
struct Library {
    /// Its name without `lib` and `.so`.
    name: &'static str,
    /// The version in the file name; its first number is the soname version.
    file_version: &'static str,
    /// The folder of its headers.
    headers: &'static str,
    /// The pkg-config name, followed by the description.
    package: &'static str,
    about: &'static str,
    version: &'static str,
}

const LIBRARIES: &[Library] = &[
    Library {
        name: "fabric",
        // Follows the library versions of upstream libfabric.
        file_version: "1.32.0",
        headers: "capi/include/",
        package: "libfabric",
        about: "OpenFabrics Interfaces, by ofi",
        version: "2.6.0",
    },
    Library {
        name: "rdmaaddrinfo",
        file_version: "1.0.0",
        headers: "rdma/ffi/include/",
        package: "rdmaaddrinfo",
        about: "rdma_getaddrinfo without rdma-core, by ofi",
        version: "1.0.0",
    },
];

/// Generates the manual pages of a tool and its subcommands from its option definitions.
fn manual_pages(command: clap::Command, folder: &Path) -> Outcome {
    clap_mangen::generate_to(command, folder).map_err(|error| format!("{}: {error}", folder.display()))
}

impl Library {
    fn install(&self, release: &Path, prefix: &Path) -> Outcome {
        let (lib, include) = (prefix.join("lib"), prefix.join("include"));
        let plain = format!("lib{}.so", self.name);
        let file = format!("{plain}.{}", self.file_version);
        let soname = format!("{plain}.{}", self.file_version.split('.').next().unwrap_or_default());
        let library = lib.join(&file);
        disk::copy(release.join(&plain), &library)?;
        disk::link(&file, &lib.join(&soname))?;
        disk::link(&soname, &lib.join(&plain))?;
        for header in files("h")?.iter().filter_map(|path| path.strip_prefix(self.headers)) {
            let target = include.join(header);
            if let Some(dir) = target.parent() {
                disk::make(dir)?;
            }
            disk::copy(root().join(self.headers).join(header), &target)?;
        }
        let description = format!(
            "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
             Name: {}\nDescription: {}\nVersion: {}\nLibs: -L${{libdir}} -l{}\nCflags: -I${{includedir}}\n",
            prefix.display(),
            self.package,
            self.about,
            self.version,
            self.name,
        );
        let file = lib.join("pkgconfig").join(format!("{}.pc", self.package));
        disk::write(&file, description)
    }
}

/// Installs everything under `prefix`.
pub(crate) fn install(prefix: &Path) -> Outcome {
    disk::make(prefix)?;
    let prefix = disk::canonical(prefix)?;
    run(&mut cargo(&["build", "--release", "-p", "ofi-capi", "-p", "ofi-rdma-ffi", "-p", "ofi-tools"]))?;
    let (bin, manual) = (prefix.join("bin"), prefix.join("share/man/man1"));
    for dir in [&bin, &manual, &prefix.join("lib/pkgconfig")] {
        disk::make(dir)?;
    }
    let release = disk::target().join("release");
    for library in LIBRARIES {
        library.install(&release, &prefix)?;
    }
    for command in ofi_tools::commands() {
        let name = command.get_name().to_owned();
        let tool = bin.join(&name);
        disk::copy(release.join(&name), &tool)?;
        manual_pages(command, &manual)?;
    }
    println!("installed into {}", prefix.display());
    Ok(())
}
