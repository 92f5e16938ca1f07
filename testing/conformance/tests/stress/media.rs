//! Endpoints over the transports under stress.

use fastrand::Rng;
use ofi_core::Addr;
use ofi_engine::AddressVector;
use ofi_engine::transport::Transport;
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Options, Side};
use ofi_shm::ShmTransport;
use ofi_shm::cma::CmaMode;
use ofi_shm::transport as shm;
use ofi_tcp::net::System;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::net::SocketAddr;
use std::sync::Arc;

/// Opens endpoints over a transport.
pub(crate) trait Medium {
    type Carrier: Transport + 'static;
    const NAME: &'static str;

    fn new(rng: &mut Rng) -> Self;
    fn open(&self, options: Options, av: Arc<AddressVector>, rng: &mut Rng) -> Side<Self::Carrier>;
    /// An address without a listener.
    fn stranger(&self) -> Addr;
}

/// tcp. Each world has its own loopback address, because the ports of one address run out.
pub(crate) struct Loopback([u8; 4]);

impl Medium for Loopback {
    type Carrier = TcpTransport<System>;
    const NAME: &'static str = "tcp";

    fn new(rng: &mut Rng) -> Self {
        Self([127, rng.u8(..), rng.u8(..), rng.u8(2..=254)])
    }

    fn open(&self, options: Options, av: Arc<AddressVector>, rng: &mut Rng) -> Side<Self::Carrier> {
        let (here, hold) = (Addr::from(SocketAddr::from((self.0, 0))), rng.bool());
        Side::open_sharing(options, av, wait_object(), |account| {
            let account = account.clone();
            Box::new(move |_| {
                let settings = Settings { hold, account: account.clone(), ..Settings::default() };
                TcpTransport::listening(System::new().expect("descriptors are free"), here, settings)
            })
        })
    }

    fn stranger(&self) -> Addr {
        Addr::from(SocketAddr::from((self.0, 1)))
    }
}

pub(crate) struct SharedMemory;

impl Medium for SharedMemory {
    type Carrier = ShmTransport;
    const NAME: &'static str = "shm";

    fn new(_: &mut Rng) -> Self {
        Self
    }

    fn open(&self, options: Options, av: Arc<AddressVector>, rng: &mut Rng) -> Side<ShmTransport> {
        let cma = rng.choice(CmaMode::ALL).unwrap_or_default();
        Side::open_sharing(options, av, wait_object(), |account| {
            let settings = shm::Settings { cma, account: account.clone(), ..shm::Settings::default() };
            Box::new(move |addr| ShmTransport::new(addr.as_ref().and_then(Addr::name), settings.clone()))
        })
    }

    fn stranger(&self) -> Addr {
        "fi_shm://stress-stranger".parse().expect("a name")
    }
}

fn wait_object() -> Arc<FdWaitObject> {
    Arc::new(FdWaitObject::new(true).expect("descriptors are free"))
}
