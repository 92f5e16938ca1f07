//! From node, service and hints to addresses.

use crate::error::{Error, Kind, Result};
use crate::ib::IbAddr;
use crate::order;
use crate::path::{self, PathData};
use crate::types::{AddrInfo, Address, Family, Flags, Hints, PortSpace, QpType};
use ofi_core::Errno;
use ofi_os::netif;
use ofi_os::resolve::{self, Failure, Found, Options};
use std::net::{Ipv6Addr, SocketAddr};

/// The longest node that is looked at (NI_MAXHOST); no name is longer than 255 bytes.
const MOST_NODE: usize = 1025;

/// Resolves a node and a service into what a connection can be made with, or listened on; best first. It may take as long as
/// the system's resolver waits for name servers, unless [`Flags::NUMERICHOST`] is set.
///
/// Without a node the hints' addresses are used, and where they have none, loopback, or any interface for listening. A list
/// has both families unless the hints name one. Without a service the port is 0.
///
/// # Errors
/// See [`Kind`]; the sentence says which input was wrong. Without node, service and hints that say something, it is
/// [`Kind::NoName`].
pub fn resolve(node: Option<&str>, service: Option<&str>, hints: &Hints) -> Result<Vec<AddrInfo>> {
    if node.is_none() && service.is_none() {
        if *hints == Hints::default() {
            return Err(Error::new(Kind::NoName, "there is neither a node nor a service nor hints"));
        }
        return complete(hints).map(|info| vec![info]);
    }
    let request = Request::new(node, hints)?;
    let port = service.map_or(Ok(0), |service| port(service, request.qp_type == QpType::Ud))?;
    if hints.flags.contains(Flags::PASSIVE) { request.passive(port) } else { request.active(port) }
}

/// The entry that hints alone stand for: what they say, and the source that leads to their destination. Whatever they leave
/// open stays open, and their addresses are not compared with their family.
///
/// # Errors
/// See [`Kind`].
pub fn complete(hints: &Hints) -> Result<AddrInfo> {
    let (_, port_space) = transport(hints)?;
    let (source, destination) = ends(hints, port_space);
    let routed = !hints.flags.intersects(Flags::NOROUTE | Flags::PASSIVE);
    let source = source.or_else(|| destination.filter(|_| routed).and_then(|to| source_for(&to)));
    Ok(AddrInfo {
        flags: hints.flags,
        family: hints.family,
        qp_type: hints.qp_type,
        port_space: hints.port_space,
        source,
        destination,
        source_name: hints.source_name.clone(),
        destination_name: hints.destination_name.clone(),
        route: path::decode(&hints.route).map_or_else(|| hints.route.clone(), |paths| path::encode(&paths)),
        connect: hints.connect.clone(),
    })
}

/// Source and destination that the hints name: their addresses, or else the ends of their first path.
fn ends(hints: &Hints, port_space: PortSpace) -> (Option<Address>, Option<Address>) {
    if hints.source.is_some() || hints.destination.is_some() {
        return (hints.source, hints.destination);
    }
    let first = path::decode(&hints.route).and_then(|paths| paths.first().copied());
    first.map_or((None, None), |PathData { path, .. }| {
        let end = |gid| path.end(gid, port_space.bits()).map(Address::Ib);
        (end(path.sgid), end(path.dgid))
    })
}

/// The source that the kernel's routing would use, if it is known to the kernel at all.
fn source_for(destination: &Address) -> Option<Address> {
    match destination {
        Address::Inet(socket) => netif::source_for(*socket).map(Address::Inet),
        Address::Ib(_) => None,
    }
}

/// Checks flags, queue pair type and port space; what was left open gets its default.
fn transport(hints: &Hints) -> Result<(QpType, PortSpace)> {
    Flags::from_raw(hints.flags.bits())?;
    if hints.flags.contains(Flags::SA) {
        let why = "RAI_SA: a subnet administrator answers only through an rdma_cm_id (rdma_resolve_addrinfo)";
        return Err(Error::new(Kind::System(Errno::EOPNOTSUPP), why));
    }
    let datagrams = |space: PortSpace| matches!(space, PortSpace::Udp | PortSpace::Ipoib);
    let (qp_type, port_space) = match (hints.qp_type, hints.port_space) {
        (None, None) => (QpType::Rc, PortSpace::Tcp),
        (None, Some(space)) => (if datagrams(space) { QpType::Ud } else { QpType::Rc }, space),
        (Some(QpType::Ud), None) => (QpType::Ud, PortSpace::Udp),
        (Some(qp_type), None) => (qp_type, PortSpace::Tcp),
        (Some(qp_type), Some(space)) => (qp_type, space),
    };
    if port_space != PortSpace::Ib && datagrams(port_space) != (qp_type == QpType::Ud) {
        let why = format!("queue pairs of the type {qp_type} cannot use the port space {port_space}");
        return Err(Error::new(Kind::QpType, why));
    }
    Ok((qp_type, port_space))
}

