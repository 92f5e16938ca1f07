//! Loaded providers, as the installed C library sees them: the Rust library has the built-in ones
//! only. The system's loader runs `libfabric.so.1` as a program, which prints lines of fields.

use ofi::{ParamKind, Query};
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The system's loader on the one machine that the library runs on.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// The library's first line, before it loads any file.
const GREETING: &str = "ofi report";
/// How long the first line may take.
const FIRST: Duration = Duration::from_secs(10);
/// How long the whole answer may take: a file that hangs costs the library 10 s of it.
const WHOLE: Duration = Duration::from_secs(120);

/// A loaded provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The interface that it was built for.
    pub(crate) api: String,
    pub(crate) file: String,
}

/// An info of a loaded provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Whether it comes before the built-in providers.
    pub(crate) before: bool,
    /// Provider, fabric, domain, version, type and protocol.
    pub(crate) fields: [String; 6],
    /// All of it.
    pub(crate) text: String,
}

/// A parameter that a loaded provider defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defined {
    pub(crate) name: String,
    pub(crate) kind: ParamKind,
    pub(crate) help: String,
    pub(crate) value: Option<String>,
}

/// What the installed library says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) providers: Vec<Provider>,
    pub(crate) found: Vec<Found>,
    /// Files that are not used, and why.
    pub(crate) unused: Vec<(String, String)>,
    /// Providers that do not match, and why.
    pub(crate) refusals: Vec<(String, String)>,
    pub(crate) params: Vec<Defined>,
    /// Why the installed library says nothing.
    pub(crate) problem: Option<String>,
}

/// The installed library: beside this tool, or where the loader looks first.
fn library() -> Option<PathBuf> {
    let tool = env::current_exe().ok()?;
    let beside = tool.parent().map(|bin| bin.join("../lib"));
    let listed = env::var_os("LD_LIBRARY_PATH").filter(|list| !list.is_empty()).unwrap_or_default();
    let folders = env::split_paths(&listed).filter(|_| !listed.is_empty()).chain(beside);
    // An empty folder is the working directory. The loader would look for a file without a slash
    // in its own folders.
    folders.map(|folder| Path::new(".").join(folder).join("libfabric.so.1")).find(|file| file.is_file())
}

/// Why a file is not this project's library, as far as its header shows.
fn foreign(library: &Path) -> Option<String> {
    let mut header = [0; 32];
    let read = File::open(library).and_then(|mut file| file.read_exact(&mut header));
    let file = library.display();
    if let Err(error) = read {
        return Some(format!("{file} cannot be read: {error}"));
    }
    // Class 2: 64 bits. The entry point follows identification, type, machine and version.
    let is_elf = header.starts_with(b"\x7fELF\x02");
    let has_entry = header[24..32] != [0; 8];
    let other = || format!("{file} is not the library of this tool");
    match (is_elf, has_entry) {
        (false, _) => Some(format!("{} (it is no 64-bit shared library)", other())),
        (true, false) => Some(format!("{} (it cannot be run)", other())),
        (true, true) => None,
    }
}

/// The request as the library's arguments.
fn arguments(query: &Query) -> Vec<String> {
    let mut out = vec![format!("version={}", query.version.0)];
    let mut add = |name: &str, value: Option<&String>| {
        out.extend(value.map(|value| format!("{name}={value}")));
    };
    add("node", query.node.as_ref());
    add("service", query.service.as_ref());
    let yes = String::new();
    add("source", query.source.then_some(&yes));
    add("numeric", query.numeric.then_some(&yes));
    if let Some(hints) = &query.hints {
        let (ep, domain, fabric) = (hints.ep.as_ref(), hints.domain.as_ref(), hints.fabric.as_ref());
        add("caps", Some(&hints.caps.bits().to_string()));
        add("mode", Some(&hints.mode.bits().to_string()));
        add("format", Some(&hints.addr_format.0.to_string()));
        add("type", ep.map(|ep| ep.kind.0.to_string()).as_ref());
        add("domain_mode", domain.map(|domain| domain.mode.bits().to_string()).as_ref());
        add("mr_mode", domain.map(|domain| domain.mr_mode.bits().to_string()).as_ref());
        add("domain", domain.and_then(|domain| domain.name.as_ref()));
        add("fabric", fabric.and_then(|fabric| fabric.name.as_ref()));
        add("provider", fabric.and_then(|fabric| fabric.prov_name.as_ref()));
    }
    out
}

