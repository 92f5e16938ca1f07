//! An info as hints with one field changed: the result obeys its rule, or the reason names it.

use ofi_core::info::{Hints, Info};
use ofi_core::{
    AddrFormat, AvType, Caps, EndpointType, Mode, MrMode, MsgOrder, OpFlags, ProgressModel, Protocol, ResourceMgmt,
    Threading, TrafficClass, Version,
};
use ofi_registry::{Query, discover};
use proptest::prelude::*;

/// One field: how to set it, and whether a result obeys its rule.
struct Field {
    name: &'static str,
    set: fn(&mut Hints, u64),
    kept: fn(&Info, u64) -> bool,
}

macro_rules! field {
    ($name:literal, $set:expr, $kept:expr) => {
        Field { name: $name, set: $set, kept: $kept }
    };
}

/// A numeric field; the result is at least the hint.
macro_rules! at_least {
    ($name:literal, $part:ident, $field:ident, $kind:ty) => {
        Field {
            name: $name,
            set: |hints, value| hints.$part.as_mut().unwrap().$field = <$kind>::try_from(value).unwrap_or(<$kind>::MAX),
            kept: |info, value| info.$part.$field >= <$kind>::try_from(value).unwrap_or(<$kind>::MAX),
        }
    };
}

fn word(value: u64) -> u32 {
    u32::try_from(value % 16).unwrap()
}

fn class(value: u64) -> TrafficClass {
    TrafficClass(u32::try_from(value).unwrap_or(u32::MAX))
}

/// Traffic within the host has no class, whatever was asked for.
fn keeps_class(info: &Info, found: TrafficClass, asked: u64) -> bool {
    let is_within_host = info.fabric.prov_name.as_deref() == Some("shm");
    found == if is_within_host { TrafficClass::UNSPEC } else { class(asked) }
}

fn known_caps(value: u64) -> Caps {
    Caps::from_bits_retain(value) & (Caps::PRIMARY | Caps::SECONDARY)
}

