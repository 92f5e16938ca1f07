//! Runs other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A task's result, with a message on failure.
pub(crate) type Outcome = Result<(), String>;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Runs a command in the repository's root; its output goes to the terminal.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let shown = format!("{command:?}").replace('"', "");
    println!("$ {shown}");
    let status = command.current_dir(root()).status().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// Runs a command in the repository's root and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    output_in(&root(), command)
}

/// The same in another folder.
fn output_in(folder: &Path, command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}").replace('"', "");
    let output = command.current_dir(folder).output().map_err(|error| format!("{shown}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        // Test programs report failures on standard output.
        Err(format!("{shown}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

/// Runs a command in the repository's root and returns the JSON that it prints.
pub(crate) fn json(command: &mut Command) -> Result<serde_json::Value, String> {
    serde_json::from_str(&output(command)?).map_err(|error| error.to_string())
}

/// A test program.
#[derive(Debug)]
pub(crate) struct TestProgram {
    /// The folder of its crate, in which cargo runs it.
    pub(crate) folder: PathBuf,
    /// The name of its target.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl TestProgram {
    /// Runs it as cargo does, and returns its standard output.
    pub(crate) fn output<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String, String> {
        output_in(&self.folder, Command::new(&self.path).args(arguments).env("CARGO_MANIFEST_DIR", &self.folder))
    }
}

/// Builds the test programs that a `cargo test` with its arguments would run, and returns them.
pub(crate) fn test_programs(tests: &mut Command) -> Result<Vec<TestProgram>, String> {
    let said = output(tests.args(["--no-run", "--message-format", "json"]))?;
    let program = |line: &str| {
        let message = serde_json::from_str::<serde_json::Value>(line).ok()?;
        let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?.into();
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        Some(TestProgram { folder, name: message["target"]["name"].as_str()?.to_owned(), path })
    };
    Ok(said.lines().filter_map(program).collect())
}

/// Builds the libraries and tools as tests run them. Always the whole workspace: for one crate
/// alone, some of what it depends on has other features, and would be built again.
pub(crate) fn build_all() -> Outcome {
    run(&mut cargo(&["build", "--workspace", "--lib", "--bins"]))
}

/// Builds the release of the C library. With the tools' crate, which has those features that the
/// whole workspace has: what both depend on is built once.
pub(crate) fn build_release() -> Outcome {
    run(&mut cargo(&["build", "--release", "-p", "ofi-capi", "-p", "ofi-tools", "--lib"]))
}

/// A program under a time limit in seconds, after which timeout(1) ends it.
pub(crate) fn within(limit: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &limit.to_string()]).arg(program);
    command
}

/// `cargo` with arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Files with this extension that git tracks or does not ignore.
pub(crate) fn files(ending: &str) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", &format!("*.{ending}")]);
    let list = output(&mut git)?;
    Ok(list.lines().filter(|path| root().join(path).is_file()).map(str::to_owned).collect())
}
