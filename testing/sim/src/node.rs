//! Endpoints in a simulated network, for tests that script each step.

use crate::{SimNet, World};
use ofi_core::{Addr, Instant};
use ofi_rig::{Side, Watch};
use ofi_tcp::transport::{Settings, TcpTransport};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// An endpoint of the simulated network.
pub type Node = Side<TcpTransport<SimNet>>;

/// The address of a port on the host 10.0.0.`host`.
pub fn addr(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(ip(host), port)
}

/// The host 10.0.0.`host`.
pub fn ip(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host).into()
}

/// The configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address that it listens on.
    pub at: SocketAddr,
    /// The addresses of its host if there are several: it listens on all of them, advertises the
    /// first and connects from the last.
    pub hosts: Vec<IpAddr>,
    /// Maximum memory held for peers, in bytes.
    pub limit: usize,
    /// Maximum number of outstanding sends.
    pub tx_size: usize,
    /// Its nonce.
    pub nonce: [u8; 16],
    /// As [`ofi_rig::Options::buffered`].
    pub buffered: Option<(usize, usize)>,
}

impl Options {
    /// An endpoint at an address, with the default limits.
    pub fn at(at: SocketAddr) -> Self {
        let mut nonce = [at.port().to_le_bytes()[0]; 16];
        if let IpAddr::V4(ip) = at.ip() {
            nonce[..4].copy_from_slice(&ip.octets());
        }
        Self { at, hosts: Vec::new(), limit: 256 << 20, tx_size: 1024, nonce, buffered: None }
    }
}

/// Opens an endpoint.
pub fn open_node(world: &World, options: &Options) -> Node {
    let Options { at, hosts, limit, tx_size, nonce, buffered } = options.clone();
    let options =
        ofi_rig::Options { tx_size, memory: limit, nonce, provider: "sim", buffered, ..ofi_rig::Options::default() };
    let network = world.clone();
    Side::open(options, world.port(), |account| {
        let account = account.clone();
        Box::new(move |_| {
            let (net, at) = match hosts.first() {
                Some(_) => (network.net_of_many(&hosts), SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), at.port())),
                None => (network.net_of(at.ip()), at),
            };
            let advertise = hosts.first().copied();
            let settings = Settings { advertise, account: account.clone(), ..Settings::default() };
            TcpTransport::listening(net, Addr::from(at), settings)
        })
    })
}

impl Watch for World {
    const LIMIT: Duration = Duration::from_secs(5);

    fn now(&self) -> Instant {
        self.now()
    }

    fn pass(&self) {
        self.advance(Duration::from_micros(50));
    }
}
