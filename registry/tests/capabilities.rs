//! Results for all combinations of capabilities: the requested and the secondary ones, no others.

use ofi_core::info::{DomainAttr, EpAttr, Hints, Info, RxAttr, TxAttr};
use ofi_core::negotiate::SHARED_CONTEXT;
use ofi_core::{Caps, EndpointType, Version};
use ofi_registry::{Query, discover};

/// The primary capabilities of fi_getinfo(3), granted only on request.
const PRIMARY: [Caps; 13] = [
    Caps::MSG,
    Caps::RMA,
    Caps::TAGGED,
    Caps::ATOMIC,
    Caps::MULTICAST,
    Caps::NAMED_RX_CTX,
    Caps::DIRECTED_RECV,
    Caps::READ,
    Caps::WRITE,
    Caps::RECV,
    Caps::SEND,
    Caps::REMOTE_READ,
    Caps::REMOTE_WRITE,
];

/// The secondary capabilities, which need no request.
const SECONDARY: [Caps; 10] = [
    Caps::MULTI_RECV,
    Caps::SOURCE,
    Caps::RMA_EVENT,
    Caps::SHARED_AV,
    Caps::TRIGGER,
    Caps::FENCE,
    Caps::LOCAL_COMM,
    Caps::REMOTE_COMM,
    Caps::SOURCE_ERR,
    Caps::RMA_PMEM,
];

fn ask(hints: Option<Hints>, version: Version) -> Vec<Info> {
    discover(&Query { version, hints, ..Query::default() }).unwrap().0
}

/// The combination that the bits of a number select.
fn chosen(number: usize) -> Caps {
    PRIMARY.iter().enumerate().filter(|(at, _)| number >> at & 1 == 1).map(|(_, cap)| *cap).collect()
}

fn everywhere(info: &Info) -> Caps {
    info.caps | info.tx.caps | info.rx.caps | info.domain.caps
}

/// The requested capabilities and those that they imply: without a direction, both.
fn implied(asked: Caps) -> Caps {
    let (ways, sides) = (Caps::SEND | Caps::RECV, Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE);
    let messages = asked.intersects(Caps::MSG | Caps::TAGGED) && !asked.intersects(ways);
    let memory = asked.intersects(Caps::RMA | Caps::ATOMIC) && !asked.intersects(sides);
    let add = |on: bool, caps: Caps| if on { caps } else { Caps::empty() };
    asked | add(messages, ways) | add(memory, sides)
}

#[test]
fn granted_capabilities_were_requested_or_are_secondary() {
    let secondary: Caps = SECONDARY.into_iter().collect();
    let mut found = 0;
    for version in [Version::API, Version::new(1, 8)] {
        for number in 1..1 << PRIMARY.len() {
            let asked = chosen(number);
            for info in ask(Some(Hints { caps: asked, ..Hints::default() }), version) {
                let extra = everywhere(&info) - implied(asked) - secondary;
                assert!(extra.is_empty(), "asked for {}, got {} more: {info:#?}", asked.text(), extra.text());
                assert!(info.caps.contains(implied(asked)), "asked for {}: {info:#?}", asked.text());
                // FI_SOURCE and FI_SOURCE_ERR need a request.
                assert!(!info.caps.intersects(Caps::SOURCE | Caps::SOURCE_ERR));
                found += 1;
            }
        }
    }
    assert!(found > 100, "{found}");
}

#[test]
fn the_contexts_hints_bring_nothing_that_was_not_asked_for() {
    let secondary: Caps = SECONDARY.into_iter().collect();
    for number in (0..1 << PRIMARY.len()).filter(|number: &usize| number.count_ones() < 3) {
        let beside = chosen(number);
        let tx = TxAttr { caps: beside, ..TxAttr::default() };
        let rx = RxAttr { caps: beside, ..RxAttr::default() };
        for hints in [
            Hints { caps: Caps::MSG, tx: Some(tx), ..Hints::default() },
            Hints { caps: Caps::MSG, rx: Some(rx), ..Hints::default() },
        ] {
            for info in ask(Some(hints), Version::API) {
                let extra = everywhere(&info) - implied(Caps::MSG) - secondary;
                assert!(extra.is_empty(), "{} beside: {}", beside.text(), extra.text());
            }
        }
    }
}

#[test]
fn without_capabilities_everything_is_shown_that_can_be_had() {
    let all = ask(None, Version::API);
    let zero = ask(Some(Hints::default()), Version::API);
    assert_eq!(all.len(), zero.len());
    for (all, info) in all.iter().zip(&zero) {
        assert_eq!((all.caps, &all.ep.kind), (info.caps, &info.ep.kind));
        for bit in (0..64).map(|shift| Caps::from_bits_retain(1 << shift)) {
            // Some are refused alone, and some are granted only by name.
            let sided = [Caps::READ, Caps::WRITE, Caps::REMOTE_READ, Caps::REMOTE_WRITE, Caps::RMA_EVENT];
            let with = match bit {
                Caps::MULTICAST => Caps::MSG,
                bit if sided.contains(&bit) => Caps::RMA,
                _ => Caps::empty(),
            };
            if (Caps::SOURCE_ERR | Caps::TRIGGER | Caps::COLLECTIVE).contains(bit) || Caps::ONCE.contains(bit) {
                continue;
            }
            let query = Query {
                version: Version::API,
                hints: Some(Hints { caps: bit | with, ..Hints::default() }),
                ..Query::default()
            };
            let had = discover(&query).is_ok_and(|(found, _)| {
                found.iter().any(|found| found.ep.kind == info.ep.kind && found.fabric == info.fabric)
            });
            assert_eq!(had, info.caps.contains(bit), "{}: {}", info.ep.kind, bit.text());
        }
    }
}

