//! `fi_pingpong`: measures latency and bandwidth of messages (fi_pingpong(1)).
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    ofi_tools::end("fi_pingpong", ofi_tools::pingpong::run(&ofi_tools::pingpong::Options::parse()))
}
