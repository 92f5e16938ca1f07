//! The udp provider: datagram endpoints. See `README.md` for its limits.
#![forbid(unsafe_code)]

pub mod offer;
mod socket;

use ofi_core::error::Result;
use ofi_core::param::{Param, ParamKind};
use ofi_core::{Addr, AddrFormat, TrafficClass};
pub use socket::Udp;

/// Which interfaces to use.
pub const IFACE: Param = Param {
    name: "FI_UDP_IFACE",
    kind: ParamKind::String,
    help: "Use only these network interfaces: names, addresses or networks in CIDR form, separated by commas; with ^ in \
           front, all others (default: all that are up)",
};

/// Every parameter of this provider.
pub const PARAMS: [Param; 1] = [IFACE];

/// Opens an endpoint's socket at `addr`, or at an address that the system chooses.
///
/// # Errors
/// The system's error: the address is in use, or not one of this host.
pub fn open(addr: Option<Addr>, format: AddrFormat, class: TrafficClass) -> Result<Udp> {
    let addr = addr.unwrap_or_else(|| match format {
        AddrFormat::SOCKADDR_IN6 => Addr::from(std::net::SocketAddr::from(([0u16; 8], 0))),
        _ => Addr::ANY,
    });
    Udp::bind(addr, class.dscp())
}
