//! Values and structures as text, in the layout that programs print and scripts read (fi_tostr(3),
//! fi_info(1)).

use crate::caps::{Caps, Mode, MrMode, MsgOrder, OpFlags};
use crate::info::{DomainAttr, EpAttr, FabricAttr, Hints, Info, LinkState, Nic, RxAttr, TxAttr};
use crate::kinds::Version;
use core::fmt::{Display, Write};

/// Text with an indentation of four spaces a level.
#[derive(Clone, Debug, Default)]
pub struct Text(pub String);

impl Text {
    /// "name: value".
    pub fn line(&mut self, depth: usize, name: &str, value: impl Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{:width$}{name}: {value}", "", width = depth * 4);
    }

    /// "name:", for what follows one level deeper.
    pub fn head(&mut self, depth: usize, name: &str) {
        let _ = writeln!(self.0, "{:width$}{name}:", "", width = depth * 4);
    }

    /// A missing structure.
    pub fn absent(&mut self, depth: usize, name: &str) {
        self.line(depth, name, "(null)");
    }
}

/// "A, B".
pub fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// "[ A, B ]".
pub fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("[ {} ]", joined(names))
}

/// A pointer, as printf's %p prints it.
pub fn pointer(address: usize) -> String {
    if address == 0 { "(nil)".to_owned() } else { format!("{address:#x}") }
}

fn name(name: Option<&str>) -> &str {
    name.unwrap_or("(null)")
}

fn contexts(count: usize) -> String {
    if count == usize::MAX { "FI_SHARED_CONTEXT".to_owned() } else { count.to_string() }
}

/// `struct fi_tx_attr`.
pub fn tx(out: &mut Text, depth: usize, attr: Option<&TxAttr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_tx_attr") };
    let TxAttr { caps, mode, op_flags, msg_order, comp_order: _, inject_size, size, iov_limit, rma_iov_limit, tclass } =
        *attr;
    out.head(depth, "fi_tx_attr");
    flags(out, depth + 1, (caps, mode, op_flags, msg_order));
    out.line(depth + 1, "inject_size", inject_size);
    out.line(depth + 1, "size", size);
    out.line(depth + 1, "iov_limit", iov_limit);
    out.line(depth + 1, "rma_iov_limit", rma_iov_limit);
    out.line(depth + 1, "tclass", format_args!("{:#x}", tclass.0));
}

/// `struct fi_rx_attr`.
pub fn rx(out: &mut Text, depth: usize, attr: Option<&RxAttr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_rx_attr") };
    let RxAttr { caps, mode, op_flags, msg_order, comp_order: _, total_buffered_recv: _, size, iov_limit } = *attr;
    out.head(depth, "fi_rx_attr");
    flags(out, depth + 1, (caps, mode, op_flags, msg_order));
    out.line(depth + 1, "size", size);
    out.line(depth + 1, "iov_limit", iov_limit);
}

fn flags(out: &mut Text, depth: usize, (caps, mode, op_flags, msg_order): (Caps, Mode, OpFlags, MsgOrder)) {
    out.line(depth, "caps", listed(caps.names()));
    out.line(depth, "mode", listed(mode.names()));
    out.line(depth, "op_flags", listed(op_flags.names()));
    out.line(depth, "msg_order", listed(msg_order.names()));
}

/// `struct fi_ep_attr`.
pub fn ep(out: &mut Text, depth: usize, attr: Option<&EpAttr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_ep_attr") };
    out.head(depth, "fi_ep_attr");
    let depth = depth + 1;
    out.line(depth, "type", attr.kind);
    out.line(depth, "protocol", attr.protocol);
    out.line(depth, "protocol_version", attr.protocol_version);
    out.line(depth, "max_msg_size", attr.max_msg_size);
    out.line(depth, "msg_prefix_size", attr.msg_prefix_size);
    out.line(depth, "max_order_raw_size", attr.max_order_raw_size);
    out.line(depth, "max_order_war_size", attr.max_order_war_size);
    out.line(depth, "max_order_waw_size", attr.max_order_waw_size);
    out.line(depth, "mem_tag_format", format_args!("{:#018x}", attr.mem_tag_format));
    out.line(depth, "tx_ctx_cnt", contexts(attr.tx_ctx_cnt));
    out.line(depth, "rx_ctx_cnt", contexts(attr.rx_ctx_cnt));
    out.line(depth, "auth_key_size", attr.auth_key.len());
}

