//! The tools as a library: what each one is told is a type from which its options, its help and its manual page are made.
#![forbid(unsafe_code)]

/// Prints a text. Whoever reads it may have seen enough.
macro_rules! text {
    ($($part:tt)*) => { $crate::put(&format!($($part)*)) };
}
/// Prints a line.
macro_rules! line {
    () => { $crate::put("\n") };
    ($($part:tt)*) => { $crate::put(&(format!($($part)*) + "\n")) };
}
pub(crate) use {line, text};

pub mod doctor;
pub mod info;
mod pair;
pub mod pingpong;
pub mod rdma_getaddrinfo;
pub mod selftest;
pub mod strerror;

use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;

/// Finds out what the fabric library offers on this machine, and whether it works.
#[derive(Debug, Parser)]
#[command(name = "ofi", version, propagate_version = true)]
pub struct Ofi {
    #[command(subcommand)]
    command: OfiCommand,
}

#[derive(Debug, Subcommand)]
enum OfiCommand {
    /// Runs a ping-pong between two processes over every provider and kind of endpoint, and prints a table
    Selftest(selftest::Options),
    /// Looks for what keeps the library from working well on this machine, and says what to do about it
    Doctor(doctor::Options),
    /// The other process of a selftest
    #[command(hide = true)]
    Echo(pair::EchoOptions),
}

impl Ofi {
    /// Does what was asked; false if something is not as it should be.
    ///
    /// # Errors
    /// Why it could not be done.
    pub fn run(&self) -> Result<bool, ofi::Error> {
        match &self.command {
            OfiCommand::Selftest(options) => selftest::run(options),
            OfiCommand::Doctor(options) => doctor::run(options),
            OfiCommand::Echo(options) => pair::echo(options),
        }
    }
}

/// Every tool's definition, for manual pages.
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

/// The end of a tool: 0 if all is well, 1 if not, with the reason on standard error.
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

/// Writes to standard output. A reader that went away has seen enough; what else goes wrong is said.
fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => eprintln!("write the output: {error}"),
        _ => {}
    }
}

/// JSON for whoever asked for it.
fn json(value: &impl serde::Serialize) -> Result<String, ofi::Error> {
    serde_json::to_string_pretty(value).map_err(|error| ofi::Error::new(ofi::Errno::EOTHER, error.to_string()))
}
