//! `rdma_getaddrinfo`: resolves a node and a service (rdma_getaddrinfo(3)).

use clap::builder::{PossibleValuesParser, TypedValueParser};
use comfy_table::{Table, presets};
use ofi_rdma::{AddrInfo, Address, Error, Family, Flags, Hints, Kind, PortSpace, QpType, resolve};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Resolves a node and a service into addresses for RDMA connections or listeners.
#[derive(Debug, clap::Parser)]
#[command(name = "rdma_getaddrinfo", version)]
pub struct Options {
    /// Name, IPv4 or IPv6 address; with --gid a GID; "-" for none: loopback, or with --passive any
    /// address
    node: Option<String>,
    /// Service name or port number
    service: Option<String>,
    /// Returns source addresses to listen on (RAI_PASSIVE)
    #[arg(short = 'P', long)]
    passive: bool,
    /// The node is an address: no name is looked up (RAI_NUMERICHOST)
    #[arg(short, long)]
    numeric: bool,
    /// Looks up no route, and therefore no source (RAI_NOROUTE)
    #[arg(short = 'R', long)]
    no_route: bool,
    /// Only addresses of this family
    #[arg(short, long, ignore_case = true, value_parser = named(Family::ALL, Family::name))]
    family: Option<Family>,
    /// The node is a GID: returns InfiniBand addresses (RAI_FAMILY with AF_IB)
    #[arg(short, long, conflicts_with = "family")]
    gid: bool,
    /// The queue pair type [default: RC, or UD in the port spaces UDP and IPOIB]
    #[arg(short, long, value_name = "TYPE", ignore_case = true, value_parser = named(QpType::ALL, QpType::name))]
    qp_type: Option<QpType>,
    /// The port space [default: TCP, or UDP for UD]
    #[arg(short = 's', long, ignore_case = true, value_parser = named(PortSpace::ALL, PortSpace::name))]
    port_space: Option<PortSpace>,
    /// The source to connect from: an IP address, with or without a port
    #[arg(short = 'S', long, value_name = "ADDR", value_parser = source)]
    source: Option<Address>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Parses a value by its name, ignoring case.
fn named<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|value| name(*value))).try_map(move |text| {
        let found = all.iter().copied().find(|value| name(*value).eq_ignore_ascii_case(&text));
        found.ok_or("unknown")
    })
}

/// Parses an address with or without a port.
fn source(text: &str) -> Result<Address, String> {
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Ok(Address::Inet(socket));
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((host, port)) => (host, Some(port)),
        None => (text.trim_start_matches('[').trim_end_matches(']'), None),
    };
    // Parse it like a node, with interface names as scopes.
    let hints = Hints { flags: Flags::PASSIVE | Flags::NUMERICHOST, ..Hints::default() };
    let list = resolve(Some(host), port, &hints).map_err(|error| error.why().to_owned())?;
    list.first().and_then(|info| info.source).ok_or_else(|| "no address".to_owned())
}

impl Options {
    fn hints(&self) -> Hints {
        let flag = |wanted: bool, flag: Flags| if wanted { flag } else { Flags::empty() };
        Hints {
            flags: flag(self.passive, Flags::PASSIVE)
                | flag(self.numeric, Flags::NUMERICHOST)
                | flag(self.no_route, Flags::NOROUTE)
                | flag(self.gid, Flags::FAMILY),
            family: if self.gid { Some(Family::Ib) } else { self.family },
            qp_type: self.qp_type,
            port_space: self.port_space,
            source: self.source,
            ..Hints::default()
        }
    }
}

