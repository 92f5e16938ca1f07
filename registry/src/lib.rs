//! The providers, in order of preference, and fi_getinfo(3) over them: offers intersected with
//! hints, with a reason for every refusal. A new provider is a crate of its own, a line in
//! `provider.rs` and a Cargo feature.
#![forbid(unsafe_code)]

mod auto;
mod backstop;
mod discover;
mod endpoint;
mod filter;
pub mod inet;
pub mod local;
mod provider;
mod publish;
mod query;
mod shared_av;

pub use auto::AutoThread;
pub use backstop::BackstopThread;
pub use discover::{Refusal, Refusals, discover, format_asked, search};
pub use endpoint::{
    ScalableOf, context_config, open_datagram_endpoint, open_endpoint, open_passive_endpoint, open_scalable_endpoint,
};
pub use filter::{HOOK, PREFER_LOADED, PROVIDER, PROVIDER_PATH, asked_for, selected};
pub use provider::{DomainVisitor, check_shared_size, has_provider, open, providers};
pub use publish::{STALL, STATE, publish};
pub use query::Query;
pub use shared_av::open_shared_av;

use ofi_core::param::{CONFIG_FILE, PREFER_SYSCONFIG, Param, ParamKind};
use ofi_engine::completion::cq::CQ_BOUNDED;
use ofi_engine::endpoint::PEER_MEMORY;

/// The process-wide locks of the providers and of their parameters, held while the process forks.
#[derive(Debug)]
pub struct Held {
    _providers: provider::Held,
    _backstops: backstop::Held,
    _params: ofi_core::param::Held,
}

/// Takes those locks, so that no other thread holds them during a fork.
pub fn hold() -> Held {
    Held { _providers: provider::hold(), _backstops: backstop::hold(), _params: ofi_core::param::hold() }
}

/// Every parameter that has an effect, the library's own first.
pub fn params() -> Vec<Param> {
    let mut all = vec![
        PREFER_SYSCONFIG,
        CONFIG_FILE,
        PROVIDER,
        PROVIDER_PATH,
        PREFER_LOADED,
        HOOK,
        UNIVERSE_SIZE,
        ADDR_FORMAT,
        PEER_MEMORY,
        CQ_BOUNDED,
        STATE,
        STALL,
    ];
    all.extend(ofi_core::log_params::PARAMS);
    all.extend(provider::params());
    all
}

/// The expected number of peers.
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
