//! The header of a packet: the sender's address. The device reports its queue pair and, over RoCE,
//! its host, but not its port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the header.
pub(crate) const HEADER: usize = 24;
/// Who made the packet, and the version of the header.
const MAGIC: [u8; 4] = *b"ofi\x01";

/// Bytes of the routing header in front of a packet that has arrived.
pub(crate) const ROUTING: usize = 40;

/// Whether a packet with that routing header was sent to a group. The device writes the global
/// header of InfiniBand, which is laid out as that of IPv6; or, over RoCE, the header of IPv4 into
/// the last 20 bytes; the bytes before it then mean nothing.
pub(crate) fn is_to_group(routing: &[u8; ROUTING]) -> bool {
    let (v6, v4) = (routing, &routing[20..]);
    if v4[0] == 0x45 && is_sound(v4) { v4[16] >> 4 == 0xe } else { v6[0] >> 4 == 6 && v6[24] == 0xff }
}

/// Whether the checksum of a header of IPv4 is right: its words, carries included, make ones.
fn is_sound(v4: &[u8]) -> bool {
    let words = v4.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// The header of packets from this address.
pub(crate) fn header(from: SocketAddr) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..4].copy_from_slice(&MAGIC);
    out[4..6].copy_from_slice(&from.port().to_le_bytes());
    match from.ip() {
        IpAddr::V4(ip) => {
            out[6] = 4;
            out[8..12].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out[6] = 6;
            out[8..].copy_from_slice(&ip.octets());
        }
    }
    out
}

/// The sender of a packet and its payload; `None` if no endpoint of this provider has made it.
pub(crate) fn parse(packet: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (header, payload) = packet.split_first_chunk::<HEADER>()?;
    let (magic, rest) = header.split_first_chunk::<4>()?;
    let (&[p0, p1, family, _], address) = rest.split_first_chunk()?;
    let ip: IpAddr = match family {
        4 => Ipv4Addr::from(*address.first_chunk::<4>()?).into(),
        6 => Ipv6Addr::from(*address.first_chunk::<16>()?).into(),
        _ => return None,
    };
    (*magic == MAGIC).then_some((SocketAddr::new(ip, u16::from_le_bytes([p0, p1])), payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_routing_header_tells_packets_to_a_group() {
        // Of IPv6, the receiver is in the last sixteen bytes.
        let v6 = |first: u8| {
            let mut routing = [0; ROUTING];
            (routing[0], routing[24]) = (0x60, first);
            // The sender's address may look like the beginning of IPv4's header.
            routing[20] = 0x45;
            routing
        };
        assert!(is_to_group(&v6(0xff)));
        assert!(!is_to_group(&v6(0xfe)));
        // Of IPv4, it is in the last four, behind what looks like the beginning of IPv6's header.
        let v4 = |first: u8| {
            let mut routing = [0xff; ROUTING];
            let header = [0x45, 0, 0x01, 0x2c, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, first, 7, 7, 7];
            routing[0] = 0x60;
            routing[20..].copy_from_slice(&header);
            let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
            let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
            routing[30..32].copy_from_slice(&checksum.to_be_bytes());
            routing
        };
        assert!(is_to_group(&v4(239)));
        assert!(is_to_group(&v4(224)));
        assert!(!is_to_group(&v4(223)));
        assert!(!is_to_group(&v4(240)));
        assert!(!is_to_group(&[0; ROUTING]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_none(bytes in prop::collection::vec(any::<u8>(), 0..64), ours: bool) {
            let mut bytes = bytes;
            if ours && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            if let Some((_, payload)) = parse(&bytes) {
                prop_assert_eq!(payload.len(), bytes.len() - HEADER);
            }
        }

        #[test]
        fn a_packet_is_read_as_it_was_written(v4: Option<u32>, v6: u128, port: u16, payload in prop::collection::vec(any::<u8>(), 0..40)) {
            let ip: IpAddr = v4.map_or_else(|| Ipv6Addr::from_bits(v6).into(), |ip| Ipv4Addr::from_bits(ip).into());
            let from = SocketAddr::new(ip, port);
            let packet = [&header(from)[..], &payload].concat();
            prop_assert_eq!(parse(&packet), Some((from, &payload[..])));
        }
    }
}
