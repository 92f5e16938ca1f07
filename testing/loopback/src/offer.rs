//! What the provider offers: everything that the engine does over any link, within this process.

use ofi_core::info::Offer;
use ofi_core::{AddrFormat, Caps, EndpointType, Protocol};
use ofi_engine::offer::Medium;

/// Endpoints of a type.
pub(crate) fn of(kind: EndpointType) -> Offer {
    let (addr_format, reach) = (AddrFormat::ADDR_STR, Caps::LOCAL_COMM);
    Medium { provider: "loopback", protocol: (Protocol::UNSPEC, 1), addr_format, reach }.offer(kind)
}
