//! Resolves node, service and hints into addresses.

use crate::error::{Error, Kind, Result};
use crate::ib::IbAddr;
use crate::order;
use crate::path::{self, PathRecord};
use crate::types::{AddrInfo, Address, Family, Flags, Hints, PortSpace, QpType};
use ofi_core::Errno;
use ofi_os::netif;
use ofi_os::resolve::{self, Failure, Found, Options};
use std::net::{Ipv6Addr, SocketAddr};

/// Longest node to look up (NI_MAXHOST); no name is longer than 255 bytes.
const MOST_NODE: usize = 1025;

/// Resolves a node and a service into addresses to connect to or to listen on, best first. May
/// block for as long as the system's resolver waits for name servers, unless [`Flags::NUMERICHOST`]
/// is set.
///
/// Without a node, the addresses of the hints are used; failing those, loopback, or the wildcard
/// address for listening. The list has both families unless the hints name one. Without a service
/// the port is 0.
///
/// # Errors
/// See [`Kind`]; the message names the wrong input. [`Kind::NoName`] if node and service are absent
/// and the hints are empty.
pub fn resolve(node: Option<&str>, service: Option<&str>, hints: &Hints) -> Result<Vec<AddrInfo>> {
    if node.is_none() && service.is_none() {
        if *hints == Hints::default() {
            return Err(Error::new(Kind::NoName, "node, service and hints are all missing"));
        }
        return complete(hints).map(|info| vec![info]);
    }
    let request = Request::new(node, hints)?;
    let port = service.map_or(Ok(0), |service| port(service, request.qp_type == QpType::Ud))?;
    if hints.flags.contains(Flags::PASSIVE) { request.passive(port) } else { request.active(port) }
}

/// Completes hints given without node and service: adds the source that routes to their
/// destination. Fields the hints leave unset stay unset, and their addresses are not checked
/// against their family. With [`Flags::PASSIVE`] there is no destination.
///
/// # Errors
/// See [`Kind`].
pub fn complete(hints: &Hints) -> Result<AddrInfo> {
    let (_, port_space) = transport(hints)?;
    let passive = hints.flags.contains(Flags::PASSIVE);
    let (source, destination) = ends(hints, port_space);
    let destination = destination.filter(|_| !passive);
    let routed = destination.filter(|_| !hints.flags.contains(Flags::NOROUTE));
    Ok(AddrInfo {
        flags: hints.flags,
        family: hints.family,
        qp_type: hints.qp_type,
        port_space: hints.port_space,
        source: source.or_else(|| source_for(&routed?)),
        destination,
        source_name: hints.source_name.clone(),
        destination_name: hints.destination_name.clone().filter(|_| !passive),
        route: path::decode(&hints.route).map_or_else(|| hints.route.clone(), |paths| path::encode(&paths)),
        connect: hints.connect.clone(),
    })
}

/// Source and destination of the hints: each its own address, or else that end of the first path if
/// the path fits the other address and the family.
fn ends(hints: &Hints, port_space: PortSpace) -> (Option<Address>, Option<Address>) {
    let path = path::decode(&hints.route).and_then(|paths| paths.first().map(|data| data.path));
    let given = [hints.source, hints.destination].into_iter().flatten().map(|address| address.family());
    let fits = given.chain(hints.family).all(|family| family == Family::Ib);
    let end = |gid: fn(&PathRecord) -> [u8; 16]| {
        let path = path.filter(|_| fits)?;
        path.end(gid(&path), port_space.bits()).map(Address::Ib)
    };
    (hints.source.or_else(|| end(|path| path.sgid)), hints.destination.or_else(|| end(|path| path.dgid)))
}

/// The source that the kernel's routing table selects; `None` without a route or for InfiniBand.
fn source_for(destination: &Address) -> Option<Address> {
    match destination {
        Address::Inet(socket) => netif::source_for(*socket).map(Address::Inet),
        Address::Ib(_) => None,
    }
}

/// Checks flags, queue pair type and port space, and fills in defaults.
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

