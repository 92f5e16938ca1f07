//! Resolves node, service and hints into addresses.

use crate::error::{Error, Kind, Result};
use crate::ib::IbAddr;
use crate::memory;
use crate::order;
use crate::path::{self, PathRecord};
use crate::types::{AddrInfo, Address, Family, Flags, Hints, PortSpace, QpType};
use ofi_core::Errno;
use ofi_os::resolve::{self, Failure, Found, Options};
use ofi_os::{fallible, infiniband, netif, shortage};
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;

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
    resolve_on(Path::new(infiniband::SYSFS), node, service, hints)
}

/// The same on a machine whose InfiniBand devices this sysfs lists.
fn resolve_on(sysfs: &Path, node: Option<&str>, service: Option<&str>, hints: &Hints) -> Result<Vec<AddrInfo>> {
    if node.is_none() && service.is_none() {
        if *hints == Hints::default() {
            return Err(Error::new(Kind::NoName, "node, service and hints are all missing"));
        }
        return Ok(fallible::one(complete_on(sysfs, hints)?)?);
    }
    let request = Request::new(sysfs, node, hints)?;
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
    complete_on(Path::new(infiniband::SYSFS), hints)
}

fn complete_on(sysfs: &Path, hints: &Hints) -> Result<AddrInfo> {
    let (_, port_space) = transport(hints)?;
    let passive = hints.flags.contains(Flags::PASSIVE);
    let (source, destination) = ends(hints, port_space);
    let destination = destination.filter(|_| !passive);
    let routed = destination.filter(|_| !hints.flags.contains(Flags::NOROUTE));
    let found = routed.filter(|_| source.is_none()).map(|to| source_for(sysfs, &to)).transpose()?.flatten();
    Ok(AddrInfo {
        flags: hints.flags,
        family: hints.family,
        qp_type: hints.qp_type,
        port_space: hints.port_space,
        source: source.or(found),
        destination,
        source_name: fallible::name(hints.source_name.as_deref())?,
        destination_name: fallible::name(hints.destination_name.as_deref().filter(|_| !passive))?,
        route: path::filtered(&hints.route, |_| true)?,
        connect: fallible::bytes(&hints.connect)?,
    })
}

/// Source and destination of the hints: each its own address, or else that end of the first path if
/// the path fits the other address and the family.
fn ends(hints: &Hints, port_space: PortSpace) -> (Option<Address>, Option<Address>) {
    let path = path::entries(&hints.route).and_then(|mut paths| paths.next()).map(|data| data.path);
    let given = [hints.source, hints.destination].into_iter().flatten().map(|address| address.family());
    let fits = given.chain(hints.family).all(|family| family == Family::Ib);
    let end = |gid: fn(&PathRecord) -> [u8; 16]| {
        let path = path.filter(|_| fits)?;
        path.end(gid(&path), port_space.bits()).map(Address::Ib)
    };
    (hints.source.or_else(|| end(|path| path.sgid)), hints.destination.or_else(|| end(|path| path.dgid)))
}

/// The source for a destination: the one that the kernel's routing table selects, or a GID of an
/// InfiniBand port. `None` without a route.
fn source_for(sysfs: &Path, destination: &Address) -> Result<Option<Address>> {
    Ok(match destination {
        Address::Inet(socket) => {
            let found = netif::source_for(*socket).map_err(|error| lacking(&error, "the source for a destination"))?;
            found.map(Address::Inet)
        }
        Address::Ib(ib) => ib_source(sysfs, ib)?.map(Address::Ib),
    })
}

/// The GID of an active port in the subnet of the destination: the destination itself if it is a
/// port of this machine, else the first by name. Only a subnet administrator knows
/// what routers between subnets reach, and this call asks none.
fn ib_source(sysfs: &Path, destination: &IbAddr) -> Result<Option<IbAddr>> {
    let mut found: Option<[u8; 16]> = None;
    let visited = infiniband::each_gid(sysfs, |gid| {
        if gid == destination.gid || found.is_none() && gid[..SUBNET] == destination.gid[..SUBNET] {
            found = Some(gid);
        }
    });
    visited.map_err(|error| lacking(&error, "the InfiniBand devices"))?;
    let [.., high, low, _, _] = destination.service_id.to_be_bytes();
    let source = |gid| IbAddr { pkey: destination.pkey, ..IbAddr::new(gid, u16::from_be_bytes([high, low]), 0) };
    Ok(found.map(source))
}

