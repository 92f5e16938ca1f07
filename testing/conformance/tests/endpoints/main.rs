//! The endpoint suite over the transports of this workspace: `cargo test -p ofi-conformance --test
//! endpoints -- shm::` runs those of one.

mod media;

use libtest_mimic::Arguments;
use ofi_conformance::endpoint_trials;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut rows = endpoint_trials::<media::InMemory>();
    rows.extend(endpoint_trials::<media::Simulated>());
    rows.extend(endpoint_trials::<media::Loopback>());
    rows.extend(endpoint_trials::<media::SharedMemory>());
    if media::Hardware::is_named() {
        rows.extend(endpoint_trials::<media::Hardware>());
    }
    rows.extend(endpoint_trials::<media::SameProcess>());
    libtest_mimic::run(&Arguments::from_args(), rows).exit_code()
}
