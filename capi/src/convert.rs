//! Converts infos between C and Rust.

mod blocks;
pub(crate) mod foreign;
pub(crate) mod infos;
pub(crate) mod layouts;

use crate::ffi::ptr::{sized_addr, text};
pub(crate) use blocks::free_list;
use core::ffi::{c_char, c_void};
pub(crate) use infos::{Infos, duplicate, list_to_c, to_c};
use ofi_abi::{fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_pci_attr, fi_rx_attr, fi_tx_attr, fid_nic};
use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Hints, Info, LinkState, Nic, RxAttr, TxAttr};
use ofi_core::{
    AddrFormat, AvType, Caps, EndpointType, Mode, MrMode, MsgOrder, OpFlags, ProgressModel, Protocol, ResourceMgmt,
    Threading, TrafficClass, Version,
};

/// Reads a network interface from C.
///
/// # Safety
/// `nic` is null or valid with all its parts.
pub(crate) unsafe fn nic(nic: *const fid_nic) -> Option<Nic> {
    // SAFETY: this function's contract.
    let nic = unsafe { nic.as_ref() }?;
    let mut out = Nic::default();
    // SAFETY: null or valid.
    if let Some(device) = unsafe { nic.device_attr.as_ref() } {
        // SAFETY: null or ends with NUL; so are all of these.
        let owned = |name: *const c_char| unsafe { text(name) };
        out.name = owned(device.name);
        out.device_id = owned(device.device_id);
        out.device_version = owned(device.device_version);
        out.vendor_id = owned(device.vendor_id);
        out.driver = owned(device.driver);
        out.firmware = owned(device.firmware);
    }
    // SAFETY: null or valid.
    if let Some(bus) = unsafe { nic.bus_attr.as_ref() }
        && bus.bus_type == 1
    {
        let fi_pci_attr { domain_id, bus_id, device_id, function_id } = bus.attr;
        out.pci = Some((domain_id, bus_id, device_id, function_id));
    }
    // SAFETY: null or valid.
    if let Some(link) = unsafe { nic.link_attr.as_ref() } {
        // SAFETY: null or ends with NUL.
        out.address = unsafe { text(link.address) };
        out.mtu = link.mtu;
        out.speed = link.speed as u64;
        out.state = match link.state {
            1 => LinkState::Down,
            2 => LinkState::Up,
            _ => LinkState::Unknown,
        };
        // SAFETY: null or ends with NUL.
        out.network = unsafe { text(link.network_type) };
    }
    Some(out)
}

pub(crate) fn tx_from_c(attr: &fi_tx_attr) -> TxAttr {
    let fi_tx_attr { caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass } =
        *attr;
    TxAttr {
        caps: Caps::from_bits_retain(caps),
        mode: Mode::from_bits_retain(mode),
        op_flags: OpFlags::from_bits_retain(op_flags),
        msg_order: MsgOrder::from_bits_retain(msg_order),
        comp_order,
        inject_size,
        size,
        iov_limit,
        rma_iov_limit,
        tclass: TrafficClass(tclass),
    }
}

pub(crate) fn rx_from_c(attr: &fi_rx_attr) -> RxAttr {
    let fi_rx_attr { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit } = *attr;
    RxAttr {
        caps: Caps::from_bits_retain(caps),
        mode: Mode::from_bits_retain(mode),
        op_flags: OpFlags::from_bits_retain(op_flags),
        msg_order: MsgOrder::from_bits_retain(msg_order),
        comp_order,
        total_buffered_recv,
        size,
        iov_limit,
    }
}

