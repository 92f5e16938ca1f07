//! Which of several destinations to try first: RFC 6724, section 6, with the default policy table of its section 2.1.
//!
//! What user space cannot know is left out: rules 3, 4 and 7 (deprecated and home addresses, encapsulating transports).
//! The longest common prefix (rule 9) counts between IPv4 addresses only within one network, since otherwise it would undo
//! the order in which name servers spread the load over many hosts; the RFC lets an implementation know better there.

use crate::types::Address;
use ofi_os::netif::Interface;
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

/// Scopes of multicast addresses (RFC 4291), which unicast addresses are compared by, too.
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

/// How many leading bits destination and source have in common, as far as rule 9 counts them.
fn prefix(dest: IpAddr, source: IpAddr, interfaces: &[Interface]) -> u32 {
    let own = interfaces.iter().find(|i| i.addr.ip() == source).map(|i| i.prefix);
    let common = common(v6(dest), v6(source));
    match own {
        Some(len) if source.is_ipv4() => len * u32::from(common >= 96 + len),
        None if source.is_ipv4() => 0,
        own => common.min(own.unwrap_or(64)),
    }
}

/// Sorts destinations, best first, by themselves and the sources that would be used to reach them. What no rule tells apart
/// stays in its order (rule 10), and so do addresses that are not those of IP.
pub(crate) fn sort(
    destinations: &mut [Address],
    source_for: impl Fn(&Address) -> Option<Address>,
    interfaces: &[Interface],
) {
    let ip = |address: &Address| match address {
        Address::Inet(socket) => Some(socket.ip().to_canonical()),
        Address::Ib(_) => None,
    };
    destinations.sort_by_cached_key(|to| {
        let ends = ip(to).zip(source_for(to).as_ref().and_then(ip));
        // Rule 1: what cannot be reached comes last.
        (ends.is_none(), ends.map(|(dest, source)| key(dest, source, interfaces)))
    });
}

/// What the other rules compare, in their order; less is better. Precedences of IPv4 are no others', so that the common
/// prefix is never compared between families.
fn key(dest: IpAddr, source: IpAddr, interfaces: &[Interface]) -> impl Ord + use<> {
    let (precedence, label) = policy(dest);
    let (other_scope, other_label) = (scope(dest) != scope(source), label != policy(source).1);
    (other_scope, other_label, Reverse(precedence), scope(dest), Reverse(prefix(dest, source, interfaces)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    fn at(ip: IpAddr) -> Address {
        Address::Inet(SocketAddr::new(ip, 0))
    }

    /// Sorts "destination source", or "destination" that cannot be reached.
    fn sorted(pairs: &[&str]) -> Vec<String> {
        let read = |text: &str| at(text.parse().unwrap());
        let pairs: Vec<(Address, Option<Address>)> = pairs
            .iter()
            .map(|pair| {
                pair.split_once(' ').map_or_else(|| (read(pair), None), |(to, from)| (read(to), Some(read(from))))
            })
            .collect();
        let mut list: Vec<Address> = pairs.iter().map(|(to, _)| *to).collect();
        sort(&mut list, |to| pairs.iter().find(|(other, _)| other == to)?.1, &[]);
        list.iter().map(|to| to.to_string().trim_end_matches(":0").trim_matches(['[', ']']).to_owned()).collect()
    }

    /// The examples of RFC 6724, section 10.2, that do not rest on what is left out.
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
    fn unique_local_addresses_come_behind_ipv4_and_what_is_unreachable_last() {
        let all = ["2001:db8::1", "fd09::1 fd09::1", "10.9.0.1 10.9.0.1", "127.0.0.1 127.0.0.1", "::1 ::1"];
        assert_eq!(sorted(&all), ["::1", "127.0.0.1", "10.9.0.1", "fd09::1", "2001:db8::1"]);
    }

    #[test]
    fn the_order_of_name_servers_stays_between_networks() {
        let all = ["203.0.113.1 10.9.0.1", "10.128.0.1 10.9.0.1", "10.9.0.2 10.9.0.1"];
        assert_eq!(sorted(&all), ["203.0.113.1", "10.128.0.1", "10.9.0.2"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_what_cannot_be_reached_is_last(ips: Vec<(IpAddr, Option<IpAddr>)>) {
            let before: Vec<Address> = ips.iter().map(|(to, _)| at(*to)).collect();
            let source_for = |to: &Address| ips.iter().find(|(ip, _)| at(*ip) == *to)?.1.map(at);
            let mut after = before.clone();
            sort(&mut after, source_for, &ofi_os::netif::interfaces());
            prop_assert!(after.is_sorted_by_key(|to| source_for(to).is_none()));
            prop_assert!(before.iter().all(|to| after.contains(to)) && after.len() == before.len());
        }
    }
}
