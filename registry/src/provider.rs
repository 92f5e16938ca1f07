//! A provider as the API layers see it: a transport and its offers. Concrete types reach an API
//! layer through a visitor, so that no virtual call separates a posted message from the transport.

use ofi_core::error::{Error, Result};
use ofi_core::info::Offer;
use ofi_core::{Addr, AddrFormat, EndpointType, Errno, Info, ProgressModel, Threading, TrafficClass, Version};
use ofi_engine::datagram::Datagrams;
use ofi_engine::transport::{Listener, Transport};
use ofi_sync::account::Account;
use ofi_sync::lock::{LockKind, Park, Unlocked};
use std::sync::Arc;

/// A provider.
pub trait Provider: Copy + Send + Sync + 'static {
    /// The transport of its endpoints.
    type Transport: Transport<Request = <Self::Listener as Listener>::Request>;
    /// The listener of its passive endpoints.
    type Listener: Listener;

    /// The name of its core, as in `prov_name`.
    fn name(self) -> &'static str;
    /// Opens the transport of a connectionless endpoint. Its traffic has the given class, see
    /// [`class_of`]; `account` is charged for memory that it holds for peers.
    fn open_rdm(
        self,
        addr: Option<Addr>,
        format: AddrFormat,
        class: TrafficClass,
        account: &Arc<Account>,
    ) -> Result<Self::Transport>;
    /// Opens the transport of a connected endpoint.
    fn open_msg(self, addr: Option<Addr>, class: TrafficClass, account: &Arc<Account>) -> Result<Self::Transport>;
    /// Opens a listener.
    fn open_listener(
        self,
        addr: Option<Addr>,
        format: AddrFormat,
        class: TrafficClass,
        account: &Arc<Account>,
    ) -> Result<Self::Listener>;
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

    fn open_rdm(
        self,
        addr: Option<Addr>,
        format: AddrFormat,
        class: TrafficClass,
        account: &Arc<Account>,
    ) -> Result<ofi_tcp::Tcp> {
        ofi_tcp::open_rdm(addr, format, class, account)
    }

    fn open_msg(self, addr: Option<Addr>, class: TrafficClass, account: &Arc<Account>) -> Result<ofi_tcp::Tcp> {
        ofi_tcp::open_msg(addr, class, account)
    }

    fn open_listener(
        self,
        addr: Option<Addr>,
        format: AddrFormat,
        class: TrafficClass,
        account: &Arc<Account>,
    ) -> Result<ofi_tcp::TcpListener> {
        ofi_tcp::open_listener(addr, format, class, account)
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

    fn open_rdm(
        self,
        addr: Option<Addr>,
        _: AddrFormat,
        _: TrafficClass,
        account: &Arc<Account>,
    ) -> Result<ofi_shm::ShmTransport> {
        ofi_shm::open_rdm(addr, account)
    }

    fn open_msg(self, addr: Option<Addr>, _: TrafficClass, account: &Arc<Account>) -> Result<ofi_shm::ShmTransport> {
        ofi_shm::open_msg(addr, account)
    }

    fn open_listener(
        self,
        addr: Option<Addr>,
        _: AddrFormat,
        _: TrafficClass,
        account: &Arc<Account>,
    ) -> Result<ofi_shm::ShmListener> {
        ofi_shm::open_listener(addr, account)
    }
}

/// A provider of datagram endpoints.
pub trait DatagramProvider: Copy + Send + Sync + 'static {
    /// The socket of its endpoints.
    type Datagrams: Datagrams;

    /// The name of its core, as in `prov_name`.
    fn name(self) -> &'static str;
    /// Opens the socket of an endpoint; its packets have the given class.
    fn open(self, addr: Option<Addr>, format: AddrFormat, class: TrafficClass) -> Result<Self::Datagrams>;
}

/// The udp provider.
#[derive(Clone, Copy, Debug)]
pub struct Udp;

impl DatagramProvider for Udp {
    type Datagrams = ofi_udp::Udp;

