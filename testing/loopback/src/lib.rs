//! The example of `docs/add-a-provider.md`: endpoints that reach each other within one process.
//! This file is what a registry needs of a provider, and `connector.rs` is the medium. The library
//! does not contain it.
#![forbid(unsafe_code)]

mod connector;

pub use connector::LoopbackConnector;
use connector::Table;
use ofi_core::error::Result;
use ofi_core::info::Offer;
use ofi_core::{AddrFormat, Caps, EndpointType, Protocol};
use ofi_engine::connections::ConnectionTransport;
use ofi_engine::offer::Medium;
use ofi_engine::provider::{self, LinkProvider, OpenArgs};
use std::sync::MutexGuard;

/// The transport of an endpoint, and the listener of a passive one.
pub type LoopbackTransport = ConnectionTransport<LoopbackConnector>;

/// The provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provider;

impl provider::Provider for Provider {
    const NAME: &'static str = "loopback";
    type Held = MutexGuard<'static, Table>;

    /// Everything that the engine does over any link, within this process.
    fn offers() -> Vec<Offer> {
        let (addr_format, reach) = (AddrFormat::ADDR_STR, Caps::LOCAL_COMM);
        let medium = Medium { provider: Self::NAME, protocol: (Protocol::UNSPEC, 1), addr_format, reach };
        [EndpointType::RDM, EndpointType::MSG].map(|kind| medium.offer(kind)).into()
    }

    fn hold() -> Self::Held {
        connector::table()
    }
}

impl LinkProvider for Provider {
    type Transport = LoopbackTransport;
    type Listener = LoopbackTransport;

    fn open_rdm(self, args: OpenArgs<'_>) -> Result<LoopbackTransport> {
        LoopbackConnector::open(args.addr).map(ConnectionTransport::new)
    }

    fn open_listener(self, args: OpenArgs<'_>) -> Result<LoopbackTransport> {
        self.open_rdm(args)
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
