//! The attributes that the provider offers, and the interfaces on which it works.

use crate::datagram::HEADER;
use ofi_core::info::{Device, EpAttr, Offer};
use ofi_core::{AddrFormat, Caps, EndpointType, MsgOrder, OpFlags, Protocol};
use ofi_engine::offer::Medium;
use ofi_os::infiniband::{self, SYSFS};
use ofi_os::netif::{self, Interface, Selection};
use std::path::Path;

/// The `protocol_version` of `fi_ep_attr`.
const PROTOCOL_VERSION: u32 = 1;

fn base(kind: EndpointType, protocol: Protocol, provider: &'static str) -> Offer {
    let medium = Medium {
        provider,
        protocol: (protocol, PROTOCOL_VERSION),
        addr_format: AddrFormat::SOCKADDR_IN,
        reach: Caps::LOCAL_COMM | Caps::REMOTE_COMM,
    };
    Offer { interfaces: Some(crate::IFACE), devices: Some(devices), ..medium.offer(kind) }
}

/// Connectionless endpoints under the provider's own name.
pub(crate) fn rdm() -> Offer {
    base(EndpointType::RDM, Protocol::RDMA_CM_IB_RC, "verbs")
}

/// Connectionless endpoints under the layered name that some programs request by string.
pub(crate) fn rdm_layered() -> Offer {
    base(EndpointType::RDM, Protocol::RXM, "verbs;ofi_rxm")
}

/// Connected endpoints.
pub(crate) fn msg() -> Offer {
    base(EndpointType::MSG, Protocol::RDMA_CM_IB_RC, "verbs")
}

/// Datagram endpoints.
pub(crate) fn datagrams() -> Offer {
    let tx_caps = Caps::MSG | Caps::MULTICAST | Caps::SEND;
    let rx_caps = Caps::MSG | Caps::RECV | Caps::SOURCE | Caps::SOURCE_ERR;
    let domain_caps = Caps::LOCAL_COMM | Caps::REMOTE_COMM | Caps::AV_USER_ID | Caps::SHARED_AV;
    let mut offer = base(EndpointType::DGRAM, Protocol::IB_UD, "verbs");
    let Offer { most, .. } = &mut offer;
    most.caps = tx_caps | rx_caps | domain_caps;
    (most.tx.caps, most.rx.caps, most.domain.caps) = (tx_caps, rx_caps, domain_caps);
    let levels = OpFlags::INJECT | OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE;
    most.tx.op_flags = OpFlags::COMPLETION | OpFlags::MORE | OpFlags::MULTICAST | levels;
    most.rx.op_flags = OpFlags::COMPLETION;
    (most.tx.msg_order, most.rx.msg_order) = (MsgOrder::empty(), MsgOrder::empty());
    (most.tx.inject_size, most.tx.rma_iov_limit) = (MOST_PAYLOAD, 0);
    most.ep = EpAttr {
        kind: EndpointType::DGRAM,
        protocol: Protocol::IB_UD,
        protocol_version: PROTOCOL_VERSION,
        max_msg_size: MOST_PAYLOAD,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        ..EpAttr::default()
    };
    let domain = &mut most.domain;
    (domain.cq_data_size, domain.mr_iov_limit, domain.mr_cnt) = (0, 0, 0);
    (domain.max_ep_stx_ctx, domain.max_ep_srx_ctx) = (0, 0);
    domain.max_err_data = ofi_core::addr::MAX_LEN;
    Offer { packets: Some(payload_of), devices: Some(datagram_devices), ..offer }
}

/// Bytes of the longest packet of any device, without the header.
const MOST_PAYLOAD: usize = 4096 - HEADER;

/// What a packet of a device over an interface of that MTU carries at least: the kernel takes the
/// largest of the sizes that RDMA has, behind the headers of RoCE. A port may carry less only with
/// IP over InfiniBand in connected mode, whose MTU says nothing about it.
fn payload_of(mtu: usize, _v6: bool) -> usize {
    /// Bytes of the headers that the kernel makes room for.
    const HEADERS: usize = 96;
    let sizes = [4096, 2048, 1024, 512, 256];
    sizes.into_iter().find(|size| size + HEADERS <= mtu).unwrap_or(256) - HEADER
}

/// The devices that have unreliable queue pairs: all but those of iWARP.
fn datagram_devices() -> Result<Vec<Device>, String> {
    let mut found = devices()?;
    found.retain(|device| !infiniband::is_iwarp(Path::new(SYSFS), &device.name));
    if found.is_empty() { Err("iWARP devices have no datagrams".to_owned()) } else { Ok(found) }
}

/// The RDMA devices of this host, each with its network interface.
///
/// # Errors
/// Why there is none that this provider can use.
pub(crate) fn devices() -> Result<Vec<Device>, String> {
    let mut found = Vec::new();
    infiniband::each_interface(Path::new(SYSFS), |device, interface| {
        found.push(Device { name: device.to_owned(), interface: interface.to_owned() });
    })
    .map_err(|error| format!("the RDMA devices cannot be listed: {error}"))?;
    if found.is_empty() {
        return Err("no RDMA device with a network interface (/sys/class/infiniband)".to_owned());
    }
    // Loaded only where there is a device.
    crate::ffi::load().map_err(|why| format!("libibverbs and librdmacm are needed: {why}"))?;
    Ok(found)
}

/// The address of the best interface with a device, for endpoints that do not ask for one.
pub(crate) fn reachable(v4: bool) -> Result<Interface, String> {
    let devices = devices()?;
    let all = netif::interfaces().map_err(|error| format!("the interfaces cannot be listed: {error}"))?;
    let outward = netif::outward(&all);
    let selection = crate::IFACE.text().map(|text| Selection::parse(&text));
    let fits = |i: &Interface| i.running && i.addr.is_ipv4() == v4 && !i.is_of_link();
    let has_device = |i: &Interface| devices.iter().any(|device| device.interface == i.name);
    let chosen = |i: &Interface| fits(i) && has_device(i) && selection.as_ref().is_none_or(|s| s.allows(i));
    let found = netif::ranked(all, outward.as_deref()).into_iter().find(chosen);
    found.ok_or_else(|| "no interface with an RDMA device has such an address".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_one_of_the_device() {
        for (mtu, packet) in [(1500, 1024), (4200, 4096), (9000, 4096), (2044, 1024), (4092, 2048), (1, 256)] {
            assert_eq!(payload_of(mtu, false), packet - HEADER, "{mtu}");
        }
    }
}
