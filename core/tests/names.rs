//! Every value in our headers has its header name in reasons. The values come from
//! `abi/values.txt`.

use ofi_core::kinds::{
    AddrFormat, AvType, CqFormat, EndpointType, ProgressModel, Protocol, ResourceMgmt, Threading, TrafficClass,
    WaitObjectKind,
};
use ofi_core::{Caps, Mode, MrMode, MsgOrder, OpFlags};
use std::collections::BTreeMap;

/// The constants of a header.
fn constants(header: &str) -> Vec<(&'static str, u64)> {
    let text = include_str!("../../abi/values.txt");
    let mut current = "";
    let mut out = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("header") => current = words.next().unwrap(),
            Some("const") if current == header => {
                let (name, value) = (words.next().unwrap(), words.next().unwrap());
                let value = match value.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
                    None => value.parse::<i64>().unwrap().cast_unsigned(),
                };
                out.push((name, value));
            }
            _ => {}
        }
    }
    assert!(!out.is_empty(), "{header}");
    out
}

/// The wanted constants that are single bits, with all names of each.
fn bits(wanted: impl Fn(&str) -> bool) -> BTreeMap<u64, Vec<&'static str>> {
    let mut out: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (name, value) in constants("rdma/fabric.h") {
        if value.is_power_of_two() && wanted(name) {
            out.entry(value).or_default().push(name);
        }
    }
    out
}

/// Checks that each bit prints as one of its names, alone and among all others, else as a number.
fn check(what: &str, width: u32, known: &BTreeMap<u64, Vec<&str>>, unreleased: &[&str], text: impl Fn(u64) -> String) {
    assert!(known.len() >= 6, "{what}: {known:?}");
    let all = text(if width == 64 { u64::MAX } else { u64::from(u32::MAX) });
    for bit in (0..width).map(|shift| 1u64 << shift) {
        let name = text(bit);
        if let Some(names) = known.get(&bit) {
            assert!(names.contains(&name.as_str()), "{what}: bit {bit:#x} is {names:?} and not {name}");
            assert!(all.split('|').any(|word| word == name), "{what}: {name} is not in {all}");
        } else if !unreleased.contains(&name.as_str()) {
            assert_eq!(name, format!("{bit:#x}"), "{what}");
        }
    }
    let numbers: Vec<&str> = all.split('|').filter(|word| word.starts_with("0x")).collect();
    assert!(numbers.len() <= 1, "{what}: {all}");
    assert_eq!(text(0), "none");
}

const MODES: [&str; 6] = ["FI_CONTEXT", "FI_MSG_PREFIX", "FI_ASYNC_IOV", "FI_RX_CQ_DATA", "FI_LOCAL_MR", "FI_CONTEXT2"];

/// Capabilities and flags of operations and calls share one space of bits in the header.
fn is_shared(name: &str) -> bool {
    let other = ["FI_MR_", "FI_ORDER_", "FI_SELECTIVE_", "FI_TC_", "FI_TAG_", "FI_CLASS_", "FI_PROTO_", "FI_ADDR_"];
    let numbers = ["FI_MAJOR", "FI_MINOR", "FI_EP_", "FI_AV_T", "FI_AV_M", "FI_THREAD_", "FI_PROGRESS_", "FI_RM_"];
    let more =
        ["FI_SOCKADDR", "FI_BUS_", "FI_LINK_", "FI_GET", "FI_SET", "FI_ALIAS", "FI_ENABLE", "FI_MAP_", "FI_TYPE_"];
    let is_number = [&other[..], &numbers, &more].concat().iter().any(|prefix| name.starts_with(prefix));
    !is_number && !MODES.contains(&name) && !["FI_BACKLOG", "FI_UNMAP_KEY", "FI_QUEUE_WORK"].contains(&name)
}

