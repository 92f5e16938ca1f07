//! Addresses for IP providers: selects this host's addresses, resolves nodes and services.

use core::cell::RefCell;
use ofi_core::addr_string::AddrString;
use ofi_core::error::{Error, Result};
use ofi_core::info::{Device, Info, Nic, Offer};
use ofi_core::negotiate::{Problem, Reason, format_covers};
use ofi_core::{Addr, AddrFormat, Caps, Errno};
use ofi_os::infiniband::SYSFS;
use ofi_os::netif::{self, Interface, Selection, outward, ranked};
use ofi_os::resolve::{Family, Options, resolve};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// The addresses that an application gives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Endpoints {
    /// This side's address.
    pub src: Option<Addr>,
    /// The peer's address.
    pub dest: Option<Addr>,
    /// The format of both, if node and service imply one and the hints do not.
    pub format: AddrFormat,
}

/// Resolves a node and a service: with `source` to the source address, else to the destination.
/// `format` is the hints' format; an address string may narrow it.
///
/// # Errors
/// EINVAL for an invalid address string, one of another format, or one with a separate service;
/// ENODATA for names that do not resolve.
pub fn lookup(
    node: Option<&str>,
    service: Option<&str>,
    source: bool,
    numeric: bool,
    format: &mut AddrFormat,
) -> Result<Option<Addr>> {
    let refuse = |what: String| Err(Error::new(Errno::EINVAL, what));
    let string = match node.and_then(AddrString::parse) {
        None => return resolved(node, service, source, numeric, *format),
        Some(Ok(string)) => string,
        Some(Err(what)) => return refuse(what),
    };
    let node = node.unwrap_or_default();
    if let Some(service) = service {
        return refuse(format!("the service \"{service}\" beside the address string \"{node}\", which says its own"));
    }
    if !string.is_inet() || !format_covers(*format, string.format) && !format_covers(string.format, *format) {
        let offered = if string.is_inet() { *format } else { AddrFormat::SOCKADDR };
        return refuse(format!("the address string \"{node}\" is not of the format {offered:?}"));
    }
    let of_one_family = matches!(string.format, AddrFormat::SOCKADDR_IN | AddrFormat::SOCKADDR_IN6);
    if of_one_family || *format == AddrFormat::FORMAT_UNSPEC {
        *format = string.format;
    }
    if string.node.is_none() && string.service.is_none() && !source {
        return Ok(None);
    }
    // Numbers need no name server and no services database. An interface's name is a scope.
    if string.node.is_some()
        && let Some(addr) = string.numeric(interface_index)
    {
        return Ok(Some(addr.into()));
    }
    let scoped = string.node.zip(string.scope).map(|(node, scope)| format!("{node}%{scope}"));
    let service = string.service.or_else(|| string.node.is_none().then_some("0"));
    resolved(scoped.as_deref().or(string.node), service, source, numeric, *format)
}

/// Asks the resolver for a node and a service.
fn resolved(
    node: Option<&str>,
    service: Option<&str>,
    source: bool,
    numeric: bool,
    format: AddrFormat,
) -> Result<Option<Addr>> {
    if node.is_none() && service.is_none() {
        return Ok(None);
    }
    // The system's resolver truncates a port number above 65535 to 16 bits.
    if let Some(port) =
        service.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_err())
        && !port.is_empty()
    {
        return Err(Error::new(Errno::EINVAL, format!("{port} is not a port: the maximum is 65535")));
    }
    let family = match format {
        AddrFormat::SOCKADDR_IN => Family::V4,
        AddrFormat::SOCKADDR_IN6 => Family::V6,
        _ => Family::Any,
    };
    let found = resolve(node, service, Options { family, passive: source, numeric, datagram: false })?;
    Ok(found.first().copied().map(Addr::from))
}

/// The index of the named interface, if it has an IPv6 address.
fn interface_index(name: &str) -> Option<u32> {
    let all = netif::interfaces().ok()?;
    let named = all.iter().find(|i| i.name == name && i.addr.is_ipv6())?;
    Some(netif::index_of(&named.addr)).filter(|index| *index != 0)
}

/// This host's interfaces, read once per query.
#[derive(Debug)]
pub struct Host {
    interfaces: Vec<Interface>,
    /// Why they are not known.
    failure: Option<io::Error>,
    nics: RefCell<BTreeMap<String, Option<Nic>>>,
}