/// Asks the installed library. Nothing without one, and a reason if it is another libfabric.
pub(crate) fn report(query: &Query) -> Report {
    let Some(library) = library() else { return Report::default() };
    ask(&library, &arguments(query), FIRST, WHOLE).unwrap_or_else(|why| Report {
        problem: Some(format!("providers that programs load are not shown: {why}")),
        ..Report::default()
    })
}

fn ask(library: &Path, arguments: &[String], first: Duration, whole: Duration) -> Result<Report, String> {
    if let Some(why) = foreign(library) {
        return Err(why);
    }
    let file = library.display();
    let mut command = Command::new(LOADER);
    command.arg(library).arg("report").args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut process = Process(spawned.map_err(|error| format!("{LOADER} cannot run {file}: {error}"))?);
    let lines = process.lines();
    let mut text = String::new();
    let begin = crate::side::now();
    loop {
        let limit = if text.is_empty() { first } else { whole };
        match lines.recv_timeout(limit.saturating_sub(begin.elapsed())) {
            Ok(line) if text.is_empty() && line != GREETING => {
                return Err(format!("{file} is not the library of this tool (it prints something else)"));
            }
            Ok(line) => {
                text.push_str(&line);
                text.push('\n');
            }
            Err(RecvTimeoutError::Timeout) if text.is_empty() => {
                return Err(format!("{file} does not answer within {} s", limit.as_secs()));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("{file} does not end its answer within {} s", limit.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let ended = process.0.wait().map_or_else(|error| error.to_string(), end_of);
    parse(&text).ok_or_else(|| format!("{file} {ended} before its answer is complete"))
}

/// How a process ended.
fn end_of(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("crashes (signal {signal})"),
        (None, Some(code)) => format!("ends with code {code}"),
        (None, None) => "ends".to_owned(),
    }
}

/// The library as a program, which must not outlive the request.
struct Process(Child);

impl Process {
    /// Its lines, read by a thread, which ends with them.
    fn lines(&mut self) -> Receiver<String> {
        let (sender, receiver) = channel();
        if let Some(output) = self.0.stdout.take() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
                // Without a receiver the request has failed.
                lines.try_for_each(|line| sender.send(String::from_utf8_lossy(&line).into_owned()))
            });
        }
        receiver
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended refuses, and is waited for once.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Undoes the library's escapes.
fn field(text: &str) -> String {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.push(match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                other => other.unwrap_or('\\'),
            }),
            other => out.push(other),
        }
    }
    out
}

/// The library's lines; without its last one the answer is worth nothing.
fn parse(text: &str) -> Option<Report> {
    let mut out = Report::default();
    for line in text.lines() {
        let fields: Vec<String> = line.split('\t').map(field).collect();
        let words: Vec<&str> = fields.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["provider", name, version, api, file] => {
                let [name, version, api, file] = [name, version, api, file].map(|field| (*field).to_owned());
                out.providers.push(Provider { name, version, api, file });
            }
            ["unused", file, why] => out.unused.push(((*file).to_owned(), (*why).to_owned())),
            ["refusal", name, why] => out.refusals.push(((*name).to_owned(), (*why).to_owned())),
            ["info", place, provider, fabric, domain, version, kind, protocol, text] => out.found.push(Found {
                before: *place == "before",
                fields: [provider, fabric, domain, version, kind, protocol].map(|field| (*field).to_owned()),
                text: (*text).to_owned(),
            }),
            ["param", name, kind, help, value @ ..] => out.params.push(Defined {
                name: (*name).to_owned(),
                kind: kind_of(kind),
                help: (*help).to_owned(),
                value: value.first().map(|value| (*value).to_owned()),
            }),
            ["end"] => return Some(out),
            _ => {}
        }
    }
    None
}

