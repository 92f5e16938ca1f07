//! Addresses for providers over IP: which of this host's to use, and what a node and a service mean.

use core::cell::RefCell;
use ofi_core::error::{Error, Result};
use ofi_core::info::{Info, Nic, Offer};
use ofi_core::{Addr, AddrFormat, Caps, Errno};
use ofi_os::netif::{self, Interface, Selection, outward, ranked};
use ofi_os::resolve::{Family, Options, resolve};
use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV6};

/// What an application said of addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Endpoints {
    /// This side's address.
    pub src: Option<Addr>,
    /// The peer's address.
    pub dest: Option<Addr>,
}

/// The addresses that a node and a service stand for: this side's with FI_SOURCE, else the peer's.
pub fn lookup(
    node: Option<&str>,
    service: Option<&str>,
    source: bool,
    numeric: bool,
    format: AddrFormat,
) -> Result<Option<Addr>> {
    if node.is_none() && service.is_none() {
        return Ok(None);
    }
    let family = match format {
        AddrFormat::SOCKADDR_IN => Family::V4,
        AddrFormat::SOCKADDR_IN6 => Family::V6,
        _ => Family::Any,
    };
    if let Some(addr) = node.and_then(parse_scheme) {
        return match service {
            None => addr.map(Some),
            Some(service) => {
                Err(Error::new(Errno::EINVAL, format!("use service {service} besides an address that has its port")))
            }
        };
    }
    let found = resolve(node, service, Options { family, passive: source, numeric, datagram: false })?;
    Ok(found.first().copied().map(Addr::from))
}

/// An address string: `fi_sockaddr_in://1.2.3.4:5`, `fi_sockaddr_in6://[::1]:5`, or `fi_sockaddr://` with either.
/// `None` if the text has no scheme at all, an error if what follows is no address.
pub fn parse_scheme(text: &str) -> Option<Result<Addr>> {
    let (scheme, rest) = text.split_once("://")?;
    let bad = |what: &str| Err(Error::new(Errno::EINVAL, format!("read the address \"{text}\": {what}")));
    // A scope may be an interface's name, which the standard parser does not know.
    let socket = rest.parse::<SocketAddr>().ok().or_else(|| with_named_scope(rest));
    Some(match (scheme, socket) {
        ("fi_sockaddr_in" | "fi_sockaddr", Some(socket @ SocketAddr::V4(_))) => Ok(Addr::from(socket)),
        ("fi_sockaddr_in6" | "fi_sockaddr", Some(socket @ SocketAddr::V6(_))) => Ok(Addr::from(socket)),
        ("fi_sockaddr_in" | "fi_sockaddr_in6" | "fi_sockaddr", _) => bad("not an address with a port"),
        _ => bad("no provider has that scheme"),
    })
}

/// "[fe80::1%eth0]:5".
fn with_named_scope(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.strip_prefix('[')?.split_once("]:")?;
    let (ip, name) = host.split_once('%')?;
    let scope = netif::interfaces().into_iter().find_map(|i| match i.addr {
        SocketAddr::V6(v6) if i.name == name => Some(v6.scope_id()),
        _ => None,
    })?;
    Some(SocketAddrV6::new(ip.parse().ok()?, port.parse().ok()?, 0, scope).into())
}

/// What one question needs to know of this host, read once.
#[derive(Debug)]
pub struct Host {
    interfaces: Vec<Interface>,
    nics: RefCell<BTreeMap<String, Option<Nic>>>,
}

impl Host {
    /// As it is now.
    pub fn read() -> Self {
        let all = netif::interfaces();
        let outward = outward(&all);
        Self { interfaces: ranked(all, outward.as_deref()), nics: RefCell::default() }
    }

    fn nic(&self, name: &str) -> Option<Nic> {
        let mut nics = self.nics.borrow_mut();
        if let Some(known) = nics.get(name) {
            return known.clone();
        }
        let nic = netif::nic(name);
        nics.insert(name.to_owned(), nic.clone());
        nic
    }
}

/// One offer as it stands for this host: an info for each address, best first, and those of loopback last.
pub fn expand(offer: &Offer, host: &Host, ends: Endpoints, caps: Caps) -> Vec<Info> {
    let selection = offer.interfaces.and_then(|param| param.text()).map(|text| Selection::parse(&text));
    if let (Some(src), Some(dest)) = (ends.src, ends.dest)
        && src.socket().is_ipv4() != dest.socket().is_ipv4()
    {
        return Vec::new();
    }
    if let Some(src) = ends.src {
        return vec![named(offer, src, ends.dest, host)];
    }
    if let Some(dest) = ends.dest {
        let source = netif::source_for(dest.socket());
        return source.map(|source| named(offer, source.into(), Some(dest), host)).into_iter().collect();
    }
    let kind = |i: &&Interface| {
        let reach = caps & (Caps::LOCAL_COMM | Caps::REMOTE_COMM);
        // An interface that reaches other hosts reaches this one too; loopback reaches nothing else.
        !(i.loopback && reach.contains(Caps::REMOTE_COMM)) && selection.as_ref().is_none_or(|s| s.allows(i))
    };
    host.interfaces.iter().filter(kind).map(|i| named(offer, Addr::from(i.addr), None, host)).collect()
}

