//! Addresses for providers over IP: which of this host's to use, and what a node and a service mean.

use ofi_core::error::Result;
use ofi_core::info::Info;
use ofi_core::{Addr, AddrFormat, Caps};
use ofi_os::netif::{self, Interface};
use ofi_os::resolve::{Family, Options, resolve};
use std::net::SocketAddr;

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
        return Ok(Some(addr));
    }
    let found = resolve(node, service, Options { family, passive: source, numeric })?;
    Ok(found.first().copied().map(Addr::from))
}

/// "fi_sockaddr_in://1.2.3.4:5" and its like.
pub fn parse_scheme(text: &str) -> Option<Addr> {
    let rest = text.strip_prefix("fi_sockaddr_in://").or_else(|| text.strip_prefix("fi_sockaddr_in6://"))?;
    rest.parse::<SocketAddr>().ok().map(Addr::from)
}

/// One offer as it stands for this host: an info for each address, best first, and those of loopback last.
pub fn expand(base: &Info, ends: Endpoints, caps: Caps, iface: Option<&str>) -> Vec<Info> {
    let interfaces = usable(iface);
    if let Some(src) = ends.src {
        return vec![named(base, src, ends.dest, &interfaces)];
    }
    if let Some(dest) = ends.dest {
        let ip = netif::source_for(dest.socket().ip());
        let scope = match dest.socket() {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        return match ip {
            Some(ip) => {
                let mut src = SocketAddr::new(ip, 0);
                if let SocketAddr::V6(v6) = &mut src {
                    v6.set_scope_id(scope);
                }
                vec![named(base, Addr::from(src), Some(dest), &interfaces)]
            }
            None => Vec::new(),
        };
    }
    let kind = |i: &&Interface| {
        let reach = caps & (Caps::LOCAL_COMM | Caps::REMOTE_COMM);
        // An interface that reaches other hosts reaches this one too; loopback reaches nothing else.
        !(i.loopback && reach.contains(Caps::REMOTE_COMM))
    };
    interfaces.iter().filter(kind).map(|i| named(base, Addr::from(i.addr), None, &interfaces)).collect()
}

fn usable(iface: Option<&str>) -> Vec<Interface> {
    let mut all = netif::interfaces();
    all.retain(|i| iface.is_none_or(|name| name == i.name || name == "loopback" && i.loopback));
    let named = iface.is_some();
    all.sort_by_key(|i| {
        let demoted = !named && (i.point_to_point || i.virtual_device);
        let link_local = match i.addr {
            SocketAddr::V6(v6) => v6.ip().is_unicast_link_local(),
            SocketAddr::V4(_) => false,
        };
        (i.loopback, !i.running, demoted, link_local, core::cmp::Reverse(i.speed), i.addr.is_ipv6())
    });
    all
}

/// The info for one address: names, format, and what only loopback can or cannot do.
fn named(base: &Info, src: Addr, dest: Option<Addr>, interfaces: &[Interface]) -> Info {
    let mut info = base.clone();
    info.addr_format = src.format();
    info.src_addr = Some(src);
    info.dest_addr = dest;
    let ip = src.socket().ip();
    match interfaces.iter().find(|i| i.addr.ip() == ip) {
        Some(interface) => {
            info.domain.name = Some(interface.name.clone());
            info.fabric.name = Some(interface.network());
            info.nic = netif::nic(&interface.name);
            if interface.loopback {
                info.caps -= Caps::REMOTE_COMM;
                info.domain.caps -= Caps::REMOTE_COMM;
            }
        }
        None if ip.is_loopback() => {
            // Any address of 127.0.0.0/8 is loopback's, not only the one that is configured.
            if let Some(lo) = interfaces.iter().find(|i| i.loopback) {
                info.domain.name = Some(lo.name.clone());
                info.fabric.name = Some(lo.network());
            }
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

    #[test]
    fn loopback_reaches_only_this_host() {
        let base = crate::providers().remove(0).most;
        let all = expand(&base, Endpoints::default(), Caps::empty(), None);
        let lo = all.iter().find(|info| info.src_addr.unwrap().socket().ip().is_loopback()).unwrap();
        assert!(lo.caps.contains(Caps::LOCAL_COMM) && !lo.caps.contains(Caps::REMOTE_COMM));
        let remote = expand(&base, Endpoints::default(), Caps::REMOTE_COMM, None);
        assert!(remote.iter().all(|info| !info.src_addr.unwrap().socket().ip().is_loopback()));
    }

    #[test]
    fn a_destination_chooses_the_source() {
        let base = crate::providers().remove(0).most;
        let dest = parse_scheme("fi_sockaddr_in://127.0.0.1:7471").unwrap();
        let all = expand(&base, Endpoints { src: None, dest: Some(dest) }, Caps::empty(), None);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].src_addr.unwrap().socket().to_string(), "127.0.0.1:0");
        assert_eq!(all[0].dest_addr, Some(dest));
    }
}
