//! The providers, in order of preference, and fi_getinfo(3) over them: offers intersected with hints, with a reason
//! for every refusal. Adding a provider is its own crate, one feature and one line in [`providers`].
#![forbid(unsafe_code)]

mod discover;
mod filter;
pub mod inet;
mod provider;

pub use discover::{Query, Refusal, Refusals, discover};
pub use filter::{PROVIDER, selected};
pub use provider::{DomainVisitor, Provider, Tcp, has_provider, open, providers};

use ofi_core::param::Param;

/// Every parameter that changes something, the library's own first.
pub fn params() -> Vec<Param> {
    let mut all = vec![PROVIDER, UNIVERSE_SIZE];
    all.extend(ofi_tcp::PARAMS);
    all
}

/// How many peers to expect.
pub const UNIVERSE_SIZE: Param = Param {
    name: "FI_UNIVERSE_SIZE",
    kind: ofi_core::param::ParamKind::Size,
    help: "How many peers an address vector is made for if its size is not given (default: 1024)",
};
