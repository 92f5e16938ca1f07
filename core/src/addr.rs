//! Addresses of endpoints: typed inside, bytes at the C boundary, `scheme://` strings for people.

use crate::kinds::AddrFormat;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Schemes of names within a host.
pub(crate) const NAME_SCHEMES: [&str; 2] = ["fi_shm", "fi_ns"];

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Bytes of a `struct sockaddr_in`.
pub const SOCKADDR_IN_LEN: usize = 16;
/// Bytes of a `struct sockaddr_in6`.
pub const SOCKADDR_IN6_LEN: usize = 28;
/// The longest address that any provider hands out, in bytes.
pub const MAX_LEN: usize = 64;

/// The address of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addr {
    /// An IPv4 or IPv6 address with its port.
    Inet(SocketAddr),
    /// A name within this host (FI_ADDR_STR).
    Name(Name),
}

/// An endpoint's name within its host: `fi_shm://…`, or `fi_ns://…` from a node and a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    len: u8,
    bytes: [u8; MAX_LEN - 1],
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Name {
    /// Parses a name: a known scheme and at least one character after it, printable ASCII without
    /// blanks, at most 63 bytes. The scheme ignores case as in other address strings: names that
    /// differ only in its case are equal.
    pub fn new(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let known = NAME_SCHEMES.iter().find(|known| known.eq_ignore_ascii_case(scheme))?;
        let mut bytes = [0; MAX_LEN - 1];
        if rest.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        bytes[..known.len()].copy_from_slice(known.as_bytes());
        Some(Self { len: u8::try_from(text.len()).ok()?, bytes })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl Addr {
    /// The address with port 0 on every interface.
    pub const ANY: Self = Self::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

    /// The wildcard address of a format, without a port: of FI_SOCKADDR_IN6, or [`Self::ANY`].
    pub const fn any_of(format: AddrFormat) -> Self {
        match format {
            AddrFormat::SOCKADDR_IN6 => Self::Inet(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)),
            _ => Self::ANY,
        }
    }

    /// The format of the bytes from [`Self::encode`].
    pub const fn format(&self) -> AddrFormat {
        match self {
            Self::Inet(SocketAddr::V4(_)) => AddrFormat::SOCKADDR_IN,
            Self::Inet(SocketAddr::V6(_)) => AddrFormat::SOCKADDR_IN6,
            Self::Name(_) => AddrFormat::ADDR_STR,
        }
    }

    /// Length in bytes at the C boundary.
    pub const fn encoded_len(&self) -> usize {
        match self {
            Self::Inet(SocketAddr::V4(_)) => SOCKADDR_IN_LEN,
            Self::Inet(SocketAddr::V6(_)) => SOCKADDR_IN6_LEN,
            Self::Name(name) => name.len as usize + 1,
        }
    }

    /// Encodes the address for C: a `sockaddr_in`, a `sockaddr_in6` or a NUL-terminated string.
    /// Returns the bytes and their count.
    pub fn encode(&self) -> ([u8; MAX_LEN], usize) {
        let mut out = [0; MAX_LEN];
        match self {
            Self::Inet(SocketAddr::V4(v4)) => {
                out[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                out[2..4].copy_from_slice(&v4.port().to_be_bytes());
                out[4..8].copy_from_slice(&v4.ip().octets());
            }
            Self::Inet(SocketAddr::V6(v6)) => {
                out[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                out[2..4].copy_from_slice(&v6.port().to_be_bytes());
                out[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                out[8..24].copy_from_slice(&v6.ip().octets());
                out[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
            Self::Name(name) => out[..name.bytes.len()].copy_from_slice(&name.bytes),
        }
        (out, self.encoded_len())
    }

    /// Decodes a `sockaddr_in`, a `sockaddr_in6` or a name. `None` if too short or another family.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"fi_") {
            let text = bytes.split(|byte| *byte == 0).next()?;
            return Name::new(core::str::from_utf8(text).ok()?).map(Self::Name);
        }
        let family = u16::from_ne_bytes(*bytes.first_chunk()?);
        let array = |from: usize| -> Option<[u8; 4]> { bytes.get(from..from + 4)?.try_into().ok() };
        let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        match family {
            AF_INET if bytes.len() >= 8 => Some(Self::Inet(SocketAddrV4::new(Ipv4Addr::from(array(4)?), port).into())),
            AF_INET6 if bytes.len() >= SOCKADDR_IN6_LEN => {
                let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
                let flow = u32::from_ne_bytes(array(4)?);
                let scope = u32::from_ne_bytes(array(24)?);
                Some(Self::Inet(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope).into()))
            }
            _ => None,
        }
    }

    /// The form for comparison and look-up: without flow label, and IPv4-mapped as IPv4.
    pub fn canonical(self) -> Self {
        match self {
            Self::Inet(SocketAddr::V6(mut v6)) => {
                if let Some(v4) = v6.ip().to_ipv4_mapped() {
                    return Self::Inet(SocketAddrV4::new(v4, v6.port()).into());
                }
                v6.set_flowinfo(0);
                Self::Inet(v6.into())
            }
            other => other,
        }
    }

    /// The IP address and port; for a name those of [`Self::ANY`], which is not connectable.
    pub const fn socket(&self) -> SocketAddr {
        match self {
            Self::Inet(socket) => *socket,
            Self::Name(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        }
    }

    /// The name, if the address is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Inet(_) => None,
            Self::Name(name) => Some(name.as_str()),
        }
    }

    /// True if the address is not connectable: any interface, or no port.
    pub fn is_incomplete(&self) -> bool {
        match self {
            Self::Inet(socket) => socket.ip().is_unspecified() || socket.port() == 0,
            Self::Name(_) => false,
        }
    }
}

impl From<SocketAddr> for Addr {
    fn from(socket: SocketAddr) -> Self {
        Self::Inet(socket)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(SocketAddr::V4(v4)) => write!(f, "fi_sockaddr_in://{v4}"),
            // The flow label belongs to packets, not to the endpoint.
            Self::Inet(SocketAddr::V6(v6)) if v6.scope_id() == 0 => {
                write!(f, "fi_sockaddr_in6://[{}]:{}", v6.ip(), v6.port())
            }
            Self::Inet(SocketAddr::V6(v6)) => {
                write!(f, "fi_sockaddr_in6://[{}%{}]:{}", v6.ip(), v6.scope_id(), v6.port())
            }
            Self::Name(name) => f.write_str(name.as_str()),
        }
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(socket) => write!(f, "{socket}"),
            Self::Name(name) => f.write_str(name.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        for text in ["127.0.0.1:7471", "[fe80::1%3]:9", "[::1]:65535"] {
            let addr = Addr::from(text.parse::<SocketAddr>().unwrap());
            let (bytes, len) = addr.encode();
            assert_eq!(Addr::decode(&bytes[..len]), Some(addr));
            for short in 0..8 {
                assert_eq!(Addr::decode(&bytes[..short]), None);
            }
        }
    }

    #[test]
    fn names_are_strings() {
        let addr = Addr::decode(b"fi_shm://job-7\0rest").unwrap();
        assert_eq!((addr.to_string().as_str(), addr.encoded_len()), ("fi_shm://job-7", 15));
        let (bytes, len) = addr.encode();
        assert_eq!((&bytes[..len], Addr::decode(&bytes[..len])), (&b"fi_shm://job-7\0"[..], Some(addr)));
        let long = format!("fi_shm://{}", "x".repeat(60));
        for bad in ["fi_shm://", "fi_sockaddr_in://1.2.3.4:5", "fi_shm://a b", long.as_str()] {
            assert_eq!(Addr::decode(bad.as_bytes()), None, "{bad}");
        }
        assert!(Name::new(&long[..MAX_LEN - 1]).is_some());
        assert_eq!(Name::new("FI_Ns://Job:7"), Name::new("fi_ns://Job:7"));
        assert_eq!(Name::new("FI_Ns://Job:7").unwrap().as_str(), "fi_ns://Job:7");
    }

    #[test]
    fn strings_carry_their_scheme() {
        let addr = Addr::from("1.2.3.4:5".parse::<SocketAddr>().unwrap());
        assert_eq!(addr.to_string(), "fi_sockaddr_in://1.2.3.4:5");
        let addr = Addr::from("[::1]:5".parse::<SocketAddr>().unwrap());
        assert_eq!(addr.to_string(), "fi_sockaddr_in6://[::1]:5");
        for text in ["fi_sockaddr_in://1.2.3.4:5", "fi_sockaddr_in6://[::1]:5", "fi_ns://host:7"] {
            assert_eq!(text.parse::<Addr>().map(|addr| addr.to_string()), Ok(text.to_owned()));
        }
        assert!("1.2.3.4:5".parse::<Addr>().is_err());
    }

    #[test]
    fn mapped_addresses_are_the_same_endpoint() {
        let mapped = Addr::from("[::ffff:1.2.3.4]:5".parse::<SocketAddr>().unwrap());
        let plain = Addr::from("1.2.3.4:5".parse::<SocketAddr>().unwrap());
        assert_eq!(mapped.canonical(), plain);
    }
}
