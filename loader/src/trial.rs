//! The trial of new files, in a helper process: each is loaded in a process of its own, so that
//! one that crashes or hangs harms nothing but itself.
#![allow(unsafe_code)]

use crate::table::{self, load};
use ofi_core::Version;
use ofi_os::helper::Output;
use ofi_os::shortage;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a file's trial may take.
pub const LIMIT: Duration = Duration::from_secs(10);
/// Where the system's loader is, which starts this library as the helper's program.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// What a file does that would never return in an application.
const STUCK: &str = "while it is loaded, it waits for a thread that asks for providers";

/// What this process's state does around the load of a file in its trial.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    /// Begins; the argument ends a process that is [`STUCK`].
    pub(crate) begin: fn(Box<dyn Fn() + Send + Sync>),
    pub(crate) end: fn(),
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It loads and answers.
    Good,
    /// It harms a process that loads it: it must not be loaded.
    Harmful(String),
    /// It is not loaded, for a reason that may go away.
    Refused(String),
    /// This machine allows no helper process.
    Unknown(String),
}

/// Tries files in a helper process that runs `library`, this library.
pub(crate) fn try_files(library: &Path, files: &[PathBuf]) -> Vec<Verdict> {
    let library = library.to_string_lossy();
    let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    let mut arguments = vec![LOADER, &library, "try"];
    arguments.extend(names.iter().map(AsRef::as_ref));
    // The helper itself ends each trial; this is for a helper that hangs.
    match ofi_os::helper::run(LOADER, &arguments, LIMIT * 2) {
        Ok(Output { text, cut }) => (0..files.len()).map(|index| verdict(&text, index, cut.as_ref())).collect(),
        // What runs out comes back, and an untried file may crash.
        Err(error) if shortage::is_one(&error) || error.kind() == ErrorKind::WouldBlock => {
            vec![Verdict::Refused(format!("it is not tried: no helper process starts ({error})")); files.len()]
        }
        Err(error) => vec![Verdict::Unknown(error.to_string()); files.len()],
    }
}

/// The verdict on a file in the helper's text: lines with the file's number, a word and a reason. A
/// helper that is `cut` off has verdicts on some files only.
fn verdict(text: &str, index: usize, cut: Option<&std::io::Error>) -> Verdict {
    let number = format!("{index} ");
    // A line without an end may lack a part.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let Some(line) = whole.lines().find_map(|line| line.strip_prefix(number.as_str())) else {
        let why = cut.map_or_else(|| "ends early".to_owned(), |cut| format!("is stopped ({cut})"));
        return Verdict::Refused(format!("it is not tried: the helper process {why}"));
    };
    match line.split_once(' ').unwrap_or((line, "")) {
        ("good", _) => Verdict::Good,
        ("harmful", why) => Verdict::Harmful(why.to_owned()),
        (_, why) => Verdict::Refused(why.to_owned()),
    }
}