const FIELDS: &[Field] = &[
    field!("caps", |h, v| h.caps = known_caps(v), |i, v| i.caps.contains(known_caps(v))),
    field!("mode", |h, v| h.mode = Mode::from_bits_retain(v), |i, v| Mode::from_bits_retain(v).contains(i.mode)),
    field!("addr_format", |h, v| h.addr_format = AddrFormat(word(v)), |i, v| word(v) == 0
        || AddrFormat(word(v)) == AddrFormat::SOCKADDR
        || i.addr_format.0 == word(v)),
    field!("tx_attr->caps", |h, v| h.tx.as_mut().unwrap().caps = known_caps(v), |i, v| i
        .tx
        .caps
        .contains(known_caps(v) - Caps::IGNORED_FOR_TRANSMIT)),
    field!("rx_attr->caps", |h, v| h.rx.as_mut().unwrap().caps = known_caps(v), |i, v| i
        .rx
        .caps
        .contains(known_caps(v) - Caps::IGNORED_FOR_RECEIVE)),
    field!(
        "tx_attr->op_flags",
        |h, v| h.tx.as_mut().unwrap().op_flags = OpFlags::from_bits_retain(v) & OpFlags::KNOWN,
        |i, v| i.tx.op_flags.contains(OpFlags::from_bits_retain(v) & OpFlags::KNOWN)
    ),
    field!(
        "rx_attr->op_flags",
        |h, v| h.rx.as_mut().unwrap().op_flags = OpFlags::from_bits_retain(v) & OpFlags::KNOWN,
        |i, v| i.rx.op_flags.contains(OpFlags::from_bits_retain(v) & OpFlags::KNOWN)
    ),
    field!("tx_attr->msg_order", |h, v| h.tx.as_mut().unwrap().msg_order = MsgOrder::from_bits_retain(v), |i, v| i
        .tx
        .msg_order
        .contains(MsgOrder::from_bits_retain(v))),
    field!("rx_attr->msg_order", |h, v| h.rx.as_mut().unwrap().msg_order = MsgOrder::from_bits_retain(v), |i, v| i
        .rx
        .msg_order
        .contains(MsgOrder::from_bits_retain(v))),
    field!("tx_attr->comp_order", |h, v| h.tx.as_mut().unwrap().comp_order = v, |_, v| v == 0),
    field!("rx_attr->comp_order", |h, v| h.rx.as_mut().unwrap().comp_order = v, |_, v| v == 0),
    at_least!("tx_attr->size", tx, size, usize),
    at_least!("rx_attr->size", rx, size, usize),
    at_least!("tx_attr->iov_limit", tx, iov_limit, usize),
    at_least!("rx_attr->iov_limit", rx, iov_limit, usize),
    at_least!("tx_attr->inject_size", tx, inject_size, usize),
    at_least!("tx_attr->rma_iov_limit", tx, rma_iov_limit, usize),
    field!(
        "rx_attr->total_buffered_recv",
        |h, v| h.rx.as_mut().unwrap().total_buffered_recv = usize::try_from(v).unwrap_or(usize::MAX),
        // A hint that the provider may adjust.
        |i, v| i.rx.total_buffered_recv == usize::try_from(v).unwrap_or(usize::MAX).min(64 << 10)
    ),
    field!("ep_attr->type", |h, v| h.ep.as_mut().unwrap().kind = EndpointType(word(v)), |i, v| word(v) == 0
        || i.ep.kind.0 == word(v)),
    field!("ep_attr->protocol", |h, v| h.ep.as_mut().unwrap().protocol = Protocol(word(v)), |i, v| word(v) == 0
        || i.ep.protocol.0 == word(v)),
    at_least!("ep_attr->protocol_version", ep, protocol_version, u32),
    at_least!("ep_attr->max_msg_size", ep, max_msg_size, usize),
    at_least!("ep_attr->tx_ctx_cnt", ep, tx_ctx_cnt, usize),
    at_least!("ep_attr->rx_ctx_cnt", ep, rx_ctx_cnt, usize),
    at_least!("ep_attr->msg_prefix_size", ep, msg_prefix_size, usize),
    at_least!("ep_attr->max_order_raw_size", ep, max_order_raw_size, usize),
    at_least!("ep_attr->max_order_war_size", ep, max_order_war_size, usize),
    at_least!("ep_attr->max_order_waw_size", ep, max_order_waw_size, usize),
    field!("domain_attr->threading", |h, v| h.domain.as_mut().unwrap().threading = Threading(word(v)), |i, v| word(v)
        == 0
        || i.domain.threading.0 == word(v)),
    field!("domain_attr->progress", |h, v| h.domain.as_mut().unwrap().progress = ProgressModel(word(v)), |i, v| word(
        v
    ) == 0
        || i.domain.progress.0 == word(v)),
    field!(
        "domain_attr->resource_mgmt",
        |h, v| h.domain.as_mut().unwrap().resource_mgmt = ResourceMgmt(word(v)),
        |_, v| word(v) <= ResourceMgmt::ENABLED.0
    ),
    field!("domain_attr->av_type", |h, v| h.domain.as_mut().unwrap().av_type = AvType(word(v)), |i, v| word(v) == 0
        || i.domain.av_type.0 == word(v)),
    field!(
        "domain_attr->mr_mode",
        |h, v| h.domain.as_mut().unwrap().mr_mode = MrMode::from_bits_retain(word(v)),
        |i, v| MrMode::from_bits_retain(word(v)).contains(i.domain.mr_mode)
    ),
    at_least!("domain_attr->cq_data_size", domain, cq_data_size, usize),
    at_least!("domain_attr->mr_key_size", domain, mr_key_size, usize),
    at_least!("domain_attr->cq_cnt", domain, cq_cnt, usize),
    at_least!("domain_attr->ep_cnt", domain, ep_cnt, usize),
    at_least!("domain_attr->tx_ctx_cnt", domain, tx_ctx_cnt, usize),
    at_least!("domain_attr->rx_ctx_cnt", domain, rx_ctx_cnt, usize),
    at_least!("domain_attr->max_ep_tx_ctx", domain, max_ep_tx_ctx, usize),
    at_least!("domain_attr->max_ep_rx_ctx", domain, max_ep_rx_ctx, usize),
    at_least!("domain_attr->max_ep_stx_ctx", domain, max_ep_stx_ctx, usize),
    at_least!("domain_attr->max_ep_srx_ctx", domain, max_ep_srx_ctx, usize),
    at_least!("domain_attr->mr_iov_limit", domain, mr_iov_limit, usize),
    at_least!("domain_attr->mr_cnt", domain, mr_cnt, usize),
    at_least!("domain_attr->max_cntr_value", domain, max_cntr_value, u64),
    at_least!("domain_attr->max_err_cntr_value", domain, max_err_cntr_value, u64),
    field!("domain_attr->tclass", |h, v| h.domain.as_mut().unwrap().tclass = class(v), |i, v| keeps_class(
        i,
        i.domain.tclass,
        v
    )),
    field!("tx_attr->tclass", |h, v| h.tx.as_mut().unwrap().tclass = class(v), |i, v| keeps_class(i, i.tx.tclass, v)),
    at_least!("domain_attr->cntr_cnt", domain, cntr_cnt, usize),
    at_least!("domain_attr->max_err_data", domain, max_err_data, usize),
    field!("domain_attr->caps", |h, v| h.domain.as_mut().unwrap().caps = known_caps(v), |i, v| i
        .domain
        .caps
        .contains(known_caps(v))),
    field!("domain_attr->name", |h, v| h.domain.as_mut().unwrap().name = Some(format!("nowhere{v}")), |_, _| false),
    field!("fabric_attr->name", |h, v| h.fabric.as_mut().unwrap().name = Some(format!("nowhere{v}")), |_, _| false),
    field!(
        "fabric_attr->prov_name",
        |h, v| h.fabric.as_mut().unwrap().prov_name = Some(format!("nobody{v}")),
        |_, _| false
    ),
    at_least!("fabric_attr->prov_version", fabric, prov_version, u32),
];

