//! Address strings both ways: every address parses back from its text, a composed string parses
//! into its parts, and no text causes a panic.

use ofi_core::addr::Name;
use ofi_core::addr_string::AddrString;
use ofi_core::{Addr, AddrFormat};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

fn inet() -> impl Strategy<Value = Addr> {
    let v4 = (any::<u32>(), any::<u16>()).prop_map(|(ip, port)| SocketAddrV4::new(Ipv4Addr::from(ip), port).into());
    let scope = prop_oneof![Just(0), any::<u32>()];
    let ip = prop_oneof![any::<u128>(), Just(0), Just(1), any::<u64>().prop_map(|low| 0xfe80 << 112 | u128::from(low))];
    let v6 = (ip, any::<u16>(), scope)
        .prop_map(|(ip, port, scope)| SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into());
    prop_oneof![v4, v6].prop_map(Addr::Inet)
}

fn name() -> impl Strategy<Value = Addr> {
    ("fi_(shm|ns)://[!-~]{1,54}").prop_filter_map("a name", |text| Name::new(&text).map(Addr::Name))
}

/// An optional part, which may be empty.
fn part(pattern: &'static str) -> impl Strategy<Value = Option<String>> {
    prop::option::of(pattern.prop_map(String::from))
}

fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn every_address_reads_back_from_its_text(addr in prop_oneof![inet(), name()]) {
        let text = addr.to_string();
        prop_assert_eq!(text.parse::<Addr>(), Ok(addr), "{}", &text);
        // Fields and keys do not change an IP address.
        if addr.name().is_none() {
            prop_assert_eq!(format!("{text}/a/b?qos=3&x").parse::<Addr>(), Ok(addr), "{}", &text);
        }
    }

    #[test]
    fn a_string_has_the_parts_that_it_is_made_of(
        scheme in prop::sample::select(vec!["", "fi_sockaddr", "fi_sockaddr_in", "FI_SOCKADDR_IN6", "fi_sockaddr_ip", "fi_shm", "fi_ns", "fi_addr_efa"]),
        bracket in any::<bool>(),
        node in part("[a-z0-9.-]{0,12}"),
        ip in any::<u128>(),
        scope in part("[a-z0-9.]{1,8}"),
        service in part("[a-z0-9]{0,6}"),
        fields in prop::option::of(prop::collection::vec("[a-z0-9:]{0,4}", 1..4)),
        keys in prop::collection::vec(("[a-z0-9]{1,4}", part("[a-z0-9=/:?]{0,4}")), 0..4),
    ) {
        let node = if bracket { Some(Ipv6Addr::from(ip).to_string()) } else { node };
        let scope = scope.filter(|_| bracket);
        let mut text = format!("{scheme}://");
        match (&node, &scope) {
            (Some(node), Some(scope)) => text += &format!("[{node}%{scope}]"),
            (Some(node), None) if bracket => text += &format!("[{node}]"),
            (Some(node), None) => text += node,
            (None, _) => {}
        }
        if let Some(service) = &service {
            text += &format!(":{service}");
        }
        for field in fields.iter().flatten() {
            text += &format!("/{field}");
        }
        let pairs: Vec<String> =
            keys.iter().map(|(key, value)| value.as_ref().map_or_else(|| key.clone(), |value| format!("{key}={value}"))).collect();
        if !pairs.is_empty() {
            text += &format!("?{}", pairs.join("&"));
        }
        let string = AddrString::parse(&text).expect("it has a scheme").expect("it is well formed");
        let format = match scheme {
            "" => AddrFormat::FORMAT_UNSPEC,
            "fi_shm" | "fi_ns" => AddrFormat::ADDR_STR,
            named => AddrFormat::named(named).unwrap(),
        };
        prop_assert_eq!(string.format, format, "{}", &text);
        prop_assert_eq!(string.node, given(&node), "{}", &text);
        prop_assert_eq!(string.scope, scope.as_deref(), "{}", &text);
        prop_assert_eq!(string.service, given(&service), "{}", &text);
        prop_assert_eq!(&string.fields, &fields.unwrap_or_default(), "{}", &text);
        let expected: Vec<(&str, &str)> =
            keys.iter().map(|(key, value)| (key.as_str(), value.as_deref().unwrap_or_default())).collect();
        prop_assert_eq!(string.keys, expected, "{}", &text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in prop_oneof![any::<String>(), r"[a-z_]{0,11}(://)?[\[\]%:/?&=.0-9a-f]{0,24}"]) {
        if let Some(Ok(string)) = AddrString::parse(&text) {
            let _ = string.numeric(|name| name.len().try_into().ok());
        }
        if let Ok(addr) = text.parse::<Addr>() {
            prop_assert_eq!(addr.to_string().parse::<Addr>(), Ok(addr));
        }
    }
}