/// The work of the helper process: tries each file, and prints a line for it. It must not search
/// for providers itself.
pub(crate) fn serve(files: &[&Path], around: Around) {
    for (index, file) in files.iter().enumerate() {
        let line = match in_child(file, around) {
            Ok(()) => format!("{index} good"),
            Err(Verdict::Harmful(why)) => format!("{index} harmful {}", one_line(&why)),
            Err(Verdict::Refused(why) | Verdict::Unknown(why)) => format!("{index} refused {}", one_line(&why)),
            Err(Verdict::Good) => continue,
        };
        say(&line);
    }
    say("end");
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that has gone wants no more.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Tries a file in a child of this process, which has one thread.
fn in_child(file: &Path, around: Around) -> Result<(), Verdict> {
    let broken = |error: std::io::Error| Verdict::Unknown(format!("the helper process fails: {error}"));
    let (mut input, mut output) = std::io::pipe().map_err(broken)?;
    // SAFETY: this process has one thread, so that the child may do anything.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(input);
        // What hangs ends with the helper.
        // SAFETY: numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // What the file prints must not look like verdicts, which the standard output carries.
        // SAFETY: this process's own descriptors.
        unsafe { libc::dup2(2, 1) };
        let copy = output.try_clone();
        (around.begin)(Box::new(move || {
            drop(copy.as_ref().map(|mut output| output.write_all(STUCK.as_bytes())));
            // SAFETY: it ends the process without its handlers.
            unsafe { libc::_exit(0) }
        }));
        let text = match attempt(file, around) {
            Ok(()) => "good".to_owned(),
            Err(why) => why,
        };
        drop(output.write_all(text.as_bytes()));
        // SAFETY: it ends the process without its handlers.
        unsafe { libc::_exit(0) };
    }
    if child < 0 {
        return Err(broken(std::io::Error::last_os_error()));
    }
    drop(output);
    let mut waiting = libc::pollfd { fd: input.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = i32::try_from(LIMIT.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one entry.
    let ready = unsafe { libc::poll(&mut waiting, 1, limit) };
    let mut text = [0; 2048];
    let count = if ready > 0 { input.read(&mut text).unwrap_or(0) } else { 0 };
    let mut status = 0;
    if ready == 0 || count > 0 {
        // SAFETY: the child is not waited for yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    // SAFETY: a place for the status of this process's own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    let text = String::from_utf8_lossy(&text[..count]).into_owned();
    match text.as_str() {
        "good" => Ok(()),
        STUCK => Err(Verdict::Harmful(STUCK.to_owned())),
        // A loaded machine may be the cause.
        "" if ready == 0 => Err(Verdict::Refused(format!("it does not return within {} s", LIMIT.as_secs()))),
        // A lack of memory may be the cause.
        "" if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL => {
            Err(Verdict::Refused("it is killed (signal 9)".to_owned()))
        }
        "" if libc::WIFSIGNALED(status) => {
            let signal = libc::WTERMSIG(status);
            Err(Verdict::Harmful(format!("it crashes (signal {signal})")))
        }
        "" => Err(Verdict::Harmful(format!("it ends the process (exit {})", libc::WEXITSTATUS(status)))),
        _ => Err(Verdict::Refused(text)),
    }
}

/// Does with a file what a process does that uses it: loads it, asks its provider, cleans up.
fn attempt(file: &Path, around: Around) -> Result<(), String> {
    let provider = load(file, false);
    (around.end)();
    let provider = provider?;
    let version = provider.api.min(Version::API);
    let null = core::ptr::null();
    // SAFETY: no node, no service and no hints are given.
    if let Ok(infos) = unsafe { provider.getinfo(version, null, null, 0, core::ptr::null()) } {
        // SAFETY: the answer is not freed; the process ends.
        std::hint::black_box(unsafe { table::read(&infos) });
    }
    provider.cleanup();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_s_lines_are_verdicts() {
        let text = "0 good\n1 harmful it crashes (signal 11)\n10 refused no\n2 refused it does not load\nend\n";
        assert_eq!(verdict(text, 0, None), Verdict::Good);
        assert_eq!(verdict(text, 1, None), Verdict::Harmful("it crashes (signal 11)".into()));
        assert_eq!(verdict(text, 2, None), Verdict::Refused("it does not load".into()));
        assert!(matches!(verdict(text, 3, None), Verdict::Refused(why) if why.contains("ends early")));
        assert!(matches!(verdict("", 0, None), Verdict::Refused(_)));
    }

    #[test]
    fn a_late_helper_keeps_its_verdicts_and_leaves_the_rest_for_later() {
        let late = std::io::Error::from_raw_os_error(libc::ETIMEDOUT);
        let text = "0 good\n1 harmful it crashes\n2 go";
        assert_eq!(verdict(text, 0, Some(&late)), Verdict::Good);
        assert_eq!(verdict(text, 1, Some(&late)), Verdict::Harmful("it crashes".into()));
        for index in [2, 3] {
            let Verdict::Refused(why) = verdict(text, index, Some(&late)) else { panic!("{index}") };
            assert!(why.contains("is not tried") && why.contains("timed out"), "{why}");
        }
    }

    #[test]
    fn a_helper_that_says_nothing_has_tried_nothing() {
        let verdicts = try_files(Path::new("/no/such/library"), &["/no/such/file".into()]);
        let [Verdict::Refused(why)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
        assert!(why.contains("ends early"), "{why}");
    }
}