/// `struct fi_domain_attr`; `open` is the address of the open domain.
pub fn domain(out: &mut Text, depth: usize, attr: Option<&DomainAttr>, open: usize) {
    let Some(attr) = attr else { return out.absent(depth, "fi_domain_attr") };
    out.head(depth, "fi_domain_attr");
    let depth = depth + 1;
    out.line(depth, "domain", pointer(open));
    out.line(depth, "name", name(attr.name.as_deref()));
    out.line(depth, "threading", attr.threading);
    out.line(depth, "progress", attr.progress);
    out.line(depth, "resource_mgmt", attr.resource_mgmt);
    out.line(depth, "av_type", attr.av_type);
    out.line(depth, "mr_mode", listed(MrMode::from_bits_retain(attr.mr_mode.bits()).names()));
    out.line(depth, "mr_key_size", attr.mr_key_size);
    out.line(depth, "cq_data_size", attr.cq_data_size);
    out.line(depth, "cq_cnt", attr.cq_cnt);
    out.line(depth, "ep_cnt", attr.ep_cnt);
    out.line(depth, "tx_ctx_cnt", contexts(attr.tx_ctx_cnt));
    out.line(depth, "rx_ctx_cnt", contexts(attr.rx_ctx_cnt));
    out.line(depth, "max_ep_tx_ctx", attr.max_ep_tx_ctx);
    out.line(depth, "max_ep_rx_ctx", attr.max_ep_rx_ctx);
    out.line(depth, "max_ep_stx_ctx", attr.max_ep_stx_ctx);
    out.line(depth, "max_ep_srx_ctx", attr.max_ep_srx_ctx);
    out.line(depth, "cntr_cnt", attr.cntr_cnt);
    out.line(depth, "mr_iov_limit", attr.mr_iov_limit);
    out.line(depth, "caps", listed(attr.caps.names()));
    out.line(depth, "mode", listed(attr.mode.names()));
    out.line(depth, "auth_key_size", if attr.av_auth_key { usize::MAX } else { attr.auth_key.len() });
    out.line(depth, "max_err_data", attr.max_err_data);
    out.line(depth, "mr_cnt", attr.mr_cnt);
    out.line(depth, "tclass", format_args!("{:#x}", attr.tclass.0));
    out.line(depth, "max_ep_auth_key", attr.max_ep_auth_key);
    out.line(depth, "max_group_id", attr.max_group_id);
    out.line(depth, "max_cntr_value", attr.max_cntr_value);
    out.line(depth, "max_err_cntr_value", attr.max_err_cntr_value);
}

/// `struct fi_fabric_attr`.
pub fn fabric(out: &mut Text, depth: usize, attr: Option<&FabricAttr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_fabric_attr") };
    out.head(depth, "fi_fabric_attr");
    out.line(depth + 1, "name", name(attr.name.as_deref()));
    out.line(depth + 1, "prov_name", name(attr.prov_name.as_deref()));
    out.line(depth + 1, "prov_version", Version(attr.prov_version));
    out.line(depth + 1, "api_version", attr.api_version);
}

