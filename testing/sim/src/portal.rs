//! Scalable endpoints in a simulated network.

use crate::node::Node;
use crate::{SimNet, World};
use ofi_core::{Addr, BindFlags, FiAddr, RxBits};
use ofi_engine::endpoint::Config;
use ofi_engine::transport::Listener;
use ofi_engine::{AddressVector, ScalableEndpoint};
use ofi_os::membarrier;
use ofi_rig::{Options, Side};
use ofi_sync::account::Account;
use ofi_sync::lock::Park;
use ofi_tcp::listener::TcpListener;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::net::SocketAddr;
use std::sync::Arc;

/// Its endpoint.
type Scalable = ScalableEndpoint<TcpListener<SimNet>, TcpTransport<SimNet>, Park>;

/// Bits of a receive index in the handles of an address vector.
pub const BITS: u32 = 8;

/// A scalable endpoint with its address vector.
#[derive(Debug)]
pub struct Portal {
    /// Its network.
    pub world: World,
    /// Its address.
    pub at: SocketAddr,
    /// The scalable endpoint.
    pub endpoint: Arc<Scalable>,
    /// Its address vector.
    pub av: Arc<AddressVector>,
}

impl Portal {
    /// Opens one with so many transmit and receive contexts.
    ///
    /// # Panics
    /// If it already has an address vector.
    pub fn open(world: &World, at: SocketAddr, counts: (usize, usize)) -> Self {
        let (listens, opens) = (world.clone(), world.clone());
        let account = Arc::new(Account::new(1 << 20));
        let listener =
            Box::new(move |_| TcpListener::new(listens.net_of(at.ip()), Addr::from(at), None, account.clone()));
        let context = Box::new(move |listener: &TcpListener<SimNet>, account: &Arc<Account>| {
            let settings = Settings { account: account.clone(), ..Settings::default() };
            Ok(TcpTransport::context(opens.net_of(at.ip()), listener.local_addr(), listener.source(), settings))
        });
        let endpoint =
            ScalableEndpoint::new(membarrier::locks(), counts, None, listener, context, ofi_os::random(), None);
        let av = Arc::new(AddressVector::new(4, false).with_rx_bits(RxBits::new(BITS).expect("few")));
        endpoint.bind_av(&av).expect("the first address vector");
        Self { world: world.clone(), at, endpoint, av }
    }

    fn context(
        &self,
        way: BindFlags,
        open: impl FnOnce(Config) -> Arc<ofi_engine::Endpoint<TcpTransport<SimNet>, Park>>,
    ) -> Node {
        let options = Options { provider: "sim", ..Options::default() };
        Side::open_context(options, self.av.clone(), self.world.port(), way, open)
    }

    /// Opens a transmit context.
    ///
    /// # Panics
    /// If it is open.
    pub fn transmit(&self, index: usize) -> Node {
        self.context(BindFlags::TRANSMIT, |config| self.endpoint.open_transmit(index, config).expect("it is free"))
    }

    /// Opens a receive context.
    ///
    /// # Panics
    /// If it is open.
    pub fn receive(&self, index: usize) -> Node {
        self.context(BindFlags::RECV, |config| self.endpoint.open_receive(index, config).expect("it is free"))
    }

    /// Inserts a peer into the address vector.
    pub fn know(&self, peer: SocketAddr) -> FiAddr {
        self.av.insert(Addr::from(peer))
    }
}

/// The handle of a peer's receive context.
///
/// # Panics
/// If the index is too large.
pub fn context(peer: FiAddr, index: u16) -> FiAddr {
    RxBits::new(BITS).expect("few").join(peer, index)
}
