//! Network interfaces: their addresses, and their hardware as sysfs describes it.
#![allow(unsafe_code)]

use crate::shortage;
use ofi_core::info::{LinkState, Nic};
use socket2::{Domain, Socket, Type};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

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
/// kernel's order, until a visit fails.
fn each(mut visit: impl FnMut(&libc::ifaddrs, SocketAddr, u32) -> io::Result<()>) -> io::Result<()> {
    let mut list = core::ptr::null_mut();
    // SAFETY: `list` is a place for the result.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error()).inspect_err(shortage::note);
    }
    let mut result = Ok(());
    let mut next = list;
    while result.is_ok() && !next.is_null() {
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
        result = visit(entry, addr, prefix);
    }
    // SAFETY: the list came from getifaddrs and is freed once.
    unsafe { libc::freeifaddrs(list) };
    result
}

/// The addresses of this host with their prefix lengths.
///
/// # Errors
/// Those of getifaddrs(3), and OutOfMemory.
pub fn prefixes() -> io::Result<Vec<(IpAddr, u32)>> {
    let mut out = Vec::new();
    each(|_, addr, prefix| {
        out.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        out.push((addr.ip(), prefix));
        Ok(())
    })?;
    Ok(out)
}

/// The addresses of the interfaces that are up, in the kernel's order.
///
/// # Errors
/// Those of getifaddrs(3).
pub fn interfaces() -> io::Result<Vec<Interface>> {
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
        Ok(())
    })?;
    Ok(out)
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
    let has_it = |i: &Interface| i.addr.ip() == addr.ip();
    let found = interfaces().ok().and_then(|all| all.into_iter().find(has_it));
    found.and_then(|found| std::ffi::CString::new(found.name).ok()).map_or(0, |name| {
        // SAFETY: the name ends with NUL.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    })
}

/// The source address that the kernel would use to reach `dest` (its port does not matter), with
/// port 0 and its scope, if any. Sends no packet.
///
/// # Errors
/// A lack of descriptors or of memory.
pub fn source_for(mut dest: SocketAddr) -> io::Result<Option<SocketAddr>> {
    dest.set_port(9);
    let find = || {
        let socket = Socket::new(Domain::for_address(dest), Type::DGRAM.cloexec(), None)?;
        socket.connect(&dest.into())?;
        socket.local_addr()
    };
    match find() {
        Ok(source) => Ok(source.as_socket().map(|mut source| {
            source.set_port(0);
            source
        })),
        Err(error) if shortage::is_one(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The hardware behind an interface; `None` if there is none. `sysfs` is the folder of the sysfs:
/// [`SYSFS`](crate::infiniband::SYSFS), or what a test has made.
pub fn nic(sysfs: &Path, name: &str) -> Option<Nic> {
    let root = sysfs.join("class/net").join(name);
    let device = fs::canonicalize(root.join("device")).inspect_err(shortage::note).ok()?;
    let state = match text_of(&root.join("operstate")).as_deref() {
        Some("up") => LinkState::Up,
        Some("down") => LinkState::Down,
        _ => LinkState::Unknown,
    };
    let rdma = rdma_port(&device, &root);
    let megabits = number_of(&root.join("speed")).filter(|megabits| *megabits > 0);
    let speed = megabits.map(|megabits| megabits * 1_000_000);
    let speed = speed.or_else(|| rate_of(&text_of(&rdma.as_ref()?.port.join("rate"))?)).unwrap_or(0);
    Some(Nic {
        name: Some(name.to_owned()),
        device_id: text_of(&device.join("device")),
        device_version: text_of(&device.join("revision")),
        vendor_id: text_of(&device.join("vendor")),
        driver: target_of(&device.join("driver")),
        firmware: rdma.as_ref().and_then(|rdma| text_of(&rdma.device.join("fw_ver"))),
        pci: pci_of(&device),
        address: text_of(&root.join("address")),
        mtu: number_of(&root.join("mtu")).and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(0),
        speed,
        state,
        network: network_of(&root, rdma.as_ref()),
    })
}

/// The RDMA device that shares an interface's hardware.
struct RdmaPort {
    device: PathBuf,
    port: PathBuf,
}

/// The RDMA device of the hardware at `device`, and its port that carries the interface at `root`.
fn rdma_port(device: &Path, root: &Path) -> Option<RdmaPort> {
    let devices = fs::read_dir(device.join("infiniband")).ok()?;
    let device = devices.filter_map(|entry| Some(entry.ok()?.path())).min()?;
    // The kernel counts an interface's ports from 0, and those of an RDMA device from 1.
    let port = device.join("ports").join((number_of(&root.join("dev_port")).unwrap_or(0) + 1).to_string());
    Some(RdmaPort { device, port })
}

/// The kind of network: the RDMA port's link layer, or else that of the interface's type (ARPHRD_*
/// of `<net/if_arp.h>`); `None` for other types.
fn network_of(root: &Path, rdma: Option<&RdmaPort>) -> Option<String> {
    const ETHERNET: u64 = 1;
    const INFINIBAND: u64 = 32;
    rdma.and_then(|rdma| text_of(&rdma.port.join("link_layer"))).or_else(|| match number_of(&root.join("type")) {
        Some(ETHERNET) => Some("Ethernet".to_owned()),
        Some(INFINIBAND) => Some("InfiniBand".to_owned()),
        _ => None,
    })
}

/// The place of a device on the PCI bus. A virtio device has none, though its adapter has: MPICH
/// aborts if hwloc does not list a NIC at its place, and hwloc does not list such adapters.
fn pci_of(device: &Path) -> Option<(u16, u8, u8, u8)> {
    parse_pci(&device.file_name()?.to_string_lossy())
}

/// Bits per second of an RDMA port's rate, such as "100 Gb/sec (4X EDR)".
fn rate_of(text: &str) -> Option<u64> {
    let (number, _) = text.split_once(" Gb/sec")?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    Some(whole.parse::<u64>().ok()? * 1_000_000_000 + tenths.parse::<u64>().ok().filter(|t| *t < 10)? * 100_000_000)
}

fn text_of(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// A number; `None` also for -1, by which the kernel says that it knows none.
fn number_of(path: &Path) -> Option<u64> {
    text_of(path)?.parse().ok()
}

/// The last part of what a link points to.
fn target_of(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
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
    let source = source_for(SocketAddr::from(([192, 0, 2, 1], 9))).ok()??;
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
    use crate::infiniband::SYSFS;
    use std::os::unix::fs::symlink;

    /// A made-up sysfs with an interface whose device is at `place`; the files are of the interface
    /// or, with "device/" in front, of the device.
    fn machine(place: &str, subsystem: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let (net, device) = (root.path().join("class/net/x0"), root.path().join("devices").join(place));
        fs::create_dir_all(&net).unwrap();
        fs::create_dir_all(&device).unwrap();
        symlink(&device, net.join("device")).unwrap();
        symlink(format!("../../bus/{subsystem}"), device.join("subsystem")).unwrap();
        symlink("../../drivers/made_up", device.join("driver")).unwrap();
        for (path, text) in files {
            let path = net.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    #[test]
    fn an_interface_of_an_rdma_device_has_its_link_layer_rate_and_firmware() {
        let machine = machine(
            "pci0000:3a/0000:3b:00.1",
            "pci",
            &[
                ("type", "32"),
                ("speed", "-1"),
                ("mtu", "4092"),
                ("operstate", "up"),
                ("dev_port", "1"),
                ("address", "00:00:10:29:fe:80"),
                ("device/device", "0x1019"),
                ("device/vendor", "0x15b3"),
                ("device/revision", "0x00"),
                ("device/infiniband/mlx5_0/fw_ver", "16.35.2000"),
                ("device/infiniband/mlx5_0/ports/1/link_layer", "Ethernet"),
                ("device/infiniband/mlx5_0/ports/2/link_layer", "InfiniBand"),
                ("device/infiniband/mlx5_0/ports/2/rate", "2.5 Gb/sec (1X SDR)"),
            ],
        );
        let expected = Nic {
            name: Some("x0".into()),
            device_id: Some("0x1019".into()),
            device_version: Some("0x00".into()),
            vendor_id: Some("0x15b3".into()),
            driver: Some("made_up".into()),
            firmware: Some("16.35.2000".into()),
            pci: Some((0, 0x3b, 0, 1)),
            address: Some("00:00:10:29:fe:80".into()),
            mtu: 4092,
            speed: 2_500_000_000,
            state: LinkState::Up,
            network: Some("InfiniBand".into()),
        };
        assert_eq!(nic(machine.path(), "x0"), Some(expected));
        assert_eq!(nic(machine.path(), "x1"), None);
    }

    #[test]
    fn an_interface_behind_an_adapter_has_no_place_on_the_bus() {
        let files = [("type", "1"), ("speed", "10000"), ("mtu", "1500"), ("operstate", "down")];
        let virtual_one = machine("pci0000:00/0000:00:03.0/virtio0", "virtio", &files);
        let found = nic(virtual_one.path(), "x0").unwrap();
        assert_eq!((found.pci, found.network.as_deref()), (None, Some("Ethernet")));
        assert_eq!((found.speed, found.mtu, found.state), (10_000_000_000, 1500, LinkState::Down));
        assert_eq!((found.firmware, found.device_id), (None, None));
        // The nearest PCI device of a USB adapter is the controller, not the interface.
        let usb = machine("pci0000:00/0000:00:14.0/1-1:1.0", "usb", &[("type", "512")]);
        let found = nic(usb.path(), "x0").unwrap();
        assert_eq!((found.pci, found.network, found.speed, found.state), (None, None, 0, LinkState::Unknown));
    }

    #[test]
    fn rates_are_read() {
        assert_eq!(rate_of("100 Gb/sec (4X EDR)"), Some(100_000_000_000));
        assert_eq!(rate_of("fast"), None);
    }

    #[test]
    fn loopback_is_there_and_routes_to_itself() {
        let lo =
            interfaces().unwrap().into_iter().find(|i| i.loopback && i.addr.is_ipv4()).expect("a loopback interface");
        assert_eq!(lo.network(), "127.0.0.0/8");
        assert_eq!(source_for(lo.addr).unwrap(), Some(SocketAddr::new(lo.addr.ip(), 0)));
        assert_eq!(nic(Path::new(SYSFS), &lo.name), None);
    }

    #[test]
    fn pci_names_are_parsed() {
        assert_eq!(parse_pci("0000:3b:00.1"), Some((0, 0x3b, 0, 1)));
        assert_eq!(parse_pci("virtio0"), None);
    }
}
