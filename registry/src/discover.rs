//! fi_getinfo(3) as a function from a query to infos, or to the reasons why there are none.

use crate::ADDR_FORMAT;
use crate::filter::{PROVIDER, asked_for, selected};
use crate::inet::{self, Endpoints, Host};
use crate::local;
use crate::provider::providers;
use crate::query::Query;
use core::cell::OnceCell;
use core::fmt;
use ofi_core::AddrFormat;
use ofi_core::error::{Error, Result};
use ofi_core::info::{Hints, Info, Offer};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::negotiate::{Reason, format_covers, negotiate};
use ofi_core::{Addr, Caps, Errno, OpFlags, TrafficClass, Version};

/// Why one provider does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The provider.
    pub provider: String,
    /// Its endpoint type.
    pub endpoint: &'static str,
    /// The field that does not match, and why.
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

impl Refusals {
    /// Logs the reasons as one block.
    pub fn log(&self) {
        log::log("", Level::Warn, Subsystem::Core, || self.to_string());
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no provider matches:")?;
        self.0.iter().try_for_each(|refusal| write!(f, "\n  {refusal}"))
    }
}

/// The infos that match the query, best first. An empty list comes with the reasons, which are also
/// logged as one block at level warn.
pub fn discover(query: &Query) -> Result<(Vec<Info>, Refusals)> {
    let (found, refusals) = search(query)?;
    if found.is_empty() {
        refusals.log();
    }
    Ok((found, refusals))
}

/// [`discover`] without the log, for a caller that knows of more providers.
///
/// # Errors
/// As for [`discover`].
pub fn search(query: &Query) -> Result<(Vec<Info>, Refusals)> {
    if query.version > Version::API {
        let asked = query.version;
        return Err(Error::new(Errno::ENOSYS, format!("interface version {asked} is newer than {}", Version::API)));
    }
    let api = if query.version.0 == 0 { Version::new(1, 0) } else { query.version };
    if query.names_only {
        return Ok((names(), Refusals::default()));
    }
    check_bits(query, api)?;
    let hints = query.hints.clone().unwrap_or_default();
    let (filter, format) = (PROVIDER.text(), format_asked());
    let host = Host::read();
    // Name resolution may be slow: at most once, and only if a provider needs it.
    let ends = OnceCell::new();
    let hints = heeded(query, hints);
    let (mut found, mut refusals) = (Vec::new(), Refusals::default());
    for offer in providers() {
        let ends = || ends.get_or_init(|| endpoints(query, &hints)).clone();
        match matching(query, &hints, offer, &host, ends, (filter.as_deref(), format)) {
            Ok(infos) => found.extend(infos),
            Err(reason) => refusals.0.push(Refusal {
                provider: offer.most.fabric.prov_name.clone().unwrap_or_default(),
                endpoint: offer.most.ep.kind.name().unwrap_or("?"),
                reason,
            }),
        }
    }
    Ok((found, refusals))
}

/// Refuses bits that the caller's version does not define: they are set by mistake.
fn check_bits(query: &Query, api: Version) -> Result<()> {
    let refuse = |field: &str, bits: String| {
        let version = query.version;
        Err(Error::new(
            Errno::EBADFLAGS,
            format!("look for providers with {field} that has {bits}, which version {version} does not define there"),
        ))
    };
    let Some(hints) = &query.hints else { return Ok(()) };
    let once = if api < Version::new(2, 0) { Caps::ONCE } else { Caps::empty() };
    let known = Caps::PRIMARY | Caps::SECONDARY | Caps::KNOWN_BESIDES | once;
    let sets = [
        ("caps", Some(hints.caps)),
        ("tx_attr->caps", hints.tx.as_ref().map(|tx| tx.caps)),
        ("rx_attr->caps", hints.rx.as_ref().map(|rx| rx.caps)),
        ("domain_attr->caps", hints.domain.as_ref().map(|domain| domain.caps)),
    ];
    for (field, caps) in sets {
        let unknown = caps.unwrap_or_default() - known;
        if !unknown.is_empty() {
            return refuse(field, unknown.text());
        }
    }
    let flags = [
        ("tx_attr->op_flags", hints.tx.as_ref().map(|tx| tx.op_flags)),
        ("rx_attr->op_flags", hints.rx.as_ref().map(|rx| rx.op_flags)),
    ];
    for (field, flags) in flags {
        let unknown = flags.unwrap_or_default() - OpFlags::KNOWN;
        if !unknown.is_empty() {
            return refuse(field, unknown.text());
        }
    }
    Ok(())
}