    fn name(self) -> &'static str {
        "udp"
    }

    fn open(self, addr: Option<Addr>, format: AddrFormat, class: TrafficClass) -> Result<ofi_udp::Udp> {
        ofi_udp::open(addr, format, class)
    }
}

/// The providers. [`open`] matches all, so offering one without opening it does not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Tcp,
    Shm,
    Udp,
}

/// All offers in order of preference, each with the provider that makes it.
fn offers() -> [(Known, Offer); 6] {
    use ofi_tcp::offer;
    [
        (Known::Tcp, offer::rdm()),
        (Known::Tcp, offer::rdm_layered()),
        (Known::Shm, ofi_shm::offer::rdm()),
        (Known::Udp, ofi_udp::offer::dgram()),
        // An application that asks for a connection without naming a provider must not get one that
        // ends at this host.
        (Known::Tcp, offer::msg()),
        (Known::Shm, ofi_shm::offer::msg()),
    ]
}

/// The offers of all providers in order of preference.
pub fn providers() -> Vec<Offer> {
    offers().into_iter().map(|(_, offer)| offer).collect()
}

/// The provider of that name; of a layered name, the last layer decides.
fn known(name: &str) -> Option<Known> {
    let last = name.rsplit(';').next().unwrap_or(name);
    let names = |offer: &Offer| {
        let name = offer.most.fabric.prov_name.as_deref().unwrap_or_default();
        name.split(';').any(|part| part.eq_ignore_ascii_case(last))
    };
    offers().iter().find(|(_, offer)| names(offer)).map(|(known, _)| *known)
}

/// The traffic class of an endpoint of the provider `core`: its own, or that of its domain.
///
/// # Errors
/// EINVAL for an unknown class, or one that the provider's traffic cannot have.
pub fn class_of(info: &Info, core: &str) -> Result<TrafficClass> {
    let class = info.tx.tclass.or(info.domain.tclass);
    let offers = providers();
    let offer = offers.iter().find(|offer| offer.most.fabric.prov_name.as_deref() == Some(core));
    if !class.is_known() || !offer.is_none_or(|offer| offer.can_carry(class)) {
        return Err(Error::new(Errno::EINVAL, format!("open an endpoint of {core} with the traffic class {class:?}")));
    }
    Ok(class)
}

/// Whether a provider of that name exists; of a layered name, the last layer decides.
pub fn has_provider(name: &str) -> bool {
    known(name).is_some()
}

/// Receives the concrete types of a domain.
pub trait DomainVisitor {
    /// The result of the visit.
    type Output;
    /// Visits a provider with the domain's kind of locking.
    fn visit<P: Provider, K: LockKind>(self, provider: P, kind: K) -> Self::Output;
    /// The same for a provider of datagram endpoints.
    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output;
}

/// Opens the domain that `info` names, with the locking that its threading and progress require. An
/// API layer passes `unlocked` if it relies on its callers to keep FI_THREAD_DOMAIN.
pub fn open<V: DomainVisitor>(info: &Info, unlocked: Option<Unlocked>, visitor: V) -> Result<V::Output> {
    let name = info.fabric.prov_name.as_deref().unwrap_or("");
    let Some(known) = known(name) else {
        return Err(Error::new(Errno::ENODEV, format!("open a domain of provider \"{name}\"")));
    };
    let kind = unlocked.filter(|_| is_promised(info));
    Ok(match (known, kind) {
        (Known::Tcp, Some(kind)) => visitor.visit(Tcp, kind),
        (Known::Tcp, None) => visitor.visit(Tcp, Park),
        (Known::Shm, Some(kind)) => visitor.visit(Shm, kind),
        (Known::Shm, None) => visitor.visit(Shm, Park),
        (Known::Udp, Some(kind)) => visitor.visit_datagrams(Udp, kind),
        (Known::Udp, None) => visitor.visit_datagrams(Udp, Park),
    })
}

