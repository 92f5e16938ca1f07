//! Hints and results: `struct rdma_addrinfo` as typed values.

use crate::error::{Error, Kind, Result};
use crate::ib::{AF_IB, IbAddr, SOCKADDR_IB_LEN, part};
use crate::path::{self, PathData};
use bitflags::bitflags;
use ofi_core::Errno;
use ofi_os::fallible;
use std::fmt;
use std::net::SocketAddr;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

bitflags! {
    /// `ai_flags` (`RAI_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Flags: i32 {
        /// The result is for listening: it has a source to bind to, and no destination.
        const PASSIVE = 0x01;
        /// The node is a numeric address; no name is looked up.
        const NUMERICHOST = 0x02;
        /// No route lookup, and so no source address from the routing table.
        const NOROUTE = 0x04;
        /// The node is in the notation of the hinted family: with [`Family::Ib`] it is a GID.
        const FAMILY = 0x08;
        /// Ask the subnet administrator. It answers only through an `rdma_cm_id`
        /// (rdma_resolve_addrinfo(3)), which this call does not have: EOPNOTSUPP.
        const SA = 0x10;
        /// Look names up in the system's resolver, which is also the default.
        const DNS = 0x20;
    }
}

impl Flags {
    /// Converts from the C value.
    ///
    /// # Errors
    /// [`Kind::BadFlags`] if undefined bits are set.
    pub fn from_raw(raw: i32) -> Result<Self> {
        let unknown = raw & !Self::all().bits();
        Self::from_bits(raw).ok_or_else(|| {
            Error::new(Kind::BadFlags, fallible::message(format_args!("the flags {unknown:#x} are not defined")))
        })
    }
}