/// Bytes of a GID that name its subnet.
const SUBNET: usize = 8;

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
        let why = format_args!("queue pairs of the type {qp_type} cannot use the port space {port_space}");
        return Err(Error::new(Kind::QpType, fallible::message(why)));
    }
    Ok((qp_type, port_space))
}

/// The port of a service: a decimal number, or a name from the system's list for connections or
/// datagrams.
fn port(service: &str, datagram: bool) -> Result<u16> {
    let quoted = Quoted(service);
    let wrong = |why: &str| Error::new(Kind::Service, fallible::message(format_args!("the service {quoted} {why}")));
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
        _ => Error::resolver(&failure, format_args!("the service {quoted}")),
    })?;
    Ok(found.addrs.first().map_or(0, SocketAddr::port))
}

/// A node and validated hints.
struct Request<'a> {
    /// The sysfs that lists InfiniBand devices.
    sysfs: &'a Path,
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
    fn new(sysfs: &'a Path, node: Option<&'a str>, hints: &'a Hints) -> Result<Self> {
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
        let request = Self { sysfs, node, hints, qp_type, port_space, source, destination, ib, family };
        for (what, address) in [("source", source), ("destination", destination)] {
            if let (Some(address), Some(family)) = (address.filter(|address| !request.takes(address)), hints.family) {
                let why = format_args!("the {what} {address} of the hints is not of their family {family}");
                return Err(Error::new(Kind::AddrFamily, fallible::message(why)));
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
                (memory::map(self.reached(addresses, false)?, |(address, _)| Ok(address))?, name)
            }
            (None, Some(source)) => (fallible::one(source)?, fallible::name(self.hints.source_name.as_deref())?),
            (None, None) => (self.nowhere(true)?, None),
        };
        let entry = |source: Address| {
            let source = source.with_port(self.port_space, port);
            let source_name = fallible::name(name.as_deref())?;
            Ok(AddrInfo { source: Some(source), source_name, ..self.entry(Flags::PASSIVE, &source)? })
        };
        memory::map(sources, entry)
    }

    fn active(&self, port: u16) -> Result<Vec<AddrInfo>> {
        let (mut destinations, name) = match (self.node, self.destination) {
            (Some(node), _) => self.node(node)?,
            (None, Some(destination)) => {
                (fallible::one(destination)?, fallible::name(self.hints.destination_name.as_deref())?)
            }
            (None, None) => (self.nowhere(false)?, None),
        };
        if let Some(source) = self.source {
            destinations.retain(|to| to.family() == source.family());
            if destinations.is_empty() {
                let why = format_args!("the destination has no address of the family of the source {source}");
                return Err(Error::new(Kind::AddrFamily, fallible::message(why)));
            }
        }
        let routed = !self.hints.flags.contains(Flags::NOROUTE) && self.source.is_none();
        let entry = |(to, found): (Address, Option<Address>)| {
            let destination = to.with_port(self.port_space, port);
            Ok(AddrInfo {
                source: self.source.or_else(|| found.filter(|_| routed)),
                source_name: fallible::name(self.hints.source_name.as_deref().filter(|_| self.source.is_some()))?,
                destination: Some(destination),
                destination_name: fallible::name(name.as_deref())?,
                ..self.entry(Flags::empty(), &destination)?
            })
        };
        memory::map(self.reached(destinations, routed)?, entry)
    }

    /// Addresses, best first, with the source for each; a single address gets one only if
    /// `sources`. Addresses to bind to are sorted alike, so a client that connects to the first
    /// address of a name finds a server that listens on the first.
    fn reached(&self, addresses: Vec<Address>, sources: bool) -> Result<Vec<order::Pair>> {
        let several = addresses.len() > 1;
        let look = |to: Address| Ok((to, if several || sources { source_for(self.sysfs, &to)? } else { None }));
        let mut pairs = memory::map(addresses, look)?;
        if several && !administrated()? {
            // Without the prefixes, rule 9 does not apply.
            let prefixes = match netif::prefixes() {
                Err(error) if shortage::is_one(&error) => return Err(lacking(&error, "the prefixes of interfaces")),
                found => found.unwrap_or_default(),
            };
            order::sort(&mut pairs, &prefixes)?;
        }
        Ok(pairs)
    }

    /// The fields that all entries share.
    fn entry(&self, flags: Flags, address: &Address) -> Result<AddrInfo> {
        Ok(AddrInfo {
            flags,
            family: Some(address.family()),
            qp_type: Some(self.qp_type),
            port_space: Some(self.port_space),
            route: self.route()?,
            connect: fallible::bytes(&self.hints.connect)?,
            ..AddrInfo::default()
        })
    }

    /// The complete paths of the hints' routing data. An incomplete path would only restrict the
    /// answer of a subnet administrator, and this call asks none.
    fn route(&self) -> Result<Vec<u8>> {
        path::filtered(&self.hints.route, |data| data.path.is_complete())
    }

    /// The addresses of a node, with port 0, and its canonical name if it is a name.
    fn node(&self, node: &str) -> Result<(Vec<Address>, Option<String>)> {
        let quoted = Quoted(node);
        let failed = |failure: &Failure| Error::resolver(failure, format_args!("the node {quoted}"));
        let unknown = |why: &str| Error::new(Kind::NoName, fallible::message(format_args!("the node {quoted} {why}")));
        if node.is_empty() || node.len() > MOST_NODE {
            return Err(unknown(if node.is_empty() { "is empty" } else { "is longer than any name" }));
        }
        match self.ask(node, self.family, true) {
            Ok(found) => return Ok((self.addresses(found.addrs)?, None)),
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
            Ok(found) => Ok((self.addresses(found.addrs)?, found.canonical)),
            Err(failure) => match self.hints.family {
                // The resolver does not say whether there is an address of another family.
                Some(family)
                    if matches!(Kind::of(&failure), Kind::NoName | Kind::NoData)
                        && self.ask(node, resolve::Family::Any, false).is_ok() =>
                {
                    let why = format_args!("the node {quoted} has no address of the family {family}");
                    Err(Error::new(Kind::AddrFamily, fallible::message(why)))
                }
                _ => Err(failed(&failure)),
            },
        }
    }

    /// The addresses without a node: loopback, or the wildcard address for binding.
    fn nowhere(&self, passive: bool) -> Result<Vec<Address>> {
        let options = Options { passive, ..self.options(self.family, true) };
        match resolve::lookup(None, Some("0"), options) {
            Ok(found) => self.addresses(found.addrs),
            Err(failure) => Err(Error::resolver(&failure, "the loopback addresses")),
        }
    }

    fn ask(&self, node: &str, family: resolve::Family, numeric: bool) -> Result<Found, Failure> {
        resolve::lookup(Some(node), None, self.options(family, numeric))
    }

    fn options(&self, family: resolve::Family, numeric: bool) -> Options {
        Options { family, passive: false, numeric, datagram: self.qp_type == QpType::Ud }
    }

    /// Removes duplicates and converts to the family of this request.
    fn addresses(&self, found: Vec<SocketAddr>) -> Result<Vec<Address>> {
        let mut out: Vec<Address> = fallible::room(found.len())?;
        for socket in found {
            let address = match socket {
                SocketAddr::V6(v6) if self.ib => Address::Ib(gid(*v6.ip(), v6.scope_id(), self.port_space)),
                socket => Address::Inet(socket),
            };
            if !out.contains(&address) {
                out.push(address);
            }
        }
        Ok(out)
    }
}

