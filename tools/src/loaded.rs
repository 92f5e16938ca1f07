//! Loaded providers, as the installed C library sees them: the Rust library has the built-in ones
//! only. The system's loader runs `libfabric.so.1` as a program, which prints lines of fields.

use ofi::Query;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The system's loader on the one machine that the library runs on.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

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

/// What the installed library says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) providers: Vec<Provider>,
    pub(crate) found: Vec<Found>,
    /// Files that are not used, and why.
    pub(crate) unused: Vec<(String, String)>,
    /// Providers that do not match, and why.
    pub(crate) refusals: Vec<(String, String)>,
}

/// The installed library: beside this tool, or where the loader looks first.
fn library() -> Option<PathBuf> {
    let tool = env::current_exe().ok()?;
    let beside = tool.parent().map(|bin| bin.join("../lib"));
    let listed = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = env::split_paths(&listed).filter(|folder| !folder.as_os_str().is_empty()).chain(beside);
    folders.map(|folder| folder.join("libfabric.so.1")).find(|file| file.is_file())
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

/// Asks the installed library. Nothing without one, or if it is another libfabric.
pub(crate) fn report(query: &Query) -> Report {
    let Some(library) = library() else { return Report::default() };
    let mut command = Command::new(LOADER);
    command.arg(library).arg("report").args(arguments(query)).stdin(Stdio::null()).stderr(Stdio::null());
    command.output().map(|output| parse(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
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
fn parse(text: &str) -> Report {
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
            ["end"] => return out,
            _ => {}
        }
    }
    Report::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_library_become_a_report() {
        let text = "provider\ta\t1.2\t2.6\t/x/a b-fi.so\nunused\t/y\tno \\\\ \\tway\\n!\nrefusal\ta\twhy\n\
                    info\tbefore\ta;b\tf\td\t1.2\tFI_EP_RDM\tFI_PROTO_X\tone\\ntwo\nsomething new\nend\n";
        let report = parse(text);
        assert_eq!((report.providers[0].name.as_str(), report.providers[0].file.as_str()), ("a", "/x/a b-fi.so"));
        assert_eq!(report.unused, [("/y".to_owned(), "no \\ \tway\n!".to_owned())]);
        assert_eq!(report.refusals, [("a".to_owned(), "why".to_owned())]);
        assert!(report.found[0].before && report.found[0].text == "one\ntwo" && report.found[0].fields[0] == "a;b");
        for broken in ["", "provider\ta\t1\t2\tf\n", "libfabric 2.6\n"] {
            assert_eq!(parse(broken), Report::default());
        }
    }
}
