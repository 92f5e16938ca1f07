//! Endpoints over the transports of this workspace.

use fastrand::Rng;
use ofi_conformance::{EndpointMedium, Need};
use ofi_core::Addr;
use ofi_engine::provider::{LinkProvider, OpenArgs};
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_loopback::{LoopbackTransport, Provider};
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Options, RealTime, Side};
use ofi_shm::ShmTransport;
use ofi_shm::cma::CmaMode;
use ofi_shm::transport as shm;
use ofi_sim::wire::Wire;
use ofi_sim::{Faults, SimNet, World};
use ofi_tcp::net::System;
use ofi_tcp::transport::{Settings, TcpTransport};
use ofi_verbs::ffi::Role;
use ofi_verbs::transport::{self as verbs, VerbsTransport};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const LOCALHOST: [u8; 4] = [127, 0, 0, 1];

fn at(host: [u8; 4], port: u16) -> Addr {
    Addr::from(SocketAddr::from((host, port)))
}

fn wait_object() -> Arc<FdWaitObject> {
    Arc::new(FdWaitObject::new(true).expect("descriptors are free"))
}

/// A queue of frames in memory, the minimal transport.
#[derive(Debug)]
pub(crate) struct InMemory(Vec<Wire<Vec<u8>>>);

impl EndpointMedium for InMemory {
    type Carrier = Wire<Vec<u8>>;
    type Watch = RealTime;

    const NAME: &'static str = "wire";
    // Nothing depends on chance but the scripts of two cases.
    const SEEDS: u64 = 5;
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Third, "a wire has two ends")];

    fn new(_: &mut Rng) -> Self {
        let (left, right) = Wire::pair(at(LOCALHOST, 1), at(LOCALHOST, 2));
        Self(vec![left, right])
    }

    fn open(&mut self, options: Options, _: &mut Rng) -> Side<Self::Carrier> {
        let mut wire = Some(self.0.pop().expect("a wire has two ends"));
        Side::open(options, wait_object(), |_| Box::new(move |_| Ok(wire.take().expect("opened once"))))
    }

    fn watch(&self) -> &RealTime {
        &RealTime
    }

    /// A wire has no time, so a close without the other side would not end.
    fn close(&self, _: Side<Self::Carrier>) {}
}

/// tcp over the simulated network, where reads and writes split and stall.
#[derive(Debug)]
pub(crate) struct Simulated(World);

impl EndpointMedium for Simulated {
    type Carrier = TcpTransport<SimNet>;
    type Watch = World;

    const NAME: &'static str = "tcp_sim";
    const SEEDS: u64 = 10;

    fn new(rng: &mut Rng) -> Self {
        let faults = Faults { stall: rng.choice([0, 10, 40]).unwrap_or(0), split: rng.bool() };
        Self(World::new(rng.u64(..), faults))
    }

    fn open(&mut self, options: Options, rng: &mut Rng) -> Side<Self::Carrier> {
        let (world, hold) = (self.0.clone(), rng.bool());
        Side::open(options, self.0.port(), |account| {
            let account = account.clone();
            Box::new(move |_| {
                let settings = Settings { hold, account: account.clone(), ..Settings::default() };
                TcpTransport::listening(world.net(), at(LOCALHOST, 0), settings)
            })
        })
    }

    fn watch(&self) -> &World {
        &self.0
    }
}

/// tcp over the system's sockets. Each instance has its own loopback address, because a port stays
/// in use for a minute and the ports of one address run out.
#[derive(Debug)]
pub(crate) struct Loopback([u8; 4]);

impl EndpointMedium for Loopback {
    type Carrier = TcpTransport<System>;
    type Watch = RealTime;

    const NAME: &'static str = "tcp_loopback";
    const SEEDS: u64 = 2;

    fn new(_: &mut Rng) -> Self {
        let [a, b, c] = ofi_os::random();
        Self([127, a, b, c.clamp(2, 254)])
    }

