//! `fi_info`: the options and the layout of libfabric's tool, plus refusal reasons and JSON.

use crate::loaded::{self, Defined, Found, Report};
use crate::refused::{self, Row};
use clap::Parser;
use ofi::{
    AddrFormat, Caps, DomainAttr, EndpointType, EpAttr, Errno, FabricAttr, Hints, Info, Mode, MrMode, Param, ParamKind,
    Problem, Query, Refusals, Version,
};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Lists the fabric interfaces that the library finds on this machine.
#[derive(Debug, Parser)]
#[command(name = "fi_info", disable_version_flag = true)]
pub struct Options {
    /// Source name or address
    #[arg(short, long, value_name = "ADDR")]
    src_addr: Option<String>,
    /// Destination name or address
    #[arg(short, long, value_name = "NAME")]
    node: Option<String>,
    /// Port number or service name
    #[arg(short = 'P', long, value_name = "PNUM")]
    port: Option<String>,
    /// One or more capabilities: FI_MSG|FI_TAGGED…
    #[arg(short, long, value_name = "CAP1|CAP2")]
    caps: Option<String>,
    /// One or more modes that the application supports (default: all)
    #[arg(short, long, value_name = "MOD1|MOD2")]
    mode: Option<String>,
    /// One endpoint type: FI_EP_MSG, FI_EP_RDM, FI_EP_DGRAM
    #[arg(short = 't', long, value_name = "EPTYPE")]
    ep_type: Option<String>,
    /// Only this domain
    #[arg(short, long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Only this fabric
    #[arg(short, long, value_name = "FABRIC")]
    fabric: Option<String>,
    /// Only this address format: FI_SOCKADDR_IN…
    #[arg(short, long, value_name = "FMT")]
    addr_format: Option<String>,
    /// Only this provider
    #[arg(short, long, value_name = "PROV")]
    provider: Option<String>,
    /// Prints the environment variables that configure the library
    #[arg(short, long)]
    env: bool,
    /// Prints the environment variables whose name or description contains this
    #[arg(short, long, value_name = "SUBSTR")]
    getenv: Option<String>,
    /// Prints only the entries that contain this, in full
    #[arg(short, long, value_name = "SUBSTR")]
    info: Option<String>,
    /// Lists the providers
    #[arg(short, long)]
    list: bool,
    /// Prints every field of each entry
    #[arg(short, long)]
    verbose: bool,
    /// Prints for each provider that does not match why it does not, and what no provider supports
    #[arg(long)]
    explain: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Prints versions
    #[arg(long)]
    version: bool,
}

/// The exit code if an option cannot be parsed (EINVAL).
const BAD_OPTION: u8 = 22;

fn flags<T>(text: Option<&str>, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let each = |name: &str| find(name.trim()).ok_or_else(|| format!("Unrecognized {what}: {name}"));
    text.map_or_else(
        || Ok(Vec::new()),
        |text| text.split('|').filter(|name| !name.trim().is_empty()).map(each).collect(),
    )
}

impl Options {
    /// The query: without hints unless an option filters, so that it shows all that is offered.
    /// Modes are permissions: it grants all of them unless the user names some.
    fn query(&self) -> Result<Query, String> {
        let caps = flags(self.caps.as_deref(), "capability", Caps::named)?;
        let modes = flags(self.mode.as_deref(), "mode", Mode::named)?;
        let kind = match self.ep_type.as_deref() {
            Some(name) => EndpointType::named(name).ok_or_else(|| format!("Unrecognized endpoint type: {name}"))?,
            None => EndpointType::UNSPEC,
        };
        let format = match self.addr_format.as_deref() {
            Some(name) => AddrFormat::named(name).ok_or_else(|| format!("Unrecognized address format: {name}"))?,
            None => AddrFormat::FORMAT_UNSPEC,
        };
        let mode = if self.mode.is_some() { modes.into_iter().collect() } else { Mode::all() };
        let domain = DomainAttr {
            name: self.domain.clone(),
            mode: Mode::all(),
            mr_mode: MrMode::all() - (MrMode::BASIC | MrMode::SCALABLE),
            ..DomainAttr::default()
        };
        let fabric =
            FabricAttr { name: self.fabric.clone(), prov_name: self.provider.clone(), ..FabricAttr::default() };
        let names = [&self.ep_type, &self.addr_format, &self.domain, &self.fabric, &self.provider];
        let filtered = names.into_iter().chain([&self.caps, &self.mode]).any(Option::is_some);
        let hints = Hints {
            caps: caps.into_iter().collect(),
            mode,
            addr_format: format,
            ep: Some(EpAttr { kind, ..EpAttr::default() }),
            domain: Some(domain),
            fabric: Some(fabric),
            tx: Some(ofi::TxAttr::default()),
            rx: Some(ofi::RxAttr::default()),
            ..Hints::default()
        };
        let source = self.src_addr.is_some() && self.node.is_none();
        let node = if source { self.src_addr.clone() } else { self.node.clone() };
        let service = self.port.clone();
        Ok(Query { version: Version::API, node, service, source, hints: filtered.then_some(hints), ..Query::default() })
    }
}

