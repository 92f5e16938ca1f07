//! A provider as the shells see it: a transport and its offers. Concrete types reach a shell by a visitor, so that no
//! virtual call creeps between a posted message and the transport.

use ofi_core::error::{Error, Result};
use ofi_core::info::Offer;
use ofi_core::{Addr, AddrFormat, EndpointType, Errno, Info, ProgressModel, Threading, Version};
use ofi_engine::datagram::Datagrams;
use ofi_engine::transport::{Listener, Transport};
use ofi_sync::lock::{LockKind, Park, Unlocked};

/// A provider.
pub trait Provider: Copy + Send + Sync + 'static {
    /// What carries its frames.
    type Transport: Transport<Request = <Self::Listener as Listener>::Request>;
    /// What listens for its connected endpoints.
    type Listener: Listener;

    /// The name of its core, as in `prov_name`.
    fn name(self) -> &'static str;
    /// Opens the transport of a connectionless endpoint.
    fn open_rdm(self, addr: Option<Addr>, format: AddrFormat) -> Result<Self::Transport>;
    /// Opens the transport of a connected endpoint.
    fn open_msg(self, addr: Option<Addr>) -> Result<Self::Transport>;
    /// Opens a listener.
    fn open_listener(self, addr: Option<Addr>, format: AddrFormat) -> Result<Self::Listener>;
}

/// The tcp provider.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl Provider for Tcp {
    type Transport = ofi_tcp::Tcp;
    type Listener = ofi_tcp::TcpListener;

    fn name(self) -> &'static str {
        "tcp"
    }

    fn open_rdm(self, addr: Option<Addr>, format: AddrFormat) -> Result<ofi_tcp::Tcp> {
        ofi_tcp::open_rdm(addr, format)
    }

    fn open_msg(self, addr: Option<Addr>) -> Result<ofi_tcp::Tcp> {
        ofi_tcp::open_msg(addr)
    }

    fn open_listener(self, addr: Option<Addr>, format: AddrFormat) -> Result<ofi_tcp::TcpListener> {
        ofi_tcp::open_listener(addr, format)
    }
}

/// The shm provider.
#[derive(Clone, Copy, Debug)]
pub struct Shm;

impl Provider for Shm {
    type Transport = ofi_shm::ShmTransport;
    type Listener = ofi_shm::ShmListener;

    fn name(self) -> &'static str {
        "shm"
    }

    fn open_rdm(self, addr: Option<Addr>, _format: AddrFormat) -> Result<ofi_shm::ShmTransport> {
        ofi_shm::open_rdm(addr)
    }

    fn open_msg(self, _addr: Option<Addr>) -> Result<ofi_shm::ShmTransport> {
        ofi_shm::open_msg()
    }

    fn open_listener(self, addr: Option<Addr>, _format: AddrFormat) -> Result<ofi_shm::ShmListener> {
        ofi_shm::open_listener(addr)
    }
}

/// A provider of datagram endpoints.
pub trait DatagramProvider: Copy + Send + Sync + 'static {
    /// What carries its packets.
    type Datagrams: Datagrams;

    /// The name of its core, as in `prov_name`.
    fn name(self) -> &'static str;
    /// Opens the socket of an endpoint.
    fn open(self, addr: Option<Addr>, format: AddrFormat) -> Result<Self::Datagrams>;
}

/// The udp provider.
#[derive(Clone, Copy, Debug)]
pub struct Udp;

impl DatagramProvider for Udp {
    type Datagrams = ofi_udp::Udp;

    fn name(self) -> &'static str {
        "udp"
    }

    fn open(self, addr: Option<Addr>, format: AddrFormat) -> Result<ofi_udp::Udp> {
        ofi_udp::open(addr, format)
    }
}

/// The offers of all providers in order of preference.
pub fn providers() -> Vec<Offer> {
    use ofi_tcp::offer;
    let shm = ofi_shm::offer::rdm();
    // Whoever asks for a connection without saying by what must not get one that ends at this host.
    vec![offer::rdm(), offer::rdm_layered(), shm, ofi_udp::offer::dgram(), offer::msg(), ofi_shm::offer::msg()]
}

/// Whether there is a provider of that name; of a layered name the last part counts.
pub fn has_provider(name: &str) -> bool {
    let last = name.rsplit(';').next().unwrap_or(name);
    let names = |offer: &Offer| {
        let name = offer.most.fabric.prov_name.clone().unwrap_or_default();
        name.split(';').any(|part| part.eq_ignore_ascii_case(last))
    };
    providers().iter().any(names)
}

/// Receives the concrete types of a domain.
pub trait DomainVisitor {
    /// What it makes of them.
    type Output;
    /// The domain's provider and its kind of locking.
    fn visit<P: Provider, K: LockKind>(self, provider: P, kind: K) -> Self::Output;
    /// The same for a provider of datagram endpoints.
    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output;
}

/// Opens what `info` names, with the locking that its threading and progress call for. `unlocked` is given by a shell
/// whose caller promised FI_THREAD_DOMAIN.
pub fn open<V: DomainVisitor>(info: &Info, unlocked: Option<Unlocked>, visitor: V) -> Result<V::Output> {
    let name = info.fabric.prov_name.as_deref().unwrap_or("");
    if !has_provider(name) {
        return Err(Error::new(Errno::ENODEV, format!("open a domain of provider \"{name}\"")));
    }
    // Connected endpoints also move on when an event queue is read, which belongs to no domain. Since 1.21 control calls
    // are outside the promise of FI_THREAD_DOMAIN, unless FI_PROGRESS_CONTROL_UNIFIED takes them in.
    let progress = info.domain.progress;
    let all_calls = progress == ProgressModel::CONTROL_UNIFIED
        || progress != ProgressModel::AUTO && info.fabric.api_version < Version::new(1, 21);
    let promised = info.domain.threading == Threading::DOMAIN && all_calls && info.ep.kind != EndpointType::MSG;
    let is = |core: &str| name.rsplit(';').any(|layer| layer.eq_ignore_ascii_case(core));
    Ok(match unlocked.filter(|_| promised) {
        Some(kind) if is("udp") => visitor.visit_datagrams(Udp, kind),
        None if is("udp") => visitor.visit_datagrams(Udp, Park),
        Some(kind) if is("shm") => visitor.visit(Shm, kind),
        None if is("shm") => visitor.visit(Shm, Park),
        Some(kind) => visitor.visit(Tcp, kind),
        None => visitor.visit(Tcp, Park),
    })
}
