//! Network interfaces: their addresses, and their hardware as sysfs describes it.
#![allow(unsafe_code)]

use crate::shortage;
use ofi_core::info::{LinkState, Nic};
use socket2::{Domain, Socket, Type};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address, with port 0, and with its scope if it is link-local IPv6.
    pub addr: SocketAddr,
    /// Prefix length in bits.
    pub prefix: u32,
    /// Up, with a carrier.
    pub running: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// A tunnel to one other host.
    pub point_to_point: bool,
    /// A bridge, a veth pair or another interface without hardware of its own.
    pub virtual_device: bool,
    /// Speed in Mbit/s; 0 if unknown.
    pub speed: u32,
    /// MTU in bytes; 0 if unknown.
    pub mtu: usize,
}

impl Interface {
    /// True for a link-local IPv6 address.
    pub const fn is_of_link(&self) -> bool {
        match &self.addr {
            SocketAddr::V6(v6) => v6.ip().is_unicast_link_local(),
            SocketAddr::V4(_) => false,
        }
    }

    /// The network, as in "10.0.0.0/8".
    pub fn network(&self) -> String {
        let network = match self.addr.ip() {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix.min(32)).unwrap_or(0);
                IpAddr::from((ip.to_bits() & mask).to_be_bytes())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix.min(128)).unwrap_or(0);
                IpAddr::from((ip.to_bits() & mask).to_be_bytes())
            }
        };
        format!("{network}/{}", self.prefix)
    }
}

fn flag(flags: u32, bit: i32) -> bool {
    flags & bit.cast_unsigned() != 0
}

/// Visits each address of the interfaces that are up, with its interface and prefix length, in the
/// kernel's order.
fn each(mut visit: impl FnMut(&libc::ifaddrs, SocketAddr, u32)) {
    let mut list = core::ptr::null_mut();
    // SAFETY: `list` is a place for the result.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return shortage::note(&io::Error::last_os_error());
    }
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the list is valid until it is freed below.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if !flag(entry.ifa_flags, libc::IFF_UP) {
            continue;
        }
        let Some(addr) = socket_addr(entry.ifa_addr) else { continue };
        let prefix = match socket_addr(entry.ifa_netmask).map(|mask| mask.ip()) {
            Some(IpAddr::V4(mask)) => mask.to_bits().count_ones(),
            Some(IpAddr::V6(mask)) => mask.to_bits().count_ones(),
            None => 0,
        };
        visit(entry, addr, prefix);
    }
    // SAFETY: the list came from getifaddrs and is freed once.
    unsafe { libc::freeifaddrs(list) };
}

/// The addresses of this host with their prefix lengths.
pub fn prefixes() -> Vec<(IpAddr, u32)> {
    let mut out = Vec::new();
    each(|_, addr, prefix| out.push((addr.ip(), prefix)));
    out
}

/// The addresses of the interfaces that are up, in the kernel's order.
pub fn interfaces() -> Vec<Interface> {
    let mut out = Vec::new();
    each(|entry, addr, prefix| {
        let flags = entry.ifa_flags;
        // SAFETY: the kernel gives each entry a name that ends with NUL.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let sys = |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok();
        let speed = sys("speed").and_then(|text| text.trim().parse::<i64>().ok()).and_then(|v| u32::try_from(v).ok());
        let hardware = fs::metadata(format!("/sys/class/net/{name}/device")).is_ok();
        out.push(Interface {
            addr,
            prefix,
            running: flag(flags, libc::IFF_RUNNING),
            loopback: flag(flags, libc::IFF_LOOPBACK),
            point_to_point: flag(flags, libc::IFF_POINTOPOINT),
            virtual_device: !hardware && !flag(flags, libc::IFF_LOOPBACK),
            speed: speed.unwrap_or(0),
            mtu: sys("mtu").and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            name,
        });
    });
    out
}

fn socket_addr(addr: *const libc::sockaddr) -> Option<SocketAddr> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: a non-null address in the list has at least its family.
    let family = i32::from(unsafe { (*addr).sa_family });
    let len = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: an address of that family has that many bytes.
    let bytes = unsafe { core::slice::from_raw_parts(addr.cast::<u8>(), len) };
    ofi_core::Addr::decode(bytes).map(|addr| addr.socket())
}

