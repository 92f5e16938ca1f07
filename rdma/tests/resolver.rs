//! Runs a name server in private namespaces and checks the queries it receives, the results made of
//! its answers, and that only lookups that need a name server wait for it.
#![allow(clippy::disallowed_types, reason = "the name server is no part of the library")]

use futures_lite::future::{block_on, poll_once};
use ofi_rdma::{AddrInfo, Errno, Error, Family, Flags, Hints, Kind, resolve, resolve_async};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

const INSIDE: &str = "OFI_RDMA_INSIDE";

/// The zone of the name server.
fn addresses(name: &str) -> &'static [IpAddr] {
    const HERE4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
    const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 77));
    const FAR4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
    const HERE6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1));
    const FAR6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    match name {
        "many.test" => &[FAR6, HERE6, FAR4, NEAR, HERE4],
        "four.test" => &[HERE4],
        _ => &[],
    }
}

/// A name in wire format: labels prefixed with their lengths.
fn labels(name: &str) -> Vec<u8> {
    let label = |label: &str| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat();
    name.split('.').flat_map(label).chain([0]).collect()
}

/// The answer to a query; `None` to stay silent. "alias.test" is an alias of "many.test".
fn answer(question: &[u8], name: &str, kind: u16) -> Option<Vec<u8>> {
    let (no_error, broken, unknown) = (0, 2, 3);
    let code = match name {
        "silent.test" => return None,
        "broken.test" => broken,
        "many.test" | "four.test" | "alias.test" | "empty.test" => no_error,
        _ => unknown,
    };
    let record = |owner: &str, kind: u16, data: &[u8]| {
        let len = u16::try_from(data.len()).unwrap();
        [&labels(owner)[..], &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 60], &len.to_be_bytes(), data].concat()
    };
    let mut records = Vec::new();
    let mut owner = name;
    if name == "alias.test" {
        owner = "many.test";
        records.push(record(name, 5, &labels(owner)));
    }
    for address in addresses(owner) {
        match address {
            IpAddr::V4(v4) if kind == 1 => records.push(record(owner, kind, &v4.octets())),
            IpAddr::V6(v6) if kind == 28 => records.push(record(owner, kind, &v6.octets())),
            _ => {}
        }
    }
    let count = u8::try_from(records.len()).unwrap();
    let head = [question[0], question[1], 0x85, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0];
    // The answer repeats the question section, without additional records.
    let asked = &question[12..][..labels(name).len() + 4];
    Some([&head[..], asked, &records.concat()].concat())
}

/// Starts the name server on port 53; returns the log of queried names.
fn serve() -> Arc<Mutex<Vec<String>>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    let log = Arc::clone(&asked);
    thread::spawn(move || {
        let mut bytes = [0; 512];
        loop {
            let (len, from) = socket.recv_from(&mut bytes).unwrap();
            let mut rest = &bytes[12..len];
            let mut name = Vec::new();
            while let Some((&size @ 1.., behind)) = rest.split_first() {
                let (label, behind) = behind.split_at(usize::from(size));
                name.push(String::from_utf8_lossy(label).into_owned());
                rest = behind;
            }
            let name = name.join(".");
            let kind = u16::from_be_bytes([rest[1], rest[2]]);
            log.lock().unwrap().push(name.clone());
            if let Some(answer) = answer(&bytes[..len], &name, kind) {
                socket.send_to(&answer, from).unwrap();
            }
        }
    });
    asked
}

fn destinations(list: &[AddrInfo]) -> Vec<String> {
    list.iter().map(|info| info.destination.unwrap().to_string()).collect()
}

fn kind(node: &str, hints: &Hints) -> Kind {
    resolve(Some(node), Some("1"), hints).map_err(|error| error.kind()).unwrap_err()
}