fn summary(info: &Info) -> String {
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "(null)".into());
    format!(
        "provider: {}\n    fabric: {}\n    domain: {}\n    version: {}\n    type: {}\n    protocol: {}\n",
        name(&info.fabric.prov_name),
        name(&info.fabric.name),
        name(&info.domain.name),
        Version(info.fabric.prov_version),
        info.ep.kind,
        info.ep.protocol
    )
}

const fn kind_of(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::String => "String",
        ParamKind::Int => "Integer",
        ParamKind::Bool => "Boolean (0/1, on/off, true/false, yes/no)",
        ParamKind::Size => "size_t",
    }
}

/// Every parameter: the library's own, and those of loaded providers.
fn all_params(report: Report) -> Vec<Defined> {
    let own = ofi::params().into_iter().map(|param: Param| Defined {
        name: param.name.to_owned(),
        kind: param.kind,
        help: param.help.to_owned(),
        value: param.text(),
    });
    let mut all: Vec<Defined> = own.collect();
    for param in report.params {
        // A loaded provider may define what the library has too.
        if !all.iter().any(|known| known.name == param.name) {
            all.push(param);
        }
    }
    all
}

fn environment(part: Option<&str>, as_json: bool) {
    let has = |text: &str, part: &str| text.to_ascii_lowercase().contains(&part.to_ascii_lowercase());
    let wanted = |param: &Defined| part.is_none_or(|part| has(&param.name, part) || has(&param.help, part));
    let mut report = loaded::report(&Query { version: Version::API, ..Query::default() });
    say_problem(report.problem.take());
    let all: Vec<Defined> = all_params(report).into_iter().filter(wanted).collect();
    if as_json {
        let list: Vec<Value> = all
            .iter()
            .map(|p| json!({ "name": p.name, "type": kind_of(p.kind), "help": p.help, "value": p.value }))
            .collect();
        crate::line!("{:#}", Value::Array(list));
        return;
    }
    for param in all {
        crate::line!("# {}: {}", param.name, kind_of(param.kind));
        crate::line!("# {}", param.help);
        if let Ok(value) = std::env::var(&param.name) {
            crate::line!("{}={value}", param.name);
        }
        crate::line!();
    }
}

/// Says why the installed library was not asked.
fn say_problem(problem: Option<String>) {
    if let Some(why) = problem {
        eprintln!("note: {why}");
    }
}

fn as_json(info: &Info) -> Value {
    json!({
        "provider": info.fabric.prov_name,
        "fabric": info.fabric.name,
        "domain": info.domain.name,
        "version": Version(info.fabric.prov_version).to_string(),
        "type": info.ep.kind.to_string(),
        "protocol": info.ep.protocol.to_string(),
        "addr_format": info.addr_format.to_string(),
        "src_addr": info.src_addr.map(|addr| addr.to_string()),
        "dest_addr": info.dest_addr.map(|addr| addr.to_string()),
        "caps": info.caps.names().collect::<Vec<_>>(),
        "mode": info.mode.names().collect::<Vec<_>>(),
        "max_msg_size": info.ep.max_msg_size,
        "inject_size": info.tx.inject_size,
        "tx_size": info.tx.size,
        "rx_size": info.rx.size,
        "nic": info.nic.as_ref().and_then(|nic| nic.name.clone()),
        "origin": "built in",
    })
}