#[test]
fn every_bit_of_every_set_has_its_name() {
    let shared = bits(|name| is_shared(name) && constants("rdma/fabric.h").iter().any(|(n, v)| *n == name && *v > 1));
    check("caps", 64, &shared, &["FI_XPU"], |bits| Caps::from_bits_retain(bits).text());
    check("op_flags", 64, &shared, &["FI_XPU"], |bits| OpFlags::from_bits_retain(bits).text());
    // Removed from the headers; callers of 1.x still have it.
    let former = ["FI_BUFFERED_RECV"];
    check("mode", 64, &bits(|name| MODES.contains(&name)), &former, |bits| Mode::from_bits_retain(bits).text());
    let orders = bits(|name| name.starts_with("FI_ORDER_"));
    check("msg_order", 64, &orders, &[], |bits| MsgOrder::from_bits_retain(bits).text());
    let modes = bits(|name| name.starts_with("FI_MR_"));
    let word = |bits: u64| u32::try_from(bits).unwrap();
    check("mr_mode", 32, &modes, &["FI_MR_XPU_DESC"], |bits| MrMode::from_bits_retain(word(bits)).text());
}

#[test]
fn every_value_of_every_enumeration_has_its_name() {
    type Show = fn(u32) -> String;
    let sets: [(&str, &[&str], Show); 10] = [
        ("rdma/fabric.h", &["FI_EP_"], |v| format!("{:?}", EndpointType(v))),
        ("rdma/fabric.h", &["FI_FORMAT_UNSPEC", "FI_SOCKADDR", "FI_ADDR_"], |v| format!("{:?}", AddrFormat(v))),
        ("rdma/fabric.h", &["FI_THREAD_"], |v| format!("{:?}", Threading(v))),
        ("rdma/fabric.h", &["FI_PROGRESS_"], |v| format!("{:?}", ProgressModel(v))),
        ("rdma/fabric.h", &["FI_RM_"], |v| format!("{:?}", ResourceMgmt(v))),
        ("rdma/fabric.h", &["FI_AV_UNSPEC", "FI_AV_MAP", "FI_AV_TABLE"], |v| format!("{:?}", AvType(v))),
        ("rdma/fabric.h", &["FI_PROTO_"], |v| format!("{:?}", Protocol(v))),
        ("rdma/fabric.h", &["FI_TC_"], |v| format!("{:?}", TrafficClass(v))),
        ("rdma/fi_eq.h", &["FI_CQ_FORMAT_"], |v| format!("{:?}", CqFormat(v))),
        ("rdma/fi_eq.h", &["FI_WAIT_"], |v| format!("{:?}", WaitObjectKind(v))),
    ];
    // Prefixes of other values, and names kept for old sources.
    let apart = ["FI_TC_DSCP", "FI_TC_LABEL", "FI_EP_SOCK_STREAM", "FI_ADDR_UNSPEC", "FI_ADDR_NOTAVAIL"];
    for (header, prefixes, show) in sets {
        let of = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix)) && !apart.contains(&name);
        let values: Vec<_> = constants(header).into_iter().filter(|(name, _)| of(name)).collect();
        assert!(values.len() >= 3, "{prefixes:?}: {values:?}");
        for (name, value) in values {
            assert_eq!(show(u32::try_from(value).unwrap()), name);
        }
        assert!(show(9999).to_lowercase().contains("unknown"));
    }
}

#[test]
fn classes_stand_for_code_points() {
    let dscp = |class: u32| TrafficClass(class).dscp();
    let labels: Vec<_> = (0x200..0x206).map(dscp).collect();
    assert_eq!(labels, [Some(0), Some(46), Some(44), Some(10), Some(1), Some(48)]);
    for point in 0..64 {
        assert_eq!(dscp(0x100 | u32::from(point)), Some(point));
    }
    for unknown in [0x206, 0x300, 0x140, 0x1ff, 1, 0x8000_0100] {
        assert_eq!(dscp(unknown), None, "{unknown:#x}");
        assert!(!TrafficClass(unknown).is_known());
    }
    assert!(TrafficClass::UNSPEC.is_known() && TrafficClass::UNSPEC.dscp().is_none());
    assert_eq!(TrafficClass::UNSPEC.or(TrafficClass::BEST_EFFORT), TrafficClass::BEST_EFFORT);
}
