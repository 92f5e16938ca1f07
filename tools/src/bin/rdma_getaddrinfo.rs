//! `rdma_getaddrinfo`: resolves a node and a service (rdma_getaddrinfo(3)).
#![forbid(unsafe_code)]

use clap::Parser;
use ofi_tools::rdma_getaddrinfo::{Options, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    ofi_tools::end("rdma_getaddrinfo", run(&Options::parse()))
}