/// Whether there is a domain of that name: an interface, or a provider's own for an address on all of them.
pub fn has_domain(name: &str) -> bool {
    crate::has_provider(name) || netif::interfaces().iter().any(|i| i.name.eq_ignore_ascii_case(name))
}

/// What the headers of IP and UDP take of a packet, in bytes.
const fn overhead(v6: bool) -> usize {
    if v6 { 48 } else { 28 }
}

/// Whether an address is that of an interface: of a link's, which several may have alike, the scope says which.
fn is_of(addr: &SocketAddr, interface: &Interface) -> bool {
    let same_link = match (addr, &interface.addr) {
        (SocketAddr::V6(a), SocketAddr::V6(b)) => a.scope_id() == 0 || a.scope_id() == b.scope_id(),
        _ => true,
    };
    addr.ip() == interface.addr.ip() && same_link
}

/// The info for one address: names, format, and what only loopback can or cannot do.
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
            if offer.packets && interface.mtu > 0 {
                let whole = interface.mtu.saturating_sub(overhead(src.socket().is_ipv6()));
                info.ep.max_msg_size = info.ep.max_msg_size.min(whole);
                info.tx.inject_size = info.tx.inject_size.min(whole);
            }
            if interface.loopback {
                info.caps -= Caps::REMOTE_COMM;
                info.domain.caps -= Caps::REMOTE_COMM;
            }
        }
        None if ip.is_loopback() => {
            // Any address of 127.0.0.0/8 is loopback's, not only the one that is configured, and even while it is down.
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
mod tests {
    use super::*;

    fn interface(name: &str, addr: &str) -> Interface {
        Interface {
            name: name.into(),
            addr: format!("{addr}:0").parse().unwrap(),
            prefix: 24,
            running: true,
            loopback: false,
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
        let lo = Interface { loopback: true, ..interface("lo", "127.0.0.1") };
        let order = ranked(vec![lo, bridge, dead, slow, tunnel, fast], Some("tun0"));
        let names: Vec<&str> = order.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["eth1", "eth0", "tun0", "docker0", "eth2", "lo"]);
    }

    #[test]
    fn address_strings_are_read_or_say_what_is_wrong() {
        let good = |text| parse_scheme(text).unwrap().unwrap().to_string();
        assert_eq!(good("fi_sockaddr_in://1.2.3.4:5"), "fi_sockaddr_in://1.2.3.4:5");
        assert_eq!(good("fi_sockaddr://[::1]:5"), "fi_sockaddr_in6://[::1]:5");
        assert!(parse_scheme("host").is_none());
        for bad in ["fi_sockaddr_in://[::1]:5", "fi_sockaddr_in://1.2.3.4", "fi_addr_efa://x", "fi_sockaddr_in6://"] {
            assert_eq!(parse_scheme(bad).unwrap().unwrap_err().errno(), Errno::EINVAL, "{bad}");
        }
    }

    #[test]
    fn loopback_reaches_only_this_host() {
        let offer = crate::providers().remove(0);
        let all = expand(&offer, &Host::read(), Endpoints::default(), Caps::empty());
        let lo = all.iter().find(|info| info.src_addr.unwrap().socket().ip().is_loopback()).unwrap();
        assert!(lo.caps.contains(Caps::LOCAL_COMM) && !lo.caps.contains(Caps::REMOTE_COMM));
        let remote = expand(&offer, &Host::read(), Endpoints::default(), Caps::REMOTE_COMM);
        assert!(remote.iter().all(|info| !info.src_addr.unwrap().socket().ip().is_loopback()));
    }

    #[test]
    fn a_destination_chooses_the_source() {
        let offer = crate::providers().remove(0);
        let dest = parse_scheme("fi_sockaddr_in://127.0.0.1:7471").unwrap().unwrap();
        let all = expand(&offer, &Host::read(), Endpoints { src: None, dest: Some(dest) }, Caps::empty());
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].src_addr.unwrap().socket().to_string(), "127.0.0.1:0");
        assert_eq!(all[0].dest_addr, Some(dest));
    }
}
