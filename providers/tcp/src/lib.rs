//! The tcp provider: connectionless and connected endpoints over TCP. See `README.md` for its limits and its rule for
//! bursts.
#![forbid(unsafe_code)]

mod conn;
pub mod listener;
pub mod net;
pub mod offer;
pub mod reader;
pub mod transport;
pub mod writer;

use net::System;
use ofi_core::error::{Error, Result};
use ofi_core::param::{Param, ParamKind};
use ofi_core::{Addr, AddrFormat};
use std::net::IpAddr;
use std::time::Duration;
use transport::Settings;

/// The transport over the system's sockets.
pub type Tcp = transport::TcpTransport<System>;
/// The listener over the system's sockets.
pub type TcpListener = listener::TcpListener<System>;

/// Which interface to use.
pub const IFACE: Param = Param {
    name: "FI_TCP_IFACE",
    kind: ParamKind::String,
    help: "Use only the network interface of this name (default: all that are up)",
};
/// How long connecting may take.
pub const CONNECT_TIMEOUT: Param = Param {
    name: "FI_TCP_CONNECT_TIMEOUT",
    kind: ParamKind::Int,
    help: "Milliseconds that connecting to a peer may take (default: 10000)",
};
/// How long a host may be silent.
pub const SILENCE_TIMEOUT: Param = Param {
    name: "FI_TCP_SILENCE_TIMEOUT",
    kind: ParamKind::Int,
    help: "Milliseconds that a peer's host may leave data unacknowledged (default: 20000)",
};
/// Whether small messages may be held.
pub const HOLD: Param = Param {
    name: "FI_TCP_HOLD",
    kind: ParamKind::Bool,
    help: "Hold back small messages after the fourth of a burst and send them together (default: yes)",
};

/// Every parameter of this provider.
pub const PARAMS: [Param; 4] = [IFACE, CONNECT_TIMEOUT, SILENCE_TIMEOUT, HOLD];

fn settings() -> Settings {
    Settings {
        connect_deadline: Duration::from_millis(CONNECT_TIMEOUT.number(10_000)),
        silence_deadline: Duration::from_millis(SILENCE_TIMEOUT.number(20_000)),
        hold: HOLD.flag(true),
        advertise: None,
    }
}

/// The address by which other hosts best reach this one, for endpoints that are bound to all of them.
fn reachable(v4: bool) -> Option<IpAddr> {
    let interfaces = ofi_os::netif::interfaces();
    let fits = |i: &&ofi_os::netif::Interface| i.running && i.addr.is_ipv4() == v4;
    let best = interfaces.iter().filter(fits).min_by_key(|i| (i.loopback, i.point_to_point, i.virtual_device));
    best.map(|i| i.addr.ip())
}

fn bind_address(addr: Option<Addr>, format: AddrFormat) -> Addr {
    addr.unwrap_or_else(|| match format {
        AddrFormat::SOCKADDR_IN6 => Addr::from(std::net::SocketAddr::from(([0u16; 8], 0))),
        _ => Addr::ANY,
    })
}

fn system() -> Result<System> {
    System::new().map_err(|error| Error::os(error, "make an epoll descriptor"))
}

/// Opens the transport of a connectionless endpoint at `addr`.
pub fn open_rdm(addr: Option<Addr>, format: AddrFormat) -> Result<Tcp> {
    ofi_os::socket::raise_descriptor_limit();
    let addr = bind_address(addr, format);
    let settings = Settings { advertise: reachable(addr.socket().is_ipv4()), ..settings() };
    Tcp::listening(system()?, addr, settings)
}

/// Opens the transport of a connected endpoint, to connect from `addr` if given.
pub fn open_msg(addr: Option<Addr>) -> Result<Tcp> {
    Ok(Tcp::connected(system()?, addr, settings()))
}

/// Opens a listener at `addr`.
pub fn open_listener(addr: Option<Addr>, format: AddrFormat) -> Result<TcpListener> {
    ofi_os::socket::raise_descriptor_limit();
    let addr = bind_address(addr, format);
    TcpListener::new(system()?, addr, reachable(addr.socket().is_ipv4()))
}