/// Whether the application promises that no two of its threads are in calls on objects of the domain at once.
fn is_promised(info: &Info) -> bool {
    // Up to 1.20, fi_domain(3) says of FI_THREAD_DOMAIN that applications serialize "access to all
    // objects belonging to a domain", control calls included. Since 1.21 the promise excludes
    // control calls, unless FI_PROGRESS_CONTROL_UNIFIED includes them. The caller's version decides
    // which manual applies.
    let progress = info.domain.progress;
    let all_calls = progress == ProgressModel::CONTROL_UNIFIED
        || progress != ProgressModel::AUTO && info.fabric.api_version < Version::new(1, 21);
    // Reading an event queue, which belongs to no domain, also progresses connected endpoints.
    info.domain.threading == Threading::DOMAIN && all_calls && info.ep.kind != EndpointType::MSG
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name of the provider that it visits.
    struct Which;

    impl DomainVisitor for Which {
        type Output = &'static str;
        fn visit<P: Provider, K: LockKind>(self, provider: P, _: K) -> &'static str {
            provider.name()
        }
        fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, _: K) -> &'static str {
            provider.name()
        }
    }

    fn opened(name: &str) -> Result<&'static str> {
        let mut info = Info::default();
        info.fabric.prov_name = Some(name.to_owned());
        open(&info, None, Which)
    }

    #[test]
    fn every_offer_opens_the_provider_that_made_it() {
        for (known, offer) in offers() {
            let name = offer.most.fabric.prov_name.unwrap_or_default();
            let core = name.split(';').next().unwrap_or_default().to_owned();
            assert_eq!(format!("{known:?}").to_ascii_lowercase(), core, "{name} is offered by {known:?}");
            assert_eq!(opened(&name).unwrap(), core);
            assert!(has_provider(&name) && has_provider(&name.to_ascii_uppercase()));
        }
    }

    #[test]
    fn traffic_within_the_host_has_only_the_usual_class() {
        for (known, offer) in offers() {
            for class in [TrafficClass::UNSPEC, TrafficClass::BEST_EFFORT, TrafficClass::DSCP] {
                assert!(offer.can_carry(class), "{known:?}: {class:?}");
            }
            let urgent = TrafficClass(TrafficClass::DSCP.0 | 46);
            assert_eq!(offer.can_carry(urgent), offer.interfaces.is_some(), "{known:?}");
        }
    }

    #[test]
    fn names_without_a_provider_open_nothing() {
        for name in ["", "verbs", "tcp;verbs", "tcp2"] {
            assert!(!has_provider(name), "{name}");
            assert_eq!(opened(name).unwrap_err().errno(), Errno::ENODEV);
        }
        assert_eq!(opened("off_hook;shm").unwrap(), "shm");
        assert_eq!(opened("ofi_rxm").unwrap(), "tcp");
    }

    #[test]
    fn locks_go_only_where_the_caller_serializes_control_calls_too() {
        let unlocked = |threading, progress, version, kind| {
            let mut info = Info::default();
            (info.domain.threading, info.domain.progress) = (threading, progress);
            (info.fabric.api_version, info.ep.kind) = (version, kind);
            is_promised(&info)
        };
        let (old, new) = (Version::new(1, 20), Version::new(1, 21));
        let (manual, unified, auto) = (ProgressModel::MANUAL, ProgressModel::CONTROL_UNIFIED, ProgressModel::AUTO);
        assert!(unlocked(Threading::DOMAIN, manual, old, EndpointType::RDM));
        assert!(!unlocked(Threading::DOMAIN, manual, new, EndpointType::RDM));
        assert!(unlocked(Threading::DOMAIN, unified, new, EndpointType::RDM));
        assert!(!unlocked(Threading::DOMAIN, auto, old, EndpointType::RDM));
        assert!(!unlocked(Threading::DOMAIN, manual, old, EndpointType::MSG));
        assert!(!unlocked(Threading::SAFE, manual, old, EndpointType::RDM));
        assert!(!unlocked(Threading::COMPLETION, unified, new, EndpointType::RDM));
    }
}
