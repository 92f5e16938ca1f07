//! `xtask providers`: fetches packages with loadable providers of vendors, for
//! `capi/tests/vendors.rs`.

use crate::clients::{Package, home};
use crate::disk;
use crate::run::{Outcome, run};
use std::process::Command;

/// Releases of Intel MPI whose providers differ: the last with `sockets`, and two of newer
/// interfaces.
const INTEL: &[&str] = &["2021.4.0", "2021.13.1", "2021.17.2"];

/// Installs what is missing.
pub(crate) fn fetch() -> Outcome {
    for release in INTEL {
        let folder = home().join(format!("impi-{release}"));
        let done = folder.join("complete");
        if done.exists() {
            continue;
        }
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let package = format!("impi_rt=={release}");
        run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "--no-deps", &package]))?;
        disk::write(&done, "")?;
    }
    Package::Mpich.set_up()?;
    Package::Open.set_up()
}
