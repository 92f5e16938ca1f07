//! The example of `docs/add-a-provider.md`: endpoints that reach each other within one process.
//! This file is what a registry needs of a provider, and `transport.rs` keeps the contract between
//! the engine and a transport. The library does not contain it.
#![forbid(unsafe_code)]

mod offer;
mod transport;

use ofi_core::EndpointType;
use ofi_core::error::Result;
use ofi_core::info::Offer;
use ofi_engine::provider::{self, LinkProvider, OpenArgs};
use std::sync::MutexGuard;
use transport::Table;
pub use transport::{LoopbackListener, LoopbackTransport, Request};

/// The lock of the table of endpoints, held while the process forks.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, Table>);

/// The provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provider;

impl provider::Provider for Provider {
    const NAME: &'static str = "loopback";
    type Held = Held;

    fn offers() -> Vec<Offer> {
        vec![offer::of(EndpointType::RDM), offer::of(EndpointType::MSG)]
    }

    fn hold() -> Held {
        Held(transport::table())
    }
}

impl LinkProvider for Provider {
    type Transport = LoopbackTransport;
    type Listener = LoopbackListener;

    fn open_rdm(self, args: OpenArgs<'_>) -> Result<LoopbackTransport> {
        LoopbackTransport::open(args.addr)
    }

    fn open_listener(self, args: OpenArgs<'_>) -> Result<LoopbackListener> {
        LoopbackTransport::open(args.addr).map(LoopbackListener)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::Version;
    use ofi_core::info::Hints;
    use ofi_core::negotiate::negotiate;
    use ofi_engine::provider::Provider as _;
    use ofi_sync::account::Account;
    use std::sync::Arc;

    #[test]
    fn hints_that_ask_for_nothing_get_both_offers() {
        let offers = Provider::offers();
        let kinds = [EndpointType::RDM, EndpointType::MSG];
        assert_eq!(offers.iter().map(|offer| offer.most.ep.kind).collect::<Vec<_>>(), kinds);
        for offer in offers {
            let info = negotiate(&offer.most, &Hints::default(), Version::API).unwrap();
            assert_eq!(info.fabric.prov_name.as_deref(), Some(Provider::NAME));
        }
    }

    #[test]
    fn an_address_is_taken_until_its_endpoint_is_gone() {
        let account = Arc::new(Account::new(0));
        let open = |addr| Provider.open_rdm(OpenArgs::new(addr, &account));
        let addr = "fi_ns://taken".parse().ok();
        let first = open(addr).unwrap();
        assert_eq!(open(addr).unwrap_err().errno(), ofi_core::Errno::EADDRINUSE);
        drop(first);
        open(addr).unwrap();
    }
}