/// The index of the interface with this address; 0, which means any, if there is none.
pub fn index_of(addr: &SocketAddr) -> u32 {
    if let SocketAddr::V6(v6) = addr
        && v6.scope_id() != 0
    {
        // Several interfaces may share a link-local address; the scope selects one.
        return v6.scope_id();
    }
    let name = interfaces().into_iter().find(|i| i.addr.ip() == addr.ip()).map(|i| i.name);
    name.and_then(|name| std::ffi::CString::new(name).ok()).map_or(0, |name| {
        // SAFETY: the name ends with NUL.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    })
}

/// The source address that the kernel would use to reach `dest` (its port does not matter), with
/// port 0 and its scope, if any. Sends no packet.
pub fn source_for(mut dest: SocketAddr) -> Option<SocketAddr> {
    dest.set_port(9);
    let socket = Socket::new(Domain::for_address(dest), Type::DGRAM.cloexec(), None).ok()?;
    socket.connect(&dest.into()).ok()?;
    let mut source = socket.local_addr().ok()?.as_socket()?;
    source.set_port(0);
    Some(source)
}

/// The hardware behind an interface, from sysfs; `None` if there is none.
pub fn nic(name: &str) -> Option<Nic> {
    let root = format!("/sys/class/net/{name}");
    let device = fs::canonicalize(format!("{root}/device")).inspect_err(shortage::note).ok()?;
    let read = |path: String| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let link = |path: String| fs::read_link(path).ok()?.file_name().map(|name| name.to_string_lossy().into_owned());
    let pci = device.file_name().and_then(|name| parse_pci(&name.to_string_lossy()));
    let state = match read(format!("{root}/operstate")).as_deref() {
        Some("up") => LinkState::Up,
        Some("down") => LinkState::Down,
        _ => LinkState::Unknown,
    };
    let megabits = read(format!("{root}/speed")).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    Some(Nic {
        name: Some(name.to_owned()),
        device_id: read(format!("{}/device", device.display())),
        device_version: read(format!("{}/revision", device.display())),
        vendor_id: read(format!("{}/vendor", device.display())),
        driver: link(format!("{root}/device/driver")),
        firmware: None,
        pci,
        address: read(format!("{root}/address")),
        mtu: read(format!("{root}/mtu")).and_then(|text| text.parse().ok()).unwrap_or(0),
        speed: u64::try_from(megabits).unwrap_or(0) * 1_000_000,
        state,
        network: Some("Ethernet".to_owned()),
    })
}

/// Parses a PCI address such as "0000:3b:00.1".
fn parse_pci(text: &str) -> Option<(u16, u8, u8, u8)> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let byte = |text| u8::from_str_radix(text, 16).ok();
    Some((u16::from_str_radix(domain, 16).ok()?, byte(bus)?, byte(device)?, byte(function)?))
}

/// The interfaces that the environment allows: names, addresses and networks, or all but those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    negated: bool,
    entries: Vec<String>,
}

impl Selection {
    /// Parses a list such as "eth0,10.0.0.0/8" or "^lo".
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let (negated, list) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let entries = list.split(',').map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty()).collect();
        Self { negated, entries }
    }

    /// Whether the selection allows this interface.
    pub fn allows(&self, interface: &Interface) -> bool {
        self.entries.iter().any(|entry| names(entry, interface)) != self.negated
    }
}

fn names(entry: &str, interface: &Interface) -> bool {
    if entry == interface.name || entry == "loopback" && interface.loopback {
        return true;
    }
    let ip = interface.addr.ip();
    match entry.split_once('/') {
        Some((network, bits)) => match (network.parse::<IpAddr>(), bits.parse::<u32>()) {
            (Ok(IpAddr::V4(network)), Ok(bits @ 0..=32)) => match ip {
                IpAddr::V4(ip) => (network.to_bits() ^ ip.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0,
                IpAddr::V6(_) => false,
            },
            (Ok(IpAddr::V6(network)), Ok(bits @ 0..=128)) => match ip {
                IpAddr::V6(ip) => (network.to_bits() ^ ip.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0,
                IpAddr::V4(_) => false,
            },
            _ => false,
        },
        None => entry.parse::<IpAddr>().is_ok_and(|wanted| wanted == ip),
    }
}

/// The name of the interface that routes to outside networks. Looks up a documentation address (RFC
/// 5737); sends no packet.
pub fn outward(all: &[Interface]) -> Option<String> {
    let source = source_for(SocketAddr::from(([192, 0, 2, 1], 9)))?;
    all.iter().find(|i| i.addr.ip() == source.ip()).map(|i| i.name.clone())
}

/// Sorts the interfaces by preference: those with a carrier first, then real hardware before
/// tunnels, bridges and veth pairs, then by speed; loopback last. The interface named `outward`
/// comes first among equals, and before faster virtual ones, which make up their speed.
pub fn ranked(mut all: Vec<Interface>, outward: Option<&str>) -> Vec<Interface> {
    all.sort_by_key(|i| {
        let inward = outward != Some(i.name.as_str());
        let demoted = i.point_to_point || i.virtual_device;
        let speed = core::cmp::Reverse(i.speed);
        (i.loopback, !i.running, demoted, i.is_of_link(), demoted && inward, speed, inward, i.addr.is_ipv6())
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_routes_to_itself() {
        let lo = interfaces().into_iter().find(|i| i.loopback && i.addr.is_ipv4()).expect("a loopback interface");
        assert_eq!(lo.network(), "127.0.0.0/8");
        assert_eq!(source_for(lo.addr), Some(SocketAddr::new(lo.addr.ip(), 0)));
        assert_eq!(nic(&lo.name), None);
    }

    #[test]
    fn pci_names_are_parsed() {
        assert_eq!(parse_pci("0000:3b:00.1"), Some((0, 0x3b, 0, 1)));
        assert_eq!(parse_pci("virtio0"), None);
    }
}
