//! What tools learn about loaded providers: lines of fields with tabs between them, printed by the
//! library as a program (`helper.rs`). The tools are safe Rust and load no library.

use crate::convert::{self, Infos};
use crate::exports::loaded::{self, Ask};
use crate::state::params;
use core::ffi::CStr;
use ofi_abi::{FI_NUMERICHOST, FI_SOURCE};
use ofi_core::info::{Hints, Info};
use ofi_core::{AddrFormat, Caps, EndpointType, Errno, Mode, MrMode, Version};
use std::ffi::CString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};

/// The first line, by which a tool knows this library from others before any file is loaded.
const GREETING: &str = "ofi report";

/// Prints the loaded providers with their parameters, the files that are not used, and the answers
/// to the request in the arguments, each `name=value`.
pub(crate) fn print(arguments: &[&CStr]) {
    let Ok(mut answer) = keep_apart().map(std::fs::File::from) else { return };
    // A reader that has gone wants no more.
    if writeln!(answer, "{GREETING}").is_err() {
        return;
    }
    let words: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let pairs: Vec<(&str, &str)> = words.iter().filter_map(|word| word.split_once('=')).collect();
    let request = Request(&pairs);
    let mut out = String::new();
    let loaded = loaded::all();
    for provider in &loaded.providers {
        let (version, api) = (provider.version.to_string(), provider.api.to_string());
        line(&mut out, &["provider", &provider.name, &version, &api, &provider.file.to_string_lossy()]);
    }
    for refused in &loaded.refused {
        line(&mut out, &["unused", &refused.file.to_string_lossy(), &refused.reason]);
    }
    if let Err(errno) = answers(&request, &mut out) {
        line(&mut out, &["refusal", "the library", &errno.to_string()]);
    }
    // After the answers: a provider may define parameters when it is asked.
    for param in params::defined().iter().filter(|param| param.owner != 0) {
        let (kind, value) = (param.kind.to_string(), ofi_core::param::value(&param.name));
        let mut fields = vec!["param", param.name.as_str(), &kind, &param.help];
        fields.extend(value.as_deref());
        line(&mut out, &fields);
    }
    line(&mut out, &["end"]);
    // As above.
    let _ = answer.write_all(out.as_bytes());
}

/// The standard output, which from now on leads to where errors go: what a provider prints must not
/// become a part of the answer.
fn keep_apart() -> std::io::Result<OwnedFd> {
    let answer = std::io::stdout().as_fd().try_clone_to_owned()?;
    // SAFETY: this process's own descriptors.
    unsafe { libc::dup2(2, 1) };
    Ok(answer)
}

/// A line of fields; what separates lines and fields is escaped in them.
fn line(out: &mut String, fields: &[&str]) {
    for (index, field) in fields.iter().enumerate() {
        let field = field.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = write!(out, "{}{field}", if index == 0 { "" } else { "\t" });
    }
    out.push('\n');
}

/// The request of a tool.
struct Request<'a>(&'a [(&'a str, &'a str)]);

impl Request<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn c_string(&self, name: &str) -> Option<CString> {
        self.text(name).and_then(|text| CString::new(text).ok())
    }

    /// The hints, as an info, because C reads that.
    fn hints(&self) -> Option<Info> {
        self.text("caps")?;
        let small = |name| u32::try_from(self.number(name)).unwrap_or(0);
        let mut info = Info {
            caps: Caps::from_bits_retain(self.number("caps")),
            mode: Mode::from_bits_retain(self.number("mode")),
            addr_format: AddrFormat(small("format")),
            ..Info::default()
        };
        info.ep.kind = EndpointType(small("type"));
        info.domain.mode = Mode::from_bits_retain(self.number("domain_mode"));
        info.domain.mr_mode = MrMode::from_bits_retain(small("mr_mode"));
        info.domain.name = self.text("domain").map(str::to_owned);
        info.fabric.name = self.text("fabric").map(str::to_owned);
        info.fabric.prov_name = self.text("provider").map(str::to_owned);
        Some(info)
    }
}

fn answers(request: &Request<'_>, out: &mut String) -> Result<(), Errno> {
    let (node, service) = (request.c_string("node"), request.c_string("service"));
    let pointer = |text: &Option<CString>| text.as_ref().map_or(core::ptr::null(), |text| text.as_ptr());
    let hints = request.hints();
    let c = hints.as_ref().map(convert::to_c).transpose()?;
    let wanted = hints.map(Hints::from);
    let mut flags = 0;
    for (name, flag) in [("source", FI_SOURCE), ("numeric", FI_NUMERICHOST)] {
        if request.text(name).is_some() {
            flags |= flag;
        }
    }
    let ask = Ask {
        version: Version::API.min(Version(u32::try_from(request.number("version")).unwrap_or(0))),
        node: pointer(&node),
        service: pointer(&service),
        flags,
        hints: c.as_ref().map_or(core::ptr::null(), |c| c.as_ptr().cast_const()),
        wanted: wanted.as_ref(),
    };
    // SAFETY: node and service end with NUL, and the hints are an info of ours.
    let answer = unsafe { loaded::ask(loaded::all(), &ask)? };
    for (place, infos) in [("before", answer.before), ("after", answer.after)] {
        describe(&infos, place, out);
    }
    for refusal in answer.refusals {
        line(out, &["refusal", &refusal.provider, &refusal.reason.to_string()]);
    }
    Ok(())
}

fn describe(infos: &Infos, place: &str, out: &mut String) {
    let mut next = infos.as_ptr().cast_const();
    // SAFETY: null, or a node of the list.
    while let Some(node) = unsafe { next.as_ref() } {
        next = node.next;
        // SAFETY: a node of ours is valid with all its members.
        let hints = unsafe { convert::hints(node) };
        let Hints { caps, mode, addr_format, src_addr, dest_addr, tx, rx, ep, domain, fabric } = hints;
        let info = Info {
            caps,
            mode,
            addr_format,
            src_addr,
            dest_addr,
            tx: tx.unwrap_or_default(),
            rx: rx.unwrap_or_default(),
            ep: ep.unwrap_or_default(),
            domain: domain.unwrap_or_default(),
            fabric: fabric.unwrap_or_default(),
            // SAFETY: as above.
            nic: unsafe { convert::nic(node.nic) },
        };
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "(null)".into());
        let version = Version(info.fabric.prov_version).to_string();
        let (kind, protocol) = (info.ep.kind.to_string(), info.ep.protocol.to_string());
        let (provider, fabric, domain) =
            (name(&info.fabric.prov_name), name(&info.fabric.name), name(&info.domain.name));
        let text = ofi_core::show::info(&info);
        line(out, &["info", place, &provider, &fabric, &domain, &version, &kind, &protocol, &text]);
    }
}