/// The kind by its number in the C library (enum fi_param_type).
fn kind_of(number: &str) -> ParamKind {
    match number {
        "1" => ParamKind::Int,
        "2" => ParamKind::Bool,
        "3" => ParamKind::Size,
        _ => ParamKind::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_library_become_a_report() {
        let text = "provider\ta\t1.2\t2.6\t/x/a b-fi.so\nunused\t/y\tno \\\\ \\tway\\n!\nrefusal\ta\twhy\n\
                    info\tbefore\ta;b\tf\td\t1.2\tFI_EP_RDM\tFI_PROTO_X\tone\\ntwo\nsomething new\n\
                    param\tFI_A_B\t2\ta: help\nparam\tFI_A_C\t1\ta: more\t5\nend\n";
        let report = parse(text).unwrap();
        assert_eq!((report.providers[0].name.as_str(), report.providers[0].file.as_str()), ("a", "/x/a b-fi.so"));
        assert_eq!(report.unused, [("/y".to_owned(), "no \\ \tway\n!".to_owned())]);
        assert_eq!(report.refusals, [("a".to_owned(), "why".to_owned())]);
        assert!(report.found[0].before && report.found[0].text == "one\ntwo" && report.found[0].fields[0] == "a;b");
        let params: Vec<_> = report.params.iter().map(|p| (p.name.as_str(), p.kind, p.value.as_deref())).collect();
        assert_eq!(params, [("FI_A_B", ParamKind::Bool, None), ("FI_A_C", ParamKind::Int, Some("5"))]);
        for broken in ["", "provider\ta\t1\t2\tf\n", "libfabric 2.6\n"] {
            assert_eq!(parse(broken), None);
        }
    }

    /// Why a program in the library's place gives no report.
    fn refused(library: &str) -> String {
        let (first, whole) = (Duration::from_millis(200), Duration::from_secs(5));
        ask(Path::new(library), &[], first, whole).unwrap_err()
    }

    #[test]
    fn another_file_in_the_library_s_place_is_a_reason() {
        // Programs are shared objects with an entry point.
        assert!(refused("/bin/echo").contains("/bin/echo is not the library of this tool (it prints something else)"));
        assert!(refused("/bin/cat").contains("/bin/cat ends with code 1 before its answer is complete"));
        assert!(refused("/bin/sh").contains("ends with code"));
        assert!(refused("/usr/bin/yes").contains("prints something else"));
        assert!(refused("/etc/passwd").contains("it is no 64-bit shared library"));
        assert!(refused("/no/such/file").contains("/no/such/file cannot be read: No such file"));
        let place = env::temp_dir().join(format!("ofi-no-entry-{}", std::process::id()));
        let mut file = std::fs::read("/bin/true").unwrap();
        file[24..32].fill(0);
        std::fs::write(&place, file).unwrap();
        let why = refused(&place.to_string_lossy());
        drop(std::fs::remove_file(&place));
        assert!(why.contains("is not the library of this tool (it cannot be run)"), "{why}");
    }

    #[test]
    fn a_library_that_hangs_is_given_up() {
        // It follows a file that never has a line; `report` names no file.
        let arguments = ["-q", "-f", "/dev/null"].map(str::to_owned);
        let why = ask(Path::new("/usr/bin/tail"), &arguments, Duration::from_millis(200), WHOLE);
        assert!(why.unwrap_err().contains("/usr/bin/tail does not answer within 0 s"));
    }
}
