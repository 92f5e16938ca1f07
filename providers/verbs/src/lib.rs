//! The verbs provider: connectionless and connected endpoints over the reliable connections of RDMA
//! devices, and datagrams over their unreliable queue pairs. `README.md` has its limits;
//! `docs/decisions/0025-verbs-by-credits.md` and `0030-verbs-datagrams-by-address.md` its design.
#![deny(unsafe_code)]

mod conn;
pub mod datagram;
pub mod device;
#[allow(unsafe_code, reason = "the calls of libibverbs and librdmacm")]
pub mod ffi;
mod kept;
mod offer;
mod offers;
mod shares;
pub mod transport;
mod watched;
mod wire;

use datagram::VerbsDatagrams;
use ffi::{PacketPair, Role, System};
use ofi_core::error::{Error, Result};
use ofi_core::info::Offer;
use ofi_core::param::{Param, ParamKind};
use ofi_core::{Addr, AddrFormat, Errno, TrafficClass};
use ofi_engine::provider::{self, DatagramProvider, LinkProvider, OpenArgs};
use ofi_engine::wire::frame::MOST_EAGER;
use std::net::SocketAddr;
use std::time::Duration;
use transport::{Settings, VerbsTransport};

/// The network interfaces to use.
pub const IFACE: Param = Param {
    name: "FI_VERBS_IFACE",
    kind: ParamKind::String,
    help: "Use only the RDMA devices of these network interfaces: names, addresses or networks in CIDR form, separated by \
           commas; with ^ in front, all others (default: all that are up)",
};
/// How long connecting may take.
pub const CONNECT_TIMEOUT: Param = Param {
    name: "FI_VERBS_CONNECT_TIMEOUT",
    kind: ParamKind::Int,
    help: "Milliseconds that connecting to a peer may take, and finding the peer of a datagram (default: 10000)",
};

/// The shortest payload that the receiver's device reads out of the sender's memory.
pub const READ_FROM: Param = Param {
    name: "FI_OFI_VERBS_READ_FROM",
    kind: ParamKind::Int,
    help: "Bytes of the shortest payload that the receiver's device reads out of the sender's memory, where both sides register \
           theirs for that time; with 0 all payloads are copied (default: 262145)",
};

/// Bytes of the shortest payload that is read where it lies if its memory was used before.
const READ_KNOWN_FROM: usize = 64 << 10;

/// How many registrations of payloads are kept.
pub const CACHE_COUNT: Param = Param {
    name: "FI_MR_CACHE_MAX_COUNT",
    kind: ParamKind::Size,
    help: "How many registrations of memory from which payloads are sent, or into which they are received, are kept for \
           the next one, at most 1024; with 0 none is (default: 1024)",
};

/// How much memory they may have.
pub const CACHE_SIZE: Param = Param {
    name: "FI_MR_CACHE_MAX_SIZE",
    kind: ParamKind::Size,
    help: "Bytes of memory that stay registered for payloads (default: an eighth of the machine's memory, or a quarter of \
           what may be locked, if that is less)",
};

/// Whether there are any.
pub const CACHE_MONITOR: Param = Param {
    name: "FI_MR_CACHE_MONITOR",
    kind: ParamKind::String,
    help: "With \"disabled\" no registration of payloads is kept; any other value means userfaultfd(2), which tells of \
           memory that is unmapped (default: userfaultfd)",
};

/// The transport over the system's devices, and its listener.
pub type Verbs = VerbsTransport<System>;

/// The provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provider;

/// The datagrams of an endpoint over the system's devices.
pub type Packets = VerbsDatagrams<PacketPair>;

/// The provider of datagram endpoints, of the same name: its domains are others.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatagramsProvider;

/// The address of a device: the one that is asked for, or that of the best device.
///
/// # Errors
/// ENODEV without a device that has such an address.
fn address(wanted: Option<Addr>, format: AddrFormat) -> Result<SocketAddr> {
    let wanted = wanted.unwrap_or_else(|| Addr::any_of(format)).socket();
    if !wanted.ip().is_unspecified() {
        return Ok(wanted);
    }
    let found = offer::reachable(wanted.is_ipv4()).map_err(|why| Error::new(Errno::ENODEV, why))?;
    Ok(SocketAddr::new(found.addr.ip(), wanted.port()))
}

fn connect_deadline() -> Duration {
    Duration::from_millis(CONNECT_TIMEOUT.number(10_000))
}

fn open(addr: Option<Addr>, format: AddrFormat, role: Role, args: &OpenArgs<'_>) -> Result<Verbs> {
    let addr = match role {
        Role::Initiator => addr.map(|addr| addr.socket()),
        // A device is chosen by its address.
        Role::Peer | Role::Listener => Some(address(addr, format)?),
    };
    let doing = || addr.map_or_else(|| "open a device".to_owned(), |addr| format!("listen at {addr}"));
    let system = System::open(addr, role).map_err(|error| Error::os(error, doing()))?;
    let connect_deadline = connect_deadline();
    let read_from = match READ_FROM.number(MOST_EAGER as u64 + 1) {
        0 => usize::MAX,
        from => usize::try_from(from).unwrap_or(usize::MAX),
    };
    let read_known_from = if read_from == usize::MAX { read_from } else { read_from.min(READ_KNOWN_FROM) };
    let account = args.account.clone();
    Ok(Verbs::new(system, Settings { connect_deadline, account, read_from, read_known_from }))
}

impl provider::Provider for Provider {
    const NAME: &'static str = "verbs";
    const PARAMS: &'static [Param] = &[IFACE, CONNECT_TIMEOUT, READ_FROM, CACHE_COUNT, CACHE_SIZE, CACHE_MONITOR];
    type Held = ();

    fn offers() -> Vec<Offer> {
        vec![offer::rdm(), offer::rdm_layered(), offer::msg()]
    }

    fn hold() {}
}

impl provider::Provider for DatagramsProvider {
    const NAME: &'static str = "verbs";
    type Held = ();

    fn offers() -> Vec<Offer> {
        vec![offer::datagrams()]
    }

    fn hold() {}
}

impl DatagramProvider for DatagramsProvider {
    type Datagrams = Packets;

    fn open(self, addr: Option<Addr>, format: AddrFormat, _: TrafficClass) -> Result<Packets> {
        let addr = address(addr, format)?;
        let pair = PacketPair::open(addr).map_err(|error| Error::os(error, format!("open a queue pair at {addr}")))?;
        Ok(Packets::new(pair, connect_deadline()))
    }
}

impl LinkProvider for Provider {
    type Transport = Verbs;
    type Listener = Verbs;

    fn open_rdm(self, args: OpenArgs<'_>) -> Result<Verbs> {
        open(args.addr, args.format, Role::Peer, &args)
    }

    fn open_msg(self, args: OpenArgs<'_>) -> Result<Verbs> {
        open(args.addr, args.format, Role::Initiator, &args)
    }

    fn open_listener(self, args: OpenArgs<'_>) -> Result<Verbs> {
        open(args.addr, args.format, Role::Listener, &args)
    }
}