#[test]
fn triggered_operations_need_a_request() {
    let asked = |caps| ask(Some(Hints { caps, ..Hints::default() }), Version::API);
    assert!(
        ask(None, Version::API).iter().chain(&asked(Caps::MSG)).all(|info| !everywhere(info).contains(Caps::TRIGGER))
    );
    let found = asked(Caps::MSG | Caps::TRIGGER);
    assert!(found.iter().any(|info| info.ep.kind == EndpointType::MSG));
    for info in found {
        assert!(info.ep.kind != EndpointType::DGRAM, "datagrams have none: {info:?}");
        assert!(info.tx.caps.contains(Caps::TRIGGER) && info.rx.caps.contains(Caps::TRIGGER), "{info:?}");
    }
}

#[test]
fn an_endpoint_that_joins_groups_has_contexts_of_its_own() {
    let groups = Caps::MSG | Caps::COLLECTIVE;
    let asked = |hints: Hints| {
        let (found, why) = discover(&Query { version: Version::API, hints: Some(hints), ..Query::default() }).unwrap();
        (found, why.to_string())
    };
    let (found, _) = asked(Hints { caps: groups, ..Hints::default() });
    let names: Vec<_> = found.iter().filter_map(|info| info.fabric.prov_name.as_deref()).collect();
    assert!(["tcp", "tcp;ofi_rxm", "shm"].iter().all(|name| names.contains(name)), "{names:?}");
    let only_named = TxAttr { caps: Caps::COLLECTIVE, ..TxAttr::default() };
    let (all, _) = asked(Hints { tx: Some(only_named.clone()), ..Hints::default() });
    assert!(!all.is_empty());
    for info in found.iter().chain(&all) {
        assert_eq!(info.ep.kind, EndpointType::RDM, "only connectionless endpoints with links join groups");
        let domain = &info.domain;
        assert_eq!((domain.max_ep_tx_ctx, domain.max_ep_rx_ctx, domain.max_ep_srx_ctx), (1, 1, 0));
        assert!(!everywhere(info).contains(Caps::NAMED_RX_CTX), "{info:#?}");
        assert_eq!((info.ep.tx_ctx_cnt, info.ep.rx_ctx_cnt), (1, 1));
    }
    let ep = |change: fn(&mut EpAttr)| {
        let mut ep = EpAttr::default();
        change(&mut ep);
        Hints { ep: Some(ep), ..Hints::default() }
    };
    let domain = |change: fn(&mut DomainAttr)| {
        let mut domain = DomainAttr::default();
        change(&mut domain);
        Hints { domain: Some(domain), ..Hints::default() }
    };
    let named = TxAttr { caps: Caps::NAMED_RX_CTX, ..TxAttr::default() };
    let triggered = TxAttr { caps: Caps::TRIGGER, ..TxAttr::default() };
    for (hints, what) in [
        (Hints { caps: Caps::NAMED_RX_CTX, ..Hints::default() }, "several contexts"),
        (Hints { tx: Some(named), ..Hints::default() }, "several contexts"),
        (ep(|ep| ep.tx_ctx_cnt = 2), "several contexts"),
        (ep(|ep| ep.rx_ctx_cnt = 2), "several contexts"),
        (ep(|ep| ep.rx_ctx_cnt = SHARED_CONTEXT), "shared receive contexts"),
        (domain(|domain| domain.max_ep_tx_ctx = 2), "several contexts"),
        (domain(|domain| domain.max_ep_rx_ctx = 2), "several contexts"),
        (domain(|domain| domain.max_ep_srx_ctx = 1), "shared receive contexts"),
        (Hints { caps: Caps::TRIGGER, ..Hints::default() }, "FI_TRIGGER"),
        (Hints { tx: Some(triggered), ..Hints::default() }, "FI_TRIGGER"),
    ] {
        let one = Hints { caps: hints.caps | Caps::MSG, ..hints.clone() };
        assert!(!asked(one).0.is_empty(), "without groups: {hints:?}");
        let (found, why) = asked(Hints { caps: hints.caps | groups, ..hints.clone() });
        assert!(found.is_empty(), "{hints:?}: {found:#?}");
        let reason = format!("tcp (FI_EP_RDM): caps: lacks FI_COLLECTIVE, because the hints ask for {what}");
        assert!(why.contains(&reason), "{hints:?}: {why}");
    }
    // One shared transmit context is no other way to send.
    let shared = ep(|ep| ep.tx_ctx_cnt = SHARED_CONTEXT);
    assert!(!asked(Hints { caps: groups, ..shared }).0.is_empty());
}

