//! Destination address selection: RFC 6724, section 6, with the default policy table of section
//! 2.1.
//!
//! Rules 3, 4 and 7 (deprecated addresses, home addresses, encapsulating transports) are omitted:
//! user space lacks the information. The longest common prefix (rule 9) applies to IPv4 only within
//! the source's own network; otherwise it would undo the order in which name servers spread the
//! load over many hosts. The RFC permits this deviation. Destinations that no rule distinguishes
//! keep the order of the system's resolver, which sorts by its own rules.

use crate::error::Result;
use crate::types::Address;
use ofi_os::fallible;
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

/// Prefix, its length, precedence, label.
const POLICY: &[(Ipv6Addr, u32, u8, u8)] = &[
    (Ipv6Addr::LOCALHOST, 128, 50, 0),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 35, 4),
    (Ipv6Addr::UNSPECIFIED, 96, 1, 3),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 5, 5),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 30, 2),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 1, 12),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, 1, 11),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 3, 13),
    (Ipv6Addr::UNSPECIFIED, 0, 40, 1),
];

/// Multicast scopes (RFC 4291); unicast addresses are compared on the same scale.
const LINK_LOCAL: u8 = 2;
const SITE_LOCAL: u8 = 5;
const GLOBAL: u8 = 14;

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn common(a: Ipv6Addr, b: Ipv6Addr) -> u32 {
    (a.to_bits() ^ b.to_bits()).leading_zeros()
}

/// Precedence and label.
fn policy(ip: IpAddr) -> (u8, u8) {
    let ip = v6(ip);
    let matching = POLICY.iter().filter(|(prefix, len, ..)| common(*prefix, ip) >= *len);
    matching.max_by_key(|(_, len, ..)| *len).map_or((0, 0), |(.., precedence, label)| (*precedence, *label))
}

fn scope(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_link_local() => LINK_LOCAL,
        IpAddr::V4(_) => GLOBAL,
        IpAddr::V6(v6) => match v6.octets() {
            [0xff, second, ..] => second & 0xf,
            _ if v6.is_loopback() || v6.is_unicast_link_local() => LINK_LOCAL,
            [0xfe, second, ..] if second & 0xc0 == 0xc0 => SITE_LOCAL,
            _ => v6.to_ipv4_mapped().map_or(GLOBAL, |v4| scope(v4.into())),
        },
    }
}

/// Common prefix length of destination and source for rule 9. IPv4: the length of the source's
/// network prefix if the destination is in that network, else 0. IPv6: at most the source's prefix
/// length, and at most 64. `prefixes` has the prefix lengths.
fn prefix(dest: IpAddr, source: IpAddr, prefixes: &[(IpAddr, u32)]) -> u32 {
    const NETWORK: u32 = 64;
    let own = prefixes.iter().find(|(ip, _)| *ip == source).map(|(_, len)| *len);
    let common = common(v6(dest), v6(source));
    match own {
        Some(len) if source.is_ipv4() => len * u32::from(common >= 96 + len),
        None if source.is_ipv4() => 0,
        own => common.min(own.unwrap_or(NETWORK)).min(NETWORK),
    }
}

/// A destination and the source for it; no source if it is unreachable.
pub(crate) type Pair = (Address, Option<Address>);

/// Sorts destinations, best first. `prefixes` holds this host's addresses with their prefix
/// lengths. Destinations that no rule distinguishes keep their order (rule 10), and so do non-IP
/// addresses.
///
/// # Errors
/// [`Kind::Memory`](crate::Kind::Memory). The order is then as before.
pub(crate) fn sort(pairs: &mut [Pair], prefixes: &[(IpAddr, u32)]) -> Result<()> {
    let ip = |address: &Address| match address {
        Address::Inet(socket) => Some(socket.ip().to_canonical()),
        Address::Ib(_) => None,
    };
    let mut keyed = fallible::room(pairs.len())?;
    for (place, (to, from)) in pairs.iter().enumerate() {
        keyed.push((ip(to).map(|dest| key(dest, from.as_ref().and_then(ip), prefixes)), place, (*to, *from)));
    }
    // The place makes all keys different: a stable sort would allocate.
    keyed.sort_unstable_by(|(key, place, _), (other, behind, _)| key.cmp(other).then(place.cmp(behind)));
    for (pair, (.., sorted)) in pairs.iter_mut().zip(keyed) {
        *pair = sorted;
    }
    Ok(())
}