fn names() -> Vec<Info> {
    let mut out: Vec<Info> = Vec::new();
    for offer in providers() {
        let fabric = &offer.most.fabric;
        // Lists each layer of a provider's name, once.
        for name in fabric.prov_name.as_deref().unwrap_or("").split(';') {
            if !out.iter().any(|info| info.fabric.prov_name.as_deref() == Some(name)) {
                let mut info = Info::default();
                info.fabric.prov_name = Some(name.to_owned());
                info.fabric.prov_version = fabric.prov_version;
                out.push(info);
            }
        }
    }
    out
}

/// Fields that differ between interfaces.
const OF_INTERFACES: &[&str] =
    &[ADDR_FORMAT.name, "addr_format", "fabric_attr->name", "domain_attr->name", "src_addr", "dest_addr"];

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
    let infos = if offer.interfaces.is_some() {
        inet::expand(offer, host, ends()?)?
    } else {
        vec![local::expand(offer, local::endpoints(query, hints)?)]
    };
    let answer = |info: &Info| {
        if let Some(wanted) = format.filter(|format| !format_covers(*format, info.addr_format)) {
            return Err(Reason::differs(ADDR_FORMAT.name, wanted, info.addr_format));
        }
        let found = negotiate(info, hints, api)?;
        classes(offer, hints)?;
        Ok(found)
    };
    let mut first = None;
    let mut out = Vec::new();
    for info in infos {
        match answer(&info) {
            Ok(found) => out.push(finish(found, &info, hints, offer, query)),
            Err(reason) => {
                let reason = inet::explain(reason, &info, offer, hints.caps, |info| answer(info).map(drop));
                // The best interface's reason wins, unless the hints select another interface.
                let says_more =
                    |known: &Reason| OF_INTERFACES.contains(&known.field) && !OF_INTERFACES.contains(&reason.field);
                if first.as_ref().is_none_or(says_more) {
                    first = Some(reason);
                }
            }
        }
    }
    match first {
        Some(reason) if out.is_empty() => Err(reason),
        _ => Ok(out),
    }
}

/// Over a network, a class other than the default needs packets that carry it. Within a host
/// nothing stands in the way of any class.
fn classes(offer: &Offer, hints: &Hints) -> Result<(), Reason> {
    if offer.interfaces.is_none() {
        return Ok(());
    }
    let asked = [
        ("domain_attr->tclass", hints.domain.as_ref().map(|domain| domain.tclass)),
        ("tx_attr->tclass", hints.tx.as_ref().map(|tx| tx.tclass)),
    ];
    for (field, class) in asked {
        let class = class.unwrap_or_default();
        if !offer.can_carry(class) {
            return Err(Reason::differs(field, class, TrafficClass::BEST_EFFORT));
        }
    }
    Ok(())
}

/// The hints without the address that node and service override (fi_getinfo(3)).
fn heeded(query: &Query, mut hints: Hints) -> Hints {
    if query.source {
        hints.src_addr = None;
    } else if query.node.is_some() || query.service.is_some() {
        hints.dest_addr = None;
    }
    hints
}

/// The format that the environment asks for; an unknown one is ignored.
pub fn format_asked() -> Option<AddrFormat> {
    let text = ADDR_FORMAT.text()?;
    let format = AddrFormat::named(&text);
    if format.is_none() {
        log::log("", Level::Warn, Subsystem::Core, || {
            format!("{}: unknown address format {text}, ignored", ADDR_FORMAT.name)
        });
    }
    format
}