#[test]
fn multicast_needs_another_way_to_transfer_data() {
    let kinds = |caps| ask(Some(Hints { caps, ..Hints::default() }), Version::API).len();
    assert_eq!(kinds(Caps::MULTICAST), 0);
    assert_eq!(kinds(Caps::MULTICAST | Caps::LOCAL_COMM), 0);
    for beside in [Caps::MSG, Caps::SEND, Caps::RECV] {
        assert!(kinds(Caps::MULTICAST | beside) > 0, "{}", beside.text());
    }
    let query = Query {
        version: Version::API,
        hints: Some(Hints { caps: Caps::MULTICAST, ..Hints::default() }),
        ..Query::default()
    };
    let why = discover(&query).unwrap().1.to_string();
    assert!(why.contains("udp (FI_EP_DGRAM): caps: asked for FI_MULTICAST alone"), "{why}");
}

#[test]
fn capabilities_that_only_a_context_names_are_granted_to_it() {
    let context = |tx, rx| Hints {
        tx: Some(TxAttr { caps: tx, ..TxAttr::default() }),
        rx: Some(RxAttr { caps: rx, ..RxAttr::default() }),
        ..Hints::default()
    };
    let none = Caps::empty();
    for (tx, rx) in [(Caps::RMA_PMEM, none), (none, Caps::RMA_PMEM), (none, Caps::SOURCE | Caps::SOURCE_ERR)] {
        for caps in [none, Caps::MSG | Caps::RMA | Caps::SOURCE] {
            let found = ask(Some(Hints { caps, ..context(tx, rx) }), Version::API);
            assert!(!found.is_empty(), "{tx:?} {rx:?} {caps:?}");
            for info in found {
                assert!(info.tx.caps.contains(tx) && info.rx.caps.contains(rx), "{tx:?} {rx:?} {caps:?}: {info:?}");
            }
        }
    }
    for (tx, rx, field) in [(Caps::RMA_PMEM, none, "tx_attr->caps"), (none, Caps::RMA_PMEM, "rx_attr->caps")] {
        let hints = Some(Hints { caps: Caps::MSG, ..context(tx, rx) });
        let (found, why) = discover(&Query { version: Version::API, hints, ..Query::default() }).unwrap();
        assert!(found.is_empty() && why.to_string().contains(field), "{why}");
    }
}

#[test]
fn former_capabilities_may_still_be_requested() {
    let once = Caps::INJECT | Caps::REMOTE_CQ_DATA;
    let hints = |caps| Some(Hints { caps, ..Hints::default() });
    let names = |infos: Vec<Info>| {
        let mut names: Vec<String> = infos.into_iter().filter_map(|info| info.fabric.prov_name).collect();
        names.dedup();
        names
    };
    // FI_REMOTE_CQ_DATA excludes udp: its datagrams carry no data besides the message.
    assert_eq!(
        names(ask(hints(Caps::MSG | Caps::INJECT), Version::new(1, 0))),
        ["tcp", "tcp;ofi_rxm", "shm", "udp", "tcp", "shm"]
    );
    let found = ask(hints(Caps::MSG | once), Version::new(1, 18));
    assert!(
        found.iter().all(|info| info.caps.contains(once) && info.caps - once - Caps::SECONDARY == implied(Caps::MSG))
    );
    assert_eq!(names(found), ["tcp", "tcp;ofi_rxm", "shm", "tcp", "shm"]);
    // Since 2.0, FI_INJECT is no capability, and no provider has FI_REMOTE_CQ_DATA.
    let later = |caps| discover(&Query { version: Version::new(2, 0), hints: hints(caps), ..Query::default() });
    let error = later(Caps::MSG | Caps::INJECT).unwrap_err();
    assert!(error.doing().contains("FI_INJECT"), "{error}");
    let (found, why) = later(Caps::MSG | Caps::REMOTE_CQ_DATA).unwrap();
    assert!(found.is_empty() && why.to_string().contains("caps: lacks FI_REMOTE_CQ_DATA"), "{why}");
}

#[test]
fn a_field_does_not_count_for_callers_who_did_not_know_it() {
    let found = |domain: DomainAttr, major, minor| {
        !ask(Some(Hints { domain: Some(domain), ..Hints::default() }), Version::new(major, minor)).is_empty()
    };
    let counters = DomainAttr { cntr_cnt: 1 << 40, ..DomainAttr::default() };
    assert!(found(counters.clone(), 1, 4) && !found(counters, 1, 5));
    let keys = DomainAttr { max_ep_auth_key: 1, ..DomainAttr::default() };
    assert!(found(keys.clone(), 1, 19) && !found(keys, 1, 20));
    let groups = DomainAttr { max_group_id: 1, ..DomainAttr::default() };
    assert!(found(groups.clone(), 1, 20) && !found(groups, 2, 0));
}