/// `struct fid_nic`.
pub fn nic(out: &mut Text, depth: usize, nic: Option<&Nic>) {
    let Some(nic) = nic else { return out.line(depth, "nic", "(nil)") };
    out.head(depth, "nic");
    let depth = depth + 1;
    out.head(depth, "fi_device_attr");
    for (label, text) in [
        ("name", &nic.name),
        ("device_id", &nic.device_id),
        ("device_version", &nic.device_version),
        ("vendor_id", &nic.vendor_id),
        ("driver", &nic.driver),
        ("firmware", &nic.firmware),
    ] {
        out.line(depth + 1, label, name(text.as_deref()));
    }
    out.head(depth, "fi_bus_attr");
    match nic.pci {
        Some((domain, bus, device, function)) => {
            out.line(depth + 1, "bus_type", "FI_BUS_PCI");
            out.head(depth + 1, "fi_pci_attr");
            out.line(depth + 2, "domain_id", domain);
            out.line(depth + 2, "bus_id", bus);
            out.line(depth + 2, "device_id", device);
            out.line(depth + 2, "function_id", function);
        }
        None => out.line(depth + 1, "bus_type", "FI_BUS_UNKNOWN"),
    }
    out.head(depth, "fi_link_attr");
    out.line(depth + 1, "address", name(nic.address.as_deref()));
    out.line(depth + 1, "mtu", nic.mtu);
    out.line(depth + 1, "speed", nic.speed);
    let state = match nic.state {
        LinkState::Unknown => "FI_LINK_UNKNOWN",
        LinkState::Down => "FI_LINK_DOWN",
        LinkState::Up => "FI_LINK_UP",
    };
    out.line(depth + 1, "state", state);
    out.line(depth + 1, "network_type", name(nic.network.as_deref()));
}

/// The parts of an info's text that are not in [`Info`].
#[derive(Clone, Debug, Default)]
pub struct Besides {
    /// The length and the text of this side's address.
    pub src: (usize, Option<String>),
    /// The length and the text of the peer's address.
    pub dest: (usize, Option<String>),
    /// The address of the info's handle.
    pub handle: usize,
    /// The address of the open domain.
    pub domain: usize,
}

/// `struct fi_info`, with the parts that are present.
pub fn parts(out: &mut Text, info: &Hints, nic_of: Option<&Nic>, besides: &Besides) {
    out.head(0, "fi_info");
    out.line(1, "caps", listed(info.caps.names()));
    out.line(1, "mode", listed(info.mode.names()));
    out.line(1, "addr_format", info.addr_format);
    out.line(1, "src_addrlen", besides.src.0);
    out.line(1, "dest_addrlen", besides.dest.0);
    out.line(1, "src_addr", name(besides.src.1.as_deref()));
    out.line(1, "dest_addr", name(besides.dest.1.as_deref()));
    out.line(1, "handle", pointer(besides.handle));
    tx(out, 1, info.tx.as_ref());
    rx(out, 1, info.rx.as_ref());
    ep(out, 1, info.ep.as_ref());
    domain(out, 1, info.domain.as_ref(), besides.domain);
    fabric(out, 1, info.fabric.as_ref());
    nic(out, 1, nic_of);
}

/// The text of an [`Info`].
pub fn info(info: &Info) -> String {
    let address =
        |addr: Option<crate::Addr>| (addr.map_or(0, |addr| addr.encoded_len()), addr.map(|addr| addr.to_string()));
    let besides = Besides { src: address(info.src_addr), dest: address(info.dest_addr), handle: 0, domain: 0 };
    let mut out = Text::default();
    parts(&mut out, &Hints::from(info.clone()), info.nic.as_ref(), &besides);
    out.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_info_has_the_documented_layout() {
        let text = info(&Info::default());
        assert!(text.starts_with("fi_info:\n    caps: [  ]\n    mode: [  ]\n    addr_format: FI_FORMAT_UNSPEC\n"));
        assert!(text.contains(
            "    src_addr: (null)\n    dest_addr: (null)\n    handle: (nil)\n    fi_tx_attr:\n        caps: [  ]\n"
        ));
        assert!(text.contains("        mem_tag_format: 0x0000000000000000\n"));
        assert!(text.ends_with("    nic: (nil)\n"));
        let mut out = Text::default();
        parts(&mut out, &Hints::default(), None, &Besides::default());
        assert!(out.0.contains("    fi_tx_attr: (null)\n"));
    }
}
