//! `fi_info`: lists fabric interfaces (fi_info(1)).
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ofi_tools::info::main()
}
