//! InfiniBand addresses: `struct sockaddr_ib` of `<infiniband/ib.h>` as a value.

use std::fmt;
use std::net::Ipv6Addr;

/// The address family of InfiniBand (`AF_IB`).
pub const AF_IB: u16 = 27;
/// Bytes of a `struct sockaddr_ib`.
pub const SOCKADDR_IB_LEN: usize = 48;
/// The default partition, to which every port belongs.
const DEFAULT_PKEY: u16 = 0xffff;

/// An InfiniBand address. Numbers are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IbAddr {
    /// Partition key.
    pub pkey: u16,
    /// Flow label.
    pub flowinfo: u32,
    /// GID of the port.
    pub gid: [u8; 16],
    /// Service ID. IP port spaces put the port space in bits 16 to 31 and the port in the bits
    /// below.
    pub service_id: u64,
    /// The significant bits of the service ID.
    pub service_mask: u64,
    /// Interface index for a link-local GID; otherwise 0.
    pub scope_id: u64,
}

impl IbAddr {
    /// The address of a service at a GID. Port 0 means any port: the mask excludes the port bits.
    pub const fn new(gid: [u8; 16], port_space: u16, port: u16) -> Self {
        let address = Self { pkey: DEFAULT_PKEY, flowinfo: 0, gid, service_id: 0, service_mask: 0, scope_id: 0 };
        address.with_service(port_space, port)
    }

    /// The same GID with another service.
    #[must_use]
    pub const fn with_service(mut self, port_space: u16, port: u16) -> Self {
        self.service_id = (port_space as u64) << 16 | port as u64;
        self.service_mask = if port == 0 { !0xffff } else { !0 };
        self
    }

    /// Encodes as a `struct sockaddr_ib`.
    pub fn encode(&self) -> [u8; SOCKADDR_IB_LEN] {
        let mut out = [0; SOCKADDR_IB_LEN];
        out[..2].copy_from_slice(&AF_IB.to_ne_bytes());
        out[2..4].copy_from_slice(&self.pkey.to_be_bytes());
        out[4..8].copy_from_slice(&self.flowinfo.to_be_bytes());
        out[8..24].copy_from_slice(&self.gid);
        out[24..32].copy_from_slice(&self.service_id.to_be_bytes());
        out[32..40].copy_from_slice(&self.service_mask.to_be_bytes());
        out[40..].copy_from_slice(&self.scope_id.to_ne_bytes());
        out
    }

    /// Reads a `struct sockaddr_ib`; `None` if it is too short or of another family.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SOCKADDR_IB_LEN] = bytes.first_chunk()?;
        Some(Self {
            pkey: u16::from_be_bytes(part(bytes, 2)?),
            flowinfo: u32::from_be_bytes(part(bytes, 4)?),
            gid: part(bytes, 8)?,
            service_id: u64::from_be_bytes(part(bytes, 24)?),
            service_mask: u64::from_be_bytes(part(bytes, 32)?),
            scope_id: u64::from_ne_bytes(part(bytes, 40)?),
        })
        .filter(|_| bytes.starts_with(&AF_IB.to_ne_bytes()))
    }
}

/// `N` bytes at offset `at`; `None` if `bytes` is too short.
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl fmt::Display for IbAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}", Ipv6Addr::from(self.gid))?;
        if self.scope_id != 0 {
            write!(f, "%{}", self.scope_id)?;
        }
        write!(f, "]:{:#018x}/{:#018x} pkey {:#06x}", self.service_id, self.service_mask, self.pkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn services_are_port_space_and_port() {
        let any = IbAddr::new([1; 16], 0x13f, 0);
        assert_eq!((any.service_id, any.service_mask), (0x13f_0000, 0xffff_ffff_ffff_0000));
        let one = any.with_service(0x106, 7471);
        assert_eq!((one.service_id, one.service_mask), (0x106_1d2f, u64::MAX));
        assert_eq!(one.encode()[24..32], [0, 0, 0, 0, 1, 6, 0x1d, 0x2f]);
    }

    #[test]
    fn other_addresses_are_not_read_as_infiniband() {
        let good = IbAddr::new([1; 16], 0x106, 1).encode();
        assert!(IbAddr::decode(&good).is_some());
        assert!(IbAddr::decode(&good[..47]).is_none());
        let mut other = good;
        other[0] = 2;
        assert!(IbAddr::decode(&other).is_none());
    }

    proptest! {
        #[test]
        fn bytes_are_read_as_written(gid: [u8; 16], pkey: u16, flowinfo: u32, service_id: u64, service_mask: u64,
                                     scope_id: u64) {
            let addr = IbAddr { pkey, flowinfo, gid, service_id, service_mask, scope_id };
            prop_assert_eq!(IbAddr::decode(&addr.encode()), Some(addr));
        }
    }
}
