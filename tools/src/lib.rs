//! The tools as a library. Each tool's options are a type that generates its parser, its help and
//! its manual page.
#![forbid(unsafe_code)]

/// Prints text; a closed pipe is no error.
macro_rules! text {
    ($($part:tt)*) => { $crate::put(&format!($($part)*)) };
}
/// Prints a line; a closed pipe is no error.
macro_rules! line {
    () => { $crate::put("\n") };
    ($($part:tt)*) => { $crate::put(&(format!($($part)*) + "\n")) };
}
pub(crate) use {line, text};

pub mod doctor;
pub mod dump;
pub mod info;
mod loaded;
mod one_sided;
mod pair;
pub mod pingpong;
pub mod rdma_getaddrinfo;
mod refused;
pub mod selftest;
mod side;
pub mod strerror;
pub mod top;

use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;

/// Tests and diagnoses the fabric library on this machine.
#[derive(Debug, Parser)]
#[command(name = "ofi", version, propagate_version = true)]
pub struct Ofi {
    #[command(subcommand)]
    command: OfiCommand,
}

#[derive(Debug, Subcommand)]
enum OfiCommand {
    /// Runs a ping-pong between two processes over every provider and endpoint type, lets one read,
    /// write and add to the other's memory, and prints a table
    Selftest(selftest::Options),
    /// Reports settings of this machine that impair the library, and suggests fixes
    Doctor(doctor::Options),
    /// Shows what the endpoints of a running process have done and what their operations wait for
    Dump(dump::Options),
    /// Shows the rates of the endpoints of this user's processes
    Top(top::Options),
    /// The echoing process of a selftest
    #[command(hide = true)]
    Echo(pair::EchoOptions),
}

impl Ofi {
    /// Runs the subcommand; false if it finds a problem.
    ///
    /// # Errors
    /// The reason why the subcommand cannot run.
    pub fn run(&self) -> Result<bool, ofi::Error> {
        match &self.command {
            OfiCommand::Selftest(options) => selftest::run(options),
            OfiCommand::Doctor(options) => doctor::run(options),
            OfiCommand::Dump(options) => dump::run(options),
            OfiCommand::Top(options) => top::run(options),
            OfiCommand::Echo(options) => pair::echo(options),
        }
    }
}

/// The command definitions of all tools, for manual pages.
pub fn commands() -> Vec<clap::Command> {
    use clap::CommandFactory;
    vec![
        Ofi::command(),
        info::Options::command(),
        pingpong::Options::command(),
        rdma_getaddrinfo::Options::command(),
        strerror::Options::command(),
    ]
}

/// The exit code of a tool: 0 on success, else 1. Prints an error to standard error.
pub fn end(tool: &str, result: Result<bool, impl std::fmt::Display>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{tool}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes to standard output. Ignores a closed pipe and reports other errors.
fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => eprintln!("write the output: {error}"),
        _ => {}
    }
}

/// Formats a value as JSON.
fn json(value: &impl serde::Serialize) -> Result<String, ofi::Error> {
    serde_json::to_string_pretty(value).map_err(|error| ofi::Error::new(ofi::Errno::EOTHER, error.to_string()))
}