/// Defines an enum with C values and printable names.
macro_rules! numbers {
    ($(#[$about:meta])* $type:ident: $repr:ty, $kind:ident, $what:literal { $($(#[$doc:meta])* $variant:ident = $value:literal, $name:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type { $($(#[$doc])* $variant),* }

        impl $type {
            /// The C value.
            pub const fn raw(self) -> $repr {
                match self { $(Self::$variant => $value),* }
            }

            /// The name without its prefix.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Converts from the C value; `None` for 0, which means unspecified.
            ///
            /// # Errors
            #[doc = concat!("[`Kind::", stringify!($kind), "`] if it stands for nothing that is supported.")]
            pub fn from_raw(raw: $repr) -> Result<Option<Self>> {
                match raw {
                    0 => Ok(None),
                    $($value => Ok(Some(Self::$variant)),)*
                    other => Err(Error::new(
                        Kind::$kind,
                        fallible::message(format_args!("the {} {other} ({other:#x}) is not supported", $what)),
                    )),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

numbers! {
    /// `ai_family`.
    Family: i32, Family, "address family" {
        /// IPv4 (`AF_INET`).
        Inet = 2, "INET";
        /// IPv6 (`AF_INET6`).
        Inet6 = 10, "INET6";
        /// InfiniBand (`AF_IB`).
        Ib = 27, "IB";
    }
}

numbers! {
    /// `ai_qp_type`: the kind of queue pair (`IBV_QPT_*`).
    QpType: i32, QpType, "queue pair type" {
        /// Reliable connected.
        Rc = 2, "RC";
        /// Unreliable connected; its port spaces are those of [`QpType::Rc`].
        Uc = 3, "UC";
        /// Unreliable datagram.
        Ud = 4, "UD";
        /// Extended reliable connected, the sender; its port spaces are those of [`QpType::Rc`].
        XrcSend = 9, "XRC_SEND";
        /// Extended reliable connected, the receiver; its port spaces are those of [`QpType::Rc`].
        XrcRecv = 10, "XRC_RECV";
    }
}

numbers! {
    /// `ai_port_space` (`RDMA_PS_*`).
    PortSpace: i32, QpType, "port space" {
        /// IP over InfiniBand; otherwise like [`PortSpace::Udp`].
        Ipoib = 0x0002, "IPOIB";
        /// Connections.
        Tcp = 0x0106, "TCP";
        /// Datagrams.
        Udp = 0x0111, "UDP";
        /// InfiniBand services of any kind.
        Ib = 0x013f, "IB";
    }
}

impl PortSpace {
    /// The value for bits 16 to 31 of a service ID.
    pub(crate) const fn bits(self) -> u16 {
        let [.., high, low] = self.raw().to_be_bytes();
        u16::from_be_bytes([high, low])
    }
}

/// An address of the RDMA connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// IPv4 or IPv6, with a port.
    Inet(SocketAddr),
    /// InfiniBand.
    Ib(IbAddr),
}

impl Address {
    /// The address family.
    pub const fn family(&self) -> Family {
        match self {
            Self::Inet(SocketAddr::V4(_)) => Family::Inet,
            Self::Inet(SocketAddr::V6(_)) => Family::Inet6,
            Self::Ib(_) => Family::Ib,
        }
    }

    /// The same address with another port.
    #[must_use]
    pub(crate) fn with_port(self, port_space: PortSpace, port: u16) -> Self {
        match self {
            Self::Inet(mut socket) => {
                socket.set_port(port);
                Self::Inet(socket)
            }
            Self::Ib(ib) => Self::Ib(ib.with_service(port_space.bits(), port)),
        }
    }

    /// Encodes as a `struct sockaddr_in` (16 bytes), `sockaddr_in6` (28) or `sockaddr_ib` (48): the
    /// first of the bytes, and their number.
    pub fn encode(&self) -> ([u8; SOCKADDR_IB_LEN], usize) {
        match self {
            Self::Inet(socket) => {
                let mut out = [0; SOCKADDR_IB_LEN];
                let (bytes, len) = ofi_core::Addr::from(*socket).encode();
                out[..len].copy_from_slice(&bytes[..len]);
                (out, len)
            }
            Self::Ib(ib) => (ib.encode(), SOCKADDR_IB_LEN),
        }
    }

    /// Reads a `struct sockaddr_in`, `sockaddr_in6` or `sockaddr_ib`.
    ///
    /// # Errors
    /// [`Kind::Family`] for another family, [`Kind::System`] with EINVAL if too short for its
    /// family.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let short = || {
            let why = fallible::message(format_args!("an address of {} bytes is too short", bytes.len()));
            Error::new(Kind::System(Errno::EINVAL), why)
        };
        let family = u16::from_ne_bytes(part(bytes, 0).ok_or_else(short)?);
        let found = match family {
            // `Addr::decode` accepts a sockaddr_in without its padding; rdma_getaddrinfo does not.
            AF_INET if bytes.len() < ofi_core::addr::SOCKADDR_IN_LEN => None,
            AF_INET | AF_INET6 => ofi_core::Addr::decode(bytes).map(|addr| Self::Inet(addr.socket())),
            AF_IB => IbAddr::decode(bytes).map(Self::Ib),
            other => {
                let why = fallible::message(format_args!("addresses of the family {other} are not supported"));
                return Err(Error::new(Kind::Family, why));
            }
        };
        found.ok_or_else(short)
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Self {
        Self::Inet(socket)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(socket) => write!(f, "{socket}"),
            Self::Ib(ib) => write!(f, "{ib}"),
        }
    }
}

/// The caller's hints. The default leaves everything unspecified.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Hints {
    /// Flags of the lookup.
    pub flags: Flags,
    /// The family of the addresses; with [`Flags::FAMILY`] also the notation of the node.
    pub family: Option<Family>,
    /// The kind of queue pair.
    pub qp_type: Option<QpType>,
    /// The port space.
    pub port_space: Option<PortSpace>,
    /// The source to use; for listening, used only without a node.
    pub source: Option<Address>,
    /// The destination, used only without a node.
    pub destination: Option<Address>,
    /// The name of the source, copied to the result.
    pub source_name: Option<String>,
    /// The name of the destination, copied to the result.
    pub destination_name: Option<String>,
    /// Routing data. For InfiniBand, an array of `struct ibv_path_record` or `struct ibv_path_data`
    /// ([`path::encode`]).
    pub route: Vec<u8>,
    /// Connection data, copied to the result.
    pub connect: Vec<u8>,
}

/// A result: addresses to connect to or to listen on (`struct rdma_addrinfo`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AddrInfo {
    /// [`Flags::PASSIVE`] or empty; the hints' flags if only hints were given.
    pub flags: Flags,
    /// The family of the addresses; `None` only if only hints were given and they leave it
    /// unspecified.
    pub family: Option<Family>,
    /// The kind of queue pair; `None` only if only hints were given and they leave it unspecified.
    pub qp_type: Option<QpType>,
    /// The port space; `None` only if only hints were given and they leave it unspecified.
    pub port_space: Option<PortSpace>,
    /// The address to bind to; `None` if no appropriate source is known.
    pub source: Option<Address>,
    /// The address to connect to; `None` for listening.
    pub destination: Option<Address>,
    /// The canonical name of the source, if a name was resolved.
    pub source_name: Option<String>,
    /// The canonical name of the destination, if a name was resolved.
    pub destination_name: Option<String>,
    /// Routing data, in the transport's own format; empty if none is needed or known.
    pub route: Vec<u8>,
    /// Data to transfer ahead of the user's private data when connecting; empty if there is none.
    pub connect: Vec<u8>,
}

impl AddrInfo {
    /// The routing data as InfiniBand paths; `None` if it is empty or in another format.
    pub fn paths(&self) -> Option<Vec<PathData>> {
        path::decode(&self.route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(address: Address) -> Vec<u8> {
        let (bytes, len) = address.encode();
        bytes[..len].to_vec()
    }

    #[test]
    fn numbers_stand_for_themselves() {
        for family in Family::ALL {
            assert_eq!(Family::from_raw(family.raw()), Ok(Some(*family)));
        }
        for space in PortSpace::ALL {
            assert_eq!(PortSpace::from_raw(space.raw()), Ok(Some(*space)));
            assert_eq!(i32::from(space.bits()), space.raw());
        }
        assert_eq!(QpType::from_raw(0), Ok(None));
        assert_eq!(
            QpType::from_raw(8).unwrap_err().to_string(),
            "the queue pair type 8 (0x8) is not supported (EAI_QPTYPE)"
        );
        assert_eq!(Family::from_raw(1).unwrap_err().kind(), Kind::Family);
    }

    #[test]
    fn addresses_are_read_as_written() {
        for text in ["10.9.0.1:7471", "[fd09::1]:1", "[fe80::1%3]:9"] {
            let address = Address::Inet(text.parse().unwrap());
            assert_eq!(Address::decode(&encoded(address)), Ok(address));
        }
        let ib = Address::Ib(IbAddr::new([7; 16], 0x106, 1));
        assert_eq!(Address::decode(&encoded(ib)), Ok(ib));
    }

    #[test]
    fn invalid_addresses_are_refused() {
        let v6 = encoded(Address::Inet("[fd09::1]:1".parse().unwrap()));
        let v4 = encoded(Address::Inet("10.9.0.1:1".parse().unwrap()));
        for short in [&v6[..27], &v4[..15], &v6[..1], &[]] {
            assert_eq!(Address::decode(short).unwrap_err().kind(), Kind::System(Errno::EINVAL));
        }
        assert_eq!(Address::decode(&[1, 0, b'/', b'x']).unwrap_err().kind(), Kind::Family);
        assert_eq!(Address::decode(b"fi_shm://name").unwrap_err().kind(), Kind::Family);
    }
}
