//! `xtask rdma-vm`: compares rdma_getaddrinfo with librdmacm's in a guest with a software RDMA
//! device.

use crate::disk;
use crate::run::{Outcome, cargo, output, root, run};
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Writes the answers to rdma/ROWS.md instead of comparing them with it
    #[arg(long)]
    write: bool,
}

/// The Debian packages of the required programs and headers.
const PACKAGES: &str = "qemu-system-x86 busybox-static cpio binutils xz-utils iproute2 ibverbs-providers librdmacm-dev \
                        libibverbs-dev";

/// Builds the guest, runs `testing/rdma-vm/run.sh` in it, and compares the answers with the table.
pub(crate) fn rdma_vm(options: &Options) -> Outcome {
    let folder = disk::target().join("rdma-vm");
    let share = folder.join("share");
    disk::make(&share)?;
    run(&mut cargo(&["build", "-p", "ofi-rdma-ffi"]))?;
    disk::copy(disk::target().join("debug/librdmaaddrinfo.so"), share.join("librdmaaddrinfo.so.1"))?;
    disk::copy(root().join("testing/rdma-vm/run.sh"), share.join("run.sh"))?;
    for (program, libraries) in [("rows", &["-ldl"][..]), ("ep", &["-lrdmacm", "-libverbs", "-ldl"])] {
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Irdma/ffi/include", "-o"]);
        cc.arg(share.join(program)).arg(format!("testing/rdma/{program}.c")).args(libraries);
        needs(run(&mut cc))?;
    }
    needs(run(Command::new("testing/rdma-vm/prepare.sh").arg(&folder)))?;
    needs(run(Command::new("testing/rdma-vm/boot.sh").arg(&folder)))?;
    let test = "answers_are_those_of_the_table";
    let mut compare = cargo(&["test", "-p", "ofi-rdma-ffi", "--test", "c_programs", "--", "--exact", test]);
    compare.env("OFI_RDMA_ROWS", &share);
    if options.write {
        compare.env("OFI_RDMA_ROWS_WRITE", "1");
    }
    let said = output(&mut compare)?;
    println!("{said}");
    if said.contains("1 passed") { Ok(()) } else { Err(format!("the test {test} did not run")) }
}

fn needs(outcome: Outcome) -> Outcome {
    outcome.map_err(|error| format!("{error} (if a program or a header is missing: Debian has them in {PACKAGES})"))
}
