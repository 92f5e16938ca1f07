//! The attributes that the provider offers: those of every medium with links, within one host.

use ofi_core::info::Offer;
use ofi_core::{AddrFormat, Caps, EndpointType, Protocol};
use ofi_engine::offer::{Medium, with_contexts};

/// The `protocol_version` of `fi_ep_attr`.
const PROTOCOL_VERSION: u32 = 1;

/// Endpoints of a type.
pub(crate) fn of(kind: EndpointType) -> Offer {
    let medium = Medium {
        provider: "shm",
        protocol: (Protocol::SHM, PROTOCOL_VERSION),
        addr_format: AddrFormat::ADDR_STR,
        reach: Caps::LOCAL_COMM,
    };
    let offer = Offer { fresh_name: Some(crate::fresh_name), ..medium.offer(kind) };
    if kind == EndpointType::RDM { with_contexts(offer) } else { offer }
}