/// Sort key: one element per rule, in rule order; less is better. An unreachable destination has no
/// source to compare. IPv4 shares no precedence with IPv6, so common prefixes are never compared
/// across families.
fn key(dest: IpAddr, source: Option<IpAddr>, prefixes: &[(IpAddr, u32)]) -> impl Ord + use<> {
    let (precedence, label) = policy(dest);
    let unreachable = source.is_none();
    let other_scope = source.is_some_and(|source| scope(source) != scope(dest));
    let other_label = source.is_some_and(|source| label != policy(source).1);
    let common = source.map_or(0, |source| prefix(dest, source, prefixes));
    (unreachable, other_scope, other_label, Reverse(precedence), scope(dest), Reverse(common))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    fn at(ip: IpAddr) -> Address {
        Address::Inet(SocketAddr::new(ip, 0))
    }

    /// Sorts pairs given as "destination source", or as "destination" if unreachable.
    fn sorted_among(prefixes: &[(IpAddr, u32)], pairs: &[&str]) -> Vec<String> {
        let read = |text: &str| at(text.parse().unwrap());
        let mut list: Vec<Pair> = pairs
            .iter()
            .map(|pair| {
                pair.split_once(' ').map_or_else(|| (read(pair), None), |(to, from)| (read(to), Some(read(from))))
            })
            .collect();
        sort(&mut list, prefixes).unwrap();
        list.iter().map(|(to, _)| to.to_string().trim_end_matches(":0").trim_matches(['[', ']']).to_owned()).collect()
    }

    fn sorted(pairs: &[&str]) -> Vec<String> {
        sorted_among(&[], pairs)
    }

    /// The examples of RFC 6724, section 10.2, except those that need the omitted rules.
    #[test]
    fn the_examples_of_the_rfc_come_out_as_there() {
        let first = |pairs: &[&str]| sorted(pairs).remove(0);
        assert_eq!(first(&["2001:db8:1::1 2001:db8:1::2", "198.51.100.121 169.254.13.78"]), "2001:db8:1::1");
        assert_eq!(first(&["2001:db8:1::1 fe80::1", "198.51.100.121 198.51.100.117"]), "198.51.100.121");
        assert_eq!(first(&["10.1.2.3 10.1.2.4", "2001:db8:1::1 2001:db8:1::2"]), "2001:db8:1::1");
        assert_eq!(first(&["2001:db8:1::1 2001:db8:1::2", "fe80::1 fe80::2"]), "fe80::1");
        assert_eq!(first(&["2002:c633:6401::1 2002:c633:6401::2", "2001:db8:1::1 fe80::2"]), "2002:c633:6401::1");
        assert_eq!(first(&["2001:db8:3ffe::1 2001:db8:3f44::2", "2001:db8:1::1 2001:db8:1::2"]), "2001:db8:1::1");
        assert_eq!(first(&["2002:c633:6401::1 2002:c633:6401::2", "2001:db8:1::1 2001:db8:1::2"]), "2001:db8:1::1");
    }

    #[test]
    fn unique_local_addresses_come_behind_ipv4_and_unreachable_ones_last() {
        let all = ["2001:db8::1", "fd09::1 fd09::1", "10.9.0.1 10.9.0.1", "127.0.0.1 127.0.0.1", "::1 ::1"];
        assert_eq!(sorted(&all), ["::1", "127.0.0.1", "10.9.0.1", "fd09::1", "2001:db8::1"]);
    }

    #[test]
    fn addresses_in_the_sources_network_come_first_and_the_rest_stay() {
        let own: Vec<(IpAddr, u32)> = [("10.9.0.1", 24), ("2001:db8::1", 64), ("2001:db8:0:5::1", 128)]
            .map(|(ip, bits)| (ip.parse().unwrap(), bits))
            .into();
        let v4 = ["203.0.113.1 10.9.0.1", "10.128.0.1 10.9.0.1", "10.9.0.77 10.9.0.1", "10.9.0.2 10.9.0.1"];
        assert_eq!(sorted_among(&own, &v4), ["10.9.0.77", "10.9.0.2", "203.0.113.1", "10.128.0.1"]);
        assert_eq!(sorted(&v4), ["203.0.113.1", "10.128.0.1", "10.9.0.77", "10.9.0.2"]);
        let v6 = ["2001:db8:9::1 2001:db8::1", "2001:db8::77 2001:db8::1", "2001:db8::2 2001:db8::1"];
        assert_eq!(sorted_among(&own, &v6), ["2001:db8::77", "2001:db8::2", "2001:db8:9::1"]);
        // The kernel treats a /128 as a network of its own; rule 9 does not.
        let v6 = ["2001:db8:0:5::ff 2001:db8:0:5::1", "2001:db8:0:5::2 2001:db8:0:5::1"];
        assert_eq!(sorted_among(&own, &v6), ["2001:db8:0:5::ff", "2001:db8:0:5::2"]);
    }

    #[test]
    fn unreachable_addresses_are_in_order_too() {
        assert_eq!(
            sorted(&["fd09::1", "10.9.0.1", "2001:db8::1", "203.0.113.1 10.9.0.1"]),
            ["203.0.113.1", "2001:db8::1", "10.9.0.1", "fd09::1"]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_unreachable_addresses_are_last(
            ips: Vec<(IpAddr, Option<IpAddr>)>, prefixes in prop::collection::vec((any::<IpAddr>(), 0..129_u32), 0..3),
        ) {
            let before: Vec<Pair> = ips.iter().map(|(to, from)| (at(*to), from.map(at))).collect();
            let mut after = before.clone();
            sort(&mut after, &prefixes).unwrap();
            prop_assert!(after.is_sorted_by_key(|(_, from)| from.is_none()));
            prop_assert!(before.iter().all(|to| after.contains(to)) && after.len() == before.len());
        }
    }
}
