//! Addresses as `struct sockaddr_in` and `sockaddr_in6`.

use super::layout::Storage;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// AF_INET and AF_INET6 of Linux.
const INET: u16 = 2;
const INET6: u16 = 10;

pub(super) fn encode(addr: SocketAddr) -> Storage {
    let mut out = [0; 128];
    out[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let family = match addr {
        SocketAddr::V4(v4) => {
            out[4..8].copy_from_slice(&v4.ip().octets());
            INET
        }
        SocketAddr::V6(v6) => {
            out[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            out[8..24].copy_from_slice(&v6.ip().octets());
            out[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            INET6
        }
    };
    out[..2].copy_from_slice(&family.to_ne_bytes());
    Storage(out)
}

/// `None` for addresses of other families.
pub(super) fn decode(bytes: &[u8; 128]) -> Option<SocketAddr> {
    let word = |at: usize| bytes[at..].first_chunk().copied().map(u32::from_ne_bytes);
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match u16::from_ne_bytes([bytes[0], bytes[1]]) {
        INET => Some((IpAddr::from(*bytes[4..].first_chunk::<4>()?), port).into()),
        INET6 => {
            let ip = Ipv6Addr::from(*bytes[8..].first_chunk::<16>()?);
            Some(SocketAddrV6::new(ip, port, word(4)?, word(24)?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for text in ["10.9.0.1:47000", "[fd09::1]:1", "[fe80::1%3]:65535", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&encode(addr).0), Some(addr), "{text}");
        }
        assert_eq!(decode(&[0; 128]), None);
    }
}