/// The same of a loaded provider's, as far as the library says it.
fn loaded_as_json(found: &Found, report: &Report) -> Value {
    let [provider, fabric, domain, version, kind, protocol] = &found.fields;
    let last = provider.rsplit(';').next().unwrap_or(provider);
    let file = report.providers.iter().find(|known| known.name.eq_ignore_ascii_case(last)).map(|known| &known.file);
    json!({
        "provider": provider, "fabric": fabric, "domain": domain, "version": version, "type": kind,
        "protocol": protocol, "origin": "loaded", "file": file,
    })
}

/// Whether a loaded provider has the name of a built-in one's info.
fn is_replaced(info: &Info, report: &Report) -> bool {
    let name = info.fabric.prov_name.as_deref().unwrap_or_default();
    let is_loaded = |layer: &str| report.providers.iter().any(|known| known.name.eq_ignore_ascii_case(layer));
    !report.providers.is_empty() && name.split(';').all(is_loaded)
}

/// Name, version and origin of each provider.
fn origins(report: &Report) -> Vec<(String, String, String)> {
    let all = ofi::discover(&Query { version: Version::API, names_only: true, ..Query::default() });
    let mut out: Vec<(String, String, String)> = Vec::new();
    for info in all.map(|(infos, _)| infos).unwrap_or_default() {
        let name = info.fabric.prov_name.clone().unwrap_or_default();
        if name.starts_with("ofi_") || !is_replaced(&info, report) {
            out.push((name, Version(info.fabric.prov_version).to_string(), "built in".to_owned()));
        }
    }
    for provider in &report.providers {
        let origin = format!("{}, built for interface {}", provider.file, provider.api);
        out.push((provider.name.clone(), provider.version.clone(), origin));
    }
    out
}

fn reasons(refusals: &Refusals) -> Vec<Value> {
    let value = |r: &ofi::Refusal| {
        let mut out = match &r.reason.problem {
            Problem::Differs { wanted, offered } => json!({ "wanted": wanted, "offered": offered }),
            Problem::Lacks { flags, because } => json!({ "lacks": flags, "because": because }),
            Problem::Unusable { why } => json!({ "unusable": why }),
            Problem::Requires { modes } => json!({ "requires": modes }),
        };
        out["provider"] = json!(r.provider);
        out["endpoint"] = json!(r.endpoint);
        out["field"] = json!(r.reason.field);
        out["text"] = json!(r.reason.to_string());
        out
    };
    refusals.0.iter().map(value).collect()
}

/// Runs the tool: exits with 0 if it finds an entry, with the error number if not.
pub fn main() -> ExitCode {
    let options = Options::parse();
    if options.version {
        let version = env!("CARGO_PKG_VERSION");
        crate::line!("fi_info: {version}\nlibfabric: {version}\nlibfabric api: {}", Version::API);
        return ExitCode::SUCCESS;
    }
    if options.env || options.getenv.is_some() {
        environment(options.getenv.as_deref(), options.json);
        return ExitCode::SUCCESS;
    }
    let query = match options.query() {
        Ok(query) if options.list => Query { names_only: true, ..query },
        Ok(query) => query,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(BAD_OPTION);
        }
    };
    let (mut infos, refusals) = match ofi::discover(&query) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("fi_getinfo: {error}");
            return ExitCode::from(u8::try_from(error.errno().raw()).unwrap_or(1));
        }
    };
    let mut report = loaded::report(&query);
    say_problem(report.problem.take());
    infos.retain(|info| !is_replaced(info, &report));
    if options.json {
        let of_place = |before| report.found.iter().filter(move |found| found.before == before);
        let found = |before| of_place(before).map(|found| loaded_as_json(found, &report));
        let found: Vec<Value> = found(true).chain(infos.iter().map(as_json)).chain(found(false)).collect();
        let mut reasons = reasons(&refusals);
        let loaded = |(name, why): &(String, String)| json!({ "provider": name, "endpoint": "loaded", "text": why });
        reasons.extend(report.refusals.iter().map(loaded));
        let mut out = json!({ "infos": found, "refusals": reasons });
        if options.explain {
            let row = |row: Row| json!({ "what": row.what, "answer": row.answer, "reason": row.reason });
            out["unsupported"] = refused::rows().map(row).collect();
            let origin = |(name, version, origin)| json!({ "provider": name, "version": version, "origin": origin });
            out["providers"] = origins(&report).into_iter().map(origin).collect();
            let unused = |(file, why): &(String, String)| json!({ "file": file, "reason": why });
            out["unused"] = report.unused.iter().map(unused).collect();
        }
        crate::line!("{out:#}");
    } else {
        print_loaded(&options, &report, true);
        print(&options, &infos);
        print_loaded(&options, &report, false);
        if options.explain || infos.is_empty() && report.found.is_empty() {
            refusals.0.iter().for_each(|refusal| eprintln!("{refusal}"));
            report.refusals.iter().for_each(|(name, why)| eprintln!("{name} (loaded): {why}"));
        }
        if options.explain {
            eprintln!("where providers come from:");
            for (name, version, origin) in origins(&report) {
                eprintln!("  {name} {version}: {origin}");
            }
            report.unused.iter().for_each(|(file, why)| eprintln!("  {file} is not used: {why}"));
            eprintln!("what no provider supports:");
            refused::rows().for_each(|row| eprintln!("  {}: {}: {}", row.what, row.answer, row.reason));
        }
    }
    if infos.is_empty() && report.found.is_empty() {
        if !options.json {
            eprintln!("fi_getinfo: -{}", Errno::ENODATA.raw());
        }
        return ExitCode::from(u8::try_from(Errno::ENODATA.raw()).unwrap_or(1));
    }
    ExitCode::SUCCESS
}