/// # Safety
/// `attr.auth_key` is null or has `attr.auth_key_size` readable bytes.
pub(crate) unsafe fn ep_from_c(attr: &fi_ep_attr) -> EpAttr {
    let fi_ep_attr {
        r#type,
        protocol,
        protocol_version,
        max_msg_size,
        msg_prefix_size,
        max_order_raw_size,
        max_order_war_size,
        max_order_waw_size,
        mem_tag_format,
        tx_ctx_cnt,
        rx_ctx_cnt,
        auth_key_size,
        auth_key,
    } = *attr;
    EpAttr {
        kind: EndpointType(r#type),
        protocol: Protocol(protocol),
        protocol_version,
        max_msg_size,
        msg_prefix_size,
        max_order_raw_size,
        max_order_war_size,
        max_order_waw_size,
        mem_tag_format,
        tx_ctx_cnt,
        rx_ctx_cnt,
        // SAFETY: this function's contract.
        auth_key: unsafe { crate::ffi::ptr::bytes(auth_key.cast(), auth_key_size) },
    }
}

/// # Safety
/// `attr.name` is null or ends with NUL; `attr.auth_key` is null or has `attr.auth_key_size`
/// readable bytes, unless that is FI_AV_AUTH_KEY.
pub(crate) unsafe fn domain_from_c(attr: &fi_domain_attr) -> DomainAttr {
    let fi_domain_attr {
        domain: _,
        name,
        threading,
        control_progress,
        progress,
        resource_mgmt,
        av_type,
        mr_mode,
        mr_key_size,
        cq_data_size,
        cq_cnt,
        ep_cnt,
        tx_ctx_cnt,
        rx_ctx_cnt,
        max_ep_tx_ctx,
        max_ep_rx_ctx,
        max_ep_stx_ctx,
        max_ep_srx_ctx,
        cntr_cnt,
        mr_iov_limit,
        caps,
        mode,
        auth_key,
        auth_key_size,
        max_err_data,
        mr_cnt,
        tclass,
        max_ep_auth_key,
        max_group_id,
        max_cntr_value,
        max_err_cntr_value,
    } = *attr;
    let av_auth_key = auth_key_size == usize::MAX;
    DomainAttr {
        // SAFETY: this function's contract.
        name: unsafe { text(name) },
        threading: Threading(threading),
        control_progress: ProgressModel(control_progress),
        progress: ProgressModel(progress),
        resource_mgmt: ResourceMgmt(resource_mgmt),
        av_type: AvType(av_type),
        mr_mode: MrMode::from_bits_retain(mr_mode),
        mr_key_size,
        cq_data_size,
        cq_cnt,
        ep_cnt,
        tx_ctx_cnt,
        rx_ctx_cnt,
        max_ep_tx_ctx,
        max_ep_rx_ctx,
        max_ep_stx_ctx,
        max_ep_srx_ctx,
        cntr_cnt,
        mr_iov_limit,
        caps: Caps::from_bits_retain(caps),
        mode: Mode::from_bits_retain(mode),
        // SAFETY: this function's contract.
        auth_key: unsafe { crate::ffi::ptr::bytes(auth_key.cast(), if av_auth_key { 0 } else { auth_key_size }) },
        av_auth_key,
        max_err_data,
        mr_cnt,
        tclass: TrafficClass(tclass),
        max_ep_auth_key,
        max_group_id,
        max_cntr_value,
        max_err_cntr_value,
    }
}

/// # Safety
/// Each name is null or ends with NUL.
pub(crate) unsafe fn fabric_from_c(attr: &fi_fabric_attr) -> FabricAttr {
    let fi_fabric_attr { fabric: _, name, prov_name, prov_version, api_version } = *attr;
    // SAFETY: this function's contract.
    let name = unsafe { text(name) };
    // SAFETY: this function's contract.
    let prov_name = unsafe { text(prov_name) };
    FabricAttr { name, prov_name, prov_version, api_version: Version(api_version) }
}

/// Reads hints from C.
///
/// # Safety
/// `info` is valid with all its members (fi_getinfo(3)).
pub(crate) unsafe fn hints(info: &fi_info) -> Hints {
    let fi_info {
        next: _,
        caps,
        mode,
        addr_format,
        src_addrlen,
        dest_addrlen,
        src_addr,
        dest_addr,
        handle: _,
        tx_attr,
        rx_attr,
        ep_attr,
        domain_attr,
        fabric_attr,
        nic: _,
    } = *info;
    // SAFETY: null or an address of that length.
    let addr = |data: *mut c_void, len| unsafe { sized_addr(data, len) };
    Hints {
        caps: Caps::from_bits_retain(caps),
        mode: Mode::from_bits_retain(mode),
        addr_format: AddrFormat(addr_format),
        src_addr: addr(src_addr, src_addrlen),
        dest_addr: addr(dest_addr, dest_addrlen),
        // SAFETY: null or valid.
        tx: unsafe { tx_attr.as_ref() }.map(tx_from_c),
        // SAFETY: null or valid.
        rx: unsafe { rx_attr.as_ref() }.map(rx_from_c),
        // SAFETY: null or valid, with valid members.
        ep: unsafe { ep_attr.as_ref() }.map(|attr| unsafe { ep_from_c(attr) }),
        // SAFETY: null or valid, with valid members.
        domain: unsafe { domain_attr.as_ref() }.map(|attr| unsafe { domain_from_c(attr) }),
        // SAFETY: null or valid, with valid members.
        fabric: unsafe { fabric_attr.as_ref() }.map(|attr| unsafe { fabric_from_c(attr) }),
    }
}

/// Reads the info with which an application opens an object. Its values are kept; missing sizes,
/// capabilities and provider name are the provider's defaults.
///
/// # Safety
/// `info` is valid with all its members.
pub(crate) unsafe fn info(info: &fi_info, provider: &str) -> Info {
    // SAFETY: this function's contract.
    let hints = unsafe { hints(info) };
    let Hints { caps, mode, addr_format, src_addr, dest_addr, tx, rx, ep, domain, fabric } = hints;
    let kind = ep.as_ref().map_or(EndpointType::UNSPEC, |ep| ep.kind);
    let named = fabric.as_ref().and_then(|fabric| fabric.prov_name.as_deref()).unwrap_or(provider);
    let fits = |offer: &ofi_core::info::Offer| {
        let name = offer.most.fabric.prov_name.as_deref().unwrap_or_default();
        (kind == EndpointType::UNSPEC || kind == offer.most.ep.kind) && (named.is_empty() || named == name)
    };
    let mut offers = ofi_registry::providers();
    let default = offers.find(|offer| fits(offer)).or_else(|| ofi_registry::providers().next()).cloned();
    let (offered, size) = default.map_or_else(|| (Info::default(), 1), |offer| (offer.most, offer.default_size));
    let mut tx = tx.unwrap_or_default();
    let mut rx = rx.unwrap_or_default();
    if tx.size == 0 {
        tx.size = size;
    }
    if tx.inject_size == 0 {
        tx.inject_size = offered.tx.inject_size;
    }
    if rx.size == 0 {
        rx.size = size;
    }
    let mut fabric = fabric.unwrap_or_default();
    if fabric.prov_name.is_none() {
        fabric.prov_name = if provider.is_empty() { offered.fabric.prov_name } else { Some(provider.to_owned()) };
    }
    let caps = if caps.is_empty() { offered.caps - Caps::ONLY_IF_NAMED } else { caps };
    let mut ep = ep.unwrap_or_default();
    if ep.max_msg_size == 0 {
        ep.max_msg_size = offered.ep.max_msg_size;
    }
    Info {
        caps,
        mode,
        addr_format: src_addr.map_or(addr_format, |addr| addr.format()),
        src_addr,
        dest_addr,
        tx,
        rx,
        ep,
        domain: domain.unwrap_or_default(),
        fabric,
        nic: None,
    }
}
