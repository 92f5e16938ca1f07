//! fi_getinfo(3) as a function from a query to infos, or to the reasons why there are none.

use crate::ADDR_FORMAT;
use crate::filter::{PROVIDER, asked_for, selected};
use crate::inet::{self, Endpoints, Host};
use crate::local;
use crate::provider::providers;
use core::cell::OnceCell;
use core::fmt;
use ofi_core::AddrFormat;
use ofi_core::error::{Error, Result};
use ofi_core::info::{Hints, Info, Offer};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::negotiate::{Reason, format_covers, negotiate};
use ofi_core::{Addr, Caps, Errno, OpFlags, Version};

/// What an application asks for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The interface version that it was written for; 0 counts as 1.0.
    pub version: Version,
    /// A host name, an address, or an address string.
    pub node: Option<String>,
    /// A service name or a port number.
    pub service: Option<String>,
    /// Node and service are this side's.
    pub source: bool,
    /// The node is an address: no name server is asked.
    pub numeric: bool,
    /// Only the names and versions of providers are wanted.
    pub names_only: bool,
    /// What it wants.
    pub hints: Option<Hints>,
}

/// Why one provider has nothing to offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The provider.
    pub provider: String,
    /// Its kind of endpoint.
    pub endpoint: &'static str,
    /// The field that keeps it from matching.
    pub reason: Reason,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.provider, self.endpoint, self.reason)
    }
}

/// Why nothing matched: a reason for each provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(pub Vec<Refusal>);

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no provider matches:")?;
        self.0.iter().try_for_each(|refusal| write!(f, "\n  {refusal}"))
    }
}

/// The ways to communicate that the query allows, best first. An empty list comes with the reasons for it, which are
/// also logged as one block at level warn.
pub fn discover(query: &Query) -> Result<(Vec<Info>, Refusals)> {
    if query.version > Version::API {
        let asked = query.version;
        return Err(Error::new(Errno::ENOSYS, format!("interface version {asked} is newer than {}", Version::API)));
    }
    let api = if query.version.0 == 0 { Version::new(1, 0) } else { query.version };
    if query.names_only {
        return Ok((names(api), Refusals::default()));
    }
    check_bits(query)?;
    let hints = query.hints.clone().unwrap_or_default();
    let (filter, format) = (PROVIDER.text(), format_asked());
    let host = Host::read();
    // Asking for names may take long: once, and only if a provider is asked for at all.
    let ends = OnceCell::new();
    let hints = heeded(query, hints);
    let (mut found, mut refusals) = (Vec::new(), Refusals::default());
    for offer in providers() {
        let ends = || ends.get_or_init(|| endpoints(query, &hints)).clone();
        match matching(query, &hints, &offer, &host, ends, (filter.as_deref(), format)) {
            Ok(infos) => found.extend(infos),
            Err(reason) => refusals.0.push(Refusal {
                provider: offer.most.fabric.prov_name.clone().unwrap_or_default(),
                endpoint: offer.most.ep.kind.name().unwrap_or("?"),
                reason,
            }),
        }
    }
    if found.is_empty() {
        log::log("", Level::Warn, Subsystem::Core, || refusals.to_string());
    }
    Ok((found, refusals))
}

/// Refuses bits that mean nothing in any version of the interface: whoever sets them did not set them on purpose.
fn check_bits(query: &Query) -> Result<()> {
    let refuse = |field: &str, bits: u64| {
        Err(Error::new(
            Errno::EBADFLAGS,
            format!("look for providers with {field} that has the undefined bits {bits:#x}"),
        ))
    };
    let Some(hints) = &query.hints else { return Ok(()) };
    let known = Caps::PRIMARY | Caps::SECONDARY | Caps::KNOWN_BESIDES;
    let sets = [
        ("caps", Some(hints.caps)),
        ("tx_attr->caps", hints.tx.as_ref().map(|tx| tx.caps)),
        ("rx_attr->caps", hints.rx.as_ref().map(|rx| rx.caps)),
        ("domain_attr->caps", hints.domain.as_ref().map(|domain| domain.caps)),
    ];
    for (field, caps) in sets {
        let unknown = caps.unwrap_or_default() - known;
        if !unknown.is_empty() {
            return refuse(field, unknown.bits());
        }
    }
    let flags = [
        ("tx_attr->op_flags", hints.tx.as_ref().map(|tx| tx.op_flags)),
        ("rx_attr->op_flags", hints.rx.as_ref().map(|rx| rx.op_flags)),
    ];
    for (field, flags) in flags {
        let unknown = flags.unwrap_or_default() - OpFlags::KNOWN;
        if !unknown.is_empty() {
            return refuse(field, unknown.bits());
        }
    }
    Ok(())
}