/// The port of a service: a decimal number, or a name from the system's list for connections or
/// datagrams.
fn port(service: &str, datagram: bool) -> Result<u16> {
    let quoted = quoted(service);
    let wrong = |why: &str| Error::new(Kind::Service, format!("the service {quoted} {why}"));
    if service.is_empty() {
        return Err(wrong("is empty"));
    }
    if service.bytes().all(|byte| byte.is_ascii_digit()) {
        return service.parse().map_err(|_| wrong("is not a port: the maximum is 65535"));
    }
    // The system's resolver would accept signs and spaces as parts of a number.
    if !service.bytes().all(|byte| byte.is_ascii_graphic()) || service.starts_with(['+', '-']) {
        return Err(wrong("is neither a port nor a name"));
    }
    let options = Options { family: resolve::Family::V4, passive: true, numeric: true, datagram };
    let found = resolve::lookup(None, Some(service), options).map_err(|failure| match Kind::of(&failure) {
        // The resolver uses either code for an unknown name.
        Kind::NoName | Kind::Service => {
            wrong(if datagram { "is not known for datagrams" } else { "is not known for connections" })
        }
        _ => Error::resolver(&failure, format!("the service {quoted}")),
    })?;
    Ok(found.addrs.first().map_or(0, SocketAddr::port))
}