impl Host {
    /// Reads the current state.
    pub fn read() -> Self {
        let (all, failure) = match netif::interfaces() {
            Ok(all) => (all, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let outward = outward(&all);
        Self { interfaces: ranked(all, outward.as_deref()), failure, nics: RefCell::default() }
    }

    fn nic(&self, name: &str) -> Option<Nic> {
        let mut nics = self.nics.borrow_mut();
        if let Some(known) = nics.get(name) {
            return known.clone();
        }
        let nic = netif::nic(Path::new(SYSFS), name);
        nics.insert(name.to_owned(), nic.clone());
        nic
    }
}

/// Expands an offer to an info for each address of this host, best first, loopback last.
///
/// # Errors
/// Why there is no address to offer.
pub fn expand(offer: &Offer, host: &Host, ends: Endpoints) -> Result<Vec<Info>, Reason> {
    if let (Some(src), Some(dest)) = (ends.src, ends.dest)
        && src.socket().is_ipv4() != dest.socket().is_ipv4()
    {
        return Err(Reason::new("dest_addr", dest, format_args!("the family of {src}")));
    }
    let devices = offer.devices.map(|find| find()).transpose();
    let devices = devices.map_err(|why| Reason::unusable(DEVICE, why))?;
    // Devices have addresses of their own: with the wildcard address, each device offers its own.
    let wild = ends.src.map(|src| src.socket()).filter(|src| devices.is_some() && src.ip().is_unspecified());
    if let Some(src) = ends.src.filter(|_| wild.is_none()) {
        return on_device(devices.as_deref(), named(offer, src, ends.dest, host)).map(|info| vec![info]);
    }
    if let Some(dest) = ends.dest.filter(|_| wild.is_none()) {
        let source = match netif::source_for(dest.socket()) {
            Ok(source) => source.ok_or_else(|| Reason::new("dest_addr", dest, "no route"))?,
            Err(error) => return Err(Reason::new("dest_addr", dest, error)),
        };
        let info = named(offer, source.into(), Some(dest), host);
        return on_device(devices.as_deref(), info).map(|info| vec![info]);
    }
    let chosen = offer.interfaces.and_then(|param| param.text());
    let selection = chosen.as_deref().map(Selection::parse);
    let up: Vec<&Interface> =
        host.interfaces.iter().filter(|i| selection.as_ref().is_none_or(|selection| selection.allows(i))).collect();
    if let Some(error) = &host.failure {
        return Err(Reason::unusable(DEVICE, format!("the interfaces cannot be listed: {error}")));
    }
    if up.is_empty() {
        let field = offer.interfaces.map_or("domain_attr->name", |param| param.name);
        return Err(Reason::new(field, chosen.as_deref().unwrap_or("any interface"), "none that is up"));
    }
    let infos = up.into_iter().filter(|i| wild.is_none_or(|wild| wild.is_ipv4() == i.addr.is_ipv4())).map(|i| {
        let mut addr = i.addr;
        addr.set_port(wild.map_or(0, |wild| wild.port()));
        on_device(devices.as_deref(), named(offer, Addr::from(addr), ends.dest, host))
    });
    let infos: Vec<Info> = infos.filter_map(Result::ok).collect();
    if infos.is_empty() {
        return Err(Reason::new(DEVICE, "any interface that is up", "none with a device of this provider"));
    }
    let infos = infos.into_iter();
    let infos: Vec<Info> = infos.filter(|info| format_covers(ends.format, info.addr_format)).collect();
    if infos.is_empty() {
        let wanted = ends.format;
        return Err(Reason::new("node and service", format_args!("{wanted:?}"), "no address of that format"));
    }
    Ok(infos)
}

/// The field of reasons that concern devices.
const DEVICE: &str = "domain_attr->name";

/// The info of an interface as that of its device, if it needs one.
fn on_device(devices: Option<&[Device]>, mut info: Info) -> Result<Info, Reason> {
    let Some(devices) = devices else { return Ok(info) };
    let interface = info.domain.name.clone().unwrap_or_default();
    let Some(device) = devices.iter().find(|device| device.interface == interface) else {
        return Err(Reason::new(DEVICE, format_args!("{interface}"), "no device of this provider there"));
    };
    info.domain.name = Some(device.name.clone());
    if let Some(nic) = &mut info.nic {
        nic.name = Some(device.name.clone());
    }
    Ok(info)
}

/// Explains a missing FI_REMOTE_COMM by the loopback interface, unless the hints would be refused
/// anyway. `again` negotiates over another info.
pub(crate) fn explain(
    reason: Reason,
    info: &Info,
    offer: &Offer,
    asked: Caps,
    again: impl FnOnce(&Info) -> Result<(), Reason>,
) -> Reason {
    let missing = (asked & Caps::REMOTE_COMM) - info.caps;
    if missing.is_empty() || !offer.most.caps.contains(Caps::REMOTE_COMM) || reason.field != "caps" {
        return reason;
    }
    let mut reaching = info.clone();
    reaching.caps |= missing;
    reaching.domain.caps |= missing;
    match again(&reaching) {
        Ok(()) => {}
        // The first reason names all missing capabilities.
        Err(Reason { field: "caps", problem: Problem::Lacks { .. } }) => return reason,
        Err(other) => return other,
    }
    let domain = info.domain.name.as_deref().unwrap_or("the interface");
    let chosen = offer.interfaces.and_then(|param| Some(format!(" ({}={})", param.name, param.text()?)));
    let because =
        format!("{domain} is the loopback interface, which reaches this host only{}", chosen.unwrap_or_default());
    Reason::lacks_because("caps", missing, because)
}

/// Whether a domain of that name exists: an interface, a device of a provider, or a provider's name
/// for all interfaces.
///
/// # Errors
/// The system's if the interfaces cannot be listed.
pub fn has_domain(name: &str) -> io::Result<bool> {
    let is_device = || {
        let found = crate::providers().filter_map(|offer| offer.devices).filter_map(|find| find().ok());
        found.flatten().any(|device| device.name.eq_ignore_ascii_case(name))
    };
    if crate::has_provider(name) || netif::interfaces()?.iter().any(|i| i.name.eq_ignore_ascii_case(name)) {
        return Ok(true);
    }
    Ok(is_device())
}

/// Whether an interface has that address. The scope tells equal link-local addresses apart.
fn is_of(addr: &SocketAddr, interface: &Interface) -> bool {
    let same_link = match (addr, &interface.addr) {
        (SocketAddr::V6(a), SocketAddr::V6(b)) => a.scope_id() == 0 || a.scope_id() == b.scope_id(),
        _ => true,
    };
    addr.ip() == interface.addr.ip() && same_link
}

/// The info for one address: names, format, NIC, packet size; without FI_REMOTE_COMM on loopback.
fn named(offer: &Offer, src: Addr, dest: Option<Addr>, host: &Host) -> Info {
    let base = &offer.most;
    let mut info = base.clone();
    info.addr_format = src.format();
    info.src_addr = Some(src);
    info.dest_addr = dest;
    let ip = src.socket().ip();
    match host.interfaces.iter().find(|i| is_of(&src.socket(), i)) {
        Some(interface) => {
            info.domain.name = Some(interface.name.clone());
            info.fabric.name = Some(interface.network());
            info.nic = host.nic(&interface.name);
            if let Some(payload_of) = offer.packets.filter(|_| interface.mtu > 0) {
                let whole = payload_of(interface.mtu, src.socket().is_ipv6());
                info.ep.max_msg_size = info.ep.max_msg_size.min(whole);
                info.tx.inject_size = info.tx.inject_size.min(whole);
            }
            if interface.loopback {
                info.caps -= Caps::REMOTE_COMM;
                info.domain.caps -= Caps::REMOTE_COMM;
            }
        }
        None if ip.is_loopback() => {
            // Any 127.0.0.0/8 address is loopback, even if not configured or while it is down.
            let lo = host.interfaces.iter().find(|i| i.loopback && i.addr.is_ipv4() == ip.is_ipv4());
            let network = if ip.is_ipv4() { "127.0.0.0/8" } else { "::1/128" };
            info.domain.name = Some(lo.map_or_else(|| "lo".to_owned(), |lo| lo.name.clone()));
            info.fabric.name = Some(lo.map_or_else(|| network.to_owned(), Interface::network));
            info.caps -= Caps::REMOTE_COMM;
            info.domain.caps -= Caps::REMOTE_COMM;
        }
        None => {
            let core = base.fabric.prov_name.as_deref().and_then(|name| name.split(';').next());
            info.domain.name = core.map(str::to_owned);
            info.fabric.name = core.map(str::to_owned);
        }
    }
    info
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A host with these interfaces, each a name and an address.
    pub(crate) fn host(interfaces: &[(&str, &str)]) -> Host {
        let interfaces = interfaces.iter().map(|(name, addr)| interface(name, addr)).collect();
        Host { interfaces, failure: None, nics: RefCell::default() }
    }

    fn interface(name: &str, addr: &str) -> Interface {
        let addr: SocketAddr = format!("{addr}:0").parse().unwrap();
        Interface {
            name: name.into(),
            addr,
            prefix: 24,
            running: true,
            loopback: addr.ip().is_loopback(),
            point_to_point: false,
            virtual_device: false,
            speed: 1000,
            mtu: 1500,
        }
    }

    #[test]
    fn interfaces_are_chosen_by_name_list_network_and_negation() {
        let (eth, ib) = (interface("eth0", "10.1.2.3"), interface("ib0", "192.168.0.9"));
        let chosen = |text| (Selection::parse(text).allows(&eth), Selection::parse(text).allows(&ib));
        assert_eq!(chosen("eth0"), (true, false));
        assert_eq!(chosen("eth0, ib0"), (true, true));
        assert_eq!(chosen("^eth0"), (false, true));
        assert_eq!(chosen("10.0.0.0/8"), (true, false));
        assert_eq!(chosen("^192.168.0.0/16,10.1.2.3"), (false, false));
        assert_eq!(chosen("192.168.0.9"), (false, true));
        assert_eq!(chosen("0.0.0.0/0"), (true, true));
        assert_eq!(chosen("eth"), (false, false));
        assert_eq!(chosen("10.0.0.0/33"), (false, false));
    }

    #[test]
    fn hardware_comes_before_bridges_and_carriers_before_none() {
        let slow = Interface { speed: 10, ..interface("eth0", "10.0.0.1") };
        let fast = Interface { speed: 100_000, ..interface("eth1", "10.0.1.1") };
        let bridge = Interface { virtual_device: true, speed: 400_000, ..interface("docker0", "172.17.0.1") };
        let dead = Interface { running: false, speed: 400_000, ..interface("eth2", "10.0.2.1") };
        let tunnel = Interface { point_to_point: true, ..interface("tun0", "10.8.0.1") };
        let lo = interface("lo", "127.0.0.1");
        let order = ranked(vec![lo, bridge, dead, slow, tunnel, fast], Some("tun0"));
        let names: Vec<&str> = order.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["eth1", "eth0", "tun0", "docker0", "eth2", "lo"]);
    }

    fn found(node: &str, source: bool) -> Result<Option<Addr>> {
        lookup(Some(node), None, source, true, &mut AddrFormat::default())
    }

    #[test]
    fn address_strings_are_read_or_say_what_is_wrong() {
        let good = |text| found(text, false).unwrap().unwrap().to_string();
        assert_eq!(good("fi_sockaddr_in://1.2.3.4:5"), "fi_sockaddr_in://1.2.3.4:5");
        assert_eq!(good("fi_sockaddr_in://1.2.3.4"), "fi_sockaddr_in://1.2.3.4:0");
        assert_eq!(good("fi_sockaddr://[::1]:5/x?qos=3"), "fi_sockaddr_in6://[::1]:5");
        assert_eq!(good("://127.0.0.1:7471"), "fi_sockaddr_in://127.0.0.1:7471");
        assert_eq!(good("fi_sockaddr_in6://[fe80::1%lo]:9"), "fi_sockaddr_in6://[fe80::1%1]:9");
        assert_eq!(good("fi_sockaddr_in://:9"), "fi_sockaddr_in://127.0.0.1:9");
        assert_eq!(found("fi_sockaddr_in://:9", true).unwrap().unwrap().to_string(), "fi_sockaddr_in://0.0.0.0:9");
        assert_eq!(found("fi_sockaddr_in6", true).unwrap().unwrap().to_string(), "fi_sockaddr_in6://[::]:0");
        assert_eq!(found("fi_sockaddr_in://", false).unwrap(), None);
        for bad in ["fi_sockaddr_in://[::1", "fi_addr_efa://x", "fi_shm://job", "what://ever"] {
            let error = found(bad, false).unwrap_err();
            assert_eq!(error.errno(), Errno::EINVAL, "{bad}");
            assert!(error.doing().contains(bad), "{error}");
        }
        for unknown in ["fi_sockaddr_in6://1.2.3.4:5", "fi_sockaddr_in://[::1]:5", "fi_sockaddr://a-name:5"] {
            assert_eq!(found(unknown, false).unwrap_err().errno(), Errno::ENODATA, "{unknown}");
        }
        for large in ["fi_sockaddr://1.2.3.4:65536", "fi_sockaddr://:99999999999999999999"] {
            assert!(found(large, false).unwrap_err().doing().contains("65535"), "{large}");
        }
        assert!(lookup(Some("1.2.3.4"), Some("65536"), false, true, &mut AddrFormat::default()).is_err());
        let beside = lookup(Some("fi_sockaddr_in://1.2.3.4:5"), Some("6"), false, true, &mut AddrFormat::default());
        assert!(beside.unwrap_err().doing().contains("the service \"6\" beside"));
    }

    #[test]
    fn a_scheme_and_the_hints_name_one_format() {
        let narrowed = |hint: AddrFormat, node: &str| {
            let mut format = hint;
            lookup(Some(node), None, false, true, &mut format).map(|_| format).map_err(|error| error.doing().to_owned())
        };
        let v4 = "fi_sockaddr_in://1.2.3.4:5";
        for hint in [AddrFormat::FORMAT_UNSPEC, AddrFormat::SOCKADDR, AddrFormat::SOCKADDR_IN, AddrFormat::SOCKADDR_IP]
        {
            assert_eq!(narrowed(hint, v4), Ok(AddrFormat::SOCKADDR_IN), "{hint:?}");
        }
        assert_eq!(narrowed(AddrFormat::SOCKADDR_IN, "fi_sockaddr://1.2.3.4:5"), Ok(AddrFormat::SOCKADDR_IN));
        assert_eq!(narrowed(AddrFormat::SOCKADDR_IN6, "://[::1]:5"), Ok(AddrFormat::SOCKADDR_IN6));
        let reason = narrowed(AddrFormat::SOCKADDR_IN6, v4).unwrap_err();
        assert!(reason.contains(v4) && reason.contains("FI_SOCKADDR_IN6"), "{reason}");
    }

    #[test]
    fn interfaces_that_cannot_be_listed_are_not_said_to_be_down() {
        let failure = Some(io::Error::from_raw_os_error(24));
        let host = Host { failure, ..host(&[]) };
        let offer = crate::providers().next().unwrap();
        let reason = expand(offer, &host, Endpoints::default()).unwrap_err().to_string();
        assert!(reason.contains("cannot be listed: Too many open files"), "{reason}");
    }

    #[test]
    fn loopback_reaches_only_this_host() {
        let offer = crate::providers().next().unwrap();
        let all = expand(offer, &Host::read(), Endpoints::default()).unwrap();
        let lo = all.iter().find(|info| info.src_addr.unwrap().socket().ip().is_loopback()).unwrap();
        assert!(lo.caps.contains(Caps::LOCAL_COMM) && !lo.caps.contains(Caps::REMOTE_COMM));
        let plain = Reason::lacks("caps", Caps::REMOTE_COMM.text());
        let text = explain(plain.clone(), lo, offer, Caps::MSG | Caps::REMOTE_COMM, |_| Ok(())).to_string();
        assert!(text.contains("lacks FI_REMOTE_COMM") && text.contains("loopback"), "{text}");
        assert_eq!(explain(plain.clone(), lo, offer, Caps::MSG, |_| Ok(())), plain);
    }

    #[test]
    fn a_provider_of_devices_offers_their_interfaces_alone() {
        let offer = |devices| Offer { devices: Some(devices), ..crate::providers().next().unwrap().clone() };
        let host = host(&[("eth0", "10.0.0.1"), ("eth1", "10.0.1.1"), ("lo", "127.0.0.1")]);
        let one: Offer = offer(|| Ok(vec![Device { name: "rxe0".to_owned(), interface: "eth1".to_owned() }]));
        let of = |src: Option<&str>| {
            let src = src.map(|src| Addr::from(src.parse::<SocketAddr>().unwrap()));
            expand(&one, &host, Endpoints { src, ..Endpoints::default() })
        };
        for (src, wanted) in
            [(None, "10.0.1.1:0"), (Some("0.0.0.0:7"), "10.0.1.1:7"), (Some("10.0.1.1:8"), "10.0.1.1:8")]
        {
            let infos = of(src).unwrap();
            assert_eq!(infos.len(), 1, "{src:?}");
            assert_eq!(infos[0].domain.name.as_deref(), Some("rxe0"));
            assert_eq!(infos[0].src_addr.unwrap().socket().to_string(), wanted);
        }
        assert!(of(Some("10.0.0.1:0")).unwrap_err().to_string().contains("no device of this provider"));
        let none = offer(|| Err("no device".to_owned()));
        assert!(expand(&none, &host, Endpoints::default()).unwrap_err().to_string().contains("no device"));
    }

    #[test]
    fn a_destination_chooses_the_source() {
        let offer = crate::providers().next().unwrap();
        let dest = found("fi_sockaddr_in://127.0.0.1:7471", false).unwrap();
        let ends = Endpoints { dest, ..Endpoints::default() };
        let all = expand(offer, &Host::read(), ends).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].src_addr.unwrap().socket().to_string(), "127.0.0.1:0");
        assert_eq!(all[0].dest_addr, dest);
    }
}