/// Prints what loaded providers offer, as [`print()`] does.
fn print_loaded(options: &Options, report: &Report, before: bool) {
    if options.list {
        for provider in report.providers.iter().filter(|_| !before) {
            crate::line!("{}:\n    version: {}", provider.name, provider.version);
        }
        return;
    }
    for found in report.found.iter().filter(|found| found.before == before) {
        let [provider, fabric, domain, version, kind, protocol] = &found.fields;
        if let Some(part) = &options.info {
            if found.text.contains(part.as_str()) {
                crate::text!("---\n{}", found.text);
            }
        } else if options.verbose {
            crate::text!("---\n{}", found.text);
        } else {
            crate::line!("provider: {provider}\n    fabric: {fabric}\n    domain: {domain}");
            crate::line!("    version: {version}\n    type: {kind}\n    protocol: {protocol}");
        }
    }
}

fn print(options: &Options, infos: &[Info]) {
    for info in infos {
        if options.list {
            let name = info.fabric.prov_name.as_deref().unwrap_or("(null)");
            crate::line!("{name}:\n    version: {}", Version(info.fabric.prov_version));
        } else if let Some(part) = &options.info {
            let text = ofi::text_of(info);
            if text.contains(part.as_str()) {
                crate::text!("---\n{text}");
            }
        } else if options.verbose {
            crate::text!("---\n{}", ofi::text_of(info));
        } else {
            crate::text!("{}", summary(info));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(arguments: &[&str]) -> Result<Query, String> {
        Options::try_parse_from(std::iter::once(&"fi_info").chain(arguments)).map_err(|e| e.to_string())?.query()
    }

    #[test]
    fn options_become_hints() {
        let hints =
            query(&["-c", "FI_MSG|tagged", "-t", "FI_EP_RDM", "-p", "tcp", "-d", "eth0"]).unwrap().hints.unwrap();
        assert_eq!(hints.caps, Caps::MSG | Caps::TAGGED);
        assert_eq!(hints.ep.unwrap().kind, EndpointType::RDM);
        assert_eq!(hints.fabric.unwrap().prov_name.as_deref(), Some("tcp"));
        assert_eq!(hints.domain.unwrap().name.as_deref(), Some("eth0"));
        assert!(hints.mode.contains(Mode::CONTEXT));
        assert_eq!(query(&["-m", "FI_CONTEXT"]).unwrap().hints.unwrap().mode, Mode::CONTEXT);
    }

    #[test]
    fn without_a_filter_there_are_no_hints() {
        assert!(query(&["-v"]).unwrap().hints.is_none());
        assert!(query(&["-n", "localhost", "-P", "4711"]).unwrap().hints.is_none());
    }

    #[test]
    fn invalid_options_are_named() {
        assert_eq!(query(&["-c", "FI_XYZ"]).unwrap_err(), "Unrecognized capability: FI_XYZ");
        assert_eq!(query(&["-t", "RDM"]).unwrap_err(), "Unrecognized endpoint type: RDM");
    }
}
