//! The udp provider: datagram endpoints. See `README.md` for its limits.
#![forbid(unsafe_code)]

pub mod offer;
mod socket;

use ofi_core::error::Result;
use ofi_core::info::Offer;
use ofi_core::param::{Param, ParamKind};
use ofi_core::{Addr, AddrFormat, TrafficClass};
use ofi_engine::provider::{self, DatagramProvider};
pub use socket::Udp;

/// Which interfaces to use.
pub const IFACE: Param = Param {
    name: "FI_UDP_IFACE",
    kind: ParamKind::String,
    help: "Use only these network interfaces: names, addresses or networks in CIDR form, separated by commas; with ^ in \
           front, all others (default: all that are up)",
};

/// The provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provider;

impl provider::Provider for Provider {
    const NAME: &'static str = "udp";
    const PARAMS: &'static [Param] = &[IFACE];
    type Held = ();

    fn offers() -> Vec<Offer> {
        vec![offer::dgram()]
    }

    fn hold() {}
}

impl DatagramProvider for Provider {
    type Datagrams = Udp;

    fn open(self, addr: Option<Addr>, format: AddrFormat, class: TrafficClass) -> Result<Udp> {
        Udp::bind(addr.unwrap_or_else(|| Addr::any_of(format)), class.dscp())
    }
}
