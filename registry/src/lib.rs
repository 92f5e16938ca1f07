//! The providers, in order of preference, and fi_getinfo(3) over them: offers intersected with hints, with a reason
//! for every refusal. Adding a provider is its own crate, one feature and one line in [`providers`].
#![forbid(unsafe_code)]

mod auto;
mod discover;
mod filter;
pub mod inet;
pub mod local;
mod provider;

pub use auto::AutoThread;
pub use discover::{Query, Refusal, Refusals, discover};
pub use filter::{PROVIDER, selected};
pub use provider::{DatagramProvider, DomainVisitor, Provider, Shm, Tcp, Udp, class_of, has_provider, open, providers};

use ofi_core::param::{CONFIG_FILE, PREFER_SYSCONFIG, Param, ParamKind};
use ofi_engine::endpoint::PEER_MEMORY;

/// The providers' locks that belong to no object, and those of their parameters, while the process is forked.
#[derive(Debug)]
pub struct Held {
    _names: ofi_shm::Held,
    _params: ofi_core::param::Held,
}

/// Keeps others from what those locks guard.
pub fn hold() -> Held {
    Held { _names: ofi_shm::hold(), _params: ofi_core::param::hold() }
}

/// Every parameter that changes something, the library's own first.
pub fn params() -> Vec<Param> {
    let mut all = vec![PREFER_SYSCONFIG, CONFIG_FILE, PROVIDER, UNIVERSE_SIZE, ADDR_FORMAT, PEER_MEMORY];
    all.extend(ofi_core::log::PARAMS);
    all.extend(ofi_tcp::PARAMS);
    all.extend(ofi_shm::PARAMS);
    all.extend(ofi_udp::PARAMS);
    all
}

/// How many peers to expect.
pub const UNIVERSE_SIZE: Param = Param {
    name: "FI_UNIVERSE_SIZE",
    kind: ParamKind::Size,
    help: "How many peers an address vector is made for if its size is not given (default: 1024)",
};
/// Which address format to offer.
pub const ADDR_FORMAT: Param = Param {
    name: "FI_ADDR_FORMAT",
    kind: ParamKind::String,
    help: "Offer only addresses of this format, such as FI_SOCKADDR_IN (default: all)",
};