fn names(api: Version) -> Vec<Info> {
    let mut out: Vec<Info> = Vec::new();
    for offer in providers() {
        let fabric = offer.most.fabric;
        // A provider is listed once, under the names of its layers.
        for name in fabric.prov_name.as_deref().unwrap_or("").split(';') {
            if !out.iter().any(|info| info.fabric.prov_name.as_deref() == Some(name)) {
                let mut info = Info::default();
                info.fabric.prov_name = Some(name.to_owned());
                info.fabric.prov_version = fabric.prov_version;
                info.fabric.api_version = api;
                out.push(info);
            }
        }
    }
    out
}

/// What tells one interface from another.
const OF_INTERFACES: &[&str] = &["addr_format", "fabric_attr->name", "domain_attr->name", "src_addr", "dest_addr"];

fn matching(
    query: &Query,
    hints: &Hints,
    offer: &Offer,
    host: &Host,
    ends: impl Fn() -> Result<Endpoints, Reason>,
    (filter, format): (Option<&str>, Option<AddrFormat>),
) -> Result<Vec<Info>, Reason> {
    let api = query.version.max(Version::new(1, 0));
    let most = &offer.most;
    let name = most.fabric.prov_name.as_deref().unwrap_or("");
    let wanted = hints.fabric.as_ref().and_then(|fabric| fabric.prov_name.as_deref());
    if !asked_for(wanted, name) {
        return Err(Reason::new("fabric_attr->prov_name", wanted.unwrap_or(""), name));
    }
    if !selected(filter, name) {
        return Err(Reason::new("FI_PROVIDER", filter.unwrap_or(""), name));
    }
    let (ends, infos) = if offer.interfaces.is_some() {
        let ends = ends()?;
        (ends, inet::expand(offer, host, ends, hints.caps))
    } else {
        let ends = local::endpoints(query, hints)?;
        (ends, vec![local::expand(offer, ends)])
    };
    let mut first = None;
    let mut out = Vec::new();
    for info in infos {
        if let Some(wanted) = format.filter(|format| info.addr_format != *format) {
            first.get_or_insert_with(|| Reason::new(ADDR_FORMAT.name, wanted, info.addr_format));
            continue;
        }
        match negotiate(&info, hints, api) {
            Ok(found) => out.push(finish(found, &info, hints, offer, query)),
            Err(reason) => {
                // The best interface's reason says most, unless it is only that another interface is meant.
                match &first {
                    Some(known) if !OF_INTERFACES.contains(&known.field) => {}
                    Some(_) if OF_INTERFACES.contains(&reason.field) => {}
                    _ => first = Some(reason),
                }
            }
        }
    }
    if out.is_empty() {
        return Err(first.unwrap_or_else(|| match ends.dest {
            Some(dest) => Reason::new("dest_addr", dest, "no route"),
            None => {
                let named = offer.interfaces.map_or("", |param| param.name);
                let wanted = offer.interfaces.and_then(|param| param.text());
                Reason::new(named, wanted.as_deref().unwrap_or("any interface"), "none that is up")
            }
        }));
    }
    Ok(out)
}

/// The hints without an address that node and service stand in for (fi_getinfo(3)).
fn heeded(query: &Query, mut hints: Hints) -> Hints {
    if query.source {
        hints.src_addr = None;
    } else if query.node.is_some() || query.service.is_some() {
        hints.dest_addr = None;
    }
    hints
}

/// The format that the environment asks for; an unknown one is ignored.
fn format_asked() -> Option<AddrFormat> {
    let text = ADDR_FORMAT.text()?;
    let format = AddrFormat::named(&text);
    if format.is_none() {
        log::log("", Level::Warn, Subsystem::Core, || format!("{}: there is no format {text}", ADDR_FORMAT.name));
    }
    format
}

/// What node, service and hints say of addresses.
fn endpoints(query: &Query, hints: &Hints) -> Result<Endpoints, Reason> {
    let (node, service) = (query.node.as_deref(), query.service.as_deref());
    if query.source && node.is_none() && service.is_none() {
        return Err(Reason::new("node and service", "FI_SOURCE", "neither given"));
    }
    // Both ends are of one family: where one is given, the other is looked for among its kind.
    let given = if query.source { hints.dest_addr } else { hints.src_addr };
    let format = match (hints.addr_format, given) {
        (AddrFormat::FORMAT_UNSPEC | AddrFormat::SOCKADDR, Some(given)) => given.format(),
        (format, _) => format,
    };
    let found = inet::lookup(node, service, query.source, query.numeric, format)
        .map_err(|error| Reason::new("node and service", error.doing(), error.errno()))?;
    let usable = |addr: Option<Addr>, field| match addr {
        Some(addr) if !format_covers(hints.addr_format, addr.format()) => {
            Err(Reason::new("addr_format", hints.addr_format, format!("{} of the {field} {addr}", addr.format())))
        }
        addr => Ok(addr),
    };
    let ends = if query.source {
        Endpoints { src: found, dest: hints.dest_addr }
    } else {
        Endpoints { src: hints.src_addr, dest: found.or(hints.dest_addr) }
    };
    usable(ends.src, "src_addr")?;
    usable(ends.dest, "dest_addr")?;
    Ok(ends)
}

