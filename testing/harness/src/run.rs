//! Runs a program under a time limit: a hang is the most common failure in this field.

use crate::build::{Library, target};
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The exit code of a program that lacks a prerequisite, which it names on its output.
const NOT_HERE: i32 = 77;

/// True in CI, where every prerequisite must be present.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Reports a missing prerequisite of a test, and fails in CI.
///
/// # Panics
/// In CI.
pub fn missing(what: &str) {
    assert!(!in_ci(), "missing: {what}");
    eprintln!("skipped: {what}");
}

/// The lock that the programs of all tests share. Each run opens the file anew, because a lock
/// belongs to an open file description.
fn turn() -> Result<File, String> {
    let folder = target().join("harness");
    let path = folder.join("turn.lock");
    let open = std::fs::create_dir_all(&folder).and_then(|()| File::create(&path));
    open.map_err(|error| format!("{}: {error}", path.display()))
}

/// Which other test programs may run at the same time.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// All except programs that run alone.
    Most,
    /// Only idle ones.
    Idle,
    /// Any.
    Any,
}

/// A program to run.
#[derive(Debug)]
pub struct Run {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    seconds: u32,
    /// A command in front of the program that prepares its environment.
    wrapper: Vec<OsString>,
    beside: Beside,
    finds_everything: bool,
}

impl Run {
    /// A program with a time limit in seconds.
    pub fn new(program: impl Into<PathBuf>, seconds: u32) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: vec![("ASAN_OPTIONS".into(), "detect_leaks=0".into())],
            seconds,
            wrapper: Vec::new(),
            beside: Beside::Most,
            finds_everything: in_ci(),
        }
    }

    /// Adds an argument.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Makes the loader find this library.
    pub fn on(self, library: &Library) -> Self {
        let folder = library.folder().to_owned();
        self.variable("LD_LIBRARY_PATH", folder)
    }

    /// Runs the program through a wrapper command.
    pub fn inside(mut self, wrapper: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// Excludes other test programs, except idle ones: this one loads the machine, or measures
    /// times that load would distort.
    pub fn alone(mut self) -> Self {
        self.beside = Beside::Idle;
        self
    }

    /// Marks the program as mostly waiting: programs that run alone may run beside it.
    pub fn idle(mut self) -> Self {
        self.beside = Beside::Any;
        self
    }

    /// Makes a missing prerequisite a failure, not only in CI.
    pub fn finds_everything(mut self) -> Self {
        self.finds_everything = true;
        self
    }

    /// Tolerates a missing prerequisite, even in CI.
    pub fn may_find_nothing(mut self) -> Self {
        self.finds_everything = false;
        self
    }

    /// The command, under its time limit.
    pub fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &self.seconds.to_string()]).args(&self.wrapper);
        command.arg(&self.program).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Runs the program. Returns its output if it exits with 0, `None` if it lacks a prerequisite
    /// and that is tolerated, or an error message.
    pub fn output(&self) -> Result<Option<Output>, String> {
        let turn = turn()?;
        let locked = match self.beside {
            Beside::Idle => turn.lock(),
            Beside::Most => turn.lock_shared(),
            Beside::Any => Ok(()),
        };
        locked.map_err(|error| format!("wait for other programs: {error}"))?;
        let output = self.command().output().map_err(|error| format!("{}: {error}", self.program.display()))?;
        drop(turn);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.code() == Some(NOT_HERE) && !self.finds_everything {
            eprintln!("{out}{err}");
            return Ok(None);
        }
        let what = format!("{} {:?}", self.program.display(), self.arguments);
        if !output.status.success() {
            let late = if output.status.code() == Some(124) { ": its time is up" } else { "" };
            return Err(format!("{what}: {}{late}\n{out}{err}", output.status));
        }
        if err.contains("no version information") {
            return Err(format!("{what}: the loader warns: {err}"));
        }
        Ok(Some(output))
    }

    /// Runs the program and fails the test if it fails. False if it lacks a prerequisite.
    ///
    /// # Panics
    /// If the program does not exit with 0 in time.
    pub fn check(&self) -> bool {
        match self.output() {
            Ok(output) => output.is_some(),
            Err(why) => panic!("{why}"),
        }
    }
}