/// The addresses and the format that node, service and hints select.
fn endpoints(query: &Query, hints: &Hints) -> Result<Endpoints, Reason> {
    const FIELD: &str = "node and service";
    let (node, service) = (query.node.as_deref(), query.service.as_deref());
    if query.source && node.is_none() && service.is_none() {
        return Err(Reason::unusable(FIELD, "FI_SOURCE needs one of them"));
    }
    for (field, addr) in [("src_addr", hints.src_addr), ("dest_addr", hints.dest_addr)] {
        if let Some(addr) = addr.filter(|addr| addr.name().is_some()) {
            return Err(Reason::new(field, addr, "an IP address"));
        }
    }
    // Source and destination share a family: a given end decides that of the other.
    let given = if query.source { hints.dest_addr } else { hints.src_addr };
    let mut format = match (hints.addr_format, given) {
        (AddrFormat::FORMAT_UNSPEC | AddrFormat::SOCKADDR, Some(given)) => given.format(),
        (format, _) => format,
    };
    let found = inet::lookup(node, service, query.source, query.numeric, &mut format)
        .map_err(|error| Reason::unusable(FIELD, error.doing()))?;
    let usable = |addr: Option<Addr>, field| match addr {
        Some(addr) if !format_covers(hints.addr_format, addr.format()) => {
            let (wanted, there) = (hints.addr_format, addr.format());
            let offered = format_args!("{there:?} of the {field} {addr}").to_string();
            Err(Reason::new("addr_format", format_args!("{wanted:?}"), offered))
        }
        addr => Ok(addr),
    };
    let (src, dest) = if query.source { (found, hints.dest_addr) } else { (hints.src_addr, found.or(hints.dest_addr)) };
    usable(src, "src_addr")?;
    usable(dest, "dest_addr")?;
    // `negotiate` checks the hints' own format, and names the offered one in its reason.
    let format = if format == hints.addr_format { AddrFormat::FORMAT_UNSPEC } else { format };
    Ok(Endpoints { src, dest, format })
}