/// Prints the list; false if there is none and the JSON output has the reason.
///
/// # Errors
/// The reason why there is no list.
pub fn run(options: &Options) -> Result<bool, Error> {
    let node = options.node.as_deref().filter(|node| *node != "-");
    let found = match (node, options.service.as_deref()) {
        (None, None) => Err(Error::new(Kind::NoName, "neither a node nor a service is given")),
        (node, service) => resolve(node, service, &options.hints()),
    };
    if options.json {
        let value = match &found {
            Ok(list) => list.iter().map(as_json).collect(),
            Err(error) => refusal(error),
        };
        crate::line!("{value:#}");
        return Ok(found.is_ok());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["family", "type", "space", "source", "destination", "name"]);
    for info in found? {
        let word = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let address = |address: Option<Address>| address.map_or_else(|| "-".to_owned(), |address| address.to_string());
        table.add_row([
            word(info.family.map(Family::name)),
            word(info.qp_type.map(QpType::name)),
            word(info.port_space.map(PortSpace::name)),
            address(info.source),
            address(info.destination),
            word(info.destination_name.or(info.source_name).as_deref()),
        ]);
    }
    crate::line!("{}", table.trim_fmt());
    Ok(true)
}

fn as_json(info: &AddrInfo) -> Value {
    let address = |address: Option<Address>| address.map(|address| address.to_string());
    json!({
        "passive": info.flags.contains(Flags::PASSIVE),
        "family": info.family.map(Family::name),
        "qp_type": info.qp_type.map(QpType::name),
        "port_space": info.port_space.map(PortSpace::name),
        "source": address(info.source),
        "destination": address(info.destination),
        "source_name": info.source_name,
        "destination_name": info.destination_name,
    })
}

fn refusal(error: &Error) -> Value {
    let errno = match error.kind() {
        Kind::System(errno) => Some(errno.raw()),
        _ => None,
    };
    json!({ "error": error.kind().name(), "code": error.kind().code(), "errno": errno, "why": error.why() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn options_become_hints() {
        let options = |line: &str| Options::try_parse_from(line.split(' '));
        let hints = options("x rxe 7471 -P -q ud -s UDP -f INET6 -S fd09::1").unwrap().hints();
        assert_eq!(hints.flags, Flags::PASSIVE);
        assert_eq!((hints.family, hints.qp_type), (Some(Family::Inet6), Some(QpType::Ud)));
        assert_eq!(hints.port_space, Some(PortSpace::Udp));
        assert_eq!(hints.source, Some(Address::Inet("[fd09::1]:0".parse().unwrap())));
        let gid = options("x --gid -n -R fe80::1").unwrap().hints();
        assert_eq!(gid.flags, Flags::FAMILY | Flags::NUMERICHOST | Flags::NOROUTE);
        assert_eq!(gid.family, Some(Family::Ib));
        assert!(options("x -g -f INET").is_err());
        assert!(options("x -q RAW").is_err());
        assert!(options("x -S nowhere").is_err());
        assert_eq!(source("10.9.0.1:7"), Ok(Address::Inet("10.9.0.1:7".parse().unwrap())));
        assert_eq!(source("[::1]"), Ok(Address::Inet("[::1]:0".parse().unwrap())));
        for scoped in ["fe80::1%lo", "[fe80::1%lo]:9"] {
            let port = if scoped.ends_with('9') { 9 } else { 0 };
            assert_eq!(source(scoped), Ok(Address::Inet(format!("[fe80::1%1]:{port}").parse().unwrap())));
        }
        assert_eq!(run(&options("x -P").unwrap()).unwrap_err().kind(), Kind::NoName);
    }

    #[test]
    fn answers_and_refusals_are_json() {
        let list = resolve(Some("127.0.0.1"), Some("7471"), &Hints::default()).unwrap();
        let value = as_json(&list[0]);
        assert_eq!((&value["destination"], &value["source"]), (&json!("127.0.0.1:7471"), &json!("127.0.0.1:0")));
        let value = refusal(&resolve(Some("127.0.0.1"), Some("65536"), &Hints::default()).unwrap_err());
        assert_eq!((&value["error"], &value["code"]), (&json!("EAI_SERVICE"), &json!(-8)));
    }
}
