//! The tcp transport over the simulated network, where reads and writes split, stall and break, and
//! over the system's loopback.

use fastrand::Rng;
use ofi_conformance::{Medium, Need, Nowhere};
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, Cause};
use ofi_engine::transport::Transport;
use ofi_os::poller::{Interest, Poller};
use ofi_sim::{Faults, SimNet, World};
use ofi_sync::account::Account;
use ofi_tcp::listener::TcpListener;
use ofi_tcp::net::System;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn settings(rng: &mut Rng) -> Settings {
    let account = Arc::new(Account::new(if rng.bool() { 64 << 20 } else { 0 }));
    Settings { hold: rng.bool(), account, ..Settings::default() }
}

const LOCALHOST: [u8; 4] = [127, 0, 0, 1];

fn at(host: [u8; 4], port: u16) -> Addr {
    Addr::from(SocketAddr::from((host, port)))
}

/// The simulated network.
#[derive(Debug)]
pub(crate) struct Simulated(World);

fn faults(rng: &mut Rng) -> Faults {
    Faults { stall: rng.choice([0, 10, 50]).unwrap_or(0), split: rng.bool() }
}

impl Medium for Simulated {
    type Carrier = TcpTransport<SimNet>;
    type Listener = TcpListener<SimNet>;

    const NAME: &'static str = "tcp_sim";

    fn new(rng: &mut Rng) -> Self {
        Self(World::new(rng.u64(..), faults(rng)))
    }

    fn open(&mut self, rng: &mut Rng) -> Self::Carrier {
        TcpTransport::listening(self.0.net(), at(LOCALHOST, 0), settings(rng)).expect("a port is free")
    }

    fn listen(&mut self) -> Option<Self::Listener> {
        let account = Arc::new(Account::new(usize::MAX));
        Some(TcpListener::new(self.0.net(), at(LOCALHOST, 0), None, account).expect("a port is free"))
    }

    fn open_connected(&mut self) -> Self::Carrier {
        TcpTransport::connected(self.0.net(), None, Settings::default()).expect("nothing to bind")
    }

    fn is_readable(&self, transport: &Self::Carrier) -> bool {
        let port = self.0.port();
        port.add(transport.descriptor().expect("it has one"), 0).expect("it is watched");
        port.is_readable()
    }

    fn nowhere(&mut self) -> Option<Nowhere> {
        let hole = SocketAddr::from(([10, 9, 8, 7], 6));
        self.0.black_hole(hole);
        Some(Nowhere { addr: Addr::from(hole), cause: Cause::ConnectDeadline, by_deadline: true })
    }

    fn break_links(&self) {
        self.0.break_connections();
    }

    fn disturb(&self, rng: &mut Rng) {
        self.0.set_faults(faults(rng));
    }

    fn calm(&self) {
        self.0.set_faults(Faults { stall: 0, split: false });
    }
}

/// The system's sockets. Each instance has its own loopback address, because a port stays in use
/// for a minute and the ports of one address run out.
#[derive(Debug)]
pub(crate) struct Loopback([u8; 4]);

fn system() -> System {
    System::new().expect("descriptors are free")
}

impl Medium for Loopback {
    type Carrier = TcpTransport<System>;
    type Listener = TcpListener<System>;

    const NAME: &'static str = "tcp_loopback";
    const WORKERS: usize = 4;
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Breaks, "the loopback of the system does not break")];
    const SYNCHRONOUS: bool = false;
    // The kernel's buffers of both sockets, at most net.ipv4.tcp_wmem and tcp_rmem, and the
    // backlog.
    const MOST_UNREAD: usize = 32 << 20;

    fn new(_: &mut Rng) -> Self {
        let [a, b, c] = ofi_os::random();
        Self([127, a, b, c.clamp(2, 254)])
    }

    fn open(&mut self, rng: &mut Rng) -> Self::Carrier {
        TcpTransport::listening(system(), at(self.0, 0), settings(rng)).expect("a port is free")
    }

    fn listen(&mut self) -> Option<Self::Listener> {
        let account = Arc::new(Account::new(usize::MAX));
        Some(TcpListener::new(system(), at(self.0, 0), None, account).expect("a port is free"))
    }

    fn open_connected(&mut self) -> Self::Carrier {
        TcpTransport::connected(system(), None, Settings::default()).expect("nothing to bind")
    }

    fn is_readable(&self, transport: &Self::Carrier) -> bool {
        readable(transport)
    }

    fn nowhere(&mut self) -> Option<Nowhere> {
        // Not a port that the system hands out: a socket may connect to itself there.
        Some(Nowhere { addr: at(LOCALHOST, 1), cause: Cause::Connect, by_deadline: false })
    }
}

/// Whether the descriptor of a transport over the system's means is readable.
pub(crate) fn readable(transport: &impl Transport) -> bool {
    let poller = Poller::new().expect("descriptors are free");
    let descriptor = transport.descriptor().expect("it has one");
    poller.add(descriptor, Interest::Read, 0).expect("it can be watched");
    let mut any = false;
    poller.wait(Some(Duration::ZERO), |_| any = true).expect("nothing interrupts it");
    any
}