/// A node and validated hints.
struct Request<'a> {
    node: Option<&'a str>,
    hints: &'a Hints,
    /// From the hints, or the default.
    qp_type: QpType,
    /// From the hints, or the default.
    port_space: PortSpace,
    /// The source in the hints, if it applies.
    source: Option<Address>,
    /// The destination in the hints, if it applies.
    destination: Option<Address>,
    /// Nodes are GIDs and results are InfiniBand addresses.
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
        let passive = hints.flags.contains(Flags::PASSIVE);
        let (source, destination) = match (node, passive) {
            (Some(_), true) => (None, None),
            (Some(_), false) => (hints.source, None),
            (None, true) => (ends(hints, port_space).0, None),
            (None, false) => ends(hints, port_space),
        };
        let request = Self { node, hints, qp_type, port_space, source, destination, ib, family };
        for (what, address) in [("source", source), ("destination", destination)] {
            if let (Some(address), Some(family)) = (address.filter(|address| !request.takes(address)), hints.family) {
                let why = format!("the {what} {address} of the hints is not of their family {family}");
                return Err(Error::new(Kind::AddrFamily, why));
            }
        }
        Ok(request)
    }

    /// Whether the hints accept the family of this address.
    fn takes(&self, address: &Address) -> bool {
        match self.hints.family {
            // Without RAI_FAMILY, nodes are looked up as IPv6, so IPv6 results are accepted too.
            Some(Family::Ib) if !self.ib => address.family() != Family::Inet,
            family => family.is_none_or(|family| family == address.family()),
        }
    }

    fn passive(&self, port: u16) -> Result<Vec<AddrInfo>> {
        let (sources, name) = match (self.node, self.source) {
            (Some(node), _) => {
                let (addresses, name) = self.node(node)?;
                (self.reached(addresses, false).into_iter().map(|(address, _)| address).collect(), name)
            }
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
        let routed = !self.hints.flags.contains(Flags::NOROUTE) && self.source.is_none();
        let entry = |(to, found): (Address, Option<Address>)| {
            let destination = to.with_port(self.port_space, port);
            AddrInfo {
                source: self.source.or_else(|| found.filter(|_| routed)),
                source_name: self.hints.source_name.clone().filter(|_| self.source.is_some()),
                destination: Some(destination),
                destination_name: name.clone(),
                ..self.entry(Flags::empty(), &destination)
            }
        };
        Ok(self.reached(destinations, routed).into_iter().map(entry).collect())
    }

    /// Addresses, best first, with the source for each; a single address gets one only if
    /// `sources`. Addresses to bind to are sorted alike, so a client that connects to the first
    /// address of a name finds a server that listens on the first.
    fn reached(&self, addresses: Vec<Address>, sources: bool) -> Vec<order::Pair> {
        let several = addresses.len() > 1;
        let look = |to: Address| (to, if several || sources { source_for(&to) } else { None });
        let mut pairs: Vec<order::Pair> = addresses.into_iter().map(look).collect();
        if several && !administrated() {
            order::sort(&mut pairs, &netif::prefixes());
        }
        pairs
    }

    /// The fields that all entries share.
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

    /// The complete paths of the hints' routing data. An incomplete path would only restrict the
    /// answer of a subnet administrator, and this call asks none.
    fn route(&self) -> Vec<u8> {
        match path::decode(&self.hints.route) {
            Some(mut paths) => {
                paths.retain(|data| data.path.is_complete());
                path::encode(&paths)
            }
            None => self.hints.route.clone(),
        }
    }

    /// The addresses of a node, with port 0, and its canonical name if it is a name.
    fn node(&self, node: &str) -> Result<(Vec<Address>, Option<String>)> {
        let quoted = quoted(node);
        let failed = |failure: &Failure| Error::resolver(failure, format!("the node {quoted}"));
        let unknown = |why: &str| Error::new(Kind::NoName, format!("the node {quoted} {why}"));
        if node.is_empty() || node.len() > MOST_NODE {
            return Err(unknown(if node.is_empty() { "is empty" } else { "is longer than any name" }));
        }
        match self.ask(node, self.family, true) {
            Ok(found) => return Ok((self.addresses(found.addrs), None)),
            Err(failure) if Kind::of(&failure) != Kind::NoName => return Err(failed(&failure)),
            Err(_) => {}
        }
        if self.ib {
            return Err(unknown("is not a GID, which RAI_FAMILY with AF_IB requires"));
        }
        if self.hints.flags.contains(Flags::NUMERICHOST) {
            return Err(unknown("is not a numeric address, which RAI_NUMERICHOST requires"));
        }
        if node.contains('%') {
            return Err(unknown("has an invalid scope: no such interface, or not a link-local address"));
        }
        match self.ask(node, self.family, false) {
            Ok(found) => Ok((self.addresses(found.addrs), found.canonical)),
            Err(failure) => match self.hints.family {
                // The resolver does not say whether there is an address of another family.
                Some(family)
                    if matches!(Kind::of(&failure), Kind::NoName | Kind::NoData)
                        && self.ask(node, resolve::Family::Any, false).is_ok() =>
                {
                    let why = format!("the node {quoted} has no address of the family {family}");
                    Err(Error::new(Kind::AddrFamily, why))
                }
                _ => Err(failed(&failure)),
            },
        }
    }

    /// The addresses without a node: loopback, or the wildcard address for binding.
    fn nowhere(&self, passive: bool) -> Result<Vec<Address>> {
        let options = Options { passive, ..self.options(self.family, true) };
        let found = resolve::lookup(None, Some("0"), options);
        found
            .map(|found| self.addresses(found.addrs))
            .map_err(|failure| Error::resolver(&failure, "the loopback addresses"))
    }

    fn ask(&self, node: &str, family: resolve::Family, numeric: bool) -> Result<Found, Failure> {
        resolve::lookup(Some(node), None, self.options(family, numeric))
    }

    fn options(&self, family: resolve::Family, numeric: bool) -> Options {
        Options { family, passive: false, numeric, datagram: self.qp_type == QpType::Ud }
    }

    /// Removes duplicates and converts to the family of this request.
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

/// Quotes an input for an error message; truncates it to 80 characters.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{:?}…", &text[..at]),
        None => format!("{text:?}"),
    }
}

/// The address of a GID, for any service.
fn gid(ip: Ipv6Addr, scope: u32, port_space: PortSpace) -> IbAddr {
    IbAddr { scope_id: scope.into(), ..IbAddr::new(ip.octets(), port_space.bits(), 0) }
}

/// Whether gai.conf(5) changes the order of addresses: then the order of the system's resolver,
/// which applies it, is kept.
fn administrated() -> bool {
    let text = std::fs::read_to_string("/etc/gai.conf").unwrap_or_default();
    text.lines().any(|line| ["label", "precedence", "scopev4"].iter().any(|word| line.trim_start().starts_with(word)))
}
