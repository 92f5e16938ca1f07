//! `ofi`: tests and diagnoses the fabric library.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    ofi_tools::end("ofi", ofi_tools::Ofi::parse().run())
}
