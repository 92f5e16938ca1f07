//! The attributes that the provider offers: those of every medium with links, for each of its
//! names.

use ofi_core::info::Offer;
use ofi_core::{AddrFormat, Caps, EndpointType, Protocol};
use ofi_engine::offer::{Medium, with_contexts};

/// The `protocol_version` of `fi_ep_attr`.
const PROTOCOL_VERSION: u32 = 1;

fn base(kind: EndpointType, protocol: Protocol, provider: &'static str) -> Offer {
    let medium = Medium {
        provider,
        protocol: (protocol, PROTOCOL_VERSION),
        addr_format: AddrFormat::SOCKADDR_IN,
        reach: Caps::LOCAL_COMM | Caps::REMOTE_COMM,
    };
    Offer { interfaces: Some(crate::IFACE), classes: true, ..medium.offer(kind) }
}

/// Connectionless endpoints under the provider's own name.
pub(crate) fn rdm() -> Offer {
    with_contexts(base(EndpointType::RDM, Protocol::XNET, "tcp"))
}

/// Connectionless endpoints under the layered name that some programs request by string.
pub(crate) fn rdm_layered() -> Offer {
    with_contexts(base(EndpointType::RDM, Protocol::RXM, "tcp;ofi_rxm"))
}

/// Connected endpoints.
pub(crate) fn msg() -> Offer {
    base(EndpointType::MSG, Protocol::SOCK_TCP, "tcp")
}
