//! `fi_strerror`: prints the text of an error number (fi_strerror(1)).
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    ofi_tools::end("fi_strerror", ofi_tools::strerror::run(&ofi_tools::strerror::Options::parse()))
}