/// Small numbers, single bits, a few bits, and anything.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..20,
        (0u32..64).prop_map(|bit| 1 << bit),
        (0u32..64, 0u32..64).prop_map(|(a, b)| 1 << a | 1 << b),
        (0u32..64).prop_map(|bits| u64::MAX >> bits),
        any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn one_changed_field_matches_by_its_rule_or_is_named(
        which in any::<prop::sample::Index>(),
        field in any::<prop::sample::Index>(),
        value in value(),
        api in prop::sample::select(vec![Version::API, Version::new(1, 18), Version::new(1, 5)]),
    ) {
        let plain = Query { version: api, ..Query::default() };
        let infos = discover(&plain).unwrap().0;
        let info = which.get(&infos);
        let field = field.get(FIELDS);
        let mut hints = Hints::from(info.clone());
        (field.set)(&mut hints, value);
        let (found, why) = discover(&Query { hints: Some(hints), ..plain }).unwrap();
        for match_ in &found {
            prop_assert!((field.kept)(match_, value), "{} = {value:#x} gave {match_:#?}", field.name);
        }
        if found.is_empty() {
            let own = |name: &str| info.fabric.prov_name.as_deref() == Some(name);
            let kind = info.ep.kind.name().unwrap_or_default();
            let named = why.0.iter().any(|refusal| {
                own(&refusal.provider) && refusal.endpoint == kind && refusal.reason.field == field.name
            });
            prop_assert!(named, "{} = {value:#x} of {} {kind}: {why}", field.name, info.fabric.prov_name.as_deref().unwrap_or(""));
        }
    }
}