/// The port that a service stands for: a decimal number, or a name that the system knows for connections or datagrams.
fn port(service: &str, datagram: bool) -> Result<u16> {
    let wrong = |why: &str| Error::new(Kind::Service, format!("the service {service:?} {why}"));
    if service.is_empty() {
        return Err(wrong("is empty"));
    }
    if service.bytes().all(|byte| byte.is_ascii_digit()) {
        return service.parse().map_err(|_| wrong("is no port: those end with 65535"));
    }
    // The resolver takes signs and spaces for parts of numbers.
    if !service.bytes().all(|byte| byte.is_ascii_graphic()) || service.starts_with(['+', '-']) {
        return Err(wrong("is neither a port nor a name"));
    }
    let options = Options { family: resolve::Family::V4, passive: true, numeric: true, datagram };
    let found = resolve::lookup(None, Some(service), options).map_err(|failure| match failure.code {
        // Both words of the resolver for a name that it does not know.
        -2 | -8 => wrong(if datagram { "is not known for datagrams" } else { "is not known for connections" }),
        _ => Error::resolver(&failure, format!("the service {service:?}")),
    })?;
    Ok(found.addrs.first().map_or(0, SocketAddr::port))
}

/// A node, and hints that were checked.
struct Request<'a> {
    node: Option<&'a str>,
    hints: &'a Hints,
    /// The hints', or what stands in for it.
    qp_type: QpType,
    /// The hints', or what stands in for it.
    port_space: PortSpace,
    /// Source and destination of the hints; without the latter if there is a node.
    source: Option<Address>,
    destination: Option<Address>,
    /// Nodes are GIDs and addresses those of InfiniBand.
    ib: bool,
    family: resolve::Family,
}

impl<'a> Request<'a> {
    fn new(node: Option<&'a str>, hints: &'a Hints) -> Result<Self> {
        let (qp_type, port_space) = transport(hints)?;
        let family = match hints.family {
            None => resolve::Family::Any,
            Some(Family::Inet) => resolve::Family::V4,
            Some(Family::Inet6 | Family::Ib) => resolve::Family::V6,
        };
        let ib = hints.family == Some(Family::Ib) && hints.flags.contains(Flags::FAMILY);
        let (source, destination) = match node {
            Some(_) => (hints.source, None),
            None => ends(hints, port_space),
        };
        Ok(Self { node, hints, qp_type, port_space, source, destination, ib, family })
    }

    fn passive(&self, port: u16) -> Result<Vec<AddrInfo>> {
        let (sources, name) = match (self.node, self.source) {
            (Some(node), _) => self.node(node)?,
            (None, Some(source)) => (vec![source], self.hints.source_name.clone()),
            (None, None) => (self.nowhere(true)?, None),
        };
        let entry = |source: Address| {
            let source = source.with_port(self.port_space, port);
            AddrInfo { source: Some(source), source_name: name.clone(), ..self.entry(Flags::PASSIVE, &source) }
        };
        Ok(sources.into_iter().map(entry).collect())
    }

    fn active(&self, port: u16) -> Result<Vec<AddrInfo>> {
        let (mut destinations, name) = match (self.node, self.destination) {
            (Some(node), _) => self.node(node)?,
            (None, Some(destination)) => (vec![destination], self.hints.destination_name.clone()),
            (None, None) => (self.nowhere(false)?, None),
        };
        if let Some(source) = self.source {
            destinations.retain(|to| to.family() == source.family());
            if destinations.is_empty() {
                let why = format!("the destination has no address of the family of the source {source}");
                return Err(Error::new(Kind::AddrFamily, why));
            }
        }
        let routed = !self.hints.flags.contains(Flags::NOROUTE);
        let entry = |to: Address| {
            let destination = to.with_port(self.port_space, port);
            AddrInfo {
                source: self.source.or_else(|| if routed { source_for(&to) } else { None }),
                source_name: self.hints.source_name.clone().filter(|_| self.source.is_some()),
                destination: Some(destination),
                destination_name: name.clone(),
                ..self.entry(Flags::empty(), &destination)
            }
        };
        Ok(destinations.into_iter().map(entry).collect())
    }