/// The last touches: sizes that nobody asked for, versions, names of objects.
fn finish(mut info: Info, whole: &Info, hints: &Hints, offer: &Offer, query: &Query) -> Info {
    if hints.tx.as_ref().is_none_or(|tx| tx.size == 0) {
        info.tx.size = offer.default_size;
    }
    if hints.rx.as_ref().is_none_or(|rx| rx.size == 0) {
        info.rx.size = offer.default_size;
    }
    if hints.tx.is_none() {
        info.tx.op_flags = ofi_core::OpFlags::empty();
    }
    if hints.rx.is_none() {
        info.rx.op_flags = ofi_core::OpFlags::empty();
    }
    if query.hints.is_none() {
        // Nobody asked for anything, so nothing is left out.
        info.caps = whole.caps - Caps::ONLY_IF_NAMED;
        info.tx.caps = whole.tx.caps & info.caps;
        info.rx.caps = whole.rx.caps & info.caps;
    }
    if query.version < Version::new(2, 0) {
        // Bits that callers of that time knew for something else, or not at all.
        let later = Caps::TAGGED_DIRECTED_RECV | Caps::TAGGED_MULTI_RECV;
        for caps in [&mut info.caps, &mut info.tx.caps, &mut info.rx.caps] {
            *caps -= later;
        }
    }
    info.fabric.api_version = query.version;
    info
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::EndpointType;
    use ofi_core::info::{EpAttr, FabricAttr};

    fn ask(change: impl FnOnce(&mut Query)) -> (Vec<Info>, Refusals) {
        let mut query = Query { version: Version::API, ..Query::default() };
        change(&mut query);
        discover(&query).unwrap()
    }

    fn kinds(infos: &[Info]) -> Vec<EndpointType> {
        let mut out: Vec<EndpointType> = infos.iter().map(|info| info.ep.kind).collect();
        out.dedup();
        out
    }

    #[test]
    fn connectionless_comes_before_connected() {
        let (infos, _) = ask(|_| ());
        assert_eq!(kinds(&infos), [EndpointType::RDM, EndpointType::DGRAM, EndpointType::MSG]);
        assert_eq!(infos[0].fabric.prov_name.as_deref(), Some("tcp"));
    }

    #[test]
    fn what_comes_back_gives_itself() {
        let (infos, _) = ask(|_| ());
        for info in infos {
            let (again, why) = ask(|query| query.hints = Some(Hints::from(info.clone())));
            assert!(again.contains(&info), "{info:#?}\n{why}\n{again:#?}");
        }
    }

    #[test]
    fn an_empty_result_says_why_for_each_provider() {
        let (infos, why) = ask(|query| {
            query.hints = Some(Hints { caps: Caps::RMA, ..Hints::default() });
        });
        assert!(infos.is_empty());
        assert_eq!(why.0.len(), providers().len());
        assert!(why.to_string().contains("tcp (FI_EP_RDM): caps: asked for FI_RMA"), "{why}");
    }

    #[test]
    fn a_node_is_the_destination_and_with_source_the_source() {
        let (infos, _) = ask(|query| {
            query.node = Some("127.0.0.1".into());
            query.service = Some("7471".into());
        });
        // Within the host the two are a name.
        let fits = |addr: Option<Addr>| match addr {
            Some(Addr::Inet(socket)) => socket.port() == 7471,
            Some(Addr::Name(name)) => name.as_str() == "fi_ns://127.0.0.1:7471",
            None => false,
        };
        assert!(infos.iter().all(|info| fits(info.dest_addr)));
        let (infos, _) = ask(|query| {
            query.node = Some("127.0.0.1".into());
            query.service = Some("7471".into());
            query.source = true;
        });
        assert!(infos.iter().all(|info| fits(info.src_addr) && info.dest_addr.is_none()));
        assert_eq!(infos[0].domain.name.as_deref(), Some("lo"));
    }

    #[test]
    fn hints_for_kind_provider_and_format_are_obeyed() {
        let (infos, _) = ask(|query| {
            let ep = EpAttr { kind: EndpointType::MSG, ..EpAttr::default() };
            query.hints = Some(Hints { ep: Some(ep), addr_format: AddrFormat::SOCKADDR_IN, ..Hints::default() });
        });
        assert!(!infos.is_empty());
        assert!(infos.iter().all(|i| i.ep.kind == EndpointType::MSG && i.addr_format == AddrFormat::SOCKADDR_IN));
        let (infos, _) = ask(|query| {
            let fabric = FabricAttr { prov_name: Some("tcp;ofi_rxm".into()), ..FabricAttr::default() };
            query.hints = Some(Hints { fabric: Some(fabric), ..Hints::default() });
        });
        assert!(!infos.is_empty());
        assert!(infos.iter().all(|info| info.fabric.prov_name.as_deref() == Some("tcp;ofi_rxm")));
    }

    #[test]
    fn a_newer_interface_is_refused() {
        let query = Query { version: Version::new(2, 7), ..Query::default() };
        assert_eq!(discover(&query).unwrap_err().errno(), Errno::ENOSYS);
    }
}