/// An input in an error message: quoted, and cut to 80 characters.
#[derive(Clone, Copy)]
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(80) {
            Some((at, _)) => write!(f, "{:?}…", &self.0[..at]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// The address of a GID, for any service.
fn gid(ip: Ipv6Addr, scope: u32, port_space: PortSpace) -> IbAddr {
    IbAddr { scope_id: scope.into(), ..IbAddr::new(ip.octets(), port_space.bits(), 0) }
}

/// Whether gai.conf(5) changes the order of addresses: then the order of the system's resolver,
/// which applies it, is kept.
fn administrated() -> Result<bool> {
    match std::fs::read_to_string("/etc/gai.conf") {
        Ok(text) => Ok(text
            .lines()
            .any(|line| ["label", "precedence", "scopev4"].iter().any(|word| line.trim_start().starts_with(word)))),
        Err(error) if shortage::is_one(&error) => Err(lacking(&error, "/etc/gai.conf")),
        Err(_) => Ok(false),
    }
}

/// The error if memory or descriptors were lacking to look something up.
#[cold]
fn lacking(error: &std::io::Error, what: &str) -> Error {
    match error.raw_os_error().map(Errno::from_raw) {
        None | Some(Errno::ENOMEM) => memory::exhausted(),
        Some(errno) => Error::new(Kind::System(errno), fallible::message(format_args!("{what}: {errno}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LOCAL: &str = "fe80::2:c903:0:1";
    const NEAR: &str = "fec0::1:2:c903:0:1";

    /// A made-up sysfs with an InfiniBand port of two subnets.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("class/infiniband/mlx5_0/ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::write(port.join("link_layer"), "InfiniBand\n").unwrap();
        fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        fs::write(port.join("gids/0"), LOCAL).unwrap();
        fs::write(port.join("gids/1"), "fec0::1:2:c903:0:9").unwrap();
        fs::write(port.join("gids/2"), NEAR).unwrap();
        root
    }

    fn octets(gid: &str) -> [u8; 16] {
        gid.parse::<Ipv6Addr>().unwrap().octets()
    }

    #[test]
    fn sources_of_infiniband_are_ports_of_the_destinations_subnet() {
        let machine = machine();
        let hints = Hints {
            flags: Flags::FAMILY | Flags::NUMERICHOST,
            family: Some(Family::Ib),
            port_space: Some(PortSpace::Ib),
            ..Hints::default()
        };
        let source = |node: &str, hints: &Hints| {
            let found = resolve_on(machine.path(), Some(node), Some("7471"), hints).unwrap();
            match found.as_slice() {
                [AddrInfo { source: Some(Address::Ib(source)), .. }] => Some(*source),
                [AddrInfo { source: None, .. }] => None,
                other => panic!("{other:?}"),
            }
        };
        // The first of the subnet, for any port of the same port space.
        let first = IbAddr::new(octets("fec0::1:2:c903:0:9"), PortSpace::Ib.bits(), 0);
        assert_eq!(source("fec0::1:7:7:7:7", &hints), Some(first));
        // A port reaches itself.
        assert_eq!(source(NEAR, &hints).map(|source| source.gid), Some(octets(NEAR)));
        assert_eq!(source("fe80::7:7:7:7", &hints).map(|source| source.gid), Some(octets(LOCAL)));
        assert_eq!(source("fec0::2:7:7:7:7", &hints), None);
        let unrouted = Hints { flags: hints.flags | Flags::NOROUTE, ..hints.clone() };
        assert_eq!(source(NEAR, &unrouted), None);
        let elsewhere = tempfile::tempdir().unwrap();
        let found = resolve_on(elsewhere.path(), Some(NEAR), None, &hints).unwrap();
        assert_eq!(found[0].source, None);
    }

    #[test]
    fn a_destination_of_infiniband_in_the_hints_is_given_a_source() {
        let machine = machine();
        let destination = IbAddr { pkey: 0x8001, ..IbAddr::new(octets(NEAR), PortSpace::Tcp.bits(), 7471) };
        let hints = Hints { destination: Some(Address::Ib(destination)), ..Hints::default() };
        let source = IbAddr { pkey: 0x8001, ..IbAddr::new(octets(NEAR), PortSpace::Tcp.bits(), 0) };
        assert_eq!(complete_on(machine.path(), &hints).unwrap().source, Some(Address::Ib(source)));
        let found = resolve_on(machine.path(), None, None, &hints).unwrap();
        assert_eq!(found[0].source, Some(Address::Ib(source)));
    }
}
