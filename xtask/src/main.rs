//! The development tasks of this repository, except building and testing.
#![forbid(unsafe_code)]

mod abi;
mod api;
mod bench;
mod check;
mod clients;
mod disk;
mod gates;
mod install;
mod providers;
mod publish;
mod rdma_vm;
mod run;
mod statements;
mod structure;
mod verbs;
mod waits;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(about = "Work on the ofi repository")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks formatting, lints, documentation, layers, sizes, unsafe code and licenses
    Check,
    /// Compares the public interface of the crate ofi with its listing and with releases
    Api(api::Options),
    /// Installs the library, its headers, its pkg-config file and the tools
    Install {
        /// Installation prefix
        #[arg(long)]
        prefix: PathBuf,
    },
    /// Runs the tests that the statement lists name, and compares the lists with their counts
    Statements(statements::Options),
    /// Generates the C and Rust layout checks from abi/values.txt
    Abi,
    /// Model-checks the lock-free code with loom
    Loom,
    /// Runs the C programs against the library built with AddressSanitizer
    Asan,
    /// Counts instructions of the message path, and loads that wait for stores, under valgrind
    Cost,
    /// Benchmarks this library against another one
    Bench(bench::Options),
    /// Runs MPI programs from package registries on this library and on the one that they bundle
    Clients(clients::Options),
    /// Fetches packages with loadable providers of vendors, which tests of the C library load
    Providers,
    /// Builds every crate that is to be published from its package, as `cargo publish` does
    Publish,
    /// Tests rdma_getaddrinfo and persistent memory in a virtual machine
    RdmaVm(rdma_vm::Options),
    /// Tests the verbs provider on a software RDMA device in a virtual machine
    Verbs(verbs::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Check => check::all(),
        Command::Api(options) => api::api(&options),
        Command::Install { prefix } => install::install(&prefix),
        Command::Statements(options) => statements::statements(&options),
        Command::Abi => abi::write(),
        Command::Loom => gates::loom(),
        Command::Asan => gates::asan(),
        Command::Cost => gates::cost(),
        Command::Bench(options) => bench::run(&options),
        Command::Clients(options) => clients::clients(&options),
        Command::Providers => providers::fetch(),
        Command::Publish => publish::publish(),
        Command::RdmaVm(options) => rdma_vm::rdma_vm(&options),
        Command::Verbs(options) => verbs::verbs(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