/// Fills in what the hints leave open, and adapts the info to the caller's version.
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
        // Without hints, report every capability.
        info.caps = whole.caps - Caps::ONLY_IF_NAMED;
        info.tx.caps = whole.tx.caps & info.caps;
        info.rx.caps = whole.rx.caps & info.caps;
    }
    if query.version < Version::new(2, 0) {
        // Callers before 2.0 give these bits another meaning, or none.
        let later = Caps::TAGGED_DIRECTED_RECV | Caps::TAGGED_MULTI_RECV;
        for caps in [&mut info.caps, &mut info.tx.caps, &mut info.rx.caps] {
            *caps -= later;
        }
    }
    // Traffic within the host has no class, whatever was asked for.
    for class in [&mut info.tx.tclass, &mut info.domain.tclass] {
        if !offer.can_carry(*class) {
            *class = TrafficClass::UNSPEC;
        }
    }
    info.fabric.api_version = query.version;
    info
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inet::tests::host;
    use ofi_core::EndpointType;
    use ofi_core::info::{DomainAttr, EpAttr, FabricAttr};

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
    fn an_info_as_hints_gives_itself() {
        let (infos, _) = ask(|_| ());
        for info in infos {
            let (again, why) = ask(|query| query.hints = Some(Hints::from(info.clone())));
            assert!(again.contains(&info), "{info:#?}\n{why}\n{again:#?}");
        }
    }

    #[test]
    fn an_empty_result_says_why_for_each_provider() {
        let (infos, why) = ask(|query| {
            query.hints = Some(Hints { caps: Caps::HMEM, ..Hints::default() });
        });
        assert!(infos.is_empty());
        assert_eq!(why.0.len(), providers().count());
        assert!(why.to_string().contains("tcp (FI_EP_RDM): caps: lacks FI_HMEM\n"), "{why}");
    }

    #[test]
    fn a_node_is_the_destination_and_with_source_the_source() {
        let (infos, _) = ask(|query| {
            query.node = Some("127.0.0.1".into());
            query.service = Some("7471".into());
        });
        // For shm, node and service form a name.
        let given = |addr: Option<Addr>| match addr {
            Some(Addr::Inet(socket)) => socket.port() == 7471,
            Some(Addr::Name(name)) => name.as_str() == "fi_ns://127.0.0.1:7471",
            None => false,
        };
        assert!(infos.iter().all(|info| given(info.dest_addr) && info.src_addr.is_some()));
        let (infos, _) = ask(|query| {
            query.node = Some("127.0.0.1".into());
            query.service = Some("7471".into());
            query.source = true;
        });
        assert!(infos.iter().all(|info| given(info.src_addr) && info.dest_addr.is_none()));
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

    /// The reason why the first provider, tcp, refuses the hints on a host with these interfaces.
    fn refusal(interfaces: &[(&str, &str)], format: Option<AddrFormat>, hints: &Hints) -> Reason {
        let offer = providers().next().unwrap();
        let host = host(interfaces);
        let query = Query { version: Version::API, ..Query::default() };
        let ends = || endpoints(&query, hints);
        matching(&query, hints, offer, &host, ends, (None, format)).expect_err("nothing matches")
    }

    fn domain(name: &str) -> Option<DomainAttr> {
        Some(DomainAttr { name: Some(name.to_owned()), ..DomainAttr::default() })
    }

    const HOST: &[(&str, &str)] = &[("eth0", "10.0.0.1"), ("lo", "127.0.0.1")];

    #[test]
    fn an_ip_provider_refuses_names_within_the_host() {
        let name = "fi_shm://job".parse().ok();
        for addr_format in [AddrFormat::FORMAT_UNSPEC, AddrFormat::ADDR_STR] {
            let source = Hints { src_addr: name, addr_format, ..Hints::default() };
            let expected = Reason::new("src_addr", "fi_shm://job", "an IP address");
            assert_eq!(refusal(HOST, None, &source), expected);
            let destination = Hints { dest_addr: name, addr_format, ..Hints::default() };
            assert_eq!(refusal(HOST, None, &destination), Reason { field: "dest_addr", ..expected });
        }
    }

    #[test]
    fn a_misspelt_domain_is_not_a_matter_of_loopback() {
        let hints = |name| Hints { caps: Caps::TAGGED | Caps::REMOTE_COMM, domain: domain(name), ..Hints::default() };
        assert_eq!(refusal(HOST, None, &hints("eht0")), Reason::new("domain_attr->name", "eht0", "eth0"));
        // It is if the hints name the loopback interface.
        let text = refusal(HOST, None, &hints("lo")).to_string();
        assert!(text.starts_with("caps: lacks FI_REMOTE_COMM, because lo is the loopback interface"), "{text}");
    }

    #[test]
    fn loopback_hides_nothing_else_that_is_missing() {
        let caps = Caps::HMEM | Caps::REMOTE_COMM;
        let hints = Hints { caps, ..Hints::default() };
        assert_eq!(refusal(&HOST[1..], None, &hints), Reason::lacks("caps", caps.text()));
    }

    #[test]
    fn a_format_that_no_interface_has_is_refused_with_the_one_offered() {
        let names = Hints { addr_format: AddrFormat::ADDR_STR, ..Hints::default() };
        let offered = AddrFormat::SOCKADDR_IN;
        assert_eq!(refusal(HOST, None, &names), Reason::differs("addr_format", names.addr_format, offered));
        // Another mismatch takes precedence.
        let also = Hints { caps: Caps::HMEM, ..names };
        assert_eq!(refusal(HOST, None, &also), Reason::lacks("caps", Caps::HMEM.text()));
        let query = Query { version: Version::API, node: Some("fi_sockaddr_in6".into()), ..Query::default() };
        let hints = Hints::default();
        let (offer, host) = (providers().next().unwrap(), host(HOST));
        let reason = matching(&query, &hints, offer, &host, || endpoints(&query, &hints), (None, None)).unwrap_err();
        assert_eq!(
            reason.to_string(),
            "node and service: asked for FI_SOCKADDR_IN6, offered no address of that format"
        );
    }

    #[test]
    fn the_environments_format_covers_others_and_hides_no_other_reason() {
        let collective = Hints { caps: Caps::HMEM, ..Hints::default() };
        let v6 = Some(AddrFormat::SOCKADDR_IN6);
        assert_eq!(refusal(HOST, v6, &Hints::default()).field, ADDR_FORMAT.name);
        let both = &[("eth0", "10.0.0.1"), ("eth1", "[fd00::1]")];
        assert_eq!(refusal(both, v6, &collective), Reason::lacks("caps", Caps::HMEM.text()));
        // A format that covers the interfaces' formats leaves only the hints to refuse.
        assert_eq!(refusal(HOST, Some(AddrFormat::SOCKADDR), &collective), Reason::lacks("caps", Caps::HMEM.text()));
    }

    #[test]
    fn a_newer_interface_is_refused() {
        let query = Query { version: Version::new(2, 7), ..Query::default() };
        assert_eq!(discover(&query).unwrap_err().errno(), Errno::ENOSYS);
    }
}