    /// What all entries have in common.
    fn entry(&self, flags: Flags, address: &Address) -> AddrInfo {
        AddrInfo {
            flags,
            family: Some(address.family()),
            qp_type: Some(self.qp_type),
            port_space: Some(self.port_space),
            route: self.route(),
            connect: self.hints.connect.clone(),
            ..AddrInfo::default()
        }
    }

    /// The hints' routing data as far as it leads somewhere. To another node than the one that they were written for, a
    /// path that leaves open which way packets go would only restrict what a subnet administrator answers, and none was
    /// asked.
    fn route(&self) -> Vec<u8> {
        match path::decode(&self.hints.route) {
            Some(mut paths) => {
                paths.retain(|data: &PathData| self.node.is_none() || data.path.is_complete());
                path::encode(&paths)
            }
            None => self.hints.route.clone(),
        }
    }

    /// The addresses of a node, best first, with port 0, and its canonical name if it is a name. Those to bind to are in the
    /// same order, so that who listens on the first of a name is found by who connects to the first.
    fn node(&self, node: &str) -> Result<(Vec<Address>, Option<String>)> {
        let failed = |failure: &Failure| Error::resolver(failure, format!("the node {node:?}"));
        let unknown = |why: &str| Error::new(Kind::NoName, format!("the node {node:?} {why}"));
        if node.is_empty() || node.len() > MOST_NODE {
            return Err(unknown(if node.is_empty() { "is empty" } else { "is longer than any name" }));
        }
        match self.ask(Some(node), false, true) {
            Ok(found) => return Ok((self.addresses(found.addrs), None)),
            Err(failure) if failure.code != Kind::NoName.code() => return Err(failed(&failure)),
            Err(_) => {}
        }
        if self.ib {
            return Err(unknown("is no GID, as RAI_FAMILY with AF_IB says that it is"));
        }
        if self.hints.flags.contains(Flags::NUMERICHOST) {
            return Err(unknown("is no numeric address, as RAI_NUMERICHOST says that it is"));
        }
        if node.contains('%') {
            return Err(unknown("is no address of an interface that is there"));
        }
        let found = self.ask(Some(node), false, false).map_err(|failure| failed(&failure))?;
        let mut addresses = self.addresses(found.addrs);
        if addresses.len() > 1 && !administrated() {
            order::sort(&mut addresses, source_for, &netif::interfaces());
        }
        Ok((addresses, found.canonical))
    }

    /// The addresses without a node: loopback, or any for binding.
    fn nowhere(&self, passive: bool) -> Result<Vec<Address>> {
        let failed = |failure: Failure| Error::resolver(&failure, "the loopback addresses");
        self.ask(None, passive, true).map(|found| self.addresses(found.addrs)).map_err(failed)
    }

    fn ask(&self, node: Option<&str>, passive: bool, numeric: bool) -> Result<Found, Failure> {
        let options = Options { family: self.family, passive, numeric, datagram: self.qp_type == QpType::Ud };
        resolve::lookup(node, node.is_none().then_some("0"), options)
    }

    /// Each address once, in this request's family.
    fn addresses(&self, found: Vec<SocketAddr>) -> Vec<Address> {
        let mut out: Vec<Address> = Vec::with_capacity(found.len());
        for socket in found {
            let address = match socket {
                SocketAddr::V6(v6) if self.ib => Address::Ib(gid(*v6.ip(), v6.scope_id(), self.port_space)),
                socket => Address::Inet(socket),
            };
            if !out.contains(&address) {
                out.push(address);
            }
        }
        out
    }
}

/// A GID as an address, of any service.
fn gid(ip: Ipv6Addr, scope: u32, port_space: PortSpace) -> IbAddr {
    IbAddr { scope_id: scope.into(), ..IbAddr::new(ip.octets(), port_space.bits(), 0) }
}

/// Whether the administrator changed the order in which addresses are tried: then the system's resolver, which keeps to it,
/// has the last word (gai.conf(5)).
fn administrated() -> bool {
    let text = std::fs::read_to_string("/etc/gai.conf").unwrap_or_default();
    text.lines().any(|line| ["label", "precedence", "scopev4"].iter().any(|word| line.trim_start().starts_with(word)))
}
