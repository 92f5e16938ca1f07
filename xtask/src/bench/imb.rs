//! Samples of the Intel MPI Benchmarks, by PyPI's impi_rt, over a libfabric: the package has none
//! of its own. All messages pass the provider.

use crate::bench::case::Case;
use crate::bench::sample::{Settings, limited, printed};
use crate::bench::stats::Sample;
use crate::clients::{Package, home};
use crate::disk;
use std::path::{Path, PathBuf};

/// Most repetitions of a benchmark. Its time ends it before, or its own limit of volume: 640 of 64
/// KiB.
const MOST: &str = "1000000";

/// Intel MPI and its benchmarks.
#[derive(Debug)]
pub(crate) struct Imb {
    folder: PathBuf,
    /// A file with the length of the messages: by an option, the benchmarks would also run, and
    /// spend the time, without bytes.
    length: PathBuf,
}

impl Imb {
    /// Installs the package. `work` is the folder for temporary files.
    ///
    /// # Errors
    /// If it cannot be installed.
    pub(crate) fn open(work: &Path) -> Result<Self, String> {
        disk::make(home())?;
        Package::Intel.set_up()?;
        Ok(Self { folder: Package::Intel.folder(), length: work.join("length") })
    }

    /// Measures a case over the libfabric in `folder`.
    pub(crate) fn sample(
        &self,
        settings: &Settings,
        folder: &Path,
        case: &Case,
        round: usize,
    ) -> Result<Sample, String> {
        let path = format!("{}:{}", folder.display(), self.folder.join("lib").display());
        let cores = settings.cores_in(round).map(|core| core.to_string()).join(",");
        let mut command = limited(self.folder.join("bin/mpiexec.hydra"), settings.limit);
        command
            .env("LD_LIBRARY_PATH", path)
            .env("I_MPI_ROOT", &self.folder)
            .env("I_MPI_OFI_LIBRARY", folder.join("libfabric.so.1"))
            .env("I_MPI_FABRICS", "ofi")
            .env("I_MPI_OFI_PROVIDER", case.provider.word())
            .env("FI_PROVIDER", case.provider.word())
            .env("I_MPI_PIN_PROCESSOR_LIST", cores);
        let program = if case.is_one_sided_program() {
            // Without these, it emulates operations that the provider seems to lack.
            command
                .env("I_MPI_OFI_LIBRARY_INTERNAL", "0")
                .env("MPIR_CVAR_CH4_OFI_ENABLE_RMA", "1")
                .env("MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS", "1");
            "IMB-RMA"
        } else {
            "IMB-MPI1"
        };
        disk::write(&self.length, format!("{}\n", case.size))?;
        let seconds = f64::from(case.milliseconds / settings.share) / 1e3;
        command.args(["-n", &case.processes.to_string()]).arg(self.folder.join("bin").join(program));
        command.arg("-msglen").arg(&self.length).args(["-iter", MOST, "-time", &seconds.to_string()]);
        let text = printed(command.arg(case.pattern.word()), settings.limit)?;
        let value = time_of(&text, case.size)
            .ok_or_else(|| format!("no time for {} bytes: {:?}", case.size, text.lines().last()))?;
        Ok(Sample { round, value, before: 0.0, after: 0.0 })
    }
}

/// The time, in microseconds, in the first row for messages of `size` bytes: the only one, or the
/// average behind the least and the largest.
fn time_of(text: &str, size: usize) -> Option<f64> {
    let mut header = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"#bytes") {
            header = words;
        } else if words.first().and_then(|word| word.parse().ok()) == Some(size) {
            let at = header.iter().position(|name| name.starts_with("t_avg") || name.starts_with("t[usec]"))?;
            return words.get(at)?.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_found_by_the_header() {
        let ping = "# PingPong\n       #bytes #repetitions      t[usec]   Mbytes/sec\n            0         1000         1.05         0.00\n            8         1000         1.12         7.14\n";
        assert_eq!((time_of(ping, 8), time_of(ping, 16)), (Some(1.12), None));
        let all = "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n            8         1000         2.00         2.50         2.25\n";
        assert_eq!(time_of(all, 8), Some(2.25));
        assert_eq!(time_of("            8         1000         1.12\n", 8), None);
    }
}