    fn open(&mut self, options: Options, rng: &mut Rng) -> Side<Self::Carrier> {
        let (here, hold) = (at(self.0, 0), rng.bool());
        Side::open(options, wait_object(), |account| {
            let account = account.clone();
            Box::new(move |_| {
                let settings = Settings { hold, account: account.clone(), ..Settings::default() };
                TcpTransport::listening(System::new().expect("descriptors are free"), here, settings)
            })
        })
    }

    fn watch(&self) -> &RealTime {
        &RealTime
    }
}

/// The verbs transport over the device of this machine at the address that `OFI_VERBS_ADDR` names.
#[derive(Debug)]
pub(crate) struct Hardware(SocketAddr);

impl Hardware {
    /// Whether the variable names an address.
    pub(crate) fn is_named() -> bool {
        std::env::var_os("OFI_VERBS_ADDR").is_some()
    }
}

impl EndpointMedium for Hardware {
    type Carrier = VerbsTransport<ofi_verbs::ffi::System>;
    type Watch = RealTime;

    const NAME: &'static str = "verbs";
    const SEEDS: u64 = 1;

    fn new(_: &mut Rng) -> Self {
        let text = std::env::var("OFI_VERBS_ADDR").expect("the rows exist only with the variable");
        Self(format!("{text}:0").parse().expect("OFI_VERBS_ADDR is an IPv4 address"))
    }

    fn open(&mut self, options: Options, _: &mut Rng) -> Side<Self::Carrier> {
        let here = self.0;
        Side::open(options, wait_object(), |account| {
            let account = account.clone();
            Box::new(move |_| {
                let device = ofi_verbs::ffi::System::open(Some(here), Role::Peer);
                let device = device.expect("OFI_VERBS_ADDR names the address of an RDMA device");
                let connect_deadline = Duration::from_secs(10);
                let account = account.clone();
                Ok(VerbsTransport::new(
                    device,
                    verbs::Settings { connect_deadline, account, read_from: MOST_EAGER + 1, read_known_from: 64 << 10 },
                ))
            })
        })
    }

    fn watch(&self) -> &RealTime {
        &RealTime
    }
}

/// The shm transport, both sides in one process.
#[derive(Debug)]
pub(crate) struct SharedMemory;

impl EndpointMedium for SharedMemory {
    type Carrier = ShmTransport;
    type Watch = RealTime;

    const NAME: &'static str = "shm";
    const SEEDS: u64 = 4;

    fn new(_: &mut Rng) -> Self {
        Self
    }

    fn open(&mut self, options: Options, rng: &mut Rng) -> Side<ShmTransport> {
        let cma = rng.choice(CmaMode::ALL).unwrap_or_default();
        Side::open(options, wait_object(), |account| {
            let settings = shm::Settings { cma, account: account.clone(), ..shm::Settings::default() };
            Box::new(move |addr| ShmTransport::new(addr.as_ref().and_then(Addr::name), settings.clone()))
        })
    }

    fn watch(&self) -> &RealTime {
        &RealTime
    }
}

/// The example of `docs/add-a-provider.md`.
#[derive(Debug)]
pub(crate) struct SameProcess;

impl EndpointMedium for SameProcess {
    type Carrier = LoopbackTransport;
    type Watch = RealTime;

    const NAME: &'static str = "same_process";
    // Nothing depends on chance but the scripts of two cases.
    const SEEDS: u64 = 5;

    fn new(_: &mut Rng) -> Self {
        Self
    }

    fn open(&mut self, options: Options, _: &mut Rng) -> Side<LoopbackTransport> {
        Side::open(options, wait_object(), |account| {
            let account = account.clone();
            Box::new(move |addr| Provider.open_rdm(OpenArgs::new(addr, &account)))
        })
    }

    fn watch(&self) -> &RealTime {
        &RealTime
    }
}
