//! The tcp provider: connectionless and connected endpoints over TCP. `README.md` has its limits
//! and its rule for bursts.
#![forbid(unsafe_code)]

mod conn;
mod deadlines;
mod half_open;
pub mod listener;
pub mod net;
mod offer;
pub mod reader;
mod slots;
pub mod transport;
pub mod writer;

use net::System;
use ofi_core::error::{Error, Result};
use ofi_core::info::Offer;
use ofi_core::param::{Param, ParamKind};
use ofi_core::{Addr, AddrFormat, Errno, TrafficClass};
use ofi_engine::provider::{self, LinkProvider, OpenArgs};
use ofi_engine::transport::Listener;
use ofi_os::netif::{self, Interface};
use ofi_sync::account::Account;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use transport::Settings;

/// The transport over the system's sockets.
pub type Tcp = transport::TcpTransport<System>;
/// The listener over the system's sockets.
pub type TcpListener = listener::TcpListener<System>;

/// The network interfaces to use.
pub const IFACE: Param = Param {
    name: "FI_TCP_IFACE",
    kind: ParamKind::String,
    help: "Use only these network interfaces: names, addresses or networks in CIDR form, separated by commas; with ^ in \
           front, all others (default: all that are up)",
};
/// The lowest port to listen on.
pub const PORT_LOW_RANGE: Param = Param {
    name: "FI_TCP_PORT_LOW_RANGE",
    kind: ParamKind::Int,
    help: "The lowest port of endpoints that do not ask for one; with FI_TCP_PORT_HIGH_RANGE (default: the system's choice)",
};
/// The highest port to listen on.
pub const PORT_HIGH_RANGE: Param = Param {
    name: "FI_TCP_PORT_HIGH_RANGE",
    kind: ParamKind::Int,
    help: "The highest port of endpoints that do not ask for one (default: the system's choice)",
};
/// How long connecting may take.
pub const CONNECT_TIMEOUT: Param = Param {
    name: "FI_TCP_CONNECT_TIMEOUT",
    kind: ParamKind::Int,
    help: "Milliseconds that connecting to a peer may take (default: 10000)",
};
/// How long a peer's host may leave data unacknowledged.
pub const SILENCE_TIMEOUT: Param = Param {
    name: "FI_TCP_SILENCE_TIMEOUT",
    kind: ParamKind::Int,
    help: "Milliseconds that a peer's host may leave data unacknowledged (default: 20000)",
};
/// Whether messages of a burst may be held.
pub const HOLD: Param = Param {
    name: "FI_TCP_HOLD",
    kind: ParamKind::Bool,
    help: "Hold back small messages after the fourth of a burst and send them together (default: yes)",
};

fn settings(account: &Arc<Account>) -> Settings {
    Settings {
        connect_deadline: Duration::from_millis(CONNECT_TIMEOUT.number(10_000)),
        silence_deadline: Duration::from_millis(SILENCE_TIMEOUT.number(20_000)),
        hold: HOLD.flag(true),
        advertise: None,
        account: account.clone(),
    }
}

/// This host's best address for other hosts: endpoints bound to the wildcard address advertise it.
fn reachable(v4: bool) -> Option<IpAddr> {
    let all = netif::interfaces().ok()?;
    let outward = netif::outward(&all);
    let selection = IFACE.text().map(|text| netif::Selection::parse(&text));
    // A peer cannot use a link-local address without its own scope id for the link.
    let fits = |i: &Interface| i.running && i.addr.is_ipv4() == v4 && !i.is_of_link();
    let chosen = |i: &Interface| fits(i) && selection.as_ref().is_none_or(|s| s.allows(i));
    netif::ranked(all, outward.as_deref()).into_iter().find(chosen).map(|i| i.addr.ip())
}

fn bind_address(addr: Option<Addr>, format: AddrFormat) -> Addr {
    addr.unwrap_or_else(|| Addr::any_of(format))
}

fn system(class: TrafficClass) -> Result<System> {
    System::marked(class.dscp()).map_err(|error| Error::os(error, "create an epoll descriptor"))
}

/// The provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provider;

impl provider::Provider for Provider {
    const NAME: &'static str = "tcp";
    const PARAMS: &'static [Param] = &[IFACE, PORT_LOW_RANGE, PORT_HIGH_RANGE, CONNECT_TIMEOUT, SILENCE_TIMEOUT, HOLD];
    type Held = ();

    fn offers() -> Vec<Offer> {
        vec![offer::rdm(), offer::rdm_layered(), offer::msg()]
    }

    fn hold() {}
}

impl LinkProvider for Provider {
    type Transport = Tcp;
    type Listener = TcpListener;

    fn open_rdm(self, args: OpenArgs<'_>) -> Result<Tcp> {
        let addr = bind_address(args.addr, args.format);
        let settings = Settings { advertise: reachable(addr.socket().is_ipv4()), ..settings(args.account) };
        in_port_range(addr, |addr| Tcp::listening(system(args.class)?, addr, settings.clone()))
    }

    fn open_msg(self, args: OpenArgs<'_>) -> Result<Tcp> {
        Tcp::connected(system(args.class)?, args.addr, settings(args.account))
    }

    fn open_listener(self, args: OpenArgs<'_>) -> Result<TcpListener> {
        let OpenArgs { addr, format, class, account } = args;
        let addr = bind_address(addr, format);
        let open =
            |addr: Addr| TcpListener::new(system(class)?, addr, reachable(addr.socket().is_ipv4()), account.clone());
        in_port_range(addr, open)
    }

    fn open_context(self, listener: &TcpListener, args: OpenArgs<'_>) -> Result<Tcp> {
        Ok(Tcp::context(system(args.class)?, listener.local_addr(), listener.source(), settings(args.account)))
    }
}

/// Opens on a port of the configured range (ignored if invalid), unless the application chose one.
fn in_port_range<T>(addr: Addr, mut open: impl FnMut(Addr) -> Result<T>) -> Result<T> {
    let (low, high) = (PORT_LOW_RANGE.number(0), PORT_HIGH_RANGE.number(0).min(u64::from(u16::MAX)));
    if addr.socket().port() != 0 || low == 0 || low > high {
        return open(addr);
    }
    // A random start, so that processes seldom try the same port.
    let count = high - low + 1;
    let start = u64::from(u32::from_ne_bytes(ofi_os::random()));
    let mut last = None;
    for step in 0..count {
        let mut socket = addr.socket();
        socket.set_port(u16::try_from(low + (start + step) % count).unwrap_or(0));
        match open(Addr::from(socket)) {
            Err(error) if error.errno() == Errno::EADDRINUSE => last = Some(error),
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| Error::new(Errno::EADDRINUSE, format!("bind to a port from {low} to {high}"))))
}
