//! Samples of MPICH's collective operations, by `benches/mpich.c` over a libfabric: PyPI's mpich
//! wheel, which rival.rs installs, has the library, its launcher and the compiler's wrapper.

use crate::bench::case::Case;
use crate::bench::sample::{Settings, cores_option, limited, take};
use crate::bench::stats::Sample;
use crate::run::root;
use std::path::{Path, PathBuf};
use std::process::Command;

/// MPICH and the program that measures it.
#[derive(Debug)]
pub(crate) struct Mpich {
    program: PathBuf,
    launcher: PathBuf,
    libraries: PathBuf,
}

impl Mpich {
    /// Compiles the program. `reference` is the folder of the wheel's libfabric.
    ///
    /// # Errors
    /// If the wheel is incomplete, or the program cannot be compiled.
    pub(crate) fn open(work: &Path, reference: &Path) -> Result<Self, String> {
        let libraries = reference.parent().ok_or("the mpich wheel has no folder of libraries")?;
        let folder = libraries.parent().ok_or("the mpich wheel has no folder")?;
        let (program, bench) = (work.join("mpich"), root().join("benches"));
        let mut cc = Command::new(folder.join("bin/mpicc"));
        cc.args(["-O3", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
        crate::run::run(cc.args(["mpich.c", "bench.c"].map(|source| bench.join(source))))?;
        Ok(Self { program, launcher: folder.join("bin/mpiexec.hydra"), libraries: libraries.to_owned() })
    }

    /// Measures a case over the libfabric in `folder`. All messages pass the provider: MPICH's own
    /// shared memory is off.
    pub(crate) fn sample(
        &self,
        settings: &Settings,
        folder: &Path,
        case: &Case,
        round: usize,
    ) -> Result<Sample, String> {
        let mut command = limited(&self.launcher, settings.limit);
        command
            .env("LD_LIBRARY_PATH", format!("{}:{}", folder.display(), self.libraries.display()))
            .env("FI_PROVIDER", case.provider.word())
            .env("MPIR_CVAR_CH4_NETMOD", "ofi")
            .env("MPIR_CVAR_NOLOCAL", "1");
        command.args(["-n", &case.processes.to_string()]).arg(&self.program).args(case.arguments());
        command.args(cores_option(settings.cores_in(round)));
        command.args(["--milliseconds", &(case.milliseconds / settings.share).to_string()]);
        take(&mut command, settings.limit, round)
    }
}
