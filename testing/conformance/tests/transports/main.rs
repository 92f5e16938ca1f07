//! The suite over the transports of this workspace: `cargo test -p ofi-conformance -- shm::` runs
//! those of one.

mod faulty;
mod same_process;
mod shm;
mod tcp;
mod verbs;
mod verbs_exposed;
mod verbs_hardware;
mod verbs_hostile;
mod verbs_order;
mod wire;

use libtest_mimic::Arguments;
use ofi_conformance::{ExpectedFailure, trials};
use std::process::ExitCode;

/// Known failures.
const EXPECTED: &[ExpectedFailure] = &[];

fn main() -> ExitCode {
    let mut rows = trials::<wire::InMemory>(EXPECTED);
    rows.extend(trials::<tcp::Simulated>(EXPECTED));
    rows.extend(trials::<tcp::Loopback>(EXPECTED));
    rows.extend(trials::<shm::SharedMemory>(EXPECTED));
    rows.extend(trials::<verbs::Simulated>(EXPECTED));
    rows.extend(verbs_order::trials());
    rows.extend(verbs_hostile::trials());
    if verbs_hardware::Hardware::is_named() {
        rows.extend(trials::<verbs_hardware::Hardware>(EXPECTED));
    }
    rows.extend(trials::<same_process::SameProcess>(EXPECTED));
    rows.extend(faulty::trials());
    libtest_mimic::run(&Arguments::from_args(), rows).exit_code()
}
