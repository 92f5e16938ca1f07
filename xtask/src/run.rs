//! Runs other programs.

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
    let shown = format!("{command:?}").replace('"', "");
    let output = command.current_dir(root()).output().map_err(|error| format!("{shown}: {error}"))?;
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
