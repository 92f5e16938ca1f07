//! The attributes that the provider offers, and the interfaces on which it works.

use ofi_core::info::{Device, Offer};
use ofi_core::{AddrFormat, Caps, EndpointType, Protocol};
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
    let all = netif::interfaces();
    let outward = netif::outward(&all);
    let selection = crate::IFACE.text().map(|text| Selection::parse(&text));
    let fits = |i: &Interface| i.running && i.addr.is_ipv4() == v4 && !i.is_of_link();
    let has_device = |i: &Interface| devices.iter().any(|device| device.interface == i.name);
    let chosen = |i: &Interface| fits(i) && has_device(i) && selection.as_ref().is_none_or(|s| s.allows(i));
    let found = netif::ranked(all, outward.as_deref()).into_iter().find(chosen);
    found.ok_or_else(|| "no interface with an RDMA device has such an address".to_owned())
}
