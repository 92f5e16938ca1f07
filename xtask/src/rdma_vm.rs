//! `xtask rdma-vm`: tests in a virtual machine. One part compares rdma_getaddrinfo with librdmacm
//! on a software RDMA device; the other cuts the power after writes to persistent memory.

use crate::disk;
use crate::run::{Outcome, build_all, cargo, output, run};
use std::path::Path;
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Runs one part only
    #[arg(long)]
    only: Option<Part>,
    /// Writes the answers to rdma/ROWS.md instead of comparing them with it; runs no other part
    #[arg(long, conflicts_with = "only")]
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// rdma_getaddrinfo beside librdmacm's
    Rdma,
    /// Committed writes and a power failure
    Pmem,
}

/// The Debian packages of the required programs and headers.
const PACKAGES: &str = "qemu-system-x86 busybox-static cpio binutils xz-utils e2fsprogs iproute2 ibverbs-providers \
                        librdmacm-dev libibverbs-dev libfabric-bin perftest";

/// Builds the guest and runs the parts in it.
pub(crate) fn rdma_vm(options: &Options) -> Outcome {
    let folder = disk::target().join("rdma-vm");
    disk::make(folder.join("share"))?;
    needs(run(Command::new("testing/rdma-vm/prepare.sh").arg(&folder)))?;
    if options.only != Some(Part::Pmem) {
        rdma(&folder, options.write)?;
    }
    if options.only != Some(Part::Rdma) && !options.write {
        pmem(&folder)?;
    }
    Ok(())
}

/// Runs `testing/rdma-vm/rdma.sh` and compares the answers with the table.
fn rdma(folder: &Path, write: bool) -> Outcome {
    let share = folder.join("share");
    build_all()?;
    disk::copy(disk::target().join("debug/librdmaaddrinfo.so"), share.join("librdmaaddrinfo.so.1"))?;
    for (program, libraries) in [("rows", &["-ldl"][..]), ("ep", &["-lrdmacm", "-libverbs", "-ldl"])] {
        let mut cc = cc(&share.join(program));
        needs(run(cc.arg("-Irdma/ffi/include").arg(format!("testing/rdma/{program}.c")).args(libraries)))?;
    }
    boot(folder, &["rdma"])?;
    let test = "answers_are_those_of_the_table";
    let mut compare = cargo(&["test", "--workspace", "--test", "c_programs", "--", "--exact", test]);
    compare.env("OFI_RDMA_ROWS", &share);
    if write {
        compare.env("OFI_RDMA_ROWS_WRITE", "1");
    }
    let said = output(&mut compare)?;
    println!("{said}");
    if said.contains("1 passed") { Ok(()) } else { Err(format!("the test {test} did not run")) }
}

/// Runs `testing/rdma-vm/pmem.sh` on a new disk. Each boot checks the memory that the previous
/// power failure has left.
fn pmem(folder: &Path) -> Outcome {
    let share = folder.join("share");
    build_all()?;
    let library = share.join("libfabric.so.1");
    disk::copy(disk::target().join("debug/libfabric.so"), &library)?;
    let mut cc = cc(&share.join("pmem"));
    cc.args(["-Icapi/include", "-Icapi/tests/c", "-Itesting/harness/c", "testing/rdma-vm/pmem.c"]).arg(&library);
    needs(run(&mut cc))?;
    let image = folder.join("disk.img");
    disk::write(&image, "")?;
    needs(run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("32M")))?;
    boot(folder, &["pmem", "WRITE=tcp"])?;
    boot(folder, &["pmem", "CHECK=tcp", "WRITE=shm"])?;
    boot(folder, &["pmem", "CHECK=shm"])
}

pub(crate) fn cc(program: &Path) -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program);
    cc
}

pub(crate) fn boot(folder: &Path, arguments: &[&str]) -> Outcome {
    needs(run(Command::new("testing/rdma-vm/boot.sh").arg(folder).args(arguments)))
}

pub(crate) fn needs(outcome: Outcome) -> Outcome {
    outcome.map_err(|error| format!("{error} (if a program or a header is missing: Debian has them in {PACKAGES})"))
}