#[test]
fn names_are_asked_for_only_if_they_must() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let testing = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/rdma");
    let output = Command::new("timeout")
        .args(["--kill-after=5", "60"])
        .arg(testing.join("namespace.sh"))
        .arg(testing.join("dns"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "names_are_asked_for_only_if_they_must", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no namespace can be made here: {said}");
        eprintln!("skipped: no namespace can be made here: {said}");
        return;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

fn inside() {
    let asked = serve();
    let open = Hints::default();
    let all = |node: &str, hints: &Hints| resolve(Some(node), Some("7471"), hints).unwrap();

    // RFC 6724 order: unreachable addresses last; among the others, IPv4 before unique local
    // addresses.
    let list = all("many.test", &open);
    let (reached, rest) = list.split_at(3);
    assert_eq!(destinations(reached), ["10.9.0.1:7471", "10.9.0.77:7471", "[fd09::1]:7471"]);
    assert!(reached.iter().all(|info| info.source.is_some()) && rest.iter().all(|info| info.source.is_none()));
    assert_eq!(destinations(rest), ["[2001:db8::1]:7471", "203.0.113.9:7471"]);
    assert!(list.iter().all(|info| info.destination_name.as_deref() == Some("many.test")));
    assert_eq!(all("alias.test", &open)[0].destination_name.as_deref(), Some("many.test"));
    let passive = Hints { flags: Flags::PASSIVE, family: Some(Family::Inet), ..Hints::default() };
    let list = all("four.test", &passive);
    assert_eq!(list[0].source_name.as_deref(), Some("four.test"));
    assert_eq!((list.len(), list[0].destination), (1, None));

    // Each failure has its own code.
    let six = Hints { family: Some(Family::Inet6), ..Hints::default() };
    assert_eq!(kind("four.test", &six), Kind::AddrFamily);
    assert_eq!(kind("empty.test", &six), Kind::NoData);
    assert_eq!(kind("empty.test", &open), Kind::NoData);
    assert_eq!(kind("unknown.test", &open), Kind::NoName);
    assert_eq!(kind("broken.test", &open), Kind::Again);
    let source = Some(ofi_rdma::Address::Inet("[fd09::1]:0".parse().unwrap()));
    assert_eq!(kind("four.test", &Hints { source, ..Hints::default() }), Kind::AddrFamily);

    // No query for numeric addresses, nor for anything else that cannot be a name.
    asked.lock().unwrap().clear();
    let numeric = Hints { flags: Flags::NUMERICHOST, ..Hints::default() };
    assert_eq!(kind("many.test", &numeric), Kind::NoName);
    let gid = Hints { flags: Flags::FAMILY, family: Some(Family::Ib), ..Hints::default() };
    assert_eq!(kind("many.test", &gid), Kind::NoName);
    assert_eq!(kind("fe80::1%nope", &open), Kind::NoName);
    assert_eq!(kind("10.9.0.1", &six), Kind::AddrFamily);
    for node in ["10.9.0.1", "fd09::1", "fe80::1%lo", "127.1"] {
        all(node, &open);
    }
    let again = resolve(Some("many.test"), Some("no-such-service"), &open).unwrap_err();
    assert_eq!(again.kind(), Kind::Service);
    assert_eq!(*asked.lock().unwrap(), [""; 0]);

    // A silent name server delays only the lookup that queries it.
    block_on(async {
        let mut silent = Box::pin(resolve_async(Some("silent.test"), Some("1"), &open));
        assert_eq!(poll_once(&mut silent).await, None);
        let quick = resolve_async(Some("four.test"), Some("1"), &open).await.unwrap();
        assert_eq!(destinations(&quick), ["10.9.0.1:1"]);
        assert_eq!(poll_once(&mut silent).await, None);
        assert_eq!(silent.await.map_err(|error| error.kind()), Err(Kind::Again));
    });
    assert!(asked.lock().unwrap().iter().any(|name| name == "silent.test"));
}

/// Every input yields a result or an error with a message.
mod any_input {
    use super::*;
    use ofi_rdma::path::PathRecord;
    use ofi_rdma::{Address, IbAddr, PortSpace, QpType};
    use proptest::option;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = Address> {
        prop_oneof![
            any::<std::net::SocketAddr>().prop_map(Address::Inet),
            any::<([u8; 16], u16, u16)>().prop_map(|(gid, space, port)| Address::Ib(IbAddr::new(gid, space, port))),
        ]
    }

    prop_compose! {
        /// Always NUMERICHOST: names would be looked up.
        fn flags()(some in 0..0x10_i32, rare in prop::sample::select(&[0, 0, 0, 0, 0, 0, 0x10, 0x20, 0x40])) -> Flags {
            Flags::from_bits_retain(some | rare) | Flags::NUMERICHOST
        }
    }

    prop_compose! {
        fn hints()(
            flags in flags(),
            family in option::of(prop::sample::select(Family::ALL)),
            qp_type in option::weighted(0.3, prop::sample::select(QpType::ALL)),
            port_space in option::weighted(0.3, prop::sample::select(PortSpace::ALL)),
            source in option::weighted(0.3, address()),
            destination in option::weighted(0.3, address()),
            route in prop_oneof![
                Just(Vec::new()),
                any::<([u8; 16], [u8; 16], u16, u16)>().prop_map(|(dgid, sgid, dlid, slid)| {
                    PathRecord { dgid, sgid, dlid, slid, ..PathRecord::default() }.encode().to_vec()
                }),
                any::<Vec<u8>>(),
            ],
            connect: Vec<u8>,
        ) -> Hints {
            Hints { flags, family, qp_type, port_space, source, destination, route, connect, ..Hints::default() }
        }
    }

    fn check(node: Option<&str>, service: Option<&str>, hints: &Hints) -> Result<(), TestCaseError> {
        match resolve(node, service, hints) {
            Ok(list) => {
                prop_assert!(!list.is_empty());
                for info in list {
                    prop_assert_eq!(&info.connect, &hints.connect);
                    let passive = hints.flags.contains(Flags::PASSIVE);
                    prop_assert!(!passive || info.destination.is_none());
                    if node.is_none() && service.is_none() {
                        continue;
                    }
                    let used = if passive { info.source } else { info.destination };
                    prop_assert_eq!(info.family, used.map(|address| address.family()));
                    prop_assert!(info.source.is_none_or(|source| Some(source.family()) == info.family));
                    match hints.family {
                        Some(Family::Ib) if !hints.flags.contains(Flags::FAMILY) => {
                            prop_assert!(info.family != Some(Family::Inet));
                        }
                        hinted => prop_assert!(hinted.is_none() || hinted == info.family),
                    }
                }
            }
            Err(error) => prop_assert!(!error.why().is_empty() && error.kind().code() < 0),
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn addresses_and_hints(ip in option::of(any::<IpAddr>()), port in option::of(any::<u16>()), hints in hints()) {
            let (node, service) = (ip.map(|ip| ip.to_string()), port.map(|port| port.to_string()));
            check(node.as_deref(), service.as_deref(), &hints)?;
        }

        #[test]
        fn texts_of_any_kind(node: Option<String>, service: Option<String>, hints in hints()) {
            check(node.as_deref(), service.as_deref(), &hints)?;
        }

        #[test]
        fn texts_that_look_like_something(node in "[0-9a-f:.%lo]{0,40}", service in "[0-9a-z+-]{0,8}", hints in hints()) {
            check(Some(&node), Some(&service), &hints)?;
        }

        #[test]
        fn every_address_is_taken_as_it_is(ip: IpAddr, port: u16) {
            let list = resolve(Some(&ip.to_string()), Some(&port.to_string()), &Hints::default()).unwrap();
            prop_assert_eq!(destinations(&list), [std::net::SocketAddr::new(ip, port).to_string()]);
        }
    }
}

#[test]
fn invalid_questions_are_refused_with_their_codes() {
    let error = resolve(None, None, &Hints::default()).unwrap_err();
    assert_eq!((error.kind(), error.kind().code(), error.kind().name()), (Kind::NoName, -2, "EAI_NONAME"));
    let administrator = Hints { flags: Flags::SA, ..Hints::default() };
    let kind = |answer: Result<Vec<AddrInfo>, Error>| answer.unwrap_err().kind();
    assert_eq!(kind(resolve(None, Some("1"), &administrator)), Kind::System(Errno::EOPNOTSUPP));
    assert_eq!(kind(resolve(Some("a\0b"), None, &Hints::default())), Kind::NoName);
    assert_eq!(kind(resolve(None, Some("a\0b"), &Hints::default())), Kind::Service);
    let long = resolve(Some(&"é".repeat(1000)), None, &Hints::default()).unwrap_err();
    assert_eq!(long.why(), format!("the node \"{}\"… is longer than any name", "é".repeat(80)));
    assert_eq!(kind(block_on(resolve_async(None, Some("65536"), &Hints::default()))), Kind::Service);
}
