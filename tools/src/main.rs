//! `ofi`: the fabric library's tool for people.
#![forbid(unsafe_code)]

mod pair;
mod selftest;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Finds out what the fabric library offers on this machine, and whether it works.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a ping-pong between two processes over every provider and kind of endpoint, and prints a table
    Selftest(selftest::Options),
    /// The other process of a selftest
    #[command(hide = true)]
    Echo(pair::EchoOptions),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Selftest(options) => selftest::run(&options),
        Command::Echo(options) => pair::echo(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ofi: {error}");
            ExitCode::FAILURE
        }
    }
}
